//! A TCP proxy that breaks the network between a client and a server, on command and while it runs.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::{TcpListener, TcpStream};
//!
//! use chapar_testkit::proxy::Proxy;
//!
//! # fn main() -> std::io::Result<()> {
//! let server = TcpListener::bind("127.0.0.1:0")?;
//! let proxy = Proxy::to(&server.local_addr()?.to_string())?;
//! let mut client = TcpStream::connect(proxy.address())?;
//! client.write_all(b"hello")?;
//! proxy.cut();
//! assert_eq!(client.read(&mut [0; 8]).unwrap_or(0), 0, "the connection is gone");
//! proxy.heal();
//! # Ok(()) }
//! ```
//!
//! Threads and blocking sockets: it stands between processes and has no runtime to share with either.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A proxy between clients and one server. Dropping it closes all connections.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    address: SocketAddr,
}

/// What the network does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// It works.
    Whole,
    /// Each piece of data arrives this much later.
    Slow(Duration),
    /// Connections are closed, and new ones at once.
    Cut,
    /// Connections are accepted and stay open, and nothing arrives on either side.
    HalfOpen,
    /// What clients send arrives; what the server answers does not.
    AnswersLost,
}

#[derive(Debug)]
struct Shared {
    server: Mutex<String>,
    state: Mutex<State>,
    changed: Condvar,
    lost: AtomicU64,
}

#[derive(Debug)]
struct State {
    network: Network,
    closed: bool,
    next: u64,
    open: HashMap<u64, Link>,
}

#[derive(Debug)]
struct Link {
    client: TcpStream,
    server: Option<TcpStream>,
    /// Bytes are missing from its stream: it can never be whole again.
    torn: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Requests,
    Answers,
}

impl Proxy {
    /// Listens on a free port of the loopback and passes everything on to `server`, `host:port`.
    pub fn to(server: &str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = State { network: Network::Whole, closed: false, next: 0, open: HashMap::new() };
        let shared = Arc::new(Shared {
            server: Mutex::new(server.to_owned()),
            state: Mutex::new(state),
            changed: Condvar::new(),
            lost: AtomicU64::new(0),
        });
        let accepting = shared.clone();
        thread::Builder::new().name("proxy".into()).spawn(move || {
            for client in listener.incoming().flatten() {
                if !accepting.admit(client) {
                    return;
                }
            }
        })?;
        Ok(Proxy { shared, address })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Passes new connections on to another server, as an address that follows a failover does.
    pub fn redirect(&self, server: &str) {
        *self.shared.server.lock().unwrap_or_else(PoisonError::into_inner) = server.to_owned();
    }

    /// Closes every connection, and new ones until it is healed; returns how many were open.
    pub fn cut(&self) -> usize {
        self.turn(Network::Cut)
    }

    /// Makes every piece of data arrive later; returns how many connections this slows down.
    pub fn delay(&self, by: Duration) -> usize {
        self.turn(Network::Slow(by))
    }

    /// Keeps connections open and passes nothing on; returns how many hang. What was held back
    /// arrives when the network is healed.
    pub fn half_open(&self) -> usize {
        self.turn(Network::HalfOpen)
    }

    /// Throws away what the server answers; returns how many connections hear nothing. Those
    /// that missed something are closed when the network is healed.
    pub fn lose_answers(&self) -> usize {
        self.turn(Network::AnswersLost)
    }

    /// Mends the network.
    pub fn heal(&self) {
        self.turn(Network::Whole);
    }

    /// What the network does now.
    pub fn network(&self) -> Network {
        self.shared.state().network
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.state().open.len()
    }

    /// How many bytes of answers were thrown away so far.
    pub fn lost_bytes(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    fn turn(&self, network: Network) -> usize {
        let mut state = self.shared.state();
        let was_losing = state.network == Network::AnswersLost;
        state.network = network;
        let open = state.open.len();
        for link in state.open.values() {
            if network == Network::Cut
                || (was_losing && network != Network::AnswersLost && link.torn)
            {
                link.close();
            }
        }
        self.shared.changed.notify_all();
        open
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.closed = true;
        state.open.values().for_each(Link::close);
        drop(state);
        self.shared.changed.notify_all();
        // Wakes the thread that waits for a client.
        let _ = TcpStream::connect(self.address);
    }
}

impl Link {
    fn close(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        if let Some(server) = &self.server {
            let _ = server.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    /// Takes a client on; false once the proxy is gone.
    fn admit(self: &Arc<Self>, client: TcpStream) -> bool {
        let mut state = self.state();
        if state.closed {
            return false;
        }
        if state.network == Network::Cut {
            return true;
        }
        let Ok(ours) = client.try_clone() else { return true };
        let id = state.next;
        state.next += 1;
        state.open.insert(id, Link { client: ours, server: None, torn: false });
        drop(state);
        let shared = self.clone();
        // Without a thread the client sees a closed connection, as it would of a busy server.
        let _ = thread::Builder::new().spawn(move || {
            let _ = shared.serve(id, client);
            if let Some(link) = shared.state().open.remove(&id) {
                link.close();
            }
        });
        true
    }

    fn serve(self: &Arc<Self>, id: u64, client: TcpStream) -> io::Result<()> {
        if !self.passes(id, Way::Requests) {
            return Ok(());
        }
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let server = TcpStream::connect(&server)?;
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        {
            let mut state = self.state();
            let link = state.open.get_mut(&id).ok_or(io::ErrorKind::NotConnected)?;
            link.server = Some(server.try_clone()?);
            if state.network == Network::Cut || state.closed {
                return Ok(());
            }
        }
        let (back_from, back_to) = (server.try_clone()?, client.try_clone()?);
        let shared = self.clone();
        let back = thread::Builder::new()
            .spawn(move || shared.copy(id, Way::Answers, back_from, back_to))?;
        self.copy(id, Way::Requests, client, server);
        let _ = back.join();
        Ok(())
    }

    fn copy(&self, id: u64, way: Way, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if !self.passes(id, way) {
                if self.keeps_losing(id, way, count) {
                    continue;
                }
                break;
            }
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    /// Waits until data may pass; false if it never will.
    fn passes(&self, id: u64, way: Way) -> bool {
        let mut state = self.state();
        loop {
            if state.closed || !state.open.contains_key(&id) {
                return false;
            }
            match state.network {
                Network::Whole => return true,
                Network::Cut => return false,
                Network::AnswersLost => return way == Way::Requests,
                Network::Slow(by) => {
                    let waiting =
                        |state: &mut State| state.network == Network::Slow(by) && !state.closed;
                    let waited = self.changed.wait_timeout_while(state, by, waiting);
                    let (after, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out() {
                        return true;
                    }
                    state = after;
                }
                Network::HalfOpen => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Counts what is thrown away; false if the connection is over instead.
    fn keeps_losing(&self, id: u64, way: Way, count: usize) -> bool {
        let mut state = self.state();
        let losing = state.network == Network::AnswersLost && way == Way::Answers;
        match state.open.get_mut(&id) {
            Some(link) if losing => {
                link.torn = true;
                self.lost.fetch_add(count as u64, Ordering::Relaxed);
                true
            }
            _ => false,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
