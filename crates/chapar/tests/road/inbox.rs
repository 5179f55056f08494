//! What is applied once beyond events, one at a time, in sets, and for how long it is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chapar::{Consumer, Cx, Draft, Envelope, Failure, Payload};
use chapar_core::Aggregate;
use chapar_sql::{Backend, Keep};
use serde_json::json;

use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};
use crate::order::{HELD, MODIFIED, TOPICS, note};
use crate::processes::Process;

on_each_store!(
    an_intent_is_carried_out_once_and_its_response_is_kept,
    two_processes_with_one_intent_carry_it_out_once,
    a_response_needs_a_consumer_that_keeps_it,
    two_processes_take_turns_on_a_shared_value,
    a_set_handler_gets_what_waits_and_only_the_poison_fails,
    what_consumers_applied_long_ago_is_forgotten_but_not_how_far_they_are,
);

impl House {
    /// Appends an event whose intent is the key's, on whatever topic.
    async fn intend(&self, topic: &str, key: &str, n: i64) {
        let payload = Payload::json(&Noted { key: key.into(), n }).unwrap();
        let aggregate = Aggregate { kind: "booking".into(), id: key.into(), version: None };
        let draft = Draft::new(topic, aggregate, payload);
        self.append("acme", draft.idempotency_key(format!("intent:{key}"))).await;
    }

    async fn response(&self, key: &str) -> Option<String> {
        let (tenant, intent) = ("acme".parse().unwrap(), format!("intent:{key}"));
        self.chapar.response("c", &tenant, &intent).await.unwrap()
    }
}

async fn note_and_answer(event: Arc<Envelope>, cx: &mut Cx) -> Result<(), Failure> {
    let noted: Noted = event.payload.parse().map_err(|e| Failure::terminal(e.to_string()))?;
    cx.respond(&json!({ "by": noted.n })).await?;
    note(event, cx).await?;
    write_down(Noted { key: format!("by:{}", std::process::id()), n: 0 }, cx).await
}

pub(crate) fn by_intent() -> Consumer {
    Consumer::named("c").lanes(2).batch(3).on_any(&TOPICS, note_and_answer).dedupe_by_intent()
}

async fn an_intent_is_carried_out_once_and_its_response_is_kept(house: House) {
    house.intend(HELD, "a", 1).await;
    house.intend(MODIFIED, "a", 2).await;
    let running = house.run(by_intent().batch(10)).await;
    let metrics = running.metrics().consumer("c");
    eventually("the second is a repetition", async || metrics.duplicates() == 1).await;
    house.intend("melmastoon.reservation.booking.confirmed.v1", "a", 3).await;
    eventually("so is one that comes later", async || metrics.duplicates() == 2).await;
    assert_eq!(house.applied("a").await, [1]);
    assert_eq!(house.response("a").await.as_deref(), Some(r#"{"by":1}"#));
    assert_eq!(house.response("b").await, None);
    stop(running).await;
}

async fn two_processes_with_one_intent_carry_it_out_once(house: House) {
    let spread = Arc::new(house.spread());
    let relay = house.relay(&spread, None).await;
    let processes = ["p1", "p2"].map(|owner| Process::start(&house, "intent", owner));
    house.warm_up(&processes).await;
    for key in 0..40 {
        house.intend(HELD, &format!("i{key}"), 1).await;
        house.intend(MODIFIED, &format!("i{key}"), 2).await;
    }
    let results = match house.chapar.store().backend() {
        Backend::Postgres => "select 1::bigint from chapar.inbox where result = 'repeated'",
        Backend::Sqlite => "select 1 from chapar_inbox where result = 'repeated'",
    };
    eventually("one of each is a repetition", async || {
        house.ints(results, vec![]).await.len() == 40
    })
    .await;
    for key in 0..40 {
        let applied = house.applied(&format!("i{key}")).await;
        assert_eq!(applied.len(), 1, "{applied:?}");
        let answered = house.response(&format!("i{key}")).await;
        assert_eq!(answered, Some(format!(r#"{{"by":{}}}"#, applied[0])));
    }
    stop(relay).await;
}

async fn a_response_needs_a_consumer_that_keeps_it(house: House) {
    let running = house.run(Consumer::named("c").on_any(&TOPICS, note_and_answer)).await;
    house.intend(HELD, "a", 1).await;
    eventually("it is refused", async || house.letters().await.len() == 1).await;
    let letter = house.letters().await.remove(0);
    assert!(letter.error.contains("Consumer::dedupe_by_intent()"), "{}", letter.error);
    stop(running).await;
}

/// Counts a room up in two steps, between which another transaction could come.
async fn count_up(_: Arc<Envelope>, cx: &mut Cx) -> Result<(), Failure> {
    let rows = cx.tx().fetch("select guests from rooms", vec![]).await?;
    let guests: i64 = rows.first().map_or(Ok(0), |row| row.get(0))?;
    tokio::time::sleep(Duration::from_millis(2)).await;
    cx.tx().execute("update rooms set guests = $1", vec![(guests + 1).into()]).await?;
    write_down(Noted { key: format!("by:{}", std::process::id()), n: 0 }, cx).await
}

pub(crate) fn by_room() -> Consumer {
    let room = |_: &Envelope| Some("room-7".to_owned());
    Consumer::named("c").lanes(2).batch(2).on_any(&[MODIFIED], count_up).serialize_by(room)
}

async fn two_processes_take_turns_on_a_shared_value(house: House) {
    let mut tx = house.chapar.store().begin_raw().await.unwrap();
    tx.execute("create table rooms (guests bigint not null)", vec![]).await.unwrap();
    tx.execute("insert into rooms values (0)", vec![]).await.unwrap();
    if house.chapar.store().backend() == Backend::Postgres {
        let grant = "grant select, update on rooms to chapar_app, chapar_engine";
        tx.execute(grant, vec![]).await.unwrap();
    }
    tx.commit().await.unwrap();
    let spread = Arc::new(house.spread());
    let relay = house.relay(&spread, None).await;
    let processes = ["p1", "p2"].map(|owner| Process::start(&house, "room", owner));
    house.warm_up(&processes).await;
    for key in 0..60 {
        house.append_to(MODIFIED, &format!("r{key}"), 1, None).await;
    }
    let noted = "select n from notes where key like 'by:%'";
    let appended = match house.chapar.store().backend() {
        Backend::Postgres => "select seq from chapar.outbox",
        Backend::Sqlite => "select seq from chapar_outbox",
    };
    let appended = house.ints(appended, vec![]).await.len();
    eventually("all are applied", async || house.ints(noted, vec![]).await.len() == appended).await;
    let guests = house.ints("select guests from rooms", vec![]).await;
    assert_eq!(guests, [appended as i64], "nobody's count was written over");
    stop(relay).await;
}

static LARGEST: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

async fn write_all_down(set: Vec<Noted>, cx: &mut Cx) -> Result<(), Failure> {
    let on_postgres = cx.tx().as_postgres().is_some();
    LARGEST[usize::from(on_postgres)].fetch_max(set.len(), Ordering::SeqCst);
    for (index, noted) in set.into_iter().enumerate() {
        cx.about(index)?;
        let of_event = cx.event().and_then(|event| event.aggregate.clone()).map(|a| a.id);
        if of_event.as_deref() != Some(&noted.key) {
            return Err(Failure::terminal("another event's envelope"));
        }
        if noted.n < 0 {
            return Err(Failure::terminal("negative"));
        }
        write_down(noted, cx).await?;
    }
    Ok(())
}

async fn a_set_handler_gets_what_waits_and_only_the_poison_fails(house: House) {
    for n in 0..20 {
        for key in ["a", "b"] {
            house.note("acme", key, [n]).await;
        }
        house.note("other", "c", [if n == 11 { -1 } else { n }]).await;
    }
    let running = house.run(Consumer::named("c").on_batch(write_all_down)).await;
    for key in ["a", "b"] {
        eventually("all are applied", async || house.applied(key).await.len() == 20).await;
        assert_eq!(house.applied(key).await, (0..20).collect::<Vec<_>>());
    }
    eventually("the poison is alone", async || house.letters().await.len() == 1).await;
    assert_eq!(house.letters().await[0].arrival.tenant, "other");
    assert_eq!(house.applied("c").await, (0..11).collect::<Vec<_>>());
    let on_postgres = house.chapar.store().backend() == Backend::Postgres;
    let largest = LARGEST[usize::from(on_postgres)].load(Ordering::SeqCst);
    assert!(largest > 1, "sets of {largest}");
    stop(running).await;
}

async fn what_consumers_applied_long_ago_is_forgotten_but_not_how_far_they_are(house: House) {
    let spread = Arc::new(house.spread());
    let running = house.relay(&spread, Some(by_intent())).await;
    for n in 1..=3 {
        house.append_to(MODIFIED, "a", n, None).await;
    }
    eventually("all are applied", async || house.applied("a").await.len() == 3).await;
    stop(running).await;
    let store = house.chapar.store();
    let kept = store.keep_house(&Keep::default()).await.unwrap();
    assert_eq!((kept.inbox, kept.responses), (0, 0));
    let (inbox, intents, marks) = match store.backend() {
        Backend::Postgres => (
            "update chapar.inbox set processed_at = processed_at - interval '31 days'",
            "update chapar.inbox_intents set created_at = created_at - interval '8 days'",
            "select last_seq from chapar.inbox_marks",
        ),
        Backend::Sqlite => (
            "update chapar_inbox set processed_at = processed_at - 31 * 86400000000",
            "update chapar_inbox_intents set created_at = created_at - 8 * 86400000000",
            "select last_seq from chapar_inbox_marks",
        ),
    };
    let mut tx = store.begin_engine().await.unwrap();
    tx.execute(inbox, vec![]).await.unwrap();
    tx.execute(intents, vec![]).await.unwrap();
    tx.commit().await.unwrap();
    let kept = store.keep_house(&Keep::default()).await.unwrap();
    assert_eq!((kept.inbox, kept.responses), (3, 3));
    assert_eq!(house.ints(marks, vec![]).await.len(), 1);

    let day = Duration::from_secs(24 * 3600);
    for (keep, words) in [
        (Keep { inbox: 13 * day, published: day, ..Keep::default() }, "at least 14 days"),
        (
            Keep { published: 60 * day, ..Keep::default() },
            "let the inbox remember at least as long",
        ),
        (Keep { responses: day / 48, ..Keep::default() }, "at least an hour"),
    ] {
        let refused = store.keep_house(&keep).await.unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
}
