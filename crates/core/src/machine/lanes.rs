//! Lanes: parallel work, but one key at a time and in order.

use std::collections::{HashMap, VecDeque};

/// Hands out items so that no two of a key are worked on at once and each key keeps its order.
///
/// Tenants take turns, and within a tenant its keys: a served key goes to the end of the queue, so
/// neither a long key nor a busy tenant starves the others. Items without a key take any turn of
/// their tenant. The caller bounds the number of items by asking [`Lanes::room`] before it fetches
/// more; fairness holds within that bound.
#[derive(Debug)]
pub struct Lanes<T> {
    capacity: usize,
    held: usize,
    keys: HashMap<String, Lane<T>>,
    /// The ready keys of each tenant; no queue is empty.
    ready: HashMap<String, VecDeque<Turn<T>>>,
    /// The tenants with ready items, next first.
    tenants: VecDeque<String>,
}

#[derive(Debug)]
struct Lane<T> {
    tenant: String,
    waiting: VecDeque<T>,
    busy: bool,
}

#[derive(Debug)]
enum Turn<T> {
    Key(String),
    Loose(T),
}

/// An item that was handed out, with its key for [`Lanes::done`].
#[derive(Debug, PartialEq, Eq)]
pub struct Taken<T> {
    /// The key, unless the item has none.
    pub key: Option<String>,
    /// The item.
    pub item: T,
}

impl<T> Lanes<T> {
    /// Lanes that hold at most `capacity` items, including those being worked on.
    pub fn new(capacity: usize) -> Self {
        Lanes {
            capacity,
            held: 0,
            keys: HashMap::new(),
            ready: HashMap::new(),
            tenants: VecDeque::new(),
        }
    }

    /// How many more items fit.
    pub fn room(&self) -> usize {
        self.capacity.saturating_sub(self.held)
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// How many items of a key wait.
    pub fn waiting(&self, key: &str) -> usize {
        self.keys.get(key).map_or(0, |lane| lane.waiting.len())
    }

    /// Adds an item after the others of its key.
    pub fn push(&mut self, tenant: &str, key: Option<String>, item: T) {
        self.held += 1;
        let Some(key) = key else {
            self.line_up(tenant, Turn::Loose(item));
            return;
        };
        let lane = self.keys.entry(key.clone()).or_insert_with(|| Lane {
            tenant: tenant.to_owned(),
            waiting: VecDeque::new(),
            busy: false,
        });
        lane.waiting.push_back(item);
        if !lane.busy && lane.waiting.len() == 1 {
            self.line_up_key(key);
        }
    }

    fn line_up_key(&mut self, key: String) {
        let Some(tenant) = self.keys.get(&key).map(|lane| lane.tenant.clone()) else { return };
        self.line_up(&tenant, Turn::Key(key));
    }

    fn line_up(&mut self, tenant: &str, turn: Turn<T>) {
        match self.ready.get_mut(tenant) {
            Some(line) => line.push_back(turn),
            None => {
                self.ready.insert(tenant.to_owned(), VecDeque::from([turn]));
                self.tenants.push_back(tenant.to_owned());
            }
        }
    }

    /// The next turn of the tenant whose turn it is.
    fn next_turn(&mut self) -> Option<Turn<T>> {
        let tenant = self.tenants.pop_front()?;
        let line = self.ready.get_mut(&tenant)?;
        let turn = line.pop_front();
        if line.is_empty() {
            self.ready.remove(&tenant);
        } else {
            self.tenants.push_back(tenant);
        }
        turn
    }

    /// Takes at most `max` items for one transaction: all waiting items of a key together, then the
    /// next key. A key stays busy until [`Lanes::done`] has been called for each of its items.
    pub fn take_runs(&mut self, max: usize) -> Vec<Taken<T>> {
        let mut taken = Vec::new();
        while taken.len() < max
            && let Some(turn) = self.next_turn()
        {
            match turn {
                Turn::Loose(item) => taken.push(Taken { key: None, item }),
                Turn::Key(key) => {
                    let lane = self.keys.get_mut(&key).expect("a ready key has a lane");
                    lane.busy = true;
                    let run = lane.waiting.len().min(max - taken.len());
                    let run = lane.waiting.drain(..run);
                    taken.extend(run.map(|item| Taken { key: Some(key.clone()), item }));
                }
            }
        }
        taken
    }

    /// `items` of a key are finished; its next item may be taken.
    pub fn done(&mut self, key: Option<&str>, items: usize) {
        self.held = self.held.saturating_sub(items);
        let Some(key) = key else { return };
        let Some(lane) = self.keys.get_mut(key) else { return };
        lane.busy = false;
        if lane.waiting.is_empty() {
            self.keys.remove(key);
        } else {
            self.line_up_key(key.to_owned());
        }
    }

    /// Items are finished, but their key stays busy: others of it wait for a retry.
    pub fn settle(&mut self, items: usize) {
        self.held = self.held.saturating_sub(items);
    }

    /// Puts items of a key back in front, in the given order, because they were not applied.
    pub fn put_back(&mut self, key: &str, items: Vec<T>) {
        self.put_back_and(key, items, |_| ());
    }

    /// Puts items of a key back, and reorders all waiting items of the key.
    pub fn put_back_and(&mut self, key: &str, items: Vec<T>, arrange: impl FnOnce(&mut [T])) {
        let Some(lane) = self.keys.get_mut(key) else { return };
        lane.busy = false;
        for item in items.into_iter().rev() {
            lane.waiting.push_front(item);
        }
        arrange(lane.waiting.make_contiguous());
        self.line_up_key(key.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys<T>(taken: &[Taken<T>]) -> Vec<&str> {
        taken.iter().filter_map(|t| t.key.as_deref()).collect()
    }

    #[test]
    fn a_busy_key_does_not_delay_its_neighbours() {
        let mut lanes = Lanes::new(10);
        lanes.push("t", Some("a".into()), 1);
        assert_eq!(keys(&lanes.take_runs(9)), ["a"]);
        for (key, n) in [("a", 2), ("b", 1)] {
            lanes.push("t", Some(key.into()), n);
        }
        assert_eq!(keys(&lanes.take_runs(9)), ["b"]);
        assert!(lanes.take_runs(9).is_empty(), "both keys are busy");
        lanes.done(Some("a"), 1);
        assert_eq!(lanes.take_runs(9), [Taken { key: Some("a".into()), item: 2 }]);
    }

    #[test]
    fn items_without_a_key_wait_for_nobody() {
        let mut lanes = Lanes::new(10);
        lanes.push("t", None, 1);
        lanes.push("t", None, 2);
        assert_eq!(lanes.take_runs(1).len(), 1);
        assert_eq!(lanes.take_runs(9).len(), 1);
    }

    #[test]
    fn items_that_wait_for_their_next_attempt_keep_their_key_busy_and_give_up_no_room() {
        let mut lanes = Lanes::new(3);
        for n in 0..3 {
            lanes.push("t", Some("a".into()), n);
        }
        assert_eq!(lanes.room(), 0);
        assert_eq!(lanes.take_runs(2).len(), 2);
        lanes.settle(1);
        assert_eq!(lanes.room(), 1);
        assert!(lanes.take_runs(9).is_empty());
        lanes.put_back("a", vec![1]);
        let items: Vec<_> = lanes.take_runs(9).into_iter().map(|taken| taken.item).collect();
        assert_eq!(items, [1, 2]);
    }

    #[test]
    fn a_run_takes_all_that_waits_of_a_key_in_order() {
        let mut lanes = Lanes::new(10);
        for (key, n) in [("a", 1), ("b", 1), ("a", 2)] {
            lanes.push("t", Some(key.into()), n);
        }
        let taken = lanes.take_runs(9);
        assert_eq!(taken.iter().map(|t| t.item).collect::<Vec<_>>(), [1, 2, 1]);
        lanes.put_back("a", vec![1, 2]);
        lanes.done(Some("b"), 1);
        assert_eq!(lanes.take_runs(1)[0].item, 1);
        lanes.done(Some("a"), 1);
        assert_eq!((lanes.take_runs(9)[0].item, lanes.room()), (2, 9));
    }

    proptest! {
        /// However many items and keys a loud tenant has in front: a quiet one's first key is
        /// served within the first turns, one for each tenant.
        #[test]
        fn a_flood_of_one_tenant_does_not_starve_another(
            flood in 1usize..300,
            keys in 1usize..40,
            quiet in 1usize..5,
            most in 1usize..50,
        ) {
            let mut lanes = Lanes::new(usize::MAX);
            for n in 0..flood {
                lanes.push("loud", Some(format!("loud-{}", n % keys)), ("loud".to_owned(), n));
            }
            for tenant in 0..quiet {
                let name = format!("quiet-{tenant}");
                lanes.push(&name, Some(name.clone()), (name.clone(), 0));
            }
            let mut turns: Vec<String> = Vec::new();
            let mut rounds = 0;
            while !lanes.is_empty() {
                let taken = lanes.take_runs(most);
                rounds += 1;
                prop_assert!(!taken.is_empty());
                for run in taken.chunk_by(|a, b| a.key == b.key) {
                    turns.push(run[0].item.0.clone());
                    lanes.done(run[0].key.as_deref(), run.len());
                }
                if rounds > 10_000 { break; }
            }
            for tenant in 0..quiet {
                let name = format!("quiet-{tenant}");
                let place = turns.iter().position(|turn| *turn == name);
                prop_assert!(place.is_some_and(|place| place <= quiet), "{name} at {place:?}");
            }
        }

        /// Whatever is pushed, taken and finished in whatever order: every item comes out once,
        /// each key in order, and never two of a key at a time.
        #[test]
        fn every_item_once_and_each_key_in_order(
            pushes in prop::collection::vec(0u8..5, 1..80),
            finish in prop::collection::vec(any::<prop::sample::Index>(), 200),
            most in 1usize..6,
        ) {
            let mut lanes = Lanes::new(usize::MAX);
            for (n, key) in pushes.iter().enumerate() {
                lanes.push("t", Some(key.to_string()), n);
            }
            let mut out: HashMap<String, Vec<usize>> = HashMap::new();
            let mut working: Vec<(String, usize)> = Vec::new();
            for index in finish {
                let busy: Vec<String> = working.iter().map(|(key, _)| key.clone()).collect();
                for t in lanes.take_runs(most) {
                    let key = t.key.unwrap();
                    prop_assert!(!busy.contains(&key), "{key} is worked on twice");
                    match working.iter_mut().find(|(known, _)| *known == key) {
                        Some((_, n)) => *n += 1,
                        None => working.push((key.clone(), 1)),
                    }
                    out.entry(key).or_default().push(t.item);
                }
                if !working.is_empty() {
                    let (key, n) = working.swap_remove(index.index(working.len()));
                    lanes.done(Some(&key), n);
                }
            }
            prop_assert!(lanes.is_empty());
            prop_assert_eq!(out.values().map(Vec::len).sum::<usize>(), pushes.len());
            for items in out.values() {
                prop_assert!(items.is_sorted());
            }
        }
    }
}
