//! Ids seen a while ago.
//!
//! Kafka has no deduplication by id: its producers dedupe only what they send again by themselves.
//! A message that is published twice is therefore recognised in two windows: by the transport that
//! had a receipt for it, and by the subscription that has seen both in one partition. What escapes
//! both (another process published it, and another reads it) meets the consumer's inbox.

use std::collections::{HashMap, VecDeque};

use chapar_core::Id;

/// The last so many ids, each with something about it.
#[derive(Debug)]
pub(super) struct Recent<T> {
    most: usize,
    known: HashMap<Id, T>,
    order: VecDeque<Id>,
}

impl<T: Copy> Recent<T> {
    pub(super) fn new(most: usize) -> Self {
        Recent { most, known: HashMap::new(), order: VecDeque::new() }
    }

    pub(super) fn get(&self, id: &Id) -> Option<T> {
        self.known.get(id).copied()
    }

    pub(super) fn insert(&mut self, id: Id, value: T) {
        if self.most == 0 || self.known.insert(id.clone(), value).is_some() {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut recent = Recent::new(2);
        let ids: Vec<Id> = (1..=3).map(Id::uuid_v4).collect();
        for (number, id) in ids.iter().enumerate() {
            recent.insert(id.clone(), number);
        }
        assert_eq!(
            ids.iter().map(|id| recent.get(id)).collect::<Vec<_>>(),
            [None, Some(1), Some(2)]
        );
        let mut nothing = Recent::new(0);
        nothing.insert(ids[0].clone(), 0);
        assert_eq!(nothing.get(&ids[0]), None);
    }
}
