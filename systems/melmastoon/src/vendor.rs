//! Simulated vendors: payment cards, door locks, messages.
//!
//! What a vendor answers depends on nothing but the seed, the idempotency key and the number
//! of the attempt, so a run can be repeated. Like a good vendor in the world, each carries out
//! an intent once, however often it is asked.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use chapar::core::port::{BoxFuture, Effect, EffectError, Effects};
use serde_json::{Value, json};

/// How often the simulated vendors fail, as shares of 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Vendors {
    /// Cards that are declined. Default 0.05.
    pub decline: f64,
    /// Locks that are out of reach at every attempt. Default 0.02.
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
        let declined = EffectError::Terminal("the card was declined".into());
        self.simulator("card", Some(Refusal { share: self.decline, error: declined }))
    }

    pub(crate) fn refunds(&self) -> Simulator {
        self.simulator("refund", None)
    }

    pub(crate) fn locks(&self) -> Simulator {
        let offline = EffectError::Retryable("the lock's gateway is offline".into());
        self.simulator("lock", Some(Refusal { share: self.lock_error, error: offline }))
    }

    pub(crate) fn messages(&self) -> Simulator {
        self.simulator("message", None)
    }

    fn simulator(&self, name: &'static str, refusal: Option<Refusal>) -> Simulator {
        let Vendors { flaky, seed, .. } = *self;
        Simulator { name, refusal, flaky, seed, ledger: Mutex::default() }
    }
}

/// One simulated vendor.
#[derive(Debug)]
pub(crate) struct Simulator {
    name: &'static str,
    refusal: Option<Refusal>,
    flaky: f64,
    seed: u64,
    ledger: Mutex<Ledger>,
}

/// An answer that some keys always get.
#[derive(Debug)]
struct Refusal {
    share: f64,
    error: EffectError,
}

/// What a vendor has carried out. It remembers the latest only, as vendors do.
#[derive(Debug, Default)]
struct Ledger {
    done: HashSet<String>,
    order: VecDeque<String>,
    carried_out: u64,
}

const REMEMBERED: usize = 10_000;

impl Effects for Simulator {
    fn run<'a>(&'a self, effect: &'a Effect) -> BoxFuture<'a, Result<Value, EffectError>> {
        Box::pin(std::future::ready(self.answer(effect)))
    }
}

impl Simulator {
    fn answer(&self, effect: &Effect) -> Result<Value, EffectError> {
        let key = &effect.idempotency_key;
        if let Some(refusal) = &self.refusal
            && self.dice(key, 0) < refusal.share
        {
            return Err(refusal.error.clone());
        }
        let dice = self.dice(key, u64::from(effect.attempt));
        if dice < self.flaky / 2.0 {
            return Err(EffectError::Retryable(format!("the {} vendor says 503", self.name)));
        }
        self.ledger().carry_out(key);
        if dice < self.flaky {
            // The worse half: it is done, and only the answer is lost.
            let lost = format!("the {} vendor's answer did not arrive", self.name);
            return Err(EffectError::Retryable(lost));
        }
        Ok(json!({ "reference": format!("{}_{:016x}", self.name, hash(self.seed, key)) }))
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

    fn effect(n: u32, attempt: u32) -> Effect {
        Effect {
            kind: "payment.capture".into(),
            idempotency_key: format!("pay_{n}:capture"),
            tenant: "acme".parse().unwrap(),
            request: Value::Null,
            attempt,
        }
    }

    #[test]
    fn about_the_stated_share_of_cards_is_declined_and_always_the_same_ones() {
        let vendors = Vendors { decline: 0.05, flaky: 0.0, ..Vendors::default() };
        let declined = |cards: Simulator| -> Vec<u32> {
            (0..10_000).filter(|n| cards.answer(&effect(*n, 1)).is_err()).collect()
        };
        let first = declined(vendors.cards());
        assert!((400..600).contains(&first.len()), "{}", first.len());
        assert_eq!(first, declined(vendors.cards()));
    }

    #[test]
    fn a_lost_answer_is_given_again_without_a_second_charge() {
        let cards = Vendors { decline: 0.0, flaky: 0.5, ..Vendors::default() }.cards();
        for n in 0..200 {
            let answered = (1..50).find_map(|attempt| cards.answer(&effect(n, attempt)).ok());
            assert!(answered.is_some());
        }
        assert_eq!(cards.ledger().carried_out, 200);
    }
}
