//! A message as Kafka carries it.
//!
//! Headers go as Kafka headers, in their order and to the letter. Two of ours come behind them: the
//! id, for the window of the subscription, and the tenant.

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
    pub(super) tenant: Option<String>,
    pub(super) delivery: Delivery,
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
    let mut headers: Vec<(String, String)> = Vec::new();
    if let Some(found) = message.headers() {
        let pair = |header: Header<'_, &[u8]>| {
            (header.key.to_owned(), text(header.value.unwrap_or_default()))
        };
        headers.extend(found.iter().map(pair));
    }
    // Ours are the last two; headers of the same name before them are the sender's.
    let mut ours = |name: &str| match headers.last() {
        Some((last, _)) if last == name => headers.pop().map(|(_, value)| value),
        _ => None,
    };
    let tenant = ours(TENANT);
    let id = ours(ID).and_then(|id| id.parse().ok());
    let partition = u32::try_from(message.partition()).unwrap_or_default();
    let offset = u64::try_from(message.offset()).unwrap_or_default();
    let position = Position { partition: code(message.topic(), partition), offset };
    let published_at = message.timestamp().to_millis();
    let published_at = published_at.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let delivery = Delivery {
        token: Token { position, handle: None },
        topic: message.topic().to_owned(),
        key: message.key().map(text),
        headers,
        body: Bytes::copy_from_slice(message.payload().unwrap_or_default()),
        attempt: 0,
        published_at: published_at.unwrap_or_else(Timestamp::now),
    };
    Arrived { partition: message.partition(), offset: message.offset(), id, tenant, delivery }
}
