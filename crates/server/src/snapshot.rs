use chapar::Metrics;
use chapar::ops::{DeadLetter, SagaCard, SagaSummary};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use crate::live::Reading;
use crate::pulse::Pulse;
use crate::show::{Ago, Count, Rate, Span, Wait, label};

/// The state at a moment: what the page shows and the stream sends.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Snapshot {
    pub(crate) at: Timestamp,
    pub(crate) uptime_seconds: Span,
    /// The last read of the store failed; its data is older than the rest.
    pub(crate) store_failed: bool,
    pub(crate) figures: Figures,
    pub(crate) chart: Chart,
    pub(crate) consumers: Vec<ConsumerLine>,
    pub(crate) saga_states: Vec<StateLine>,
    pub(crate) dead_letters: Vec<LetterLine>,
    pub(crate) recent_sagas: Vec<SagaLine>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Figures {
    pub(crate) published_per_second: Rate,
    pub(crate) applied_per_second: Rate,
    pub(crate) published: Count,
    pub(crate) applied: Count,
    pub(crate) outbox_lag_seconds: Wait,
    pub(crate) outbox_waiting: Count,
    pub(crate) outbox_quarantined: Count,
    pub(crate) dead_letters: Count,
    pub(crate) parked: Count,
    pub(crate) sagas_in_flight: Count,
    pub(crate) timers: Count,
    pub(crate) effects_pending: Count,
    pub(crate) effects_stuck: Count,
}

/// Events per second, each second of the last two minutes, oldest first.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Chart {
    pub(crate) published: Vec<f64>,
    pub(crate) applied: Vec<f64>,
}

/// The counters of a consumer since this process started.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ConsumerLine {
    pub(crate) key: String,
    pub(crate) applied: Count,
    pub(crate) per_second: Rate,
    pub(crate) duplicates: Count,
    pub(crate) retries: Count,
    pub(crate) dead_letters: Count,
    pub(crate) parked: Count,
}

/// The sagas of a kind that are in a state.
#[derive(Debug, Default, Serialize)]
pub(crate) struct StateLine {
    pub(crate) key: String,
    pub(crate) saga: String,
    pub(crate) label: String,
    pub(crate) standing: Standing,
    pub(crate) count: Count,
    /// The length of its bar, as a part of the longest: `42%`.
    pub(crate) share: String,
}

/// A dead letter.
#[derive(Debug, Default, Serialize)]
pub(crate) struct LetterLine {
    pub(crate) key: String,
    pub(crate) at: Ago,
    pub(crate) consumer: String,
    pub(crate) topic: String,
    pub(crate) tenant: String,
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) attempts: Count,
    pub(crate) followers: Count,
    /// A replay is requested.
    pub(crate) retrying: bool,
    pub(crate) action: &'static str,
    /// The action with its object, for screen readers.
    pub(crate) action_label: String,
    pub(crate) href: String,
}

/// A saga.
#[derive(Debug, Default, Serialize)]
pub(crate) struct SagaLine {
    pub(crate) key: String,
    pub(crate) saga: String,
    pub(crate) saga_key: String,
    pub(crate) tenant: String,
    pub(crate) label: String,
    pub(crate) standing: Standing,
    pub(crate) started: Ago,
    pub(crate) took: Wait,
    pub(crate) href: String,
}

/// The standing of a saga, derived from its outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Standing {
    #[default]
    InFlight,
    Stuck,
    Partial,
    Completed,
    Compensated,
    Ended,
}

impl Snapshot {
    pub(crate) fn new(
        reading: &Reading,
        pulse: &Pulse,
        metrics: &Metrics,
        started_at: Timestamp,
    ) -> Self {
        let now = Timestamp::now();
        let seconds_since = |at: Timestamp| now.duration_since(at).as_secs_f64().max(0.0);
        let survey = &reading.overview.counts;
        let in_flight = survey.sagas.iter().filter(|s| s.outcome.is_none()).map(|s| s.count).sum();
        Snapshot {
            at: now,
            uptime_seconds: Span(seconds_since(started_at) as u64),
            store_failed: reading.failed,
            figures: Figures {
                published_per_second: Rate(pulse.publishing()),
                applied_per_second: Rate(pulse.applying()),
                published: Count(metrics.published()),
                applied: Count(metrics.applied()),
                outbox_lag_seconds: Wait(survey.outbox_oldest.map_or(0.0, seconds_since)),
                outbox_waiting: Count::of(survey.outbox_waiting),
                outbox_quarantined: Count::of(survey.outbox_quarantined),
                dead_letters: Count::of(survey.dead_letters),
                parked: Count::of(survey.parked),
                sagas_in_flight: Count::of(in_flight),
                timers: Count::of(survey.timers),
                effects_pending: Count::of(survey.effects_pending),
                effects_stuck: Count::of(survey.effects_stuck),
            },
            chart: Chart { published: pulse.published(), applied: pulse.applied() },
            consumers: consumers(metrics, pulse),
            saga_states: states(&survey.sagas),
            dead_letters: reading
                .overview
                .letters
                .iter()
                .map(|l| LetterLine::new(l, now))
                .collect(),
            recent_sagas: reading.overview.sagas.iter().map(|s| SagaLine::new(s, now)).collect(),
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("it has only text keys and finite numbers")
    }
}

impl Standing {
    pub(crate) fn of(outcome: Option<&str>) -> Self {
        match outcome {
            None => Standing::InFlight,
            Some("completed") => Standing::Completed,
            Some("compensated") => Standing::Compensated,
            Some("partial") => Standing::Partial,
            Some("stuck") => Standing::Stuck,
            Some(_) => Standing::Ended,
        }
    }

    /// The label of a state; a stuck saga is marked as such.
    fn label(self, state: &str) -> String {
        match self {
            Standing::Stuck => format!("{} (stuck)", label(state)),
            _ => label(state),
        }
    }

    /// The name in JSON and in the style sheet.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Standing::InFlight => "in_flight",
            Standing::Stuck => "stuck",
            Standing::Partial => "partial",
            Standing::Completed => "completed",
            Standing::Compensated => "compensated",
            Standing::Ended => "ended",
        }
    }
}

impl LetterLine {
    fn new(letter: &DeadLetter, now: Timestamp) -> Self {
        let retrying = letter.status == "replay";
        let action = if retrying { "Retrying…" } else { "Retry" };
        LetterLine {
            key: letter.id.clone(),
            at: Ago { at: letter.last_failed_at, now },
            consumer: letter.consumer.clone(),
            topic: letter.arrival.topic.clone(),
            tenant: letter.arrival.tenant.clone(),
            kind: label(&letter.kind),
            reason: letter.error.clone(),
            attempts: Count::of(letter.attempts),
            followers: Count::of(letter.followers),
            retrying,
            action,
            action_label: format!("{action} {} for {}", letter.arrival.topic, letter.consumer),
            href: format!("/dead-letters/{}/retry", in_path(&letter.id)),
        }
    }
}

impl SagaLine {
    pub(crate) fn new(card: &SagaCard, now: Timestamp) -> Self {
        let standing = Standing::of(card.outcome.as_deref());
        let until = if standing == Standing::InFlight { now } else { card.updated_at };
        let took = until.duration_since(card.started_at).as_secs_f64();
        SagaLine {
            key: format!("{}/{}", card.saga, card.key),
            saga: label(&card.saga),
            saga_key: card.key.clone(),
            tenant: card.tenant.clone(),
            label: standing.label(&card.state),
            standing,
            started: Ago { at: card.started_at, now },
            took: Wait(took.max(0.0)),
            href: format!("/sagas/{}/{}", in_path(&card.saga), in_path(&card.key)),
        }
    }
}

fn consumers(metrics: &Metrics, pulse: &Pulse) -> Vec<ConsumerLine> {
    let line = |(key, consumer): (String, std::sync::Arc<chapar::ConsumerMetrics>)| ConsumerLine {
        per_second: Rate(pulse.applying_by(&key)),
        key,
        applied: Count(consumer.applied()),
        duplicates: Count(consumer.duplicates()),
        retries: Count(consumer.retries()),
        dead_letters: Count(consumer.dead_letters()),
        parked: Count(consumer.parked()),
    };
    metrics.consumers().into_iter().map(line).collect()
}

/// Open ones first, then by name, so that a row keeps its place.
fn states(sagas: &[SagaSummary]) -> Vec<StateLine> {
    let most = sagas.iter().map(|summary| summary.count).max().unwrap_or(0).max(1);
    let line = |summary: &SagaSummary| {
        let standing = Standing::of(summary.outcome.as_deref());
        StateLine {
            key: format!("{}/{}/{}", summary.saga, summary.state, standing.as_str()),
            saga: label(&summary.saga),
            label: standing.label(&summary.state),
            standing,
            count: Count::of(summary.count),
            share: format!("{:.1}%", summary.count as f64 / most as f64 * 100.0),
        }
    };
    let mut lines: Vec<StateLine> = sagas.iter().map(line).collect();
    lines.sort_by(|a, b| (&a.saga, a.standing, &a.key).cmp(&(&b.saga, b.standing, &b.key)));
    lines
}

fn in_path(text: &str) -> impl std::fmt::Display {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}
