//! Several processes share one subscription.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::desk::{PATIENCE, consume, fetch, numbered, publish};
use super::worker::{Got, Worker};
use super::{Bench, Desk, Lacks, Verdict};

const KEYS: [&str; 16] =
    ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];

/// Two processes each get a part of the messages, and every key is in order.
pub async fn competing_processes_share_the_messages<B: Bench>(desk: Desk<B>) -> Verdict {
    let transport = desk.transport("relay").await;
    desk.apply(&*transport).await;
    let spec = desk.spec("reader");
    let workers = [desk.worker("first", &spec).await, desk.worker("second", &spec).await];
    let mut history = Vec::new();
    let (mut number, limit) = (0, Instant::now() + PATIENCE);
    // A process that joins gets its share after some time: publish until both have seen messages.
    while ["first", "second"]
        .iter()
        .any(|owner| !history.iter().any(|got: &Got| got.owner == *owner))
    {
        number += 1;
        publish(&*transport, KEYS.map(|key| desk.message(key, number)).to_vec()).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        workers.iter().for_each(|worker| history.extend(worker.reports()));
        assert!(Instant::now() < limit, "only one process gets messages");
    }
    settle(&workers, &mut history, number).await;
    check_order(&mut history);
    Ok(())
}

/// When a process is killed, another takes over its messages.
pub async fn a_crashed_process_leaves_its_messages_to_others<B: Bench>(desk: Desk<B>) -> Verdict {
    let transport = desk.transport("relay").await;
    desk.apply(&*transport).await;
    let spec = desk.spec("reader");
    let mut workers = [desk.worker("victim", &spec).await, desk.worker("heir", &spec).await];
    let mut history = Vec::new();
    let (mut number, limit) = (0, Instant::now() + PATIENCE);
    // Where processes do not own partitions, the other one may take everything at first.
    while !history.iter().any(|got: &Got| got.owner == "victim") {
        number += 1;
        publish(&*transport, KEYS.map(|key| desk.message(key, number)).to_vec()).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        workers.iter().for_each(|worker| history.extend(worker.reports()));
        assert!(Instant::now() < limit, "the first process gets nothing");
    }
    workers[0].kill();
    number += 1;
    publish(&*transport, KEYS.map(|key| desk.message(key, number)).to_vec()).await;
    settle(&workers, &mut history, number).await;
    check_order(&mut history);
    Ok(())
}

/// Processes join, leave and crash while messages are published; no key is ever out of order.
pub async fn order_holds_while_processes_join_and_leave<B: Bench>(desk: Desk<B>) -> Verdict {
    let transport = desk.transport("relay").await;
    desk.apply(&*transport).await;
    let spec = desk.spec("reader");
    let mut workers = vec![desk.worker("w0", &spec).await];
    let mut history = Vec::new();
    let mut number = 0;
    for (step, change) in ["join", "join", "leave", "join", "kill", "join"].into_iter().enumerate()
    {
        for _ in 0..10 {
            number += 1;
            publish(&*transport, KEYS.map(|key| desk.message(key, number)).to_vec()).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        match change {
            "join" => workers.push(desk.worker(&format!("w{}", step + 1), &spec).await),
            "leave" => workers[step % 2].leave().await,
            _ => workers[1].kill(),
        }
        workers.iter().for_each(|worker| history.extend(worker.reports()));
    }
    settle(&workers, &mut history, number).await;
    check_order(&mut history);
    Ok(())
}

/// A process that is frozen for longer than its lease and then resumed neither loses a message nor
/// breaks the order of a key: another process owns its partitions by then.
pub async fn a_process_that_overslept_does_no_harm<B: Bench>(desk: Desk<B>) -> Verdict {
    if !B::FREEZES {
        return Err(Lacks("continue while a process is frozen at any point"));
    }
    let transport = desk.transport("relay").await;
    desk.apply(&*transport).await;
    let spec = desk.spec("reader");
    let workers = [desk.worker("sleeper", &spec).await, desk.worker("heir", &spec).await];
    let (mut history, mut number, mut frozen, mut woken) = (Vec::new(), 0, None, None);
    let limit = Instant::now() + PATIENCE;
    while woken.is_none_or(|woken: Instant| woken.elapsed() < Duration::from_millis(500)) {
        number += 1;
        publish(&*transport, KEYS.map(|key| desk.message(key, number)).to_vec()).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        workers.iter().for_each(|worker| history.extend(worker.reports()));
        match frozen {
            None if history.iter().any(|got: &Got| got.owner == "sleeper") => {
                workers[0].freeze();
                frozen = Some(number);
            }
            // Once a later message of every key is delivered, the heir owns all partitions.
            Some(since) if woken.is_none() && all_reached(&history, since + 1) => {
                workers[0].wake();
                woken = Some(Instant::now());
            }
            _ => {}
        }
        assert!(Instant::now() < limit, "the partitions of the sleeper are not taken over");
    }
    settle(&workers, &mut history, number).await;
    check_order(&mut history);
    Ok(())
}

/// When a process closes its subscription, its unacknowledged messages are delivered to the next one
/// without waiting for a lease.
pub async fn a_closed_subscription_hands_over_at_once<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    publish(&*transport, desk.messages(&["a"], 6)).await;
    consume(&*reader, 2).await;
    fetch(&*reader, 4).await;
    reader.close().await.expect("it leaves");
    let since = Instant::now();
    let next = desk.transport("two").await;
    let next = next.subscribe(&desk.spec("reader")).await.expect("a subscription");
    let got = consume(&*next, 4).await;
    assert_eq!(super::desk::bodies(&got), numbered("a", 3..=6));
    assert!(since.elapsed() < Duration::from_millis(900), "took {:?}", since.elapsed());
    Ok(())
}

/// Waits until every number of every key has been delivered.
async fn settle(workers: &[Worker], history: &mut Vec<Got>, last: u32) {
    let limit = Instant::now() + PATIENCE * 2;
    let wanted: BTreeSet<String> = KEYS.iter().flat_map(|key| numbered(key, 1..=last)).collect();
    loop {
        workers.iter().for_each(|worker| history.extend(worker.reports()));
        let seen: BTreeSet<String> = history.iter().map(|got| got.body.clone()).collect();
        let missing: Vec<_> = wanted.difference(&seen).take(5).collect();
        if missing.is_empty() {
            return;
        }
        assert!(Instant::now() < limit, "never delivered, among others: {missing:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn all_reached(history: &[Got], number: u32) -> bool {
    let seen = |key: &&str| history.iter().any(|got| got.body == format!("{key}:{number}"));
    KEYS.iter().all(seen)
}

/// A delivery may repeat an earlier one, and must not skip one.
fn check_order(history: &mut [Got]) {
    history.sort_by_key(|got| got.at);
    let mut reached: HashMap<&str, u32> = HashMap::new();
    for got in history.iter() {
        let (key, number) = got.body.split_once(':').expect("a body of this suite");
        let number: u32 = number.parse().expect("a body of this suite");
        let reached = reached.entry(key).or_default();
        assert!(
            number <= *reached + 1,
            "{} got {} as delivery {} before {key}:{}",
            got.owner,
            got.body,
            got.attempt,
            *reached + 1,
        );
        *reached = number.max(*reached);
    }
}
