//! Emitting: in the library's transaction, in the caller's own, and from SQL.

use chapar::{AppendError, Consumer, Cx, Event, StoreError, Tenant};
use chapar_core::dialect::{Dialect, Message};
use chapar_core::port::{Outgoing, Transport};
use chapar_sql::{Append, Tables};
use chapar_testkit::{need, servers};

use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};

on_each_store!(
    a_rolled_back_event_is_never_published,
    the_same_intent_appended_again_gives_the_first_event,
    the_same_key_with_another_payload_is_refused_before_commit,
    the_same_key_of_another_tenant_is_another_intent,
    an_event_that_breaks_a_rule_is_refused_before_commit,
    an_emitted_event_carries_the_chain_of_its_cause,
    the_callers_own_sqlx_transaction_carries_the_event,
);

fn acme() -> Tenant {
    "acme".parse().unwrap()
}

fn noted(n: i64) -> Noted {
    Noted { key: "a".into(), n }
}

async fn a_rolled_back_event_is_never_published(house: House) {
    let running = house.run(Consumer::named("c").on(write_down)).await;
    let mut tx = house.chapar.begin(&acme()).await.unwrap();
    house.chapar.append(&mut tx, &acme(), noted(1)).await.unwrap();
    tx.rollback().await.unwrap();
    house.note("acme", "a", [2]).await;
    eventually("the committed one is applied", async || !house.applied("a").await.is_empty()).await;
    assert_eq!(house.applied("a").await, [2]);
    stop(running).await;
}

async fn the_same_intent_appended_again_gives_the_first_event(house: House) {
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut tx = house.chapar.begin(&acme()).await.unwrap();
        let appended = house.chapar.append(&mut tx, &acme(), noted(1)).await.unwrap();
        house.chapar.commit(tx).await.unwrap();
        ids.push(appended);
    }
    assert_eq!(ids[0].event_id, ids[1].event_id);
    assert_eq!((ids[0].repeated, ids[1].repeated), (false, true));
    let mut tx = house.chapar.store().begin_engine().await.unwrap();
    assert_eq!(tx.survey().counts().await.unwrap().outbox_waiting, 1, "one row, not two");
}

async fn the_same_key_with_another_payload_is_refused_before_commit(house: House) {
    house.note("acme", "a", [1]).await;
    let mut tx = house.chapar.begin(&acme()).await.unwrap();
    let other = noted(2).draft().idempotency_key("a:1");
    let refused = house.chapar.append(&mut tx, &acme(), other).await;
    assert!(
        matches!(&refused, Err(AppendError::Store(StoreError::IdempotencyConflict(_)))),
        "{refused:?}"
    );
}

async fn the_same_key_of_another_tenant_is_another_intent(house: House) {
    let running = house.run(Consumer::named("c").on(write_down)).await;
    house.note("acme", "a", [1]).await;
    house.note("other", "a", [1]).await;
    eventually("both are applied", async || house.applied("a").await.len() == 2).await;
    stop(running).await;
}

async fn an_event_that_breaks_a_rule_is_refused_before_commit(house: House) {
    let mut tx = house.chapar.begin(&acme()).await.unwrap();
    let unknown = noted(1).draft().retention("for ever");
    let refused = house.chapar.append(&mut tx, &acme(), unknown).await;
    assert!(matches!(&refused, Err(AppendError::Rules(_))), "{refused:?}");
    let error = refused.unwrap_err().to_string();
    assert!(error.starts_with("CH1008"), "{error}");
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Answered {
    to: String,
}

impl Event for Answered {
    const SUBJECT: &'static str = "melmastoon.inventory.allocation.committed.v1";
    const AGGREGATE: &'static str = "allocation";

    fn aggregate_id(&self) -> String {
        self.to.clone()
    }

    fn intent(&self) -> Option<String> {
        Some(format!("{}:answered", self.to))
    }
}

async fn an_emitted_event_carries_the_chain_of_its_cause(house: House) {
    let answer = async |noted: Noted, cx: &mut Cx| cx.emit(Answered { to: noted.key }).await;
    let running = house.run(Consumer::named("c").on(answer)).await;
    house.note("acme", "a", [1]).await;
    let read = async || {
        let sql = "select headers, body from chapar.log order by published_at";
        let sql = match house.chapar.store().backend() {
            chapar_sql::Backend::Sqlite => {
                "select headers, body from chapar_log order by published_at"
            }
            chapar_sql::Backend::Postgres => sql,
        };
        let mut tx = house.chapar.store().begin_engine().await.unwrap();
        let rows = tx.fetch(sql, vec![]).await.unwrap();
        let decode = |row: &chapar_sql::Row| {
            let message = Message::from_body(row.get::<bytes::Bytes>(1).unwrap());
            house.dialect().decode(&message).unwrap()
        };
        rows.iter().map(decode).collect::<Vec<_>>()
    };
    eventually("both are published", async || read().await.len() == 2).await;
    let events = read().await;
    let (parent, child) = (&events[0], &events[1]);
    assert_eq!(child.event_type, "melmastoon.inventory.allocation.committed");
    assert_eq!(child.causation.as_ref(), Some(&parent.id));
    assert_eq!(child.correlation, parent.correlation);
    assert_eq!(child.producer.service, "inventory-service");
    assert_eq!(child.ordering_key.as_deref(), Some("acme:a"));
    stop(running).await;
}

async fn the_callers_own_sqlx_transaction_carries_the_event(house: House) {
    let running = house.run(Consumer::named("c").on(write_down)).await;
    match house.chapar.store().backend() {
        chapar_sql::Backend::Sqlite => {
            let pool = sqlx::SqlitePool::connect(&house.url).await.unwrap();
            let mut tx = pool.begin_with("begin immediate").await.unwrap();
            house.chapar.append(&mut tx, &acme(), noted(7)).await.unwrap();
            tx.commit().await.unwrap();
        }
        chapar_sql::Backend::Postgres => {
            let pool = sqlx::PgPool::connect(&house.url).await.unwrap();
            let mut tx = pool.begin().await.unwrap();
            sqlx::raw_sql("set local app.tenant_id = 'acme'").execute(&mut *tx).await.unwrap();
            house.chapar.append(&mut tx, &acme(), noted(7)).await.unwrap();
            tx.commit().await.unwrap();
        }
    }
    // Nobody nudges for another pool's commit: the relay finds it by looking.
    eventually("it is applied", async || house.applied("a").await == [7]).await;
    stop(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_emitted_in_sql_is_completed_and_applied() {
    let server = need!(servers::postgres());
    let house = House::on_postgres(&server).await;
    let running = house.run(Consumer::named("c").on(write_down)).await;
    let mut tx = house.chapar.begin(&acme()).await.unwrap();
    let emit = "select chapar.emit('melmastoon.reservation.booking.modified.v1', tenant => 'acme', \
                key => 'a', payload => '{\"key\": \"a\", \"n\": 5}', idempotency_key => 'a:5')";
    let first: String = tx.fetch(emit, vec![]).await.unwrap()[0].get(0).unwrap();
    let again: String = tx.fetch(emit, vec![]).await.unwrap()[0].get(0).unwrap();
    tx.commit().await.unwrap();
    assert_eq!(first, again, "the same intent gives the first event");
    assert_eq!(first.as_bytes()[14], b'7', "a UUID of version 7: {first}");
    eventually("it is applied", async || house.applied("a").await == [5]).await;
    stop(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_emitted_in_sql_that_breaks_a_rule_is_quarantined_with_its_key_only() {
    let server = need!(servers::postgres());
    let house = House::on_postgres(&server).await;
    let running = house.run(Consumer::named("c").on(write_down)).await;
    let mut tx = house.chapar.begin(&acme()).await.unwrap();
    // The hotel demands an idempotency key, which chapar.emit asks for and chapar.append does not.
    let emit = "select chapar.append('bad-1', 'acme', 'melmastoon.reservation.booking.modified.v1', \
                'acme:bad', chapar.shard('acme:bad'), '', 'bad', null, '', 'c', null, false, '{}', \
                '{\"key\": \"bad\", \"n\": 1}')";
    tx.execute(emit, vec![]).await.unwrap();
    tx.commit().await.unwrap();
    house.note("acme", "bad", [2]).await;
    house.note("acme", "good", [3]).await;
    eventually("the neighbour flows", async || house.applied("good").await == [3]).await;
    let error = "select count(*) from chapar.outbox_parked where quarantined_at is not null \
                 and last_error like 'CH1002%'";
    eventually("it is in quarantine", async || house.ints(error, vec![]).await == [1]).await;
    assert!(house.applied("bad").await.is_empty(), "its follower keeps its place");
    assert_eq!(running.metrics().quarantined(), 1);
    stop(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_tokio_postgres_carries_the_event() {
    let server = need!(servers::postgres());
    let house = House::on_postgres(&server).await;
    let running = house.run(Consumer::named("c").on(write_down)).await;
    let (mut client, connection) =
        tokio_postgres::connect(&house.url, tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    let mut append = async |n: i64, commit: bool| {
        let tx = client.transaction().await.unwrap();
        tx.batch_execute("set local app.tenant_id = 'acme'").await.unwrap();
        for event in house.chapar.prepare(&acme(), [noted(n)]).unwrap() {
            let shard = event.home_shard();
            let (hash, body) = (&event.payload_hash[..], &event.body[..]);
            let id: String = tx
                .query_one(
                    Append::CALL,
                    &[
                        &event.event_id,
                        &event.tenant,
                        &event.topic,
                        &event.ordering_key,
                        &shard,
                        &event.aggregate_type,
                        &event.aggregate_id,
                        &event.idempotency_key,
                        &hash,
                        &event.correlation_id,
                        &event.causation_id,
                        &event.headers,
                        &body,
                    ],
                )
                .await
                .unwrap()
                .get(0);
            assert_eq!(id, event.event_id);
        }
        if commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    };
    append(7, false).await;
    append(8, true).await;
    eventually("it is applied", async || house.applied("a").await == [8]).await;
    drop(client);
    driver.await.unwrap().unwrap();
    stop(running).await;
}

/// A message of a tenant, as the library would seal it.
fn sealed(house: &House, tenant: &str, n: i64) -> Append {
    let tenant: Tenant = tenant.parse().unwrap();
    house.chapar.prepare(&tenant, [noted(n)]).unwrap().remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_event_of_another_tenant_is_quarantined_and_applied_by_no_consumer() {
    let server = need!(servers::postgres());
    let house = House::on_postgres(&server).await;
    let running = house.run(Consumer::named("c").on(write_down)).await;
    // The database checks whom it is written for, and does not read what is inside.
    let tenant = "acme".to_owned();
    let forged =
        Append { tenant, ordering_key: Some("acme:a".into()), ..sealed(&house, "blue", 1) };
    let mut tx = house.chapar.begin(&acme()).await.unwrap();
    tx.outbox_rows().append(&[forged]).await.unwrap();
    house.chapar.commit(tx).await.unwrap();
    let quarantined = async || {
        let mut tx = house.chapar.store().begin_engine().await.unwrap();
        tx.outbox_rows().parked(true, 10).await.unwrap()
    };
    eventually("it is in quarantine", async || quarantined().await.len() == 1).await;
    let error = quarantined().await[0].last_error.clone().unwrap();
    assert!(error.starts_with("CH1018") && error.contains("\"blue\""), "{error}");
    house.note("blue", "a", [2]).await;
    eventually("blue's own is applied", async || house.applied("a").await == [2]).await;
    // A key of another tenant would hold up that tenant's events.
    let mut tx = house.chapar.begin(&acme()).await.unwrap();
    let foreign = Append { ordering_key: Some("blue:a".into()), ..sealed(&house, "acme", 3) };
    let refused = tx.outbox_rows().append(&[foreign]).await.unwrap_err().to_string();
    assert!(refused.contains("CH1018"), "{refused}");
    stop(running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_names_two_tenants_becomes_a_dead_letter() {
    let house = House::on_sqlite().await;
    let running = house.run(Consumer::named("c").on(write_down)).await;
    let message = |n: i64, header: &str, key: &str| {
        let event = sealed(&house, "blue", n);
        Outgoing {
            id: event.event_id.parse().unwrap(),
            topic: event.topic,
            tenant: "blue".into(),
            key: Some(key.into()),
            headers: [("tenantId", header)].into(),
            body: event.body,
        }
    };
    let messages = vec![
        message(1, "acme", "blue:a"),
        message(2, "blue", "acme:a"),
        message(3, "blue", "blue:c"),
    ];
    for receipt in house.transport.publish(messages).await {
        receipt.unwrap();
    }
    eventually("two are dead letters", async || house.letters().await.len() == 2).await;
    for letter in house.letters().await {
        assert!(letter.error.starts_with("CH1018"), "{}", letter.error);
    }
    eventually("the third is applied", async || house.applied("a").await == [3]).await;
    stop(running).await;
}
