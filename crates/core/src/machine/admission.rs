//! Admission: what becomes of each event of a batch, decided before any handler is called.
//!
//! A consumer reads the facts inside the transaction that will apply the batch, asks [`admit`] for
//! one decision per event, and carries the decisions out in that same transaction. Nothing is
//! decided anywhere else, so that the rules can be explored without a database.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::order::{Hole, Place, Progress, Standing};

/// The tenant of events that cannot be read. Their key belongs to a tenant that is not known, so
/// they count for every tenant of the key.
pub const UNREADABLE: &str = "platform";

/// An event that asks to be applied.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    /// The name under which the inbox knows it.
    pub event: &'a str,
    /// Its tenant.
    pub tenant: &'a str,
    /// Its topic.
    pub topic: &'a str,
    /// Its ordering key; none where the consumer is unordered.
    pub key: Option<&'a str>,
    /// Its place in the key, if it has one.
    pub place: Option<&'a Place>,
    /// Where it comes from.
    pub origin: Origin,
    /// How long it has waited for events before it.
    pub waited: Duration,
    /// Whether it can be given to a handler.
    pub usable: bool,
    /// Whether it is recent enough that the inbox would know of its application.
    pub remembered: bool,
}

/// Where a candidate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// From the transport.
    Delivered,
    /// A dead letter whose replay was requested; `there` if it still is, and is locked now.
    Letter {
        /// Whether it is still to be replayed.
        there: bool,
    },
    /// A follower that was parked behind a dead letter.
    Parked {
        /// Its number among the parked events.
        id: i64,
        /// Whether it is still parked.
        there: bool,
    },
    /// An event that arrived before its saga.
    Stashed {
        /// Whether it is still stashed.
        there: bool,
    },
}

/// What the database knows of the candidates, read in the transaction that applies them.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// How far the keys are: tenant, key and progress.
    progress: HashMap<String, Vec<(String, Progress)>>,
    /// Numbers that were left out, by key.
    holes: HashMap<String, Vec<(String, Hole)>>,
    /// Keys with a dead letter that blocks them, with its tenant.
    letters: HashMap<String, Vec<String>>,
    /// Keys with parked events: tenant and the first of them.
    parked: HashMap<String, Vec<(String, i64)>>,
    /// Events that are held: dead letters, parked or stashed.
    held: HashSet<String>,
    /// Events that the inbox knows.
    claims: HashMap<String, Claim>,
    /// Where the consumer started on its topics: the first number, and how long ago.
    floors: HashMap<String, (i64, Duration)>,
}

/// What the inbox knows of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It was applied, or given up.
    Done,
    /// An operator asked for it to be applied again.
    Expected,
}

/// What a consumer has declared.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// How long an event waits for one before it.
    pub gap: Duration,
    /// Whether a dead letter blocks its key.
    pub parks: bool,
    /// Whether an event that fails stops the consumer, instead of becoming a dead letter.
    pub stops: bool,
}

/// What becomes of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It is claimed and handled.
    Apply {
        /// What is left out before it, because the wait for it is over.
        skips: Vec<Hole>,
        /// It was left out before, and comes now.
        fills: bool,
    },
    /// An event before it is missing: it is looked at again later.
    Wait,
    /// Its key is blocked: it is parked behind the dead letter.
    Park,
    /// It becomes a dead letter without being handled.
    Bury(Cause),
    /// It was dealt with before, and is acknowledged. Its number is passed.
    Settled,
    /// It was released, but it is not its turn, or another process was faster: it stays where it is.
    Leave,
}

/// Why an event becomes a dead letter without being handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It cannot be read, or breaks its contract.
    Unusable,
    /// A later event of its line was applied, so applying this one now would undo that.
    Late,
}

impl Facts {
    /// How far a key of a tenant is on a line.
    pub fn learn_mark(&mut self, tenant: &str, key: &str, line: String, number: i64) {
        let known = self.progress.entry(key.to_owned()).or_default();
        match known.iter_mut().find(|(of, _)| of == tenant) {
            Some((_, progress)) => progress.learn(line, number),
            None => {
                let mut progress = Progress::default();
                progress.learn(line, number);
                known.push((tenant.to_owned(), progress));
            }
        }
    }

    /// Numbers of a key that were left out.
    pub fn learn_hole(&mut self, tenant: &str, key: &str, hole: Hole) {
        self.holes.entry(key.to_owned()).or_default().push((tenant.to_owned(), hole));
    }

    /// A key has an open dead letter that blocks it.
    pub fn learn_letter(&mut self, tenant: &str, key: &str) {
        self.letters.entry(key.to_owned()).or_default().push(tenant.to_owned());
    }

    /// A key has parked events, of which this is the first.
    pub fn learn_parked(&mut self, tenant: &str, key: &str, first: i64) {
        self.parked.entry(key.to_owned()).or_default().push((tenant.to_owned(), first));
    }

    /// An event is held.
    pub fn learn_held(&mut self, event: String) {
        self.held.insert(event);
    }

    /// The inbox knows an event.
    pub fn learn_claim(&mut self, event: String, claim: Claim) {
        self.claims.insert(event, claim);
    }

    /// The consumer started on a topic at this number, so long ago.
    pub fn learn_floor(&mut self, topic: &str, first: i64, ago: Duration) {
        self.floors.insert(topic.to_owned(), (first, ago));
    }

    /// The candidates that may be held already: delivered ones whose key is blocked.
    pub fn may_be_held<'a>(&self, candidates: &[Candidate<'a>]) -> Vec<&'a str> {
        let blocked = candidates.iter().filter(|it| self.is_delivered_and_blocked(it));
        blocked.map(|candidate| candidate.event).collect()
    }

    /// The candidates whose number was passed before: what is known of them must be looked up.
    pub fn passed<'a, 'c>(&self, candidates: &'c [Candidate<'a>]) -> Vec<&'c Candidate<'a>> {
        let mut facts = Facts { progress: self.progress.clone(), ..Facts::default() };
        let mut passed = Vec::new();
        for candidate in candidates.iter().filter(|it| it.origin == Origin::Delivered) {
            let (Some(key), Some(place)) = (candidate.key, candidate.place) else { continue };
            match facts.standing(candidate.tenant, key, place) {
                Standing::Old => passed.push(candidate),
                _ => facts.learn_mark(candidate.tenant, key, place.line.clone(), place.number),
            }
        }
        passed
    }

    fn is_delivered_and_blocked(&self, candidate: &Candidate<'_>) -> bool {
        candidate.origin == Origin::Delivered
            && candidate.key.is_some_and(|key| self.is_blocked(candidate.tenant, key))
    }

    fn has_letter(&self, tenant: &str, key: &str) -> bool {
        self.letters.get(key).is_some_and(|of| of.iter().any(|of| concerns(of, tenant)))
    }

    fn is_blocked(&self, tenant: &str, key: &str) -> bool {
        self.has_letter(tenant, key) || self.first_parked(tenant, key).is_some()
    }

    fn first_parked(&self, tenant: &str, key: &str) -> Option<i64> {
        let parked = self.parked.get(key)?;
        parked.iter().filter(|(of, _)| concerns(of, tenant)).map(|(_, first)| *first).min()
    }

    fn progress(&self, tenant: &str, key: &str) -> Progress {
        let mut merged = Progress::default();
        for (_, progress) in
            self.progress.get(key).into_iter().flatten().filter(|(of, _)| concerns(of, tenant))
        {
            merged.merge(progress);
        }
        merged
    }

    fn standing(&self, tenant: &str, key: &str, place: &Place) -> Standing {
        self.progress(tenant, key).standing(place)
    }

    /// Takes a number out of the hole that it lies in, if it does.
    fn take_out(&mut self, tenant: &str, key: &str, place: &Place) -> bool {
        let Some(holes) = self.holes.get_mut(key) else { return false };
        let at = holes.iter().position(|(of, hole)| {
            concerns(of, tenant)
                && hole.line == place.line
                && (hole.low..=hole.high).contains(&place.number)
        });
        let Some(at) = at else { return false };
        let (of, hole) = holes.swap_remove(at);
        holes.push((of.clone(), Hole { high: place.number - 1, ..hole.clone() }));
        holes.push((of, Hole { low: place.number + 1, ..hole }));
        true
    }

    /// Whether all that is missing is older than the first event that the consumer ever got on
    /// that topic. Partitions deliver their first one at different times, so this is believed only
    /// after as long as an event would have been waited for.
    fn is_prehistory(&self, progress: &Progress, place: &Place, gap: Duration) -> bool {
        let older = |topic: &str, number: i64| {
            self.floors.get(topic).is_some_and(|(first, ago)| number < *first && *ago >= gap)
        };
        progress.standing(&place.without(older)) == Standing::Next
    }
}

fn concerns(a: &str, b: &str) -> bool {
    a == b || a == UNREADABLE || b == UNREADABLE
}

/// Decides on each candidate, in their order. Candidates of a key are neighbours.
pub fn admit(candidates: &[Candidate<'_>], mut facts: Facts, rules: &Rules) -> Vec<Decision> {
    let mut waiting: HashSet<&str> = HashSet::new();
    let mut decisions = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        let decision = match candidate.origin {
            Origin::Delivered => delivered(candidate, &mut facts, rules, &waiting),
            _ => released(candidate, &facts, rules),
        };
        if let Some(key) = candidate.key {
            match (&decision, candidate.origin) {
                (Decision::Wait, _) => {
                    waiting.insert(key);
                }
                (Decision::Bury(Cause::Unusable), _) if rules.parks => {
                    facts.learn_letter(candidate.tenant, key);
                }
                // The next parked event of the key may follow in the same batch.
                (Decision::Apply { .. }, Origin::Parked { id, .. }) => facts.unpark(key, id),
                _ => {}
            }
            let passes = matches!(
                decision,
                Decision::Apply { .. }
                    | Decision::Park
                    | Decision::Settled
                    | Decision::Bury(Cause::Unusable)
            );
            if let (true, Origin::Delivered, Some(place)) =
                (passes, candidate.origin, candidate.place)
            {
                facts.learn_mark(candidate.tenant, key, place.line.clone(), place.number);
            }
        }
        decisions.push(decision);
    }
    decisions
}

impl Facts {
    fn unpark(&mut self, key: &str, id: i64) {
        if let Some(parked) = self.parked.get_mut(key) {
            parked.retain(|(_, first)| *first != id);
        }
    }
}

fn delivered(
    candidate: &Candidate<'_>,
    facts: &mut Facts,
    rules: &Rules,
    waiting: &HashSet<&str>,
) -> Decision {
    let usable = |decision| match decision {
        Decision::Apply { .. } if !candidate.usable && !rules.stops => {
            Decision::Bury(Cause::Unusable)
        }
        decision => decision,
    };
    let go = |skips: Vec<Hole>, fills: bool| usable(Decision::Apply { skips, fills });
    let Some(key) = candidate.key else {
        return match facts.claims.get(candidate.event) {
            Some(Claim::Done) => Decision::Settled,
            _ => go(Vec::new(), false),
        };
    };
    if waiting.contains(key) {
        return Decision::Wait;
    }
    let claim = facts.claims.get(candidate.event).copied();
    let settled = claim == Some(Claim::Done) || facts.held.contains(candidate.event);
    let blocked = facts.is_blocked(candidate.tenant, key);
    let go = |skips, fills| match (settled, blocked) {
        (true, _) => Decision::Settled,
        (false, true) => Decision::Park,
        (false, false) => go(skips, fills),
    };
    let Some(place) = candidate.place else { return go(Vec::new(), false) };
    let progress = facts.progress(candidate.tenant, key);
    match progress.standing(place) {
        Standing::Next => go(Vec::new(), false),
        Standing::Old if settled || claim == Some(Claim::Expected) => go(Vec::new(), false),
        Standing::Old if facts.take_out(candidate.tenant, key, place) => go(Vec::new(), true),
        // Had it been applied, the inbox would say so, unless it has forgotten it by now.
        Standing::Old if !candidate.remembered => Decision::Settled,
        Standing::Old if rules.stops => go(Vec::new(), false),
        Standing::Old => Decision::Bury(Cause::Late),
        Standing::Early if facts.is_prehistory(&progress, place, rules.gap) => {
            go(Vec::new(), false)
        }
        Standing::Early if candidate.waited < rules.gap => Decision::Wait,
        Standing::Early => go(progress.holes_before(place), false),
    }
}

fn released(candidate: &Candidate<'_>, facts: &Facts, rules: &Rules) -> Decision {
    let its_turn = match candidate.origin {
        Origin::Parked { id, there } => {
            there
                && candidate.key.is_some_and(|key| {
                    !facts.has_letter(candidate.tenant, key)
                        && facts.first_parked(candidate.tenant, key).is_none_or(|first| first == id)
                })
        }
        Origin::Letter { there } | Origin::Stashed { there } => there,
        Origin::Delivered => false,
    };
    match (its_turn, candidate.usable || rules.stops) {
        (false, _) => Decision::Leave,
        (true, false) => Decision::Bury(Cause::Unusable),
        (true, true) => Decision::Apply { skips: Vec::new(), fills: false },
    }
}

#[cfg(test)]
mod tests {
    use super::super::stamps::Stamp;
    use super::*;

    const RULES: Rules = Rules { gap: Duration::from_secs(30), parks: true, stops: false };

    fn place(topic: &str, stamp: &str) -> Place {
        let topics = ["a", "b"].map(str::to_owned);
        Place::by_stamp(&Stamp::read(stamp).expect("a stamp"), topic, &topics)
    }

    fn candidate(place: &Place) -> Candidate<'_> {
        Candidate {
            event: "e",
            tenant: "acme",
            topic: "a",
            key: Some("k"),
            place: Some(place),
            origin: Origin::Delivered,
            waited: Duration::ZERO,
            usable: true,
            remembered: true,
        }
    }

    fn at(number: i64) -> Facts {
        let mut facts = Facts::default();
        facts.learn_mark("acme", "k", "a".to_owned(), number);
        facts
    }

    const APPLY: Decision = Decision::Apply { skips: Vec::new(), fills: false };

    #[test]
    fn a_late_event_is_a_dead_letter_unless_it_may_have_been_applied_and_forgotten() {
        let (third, mut facts) = (place("a", "3"), at(5));
        let late = candidate(&third);
        assert_eq!(
            admit(std::slice::from_ref(&late), facts.clone(), &RULES),
            [Decision::Bury(Cause::Late)]
        );
        let old = Candidate { remembered: false, ..late.clone() };
        assert_eq!(admit(&[old], facts.clone(), &RULES), [Decision::Settled]);
        facts.learn_hole("acme", "k", Hole { line: "a".into(), low: 2, high: 4 });
        let fills = Decision::Apply { skips: Vec::new(), fills: true };
        assert_eq!(admit(&[late], facts, &RULES), [fills]);
    }

    #[test]
    fn a_gap_on_another_topic_is_waited_for_once() {
        let (first, second) = (place("a", "4 b=3"), place("a", "5 a=4 b=3"));
        let waits = [candidate(&first), candidate(&second)];
        assert_eq!(admit(&waits, at(1), &RULES), [Decision::Wait, Decision::Wait]);
        let waited = Candidate { waited: RULES.gap, ..candidate(&first) };
        let hole = Hole { line: "b".into(), low: 1, high: 3 };
        let skips = Decision::Apply { skips: vec![hole.clone()], fills: false };
        assert_eq!(admit(&[waited], at(1), &RULES), [skips]);
        // The consumer has marked what it left out.
        let mut facts = at(4);
        facts.learn_mark("acme", "k", hole.line, hole.high);
        assert_eq!(admit(&[candidate(&second)], facts, &RULES), [APPLY]);
    }

    #[test]
    fn the_first_event_of_a_key_in_several_partitions_waits_for_earlier_ones() {
        let (first, second) = (place("a", "3"), place("a", "5 a=3").spread(true));
        let (first, second) = (candidate(&first), candidate(&second));
        let both = [second.clone(), first.clone()];
        // A topic in one partition begins with its first event, and none comes before it.
        let plain = place("a", "5 a=3");
        assert_eq!(admit(&[candidate(&plain)], Facts::default(), &RULES), [APPLY]);
        assert_eq!(admit(&both, Facts::default(), &RULES), [Decision::Wait, Decision::Wait]);
        assert_eq!(admit(&[first], Facts::default(), &RULES), [APPLY]);
        assert_eq!(admit(std::slice::from_ref(&second), at(3), &RULES), [APPLY]);
        // Older than anything that the consumer has ever received: it will not come.
        let mut facts = Facts::default();
        facts.learn_floor("a", 4, RULES.gap);
        assert_eq!(admit(std::slice::from_ref(&second), facts, &RULES), [APPLY]);
        let waited = Candidate { waited: RULES.gap, ..second };
        let hole = Hole { line: "a".into(), low: 1, high: 3 };
        let skips = Decision::Apply { skips: vec![hole], fills: false };
        assert_eq!(admit(&[waited], Facts::default(), &RULES), [skips]);
    }

    #[test]
    fn what_cannot_be_read_blocks_its_key_whatever_its_tenant() {
        let (first, second) = (place("a", "1"), place("a", "2 a=1"));
        let unreadable = Candidate { tenant: UNREADABLE, usable: false, ..candidate(&first) };
        let follower = candidate(&second);
        let decisions = admit(&[unreadable, follower.clone()], Facts::default(), &RULES);
        assert_eq!(decisions, [Decision::Bury(Cause::Unusable), Decision::Park]);
        let mut facts = Facts::default();
        facts.learn_letter(UNREADABLE, "k");
        assert_eq!(admit(std::slice::from_ref(&follower), facts, &RULES), [Decision::Park]);
        let mut facts = Facts::default();
        facts.learn_letter("another", "k");
        assert_eq!(admit(&[follower], facts, &RULES), [APPLY]);
    }

    #[test]
    fn a_parked_event_goes_when_it_is_there_first_and_not_blocked() {
        let third = place("a", "3");
        let parked =
            |id, there| Candidate { origin: Origin::Parked { id, there }, ..candidate(&third) };
        let mut facts = Facts::default();
        facts.learn_parked("acme", "k", 7);
        let (first, second) = (parked(7, true), parked(8, true));
        let both = [first.clone(), second.clone()];
        assert_eq!(admit(&both, facts.clone(), &RULES), [APPLY, APPLY]);
        assert_eq!(admit(&[second], facts.clone(), &RULES), [Decision::Leave]);
        assert_eq!(admit(&[parked(7, false)], facts.clone(), &RULES), [Decision::Leave]);
        facts.learn_letter("acme", "k");
        assert_eq!(admit(&[first], facts, &RULES), [Decision::Leave]);
    }
}
