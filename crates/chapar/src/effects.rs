//! Effects: calls to vendors, made after the transaction that asked for them.

mod worker;

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use chapar_core::Tenant;
use chapar_core::machine::retry::RetryPolicy;
use chapar_core::port::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::consumer::HandlerFn;
use crate::cx::Cx;
use crate::failure::{Failure, Handled};

pub(crate) use worker::EffectWorker;

/// A request to a vendor, with the answer it gets. `#[derive(Effect)]` implements it:
///
/// ```
/// use chapar::prelude::*;
///
/// #[derive(Effect, Serialize, Deserialize)]
/// #[effect("card.charge", key = "{order}:charge", answer = Receipt)]
/// struct Charge { order: String, cents: i64 }
///
/// #[derive(Serialize, Deserialize)]
/// struct Receipt { reference: String }
///
/// async fn charge(charge: Charge, attempt: Attempt) -> Result<Receipt, Failure> {
///     if charge.cents > 100_000 {
///         return Err(Failure::terminal("above the limit of the card"));
///     }
///     Ok(Receipt { reference: attempt.idempotency_key })
/// }
///
/// async fn charged(outcome: EffectOutcome<Charge>, cx: &mut Cx) -> Handled {
///     let paid = outcome.result.is_ok();
///     const SET: &str = "update orders set paid = $1 where tenant = :tenant and id = $2";
///     cx.execute(SET, params![paid, outcome.request.order]).await?;
///     applied()
/// }
///
/// let billing = Service::new("billing").effect(EffectTask::new(charge).then(charged));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a request to a vendor",
    note = "add `#[derive(Effect, Serialize, Deserialize)]` and `#[effect(\"kind\", key = \"…\")]` to `{Self}`"
)]
pub trait Effect: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What kind of call, such as `card.charge`.
    const KIND: &'static str;
    /// What the vendor answers.
    type Answer: Serialize + DeserializeOwned + Send + 'static;

    /// The same for every attempt of the same intent; the vendor recognises a repeated call by it.
    fn idempotency_key(&self) -> String;
}

/// Which attempt of a call this is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    /// Send it along: an earlier attempt may have reached the vendor, and only its answer was lost.
    pub idempotency_key: String,
    /// On whose behalf the call is made.
    pub tenant: Tenant,
}

/// How a call to a vendor ended.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectOutcome<C: Effect> {
    /// What was asked for.
    pub request: C,
    /// The answer, or why there will be none.
    pub result: Result<C::Answer, String>,
}

/// A kind of call to a vendor: how to make it, how often to try, and what its outcome changes.
pub struct EffectTask<C: Effect> {
    task: Task,
    request: PhantomData<fn() -> C>,
}

/// A call that a handler asks for, as the store keeps it.
pub(crate) struct NewCall {
    pub(crate) kind: &'static str,
    pub(crate) idempotency_key: String,
    pub(crate) request: String,
}

impl NewCall {
    pub(crate) fn of<C: Effect>(request: &C) -> Result<Self, serde_json::Error> {
        Ok(NewCall {
            kind: C::KIND,
            idempotency_key: request.idempotency_key(),
            request: serde_json::to_string(request)?,
        })
    }
}

/// A kind of call without its types.
pub(crate) struct Task {
    pub(crate) kind: &'static str,
    /// The service that makes the calls; its consumers' events are its own.
    pub(crate) service: String,
    call: Arc<CallFn>,
    complete: Option<Arc<CompleteFn>>,
    /// A step of a saga completes it, which begins in the engine's role.
    by_saga: bool,
    retry: RetryPolicy,
    timeout: Duration,
}

/// A call that has ended, as the store keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Answered {
    request: String,
    result: Result<String, String>,
}

type CallFn = dyn Fn(String, Attempt) -> BoxFuture<'static, Result<String, Failure>> + Send + Sync;
type CompleteFn = dyn for<'a> Fn(Answered, &'a mut Cx) -> BoxFuture<'a, Handled> + Send + Sync;
pub(crate) type OutcomeFn<C> =
    dyn for<'a> Fn(EffectOutcome<C>, &'a mut Cx) -> BoxFuture<'a, Handled> + Send + Sync;

impl<C: Effect> EffectTask<C> {
    /// Calls of one kind, made by an async function outside of any transaction.
    ///
    /// [`Failure::retry`] has it called again, with the same idempotency key;
    /// [`Failure::terminal`] ends it. It may be called again although an earlier call succeeded,
    /// when its answer was lost.
    pub fn new<F, Fut>(call: F) -> Self
    where
        F: Fn(C, Attempt) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<C::Answer, Failure>> + Send + 'static,
    {
        let call = Arc::new(call);
        let call: Arc<CallFn> = Arc::new(move |request, attempt| {
            let call = call.clone();
            Box::pin(async move {
                let answer = call(serde_json::from_str(&request)?, attempt).await?;
                Ok(serde_json::to_string(&answer)?)
            })
        });
        let task = Task {
            kind: C::KIND,
            service: String::new(),
            call,
            complete: None,
            by_saga: false,
            retry: RetryPolicy::attempts(5)
                .backoff(Duration::from_secs(1), Duration::from_secs(60)),
            timeout: Duration::from_secs(30),
        };
        EffectTask { task, request: PhantomData }
    }

    /// What a call that has ended changes here: runs in a transaction of its own, once.
    pub fn then<F>(self, complete: F) -> Self
    where
        F: for<'a> HandlerFn<'a, EffectOutcome<C>> + 'static,
    {
        let complete: Arc<OutcomeFn<C>> = Arc::new(move |outcome, cx: &mut Cx| {
            Box::pin(complete.call(outcome, cx)) as BoxFuture<'_, Handled>
        });
        let (task, request) = (self.completed_by(complete), PhantomData);
        EffectTask { task, request }
    }

    /// The most attempts, the first included. Default 5.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.task.retry.attempts = attempts.max(1);
        self
    }

    /// The shortest and the longest pause between attempts. Default 1 s and 1 min.
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.task.retry = self.task.retry.backoff(min, max);
        self
    }

    /// How long one attempt may take, and recording its outcome. Default 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.task.timeout = timeout;
        self
    }

    pub(crate) fn completed_by(self, complete: Arc<OutcomeFn<C>>) -> Task {
        let complete: Arc<CompleteFn> = Arc::new(move |answered: Answered, cx: &mut Cx| {
            let complete = complete.clone();
            Box::pin(async move { complete(answered.typed()?, cx).await })
        });
        Task { complete: Some(complete), ..self.task }
    }

    /// Completed by the step of a saga, which begins in the engine's role.
    pub(crate) fn completed_by_itself(self, complete: Arc<OutcomeFn<C>>) -> Task {
        Task { by_saga: true, ..self.completed_by(complete) }
    }

    pub(crate) fn into_task(self) -> Task {
        self.task
    }
}

impl Answered {
    /// The outcome as the store keeps it when it could not be recorded at once.
    fn kept(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(&self.result)
    }

    fn typed<C: Effect>(self) -> Result<EffectOutcome<C>, Failure> {
        let result = match self.result {
            Ok(answer) => Ok(serde_json::from_str(&answer)?),
            Err(reason) => Err(reason),
        };
        Ok(EffectOutcome { request: serde_json::from_str(&self.request)?, result })
    }
}
