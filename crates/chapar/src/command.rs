use std::sync::Arc;
use std::time::Duration;

use chapar_core::{Actor, Cause, Id, Tenant, TraceContext};

use crate::chapar::Chapar;
use crate::cx::Cx;
use crate::execution::{Execution, guarded};
use crate::failure::Failure;

/// A command: work in one transaction that a request or a person sets off.
///
/// It runs as a handler does, with a [`Cx`]: what it writes, emits, starts and asks for commits
/// together, or not at all.
#[derive(Debug, Clone)]
#[must_use = "a command does nothing until it is run"]
pub struct Command {
    chapar: Chapar,
    cause: Cause,
    timeout: Duration,
}

impl Command {
    pub(crate) fn new(chapar: Chapar, tenant: &Tenant) -> Self {
        let correlation = chapar.new_correlation();
        let tenant = tenant.clone();
        let cause = Cause { tenant, correlation, causation: None, actor: None, trace: None };
        Command { chapar, cause, timeout: Duration::from_secs(30) }
    }

    /// Names who set it off.
    pub fn by(mut self, actor: Actor) -> Self {
        self.cause.actor = Some(actor);
        self
    }

    /// Belongs to the correlation that a request brought along. Default: a new one.
    pub fn correlated(mut self, correlation: Id) -> Self {
        self.cause.correlation = correlation;
        self
    }

    /// Goes on with a trace.
    pub fn trace(mut self, trace: TraceContext) -> Self {
        self.cause.trace = Some(trace);
        self
    }

    /// How long it may take. Default 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Runs it in a transaction of its own and commits. After a failure nothing is left of it.
    pub async fn run<T, F>(self, work: F) -> Result<T, Failure>
    where
        F: AsyncFnOnce(&mut Cx) -> Result<T, Failure>,
    {
        let Command { chapar, cause, timeout } = self;
        let tx = chapar.begin(&cause.tenant).await?;
        let execution = Execution { chapar: chapar.clone(), states: Arc::default(), timeout };
        let mut cx = execution.context(tx, cause, "command");
        let done = guarded(timeout, work(&mut cx)).await?;
        cx.flush().await?;
        chapar.commit(cx.into_tx()).await?;
        Ok(done)
    }
}
