//! Order over topics and processes, and what is missing or late.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use chapar::{
    App, Consumer, Cx, Draft, Envelope, Failure, Gap, Missing, Payload, Running, Service,
};
use chapar_core::Aggregate;
use chapar_core::machine::failure::FailurePolicy;
use chapar_core::port::{SeekTo, Transport};
use chapar_sql::SqlTransport;

use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};
use crate::processes::{Process, Spread};

on_each_store!(
    three_topics_of_a_key_are_applied_in_commit_order_by_two_processes,
    an_event_that_waits_holds_up_no_other_key,
    what_never_comes_is_waited_for_and_then_left_out_and_taken_when_it_comes,
    what_is_older_than_the_consumer_is_not_waited_for,
    a_parked_key_keeps_its_order_over_topics,
    an_old_event_that_the_inbox_does_not_know_becomes_a_dead_letter,
    versions_are_waited_for_accepted_or_fetched,
    a_version_that_was_skipped_is_taken_when_it_is_replayed,
);

pub(crate) const HELD: &str = "melmastoon.reservation.booking.held.v1";
pub(crate) const CONFIRMED: &str = "melmastoon.reservation.booking.confirmed.v1";
pub(crate) const MODIFIED: &str = "melmastoon.reservation.booking.modified.v1";
pub(crate) const TOPICS: [&str; 3] = [HELD, CONFIRMED, MODIFIED];

pub(crate) async fn note(event: Arc<Envelope>, cx: &mut Cx) -> Result<(), Failure> {
    let noted: Noted = event.payload.parse().map_err(|e| Failure::terminal(e.to_string()))?;
    write_down(noted, cx).await
}

/// The consumer of the processes of these tests: it also notes who it is.
pub(crate) fn reader() -> Consumer {
    Consumer::named("c").lanes(2).batch(5).on_any(
        &TOPICS,
        async |event: Arc<Envelope>, cx: &mut Cx| {
            note(event, cx).await?;
            write_down(Noted { key: format!("by:{}", std::process::id()), n: 0 }, cx).await
        },
    )
}

fn three_topics() -> Consumer {
    Consumer::named("c").on_any(&TOPICS, note)
}

impl House {
    /// Appends number `n` of a key to a topic, at this version of its aggregate.
    pub(crate) async fn append_to(&self, topic: &str, key: &str, n: i64, version: Option<i64>) {
        let payload = Payload::json(&Noted { key: key.into(), n }).unwrap();
        let aggregate = Aggregate { kind: "booking".into(), id: key.into(), version };
        let draft = Draft::new(topic, aggregate, payload);
        self.append("acme", draft.idempotency_key(format!("{topic}:{key}:{n}"))).await;
    }

    /// Waits until each process has applied something.
    pub(crate) async fn warm_up(&self, processes: &[Process]) {
        let warm = AtomicI64::new(0);
        for process in processes {
            let by = format!("by:{}", process.id());
            eventually("each process has a share", async || {
                let key = format!("warm-{}", warm.fetch_add(1, Ordering::SeqCst));
                self.append_to(MODIFIED, &key, 0, None).await;
                !self.applied(&by).await.is_empty()
            })
            .await;
        }
    }

    pub(crate) fn spread(&self) -> Spread {
        Spread::new(SqlTransport::new(self.chapar.store().clone(), "house"))
    }

    /// Relays over a spread transport, with stamps, and perhaps consumes.
    pub(crate) async fn relay(&self, spread: &Arc<Spread>, consumer: Option<Consumer>) -> Running {
        let mut app = App::new(self.chapar.clone(), spread.clone(), "house").stamp(TOPICS);
        if let Some(consumer) = consumer {
            app = app.service(Service::new("inventory-service").consumer(consumer));
        }
        app.start().await.unwrap()
    }
}

async fn three_topics_of_a_key_are_applied_in_commit_order_by_two_processes(house: House) {
    let spread = Arc::new(house.spread().keep_back(HELD));
    let relay = house.relay(&spread, None).await;
    let processes = ["p1", "p2"].map(|owner| Process::start(&house, "order", owner));
    in_commit_order_although_the_first_topic_is_late(&house, &spread, &processes).await;
    stop(relay).await;
}

pub(crate) async fn in_commit_order_although_the_first_topic_is_late(
    house: &House,
    spread: &Spread,
    processes: &[Process],
) {
    house.warm_up(processes).await;
    let keys: Vec<String> = (0..12).map(|key| format!("b{key}")).collect();
    for n in 1..=9 {
        for key in &keys {
            house.append_to(TOPICS[(n as usize - 1) % 3], key, n, None).await;
        }
    }
    eventually("the first topic is under way", async || spread.kept() == 36).await;
    house.append_to(CONFIRMED, "another", 1, None).await;
    eventually("others go on", async || house.applied("another").await == [1]).await;
    for key in &keys {
        assert!(house.applied(key).await.is_empty(), "nothing of {key} may go before its first");
    }
    spread.let_go().await;
    for key in &keys {
        eventually("all are applied", async || house.applied(key).await.len() == 9).await;
        assert_eq!(house.applied(key).await, (1..=9).collect::<Vec<_>>());
    }
    assert!(house.letters().await.is_empty());
}

async fn an_event_that_waits_holds_up_no_other_key(house: House) {
    let spread = Arc::new(house.spread().keep_back(HELD));
    let running = house.relay(&spread, Some(three_topics().batch(1))).await;
    house.append_to(HELD, "a", 1, None).await;
    house.append_to(CONFIRMED, "a", 2, None).await;
    house.append_to(MODIFIED, "a", 3, None).await;
    for n in 1..=20 {
        house.append_to(MODIFIED, "b", n, None).await;
    }
    eventually("the neighbour flows", async || house.applied("b").await.len() == 20).await;
    assert!(house.applied("a").await.is_empty());
    spread.let_go().await;
    eventually("the key goes on", async || house.applied("a").await.len() == 3).await;
    assert_eq!(house.applied("a").await, [1, 2, 3]);
    stop(running).await;
}

async fn what_never_comes_is_waited_for_and_then_left_out_and_taken_when_it_comes(house: House) {
    let spread = Arc::new(house.spread().keep_back(HELD));
    let gap = Gap::Wait { limit: Duration::from_millis(300) };
    let running = house.relay(&spread, Some(three_topics().on_gap(gap))).await;
    house.append_to(HELD, "a", 1, None).await;
    house.append_to(CONFIRMED, "a", 2, None).await;
    eventually("it goes on without", async || house.applied("a").await == [2]).await;
    // What follows names the same missing event, which is waited for once and not by each.
    for n in 3..6 {
        house.append_to(CONFIRMED, "a", n, None).await;
    }
    eventually("the rest goes on", async || house.applied("a").await == [2, 3, 4, 5]).await;
    assert_eq!(running.metrics().consumer("c").gaps(), 1);
    spread.let_go().await;
    eventually("it is taken late", async || house.applied("a").await == [2, 3, 4, 5, 1]).await;
    stop(running).await;
}

async fn what_is_older_than_the_consumer_is_not_waited_for(house: House) {
    let spread = Arc::new(house.spread().keep_back(HELD));
    let limit = Duration::from_millis(300);
    let consumer = three_topics().on_gap(Gap::Wait { limit });
    let running = house.relay(&spread, Some(consumer)).await;
    for key in 0..10 {
        house.append_to(HELD, &format!("k{key}"), 1, None).await;
    }
    eventually("the history is over", async || spread.kept() == 10).await;
    spread.lose();
    house.append_to(HELD, "new", 1, None).await;
    eventually("it has come in", async || house.applied("new").await == [1]).await;
    let came_in = Instant::now();
    eventually("it is past its start", async || came_in.elapsed() > limit).await;
    for key in 0..10 {
        let key = format!("k{key}");
        house.append_to(CONFIRMED, &key, 2, None).await;
        eventually("it goes at once", async || house.applied(&key).await == [2]).await;
    }
    assert_eq!(running.metrics().consumer("c").gaps(), 0, "nothing of its time is missing");
    stop(running).await;
}

async fn a_parked_key_keeps_its_order_over_topics(house: House) {
    let spread = Arc::new(house.spread().keep_back(CONFIRMED));
    let fails_once = async |event: Arc<Envelope>, cx: &mut Cx| {
        let seen = "select 1 from chapar_mended";
        let mended = cx.tx().fetch(seen, vec![]).await.is_ok_and(|rows| !rows.is_empty());
        let noted: Noted = event.payload.parse().map_err(|e| Failure::terminal(e.to_string()))?;
        if noted.n == 1 && !mended {
            return Err(Failure::terminal("not yet"));
        }
        write_down(noted, cx).await
    };
    let mut tx = house.chapar.store().begin_raw().await.unwrap();
    tx.execute("create table chapar_mended (n integer)", vec![]).await.unwrap();
    if house.chapar.store().backend() == chapar_sql::Backend::Postgres {
        tx.execute("grant select on chapar_mended to chapar_app", vec![]).await.unwrap();
    }
    tx.commit().await.unwrap();
    let consumer = Consumer::named("c").on_any(&TOPICS, fails_once);
    let running = house.relay(&spread, Some(consumer)).await;
    house.append_to(HELD, "a", 1, None).await;
    house.append_to(CONFIRMED, "a", 2, None).await;
    house.append_to(MODIFIED, "a", 3, None).await;
    eventually("the first is a letter", async || house.letters().await.len() == 1).await;
    assert_eq!(house.letters().await[0].followers, 0, "the third waits for the second");
    spread.let_go().await;
    eventually("both are parked", async || house.letters().await[0].followers == 2).await;
    let mut tx = house.chapar.store().begin_raw().await.unwrap();
    tx.execute("insert into chapar_mended values (1)", vec![]).await.unwrap();
    tx.commit().await.unwrap();
    house.replay(&house.letters().await[0].id).await;
    eventually("the key drains", async || house.applied("a").await.len() == 3).await;
    assert_eq!(house.applied("a").await, [1, 2, 3]);
    assert_eq!(house.holes().await, 0);
    stop(running).await;
}

async fn an_old_event_that_the_inbox_does_not_know_becomes_a_dead_letter(house: House) {
    let spread = Arc::new(house.spread());
    let running = house.relay(&spread, Some(three_topics())).await;
    for n in 1..=6 {
        house.append_to(TOPICS[n as usize % 3], "a", n, None).await;
    }
    eventually("all are applied", async || house.applied("a").await.len() == 6).await;
    house.forget_inbox().await;
    spread.seek("c", SeekTo::Beginning).await.unwrap();
    let metrics = running.metrics().consumer("c");
    eventually("all came again", async || metrics.late() == 6).await;
    assert_eq!(house.applied("a").await, [1, 2, 3, 4, 5, 6]);
    let letters = house.letters().await;
    assert_eq!(letters.len(), 6);
    assert!(letters.iter().all(|letter| letter.kind == "late" && !letter.blocks_key));
    stop(running).await;
}

impl House {
    async fn holes(&self) -> usize {
        let count = match self.chapar.store().backend() {
            chapar_sql::Backend::Postgres => "select low from chapar.inbox_holes",
            chapar_sql::Backend::Sqlite => "select low from chapar_inbox_holes",
        };
        self.ints(count, vec![]).await.len()
    }

    /// The inbox as it is after its retention.
    pub(crate) async fn forget_inbox(&self) {
        let delete = match self.chapar.store().backend() {
            chapar_sql::Backend::Postgres => "delete from chapar.inbox",
            chapar_sql::Backend::Sqlite => "delete from chapar_inbox",
        };
        let mut tx = self.chapar.store().begin_engine().await.unwrap();
        tx.execute(delete, vec![]).await.unwrap();
        tx.commit().await.unwrap();
    }
}

async fn versions_are_waited_for_accepted_or_fetched(house: House) {
    let short = Duration::from_millis(200);
    let fetch = async |missing: Missing, cx: &mut Cx| {
        write_down(Noted { key: "fetched".into(), n: missing.number }, cx).await
    };
    let gaps = [
        ("wait", Gap::Wait { limit: short }),
        ("accept", Gap::Accept),
        ("fetch", Gap::fetch(short, fetch)),
    ];
    for (before, (name, gap)) in gaps.into_iter().enumerate() {
        let consumer = Consumer::named(name).on_any(&[MODIFIED], note).on_gap(gap);
        let running = house.run(consumer).await;
        for version in [1, 2, 4] {
            house.append_to(MODIFIED, name, version, Some(version)).await;
        }
        eventually("the gap is passed", async || house.applied(name).await == [1, 2, 4]).await;
        // A new consumer also reads what those before it have read.
        let gaps = running.metrics().consumer(name);
        eventually("gaps are counted", async || gaps.gaps() == before as u64 + 1).await;
        let fetched = if name == "fetch" { vec![4, 4, 4] } else { vec![] };
        eventually("they are fetched", async || house.applied("fetched").await == fetched).await;
        stop(running).await;
    }
}

async fn a_version_that_was_skipped_is_taken_when_it_is_replayed(house: House) {
    let consumer = Consumer::named("c")
        .on_any(&[MODIFIED], note)
        .on_gap(Gap::Accept)
        .on_failure(FailurePolicy::SkipToDlq);
    let running = house.run(consumer).await;
    let metrics = running.metrics().consumer("c");
    for (n, version, applied) in [
        (1, 1, vec![1]),
        (5, 5, vec![1, 5]),
        (4, 4, vec![1, 5, 4]),
        (40, 4, vec![1, 5, 4]),
        (2, 2, vec![1, 5, 4, 2]),
    ] {
        house.append_to(MODIFIED, "a", n, Some(version)).await;
        eventually("late ones fill the hole", async || house.applied("a").await == applied).await;
    }
    assert_eq!(metrics.late(), 1, "an equal version is recorded only");
    stop(running).await;
}
