//! What the tests of the dialects share.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part of it")]

pub mod mutation;
pub mod strategy;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use chapar_core::dialect::{
    Binding, CloudEvents, Dialect, FlatJson, InlineProtobuf, Message, MetadataJson,
};
use chapar_core::{Envelope, Profile};
use prost_reflect::DescriptorPool;

pub const BINDINGS: [Binding; 4] = [Binding::Http, Binding::Kafka, Binding::Nats, Binding::PubSub];

pub const ACCOUNT_CREATED: &str = "current-account.account-created";

/// Every dialect under the name of its fixtures and corpus.
pub fn dialects() -> Vec<(&'static str, Box<dyn Dialect>)> {
    vec![
        ("metadata-json", Box::new(MetadataJson)),
        ("flat-json", Box::new(FlatJson)),
        ("cloudevents-structured", Box::new(CloudEvents::Structured)),
        ("cloudevents-http", Box::new(CloudEvents::Binary(Binding::Http))),
        ("cloudevents-kafka", Box::new(CloudEvents::Binary(Binding::Kafka))),
        ("cloudevents-nats", Box::new(CloudEvents::Binary(Binding::Nats))),
        ("cloudevents-pubsub", Box::new(CloudEvents::Binary(Binding::PubSub))),
        ("meridian", Box::new(meridian())),
    ]
}

pub fn dialect(name: &str) -> Box<dyn Dialect> {
    let found = dialects().into_iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no dialect {name}")).1
}

pub fn meridian() -> InlineProtobuf {
    InlineProtobuf::new(pool(), &profile("meridian")).unwrap()
}

pub fn profile(name: &str) -> Profile {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems");
    let text = std::fs::read_to_string(file.join(name).join("profile.toml")).unwrap();
    Profile::from_toml(&text).unwrap()
}

pub fn pool() -> DescriptorPool {
    static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
        let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/meridian/proto");
        let files = ["meridian/events/v1/current_account_events.proto"];
        let files = protox::compile(files, [protos]).unwrap();
        DescriptorPool::from_file_descriptor_set(files).unwrap()
    });
    POOL.clone()
}

pub fn path(under: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(under)
}

/// Reads a fixture: lines of headers (`@topic` for the topic), an empty line, the body. A file
/// that ends in `.json` or `.bin` is a body only.
pub fn fixture(name: &str) -> Message {
    let file = path("fixtures").join(name);
    let bytes = std::fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    if name.ends_with(".msg") { parse_message(&bytes) } else { Message::from_body(bytes) }
}

pub fn parse_message(bytes: &[u8]) -> Message {
    let mut message = Message::default();
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|b| *b == b'\n') {
        let line = String::from_utf8_lossy(&rest[..at]).into_owned();
        rest = &rest[at + 1..];
        match line.split_once(": ") {
            Some(("@topic", topic)) => message.topic = Some(topic.into()),
            Some((name, value)) => message.headers.push(name, value),
            None => break,
        }
    }
    message.body = rest.to_vec().into();
    message
}

pub fn print_message(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(topic) = &message.topic {
        bytes.extend(format!("@topic: {topic}\n").bytes());
    }
    for (name, value) in &message.headers {
        bytes.extend(format!("{name}: {value}\n").bytes());
    }
    bytes.push(b'\n');
    bytes.extend_from_slice(&message.body);
    bytes
}

#[track_caller]
pub fn round_trip(dialect: &dyn Dialect, envelope: &Envelope) -> Message {
    let message = dialect.encode(envelope).unwrap();
    assert_eq!(dialect.encode(envelope).unwrap(), message, "encoding is deterministic");
    assert_eq!(dialect.decode(&message).unwrap(), *envelope);
    message
}
