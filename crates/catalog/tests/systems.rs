//! The real catalogs: complete, without a mistake, and right about what they generate.

#![allow(clippy::unwrap_used, reason = "a test may stop here")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use chapar_catalog::{Loaded, docs, graph, inventory, load};
use chapar_core::catalog::{Encoding, NotPublisher};
use serde_json::{Value, json};

fn folder(system: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems").join(system)
}

fn system(name: &str) -> Loaded {
    let loaded = load(&folder(name)).unwrap();
    let mistakes: Vec<String> = loaded.mistakes.iter().map(ToString::to_string).collect();
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    loaded
}

#[test]
fn the_hotel_has_exactly_the_subjects_of_its_document() {
    let listed: BTreeSet<&str> = include_str!("fixtures/melmastoon-subjects.txt").lines().collect();
    let hotel = system("melmastoon");
    let found: BTreeSet<&str> = hotel.catalog.events().map(|e| e.subject.as_str()).collect();
    assert_eq!(found, listed);
    assert_eq!(found.len(), 82);
}

#[test]
fn every_event_of_the_hotel_has_a_schema_with_an_example_and_refuses_nothing_at_all() {
    let hotel = system("melmastoon");
    for event in hotel.catalog.events() {
        let schema = &hotel.schemas[event.subject.as_str()];
        assert!(!schema.refusals(&json!({})).is_empty(), "{}", event.subject);
        for example in schema.examples() {
            assert!(schema.refusals(example).is_empty(), "{}", event.subject);
        }
        assert!(schema.uri().starts_with(&format!("{}#sha256-", schema.id)));
        assert!(hotel.catalog.readers(event).count() > 0 || event.owner == "audit-service");
    }
}

#[test]
fn the_schemas_accept_what_the_booking_flow_writes() {
    let flow: Value = serde_json::from_str(include_str!("fixtures/booking-flow.json")).unwrap();
    let hotel = system("melmastoon");
    for (subject, payloads) in flow.as_object().unwrap() {
        for payload in payloads.as_array().unwrap() {
            assert_eq!(hotel.schemas[subject].refusals(payload), [""; 0], "{subject}");
        }
    }
    assert_eq!(flow.as_object().unwrap().len(), 16);
}

#[test]
fn a_room_that_is_neither_clean_nor_dirty_is_refused() {
    let hotel = system("melmastoon");
    let schema = &hotel.schemas["melmastoon.housekeeping.room.status_changed.v1"];
    let mut payload = schema.examples()[0].clone();
    payload["to"] = json!("sparkling");
    assert_eq!(schema.refusals(&payload).len(), 1);
    payload["to"] = json!("out_of_service");
    payload["somethingNew"] = json!("readers stay open");
    assert!(schema.refusals(&payload).is_empty());
}

#[test]
fn subscriptions_are_named_as_the_document_names_them() {
    let hotel = system("melmastoon");
    let subscriptions = inventory::subscriptions(&hotel.catalog);
    let confirmed: Vec<&str> = subscriptions
        .iter()
        .filter(|s| s.topic == "melmastoon.reservation.booking.confirmed.v1")
        .map(|s| s.name.as_str())
        .collect();
    for consumer in [
        "inventory-service",
        "billing-service",
        "lock-integration-service",
        "notification-service",
        "analytics-service",
        "search-aggregation-service",
        "audit-service",
    ] {
        let name = format!("{consumer}.reservation.booking.confirmed.v1.sub");
        assert!(confirmed.contains(&name.as_str()), "{name}");
    }
    let names: BTreeSet<&str> = subscriptions.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names.len(), subscriptions.len(), "no two share a name");
}

#[test]
fn a_service_publishes_its_own_topics_only_and_audit_reads_all() {
    let hotel = system("melmastoon");
    let grants = inventory::grants(&hotel.catalog);
    let published: Vec<&String> = grants.iter().flat_map(|grant| &grant.publish).collect();
    assert_eq!(published.len(), 82, "each topic has one publisher");
    let of = |service: &str| grants.iter().find(|grant| grant.service == service).unwrap();
    assert_eq!(of("audit-service").read.len(), 82);
    assert_eq!(of("audit-service").subscriptions.len(), 80, "it does not subscribe to itself");
    let payment = of("payment-gateway-service");
    assert!(payment.publish.iter().all(|topic| topic.starts_with("melmastoon.payment.")));
    let account = "payment-gateway-service-publisher@melmastoon-prod.iam";
    assert_eq!(payment.publisher.as_deref(), Some(account));
    let sink = of("dataflow-bigquery@melmastoon-prod.iam");
    assert_eq!(sink.read, ["melmastoon.analytics.snapshot.computed.v1"]);
}

#[test]
fn a_topic_knows_its_dead_letters_its_key_and_how_long_it_is_kept() {
    let hotel = system("melmastoon");
    let topics = serde_json::to_value(inventory::topics(&hotel)).unwrap();
    let topics = topics["topics"].as_array().unwrap();
    let captured = topics
        .iter()
        .find(|topic| topic["topic"] == "melmastoon.payment.intent.captured.v1")
        .unwrap();
    assert_eq!(captured["deadLetterTopic"], "melmastoon.payment.intent.captured.v1.dlq");
    assert_eq!(captured["orderingKey"], "{tenant}:{reservationId}");
    assert_eq!(captured["retentionDays"]["cold"], 2555);
    assert_eq!(captured["crossTenant"], false);
}

#[test]
fn only_its_owner_may_publish_an_event() {
    let hotel = system("melmastoon").catalog;
    let subject = "melmastoon.billing.folio.closed.v1";
    assert!(hotel.may_publish("billing-service", subject).is_ok());
    let foreign = hotel.may_publish("payment-gateway-service", subject);
    assert!(matches!(foreign, Err(NotPublisher::Foreign { .. })));
    let unknown = hotel.may_publish("billing-service", "melmastoon.billing.folio.eaten.v1");
    assert!(matches!(unknown, Err(NotPublisher::Unknown { .. })));
}

#[test]
fn a_bank_speaks_protobuf_with_dashes_and_no_schema_files() {
    let bank = system("meridian");
    let event = bank.catalog.event("current-account.account-created.v1").unwrap();
    let message = "meridian.events.v1.AccountCreatedEvent";
    assert_eq!(event.encoding, Encoding::Protobuf(message.to_owned()));
    assert!(bank.protos.message(message).is_some());
    let names: Vec<String> =
        inventory::subscriptions(&bank.catalog).into_iter().map(|s| s.name).collect();
    assert!(names.contains(&"position-keeping.current-account.account-created.v1.sub".to_owned()));
    let page = &docs::site(&bank).unwrap()["events/current-account.account-created.v1.html"];
    assert!(page.contains("account_identification") && page.contains(message));
}

#[test]
fn a_learning_platform_has_subjects_of_five_segments_and_one_stream_for_its_dead_letters() {
    let learning = system("learning");
    let event = learning.catalog.event("authoring.draft.block.added.v1").unwrap();
    assert_eq!(learning.catalog.schema_path(event), "authoring/draft/block/added/v1");
    let topics = serde_json::to_value(inventory::topics(&learning)).unwrap();
    assert_eq!(topics["topics"][1]["deadLetterTopic"], "AUTHORING.dlq");
}

#[test]
fn the_site_has_a_page_per_event_and_every_link_leads_somewhere() {
    let hotel = system("melmastoon");
    let site = docs::site(&hotel).unwrap();
    assert_eq!(site.keys().filter(|path| path.starts_with("events/")).count(), 82);
    for (path, page) in &site {
        let base = path.split('/').count() - 1;
        for target in page.split("href=\"").skip(1).chain(page.split("src=\"").skip(1)) {
            let target = target.split('"').next().unwrap();
            let found = match target.strip_prefix("../") {
                Some(rest) if base == 1 => site.contains_key(rest),
                None if base == 1 => site.contains_key(&format!("events/{target}")),
                None => site.contains_key(target),
                Some(_) => false,
            };
            assert!(found, "{path} leads to {target}");
        }
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        let outside = outside.replace("https://json-schema.org/draft/2020-12/schema", "");
        assert!(!outside.contains("http://") && !outside.contains("https://"), "{path}");
    }
    let page = &site["events/melmastoon.reservation.booking.held.v1.html"];
    for part in ["reservation-service", "inventory-service", "holdExpiresAt", "History", "personal"]
    {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn the_picture_draws_each_pair_once_with_its_count() {
    let hotel = system("melmastoon");
    let svg = graph::svg(&hotel.catalog);
    let line = "<title>reservation-service to inventory-service: 6 events</title>";
    assert_eq!(svg.matches(line).count(), 1);
    assert!(!svg.contains("to audit-service:"));
    assert_eq!(svg, graph::svg(&hotel.catalog));
}

#[test]
fn the_schema_of_the_envelope_accepts_what_the_dialect_writes() {
    let hotel = system("melmastoon");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/fixtures/melmastoon");
    let mut tried = 0;
    for file in std::fs::read_dir(fixtures).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "json") {
            let message: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let envelope = hotel.envelope.as_ref().unwrap();
            assert_eq!(envelope.refusals(&message), [""; 0], "{}", path.display());
            tried += 1;
        }
    }
    assert!(tried > 0);
}
