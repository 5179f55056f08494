//! Sagas: processes over several services, as plain functions over typed state.
//!
//! A step is a function from an event and the saga to a [`Step`]: where it goes, what it writes,
//! emits, arms and records to undo. It needs no database, so a test calls it directly. The engine
//! does the rest in one transaction: it loads and locks the saga, treats an event after the end
//! as a no-op, stashes one that comes before the start, writes the history, runs undo steps in
//! reverse, and marks the saga stuck when one of them fails for good.
//!
//! ```
//! use chapar::prelude::*;
//!
//! #[derive(Event, Serialize, Deserialize)]
//! #[event("hotel.inventory.allocation.committed.v1", id = reservation)]
//! struct AllocationCommitted { reservation: String }
//!
//! #[derive(Saga, Serialize, Deserialize)]
//! #[saga("booking", key = reservation, state = State, timer = Timer)]
//! struct Booking { reservation: String }
//!
//! #[derive(SagaState)]
//! enum State { Held, Allocated, Cancelled }
//!
//! #[derive(SagaTimer)]
//! enum Timer {
//!     /// Cancels the booking unless a room was allocated.
//!     #[timer(after = "30s")]
//!     Allocation,
//! }
//!
//! fn booking() -> Saga<Booking> {
//!     Saga::new()
//!         .on(|event: &AllocationCommitted| &event.reservation, allocated)
//!         .timer(Timer::Allocation, |_| Step::compensate(State::Cancelled, "no room in time"))
//! }
//!
//! fn allocated(_: AllocationCommitted, _: &Booking) -> Step<Booking> {
//!     Step::to(State::Allocated).disarm(Timer::Allocation)
//! }
//!
//! async fn hold(reservation: &str, cx: &mut Cx) -> Handled {
//!     let booking = Booking { reservation: reservation.to_owned() };
//!     cx.start(booking, State::Held).arm(Timer::Allocation).await
//! }
//!
//! let event = AllocationCommitted { reservation: "r1".into() };
//! let step = allocated(event, &Booking { reservation: "r1".into() });
//! assert_eq!(step.outcome(), Outcome::Moves(State::Allocated));
//! let service = Service::new("reservation").saga(booking());
//! ```

mod definition;
mod instance;
mod step;

use std::fmt::Debug;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) use definition::SagaTimers;
pub use definition::{Saga, Starting, StepFn};
pub(crate) use instance::{Compensation, mark_stuck, note_stale_timer};
pub use step::{Outcome, Start, Step};

/// What a saga knows, with its name, key and enums. `#[derive(Saga)]` implements it:
///
/// ```
/// use chapar::prelude::*;
///
/// #[derive(Saga, Serialize, Deserialize)]
/// #[saga("payment", version = 2, key = order, state = State)]
/// struct Payment { order: String, cents: i64 }
///
/// #[derive(SagaState)]
/// enum State { Charging, Charged, Declined }
/// ```
///
/// Raise the version when sagas in flight of the old code would not make sense to the new one,
/// and keep reading both. A process with older code leaves newer sagas alone.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the data of a saga",
    note = "add `#[derive(Saga, Serialize, Deserialize)]` and `#[saga(\"name\", key = field, state = State)]` to `{Self}`"
)]
pub trait SagaData: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name of the kind of saga.
    const NAME: &'static str;
    /// The version of the code.
    const VERSION: u32;
    /// Its states.
    type State: SagaState;
    /// Its timers.
    type Timer: SagaTimer;
    /// Its undo steps.
    type Undo: SagaUndo;

    /// The saga's key.
    fn key(&self) -> String;
}

/// The states of a saga: an enum that derives `SagaState`. In the store a state has the variant's
/// name in snake case, or the name in `#[state("name")]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an enum of states",
    note = "add `#[derive(SagaState)]` to `{Self}`"
)]
pub trait SagaState: Copy + Eq + Debug + Send + Sync + 'static {
    /// The name in the store.
    fn as_str(self) -> &'static str;

    /// The state of a name.
    fn from_name(name: &str) -> Option<Self>;
}

/// The timers of a saga: an enum that derives `SagaTimer`, each variant with
/// `#[timer(after = "30s")]`. Its doc comment tells operators what happens when it fires.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an enum of timers",
    note = "add `#[derive(SagaTimer)]` to `{Self}`"
)]
pub trait SagaTimer: Copy + Eq + Debug + Send + Sync + 'static {
    /// Every timer.
    const ALL: &'static [Self];

    /// The name in the store.
    fn as_str(self) -> &'static str;

    /// When it fires after it was armed.
    fn after(self) -> Duration;

    /// What happens when it fires, for operators.
    fn does(self) -> &'static str;
}

/// The undo steps of a saga: an enum that derives `SagaUndo`, `Serialize` and `Deserialize`. A
/// variant's fields hold what undoing it takes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an enum of undo steps",
    note = "add `#[derive(SagaUndo, Serialize, Deserialize)]` to `{Self}`"
)]
pub trait SagaUndo: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name in the store, for operators.
    fn name(&self) -> &'static str;
}

/// For sagas without timers or undo steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Never {}

impl SagaTimer for Never {
    const ALL: &'static [Self] = &[];

    fn as_str(self) -> &'static str {
        match self {}
    }

    fn after(self) -> Duration {
        match self {}
    }

    fn does(self) -> &'static str {
        match self {}
    }
}

impl SagaUndo for Never {
    fn name(&self) -> &'static str {
        match *self {}
    }
}

impl Serialize for Never {
    fn serialize<Z: Serializer>(&self, _: Z) -> Result<Z::Ok, Z::Error> {
        match *self {}
    }
}

impl<'de> Deserialize<'de> for Never {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("this saga has no undo steps"))
    }
}
