//! Applying a batch: claim, handlers and emitted events in one transaction.

use std::collections::HashSet;
use std::sync::Arc;

use chapar_core::dialect::Message;
use chapar_core::machine::failure::FailureKind;
use chapar_core::port::{BoxFuture, Delivery};
use chapar_core::{Envelope, rules};
use chapar_sql::{Arrival, Tx};
use jiff::Timestamp;

use crate::consumer::runner::Runner;
use crate::cx::Cx;
use crate::failure::Failure;

/// A delivery on its way through a consumer.
#[derive(Clone)]
pub(crate) struct Item {
    pub(crate) delivery: Option<Delivery>,
    pub(crate) arrival: Arrival,
    pub(crate) envelope: Result<Arc<Envelope>, String>,
    pub(crate) attempts: u32,
    pub(crate) first_failed_at: Option<Timestamp>,
    /// The event is known to be next in its key, although others of the key are parked.
    pub(crate) released: Option<Release>,
}

/// Which box a released item comes out of.
#[derive(Debug, Clone)]
pub(crate) enum Release {
    Letter(String),
    Parked(i64),
}

/// How a batch ended.
#[derive(Default)]
pub(crate) struct Applied {
    pub(crate) applied: u64,
    pub(crate) duplicates: u64,
    pub(crate) parked: u64,
}

/// An item that failed, after everything else of the batch was dealt with.
pub(crate) struct Failed {
    pub(crate) item: Item,
    pub(crate) failure: Failure,
    /// The rest of its key, untouched.
    pub(crate) followers: Vec<Item>,
}

impl Runner {
    pub(crate) fn item(&self, delivery: Delivery) -> Item {
        let message = Message {
            topic: Some(delivery.topic.clone()),
            headers: delivery.headers.clone(),
            body: delivery.body.clone(),
        };
        let envelope = self.decode(&message);
        let headers = serde_json::to_string(&delivery.headers).unwrap_or_else(|_| "[]".into());
        let position = delivery.token.position;
        let (event_id, tenant) = match &envelope {
            Ok(envelope) => (envelope.id.to_string(), envelope.tenant.as_str().to_owned()),
            // What cannot be read has no id; its place is as good a name.
            Err(_) => (format!("{}-{}", position.partition, position.offset), "platform".to_owned()),
        };
        Item {
            arrival: Arrival {
                event_id,
                tenant,
                topic: delivery.topic.clone(),
                ordering_key: delivery.key.clone(),
                partition: position.partition,
                offset: position.offset,
                headers,
                body: delivery.body.clone(),
            },
            envelope,
            attempts: 0,
            first_failed_at: None,
            released: None,
            delivery: Some(delivery),
        }
    }

    /// An item that comes out of one of the boxes.
    pub(crate) fn boxed(&self, arrival: Arrival, release: Option<Release>) -> Item {
        let headers = serde_json::from_str(&arrival.headers).unwrap_or_default();
        let message = Message {
            topic: Some(arrival.topic.clone()),
            headers,
            body: arrival.body.clone(),
        };
        Item {
            envelope: self.decode(&message),
            delivery: None,
            arrival,
            attempts: 0,
            first_failed_at: None,
            released: release,
        }
    }

    fn decode(&self, message: &Message) -> Result<Arc<Envelope>, String> {
        let envelope = self.chapar.dialect().decode(message).map_err(|error| error.to_string())?;
        if let Some(topic) = &message.topic {
            let subject = self.chapar.profile().subject(topic).map_err(|e| e.to_string())?;
            rules::check_topic(&envelope, &subject).map_err(|error| error.to_string())?;
        }
        Ok(Arc::new(envelope))
    }

    /// Applies items, bisecting to the ones that fail. Items of a key are neighbours and stay
    /// in order; a failed one comes back with the rest of its key.
    pub(crate) fn apply<'a>(
        &'a self,
        items: Vec<Item>,
        applied: &'a mut Applied,
        failed: &'a mut Vec<Failed>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if items.is_empty() {
                return;
            }
            let failure = match self.apply_all(&items).await {
                Ok(done) => {
                    applied.applied += done.applied;
                    applied.duplicates += done.duplicates;
                    applied.parked += done.parked;
                    return;
                }
                Err(failure) => failure,
            };
            let mut items = items;
            if items.len() == 1 {
                let item = items.remove(0);
                failed.push(Failed { item, failure, followers: Vec::new() });
                return;
            }
            let right = items.split_off(items.len() / 2);
            let before = failed.len();
            self.apply(items, applied, failed).await;
            // What follows a failed item in its key must not be tried before it.
            let mut free = Vec::with_capacity(right.len());
            for item in right {
                let key = item.arrival.ordering_key.as_ref().filter(|_| self.consumer.ordered);
                let behind = key.and_then(|key| {
                    failed[before..]
                        .iter_mut()
                        .find(|failed| failed.item.arrival.ordering_key.as_ref() == Some(key))
                });
                match behind {
                    Some(failed) => failed.followers.push(item),
                    None => free.push(item),
                }
            }
            self.apply(free, applied, failed).await;
        })
    }

    /// One transaction for all, or nothing.
    async fn apply_all(&self, items: &[Item]) -> Result<Applied, Failure> {
        let mut done = Applied::default();
        let mut tx = self.chapar.store().begin_raw().await?;
        for group in items.chunk_by(|a, b| a.arrival.tenant == b.arrival.tenant) {
            tx = self.apply_tenant(tx, group, &mut done).await?;
        }
        tx.commit().await?;
        self.chapar.store().nudge();
        Ok(done)
    }

    async fn apply_tenant(
        &self,
        mut tx: Tx,
        items: &[Item],
        done: &mut Applied,
    ) -> Result<Tx, Failure> {
        let consumer = &self.consumer.name;
        let tenant = &items[0].arrival.tenant;
        tx.become_service(tenant).await?;
        let blocked = self.blocked(&mut tx, items).await?;
        let waits = |item: &Item| {
            item.released.is_none()
                && item.arrival.ordering_key.as_ref().is_some_and(|key| blocked.contains(key))
        };
        for item in items.iter().filter(|item| waits(item)) {
            tx.conn().park(consumer, &item.arrival).await?;
            done.parked += 1;
        }
        let events: Vec<(&str, &str)> = items
            .iter()
            .filter(|item| !waits(item) && item.envelope.is_ok())
            .map(|item| (item.arrival.event_id.as_str(), item.arrival.topic.as_str()))
            .collect();
        let mut fresh = tx.conn().claim(consumer, tenant, &events).await?;
        let mut cx = match items.iter().find_map(|item| item.envelope.as_ref().ok()) {
            Some(envelope) => {
                Cx::new(tx, self.chapar.clone(), envelope.cause(), self.states.clone())
            }
            None => return Err(self.unreadable(&items[0])),
        };
        for item in items.iter().filter(|item| !waits(item)) {
            if item.envelope.is_ok() && !fresh.remove(&item.arrival.event_id) {
                done.duplicates += 1;
                self.leave_box(&mut cx, item).await?;
                continue;
            }
            self.handle(&mut cx, item).await?;
            self.leave_box(&mut cx, item).await?;
            done.applied += 1;
        }
        cx.flush().await?;
        Ok(cx.into_tx())
    }

    async fn blocked(&self, tx: &mut Tx, items: &[Item]) -> Result<HashSet<String>, Failure> {
        if !self.consumer.ordered {
            return Ok(HashSet::new());
        }
        let mut keys: Vec<String> =
            items.iter().filter_map(|item| item.arrival.ordering_key.clone()).collect();
        keys.dedup();
        Ok(tx.conn().blocked_keys(&self.consumer.name, keys).await?)
    }

    async fn handle(&self, cx: &mut Cx, item: &Item) -> Result<(), Failure> {
        let envelope = item.envelope.clone().map_err(|_| self.unreadable(item))?;
        let Some(handler) = self.consumer.handlers.get(&item.arrival.topic) else {
            return Err(Failure::rule(format!("no handler for topic {}", item.arrival.topic)));
        };
        cx.turn_to(envelope.clone());
        let handled = tokio::time::timeout(self.consumer.timeout, handler(envelope, cx)).await;
        handled.map_err(|_| {
            let limit = self.consumer.timeout;
            Failure::new(FailureKind::Timeout, format!("the handler took longer than {limit:?}"))
        })??;
        if cx.was_noop() {
            let (consumer, event) = (&self.consumer.name, &item.arrival.event_id);
            cx.tx().conn().set_result(consumer, event, "noop").await?;
        }
        self.handle_stashed(cx).await
    }

    /// Sagas that have just started get the events that came before them.
    async fn handle_stashed(&self, cx: &mut Cx) -> Result<(), Failure> {
        for (saga, key) in cx.take_started() {
            let stashed = cx.tx().conn().unstash(&self.consumer.name, &saga, &key).await?;
            for stashed in stashed {
                let item = self.boxed(stashed.arrival, None);
                let event = (item.arrival.event_id.as_str(), item.arrival.topic.as_str());
                let (consumer, tenant) = (&self.consumer.name, &item.arrival.tenant);
                if cx.tx().conn().claim(consumer, tenant, &[event]).await?.is_empty() {
                    continue;
                }
                let envelope = item.envelope.clone().map_err(|_| self.unreadable(&item))?;
                if let Some(handler) = self.consumer.handlers.get(&item.arrival.topic) {
                    cx.turn_to(envelope.clone());
                    handler(envelope, cx).await?;
                }
            }
        }
        Ok(())
    }

    async fn leave_box(&self, cx: &mut Cx, item: &Item) -> Result<(), Failure> {
        match &item.released {
            Some(Release::Letter(id)) => cx.tx().conn().close_dead_letter(id).await?,
            Some(Release::Parked(id)) => cx.tx().conn().unpark(*id).await?,
            None => {}
        }
        Ok(())
    }

    fn unreadable(&self, item: &Item) -> Failure {
        let reason = item.envelope.as_ref().err().cloned().unwrap_or_default();
        Failure::new(FailureKind::Undecodable, reason)
    }
}
