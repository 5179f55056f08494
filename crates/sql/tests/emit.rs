//! `chapar.emit` refuses early: the caller learns of a broken rule inside its own transaction.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use chapar_core::Profile;
use chapar_sql::{KnownSubject, Store, StoreError, StoreOptions, Tx};
use chapar_testkit::{need, servers};

const HELD: &str = "melmastoon.reservation.booking.held.v1";

async fn store(server: &servers::Postgres) -> (Store, servers::Database) {
    let database = server.database("emit").unwrap();
    let store = Store::open(database.url(), &StoreOptions::default()).await.unwrap();
    store.migrate().await.unwrap();
    (store, database)
}

async fn emit(tx: &mut Tx, arguments: &str) -> Result<u64, StoreError> {
    tx.execute(format!("select chapar.emit({arguments})").leak(), vec![]).await
}

/// What is refused, and in which words, for a tenant `acme`.
async fn refused(store: &Store, arguments: &str) -> String {
    let mut tx = store.begin("acme").await.unwrap();
    match emit(&mut tx, arguments).await {
        Err(StoreError::TooLong(said)) => said,
        other => panic!("{arguments}: {other:?}"),
    }
}

#[tokio::test]
async fn a_broken_rule_is_said_by_its_code_inside_the_transaction() {
    let server = need!(servers::postgres());
    let (store, _database) = store(&server).await;
    let hotel = chapar_testkit::profile("melmastoon");
    store.set_rules(&hotel, None).await.unwrap();
    let large = "jsonb_build_object('x', repeat('x', 300000))";
    for (arguments, code) in [
        ("'melmastoon.reservation.Booking.held.v1', 'acme', 'k', '{}', 'i'".to_owned(), "CH1001"),
        ("'melmastoon.reservation.booking.hold.v1', 'acme', 'k', '{}', 'i'".to_owned(), "CH1001"),
        ("'melmastoon.reservation.booking.held', 'acme', 'k', '{}', 'i'".to_owned(), "CH1001"),
        (format!("'{HELD}', 'acme', 'k', '{{}}'"), "CH1002"),
        (format!("'{HELD}', 'platform', 'k', '{{}}', 'i'"), "CH1003"),
        (format!("'{HELD}', 'a:b', 'k', '{{}}', 'i'"), "CH1003"),
        (format!("'{HELD}', U&'ac\\00A0me', 'k', '{{}}', 'i'"), "CH1003"),
        (format!("'{HELD}', 'acme', 'k', '{{\"tenantId\": \"blue\"}}', 'i'"), "CH1004"),
        (format!("'{HELD}', 'acme', 'k', '{{}}', 'i', metadata => {large}"), "CH1006"),
        (format!("'{HELD}', 'acme', 'k', {large}, 'i'"), "CH1007"),
        (format!("'{HELD}', 'acme', repeat('k', 2000), '{{}}', 'i'"), "CH1017"),
    ] {
        let said = refused(&store, &arguments).await;
        assert!(said.starts_with(code), "{arguments}: {said}");
    }
    // What the relay could not read.
    for part in [
        "metadata => '[1]'",
        "actor => '\"clerk\"'",
        "actor => '{\"type\": \"robot\", \"id\": \"r\"}'",
        "actor => '{\"type\": \"user\"}'",
        "correlation_id => ''",
        "causation_id => chr(1)",
    ] {
        let said = refused(&store, &format!("'{HELD}', 'acme', 'k', '{{}}', 'i', {part}")).await;
        assert!(said.contains("cannot be used"), "{part}: {said}");
    }
    let mut tx = store.begin("acme").await.unwrap();
    let actor = "actor => '{\"type\": \"user\", \"id\": \"u\"}', aggregate_type => null";
    emit(&mut tx, &format!("'{HELD}', 'acme', 'k', '{{\"tenantId\": \"acme\"}}', 'i', {actor}"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_catalog_says_who_may_emit_what() {
    let server = need!(servers::postgres());
    let (store, _database) = store(&server).await;
    let hotel = chapar_testkit::profile("melmastoon");
    let known = |subject: &str, thin| KnownSubject {
        subject: subject.into(),
        owner: "reservation".into(),
        thin,
    };
    let exported = "melmastoon.reservation.booking.exported.v1";
    store.set_rules(&hotel, Some(&[known(HELD, false), known(exported, true)])).await.unwrap();
    // A program without a catalog leaves the one that is there.
    store.set_rules(&hotel, None).await.unwrap();
    let said =
        refused(&store, "'melmastoon.reservation.booking.cancelled.v1', 'acme', 'k', '{}', 'i'")
            .await;
    assert!(said.starts_with("CH1013"), "{said}");
    let said =
        refused(&store, &format!("'{HELD}', 'acme', 'k', '{{}}', 'i', producer => 'payment'"))
            .await;
    assert!(said.starts_with("CH1014") && said.contains("belongs to reservation"), "{said}");
    let mut tx = store.begin("acme").await.unwrap();
    for arguments in [
        format!("'{HELD}', 'acme', 'k', '{{}}', 'i', producer => 'reservation'"),
        format!("'{HELD}', 'acme', 'k', '{{}}', 'i2'"),
        format!("'{exported}', 'acme', 'k', jsonb_build_object('x', repeat('x', 300000)), 'i'"),
    ] {
        emit(&mut tx, &arguments).await.unwrap();
    }
    tx.commit().await.unwrap();
    store.set_rules(&hotel, Some(&[])).await.unwrap();
    let said = refused(&store, &format!("'{HELD}', 'acme', 'k', '{{}}', 'i'")).await;
    assert!(said.starts_with("CH1013"), "{said}");
}

#[tokio::test]
async fn a_key_of_another_tenant_is_refused() {
    let server = need!(servers::postgres());
    let (store, _database) = store(&server).await;
    let append = |key: &str| {
        format!(
            "select chapar.append('e', 'acme', 'a.b', '{key}', 0::smallint, '', 'k', null, '', 'c', \
             null, true, '[]', '')"
        )
    };
    store.set_rules(&chapar_testkit::profile("melmastoon"), None).await.unwrap();
    for key in ["blue:k", "acmeblue:k", "k"] {
        let mut tx = store.begin("acme").await.unwrap();
        let refused = tx.execute(append(key).leak(), vec![]).await.unwrap_err().to_string();
        assert!(refused.contains("CH1018"), "{refused}");
    }
    let mut tx = store.begin("acme").await.unwrap();
    tx.execute(append("acme:k").leak(), vec![]).await.unwrap();
    // Where keys are not by tenant, any is as good as another.
    store.set_rules(&chapar_testkit::profile("learning"), None).await.unwrap();
    let mut tx = store.begin("acme").await.unwrap();
    tx.execute(append("k").leak(), vec![]).await.unwrap();
}

#[tokio::test]
async fn the_database_knows_subjects_and_keys_as_the_library_does() {
    let server = need!(servers::postgres());
    let (store, _database) = store(&server).await;
    let systems = ["melmastoon", "meridian", "learning", "invoicing"];
    let mut profiles: Vec<Profile> = systems.map(chapar_testkit::profile).to_vec();
    profiles.push(Profile::default());
    let long = format!("a.{}ed.v1", "x".repeat(250));
    let subjects = [
        "melmastoon.reservation.booking.held.v1",
        "melmastoon.reservation.booking.held.v0",
        "melmastoon.reservation.booking.held.v01",
        "melmastoon.reservation.booking.held.v12",
        "melmastoon.reservation.booking.not_held.v1",
        "melmastoon.reservation.booking.held_again.v1",
        "melmastoon.reservation.booking.1held.v1",
        "melmastoon.reservation.booking.hold.v1",
        "melmastoon.reservation.booking.red.v1",
        "melmastoon.nowhere.booking.held.v1",
        "melmastoon.reservation..held.v1",
        "melmastoon.reservation.booking.held.v1\n",
        "learning.course.published.v1",
        "course.lesson.completed.v1",
        "course.lesson.completed.v1.eu_1",
        "course.lesson.completed.v1.",
        "ledger.entry-posted.v1",
        "ledger.entry_posted.v1",
        "ledger.Entry-posted.v1",
        "invoice.line.added",
        "invoice.line.add",
        "a.b",
        "a.B",
        "a",
        "",
        long.as_str(),
    ];
    let mut tx = store.begin_raw().await.unwrap();
    for profile in profiles {
        for subject in subjects {
            let sql = "select $1::text ~ $2::text, \
                       chapar.ordering_key($3::text, '{aggregate_id}', 'a/{tenant}:b')";
            let args = vec![
                subject.into(),
                profile.subject_pattern().into(),
                profile.key_template.as_str().into(),
            ];
            let row = &tx.fetch(sql, args).await.unwrap()[0];
            let (known, key): (bool, String) = (row.get(0).unwrap(), row.get(1).unwrap());
            let name = &profile.name;
            assert_eq!(known, profile.subject(subject).is_ok(), "{name}: {subject:?}");
            let tenant = "{aggregate_id}".parse().unwrap();
            assert_eq!(key, profile.key_template.fill(&tenant, "a/{tenant}:b"));
        }
    }
}
