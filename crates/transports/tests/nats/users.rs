//! Users and streams out of a catalog, loaded into a real server: who is refused what.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::{self, stream};
use async_nats::{ConnectOptions, Event};
use chapar_core::port::{Pruning, Transport, TransportError};
use chapar_testkit::need;
use chapar_testkit::servers::{Instance, Kind, Launch, ServerError};
use chapar_transports::nats::{Nats, NatsOptions, setup_files};

use super::specifics::{fetch, message, options, server, spec};
use super::topology::{CANCELLED, HELD, ISSUED, apply, catalog};

const SERVICES: [&str; 3] = ["audit-service", "billing-service", "reservation-service"];

/// A server with the generated users. Their passwords are their names.
struct Locked(Instance);

impl Locked {
    fn start() -> Result<Self, ServerError> {
        let files = setup_files(&catalog(), &options("a")).unwrap();
        let (_, accounts) = files["accounts.conf"].split_once("\naccounts ").unwrap();
        let mut launch = Launch::of(Kind::Nats);
        for user in SERVICES.into_iter().chain(["chapar-topology"]) {
            let variable = format!("{}_PASSWORD", user.replace('-', "_").to_uppercase());
            launch = launch.setting(variable, format!("\"{user}\""));
        }
        launch.setting("accounts", accounts).start().map(Locked)
    }

    fn url(&self, user: &str) -> String {
        self.0.url().replace("nats://", &format!("nats://{user}:{user}@"))
    }

    async fn as_service(&self, service: &str) -> Nats {
        let timeout = Duration::from_secs(2);
        let options = NatsOptions { service: Some(service.into()), timeout, ..options(service) };
        Nats::connect(&self.url(service), options).await.unwrap()
    }

    async fn as_operator(&self) -> Nats {
        let options = NatsOptions { isolated: true, ..options("operator") };
        Nats::connect(&self.url("chapar-topology"), options).await.unwrap()
    }

    /// A user with none of our code in between, who tries what it should not.
    async fn intruder(&self, user: &str) -> Intruder {
        let refusals: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = refusals.clone();
        let client = ConnectOptions::with_user_and_password(user.into(), user.into())
            .custom_inbox_prefix(format!("_INBOX_{user}"))
            .event_callback(move |event| {
                if let Event::ServerError(error) = event {
                    heard.lock().unwrap().push(error.to_string());
                }
                async {}
            })
            .connect(self.0.url())
            .await
            .unwrap();
        Intruder { client, refusals }
    }
}

struct Intruder {
    client: async_nats::Client,
    refusals: Arc<Mutex<Vec<String>>>,
}

impl Intruder {
    async fn is_refused_to(&self, act: &str, subject: &str) {
        match act {
            "publish" => {
                let (to, reply) = (subject.to_owned(), self.client.new_inbox());
                self.client.publish_with_reply(to, reply, "{}".into()).await.unwrap();
            }
            _ => drop(self.client.subscribe(subject.to_owned()).await.unwrap()),
        }
        self.client.flush().await.unwrap();
        let limit = Instant::now() + Duration::from_secs(5);
        loop {
            let heard = self.refusals.lock().unwrap().join("\n").to_lowercase();
            let said = format!("permissions violation for {act}");
            if heard.contains(&said) && heard.contains(&subject.to_lowercase()) {
                return;
            }
            assert!(Instant::now() < limit, "{act} {subject} was let through; heard: {heard}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn a_service_publishes_and_reads_what_is_its_own_and_the_server_refuses_the_rest() {
    let locked = need!(Locked::start());
    let operator = locked.as_operator().await;
    assert_eq!(apply(&operator, &catalog(), Pruning::Keep).await, []);

    let reservation = locked.as_service("reservation-service").await;
    let billing = locked.as_service("billing-service").await;
    for topic in [HELD, CANCELLED] {
        reservation.publish(vec![message(topic, "inn", "inn:1")]).await.remove(0).unwrap();
    }
    billing.publish(vec![message(ISSUED, "inn", "inn:1")]).await.remove(0).unwrap();
    let foreign = billing.publish(vec![message(HELD, "inn", "inn:1")]).await.remove(0);
    let said = foreign.unwrap_err().to_string();
    assert!(said.contains("Permissions Violation for Publish"), "{said}");

    let mut folios = spec(&[HELD]);
    folios.name = "billing-service.folios".into();
    let reader = billing.subscribe(&folios).await.unwrap();
    let got = fetch(&*reader, 1).await;
    assert_eq!(got.iter().map(|d| d.topic.as_str()).collect::<Vec<_>>(), [HELD]);
    reader.ack(&[got[0].token]).await.unwrap();
    folios.topics = vec![HELD.into(), CANCELLED.into()];
    let undeclared = billing.subscribe(&folios).await.err().unwrap();
    assert!(
        matches!(&undeclared, TransportError::Setup(why) if why.contains(CANCELLED)),
        "{undeclared}"
    );

    let mut trail = spec(&[HELD, CANCELLED, ISSUED]);
    trail.name = "audit-service.trail".into();
    let audit = locked.as_service("audit-service").await;
    let everything = audit.subscribe(&trail).await.unwrap();
    let mut topics: Vec<_> = fetch(&*everything, 3).await.into_iter().map(|d| d.topic).collect();
    let booking = topics.iter().filter(|topic| *topic != ISSUED).collect::<Vec<_>>();
    assert_eq!(booking, [HELD, CANCELLED], "a key keeps its order across the topics of a service");
    topics.sort();
    assert_eq!(topics, [ISSUED, CANCELLED, HELD]);

    let thief = locked.intruder("billing-service").await;
    for subject in [
        format!("{HELD}.p0"),
        "$JS.API.STREAM.DELETE.RESERVATION".into(),
        "$JS.API.STREAM.UPDATE.IN_BILLING_SERVICE".into(),
        "$JS.API.STREAM.MSG.GET.RESERVATION".into(),
        format!("$JS.API.DIRECT.GET.RESERVATION.{CANCELLED}.p0"),
        "$JS.API.CONSUMER.CREATE.RESERVATION.mine".into(),
        format!("$JS.API.CONSUMER.CREATE.RESERVATION.mine.{CANCELLED}.p0"),
        "$JS.API.CONSUMER.CREATE.IN_AUDIT_SERVICE.mine".into(),
        "$JS.API.CONSUMER.MSG.NEXT.IN_AUDIT_SERVICE.audit".into(),
        "$JS.API.CONSUMER.DELETE.IN_RESERVATION_SERVICE.any".into(),
        "$JS.ACK.IN_RESERVATION_SERVICE.any.1.1.1.1.1".into(),
        "$KV.chapar_reservation-service.any".into(),
        "$JS.API.DIRECT.GET.KV_chapar_audit-service.any".into(),
    ] {
        thief.is_refused_to("publish", &subject).await;
    }
    for subject in ["melmastoon.>", "$KV.>", "_INBOX_audit-service.>", "_INBOX.>", ">"] {
        thief.is_refused_to("subscription", subject).await;
    }
    let nosy = locked.intruder("audit-service").await;
    nosy.is_refused_to("publish", &format!("{HELD}.p0")).await;
    assert_eq!(operator.plan(&catalog()).await.unwrap(), [], "and nothing has changed by it");
}

#[tokio::test]
async fn a_service_says_what_is_missing_when_nobody_has_set_up_its_streams() {
    let locked = need!(Locked::start());
    let billing = locked.as_service("billing-service").await;
    let refused = billing.publish(vec![message(ISSUED, "inn", "inn:1")]).await.remove(0);
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("no stream BILLING; run `chapar topology apply`"), "{said}");
    let said = billing.subscribe(&spec(&[HELD])).await.err().unwrap().to_string();
    assert!(said.contains("no stream IN_BILLING_SERVICE; run"), "{said}");
}

#[tokio::test]
async fn a_consumer_that_is_declared_later_gets_the_topic_from_its_beginning() {
    let server = need!(server());
    let options = NatsOptions { isolated: true, ..options("operator") };
    let operator = Nats::connect(server.url(), options.clone()).await.unwrap();
    apply(&operator, &catalog(), Pruning::Keep).await;
    for topic in [HELD, CANCELLED] {
        operator.publish(vec![message(topic, "inn", "inn:1")]).await.remove(0).unwrap();
    }
    let service =
        NatsOptions { service: Some("billing-service".into()), owner: "b".into(), ..options };
    let billing = Nats::connect(server.url(), service).await.unwrap();
    let mut folios = spec(&[HELD]);
    folios.name = "billing-service.folios".into();
    let reader = billing.subscribe(&folios).await.unwrap();
    let tokens: Vec<_> = fetch(&*reader, 1).await.into_iter().map(|d| d.token).collect();
    reader.ack(&tokens).await.unwrap();
    reader.close().await.unwrap();
    let mut later = catalog();
    let mut more = later.subscriptions[3].clone();
    more.topic = CANCELLED.into();
    later.subscriptions.push(more);
    assert_eq!(apply(&operator, &later, Pruning::Keep).await, []);
    folios.topics.push(CANCELLED.into());
    let reader = billing.subscribe(&folios).await.unwrap();
    let limit = Instant::now() + Duration::from_secs(10);
    let mut topics = Vec::new();
    while !topics.iter().any(|topic| topic == CANCELLED) {
        let got = reader.fetch(10, Duration::from_millis(200)).await.unwrap();
        topics.extend(got.into_iter().map(|delivery| delivery.topic));
        assert!(Instant::now() < limit, "{topics:?}");
    }
}

#[tokio::test]
async fn the_generated_streams_are_those_that_are_asked_for() {
    let server = need!(server());
    let context = ContextBuilder::new().build(async_nats::connect(server.url()).await.unwrap());
    let files = setup_files(&catalog(), &options("a")).unwrap();
    // Streams that others are copied into come after those.
    let mut streams: Vec<_> =
        files.iter().filter(|(name, _)| name.starts_with("streams/")).collect();
    streams.sort_by_key(|(name, _)| name.contains("/IN_"));
    for (name, json) in streams {
        let config: stream::Config = serde_json::from_str(json).unwrap();
        assert_eq!(*name, format!("streams/{}.json", config.name));
        jetstream::Context::create_stream(&context, config).await.unwrap();
    }
    let isolated = NatsOptions { isolated: true, ..options("a") };
    let nats = Nats::connect(server.url(), isolated).await.unwrap();
    assert_eq!(nats.plan(&catalog()).await.unwrap(), []);
}
