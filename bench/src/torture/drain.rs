//! Waiting until everything has arrived, and judging it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use chapar_testkit::history::{Fate, Judgement};
use tokio_util::sync::CancellationToken;

use super::crew::Crew;
use super::operators::Acts;
use super::plan::Options;
use super::reader::{self, Known, LogReader};
use super::site::Site;

/// How long everything may take to arrive after the last fault.
const DRAIN: Duration = Duration::from_secs(120);
/// The same where the first violation ends the run: longer than a consumer waits for a missing event.
const DRAIN_OF_A_MUTANT: Duration = Duration::from_secs(45);
/// Nothing has moved for so long: it is worth judging.
const STILL: Duration = Duration::from_millis(900);

pub(super) struct Judged {
    pub(super) judgement: Judgement,
    /// What is broken, whatever may still arrive.
    pub(super) so_far: Judgement,
    pub(super) habits: BTreeMap<String, u64>,
    pub(super) unknown: usize,
    pub(super) unknown_committed: usize,
    pub(super) parked: usize,
}

/// Ends at the first violation that cannot be repaired by time.
pub(super) async fn watch(
    site: &Site,
    log: &LogReader,
    acts: &Acts,
    say: &(dyn Fn(&str) + Sync),
) -> Result<()> {
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        // The database may be down on purpose.
        let Ok(mut connection) = site.connect().await else { continue };
        let Ok(known) = reader::known(site, log, acts, &mut connection).await else { continue };
        let promoted = site.promoted.load(Ordering::Relaxed);
        let mut history = known.history;
        // A write that is not there is only known to be forgotten once its writer has ended.
        history.writes = known.diaries.resolved(&known.committed, promoted);
        for (write, said) in history.writes.iter_mut().zip(known.diaries.writes()) {
            if write.fate != Fate::Forgotten {
                write.fate = said.fate;
            }
        }
        if let Some(example) = history.judge_so_far().examples.first() {
            say(&format!("caught: {example}"));
            return Ok(());
        }
    }
}

/// Waits until everything has arrived, and checks it; also if it has not by the deadline.
pub(super) async fn drain(
    site: &Site,
    crew: &Crew,
    log: &LogReader,
    acts: &Acts,
    options: &Options,
    stop: &CancellationToken,
) -> Result<(Judged, Option<f64>)> {
    let began = Instant::now();
    let patience = if options.until_violation { DRAIN_OF_A_MUTANT } else { DRAIN };
    let (mut last, mut moved_at) = (-1, Instant::now());
    loop {
        crew.tend()?;
        let progress = reader::progress(&mut site.connect().await?).await?;
        if progress != last {
            (last, moved_at) = (progress, Instant::now());
        }
        let late = stop.is_cancelled() || began.elapsed() > patience;
        if moved_at.elapsed() < STILL && !late {
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        }
        let judging = Instant::now();
        let mut judged = judge(site, log, acts).await?;
        if judged.judgement.lost == 0 || late {
            let arrived = judged.judgement.lost == 0;
            return Ok((judged, arrived.then_some((moved_at - began).as_secs_f64())));
        }
        // Whether an overtaken event is lost or only late shows within moments.
        let told = judged.so_far.lost == 0 || began.elapsed() > Duration::from_secs(3);
        if options.until_violation && !judged.so_far.holds() && told {
            // Events still in flight do not count as lost.
            judged.judgement = judged.so_far.clone();
            return Ok((judged, None));
        }
        tokio::time::sleep(judging.elapsed().max(Duration::from_millis(500))).await;
    }
}

/// Checks the history as it is now. The writers have ended, so the database knows the outcome of every write.
async fn judge(site: &Site, log: &LogReader, acts: &Acts) -> Result<Judged> {
    let mut connection = site.connect().await?;
    let known = reader::known(site, log, acts, &mut connection).await?;
    let Known { mut history, diaries, committed } = known;
    let unknown = history.writes.iter().filter(|write| write.fate == Fate::Unknown).count();
    let said = history.writes.iter().filter(|write| write.fate == Fate::Committed).count();
    history.writes = diaries.resolved(&committed, site.promoted.load(Ordering::Relaxed));
    let resolved = history.writes.iter().filter(|write| write.fate == Fate::Committed).count();
    let forgotten = history.writes.iter().filter(|write| write.fate == Fate::Forgotten).count();
    let so_far = history.judge_so_far();
    let mut judgement = history.judge();
    judgement.acknowledged = said;
    Ok(Judged {
        so_far,
        habits: diaries.habits,
        unknown,
        unknown_committed: (resolved + forgotten).saturating_sub(said).min(unknown),
        parked: history.held.values().map(BTreeSet::len).sum(),
        judgement,
    })
}
