//! Reading the facts by which `core::machine::admission` decides on a batch.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use chapar_core::machine::admission::{Candidate, Claim, Decision, Facts, Origin, Rules, admit};
use chapar_core::machine::failure::FailurePolicy;
use chapar_core::machine::order::Hole;
use chapar_sql::{InboxFacts, Keep, Tables, Tx};
use jiff::Timestamp;

use crate::consumer::item::{Item, Release};
use crate::consumer::runner::Runner;
use crate::failure::Failure;

/// What may be done with a batch.
pub(crate) enum Admission {
    /// One decision for each item.
    Decided(Decided),
    /// An operator has paused the consumer.
    Paused,
    /// An operator has moved the consumer since the items were fetched.
    Moved,
}

pub(crate) struct Decided {
    pub(crate) decisions: Vec<Decision>,
    /// Keys with an open dead letter that does not block them.
    pub(crate) flagged: HashSet<String>,
}

/// The rows of released items that are still held, locked by this transaction.
#[derive(Default)]
struct Locked {
    letters: HashSet<String>,
    parked: HashSet<i64>,
    stashed: HashSet<i64>,
}

impl Runner {
    /// Reads what is known of the items and decides on each. The transaction is the engine's: what
    /// blocks a key may belong to an event without a known tenant.
    pub(crate) async fn admit(&self, tx: &mut Tx, items: &[Item]) -> Result<Admission, Failure> {
        let consumer = &self.consumer.name;
        // Locked before the facts are read: what another process did with it is then among them.
        let locked = lock_held(tx, items).await?;
        let keys = |placed: bool| -> Vec<String> {
            let mut keys: Vec<String> = items
                .iter()
                .filter(|item| self.consumer.ordered && (!placed || item.place.is_some()))
                .filter_map(|item| item.arrival.ordering_key.clone())
                .collect();
            keys.dedup();
            keys
        };
        let known = tx.inbox().facts(consumer, keys(false), keys(true)).await?;
        if items.iter().any(|item| item.epoch.is_some_and(|epoch| epoch != known.epoch)) {
            return Ok(Admission::Moved);
        }
        if known.paused {
            return Ok(Admission::Paused);
        }
        let now = self.chapar.clock().now();
        let candidates: Vec<Candidate<'_>> =
            items.iter().map(|item| self.candidate(item, &locked, now)).collect();
        let flagged = known.flagged.iter().map(|(_, key)| key.clone()).collect();
        let mut facts = self.facts(known, now);
        self.look_closer(tx, &candidates, &mut facts).await?;
        let decisions = admit(&candidates, facts, &self.rules());
        Ok(Admission::Decided(Decided { decisions, flagged }))
    }

    fn rules(&self) -> Rules {
        Rules {
            gap: self.consumer.gap.limit(),
            parks: self.consumer.ordered && self.consumer.on_failure == FailurePolicy::ParkKey,
            stops: self.consumer.on_failure == FailurePolicy::Stop,
        }
    }

    fn candidate<'a>(&self, item: &'a Item, locked: &Locked, now: Timestamp) -> Candidate<'a> {
        let origin = match &item.released {
            None => Origin::Delivered,
            Some(Release::Letter { id, .. }) => {
                Origin::Letter { there: locked.letters.contains(id) }
            }
            Some(Release::Parked(id)) => {
                Origin::Parked { id: *id, there: locked.parked.contains(id) }
            }
            Some(Release::Stash(id)) => Origin::Stashed { there: locked.stashed.contains(id) },
        };
        let since = |at: Timestamp| Duration::try_from(now.duration_since(at)).unwrap_or_default();
        let arrival = &item.arrival;
        Candidate {
            event: &arrival.event_id,
            tenant: &arrival.tenant,
            topic: &arrival.topic,
            key: arrival.ordering_key.as_deref().filter(|_| self.consumer.ordered),
            place: item.place.as_ref(),
            origin,
            waited: item.held_since.map_or(Duration::ZERO, since),
            usable: item.envelope.is_ok(),
            remembered: item.published_at.is_none_or(|at| since(at) < Keep::default().inbox),
        }
    }

    fn facts(&self, known: InboxFacts, now: Timestamp) -> Facts {
        let mut facts = Facts::default();
        for (tenant, key, line, number) in known.marks {
            facts.learn_mark(&tenant, &key, line, number);
        }
        for (tenant, key) in known.letters {
            facts.learn_letter(&tenant, &key);
        }
        for (tenant, key, first) in known.parked {
            facts.learn_parked(&tenant, &key, first);
        }
        for (topic, floor) in self.floors().iter() {
            let ago = Duration::try_from(now.duration_since(floor.since)).unwrap_or_default();
            facts.learn_floor(topic, floor.first_seq, ago);
        }
        facts
    }

    /// Looks up what only few candidates need: redeliveries of a blocked key may be held
    /// themselves, and of a number that was passed the inbox knows whether it was applied.
    async fn look_closer(
        &self,
        tx: &mut Tx,
        candidates: &[Candidate<'_>],
        facts: &mut Facts,
    ) -> Result<(), Failure> {
        let consumer = &self.consumer.name;
        let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<String>>();
        let held = facts.may_be_held(candidates);
        if !held.is_empty() {
            for event in tx.letters().held_among(consumer, owned(&held)).await? {
                facts.learn_held(event);
            }
        }
        let passed = facts.passed(candidates);
        let mut by_tenant: HashMap<&str, Vec<String>> = HashMap::new();
        for candidate in &passed {
            let keys = by_tenant.entry(candidate.tenant).or_default();
            keys.extend(candidate.key.map(str::to_owned));
        }
        for (tenant, keys) in by_tenant {
            for hole in tx.inbox().holes(consumer, tenant, keys).await? {
                let between = Hole { line: hole.line, low: hole.low, high: hole.high };
                facts.learn_hole(tenant, &hole.ordering_key, between);
            }
        }
        // What cannot be read, or is parked, is not claimed by a handler: its claim is looked up.
        let unusable = candidates.iter().filter(|candidate| !candidate.usable);
        let mut doubtful = held;
        doubtful.extend(passed.iter().copied().chain(unusable).map(|candidate| candidate.event));
        if !doubtful.is_empty() {
            for (event, again) in tx.inbox().claims_among(consumer, owned(&doubtful)).await? {
                facts.learn_claim(event, if again { Claim::Expected } else { Claim::Done });
            }
        }
        Ok(())
    }
}

async fn lock_held(tx: &mut Tx, items: &[Item]) -> Result<Locked, Failure> {
    let (mut letters, mut parked, mut stashed) = (Vec::new(), Vec::new(), Vec::new());
    for item in items {
        match &item.released {
            Some(Release::Letter { id, .. }) => letters.push(id.clone()),
            Some(Release::Parked(id)) => parked.push(*id),
            Some(Release::Stash(id)) => stashed.push(*id),
            None => {}
        }
    }
    let mut locked = Locked::default();
    if !letters.is_empty() {
        locked.letters = tx.letters().lock_replayed(letters).await?;
    }
    if !parked.is_empty() {
        locked.parked = tx.letters().lock_parked(parked).await?;
    }
    if !stashed.is_empty() {
        locked.stashed = tx.stash().lock(stashed).await?;
    }
    Ok(locked)
}
