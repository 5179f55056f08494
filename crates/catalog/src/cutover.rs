//! Cutover of consumers from one version of an event to the next, and retirement of the old one.

use std::collections::BTreeMap;

use chapar_core::catalog::{Consumer, Event};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use serde::Serialize;

use crate::Loaded;

/// How long a topic must have been without an active subscription before it is retired.
pub const SILENT_DAYS: i64 = 7;

/// Active subscriptions are recorded every minute; after this long without a record, one counts as
/// inactive.
const ATTACHED: SignedDuration = SignedDuration::from_mins(5);

/// A subscription that a store has recorded on a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reader {
    /// The subscription.
    pub subscription: String,
    /// Its service.
    pub service: String,
    /// When it was last active.
    pub last_seen: Timestamp,
}

/// The recorded subscriptions of each topic.
pub type Seen = BTreeMap<String, Vec<Reader>>;

/// The cutover state of an old version.
#[derive(Debug, Clone, Serialize)]
pub struct Cutover {
    /// The old version.
    pub subject: String,
    /// The version that replaces it.
    pub replaced_by: String,
    /// The first day of dual publication.
    pub since: Date,
    /// The day from which the old version may be retired.
    pub until: Date,
    /// The first release with both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// The consumers of either, by name.
    pub consumers: Vec<Stand>,
    /// Subscriptions that the store has recorded on the old version; none without a store.
    pub readers: Vec<Reader>,
    /// What prevents the retirement of the old version, as far as is known.
    pub blockers: Vec<String>,
}

/// The cutover state of one consumer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stand {
    /// The service.
    pub service: String,
    /// Whether it is registered for the old version.
    pub reads_old: bool,
    /// Whether it is registered for the new version.
    pub reads_new: bool,
    /// Whether one of its subscriptions is active on the old version.
    pub attached: bool,
}

impl Stand {
    /// Whether it has cut over to the new version.
    pub fn cut_over(&self) -> bool {
        self.reads_new && !self.reads_old && !self.attached
    }
}

/// Every version that is being replaced. `seen` is none if no store was given.
pub fn cutovers(loaded: &Loaded, seen: Option<&Seen>, now: Timestamp) -> Vec<Cutover> {
    let events = loaded.catalog.events();
    let heirs = events.filter_map(|old| {
        let heir = loaded.catalog.event(&old.deprecated.as_ref()?.replaced_by)?;
        Some((old, heir))
    });
    heirs.map(|(old, new)| cutover(loaded, old, new, seen, now)).collect()
}

fn cutover(
    loaded: &Loaded,
    old: &Event,
    new: &Event,
    seen: Option<&Seen>,
    now: Timestamp,
) -> Cutover {
    let readers = seen.and_then(|seen| seen.get(old.subject.as_str())).cloned();
    let readers = readers.unwrap_or_default();
    let least = i64::from(loaded.catalog.system.least_dual_publish_days());
    let dual = new.dual_publish.as_ref();
    let declared = old.deprecated.as_ref().and_then(|deprecated| deprecated.since.parse().ok());
    let since: Date = dual.map(|dual| dual.since).or(declared).unwrap_or(Date::MAX);
    let until = dual.map(|dual| dual.until);
    let until = until.unwrap_or_else(|| since.saturating_add(least.days()));
    let mut names: Vec<&String> = old.consumers.iter().map(|consumer| &consumer.service).collect();
    names.extend(new.consumers.iter().map(|consumer| &consumer.service));
    names.sort();
    names.dedup();
    let listed = |event: &Event, name: &str| event.consumers.iter().any(|c| c.service == name);
    let stand = |name: &&String| Stand {
        service: (*name).clone(),
        reads_old: listed(old, name),
        reads_new: listed(new, name),
        attached: readers.iter().any(|r| r.service == **name && now - ATTACHED <= r.last_seen),
    };
    let mut cutover = Cutover {
        subject: old.subject.to_string(),
        replaced_by: new.subject.to_string(),
        since,
        until,
        release: dual.map(|dual| dual.release.clone()),
        consumers: names.iter().map(stand).collect(),
        readers,
        blockers: Vec::new(),
    };
    cutover.blockers = blockers(loaded, old, new, &cutover, seen.is_some(), now);
    cutover
}

fn blockers(
    loaded: &Loaded,
    old: &Event,
    new: &Event,
    cutover: &Cutover,
    asked: bool,
    now: Timestamp,
) -> Vec<String> {
    let version = old.subject.version();
    let same = old.subject.event_type() == new.subject.event_type();
    let mut blockers = Vec::new();
    for Consumer { service, .. } in &old.consumers {
        blockers.push(format!("{service} is registered for {}", old.subject));
    }
    let accepts = |consumer: &&Consumer| same && consumer.accepts.contains(&version);
    for Consumer { service, .. } in new.consumers.iter().filter(accepts) {
        blockers.push(format!("{service} accepts v{version}, as {} says", new.subject));
    }
    for (service, subject) in loaded.reads().filter(|(_, subject)| *subject == old.subject.as_str())
    {
        blockers.push(format!("{service} has a contract about {subject}"));
    }
    let today = TimeZone::UTC.to_datetime(now).date();
    if today < cutover.until {
        blockers.push(format!("both versions are published until {}", cutover.until));
    }
    let current = &loaded.catalog.system.version;
    if let Some(release) = &cutover.release
        && !later(current, release)
    {
        blockers.push(format!(
            "both versions must be published for a full release, and {current} is not later than \
             {release}, the first with both"
        ));
    }
    if !asked {
        blockers.push("active subscriptions are unknown; give the store with --store".to_owned());
        return blockers;
    }
    // A service that reads everything follows any version, so it blocks nothing.
    let all = &loaded.catalog.system.readers_of_all;
    let waiting = cutover.readers.iter().filter(|reader| !all.contains(&reader.service));
    let silent = SignedDuration::from_hours(24 * SILENT_DAYS);
    let mut seen = false;
    for reader in waiting {
        seen = true;
        if now - silent < reader.last_seen {
            let Reader { subscription, service, last_seen } = reader;
            blockers.push(format!(
                "the subscription {subscription} of {service} was active at {last_seen:.0}; \
                 {SILENT_DAYS} days without activity are required"
            ));
        }
    }
    if !seen && today < cutover.since.saturating_add(SILENT_DAYS.days()) {
        let since = cutover.since;
        blockers.push(format!("it is deprecated since {since}: less than {SILENT_DAYS} days"));
    }
    blockers
}

/// Whether a release comes after another. Releases that are not numbers count as later if they
/// differ.
fn later(current: &str, release: &str) -> bool {
    let numbers = |text: &str| -> Option<Vec<u64>> {
        text.trim_start_matches('v').split('.').map(|part| part.parse().ok()).collect()
    };
    match (numbers(current), numbers(release)) {
        (Some(current), Some(release)) => current > release,
        _ => current != release,
    }
}

#[cfg(test)]
mod tests {
    use super::later;

    #[test]
    fn releases_are_compared_as_numbers() {
        assert!(later("1.10.0", "1.9.0") && later("2", "1.9"));
        assert!(!later("1.9.0", "1.9.0") && !later("1.9.0", "1.10.0"));
        assert!(later("spring", "winter") && !later("spring", "spring"));
    }
}
