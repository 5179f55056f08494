//! Publishing again what a broker has lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chapar::Consumer;
use chapar_core::machine::stamps::{HEADER, Stamp};
use chapar_sql::Backend;

use crate::harness::{House, eventually, on_each_store, stop};
use crate::order::{TOPICS, note};

on_each_store!(
    events_are_republished_with_the_stamps_they_had_first,
    a_consumer_of_several_topics_applies_what_was_lost_without_waiting,
);

const HOUR: Duration = Duration::from_secs(3600);
/// A consumer waits this long for a predecessor that never comes.
const PATIENCE: Duration = Duration::from_secs(30);

impl House {
    /// The order stamps in the log, by event.
    async fn stamps(&self) -> BTreeMap<String, Option<String>> {
        let mut tx = self.chapar.store().begin_engine().await.unwrap();
        let sql = match tx.backend() {
            Backend::Postgres => "select event_id, headers from chapar.log",
            Backend::Sqlite => "select event_id, headers from chapar_log",
        };
        let mut stamps = BTreeMap::new();
        for row in tx.fetch(sql, vec![]).await.unwrap() {
            let headers: Vec<(String, String)> =
                serde_json::from_str(&row.get::<String>(1).unwrap()).unwrap();
            let stamp = headers.into_iter().find(|(name, _)| name == HEADER);
            stamps.insert(row.get(0).unwrap(), stamp.map(|(_, stamp)| stamp));
        }
        stamps
    }

    async fn lose_the_log(&self) {
        let mut tx = self.chapar.store().begin_engine().await.unwrap();
        let sql = match tx.backend() {
            Backend::Postgres => "delete from chapar.log",
            Backend::Sqlite => "delete from chapar_log",
        };
        tx.execute(sql, vec![]).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn append_numbers(&self, numbers: std::ops::RangeInclusive<i64>) {
        for n in numbers {
            for key in ["a", "b", "c"] {
                self.append_to(TOPICS[n as usize % 3], key, n, None).await;
            }
        }
    }

    async fn republished(&self) -> i64 {
        let request = self.chapar.republish(HOUR, "op", "the disk was lost").await.unwrap();
        eventually("the request is done", async || {
            let request = self.chapar.republish_request(request).await.unwrap().unwrap();
            request.ended_at.is_some()
        })
        .await;
        let request = self.chapar.republish_request(request).await.unwrap().unwrap();
        assert_eq!((request.parked, request.cancelled), (0, false));
        request.published
    }
}

async fn events_are_republished_with_the_stamps_they_had_first(house: House) {
    let relay = house.relay(&Arc::new(house.spread()), None).await;
    house.append_numbers(1..=6).await;
    // The marks are written every two seconds: some rows lie on either side.
    eventually("all are published", async || house.stamps().await.len() == 18).await;
    house.append_to(TOPICS[0], "d", 1, None).await;
    eventually("one more", async || house.stamps().await.len() == 19).await;
    let first = house.stamps().await;
    let after = |stamp: &Option<String>| {
        Stamp::read(stamp.as_deref().expect("each has a stamp")).unwrap().after.len()
    };
    assert_eq!(first.values().map(after).max(), Some(3));
    house.lose_the_log().await;
    assert_eq!(house.republished().await, 19);
    assert_eq!(house.stamps().await, first);
    // And once more, by a relay that has just started.
    stop(relay).await;
    house.lose_the_log().await;
    let relay = house.relay(&Arc::new(house.spread()), None).await;
    assert_eq!(house.republished().await, 19);
    assert_eq!(house.stamps().await, first);
    stop(relay).await;
}

async fn a_consumer_of_several_topics_applies_what_was_lost_without_waiting(house: House) {
    let consumer = || Consumer::new("c").on_any(&TOPICS, note);
    let running = house.relay(&Arc::new(house.spread()), Some(consumer())).await;
    house.append_numbers(1..=3).await;
    for key in ["a", "b", "c"] {
        eventually("the first are applied", async || house.applied(key).await.len() == 3).await;
    }
    stop(running).await;
    let relay = house.relay(&Arc::new(house.spread()), None).await;
    house.append_numbers(4..=6).await;
    eventually("they are published", async || house.stamps().await.len() == 18).await;
    house.lose_the_log().await;
    house.republished().await;
    house.append_numbers(7..=9).await;
    stop(relay).await;
    let began = Instant::now();
    let running = house.relay(&Arc::new(house.spread()), Some(consumer())).await;
    for key in ["a", "b", "c"] {
        eventually("all are applied", async || house.applied(key).await.len() == 9).await;
        assert_eq!(house.applied(key).await, (1..=9).collect::<Vec<_>>());
    }
    assert!(began.elapsed() < PATIENCE / 2, "it took {:?}", began.elapsed());
    assert!(house.letters().await.is_empty());
    stop(running).await;
}
