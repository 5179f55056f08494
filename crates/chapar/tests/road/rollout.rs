//! A new version that reads another topic is rolled out, beside processes of the old one.

use std::sync::Arc;

use chapar::prelude::*;
use chapar_core::port::Transport;
use chapar_sql::SqlTransport;
use chapar_testkit::need;
use chapar_testkit::servers::{self, Kind, Launch};

use crate::harness::{House, eventually, on_each_store, stop};
use crate::order::{CONFIRMED, HELD, note};
use crate::processes::Broker;

on_each_store!(a_topic_comes_to_a_consumer_and_none_of_its_events_is_missed);

async fn a_topic_comes_to_a_consumer_and_none_of_its_events_is_missed(house: House) {
    let store = house.chapar.store().clone();
    let connect =
        async |owner: &str| Arc::new(SqlTransport::new(store.clone(), owner)) as Arc<dyn Transport>;
    rolls_out(&house, connect).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_nats_too() {
    let postgres = need!(servers::postgres());
    let nats = need!(Launch::of(Kind::Nats).start());
    let broker = Broker::at(nats.url());
    let house = House::on_postgres(&postgres).await;
    let connect =
        async |owner: &str| Arc::new(broker.connect(owner).await.unwrap()) as Arc<dyn Transport>;
    rolls_out(&house, connect).await;
}

const KEYS: i64 = 8;

impl House {
    /// Appends one event to each key.
    async fn append_round(&self, topic: &str, n: i64) {
        for key in 0..KEYS {
            self.append_to(topic, &format!("k{key}"), n, None).await;
        }
    }

    async fn all_have(&self, what: &str, numbers: &[i64]) {
        for key in 0..KEYS {
            let key = format!("k{key}");
            eventually(what, async || {
                let mut applied = self.applied(&key).await;
                applied.sort_unstable();
                applied == numbers
            })
            .await;
        }
        assert!(self.letters().await.is_empty());
    }
}

async fn rolls_out<F: AsyncFn(&str) -> Arc<dyn Transport>>(house: &House, connect: F) {
    let start = async |owner: &str, topics: &[&str]| {
        let consumer = Consumer::named("c").on_any(topics, note);
        App::new(House::backbone(house.chapar.store().clone()), connect(owner).await, owner)
            .service(Service::new("inventory-service").consumer(consumer))
            .start()
            .await
            .unwrap()
    };
    let old = start("old", &[HELD]).await;
    house.append_round(HELD, 1).await;
    house.all_have("the old version reads its topic", &[1]).await;

    let new = start("new", &[HELD, CONFIRMED]).await;
    house.append_round(CONFIRMED, 2).await;
    house.append_round(HELD, 3).await;
    house.all_have("both topics are read", &[1, 2, 3]).await;

    stop(old).await;
    let old = start("old-again", &[HELD]).await;
    house.append_round(CONFIRMED, 4).await;
    house.all_have("an old process that restarts takes nothing away", &[1, 2, 3, 4]).await;

    stop(new).await;
    house.append_round(CONFIRMED, 5).await;
    house.append_round(HELD, 6).await;
    house.all_have("the old version goes on alone", &[1, 2, 3, 4, 6]).await;
    let new = start("new-again", &[HELD, CONFIRMED]).await;
    house.all_have("what came meanwhile is not missed", &[1, 2, 3, 4, 5, 6]).await;
    stop(new).await;
    stop(old).await;
}
