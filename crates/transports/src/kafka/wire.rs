//! A message as Kafka carries it.
//!
//! Headers become Kafka headers, unchanged and in order. Two of ours follow them: the id, for
//! deduplication in the subscription, and the tenant.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use chapar_core::port::{AckToken, Delivery, Outgoing};
use chapar_core::{Headers, Id};
use jiff::Timestamp;
use rdkafka::Message;
use rdkafka::message::{BorrowedHeaders, BorrowedMessage, Header, Headers as _, OwnedHeaders};

use super::topology::{Topic, Topics};

const ID: &str = "chapar-id";
const TENANT: &str = "chapar-tenant";

/// Messages of one partition that were read one after the other.
pub(super) struct Run {
    pub(super) topic: Topic,
    pub(super) partition: i32,
    /// The epoch that the reader gave when it read them.
    pub(super) epoch: u64,
    /// All of them, one after the other.
    memory: Bytes,
    lines: Vec<Line>,
}

/// A message of a run.
struct Line {
    offset: i64,
    published_at: Timestamp,
    parts: Parts,
}

/// The lengths of the parts of a message, in their order in memory. Kafka itself limits them to
/// 32 bits.
#[derive(Clone, Copy)]
struct Parts {
    body: u32,
    key: Option<u32>,
    headers: u32,
    id: Option<u32>,
    tenant: Option<u32>,
}

/// A message that waits to be delivered. Cheap to clone.
#[derive(Clone)]
pub(super) struct Kept {
    published_at: Timestamp,
    memory: Bytes,
    parts: Parts,
}

impl Run {
    /// The messages and their offsets, in their order.
    pub(super) fn messages(self) -> impl Iterator<Item = (i64, Kept)> {
        let Run { mut memory, lines, .. } = self;
        lines.into_iter().map(move |Line { offset, published_at, parts }| {
            (offset, Kept { published_at, memory: memory.split_to(parts.len()), parts })
        })
    }
}

impl Parts {
    /// Where each part begins, and where the last ends.
    fn places(&self) -> [usize; 6] {
        let Parts { body, key, headers, id, tenant } = *self;
        let mut at = 0;
        [0, body, key.unwrap_or(0), headers, id.unwrap_or(0), tenant.unwrap_or(0)].map(|length| {
            at += length as usize;
            at
        })
    }

    fn len(&self) -> usize {
        self.places()[5]
    }
}

impl Kept {
    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        self.memory.len()
    }

    pub(super) fn key(&self) -> Option<Cow<'_, str>> {
        self.parts.key.map(|_| self.text(1))
    }

    pub(super) fn id(&self) -> Option<Id> {
        self.parts.id.and_then(|_| self.text(3).parse().ok())
    }

    pub(super) fn tenant(&self) -> Option<Cow<'_, str>> {
        self.parts.tenant.map(|_| self.text(4))
    }

    /// The message as a delivery.
    pub(super) fn delivery(&self, topic: &str, token: AckToken, attempt: u32) -> Delivery {
        let [.., body, key, headers, _, _] = self.parts.places();
        Delivery {
            token,
            topic: topic.to_owned(),
            key: self.key().map(Cow::into_owned),
            headers: Headers::over(self.memory.slice(key..headers)),
            body: self.memory.slice(..body),
            attempt,
            published_at: self.published_at,
        }
    }

    /// A part of it. Bytes that are not UTF-8 are replaced.
    fn text(&self, part: usize) -> Cow<'_, str> {
        let places = self.parts.places();
        text(self.memory.get(places[part]..places[part + 1]).unwrap_or_default())
    }
}

/// The headers of an outgoing message.
pub(super) fn encode(message: &Outgoing) -> OwnedHeaders {
    let mut headers = OwnedHeaders::new_with_capacity(message.headers.len() + 2);
    for (key, value) in &message.headers {
        headers = headers.insert(Header { key, value: Some(value) });
    }
    let id = message.id.to_string();
    headers
        .insert(Header { key: ID, value: Some(&id) })
        .insert(Header { key: TENANT, value: Some(&message.tenant) })
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    // The lossy conversion is slower.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// The size of a buffer for several messages, unless one message needs more. A buffer is freed when
/// the last of its messages is acknowledged.
const PIECE: usize = 32 << 10;

/// Collects messages into runs. They are allocated in one thread and freed in another, which would
/// dominate the cost if done for every message or header.
#[derive(Default)]
pub(super) struct Decoder {
    topics: Topics,
    memory: BytesMut,
    /// The topic, the partition and the epoch of the messages in `lines`.
    place: Option<(Topic, i32, u64)>,
    lines: Vec<Line>,
    runs: Vec<Run>,
    read: usize,
    bytes: usize,
}

impl Decoder {
    /// Adds a message that has arrived. Keys and headers of foreign messages may not be UTF-8; they
    /// are converted lossily, and the consumer decides. Most of the decoding is left to the fetching
    /// task, because this thread is the busiest.
    pub(super) fn add(&mut self, message: &BorrowedMessage<'_>, epoch: u64) {
        let headers = message.headers();
        let count = headers.map_or(0, |headers| headers.count());
        // Ours are the last two; headers of the same name before them are the sender's.
        let ours = |at: Option<usize>, name: &str| {
            let header = header(headers?, at?)?;
            (header.key == name).then(|| header.value.unwrap_or_default())
        };
        let tenant = ours(count.checked_sub(1), TENANT);
        let left = count - usize::from(tenant.is_some());
        let id = ours(left.checked_sub(1), ID);
        let left = left - usize::from(id.is_some());
        let (body, key) = (message.payload().unwrap_or_default(), message.key());
        let words = [key, id, tenant].into_iter().flatten().map(<[u8]>::len);
        self.go_to(message, epoch);
        self.make_room(body.len() + words.sum::<usize>());
        self.memory.extend_from_slice(body);
        self.memory.extend_from_slice(key.unwrap_or_default());
        let before = self.memory.len();
        for header in (0..left).filter_map(|at| header(headers?, at)) {
            Headers::write(&mut self.memory, header.key, &text(header.value.unwrap_or_default()));
        }
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or_default();
        let parts = Parts {
            body: length(body.len()),
            key: key.map(|key| length(key.len())),
            headers: length(self.memory.len() - before),
            id: id.map(|id| length(id.len())),
            tenant: tenant.map(|tenant| length(tenant.len())),
        };
        self.memory.extend_from_slice(id.unwrap_or_default());
        self.memory.extend_from_slice(tenant.unwrap_or_default());
        let published_at = message.timestamp().to_millis();
        let published_at = published_at.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let published_at = published_at.unwrap_or_else(Timestamp::now);
        self.lines.push(Line { offset: message.offset(), published_at, parts });
        self.read += 1;
        self.bytes += parts.len();
    }

    /// How many messages were added since they were last taken, and how many bytes they have.
    pub(super) fn read(&self) -> (usize, usize) {
        (self.read, self.bytes)
    }

    /// Takes what was added.
    pub(super) fn take(&mut self) -> Vec<Run> {
        self.end_run();
        (self.read, self.bytes) = (0, 0);
        std::mem::take(&mut self.runs)
    }

    /// Begins a run if the last message was of another partition.
    fn go_to(&mut self, message: &BorrowedMessage<'_>, epoch: u64) {
        let partition = message.partition();
        let stays = self.place.as_ref().is_some_and(|(topic, same, then)| {
            *same == partition && *then == epoch && *topic.name == *message.topic()
        });
        if !stays {
            self.end_run();
            self.place = Some((self.topics.get(message.topic()), partition, epoch));
        }
    }

    fn end_run(&mut self) {
        let Some((topic, partition, epoch)) = self.place.clone() else { return };
        if !self.lines.is_empty() {
            let (memory, lines) = (self.memory.split().freeze(), std::mem::take(&mut self.lines));
            self.runs.push(Run { topic, partition, epoch, memory, lines });
        }
    }

    /// Begins a new buffer, and a run with it, when the last one has no room for a body and its
    /// key. The buffer grows by itself if the headers need more.
    fn make_room(&mut self, needed: usize) {
        const HEADERS: usize = 512;
        if self.memory.capacity() - self.memory.len() < needed + HEADERS {
            self.end_run();
            self.memory = BytesMut::with_capacity(PIECE.max(needed + HEADERS));
        }
    }
}

/// A header, unless its name is not UTF-8: the client library would panic.
fn header(headers: &BorrowedHeaders, at: usize) -> Option<Header<'_, &[u8]>> {
    std::panic::catch_unwind(|| headers.try_get(at)).ok()?
}
