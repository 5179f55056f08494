//! Two versions of one fact: both are there or neither, and a consumer applies one of them.

use std::sync::Arc;
use std::time::Duration;

use chapar::ops::SeekTarget;
use chapar::{
    App, AppendError, Chapar, Consumer, Cx, Envelope, Event, Failure, Producer, Registry, Running,
    Service, Tenant,
};
use chapar_core::Headers;
use chapar_core::convert::DUAL_PUBLISH_OF;
use chapar_core::dialect::{Dialect, Message, MetadataJson};
use chapar_sql::{Row, Tables};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};
use crate::seek::back_to;

on_each_store!(
    a_fact_is_appended_in_both_versions_or_in_none,
    every_way_of_appending_writes_both_and_answers_for_the_new_one,
    what_cannot_be_converted_is_refused_before_commit,
    a_consumer_of_both_versions_applies_a_fact_once_and_one_of_either_gets_its_own,
    a_consumer_that_cuts_over_neither_misses_nor_repeats_a_fact,
    a_dead_letter_of_one_version_is_settled_by_the_other,
    whoever_reads_a_topic_is_noted_in_the_store,
);

const NEW: &str = "melmastoon.reservation.booking.modified.v2";

/// The second version: the number lies deeper, and there is something that the first lacks.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Renoted {
    key: String,
    note: Number,
    channel: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Number {
    n: i64,
}

impl Event for Renoted {
    const SUBJECT: &'static str = NEW;
    const AGGREGATE: &'static str = "booking";

    fn aggregate_id(&self) -> String {
        self.key.clone()
    }

    fn intent(&self) -> Option<String> {
        Some(format!("{}:{}", self.key, self.note.n))
    }
}

fn renoted(key: &str, n: i64) -> Renoted {
    Renoted { key: key.into(), note: Number { n }, channel: "web".into() }
}

async fn write_down_new(event: Renoted, cx: &mut Cx) -> Result<(), Failure> {
    write_down(Noted { key: event.key, n: event.note.n }, cx).await
}

fn contract(version: u32, schema: &Value) -> Value {
    let (schema, address) =
        (schema.to_string(), format!("schemas://reservation/booking/modified/v{version}"));
    let hash: String =
        Sha256::digest(schema.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    json!({
        "subject": Noted::SUBJECT.replace("v1", &format!("v{version}")),
        "owner": "reservation-service",
        "uri": format!("{address}#sha256-{hash}"),
        "schema": schema,
    })
}

fn registry() -> Registry {
    let text = || json!({ "type": "string" });
    let number = || json!({ "type": "integer", "minimum": 0 });
    let mut old = contract(
        1,
        &json!({
            "type": "object", "required": ["key", "n"],
            "properties": { "key": text(), "n": number() },
        }),
    );
    old["deprecated"] = format!("since 2027-01-31, read {NEW} instead").into();
    let mut new = contract(
        2,
        &json!({
            "type": "object", "required": ["key", "note"],
            "properties": {
                "key": text(), "channel": text(),
                "note": { "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } } },
            },
        }),
    );
    new["dual_publish"] = json!({
        "subject": Noted::SUBJECT,
        "convert": [
            { "move": "/note/n", "to": "/n" }, { "drop": "/note" }, { "drop": "/channel" },
        ],
    });
    let bundle = json!({
        "format": 1, "system": "melmastoon", "version": "2", "contracts": [old, new],
    });
    Registry::from_bundle(&bundle.to_string()).unwrap()
}

fn backbone(house: &House) -> Chapar {
    let producer = Producer { service: "reservation-service".into(), ..Producer::default() };
    let profile = chapar_testkit::profile("melmastoon");
    Chapar::builder(house.chapar.store().clone(), profile, Arc::new(MetadataJson))
        .producer(producer)
        .registry(registry())
        .build()
}

async fn publish(chapar: &Chapar, key: &str, numbers: impl IntoIterator<Item = i64>) {
    let tenant: Tenant = "acme".parse().unwrap();
    for n in numbers {
        let mut tx = chapar.begin(&tenant).await.unwrap();
        chapar.append(&mut tx, &tenant, renoted(key, n)).await.unwrap();
        chapar.commit(tx).await.unwrap();
    }
}

/// What lies in the outbox, in order: the event, its key, its headers.
async fn outbox(house: &House) -> Vec<(Envelope, String, Headers)> {
    let sql = match house.chapar.store().backend() {
        chapar_sql::Backend::Sqlite => {
            "select topic, body, ordering_key, headers from chapar_outbox order by seq"
        }
        chapar_sql::Backend::Postgres => {
            "select topic, body, ordering_key, headers from chapar.outbox order by seq"
        }
    };
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    let rows = tx.fetch(sql, vec![]).await.unwrap();
    let event = |row: &Row| {
        let headers: String = row.get(3).unwrap();
        let headers: Headers = serde_json::from_str(&headers).unwrap();
        let body: bytes::Bytes = row.get(1).unwrap();
        let topic: String = row.get(0).unwrap();
        let message = Message { topic: Some(topic.clone()), headers: headers.clone(), body };
        let envelope = MetadataJson.decode(&message).unwrap();
        assert_eq!(envelope.subject(), topic);
        (envelope, row.get(2).unwrap(), headers)
    };
    rows.iter().map(event).collect()
}

async fn a_fact_is_appended_in_both_versions_or_in_none(house: House) {
    let chapar = backbone(&house);
    let tenant: Tenant = "acme".parse().unwrap();
    let mut tx = chapar.begin(&tenant).await.unwrap();
    chapar.append(&mut tx, &tenant, renoted("a", 1)).await.unwrap();
    tx.rollback().await.unwrap();
    assert!(outbox(&house).await.is_empty());

    let mut tx = chapar.begin(&tenant).await.unwrap();
    let first = chapar.append(&mut tx, &tenant, renoted("a", 1)).await.unwrap();
    let again = chapar.append(&mut tx, &tenant, renoted("a", 1)).await.unwrap();
    chapar.commit(tx).await.unwrap();
    assert!(again.repeated && again.event_id == first.event_id, "{again:?}");

    let written = outbox(&house).await;
    let [(new, new_key, new_headers), (old, old_key, old_headers)] = &written[..] else {
        panic!("{written:?}")
    };
    assert_eq!((new.version, old.version), (2, 1));
    assert_eq!(new.id.to_string(), first.event_id, "the answer is about the new one");
    assert_ne!(new.id, old.id);
    assert_eq!(old.payload.parse::<Value>().unwrap(), json!({ "key": "a", "n": 1 }));
    assert_eq!(old.causation.as_ref(), Some(&new.id));
    assert_eq!(old.correlation, new.correlation);
    assert_eq!(old.metadata[DUAL_PUBLISH_OF], json!(new.id.to_string()));
    assert_eq!(old.occurred_at, new.occurred_at);
    assert_eq!((old_key, &old.idempotency_key), (new_key, &new.idempotency_key));
    assert!(old.schema.as_ref().unwrap().contains("/v1#sha256-"), "{:?}", old.schema);
    let deprecated = |headers: &Headers| headers.get("chapar-deprecated").map(str::to_owned);
    assert_eq!(deprecated(new_headers), None);
    assert_eq!(deprecated(old_headers), Some(format!("since 2027-01-31, read {NEW} instead")));
}

async fn every_way_of_appending_writes_both_and_answers_for_the_new_one(house: House) {
    let chapar = backbone(&house);
    let tenant: Tenant = "acme".parse().unwrap();
    let mut tx = chapar.begin(&tenant).await.unwrap();
    let events = [("b", 1), ("a", 2), ("b", 3)].map(|(key, n)| renoted(key, n));
    let answers = chapar.append_batch(&mut tx, &tenant, events).await.unwrap();
    chapar.commit(tx).await.unwrap();
    let written = outbox(&house).await;
    assert_eq!((answers.len(), written.len()), (3, 6));
    let number = |envelope: &Envelope| envelope.payload.parse::<Value>().unwrap();
    for (answer, n) in answers.iter().zip([1, 2, 3]) {
        let (new, ..) = written.iter().find(|(e, ..)| e.id.to_string() == answer.event_id).unwrap();
        assert_eq!((new.version, &number(new)["note"]["n"]), (2, &json!(n)));
    }
    // Each fact's versions are neighbours in their key, the new one first.
    let of_b: Vec<u32> = written
        .iter()
        .filter(|(_, key, _)| key.ends_with(":b"))
        .map(|(event, ..)| event.version)
        .collect();
    assert_eq!(of_b, [2, 1, 2, 1]);

    let command = chapar.command(&tenant).correlated(written[0].0.correlation.clone());
    command.run(async |cx| cx.emit(renoted("c", 4)).await).await.unwrap();
    let versions = |written: &[(Envelope, String, _)]| {
        written.iter().map(|(event, ..)| event.version).collect::<Vec<_>>()
    };
    assert_eq!(versions(&outbox(&house).await[6..]), [2, 1]);
}

async fn what_cannot_be_converted_is_refused_before_commit(house: House) {
    let chapar = backbone(&house);
    let tenant: Tenant = "acme".parse().unwrap();
    let mut tx = chapar.begin(&tenant).await.unwrap();
    // The new version allows it, the old one does not.
    let refused = chapar.append(&mut tx, &tenant, renoted("a", -1)).await;
    let Err(AppendError::Rules(refused)) = refused else { panic!("{refused:?}") };
    let said = refused.to_string();
    assert!(said.starts_with("CH1016") && said.contains("/n: "), "{said}");
    assert!(said.contains(Noted::SUBJECT), "{said}");
    chapar.commit(tx).await.unwrap();
    assert!(outbox(&house).await.is_empty());
    assert_eq!(chapar.blocked().counts(), [("CH1016", "reservation-service".to_owned(), 1)]);
}

async fn run(house: &House, consumers: Vec<Consumer>) -> Running {
    let app = App::new(backbone(house), house.transport.clone(), "house");
    let app = consumers
        .into_iter()
        .fold(app, |app, c| app.service(Service::new("inventory-service").consumer(c)));
    app.start().await.unwrap()
}

/// A handler's numbers go under the consumer's own name, so that consumers can be told apart.
fn under(name: &'static str) -> Consumer {
    async fn note(name: &str, n: i64, cx: &mut Cx) -> Result<(), Failure> {
        write_down(Noted { key: name.into(), n }, cx).await
    }
    match name {
        "old" => Consumer::named(name).on(async |e: Noted, cx: &mut Cx| note("old", e.n, cx).await),
        "new" => Consumer::named(name)
            .on(async |e: Renoted, cx: &mut Cx| note("new", e.note.n, cx).await),
        _ => Consumer::named(name)
            .on(async |e: Noted, cx: &mut Cx| note("both", e.n, cx).await)
            .on(async |e: Renoted, cx: &mut Cx| note("both", e.note.n, cx).await),
    }
}

async fn a_consumer_of_both_versions_applies_a_fact_once_and_one_of_either_gets_its_own(
    house: House,
) {
    // Facts from before the window are there in one version only.
    house.note("acme", "a", 0..5).await;
    publish(&backbone(&house), "a", 5..25).await;
    let running = run(&house, vec![under("old"), under("new"), under("both")]).await;
    let all: Vec<i64> = (0..25).collect();
    eventually("each has its own", async || {
        house.applied("old").await == all
            && house.applied("new").await == all[5..]
            && house.applied("both").await == all
    })
    .await;
    let metrics = running.metrics();
    eventually("the twins were seen", async || metrics.consumer("both").duplicates() == 20).await;
    assert_eq!(house.applied("both").await, all);
    assert_eq!(metrics.consumer("old").duplicates(), 0);
    assert_eq!(metrics.consumer("old").deprecated(), 25, "each delivery of the old version");
    assert_eq!(metrics.consumer("new").deprecated(), 0);
    stop(running).await;
    assert!(house.letters().await.is_empty());
}

async fn a_consumer_that_cuts_over_neither_misses_nor_repeats_a_fact(house: House) {
    let chapar = backbone(&house);
    let consumer = || Consumer::named("c").on(write_down).batch(3).lanes(2);
    let app = async |consumer| run(&house, vec![consumer]).await;
    // Stopped in the middle, again and again, between the versions of a fact as well.
    for round in 0..6_i64 {
        publish(&chapar, "k", round * 10..round * 10 + 10).await;
        let running = match round {
            0 | 1 => app(consumer()).await,
            2 | 3 => app(consumer().on(write_down_new)).await,
            4 => app(consumer()).await,
            _ => app(consumer().on(write_down_new)).await,
        };
        let some = (round * 10 + 3) as usize;
        eventually("some are applied", async || house.applied("k").await.len() >= some).await;
        stop(running).await;
    }
    let running = app(consumer().on(write_down_new)).await;
    let all: Vec<i64> = (0..60).collect();
    eventually("all are applied", async || house.applied("k").await.len() >= all.len()).await;
    let metrics = running.metrics();
    publish(&chapar, "last", [1]).await;
    eventually("the twin of the last, too", async || {
        house.applied("last").await == [1] && metrics.duplicates() > 0
    })
    .await;
    stop(running).await;
    assert_eq!(house.applied("k").await, all);
    assert!(house.letters().await.is_empty());
}

async fn a_dead_letter_of_one_version_is_settled_by_the_other(house: House) {
    async fn fails(_: Renoted, _: &mut Cx) -> Result<(), Failure> {
        Err(Failure::terminal("the new handler has a bug"))
    }
    publish(&backbone(&house), "a", [1]).await;
    let running = run(&house, vec![Consumer::named("c").on(fails).unordered()]).await;
    eventually("the letter is there", async || house.letters().await.len() == 1).await;
    stop(running).await;
    house.seek(&back_to("c", SeekTarget::Beginning)).await.unwrap();
    let both = Consumer::named("c").on(write_down).on(fails).unordered();
    let running = run(&house, vec![both]).await;
    eventually("the old handler has it", async || house.applied("a").await == [1]).await;
    stop(running).await;
    // Mended and asked for again, the letter finds its fact applied.
    house.replay(&house.letters().await[0].id).await;
    let running = run(&house, vec![Consumer::named("c").on(write_down).on(write_down_new)]).await;
    eventually("the letter is closed", async || house.letters().await.is_empty()).await;
    stop(running).await;
    assert_eq!(house.applied("a").await, [1]);
}

async fn whoever_reads_a_topic_is_noted_in_the_store(house: House) {
    let readers = async |topic: &str| {
        let mut tx = house.chapar.store().begin_engine().await.unwrap();
        tx.consumers().topic_readers(topic).await.unwrap()
    };
    assert!(readers(Noted::SUBJECT).await.is_empty());
    let running = run(&house, vec![under("old"), under("both")]).await;
    eventually("both are noted", async || readers(Noted::SUBJECT).await.len() == 2).await;
    running.stop(Duration::from_secs(10)).await;
    let noted = readers(Noted::SUBJECT).await;
    let names: Vec<(&str, &str)> =
        noted.iter().map(|r| (r.subscription.as_str(), r.service.as_str())).collect();
    assert_eq!(names, [("both", "inventory-service"), ("old", "inventory-service")]);
    assert_eq!(readers(NEW).await.len(), 1);
    let before = noted[1].clone();
    let running = run(&house, vec![under("old")]).await;
    eventually("it is seen again", async || {
        readers(Noted::SUBJECT).await[1].last_seen > before.last_seen
    })
    .await;
    stop(running).await;
    assert_eq!(readers(Noted::SUBJECT).await[1].first_seen, before.first_seen);
}
