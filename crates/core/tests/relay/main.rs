//! The relay under thousands of seeded schedules: crashes of relays and of the database, frozen relays, expired leases, lost
//! acknowledgements, outages, rows that are refused, and republish requests.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may panic and speak"
)]

mod store;
mod world;

use world::{Mutant, World};

/// Seeds that failed once, kept as regression tests.
const SAVED: &[u64] = &[1];

fn explore(seed: u64) -> world::Seen {
    std::panic::catch_unwind(|| World::new(seed, None).run()).unwrap_or_else(|what| {
        eprintln!("the schedule of seed {seed} fails: add it to SAVED");
        std::panic::resume_unwind(what)
    })
}

#[test]
fn schedules_that_once_failed_pass() {
    for seed in SAVED {
        explore(*seed);
    }
}

#[test]
fn whatever_happens_a_key_is_published_in_order_and_nothing_is_lost() {
    let began = std::time::Instant::now();
    let first: u64 = std::env::var("CHAPAR_SEED").map_or(0, |seed| seed.parse().unwrap());
    let schedules: u64 = std::env::var("CHAPAR_SCHEDULES").map_or(10_000, |n| n.parse().unwrap());
    let hands = std::thread::available_parallelism().map_or(1, |hands| hands.get() as u64);
    let mut seen = world::Seen::default();
    std::thread::scope(|scope| {
        let explore = |hand| {
            let mut seen = world::Seen::default();
            let seeds = (first + hand..first + schedules).step_by(hands as usize);
            seeds.for_each(|seed| seen.add(&explore(seed)));
            seen
        };
        let hands: Vec<_> = (0..hands).map(|hand| scope.spawn(move || explore(hand))).collect();
        for hand in hands {
            seen.add(&hand.join().unwrap_or_else(|what| std::panic::resume_unwind(what)));
        }
    });
    let rate = schedules as f64 / began.elapsed().as_secs_f64();
    println!("{rate:.0} schedules per second; {seen:?}");
    // A schedule in which nothing goes wrong proves nothing.
    assert!(seen.crashes > schedules / 4 && seen.thaws > schedules / 4, "{seen:?}");
    assert!(seen.store_crashes > schedules / 4, "{seen:?}");
    assert!(seen.parked > schedules && seen.quarantined > 0 && seen.lost_leases > 0, "{seen:?}");
    assert!(seen.duplicates > schedules && seen.outages > schedules / 4, "{seen:?}");
    assert!(seen.marked > schedules, "{seen:?}");
    assert!(seen.requests > schedules && seen.cancelled > schedules / 10, "{seen:?}");
    assert!(seen.republished > schedules && seen.parked_again > schedules / 10, "{seen:?}");
}

#[test]
fn every_mutant_is_convicted() {
    // A conviction is a panic of this thread, which is expected and not worth a word.
    let (this, usual) = (std::thread::current().id(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |what| {
        if std::thread::current().id() != this {
            usual(what);
        }
    }));
    let convictions: Vec<(Mutant, Option<u64>)> = Mutant::ALL
        .into_iter()
        .map(|mutant| {
            let fails = |seed: &u64| {
                std::panic::catch_unwind(|| World::new(*seed, Some(mutant)).run()).is_err()
            };
            (mutant, (0..3000).find(fails))
        })
        .collect();
    println!("convicted by seed: {convictions:?}");
    assert!(convictions.iter().all(|(_, seed)| seed.is_some()), "{convictions:?}");
}
