//! Simulated vendors: payment cards, door locks, messages.
//!
//! What a vendor answers depends on nothing but the seed, the idempotency key and the number
//! of the attempt, so a run can be repeated. Like a good vendor in the world, each carries out
//! an intent once, however often it is asked.

use std::collections::{HashSet, VecDeque};
use std::future::{Ready, ready};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chapar::prelude::*;

/// How often the simulated vendors fail, as shares of 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Vendors {
    /// Cards that are declined. Default 0.05.
    pub decline: f64,
    /// Locks that are offline at every attempt. Default 0.02.
    pub lock_error: f64,
    /// Attempts of any kind that fail and would not fail again. Default 0.02.
    pub flaky: f64,
    /// Another seed, other victims. Default 1.
    pub seed: u64,
}

impl Default for Vendors {
    fn default() -> Self {
        Vendors { decline: 0.05, lock_error: 0.02, flaky: 0.02, seed: 1 }
    }
}

impl Vendors {
    /// Vendors that never fail.
    pub fn reliable() -> Self {
        Vendors { decline: 0.0, lock_error: 0.0, flaky: 0.0, seed: 1 }
    }

    pub(crate) fn cards(&self) -> Simulator {
        let declined = || Failure::terminal("the card was declined");
        self.simulator("card", Some(Refused { share: self.decline, failure: declined }))
    }

    pub(crate) fn refunds(&self) -> Simulator {
        self.simulator("refund", None)
    }

    pub(crate) fn locks(&self) -> Simulator {
        let offline = || Failure::retry("the lock's gateway is offline");
        self.simulator("lock", Some(Refused { share: self.lock_error, failure: offline }))
    }

    pub(crate) fn messages(&self) -> Simulator {
        self.simulator("message", None)
    }

    fn simulator(&self, name: &'static str, refused: Option<Refused>) -> Simulator {
        let Vendors { flaky, seed, .. } = *self;
        Simulator { name, refused, flaky, seed, ledger: Arc::default() }
    }
}

/// What a vendor answers: its own name for what it did.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reference {
    pub(crate) reference: String,
}

/// One simulated vendor. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Simulator {
    name: &'static str,
    refused: Option<Refused>,
    flaky: f64,
    seed: u64,
    ledger: Arc<Mutex<Ledger>>,
}

/// An answer that some keys always get.
#[derive(Debug, Clone, Copy)]
struct Refused {
    share: f64,
    failure: fn() -> Failure,
}

/// What a vendor has carried out. It remembers the latest only, as vendors do.
#[derive(Debug, Default)]
struct Ledger {
    done: HashSet<String>,
    order: VecDeque<String>,
    carried_out: u64,
}

const REMEMBERED: usize = 10_000;

impl Simulator {
    /// The vendor as the function that makes calls of a kind.
    pub(crate) fn answering<C>(
        self,
    ) -> impl Fn(C, Attempt) -> Ready<Result<Reference, Failure>> + Send + Sync + 'static
    where
        C: Effect<Answer = Reference>,
    {
        move |_, attempt| ready(self.answer(&attempt.idempotency_key, attempt.number))
    }

    fn answer(&self, key: &str, attempt: u32) -> Result<Reference, Failure> {
        if let Some(refused) = &self.refused
            && self.dice(key, 0) < refused.share
        {
            return Err((refused.failure)());
        }
        let dice = self.dice(key, u64::from(attempt));
        if dice < self.flaky / 2.0 {
            return Err(Failure::retry(format!("the {} vendor says 503", self.name)));
        }
        self.ledger().carry_out(key);
        if dice < self.flaky {
            // The worse half: it is done, and only the answer is lost.
            let lost = format!("the {} vendor's answer did not arrive", self.name);
            return Err(Failure::retry(lost));
        }
        Ok(Reference { reference: format!("{}_{:016x}", self.name, hash(self.seed, key)) })
    }

    /// A number in 0..1 that is always the same for these.
    fn dice(&self, key: &str, attempt: u64) -> f64 {
        let bits = hash(self.seed.wrapping_add(attempt.wrapping_mul(0x9e37_79b9)), key);
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    fn carry_out(&mut self, key: &str) {
        if !self.done.insert(key.to_owned()) {
            return;
        }
        self.carried_out += 1;
        self.order.push_back(key.to_owned());
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.done.remove(&oldest);
        }
    }
}

/// FNV-1a with a finisher: the standard library's hash may change with its version.
pub(crate) fn hash(seed: u64, text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in text.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(cards: &Simulator, n: u32, attempt: u32) -> Result<Reference, Failure> {
        cards.answer(&format!("pay_{n}:capture"), attempt)
    }

    #[test]
    fn about_the_stated_share_of_cards_is_declined_and_always_the_same_ones() {
        let vendors = Vendors { decline: 0.05, flaky: 0.0, ..Vendors::default() };
        let declined = |cards: Simulator| -> Vec<u32> {
            (0..10_000).filter(|n| answer(&cards, *n, 1).is_err()).collect()
        };
        let first = declined(vendors.cards());
        assert!((400..600).contains(&first.len()), "{}", first.len());
        assert_eq!(first, declined(vendors.cards()));
    }

    #[test]
    fn a_lost_answer_is_given_again_without_a_second_charge() {
        let cards = Vendors { decline: 0.0, flaky: 0.5, ..Vendors::default() }.cards();
        for n in 0..200 {
            let answered = (1..50).find_map(|attempt| answer(&cards, n, attempt).ok());
            assert!(answered.is_some());
        }
        assert_eq!(cards.ledger().carried_out, 200);
    }
}
