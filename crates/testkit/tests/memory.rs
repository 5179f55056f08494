//! The transport in memory keeps the contract of transports.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use chapar_core::port::Transport;
use chapar_testkit::conformance;
use chapar_testkit::conformance::{Bench, Need};
use chapar_testkit::memory::MemoryTransport;
use chapar_testkit::servers::ServerError;

static BROKERS: LazyLock<Mutex<HashMap<String, MemoryTransport>>> = LazyLock::new(Mutex::default);

struct MemoryBench(String);

impl Bench for MemoryBench {
    const PROCESSES: bool = false;

    fn open(_need: Need) -> Result<Self, ServerError> {
        let mut brokers = BROKERS.lock().unwrap();
        let name = format!("memory-{}", brokers.len());
        brokers.insert(name.clone(), MemoryTransport::new());
        Ok(MemoryBench(name))
    }

    fn address(&self) -> String {
        self.0.clone()
    }

    async fn connect(address: &str, _owner: &str) -> Arc<dyn Transport> {
        Arc::new(BROKERS.lock().unwrap()[address].clone())
    }
}

conformance!(memory, MemoryBench);
