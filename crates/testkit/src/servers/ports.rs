//! Ports for servers that must be told theirs before they start.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::TcpListener;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The ports that this process has handed out. A server binds its port only later, so a port that can be bound may
/// already belong to another server.
static TAKEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// A port of the loopback interface that nothing listens on. This process gets each port once.
///
/// It is below the range from which the kernel gives ports to outgoing connections, so that a restarted server finds
/// its own port free again.
pub fn free_port() -> io::Result<u16> {
    const FIRST: u64 = 15_000;
    const SPAN: u64 = 17_000;
    let random = RandomState::new();
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    for attempt in 0..1_000_u32 {
        let port = FIRST + random.hash_one(attempt) % SPAN;
        let port = u16::try_from(port).map_err(io::Error::other)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && taken.insert(port) {
            return Ok(port);
        }
    }
    Err(io::Error::other("none of 1000 tries found a free port"))
}

pub(super) fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    (0..count).map(|_| free_port()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports = free_ports(2_000).unwrap();
        let distinct: HashSet<_> = ports.iter().collect();
        assert_eq!(distinct.len(), ports.len());
    }
}
