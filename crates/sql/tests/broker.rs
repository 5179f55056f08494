//! Whether events are lost or on their way, told from the tables where a broker carries them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use chapar_sql::{Append, Store, StoreOptions, Tables};

#[tokio::test]
async fn an_event_is_on_its_way_until_a_later_one_of_its_key_is_applied() {
    let store = Store::open("sqlite::memory:", &StoreOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    let event = |n: u32| Append {
        event_id: format!("e{n}"),
        tenant: "acme".into(),
        topic: "t".into(),
        ordering_key: Some("k".into()),
        aggregate_type: String::new(),
        aggregate_id: "k".into(),
        idempotency_key: None,
        payload_hash: Append::hash(b""),
        correlation_id: "c".into(),
        causation_id: None,
        headers: "[]".into(),
        body: "{}".into(),
    };
    let mut tx = store.begin("acme").await.unwrap();
    tx.outbox_rows().append(&[event(1), event(2), event(3)]).await.unwrap();
    let subscriptions = [("desk".to_owned(), "t".to_owned())];
    let apply = "insert into chapar_inbox (consumer, event_id, tenant, topic, result, received_at, processed_at) \
                 values ('desk', $1, 'acme', 't', 'ok', 0, 0)";
    tx.execute(apply, vec!["e1".into()]).await.unwrap();
    let census = tx.survey().census_over_broker(&subscriptions).await.unwrap();
    assert_eq!((census.lost, census.in_flight), (0, 3), "none is published, two not applied");
    tx.execute(apply, vec!["e3".into()]).await.unwrap();
    let census = tx.survey().census_over_broker(&subscriptions).await.unwrap();
    assert_eq!(census.lost, 1, "the second was passed over");
}
