//! Replay runs: replays of many letters, which can be stopped and resumed.

use jiff::Timestamp;

use super::{LetterCursor, LetterFilter};
use crate::error::StoreError;
use crate::statement::Statement;
use crate::tables::Letters;
use crate::value::Row;

/// A replay of all letters that matched a filter when it began.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct ReplayRun {
    pub id: String,
    pub actor: String,
    pub reason: String,
    pub filter: LetterFilter,
    /// Whether letters older than the inbox's retention are included.
    pub reapply: bool,
    pub started_at: Timestamp,
    pub cursor: LetterCursor,
    /// How many replays it has requested.
    pub asked: i64,
    /// How many letters it skipped, because of their class or age, or because a replay was already
    /// requested.
    pub refused: i64,
    pub finished_at: Option<Timestamp>,
}

impl Letters<'_> {
    /// Stores a new run.
    pub async fn begin_run(&mut self, run: &ReplayRun) -> Result<(), StoreError> {
        static BEGIN: Statement = Statement::new(
            "insert into chapar.replay_runs (id, actor, reason, selection, reapply, started_at, \
             cursor_group, cursor_at, cursor_id) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        );
        let selection = serde_json::to_string(&run.filter)
            .map_err(|_| StoreError::Cell { column: 3, expected: "a filter" })?;
        let args = vec![
            (&run.id).into(),
            (&run.actor).into(),
            (&run.reason).into(),
            selection.into(),
            run.reapply.into(),
            run.started_at.into(),
            (&run.cursor.group).into(),
            run.cursor.at.into(),
            (&run.cursor.id).into(),
        ];
        self.0.run(&BEGIN, args).await?;
        Ok(())
    }

    /// A run, locked until the end of the transaction, so that two processes that resume it take
    /// turns.
    pub async fn run_of(&mut self, id: &str) -> Result<Option<ReplayRun>, StoreError> {
        static ONE: Statement = Statement::new(
            "select id, actor, reason, selection, reapply, started_at, cursor_group, cursor_at, \
             cursor_id, asked, refused, finished_at from chapar.replay_runs where id = $1 for update",
        );
        self.0.query(&ONE, vec![id.into()]).await?.first().map(run).transpose()
    }

    /// Stores the progress of a run.
    pub async fn move_run(&mut self, run: &ReplayRun) -> Result<(), StoreError> {
        static MOVE: Statement = Statement::new(
            "update chapar.replay_runs set cursor_group = $2, cursor_at = $3, cursor_id = $4, \
             asked = $5, refused = $6, finished_at = $7 where id = $1",
        );
        let args = vec![
            (&run.id).into(),
            (&run.cursor.group).into(),
            run.cursor.at.into(),
            (&run.cursor.id).into(),
            run.asked.into(),
            run.refused.into(),
            run.finished_at.into(),
        ];
        self.0.run(&MOVE, args).await?;
        Ok(())
    }

    /// Of the letters of a run, how many wait for their consumer, how many were applied, and how
    /// many are open again.
    pub async fn run_outcome(&mut self, id: &str) -> Result<(i64, i64, i64), StoreError> {
        static OUTCOME: Statement = Statement::new(
            "select count(*) filter (where status = 'replay'), \
             count(*) filter (where status = 'closed'), count(*) filter (where status = 'open') \
             from chapar.dead_letters where run = $1",
        );
        let rows = self.0.query(&OUTCOME, vec![id.into()]).await?;
        rows.first().map_or(Ok((0, 0, 0)), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
    }
}

fn run(row: &Row) -> Result<ReplayRun, StoreError> {
    let selection: String = row.get(3)?;
    Ok(ReplayRun {
        id: row.get(0)?,
        actor: row.get(1)?,
        reason: row.get(2)?,
        filter: serde_json::from_str(&selection)
            .map_err(|_| StoreError::Cell { column: 3, expected: "a filter" })?,
        reapply: row.get(4)?,
        started_at: row.get(5)?,
        cursor: LetterCursor { group: row.get(6)?, at: row.get(7)?, id: row.get(8)? },
        asked: row.get(9)?,
        refused: row.get(10)?,
        finished_at: row.get(11)?,
    })
}
