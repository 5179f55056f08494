//! A broker that delivers again what a consumer still holds, and payloads whose type panics.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chapar::prelude::*;
use chapar_core::port::{
    AckToken, BoxFuture, Delivery, Features, Outgoing, Position, Receipt, SeekTo, Subscription,
    SubscriptionSpec, TopicSpec, Tracking, Transport, TransportError,
};
use chapar_sql::SqlTransport;

use crate::admission::handler;
use crate::harness::{House, Noted, eventually, on_each_store, stop, write_down};

on_each_store!(
    an_event_delivered_again_while_it_waits_is_held_once,
    a_type_that_panics_when_it_is_read_fails_its_event_alone,
);

async fn an_event_delivered_again_while_it_waits_is_held_once(house: House) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let consumer = Consumer::named("c")
        .retry(3)
        .backoff(Duration::from_millis(300), Duration::from_millis(300))
        .on(handler(move |noted, cx| match noted.n {
            1 => {
                counted.fetch_add(1, SeqCst);
                Box::pin(async { Err(Failure::retry("not yet")) })
            }
            _ => Box::pin(write_down(noted, cx)),
        }));
    let transport = Arc::new(Insistent { log: house.transport.clone(), seen: Arc::default() });
    let seen = transport.seen.clone();
    let app = App::new(house.chapar.clone(), transport, "house");
    let service = Service::new("inventory-service").consumer(consumer);
    let running = app.service(service).start().await.unwrap();
    house.note("acme", "a", [1]).await;
    eventually("it is a letter", async || house.letters().await.len() == 1).await;
    house.note("acme", "b", [2]).await;
    eventually("others go on", async || house.applied("b").await == [2]).await;
    eventually("all are acknowledged", async || seen.lock().unwrap().open.is_empty()).await;
    stop(running).await;
    assert_eq!(calls.load(SeqCst), 3, "each copy had attempts of its own");
    let seen = seen.lock().unwrap();
    assert!(seen.again > 0, "nothing was delivered again");
}

#[derive(Debug, Serialize, Event)]
#[event("melmastoon.reservation.booking.modified.v1", id = key, intent = "{key}:{n}")]
struct Explosive {
    key: String,
    n: i64,
}

impl<'de> serde::Deserialize<'de> for Explosive {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Noted { key, n } = Noted::deserialize(from)?;
        assert_ne!(key, "secret-guest", "a bug in the user's type");
        Ok(Explosive { key, n })
    }
}

async fn a_type_that_panics_when_it_is_read_fails_its_event_alone(house: House) {
    let one = Consumer::named("one").on(async |event: Explosive, cx: &mut Cx| {
        write_down(Noted { key: event.key, n: event.n }, cx).await
    });
    let many = Consumer::named("many").on_batch(async |events: Vec<Explosive>, cx: &mut Cx| {
        for Explosive { key, n } in events {
            write_down(Noted { key, n: n + 100 }, cx).await?;
        }
        applied()
    });
    let service = Service::new("inventory-service").consumer(one).consumer(many);
    let running = house.app().service(service).start().await.unwrap();
    house.note("acme", "secret-guest", [7]).await;
    house.note("acme", "b", [1, 2]).await;
    eventually("the other key goes on", async || house.applied("b").await.len() == 4).await;
    eventually("both have a letter", async || house.letters().await.len() == 2).await;
    stop(running).await;
    for letter in house.letters().await {
        assert_eq!((letter.kind.as_str(), letter.attempts), ("undecodable", 1), "{}", letter.error);
        assert!(letter.error.contains("Explosive"), "{}", letter.error);
        assert!(!letter.error.contains("secret-guest"), "{}", letter.error);
    }
}

/// Delivers everything again at each fetch that is not acknowledged, as a broker does whose leases
/// are lost all the time.
struct Insistent {
    log: Arc<SqlTransport>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// What is not acknowledged: as the log delivered it, and the last number it was given.
    open: HashMap<Position, (Delivery, AckToken)>,
    again: usize,
}

impl Transport for Insistent {
    fn features(&self) -> Features {
        self.log.features()
    }

    fn apply<'a>(
        &'a self,
        topics: &'a [TopicSpec],
        subscriptions: &'a [SubscriptionSpec],
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        self.log.apply(topics, subscriptions)
    }

    fn publish(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Receipt, TransportError>>> {
        self.log.publish(batch)
    }

    fn subscribe<'a>(
        &'a self,
        spec: &'a SubscriptionSpec,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>> {
        Box::pin(async move {
            let inner = self.log.subscribe(spec).await?;
            Ok(Box::new(Insisting(inner, self.seen.clone())) as Box<dyn Subscription>)
        })
    }

    fn seek<'a>(
        &'a self,
        subscription: &'a str,
        to: SeekTo,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        self.log.seek(subscription, to)
    }
}

struct Insisting(Box<dyn Subscription>, Arc<Mutex<Seen>>);

impl Subscription for Insisting {
    fn fetch(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        Box::pin(async move {
            let fetched = self.0.fetch(max, wait.min(Duration::from_millis(20))).await?;
            let mut seen = self.1.lock().unwrap();
            let Seen { open, again, .. } = &mut *seen;
            let mut deliveries = fetched.clone();
            for (delivery, last) in open.values_mut() {
                let tracking = last.tracking()?;
                let attempt = tracking.attempt + 1;
                *last = AckToken::of(last.position, Tracking { attempt, ..tracking });
                deliveries.push(Delivery { token: *last, ..delivery.clone() });
                *again += 1;
            }
            for delivery in fetched {
                open.insert(delivery.token.position, (delivery.clone(), delivery.token));
            }
            Ok(deliveries)
        })
    }

    fn fetch_oldest(&self, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        self.0.fetch_oldest(wait)
    }

    fn ack<'a>(&'a self, tokens: &'a [AckToken]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let mut known = Vec::new();
            {
                let mut seen = self.1.lock().unwrap();
                for token in tokens {
                    let Some((delivery, _)) = seen.open.remove(&token.position) else {
                        continue;
                    };
                    known.push(delivery.token);
                }
            }
            self.0.ack(&known).await
        })
    }

    fn nack<'a>(
        &'a self,
        token: &'a AckToken,
        delay: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        self.0.nack(token, delay)
    }

    fn keep_alive(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        self.0.keep_alive()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        self.0.close()
    }
}
