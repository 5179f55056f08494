//! Replays: asked for here, carried out by the consumers.

use chapar_core::machine::failure::FailureClass;
use chapar_sql::{Keep, LetterCursor, LetterFilter, ReplayRun, Tables};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;

use super::letters::{AT_ONCE, Letters, shaped, target};
use super::{DeadLetter, Operator, TriageError, audit};

/// What a replay would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Outlook {
    /// Letters that the filter means.
    pub selected: i64,
    /// Those that would be delivered again.
    pub replayed: i64,
    /// Those that are asked for already.
    pub asked: i64,
    /// Those that are poison.
    pub poison: i64,
    /// Those whose class asks for a fix that is not recorded.
    pub unfixed: i64,
    /// Those that are older than what the inbox remembers.
    pub forgotten: i64,
    /// Events that wait behind them.
    pub followers: i64,
}

/// How far a replay is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Letters that were asked for.
    pub asked: i64,
    /// Letters that were passed over, because of their class or age.
    pub refused: i64,
    /// Letters that wait for their consumer.
    pub waiting: i64,
    /// Letters whose events have been applied.
    pub applied: i64,
    /// Letters that failed again and are open again.
    pub failed: i64,
}

impl Letters {
    /// What a replay would do now.
    pub async fn outlook(
        &self,
        filter: &LetterFilter,
        reapply: bool,
    ) -> Result<Outlook, TriageError> {
        let mut outlook = Outlook::default();
        let since = remembered_since(Timestamp::now());
        for count in self.counts(filter, since).await? {
            let class = count.class.as_deref().and_then(FailureClass::named);
            let bin = match class {
                _ if count.status != "open" => &mut outlook.asked,
                Some(FailureClass::Poison) => &mut outlook.poison,
                Some(class) if class.needs_fix() && !count.fixed => &mut outlook.unfixed,
                _ if !count.remembered && !reapply => &mut outlook.forgotten,
                _ => &mut outlook.replayed,
            };
            *bin += count.letters;
            outlook.selected += count.letters;
        }
        let mut tx = self.store.begin_read().await?;
        outlook.followers = tx.letters().count_followers(&shaped(filter)).await?;
        tx.rollback().await?;
        Ok(outlook)
    }

    /// Checks whether a letter may be replayed.
    pub async fn may_retry(&self, id: &str) -> Result<(), TriageError> {
        let letter = self.get(id).await?;
        match refusal(&letter, Some(remembered_since(Timestamp::now()))) {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }

    /// Asks for one letter to be delivered again, or says why not.
    pub async fn retry(&self, id: &str, by: Operator<'_>) -> Result<(), TriageError> {
        let mut tx = self.store.begin_engine().await?;
        let since = remembered_since(Timestamp::now());
        let asked = tx.letters().ask_for_replay(vec![id.to_owned()], None, Some(since)).await?;
        if asked == 0 {
            let letter = tx.letters().get(id).await?;
            return Err(match letter {
                Some(letter) => refusal(&letter, Some(since)).unwrap_or_else(|| changed(id)),
                None => TriageError::NoLetter(id.to_owned()),
            });
        }
        let detail = json!({ "before": { "open": 1 }, "after": { "replay": 1 } });
        audit(&mut tx.conn(), by, "dead_letter.retry", id, &detail).await?;
        tx.commit().await?;
        self.store.nudge();
        Ok(())
    }

    /// Begins a replay of all letters that a filter means now; what fails again meanwhile is not
    /// taken up a second time. [`Letters::ask`] asks for them.
    pub async fn begin_replay(
        &self,
        id: impl Into<String>,
        filter: &LetterFilter,
        reapply: bool,
        by: Operator<'_>,
    ) -> Result<ReplayRun, TriageError> {
        let started_at = Timestamp::now();
        let filter = shaped(filter);
        let until = filter.until.map_or(started_at, |until| until.min(started_at));
        let run = ReplayRun {
            id: id.into(),
            actor: by.name.to_owned(),
            reason: by.reason.to_owned(),
            filter: LetterFilter { until: Some(until), ..filter },
            reapply,
            started_at,
            cursor: LetterCursor::default(),
            asked: 0,
            refused: 0,
            finished_at: None,
        };
        let mut tx = self.store.begin_engine().await?;
        let counts = tx.letters().count(&run.filter, Timestamp::UNIX_EPOCH).await?;
        let selected: i64 = counts.iter().map(|count| count.letters).sum();
        if let ([id], 0) = (run.filter.ids.as_slice(), selected) {
            return Err(match tx.letters().get(id).await? {
                Some(letter) => refusal(&letter, None).unwrap_or_else(|| changed(id)),
                None => TriageError::NoLetter(id.clone()),
            });
        }
        tx.letters().begin_run(&run).await?;
        let detail = json!({ "run": run.id, "filter": run.filter, "reapply": reapply,
                             "before": { "selected": selected } });
        audit(&mut tx.conn(), by, "dead_letter.replay", &target(&run.filter), &detail).await?;
        tx.commit().await?;
        Ok(run)
    }

    /// Asks for the next letters of a replay, at most `most`; says whether there may be more. The
    /// asking and the place in the run are one transaction, so that a run resumed after a stop,
    /// or after a crash, leaves none out and takes none twice.
    pub async fn ask(&self, run: &str, most: usize) -> Result<(ReplayRun, bool), TriageError> {
        let mut tx = self.store.begin_engine().await?;
        let found = tx.letters().run_of(run).await?;
        let mut run = found.ok_or_else(|| TriageError::NoRun(run.to_owned()))?;
        if run.finished_at.is_some() {
            return Ok((run, false));
        }
        let groups = tx.letters().groups_of(&run.filter).await?;
        let most = most.clamp(1, AT_ONCE);
        let ids = tx.letters().next(&run.filter, &groups, &mut run.cursor, most).await?;
        let (taken, now) = (ids.len(), Timestamp::now());
        if taken > 0 {
            let since = Some(remembered_since(now)).filter(|_| !run.reapply);
            let asked = tx.letters().ask_for_replay(ids, Some(&run.id), since).await? as i64;
            run.asked += asked;
            run.refused += taken as i64 - asked;
        } else if !self.has_more_ids(&run) {
            run.finished_at = Some(now);
            let detail = json!({ "run": run.id,
                                 "after": { "asked": run.asked, "refused": run.refused } });
            let by = Operator { name: &run.actor, reason: &run.reason };
            let target = target(&run.filter);
            audit(&mut tx.conn(), by, "dead_letter.replay.asked", &target, &detail).await?;
        }
        tx.letters().move_run(&run).await?;
        tx.commit().await?;
        self.store.nudge();
        let more = run.finished_at.is_none();
        Ok((run, more))
    }

    /// Named letters are taken in slices, of which one may hold only closed ones.
    fn has_more_ids(&self, run: &ReplayRun) -> bool {
        run.filter.ids.iter().any(|id| *id > run.cursor.id)
    }

    /// How far a replay is.
    pub async fn progress(&self, run: &str) -> Result<Progress, TriageError> {
        let mut tx = self.store.begin_read().await?;
        // On SQLite a read takes no lock; on PostgreSQL the row's is held for a moment.
        let found = tx.letters().run_of(run).await?;
        let (waiting, applied, failed) = tx.letters().run_outcome(run).await?;
        tx.rollback().await?;
        let ReplayRun { asked, refused, .. } =
            found.ok_or_else(|| TriageError::NoRun(run.to_owned()))?;
        Ok(Progress { asked, refused, waiting, applied, failed })
    }
}

/// Since when the inbox has every event, by the default inbox retention.
pub(super) fn remembered_since(now: Timestamp) -> Timestamp {
    now.saturating_sub(Keep::default().inbox).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Why a letter is not replayed, if it is not.
pub(super) fn refusal(letter: &DeadLetter, since: Option<Timestamp>) -> Option<TriageError> {
    let id = letter.id.clone();
    match letter.class.as_deref().and_then(FailureClass::named) {
        _ if letter.status != "open" => {
            Some(TriageError::NotOpen { id, found: letter.status.clone() })
        }
        Some(FailureClass::Poison) => Some(TriageError::Poison(id)),
        Some(class) if class.needs_fix() && letter.fix.is_none() => {
            Some(TriageError::Unfixed { id, class })
        }
        _ if since.is_some_and(|since| letter.first_failed_at < since) => {
            Some(TriageError::Forgotten(id))
        }
        _ => None,
    }
}

pub(super) fn changed(id: &str) -> TriageError {
    TriageError::NotOpen { id: id.to_owned(), found: "no longer as it was".to_owned() }
}
