//! A message as Kafka carries it.
//!
//! Headers go as Kafka headers, in their order and to the letter. Two of ours come behind them: the
//! id, for the window of the subscription, and the tenant.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use chapar_core::port::{Delivery, Outgoing, Position, Token};
use chapar_core::{Headers, Id};
use jiff::Timestamp;
use rdkafka::Message;
use rdkafka::message::{BorrowedMessage, Header, Headers as _, OwnedHeaders};

use super::topology::{Topic, Topics};

const ID: &str = "chapar-id";
const TENANT: &str = "chapar-tenant";

/// A message that has been read.
pub(super) struct Arrived {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) id: Option<Id>,
    pub(super) kept: Kept,
}

/// A message that waits to be delivered. Cheap to clone.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) topic: Topic,
    pub(super) position: Position,
    published_at: Timestamp,
    /// All of it, one behind the other: body, key, tenant, headers.
    memory: Bytes,
    body: usize,
    key: Option<usize>,
    tenant: Option<usize>,
}

impl Kept {
    /// How many bytes it has.
    pub(super) fn len(&self) -> usize {
        self.memory.len()
    }

    pub(super) fn key(&self) -> Option<&str> {
        self.key.map(|length| self.text(self.body, length))
    }

    pub(super) fn tenant(&self) -> Option<&str> {
        self.tenant.map(|length| self.text(self.body + self.key.unwrap_or(0), length))
    }

    /// The message as it is handed out, for the first time or again.
    pub(super) fn delivery(&self, token: Token, attempt: u32) -> Delivery {
        Delivery {
            token,
            topic: (*self.topic.name).to_owned(),
            key: self.key().map(str::to_owned),
            headers: self.headers(),
            body: self.memory.slice(..self.body),
            attempt,
            published_at: self.published_at,
        }
    }

    fn headers(&self) -> Headers {
        let at = self.body + self.key.unwrap_or(0) + self.tenant.unwrap_or(0);
        Headers::over(self.memory.slice(at..))
    }

    /// It was text when it was put there.
    fn text(&self, from: usize, length: usize) -> &str {
        let bytes = self.memory.get(from..from + length);
        bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }
}

/// A piece of memory for several messages is so large, or as large as one message needs. All of
/// it stays until the last of them is acknowledged.
const PIECE: usize = 32 << 10;

/// Reads messages as they come into few pieces of memory: one thread takes them and another
/// gives them back, which costs more than all the rest when it is done for every word.
#[derive(Default)]
pub(super) struct Decoder {
    topics: Topics,
    memory: BytesMut,
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

fn text(value: Option<&[u8]>) -> Cow<'_, str> {
    String::from_utf8_lossy(value.unwrap_or_default())
}

impl Decoder {
    /// A message that has arrived. Keys and headers of others may be no text: they are read as
    /// well as they can be, for the consumer to judge.
    pub(super) fn decode(&mut self, message: &BorrowedMessage<'_>) -> Arrived {
        let headers = message.headers();
        let count = headers.map_or(0, |headers| headers.count());
        // Ours are the last two; headers of the same name before them are the sender's.
        let ours = |at: Option<usize>, name: &str| {
            let header = headers?.try_get(at?)?;
            (header.key == name).then(|| text(header.value))
        };
        let tenant = ours(count.checked_sub(1), TENANT);
        let left = count - usize::from(tenant.is_some());
        let id = ours(left.checked_sub(1), ID);
        let left = left - usize::from(id.is_some());
        let (body, key) = (message.payload().unwrap_or_default(), message.key());
        let key = key.map(String::from_utf8_lossy);
        self.make_room(body.len() + key.as_ref().map_or(0, |key| key.len()));
        self.memory.extend_from_slice(body);
        for word in [&key, &tenant].into_iter().flatten() {
            self.memory.extend_from_slice(word.as_bytes());
        }
        for header in headers.into_iter().flat_map(|headers| headers.iter()).take(left) {
            Headers::write(&mut self.memory, header.key, &text(header.value));
        }
        let topic = self.topics.get(message.topic());
        let partition = u32::try_from(message.partition()).unwrap_or_default();
        let offset = u64::try_from(message.offset()).unwrap_or_default();
        let published_at = message.timestamp().to_millis();
        let published_at = published_at.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        let kept = Kept {
            position: Position { partition: topic.code(partition), offset },
            topic,
            published_at: published_at.unwrap_or_else(Timestamp::now),
            memory: self.memory.split().freeze(),
            body: body.len(),
            key: key.map(|key| key.len()),
            tenant: tenant.map(|tenant| tenant.len()),
        };
        let id = id.and_then(|id| id.parse().ok());
        Arrived { partition: message.partition(), offset: message.offset(), id, kept }
    }

    /// Begins a new piece of memory when the last one has no room for a body and its key. It
    /// grows by itself for what headers need beyond that.
    fn make_room(&mut self, needed: usize) {
        const HEADERS: usize = 512;
        if self.memory.capacity() < needed + HEADERS {
            self.memory = BytesMut::with_capacity(PIECE.max(needed + HEADERS));
        }
    }
}
