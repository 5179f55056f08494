//! Consumers in processes of their own, started out of the test program, and a transport that
//! spreads the topics of a key over partitions as brokers do.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chapar::{App, Consumer, Service, Store, StoreOptions};
use chapar_core::port::{
    AckToken, BoxFuture, Delivery, Features, Outgoing, Receipt, SeekTo, Subscription,
    SubscriptionSpec, TopicSpec, Transport, TransportError,
};
use chapar_sql::SqlTransport;
use chapar_transports::nats::{Nats, NatsOptions};
use serde::{Deserialize, Serialize};

use crate::harness::{House, eventually};

const VARIABLE: &str = "CHAPAR_ROAD_PROCESS";

/// A process with one consumer; it is killed when this value goes.
pub(crate) struct Process(Child);

/// A NATS server, and how the streams there are divided.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Broker {
    pub(crate) url: String,
    pub(crate) partitions: u32,
    pub(crate) own_partitions: BTreeMap<String, u32>,
    /// Whether the topics of a key lie in partitions of their own.
    pub(crate) spread: bool,
}

impl Broker {
    pub(crate) fn at(url: &str) -> Self {
        let NatsOptions { partitions, own_partitions, .. } = NatsOptions::default();
        Broker { url: url.into(), partitions, own_partitions, spread: false }
    }

    pub(crate) async fn connect(&self, owner: &str) -> Result<Nats, TransportError> {
        let options = NatsOptions {
            owner: owner.into(),
            prefix: Some("melmastoon".into()),
            partitions: self.partitions,
            own_partitions: self.own_partitions.clone(),
            lease: Duration::from_millis(900),
            ..NatsOptions::default()
        };
        Nats::connect(&self.url, options).await
    }

    async fn open(&self, owner: &str) -> Arc<dyn Transport> {
        let nats = self.connect(owner).await.unwrap();
        if self.spread { Arc::new(Spread::new(nats)) } else { Arc::new(nats) }
    }
}

#[derive(Serialize, Deserialize)]
struct Orders {
    role: String,
    owner: String,
    store: String,
    broker: Option<Broker>,
}

impl Process {
    /// Starts the consumer that [`consumer`] knows by this role, without a broker.
    pub(crate) fn start(house: &House, role: &str, owner: &str) -> Self {
        Self::start_on(house, None, role, owner)
    }

    /// Starts the consumer that [`consumer`] knows by this role.
    pub(crate) fn start_on(
        house: &House,
        broker: Option<&Broker>,
        role: &str,
        owner: &str,
    ) -> Self {
        let (role, owner, store) = (role.to_owned(), owner.to_owned(), house.url.clone());
        let orders = Orders { role, owner, store, broker: broker.cloned() };
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "processes::worker", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, serde_json::to_string(&orders).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Process(child)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Lets it leave in good order, and waits until it has.
    pub(crate) async fn leave(mut self) {
        drop(self.0.stdin.take());
        let child = Mutex::new(&mut self.0);
        let gone = async || child.lock().unwrap().try_wait().unwrap().is_some();
        eventually("the process leaves", gone).await;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn consumer(role: &str) -> Consumer {
    match role {
        "order" => crate::order::reader(),
        "stuck" => crate::nats::stuck(),
        "intent" => crate::inbox::by_intent(),
        "room" => crate::inbox::by_room(),
        other => panic!("no role {other}"),
    }
}

/// In a process of [`Process::start`]: works until it is killed. Elsewhere: nothing.
#[test]
fn worker() {
    let Ok(orders) = std::env::var(VARIABLE) else { return };
    let Orders { role, owner, store, broker } = serde_json::from_str(&orders).unwrap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(&store, &StoreOptions::default()).await.unwrap();
        let transport = match &broker {
            Some(broker) => broker.open(&owner).await,
            None => Arc::new(Spread::new(SqlTransport::new(store.clone(), &owner))),
        };
        let app = App::new(House::backbone(store), transport, &owner).without_relay();
        let running =
            app.service(Service::new("inventory-service").consumer(consumer(&role))).start().await;
        let running = running.unwrap();
        let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        let _ = ended.await;
        running.stop(Duration::from_secs(10)).await;
    });
}

/// A transport with the topics of a key in partitions of their own; one topic can be kept back.
pub(crate) struct Spread {
    log: Arc<dyn Transport>,
    slow: Mutex<Option<(String, Vec<Outgoing>)>>,
    flight: Arc<Mutex<Flight>>,
}

/// The bytes that are delivered and not yet acknowledged.
#[derive(Default)]
struct Flight {
    sizes: HashMap<AckToken, usize>,
    most: usize,
}

impl Spread {
    pub(crate) fn new(log: impl Transport + 'static) -> Self {
        Spread { log: Arc::new(log), slow: Mutex::new(None), flight: Arc::default() }
    }

    /// The most bytes that were ever delivered and not yet acknowledged.
    pub(crate) fn most_bytes(&self) -> usize {
        self.flight.lock().unwrap().most
    }

    /// Takes the messages of a topic, but does not deliver them before [`Spread::let_go`].
    pub(crate) fn keep_back(self, topic: &str) -> Self {
        *self.slow.lock().unwrap() = Some((topic.to_owned(), Vec::new()));
        self
    }

    /// How many messages are kept back.
    pub(crate) fn kept(&self) -> usize {
        self.slow.lock().unwrap().as_ref().map_or(0, |(_, kept)| kept.len())
    }

    /// Delivers from now on, and never what was kept back.
    pub(crate) fn lose(&self) {
        *self.slow.lock().unwrap() = None;
    }

    pub(crate) async fn let_go(&self) {
        let kept = self.slow.lock().unwrap().take().map_or(Vec::new(), |(_, kept)| kept);
        for receipt in self.log.publish(kept).await {
            receipt.unwrap();
        }
    }
}

impl Transport for Spread {
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
        Box::pin(async move {
            let mut results = Vec::new();
            for mut message in batch {
                message.key = message.key.map(|key| format!("{key}#{}", message.topic));
                if let Some((topic, kept)) = &mut *self.slow.lock().unwrap()
                    && *topic == message.topic
                {
                    let position = chapar_core::port::Position { partition: 0, offset: 0 };
                    kept.push(message);
                    results.push(Ok(Receipt { position, duplicate: false }));
                    continue;
                }
                results.extend(self.log.publish(vec![message]).await);
            }
            results
        })
    }

    fn subscribe<'a>(
        &'a self,
        spec: &'a SubscriptionSpec,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription>, TransportError>> {
        Box::pin(async move {
            let inner = self.log.subscribe(spec).await?;
            Ok(Box::new(Gathered(inner, self.flight.clone())) as Box<dyn Subscription>)
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

/// Gives the messages their keys back.
struct Gathered(Box<dyn Subscription>, Arc<Mutex<Flight>>);

impl Gathered {
    fn gather(&self, mut fetched: Vec<Delivery>) -> Vec<Delivery> {
        for delivery in &mut fetched {
            let key = delivery.key.as_deref().and_then(|key| key.split_once('#'));
            delivery.key = key.map(|(key, _)| key.to_owned());
        }
        let mut flight = self.1.lock().unwrap();
        flight.sizes.extend(fetched.iter().map(|got| (got.token, got.body.len())));
        flight.most = flight.most.max(flight.sizes.values().sum());
        fetched
    }
}

impl Subscription for Gathered {
    fn fetch(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        Box::pin(async move { Ok(self.gather(self.0.fetch(max, wait).await?)) })
    }

    fn fetch_oldest(&self, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        Box::pin(async move { Ok(self.gather(self.0.fetch_oldest(wait).await?)) })
    }

    fn ack<'a>(&'a self, tokens: &'a [AckToken]) -> BoxFuture<'a, Result<(), TransportError>> {
        self.1.lock().unwrap().sizes.retain(|token, _| !tokens.contains(token));
        self.0.ack(tokens)
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
