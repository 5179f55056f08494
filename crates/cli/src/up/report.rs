//! The report of a run, counted from the tables.

use std::collections::BTreeMap;

use anyhow::Result;
use chapar::ops::saga_states;
use chapar::{Metrics, Store};
use melmastoon::{Audit, Tally};
use serde::Serialize;

use super::road::Road;
use crate::output::{Format, bold, red};

/// The report of a run. Counts are of the whole store, over all runs on it, unless a field says
/// otherwise.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    events_published: i64,
    events_applied: i64,
    /// In this run.
    duplicates_skipped: u64,
    dead_letters: i64,
    parked: i64,
    /// Number of bookings by state.
    sagas: BTreeMap<String, i64>,
    lost: i64,
    applied_twice: i64,
    in_flight: i64,
    /// Created in this run.
    bookings: u64,
    /// Of this run.
    seconds: f64,
    /// Of this run.
    bookings_per_second: f64,
    /// Of this run.
    events_per_second: f64,
    /// The longest in this run.
    outbox_lag_seconds: f64,
    peak_rss_mib: Option<f64>,
    audit: Audit,
}

impl Report {
    pub(crate) async fn of(
        store: &Store,
        road: &Road,
        metrics: &Metrics,
        tally: &Tally,
        seconds: f64,
        outbox_lag_seconds: f64,
    ) -> Result<Self> {
        let census = road.census(store).await?;
        let sagas = saga_states(store).await?;
        let audit = melmastoon::audit(store).await?;
        let mut states: BTreeMap<String, i64> = BTreeMap::new();
        for saga in sagas {
            *states.entry(saga.state).or_default() += saga.count;
        }
        Ok(Report {
            events_published: census.events_published,
            events_applied: census.events_applied,
            duplicates_skipped: metrics.duplicates(),
            dead_letters: census.dead_letters,
            parked: census.parked,
            sagas: states,
            lost: census.lost,
            applied_twice: audit.applied_twice,
            in_flight: census.in_flight,
            bookings: tally.held(),
            seconds,
            bookings_per_second: tally.held() as f64 / seconds,
            events_per_second: metrics.published() as f64 / seconds,
            outbox_lag_seconds,
            peak_rss_mib: peak_rss_mib(),
            audit,
        })
    }

    /// Whether every guarantee held.
    pub(crate) fn is_sound(&self) -> bool {
        self.lost == 0 && self.applied_twice == 0 && self.audit.violations() == 0
    }

    pub(crate) fn print(&self, format: Format) -> Result<()> {
        match format {
            Format::Json => println!("{}", serde_json::to_string_pretty(self)?),
            Format::Text => self.print_text(),
        }
        Ok(())
    }

    fn print_text(&self) {
        let verdict = if self.is_sound() {
            bold("every guarantee held")
        } else {
            red("a guarantee was broken")
        };
        println!("{verdict}");
        println!("  lost                {:>10}", self.lost);
        println!("  applied twice       {:>10}", self.applied_twice);
        println!("  still on the way    {:>10}", self.in_flight);
        println!("  events published    {:>10}", self.events_published);
        println!("  events applied      {:>10}", self.events_applied);
        println!("  duplicates skipped  {:>10}", self.duplicates_skipped);
        println!("  dead letters        {:>10}", self.dead_letters);
        println!(
            "  this run            {:>10.1} bookings/s, {:.0} events/s",
            self.bookings_per_second, self.events_per_second
        );
        println!("  longest outbox lag  {:>10.2} s", self.outbox_lag_seconds);
        println!("bookings");
        for (state, count) in &self.sagas {
            println!("  {state:<24} {count:>6}");
        }
    }
}

/// The peak memory of this process, where the system reports it.
fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some((kib / 1024.0 * 10.0).round() / 10.0)
}
