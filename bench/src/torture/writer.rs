//! A service that writes: a business row and an event in one transaction of its own.
//!
//! A key's counter records the commit order of its transactions. On even keys the event is appended before the counter
//! is touched, so that only the append itself orders the transactions; on odd ones the business row comes first.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use chapar::{AppendError, Chapar, Draft, Payload, StoreError, Tenant};
use chapar_core::Aggregate;
use chapar_testkit::history::{Fate, Write};
use fastrand::Rng;
use serde_json::json;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres, Transaction};
use tokio_util::sync::CancellationToken;

use super::diary::Diary;
use super::plan::Fault;
use super::site::{KEYS, TENANT, TOPIC, key};
use super::worker::Worker;

/// Transactions at once.
const HANDS: usize = 5;
/// The keys that are locked two at a time.
const RACED: usize = 3;
/// The transaction whose event one of the consumers cannot apply.
const POISON_AT: u64 = 10;

struct Writer {
    pool: PgPool,
    chapar: Chapar,
    tenant: Tenant,
    diary: Diary,
    habits: BTreeSet<Fault>,
    sealed: bool,
    run: String,
    /// Names this life among all writers.
    name: String,
}

pub(super) async fn run(
    worker: Worker,
    habits: BTreeSet<Fault>,
    sealed: bool,
    stop: CancellationToken,
) -> Result<()> {
    let name = worker.owner("w");
    let writer = Arc::new(Writer {
        pool: PgPoolOptions::new()
            .max_connections(HANDS as u32)
            .acquire_timeout(Duration::from_secs(5))
            .connect_lazy(&worker.store)?,
        chapar: worker.backbone().await?,
        tenant: TENANT.parse()?,
        diary: Diary::open(&worker.folder, &name)?,
        habits,
        sealed,
        run: worker.run.clone(),
        name,
    });
    let mut hands = tokio::task::JoinSet::new();
    for hand in 0..HANDS {
        let (writer, stop) = (writer.clone(), stop.clone());
        let dice = Rng::with_seed(worker.seed ^ (u64::from(worker.life) << 32) ^ hand as u64);
        hands.spawn(async move { writer.write_on(hand, dice, stop).await });
    }
    while let Some(done) = hands.join_next().await {
        done??;
    }
    Ok(())
}

/// The plan of one transaction.
struct Intent {
    keys: Vec<usize>,
    /// Before the first key is locked, with the transaction id already taken.
    first: Duration,
    /// Between the last lock and the commit.
    last: Duration,
    by_sql: bool,
    rolls_back: bool,
}

impl Writer {
    async fn write_on(&self, hand: usize, mut dice: Rng, stop: CancellationToken) -> Result<()> {
        let mut serial = 0u64;
        while !stop.is_cancelled() {
            serial += 1;
            let mut intent = self.intend(&mut dice)?;
            let poison = hand == 0 && serial == POISON_AT;
            if poison {
                intent.keys = vec![0];
            }
            let id = format!("{}-{}-{hand}-{serial}", self.run, self.name);
            // The database may be down, or a deadlock may have chosen this transaction: the next one is another
            // attempt.
            let pause = match self.transact(&id, &intent, poison).await? {
                true => dice.u64(5..40),
                false => dice.u64(20..200),
            };
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(pause)) => {}
                () = stop.cancelled() => {}
            }
        }
        Ok(())
    }

    fn intend(&self, dice: &mut Rng) -> Result<Intent> {
        let chance = |dice: &mut Rng, percent: u32| dice.u32(0..100) < percent;
        let mut intent = Intent {
            keys: vec![dice.usize(0..KEYS)],
            first: Duration::from_millis(dice.u64(0..4)),
            last: Duration::from_millis(dice.u64(0..4)),
            by_sql: !self.sealed && chance(dice, 25),
            rolls_back: false,
        };
        if self.habits.contains(&Fault::LongTransactions) && chance(dice, 15) {
            self.diary.habit(Fault::LongTransactions.name())?;
            match dice.bool() {
                true => intent.first = Duration::from_millis(dice.u64(100..1500)),
                false if chance(dice, 75) => intent.last = Duration::from_millis(dice.u64(30..400)),
                // Its event has its number long before it becomes visible.
                false => intent.last = Duration::from_millis(dice.u64(500..2500)),
            }
        }
        if self.habits.contains(&Fault::Rollbacks) && chance(dice, 8) {
            self.diary.habit(Fault::Rollbacks.name())?;
            intent.rolls_back = true;
        }
        if self.habits.contains(&Fault::LockOrderRaces) && chance(dice, 8) {
            self.diary.habit(Fault::LockOrderRaces.name())?;
            // Among few keys, so that two of these conflict.
            let first = dice.usize(0..RACED);
            intent.keys = vec![first, (first + dice.usize(1..RACED)) % RACED];
        }
        Ok(intent)
    }

    /// False if the database refused.
    async fn transact(&self, id: &str, intent: &Intent, poison: bool) -> Result<bool> {
        let mut writes = Vec::new();
        let tx = match self.fill(id, intent, poison, &mut writes).await {
            Ok(tx) => tx,
            Err(AppendError::Store(error)) => {
                if is_deadlock(&error) {
                    self.diary.habit("deadlocks")?;
                }
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        self.diary.intend(&writes)?;
        if intent.rolls_back {
            // Whatever the result of the rollback, it can no longer commit.
            let _ = tx.rollback().await;
            self.diary.end(&writes, Fate::Failed)?;
            return Ok(true);
        }
        match tx.commit().await {
            Ok(()) => self.diary.end(&writes, Fate::Committed)?,
            // The commit may have arrived although its answer did not.
            Err(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Everything up to the commit.
    async fn fill(
        &self,
        id: &str,
        intent: &Intent,
        poison: bool,
        writes: &mut Vec<Write>,
    ) -> Result<Transaction<'static, Postgres>, AppendError> {
        const BECOME: &str = "select set_config('role', 'chapar_app', true), \
             set_config('app.tenant_id', $1, true), set_config('lock_timeout', '5s', true)";
        let mut tx = self.pool.begin().await.map_err(store)?;
        sqlx::query(BECOME).bind(TENANT).execute(&mut *tx).await.map_err(store)?;
        for index in &intent.keys {
            let written = "insert into rig.written (id) values ($1)";
            let id = format!("{id}-{index}");
            sqlx::query(written).bind(&id).execute(&mut *tx).await.map_err(store)?;
        }
        tokio::time::sleep(intent.first).await;
        for index in &intent.keys {
            let (id, key) = (format!("{id}-{index}"), key(&self.run, *index));
            let n = if index % 2 == 0 {
                self.append(&mut tx, &id, &key, poison, intent.by_sql).await?;
                count(&mut tx, &key).await?
            } else {
                let n = count(&mut tx, &key).await?;
                self.append(&mut tx, &id, &key, poison, intent.by_sql).await?;
                n
            };
            writes.push(Write { id, key, n, fate: Fate::Unknown });
            if intent.keys.len() > 1 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        tokio::time::sleep(intent.last).await;
        Ok(tx)
    }

    async fn append(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        id: &str,
        key: &str,
        poison: bool,
        by_sql: bool,
    ) -> Result<(), AppendError> {
        let payload = json!({ "write": id, "key": key, "poison": poison });
        if by_sql {
            const EMIT: &str = "select chapar.emit($1, tenant => $2, key => $3, \
                 payload => $4::jsonb, idempotency_key => $5, aggregate_type => 'booking')";
            let emit = sqlx::query(EMIT).bind(TOPIC).bind(TENANT).bind(key);
            let emit = emit.bind(payload.to_string()).bind(id);
            emit.execute(&mut **tx).await.map_err(store)?;
            return Ok(());
        }
        let aggregate = Aggregate { kind: "booking".into(), id: key.to_owned(), version: None };
        let payload = Payload::json(&payload).unwrap_or(Payload::Bytes(Default::default()));
        let draft = Draft::new(TOPIC, aggregate, payload);
        self.chapar.append(tx, &self.tenant, draft.idempotency_key(id)).await?;
        Ok(())
    }
}

async fn count(tx: &mut Transaction<'static, Postgres>, key: &str) -> Result<u64, AppendError> {
    let count = "update rig.counters set n = n + 1 where key = $1 returning n";
    let (n,): (i64,) = sqlx::query_as(count).bind(key).fetch_one(&mut **tx).await.map_err(store)?;
    Ok(n.unsigned_abs())
}

fn is_deadlock(error: &StoreError) -> bool {
    let StoreError::Unavailable(sqlx::Error::Database(error)) = error else { return false };
    error.code().is_some_and(|code| code == "40P01")
}

fn store(error: sqlx::Error) -> AppendError {
    AppendError::Store(error.into())
}
