//! A consuming service: each event is appended to its key's list, in the transaction that claims it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use chapar::{App, Consumer, Cx, Envelope, Failure, OrFailure, Service};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::worker::Worker;
use super::world::{LEDGER, NEWCOMER, PICKY, now, topics};

/// Which program it is.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Release {
    /// The version, from 1.
    #[arg(long, default_value_t = 1)]
    release: u32,
    /// With the consumer that starts late.
    #[arg(long)]
    newcomer: bool,
}

#[derive(Deserialize)]
struct Written {
    write: String,
    key: String,
    #[serde(default)]
    poison: bool,
    #[serde(default)]
    early: u64,
    #[serde(default)]
    flaky: u64,
}

pub(super) async fn run(worker: Worker, release: Release, stop: CancellationToken) -> Result<()> {
    let chapar = worker.backbone().await?;
    let transport = worker.transport("consumer", chapar.store()).await?;
    let owner = worker.owner("consumer");
    let Release { release: version, newcomer } = release;
    let consumer = |name: &str| {
        let patient = Consumer::named(name).retry(1_000_000);
        patient.backoff(Duration::from_millis(50), Duration::from_millis(500)).lanes(2).batch(200)
    };
    let mut app = App::new(chapar, transport, owner)
        .without_relay()
        .service(
            Service::new("torture")
                .consumer(consumer(LEDGER).on_any(topics(LEDGER, version), ledger)),
        )
        .service(
            Service::new("torture").consumer(consumer(PICKY).on_any(topics(PICKY, version), picky)),
        );
    if newcomer {
        let late = consumer(NEWCOMER).on_any(topics(NEWCOMER, version), late);
        app = app.service(Service::new("torture").consumer(late));
    }
    let running = app.start().await?;
    note_start(&worker, version)?;
    let metrics = running.metrics();
    let file = worker.folder.join(format!("{}.duplicates", worker.owner("consumer")));
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    loop {
        tokio::select! {
            _ = tick.tick() => std::fs::write(&file, metrics.duplicates().to_string())?,
            () = stop.cancelled() => break,
        }
    }
    running.stop(Duration::from_secs(5)).await;
    std::fs::write(&file, metrics.duplicates().to_string())?;
    Ok(())
}

/// The first process of a version says since when it subscribes.
fn note_start(worker: &Worker, version: u32) -> Result<()> {
    let file = worker.folder.join(format!("version-{version}.since"));
    if !file.exists() {
        std::fs::write(file, now().to_string())?;
    }
    Ok(())
}

async fn ledger(event: Arc<Envelope>, cx: &mut Cx) -> Result<(), Failure> {
    let written = read(&event)?;
    if written.flaky > now() {
        return Err(Failure::retry("not yet"));
    }
    note(LEDGER, &written, cx).await
}

async fn picky(event: Arc<Envelope>, cx: &mut Cx) -> Result<(), Failure> {
    let written = read(&event)?;
    if written.poison || written.early > now() {
        return Err(Failure::terminal("this is poison"));
    }
    note(PICKY, &written, cx).await
}

async fn late(event: Arc<Envelope>, cx: &mut Cx) -> Result<(), Failure> {
    let written = read(&event)?;
    note(NEWCOMER, &written, cx).await
}

fn read(event: &Envelope) -> Result<Written, Failure> {
    event.payload.parse().or_terminal()
}

async fn note(consumer: &str, written: &Written, cx: &mut Cx) -> Result<(), Failure> {
    const NOTE: &str = "with list as (insert into rig.lists as l (consumer, key, len) \
         values ($1, $2, 1) on conflict (consumer, key) do update set len = l.len + 1 returning len) \
         insert into rig.applied (consumer, key, place, id) select $1, $2, list.len, $3 from list";
    let (key, id) = (written.key.as_str(), written.write.as_str());
    cx.tx().execute(NOTE, vec![consumer.into(), key.into(), id.into()]).await?;
    Ok(())
}
