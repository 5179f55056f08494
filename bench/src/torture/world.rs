//! The business of a run: tenants, keys, topics, and what the consumers read.

use std::time::{SystemTime, UNIX_EPOCH};

/// The profile of a run.
pub(super) const SYSTEM: &str = "melmastoon";
/// The stream of its topics.
pub(super) const STREAM: &str = "RESERVATION";
pub(super) const TENANTS: [&str; 3] = ["acme", "birch", "cedar"];

/// Most events; read by [`LEDGER`].
pub(super) const MODIFIED: &str = "melmastoon.reservation.booking.modified.v1";
/// Read by every consumer.
pub(super) const HELD: &str = "melmastoon.reservation.booking.held.v1";
/// A new version of [`LEDGER`] reads it too.
pub(super) const CONFIRMED: &str = "melmastoon.reservation.booking.confirmed.v1";
pub(super) const TOPICS: [&str; 3] = [MODIFIED, HELD, CONFIRMED];

/// Applies everything; it is sought back while it works, and its new version reads one more topic.
pub(super) const LEDGER: &str = "torture.ledger";
/// Cannot apply some events, and parks their keys.
pub(super) const PICKY: &str = "torture.picky";
/// Starts late, at the beginning of the log.
pub(super) const NEWCOMER: &str = "torture.newcomer";

/// The topics of a consumer in a version of its program.
pub(super) fn topics(consumer: &str, version: u32) -> &'static [&'static str] {
    match (consumer, version) {
        (LEDGER, 1) => &[MODIFIED, HELD],
        (LEDGER, _) => &TOPICS,
        _ => &[HELD, CONFIRMED],
    }
}

pub(super) const KEYS: usize = 240;
/// The first keys: ill events are theirs, so that the others are never blocked by one.
pub(super) const SICK: usize = 12;
/// Keys of one tenant and one kind that are locked two at a time.
pub(super) const RACED: [usize; 3] = [12, 18, 24];

/// The most bytes of an ordering key, of which the tenant is a part.
const LONGEST: usize = 1024;

/// The name of a key in a run. Some are as long and as odd as is allowed.
pub(super) fn key(run: &str, index: usize) -> String {
    let name = format!("{run}-k{index}");
    match index {
        7 => format!("{name} \u{202e}مهمان\u{301}𝕜 '\"\\%{{}}\t🏨"),
        8 => {
            let room = LONGEST - name.len() - tenant(index).len() - 1;
            name + &"ß".repeat(room / 2)
        }
        _ => name,
    }
}

/// The tenant of a key.
pub(super) fn tenant(index: usize) -> &'static str {
    TENANTS[index % TENANTS.len()]
}

/// The ordering key of a key, by the profile's template.
pub(super) fn ordering_key(tenant: &str, key: &str) -> String {
    format!("{tenant}:{key}")
}

/// Now, on the clock that all processes of a run share.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_key_is_just_allowed() {
        let longest = ordering_key(tenant(8), &key("12345678", 8)).len();
        assert!((LONGEST - 1..=LONGEST).contains(&longest), "{longest}");
    }

    #[test]
    fn raced_keys_can_be_in_one_transaction() {
        let kind = |index: usize| (tenant(index), index % 2);
        assert!(RACED.iter().all(|index| kind(*index) == kind(RACED[0]) && *index >= SICK));
    }
}
