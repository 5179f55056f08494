//! Order on a real broker, with consumers in processes that die, join, leave and move.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_nats::jetstream;
use chapar::{App, Consumer, Cx, Envelope, Failure, Running, Service};
use chapar_core::port::Transport;
use chapar_testkit::need;
use chapar_testkit::servers::{self, Kind, Launch};

use crate::harness::{House, Noted, eventually, stop, write_down};
use crate::order::{HELD, TOPICS, in_commit_order_although_the_first_topic_is_late, note};
use crate::processes::{Broker, Process, Spread};

/// Runs each test on PostgreSQL and a NATS server of its own.
macro_rules! on_nats {
    ($($test:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let postgres = need!(servers::postgres());
            let nats = need!(Launch::of(Kind::Nats).setting("max_payload", "32MB").start());
            on::$test(House::on_postgres(&postgres).await, Broker::at(nats.url())).await;
        }
    )*};
}

on_nats!(
    three_topics_of_a_key_are_applied_in_commit_order_by_two_processes,
    what_a_killed_process_had_taken_is_applied_by_the_other_in_order,
    processes_join_and_leave_and_every_key_keeps_its_order,
    more_partitions_keep_the_order_of_keys_that_move,
    a_tenant_that_gets_its_own_partition_keeps_the_order_of_its_keys,
    a_consumer_that_starts_after_a_move_reads_the_moved_keys_in_order,
    what_cannot_be_applied_is_dead_lettered_while_the_rest_flows,
);

/// A consumer that stops in the middle of a transaction, and never goes on.
pub(crate) fn stuck() -> Consumer {
    Consumer::named("c").lanes(2).batch(5).on_any(
        &TOPICS,
        async |event: Arc<Envelope>, cx: &mut Cx| {
            let noted: Noted =
                event.payload.parse().map_err(|error| Failure::terminal(error.to_string()))?;
            note(event, cx).await?;
            write_down(Noted { key: format!("by:{}", std::process::id()), n: 0 }, cx).await?;
            if noted.n == 10 {
                std::future::pending::<()>().await;
            }
            Ok(())
        },
    )
}

fn keys() -> Vec<String> {
    (0..24).map(|key| format!("b{key}")).collect()
}

impl House {
    /// Appends these numbers to all keys, to one topic after the other.
    async fn append_all(&self, numbers: std::ops::RangeInclusive<i64>) {
        for n in numbers {
            for key in keys() {
                self.append_to(TOPICS[n as usize % 3], &key, n, None).await;
            }
        }
    }

    /// Waits until every key has come to `last`, in order and once each.
    async fn all_in_order(&self, last: i64) {
        for key in keys() {
            let all = async || self.applied(&key).await.len() as i64 >= last;
            eventually("all are applied", all).await;
            assert_eq!(self.applied(&key).await, (1..=last).collect::<Vec<_>>(), "{key}");
        }
        assert!(self.letters().await.is_empty());
    }

    async fn relay_over(&self, transport: impl Transport + 'static) -> Running {
        let app = App::new(self.chapar.clone(), Arc::new(transport), "house").stamp(TOPICS);
        app.start().await.unwrap()
    }

    fn process(&self, broker: &Broker, owner: &str) -> Process {
        Process::start_on(self, Some(broker), "order", owner)
    }

    /// Whether some transaction has been left standing for a second.
    async fn hangs(&self) -> bool {
        const HANGING: &str = "select count(*) from pg_stat_activity \
            where datname = current_database() and state = 'idle in transaction' \
            and state_change < clock_timestamp() - interval '1 second'";
        let mut tx = self.chapar.store().begin_raw().await.unwrap();
        let rows = tx.fetch(HANGING, vec![]).await.unwrap();
        rows[0].get::<i64>(0).unwrap() > 0
    }

    /// Consumes something, publishes something that nobody reads, changes the partitions,
    /// publishes more, and reads on: what was published after the change lies elsewhere, and is
    /// read at the same time as what was published before it.
    async fn moves(&self, before: &Broker, after: &Broker, change: impl AsyncFnOnce()) {
        let relay = self.relay_over(before.connect("house").await.unwrap()).await;
        let processes = ["p1", "p2"].map(|owner| self.process(before, owner));
        self.warm_up(&processes).await;
        self.append_all(1..=3).await;
        self.all_in_order(3).await;
        for process in processes {
            process.leave().await;
        }
        let published = relay.metrics().published();
        self.append_all(4..=6).await;
        let more = keys().len() as u64 * 3;
        let all = async |relay: &Running, before: u64| relay.metrics().published() >= before + more;
        eventually("they are published", async || all(&relay, published).await).await;
        stop(relay).await;
        change().await;
        let relay = self.relay_over(after.connect("house").await.unwrap()).await;
        self.append_all(7..=9).await;
        eventually("these too", async || all(&relay, 0).await).await;
        let processes = ["p3", "p4"].map(|owner| self.process(after, owner));
        self.all_in_order(9).await;
        self.warm_up(&processes).await;
        stop(relay).await;
    }
}

mod on {
    use super::*;

    pub(super) async fn three_topics_of_a_key_are_applied_in_commit_order_by_two_processes(
        house: House,
        broker: Broker,
    ) {
        let spread = Arc::new(Spread::new(broker.connect("house").await.unwrap()).keep_back(HELD));
        let relay = house.relay(&spread, None).await;
        let broker = Broker { spread: true, ..broker };
        let processes = ["p1", "p2"].map(|owner| house.process(&broker, owner));
        in_commit_order_although_the_first_topic_is_late(&house, &spread, &processes).await;
        stop(relay).await;
    }

    pub(super) async fn what_a_killed_process_had_taken_is_applied_by_the_other_in_order(
        house: House,
        broker: Broker,
    ) {
        let relay = house.relay_over(broker.connect("house").await.unwrap()).await;
        let stuck = Process::start_on(&house, Some(&broker), "stuck", "p1");
        let processes = [stuck, house.process(&broker, "p2")];
        house.warm_up(&processes).await;
        house.append_all(1..=20).await;
        eventually("a process hangs in a transaction", async || house.hangs().await).await;
        let [stuck, _other] = processes;
        drop(stuck);
        house.all_in_order(20).await;
        stop(relay).await;
    }

    pub(super) async fn processes_join_and_leave_and_every_key_keeps_its_order(
        house: House,
        broker: Broker,
    ) {
        let relay = house.relay_over(broker.connect("house").await.unwrap()).await;
        let first = house.process(&broker, "p1");
        house.append_all(1..=8).await;
        let second = house.process(&broker, "p2");
        house.append_all(9..=16).await;
        let processes = [first, second];
        house.warm_up(&processes).await;
        let [first, second] = processes;
        house.append_all(17..=24).await;
        first.leave().await;
        house.append_all(25..=32).await;
        let third = house.process(&broker, "p3");
        house.append_all(33..=40).await;
        house.warm_up(std::slice::from_ref(&third)).await;
        drop(second);
        house.all_in_order(40).await;
        stop(relay).await;
    }

    pub(super) async fn more_partitions_keep_the_order_of_keys_that_move(
        house: House,
        broker: Broker,
    ) {
        let more = Broker { partitions: 24, ..broker.clone() };
        let (by_hand, wanted) = (broker.clone(), more.clone());
        let change = async move || {
            let client = async_nats::connect(&by_hand.url).await.unwrap();
            let context = jetstream::new(client);
            let refused = wanted.connect("early").await.unwrap();
            let refused = refused.apply(&[topic()], &[]).await.unwrap_err().to_string();
            assert!(refused.contains("chapar-partitions 12 where 24"), "{refused}");
            let mut config = context.get_stream("RESERVATION").await.unwrap();
            let mut config = config.info().await.unwrap().config.clone();
            config.metadata.insert("chapar-partitions".into(), "24".into());
            context.update_stream(config).await.unwrap();
        };
        house.moves(&broker, &more, change).await;
    }

    fn topic() -> chapar_core::port::TopicSpec {
        let retention = std::time::Duration::from_secs(3600);
        chapar_core::port::TopicSpec { name: HELD.into(), partitions: 24, retention }
    }

    pub(super) async fn a_tenant_that_gets_its_own_partition_keeps_the_order_of_its_keys(
        house: House,
        broker: Broker,
    ) {
        let own_partitions = BTreeMap::from([("acme".to_owned(), 12)]);
        let moved = Broker { own_partitions, ..broker.clone() };
        house.moves(&broker, &moved, async || {}).await;
    }

    /// It meets the new partition and the old one at the same time, and knows none of the keys.
    pub(super) async fn a_consumer_that_starts_after_a_move_reads_the_moved_keys_in_order(
        house: House,
        broker: Broker,
    ) {
        let own_partitions = BTreeMap::from([("acme".to_owned(), 12)]);
        let moved = Broker { own_partitions, ..broker.clone() };
        for (at, numbers) in [(&broker, 1..=6), (&moved, 7..=9)] {
            let relay = house.relay_over(at.connect("house").await.unwrap()).await;
            let count = (keys().len() * numbers.clone().count()) as u64;
            house.append_all(numbers).await;
            eventually("they are published", async || relay.metrics().published() >= count).await;
            stop(relay).await;
        }
        let transport = Arc::new(moved.connect("late").await.unwrap());
        let consumer = Consumer::named("c").lanes(2).on_any(&TOPICS, note);
        let app = App::new(house.chapar.clone(), transport.clone(), "late").without_relay();
        let app = app.service(Service::new("late").consumer(consumer));
        let running = app.start().await.unwrap();
        house.all_in_order(9).await;
        stop(running).await;
        // Nothing on another topic tells it that there is an earlier event.
        let alone = async |event: Arc<Envelope>, cx: &mut Cx| {
            let noted: Noted =
                event.payload.parse().map_err(|error| Failure::terminal(error.to_string()))?;
            write_down(Noted { key: format!("alone:{}", noted.key), ..noted }, cx).await
        };
        let consumer = Consumer::named("alone").lanes(2).on_any(&TOPICS[1..2], alone);
        let app = App::new(house.chapar.clone(), transport, "late").without_relay();
        let app = app.service(Service::new("late").consumer(consumer));
        let running = app.start().await.unwrap();
        for key in keys() {
            let applied = async || house.applied(&format!("alone:{key}")).await;
            eventually("all are applied", async || applied().await.len() == 3).await;
            assert_eq!(applied().await, [1, 4, 7], "{key}");
        }
        assert!(house.letters().await.is_empty());
        stop(running).await;
    }

    pub(super) async fn what_cannot_be_applied_is_dead_lettered_while_the_rest_flows(
        house: House,
        broker: Broker,
    ) {
        let transport = Arc::new(broker.connect("house").await.unwrap());
        crate::broken::the_rest_flows(&house, transport).await;
    }
}
