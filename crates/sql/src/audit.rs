use jiff::Timestamp;

use crate::error::StoreError;
use crate::statement::Statement;
use crate::store::Backend;
use crate::tables::AuditLog;

/// An operator's action, and its reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditEntry<'a> {
    /// The actor.
    pub actor: &'a str,
    /// The action, such as `dead_letter.retry`.
    pub action: &'a str,
    /// The object of the action.
    pub target: &'a str,
    /// The actor's reason; empty if none was required.
    pub reason: &'a str,
    /// Details, as JSON.
    pub detail: &'a str,
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the table")]
pub struct AuditLine {
    pub id: i64,
    pub at: Timestamp,
    pub actor: String,
    pub action: String,
    pub target: String,
    pub reason: String,
    /// Details, as JSON.
    pub detail: String,
}

/// A filter on the audit log. An unset field matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// The actor.
    pub actor: Option<String>,
    /// The action; `dead_letter` matches all of `dead_letter.…`.
    pub action: Option<String>,
    /// The object of the action.
    pub target: Option<String>,
    /// At or after this time.
    pub since: Option<Timestamp>,
    /// Before this time.
    pub until: Option<Timestamp>,
    /// Only entries older than this one, for the next page.
    pub before: Option<i64>,
}

impl AuditLog<'_> {
    /// The newest entries of the audit log.
    pub async fn lines(
        &mut self,
        filter: &AuditFilter,
        limit: i64,
    ) -> Result<Vec<AuditLine>, StoreError> {
        static LINES: Statement = Statement::new(
            "select id, at, actor, action, target, reason, detail from chapar.audit_log \
             where id < $1 and at >= $2 and at < $3 and ($4::text is null or actor = $4) \
             and ($5::text is null or action = $5 or substr(action, 1, length($5) + 1) = $5 || '.') \
             and ($6::text is null or target = $6) order by id desc limit $7",
        );
        let text = |value: &Option<String>| value.clone().into();
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
        self.0.query(&LINES, args).await?.iter().map(line).collect()
    }

    /// Adds an entry to the audit log, which cannot be changed afterwards. Call it in the
    /// transaction of the action itself, so that both commit or neither does.
    pub async fn record(&mut self, entry: &AuditEntry<'_>) -> Result<(), StoreError> {
        const POSTGRES: &str =
            "select chapar.record_audit($1::text, $2::text, $3::text, $4::text, $5::text)";
        static SQLITE: Statement = Statement::new(
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
        match self.0.backend() {
            Backend::Postgres => self.0.execute(POSTGRES, args).await?,
            Backend::Sqlite => self.0.run(&SQLITE, args).await?,
        };
        Ok(())
    }
}
