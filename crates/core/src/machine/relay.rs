//! The relay: a state machine that decides what to read, publish and write next.
//!
//! Rows are processed in chunks. Several chunks are in flight at once, but at most one row per key,
//! unless the transport keeps the order of a key by itself. The cursor passes a chunk once each of
//! its rows is published or parked.
//!
//! A row that fails while others succeed is parked, and the later rows of its key are parked behind
//! it. When nothing succeeds, it is an outage and not the fault of a row: the relay goes back to its
//! last checkpoint and probes with a few rows until the transport works again.
//!
//! Rows of a republish request are read, published and parked like new ones. While a track is
//! republishing, its cursor gives no new rows, and parked rows are not tried: both come after the
//! requested rows of their keys.
//!
//! After any error of the store the relay forgets what it holds, gives its lease back and leases
//! again, with positions read from the database: the database may have crashed and come back in
//! between, and a write whose answer was lost may still take effect under the old epoch.

mod flight;
mod intake;
mod progress;
mod words;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use crate::machine::lease::{Holder, Tenure};
use crate::port::{Lease, Renewed, Track};

use self::flight::{Lane, Outage, Waiting};
use self::intake::{Block, DueRound, Open};
use self::progress::{Done, Marks};
pub use self::words::{Asked, Do, Happened, Plan, PublishError, Reading, Sending, Ticket};

/// The state of a relay.
#[derive(Debug)]
pub struct Relay {
    plan: Plan,
    held: Option<Held>,
    asking: Asking,
    /// How far the tracks are read.
    tracks: Vec<Track>,
    /// The last checkpoint: where reading restarts.
    base: Vec<Track>,
    /// The last read that the checkpoint covers.
    base_read: u64,
    marks: Marks,
    chunks: VecDeque<Open>,
    next_chunk: u64,
    lanes: HashMap<u64, Lane>,
    blocked: HashMap<u64, Block>,
    ready: VecDeque<Waiting>,
    in_flight: usize,
    bytes: usize,
    /// Finished, and not in a checkpoint yet.
    done: Option<Done>,
    writing: Option<Done>,
    wrote_at: Duration,
    /// The number of reads so far.
    reads: u64,
    limit: usize,
    poll_at: Duration,
    pause: Duration,
    fresh: bool,
    due: Option<DueRound>,
    due_at: Duration,
    outage: Option<Outage>,
    /// The rows in flight are to be dropped and read again.
    dropping: bool,
    successes: u64,
    lease_asked_at: Duration,
    ask_at: Duration,
    unbalanced: bool,
    stopping: bool,
    lost: bool,
    /// The epoch to give back before another lease is asked for.
    returning: Option<i64>,
    /// Errors of the store since the last checkpoint.
    failures: u32,
    left: bool,
    wake: Duration,
}

#[derive(Debug)]
struct Held {
    epoch: i64,
    tenure: Tenure,
}

/// The calls to the store that are not answered yet.
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

/// How often parked rows are polled when none is known to be due: an operator may have released
/// one.
const DUE_EVERY: Duration = Duration::from_secs(1);
/// The pause after a call to the store that failed, and after several.
const AGAIN: Duration = Duration::from_millis(200);
const AGAIN_AT_MOST: Duration = Duration::from_secs(5);

impl Relay {
    /// A relay that has no lease yet.
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
            returning: None,
            failures: 0,
            left: false,
            wake: Duration::ZERO,
            plan,
        }
    }

    /// When to call [`Relay::step`] again if nothing happens before.
    pub fn wake_at(&self) -> Duration {
        self.wake
    }

    /// The epoch of the lease.
    pub fn epoch(&self) -> Option<i64> {
        self.held.as_ref().map(|held| held.epoch)
    }

    /// Processes an event, and returns what to do.
    ///
    /// `now` is monotonic, `wall` is the time for deadlines in the store, `dice` is random in 0..1.
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
                // The next rows of the published keys are due at once.
                self.due_at = if took { now } else { now + DUE_EVERY };
            }
            Happened::Released => {
                self.asking.release = false;
                self.held = None;
                self.returning = None;
            }
            Happened::LeaseLost(asked) => {
                self.answered(asked);
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

    fn failed(&mut self, now: Duration, asked: Asked) {
        self.answered(asked);
        let pause = AGAIN.saturating_mul(1 << self.failures.min(10)).min(AGAIN_AT_MOST);
        self.failures = self.failures.saturating_add(1);
        self.ask_at = self.ask_at.max(now + pause);
        match asked {
            // The answer may be lost and the shards changed.
            Asked::Lease => self.lost = self.held.is_some(),
            // The lease expires by itself.
            Asked::Release if self.stopping => {
                self.held = None;
                self.returning = None;
            }
            Asked::Release => {}
            Asked::Read => {
                // Fewer rows may get through where many did not.
                self.limit = (self.limit / 2).max(1);
                self.lost = true;
            }
            _ => self.lost = true,
        }
    }

    /// A call is answered, well or not.
    fn answered(&mut self, asked: Asked) {
        match asked {
            Asked::Lease => self.asking.lease = false,
            Asked::Renew => self.asking.renew = None,
            Asked::Read => self.asking.read = false,
            Asked::Due => self.asking.due = false,
            Asked::Checkpoint => {
                self.asking.checkpoint = false;
                self.writing = None;
            }
            Asked::Mark => self.asking.mark = None,
            Asked::Settle => self.asking.settle = false,
            Asked::Release => self.asking.release = false,
        }
    }

    fn next(&mut self, now: Duration, todo: &mut Vec<Do>) {
        // Everything that is not set below is triggered by an answer.
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
                // The lease may have expired; only the store knows.
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

    /// Resets the relay once all answers are in; until then, nothing new is started.
    fn forget_everything(&mut self) -> bool {
        if self.in_flight > 0 || self.asking.anything() {
            return false;
        }
        self.lost = false;
        self.returning = self.held.take().map(|held| held.epoch).or(self.returning);
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
        if self.asking.release || self.asking.lease {
        } else if let Some(epoch) = self.returning
            && (self.stopping || self.ask_at <= now)
        {
            self.asking.release = true;
            todo.push(Do::Release(epoch));
        } else if self.stopping {
            if !self.left {
                self.left = true;
                todo.push(Do::Leave);
            }
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

    fn wake_by(&mut self, at: Duration) {
        self.wake = self.wake.min(at);
    }
}
