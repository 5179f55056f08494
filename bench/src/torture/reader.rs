//! Readers that are independent of the engine: the broker's log by its own client, the tables by plain SQL.

mod log;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::Result;
use chapar_testkit::history::{History, Message};
use serde_json::Value;
use sqlx::PgConnection;

use super::diary::Diaries;
use super::operators::Acts;
use super::site::{Carrier, Site};
use super::world::{CONFIRMED, LEDGER, NEWCOMER, PICKY, topics};

pub(super) use self::log::LogReader;

/// After a process of a new version has subscribed, the events of its new topic are awaited from this many milliseconds
/// on: the broker and the other processes have to learn of it first.
const SETTLING: u64 = 3000;

/// What a message or a row says it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct About {
    pub(super) id: String,
    pub(super) key: String,
}

/// The write that a message, a letter or a row of the outbox is about, if it can be read and is of this run.
fn about(body: &[u8], run: &str) -> Option<About> {
    let body: Value = serde_json::from_slice(body).ok()?;
    // A draft in the outbox is the payload alone.
    let payload = body.get("payload").unwrap_or(&body);
    let (id, key) = (payload["write"].as_str()?, payload["key"].as_str()?);
    id.starts_with(run).then(|| About { id: id.to_owned(), key: key.to_owned() })
}

/// The write whose message no consumer can read: the text names it, and nothing else does.
pub(super) fn scrawled(body: &str) -> Option<&str> {
    let (_, id) = body.split_once(SCRAWL)?;
    id.split('"').next()
}

/// The beginning of a message that cannot be read.
pub(super) const SCRAWL: &str = "{ not a message ";

/// What is known of the events of a run by their ids.
#[derive(Default)]
pub(super) struct Names(HashMap<String, About>);

impl Names {
    fn of(&self, event_id: &str, body: &[u8], run: &str) -> Option<About> {
        about(body, run).or_else(|| self.0.get(event_id).cloned())
    }
}

/// Everything that is known, as of now.
pub(super) struct Known {
    pub(super) history: History,
    pub(super) diaries: Diaries,
    /// The transactions that the database has.
    pub(super) committed: HashSet<String>,
}

/// Reads it all. Arrivals are read before the writers' journals: whatever has arrived was recorded as intended before.
pub(super) async fn known(
    site: &Site,
    log: &LogReader,
    acts: &Acts,
    connection: &mut PgConnection,
) -> Result<Known> {
    let mut history = History::default();
    let mut names = unreadable(connection).await?;
    let mut broker = Vec::new();
    for message in log.messages(connection, &site.run).await? {
        let known = message.about.or_else(|| names.0.get(&message.event_id).cloned());
        let Some(about) = known else { continue };
        let line = if site.carrier == Carrier::Kafka { message.topic } else { String::new() };
        broker.push(Message { key: about.key.clone(), id: about.id.clone(), line });
        names.0.insert(message.event_id, about);
    }
    history.broker = Some(broker);
    read_lists(&mut history, connection).await?;
    read_held(&mut history, &names, &site.run, connection).await?;
    read_quarantine(&mut history, &mut names, &site.run, connection).await?;
    acts.add_to(&mut history, site.promoted.load(Ordering::Relaxed), |event_id| {
        names.0.get(event_id).map(|about| about.id.clone())
    });
    readers(&mut history, site.folder(), acts);
    let committed = sqlx::query_scalar("select tx from rig.written").fetch_all(connection).await?;
    let diaries = Diaries::read(site.folder())?;
    history.writes = diaries.writes();
    Ok(Known { history, diaries, committed: committed.into_iter().collect() })
}

async fn unreadable(connection: &mut PgConnection) -> Result<Names> {
    let rows: Vec<(String, String, String)> =
        sqlx::query_as("select event_id, id, key from rig.unreadable")
            .fetch_all(connection)
            .await?;
    Ok(Names(rows.into_iter().map(|(event, id, key)| (event, About { id, key })).collect()))
}

async fn read_lists(history: &mut History, connection: &mut PgConnection) -> Result<()> {
    const APPLIED: &str = "select consumer, key, id, (extract(epoch from at) * 1000)::bigint \
         from rig.applied order by consumer, key, place";
    for consumer in [LEDGER, PICKY] {
        history.applied.insert(consumer.to_owned(), BTreeMap::new());
    }
    let rows: Vec<(String, String, String, i64)> =
        sqlx::query_as(APPLIED).fetch_all(connection).await?;
    for (consumer, key, id, at) in rows {
        history.apply_at(&consumer, &key, &id, at.unsigned_abs());
    }
    Ok(())
}

async fn read_held(
    history: &mut History,
    names: &Names,
    run: &str,
    connection: &mut PgConnection,
) -> Result<()> {
    const HELD: &str = "select consumer, event_id, body, true from chapar.dead_letters \
         where status <> 'closed' \
         union all select consumer, event_id, body, false from chapar.parked";
    let rows: Vec<(String, String, Vec<u8>, bool)> =
        sqlx::query_as(HELD).fetch_all(connection).await?;
    for (consumer, event_id, body, letter) in rows {
        let text = String::from_utf8_lossy(&body);
        let named = names.of(&event_id, &body, run).map(|about| about.id);
        let Some(id) = named.or_else(|| scrawled(&text).map(str::to_owned)) else { continue };
        if letter {
            history.letters.entry(consumer.clone()).or_default().insert(id.clone());
        }
        history.held.entry(consumer).or_default().insert(id);
    }
    Ok(())
}

/// Parked rows count as quarantined only where the first of their key is: it is what an operator sees.
async fn read_quarantine(
    history: &mut History,
    names: &mut Names,
    run: &str,
    connection: &mut PgConnection,
) -> Result<()> {
    const PARKED: &str = "select o.event_id, o.body, p.head and p.quarantined_at is not null, \
         exists (select from chapar.outbox_parked h where h.head and h.quarantined_at is not null \
             and h.ordering_key is not distinct from p.ordering_key) \
         from chapar.outbox_parked p join chapar.outbox o on o.seq = p.seq";
    // What was dropped is in no log: its name is known from here.
    const UNPARKED: &str = "select o.event_id, o.body, u.dropped from chapar.outbox_unparked u \
         join chapar.outbox o on o.seq = u.seq";
    let rows: Vec<(String, Vec<u8>, bool, bool)> =
        sqlx::query_as(PARKED).fetch_all(&mut *connection).await?;
    for (event_id, body, refused, blocked) in rows {
        let Some(about) = names.of(&event_id, &body, run) else { continue };
        if refused {
            history.refused.insert(about.id.clone());
        }
        if blocked {
            history.quarantined.insert(about.id.clone());
        }
    }
    let rows: Vec<(String, Vec<u8>, bool)> = sqlx::query_as(UNPARKED).fetch_all(connection).await?;
    for (event_id, body, dropped) in rows {
        if let Some(about) = names.of(&event_id, &body, run) {
            if dropped {
                history.dropped.insert(about.id.clone());
            }
            names.0.insert(event_id, about);
        }
    }
    Ok(())
}

/// What each consumer reads, and since when.
fn readers(history: &mut History, folder: &Path, acts: &Acts) {
    let all = |consumer: &str, version: u32| -> BTreeMap<String, u64> {
        topics(consumer, version).iter().map(|topic| ((*topic).to_owned(), 0)).collect()
    };
    let mut ledger = all(LEDGER, 1);
    let since = std::fs::read_to_string(folder.join("version-2.since")).ok();
    if let Some(since) = since.and_then(|text| text.trim().parse::<u64>().ok()) {
        ledger.insert(CONFIRMED.to_owned(), since + SETTLING);
    }
    history.readers.insert(LEDGER.to_owned(), ledger);
    history.readers.insert(PICKY.to_owned(), all(PICKY, 1));
    if acts.has_newcomer() {
        history.applied.entry(NEWCOMER.to_owned()).or_default();
        history.readers.insert(NEWCOMER.to_owned(), all(NEWCOMER, 1));
    }
}

/// How much has been applied, published or put away so far; it stands still when everything has arrived.
pub(super) async fn progress(connection: &mut PgConnection) -> Result<i64> {
    const PROGRESS: &str = "select (select count(*) from rig.applied) \
         + (select count(*) from chapar.parked) + (select count(*) from chapar.dead_letters)";
    Ok(sqlx::query_scalar(PROGRESS).fetch_one(connection).await?)
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
