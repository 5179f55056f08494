//! Publishing: one lane per key, failures, and outages of the transport.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::intake::Open;
use super::words::{Do, Home, PublishError, Sending, Ticket};
use super::{AGAIN, Relay};
use crate::machine::retry::Next;
use crate::port::{Fate, OutboxRow, Park, Settled};

/// The rows of a key that are waiting or in flight.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) waiting: VecDeque<Waiting>,
    flying: usize,
    failed: bool,
}

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) row: OutboxRow,
    pub(super) lane: Option<u64>,
    pub(super) home: Home,
}

/// The transport accepts nothing.
#[derive(Debug)]
pub(super) struct Outage {
    since: Duration,
    tries: u32,
    pub(super) probe_at: Duration,
}

/// After this long without any success, the rows that were tried are parked after all.
const BLAME_AFTER: Duration = Duration::from_secs(10);
/// The most rows of a probe, each of another topic.
const PROBES: usize = 16;

impl Relay {
    pub(super) fn publish(&mut self, now: Duration, todo: &mut Vec<Do>) {
        if self.dropping || self.ready.is_empty() {
            return;
        }
        if let Some(outage) = &self.outage {
            if self.in_flight > 0 {
                return;
            }
            if outage.probe_at > now {
                self.wake_by(outage.probe_at);
                return;
            }
            let probes = self.probes();
            return self.send(probes, todo);
        }
        while !self.ready.is_empty() {
            let mut batch = Vec::new();
            while batch.len() < self.plan.chunk_rows
                && let Some(waiting) = self.ready.pop_front()
            {
                let lane = waiting.lane;
                batch.push(waiting);
                if self.plan.ordered_in_flight
                    && let Some(lane) = lane.and_then(|lane| self.lanes.get_mut(&lane))
                {
                    batch.extend(std::mem::take(&mut lane.waiting));
                }
            }
            self.send(batch, todo);
        }
    }

    /// A few rows of different topics: one topic that accepts nothing must not hide that others
    /// do.
    fn probes(&mut self) -> Vec<Waiting> {
        let mut topics = HashSet::new();
        let mut probes = Vec::new();
        let mut rest = VecDeque::with_capacity(self.ready.len());
        for waiting in std::mem::take(&mut self.ready) {
            if probes.len() < PROBES && topics.insert(waiting.row.topic.clone()) {
                probes.push(waiting);
            } else {
                rest.push_back(waiting);
            }
        }
        self.ready = rest;
        probes
    }

    fn send(&mut self, batch: Vec<Waiting>, todo: &mut Vec<Do>) {
        self.in_flight += batch.len();
        for waiting in &batch {
            if let Some(lane) = waiting.lane.and_then(|lane| self.lanes.get_mut(&lane)) {
                lane.flying += 1;
            }
        }
        todo.push(Do::Publish(batch.into_iter().map(|waiting| self.sending(waiting)).collect()));
    }

    fn sending(&self, waiting: Waiting) -> Sending {
        let Waiting { mut row, lane, home } = waiting;
        let ticket = Ticket {
            seq: row.seq,
            lane,
            home,
            stamp: row.stamp.clone(),
            republish: row.republish,
            successes: self.successes,
        };
        row.behind = false;
        Sending { row, ticket }
    }

    pub(super) fn published(
        &mut self,
        now: Duration,
        wall: Timestamp,
        dice: f64,
        results: Vec<(Ticket, Result<(), PublishError>)>,
    ) {
        self.in_flight -= results.len();
        let taken = results.iter().filter(|(_, result)| result.is_ok()).count() as u64;
        self.successes += taken;
        if taken > 0 {
            self.outage = None;
        }
        for (ticket, result) in results {
            // If nothing has succeeded since it was sent, the failure says nothing about the row.
            let outage = self.successes == ticket.successes;
            match result {
                Ok(()) => self.took(&ticket),
                Err(PublishError::Never(error)) => {
                    self.refused(ticket, Fate::Quarantine { error }, true);
                }
                Err(PublishError::Behind) => self.refused(ticket, Fate::Behind, false),
                Err(PublishError::Later(_)) if outage && self.give_up_chunks(now, &ticket) => {}
                Err(PublishError::Later(error)) => {
                    let (tries, first) = match ticket.home {
                        Home::Chunk(_) => (1, wall),
                        Home::Parked { attempts, first } => (attempts + 1, first.unwrap_or(wall)),
                    };
                    let fate = match self.plan.retry.after(tries, first, wall, dice) {
                        Next::RetryAt(at) => {
                            let pause = at.duration_since(wall).unsigned_abs();
                            self.due_at = self.due_at.min(now + pause);
                            Fate::Retry { at, error }
                        }
                        Next::GiveUp => Fate::Quarantine { error },
                    };
                    self.refused(ticket, fate, !outage);
                }
            }
        }
    }

    /// Whether the relay drops its rows and waits because of a failure in an outage. Rows that
    /// were parked before are parked again instead, and so are all rows in a long outage.
    fn give_up_chunks(&mut self, now: Duration, ticket: &Ticket) -> bool {
        let pause = |tries: u32| Duration::from_millis(50 << tries.min(6)).min(AGAIN * 10);
        let outage = self.outage.get_or_insert(Outage { since: now, tries: 0, probe_at: now });
        if outage.probe_at <= now {
            outage.probe_at = now + pause(outage.tries);
            outage.tries += 1;
        }
        let blame = now.saturating_sub(outage.since) >= BLAME_AFTER;
        if matches!(ticket.home, Home::Parked { .. }) || blame {
            return false;
        }
        self.dropping = true;
        true
    }

    fn took(&mut self, ticket: &Ticket) {
        match ticket.home {
            Home::Chunk(id) => {
                if let Some(chunk) = self.chunk(id) {
                    chunk.rows -= 1;
                    if let Some(request) = ticket.republish {
                        chunk.republished.entry(request).or_default().published += 1;
                    }
                }
            }
            Home::Parked { .. } => self.settled(ticket.seq, Some(Settled::Published)),
        }
        self.leave_lane(ticket.lane);
    }

    fn refused(&mut self, ticket: Ticket, fate: Fate, counts: bool) {
        let behind_another =
            ticket.lane.is_some_and(|lane| self.lanes.get(&lane).is_some_and(|lane| lane.failed));
        match ticket.home {
            Home::Chunk(id) => {
                let fate = if behind_another { Fate::Behind } else { fate };
                let park = Park { seq: ticket.seq, fate, stamp: ticket.stamp };
                self.park(id, ticket.lane, ticket.republish, park);
            }
            // Behind a failed row it keeps its place, and the attempt does not count.
            Home::Parked { .. } if behind_another || fate == Fate::Behind => {
                self.settled(ticket.seq, None)
            }
            Home::Parked { .. } => {
                self.settled(ticket.seq, Some(Settled::Failed { fate, counts }));
            }
        }
        if let Some(lane) = ticket.lane.and_then(|lane| self.lanes.get_mut(&lane)) {
            lane.failed = true;
        }
        self.leave_lane(ticket.lane);
    }

    /// A row of the lane is back: sends the next, or parks all rows behind a failed one.
    fn leave_lane(&mut self, lane: Option<u64>) {
        let Some(id) = lane else { return };
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.flying -= 1;
        if lane.flying > 0 {
            return;
        }
        if lane.failed {
            let behind = self.lanes.remove(&id).map(|lane| lane.waiting).unwrap_or_default();
            for Waiting { row, lane, home } in behind {
                match home {
                    Home::Chunk(chunk) => {
                        let park = Park { seq: row.seq, fate: Fate::Behind, stamp: row.stamp };
                        self.park(chunk, lane, row.republish, park);
                    }
                    Home::Parked { .. } => self.settled(row.seq, None),
                }
            }
            return;
        }
        match lane.waiting.pop_front() {
            Some(next) => self.ready.push_back(next),
            None => {
                self.lanes.remove(&id);
            }
        }
    }

    /// Parks a row of a chunk; the later rows of its key have to wait behind it.
    pub(super) fn park(
        &mut self,
        chunk: u64,
        lane: Option<u64>,
        republish: Option<i64>,
        park: Park,
    ) {
        let Some(chunk) = self.chunk(chunk) else { return };
        chunk.rows -= 1;
        chunk.parks.push(park);
        if let Some(request) = republish {
            chunk.republished.entry(request).or_default().parked += 1;
        }
        if let Some(lane) = lane {
            chunk.parked_lanes.push(lane);
            self.blocked.entry(lane).or_default().not_written += 1;
        }
    }

    fn settled(&mut self, seq: i64, settled: Option<Settled>) {
        let Some(round) = &mut self.due else { return };
        round.open -= 1;
        if let Some(settled) = settled {
            round.took += usize::from(settled == Settled::Published);
            round.settled.push((seq, settled));
        }
    }

    fn chunk(&mut self, id: u64) -> Option<&mut Open> {
        let first = self.chunks.front()?.id;
        self.chunks.get_mut(usize::try_from(id.checked_sub(first)?).ok()?)
    }
}

/// The number of a key's lane (FNV-1a). Two keys with the same number only wait for each other.
pub(super) fn lane(key: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    key.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}
