//! Read models: kept, built again beside the one that is served, and compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chapar::ops::{Edit, Letters, Operator, SeekTarget};
use chapar::{Projection, Running, Service, Tenant, read_model};
use chapar_sql::{Backend, ProjectionCard, Tables};
use serde::{Deserialize, Serialize};

use crate::harness::{House, Noted, eventually, on_each_store, stop};
use crate::seek::back_to;

on_each_store!(
    documents_follow_from_events_and_tenants_stay_apart,
    a_rebuild_gives_the_same_while_the_old_one_is_served,
    a_rebuild_mends_what_was_spoilt,
    a_rebuild_from_the_snapshot_reads_only_what_came_after,
    a_game_day_compares_and_changes_nothing,
    a_rebuild_leaves_out_what_is_held,
    a_rebuild_has_what_operators_made_of_dead_letters,
    a_rebuild_has_what_the_inbox_has_forgotten,
    a_consumer_goes_back_to_the_snapshot,
);

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sum {
    events: i64,
    sum: i64,
    last: i64,
}

const SUMS: &str = "reports.sums";

/// A sum by key and one of all keys, which no event may be counted in twice.
fn sums() -> Projection<Sum> {
    let fold = |sum: &mut Option<Sum>, noted: &Noted| {
        let sum = sum.get_or_insert_default();
        *sum = Sum { events: sum.events + 1, sum: sum.sum + noted.n, last: noted.n };
    };
    Projection::new(SUMS)
        .on(|noted: &Noted| noted.key.clone(), fold)
        .on(|_: &Noted| "all".to_owned(), fold)
        .snapshot_every(1_000_000)
}

async fn start(house: &House, projection: Projection<Sum>) -> Running {
    house
        .app()
        .service(Service::new("reporting-service").projection(projection))
        .start()
        .await
        .unwrap()
}

impl House {
    async fn sum(&self, tenant: &str, key: &str) -> Option<Sum> {
        let tenant: Tenant = tenant.parse().unwrap();
        let mut tx = self.chapar.begin(&tenant).await.unwrap();
        read_model(&mut tx, SUMS, &tenant, key).await.unwrap()
    }

    async fn counted(&self, events: i64) {
        eventually("all is counted", async || {
            self.sum("acme", "all").await.is_some_and(|sum| sum.events == events)
        })
        .await;
    }

    async fn ask(&self, wanted: &str) {
        let mut tx = self.chapar.store().begin_engine().await.unwrap();
        assert!(tx.projections().ask_for_build(SUMS, wanted, "ada", "a test").await.unwrap());
        tx.commit().await.unwrap();
    }

    async fn card(&self) -> ProjectionCard {
        let mut tx = self.chapar.store().begin_engine().await.unwrap();
        tx.projections().list().await.unwrap().remove(0)
    }

    async fn built(&self, wanted: &str) -> ProjectionCard {
        self.ask(wanted).await;
        eventually("it is built", async || self.card().await.finished_at.is_some()).await;
        self.card().await
    }

    async fn spoil(&self) {
        let spoil = match self.chapar.store().backend() {
            Backend::Postgres => {
                "update chapar.projection_rows set doc = '{\"events\":0,\"sum\":0,\"last\":0}' where build > 0"
            }
            Backend::Sqlite => {
                "update chapar_projection_rows set doc = '{\"events\":0,\"sum\":0,\"last\":0}' where build > 0"
            }
        };
        let mut tx = self.chapar.store().begin_engine().await.unwrap();
        tx.execute(spoil, vec![]).await.unwrap();
        tx.commit().await.unwrap();
    }
}

async fn documents_follow_from_events_and_tenants_stay_apart(house: House) {
    let running = start(&house, sums()).await;
    house.note("acme", "a", 1..=4).await;
    house.note("umbrella", "a", [10]).await;
    house.counted(4).await;
    assert_eq!(house.sum("acme", "a").await, Some(Sum { events: 4, sum: 10, last: 4 }));
    eventually("the other too", async || house.sum("umbrella", "a").await.is_some()).await;
    assert_eq!(house.sum("umbrella", "all").await, Some(Sum { events: 1, sum: 10, last: 10 }));
    assert_eq!(house.sum("umbrella", "b").await, None);
    let card = house.card().await;
    assert_eq!((card.docs, card.events, card.build), (4, 5, 1));
    assert!(card.last_event.is_some() && card.last_at.is_some());
    stop(running).await;
}

async fn a_rebuild_gives_the_same_while_the_old_one_is_served(house: House) {
    let running = start(&house, sums()).await;
    house.note("acme", "a", 1..=50).await;
    house.counted(50).await;
    let writing = Arc::new(AtomicBool::new(true));
    let served = async {
        let mut looks = 0;
        while writing.load(Ordering::Relaxed) {
            let sum = house.sum("acme", "all").await.expect("it is served all the time");
            assert!(sum.events >= 50, "{sum:?}");
            looks += 1;
        }
        looks
    };
    let write = async {
        house.ask("rebuild").await;
        let mut n = 50;
        while house.card().await.finished_at.is_none() {
            n += 1;
            house.note("acme", if n % 2 == 0 { "a" } else { "b" }, [n]).await;
        }
        house.note("acme", "a", n + 1..=n + 10).await;
        house.counted(n + 10).await;
        writing.store(false, Ordering::Relaxed);
        n + 10
    };
    let (looks, all) = tokio::join!(served, write);
    assert!(looks > 0);
    let sum = house.sum("acme", "all").await.unwrap();
    assert_eq!((sum.events, sum.sum), (all, all * (all + 1) / 2), "none missing, none twice");
    let card = house.card().await;
    assert_eq!((card.build, card.outcome.as_deref()), (2, Some("rebuilt")));
    assert!(card.micros.unwrap() > 0 && card.done >= 50, "{card:?}");
    stop(running).await;
}

async fn a_rebuild_mends_what_was_spoilt(house: House) {
    let running = start(&house, sums()).await;
    house.note("acme", "a", 1..=9).await;
    house.counted(9).await;
    house.spoil().await;
    assert_eq!(house.sum("acme", "a").await, Some(Sum::default()));
    house.built("rebuild").await;
    assert_eq!(house.sum("acme", "a").await, Some(Sum { events: 9, sum: 45, last: 9 }));
    stop(running).await;
}

async fn a_rebuild_from_the_snapshot_reads_only_what_came_after(house: House) {
    let running = start(&house, sums().snapshot_every(5)).await;
    house.note("acme", "a", 1..=6).await;
    eventually("a snapshot", async || house.card().await.snapshot_at.is_some()).await;
    house.counted(6).await;
    stop(running).await;
    let running = start(&house, sums()).await;
    house.note("acme", "a", 7..=9).await;
    house.counted(9).await;
    let card = house.card().await;
    assert!((3..9).contains(&card.since_snapshot), "{card:?}");
    house.spoil().await;
    let card = house.built("tail").await;
    assert_eq!(card.outcome.as_deref(), Some("rebuilt"), "{card:?}");
    assert_eq!(house.sum("acme", "a").await, Some(Sum { events: 9, sum: 45, last: 9 }));
    stop(running).await;
}

async fn a_game_day_compares_and_changes_nothing(house: House) {
    let running = start(&house, sums()).await;
    house.note("acme", "a", 1..=9).await;
    house.counted(9).await;
    let card = house.built("game-day").await;
    assert_eq!((card.outcome.as_deref(), card.differences), (Some("compared"), Some(0)));
    house.spoil().await;
    let card = house.built("game-day").await;
    assert_eq!((card.build, card.differences), (1, Some(2)), "{card:?}");
    assert_eq!(house.sum("acme", "a").await, Some(Sum::default()), "it only looks");
    stop(running).await;
}

async fn a_rebuild_leaves_out_what_is_held(house: House) {
    let broken = Arc::new(AtomicBool::new(true));
    let wrong = broken.clone();
    let fold = move |sum: &mut Option<Sum>, noted: &Noted| {
        assert!(noted.key != "bad" || !wrong.load(Ordering::Relaxed), "cannot fold this");
        let sum = sum.get_or_insert_default();
        *sum = Sum { events: sum.events + 1, sum: sum.sum + noted.n, last: noted.n };
    };
    let projection = Projection::new(SUMS).on(|_: &Noted| "all".to_owned(), fold);
    let app = house.app().service(Service::new("s").projection_with(projection, |consumer| {
        consumer.retry(1).backoff(Duration::from_millis(1), Duration::from_millis(1))
    }));
    let running = app.start().await.unwrap();
    house.note("acme", "bad", 1..=2).await;
    house.note("acme", "good", [5]).await;
    eventually("one is a letter", async || house.letters().await.len() == 1).await;
    house.counted(1).await;
    house.built("rebuild").await;
    assert_eq!(house.sum("acme", "all").await, Some(Sum { events: 1, sum: 5, last: 5 }));
    broken.store(false, Ordering::Relaxed);
    let letter = house.letters().await.remove(0);
    house.replay(&letter.id).await;
    house.counted(3).await;
    house.built("rebuild").await;
    assert_eq!(house.sum("acme", "all").await.unwrap().sum, 8, "nothing twice");
    stop(running).await;
}

async fn a_rebuild_has_what_operators_made_of_dead_letters(house: House) {
    let fold = |sum: &mut Option<Sum>, noted: &Noted| {
        assert!(noted.n >= 0, "cannot fold this");
        let sum = sum.get_or_insert_default();
        *sum = Sum { events: sum.events + 1, sum: sum.sum + noted.n, last: 0 };
    };
    let projection = Projection::new(SUMS).on(|_: &Noted| "all".to_owned(), fold);
    let app = house.app().service(Service::new("s").projection_with(projection, |consumer| {
        consumer.retry(1).backoff(Duration::from_millis(1), Duration::from_millis(1))
    }));
    let running = app.start().await.unwrap();
    for (key, numbers) in [("once", [-1, 2]), ("again", [-5, 6])] {
        house.note("acme", key, numbers).await;
    }
    eventually("both are letters", async || house.letters().await.len() == 2).await;
    let letters = Letters::of(house.chapar.store());
    let edit = async |key: &str, n: i64| {
        let by = Operator { name: "ada", reason: "a wrong sign" };
        let found = house.letters().await.into_iter();
        let mut found = found.filter(|l| l.arrival.ordering_key.as_deref() == Some(key));
        let id = found.next().unwrap().id;
        let edit = Edit::Payload(format!("{{\"key\": \"x\", \"n\": {n}}}"));
        letters.edit_and_replay(&house.chapar, &id, &edit, by).await.unwrap();
    };
    edit("acme:once", 10).await;
    edit("acme:again", -50).await;
    house.counted(2).await;
    eventually("it failed as edited", async || {
        let letters = house.letters().await;
        letters.len() == 1 && letters[0].attempts > 1 && letters[0].status == "open"
    })
    .await;
    edit("acme:again", 50).await;
    house.counted(4).await;
    let expected = 10 + 2 + 50 + 6;
    assert_eq!(house.sum("acme", "all").await.unwrap().sum, expected);
    let card = house.built("game-day").await;
    assert_eq!((card.outcome.as_deref(), card.differences), (Some("compared"), Some(0)));
    house.spoil().await;
    house.built("rebuild").await;
    assert_eq!(house.sum("acme", "all").await.unwrap().sum, expected);
    stop(running).await;
}

async fn a_rebuild_has_what_the_inbox_has_forgotten(house: House) {
    let running = start(&house, sums()).await;
    house.note("acme", "a", 1..=5).await;
    house.counted(5).await;
    // As after weeks: the inbox was tidied, and the consumer is older than its memory.
    let changes = match house.chapar.store().backend() {
        Backend::Postgres => [
            "delete from chapar.inbox",
            "update chapar.topic_readers set first_seen = first_seen - interval '3 days'",
        ],
        Backend::Sqlite => [
            "delete from chapar_inbox",
            "update chapar_topic_readers set first_seen = first_seen - 259200000000",
        ],
    };
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    for change in changes {
        tx.execute(change, vec![]).await.unwrap();
    }
    tx.commit().await.unwrap();
    house.note("acme", "a", 6..=9).await;
    house.counted(9).await;
    house.spoil().await;
    house.built("rebuild").await;
    assert_eq!(house.sum("acme", "a").await, Some(Sum { events: 9, sum: 45, last: 9 }));
    stop(running).await;
}

async fn a_consumer_goes_back_to_the_snapshot(house: House) {
    let running = start(&house, sums().snapshot_every(5)).await;
    let seek = back_to(SUMS, SeekTarget::Snapshot);
    let refused = house.seek(&seek).await.unwrap_err().to_string();
    assert!(refused.starts_with("CH3023"), "{refused}");
    house.note("acme", "a", 1..=6).await;
    eventually("a snapshot", async || house.card().await.snapshot_at.is_some()).await;
    house.counted(6).await;
    stop(running).await;
    let running = start(&house, sums()).await;
    house.note("acme", "a", 7..=9).await;
    house.counted(9).await;
    let behind = house.card().await.since_snapshot as u64;
    let preview = house.seek(&seek).await.unwrap();
    assert_eq!((preview.events, preview.applied), (behind, behind));
    let metrics = running.metrics().consumer(SUMS);
    eventually("they come again", async || metrics.duplicates() >= behind).await;
    assert_eq!(house.sum("acme", "a").await.unwrap().events, 9);
    stop(running).await;
}
