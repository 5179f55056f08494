//! `rdkafka` alone: a producer with the adapter's settings, and a consumer in a group of its own that commits as it
//! goes, without lanes, ordered redelivery or tracking of open messages.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use chapar_core::port::Transport;
use chapar_transports::kafka::{Address, Kafka, KafkaOptions};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::{Bare, KEYS, Load, Read, WINDOW};

/// The partitions that the adapter is opened with.
const PARTITIONS: i32 = 12;
const PATIENCE: Duration = Duration::from_secs(30);

struct BareKafka {
    config: ClientConfig,
    producer: FutureProducer,
    admin: AdminClient<DefaultClientContext>,
    run: String,
    turns: Cell<u32>,
}

/// Connects the adapter and the bare client, each with its own connections. The bare client uses only the brokers of
/// the URL.
pub(super) async fn open(
    url: &str,
    run: &str,
) -> Result<(&'static str, Arc<dyn Transport>, Box<dyn Bare>)> {
    let ours = Kafka::connect(url, KafkaOptions::default()).await?;
    let Address { servers, options } = Address::parse(url, KafkaOptions::default())?;
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers);
    let producer = config
        .clone()
        .set("acks", "all")
        .set("enable.idempotence", "true")
        // The settings that lose nothing, as in the adapter.
        .set("max.in.flight.requests.per.connection", "1")
        .set("partitioner", "murmur2_random")
        .set("compression.type", options.compression)
        .set("linger.ms", options.linger.as_millis().to_string())
        .create()
        .context("the bare client cannot be made")?;
    let admin = config.create().context("the bare client cannot be made")?;
    let run = run.to_owned();
    let bare = BareKafka { config, producer, admin, run, turns: Cell::new(0) };
    Ok(("Kafka", Arc::new(ours), Box::new(bare)))
}

impl BareKafka {
    fn group(&self, turn: u32) -> String {
        format!("bare-{}-{turn}", self.run)
    }
}

impl Bare for BareKafka {
    /// More than elsewhere: the client reads it in a second.
    fn backlog(&self) -> (u64, u64) {
        (600_000, KEYS)
    }

    fn publish<'a>(&'a self, load: &'a Load, turn: Duration) -> LocalBoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let (began, mut sent) = (Instant::now(), 0u64);
            let mut acks = FuturesUnordered::new();
            while began.elapsed() < turn {
                let mut headers = OwnedHeaders::new_with_capacity(load.headers.len() + 2);
                for (key, value) in &load.headers {
                    headers = headers.insert(Header { key, value: Some(value) });
                }
                let (id, tenant) = (Load::id(sent).to_string(), Load::tenant(sent));
                headers = headers
                    .insert(Header { key: "chapar-id", value: Some(&id) })
                    .insert(Header { key: "chapar-tenant", value: Some(&tenant) });
                let (key, body) = (load.key(sent), load.body(sent));
                let record =
                    FutureRecord::to(&load.topic).key(&key).payload(&body[..]).headers(headers);
                acks.push(self.producer.send_result(record).map_err(|(error, _)| error)?);
                if acks.len() >= WINDOW
                    && let Some(ack) = acks.next().await
                {
                    ack?.map_err(|(error, _)| error)?;
                }
                sent += 1;
            }
            while let Some(ack) = acks.next().await {
                ack?.map_err(|(error, _)| error)?;
            }
            Ok(sent)
        })
    }

    fn read<'a>(&'a self, load: &'a Load, all: u64) -> LocalBoxFuture<'a, Result<Read>> {
        Box::pin(async move {
            self.turns.set(self.turns.get() + 1);
            let consumer: StreamConsumer = self
                .config
                .clone()
                .set("group.id", self.group(self.turns.get()))
                .set("auto.offset.reset", "earliest")
                .set("enable.auto.commit", "true")
                .set("auto.commit.interval.ms", "50")
                .set("enable.auto.offset.store", "false")
                // The adapter's fetch settings. With the library's defaults a client that is slower than the broker is
                // idle for most of each second.
                .set("fetch.wait.max.ms", "100")
                .set("fetch.queue.backoff.ms", "5")
                .set("queued.min.messages", "20000")
                .set("queued.max.messages.kbytes", "16384")
                .create()?;
            consumer.subscribe(&[&load.topic])?;
            let (mut began, mut read) = (None, Read::default());
            while read.messages < all {
                let message = tokio::time::timeout(PATIENCE, consumer.recv()).await;
                let message = message.context("the client stopped delivering")??;
                // A real consumer passes the message to another thread, which needs its own copy.
                std::hint::black_box(message.detach());
                consumer.store_offset_from_message(&message)?;
                read.messages += 1;
                began.get_or_insert_with(Instant::now);
            }
            let committed =
                tokio::task::block_in_place(|| consumer.commit_consumer_state(CommitMode::Sync));
            // It may have committed everything itself just before.
            if let Err(error) = committed
                && error.rdkafka_error_code() != Some(rdkafka::types::RDKafkaErrorCode::NoOffset)
            {
                return Err(error.into());
            }
            read.time = began.map_or(read.time, |began| began.elapsed());
            tokio::task::block_in_place(|| drop(consumer));
            Ok(read)
        })
    }

    fn empty<'a>(&'a self, load: &'a Load) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut all = TopicPartitionList::new();
            for partition in 0..PARTITIONS {
                all.add_partition_offset(&load.topic, partition, Offset::End)?;
            }
            self.admin.delete_records(&all, &AdminOptions::new()).await?;
            Ok(())
        })
    }

    fn leave<'a>(&'a self, loads: &'a [&'a Load]) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let topics: Vec<&str> = loads.iter().map(|load| load.topic.as_str()).collect();
            // Absent if the topics could not be created.
            let _ = self.admin.delete_topics(&topics, &AdminOptions::new()).await;
            let groups = tokio::task::block_in_place(|| {
                let listed = self.admin.inner().fetch_group_list(None, PATIENCE);
                let names = listed.map(|listed| {
                    let names = listed.groups().iter().map(|group| group.name().to_owned());
                    names.filter(|name| name.contains(&self.run)).collect::<Vec<_>>()
                });
                names.unwrap_or_default()
            });
            let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
            let _ = self.admin.delete_groups(&groups, &AdminOptions::new()).await;
            Ok(())
        })
    }
}
