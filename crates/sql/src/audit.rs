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

impl Conn<'_> {
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
