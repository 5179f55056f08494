//! One process's part of a subscription: the implementation of the port.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chapar_core::port::{
    AckToken, BoxFuture, Delivery, Subscription, SubscriptionSpec, TransportError,
};
use futures_util::future::join_all;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::feeds::{FEEDS_PER_LINE, Feed, Inner, Part, State, keeper, pump};
use super::held::Held;
use super::window::Window;
use super::{PubSub, lock, setup, topology};

/// One process's part of a subscription.
pub(super) struct PubSubSubscription {
    inner: Arc<Inner>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl PubSubSubscription {
    pub(super) async fn join(
        pubsub: PubSub,
        spec: &SubscriptionSpec,
    ) -> Result<Self, TransportError> {
        let pairs = pubsub.ensure_consumer(spec).await?;
        let lease = pubsub.0.options.lease;
        let feed = |topic: &str, path: &str, dead_letters_of: Option<String>, deadline| Feed {
            path: path.to_owned(),
            topic: topic.to_owned(),
            number: match dead_letters_of {
                Some(_) => topology::number(&format!("{topic}.dlq")),
                None => topology::number(topic),
            },
            dead_letters_of,
            leased: deadline == Some(lease),
            turn: tokio::sync::Mutex::new(()),
        };
        let mut feeds: Vec<Feed> =
            pairs.iter().map(|pair| feed(&pair.topic, &pair.main, None, pair.deadline)).collect();
        feeds.extend(pairs.iter().map(|pair| {
            let source = topology::last_segment(&pair.main).to_owned();
            feed(&pair.topic, &pair.dead, Some(source), None)
        }));
        let numbers = feeds.iter().enumerate().map(|(index, feed)| (feed.number, index));
        let by_number: HashMap<u32, usize> = numbers.collect();
        if by_number.len() < feeds.len() {
            return Err(setup("two of the subscription's topics have the same number".into()));
        }
        let options = &pubsub.0.options;
        let part = |_: &Feed| Part {
            held: Held::new(spec.ack_deadline, options.duplicate_window),
            generation: 0,
            until: Duration::ZERO,
            since: None,
            window: Window::up_to(spec.max_in_flight),
        };
        let inner = Arc::new(Inner {
            spec: spec.clone(),
            lease: options.lease,
            state: Mutex::new(State { feeds: feeds.iter().map(part).collect(), turn: 0 }),
            by_number,
            lines: (0..=feeds.len() / FEEDS_PER_LINE).map(|_| pubsub.line()).collect(),
            feeds,
            started: Instant::now(),
            arrived: Notify::new(),
            room: Notify::new(),
            wanted: AtomicUsize::new(0),
            taken: Mutex::default(),
            asked: Notify::new(),
            closed: watch::Sender::new(false),
            pubsub,
        });
        let mut tasks = vec![tokio::spawn(keeper(inner.clone()))];
        tasks.extend((0..inner.feeds.len()).map(|index| tokio::spawn(pump(inner.clone(), index))));
        Ok(PubSubSubscription { inner, tasks: Mutex::new(tasks) })
    }
}

/// Counts a waiting fetch, for as long as this value lives.
struct Wanting<'a>(&'a Inner);

impl<'a> Wanting<'a> {
    fn new(inner: &'a Inner) -> Self {
        inner.wanted.fetch_add(1, Ordering::Relaxed);
        inner.asked.notify_waiters();
        Wanting(inner)
    }
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        self.0.wanted.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Inner {
    /// Polls until there is something or `wait` is over.
    async fn wait_for(
        &self,
        wait: Duration,
        poll: impl Fn() -> (Vec<Delivery>, Option<Duration>),
    ) -> Result<Vec<Delivery>, TransportError> {
        let deadline = Instant::now() + wait;
        let mut wanting = None;
        loop {
            let arrived = self.arrived.notified();
            let (deliveries, due) = poll();
            let left = deadline.saturating_duration_since(Instant::now());
            if !deliveries.is_empty() || left.is_zero() {
                if !deliveries.is_empty() {
                    *lock(&self.taken) = Some(self.started.elapsed());
                }
                return Ok(deliveries);
            }
            wanting.get_or_insert_with(|| Wanting::new(self));
            let due = due.map_or(left, |due| due.saturating_sub(self.started.elapsed()));
            let pause = due.clamp(Duration::from_millis(5), Duration::from_millis(100));
            let _ = tokio::time::timeout(left.min(pause), arrived).await;
        }
    }
}

impl Subscription for PubSubSubscription {
    fn fetch(
        &self,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        Box::pin(self.inner.wait_for(wait, move || self.inner.poll(max, Held::take)))
    }

    fn fetch_oldest(&self, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>, TransportError>> {
        let oldest = |held: &mut Held, _, now| held.take_oldest(now).into_iter().collect();
        Box::pin(self.inner.wait_for(wait, move || self.inner.poll(0, oldest)))
    }

    fn ack<'a>(&'a self, tokens: &'a [AckToken]) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let (mut touched, mut result) = (BTreeSet::new(), Ok(()));
            for token in tokens {
                match self.inner.with(token, |held, number, attempt| held.ack(number, attempt)) {
                    Ok(index) => drop(touched.insert(index)),
                    Err(error) => result = Err(error),
                }
            }
            let settled = join_all(touched.into_iter().map(|index| self.inner.settle(index))).await;
            settled.into_iter().fold(result, Result::and)
        })
    }

    fn nack<'a>(
        &'a self,
        token: &'a AckToken,
        delay: Duration,
    ) -> BoxFuture<'a, Result<(), TransportError>> {
        Box::pin(async move {
            let until = self.inner.started.elapsed() + delay;
            self.inner.with(token, |held, number, n| held.nack(number, n, until)).map(drop)
        })
    }

    fn keep_alive(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            // The keeper extends the leases of the service.
            let now = self.inner.started.elapsed();
            let mut state = lock(&self.inner.state);
            state.feeds.iter_mut().for_each(|part| part.held.extend_all(now));
            Ok(())
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(async move {
            let _ = self.inner.closed.send_replace(true);
            let tasks = std::mem::take(&mut *lock(&self.tasks));
            join_all(tasks).await;
            self.inner.leave().await;
            Ok(())
        })
    }
}

impl Drop for PubSubSubscription {
    fn drop(&mut self) {
        if self.inner.closed.send_replace(true) {
            return;
        }
        let (inner, tasks) = (self.inner.clone(), std::mem::take(&mut *lock(&self.tasks)));
        // Leaves, so that others need not wait for the lease, if there is a runtime to do so.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                join_all(tasks).await;
                inner.leave().await;
            });
        }
    }
}
