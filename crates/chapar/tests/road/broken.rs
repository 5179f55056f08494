//! Messages that nobody can apply, among others that flow.

use std::sync::Arc;

use chapar::{App, Consumer, Event, Service};
use chapar_core::dialect::MAX_MESSAGE;
use chapar_core::port::{Outgoing, Transport};

use crate::contracts::registered;
use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};

on_each_store!(what_cannot_be_applied_is_dead_lettered_while_the_rest_flows);

async fn what_cannot_be_applied_is_dead_lettered_while_the_rest_flows(house: House) {
    let transport = house.transport.clone();
    the_rest_flows(&house, transport).await;
}

pub(crate) async fn the_rest_flows(house: &House, transport: Arc<dyn Transport>) {
    let chapar = registered(house, "reservation-service");
    let consumer = Consumer::named("c").on(write_down);
    let app = App::new(chapar, transport.clone(), "house");
    let running =
        app.service(Service::new("inventory-service").consumer(consumer)).start().await.unwrap();
    let mut huge = b"{\"eventId\": \"".to_vec();
    huge.resize(20_000_000, b'x');
    let truncated = b"{\"eventId\": \"0190163d-8694-739b-aea5-966c26f8ad91\", \"payl".to_vec();
    let broken = [("huge", huge), ("truncated", truncated), ("no-text", vec![0xff; 64])];
    house.note("acme", "a", 1..=10).await;
    // A producer that checks nothing has written it.
    house.note("acme", "invalid", [-1]).await;
    for (key, body) in broken {
        let message = Outgoing {
            id: format!("raw-{key}").parse().unwrap(),
            topic: Noted::SUBJECT.into(),
            tenant: "acme".into(),
            key: Some(key.into()),
            headers: Default::default(),
            body: body.into(),
        };
        transport.publish(vec![message]).await.remove(0).unwrap();
        house.note("acme", key, 1..=3).await;
    }
    house.note("acme", "a", 11..=20).await;
    eventually("four letters are there", async || house.letters().await.len() == 4).await;
    eventually("the rest flows", async || house.applied("a").await.len() == 20).await;
    assert_eq!(house.applied("a").await, (1..=20).collect::<Vec<_>>());
    let letters = house.letters().await;
    let letter = |key: &str| {
        let key = Some(key.to_owned());
        letters.iter().find(|letter| letter.arrival.ordering_key == key).expect("a letter")
    };
    for (key, kind, why) in [
        ("huge", "undecodable", format!("at most {MAX_MESSAGE} are read")),
        ("truncated", "undecodable", "EOF".into()),
        ("no-text", "undecodable", String::new()),
        ("acme:invalid", "schema_invalid", "/n".into()),
    ] {
        let letter = letter(key);
        assert_eq!(letter.kind, kind, "{key}");
        assert!(letter.error.contains(&why), "{key}: {}", letter.error);
    }
    assert_eq!(letter("huge").arrival.body.len(), 20_000_000, "it is kept whole");
    stop(running).await;
}
