//! The one way in which user code runs: events, timers, outcomes of effects and commands alike.
//!
//! User code gets a context over an open transaction. It is stopped when it takes too long, a
//! panic is a failure like any other, and what it emitted is written before its transaction goes
//! on or commits.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use chapar_core::Cause;
use chapar_core::machine::failure::FailureKind;
use chapar_core::port::BoxFuture;
use chapar_sql::Tx;
use futures_util::FutureExt;

use crate::chapar::Chapar;
use crate::cx::{Cx, States};
use crate::failure::Failure;

/// What user code of one service runs with.
#[derive(Clone)]
pub(crate) struct Execution {
    pub(crate) chapar: Chapar,
    pub(crate) states: Arc<States>,
    pub(crate) timeout: Duration,
}

/// User code over a context, for one call.
pub(crate) trait Call<'a>: FnOnce(&'a mut Cx) -> BoxFuture<'a, Result<(), Failure>> {}

impl<'a, F: FnOnce(&'a mut Cx) -> BoxFuture<'a, Result<(), Failure>>> Call<'a> for F {}

impl Execution {
    /// A context over a transaction. `origin` says what runs in it: a consumer, a timer, an effect
    /// or a command.
    pub(crate) fn context(&self, tx: Tx, cause: Cause, origin: impl Into<String>) -> Cx {
        Cx::new(tx, self.chapar.clone(), cause, self.states.clone(), origin)
    }

    /// Runs one call in an open transaction and hands the transaction back, to go on or to commit.
    ///
    /// After a failure the transaction is gone, and with it all that was done in it.
    pub(crate) async fn run(
        &self,
        tx: Tx,
        cause: Cause,
        origin: impl Into<String>,
        call: impl for<'a> Call<'a>,
    ) -> Result<Tx, Failure> {
        let mut cx = self.context(tx, cause, origin);
        self.call(&mut cx, call).await?;
        cx.flush().await?;
        Ok(cx.into_tx())
    }

    /// Runs one call on a context that goes on being used.
    pub(crate) async fn call<'a>(
        &self,
        cx: &'a mut Cx,
        call: impl Call<'a>,
    ) -> Result<(), Failure> {
        guarded(self.timeout, async move { call(cx).await }).await
    }
}

/// Awaits user code: a panic, also one before its first await, and a time-out are failures.
pub(crate) async fn guarded<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    // After a panic the transaction is rolled back and the context dropped, so that no state is
    // seen half changed.
    match tokio::time::timeout(limit, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => Err(Failure::retry(format!("panicked: {}", said(&*panic)))),
        Err(_) => Err(Failure::new(FailureKind::Timeout, format!("took longer than {limit:?}"))),
    }
}

/// The message of a panic.
pub(crate) fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
