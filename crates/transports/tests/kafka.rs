//! Kafka keeps the contract of transports.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "kafka/access.rs"]
mod access;
#[path = "kafka/brokers.rs"]
mod brokers;
#[path = "kafka/cloudevents.rs"]
mod cloudevents;
#[path = "../../catalog/tests/support/mod.rs"]
mod house;
#[path = "support/large.rs"]
mod large;
#[path = "kafka/network.rs"]
mod network;
#[path = "kafka/old.rs"]
mod old;
#[path = "support/python.rs"]
mod python;
#[path = "kafka/security.rs"]
mod security;
#[path = "kafka/specifics.rs"]
mod specifics;

use std::sync::Arc;
use std::time::Duration;

use chapar_core::port::Transport;
use chapar_testkit::conformance;
use chapar_testkit::conformance::{Bench, Need};
use chapar_testkit::servers::{self, Instance, Kind, Launch, ServerError};
use chapar_transports::kafka::{Kafka, KafkaOptions};

struct KafkaBench {
    url: String,
    own: Option<Instance>,
}

impl Bench for KafkaBench {
    fn open(need: Need) -> Result<Self, ServerError> {
        let launch = match need {
            Need::Shared => {
                let url = format!("kafka://{}", servers::kafka()?.url());
                return Ok(KafkaBench { url, own: None });
            }
            Need::Large => Launch::of(Kind::Kafka).setting("message.max.bytes", "8388608"),
            // What is acknowledged is in the page cache, which outlives a killed broker.
            Need::Own => Launch::of(Kind::Kafka),
        };
        let server = launch.start()?;
        Ok(KafkaBench { url: format!("kafka://{}", server.url()), own: Some(server) })
    }

    fn address(&self) -> String {
        self.url.clone()
    }

    async fn connect(address: &str, owner: &str) -> Arc<dyn Transport> {
        let options = KafkaOptions {
            owner: owner.into(),
            session: Duration::from_millis(1500),
            ..KafkaOptions::default()
        };
        Arc::new(Kafka::connect(address, options).await.unwrap())
    }

    fn crash(&mut self) -> bool {
        self.own.as_mut().map(Instance::kill).is_some()
    }

    fn revive(&mut self) {
        self.own.as_mut().unwrap().restart().unwrap();
    }
}

conformance!(kafka, KafkaBench);
