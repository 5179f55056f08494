//! Pulling, leases and acknowledgements of one process's part of a subscription.
//!
//! # Why one process at a time
//! The service gives the messages of a key to one process until they are acknowledged, handed
//! back, or their lease expires. The keeper extends the lease of everything that is held. A process
//! delivers, extends and acknowledges only for one lease from the moment at which it *asked* for the
//! extension; the service counts from when it *received* the request, which is later. So a process
//! that was frozen or disconnected has stopped before the service gives the messages to another. It
//! pulls on demand and does not use a streaming pull: the service would go on sending into the
//! stream of a frozen process.
//!
//! Partition ownership as in [`chapar_core::machine::ownership`] does not apply: the service has no
//! partitions and assigns keys by itself. Only the rule of the lease and the epoch (here: the
//! generation of a feed) is the same.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chapar_core::machine::flight::{Stale, Taken};
use chapar_core::port::{AckToken, Delivery, SubscriptionSpec, Tracking, TransportError};
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tonic::{Code, Status};
use tracing::{debug, warn};

use super::grpc::{Denied, Line, Received};
use super::held::{Arrival, Held};
use super::publish::position;
use super::window::Window;
use super::{PubSub, fingerprint, lock, topology, wire};

/// An HTTP/2 connection allows a hundred calls at a time.
pub(super) const FEEDS_PER_LINE: usize = 50;
/// The most messages of one pull.
const MOST_PULLED: usize = 1000;
/// The pause after an error.
const PAUSE: Duration = Duration::from_millis(200);
/// The pause between two pulls from the emulator that return nothing: at first, and at most.
const IDLE: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(150)];
/// For this long after a fetch, another fetch is expected.
const SOON: Duration = Duration::from_millis(100);
/// The shortest lease that the service allows.
const SHORTEST: Duration = Duration::from_secs(1);
/// How long a closing subscription waits for the answer to its last pull.
const LAST_PULL: Duration = Duration::from_millis(300);

/// Everything that the tasks of a subscription share.
pub(super) struct Inner {
    pub(super) pubsub: PubSub,
    pub(super) spec: SubscriptionSpec,
    pub(super) lease: Duration,
    pub(super) feeds: Vec<Feed>,
    pub(super) by_number: HashMap<u32, usize>,
    pub(super) lines: Vec<Line>,
    pub(super) started: Instant,
    pub(super) state: Mutex<State>,
    pub(super) arrived: Notify,
    pub(super) room: Notify,
    /// How many fetches wait for messages.
    pub(super) wanted: AtomicUsize,
    /// When messages were last taken.
    pub(super) taken: Mutex<Option<Duration>>,
    pub(super) asked: Notify,
    pub(super) closed: watch::Sender<bool>,
}

/// A subscription of the service: to a topic, or to the dead letters of one.
pub(super) struct Feed {
    pub(super) path: String,
    pub(super) topic: String,
    /// Its partition number in positions.
    pub(super) number: u32,
    /// For a feed of dead letters: the subscription that they must come from.
    pub(super) dead_letters_of: Option<String>,
    /// The acknowledgement deadline of the service is known to be our lease.
    pub(super) leased: bool,
    /// Held while acknowledging or extending, so that neither uses ids that the other has ended.
    pub(super) turn: tokio::sync::Mutex<()>,
}

pub(super) struct State {
    pub(super) feeds: Vec<Part>,
    pub(super) turn: usize,
}

pub(super) struct Part {
    pub(super) held: Held,
    /// Raised when everything that is held was lost; deliveries of an earlier one have expired.
    pub(super) generation: u64,
    /// Until when the lease of what is held is certain.
    pub(super) until: Duration,
    /// When the lease began of the first message that arrived since the last extension.
    pub(super) since: Option<Duration>,
    pub(super) window: Window,
}

/// Extends leases and retries acknowledgements until the subscription is closed.
pub(super) async fn keeper(inner: Arc<Inner>) {
    let mut closed = inner.closed.subscribe();
    while !*closed.borrow_and_update() {
        join_all((0..inner.feeds.len()).map(|index| inner.keep(index))).await;
        let _ = tokio::time::timeout(inner.lease / 3, closed.changed()).await;
    }
}

/// Pulls from a topic, and periodically from its dead-letter topic: a message that the service gave
/// up is consumed like any other, and is applied or becomes one of our dead letters.
pub(super) async fn pump(inner: Arc<Inner>, index: usize) {
    let feed = &inner.feeds[index];
    let mut closed = inner.closed.subscribe();
    let mut idle = IDLE[0];
    // Pulled messages that are not yet available to `fetch`, and when they were requested.
    let (mut fresh, mut asked_at) = (Vec::<Received>::new(), Duration::ZERO);
    while !*closed.borrow_and_update() {
        let (asked, freed) = (inner.asked.notified(), inner.room.notified());
        let wanted = inner.is_wanted(feed) || feed.dead_letters_of.is_some();
        let room = inner.room_of(index, fresh.len());
        if !wanted || room == 0 {
            if !fresh.is_empty() {
                inner.take_in(index, std::mem::take(&mut fresh), asked_at).await;
                continue;
            }
            tokio::select! {
                () = asked, if !wanted => {}
                () = freed, if wanted => {}
                _ = closed.changed() => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
            continue;
        }
        // The emulator does not notice a cancelled call, and would answer it with messages.
        let at_once = inner.pubsub.0.address.emulator || feed.dead_letters_of.is_some();
        let pull = async {
            let mut pull = std::pin::pin!(inner.line(index).pull(&feed.path, room, at_once));
            tokio::select! {
                pulled = &mut pull => pulled,
                _ = closed.changed() => {
                    let last = tokio::time::timeout(LAST_PULL, pull).await;
                    last.unwrap_or_else(|_| Ok(vec![]))
                }
            }
        };
        // The service sends nothing of a key while an earlier message of it is outstanding, so
        // this pull cannot overtake the messages that are being added.
        let taking = inner.take_in(index, std::mem::take(&mut fresh), asked_at);
        asked_at = inner.started.elapsed();
        let (pulled, ()) = tokio::join!(pull, taking);
        let pause = match pulled {
            Ok(messages) => {
                idle = if messages.is_empty() { (idle * 2).min(IDLE[1]) } else { IDLE[0] };
                // The emulator has no more before something is acknowledged; pulling again right
                // away would only delay the acknowledgement.
                let all = messages.len() < usize::try_from(room).unwrap_or(0);
                let at_leisure = at_once && (all || !feed.leased);
                let pause = match (&feed.dead_letters_of, at_leisure) {
                    (Some(_), _) => inner.pubsub.0.options.drain_every,
                    (None, true) => idle,
                    (None, false) => Duration::ZERO,
                };
                fresh = messages;
                if !feed.leased || !pause.is_zero() {
                    inner.take_in(index, std::mem::take(&mut fresh), asked_at).await;
                }
                pause
            }
            Err(status) => {
                inner.trouble(index, &status).await;
                PAUSE
            }
        };
        if !pause.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // An acknowledgement may have made further messages of its key available.
                () = freed, if feed.leased && inner.is_wanted(feed) => {}
                _ = closed.changed() => {}
            }
        }
    }
    inner.take_in(index, fresh, asked_at).await;
}

impl Inner {
    /// Whether a fetch waits for messages, or is expected soon. Where the deadline of the service is
    /// longer than our lease, nothing is pulled ahead: if this process froze before the answer,
    /// the messages would be blocked for that longer time.
    fn is_wanted(&self, feed: &Feed) -> bool {
        let soon = || lock(&self.taken).is_some_and(|at| self.started.elapsed() < at + SOON);
        self.wanted.load(Ordering::Relaxed) > 0 || (feed.leased && soon())
    }

    fn line(&self, index: usize) -> &Line {
        &self.lines[index / FEEDS_PER_LINE]
    }

    /// How many more messages a feed may hold, besides those that were pulled.
    fn room_of(&self, index: usize, coming: usize) -> i32 {
        let state = lock(&self.state);
        let Part { held, window, .. } = &state.feeds[index];
        let room = window.size().saturating_sub(held.len() + coming).min(MOST_PULLED);
        i32::try_from(room).unwrap_or(1)
    }

    async fn trouble(&self, index: usize, status: &Status) {
        let path = &self.feeds[index].path;
        debug!(subscription = path, %status, "pull failed; retrying");
        if status.code() == Code::NotFound
            && let Err(error) = self.pubsub.ensure_consumer(&self.spec).await
        {
            warn!(subscription = path, %error, "subscription not found and cannot be created");
        }
    }

    /// Makes messages available to `fetch`, once their lease is certain. Otherwise they are handed
    /// back and delivered again.
    async fn take_in(&self, index: usize, messages: Vec<Received>, pulled: Duration) {
        let (feed, line) = (&self.feeds[index], self.line(index));
        let (ours, others): (Vec<Received>, Vec<Received>) =
            messages.into_iter().partition(|received| feed.wants(received));
        let ids = |received: &[Received]| -> Vec<String> {
            received.iter().map(|received| received.ack_id.clone()).collect()
        };
        if !others.is_empty() {
            // The service applies the filter of the subscription; the emulator does not.
            let _ = line.acknowledge(&feed.path, &ids(&others)).await;
        }
        if ours.is_empty() {
            return;
        }
        let mut asked = self.started.elapsed();
        if feed.leased && asked < pulled + self.lease / 3 {
            // The answer was fast: the deadline of the service itself is sufficient.
            asked = pulled;
        } else if let Err(denied) = line.extend(&feed.path, &ids(&ours), self.lease).await {
            debug!(
                subscription = feed.path,
                ?denied,
                "lease of pulled messages expired; handing them back"
            );
            lock(&self.state).feeds[index].window.lost();
            self.hand_back(index, &ids(&ours)).await;
            return;
        }
        let arrivals = ours.into_iter().filter_map(|received| feed.arrival(received));
        let is_done = {
            let mut state = lock(&self.state);
            let part = &mut state.feeds[index];
            let certain = asked + self.lease;
            part.until = if part.held.is_empty() { certain } else { part.until.min(certain) };
            part.since = Some(part.since.map_or(asked, |since| since.min(asked)));
            arrivals.fold(false, |done, arrival| part.held.arrive(arrival) | done)
        };
        self.arrived.notify_waiters();
        if is_done {
            let _ = self.settle(index).await;
        }
    }

    /// Extends the lease of everything in a feed, or gives it up.
    async fn keep(&self, index: usize) {
        let feed = &self.feeds[index];
        let turn = feed.turn.lock().await;
        let asked = self.started.elapsed();
        let (generation, ids, over) = {
            let mut state = lock(&self.state);
            let part = &mut state.feeds[index];
            part.since = None;
            (part.generation, part.held.ack_ids(), asked >= part.until)
        };
        if ids.is_empty() {
            return;
        }
        let extended = match over {
            true => Err(Denied::Gone),
            false => self.line(index).extend(&feed.path, &ids, self.lease).await,
        };
        drop(turn);
        match extended {
            Ok(()) => {
                let mut state = lock(&self.state);
                let part = &mut state.feeds[index];
                if self.started.elapsed() > asked + self.lease / 3 {
                    part.window.lost();
                }
                if part.generation == generation {
                    // Messages that arrived meanwhile have the lease that they came with.
                    part.until = part.since.map_or(asked, |since| since.min(asked)) + self.lease;
                }
            }
            Err(Denied::Gone) => return self.lose(index, generation).await,
            Err(Denied::Later(error)) => {
                debug!(subscription = feed.path, %error, "cannot extend the lease; retrying");
            }
        }
        let _ = self.settle(index).await;
    }

    /// The lease of a message was lost to another process: everything of the feed is given up.
    async fn lose(&self, index: usize, generation: u64) {
        let feed = &self.feeds[index];
        let ids = {
            let mut state = lock(&self.state);
            let part = &mut state.feeds[index];
            if part.generation != generation {
                return;
            }
            part.generation += 1;
            part.window.lost();
            let ids = part.held.ack_ids();
            part.held.clear();
            ids
        };
        debug!(subscription = feed.path, messages = ids.len(), "lease lost");
        self.hand_back(index, &ids).await;
    }

    /// Makes messages available to other processes. The emulator reorders messages that are handed
    /// back, but not those whose lease expires.
    async fn hand_back(&self, index: usize, ids: &[String]) {
        let lease = if self.pubsub.0.address.emulator { SHORTEST } else { Duration::ZERO };
        let _ = self.line(index).extend(&self.feeds[index].path, ids, lease).await;
    }

    /// Acknowledges what is done, and waits for the answer of the service.
    pub(super) async fn settle(&self, index: usize) -> Result<(), TransportError> {
        let feed = &self.feeds[index];
        let turn = feed.turn.lock().await;
        let (generation, (numbers, ids)) = {
            let state = lock(&self.state);
            (state.feeds[index].generation, state.feeds[index].held.settleable())
        };
        if ids.is_empty() {
            return Ok(());
        }
        match self.line(index).acknowledge(&feed.path, &ids).await {
            Ok(()) => {
                let mut state = lock(&self.state);
                let part = &mut state.feeds[index];
                if part.generation == generation {
                    part.held.settled(&numbers);
                    part.window.settled(numbers.len());
                }
                self.room.notify_waiters();
                Ok(())
            }
            Err(Denied::Gone) => {
                drop(turn);
                self.lose(index, generation).await;
                Err(TransportError::Expired)
            }
            Err(Denied::Later(error)) => Err(error),
        }
    }

    /// Takes what can be delivered now: by `take`, from each feed, given how many more there may
    /// be. Returns also when more may be due.
    pub(super) fn poll(
        &self,
        max: usize,
        take: impl Fn(&mut Held, usize, Duration) -> Vec<Taken<Delivery>>,
    ) -> (Vec<Delivery>, Option<Duration>) {
        let now = self.started.elapsed();
        let mut state = lock(&self.state);
        let held: usize = state.feeds.iter().map(|part| part.held.in_flight()).sum();
        let mut room = max.min(self.spec.max_in_flight.saturating_sub(held));
        let (mut deliveries, mut due) = (Vec::new(), None::<Duration>);
        // Start with another topic each time, so that none starves the others.
        state.turn = state.turn.wrapping_add(1);
        let (skip, count) = (state.turn, state.feeds.len());
        for index in (0..count).map(|index| (index + skip) % count) {
            let part = &mut state.feeds[index];
            if part.held.is_empty() || now >= part.until {
                continue;
            }
            for taken in take(&mut part.held, room, now) {
                let mut delivery = taken.item;
                let (number, attempt) = (taken.offset, taken.attempt);
                let tracking = Tracking { epoch: part.generation, number, attempt };
                delivery.token = AckToken::of(delivery.token.position, tracking);
                delivery.attempt += attempt;
                deliveries.push(delivery);
                room = room.saturating_sub(1);
            }
            due = due.into_iter().chain(part.held.due()).min();
        }
        (deliveries, due)
    }

    /// Applies `act` to the feed of a delivery, if the delivery is valid; returns the feed's index.
    pub(super) fn with(
        &self,
        token: &AckToken,
        act: impl FnOnce(&mut Held, u64, u32) -> Result<(), Stale>,
    ) -> Result<usize, TransportError> {
        let index = self.by_number.get(&token.position.partition).copied();
        let index = index.ok_or(TransportError::Expired)?;
        let Tracking { epoch, number, attempt } = token.tracking()?;
        let mut state = lock(&self.state);
        let part = &mut state.feeds[index];
        let over = !part.held.is_empty() && self.started.elapsed() >= part.until;
        if part.generation != epoch || over {
            return Err(TransportError::Expired);
        }
        act(&mut part.held, number, attempt).map_err(|Stale| TransportError::Expired)?;
        Ok(index)
    }

    /// Hands everything back, and returns when other processes can get it.
    pub(super) async fn leave(&self) {
        let empty = lock(&self.state).feeds.iter().all(|part| part.held.is_empty());
        join_all((0..self.feeds.len()).map(|index| async move {
            let _ = self.settle(index).await;
            let generation = lock(&self.state).feeds[index].generation;
            self.lose(index, generation).await;
        }))
        .await;
        if self.pubsub.0.address.emulator && !empty {
            tokio::time::sleep(SHORTEST).await;
        }
    }
}

impl Feed {
    fn wants(&self, received: &Received) -> bool {
        let Some(source) = &self.dead_letters_of else { return true };
        let attributes = received.message.as_ref().map(|message| &message.attributes);
        let from = attributes.and_then(|attributes| attributes.get(wire::SOURCE));
        from.is_some_and(|from| topology::last_segment(from) == source)
    }

    fn arrival(&self, received: Received) -> Option<Arrival> {
        let message = received.message?;
        let event = message.attributes.get(wire::ID).map(|id| fingerprint(&self.topic, id));
        let published = message.published.unwrap_or_default();
        let published_at = Timestamp::new(published.seconds, published.nanos);
        let place = position(self.number, &message.id);
        let (headers, key) = wire::decode(message.attributes, &message.ordering_key);
        Some(Arrival {
            ack_id: received.ack_id,
            event,
            delivery: Delivery {
                token: AckToken::unacknowledgeable(place),
                topic: self.topic.clone(),
                key,
                headers,
                body: message.data,
                // The number of earlier deliveries that the service counted.
                attempt: u32::try_from(received.attempt.max(1) - 1).unwrap_or(0),
                published_at: published_at.unwrap_or(Timestamp::UNIX_EPOCH),
            },
            message: message.id,
        })
    }
}
