use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use chapar_core::Violations;

/// What an [`App`](crate::App) has done since it started. Cheap to clone and to read.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    published: AtomicU64,
    publish_errors: AtomicU64,
    quarantined: AtomicU64,
    timers_fired: AtomicU64,
    effects_done: AtomicU64,
    consumers: Mutex<BTreeMap<String, Arc<ConsumerMetrics>>>,
}

/// Events that a rule kept from being published, by the code of the rule and the service that
/// wanted to. Alert on any: a program tries what it may not do. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Blocked(Arc<Mutex<BTreeMap<(&'static str, String), u64>>>);

impl Blocked {
    /// The most services that are counted by name; the others count as `other`: labels of a
    /// metric must not grow with what programs call themselves.
    const MOST_SERVICES: usize = 64;

    pub(crate) fn add(&self, violations: &Violations, service: &str) {
        let mut counts = self.0.lock().unwrap_or_else(|p| p.into_inner());
        let known = counts.keys().any(|(_, known)| known == service);
        let services: BTreeSet<&String> = counts.keys().map(|(_, service)| service).collect();
        let service = if known || services.len() < Self::MOST_SERVICES { service } else { "other" };
        let service = service.to_owned();
        for violation in violations.iter() {
            *counts.entry((violation.code.as_str(), service.clone())).or_default() += 1;
        }
    }

    /// Code, service, and how many events.
    pub fn counts(&self) -> Vec<(&'static str, String, u64)> {
        let counts = self.0.lock().unwrap_or_else(|p| p.into_inner());
        counts.iter().map(|((code, service), count)| (*code, service.clone(), *count)).collect()
    }
}

/// What one consumer has done.
#[derive(Debug, Default)]
pub struct ConsumerMetrics {
    applied: AtomicU64,
    duplicates: AtomicU64,
    retries: AtomicU64,
    dead_letters: AtomicU64,
    parked: AtomicU64,
    gaps: AtomicU64,
    late: AtomicU64,
    breaks: AtomicU64,
    deprecated: AtomicU64,
}

macro_rules! counters {
    ($type:ty, $this:ident => $place:expr; $($get:ident $add:ident $what:literal),* $(,)?) => {
        impl $type {$(
            #[doc = $what]
            pub fn $get(&self) -> u64 {
                let $this = self;
                $place.$get.load(Relaxed)
            }

            pub(crate) fn $add(&self, n: u64) {
                let $this = self;
                $place.$get.fetch_add(n, Relaxed);
            }
        )*}
    };
}

counters!(Metrics, this => this.0;
    published add_published "Events that the transport has taken.",
    publish_errors add_publish_errors "Attempts to publish that failed.",
    quarantined add_quarantined "Events that were put into quarantine.",
    timers_fired add_timers_fired "Timers that fired.",
    effects_done add_effects_done "Calls to the outside that have ended.",
);

counters!(ConsumerMetrics, this => this;
    applied add_applied "Events applied.",
    duplicates add_duplicates "Deliveries skipped because the event had been applied before.",
    retries add_retries "Attempts that failed and are tried again.",
    dead_letters add_dead_letters "Events that failed for good.",
    deprecated add_deprecated "Deliveries of events that should not be read any more.",
    parked add_parked "Events that wait behind a dead letter of their key.",
    gaps add_gaps "Events that were applied although one before them was missing.",
    breaks add_breaks "Times that it rested because its downstream was away.",
    late add_late "Events that came after newer ones and were recorded without being applied.",
);

impl Metrics {
    /// The metrics of a consumer.
    pub fn consumer(&self, name: &str) -> Arc<ConsumerMetrics> {
        let mut consumers = self.0.consumers.lock().unwrap_or_else(|p| p.into_inner());
        consumers.entry(name.to_owned()).or_default().clone()
    }

    /// All consumers and their metrics.
    pub fn consumers(&self) -> Vec<(String, Arc<ConsumerMetrics>)> {
        let consumers = self.0.consumers.lock().unwrap_or_else(|p| p.into_inner());
        consumers.iter().map(|(name, metrics)| (name.clone(), metrics.clone())).collect()
    }

    /// All events applied, over all consumers.
    pub fn applied(&self) -> u64 {
        self.consumers().iter().map(|(_, consumer)| consumer.applied()).sum()
    }

    /// All duplicates skipped, over all consumers.
    pub fn duplicates(&self) -> u64 {
        self.consumers().iter().map(|(_, consumer)| consumer.duplicates()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_beyond_the_most_are_counted_together() {
        let blocked = Blocked::default();
        let broken = Violations::one(chapar_core::Code::NotOwner, "no".into());
        for n in 0..100 {
            blocked.add(&broken, &format!("service-{n:03}"));
            blocked.add(&broken, "service-000");
        }
        let counts = blocked.counts();
        assert_eq!(counts.len(), Blocked::MOST_SERVICES + 1);
        assert_eq!(counts.iter().map(|(_, _, count)| count).sum::<u64>(), 200);
        assert!(counts.contains(&("CH1014", "other".into(), 36)), "{counts:?}");
        assert!(counts.contains(&("CH1014", "service-000".into(), 101)), "{counts:?}");
    }
}
