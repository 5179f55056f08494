//! A consuming service: each event is appended to its key's list, in the transaction that claims it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use chapar::{App, Consumer, Cx, Envelope, Failure, OrFailure, Service};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use super::site::TOPIC;
use super::worker::Worker;

/// Applies everything.
pub(super) const LEDGER: &str = "torture.ledger";
/// Cannot apply the poison event, and parks its key.
pub(super) const PICKY: &str = "torture.picky";

#[derive(Deserialize)]
struct Written {
    write: String,
    key: String,
    #[serde(default)]
    poison: bool,
}

pub(super) async fn run(worker: Worker, stop: CancellationToken) -> Result<()> {
    let transport = Arc::new(worker.broker("consumer").await?);
    let owner = worker.owner("consumer");
    let consumer = |name: &str| {
        let patient = Consumer::named(name).retry(1_000_000);
        patient.backoff(Duration::from_millis(50), Duration::from_millis(500)).lanes(2).batch(20)
    };
    let app = App::new(worker.backbone().await?, transport, owner)
        .without_relay()
        .service(Service::new("torture").consumer(consumer(LEDGER).on_any(&[TOPIC], ledger)))
        .service(Service::new("torture").consumer(consumer(PICKY).on_any(&[TOPIC], picky)));
    let running = app.start().await?;
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

async fn ledger(event: Arc<Envelope>, cx: &mut Cx) -> Result<(), Failure> {
    let written = read(&event)?;
    note(LEDGER, &written, cx).await
}

async fn picky(event: Arc<Envelope>, cx: &mut Cx) -> Result<(), Failure> {
    let written = read(&event)?;
    if written.poison {
        return Err(Failure::terminal("this is poison"));
    }
    note(PICKY, &written, cx).await
}

fn read(event: &Envelope) -> Result<Written, Failure> {
    event.payload.parse().or_terminal()
}

async fn note(consumer: &str, written: &Written, cx: &mut Cx) -> Result<(), Failure> {
    const LENGTHEN: &str = "insert into rig.lists as l (consumer, key, len) values ($1, $2, 1) \
         on conflict (consumer, key) do update set len = l.len + 1 returning len";
    const NOTE: &str = "insert into rig.applied (consumer, key, place, id) values ($1, $2, $3, $4)";
    let (key, id) = (written.key.as_str(), written.write.as_str());
    let rows = cx.tx().fetch(LENGTHEN, vec![consumer.into(), key.into()]).await?;
    let place: i64 = rows.first().map_or(Ok(1), |row| row.get(0))?;
    let values = vec![consumer.into(), key.into(), place.into(), id.into()];
    cx.tx().execute(NOTE, values).await?;
    Ok(())
}
