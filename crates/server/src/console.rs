use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use chapar::{Chapar, Metrics};
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::live::Live;
use crate::{assets, events, guard, letters, page, problem};

/// How long running requests may take once the console is stopped.
const GRACE: Duration = Duration::from_secs(3);

/// The console of one process. Cheap to clone.
///
/// There is no sign-in yet: every client that reaches the port sees the figures of all tenants and
/// may retry dead letters. It is therefore meant for loopback only. Web pages of other origins
/// cannot use it through the visitor's browser: requests with a foreign `Host`, and changes
/// requested by another origin, are refused.
#[derive(Debug, Clone)]
pub struct Console(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    chapar: Chapar,
    facts: Facts,
    live: Live,
    closing: CancellationToken,
}

/// The facts shown in the header.
#[derive(Debug, Clone)]
pub struct Facts {
    /// What runs here, in a few words.
    pub running: String,
    /// The transport, without secrets.
    pub transport: String,
    /// The start time.
    pub started_at: Timestamp,
}

/// A console that is bound to its port and does not serve yet.
#[derive(Debug)]
pub struct Bound {
    console: Console,
    listener: TcpListener,
    address: SocketAddr,
}

/// Errors of the console.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsoleError {
    /// Another program uses the port.
    #[error("{0} is in use by another program; choose another address with --listen")]
    InUse(SocketAddr),
    /// The address cannot be bound for another reason.
    #[error("cannot listen on {address}; choose another address with --listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// Serving failed.
    #[error("the console stopped answering")]
    Serve(#[source] io::Error),
}

impl ConsoleError {
    pub(crate) fn listen(address: SocketAddr, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => ConsoleError::InUse(address),
            _ => ConsoleError::Listen { address, source },
        }
    }
}

impl Console {
    /// A console over a backbone and the metrics of its process.
    pub fn new(chapar: Chapar, metrics: Metrics, facts: Facts) -> Self {
        let live = Live::new(chapar.store().clone(), metrics, facts.started_at);
        Console(Arc::new(Inner { chapar, facts, live, closing: CancellationToken::new() }))
    }

    /// Binds an address; port 0 chooses a free one.
    pub async fn bind(&self, address: SocketAddr) -> Result<Bound, ConsoleError> {
        let refused = |source: io::Error| ConsoleError::listen(address, source);
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        if !address.ip().is_loopback() {
            warn!(%address, "the console has no sign-in and is reachable from other machines");
        }
        Ok(Bound { console: self.clone(), listener, address })
    }

    /// The routes, for a server on loopback.
    ///
    /// Rates are zero unless [`Bound::serve`] runs: it also samples the counters.
    pub fn router(&self) -> Router {
        self.router_at(IpAddr::from([127, 0, 0, 1]))
    }

    fn router_at(&self, address: IpAddr) -> Router {
        Router::new()
            .route("/", get(page::home))
            .route("/sagas/{saga}/{key}", get(page::saga))
            .route("/dead-letters/{id}/retry", post(letters::retry))
            .route("/events", get(events::events))
            .route("/snapshot", get(events::snapshot))
            .route("/assets/{name}", get(assets::asset))
            .fallback(problem::not_found)
            .method_not_allowed_fallback(problem::wrong_method)
            .layer(from_fn_with_state(address, guard::only_this_machine))
            // Outside the guard: a probe may use any name for this machine.
            .route("/healthz", get(async || "ok"))
            .layer(from_fn(guard::harden))
            .with_state(self.clone())
    }

    pub(crate) fn chapar(&self) -> &Chapar {
        &self.0.chapar
    }

    pub(crate) fn facts(&self) -> &Facts {
        &self.0.facts
    }

    pub(crate) fn live(&self) -> &Live {
        &self.0.live
    }

    /// Cancelled when the console closes, so that event streams end.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }
}

impl Facts {
    /// The facts of a process that starts now.
    pub fn new(running: impl Into<String>, transport: impl Into<String>) -> Self {
        let (running, transport) = (running.into(), transport.into());
        Facts { running, transport, started_at: Timestamp::now() }
    }
}

impl Bound {
    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to open in a browser.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Serves until `shutdown`, then finishes running requests, at most for 3 s.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), ConsoleError> {
        let Bound { console, listener, address } = self;
        let closing = console.closing().clone();
        let close = {
            let closing = closing.clone();
            async move {
                shutdown.cancelled_owned().await;
                closing.cancel();
            }
        };
        let server =
            axum::serve(listener, console.router_at(address.ip())).with_graceful_shutdown(close);
        let overdue = async move {
            closing.cancelled_owned().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            served = server => served.map_err(ConsoleError::Serve),
            () = overdue => Ok(()),
            () = console.live().run() => Ok(()),
        }
    }
}
