//! What a step of a saga decides: plain data that the engine carries out.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use chapar_core::{Draft, IntoDraft};
use chapar_sql::Value;

use super::{SagaData, SagaState, SagaTimer, SagaUndo};
use crate::effects::{Effect, NewCall};

/// What happens next in a saga: where it goes, and what is done in the same transaction.
///
/// A step function makes one out of an event and the saga, without a database, so a test calls it
/// and looks at the result.
#[must_use = "a step does nothing until a step function returns it"]
pub struct Step<S: SagaData> {
    pub(super) outcome: Outcome<S::State>,
    pub(super) note: String,
    pub(super) only_from: Option<Vec<S::State>>,
    pub(super) actions: Vec<Action>,
    pub(super) arm: Vec<(S::Timer, Option<Duration>)>,
    pub(super) disarm: Vec<S::Timer>,
    pub(super) undo: Vec<S::Undo>,
    pub(super) update: Option<Box<Update<S>>>,
}

type Update<S> = dyn FnOnce(&mut S) + Send + Sync;

/// Where a step leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<St> {
    /// It stays where it is.
    Stays,
    /// It goes on in another state.
    Moves(St),
    /// It ends: it did what it was for.
    Completed(St),
    /// It ends: it failed, and what it had done is undone.
    Compensated(St),
    /// It ends: it did some of it, and people must see to the rest.
    Partial(St),
}

impl<St: SagaState> Outcome<St> {
    /// The name in tables, metrics and messages, if it ends.
    pub(super) fn ended(self) -> Option<&'static str> {
        match self {
            Outcome::Stays | Outcome::Moves(_) => None,
            Outcome::Completed(_) => Some("completed"),
            Outcome::Compensated(_) => Some("compensated"),
            Outcome::Partial(_) => Some("partial"),
        }
    }

    pub(super) fn state(self) -> Option<St> {
        match self {
            Outcome::Stays => None,
            Outcome::Moves(state)
            | Outcome::Completed(state)
            | Outcome::Compensated(state)
            | Outcome::Partial(state) => Some(state),
        }
    }
}

/// Something that is done in the transaction of a step, in the order in which it was asked for.
pub(super) enum Action {
    Execute(&'static str, Vec<Value>),
    Emit(Box<dyn Emission>),
    Call(Box<dyn Calling>),
}

/// An event on its way out, which a test can look at.
pub(super) trait Emission: Send + Sync {
    fn into_draft(self: Box<Self>) -> Draft;
    fn as_any(&self) -> &dyn Any;
}

impl<E: IntoDraft + Any + Send + Sync> Emission for E {
    fn into_draft(self: Box<Self>) -> Draft {
        IntoDraft::into_draft(*self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A call to a vendor on its way out, which a test can look at.
pub(super) trait Calling: Send + Sync {
    fn request(&self) -> Result<NewCall, serde_json::Error>;
    fn as_any(&self) -> &dyn Any;
}

impl<C: Effect + Any> Calling for C {
    fn request(&self) -> Result<NewCall, serde_json::Error> {
        NewCall::of(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<S: SagaData> Step<S> {
    fn new(outcome: Outcome<S::State>, note: String) -> Self {
        Step {
            outcome,
            note,
            only_from: None,
            actions: Vec::new(),
            arm: Vec::new(),
            disarm: Vec::new(),
            undo: Vec::new(),
            update: None,
        }
    }

    /// Stays in its state.
    pub fn stay() -> Self {
        Self::new(Outcome::Stays, String::new())
    }

    /// Goes on in a state.
    pub fn to(state: S::State) -> Self {
        Self::new(Outcome::Moves(state), String::new())
    }

    /// Ends well. Its timers are disarmed.
    pub fn complete(state: S::State) -> Self {
        Self::new(Outcome::Completed(state), String::new())
    }

    /// Gives up: undoes what was done, the newest first, and ends. Its timers are disarmed.
    ///
    /// The undo steps run before this step's own statements and events, in the same transaction.
    pub fn compensate(state: S::State, reason: impl fmt::Display) -> Self {
        Self::new(Outcome::Compensated(state), reason.to_string())
    }

    /// Ends half done; the rest is manual work. Its timers are disarmed.
    pub fn partial(state: S::State, reason: impl fmt::Display) -> Self {
        Self::new(Outcome::Partial(state), reason.to_string())
    }

    /// Only from these states; from any other the event changes nothing.
    pub fn only_from(mut self, states: impl IntoIterator<Item = S::State>) -> Self {
        self.only_from = Some(states.into_iter().collect());
        self
    }

    /// Says why, for the history.
    pub fn because(mut self, note: impl fmt::Display) -> Self {
        self.note = note.to_string();
        self
    }

    /// Executes a statement. `:tenant` is the saga's tenant, `:now` the time by the engine's clock.
    pub fn execute(mut self, sql: &'static str, params: Vec<Value>) -> Self {
        self.actions.push(Action::Execute(sql, params));
        self
    }

    /// Emits an event.
    pub fn emit<E: IntoDraft + Any + Send + Sync>(mut self, event: E) -> Self {
        self.actions.push(Action::Emit(Box::new(event)));
        self
    }

    /// Asks for a call to a vendor, made after this transaction has committed.
    pub fn effect<C: Effect>(mut self, request: C) -> Self {
        self.actions.push(Action::Call(Box::new(request)));
        self
    }

    /// Arms a timer, after the time that its enum declares; one that is armed starts over.
    pub fn arm(mut self, timer: S::Timer) -> Self {
        self.arm.push((timer, None));
        self
    }

    /// Arms a timer after another time than the declared one.
    pub fn arm_after(mut self, timer: S::Timer, after: Duration) -> Self {
        self.arm.push((timer, Some(after)));
        self
    }

    /// Disarms a timer.
    pub fn disarm(mut self, timer: S::Timer) -> Self {
        self.disarm.push(timer);
        self
    }

    /// Records how to undo this step, for the case that the saga is compensated later.
    pub fn undo_with(mut self, undo: S::Undo) -> Self {
        self.undo.push(undo);
        self
    }

    /// Changes what the saga knows.
    pub fn update(mut self, change: impl FnOnce(&mut S) + Send + Sync + 'static) -> Self {
        self.update = Some(match self.update.take() {
            None => Box::new(change),
            Some(first) => Box::new(move |saga| {
                first(saga);
                change(saga);
            }),
        });
        self
    }

    /// Where it leads.
    pub fn outcome(&self) -> Outcome<S::State> {
        self.outcome
    }

    /// Why, as the history will say.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// The one event of this type that it emits.
    ///
    /// # Panics
    /// If there is none, or more than one: this is for tests.
    #[track_caller]
    pub fn emitted<E: Any>(&self) -> &E {
        let mut found = self.emits::<E>();
        assert!(found.len() == 1, "the step emits {} of {}", found.len(), name::<E>());
        found.remove(0)
    }

    /// All events of this type that it emits.
    pub fn emits<E: Any>(&self) -> Vec<&E> {
        let events = self.actions.iter().filter_map(|action| match action {
            Action::Emit(event) => (**event).as_any().downcast_ref(),
            _ => None,
        });
        events.collect()
    }

    /// All calls of this type that it asks for.
    pub fn calls<C: Any>(&self) -> Vec<&C> {
        let calls = self.actions.iter().filter_map(|action| match action {
            Action::Call(call) => (**call).as_any().downcast_ref(),
            _ => None,
        });
        calls.collect()
    }

    /// The timers that it arms.
    pub fn armed(&self) -> Vec<S::Timer> {
        self.arm.iter().map(|(timer, _)| *timer).collect()
    }

    /// The undo steps that it records.
    pub fn undo_steps(&self) -> &[S::Undo] {
        &self.undo
    }

    /// The saga as it is after this step.
    pub fn applied_to(self, mut saga: S) -> S {
        if let Some(update) = self.update {
            update(&mut saga);
        }
        saga
    }

    /// Whether the saga's own row changes.
    pub(super) fn touches_saga(&self) -> bool {
        self.outcome != Outcome::Stays
            || !self.note.is_empty()
            || !self.arm.is_empty()
            || !self.disarm.is_empty()
            || !self.undo.is_empty()
            || self.update.is_some()
    }
}

impl<S: SagaData> fmt::Debug for Step<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let undo: Vec<_> = self.undo.iter().map(SagaUndo::name).collect();
        let timers = |timers: Vec<S::Timer>| -> Vec<_> {
            timers.into_iter().map(SagaTimer::as_str).collect()
        };
        f.debug_struct("Step")
            .field("outcome", &self.outcome)
            .field("note", &self.note)
            .field("actions", &self.actions.len())
            .field("arm", &timers(self.armed()))
            .field("disarm", &timers(self.disarm.clone()))
            .field("undo", &undo)
            .finish()
    }
}

/// A saga that begins: what it knows, where it stands, and what is done in the same transaction.
#[must_use = "a saga starts when a function given to `Saga::starts` returns this"]
pub struct Start<S: SagaData> {
    pub(super) saga: S,
    pub(super) step: Step<S>,
}

impl<S: SagaData> Start<S> {
    /// Begins in a state.
    pub fn new(saga: S, state: S::State) -> Self {
        Start { saga, step: Step::to(state) }
    }

    /// Arms a timer.
    pub fn arm(self, timer: S::Timer) -> Self {
        self.with(|step| step.arm(timer))
    }

    /// Executes a statement. `:tenant` is the saga's tenant, `:now` the time by the engine's clock.
    pub fn execute(self, sql: &'static str, params: Vec<Value>) -> Self {
        self.with(|step| step.execute(sql, params))
    }

    /// Emits an event.
    pub fn emit<E: IntoDraft + Any + Send + Sync>(self, event: E) -> Self {
        self.with(|step| step.emit(event))
    }

    /// Asks for a call to a vendor.
    pub fn effect<C: Effect>(self, request: C) -> Self {
        self.with(|step| step.effect(request))
    }

    /// Records how to undo what it begins with.
    pub fn undo_with(self, undo: S::Undo) -> Self {
        self.with(|step| step.undo_with(undo))
    }

    /// What is done when it begins, for tests.
    pub fn step(&self) -> &Step<S> {
        &self.step
    }

    fn with(self, more: impl FnOnce(Step<S>) -> Step<S>) -> Self {
        Start { saga: self.saga, step: more(self.step) }
    }
}

fn name<T>() -> &'static str {
    std::any::type_name::<T>()
}
