//! A kind of saga: which events, timers and outcomes of effects lead to which step.

use std::future::{Future, IntoFuture};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chapar_core::port::BoxFuture;
use chapar_core::{Envelope, Event};
use serde::de::DeserializeOwned;

use super::instance::{Found, Instance};
use super::step::{Start, Step};
use super::{SagaData, SagaTimer};
use crate::consumer::{Consumer, Handler, decoded};
use crate::cx::Cx;
use crate::effects::{Effect, EffectOutcome, EffectTask, Task};
use crate::failure::{Failure, Handled};
use crate::ops::CANCEL;
use crate::timers::TimerHandler;

pub(super) type UndoFn<S> = dyn Fn(<S as SagaData>::Undo, &S) -> Step<S> + Send + Sync;

/// A kind of saga, ready to be given to a [`Service`](crate::Service).
///
/// Its events are handled by one consumer named after it (`booking-saga`), so that the events of
/// one saga are applied one after the other.
pub struct Saga<S: SagaData> {
    consumer: Consumer,
    timers: Vec<SagaTimers>,
    effects: Vec<Task>,
    undo: Arc<OnceLock<Box<UndoFn<S>>>>,
}

/// What an event does that comes after the end of its saga.
#[derive(Clone, Copy)]
enum Late {
    NoOp,
    Step,
}

/// A timer of a saga with what it does.
pub(crate) struct SagaTimers {
    pub(crate) saga: &'static str,
    pub(crate) name: &'static str,
    pub(crate) does: &'static str,
    pub(crate) handler: Arc<TimerHandler>,
}

/// An async function over an event, the saga and a [`Cx`] that returns a [`Step`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a step over `{E}` and `{S}`",
    note = "write `async fn step(event: {E}, saga: &{S}, cx: &mut Cx) -> Result<Step<{S}>, Failure>`"
)]
pub trait StepFn<'a, E, S: SagaData>: Send + Sync {
    /// What it returns.
    type Future: Future<Output = Result<Step<S>, Failure>> + Send + 'a;

    /// Calls it.
    fn call(&self, event: E, saga: &'a S, cx: &'a mut Cx) -> Self::Future;
}

#[diagnostic::do_not_recommend]
impl<'a, E, S, F, Fut> StepFn<'a, E, S> for F
where
    S: SagaData,
    F: Fn(E, &'a S, &'a mut Cx) -> Fut + Send + Sync,
    Fut: Future<Output = Result<Step<S>, Failure>> + Send + 'a,
{
    type Future = Fut;

    fn call(&self, event: E, saga: &'a S, cx: &'a mut Cx) -> Fut {
        self(event, saga, cx)
    }
}

impl<S: SagaData> Saga<S> {
    /// A saga without steps.
    #[allow(clippy::new_without_default, reason = "a saga without steps is of no use")]
    pub fn new() -> Self {
        Saga {
            consumer: Consumer::new(format!("{}-saga", S::NAME)),
            timers: Vec::new(),
            effects: Vec::new(),
            undo: Arc::default(),
        }
    }

    /// Starts a saga on an event. One that exists already makes this a dead letter, because the
    /// same event is applied once: another event has the same key.
    pub fn starts<E, F>(mut self, start: F) -> Self
    where
        E: Event + DeserializeOwned + Send + 'static,
        F: Fn(E) -> Start<S> + Send + Sync + 'static,
    {
        let handler: Arc<Handler> = Arc::new(move |envelope: Arc<Envelope>, cx: &mut Cx| {
            let start = decoded::<E>(&envelope).map(&start);
            Box::pin(async move { Instance::start(cx, start?).await })
        });
        self.consumer = self.consumer.handling_itself(E::SUBJECT, handler);
        self
    }

    /// Takes a step on an event: `key` finds the saga, `step` decides.
    ///
    /// An event after the saga's end changes nothing; one before its start waits for it.
    pub fn on<E, K, F>(self, key: K, step: F) -> Self
    where
        E: Event + DeserializeOwned + Send + 'static,
        K: Fn(&E) -> &str + Send + Sync + 'static,
        F: Fn(E, &S) -> Step<S> + Send + Sync + 'static,
    {
        self.stepping(key, step, Late::NoOp)
    }

    /// As [`on`](Saga::on), where the step must read rows first.
    pub fn on_with<E, K, F>(mut self, key: K, step: F) -> Self
    where
        E: Event + DeserializeOwned + Send + 'static,
        K: Fn(&E) -> &str + Send + Sync + 'static,
        F: for<'a> StepFn<'a, E, S> + 'static,
    {
        let (step, undo) = (Arc::new(step), self.undo.clone());
        let handler: Arc<Handler> = Arc::new(move |envelope: Arc<Envelope>, cx: &mut Cx| {
            let event = decoded::<E>(&envelope).map(|event| (key(&event).to_owned(), event));
            let (step, undo) = (step.clone(), undo.clone());
            Box::pin(async move {
                let (key, event) = event?;
                let saga = match Instance::<S>::load(cx, &key).await? {
                    Found::Active(saga) => saga,
                    Found::Ended(_) => return cx.noop(),
                    Found::Missing => return Err(Failure::early(S::NAME, &key)),
                };
                cx.serve().await?;
                let step = step.call(event, &saga.data, cx).await?;
                saga.take(cx, step, undo.get().map(Box::as_ref)).await
            })
        });
        self.consumer = self.consumer.handling_itself(E::SUBJECT, handler);
        self
    }

    /// As [`on`](Saga::on), and also after the saga has ended. What the step executes and emits is
    /// done then too; a step that moves an ended saga changes nothing.
    pub fn on_always<E, K, F>(self, key: K, step: F) -> Self
    where
        E: Event + DeserializeOwned + Send + 'static,
        K: Fn(&E) -> &str + Send + Sync + 'static,
        F: Fn(E, &S) -> Step<S> + Send + Sync + 'static,
    {
        self.stepping(key, step, Late::Step)
    }

    fn stepping<E, K, F>(mut self, key: K, step: F, late: Late) -> Self
    where
        E: Event + DeserializeOwned + Send + 'static,
        K: Fn(&E) -> &str + Send + Sync + 'static,
        F: Fn(E, &S) -> Step<S> + Send + Sync + 'static,
    {
        let (step, undo) = (Arc::new(step), self.undo.clone());
        let handler: Arc<Handler> = Arc::new(move |envelope: Arc<Envelope>, cx: &mut Cx| {
            let event = decoded::<E>(&envelope).map(|event| (key(&event).to_owned(), event));
            let (step, undo) = (step.clone(), undo.clone());
            Box::pin(async move {
                let (key, event) = event?;
                match (Instance::<S>::load(cx, &key).await?, late) {
                    (Found::Active(saga), _) => {
                        let step = step(event, &saga.data);
                        saga.take(cx, step, undo.get().map(Box::as_ref)).await
                    }
                    (Found::Ended(saga), Late::Step) => {
                        Instance::take_after_end(cx, step(event, &saga.data)).await
                    }
                    (Found::Ended(_), Late::NoOp) => cx.noop(),
                    (Found::Missing, _) => Err(Failure::early(S::NAME, &key)),
                }
            })
        });
        self.consumer = self.consumer.handling_itself(E::SUBJECT, handler);
        self
    }

    /// Takes a step when a timer fires; its name and doc comment are shown to operators.
    pub fn timer<F>(self, timer: S::Timer, step: F) -> Self
    where
        F: Fn(&S) -> Step<S> + Send + Sync + 'static,
    {
        self.timed(timer.as_str(), timer.does(), step)
    }

    /// Takes a step when an operator cancels the saga with `chapar sagas cancel`. The step should
    /// end it; if it does not, the operator can cancel it again.
    pub fn cancelled_by_operator<F>(self, step: F) -> Self
    where
        F: Fn(&S) -> Step<S> + Send + Sync + 'static,
    {
        self.timed(CANCEL, "an operator has cancelled it", step)
    }

    fn timed<F>(mut self, name: &'static str, does: &'static str, step: F) -> Self
    where
        F: Fn(&S) -> Step<S> + Send + Sync + 'static,
    {
        let (step, undo) = (Arc::new(step), self.undo.clone());
        let handler: Arc<TimerHandler> = Arc::new(move |key: String, cx: &mut Cx| {
            let (step, undo) = (step.clone(), undo.clone());
            Box::pin(async move {
                let Found::Active(saga) = Instance::<S>::load(cx, &key).await? else {
                    return Ok(());
                };
                let step = step(&saga.data);
                saga.take(cx, step, undo.get().map(Box::as_ref)).await
            })
        });
        self.timers.push(SagaTimers { saga: S::NAME, name, does, handler });
        self
    }

    /// How undo steps are done. What the returned step executes and emits is done, the newest undo
    /// step first, in the transaction of the step that compensates; it must not move the saga.
    ///
    /// # Panics
    /// If it is given twice.
    pub fn undo<F>(self, undo: F) -> Self
    where
        F: Fn(S::Undo, &S) -> Step<S> + Send + Sync + 'static,
    {
        assert!(self.undo.set(Box::new(undo)).is_ok(), "Saga::undo is given twice");
        self
    }

    /// Makes calls to a vendor, and takes a step when one has ended.
    pub fn effect<C, K, F>(mut self, task: EffectTask<C>, key: K, step: F) -> Self
    where
        C: Effect,
        K: Fn(&C) -> &str + Send + Sync + 'static,
        F: Fn(EffectOutcome<C>, &S) -> Step<S> + Send + Sync + 'static,
    {
        let (step, undo) = (Arc::new(step), self.undo.clone());
        self.effects.push(task.completed_by_itself(Arc::new(move |outcome, cx: &mut Cx| {
            let key = key(&outcome.request).to_owned();
            let (step, undo) = (step.clone(), undo.clone());
            Box::pin(async move {
                let Found::Active(saga) = Instance::<S>::load(cx, &key).await? else {
                    return cx.noop();
                };
                let step = step(outcome, &saga.data);
                saga.take(cx, step, undo.get().map(Box::as_ref)).await
            })
        })));
        self
    }

    /// Other settings for its consumer: lanes, attempts, back-off, how long early events wait.
    pub fn consumer(mut self, settings: impl FnOnce(Consumer) -> Consumer) -> Self {
        self.consumer = settings(self.consumer);
        self
    }

    pub(crate) fn into_parts(self) -> (Consumer, Vec<SagaTimers>, Vec<Task>) {
        (self.consumer, self.timers, self.effects)
    }
}

/// A saga that [`Cx::start`] starts; await it.
#[must_use = "a saga starts when this is awaited"]
pub struct Starting<'a, S: SagaData> {
    cx: &'a mut Cx,
    start: Start<S>,
}

impl<S: SagaData> Starting<'_, S> {
    /// Arms a timer, after the time that its enum declares.
    pub fn arm(mut self, timer: S::Timer) -> Self {
        self.start.step = self.start.step.arm(timer);
        self
    }

    /// Arms a timer after another time than the declared one.
    pub fn arm_after(mut self, timer: S::Timer, after: Duration) -> Self {
        self.start.step = self.start.step.arm_after(timer, after);
        self
    }

    /// Records how to undo what was done with it.
    pub fn undo_with(mut self, undo: S::Undo) -> Self {
        self.start.step = self.start.step.undo_with(undo);
        self
    }
}

impl<'a, S: SagaData> IntoFuture for Starting<'a, S> {
    type Output = Handled;
    type IntoFuture = BoxFuture<'a, Handled>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(Instance::start(self.cx, self.start))
    }
}

impl Cx {
    /// Starts a saga in this transaction; one that exists is a failure.
    pub fn start<S: SagaData>(&mut self, saga: S, state: S::State) -> Starting<'_, S> {
        Starting { cx: self, start: Start::new(saga, state) }
    }
}
