//! Reading streams without a durable consumer: by ephemeral ones, which the server removes when they
//! are no longer used.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::message::Message;
use chapar_core::port::{BoxFuture, Kept, ReadFrom, Reader, TransportError};
use futures_util::stream::{SelectAll, StreamExt};
use futures_util::{FutureExt, Stream};

use super::topology::{Domain, code, parse};
use super::{Nats, durable, setup, unavailable, wire};

/// Reads the streams of some topics.
pub(super) struct NatsReader {
    messages: SelectAll<Messages>,
    topics: BTreeSet<String>,
    /// The offsets that were read before, by partition.
    behind: BTreeMap<u32, u64>,
    /// The streams not yet read to the end that they had at first, with that end.
    ends: BTreeMap<String, u64>,
}

type Messages = Pin<Box<dyn Stream<Item = Result<Message, TransportError>> + Send>>;

impl NatsReader {
    pub(super) async fn open(
        nats: &Nats,
        topics: &[String],
        from: ReadFrom,
    ) -> Result<Self, TransportError> {
        let mut domains: BTreeMap<Domain, Vec<String>> = BTreeMap::new();
        for topic in topics {
            domains.entry(nats.domain(topic)?).or_default().push(format!("{topic}.*"));
        }
        let behind = match &from {
            ReadFrom::Behind(offsets) => offsets.clone(),
            _ => BTreeMap::new(),
        };
        let mut reader = NatsReader {
            messages: SelectAll::new(),
            topics: topics.iter().cloned().collect(),
            behind,
            ends: BTreeMap::new(),
        };
        for (domain, subjects) in domains {
            reader.join(nats, &domain.stream, subjects, &from).await?;
        }
        Ok(reader)
    }

    async fn join(
        &mut self,
        nats: &Nats,
        name: &str,
        subjects: Vec<String>,
        from: &ReadFrom,
    ) -> Result<(), TransportError> {
        let stream = match nats.0.context.get_stream(name).await {
            Ok(stream) => stream,
            Err(error) if is_missing(&error) => return Ok(()),
            Err(error) => return Err(unavailable(&error)),
        };
        let last = stream.cached_info().state.last_sequence;
        let deliver_policy = match from {
            ReadFrom::Beginning => DeliverPolicy::All,
            ReadFrom::End => DeliverPolicy::New,
            ReadFrom::Time(at) => DeliverPolicy::ByStartTime {
                start_time: async_nats::datetime::from_nanos(at.as_nanosecond())
                    .map_err(|error| setup(format!("cannot read from this time: {error}")))?,
            },
            // The partitions of a stream share one sequence: start with the earliest.
            ReadFrom::Behind(offsets) => {
                let known = super::topology::partitions_found(stream.cached_info());
                let first = known.iter().map(|part| offsets.get(&code(name, *part)));
                let first = first.map(|offset| offset.map_or(1, |offset| offset + 1)).min();
                durable::from_sequence(first.unwrap_or(1))
            }
        };
        let config =
            pull::OrderedConfig { filter_subjects: subjects, deliver_policy, ..Default::default() };
        let consumer = stream.create_consumer(config).await.map_err(|error| unavailable(&error))?;
        if consumer.cached_info().num_pending > 0 {
            self.ends.insert(name.to_owned(), last);
        }
        let messages = consumer.messages().await.map_err(|error| unavailable(&error))?;
        self.messages
            .push(Box::pin(messages.map(|next| next.map_err(|error| unavailable(&error)))));
        Ok(())
    }

    fn take(&mut self, message: &Message) -> Option<Kept> {
        let info = message.info().ok()?;
        let (stream, sequence, pending) =
            (info.stream.to_owned(), info.stream_sequence, info.pending);
        if pending == 0 || self.ends.get(&stream).is_some_and(|end| sequence >= *end) {
            self.ends.remove(&stream);
        }
        let (topic, number) = parse(message.subject.as_str())?;
        let partition = code(&stream, number);
        let read_before = self.behind.get(&partition).is_some_and(|offset| sequence <= *offset);
        if read_before || !self.topics.contains(topic) {
            return None;
        }
        let delivery = durable::read(partition, message)?;
        let (id, tenant) = wire::named(message.headers.as_ref())?;
        Some(Kept { id, tenant, delivery })
    }
}

impl Reader for NatsReader {
    fn read(
        &mut self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Kept>, TransportError>> {
        Box::pin(async move {
            let deadline = Instant::now() + wait;
            let mut found = Vec::new();
            while found.len() < max && !self.messages.is_empty() {
                let next = match self.messages.next().now_or_never() {
                    Some(next) => next,
                    None if found.is_empty() => {
                        let left = deadline.saturating_duration_since(Instant::now());
                        match tokio::time::timeout(left, self.messages.next()).await {
                            Ok(next) => next,
                            Err(_) => break,
                        }
                    }
                    None => break,
                };
                let Some(message) = next else { break };
                let message = message?;
                found.extend(self.take(&message));
            }
            Ok(found)
        })
    }

    fn is_caught_up(&self) -> bool {
        self.ends.is_empty()
    }
}

fn is_missing(error: &async_nats::jetstream::context::GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.code() == 404)
}
