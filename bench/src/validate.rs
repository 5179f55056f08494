//! The cost of validating an event, the rules of its envelope and the schema of its payload, relative to a bare call of
//! the validator on the same payload.

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chapar::{Draft, Envelope, Payload, Producer, Profile, Registry};
use chapar_core::bundle::Bundle;
use chapar_core::dialect::{Dialect, MetadataJson};
use chapar_core::port::{SystemClock, SystemIds};
use chapar_core::{Aggregate, rules};
use serde::Serialize;
use serde_json::Value;

use crate::measure::{Contestant, ROUNDS, Rounds, Spread, interleaved, table};

/// The event that is checked: one of the hotel's with many fields.
const SUBJECT: &str = "melmastoon.reservation.booking.held.v1";

/// Its size on the wire, envelope and payload.
const BYTES: usize = 1024;

/// The target: at most so many times the bare call.
const TARGET: f64 = 1.3;

const BARE: &str = "bare jsonschema";
const READ: &str = "as a consumer";
const WRITE: &str = "as a producer";

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The mean of a check in microseconds, of the slower side.
    pub mean_us: f64,
    /// How many times the bare call that is, of the slower side.
    pub over_bare: f64,
    /// At most this is asked for.
    pub target: f64,
    /// The event on the wire.
    pub event_bytes: usize,
    /// Its payload.
    pub payload_bytes: usize,
    /// How many rounds were counted.
    pub rounds: usize,
    /// Every contestant.
    pub contestants: Vec<Line>,
}

/// One contestant of a [`Report`].
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// What it does.
    pub name: &'static str,
    /// The mean of a call in microseconds, over the rounds.
    pub mean_us: Spread,
    /// How many times the bare call, over the rounds.
    pub over_bare: Spread,
}

/// Measures it, with turns of this length.
///
/// The bare call gets what a consumer gets, the text of the payload, and uses the released schema. A producer's check
/// uses the closed copy, which checks more.
pub fn run(contracts: &str, turn: Duration) -> Result<Report> {
    let registry = Registry::from_bundle(contracts)?;
    let profile = chapar_testkit::profile("melmastoon");
    let bundle: Bundle = serde_json::from_str(contracts)?;
    let contract = bundle.contracts.into_iter().find(|contract| contract.subject == SUBJECT);
    let contract = contract.with_context(|| format!("the bundle has no {SUBJECT}"))?;
    let schema: Value = serde_json::from_str(&contract.schema)?;
    let bare = jsonschema::options().should_validate_formats(true).build(&schema)?;
    let envelope = event(&profile, &contract.uri, &schema)?;
    let event_bytes = MetadataJson.encode(&envelope)?.body.len();
    let topic = profile.subject(SUBJECT)?;
    let text = std::str::from_utf8(envelope.payload.as_bytes())?;

    let mut contestants = [
        Contestant::repeated(BARE, turn, || {
            let payload: Value = serde_json::from_str(black_box(text))?;
            ensure!(bare.is_valid(&payload), "the event is not valid");
            Ok(())
        }),
        Contestant::repeated(READ, turn, || {
            let envelope = black_box(&envelope);
            rules::check_topic(envelope, &topic)?;
            rules::check(envelope, &profile, true)?;
            Ok(registry.check_read(SUBJECT, envelope)?)
        }),
        Contestant::repeated(WRITE, turn, || {
            let envelope = black_box(&envelope);
            rules::check(envelope, &profile, false)?;
            Ok(registry.check_written(SUBJECT, &envelope.payload)?)
        }),
    ];
    let rounds = interleaved(&mut contestants, ROUNDS)?;
    drop(contestants);
    Report::of(&rounds, event_bytes, text.len())
}

impl Report {
    fn of(rounds: &Rounds, event_bytes: usize, payload_bytes: usize) -> Result<Report> {
        let line = |name| {
            let (mean_us, over_bare) = (rounds.of(name)?, rounds.over(name, BARE)?);
            Some(Line { name, mean_us, over_bare })
        };
        let contestants: Option<Vec<Line>> = [BARE, READ, WRITE].into_iter().map(line).collect();
        let contestants = contestants.context("every contestant ran")?;
        let slower = contestants[1..]
            .iter()
            .max_by(|a, b| a.over_bare.median.total_cmp(&b.over_bare.median))
            .context("both sides ran")?;
        Ok(Report {
            mean_us: slower.mean_us.median,
            over_bare: slower.over_bare.median,
            target: TARGET,
            event_bytes,
            payload_bytes,
            rounds: rounds.len(),
            contestants,
        })
    }

    /// For people.
    pub fn table(&self) -> String {
        let range = |spread: &Spread| format!("{:.2}–{:.2}", spread.min, spread.max);
        let row = |line: &Line| {
            vec![
                line.name.to_owned(),
                format!("{:.2}", line.mean_us.median),
                range(&line.mean_us),
                format!("{:.2}", line.over_bare.median),
                range(&line.over_bare),
            ]
        };
        let rows: Vec<_> = self.contestants.iter().map(row).collect();
        let head = ["one check", "µs", "min–max", "× bare", "min–max"];
        format!(
            "{}\nan event of {} bytes, {} of them payload; median of {} rounds in turns; \
             at most {} × bare is the target\n",
            table(&head, &rows),
            self.event_bytes,
            self.payload_bytes,
            self.rounds,
            self.target
        )
    }
}

/// The example of the schema as a sealed event, padded to the requested length on the wire.
fn event(profile: &Profile, uri: &str, schema: &Value) -> Result<Envelope> {
    let example = schema.pointer("/examples/0").context("the schema has an example")?;
    let seal = |name: &str| -> Result<Envelope> {
        let mut payload = example.clone();
        payload["guest"]["name"] = name.into();
        let aggregate =
            Aggregate { kind: "booking".into(), id: "res_000042".into(), version: Some(1) };
        let draft = Draft::new(SUBJECT, aggregate, Payload::json(&payload)?)
            .idempotency_key("res_000042:held")
            // A fixed time: fewer digits would make another length.
            .occurred_at("2027-01-02T14:05:00.123456Z".parse()?)
            .schema(uri);
        let producer = Producer { service: "reservation-service".into(), ..Producer::default() };
        Ok(draft.seal(&"acme".parse()?, profile, &producer, &SystemClock, &SystemIds)?)
    };
    let short = MetadataJson.encode(&seal("")?)?.body.len();
    seal(&"n".repeat(BYTES.saturating_sub(short).max(1)))
}
