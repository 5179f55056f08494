//! The log of the broker, or of the database, by its own client and from its beginning.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull},
};
use futures_util::StreamExt;
use sqlx::PgConnection;
use tokio::task::JoinHandle;

use super::{About, about};
use crate::torture::site::{Carrier, Site};
use crate::torture::world::STREAM;

/// A message of the log.
#[derive(Debug, Clone)]
pub(in crate::torture) struct Seen {
    pub(super) event_id: String,
    pub(super) topic: String,
    /// None if it cannot be read.
    pub(super) about: Option<About>,
}

/// Reads the log to its end, and goes on.
pub(in crate::torture) struct LogReader {
    seen: Arc<Mutex<Vec<Seen>>>,
    /// None where the log lies in the database, and is read when it is asked for.
    task: Option<JoinHandle<()>>,
}

impl LogReader {
    pub(in crate::torture) fn start(site: &Site) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (transport, run, into) = (site.transport.clone(), site.run.clone(), seen.clone());
        let task = match site.carrier {
            Carrier::Sql => None,
            Carrier::Nats => Some(tokio::spawn(async move {
                let mut last = 0;
                loop {
                    // The broker is down, or the stream is not there yet.
                    if read_on(&transport, &run, &mut last, &into).await.is_err() {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            })),
            Carrier::Kafka => kafka::start(&transport, &run, into),
        };
        LogReader { seen, task }
    }

    pub(super) async fn messages(
        &self,
        connection: &mut PgConnection,
        run: &str,
    ) -> Result<Vec<Seen>> {
        const LOG: &str = "select event_id, topic, body from chapar.log \
             order by log_partition, log_offset";
        if self.task.is_some() {
            return Ok(lock(&self.seen).clone());
        }
        let rows: Vec<(String, String, Vec<u8>)> =
            sqlx::query_as(LOG).fetch_all(connection).await?;
        let seen = |(event_id, topic, body): (String, String, Vec<u8>)| Seen {
            event_id,
            topic,
            about: about(&body, run),
        };
        Ok(rows.into_iter().map(seen).collect())
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        self.task.iter().for_each(JoinHandle::abort);
    }
}

async fn read_on(
    transport: &str,
    run: &str,
    last: &mut u64,
    into: &Mutex<Vec<Seen>>,
) -> Result<()> {
    let client = async_nats::connect(transport).await?;
    let stream = jetstream::new(client).get_stream(STREAM).await?;
    let config = pull::Config {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: *last + 1 },
        ack_policy: AckPolicy::None,
        ..Default::default()
    };
    let consumer: PullConsumer = stream.create_consumer(config).await?;
    loop {
        let mut batch = consumer
            .fetch()
            .max_messages(1000)
            .expires(Duration::from_millis(300))
            .messages()
            .await?;
        while let Some(message) = batch.next().await {
            let message = message.map_err(|error| anyhow::anyhow!(error))?;
            let sequence = message.info().map_err(|error| anyhow::anyhow!(error))?.stream_sequence;
            if sequence <= *last {
                continue;
            }
            // The server has sent what lies between over a connection that broke. The stream deletes nothing, so it is
            // still there.
            anyhow::ensure!(sequence == *last + 1, "messages before {sequence} are missing");
            *last = sequence;
            let headers = message.headers.as_ref();
            let id = headers.and_then(|all| all.get("Nats-Msg-Id"));
            lock(into).push(Seen {
                event_id: id.map(|id| id.as_str().to_owned()).unwrap_or_default(),
                topic: message.subject.to_string(),
                about: about(&message.payload, run),
            });
        }
    }
}

#[cfg(feature = "kafka")]
mod kafka {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use rdkafka::consumer::{Consumer, StreamConsumer};
    use rdkafka::message::{Headers, Message};
    use rdkafka::{ClientConfig, Offset, TopicPartitionList};
    use tokio::task::JoinHandle;

    use super::{Seen, about, lock};
    use crate::torture::world::TOPICS;

    /// As many as the topics of a run are made with.
    const PARTITIONS: i32 = 6;

    pub(super) fn start(
        transport: &str,
        run: &str,
        into: Arc<Mutex<Vec<Seen>>>,
    ) -> Option<JoinHandle<()>> {
        let servers = transport.trim_start_matches("kafka://");
        let servers = servers.split('?').next().unwrap_or_default().to_owned();
        let run = run.to_owned();
        Some(tokio::spawn(async move {
            let mut all = TopicPartitionList::new();
            for topic in TOPICS {
                for partition in 0..PARTITIONS {
                    // It fails for a partition that is out of range only.
                    let _ = all.add_partition_offset(topic, partition, Offset::Beginning);
                }
            }
            let consumer: Result<StreamConsumer, _> = ClientConfig::new()
                .set("bootstrap.servers", servers)
                .set("group.id", format!("rig-{run}"))
                .set("enable.auto.commit", "false")
                .set("auto.offset.reset", "earliest")
                .set("topic.metadata.refresh.interval.ms", "500")
                .create();
            let Ok(consumer) = consumer else { return };
            if consumer.assign(&all).is_err() {
                return;
            }
            loop {
                // The broker is down, or the topics are not there yet.
                let Ok(message) = consumer.recv().await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let id = message.headers().and_then(|headers| {
                    let header = headers.iter().find(|header| header.key == "chapar-id")?;
                    Some(String::from_utf8_lossy(header.value?).into_owned())
                });
                let seen = Seen {
                    event_id: id.unwrap_or_default(),
                    topic: message.topic().to_owned(),
                    about: about(message.payload().unwrap_or_default(), &run),
                };
                lock(&into).push(seen);
            }
        }))
    }
}

#[cfg(not(feature = "kafka"))]
mod kafka {
    use std::sync::{Arc, Mutex};

    use tokio::task::JoinHandle;

    use super::Seen;

    pub(super) fn start(_: &str, _: &str, _: Arc<Mutex<Vec<Seen>>>) -> Option<JoinHandle<()>> {
        None
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
