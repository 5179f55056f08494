//! The durable of a partition, made anew for each owner, and the task that pulls from it.

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

/// What is late is delivered again from memory; the server need not.
const ACK_WAIT: Duration = Duration::from_secs(3600);
/// At most so many bytes of a partition are asked for at once, or the largest message.
const PULLED: usize = 2 << 20;

impl Nats {
    /// Makes the durable of a new owner, behind the cursor or where a seek wants it.
    pub(super) async fn open_durable(
        &self,
        subscription: &str,
        part: &Part,
        share: &Share,
    ) -> Result<PullConsumer, TransportError> {
        let deliver_policy = match (share.start, share.cursor) {
            (Some(Start::Sequence(sequence)), _) => from_sequence(sequence),
            (Some(Start::Nanoseconds(at)), _) => DeliverPolicy::ByStartTime {
                start_time: async_nats::datetime::from_nanos(i128::from(at))
                    .map_err(|error| setup(format!("no time to seek to: {error}")))?,
            },
            (None, Some(epoch)) => self.behind_cursor(subscription, part, epoch).await?,
            (None, None) => DeliverPolicy::All,
        };
        let subjects = part.topics.iter().map(|topic| topology::subject(topic, part.number));
        let config = pull::Config {
            durable_name: Some(durable(subscription, part, share.epoch)),
            description: Some(format!("partition {} of {subscription}", part.number)),
            deliver_policy,
            // The cursor is all that the next owner needs, and one word moves it over many.
            ack_policy: AckPolicy::All,
            ack_wait: ACK_WAIT,
            max_ack_pending: -1,
            filter_subjects: subjects.collect(),
            ..Default::default()
        };
        let created = self.0.context.create_consumer_on_stream(config, &part.stream).await;
        created.map_err(|error| unavailable(&error))
    }

    async fn behind_cursor(
        &self,
        subscription: &str,
        part: &Part,
        epoch: u64,
    ) -> Result<DeliverPolicy, TransportError> {
        let name = durable(subscription, part, epoch);
        let stream = self.0.context.get_stream_no_info(&part.stream).await;
        let stream = stream.map_err(|error| unavailable(&error))?;
        match stream.consumer_info(&name).await {
            Ok(info) => Ok(from_sequence(info.ack_floor.stream_sequence + 1)),
            Err(error) if matches!(error.kind(), ConsumerInfoErrorKind::NotFound) => {
                // Somebody has deleted it. Everything again is safe; nothing would not be.
                warn!(
                    durable = name,
                    "the cursor is gone; the partition starts from its beginning"
                );
                Ok(DeliverPolicy::All)
            }
            Err(error) => Err(unavailable(&error)),
        }
    }

    /// Deletes the durables of earlier owners.
    pub(super) async fn delete_durables(
        &self,
        subscription: &str,
        part: &Part,
        epochs: std::ops::Range<u64>,
    ) {
        // Those of owners that came no further than taking the partition were never made.
        for epoch in epochs.rev().take(16) {
            let name = durable(subscription, part, epoch);
            let deleted = self.0.context.delete_consumer_from_stream(&name, &part.stream).await;
            debug!(durable = name, ok = deleted.is_ok(), "an earlier owner's durable is deleted");
        }
    }
}

fn durable(subscription: &str, part: &Part, epoch: u64) -> String {
    format!("{}_p{}_e{epoch}", safe(subscription), part.number)
}

pub(super) fn from_sequence(start_sequence: u64) -> DeliverPolicy {
    DeliverPolicy::ByStartSequence { start_sequence: start_sequence.max(1) }
}

/// Pulls messages into memory for as long as the partition is ours and none is missing.
///
/// What the server has sent over a connection that broke it counts as delivered, and does not send
/// again. So after any gap or interruption this durable is of no use: the partition is taken
/// anew, behind its cursor.
pub(super) async fn pump(inner: Arc<Inner>, code: u32, epoch: u64, consumer: PullConsumer) {
    const PAUSE: Duration = Duration::from_millis(200);
    let batch = (inner.spec.max_in_flight / 4).clamp(1, 256);
    // What is asked for comes, whether there is room for it or not. A request that has no room for
    // the largest message would be answered by none.
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
                debug!(%error, "pulling does not start");
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
                            debug!(number, sent, "the server has sent what did not arrive");
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

/// Puts messages where `fetch` finds them, as there is room; false if the partition is lost.
async fn deliver(inner: &Inner, code: u32, epoch: u64, mut fresh: VecDeque<Message>) -> bool {
    loop {
        let room = inner.room.notified();
        {
            let mut state = lock(&inner.state);
            let mut bytes: usize = state.member.held().items().map(|owned| owned.bytes).sum();
            let Ok(owned) = state.member.held_mut().admit(&code, epoch) else { return false };
            // What a consumer needs next may come from where nothing waits.
            let most = |bytes| if bytes < HEAVY { inner.spec.max_in_flight } else { 1 };
            while owned.flight.waiting() < most(bytes)
                && let Some(message) = fresh.pop_front()
            {
                match place(&message) {
                    // Sent once more, it is here already and is not counted again.
                    Some((offset, _)) if offset <= owned.flight.read_to() => {}
                    Some((offset, key)) => {
                        bytes += message.length;
                        owned.bytes += message.length;
                        owned.flight.push(offset, key, Arc::new(message));
                    }
                    None => {
                        let subject = message.subject.as_str();
                        warn!(subject, "a message that is none of ours is passed over");
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

/// Where a message lies, and its ordering key, if it is one of ours.
fn place(message: &Message) -> Option<(u64, Option<Key>)> {
    let info = message.info().ok()?;
    topology::parse(message.subject.as_str())?;
    message.reply.as_ref()?;
    let key = wire::key(message.headers.as_ref()).map(|key| Key::of(&key));
    Some((info.stream_sequence, key))
}

/// What a message is to its reader.
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
