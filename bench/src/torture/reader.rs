//! Readers that are independent of the engine: the broker's log by its own client, the tables by plain SQL.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull},
};
use chapar_testkit::history::{History, Message};
use futures_util::StreamExt;
use serde_json::Value;
use sqlx::PgConnection;
use tokio::task::JoinHandle;

use super::consumer::{LEDGER, PICKY};
use super::diary::Diaries;
use super::site::{STREAM, Site};

/// Reads the stream from the beginning to its end, and goes on.
pub(super) struct BrokerReader {
    seen: Arc<Mutex<Vec<Message>>>,
    task: JoinHandle<()>,
}

impl BrokerReader {
    pub(super) fn start(transport: &str, run: &str) -> Self {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (transport, run, into) = (transport.to_owned(), run.to_owned(), seen.clone());
        let task = tokio::spawn(async move {
            let mut last = 0;
            loop {
                // The broker is down, or the stream is not there yet.
                if read_on(&transport, &run, &mut last, &into).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        });
        BrokerReader { seen, task }
    }

    pub(super) fn log(&self) -> Vec<Message> {
        lock(&self.seen).clone()
    }
}

impl Drop for BrokerReader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read_on(
    transport: &str,
    run: &str,
    last: &mut u64,
    into: &Mutex<Vec<Message>>,
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
            *last = sequence;
            if let Some(message) = read(&message.payload, run) {
                lock(into).push(message);
            }
        }
    }
}

/// The write that a message is about, if it is of this run.
fn read(body: &[u8], run: &str) -> Option<Message> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let payload = &body["payload"];
    let (id, key) = (payload["write"].as_str()?, payload["key"].as_str()?);
    id.starts_with(run).then(|| Message { key: key.to_owned(), id: id.to_owned() })
}

/// The whole history as it is now, and what else writers did. Arrivals are read before the writers' journals: whatever
/// has arrived was recorded as intended before.
pub(super) async fn history(
    site: &Site,
    broker: &BrokerReader,
    connection: &mut PgConnection,
) -> Result<(History, BTreeMap<String, u64>)> {
    let mut history = History { broker: Some(broker.log()), ..History::default() };
    for consumer in [LEDGER, PICKY] {
        history.applied.insert(consumer.to_owned(), BTreeMap::new());
    }
    let applied = "select consumer, key, id from rig.applied order by consumer, key, place";
    let rows: Vec<(String, String, String)> =
        sqlx::query_as(applied).fetch_all(&mut *connection).await?;
    for (consumer, key, id) in rows {
        history.apply(&consumer, &key, &id);
    }
    const BOXED: &str = "select consumer, body from chapar.dead_letters where status <> 'closed' \
         union all select consumer, body from chapar.parked";
    let rows: Vec<(String, Vec<u8>)> = sqlx::query_as(BOXED).fetch_all(&mut *connection).await?;
    for (consumer, body) in rows {
        if let Some(message) = read(&body, &site.run) {
            history.boxed.entry(consumer).or_default().insert(message.id);
        }
    }
    let diaries = Diaries::read(site.folder())?;
    history.writes = diaries.writes;
    Ok((history, diaries.habits))
}

/// Which writes the database has, whatever their writers know.
pub(super) async fn committed(connection: &mut PgConnection) -> Result<BTreeSet<String>> {
    let rows: Vec<(String,)> =
        sqlx::query_as("select id from rig.written").fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(id,)| id).collect())
}

/// How many duplicates the consumers' inboxes have removed, in lives that ended normally.
pub(super) fn duplicates_removed(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "duplicates") {
            sum += std::fs::read_to_string(path)?.trim().parse().unwrap_or(0);
        }
    }
    Ok(sum)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
