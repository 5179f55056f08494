//! The store of the explorer: leases, cursors, parked rows, marks and republish requests.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use chapar_core::machine::stamps::Stamp;
use chapar_core::port::{
    Checkpoint, Chunk, Cursor, Fate, KeyMarks, Lease, OutboxRow, Park, Settled, Shard, Track, Tried,
};
use jiff::Timestamp;

use crate::world::TTL;

pub(crate) const SHARDS: Shard = 4;

/// What a SQL store does, in as few words as possible.
#[derive(Default)]
pub(crate) struct Store {
    /// In commit order.
    pub(crate) log: Vec<(i64, String)>,
    /// The transaction id of each row. Ids are also given to transactions that write no row.
    ids: Vec<u64>,
    next_id: u64,
    /// Ids below this one survive a crash; others are given out again after it.
    flushed: u64,
    /// Positions that were read in an earlier life mean nothing.
    life: u64,
    lives: HashMap<i64, u64>,
    pub(crate) relays: BTreeMap<i64, Duration>,
    pub(crate) shards: BTreeMap<Shard, (Option<i64>, i64)>,
    tracks: HashMap<i64, Place>,
    pub(crate) parked: BTreeMap<i64, Parked>,
    /// How far the marks of each shard are written.
    marked: HashMap<Shard, usize>,
    /// The marked rows of each key and topic.
    marks: HashMap<String, BTreeMap<String, Vec<i64>>>,
    requests: Vec<Request>,
    /// The republish requests that were started in a shard, with the last call before each.
    pub(crate) started: HashMap<Shard, Vec<(i64, u64)>>,
    next_epoch: i64,
    next_track: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Parked {
    pub(crate) key: String,
    pub(crate) attempts: u32,
    pub(crate) first: Option<Timestamp>,
    pub(crate) due: Duration,
    pub(crate) quarantined: bool,
    pub(crate) stamp: Option<String>,
}

#[derive(Debug)]
struct Request {
    from: i64,
    ended: bool,
    cancelled: bool,
}

/// A cursor: the rows of all transactions below an id are done; and the rows to republish before
/// reading on.
#[derive(Clone, Debug, Default, PartialEq)]
struct Place {
    at: u64,
    /// The last request that was started.
    started: i64,
    /// How far the request has come, and its last row.
    again: Option<(i64, i64)>,
}

impl Place {
    fn parse(cursor: &Cursor) -> Place {
        let mut parts = cursor.0.split(' ').map(|part| part.parse::<i64>().unwrap());
        let (at, started) = (parts.next().unwrap() as u64, parts.next().unwrap());
        Place { at, started, again: parts.next().zip(parts.next()) }
    }

    fn cursor(&self) -> Cursor {
        let again = self.again.map(|(after, upto)| format!(" {after} {upto}"));
        Cursor(format!("{} {}{}", self.at, self.started, again.unwrap_or_default()))
    }

    fn republishing(&self) -> Option<i64> {
        self.again.map(|_| self.started)
    }
}

pub(crate) fn shard(key: &str) -> Shard {
    key.bytes().map(Shard::from).sum::<Shard>() % SHARDS
}

impl Store {
    pub(crate) fn new() -> Store {
        let mut store = Store { next_track: 2, ..Store::default() };
        store.shards = (0..SHARDS).map(|shard| (shard, (None, 1))).collect();
        store.tracks.insert(1, Place::default());
        store
    }

    /// Commits a row.
    pub(crate) fn append(&mut self, key: String) -> i64 {
        let seq = self.log.len() as i64 + 1;
        self.log.push((seq, key));
        self.ids.push(self.next_id);
        self.next_id += 1;
        self.flushed = self.next_id;
        seq
    }

    /// Transactions that write nothing take ids, which nothing makes durable.
    pub(crate) fn burn_ids(&mut self, count: u64) {
        self.next_id += count;
    }

    /// The database crashes and is back at once. Leases still run out in their own time: their
    /// holders may be publishing.
    pub(crate) fn crash(&mut self) {
        self.next_id = self.flushed;
        self.life += 1;
    }

    /// Whether a relay's positions are from an earlier life.
    pub(crate) fn is_void(&self, epoch: i64) -> bool {
        self.lives.get(&epoch) != Some(&self.life)
    }

    /// The number of rows behind a position.
    fn behind(&self, at: u64) -> usize {
        self.ids.partition_point(|id| *id < at)
    }

    pub(crate) fn bury(&mut self, epoch: i64) {
        self.relays.remove(&epoch);
        for (owner, _) in self.shards.values_mut().filter(|(owner, _)| *owner == Some(epoch)) {
            *owner = None;
        }
    }

    pub(crate) fn share(&self, epoch: i64) -> (usize, usize) {
        let held = self.shards.values().filter(|(owner, _)| *owner == Some(epoch)).count();
        let live = self.relays.len().max(1);
        let share = usize::from(SHARDS).div_ceil(live);
        (held.min(share), held)
    }

    pub(crate) fn lease(&mut self, epoch: Option<i64>, now: Duration, issued: u64) -> Lease {
        let dead: Vec<i64> =
            self.relays.iter().filter(|(_, at)| **at <= now).map(|(epoch, _)| *epoch).collect();
        for dead in dead {
            self.bury(dead);
        }
        let epoch = epoch.filter(|epoch| self.relays.contains_key(epoch)).unwrap_or_else(|| {
            self.next_epoch += 1;
            self.next_epoch
        });
        self.relays.insert(epoch, now + TTL);
        self.lives.insert(epoch, self.life);
        let share = usize::from(SHARDS).div_ceil(self.relays.len());
        let mut held = 0;
        for (owner, track) in self.shards.values_mut() {
            if *owner == Some(epoch) && held >= share {
                // A shard that is returned takes a copy of the cursor with it.
                let cursor = self.tracks[track].clone();
                *track = self.next_track;
                self.tracks.insert(*track, cursor);
                self.next_track += 1;
                *owner = None;
            } else if *owner == Some(epoch) || (owner.is_none() && held < share) {
                if owner.is_none() {
                    let cursor = self.tracks[track].clone();
                    *track = self.next_track;
                    self.tracks.insert(*track, cursor);
                    self.next_track += 1;
                    *owner = Some(epoch);
                }
                held += 1;
            }
        }
        let mut tracks: BTreeMap<i64, Vec<Shard>> = BTreeMap::new();
        for (shard, (_, track)) in self.shards.iter().filter(|(_, (o, _))| *o == Some(epoch)) {
            tracks.entry(*track).or_default().push(*shard);
        }
        for (id, shards) in &tracks {
            let mut place = self.tracks[id].clone();
            if self.prepare(&mut place) {
                for shard in shards {
                    self.started.entry(*shard).or_default().push((place.started, issued));
                }
            }
            self.tracks.insert(*id, place);
        }
        let tracks = tracks.into_iter().map(|(id, shards)| {
            let place = &self.tracks[&id];
            let (cursor, republishing) = (place.cursor(), place.republishing());
            Track { id, version: 0, shards, cursor, republishing }
        });
        Lease { epoch, tracks: tracks.collect(), life: 0 }
    }

    pub(crate) fn ask(&mut self, from: i64) -> i64 {
        self.requests.push(Request { from, ended: false, cancelled: false });
        self.requests.len() as i64
    }

    /// Cancels the oldest request that is not done, if there is one.
    pub(crate) fn cancel(&mut self) -> bool {
        let Some(request) = self.requests.iter_mut().find(|request| !request.ended) else {
            return false;
        };
        request.ended = true;
        request.cancelled = true;
        true
    }

    pub(crate) fn is_cancelled(&self, request: i64) -> bool {
        self.request(request).cancelled
    }

    pub(crate) fn is_republishing(&self) -> bool {
        self.requests.iter().any(|request| !request.ended)
    }

    /// Drops a request that was cancelled, and starts the next one; says whether one was started.
    fn prepare(&self, place: &mut Place) -> bool {
        place.again.take_if(|_| self.request(place.started).ended);
        let next = self.next_request(place);
        if let Some(next) = next.filter(|_| place.again.is_none()) {
            place.started = next;
            place.again = Some((self.request(next).from, self.behind(place.at) as i64));
            return true;
        }
        false
    }

    fn request(&self, request: i64) -> &Request {
        &self.requests[request as usize - 1]
    }

    fn next_request(&self, place: &Place) -> Option<i64> {
        (place.started + 1..=self.requests.len() as i64).find(|next| !self.request(*next).ended)
    }

    /// Whether a lease call would start or drop a request.
    pub(crate) fn has_work_for(&self, epoch: i64) -> bool {
        let held = self.shards.values().filter(|(owner, _)| *owner == Some(epoch));
        held.map(|(_, track)| &self.tracks[track]).any(|place| match place.again {
            Some(_) => self.request(place.started).ended,
            None => self.next_request(place).is_some(),
        })
    }

    /// Ends the requests that all shards are done with.
    pub(crate) fn end_requests(&mut self) {
        let places: Vec<&Place> =
            self.shards.values().map(|(_, track)| &self.tracks[track]).collect();
        for (n, request) in self.requests.iter_mut().enumerate() {
            let id = n as i64 + 1;
            let past = |place: &&Place| match place.started.cmp(&id) {
                std::cmp::Ordering::Less => false,
                std::cmp::Ordering::Equal => place.again.is_none(),
                std::cmp::Ordering::Greater => true,
            };
            request.ended |= places.iter().all(past);
        }
    }

    /// The rows that are published for certain.
    pub(crate) fn published_after(&self, from: i64) -> Vec<i64> {
        let published = |(seq, key): &&(i64, String)| {
            let place = &self.tracks[&self.shards[&shard(key)].1];
            *seq > from && *seq <= self.behind(place.at) as i64 && !self.parked.contains_key(seq)
        };
        self.log.iter().filter(published).map(|(seq, _)| *seq).collect()
    }

    /// The next row of a request in these shards.
    fn next_again(&self, shards: &[Shard], place: &mut Place) -> Option<OutboxRow> {
        let (after, upto) = place.again.as_mut()?;
        while *after < *upto {
            *after += 1;
            let (seq, key) = &self.log[*after as usize - 1];
            if !shards.contains(&shard(key)) || self.parked.contains_key(seq) {
                continue;
            }
            let behind = |(other, parked): (&i64, &Parked)| other < seq && parked.key == *key;
            let behind = self.parked.iter().any(behind);
            let stamp = self.stamp_again(*seq, key);
            let republish = Some(place.started);
            return Some(OutboxRow {
                stamp,
                republish,
                ..row(*seq, key, behind, Tried::default())
            });
        }
        place.again = None;
        None
    }

    /// The stamp of a row, from the marks of its key.
    fn stamp_again(&self, seq: i64, key: &str) -> Option<String> {
        let marks = self.marks.get(key)?;
        marks.get(topic(seq)).filter(|marked| marked.contains(&seq))?;
        let last = |marked: &Vec<i64>| marked.iter().copied().filter(|other| *other < seq).max();
        let after: Vec<(&String, i64)> =
            marks.iter().filter_map(|(topic, marked)| Some((topic, last(marked)?))).collect();
        Some(Stamp::write(seq, &after))
    }

    pub(crate) fn read(&self, mut tracks: Vec<Track>, limit: usize) -> Chunk {
        let mut rows = Vec::new();
        for track in &mut tracks {
            let mut place = Place::parse(&track.cursor);
            while place.again.is_some() && rows.len() < limit {
                rows.extend(self.next_again(&track.shards, &mut place));
            }
            let mut next = self.behind(place.at);
            while next < self.log.len() && rows.len() < limit {
                let (seq, key) = &self.log[next];
                place.at = self.ids[next] + 1;
                next += 1;
                if track.shards.contains(&shard(key)) {
                    let behind = self.parked.values().any(|parked| parked.key == *key);
                    rows.push(row(*seq, key, behind, Tried::default()));
                }
            }
            if next == self.log.len() && place.again.is_none() {
                place.at = place.at.max(self.next_id);
            }
            track.cursor = place.cursor();
            track.republishing = place.republishing();
        }
        Chunk { rows, tracks }
    }

    pub(crate) fn checkpoint(&mut self, checkpoint: Checkpoint, now: Duration) {
        self.next_id += 1;
        self.flushed = self.next_id;
        for track in checkpoint.tracks {
            self.tracks.insert(track.id, Place::parse(&track.cursor));
        }
        for Park { seq, fate, stamp } in checkpoint.parks {
            let key = self.log[seq as usize - 1].1.clone();
            let (attempts, due, quarantined) = match fate {
                Fate::Behind => (0, now, false),
                Fate::Retry { at, .. } => (1, mono(at), false),
                Fate::Quarantine { .. } => (1, now, true),
            };
            let first = (attempts > 0).then(|| wall(now));
            let parked = Parked { key, attempts, first, due, quarantined, stamp };
            self.parked.entry(seq).or_insert(parked);
        }
    }

    pub(crate) fn mark(&mut self, tracks: &[Track]) {
        for track in tracks {
            let to = self.behind(Place::parse(&track.cursor).at);
            for part in &track.shards {
                let from = self.marked.insert(*part, to).unwrap_or(0);
                for (seq, key) in
                    self.log[from.min(to)..to].iter().filter(|(_, key)| shard(key) == *part)
                {
                    let marks = self.marks.entry(key.clone()).or_default();
                    marks.entry(topic(*seq).into()).or_default().push(*seq);
                }
            }
        }
    }

    pub(crate) fn marks_of(&self, keys: &[String]) -> Vec<KeyMarks> {
        let last = |(topic, marked): (&String, &Vec<i64>)| {
            Some((topic.clone(), marked.iter().copied().max()?))
        };
        let marks = |key: &String| {
            let marks = self.marks.get(key)?.iter().filter_map(last).collect();
            Some(KeyMarks { key: key.clone(), marks })
        };
        keys.iter().filter_map(marks).collect()
    }

    pub(crate) fn due(&self, epoch: i64, now: Duration) -> Vec<OutboxRow> {
        let mut rows = Vec::new();
        let mut stuck = HashSet::new();
        for (seq, parked) in &self.parked {
            let ours = self.shards[&shard(&parked.key)].0 == Some(epoch);
            if !ours || stuck.contains(&parked.key) {
                continue;
            }
            if parked.quarantined || parked.due > now {
                stuck.insert(parked.key.clone());
                continue;
            }
            let tried = Tried { attempts: parked.attempts, first_failed_at: parked.first };
            let stamp = parked.stamp.clone();
            rows.push(OutboxRow { stamp, ..row(*seq, &parked.key, false, tried) });
        }
        rows.truncate(5);
        rows
    }

    pub(crate) fn settle(&mut self, settled: Vec<(i64, Settled)>, now: Duration) {
        for (seq, settled) in settled {
            match settled {
                Settled::Published => {
                    self.parked.remove(&seq);
                }
                Settled::Failed { fate, counts } => {
                    let Some(parked) = self.parked.get_mut(&seq) else { continue };
                    parked.attempts += u32::from(counts);
                    parked.first.get_or_insert(wall(now));
                    match fate {
                        Fate::Retry { at, .. } => parked.due = mono(at),
                        Fate::Quarantine { .. } => parked.quarantined = true,
                        Fate::Behind => {}
                    }
                }
            }
        }
    }
}

pub(crate) const TOPICS: [&str; 3] = ["made", "paid", "sent"];

pub(crate) fn topic(seq: i64) -> &'static str {
    TOPICS[seq as usize % TOPICS.len()]
}

fn row(seq: i64, key: &str, behind: bool, tried: Tried) -> OutboxRow {
    OutboxRow {
        seq,
        event_id: format!("e{seq}").parse().unwrap(),
        topic: topic(seq).into(),
        tenant: "acme".into(),
        key: Some(key.into()),
        headers: Default::default(),
        body: Bytes::new(),
        behind,
        tried,
        stamp: None,
        republish: None,
        draft: None,
        unreadable: None,
        written_at: Timestamp::UNIX_EPOCH,
    }
}

pub(crate) fn wall(now: Duration) -> Timestamp {
    Timestamp::UNIX_EPOCH.saturating_add(now).unwrap()
}

fn mono(at: Timestamp) -> Duration {
    at.duration_since(Timestamp::UNIX_EPOCH).unsigned_abs()
}
