use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

use crate::headers::Headers;
use crate::id::Id;
use crate::port::{BoxFuture, Difference, Topology};

/// A message on its way to a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// The event; a transport that dedupes does it by this id.
    pub id: Id,
    /// Where it goes.
    pub topic: String,
    /// Whose it is.
    pub tenant: String,
    /// Messages of one key are delivered in the order they were acknowledged in.
    pub key: Option<String>,
    /// Headers.
    pub headers: Headers,
    /// Body.
    pub body: Bytes,
}

/// Where a message lies in the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The partition, shard or stream partition; below 2³¹.
    pub partition: u32,
    /// Ascending within the partition.
    pub offset: u64,
}

/// The transport has the message durably.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Where it lies.
    pub position: Position,
    /// It was there before, under the same id.
    pub duplicate: bool,
}

/// Names one delivery for its acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    /// Where the message lies.
    pub position: Position,
    /// What else the transport needs to know it by.
    pub handle: Option<Handle>,
}

/// What a transport knows one of its deliveries by, beside the place of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The time of owning in which it was delivered.
    pub epoch: i64,
    /// The transport's own number for the message, where it has one.
    pub number: u64,
    /// Which delivery of the message it is.
    pub attempt: u32,
}

impl Token {
    /// Names the `attempt`th delivery of a message under an owner's `epoch`.
    pub fn of(position: Position, epoch: i64, attempt: u32) -> Self {
        Token { position, handle: Some(Handle { epoch, number: 0, attempt }) }
    }

    /// The epoch and attempt that [`Token::of`] was given.
    pub fn delivery(&self) -> Option<(i64, u32)> {
        self.handle.map(|handle| (handle.epoch, handle.attempt))
    }
}

/// A message that has arrived at a subscription.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// For its acknowledgement.
    pub token: Token,
    /// The topic it came on.
    pub topic: String,
    /// Its ordering key.
    pub key: Option<String>,
    /// Headers.
    pub headers: Headers,
    /// Body.
    pub body: Bytes,
    /// Which delivery of the message this is, from 1, as far as the transport counts.
    pub attempt: u32,
    /// When the transport took it.
    pub published_at: Timestamp,
}

/// Who wants which messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionSpec {
    /// The consumer's name: each subscription gets its own copy of every message.
    pub name: String,
    /// The topics.
    pub topics: Vec<String>,
    /// How long a delivery may take before it counts as lost.
    pub ack_deadline: Duration,
    /// The most messages that are delivered and not yet acknowledged.
    pub max_in_flight: usize,
}

/// A topic as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSpec {
    /// Its name.
    pub name: String,
    /// Its number of partitions, where the transport has them.
    pub partitions: u32,
    /// How long messages are kept.
    pub retention: Duration,
}

/// Where to set a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTo {
    /// The first message that is kept.
    Beginning,
    /// Behind the last.
    End,
    /// The first message taken at or after this time.
    Time(Timestamp),
    /// This very message.
    Position(Position),
}

/// Where to begin reading what a transport keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFrom {
    /// The first message that is kept.
    Beginning,
    /// Behind the last.
    End,
    /// The first message taken at or after this time.
    Time(Timestamp),
    /// Behind these offsets, by partition; partitions that are not named from their beginning.
    Behind(BTreeMap<u32, u64>),
}

/// A message that a transport keeps, as a [`Reader`] finds it.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The event.
    pub id: String,
    /// Whose it is.
    pub tenant: String,
    /// The message; its token acknowledges nothing.
    pub delivery: Delivery,
}

/// What a transport can do beyond what all must.
///
/// Order within a key, redelivery, fan-out, durability and deduplication by id are not listed
/// here, because none may lack them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// Keeps the order of a key when a publish in the middle fails, so that several of a key
    /// may be in flight.
    pub ordered_in_flight: bool,
    /// Delivers the messages of a key in the order of their receipts also where they are on
    /// several topics of one service. Without it, the relay stamps messages with their order.
    pub ordered_topics: bool,
    /// Can set a subscription to a time.
    pub seek_time: bool,
    /// Can set a subscription to a position.
    pub seek_position: bool,
    /// Can hand a message back for later with a delay.
    pub delayed_nack: bool,
    /// Takes messages of 1 MiB.
    pub mebibyte: bool,
}

/// Why a transport did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// It may work later.
    #[error("the transport is not available: {0}")]
    Unavailable(String),
    /// It will not take this message, ever.
    #[error("the transport refuses the message: {0}")]
    Refused(String),
    /// The set-up is wrong.
    #[error("the transport is not set up for this: {0}")]
    Setup(String),
    /// The delivery is not ours any more: its deadline has passed or its partition has moved.
    #[error("the delivery is not ours any more")]
    Expired,
    /// The transport cannot do this; see [`Features`].
    #[error("this transport cannot {0}")]
    Unsupported(&'static str),
}

impl TransportError {
    /// Whether trying the same again can help.
    pub fn is_retryable(&self) -> bool {
        matches!(self, TransportError::Unavailable(_))
    }
}

/// Carries messages from relays to consumers.
///
/// # Contract
/// - A message is durable once its [`Receipt`] is returned, and not before.
/// - Publishing may be repeated with the same id; consumers must expect duplicates all the same.
/// - Messages of one key and topic are delivered to a subscription in the order of their
///   receipts, one process at a time, also after redelivery.
/// - Every subscription gets every message of its topics that is published after it was made.
pub trait Transport: Send + Sync {
    /// What it can do.
    fn features(&self) -> Features;

    /// Creates or changes topics to be as specified; applied twice it does nothing.
    fn apply<'a>(
        &'a self,
        topics: &'a [TopicSpec],
        subscriptions: &'a [SubscriptionSpec],
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Publishes a batch; the answer has one entry per message, in the same order.
    ///
    /// Unless [`Features::ordered_in_flight`], a batch holds at most one message of a key.
    fn publish(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Receipt, TransportError>>>;

    /// Forgets which events were published, where the transport recognises repeated ones by itself:
    /// the broker may have lost them, and they are published again.
    fn forget_published(&self) {}

    /// Joins a subscription. Several processes that join share its messages.
    fn subscribe<'a>(
        &'a self,
        spec: &'a SubscriptionSpec,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>>;

    /// Sets a subscription to another place, for all processes that share it.
    fn seek<'a>(
        &'a self,
        subscription: &'a str,
        to: SeekTo,
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// How the transport differs from what a catalog asks for; changes nothing. What the
    /// catalog does not mention is listed as [`Action::Extra`](super::Action::Extra) only where
    /// it is certain to be the system's own.
    fn plan<'a>(
        &'a self,
        _wanted: &'a Topology,
    ) -> BoxFuture<'a, Result<Vec<Difference>, TransportError>> {
        Box::pin(async { Err(TransportError::Unsupported("be compared with a catalog")) })
    }

    /// Makes one difference go away: what [`Difference::to_do`] made of an entry of
    /// [`Transport::plan`]. Carried out twice it does nothing more. An `Extra` is deleted, but
    /// refused with [`TransportError::Setup`] while somebody uses it.
    fn carry_out<'a>(
        &'a self,
        _wanted: &'a Topology,
        _difference: &'a Difference,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async { Err(TransportError::Unsupported("be set up from a catalog")) })
    }

    /// Reads what is kept of some topics without a subscription: nobody else notices, and
    /// nothing is left behind.
    fn read<'a>(
        &'a self,
        topics: &'a [String],
        from: ReadFrom,
    ) -> BoxFuture<'a, Result<Box<dyn Reader>, TransportError>> {
        let _ = (topics, from);
        Box::pin(async { Err(TransportError::Unsupported("be read without a subscription")) })
    }
}

/// Reads messages in the order of each partition.
pub trait Reader: Send {
    /// Waits until there are messages or `wait` is over, and returns at most `max` of them.
    fn read(
        &mut self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Kept>, TransportError>>;

    /// Whether everything has been read that was there when the reader was opened.
    fn is_caught_up(&self) -> bool;
}

/// One process's part of a subscription.
///
/// # Contract
/// - What is not acknowledged is delivered again, here or in another process, after its
///   deadline, after [`Subscription::nack`], or when this value is dropped.
/// - Several messages of a key may be out at once. When one of them comes again, its followers
///   come again behind it, and their earlier deliveries are over.
/// - Acknowledging is idempotent. [`TransportError::Expired`] means that somebody else may
///   handle the message now; a database transaction that is still open must then be rolled back.
pub trait Subscription: Send + Sync {
    /// Waits until there are messages or `wait` is over, and returns at most `max` of them.
    ///
    /// With a `max` of 0 it returns the oldest message of each partition that is not in flight
    /// yet, also where [`SubscriptionSpec::max_in_flight`] are. A consumer whose hands are full
    /// of events that wait for others may wait for one of these. Where all events of a key are
    /// in one partition there is nothing to return.
    fn fetch(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>>;

    /// The messages are dealt with.
    fn ack<'a>(&'a self, tokens: &'a [Token]) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Deliver the message again, not before `delay`.
    fn nack<'a>(
        &'a self,
        token: &'a Token,
        delay: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// The messages are still being worked on: start their deadline anew. No tokens at all
    /// stand for everything that is in flight here.
    fn extend<'a>(&'a self, tokens: &'a [Token]) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Leaves the subscription at once, so that others need not wait for a deadline.
    fn close(&self) -> BoxFuture<'_, Result<(), TransportError>>;
}
