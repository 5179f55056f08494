//! Wrong relays, each with a common design error, and sabotaged databases in which ours must fail. Wrong relays share only
//! the outbox and the broker with ours; their state is in the schema `mutant`.

mod late_cursor;
mod leased;
mod marked;
mod sabotage;
mod skip_locked;
mod snapshot;

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use chapar_core::port::{Outgoing, Transport};
use chapar_transports::nats::Nats;
use sqlx::postgres::PgRow;
use sqlx::{Connection, FromRow, PgConnection, Row as _};
use tokio_util::sync::CancellationToken;

use super::worker::Worker;

macro_rules! mutants {
    ($($(#[doc = $doc:literal])+ $mutant:ident = $name:literal,)+) => {
        /// A relay that is wrong by design, or a defect that a sabotaged database brings back.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[doc = $doc])+ $mutant,)+
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Mutant] = &[$(Mutant::$mutant,)+];

            /// Its name on the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Mutant::$mutant => $name,)+
                }
            }
        }
    };
}

mutants! {
    /// Continues after the highest sequence number seen: a row that commits late is never read.
    SequenceCursor = "sequence-cursor",
    /// Several relays take the oldest unlocked rows and publish them concurrently: events of a key overtake each other.
    SkipLocked = "skip-locked",
    /// Publishes rows below the oldest running transaction in transaction id order: a transaction gets its id before it
    /// locks a key.
    XminHorizon = "xmin-horizon",
    /// Takes rows that are visible now and were not before, above a low-water mark, and below it those of transactions
    /// that ran below `pg_snapshot_xmax`: others with higher ids ran too.
    SnapshotXmax = "snapshot-xmax",
    /// Marks rows and then publishes them: killed in between, they are never published.
    MarkBeforePublish = "mark-before-publish",
    /// Holds a lease that writes are not checked against: after a freeze it moves its successor's cursor.
    LeaseWithoutEpoch = "lease-without-epoch",
    /// A new topic of a consumer does not become one of its group.
    TopicNotAdded = "topic-not-added",
    /// Passing trouble of the database looks like a fault of the data.
    TroubleIsRefusal = "trouble-is-refusal",
}

impl Mutant {
    /// Whether it is a relay of its own, which publishes whole messages and knows nothing else.
    pub fn is_a_relay(self) -> bool {
        matches!(
            self,
            Mutant::SequenceCursor
                | Mutant::SkipLocked
                | Mutant::XminHorizon
                | Mutant::SnapshotXmax
                | Mutant::MarkBeforePublish
                | Mutant::LeaseWithoutEpoch
        )
    }

    /// Creates the tables of wrong relays, or sabotages the database.
    pub(super) async fn prepare(self, connection: &mut PgConnection) -> Result<()> {
        let text = match sabotage::of(self) {
            Some(text) => text,
            None if self.is_a_relay() => include_str!("schema.sql"),
            None => return Ok(()),
        };
        sqlx::raw_sql(text).execute(connection).await?;
        Ok(())
    }
}

impl FromStr for Mutant {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Mutant::ALL.iter().copied().find(|mutant| mutant.name() == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
            format!("there is no mutant {name:?}; there are {}", known.join(", "))
        })
    }
}

/// One iteration of a wrong relay; returns how many rows it handled.
trait Design {
    async fn turn(&mut self, desk: &mut Desk) -> Result<usize>;
}

/// The connections and state of a wrong relay.
struct Desk {
    connection: PgConnection,
    broker: Nats,
    /// The id of this process.
    owner: String,
}

/// A sealed row of the outbox.
#[derive(Debug, Clone)]
struct Row {
    seq: i64,
    event_id: String,
    tenant: String,
    topic: String,
    ordering_key: Option<String>,
    headers: String,
    body: Vec<u8>,
}

impl FromRow<'_, PgRow> for Row {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        Ok(Row {
            seq: row.try_get(0)?,
            event_id: row.try_get(1)?,
            tenant: row.try_get(2)?,
            topic: row.try_get(3)?,
            ordering_key: row.try_get(4)?,
            headers: row.try_get(5)?,
            body: row.try_get(6)?,
        })
    }
}

/// The columns of a [`Row`].
macro_rules! row {
    () => {
        "o.seq, o.event_id, o.tenant, o.topic, o.ordering_key, o.headers, o.body"
    };
}
use row;

/// Runs a wrong relay until it is asked to end.
pub(super) async fn run(mutant: Mutant, worker: Worker, stop: CancellationToken) -> Result<()> {
    match mutant {
        Mutant::SequenceCursor => relay(late_cursor::SequenceCursor, &worker, &stop).await,
        Mutant::XminHorizon => relay(late_cursor::XminHorizon, &worker, &stop).await,
        Mutant::SnapshotXmax => relay(snapshot::SnapshotXmax, &worker, &stop).await,
        Mutant::SkipLocked => relay(skip_locked::SkipLocked, &worker, &stop).await,
        Mutant::MarkBeforePublish => relay(marked::MarkBeforePublish, &worker, &stop).await,
        Mutant::LeaseWithoutEpoch => {
            relay(leased::LeaseWithoutEpoch::default(), &worker, &stop).await
        }
        other => anyhow::bail!("{} is not a process", other.name()),
    }
}

async fn relay(mut design: impl Design, worker: &Worker, stop: &CancellationToken) -> Result<()> {
    let broker = worker.broker("mutant").await?;
    let owner = worker.owner("mutant");
    while !stop.is_cancelled() {
        let Ok(connection) = PgConnection::connect(&worker.store).await else {
            pause(Duration::from_millis(100), stop).await;
            continue;
        };
        let mut desk = Desk { connection, broker: broker.clone(), owner: owner.clone() };
        // A failed connection is dropped, and its locks with it.
        while !stop.is_cancelled() {
            match design.turn(&mut desk).await {
                Ok(0) => pause(Duration::from_millis(20), stop).await,
                Ok(_) => {}
                Err(_) => {
                    pause(Duration::from_millis(100), stop).await;
                    break;
                }
            }
        }
    }
    Ok(())
}

async fn pause(time: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = stop.cancelled() => {}
    }
}

impl Desk {
    /// Publishes rows, in order within a key; fails unless all are acknowledged.
    async fn publish(&self, rows: &[Row]) -> Result<()> {
        let outgoing: Result<Vec<Outgoing>> = rows.iter().map(Row::outgoing).collect();
        for receipt in self.broker.publish(outgoing?).await {
            receipt?;
        }
        Ok(())
    }

    /// Whether this process is the only relay: by a session lock, which is correct.
    async fn is_alone(&mut self) -> Result<bool> {
        const LOCK: &str = "select pg_try_advisory_lock(4711)";
        const HELD: &str = "select exists (select 1 from pg_locks where locktype = 'advisory' \
             and objid = 4711 and pid = pg_backend_pid() and granted)";
        let (held,): (bool,) = sqlx::query_as(HELD).fetch_one(&mut self.connection).await?;
        if held {
            return Ok(true);
        }
        let (locked,): (bool,) = sqlx::query_as(LOCK).fetch_one(&mut self.connection).await?;
        Ok(locked)
    }
}

impl Row {
    fn outgoing(&self) -> Result<Outgoing> {
        Ok(Outgoing {
            id: self.event_id.parse().context("an event without an id")?,
            topic: self.topic.clone(),
            tenant: self.tenant.clone(),
            key: self.ordering_key.clone(),
            headers: serde_json::from_str(&self.headers)?,
            body: Bytes::from(self.body.clone()),
        })
    }
}
