//! Health, readiness and metrics of a process.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use chapar::ops::Outbox;
use chapar::{Chapar, Health, Metrics, PartHealth};
use chapar_core::profile::Instrument;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::console::ConsoleError;

/// `/healthz`, `/readyz` and `/metrics` of a process, with the metric names of its system's
/// profile.
#[derive(Debug, Clone)]
pub struct Ops {
    chapar: Chapar,
    metrics: Metrics,
    health: Health,
}

impl Ops {
    /// The endpoints of a process on this backbone.
    pub fn new(chapar: Chapar, metrics: Metrics) -> Self {
        Ops { chapar, metrics, health: Health::default() }
    }

    /// Has `/readyz` say which parts of the process do not run: give it
    /// [`Running::health`](chapar::Running::health).
    pub fn health(self, health: Health) -> Self {
        Ops { health, ..self }
    }

    /// The routes, to be served alone or beside others.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/healthz", get(async || "ok"))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .with_state(self.clone())
    }

    /// Binds an address; port 0 chooses a free one. Returns the bound address, and the future to
    /// run.
    pub async fn bind(
        &self,
        address: SocketAddr,
        closing: CancellationToken,
    ) -> Result<(SocketAddr, impl Future<Output = ()> + Send + use<>), ConsoleError> {
        crate::listen::bind(self.router(), address, closing).await
    }
}

async fn ready(State(ops): State<Ops>) -> Response {
    let unready = |why: String| (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    // Errors of the store and of a part may name hosts and users; they are for the log.
    if let Err(error) = ops.chapar.store().check_schema().await {
        tracing::warn!(%error, "not ready");
        return unready("the store is not ready".into());
    }
    let parts = ops.health.parts().into_iter();
    let stopped: Vec<String> = parts
        .filter_map(|(name, health)| (health != PartHealth::Running).then_some(name))
        .collect();
    match stopped.is_empty() {
        true => "ready".into_response(),
        false => unready(format!("not running: {}", stopped.join(", "))),
    }
}

async fn metrics(State(ops): State<Ops>) -> Response {
    let mut shown = Shown { ops: &ops, registry: Registry::default() };
    let counts = &ops.metrics;
    shown.counter(
        Instrument::EventsPublished,
        "Events the transport has taken",
        counts.published(),
    );
    shown.counter(
        Instrument::PublishErrors,
        "Attempts to publish that failed",
        counts.publish_errors(),
    );
    shown.counter(Instrument::EventsConsumed, "Events applied", counts.applied());
    shown.counter(
        Instrument::InboxDuplicates,
        "Deliveries skipped as duplicates",
        counts.duplicates(),
    );
    let dead = counts.consumers().iter().map(|(_, consumer)| consumer.dead_letters()).sum();
    shown.counter(Instrument::DeadLettered, "Events that failed for good", dead);
    shown.blocked(ops.chapar.blocked().counts());
    shown.plain("chapar_outbox_quarantined", "Events put into quarantine", counts.quarantined());
    match Outbox::of(ops.chapar.store()).lag().await {
        Ok(lag) => {
            let waiting = lag.waiting as f64;
            shown.gauge(Instrument::OutboxUnpublished, "Committed and not published", waiting);
            let help = "Age of the oldest event that is not published, in seconds";
            shown.gauge(Instrument::OutboxOldestUnpublished, help, lag.seconds);
        }
        // Omitted rather than wrong: alert on an absent gauge.
        Err(error) => tracing::warn!(%error, "cannot read the outbox lag; its gauges are omitted"),
    }
    shown.answer()
}

struct Shown<'a> {
    ops: &'a Ops,
    registry: Registry,
}

impl Shown<'_> {
    /// The name from the profile, or the default.
    fn name(&self, instrument: Instrument) -> String {
        match self.ops.chapar.profile().metric(instrument) {
            Some(name) => name.to_owned(),
            None => {
                let name = serde_json::to_value(instrument).unwrap_or_default();
                format!("chapar_{}", name.as_str().unwrap_or("unnamed"))
            }
        }
    }

    fn counter(&mut self, instrument: Instrument, help: &str, count: u64) {
        let name = self.name(instrument);
        self.plain(&name, help, count);
    }

    fn plain(&mut self, name: &str, help: &str, count: u64) {
        let counter = Counter::<u64>::default();
        counter.inc_by(count);
        // The text format adds `_total` by itself.
        self.registry.register(name.trim_end_matches("_total"), help, counter);
    }

    /// One series for each rule and service; none if nothing was blocked.
    fn blocked(&mut self, counts: Vec<(&'static str, String, u64)>) {
        let family = Family::<[(&str, String); 2], Counter>::default();
        for (code, service, count) in counts {
            let labels = [("code", code.to_owned()), ("service", service)];
            family.get_or_create(&labels).inc_by(count);
        }
        let name = self.name(Instrument::PublishBlocked);
        let help = "Events that a rule kept from being published";
        self.registry.register(name.trim_end_matches("_total"), help, family);
    }

    fn gauge(&mut self, instrument: Instrument, help: &str, value: f64) {
        let gauge = Gauge::<f64, std::sync::atomic::AtomicU64>::default();
        gauge.set(value);
        self.registry.register(self.name(instrument), help, gauge);
    }

    fn answer(self) -> Response {
        const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => ([(header::CONTENT_TYPE, TEXT)], text).into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    }
}
