//! The seeded schedule: which fault happens when, to which process and for how long.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use chapar_testkit::proxy::Proxy;
use fastrand::Rng;
use serde::Serialize;
use sqlx::{Connection, PgConnection};
use tokio_util::sync::CancellationToken;

use super::crew::{Crew, Role};
use super::plan::Fault;
use super::site::Site;

/// How often a fault happened, and what it interrupted: counts by what they count.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Toll {
    /// How often.
    pub fired: u64,
    /// What.
    pub interrupted: BTreeMap<&'static str, u64>,
}

/// Counts faults while they happen.
#[derive(Debug, Default)]
pub(super) struct Tolls(Mutex<BTreeMap<&'static str, Toll>>);

impl Tolls {
    pub(super) fn add(&self, fault: Fault, fired: u64, what: &'static str, count: u64) {
        let mut tolls = self.lock();
        let toll = tolls.entry(fault.name()).or_default();
        toll.fired += fired;
        *toll.interrupted.entry(what).or_default() += count;
    }

    pub(super) fn take(&self) -> BTreeMap<&'static str, Toll> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Toll>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In milliseconds: long enough for any of our leases to expire, and for a takeover.
const PAST_THE_LEASE: Range<u64> = 5_500..7_500;
/// The same for the leases of mutants.
const PAST_THE_MUTANTS_LEASE: Range<u64> = 2_500..3_500;

/// Injects the faults, one after the other, in shuffled rounds.
pub(super) struct Schedule<'r> {
    pub(super) site: &'r Site,
    pub(super) crew: &'r Crew,
    pub(super) tolls: &'r Tolls,
    pub(super) relays: usize,
    pub(super) consumers: usize,
    pub(super) writers: usize,
    /// A wrong relay runs in place of ours.
    pub(super) mutant: bool,
    pub(super) stop: &'r CancellationToken,
    pub(super) say: &'r (dyn Fn(&str) + Sync),
}

impl Schedule<'_> {
    /// Faults of processes, which need nothing but the crew.
    pub(super) async fn processes(&self, faults: &[Fault], mut dice: Rng) -> Result<()> {
        self.rounds(faults, &mut dice, async |fault, dice| {
            let pick = |dice: &mut Rng, count: usize| dice.usize(0..count);
            match fault {
                Fault::KillRelay => self.kill(fault, Role::Relay, pick(dice, self.relays)),
                Fault::KillConsumer => self.kill(fault, Role::Consumer, pick(dice, self.consumers)),
                Fault::KillWriter => self.kill(fault, Role::Writer, pick(dice, self.writers)),
                Fault::FreezeRelay => {
                    self.freeze(fault, Role::Relay, pick(dice, self.relays), dice).await;
                }
                _ => self.freeze(fault, Role::Consumer, pick(dice, self.consumers), dice).await,
            }
            Ok(())
        })
        .await
    }

    /// Faults of the network, and a transaction elsewhere.
    pub(super) async fn lines(&self, faults: &[Fault], mut dice: Rng) -> Result<()> {
        self.rounds(faults, &mut dice, async |fault, dice| {
            if fault == Fault::ForeignTransaction {
                return self.foreign_transaction(dice).await;
            }
            // A relay's as often as a consumer's.
            let line = match dice.bool() {
                true => dice.usize(0..self.relays),
                false => self.relays + dice.usize(0..self.consumers),
            };
            let line = &self.site.lines[line];
            let proxy = match fault.needs_a_broker() {
                true => line.to_broker.as_ref(),
                false => Some(&line.to_database),
            };
            if let Some(proxy) = proxy {
                self.break_line(fault, proxy, dice).await;
            }
            Ok(())
        })
        .await
    }

    /// Each fault once in a shuffled order, with pauses, until it is over.
    async fn rounds(
        &self,
        faults: &[Fault],
        dice: &mut Rng,
        happen: impl AsyncFn(Fault, &mut Rng) -> Result<()>,
    ) -> Result<()> {
        let mut faults = faults.to_vec();
        while !faults.is_empty() && !self.stop.is_cancelled() {
            dice.shuffle(&mut faults);
            for fault in &faults {
                self.pause(dice.u64(300..1200) * self.calm(fault)).await;
                if self.stop.is_cancelled() {
                    break;
                }
                (self.say)(&format!("{fault}"));
                happen(*fault, dice).await?;
            }
        }
        Ok(())
    }

    /// A wrong relay is tested with faults of relays; other faults would only delay it.
    pub(super) fn calm(&self, fault: &Fault) -> u64 {
        match fault {
            Fault::KillRelay | Fault::FreezeRelay => 1,
            _ if self.mutant => 4,
            _ => 1,
        }
    }

    fn kill(&self, fault: Fault, role: Role, index: usize) {
        let killed = self.crew.kill(role, index);
        self.tolls.add(fault, 1, "processes", killed.into());
    }

    async fn freeze(&self, fault: Fault, role: Role, index: usize, dice: &mut Rng) {
        let frozen = self.crew.freeze(role, index);
        self.tolls.add(fault, 1, "processes", frozen.into());
        let time = match role {
            Role::Relay if self.mutant => PAST_THE_MUTANTS_LEASE,
            _ => PAST_THE_LEASE,
        };
        self.pause(dice.u64(time)).await;
        self.crew.thaw(role, index);
    }

    async fn break_line(&self, fault: Fault, proxy: &Proxy, dice: &mut Rng) {
        let lost = proxy.lost_bytes();
        let (connections, time) = match fault {
            Fault::CutBroker | Fault::CutDatabase => (proxy.cut(), dice.u64(200..3000)),
            Fault::SlowBroker | Fault::SlowDatabase => {
                let by = Duration::from_millis(dice.u64(20..200));
                (proxy.delay(by), dice.u64(500..3000))
            }
            Fault::HalfOpenBroker | Fault::HalfOpenDatabase => {
                (proxy.half_open(), dice.u64(1000..7000))
            }
            _ => (proxy.lose_answers(), dice.u64(300..4000)),
        };
        self.pause(time).await;
        proxy.heal();
        self.tolls.add(fault, 1, "connections", connections as u64);
        if matches!(fault, Fault::LostAckBroker | Fault::LostAckDatabase) {
            self.tolls.add(fault, 0, "bytes of answers", proxy.lost_bytes() - lost);
        }
    }

    async fn foreign_transaction(&self, dice: &mut Rng) -> Result<()> {
        let held = dice.u64(1000..4000);
        let elsewhere = elsewhere(&self.site.store());
        // The database may be down at the moment: then there is nothing to hold open.
        let Ok(mut connection) = PgConnection::connect(&elsewhere).await else { return Ok(()) };
        if let Ok(mut tx) = connection.begin().await
            && sqlx::query("select pg_current_xact_id()").execute(&mut *tx).await.is_ok()
        {
            self.pause(held).await;
            self.tolls.add(Fault::ForeignTransaction, 1, "milliseconds held open", held);
        }
        Ok(())
    }

    pub(super) async fn pause(&self, milliseconds: u64) {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(milliseconds)) => {}
            () = self.stop.cancelled() => {}
        }
    }
}

pub(super) async fn open_transactions(site: &Site) -> u64 {
    const OPEN: &str = "select count(*) from pg_stat_activity \
         where xact_start is not null and pid <> pg_backend_pid()";
    let Ok(mut connection) = site.connect().await else { return 0 };
    let count: Result<(i64,), _> = sqlx::query_as(OPEN).fetch_one(&mut connection).await;
    count.map_or(0, |(count,)| count.unsigned_abs())
}

/// The database that every cluster has.
fn elsewhere(store: &str) -> String {
    let address = store.split_once('?').map_or(store, |(address, _)| address);
    let server = address.rsplit_once('/').map_or(address, |(server, _)| server);
    format!("{server}/postgres")
}
