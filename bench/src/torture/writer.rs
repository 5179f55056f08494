//! A service that writes: business rows and events in one transaction of its own.
//!
//! A key's counter records the commit order of its transactions. On even keys the events are appended before the counter
//! is touched, so that only the append itself orders the transactions; on odd ones the business row comes first.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use chapar::{AppendError, Chapar, Draft, Payload, StoreError, Tenant};
use chapar_core::Aggregate;
use chapar_sql::Append;
use chapar_testkit::history::Fate;
use fastrand::Rng;
use serde_json::{Value, json};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres, Transaction};
use tokio_util::sync::CancellationToken;

use super::diary::{Diary, Entry, Intent};
use super::plan::Fault;
use super::reader::SCRAWL;
use super::worker::Worker;
use super::world::{
    CONFIRMED, HELD, KEYS, MODIFIED, RACED, SICK, TENANTS, key, now, ordering_key, tenant,
};

/// Transactions at once.
const HANDS: usize = 5;
/// The most events of a transaction.
const MOST: usize = 60;
/// The bytes of a large row.
const LARGE: usize = 250_000;

/// How a writer works.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Manner {
    /// What it does beside short transactions.
    #[arg(long, default_value = "none")]
    habits: String,
    /// Appends through the library alone, so that every row is a whole message.
    #[arg(long)]
    sealed: bool,
    /// How many events it writes per second.
    #[arg(long, default_value_t = 50.0)]
    rate: f64,
}

struct Writer {
    pool: PgPool,
    chapar: Chapar,
    diary: Diary,
    habits: BTreeSet<Fault>,
    sealed: bool,
    /// How many events each hand writes per second.
    pace: f64,
    run: String,
    /// Names this life among all writers.
    name: String,
}

pub(super) async fn run(worker: Worker, manner: Manner, stop: CancellationToken) -> Result<()> {
    let name = worker.owner("w");
    let writer = Arc::new(Writer {
        pool: PgPoolOptions::new()
            .max_connections(HANDS as u32)
            .acquire_timeout(Duration::from_secs(5))
            .connect_lazy(&worker.store)?,
        chapar: worker.backbone().await?,
        diary: Diary::open(&worker.folder, &name)?,
        habits: Fault::list(&manner.habits).map_err(anyhow::Error::msg)?,
        sealed: manner.sealed,
        pace: manner.rate / HANDS as f64,
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
struct Plan {
    tenant: &'static str,
    events: Vec<Event>,
    /// Before the first key is locked, with the transaction id already taken.
    first: Duration,
    /// Between the last lock and the commit.
    last: Duration,
    by_sql: bool,
    rolls_back: bool,
    loose: bool,
    /// One key after the other, in this order; else all at once.
    racing: bool,
}

struct Event {
    key: usize,
    topic: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// One of the consumers cannot apply it, ever.
    Poison,
    /// It cannot apply it before this time.
    Early(u64),
    /// A consumer has to retry it until this time.
    Flaky(u64),
    Large,
    /// It breaks a rule of the system: the relay refuses it.
    Unruly,
    /// No consumer can read its message.
    Unreadable,
    /// The relay cannot read its id.
    Nameless,
}

impl Kind {
    fn is_ill(self) -> bool {
        !matches!(self, Kind::Plain | Kind::Flaky(_) | Kind::Large)
    }
}

impl Writer {
    async fn write_on(&self, hand: usize, mut dice: Rng, stop: CancellationToken) -> Result<()> {
        let (began, mut written, mut serial) = (Instant::now(), 0.0, 0u64);
        while !stop.is_cancelled() {
            serial += 1;
            let plan = self.plan(&mut dice)?;
            let tx = format!("{}-{}-{hand}-{serial}", self.run, self.name);
            let events = plan.events.len() as f64;
            // The database may be down, or a deadlock may have chosen this transaction: the next one is another
            // attempt.
            let pause = match self.transact(&tx, &plan).await? {
                true => Duration::ZERO,
                false => Duration::from_millis(dice.u64(20..200)),
            };
            written += events;
            // What was missed while the database was down is caught up with, up to a second.
            let due = written / self.pace;
            written = written.max((began.elapsed().as_secs_f64() - 1.0) * self.pace);
            let early = Duration::from_secs_f64(due).saturating_sub(began.elapsed());
            tokio::select! {
                () = tokio::time::sleep(pause.max(early)) => {}
                () = stop.cancelled() => {}
            }
        }
        Ok(())
    }

    fn plan(&self, dice: &mut Rng) -> Result<Plan> {
        let chance = |dice: &mut Rng, percent: u32| dice.u32(0..100) < percent;
        let does = |habit: Fault, happens: bool| -> Result<bool> {
            let does = happens && self.habits.contains(&habit);
            if does {
                self.diary.habit(habit.name())?;
            }
            Ok(does)
        };
        let mut plan = Plan {
            tenant: TENANTS[0],
            events: Vec::new(),
            first: Duration::from_millis(dice.u64(0..4)),
            last: Duration::from_millis(dice.u64(0..4)),
            by_sql: !self.sealed && chance(dice, 15),
            rolls_back: false,
            loose: false,
            racing: false,
        };
        plan.racing = does(Fault::LockOrderRaces, chance(dice, 4))?;
        self.choose_events(&mut plan, dice)?;
        plan.loose = does(Fault::AsyncCommits, chance(dice, 10))?;
        plan.rolls_back = does(Fault::Rollbacks, chance(dice, 8))?;
        // The slower the writers, the more often: what goes wrong with them is a matter of time.
        let often = if self.pace < 40.0 { 15 } else { 4 };
        if does(Fault::LongTransactions, chance(dice, often))? {
            match dice.bool() {
                true => plan.first = Duration::from_millis(dice.u64(100..1500)),
                false if chance(dice, 75) => plan.last = Duration::from_millis(dice.u64(30..400)),
                // Its events have their numbers long before they become visible.
                false => plan.last = Duration::from_millis(dice.u64(500..2500)),
            }
        }
        Ok(plan)
    }

    fn choose_events(&self, plan: &mut Plan, dice: &mut Rng) -> Result<()> {
        let topic = |dice: &mut Rng| match dice.u32(0..100) {
            0..=59 => MODIFIED,
            60..=84 => HELD,
            _ => CONFIRMED,
        };
        if plan.racing {
            // Among few keys, so that two of these conflict.
            let first = dice.usize(0..RACED.len());
            let other = (first + dice.usize(1..RACED.len())) % RACED.len();
            plan.tenant = tenant(RACED[first]);
            let event = |index: usize, topic| Event { key: RACED[index], topic, kind: Kind::Plain };
            plan.events = vec![event(first, topic(dice)), event(other, topic(dice))];
            return Ok(());
        }
        let most = ((self.pace / 8.0) as usize).clamp(1, MOST);
        let mut left = dice.usize(most.div_ceil(2)..=most);
        if dice.u32(0..100) < 4 {
            let key = dice.usize(0..SICK);
            plan.tenant = tenant(key);
            let kind = self.ill_kind(dice)?;
            plan.events.push(Event {
                key,
                topic: if dice.bool() { HELD } else { topic(dice) },
                kind,
            });
            plan.events.push(Event { key, topic: topic(dice), kind: Kind::Plain });
            return Ok(());
        }
        let any = dice.usize(SICK..KEYS);
        plan.tenant = tenant(any);
        let alike = any % (2 * TENANTS.len());
        let mut keys = vec![any];
        while left > 8 * keys.len() && keys.len() < 5 {
            keys.push(alike + 6 * dice.usize(SICK.div_ceil(6)..KEYS / 6));
        }
        // In the order in which every transaction locks.
        keys.sort_by_key(|index| {
            let ordering = ordering_key(plan.tenant, &key(&self.run, *index));
            (Append::shard(&ordering), ordering)
        });
        keys.dedup();
        for (place, key) in keys.iter().enumerate() {
            let here = left / (keys.len() - place);
            left -= here;
            for _ in 0..here.max(1) {
                plan.events.push(Event { key: *key, topic: topic(dice), kind: Kind::Plain });
            }
        }
        if self.habits.contains(&Fault::LargeRows) && dice.u32(0..150) == 0 {
            self.diary.habit(Fault::LargeRows.name())?;
            if let Some(event) = plan.events.first_mut() {
                event.kind = Kind::Large;
            }
        }
        Ok(())
    }

    fn ill_kind(&self, dice: &mut Rng) -> Result<Kind> {
        let hostile = self.habits.contains(&Fault::HostileRows) && !self.sealed;
        let kind = match dice.u32(0..100) {
            0..=19 => Kind::Poison,
            20..=39 => Kind::Early(now() + dice.u64(500..4000)),
            40..=69 => Kind::Flaky(now() + dice.u64(100..1500)),
            70..=79 if hostile => Kind::Unruly,
            80..=89 if hostile => Kind::Unreadable,
            90..=99 if hostile => Kind::Nameless,
            _ => Kind::Plain,
        };
        if matches!(kind, Kind::Unruly | Kind::Unreadable | Kind::Nameless) {
            self.diary.habit(Fault::HostileRows.name())?;
        }
        Ok(kind)
    }

    /// False if the database refused.
    async fn transact(&self, tx: &str, plan: &Plan) -> Result<bool> {
        let mut intent = Intent { tx: tx.to_owned(), loose: plan.loose, ..Intent::default() };
        let open = match self.fill(plan, &mut intent).await {
            Ok(open) => open,
            Err(AppendError::Store(error)) => {
                if is_deadlock(&error) {
                    self.diary.habit("deadlocks")?;
                }
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        intent.at = now();
        self.diary.intend(&intent)?;
        if plan.rolls_back {
            // Whatever the result of the rollback, it can no longer commit.
            let _ = open.rollback().await;
            self.diary.end(tx, Fate::Failed)?;
            return Ok(true);
        }
        match open.commit().await {
            Ok(()) => self.diary.end(tx, Fate::Committed)?,
            // The commit may have arrived although its answer did not.
            Err(_) => return Ok(false),
        }
        Ok(true)
    }

    /// Everything up to the commit.
    async fn fill(
        &self,
        plan: &Plan,
        intent: &mut Intent,
    ) -> Result<Transaction<'static, Postgres>, AppendError> {
        const BECOME: &str = "select set_config('role', 'chapar_app', true), \
             set_config('app.tenant_id', $1, true), set_config('lock_timeout', '5s', true), \
             set_config('synchronous_commit', case when $2 then 'off' else 'on' end, true)";
        // The level is said, so that a default of the database does not make every other transaction fail.
        let mut tx =
            self.pool.begin_with("begin isolation level read committed").await.map_err(store)?;
        let settings = sqlx::query(BECOME).bind(plan.tenant).bind(plan.loose);
        settings.execute(&mut *tx).await.map_err(store)?;
        sqlx::query("insert into rig.written (tx) values ($1)")
            .bind(&intent.tx)
            .execute(&mut *tx)
            .await
            .map_err(store)?;
        self.too_long(plan, &mut tx).await?;
        tokio::time::sleep(plan.first).await;
        let mut rest = &plan.events[..];
        while !rest.is_empty() {
            let here = match plan.racing {
                true => 1,
                false => rest.len(),
            };
            let (events, after) = rest.split_at(here);
            self.write(&mut tx, plan, events, intent).await?;
            rest = after;
            if plan.racing {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        tokio::time::sleep(plan.last).await;
        Ok(tx)
    }

    /// Counts and appends events of several keys of one kind.
    async fn write(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        plan: &Plan,
        events: &[Event],
        intent: &mut Intent,
    ) -> Result<(), AppendError> {
        let append_first = events.first().is_some_and(|event| event.key % 2 == 0);
        let first = intent.writes.len();
        if append_first {
            self.append(tx, plan, events, (&intent.tx, first)).await?;
        }
        let mut from = 0;
        while let Some(event) = events.get(from) {
            let count = events[from..].iter().take_while(|it| it.key == event.key).count();
            let name = key(&self.run, event.key);
            let last = number(tx, &name, count as i64).await?;
            for (place, event) in events[from..from + count].iter().enumerate() {
                let n = last + 1 + place as u64 - count as u64;
                let ill = event.kind.is_ill();
                intent.writes.push(Entry(name.clone(), event.topic.to_owned(), n, ill));
            }
            from += count;
        }
        if !append_first {
            self.append(tx, plan, events, (&intent.tx, first)).await?;
        }
        Ok(())
    }

    async fn append(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        plan: &Plan,
        events: &[Event],
        (name, first): (&str, usize),
    ) -> Result<(), AppendError> {
        let message = |(place, event): (usize, &Event)| {
            let id = format!("{name}.{}", first + place);
            let (key, payload) = (key(&self.run, event.key), self.payload(&id, event));
            (id, key, payload)
        };
        let messages: Vec<(String, String, Value)> =
            events.iter().enumerate().map(message).collect();
        let hostile =
            |event: &Event| matches!(event.kind, Kind::Unruly | Kind::Unreadable | Kind::Nameless);
        if plan.by_sql || events.iter().any(hostile) {
            for (event, (id, key, payload)) in events.iter().zip(messages) {
                match event.kind {
                    Kind::Unreadable | Kind::Nameless => {
                        self.append_raw(tx, plan.tenant, event, (&id, &key), &payload).await?;
                    }
                    _ => emit(tx, plan.tenant, event, (&id, &key), &payload).await?,
                }
            }
            return Ok(());
        }
        let tenant: Tenant = plan
            .tenant
            .parse()
            .map_err(|_| StoreError::Cell { column: 0, expected: "a tenant" })?;
        let drafts = events.iter().zip(messages).map(|(event, (id, key, payload))| {
            let aggregate = Aggregate { kind: "booking".into(), id: key, version: None };
            let payload = Payload::json(&payload).unwrap_or(Payload::Bytes(Default::default()));
            Draft::new(event.topic, aggregate, payload).idempotency_key(id)
        });
        self.chapar.append_batch(tx, &tenant, drafts).await?;
        Ok(())
    }

    fn payload(&self, id: &str, event: &Event) -> Value {
        let mut payload = json!({ "write": id, "key": key(&self.run, event.key) });
        match event.kind {
            Kind::Poison => payload["poison"] = json!(true),
            Kind::Early(until) => payload["early"] = json!(until),
            Kind::Flaky(until) => payload["flaky"] = json!(until),
            Kind::Large => payload["pad"] = json!("x".repeat(LARGE)),
            _ => {}
        }
        payload
    }

    /// A row that claims to be a whole message and is not.
    async fn append_raw(
        &self,
        tx: &mut Transaction<'static, Postgres>,
        tenant: &str,
        event: &Event,
        (id, key): (&str, &str),
        payload: &Value,
    ) -> Result<(), AppendError> {
        const APPEND: &str = "select chapar.append($1, $2, $3, $4, $5, 'booking', $6, null, \
             sha256($7), $8, null, true, '[]', $7)";
        let (event_id, body) = match event.kind {
            Kind::Nameless => (format!("no id: {id}"), json!({ "payload": payload }).to_string()),
            _ => (self.chapar.new_id().to_string(), format!("\u{1}{SCRAWL}{id}")),
        };
        let noted = "insert into rig.unreadable (event_id, id, key) values ($1, $2, $3)";
        let noted = sqlx::query(noted).bind(&event_id).bind(id).bind(key);
        noted.execute(&mut **tx).await.map_err(store)?;
        let ordering = ordering_key(tenant, key);
        let shard = i16::try_from(Append::shard(&ordering)).unwrap_or_default();
        let append = sqlx::query(APPEND).bind(&event_id).bind(tenant).bind(event.topic);
        let append = append.bind(&ordering).bind(shard).bind(key);
        let append = append.bind(body.as_bytes()).bind(self.chapar.new_id().to_string());
        append.execute(&mut **tx).await.map_err(store)?;
        Ok(())
    }

    /// Tries a key that is too long: it must be refused here, because nothing behind the outbox could index it.
    async fn too_long(
        &self,
        plan: &Plan,
        tx: &mut Transaction<'static, Postgres>,
    ) -> Result<(), AppendError> {
        let hostile = self.habits.contains(&Fault::HostileRows) && !self.sealed;
        let ill = plan.events.iter().any(|event| event.key < SICK);
        if !hostile || !ill {
            return Ok(());
        }
        let key: String = std::iter::repeat_with(|| fastrand::char('a'..='z')).take(4800).collect();
        let event = Event { key: 0, topic: MODIFIED, kind: Kind::Plain };
        sqlx::query("savepoint before").execute(&mut **tx).await.map_err(store)?;
        let payload = json!({ "write": "none", "key": key });
        let intent = format!("too long {:x}", fastrand::u64(..));
        match emit(tx, plan.tenant, &event, (&intent, &key), &payload).await {
            // An engine without the limit: what it makes of the key shows in everything else.
            Ok(()) => Ok(()),
            Err(_) => {
                let back = sqlx::query("rollback to savepoint before");
                back.execute(&mut **tx).await.map_err(store)?;
                Ok(())
            }
        }
    }
}

async fn emit(
    tx: &mut Transaction<'static, Postgres>,
    tenant: &str,
    event: &Event,
    (id, key): (&str, &str),
    payload: &Value,
) -> Result<(), AppendError> {
    const EMIT: &str = "select chapar.emit($1, tenant => $2, key => $3, payload => $4::jsonb, \
         idempotency_key => $5, aggregate_type => 'booking')";
    // The hotel demands an idempotency key.
    let intent = (event.kind != Kind::Unruly).then_some(id);
    let emit = sqlx::query(EMIT).bind(event.topic).bind(tenant).bind(key);
    emit.bind(payload.to_string()).bind(intent).execute(&mut **tx).await.map_err(store)?;
    Ok(())
}

/// Takes the next numbers of a key, and returns the last of them.
async fn number(
    tx: &mut Transaction<'static, Postgres>,
    key: &str,
    count: i64,
) -> Result<u64, AppendError> {
    let number = "update rig.counters set n = n + $2 where key = $1 returning n";
    let number = sqlx::query_scalar(number).bind(key).bind(count);
    let n: i64 = number.fetch_one(&mut **tx).await.map_err(store)?;
    Ok(n.unsigned_abs())
}

fn is_deadlock(error: &StoreError) -> bool {
    let StoreError::Unavailable(sqlx::Error::Database(error)) = error else { return false };
    error.code().is_some_and(|code| code == "40P01")
}

fn store(error: sqlx::Error) -> AppendError {
    AppendError::Store(error.into())
}
