//! Admission under thousands of seeded schedules: redelivery, crashes, partitions that change
//! hands, processes that go on with what they lost, failures, and operators at work.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may panic and speak"
)]

mod world;

use world::{Mutant, Seen, World};

/// Seeds that failed once, kept as regression tests.
const SAVED: &[u64] = &[2412];

fn explore(seed: u64) -> Seen {
    World::new(seed, None).run().unwrap_or_else(|wrong| {
        panic!("the schedule of seed {seed} fails, add it to SAVED: {wrong}");
    })
}

#[test]
fn schedules_that_once_failed_pass() {
    for seed in SAVED {
        explore(*seed);
    }
}

#[test]
fn whatever_happens_a_key_is_applied_in_order_and_nothing_is_lost() {
    let began = std::time::Instant::now();
    let first: u64 = std::env::var("CHAPAR_SEED").map_or(0, |seed| seed.parse().unwrap());
    let schedules: u64 = std::env::var("CHAPAR_SCHEDULES").map_or(10_000, |n| n.parse().unwrap());
    let mut seen = Seen::default();
    for seed in first..first + schedules {
        seen.add(&explore(seed));
    }
    let rate = schedules as f64 / began.elapsed().as_secs_f64();
    println!("{rate:.0} schedules per second; {seen:?}");
    // A schedule in which nothing goes wrong proves nothing.
    assert!(seen.crashes > schedules / 2 && seen.moves > schedules / 2, "{seen:?}");
    assert!(seen.duplicates > schedules && seen.parked > schedules, "{seen:?}");
    assert!(seen.letters > schedules && seen.waited > schedules, "{seen:?}");
    assert!(seen.deleted > schedules / 10 && seen.seeks > schedules / 10, "{seen:?}");
}

#[test]
fn every_mutant_is_convicted() {
    for mutant in Mutant::ALL {
        let convicted = (0..3000).find(|seed| World::new(*seed, Some(mutant)).run().is_err());
        println!("{mutant:?} is convicted by seed {convicted:?}");
        assert!(convicted.is_some(), "{mutant:?} goes unnoticed");
    }
}
