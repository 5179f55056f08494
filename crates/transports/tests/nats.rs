//! NATS keeps the contract of transports.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "nats/cloudevents.rs"]
mod cloudevents;
#[path = "support/large.rs"]
mod large;
#[path = "support/python.rs"]
mod python;
#[path = "nats/secure.rs"]
mod secure;
#[path = "nats/specifics.rs"]
mod specifics;
#[path = "nats/topology.rs"]
mod topology;
#[path = "nats/users.rs"]
mod users;

use std::sync::Arc;
use std::time::Duration;

use chapar_core::port::Transport;
use chapar_testkit::conformance;
use chapar_testkit::conformance::{Bench, Need};
use chapar_testkit::servers::{self, Instance, Kind, Launch, ServerError};
use chapar_transports::nats::{Nats, NatsOptions};

struct NatsBench {
    url: String,
    own: Option<Instance>,
}

impl Bench for NatsBench {
    fn open(need: Need) -> Result<Self, ServerError> {
        let launch = match need {
            Need::Shared => {
                return Ok(NatsBench { url: servers::nats()?.url().to_owned(), own: None });
            }
            Need::Large => Launch::of(Kind::Nats).setting("max_payload", "8MB"),
            // What is acknowledged is on the disk: the bench kills the server.
            Need::Own => Launch::of(Kind::Nats).setting("jetstream.sync_interval", "always"),
        };
        let server = launch.start()?;
        Ok(NatsBench { url: server.url().to_owned(), own: Some(server) })
    }

    fn address(&self) -> String {
        self.url.clone()
    }

    async fn connect(address: &str, owner: &str) -> Arc<dyn Transport> {
        let options = NatsOptions {
            owner: owner.into(),
            lease: Duration::from_millis(900),
            ..NatsOptions::default()
        };
        Arc::new(Nats::connect(address, options).await.unwrap())
    }

    fn crash(&mut self) -> bool {
        self.own.as_mut().map(Instance::kill).is_some()
    }

    fn revive(&mut self) {
        self.own.as_mut().unwrap().restart().unwrap();
    }
}

conformance!(nats, NatsBench);
