//! The rules, one function each.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::{Applied, Fate, History, Judgement, Message, Seek, Write};

/// Whether more may still arrive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    InProgress,
    Ended,
}

const EXAMPLES: usize = 20;

pub(super) struct Judge<'h> {
    history: &'h History,
    writes: HashMap<&'h str, &'h Write>,
    phantoms: HashSet<&'h str>,
    lost: HashSet<&'h str>,
    judgement: Judgement,
}

/// What a consumer has, by write: when it was applied last.
type There<'h> = HashMap<&'h str, u64>;

/// The last pass over a key: from the last time that its list went back.
type LastPass<'h> = HashMap<&'h str, &'h [Applied]>;

impl<'h> Judge<'h> {
    pub(super) fn over(history: &'h History) -> Self {
        let writes: HashMap<&str, &Write> =
            history.writes.iter().map(|write| (write.id.as_str(), write)).collect();
        let count = |fate| history.writes.iter().filter(|write| write.fate == fate).count();
        let forgotten = count(Fate::Forgotten);
        let judgement = Judgement {
            acknowledged: count(Fate::Committed) + forgotten,
            unknown: count(Fate::Unknown),
            forgotten,
            ..Judgement::default()
        };
        Judge { history, writes, phantoms: HashSet::new(), lost: HashSet::new(), judgement }
    }

    pub(super) fn finish(mut self, stage: Stage) -> Judgement {
        let history = self.history;
        let none = BTreeSet::new();
        if let Some(broker) = &history.broker {
            self.broker(broker);
            let there: There<'_> = broker.iter().map(|m| (m.id.as_str(), 0)).collect();
            self.missing("the broker", &there, &none, stage);
        }
        for (consumer, lists) in &history.applied {
            let (mut there, mut last_pass) = (There::new(), LastPass::new());
            for (key, list) in lists {
                last_pass.insert(key, self.list(consumer, key, list));
                for Applied { id, at } in list {
                    let latest = there.entry(id).or_insert(*at);
                    *latest = (*at).max(*latest);
                }
            }
            let held = history.held.get(consumer).unwrap_or(&none);
            self.followers(consumer, &last_pass, held);
            self.missing(consumer, &there, held, stage);
            if stage == Stage::Ended {
                self.not_again(consumer, &there, held);
            }
        }
        self.wrongly_held();
        self.judgement.lost = self.lost.len();
        self.judgement.phantom = self.phantoms.len();
        self.judgement
    }

    fn broker(&mut self, broker: &'h [Message]) {
        let mut seen = HashSet::new();
        let mut last: HashMap<(&str, &str), &Write> = HashMap::new();
        for Message { key, id, line } in broker {
            let Some(write) = self.expected("the broker", key, id) else { continue };
            if !seen.insert(write.id.as_str()) {
                self.judgement.duplicates += 1;
                continue;
            }
            if self.history.dropped.contains(id) {
                self.judgement.resurrected += 1;
                self.tell(format!("the broker has {id} of {key}, which was dropped"));
            }
            if write.fate == Fate::Forgotten {
                continue;
            }
            let latest = last.entry((key, line)).or_insert(write);
            if latest.n > write.n {
                self.out_of_order("the broker", latest, write);
            } else {
                *latest = write;
            }
        }
    }

    /// A list in order; it may go back once for each seek. Returns its last pass.
    fn list(&mut self, consumer: &str, key: &str, list: &'h [Applied]) -> &'h [Applied] {
        let history = self.history;
        let given_up = history.given_up.get(consumer);
        let mut seeks: Vec<&Seek> =
            history.seeks.iter().filter(|seek| seek.consumer == consumer).collect();
        let (mut seen, mut latest, mut start) = (HashSet::new(), None::<&Write>, 0);
        for (place, Applied { id, at }) in list.iter().enumerate() {
            let Some(write) = self.expected(consumer, key, id) else { continue };
            if given_up.and_then(|ids| ids.get(id)).is_some_and(|since| at > since) {
                self.judgement.resurrected += 1;
                self.tell(format!("{consumer} applied {id} of {key} after it was given up"));
            }
            if write.fate == Fate::Forgotten {
                continue;
            }
            let again = seen.contains(id.as_str());
            let behind = latest.filter(|latest| latest.n > write.n);
            if again || behind.is_some() {
                if seeks.iter().any(|seek| seek.begun <= *at) {
                    // Several seeks in a row show as one step back.
                    seeks.retain(|seek| seek.begun > *at);
                    seen.clear();
                    start = place;
                } else if again {
                    self.judgement.applied_twice += 1;
                    self.tell(format!("{consumer} applied {id} of {key} twice"));
                    continue;
                } else if let Some(latest) = behind {
                    self.out_of_order(consumer, latest, write);
                    seen.insert(id.as_str());
                    continue;
                }
            }
            seen.insert(id.as_str());
            latest = Some(write);
        }
        &list[start..]
    }

    /// The write that an id names, unless it should not be there.
    fn expected(&mut self, place: &str, key: &str, id: &'h str) -> Option<&'h Write> {
        let write = self.writes.get(id).copied();
        let why = match write {
            None => "which was never written",
            Some(write) if write.key != key => "which is of another key",
            Some(write) if write.fate == Fate::Failed => "whose transaction failed",
            Some(write) => return Some(write),
        };
        if self.phantoms.insert(id) {
            self.tell(format!("{place} has {id} of {key}, {why}"));
        }
        None
    }

    /// The latest of its key stays the latest: each that came too late counts.
    fn out_of_order(&mut self, place: &str, latest: &Write, write: &Write) {
        self.judgement.out_of_order += 1;
        let Write { id, key, n, .. } = write;
        self.tell(format!(
            "{place} has {id} of {key} (number {n}) behind {} ({})",
            latest.id, latest.n
        ));
    }

    fn missing(&mut self, place: &str, there: &There<'_>, held: &BTreeSet<String>, stage: Stage) {
        let mut latest: HashMap<&str, u64> = HashMap::new();
        for id in there.keys() {
            let Some(write) = self.writes.get(id) else { continue };
            if write.fate != Fate::Forgotten {
                let latest = latest.entry(&write.key).or_default();
                *latest = write.n.max(*latest);
            }
        }
        for write in &self.history.writes {
            let Write { id, key, n, fate, topic, at, .. } = write;
            if *fate != Fate::Committed
                || there.contains_key(id.as_str())
                || !self.reads(place, write)
                || self.is_accounted(place, id, held)
            {
                continue;
            }
            let overtaken = latest.get(key.as_str()).is_some_and(|latest| latest > n);
            if (stage == Stage::Ended || overtaken) && self.lost.insert(id) {
                self.tell(format!(
                    "{id} of {key} (number {n} {topic}, written at {at}) is missing at {place}"
                ));
            }
        }
    }

    /// What a completed seek should have brought again.
    fn not_again(&mut self, consumer: &str, there: &There<'_>, held: &BTreeSet<String>) {
        let of_consumer = |seek: &&Seek| seek.consumer == consumer && seek.done;
        let Some(seek) = self.history.seeks.iter().rfind(of_consumer) else { return };
        for write in &self.history.writes {
            let Write { id, key, n, fate, at, .. } = write;
            let before = there.get(id.as_str()).is_some_and(|applied| *applied < seek.begun);
            if *fate == Fate::Committed
                && *at >= seek.target
                && before
                && !self.is_accounted(consumer, id, held)
                && self.lost.insert(id)
            {
                self.tell(format!(
                    "{consumer} did not apply {id} of {key} (number {n}) again after a seek"
                ));
            }
        }
    }

    fn reads(&self, place: &str, write: &Write) -> bool {
        let Some(topics) = self.history.readers.get(place) else { return true };
        topics.get(&write.topic).is_some_and(|since| write.at >= *since)
    }

    fn is_accounted(&self, place: &str, id: &str, held: &BTreeSet<String>) -> bool {
        let history = self.history;
        held.contains(id)
            || history.quarantined.contains(id)
            || history.dropped.contains(id)
            || history.perhaps_dropped.contains(id)
            || history.given_up.get(place).is_some_and(|ids| ids.contains_key(id))
    }

    /// Whatever is applied of a key must come before whatever is held of it.
    fn followers(&mut self, consumer: &str, lists: &LastPass<'h>, held: &BTreeSet<String>) {
        let mut first: HashMap<&str, &Write> = HashMap::new();
        for id in held.iter().chain(&self.history.quarantined) {
            let Some(write) = self.writes.get(id.as_str()).copied() else { continue };
            // One that was replayed since is not held any more, whatever the table says.
            let has = |list: &&[Applied]| list.iter().any(|it| it.id == *id);
            if write.fate == Fate::Forgotten || lists.get(write.key.as_str()).is_some_and(has) {
                continue;
            }
            let earliest = first.entry(&write.key).or_insert(write);
            if write.n < earliest.n {
                *earliest = write;
            }
        }
        for (key, blocked) in first {
            for Applied { id, .. } in lists.get(key).copied().into_iter().flatten() {
                let Some(write) = self.writes.get(id.as_str()).copied() else { continue };
                if write.n > blocked.n && write.fate != Fate::Forgotten {
                    self.judgement.unparked_followers += 1;
                    let text =
                        format!("{consumer} applied {id} of {key} though {} is held", blocked.id);
                    self.tell(text);
                }
            }
        }
    }

    /// Only what is wrong itself may be refused or become a letter.
    fn wrongly_held(&mut self) {
        let history = self.history;
        let letters: BTreeMap<&str, &BTreeSet<String>> = history
            .letters
            .iter()
            .map(|(consumer, ids)| (consumer.as_str(), ids))
            .chain([("the quarantine", &history.refused)])
            .collect();
        for (place, ids) in letters {
            for id in ids {
                let Some(write) = self.writes.get(id.as_str()).copied() else { continue };
                if !write.ill && write.fate != Fate::Forgotten {
                    self.judgement.wrongly_held += 1;
                    self.tell(format!("{place} has {id} of {}, which is healthy", write.key));
                }
            }
        }
    }

    fn tell(&mut self, example: String) {
        if self.judgement.examples.len() < EXAMPLES {
            self.judgement.examples.push(example);
        }
    }
}
