//! Pub/Sub keeps the contract of transports, over Google's emulator.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "pubsub/cloudevents.rs"]
mod cloudevents;
#[path = "support/python.rs"]
mod python;
#[path = "pubsub/seek.rs"]
mod seek;
#[path = "pubsub/specifics.rs"]
mod specifics;

use std::sync::Arc;
use std::time::Duration;

use chapar_core::port::Transport;
use chapar_testkit::conformance;
use chapar_testkit::conformance::{Bench, Need};
use chapar_testkit::proxy::Proxy;
use chapar_testkit::servers::{self, ServerError};
use chapar_transports::pubsub::{PubSub, PubSubOptions};

struct PubSubBench {
    /// Called after the kind of emulator.
    project: &'static str,
    host: String,
    /// The emulator forgets everything when it ends: the network goes instead.
    network: Option<Proxy>,
}

impl Bench for PubSubBench {
    fn open(need: Need) -> Result<Self, ServerError> {
        let server = servers::pubsub()?;
        let project = if server.version().starts_with("pstest") { "pstest" } else { "emulator" };
        let host = server.url().to_owned();
        let network = (need == Need::Own).then(|| Proxy::to(&host).unwrap());
        let host = network.as_ref().map_or(host, |proxy| proxy.address().to_string());
        Ok(PubSubBench { project, host, network })
    }

    fn address(&self) -> String {
        format!("pubsub://{}?emulator={}", self.project, self.host)
    }

    async fn connect(address: &str, owner: &str) -> Arc<dyn Transport> {
        let options = PubSubOptions {
            owner: owner.into(),
            lease: Duration::from_secs(2),
            drain_every: Duration::from_millis(500),
            emulator_seeks: address.contains("//pstest?"),
            ..PubSubOptions::default()
        };
        Arc::new(PubSub::connect(address, options).await.unwrap())
    }

    fn crash(&mut self) -> bool {
        self.network.as_ref().map(Proxy::cut).is_some()
    }

    fn revive(&mut self) {
        self.network.as_ref().unwrap().heal();
    }
}

conformance!(pubsub, PubSubBench);
