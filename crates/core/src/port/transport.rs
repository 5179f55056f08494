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
    /// The id of the event, by which a transport deduplicates.
    pub id: Id,
    /// The topic to publish to.
    pub topic: String,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The ordering key: messages of one key are delivered in the order
    /// of their receipts.
    pub key: Option<String>,
    /// Headers.
    pub headers: Headers,
    /// Body.
    pub body: Bytes,
}

/// Where a message is stored in the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The partition, shard or stream partition; below 2³¹.
    pub partition: u32,
    /// Ascending within the partition.
    pub offset: u64,
}

/// Confirms that the transport has stored the message durably.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Where it is stored.
    pub position: Position,
    /// Whether it was stored before, under the same id.
    pub duplicate: bool,
}

/// Names one delivery of a message, so that it can be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AckToken {
    /// Where the message is stored.
    pub position: Position,
    /// How the message was handed out.
    pub origin: Origin,
}

/// How a message was handed out, and so whether it can be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// By a [`Subscription`], which expects an acknowledgement.
    Subscription(Tracking),
    /// By a [`Reader`], or read ahead and not yet delivered: there is nothing to acknowledge. A
    /// subscription answers such a token with [`TransportError::Expired`].
    Unacknowledgeable,
}

/// How a subscription recognises one of its deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tracking {
    /// The epoch of ownership in which it was delivered; a later epoch invalidates it.
    pub epoch: u64,
    /// The number under which the subscription tracks the message: in most transports its
    /// offset, elsewhere a count of arrivals.
    pub number: u64,
    /// Which delivery of the message it is in this epoch, from 1. Only the latest one counts.
    pub attempt: u32,
}

impl AckToken {
    /// The token of a delivery by a subscription.
    pub fn of(position: Position, tracking: Tracking) -> Self {
        AckToken { position, origin: Origin::Subscription(tracking) }
    }

    /// The token of a message that expects no acknowledgement.
    pub fn unacknowledgeable(position: Position) -> Self {
        AckToken { position, origin: Origin::Unacknowledgeable }
    }

    /// How the subscription recognises the delivery.
    ///
    /// # Errors
    /// [`TransportError::Expired`] where no subscription delivered it.
    pub fn tracking(&self) -> Result<Tracking, TransportError> {
        match self.origin {
            Origin::Subscription(tracking) => Ok(tracking),
            Origin::Unacknowledgeable => Err(TransportError::Expired),
        }
    }
}

/// A message that has arrived at a subscription.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Identifies the delivery for its acknowledgement.
    pub token: AckToken,
    /// The topic that it was published to.
    pub topic: String,
    /// Its ordering key.
    pub key: Option<String>,
    /// Headers.
    pub headers: Headers,
    /// Body.
    pub body: Bytes,
    /// Which delivery of the message this is, from 1, as far as the transport counts them.
    pub attempt: u32,
    /// When the transport stored it.
    pub published_at: Timestamp,
}

/// A subscription: a consumer and the topics that it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionSpec {
    /// The consumer's name: each subscription gets its own copy of every message.
    pub name: String,
    /// The topics.
    pub topics: Vec<String>,
    /// How long a delivery may take before the message is delivered again.
    pub ack_deadline: Duration,
    /// The most messages in flight: delivered and not yet acknowledged.
    pub max_in_flight: usize,
}

/// A topic as it is declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSpec {
    /// Its name.
    pub name: String,
    /// The number of partitions, on a transport that has them.
    pub partitions: u32,
    /// How long messages are retained.
    pub retention: Duration,
}

/// Where to move a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeekTo {
    /// The first message that is retained.
    Beginning,
    /// After the last message.
    End,
    /// The first message stored at or after this time.
    Time(Timestamp),
    /// This message.
    Position(Position),
}

/// Where to begin reading the retained messages of a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadFrom {
    /// The first message that is retained.
    Beginning,
    /// After the last message.
    End,
    /// The first message stored at or after this time.
    Time(Timestamp),
    /// After these offsets, by partition; other partitions from their beginning.
    Behind(BTreeMap<u32, u64>),
}

/// A retained message, as a [`Reader`] returns it.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The id of the event.
    pub id: String,
    /// The tenant that it belongs to.
    pub tenant: String,
    /// The message. Its token is [`Origin::Unacknowledgeable`].
    pub delivery: Delivery,
}

/// What a transport can do beyond the contract.
///
/// Order within a key, redelivery, fan-out, durability and deduplication by id are not listed
/// here, because every transport must have them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Features {
    /// Keeps the order of a key when one publish fails, so that several messages of a key may be
    /// published at the same time.
    pub ordered_in_flight: bool,
    /// Delivers the messages of a key in the order of their receipts also over several topics of
    /// one service. Without it, the relay stamps messages with their order.
    pub ordered_topics: bool,
    /// Can move a subscription to a time.
    pub seek_time: bool,
    /// Can move a subscription to a position.
    pub seek_position: bool,
    /// Can delay the redelivery of a message that is handed back.
    pub delayed_nack: bool,
    /// Accepts messages of 1 MiB.
    pub mebibyte: bool,
    /// Keeps its messages and cursors in the store itself, where they are counted and moved in one
    /// transaction with the inbox.
    pub in_store: bool,
}

/// Why a call to a transport failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// Temporary: a retry may succeed.
    #[error("the transport is not available: {0}")]
    Unavailable(String),
    /// Permanent: the transport will never accept this message.
    #[error("the transport refuses the message: {0}")]
    Refused(String),
    /// The configuration of the transport or of this process is wrong.
    #[error("the transport is not set up for this: {0}")]
    Setup(String),
    /// The delivery has expired: its deadline has passed, it was superseded by a later one, or its
    /// partition has another owner or epoch.
    #[error("the delivery has expired")]
    Expired,
    /// The transport cannot do this; see [`Features`].
    #[error("this transport cannot {0}")]
    Unsupported(&'static str),
}

impl TransportError {
    /// Whether a retry can succeed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, TransportError::Unavailable(_))
    }
}

/// Carries messages from relays to consumers.
///
/// # Contract
/// - A message is durable once its [`Receipt`] is returned, and not before.
/// - Publishing may be repeated with the same id; consumers must still expect duplicates.
/// - Messages of one key and topic are delivered to a subscription in the order of their
///   receipts, by one process at a time, also after redelivery.
/// - Every subscription gets every message that is published to its topics after it was created.
pub trait Transport: Send + Sync {
    /// What it can do beyond the contract.
    fn features(&self) -> Features;

    /// Creates topics and subscriptions, or changes them to be as specified. Idempotent.
    fn apply<'a>(
        &'a self,
        topics: &'a [TopicSpec],
        subscriptions: &'a [SubscriptionSpec],
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Publishes a batch; the result has one entry per message, in the same order.
    ///
    /// Without [`Features::ordered_in_flight`], a batch must hold at most one message of a key.
    fn publish(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Receipt, TransportError>>>;

    /// Forgets which events were published, where the transport recognises repeated ones by itself:
    /// the broker may have lost them, and they are published again.
    fn forget_published(&self) {}

    /// Joins a subscription. Several processes that join share its messages.
    fn subscribe<'a>(
        &'a self,
        spec: &'a SubscriptionSpec,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>>;

    /// Moves a subscription, for all processes that share it. Deliveries from before expire.
    fn seek<'a>(
        &'a self,
        subscription: &'a str,
        to: SeekTo,
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// How the transport differs from a catalog; changes nothing. What the catalog does not declare
    /// is listed as [`Action::Extra`](super::Action::Extra) only if it certainly belongs to the
    /// system.
    fn plan<'a>(
        &'a self,
        _wanted: &'a Topology,
    ) -> BoxFuture<'a, Result<Vec<Difference>, TransportError>> {
        Box::pin(async { Err(TransportError::Unsupported("be compared with a catalog")) })
    }

    /// Carries out one difference: what [`Difference::to_do`] returned for an entry of
    /// [`Transport::plan`]. Idempotent. An `Extra` is deleted, or refused with
    /// [`TransportError::Setup`] while a consumer uses it.
    fn carry_out<'a>(
        &'a self,
        _wanted: &'a Topology,
        _difference: &'a Difference,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async { Err(TransportError::Unsupported("be set up from a catalog")) })
    }

    /// Reads the retained messages of some topics without a subscription: it does not affect
    /// consumers, and leaves nothing behind.
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

    /// Whether everything has been read that was stored when the reader was opened.
    fn is_caught_up(&self) -> bool;
}

/// One process's part of a subscription.
///
/// # Contract
/// - A message that is not acknowledged is delivered again, by this process or another: after its
///   deadline, after [`Subscription::nack`], or when this value is dropped.
/// - Several messages of a key may be in flight at once. When one of them is delivered again, its
///   followers are delivered again after it, and their earlier deliveries have expired.
/// - Only the latest delivery of a message, by the current owner of its partition, can be
///   acknowledged, handed back or kept alive. Every other token is answered with
///   [`TransportError::Expired`]: another process may be handling the message, and a database
///   transaction that is still open for it must be rolled back.
/// - Acknowledging twice does nothing more.
pub trait Subscription: Send + Sync {
    /// Waits until there are messages or `wait` is over, and returns at most `max` of them.
    ///
    /// There are never more than [`SubscriptionSpec::max_in_flight`] in flight, apart from those
    /// of [`Subscription::fetch_oldest`]. A `max` of 0 takes no messages.
    fn fetch(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>>;

    /// Waits until there are messages or `wait` is over, and returns from each partition its
    /// oldest unacknowledged message, unless that is in flight already.
    ///
    /// [`SubscriptionSpec::max_in_flight`] does not limit it. A consumer that holds nothing but
    /// messages that wait for predecessors in other partitions calls it to get those
    /// predecessors. With [`Features::ordered_topics`] all messages of a key are in one
    /// partition, so there are none to get, and the answer may always be empty.
    fn fetch_oldest(&self, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>>;

    /// Whether messages of one key and topic may be in several partitions, for example because its
    /// tenant was given one of its own. Partitions are delivered independently, so the first
    /// message of a key that arrives may then have predecessors that are still to come.
    fn spreads_keys(&self) -> bool {
        false
    }

    /// The messages are done and must not be delivered again.
    ///
    /// Each token is dealt with by itself: an error means that at least one was not accepted.
    fn ack<'a>(&'a self, tokens: &'a [AckToken]) -> BoxFuture<'a, Result<(), TransportError>>;

    /// Hands a message back. It is delivered again, not before `delay` where
    /// [`Features::delayed_nack`].
    fn nack<'a>(
        &'a self,
        token: &'a AckToken,
        delay: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>>;

    /// The heartbeat of a consumer that is busy: restarts the deadline of everything in flight,
    /// and renews the ownership of partitions where that is due.
    fn keep_alive(&self) -> BoxFuture<'_, Result<(), TransportError>>;

    /// Leaves the subscription and gives back what this process owns, so that other processes
    /// need not wait for a deadline.
    fn close(&self) -> BoxFuture<'_, Result<(), TransportError>>;
}
