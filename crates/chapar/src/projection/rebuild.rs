//! Building a read model again from history, beside the one that is served.
//!
//! The new build must hold exactly the events that the served one holds, or one that is applied
//! later would be missing or counted twice. The inbox knows which these are: it is written with
//! the documents. History is read up to where the served build has come, then the build is held so
//! that nothing changes it, the few events that came meanwhile are added, and the new build is
//! served: all in one transaction.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chapar_core::Envelope;
use chapar_core::dialect::Message;
use chapar_core::port::{Kept, ReadFrom, Transport, TransportError};
use chapar_sql::{Conn, Doc, SNAPSHOT, StoreError, Tables};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Folds;
use crate::chapar::Chapar;
use crate::consumer::fact;
use crate::failure::Failure;
use crate::supervisor::{Ended, Part};

/// Takes snapshots, and builds again when an operator asks for it.
#[derive(Clone)]
pub(crate) struct Builder {
    pub(crate) chapar: Chapar,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) folds: Folds,
    pub(crate) owner: String,
    pub(crate) stop: CancellationToken,
}

const LOOK_EVERY: Duration = Duration::from_millis(300);
const ALIVE_FOR: Duration = Duration::from_secs(15);
const AT_ONCE: usize = 1_000;
/// How long a transport may be silent before what was read is taken for all there is.
const SILENCE: Duration = Duration::from_secs(5);
/// Events that are left for the end, when nothing may change the served build.
const FEW: u64 = 2_000;

#[derive(Debug, thiserror::Error)]
enum BuildError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("event {0} cannot be projected: {1}")]
    Event(String, Failure),
    #[error("build taken over or process stopping")]
    Lost,
    #[error("there is no snapshot yet")]
    NoSnapshot,
}

/// An event of history on its way into a build.
struct Past {
    kept: Kept,
    /// None where it cannot be read: then it is in the dead letters, and in no build.
    envelope: Option<Envelope>,
}

impl Builder {
    pub(crate) async fn run(self) -> Part {
        while !self.stop.is_cancelled() {
            if let Err(error) = self.look().await {
                warn!(projection = self.folds.name, %error, "cannot maintain the read model; retrying");
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = self.stop.cancelled() => {}
            }
        }
        Ok(Ended::Stopped)
    }

    async fn look(&self) -> Result<(), BuildError> {
        let (name, store) = (&self.folds.name, self.chapar.store());
        let mut tx = store.begin_read().await?;
        let length = tx.projections().tail_length(name).await?;
        tx.rollback().await?;
        if length as u64 >= self.folds.snapshot_every {
            let mut tx = store.begin_engine().await?;
            tx.projections().take_snapshot(name).await?;
            tx.commit().await?;
        }
        let now = Timestamp::now();
        let mut tx = store.begin_engine().await?;
        let wanted = tx.projections().take_up_build(name, &self.owner, now, alive(now)).await?;
        tx.commit().await?;
        let Some(wanted) = wanted else { return Ok(()) };
        info!(projection = name, wanted, "rebuild started");
        let began = Instant::now();
        let built = self.build(&wanted, began).await;
        if let Err(error) = built {
            if matches!(error, BuildError::Lost) {
                return Err(error);
            }
            let mut tx = store.begin_engine().await?;
            let outcome = format!("failed: {error}");
            tx.projections().finish_build(name, &self.owner, &outcome, micros(began), None).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    async fn build(&self, wanted: &str, began: Instant) -> Result<(), BuildError> {
        let (name, store) = (&self.folds.name, self.chapar.store());
        let mut tx = store.begin_engine().await?;
        let Some(served) = tx.projections().served_build(name).await? else { return Ok(()) };
        let build = served + 1;
        tx.projections().drop_build(name, build).await?;
        let total = tx.projections().applied_count(name).await?;
        // Where the inbox remembers nothing of the first day, it was tidied: what is older than its
        // memory was applied.
        let first = tx.consumers().first_seen(name).await?;
        let since = tx.inbox().remembers_since(name).await?;
        let since = since.filter(|since| {
            const DAY: i64 = 24 * 3600;
            first.is_some_and(|first| since.duration_since(first).as_secs() > DAY)
        });
        tx.commit().await?;
        let mut work =
            Work { build, done: 0, total, since, read_to: BTreeMap::new(), left: vec![] };
        if wanted == "tail" {
            return self.build_from_snapshot(work, served, began).await;
        }
        loop {
            let mut tx = store.begin_read().await?;
            let marks = tx.projections().marks(name).await?;
            tx.rollback().await?;
            if distance(&work.read_to, &marks) <= FEW && !work.read_to.is_empty() {
                break;
            }
            self.read_to(&mut work, &marks).await?;
            work.read_to = marks;
            if work.read_to.is_empty() {
                break;
            }
        }
        // From here nothing changes the served build; its consumers wait until this is done.
        let mut tx = store.begin_engine().await?;
        tx.projections().hold_build(name).await?;
        let marks = tx.projections().marks(name).await?;
        let mut last = std::mem::take(&mut work.left);
        last.extend(self.history(&work.read_to, &marks).await?);
        let held = self.held(&mut tx.conn(), &last).await?;
        last.retain(|past| held.contains(&past.fact()));
        self.fold(&mut tx.conn(), build, &last).await?;
        self.finish(tx, wanted, served, build, began).await
    }

    /// The snapshot, and what the served build has got since.
    async fn build_from_snapshot(
        &self,
        work: Work,
        served: i64,
        began: Instant,
    ) -> Result<(), BuildError> {
        let (name, store, build) = (&self.folds.name, self.chapar.store(), work.build);
        let mut tx = store.begin_engine().await?;
        tx.projections().hold_build(name).await?;
        let Some(marks) = tx.projections().snapshot_marks(name).await? else {
            return Err(BuildError::NoSnapshot);
        };
        tx.projections().copy_build(name, SNAPSHOT, build).await?;
        let tail = tx.projections().tail(name).await?;
        let mut from = marks;
        let mut to: BTreeMap<u32, u64> = BTreeMap::new();
        for mark in &tail {
            // An event that was released lies before the snapshot's mark.
            let first = from.entry(mark.partition).or_insert(mark.offset);
            *first = (*first).min(mark.offset.saturating_sub(1));
            let last = to.entry(mark.partition).or_default();
            *last = (*last).max(mark.offset);
        }
        let tail: HashSet<String> = tail.into_iter().map(|mark| mark.event_id).collect();
        let mut last = self.history(&from, &to).await?;
        last.retain(|past| tail.contains(&past.fact()));
        self.fold(&mut tx.conn(), build, &last).await?;
        self.finish(tx, "tail", served, build, began).await
    }

    async fn finish(
        &self,
        mut tx: chapar_sql::Tx,
        wanted: &str,
        served: i64,
        build: i64,
        began: Instant,
    ) -> Result<(), BuildError> {
        let name = &self.folds.name;
        let (outcome, differences) = match wanted {
            "game-day" => {
                let differences = tx.projections().differences(name, served, build).await?;
                tx.projections().drop_build(name, build).await?;
                ("compared", Some(differences))
            }
            _ => {
                tx.projections().serve_build(name, build).await?;
                tx.projections().drop_build(name, served).await?;
                ("rebuilt", None)
            }
        };
        tx.projections()
            .finish_build(name, &self.owner, outcome, micros(began), differences)
            .await?;
        tx.commit().await?;
        info!(projection = name, outcome, "rebuild finished");
        Ok(())
    }

    /// Reads on to where the served build is, in transactions of their own.
    async fn read_to(&self, work: &mut Work, marks: &BTreeMap<u32, u64>) -> Result<(), BuildError> {
        let store = self.chapar.store();
        let from = ReadFrom::Behind(work.read_to.clone());
        let mut reader = self.transport.read(&self.folds.topics(), from).await?;
        let mut reached = work.read_to.clone();
        while !reader.is_caught_up() && distance(&reached, marks) > 0 {
            let kept = reader.read(AT_ONCE, SILENCE).await?;
            if kept.is_empty() {
                break;
            }
            for kept in &kept {
                let at = kept.delivery.token.position;
                reached.insert(at.partition, at.offset);
            }
            let past = self.up_to(kept, marks).await?;
            let mut tx = store.begin_engine().await?;
            let held = self.held(&mut tx.conn(), &past).await?;
            let (mut now, later): (Vec<Past>, Vec<Past>) =
                past.into_iter().partition(|past| held.contains(&past.fact()));
            let ids: Vec<String> = later.iter().map(Past::fact).collect();
            let held = tx.story().held_events(ids).await?;
            for past in later {
                let id = past.fact();
                let is_held =
                    held.iter().any(|b| b.consumer == self.folds.name && b.event_id == id);
                let forgotten =
                    work.since.is_some_and(|since| past.kept.delivery.published_at < since);
                match forgotten && !is_held {
                    true => now.push(past),
                    false => work.left.push(past),
                }
            }
            now.sort_by_key(|past| past.kept.delivery.token.position);
            self.fold(&mut tx.conn(), work.build, &now).await?;
            work.done += now.len() as i64;
            let (owner, until) = (&self.owner, alive(Timestamp::now()));
            let total = work.total.max(work.done);
            let ours = tx
                .projections()
                .build_progress(&self.folds.name, owner, work.done, total, until)
                .await?;
            if !ours || self.stop.is_cancelled() {
                return Err(BuildError::Lost);
            }
            tx.commit().await?;
        }
        Ok(())
    }

    /// Everything between two places.
    async fn history(
        &self,
        from: &BTreeMap<u32, u64>,
        to: &BTreeMap<u32, u64>,
    ) -> Result<Vec<Past>, BuildError> {
        let mut all = Vec::new();
        if distance(from, to) == 0 {
            return Ok(all);
        }
        let behind = ReadFrom::Behind(from.clone());
        let mut reader = self.transport.read(&self.folds.topics(), behind).await?;
        while !reader.is_caught_up() {
            let kept = reader.read(AT_ONCE, SILENCE).await?;
            if kept.is_empty() {
                break;
            }
            all.extend(self.up_to(kept, to).await?);
        }
        Ok(all)
    }

    async fn up_to(
        &self,
        kept: Vec<Kept>,
        to: &BTreeMap<u32, u64>,
    ) -> Result<Vec<Past>, BuildError> {
        let within = |kept: &Kept| {
            let at = kept.delivery.token.position;
            to.get(&at.partition).is_some_and(|last| at.offset <= *last)
        };
        // What an operator edited was applied in its edited form, and the topic has the original.
        let mut tx = self.chapar.store().begin_read().await?;
        let edited = tx.letters().applied_edits(&self.folds.name).await?;
        tx.rollback().await?;
        let past = |kept: Kept| {
            let (id, at) = (&kept.id, kept.delivery.token.position);
            let edit = edited.iter().find(|edit| {
                edit.event_id == *id || (edit.partition, edit.offset) == (at.partition, at.offset)
            });
            let (headers, body) = match edit {
                Some(edit) => (edit.headers.clone(), edit.body.clone()),
                None => (kept.delivery.headers.clone(), kept.delivery.body.clone()),
            };
            let message = Message { topic: Some(kept.delivery.topic.clone()), headers, body };
            let envelope = self.chapar.dialect().decode(&message).ok();
            Past { kept, envelope }
        };
        Ok(kept.into_iter().filter(within).map(past).collect())
    }

    /// Which of these events the served build holds.
    async fn held(
        &self,
        conn: &mut Conn<'_>,
        past: &[Past],
    ) -> Result<HashSet<String>, BuildError> {
        let ids: Vec<String> = past.iter().map(Past::fact).collect();
        Ok(conn.projections().projected_among(&self.folds.name, ids).await?.into_iter().collect())
    }

    async fn fold(&self, conn: &mut Conn<'_>, build: i64, past: &[Past]) -> Result<(), BuildError> {
        let mut keys = Vec::new();
        let cannot = |past: &Past| {
            let id = past.kept.id.clone();
            move |failure| BuildError::Event(id, failure)
        };
        for past in past {
            let Some(envelope) = &past.envelope else { continue };
            let topic = &past.kept.delivery.topic;
            keys.extend(self.folds.keys(topic, envelope).map_err(cannot(past))?);
        }
        keys.sort();
        keys.dedup();
        if keys.is_empty() {
            return Ok(());
        }
        let mut documents = HashMap::new();
        for doc in conn.projections().docs(&self.folds.name, build, keys).await? {
            documents.insert((doc.tenant, doc.key), doc.doc);
        }
        for past in past {
            let Some(envelope) = &past.envelope else { continue };
            let topic = &past.kept.delivery.topic;
            self.folds.apply(topic, envelope, &mut documents).map_err(cannot(past))?;
        }
        let docs = documents.into_iter().map(|((tenant, key), doc)| Doc { tenant, key, doc });
        conn.projections().put_docs(&self.folds.name, build, docs.collect()).await?;
        Ok(())
    }
}

struct Work {
    build: i64,
    done: i64,
    total: i64,
    /// Since when the inbox remembers, if it has forgotten anything.
    since: Option<Timestamp>,
    read_to: BTreeMap<u32, u64>,
    /// What the served build did not hold when it was looked at, and may by now.
    left: Vec<Past>,
}

impl Past {
    fn fact(&self) -> String {
        self.envelope.as_ref().map_or_else(|| self.kept.id.clone(), fact)
    }
}

/// How many messages lie between two places, at most.
fn distance(from: &BTreeMap<u32, u64>, to: &BTreeMap<u32, u64>) -> u64 {
    let gap = |(partition, last): (&u32, &u64)| {
        last.saturating_sub(from.get(partition).copied().unwrap_or(0))
    };
    to.iter().map(gap).sum()
}

fn alive(now: Timestamp) -> Timestamp {
    now.saturating_add(ALIVE_FOR).unwrap_or(Timestamp::MAX)
}

fn micros(began: Instant) -> i64 {
    i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX)
}
