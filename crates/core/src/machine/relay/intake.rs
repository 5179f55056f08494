//! Reading: new rows, republished rows, and parked rows that are due.

use std::collections::BTreeMap;
use std::time::Duration;

use super::flight::{Lane, Waiting, lane};
use super::words::{Do, Home, Reading};
use super::{DUE_EVERY, Relay};
use crate::port::{Chunk, Fate, OutboxRow, Park, Republished, Settled, Track};

/// A chunk whose rows are not all published or parked.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) id: u64,
    pub(super) rows: usize,
    pub(super) bytes: usize,
    pub(super) tracks: Vec<Track>,
    pub(super) parks: Vec<Park>,
    pub(super) parked_lanes: Vec<u64>,
    pub(super) republished: BTreeMap<i64, Republished>,
    pub(super) read: u64,
}

/// A key with parked rows that the store may not show yet.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) not_written: usize,
    /// Reads that began after this one see the parked rows in the store.
    pub(super) seen_after: u64,
}

/// The parked rows that are being tried.
#[derive(Debug, Default)]
pub(super) struct DueRound {
    pub(super) open: usize,
    pub(super) settled: Vec<(i64, Settled)>,
    pub(super) took: usize,
}

impl Relay {
    /// Reads on, and polls parked rows that are due.
    pub(super) fn look(&mut self, now: Duration, epoch: i64, todo: &mut Vec<Do>) {
        if self.asking.lease || self.dropping {
            return;
        }
        // Parked rows wait until the requested rows of their keys are published, or parked and
        // written: only then does the store know which row of a key comes first.
        let republishing =
            self.base.iter().chain(&self.tracks).any(|track| track.republishing.is_some());
        if self.due.is_none() && !self.asking.due && !republishing {
            if self.due_at <= now {
                self.asking.due = true;
                todo.push(Do::Due(epoch));
            } else {
                self.wake_by(self.due_at);
            }
        }
        let room = self.chunks.len() < self.plan.chunks && self.bytes < self.plan.bytes;
        if self.asking.read || self.tracks.is_empty() || !room {
            return;
        }
        if self.poll_at > now {
            self.wake_by(self.poll_at);
            return;
        }
        self.asking.read = true;
        self.reads += 1;
        todo.push(Do::Read(Reading {
            epoch,
            tracks: self.tracks.clone(),
            limit: self.limit,
            fresh: self.fresh,
            number: self.reads,
            marked: self.marks.upto,
        }));
    }

    pub(super) fn read(&mut self, now: Duration, chunk: Chunk) {
        self.asking.read = false;
        // The lease was lost in between: the rows belong to another relay.
        if self.lost || self.dropping {
            return;
        }
        self.fresh = false;
        let reads = self.reads;
        self.blocked.retain(|_, block| block.not_written > 0 || reads <= block.seen_after);
        if chunk.tracks.iter().any(|track| track.republishing.is_some()) {
            self.poll_at = now;
        } else if chunk.rows.is_empty() {
            self.pause = (self.pause * 2).min(self.plan.poll.1);
            self.poll_at = now + self.pause;
            if chunk.tracks == self.tracks {
                return;
            }
        } else {
            self.pause = self.plan.poll.0;
            let full = chunk.rows.len() * 4 >= self.limit;
            self.poll_at = if full { now } else { now + self.pause };
        }
        let bytes: usize = chunk.rows.iter().map(OutboxRow::size).sum();
        if let Some(average) = bytes.checked_div(chunk.rows.len()) {
            let room = self.plan.bytes / self.plan.chunks.max(1) / average.max(1);
            // At most doubled: the next rows may be larger than these.
            self.limit = room.clamp(1, self.plan.chunk_rows).min(self.limit * 2);
        }
        self.bytes += bytes;
        let id = self.next_chunk;
        self.next_chunk += 1;
        self.tracks = chunk.tracks;
        self.chunks.push_back(Open {
            id,
            rows: chunk.rows.len(),
            bytes,
            tracks: self.tracks.clone(),
            parks: Vec::new(),
            parked_lanes: Vec::new(),
            republished: BTreeMap::new(),
            read: self.reads,
        });
        for row in chunk.rows {
            let lane = row.key.as_deref().map(lane);
            let blocked = lane.is_some_and(|lane| self.blocked.contains_key(&lane));
            if blocked || row.behind {
                let park = Park { seq: row.seq, fate: Fate::Behind, stamp: row.stamp };
                self.park(id, lane, row.republish, park);
            } else {
                self.enter(Waiting { row, lane, home: Home::Chunk(id) });
            }
        }
    }

    /// Queues a row behind the rows of its key that are waiting or in flight.
    fn enter(&mut self, waiting: Waiting) {
        let Some(lane) = waiting.lane else {
            self.ready.push_back(waiting);
            return;
        };
        match self.lanes.get_mut(&lane) {
            Some(lane) => lane.waiting.push_back(waiting),
            None => {
                self.lanes.insert(lane, Lane::default());
                self.ready.push_back(waiting);
            }
        }
    }

    pub(super) fn due(&mut self, now: Duration, rows: Vec<OutboxRow>) {
        self.asking.due = false;
        self.due_at = now + DUE_EVERY;
        if rows.is_empty() || self.lost || self.dropping {
            return;
        }
        self.due = Some(DueRound { open: rows.len(), ..DueRound::default() });
        for row in rows {
            let home =
                Home::Parked { attempts: row.tried.attempts, first: row.tried.first_failed_at };
            self.enter(Waiting { lane: row.key.as_deref().map(lane), row, home });
        }
    }

    /// In an outage, goes back to the last checkpoint, so that no rows are held in memory
    /// meanwhile.
    pub(super) fn drop_chunks(&mut self) {
        let unwritten = self.done.is_some() || self.asking.checkpoint;
        if self.in_flight > 0 || self.asking.read || self.asking.due || unwritten {
            return;
        }
        // The rows of a round that are not settled stay parked.
        if let Some(round) = &mut self.due {
            if self.asking.settle {
                return;
            }
            round.open = 0;
        }
        self.drop_rows();
        self.tracks.clone_from(&self.base);
        self.dropping = false;
        if let Some(outage) = &self.outage {
            self.poll_at = self.poll_at.max(outage.probe_at);
        }
    }
}
