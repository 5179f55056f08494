use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use chapar::Metrics;

/// How many seconds the chart goes back.
pub(crate) const SECONDS: usize = 120;
/// The window of a rate in seconds: long enough to be steady, short enough to be current.
const CALM: usize = 5;

/// Rates per second, for the last two minutes.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// Oldest first, at most [`CALM`] + 1.
    beats: VecDeque<Beat>,
    published: VecDeque<f64>,
    applied: VecDeque<f64>,
}

/// The totals at a time.
#[derive(Debug)]
struct Beat {
    at: Instant,
    published: u64,
    applied: BTreeMap<String, u64>,
}

impl Pulse {
    /// Starts now: earlier events do not count.
    pub(crate) fn new(metrics: &Metrics, now: Instant) -> Self {
        let beats = VecDeque::from([Beat::of(metrics, now)]);
        Pulse { beats, published: VecDeque::new(), applied: VecDeque::new() }
    }

    /// Records the totals since the last sample.
    pub(crate) fn beat(&mut self, metrics: &Metrics, now: Instant) {
        let beat = Beat::of(metrics, now);
        let Some(last) = self.beats.back() else { return };
        if last.at >= now {
            return;
        }
        keep(&mut self.published, beat.rate_since(last, |b| b.published), SECONDS);
        keep(&mut self.applied, beat.rate_since(last, Beat::applied), SECONDS);
        keep(&mut self.beats, beat, CALM + 1);
    }

    /// Events published per second, each second of the last two minutes, oldest first.
    pub(crate) fn published(&self) -> Vec<f64> {
        self.published.iter().copied().collect()
    }

    /// Events applied per second, likewise.
    pub(crate) fn applied(&self) -> Vec<f64> {
        self.applied.iter().copied().collect()
    }

    /// Events published per second now.
    pub(crate) fn publishing(&self) -> f64 {
        self.now(|beat| beat.published)
    }

    /// Events applied per second now, by all consumers.
    pub(crate) fn applying(&self) -> f64 {
        self.now(Beat::applied)
    }

    /// Events applied per second now, by one consumer.
    pub(crate) fn applying_by(&self, consumer: &str) -> f64 {
        self.now(|beat| beat.applied.get(consumer).copied().unwrap_or(0))
    }

    fn now(&self, of: impl Fn(&Beat) -> u64) -> f64 {
        match (self.beats.front(), self.beats.back()) {
            (Some(first), Some(last)) => last.rate_since(first, of),
            _ => 0.0,
        }
    }
}

impl Beat {
    fn of(metrics: &Metrics, at: Instant) -> Self {
        let consumers = metrics.consumers().into_iter();
        let applied = consumers.map(|(name, consumer)| (name, consumer.applied())).collect();
        Beat { at, published: metrics.published(), applied }
    }

    fn applied(&self) -> u64 {
        self.applied.values().sum()
    }

    fn rate_since(&self, earlier: &Beat, of: impl Fn(&Beat) -> u64) -> f64 {
        let seconds = self.at.duration_since(earlier.at).as_secs_f64();
        if seconds > 0.0 { of(self).saturating_sub(of(earlier)) as f64 / seconds } else { 0.0 }
    }
}

fn keep<T>(queue: &mut VecDeque<T>, value: T, most: usize) {
    while queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(value);
}
