//! A server is set up from a catalog, and compared with it.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::stream;
use chapar_core::port::{
    Action, DeclaredSubscription, Difference, How, Pruning, TopicSpec, Topology, Transport,
    TransportError,
};
use chapar_testkit::need;
use chapar_transports::nats::{Nats, NatsOptions};

use super::specifics::{DAY, jetstream_of, message, options, server, spec};

pub(super) const HELD: &str = "melmastoon.reservation.booking.held.v1";
pub(super) const CANCELLED: &str = "melmastoon.reservation.booking.cancelled.v1";
pub(super) const ISSUED: &str = "melmastoon.billing.invoice.issued.v1";

/// Two services; each reads of the other, and audit reads everything.
pub(super) fn catalog() -> Topology {
    let topic = |name: &str| TopicSpec { name: name.into(), partitions: 3, retention: 7 * DAY };
    let read = |service: &str, topic: &str| DeclaredSubscription {
        name: format!("{service}.{topic}.sub"),
        service: service.into(),
        topic: topic.into(),
        ordered: true,
        dead_letter_topic: format!("{topic}.dlq"),
    };
    Topology {
        system: "melmastoon".into(),
        topics: vec![topic(HELD), topic(CANCELLED), topic(ISSUED)],
        publishers: BTreeMap::from([
            ("reservation-service".into(), vec![HELD.into(), CANCELLED.into()]),
            ("billing-service".into(), vec![ISSUED.into()]),
        ]),
        subscriptions: vec![
            read("audit-service", HELD),
            read("audit-service", CANCELLED),
            read("audit-service", ISSUED),
            read("billing-service", HELD),
            read("reservation-service", ISSUED),
        ],
    }
}

/// Carries out what can be; returns what is left.
pub(super) async fn apply(nats: &Nats, wanted: &Topology, pruning: Pruning) -> Vec<Difference> {
    for difference in nats.plan(wanted).await.unwrap() {
        if let Some(part) = difference.to_do(pruning) {
            nats.carry_out(wanted, &part).await.unwrap();
            nats.carry_out(wanted, &part).await.unwrap();
        }
    }
    nats.plan(wanted).await.unwrap()
}

fn names(differences: &[Difference]) -> Vec<(&str, &str)> {
    differences.iter().map(|d| (d.kind, d.name.as_str())).collect()
}

fn settings(difference: &Difference) -> Vec<(&str, &str, &str, bool)> {
    let Action::Change { settings } = &difference.action else { panic!("{difference:?}") };
    let by_hand = |how: &How| matches!(how, How::ByHand(_));
    settings.iter().map(|s| (s.setting, &*s.is, &*s.should, by_hand(&s.how))).collect()
}

#[tokio::test]
async fn an_empty_server_gets_what_the_catalog_asks_for_and_then_nothing() {
    let server = need!(server());
    let nats = Nats::connect(server.url(), options("a")).await.unwrap();
    let plan = nats.plan(&catalog()).await.unwrap();
    let all = [("bucket", "chapar"), ("stream", "BILLING"), ("stream", "RESERVATION")];
    assert_eq!(names(&plan), all);
    assert_eq!(nats.plan(&catalog()).await.unwrap(), plan, "a plan changes nothing");
    assert_eq!(apply(&nats, &catalog(), Pruning::Keep).await, []);
    let stream = jetstream_of(&server).await.get_stream("RESERVATION").await.unwrap();
    assert_eq!(stream.cached_info().config.max_age, 7 * DAY);
    // What relays and consumers do afterwards makes no difference.
    nats.publish(vec![message(HELD, "inn", "inn:1")]).await.remove(0).unwrap();
    let mut reader = spec(&[HELD]);
    reader.name = "billing-service.folios".into();
    nats.subscribe(&reader).await.unwrap().close().await.unwrap();
    assert_eq!(nats.plan(&catalog()).await.unwrap(), []);
}

#[tokio::test]
async fn other_settings_are_shown_and_changed_only_where_nothing_is_lost() {
    let server = need!(server());
    let nats = Nats::connect(server.url(), options("a")).await.unwrap();
    apply(&nats, &catalog(), Pruning::Keep).await;
    let jetstream = jetstream_of(&server).await;
    let mut reservation =
        jetstream.get_stream("RESERVATION").await.unwrap().info().await.unwrap().config.clone();
    (reservation.max_age, reservation.no_ack, reservation.allow_direct) = (DAY, true, false);
    reservation.duplicate_window = Duration::from_secs(1);
    jetstream.update_stream(&reservation).await.unwrap();
    jetstream.delete_stream("BILLING").await.unwrap();
    let memory = stream::Config {
        name: "BILLING".into(),
        subjects: vec!["melmastoon.billing.invoice.*.*.*".into()],
        storage: stream::StorageType::Memory,
        max_age: 30 * DAY,
        ..Default::default()
    };
    jetstream.create_stream(memory).await.unwrap();
    let plan = nats.plan(&catalog()).await.unwrap();
    assert_eq!(names(&plan), [("stream", "BILLING"), ("stream", "RESERVATION")]);
    let subjects = "melmastoon.billing.invoice.*.*.*";
    let both = format!("{subjects}, melmastoon.billing.>");
    let billing = [
        ("subjects", subjects, &*both, false),
        ("storage", "Memory", "File", true),
        ("max_age", "30 d", "7 d", false),
        ("allow_direct", "false", "true", false),
        ("chapar-partitions", "none", "12", true),
        ("chapar-own-partitions", "none", "", false),
        ("chapar-system", "none", "melmastoon", false),
    ];
    assert_eq!(settings(&plan[0]), billing);
    let reservation = [
        ("max_age", "1 d", "7 d", false),
        ("duplicate_window", "1 s", "2 min", false),
        ("no_ack", "true", "false", false),
        ("allow_direct", "false", "true", false),
    ];
    assert_eq!(settings(&plan[1]), reservation);
    // Subjects that overlap cannot be added; the rest of the stream can still be changed.
    let part = plan[0].to_do(Pruning::Keep).unwrap();
    let refused = nats.carry_out(&catalog(), &part).await.unwrap_err().to_string();
    assert!(refused.contains("the stream BILLING cannot be changed"), "{refused}");
    nats.carry_out(&catalog(), &plan[1].to_do(Pruning::Keep).unwrap()).await.unwrap();
    let plan = nats.plan(&catalog()).await.unwrap();
    assert_eq!(names(&plan), [("stream", "BILLING")]);
    let mut billing = plan[0].clone();
    if let Action::Change { settings } = &mut billing.action {
        settings.retain(|setting| setting.setting == "max_age");
    }
    assert_eq!(billing.to_do(Pruning::Keep), None, "a shorter time deletes messages");
    nats.carry_out(&catalog(), &billing.to_do(Pruning::Delete).unwrap()).await.unwrap();
    let stream = jetstream.get_stream("BILLING").await.unwrap();
    assert_eq!(stream.cached_info().config.max_age, 7 * DAY);
}

#[tokio::test]
async fn what_the_catalog_does_not_mention_is_deleted_only_when_nobody_reads_it() {
    let server = need!(server());
    let nats = Nats::connect(server.url(), options("a")).await.unwrap();
    apply(&nats, &catalog(), Pruning::Keep).await;
    let (retired, gone) =
        ("melmastoon.reservation.booking.parked.v1", "melmastoon.spa.slot.booked.v1");
    for topic in [retired, gone] {
        nats.publish(vec![message(topic, "inn", "inn:1")]).await.remove(0).unwrap();
    }
    let bank = NatsOptions { prefix: Some("bank".into()), ..options("b") };
    let bank = Nats::connect(server.url(), bank).await.unwrap();
    bank.publish(vec![message("bank.ledger.entry.booked.v1", "b", "b:1")]).await.remove(0).unwrap();
    let mut stranger = spec(&[HELD, gone]);
    stranger.name = "spa-service.slots".into();
    let reader = nats.subscribe(&stranger).await.unwrap();
    let mut curious = spec(&[HELD, CANCELLED]);
    curious.name = "billing-service.folios".into();
    nats.subscribe(&curious).await.unwrap().close().await.unwrap();

    let plan = nats.plan(&catalog()).await.unwrap();
    let found = names(&plan);
    assert!(found.contains(&("topic", retired)), "{plan:?}");
    assert!(found.contains(&("stream", "SPA")), "{plan:?}");
    assert!(found.contains(&("subscription", "spa-service.slots")), "{plan:?}");
    assert!(found.contains(&("subscription", "billing-service.folios")), "{plan:?}");
    assert_eq!(found.len(), 4, "what is of another system is none of ours: {plan:?}");
    let curious = plan.iter().find(|d| d.name == "billing-service.folios").unwrap();
    assert_eq!(settings(curious), [("reads", CANCELLED, "nothing undeclared", true)]);
    assert_eq!(apply(&nats, &catalog(), Pruning::Keep).await, plan, "nothing is deleted unasked");
    for name in ["SPA", "spa-service.slots"] {
        let extra = plan.iter().find(|difference| difference.name == name).unwrap();
        let refused = nats.carry_out(&catalog(), extra).await.unwrap_err();
        assert!(
            matches!(&refused, TransportError::Setup(why) if why.contains("spa-service.slots still reads")),
            "{refused}"
        );
    }
    reader.close().await.unwrap();
    assert_eq!(apply(&nats, &catalog(), Pruning::Delete).await, std::slice::from_ref(curious));
    let jetstream = jetstream_of(&server).await;
    assert!(jetstream.get_stream("SPA").await.is_err());
    assert!(jetstream.get_stream("LEDGER").await.is_ok());
    let stream = jetstream.get_stream("RESERVATION").await.unwrap();
    assert_eq!(stream.cached_info().state.consumer_count, 12, "only billing's durables are left");
    assert_eq!(stream.cached_info().state.messages, 0, "the retired topic is empty");
}
