//! Partition ownership under thousands of seeded schedules: members join, leave, crash, freeze past
//! their lease and wake up as zombies, and answers of the store get lost.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test may panic and print"
)]

mod store;
mod world;

use store::Kind;
use world::{Seen, World};

fn explore(kind: Kind, seed: u64) -> Seen {
    std::panic::catch_unwind(|| World::new(kind, seed).run()).unwrap_or_else(|what| {
        eprintln!("the schedule of seed {seed} over {kind:?} fails");
        std::panic::resume_unwind(what)
    })
}

fn explore_all(kind: Kind) {
    let first: u64 = std::env::var("CHAPAR_SEED").map_or(0, |seed| seed.parse().unwrap());
    let schedules: u64 = std::env::var("CHAPAR_SCHEDULES").map_or(1_500, |n| n.parse().unwrap());
    let mut seen = Seen::default();
    (first..first + schedules).for_each(|seed| seen.add(&explore(kind, seed)));
    println!("{kind:?}: {seen:?}");
    // A schedule in which nothing goes wrong proves nothing.
    assert!(seen.takeovers > schedules && seen.hand_overs > schedules, "{seen:?}");
    assert!(seen.zombie_acks > schedules / 4 && seen.refused_here > schedules / 4, "{seen:?}");
    assert!(seen.lost_answers > schedules && seen.retaken > schedules / 4, "{seen:?}");
}

#[test]
fn one_owner_at_a_time_with_rows_and_the_clock_of_the_store() {
    explore_all(Kind::Rows);
}

#[test]
fn one_owner_at_a_time_with_a_document_and_heartbeats() {
    explore_all(Kind::Document);
}
