//! The relay: what to read, publish and write down next.
//!
//! Rows flow through in chunks. Several chunks are on the way at once, but of a key never more
//! than one row is in flight, unless the transport keeps their order. The cursor passes a chunk
//! once each of its rows is published or parked, and no earlier.
//!
//! A row that fails while others succeed is parked, and its key with it: the rows behind it are
//! parked behind it. When nothing succeeds at all, it is not the row's fault: the relay goes
//! back to its last checkpoint and feels its way with one row at a time.

mod words;

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use crate::machine::lease::{Holder, Tenure};
use crate::machine::retry::Next;
use crate::port::{Checkpoint, Chunk, Fate, Lease, OutboxRow, Park, Renewed, Settled, Track};

use self::words::Home;
pub use self::words::{Asked, Do, Happened, Plan, Reading, Refusal, Sending, Ticket};

/// A relay's state.
#[derive(Debug)]
pub struct Relay {
    plan: Plan,
    held: Option<Held>,
    asking: Asking,
    tracks: Vec<Track>,
    /// How far everything is written down: where to start again.
    base: Vec<Track>,
    /// The last read that is written down.
    base_read: u64,
    marks: Marks,
    chunks: VecDeque<Open>,
    next_chunk: u64,
    lanes: HashMap<u64, Lane>,
    blocked: HashMap<u64, Block>,
    ready: VecDeque<Waiting>,
    in_flight: usize,
    bytes: usize,
    /// Done, and not yet written down.
    done: Option<Done>,
    writing: Option<Done>,
    wrote_at: Duration,
    /// How many reads were begun.
    reads: u64,
    limit: usize,
    poll_at: Duration,
    pause: Duration,
    fresh: bool,
    due: Option<DueRound>,
    due_at: Duration,
    outage: Option<Outage>,
    /// What is on the way is to be dropped and read again.
    dropping: bool,
    successes: u64,
    lease_asked_at: Duration,
    ask_at: Duration,
    unbalanced: bool,
    stopping: bool,
    lost: bool,
    left: bool,
    wake: Duration,
}

#[derive(Debug)]
struct Held {
    epoch: i64,
    tenure: Tenure,
}

/// How far the marks of stamped keys are written.
#[derive(Debug, Default)]
struct Marks {
    /// Up to this read.
    upto: u64,
    at: Duration,
    wanted: bool,
}

#[derive(Debug, Default)]
struct Asking {
    lease: bool,
    renew: Option<Duration>,
    read: bool,
    due: bool,
    checkpoint: bool,
    /// Up to this read.
    mark: Option<u64>,
    settle: bool,
    release: bool,
}

impl Asking {
    fn anything(&self) -> bool {
        let Asking { lease, renew, read, due, checkpoint, mark, settle, release } = self;
        let writing = *checkpoint || mark.is_some() || *settle;
        *lease || renew.is_some() || *read || *due || writing || *release
    }
}

/// A chunk whose rows are not all dealt with.
#[derive(Debug)]
struct Open {
    id: u64,
    rows: usize,
    bytes: usize,
    tracks: Vec<Track>,
    parks: Vec<Park>,
    parked_lanes: Vec<u64>,
    read: u64,
}

#[derive(Debug, Default)]
struct Done {
    checkpoint: Checkpoint,
    parked_lanes: Vec<u64>,
    /// The last read of it.
    read: u64,
}

/// The rows of a key that are on the way.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Waiting>,
    flying: usize,
    failed: bool,
}

#[derive(Debug)]
struct Waiting {
    row: OutboxRow,
    lane: Option<u64>,
    home: Home,
}

/// A key with parked rows that the store may not show yet.
#[derive(Debug, Default)]
struct Block {
    not_written: usize,
    /// Reads begun after this one see them in the store.
    seen_after: u64,
}

#[derive(Debug, Default)]
struct DueRound {
    open: usize,
    settled: Vec<(i64, Settled)>,
    took: usize,
}

/// The transport takes nothing.
#[derive(Debug)]
struct Outage {
    since: Duration,
    tries: u32,
    probe_at: Duration,
}

/// After this long without any success, the rows that are tried get the blame after all.
const BLAME_AFTER: Duration = Duration::from_secs(10);
/// The most rows that feel whether an outage is over, of different topics each.
const PROBES: usize = 16;
/// How often parked rows are looked at when none is known to be due: an operator may have
/// released one.
const DUE_EVERY: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(200);

impl Relay {
    /// A relay that has not begun.
    pub fn new(plan: Plan) -> Self {
        Relay {
            held: None,
            asking: Asking::default(),
            tracks: Vec::new(),
            base: Vec::new(),
            base_read: 0,
            marks: Marks::default(),
            chunks: VecDeque::new(),
            next_chunk: 0,
            lanes: HashMap::new(),
            blocked: HashMap::new(),
            ready: VecDeque::new(),
            in_flight: 0,
            bytes: 0,
            done: None,
            writing: None,
            wrote_at: Duration::ZERO,
            reads: 0,
            limit: plan.chunk_rows.min(64),
            poll_at: Duration::ZERO,
            pause: plan.poll.0,
            fresh: true,
            due: None,
            due_at: Duration::ZERO,
            outage: None,
            dropping: false,
            successes: 0,
            lease_asked_at: Duration::ZERO,
            ask_at: Duration::ZERO,
            unbalanced: false,
            stopping: false,
            lost: false,
            left: false,
            wake: Duration::ZERO,
            plan,
        }
    }

    /// When to call [`Relay::step`] again if nothing happens before.
    pub fn wake_at(&self) -> Duration {
        self.wake
    }

    /// The epoch that is held.
    pub fn epoch(&self) -> Option<i64> {
        self.held.as_ref().map(|held| held.epoch)
    }

    /// Takes in what happened, and says what to do.
    ///
    /// `now` is monotonic, `wall` is what deadlines are written with, `dice` a number in 0..1.
    pub fn step(
        &mut self,
        now: Duration,
        wall: Timestamp,
        dice: f64,
        happened: Happened,
    ) -> Vec<Do> {
        match happened {
            Happened::Tick => {}
            Happened::Nudge => {
                self.pause = self.plan.poll.0;
                self.poll_at = self.poll_at.min(now);
            }
            Happened::Stop => self.stopping = true,
            Happened::Leased(lease) => self.leased(now, lease),
            Happened::Renewed(renewed) => self.renewed(renewed),
            Happened::Read { chunk, full } => {
                self.marks.wanted |= full;
                self.read(now, chunk);
            }
            Happened::Due(rows) => self.due(now, rows),
            Happened::Published(results) => self.published(now, wall, dice, results),
            Happened::Checkpointed => self.checkpointed(now),
            Happened::Marked => self.marked(now),
            Happened::Settled => {
                self.asking.settle = false;
                let took = self.due.take().is_some_and(|round| round.took > 0);
                // What moved up is due at once.
                self.due_at = if took { now } else { now + DUE_EVERY };
            }
            Happened::Released => {
                self.asking.release = false;
                self.held = None;
            }
            Happened::LeaseLost(asked) => {
                self.failed(now, asked);
                self.lost = true;
            }
            Happened::Failed(asked) => self.failed(now, asked),
        }
        let mut todo = Vec::new();
        self.next(now, &mut todo);
        todo
    }

    fn leased(&mut self, now: Duration, lease: Lease) {
        self.asking.lease = false;
        self.unbalanced = false;
        let tenure = Tenure::new(self.lease_asked_at, self.plan.lease);
        self.held = Some(Held { epoch: lease.epoch, tenure });
        self.base.clone_from(&lease.tracks);
        self.tracks = lease.tracks;
        self.fresh = true;
        self.poll_at = now;
        self.due_at = now;
    }

    fn renewed(&mut self, renewed: Renewed) {
        let Some(asked_at) = self.asking.renew.take() else { return };
        if let Some(held) = &mut self.held {
            held.tenure = Tenure::new(asked_at, self.plan.lease);
        }
        self.unbalanced |= renewed == Renewed::Unbalanced;
    }

    fn read(&mut self, now: Duration, chunk: Chunk) {
        self.asking.read = false;
        // Whoever was lost in between must not publish what it has read.
        if self.lost || self.dropping {
            return;
        }
        self.fresh = false;
        let reads = self.reads;
        self.blocked.retain(|_, block| block.not_written > 0 || reads <= block.seen_after);
        if chunk.rows.is_empty() {
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
        let bytes: usize = chunk.rows.iter().map(|row| row.body.len() + 256).sum();
        if let Some(average) = bytes.checked_div(chunk.rows.len()) {
            let room = self.plan.bytes / self.plan.chunks.max(1) / average.max(1);
            // Twice as many at most: the next rows may be larger than these.
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
            read: self.reads,
        });
        for row in chunk.rows {
            let lane = row.key.as_deref().map(lane);
            let blocked = lane.is_some_and(|lane| self.blocked.contains_key(&lane));
            if blocked || row.behind {
                self.park(id, row.seq, lane, Fate::Behind, row.stamp);
            } else {
                self.enter(Waiting { row, lane, home: Home::Chunk(id) });
            }
        }
    }

    /// Queues a row behind those of its key that are on the way.
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

    fn due(&mut self, now: Duration, rows: Vec<OutboxRow>) {
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

    fn published(
        &mut self,
        now: Duration,
        wall: Timestamp,
        dice: f64,
        results: Vec<(Ticket, Result<(), Refusal>)>,
    ) {
        self.in_flight -= results.len();
        let taken = results.iter().filter(|(_, result)| result.is_ok()).count() as u64;
        self.successes += taken;
        if taken > 0 {
            self.outage = None;
        }
        for (ticket, result) in results {
            // It says nothing about the row if nothing else has succeeded since it left.
            let outage = self.successes == ticket.successes;
            match result {
                Ok(()) => self.took(&ticket),
                Err(Refusal::Never(error)) => {
                    self.refused(ticket, Fate::Quarantine { error }, true);
                }
                Err(Refusal::Behind) => self.refused(ticket, Fate::Behind, false),
                Err(Refusal::Later(_)) if outage && self.give_up_chunks(now, &ticket) => {}
                Err(Refusal::Later(error)) => {
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

    /// Whether a failure in an outage lets the relay drop what is on the way and wait. A row
    /// that was parked before is parked again instead, and so is one that has been felt with for
    /// very long.
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
                self.park(id, ticket.seq, ticket.lane, fate, ticket.stamp);
            }
            // Behind one that failed, it keeps its place and has not been tried.
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

    /// One of the lane is back: the next may go, or all behind a failed one are parked.
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
                    Home::Chunk(chunk) => self.park(chunk, row.seq, lane, Fate::Behind, row.stamp),
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

    fn park(&mut self, chunk: u64, seq: i64, lane: Option<u64>, fate: Fate, stamp: Option<String>) {
        let Some(chunk) = self.chunk(chunk) else { return };
        chunk.rows -= 1;
        chunk.parks.push(Park { seq, fate, stamp });
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

    fn checkpointed(&mut self, now: Duration) {
        self.asking.checkpoint = false;
        self.wrote_at = now;
        let Some(written) = self.writing.take() else { return };
        self.base = written.checkpoint.tracks;
        self.base_read = written.read;
        for lane in written.parked_lanes {
            if let Some(block) = self.blocked.get_mut(&lane) {
                block.not_written -= 1;
                block.seen_after = self.reads;
            }
        }
    }

    fn marked(&mut self, now: Duration) {
        let Some(upto) = self.asking.mark.take() else { return };
        self.marks = Marks { upto, at: now, wanted: false };
    }

    fn failed(&mut self, now: Duration, asked: Asked) {
        match asked {
            Asked::Lease => {
                self.asking.lease = false;
                self.ask_at = now + AGAIN;
            }
            Asked::Renew => self.asking.renew = None,
            Asked::Read => {
                self.asking.read = false;
                self.poll_at = now + AGAIN;
            }
            Asked::Due => {
                self.asking.due = false;
                self.due_at = now + DUE_EVERY;
            }
            Asked::Checkpoint => {
                self.asking.checkpoint = false;
                self.wrote_at = now;
                // It is written again, together with what was done since.
                if let Some(mut again) = self.writing.take() {
                    if let Some(since) = self.done.take() {
                        again.join(since);
                    }
                    self.done = Some(again);
                }
            }
            Asked::Mark => {
                self.asking.mark = None;
                self.marks.at = now;
            }
            Asked::Settle => {
                // Nothing was written; what was published is published again.
                self.asking.settle = false;
                self.due = None;
                self.due_at = now + DUE_EVERY;
            }
            Asked::Release => {
                // Left to expire.
                self.asking.release = false;
                self.held = None;
            }
        }
    }

    fn next(&mut self, now: Duration, todo: &mut Vec<Do>) {
        // Whatever is not set below comes with an answer.
        self.wake = now + DUE_EVERY;
        if self.lost && !self.forget_everything() {
            return;
        }
        let Some(held) = &self.held else {
            return self.begin_or_leave(now, todo);
        };
        let epoch = held.epoch;
        match held.tenure.at(now) {
            Holder::Stop => {
                // It may be over, or not: the store knows.
                self.lost = true;
                return self.next_if_quiet(now, todo);
            }
            Holder::Renew if self.asking.renew.is_none() && !self.asking.lease => {
                self.asking.renew = Some(now);
                todo.push(Do::Renew(epoch));
            }
            Holder::Renew => {}
            Holder::Work(pause) => self.wake_by(now + pause),
        }
        self.publish(now, todo);
        self.write_down(now, epoch, todo);
        if self.dropping {
            self.drop_chunks();
        }
        let closing = self.stopping || self.unbalanced;
        if !closing {
            self.write_marks(now, epoch, todo);
            self.look(now, epoch, todo);
        } else if self.is_idle() {
            if self.stopping {
                self.asking.release = true;
                todo.push(Do::Release(epoch));
            } else {
                self.lease_asked_at = now;
                self.asking.lease = true;
                todo.push(Do::Lease(Some(epoch)));
            }
        }
    }

    fn next_if_quiet(&mut self, now: Duration, todo: &mut Vec<Do>) {
        if self.forget_everything() {
            self.begin_or_leave(now, todo);
        }
    }

    /// Starts from nothing once all answers are in; until then, nothing new is begun.
    fn forget_everything(&mut self) -> bool {
        if self.in_flight > 0 || self.asking.anything() {
            return false;
        }
        self.lost = false;
        self.held = None;
        self.unbalanced = false;
        self.done = None;
        self.due = None;
        self.outage = None;
        self.dropping = false;
        self.drop_rows();
        true
    }

    fn drop_rows(&mut self) {
        self.chunks.clear();
        self.lanes.clear();
        self.blocked.clear();
        self.ready.clear();
        self.bytes = 0;
        self.fresh = true;
    }

    fn begin_or_leave(&mut self, now: Duration, todo: &mut Vec<Do>) {
        if self.stopping {
            if !self.left {
                self.left = true;
                todo.push(Do::Leave);
            }
        } else if self.asking.lease {
        } else if self.ask_at <= now {
            self.lease_asked_at = now;
            self.asking.lease = true;
            todo.push(Do::Lease(None));
        } else {
            self.wake_by(self.ask_at);
        }
    }

    fn is_idle(&self) -> bool {
        self.in_flight == 0
            && self.chunks.is_empty()
            && self.done.is_none()
            && self.due.is_none()
            && !self.asking.anything()
    }

    fn publish(&mut self, now: Duration, todo: &mut Vec<Do>) {
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

    /// A few rows of different topics: one that nobody takes must not speak for the others.
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
            successes: self.successes,
        };
        row.behind = false;
        Sending { row, ticket }
    }

    /// Gathers the chunks that are done, and writes them down from time to time.
    fn write_down(&mut self, now: Duration, epoch: i64, todo: &mut Vec<Do>) {
        while let Some(chunk) = self.chunks.pop_front_if(|chunk| chunk.rows == 0) {
            self.bytes -= chunk.bytes;
            let done = self.done.get_or_insert_default();
            done.join(Done {
                read: chunk.read,
                checkpoint: Checkpoint { tracks: chunk.tracks, parks: chunk.parks },
                parked_lanes: chunk.parked_lanes,
            });
        }
        let round_over = self.due.as_ref().is_some_and(|round| round.open == 0);
        if round_over && !self.asking.settle {
            self.asking.settle = true;
            let settled = self.due.as_mut().map(|round| std::mem::take(&mut round.settled));
            todo.push(Do::Settle(epoch, settled.unwrap_or_default()));
        }
        let Some(done) = &self.done else { return };
        if self.asking.checkpoint {
            return;
        }
        let every = self.plan.checkpoint_every;
        // When nothing else is on the way there is less to wait for.
        let pause = if self.chunks.is_empty() { every / 5 } else { every };
        let hurry = self.stopping
            || self.unbalanced
            || self.outage.is_some()
            || !done.checkpoint.parks.is_empty()
            || self.marks.wanted;
        if !hurry && now < self.wrote_at + pause {
            self.wake_by(self.wrote_at + pause);
            return;
        }
        if let Some(done) = self.done.take() {
            self.asking.checkpoint = true;
            todo.push(Do::Checkpoint(epoch, done.checkpoint.clone()));
            self.writing = Some(done);
        }
    }

    /// Brings the marks up to the last checkpoint from time to time. Until then whoever takes
    /// over finds them out from the rows.
    fn write_marks(&mut self, now: Duration, epoch: i64, todo: &mut Vec<Do>) {
        let Some(every) = self.plan.mark_every else { return };
        if self.asking.mark.is_some() || self.marks.upto == self.base_read {
            return;
        }
        if !self.marks.wanted && now < self.marks.at + every {
            return self.wake_by(self.marks.at + every);
        }
        self.asking.mark = Some(self.base_read);
        todo.push(Do::Mark(epoch, self.base.clone()));
    }

    /// In an outage, goes back to what is written down, so that nothing is held in memory
    /// meanwhile.
    fn drop_chunks(&mut self) {
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

    /// Looks for new rows, and for parked ones that are due.
    fn look(&mut self, now: Duration, epoch: i64, todo: &mut Vec<Do>) {
        if self.asking.lease || self.dropping {
            return;
        }
        if self.due.is_none() && !self.asking.due {
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

    fn wake_by(&mut self, at: Duration) {
        self.wake = self.wake.min(at);
    }
}

impl Done {
    /// Takes what was done afterwards.
    fn join(&mut self, later: Done) {
        self.read = later.read;
        self.parked_lanes.extend(later.parked_lanes);
        self.checkpoint.tracks = later.checkpoint.tracks;
        self.checkpoint.parks.extend(later.checkpoint.parks);
    }
}

/// The number of a key's lane (FNV-1a). Two keys that share one wait for each other, no more.
fn lane(key: &str) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    key.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}
