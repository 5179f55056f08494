//! Damaged files give mistakes with a place, never a panic and never a hang.
//!
//! Seeded and bounded: `CHAPAR_FUZZ_SEED` and `CHAPAR_FUZZ_SECONDS` ask for another walk or a
//! longer one. A finding prints its seed and run.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test may stop here, and says how far it came"
)]

#[path = "../../core/tests/support/mutation.rs"]
#[allow(unreachable_pub, reason = "shared with another crate's tests")]
mod mutation;
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use chapar_catalog::{asyncapi, bundle, cutover, docs, graph, inventory, load, policy};
use mutation::{Random, mutate};
use support::{BOOKING, CODE, CONTRACT, EXAMPLE, House, SCHEMA};

#[test]
fn files_of_services() {
    fuzz(&House::new(), BOOKING);
}

#[test]
fn the_file_of_the_system() {
    fuzz(&House::new(), "catalog.toml");
}

#[test]
fn schemas() {
    fuzz(&House::new(), SCHEMA);
}

#[test]
fn files_of_services_that_have_everything() {
    fuzz(&House::grown(), BOOKING);
}

#[test]
fn contracts_of_consumers() {
    fuzz(&House::grown(), CONTRACT);
}

#[test]
fn examples_of_consumers() {
    fuzz(&House::grown(), EXAMPLE);
}

#[test]
fn code() {
    fuzz(&House::grown(), CODE);
}

#[test]
fn messages() {
    fuzz(&House::bank(), "proto/events.proto");
}

fn fuzz(house: &House, file: &str) {
    let whole = house.text(file).into_bytes();
    let seeds = [&whole];
    let seed = setting("CHAPAR_FUZZ_SEED").unwrap_or(1.0) as u64;
    let budget = Duration::from_secs_f64(setting("CHAPAR_FUZZ_SECONDS").unwrap_or(1.5));
    let mut random = Random(seed);
    let mut runs = 0;
    let start = Instant::now();
    while start.elapsed() < budget {
        let input = mutate(&mut random, &seeds);
        house.write(file, &input);
        runs += 1;
        let begun = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| check(house)));
        let result = result.unwrap_or_else(|_| Err("it panicked".to_owned()));
        if let Err(reason) = result {
            let input = String::from_utf8_lossy(&input).into_owned();
            panic!("{file}, seed {seed}, run {runs}: {reason}\n{input:.4000}");
        }
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(10), "{file}, seed {seed}, run {runs}: {took:?}");
    }
    println!("{file}: {runs} inputs with seed {seed}");
}

fn check(house: &House) -> Result<(), String> {
    let loaded = load(house.path()).map_err(|error| error.to_string())?;
    for mistake in &loaded.mistakes {
        if mistake.place.line == 0 || mistake.place.column == 0 || mistake.message.len() > 2000 {
            return Err(format!("{mistake:?}"));
        }
    }
    let found = policy::check(house.path(), &loaded, None).map_err(|error| error.to_string())?;
    for offence in &found.offences {
        if offence.place.line == 0 || offence.message.len() > 2000 {
            return Err(format!("{offence:?}"));
        }
    }
    // Whatever is taken for flawless can be made into everything else.
    if loaded.mistakes.is_empty() {
        let _ = (inventory::topics(&loaded), inventory::grants(&loaded.catalog));
        let _ = (asyncapi::document(&loaded), graph::svg(&loaded.catalog));
        let _ = (bundle(&loaded), cutover::cutovers(&loaded, None, jiff::Timestamp::UNIX_EPOCH));
        docs::site(&loaded).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn setting(name: &str) -> Option<f64> {
    std::env::var(name).ok()?.parse().ok()
}
