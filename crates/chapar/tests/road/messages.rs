//! Messages of Protobuf and the constraints of their fields: the bank, from its own files.

use std::path::Path;
use std::sync::Arc;

use chapar::{
    App, AppendError, Chapar, Consumer, Cx, Draft, Envelope, Failure, Payload, Producer, Registry,
    Running, Service,
};
use chapar_core::Aggregate;
use chapar_core::dialect::InlineProtobuf;
use chapar_sql::Value as Sql;
use prost_reflect::DescriptorPool;
use serde_json::{Value, json};

use crate::harness::{House, eventually, on_each_store, stop};

on_each_store!(
    a_message_that_breaks_a_constraint_is_refused_before_commit,
    a_message_that_comes_in_broken_is_dead_lettered_with_its_field,
);

const CREATED: &str = "current-account.account-created.v1";
const INITIATED: &str = "current-account.transaction-initiated.v1";

/// The bank on the house's store, with its contracts or, as a careless producer, without.
fn bank(house: &House, contracts: bool) -> Chapar {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/meridian");
    let loaded = chapar_catalog::load(&folder).unwrap();
    assert_eq!(loaded.mistakes, []);
    let profile = chapar_testkit::profile("meridian");
    let pool: DescriptorPool = loaded
        .protos
        .message("meridian.events.v1.AccountCreatedEvent")
        .unwrap()
        .parent_pool()
        .clone();
    let dialect = Arc::new(InlineProtobuf::new(pool, &profile).unwrap());
    let producer = Producer { service: "current-account".into(), ..Producer::default() };
    let mut builder =
        Chapar::builder(house.chapar.store().clone(), profile, dialect).producer(producer);
    if contracts {
        let bundle = serde_json::to_string(&chapar_catalog::bundle(&loaded)).unwrap();
        let registry = Registry::from_bundle(&bundle).unwrap();
        registry.compile().unwrap();
        builder = builder.registry(registry);
    }
    builder.build()
}

fn draft(subject: &str, account: &str, payload: Value) -> Draft {
    let aggregate = Aggregate { kind: "account".into(), id: account.into(), version: Some(1) };
    Draft::new(subject, aggregate, Payload::json(&payload).unwrap())
}

fn transfer(units: i64, currency: &str) -> Value {
    json!({
        "transactionId": "tx-1",
        "amount": { "currencyCode": "GBP", "units": units.to_string() },
        "currency": currency,
    })
}

async fn append(chapar: &Chapar, draft: Draft) -> Result<(), AppendError> {
    let tenant = chapar.profile().fixed_tenant.clone().unwrap();
    let mut tx = chapar.begin(&tenant).await.unwrap();
    let appended = chapar.append(&mut tx, &tenant, draft).await;
    match appended {
        Ok(_) => chapar.commit(tx).await.unwrap(),
        Err(_) => tx.rollback().await.unwrap(),
    }
    appended.map(|_| ())
}

async fn a_message_that_breaks_a_constraint_is_refused_before_commit(house: House) {
    let bank = bank(&house, true);
    let good = draft(INITIATED, "acc-1", transfer(5, "CURRENCY_GBP"));
    append(&bank, good).await.expect("a good one is taken");
    let opened = json!({ "baseCurrency": "CURRENCY_EUR" });
    append(&bank, draft(CREATED, "acc-1", opened)).await.expect("so is this");

    let refused = async |subject: &str, account: &str, payload: Value| {
        let error = append(&bank, draft(subject, account, payload)).await.unwrap_err();
        assert!(matches!(error, AppendError::Rules(_)), "{error:?}");
        error.to_string()
    };
    let money = "amount: amount must be greater than zero (positive_amount)";
    for (account, payload, reason) in [
        ("acc-1", transfer(0, "CURRENCY_GBP"), money),
        ("acc-1", transfer(-3, "CURRENCY_GBP"), money),
        ("acc-1", transfer(5, "CURRENCY_UNSPECIFIED"), "currency: 0 is not allowed"),
        ("acc-1", json!({ "transactionId": "t", "currency": 1 }), "amount: it must be set"),
        // The account is a part of the envelope, and of the message.
        ("acc 1", transfer(5, "CURRENCY_GBP"), "account_id: \"acc 1\" does not match"),
    ] {
        let error = refused(INITIATED, account, payload).await;
        assert!(error.starts_with("CH1015") && error.contains(reason), "{error}");
    }
    let error = refused(CREATED, "acc-1", json!({})).await;
    assert!(error.contains("base_currency: 0 is not allowed"), "{error}");
}

async fn note(event: Arc<Envelope>, cx: &mut Cx) -> Result<(), Failure> {
    const INSERT: &str = "insert into notes (n, tenant, key) values ($1, $2, $3)";
    let tenant: Sql = cx.tenant().as_str().into();
    let account = event.aggregate.as_ref().map_or("", |aggregate| aggregate.id.as_str());
    cx.tx().execute(INSERT, vec![1i64.into(), tenant, account.into()]).await?;
    Ok(())
}

async fn consume(house: &House, bank: Chapar) -> Running {
    let consumer = Consumer::named("position-keeping.bank").on_any(&[INITIATED, CREATED], note);
    let app = App::new(bank, house.transport.clone(), "house");
    app.service(Service::new("position-keeping").consumer(consumer)).start().await.unwrap()
}

async fn a_message_that_comes_in_broken_is_dead_lettered_with_its_field(house: House) {
    let careless = bank(&house, false);
    for (account, units) in [("broken", 0), ("good", 7)] {
        let transfer = transfer(units, "CURRENCY_GBP");
        append(&careless, draft(INITIATED, account, transfer)).await.unwrap();
    }
    let running = consume(&house, bank(&house, true)).await;
    eventually("the good one is applied", async || house.applied("good").await == [1]).await;
    eventually("the other is a letter", async || house.letters().await.len() == 1).await;
    let letter = house.letters().await.remove(0);
    assert_eq!(letter.kind, "schema_invalid");
    assert!(letter.error.contains("amount: amount must be greater than zero"), "{}", letter.error);
    assert!(house.applied("broken").await.is_empty());
    stop(running).await;
}
