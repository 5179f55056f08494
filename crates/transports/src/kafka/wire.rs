//! A message as Kafka carries it.
//!
//! Headers go as Kafka headers, in their order and to the letter. Two of ours come behind them: the
//! id, for the window of the subscription, and the tenant.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use chapar_core::Id;
use chapar_core::port::{Delivery, Outgoing, Position, Token};
use jiff::Timestamp;
use rdkafka::Message;
use rdkafka::message::{BorrowedMessage, Header, Headers, OwnedHeaders};

use super::topology::code;

const ID: &str = "chapar-id";
const TENANT: &str = "chapar-tenant";

/// A message that has been read.
pub(super) struct Arrived {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) id: Option<Id>,
    pub(super) kept: Arc<Kept>,
}

/// A message that waits to be delivered, in few pieces of memory.
pub(super) struct Kept {
    pub(super) topic: String,
    pub(super) key: Option<String>,
    /// Names and values of the headers, one behind the other.
    text: String,
    /// Where each name and each value ends.
    ends: Vec<(usize, usize)>,
    tenant: Option<String>,
    body: Bytes,
    position: Position,
    published_at: Timestamp,
}

impl Kept {
    pub(super) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The message as it is handed out, for the first time or again.
    pub(super) fn delivery(&self) -> Delivery {
        let mut from = 0;
        let pair = |&(name, value): &(usize, usize)| {
            let start = std::mem::replace(&mut from, value);
            (self.text[start..name].to_owned(), self.text[name..value].to_owned())
        };
        Delivery {
            token: Token { position: self.position, handle: None },
            topic: self.topic.clone(),
            key: self.key.clone(),
            headers: self.ends.iter().map(pair).collect(),
            body: self.body.clone(),
            attempt: 0,
            published_at: self.published_at,
        }
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

/// A message that has arrived. Keys and headers of others may be no text: they are read as well as
/// they can be, for the consumer to judge.
pub(super) fn decode(message: &BorrowedMessage<'_>) -> Arrived {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = message.headers();
    let count = headers.map_or(0, Headers::count);
    // Ours are the last two; headers of the same name before them are the sender's.
    let ours = |at: Option<usize>, name: &str| {
        let header = headers?.try_get(at?)?;
        (header.key == name).then(|| String::from_utf8_lossy(header.value.unwrap_or_default()))
    };
    let tenant = ours(count.checked_sub(1), TENANT);
    let left = count - usize::from(tenant.is_some());
    let id = ours(left.checked_sub(1), ID);
    let left = left - usize::from(id.is_some());
    let (mut all, mut ends) = (String::with_capacity(128), Vec::with_capacity(left));
    for header in headers.into_iter().flat_map(Headers::iter).take(left) {
        all.push_str(header.key);
        let name = all.len();
        all.push_str(&String::from_utf8_lossy(header.value.unwrap_or_default()));
        ends.push((name, all.len()));
    }
    let partition = u32::try_from(message.partition()).unwrap_or_default();
    let offset = u64::try_from(message.offset()).unwrap_or_default();
    let published_at = message.timestamp().to_millis();
    let published_at = published_at.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let kept = Kept {
        topic: message.topic().to_owned(),
        key: message.key().map(text),
        text: all,
        ends,
        tenant: tenant.map(Cow::into_owned),
        body: Bytes::copy_from_slice(message.payload().unwrap_or_default()),
        position: Position { partition: code(message.topic(), partition), offset },
        published_at: published_at.unwrap_or_else(Timestamp::now),
    };
    let id = id.and_then(|id| id.parse().ok());
    Arrived { partition: message.partition(), offset: message.offset(), id, kept: Arc::new(kept) }
}
