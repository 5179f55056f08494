use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};

use crate::id::{Id, IdKind};

/// Tells the time.
///
/// # Contract
/// It may jump, also backwards: nothing may be lost or applied twice because of it. Leases are
/// judged by the database's clock and never by this one.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// Makes ids.
///
/// # Contract
/// Two calls never return the same id, in this process or in another.
pub trait Ids: Send + Sync {
    /// A new id of this kind.
    fn next(&self, kind: IdKind, now: Timestamp) -> Id;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Ids from the machine's source of randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemIds;

impl Ids for SystemIds {
    fn next(&self, kind: IdKind, now: Timestamp) -> Id {
        let random = uuid::Uuid::new_v4().as_u128();
        make(kind, now, random)
    }
}

/// A clock that stands still until a test turns it.
#[derive(Debug)]
pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    /// A clock that shows `start`.
    pub fn new(start: Timestamp) -> Self {
        ManualClock(Mutex::new(start))
    }

    /// Turns it forward.
    pub fn advance(&self, by: SignedDuration) {
        let mut now = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *now = now.saturating_add(by).unwrap_or(Timestamp::MAX);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Ids that are the same in every run of a test.
#[derive(Debug)]
pub struct SeededIds(Mutex<u64>);

impl SeededIds {
    /// The sequence of ids that belongs to this seed.
    pub fn new(seed: u64) -> Self {
        SeededIds(Mutex::new(seed))
    }
}

impl Ids for SeededIds {
    fn next(&self, kind: IdKind, now: Timestamp) -> Id {
        let mut state = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let random = u128::from(split_mix(&mut state)) << 64 | u128::from(split_mix(&mut state));
        make(kind, now, random)
    }
}

fn make(kind: IdKind, now: Timestamp, random: u128) -> Id {
    let ms = u64::try_from(now.as_millisecond()).unwrap_or(0);
    match kind {
        IdKind::Uuidv7 => Id::uuid_v7(ms, random),
        IdKind::Uuidv4 => Id::uuid_v4(random),
        IdKind::Ulid => Id::ulid(ms, random),
    }
}

fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
