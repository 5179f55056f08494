//! The durable consumer of a partition, one for each epoch, and the task that pulls from it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::ConsumerInfoErrorKind;
use async_nats::jetstream::message::Message;
use chapar_core::machine::flight::Key;
use chapar_core::port::{AckToken, Delivery, Position, TransportError};
use futures_util::StreamExt;
use jiff::Timestamp;
use tracing::{debug, warn};

use super::bucket::Part;
use super::group::{Share, Start};
use super::subscription::Inner;
use super::{Nats, lock, safe, setup, topology, unavailable, wire};
use crate::HEAVY;

/// Long, because redelivery happens from memory and not by the server.
const ACK_WAIT: Duration = Duration::from_secs(3600);
/// The bytes of a partition to request at once, unless the largest message is larger.
const PULLED: usize = 2 << 20;

impl Nats {
    /// Creates the durable consumer of a new epoch, starting after the cursor or where a seek set
    /// it. Returns it with the sequence number up to which the partition was read.
    pub(super) async fn open_durable(
        &self,
        subscription: &str,
        part: &Part,
        share: &Share,
    ) -> Result<(PullConsumer, u64), TransportError> {
        let mut floor = 0;
        let deliver_policy = match (share.start, share.cursor) {
            (Some(Start::Sequence(sequence)), _) => {
                floor = sequence.saturating_sub(1);
                from_sequence(sequence)
            }
            (Some(Start::Nanoseconds(at)), _) => DeliverPolicy::ByStartTime {
                start_time: async_nats::datetime::from_nanos(i128::from(at))
                    .map_err(|error| setup(format!("cannot seek to this time: {error}")))?,
            },
            (None, Some(epoch)) => match self.floor(subscription, part, epoch).await? {
                Some(read) => {
                    floor = read;
                    // Topics that were left out meanwhile are read from where they were left.
                    let left = part.topics.iter().filter_map(|topic| share.left.get(topic));
                    from_sequence(left.copied().min().map_or(read, |left| left.min(read)) + 1)
                }
                // It was deleted. Delivering everything again is safe; skipping is not.
                None => DeliverPolicy::All,
            },
            (None, None) => DeliverPolicy::All,
        };
        let subjects = part.topics.iter().map(|topic| topology::subject(topic, part.number));
        let config = pull::Config {
            durable_name: Some(durable(subscription, part, share.epoch)),
            description: Some(format!("partition {} of {subscription}", part.number)),
            deliver_policy,
            // The next owner needs only the cursor, and one acknowledgement moves it over many.
            ack_policy: AckPolicy::All,
            ack_wait: ACK_WAIT,
            max_ack_pending: -1,
            filter_subjects: subjects.collect(),
            ..Default::default()
        };
        let created = self.0.context.create_consumer_on_stream(config, &part.stream).await;
        Ok((created.map_err(|error| unavailable(&error))?, floor))
    }

    /// Up to where the durable consumer of an epoch has acknowledged; none if it does not exist.
    pub(super) async fn floor(
        &self,
        subscription: &str,
        part: &Part,
        epoch: u64,
    ) -> Result<Option<u64>, TransportError> {
        let name = durable(subscription, part, epoch);
        let stream = self.0.context.get_stream_no_info(&part.stream).await;
        let stream = stream.map_err(|error| unavailable(&error))?;
        match stream.consumer_info(&name).await {
            Ok(info) => Ok(Some(info.ack_floor.stream_sequence)),
            Err(error) if matches!(error.kind(), ConsumerInfoErrorKind::NotFound) => {
                warn!(
                    durable = name,
                    "durable consumer with the cursor not found; reading the partition from its start"
                );
                Ok(None)
            }
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// Deletes the durable consumers of earlier epochs.
    pub(super) async fn delete_durables(
        &self,
        subscription: &str,
        part: &Part,
        epochs: std::ops::Range<u64>,
    ) {
        // Epochs in which the owner did not get to opening the partition have none.
        for epoch in epochs.rev().take(16) {
            let name = durable(subscription, part, epoch);
            let deleted = self.0.context.delete_consumer_from_stream(&name, &part.stream).await;
            debug!(
                durable = name,
                ok = deleted.is_ok(),
                "deleted the durable consumer of an earlier epoch"
            );
        }
    }
}

fn durable(subscription: &str, part: &Part, epoch: u64) -> String {
    format!("{}_p{}_e{epoch}", safe(subscription), part.number)
}

pub(super) fn from_sequence(start_sequence: u64) -> DeliverPolicy {
    DeliverPolicy::ByStartSequence { start_sequence: start_sequence.max(1) }
}

/// Pulls messages into memory for as long as the process owns the partition and none is missing.
///
/// The server counts messages that it sent over a broken connection as delivered, and does not send
/// them again. So after any gap or interruption this durable consumer cannot be used: the partition
/// is taken again in a new epoch, which starts after the cursor.
pub(super) async fn pump(inner: Arc<Inner>, code: u32, epoch: u64, consumer: PullConsumer) {
    const PAUSE: Duration = Duration::from_millis(200);
    let batch = (inner.spec.max_in_flight / 4).clamp(1, 256);
    // Requested messages arrive whether or not there is room for them. A request for fewer bytes
    // than the next message has would never be answered.
    let largest = inner.nats.0.client.server_info().max_payload + (64 << 10);
    let mut sent = 0;
    loop {
        let messages = consumer
            .stream()
            .max_messages_per_batch(batch)
            .max_bytes_per_batch(largest.max(PULLED))
            .expires(Duration::from_secs(10))
            .heartbeat(Duration::from_secs(2))
            .messages()
            .await;
        let mut chunks = match messages {
            Ok(messages) => messages.ready_chunks(batch),
            Err(error) => {
                debug!(%error, "cannot start pulling; retrying");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        while let Some(chunk) = chunks.next().await {
            let mut fresh = VecDeque::with_capacity(chunk.len());
            let mut trouble = false;
            for message in chunk {
                match message {
                    Ok(message) => {
                        let number = message.info().map(|info| info.consumer_sequence);
                        let number = number.unwrap_or(0);
                        trouble = number > sent + 1;
                        if trouble {
                            debug!(number, sent, "messages from the server are missing");
                            break;
                        }
                        sent = number.max(sent);
                        fresh.push_back(message);
                    }
                    Err(error) => {
                        debug!(%error, "pulling was interrupted");
                        trouble = true;
                        break;
                    }
                }
            }
            if !deliver(&inner, code, epoch, fresh).await {
                return;
            }
            if trouble {
                return inner.distrust(code, epoch);
            }
        }
        return inner.distrust(code, epoch);
    }
}

/// Adds messages to the partition as there is room; returns false if the partition was lost.
async fn deliver(inner: &Inner, code: u32, epoch: u64, mut fresh: VecDeque<Message>) -> bool {
    loop {
        let room = inner.room.notified();
        {
            let mut state = lock(&inner.state);
            let mut bytes: usize = state.member.held().items().map(|owned| owned.bytes).sum();
            let Ok(owned) = state.member.held_mut().admit(&code, epoch) else { return false };
            // Above the memory bound, keep one message waiting: the consumer may need it next.
            let most = |bytes| if bytes < HEAVY { inner.spec.max_in_flight } else { 1 };
            while owned.flight.waiting() < most(bytes)
                && let Some(message) = fresh.pop_front()
            {
                match place(&message) {
                    // Sent again by the server: ignore it and do not count its bytes twice.
                    Some((offset, _)) if offset <= owned.flight.read_to() => {}
                    Some((offset, key)) => {
                        bytes += message.length;
                        owned.bytes += message.length;
                        owned.flight.push(offset, key, Arc::new(message));
                    }
                    None => {
                        let subject = message.subject.as_str();
                        warn!(subject, "message without our headers or subject ignored");
                    }
                }
            }
        }
        inner.arrived.notify_waiters();
        if fresh.is_empty() {
            return true;
        }
        room.await;
    }
}

/// The sequence number and ordering key of a message, if it is one of Chapar's.
fn place(message: &Message) -> Option<(u64, Option<Key>)> {
    let info = message.info().ok()?;
    topology::parse(message.subject.as_str())?;
    message.reply.as_ref()?;
    let key = wire::key(message.headers.as_ref()).map(|key| Key::of(&key));
    Some((info.stream_sequence, key))
}

/// A message as a delivery.
pub(super) fn read(code: u32, message: &Message) -> Option<Delivery> {
    let info = message.info().ok()?;
    let position = Position { partition: code, offset: info.stream_sequence };
    let (topic, _) = topology::parse(message.subject.as_str())?;
    let (headers, key) = wire::decode(message.headers.as_ref());
    let published = info.published.unix_timestamp_nanos();
    Some(Delivery {
        token: AckToken::unacknowledgeable(position),
        topic: topic.to_owned(),
        key,
        headers,
        body: message.payload.clone(),
        attempt: 0,
        published_at: Timestamp::from_nanosecond(published).unwrap_or(Timestamp::MIN),
    })
}
