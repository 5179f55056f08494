//! Operators at work while everything else goes on, through the command `chapar` alone; and the record of what they asked
//! for, which the checker compares with what happened.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use chapar_sql::Append;
use chapar_testkit::history::{History, Seek};
use fastrand::Rng;
use serde_json::{Value, json};

use super::crew::{Crew, Role};
use super::faults::Schedule;
use super::plan::Fault;
use super::reader::scrawled;
use super::site::{Carrier, Site, move_tenant};
use super::world::{LEDGER, NEWCOMER, PICKY, SYSTEM, TENANTS, TOPICS, now};

/// In front of the name of a write whose event has no id that can be read.
const UNREADABLE: &str = "unreadable: ";

/// What operators have asked for.
#[derive(Default)]
pub(super) struct Acts {
    inner: Mutex<Inner>,
    newcomer: AtomicBool,
}

#[derive(Default)]
struct Inner {
    seeks: Vec<Seek>,
    /// Letters by consumer and event id: when it was confirmed that they are given up. Until then it may have happened.
    given_up: HashMap<(String, String), u64>,
    /// Rows by event id that were dropped: when the command confirmed it, or the greatest number before that.
    dropped: HashMap<String, u64>,
}

impl Acts {
    /// The consumer that starts late has been started.
    pub(super) fn start_newcomer(&self) {
        self.newcomer.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_newcomer(&self) -> bool {
        self.newcomer.load(Ordering::Relaxed)
    }

    /// Adds them to a history. What a lagging standby may have forgotten binds no longer.
    pub(super) fn add_to(
        &self,
        history: &mut History,
        promoted: u64,
        name: impl Fn(&str) -> Option<String>,
    ) {
        let inner = self.lock();
        let seeks = inner.seeks.iter().cloned();
        history.seeks =
            seeks.map(|seek| Seek { done: seek.done && seek.begun > promoted, ..seek }).collect();
        for ((consumer, event_id), at) in &inner.given_up {
            let scrawled = event_id.strip_prefix(UNREADABLE).map(str::to_owned);
            if let Some(id) = scrawled.or_else(|| name(event_id)) {
                let at = if *at < promoted { u64::MAX } else { *at };
                history.given_up.entry(consumer.clone()).or_default().insert(id, at);
            }
        }
        for (event_id, at) in &inner.dropped {
            let binds = *at > promoted && *at < u64::MAX;
            let dropped = if binds { &mut history.dropped } else { &mut history.perhaps_dropped };
            dropped.extend(name(event_id));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The commands of one run.
pub(super) struct Desk<'r> {
    program: PathBuf,
    site: &'r Site,
    acts: &'r Acts,
}

#[derive(Clone, Copy)]
enum Action {
    SeekAndApplyAgain,
    SeekBack,
    Replay,
    Delete,
    SetAside,
    Edit,
    Drop,
    Release,
    Republish,
    Pause,
    MoveTenant,
}

const ACTIONS: [Action; 11] = [
    Action::SeekAndApplyAgain,
    Action::SeekBack,
    Action::Replay,
    Action::Delete,
    Action::SetAside,
    Action::Edit,
    Action::Drop,
    Action::Release,
    Action::Republish,
    Action::Pause,
    Action::MoveTenant,
];

impl<'r> Desk<'r> {
    pub(super) fn new(program: PathBuf, site: &'r Site, acts: &'r Acts) -> Result<Self> {
        std::fs::write(site.folder().join("contracts.json"), contracts().to_string())?;
        Ok(Desk { program, site, acts })
    }

    /// Acts until it is over.
    pub(super) async fn work(
        &self,
        schedule: &Schedule<'_>,
        crew: &Crew,
        mut dice: Rng,
    ) -> Result<()> {
        let mut actions = ACTIONS.to_vec();
        while !schedule.stop.is_cancelled() {
            dice.shuffle(&mut actions);
            for action in &actions {
                schedule.pause(dice.u64(100..900)).await;
                if schedule.stop.is_cancelled() {
                    break;
                }
                let (name, done) = self.act(*action, schedule, crew, &mut dice).await?;
                schedule.tolls.add(Fault::Operators, 1, name, done);
            }
        }
        Ok(())
    }

    /// What it did, and how much of it. The database may be down: then nothing was done, as far as the operator knows.
    async fn act(
        &self,
        action: Action,
        schedule: &Schedule<'_>,
        crew: &Crew,
        dice: &mut Rng,
    ) -> Result<(&'static str, u64)> {
        let all = self.consumers();
        let consumer = all[dice.usize(0..all.len())];
        let because = ["--reason", "torture"];
        Ok(match action {
            Action::SeekAndApplyAgain => {
                let done = self.seek(LEDGER, now() - dice.u64(500..3000), true).await?;
                ("seeks that apply again", done.into())
            }
            Action::SeekBack => {
                let done = self.seek(consumer, now() - dice.u64(500..5000), false).await?;
                ("seeks", done.into())
            }
            Action::Replay => {
                let replay = ["dlq", "replay", "--consumer", consumer, "--patience", "3s"];
                let said = self.run(&[&replay[..], &because].concat()).await?;
                ("letters replayed", said.map_or(0, |said| said["asked"].as_u64().unwrap_or(0)))
            }
            Action::Delete => ("letters deleted", self.give_up("delete", dice).await?),
            Action::SetAside => ("letters quarantined", self.give_up("quarantine", dice).await?),
            Action::Edit => ("letters edited", self.edit(dice).await?.into()),
            Action::Drop => ("rows dropped", self.drop_rows(dice).await?),
            Action::Release => {
                let release = ["outbox", "quarantine", "release", "--all"];
                let said = self.run(&[&release[..], &because].concat()).await?;
                ("rows released", said.map_or(0, |said| said["released"].as_u64().unwrap_or(0)))
            }
            Action::Republish => {
                let since = format!("{}s", dice.u32(1..6));
                let republish = ["outbox", "republish", "--since", &since, "--detach"];
                let said = self.run(&[&republish[..], &because].concat()).await?;
                ("requests to publish again", said.is_some().into())
            }
            Action::Pause => {
                let pause = ["consumers", "pause", consumer];
                let done = self.run(&[&pause[..], &because].concat()).await?.is_some();
                schedule.pause(dice.u64(300..2000)).await;
                self.resume(consumer).await?;
                ("pauses", done.into())
            }
            Action::MoveTenant => ("tenants moved", self.move_tenant(schedule, crew, dice).await?),
        })
    }

    fn consumers(&self) -> Vec<&'static str> {
        let mut all = vec![LEDGER, PICKY];
        all.extend(self.acts.has_newcomer().then_some(NEWCOMER));
        all
    }

    async fn seek(&self, consumer: &str, target: u64, reapply: bool) -> Result<bool> {
        let at = jiff::Timestamp::from_millisecond(i64::try_from(target)?)?.to_string();
        let broker = ["--transport", &self.site.transport, "--profile", SYSTEM];
        let seek = [&["consumers", "seek", consumer, "--to", &at], &broker[..]].concat();
        // Of a consumer that lags behind the target it would skip events for good, as its preview says.
        let preview = self.run(&[&seek[..], &["--dry-run"]].concat()).await?;
        if preview.is_none_or(|preview| preview["skipped"] != 0) {
            return Ok(false);
        }
        let args = [&seek[..], &["--yes", "--reason", "torture"]].concat();
        if !reapply {
            return Ok(self.run(&args).await?.is_some());
        }
        let asked = Seek { consumer: consumer.into(), target, begun: now(), done: false };
        self.acts.lock().seeks.push(asked);
        let done = self.run(&[&args[..], &["--reapply"]].concat()).await?.is_some();
        if let Some(seek) = self.acts.lock().seeks.last_mut() {
            seek.done = done;
        }
        Ok(done)
    }

    /// After a failover the database has forgotten what consumers had applied, and the broker has not: they read it again,
    /// and their inbox skips what it still knows.
    pub(super) async fn read_again(&self, since: u64) -> Result<()> {
        if self.site.carrier == Carrier::Sql {
            return Ok(());
        }
        let at = jiff::Timestamp::from_millisecond(i64::try_from(since)?)?.to_string();
        for consumer in self.consumers() {
            let seek =
                ["consumers", "seek", consumer, "--to", &at, "--yes", "--reason", "failover"];
            let broker = ["--transport", &self.site.transport, "--profile", SYSTEM];
            self.until_done(&[&seek[..], &broker].concat()).await?;
        }
        Ok(())
    }

    /// Open letters, some of them.
    async fn letters(&self, filter: &[&str]) -> Result<Vec<Value>> {
        let list = [&["dlq", "list", "--limit", "50"], filter].concat();
        let mut said = self.run(&list).await?.unwrap_or_default();
        Ok(said["letters"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    async fn give_up(&self, how: &str, dice: &mut Rng) -> Result<u64> {
        let mut letters = self.letters(&[]).await?;
        dice.shuffle(&mut letters);
        let mut count = 0;
        for letter in letters.iter().take(4) {
            let text = |field: &str| letter[field].as_str().unwrap_or_default().to_owned();
            let mut event = text("event_id");
            if letter["kind"] == "undecodable" {
                // Its message is erased with it, so it is looked at before.
                let shown = self.run(&["dlq", "show", &text("id")]).await?.unwrap_or_default();
                let id = shown["body"].as_str().and_then(scrawled).unwrap_or_default();
                event = format!("{UNREADABLE}{id}");
            }
            let named = (text("consumer"), event);
            self.acts.lock().given_up.entry(named.clone()).or_insert(u64::MAX);
            let said = self.run(&["dlq", how, &text("id"), "--reason", "torture"]).await?;
            // A letter that is being replayed meanwhile is not given up, and the command says so.
            if said.is_some_and(|said| said["changed"].as_u64() == Some(1)) {
                self.acts.lock().given_up.insert(named, now());
                count += 1;
            }
        }
        Ok(count)
    }

    async fn edit(&self, dice: &mut Rng) -> Result<bool> {
        let mut letters = self.letters(&["--consumer", PICKY]).await?;
        dice.shuffle(&mut letters);
        let readable = |letter: &&Value| letter["kind"] != "undecodable";
        let Some(id) = letters.iter().find(readable).and_then(|letter| letter["id"].as_str())
        else {
            return Ok(false);
        };
        let Some(mut payload) = self.run(&["dlq", "show", id, "--payload"]).await? else {
            return Ok(false);
        };
        for wrong in ["poison", "early"] {
            payload.as_object_mut().map(|fields| fields.remove(wrong));
        }
        let folder = self.site.folder();
        std::fs::write(folder.join("payload.json"), payload.to_string())?;
        let edit = ["dlq", "edit-and-replay", id, "--payload", "payload.json"];
        let by = ["--contracts", "contracts.json", "--profile", SYSTEM, "--reason", "torture"];
        Ok(self.run(&[&edit[..], &by].concat()).await?.is_some())
    }

    async fn drop_rows(&self, dice: &mut Rng) -> Result<u64> {
        let rows = self.run(&["outbox", "quarantine", "list"]).await?;
        let mut rows = rows.and_then(|rows| rows.as_array().cloned()).unwrap_or_default();
        dice.shuffle(&mut rows);
        let mut count = 0;
        for row in rows.iter().take(4) {
            let (seq, event) = (row["seq"].to_string(), row["event_id"].as_str());
            let Some(event) = event else { continue };
            self.acts.lock().dropped.entry(event.to_owned()).or_insert(u64::MAX);
            let drop = ["outbox", "quarantine", "drop", &seq, "--reason", "torture"];
            if self.run(&drop).await?.is_some() {
                self.acts.lock().dropped.insert(event.to_owned(), now());
                count += 1;
            }
        }
        Ok(count)
    }

    /// Gives a tenant a partition of its own: consumers learn of it first, and then the relays, one by one.
    async fn move_tenant(
        &self,
        schedule: &Schedule<'_>,
        crew: &Crew,
        dice: &mut Rng,
    ) -> Result<u64> {
        let moved = super::site::moved_tenants(self.site.folder());
        // One stays where it is.
        if self.site.carrier != Carrier::Nats || moved.len() >= TENANTS.len() - 1 {
            return Ok(0);
        }
        let tenant = TENANTS[moved.len()];
        move_tenant(self.site.folder(), tenant, 12 + moved.len() as u32)?;
        for (role, count) in [(Role::Consumer, schedule.consumers), (Role::Relay, schedule.relays)]
        {
            for index in 0..count {
                crew.restart(role, index);
                schedule.pause(dice.u64(200..1500)).await;
            }
        }
        Ok(1)
    }

    /// The answer of a command; none if it failed.
    async fn run(&self, args: &[&str]) -> Result<Option<Value>> {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .args(["--store", &self.site.calm.store])
            .current_dir(self.site.folder())
            .env_remove("CHAPAR_CONFIG")
            .stdin(Stdio::null());
        if !args.contains(&"--payload") || args.contains(&"edit-and-replay") {
            command.args(["--format", "json"]);
        }
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        if output.status.code() == Some(2) {
            bail!("{args:?} is not understood: {}", String::from_utf8_lossy(&output.stderr));
        }
        if !output.status.success() {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&output.stdout).unwrap_or_default()))
    }

    /// Ends a pause in any case, also one whose command was not answered.
    async fn resume(&self, consumer: &str) -> Result<()> {
        for _ in 0..200 {
            let resume = ["consumers", "resume", consumer, "--reason", "torture"];
            if self.run(&resume).await?.is_some() {
                return Ok(());
            }
            let shown = self.run(&["consumers", "show", consumer]).await?;
            if shown.is_some_and(|shown| shown["paused"].is_null()) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("{consumer} cannot be resumed")
    }

    async fn until_done(&self, args: &[&str]) -> Result<()> {
        for _ in 0..200 {
            if self.run(args).await?.is_some() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("{args:?} fails again and again")
    }
}

/// The contracts of the events of a run, which an edited letter has to match.
fn contracts() -> Value {
    let properties = json!({
        "write": { "type": "string" }, "key": { "type": "string" }, "poison": { "type": "boolean" },
        "early": { "type": "integer" }, "flaky": { "type": "integer" }, "pad": { "type": "string" },
    });
    let contract = |subject: &&str| {
        let schema =
            json!({ "type": "object", "required": ["write", "key"], "properties": properties });
        let schema = schema.to_string();
        let hash: String =
            Append::hash(schema.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        let uri = format!("https://rig.invalid/{subject}.json#sha256-{hash}");
        json!({ "subject": subject, "owner": "torture", "uri": uri, "schema": schema })
    };
    let contracts: Vec<Value> = TOPICS.iter().map(contract).collect();
    json!({ "format": 1, "system": SYSTEM, "version": "1", "contracts": contracts })
}
