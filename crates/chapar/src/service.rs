use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::consumer::Consumer;
use crate::effects::{Effect, EffectTask, Task};
use crate::projection::{Folds, Projection};
use crate::saga::{Saga, SagaData, SagaTimers};

/// A service: a name, and everything that runs on its behalf. What it emits names it as producer.
///
/// ```
/// use chapar::prelude::*;
/// # #[derive(Event, Serialize, Deserialize)]
/// # #[event("hotel.reservation.booking.held.v1", id = reservation)]
/// # struct BookingHeld { reservation: String }
/// # async fn allocate(_: BookingHeld, _: &mut Cx) -> Handled { applied() }
///
/// let inventory =
///     Service::new("inventory").consumer(Consumer::new("booking-held").on(allocate).lanes(4));
/// ```
pub struct Service {
    pub(crate) name: String,
    pub(crate) consumers: Vec<Consumer>,
    pub(crate) timers: Vec<SagaTimers>,
    pub(crate) effects: Vec<Task>,
    pub(crate) projections: Vec<Folds>,
}

impl Service {
    /// A service of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Service {
            name: name.into(),
            consumers: Vec::new(),
            timers: Vec::new(),
            effects: Vec::new(),
            projections: Vec::new(),
        }
    }

    /// Adds a consumer.
    pub fn consumer(mut self, consumer: Consumer) -> Self {
        self.consumers.push(consumer.of_service(&self.name));
        self
    }

    /// Adds a saga: its consumer, timers and effects.
    pub fn saga<S: SagaData>(mut self, saga: Saga<S>) -> Self {
        let (consumer, timers, effects) = saga.into_parts();
        self.timers.extend(timers);
        for task in effects {
            self = self.task(task);
        }
        // A saga without events is driven by its timers alone, in a process of its own.
        match consumer.topics().is_empty() {
            true => self,
            false => self.consumer(consumer),
        }
    }

    /// Adds a kind of call to a vendor.
    pub fn effect<C: Effect>(self, task: EffectTask<C>) -> Self {
        self.task(task.into_task())
    }

    fn task(mut self, mut task: Task) -> Self {
        task.service.clone_from(&self.name);
        self.effects.push(task);
        self
    }

    /// Keeps a read model.
    pub fn projection<D>(self, projection: Projection<D>) -> Self
    where
        D: Serialize + DeserializeOwned + 'static,
    {
        self.projection_with(projection, |consumer| consumer)
    }

    /// As [`projection`](Service::projection), with other settings for its consumer.
    pub fn projection_with<D>(
        mut self,
        projection: Projection<D>,
        settings: impl FnOnce(Consumer) -> Consumer,
    ) -> Self
    where
        D: Serialize + DeserializeOwned + 'static,
    {
        let folds = projection.into_folds();
        self.consumers.push(settings(folds.consumer()));
        self.projections.push(folds);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}
