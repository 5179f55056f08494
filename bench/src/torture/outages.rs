//! Faults of the servers: crashes, restarts, a failover, and settings that change under the engine.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use chapar_testkit::servers::Instance;
use fastrand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection, PgConnection};
use tokio::task::spawn_blocking;

use super::faults::{Schedule, open_transactions};
use super::operators::Desk;
use super::plan::Fault;
use super::site::{Servers, Standby};
use super::world::now;

/// How far the operators go back after a failover, from the last transaction that the standby knows of: longer than
/// consumers lag behind the broker.
const LAG: u64 = 20_000;

/// Each fault of the servers in a shuffled order, with pauses, until it is over. In the end every server is up, and takes
/// writes.
pub(super) async fn happen(
    servers: &mut Servers,
    schedule: &Schedule<'_>,
    desk: &Desk<'_>,
    faults: &[Fault],
    mut dice: Rng,
) -> Result<()> {
    let mut faults = faults.to_vec();
    while !faults.is_empty() && !schedule.stop.is_cancelled() {
        dice.shuffle(&mut faults);
        for fault in faults.clone() {
            schedule.pause(dice.u64(2000..5000) * schedule.calm(&fault)).await;
            if schedule.stop.is_cancelled() {
                break;
            }
            (schedule.say)(&format!("{fault}"));
            let outage = Outage { schedule, desk };
            match fault {
                Fault::CrashDatabase => outage.crash(servers, dice.u64(300..1500)).await?,
                Fault::QuickCrash => outage.crash(servers, 0).await?,
                Fault::KillBackend => outage.kill_backend().await?,
                Fault::RestartBroker => outage.restart_broker(servers, &mut dice).await?,
                Fault::ReadOnly => outage.read_only(dice.u64(300..1500)).await?,
                Fault::Isolation => outage.isolation(&mut dice).await?,
                _ => {
                    outage.promote(servers, dice.u64(200..1500)).await?;
                    faults.retain(|fault| *fault != Fault::PromoteStandby);
                }
            }
        }
    }
    Ok(())
}

struct Outage<'s, 'r> {
    schedule: &'s Schedule<'r>,
    desk: &'s Desk<'r>,
}

impl Outage<'_, '_> {
    /// `kill -9`, and a restart after so many milliseconds.
    async fn crash(&self, servers: &mut Servers, down: u64) -> Result<()> {
        let fault = if down == 0 { Fault::QuickCrash } else { Fault::CrashDatabase };
        let open = open_transactions(self.schedule.site).await;
        let Some(instance) = servers.database.take() else { return Ok(()) };
        self.schedule.tolls.add(fault, 1, "open transactions", open);
        let began = Instant::now();
        let instance = killed(instance).await?;
        self.schedule.pause(down).await;
        servers.database = Some(restarted(instance).await?);
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.schedule.tolls.add(fault, 0, "milliseconds down", took);
        Ok(())
    }

    async fn restart_broker(&self, servers: &mut Servers, dice: &mut Rng) -> Result<()> {
        let Some(instance) = servers.broker.take() else { return Ok(()) };
        let lines = self.schedule.site.lines.iter().filter_map(|line| line.to_broker.as_ref());
        let open: usize = lines.map(|line| line.connections()).sum();
        self.schedule.tolls.add(Fault::RestartBroker, 1, "connections", open as u64);
        let instance = killed(instance).await?;
        self.schedule.pause(dice.u64(0..1500)).await;
        servers.broker = Some(restarted(instance).await?);
        Ok(())
    }

    /// The server cannot know what the killed backend has left in shared memory: it ends all others and recovers.
    async fn kill_backend(&self) -> Result<()> {
        const ONE: &str = "select pid from pg_stat_activity where backend_type = 'client backend' \
             and pid <> pg_backend_pid() and datname = current_database() order by random() limit 1";
        let site = self.schedule.site;
        let open = open_transactions(site).await;
        let Ok(mut connection) = site.connect().await else { return Ok(()) };
        let pid: Result<i32, _> = sqlx::query_scalar(ONE).fetch_one(&mut connection).await;
        drop(connection);
        let Some(pid) = pid.ok().and_then(Pid::from_raw) else { return Ok(()) };
        let began = Instant::now();
        if kill_process(pid, Signal::KILL).is_err() {
            return Ok(());
        }
        self.schedule.tolls.add(Fault::KillBackend, 1, "open transactions", open);
        while site.connect().await.is_err() && began.elapsed() < Duration::from_secs(20) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.schedule.tolls.add(Fault::KillBackend, 0, "milliseconds down", took);
        Ok(())
    }

    /// New transactions may not write, unless they say so themselves.
    async fn read_only(&self, time: u64) -> Result<()> {
        let Ok(mut connection) = self.schedule.site.connect().await else { return Ok(()) };
        let set = set_default(&mut connection, "default_transaction_read_only", "on").await;
        let connections = end_sessions(&mut connection).await;
        self.schedule.pause(time).await;
        self.until_reset("default_transaction_read_only").await?;
        if set.is_ok() {
            self.schedule.tolls.add(Fault::ReadOnly, 1, "connections", connections);
        }
        Ok(())
    }

    async fn isolation(&self, dice: &mut Rng) -> Result<()> {
        let level = if dice.bool() { "'repeatable read'" } else { "'serializable'" };
        let Ok(mut connection) = self.schedule.site.connect().await else { return Ok(()) };
        let set = set_default(&mut connection, "default_transaction_isolation", level).await;
        let connections = end_sessions(&mut connection).await;
        if set.is_ok() {
            self.schedule.tolls.add(Fault::Isolation, 1, "connections", connections);
        }
        Ok(())
    }

    /// The standby stops receiving, the primary is lost, and the standby takes its place without what it has not got.
    async fn promote(&self, servers: &mut Servers, lag: u64) -> Result<()> {
        const LAST: &str =
            "select (extract(epoch from pg_last_xact_replay_timestamp()) * 1000)::bigint";
        let Some(Standby { server, line }) = servers.standby.take() else { return Ok(()) };
        let Some(primary) = servers.database.take() else { return Ok(()) };
        line.half_open();
        self.schedule.pause(lag).await;
        // Never to come back: a client that still reached it would write where nothing is read.
        drop(killed(primary).await?);
        line.cut();
        let at = now();
        let mut connection = PgConnection::connect(server.url()).await?;
        // All that was committed later is forgotten, what consumers had applied included.
        let last: Option<i64> = sqlx::query_scalar(LAST).fetch_one(&mut connection).await?;
        let last = last.map_or(0, i64::unsigned_abs);
        sqlx::query("select pg_promote(true, 30)").execute(&mut connection).await?;
        self.schedule.site.fail_over(&server, at)?;
        servers.database = Some(server);
        let behind = at.saturating_sub(last);
        self.schedule.tolls.add(Fault::PromoteStandby, 1, "milliseconds behind", behind);
        (self.schedule.say)("promoted: consumers read again what the standby has not seen");
        self.desk.read_again(last.saturating_sub(LAG)).await
    }

    async fn until_reset(&self, setting: &str) -> Result<()> {
        let began = Instant::now();
        loop {
            if let Ok(mut connection) = self.schedule.site.connect().await
                && set_default(&mut connection, setting, "default").await.is_ok()
            {
                end_sessions(&mut connection).await;
                return Ok(());
            }
            let patient = began.elapsed() < Duration::from_secs(60);
            anyhow::ensure!(patient, "the database does not come back");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Sets a default of the database; `default` resets it.
async fn set_default(connection: &mut PgConnection, setting: &str, value: &str) -> Result<()> {
    let database: String =
        sqlx::query_scalar("select current_database()").fetch_one(&mut *connection).await?;
    let text =
        format!("begin read write; alter database {database} set {setting} to {value}; commit");
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(connection).await?;
    Ok(())
}

/// Ends the sessions of everybody else: a default holds from the next one on.
async fn end_sessions(connection: &mut PgConnection) -> u64 {
    const END: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
         where datname = current_database() and pid <> pg_backend_pid()";
    let count: Result<i64, _> = sqlx::query_scalar(END).fetch_one(connection).await;
    count.map_or(0, i64::unsigned_abs)
}

/// On a thread of its own, so that everything else continues meanwhile.
async fn killed(mut instance: Instance) -> Result<Instance> {
    let killed = spawn_blocking(move || {
        instance.kill();
        instance
    });
    killed.await.context("the server cannot be killed")
}

async fn restarted(mut instance: Instance) -> Result<Instance> {
    let (instance, restarted) = spawn_blocking(move || {
        let restarted = instance.restart();
        (instance, restarted)
    })
    .await?;
    restarted?;
    Ok(instance)
}
