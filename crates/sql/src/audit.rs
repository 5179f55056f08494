use jiff::Timestamp;

use crate::conn::Conn;
use crate::error::StoreError;
use crate::statement::Statement;

/// What somebody did to the system, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditEntry<'a> {
    /// Who did it.
    pub actor: &'a str,
    /// What was done, such as `dead_letter.retry`.
    pub action: &'a str,
    /// What it was done to.
    pub target: &'a str,
    /// Why, in the actor's words; empty if nobody asked.
    pub reason: &'a str,
    /// More about it as JSON.
    pub detail: &'a str,
}

/// A line of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct AuditLine {
    pub id: i64,
    pub at: Timestamp,
    pub actor: String,
    pub action: String,
    pub target: String,
    pub reason: String,
    /// More about it as JSON.
    pub detail: String,
}

/// Which lines of the audit log are meant. What is not set lets everything pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Who did it.
    pub actor: Option<String>,
    /// What was done; `dead_letter` stands for all of `dead_letter.…`.
    pub action: Option<String>,
    /// What it was done to.
    pub target: Option<String>,
    /// Not before.
    pub since: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
    /// Only lines older than this one, for the next page.
    pub before: Option<i64>,
}

impl Conn<'_> {
    /// The newest lines of the audit log.
    pub async fn audit_lines(
        &mut self,
        filter: &AuditFilter,
        limit: i64,
    ) -> Result<Vec<AuditLine>, StoreError> {
        static LINES: Statement = Statement::new(
            "select id, at, actor, action, target, reason, detail from chapar.audit_log \
             where id < $1 and at >= $2 and at < $3 and ($4 = '' or actor = $4) \
             and ($5 = '' or action = $5 or substr(action, 1, length($5) + 1) = $5 || '.') \
             and ($6 = '' or target = $6) order by id desc limit $7",
        );
        let text = |value: &Option<String>| value.as_deref().unwrap_or("").into();
        let args = vec![
            filter.before.unwrap_or(i64::MAX).into(),
            filter.since.unwrap_or(Timestamp::UNIX_EPOCH).into(),
            filter.until.unwrap_or(Timestamp::MAX).into(),
            text(&filter.actor),
            text(&filter.action),
            text(&filter.target),
            limit.into(),
        ];
        let line = |row: &crate::Row| {
            Ok(AuditLine {
                id: row.get(0)?,
                at: row.get(1)?,
                actor: row.get(2)?,
                action: row.get(3)?,
                target: row.get(4)?,
                reason: row.get(5)?,
                detail: row.get(6)?,
            })
        };
        self.query(&LINES, args).await?.iter().map(line).collect()
    }

    /// Adds a line to the audit log, which nobody can change afterwards. Do it in the
    /// transaction of the action itself: neither is there without the other.
    pub async fn audit(&mut self, entry: &AuditEntry<'_>) -> Result<(), StoreError> {
        static ADD: Statement = Statement::new(
            "insert into chapar.audit_log (at, actor, action, target, reason, detail) \
             values (clock_timestamp(), $1, $2, $3, $4, $5)",
        );
        let args = vec![
            entry.actor.into(),
            entry.action.into(),
            entry.target.into(),
            entry.reason.into(),
            entry.detail.into(),
        ];
        self.run(&ADD, args).await?;
        Ok(())
    }
}
