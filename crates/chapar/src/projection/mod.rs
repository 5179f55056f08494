//! Read models: documents that follow from events, and can be made again from them.
//!
//! A projection is a pure fold: an event names a document by its key, and the document with the
//! event becomes the document after it. So it can be wiped and built again, while the old build
//! is served, and both must come out the same.
//!
//! ```
//! use chapar::prelude::*;
//!
//! #[derive(Event, Serialize, Deserialize)]
//! #[event("hotel.reservation.booking.confirmed.v1", id = reservation)]
//! struct BookingConfirmed { reservation: String, check_in: String }
//!
//! #[derive(Default, Serialize, Deserialize)]
//! struct Arrivals { bookings: u32 }
//!
//! let arrivals = Projection::<Arrivals>::new("front-desk.arrivals").on(
//!     |event: &BookingConfirmed| event.check_in.clone(),
//!     |day, _event| {
//!         day.get_or_insert_default().bookings += 1;
//!     },
//! );
//! ```

mod rebuild;

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

use chapar_core::port::Position;
use chapar_core::{Envelope, Event, Tenant};
use chapar_sql::{Doc, ProjectionMark, Tables, Tx};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::consumer::{Consumer, Handler, decoded, fact};
use crate::cx::Cx;
use crate::failure::Failure;

pub(crate) use rebuild::Builder;

/// A read model of documents of type `D`, with its name.
///
/// It is a [`Consumer`] of the same name: applied once, in order, with retries and dead letters.
pub struct Projection<D> {
    folds: Folds,
    documents: PhantomData<fn() -> D>,
}

/// What the documents of a read model follow from.
#[derive(Clone)]
pub(crate) struct Folds {
    pub(crate) name: String,
    pub(crate) snapshot_every: u64,
    by_topic: HashMap<String, Vec<Arc<Fold>>>,
}

struct Fold {
    key: Box<KeyFn>,
    fold: Box<FoldFn>,
}

type KeyFn = dyn Fn(&Envelope) -> Result<String, Failure> + Send + Sync;
type FoldFn = dyn Fn(&Envelope, Option<&str>) -> Result<Option<String>, Failure> + Send + Sync;

impl<D: Serialize + DeserializeOwned + 'static> Projection<D> {
    /// A read model of this name.
    pub fn new(name: impl Into<String>) -> Self {
        let by_topic = HashMap::new();
        let folds = Folds { name: name.into(), snapshot_every: 10_000, by_topic };
        Projection { folds, documents: PhantomData }
    }

    /// Folds an event into the document of a key, which is none if there is none yet; a document
    /// that is none afterwards is removed. Given several times for one event, it goes into several
    /// documents.
    ///
    /// Neither function may look at anything but its arguments.
    pub fn on<E, K, F>(mut self, key: K, fold: F) -> Self
    where
        E: Event + DeserializeOwned + 'static,
        K: Fn(&E) -> String + Send + Sync + 'static,
        F: Fn(&mut Option<D>, &E) + Send + Sync + 'static,
    {
        let read = decoded::<E>;
        let made = Fold {
            key: Box::new(move |envelope| Ok(key(&read(envelope)?))),
            fold: Box::new(move |envelope, before| {
                let event = read(envelope)?;
                let mut document: Option<D> = before.map(serde_json::from_str).transpose()?;
                fold(&mut document, &event);
                Ok(document.as_ref().map(serde_json::to_string).transpose()?)
            }),
        };
        self.folds.by_topic.entry(E::SUBJECT.to_owned()).or_default().push(Arc::new(made));
        self
    }

    /// Takes a snapshot after so many events. Default 10,000. All documents are copied, so a model
    /// of many documents should take snapshots less often.
    pub fn snapshot_every(mut self, events: u64) -> Self {
        self.folds.snapshot_every = events.max(1);
        self
    }

    pub(crate) fn into_folds(self) -> Folds {
        self.folds
    }
}

/// A document of a read model that is served.
pub async fn read_model<D: DeserializeOwned>(
    tx: &mut Tx,
    projection: &str,
    tenant: &Tenant,
    key: &str,
) -> Result<Option<D>, Failure> {
    let document = tx.projections().read_model(projection, tenant.as_str(), key).await?;
    Ok(document.map(|text| serde_json::from_str(&text)).transpose()?)
}

impl Folds {
    pub(crate) fn topics(&self) -> Vec<String> {
        let mut topics: Vec<String> = self.by_topic.keys().cloned().collect();
        topics.sort();
        topics
    }

    /// The consumer that keeps it.
    pub(crate) fn consumer(&self) -> Consumer {
        let folds = Arc::new(self.clone());
        let handler: Arc<Handler> = Arc::new(move |envelope: Arc<Envelope>, cx: &mut Cx| {
            let folds = folds.clone();
            Box::pin(async move { folds.project(&envelope, cx).await })
        });
        self.topics().iter().fold(Consumer::named(self.name.clone()), |consumer, topic| {
            consumer.handling_itself(topic, handler.clone())
        })
    }

    /// The keys of the documents that an event goes into.
    fn keys(&self, topic: &str, envelope: &Envelope) -> Result<Vec<String>, Failure> {
        self.of(topic).iter().map(|fold| (fold.key)(envelope)).collect()
    }

    /// Folds an event into documents, as `before` has them.
    fn apply(
        &self,
        topic: &str,
        envelope: &Envelope,
        documents: &mut HashMap<(String, String), Option<String>>,
    ) -> Result<(), Failure> {
        for fold in self.of(topic) {
            let at = (envelope.tenant.as_str().to_owned(), (fold.key)(envelope)?);
            let before = documents.get(&at).cloned().flatten();
            let after = (fold.fold)(envelope, before.as_deref())?;
            documents.insert(at, after);
        }
        Ok(())
    }

    fn of(&self, topic: &str) -> &[Arc<Fold>] {
        self.by_topic.get(topic).map_or(&[], Vec::as_slice)
    }
}

impl Folds {
    /// Keeps the build that is served.
    async fn project(&self, envelope: &Envelope, cx: &mut Cx) -> Result<(), Failure> {
        let topic = cx.topic().unwrap_or_else(|| envelope.subject());
        let (name, tenant) = (&self.name, envelope.tenant.as_str());
        let position = cx.position();
        let mut keys = self.keys(&topic, envelope)?;
        keys.sort();
        keys.dedup();
        let mut conn = cx.engine().await?.conn();
        let Some(build) = conn.projections().served_build(name).await? else {
            return Err(Failure::retry(format!("the read model {name} is not declared")));
        };
        // Two events of different keys may go into one document.
        let locks: Vec<String> =
            keys.iter().map(|key| format!("{name}\n{tenant}\n{key}")).collect();
        conn.inbox().lock_names(&locks).await?;
        let mut documents = HashMap::new();
        for doc in conn.projections().docs(name, build, keys).await? {
            if doc.tenant == tenant {
                documents.insert((doc.tenant, doc.key), doc.doc);
            }
        }
        self.apply(&topic, envelope, &mut documents)?;
        let docs = documents.into_iter().map(|((tenant, key), doc)| Doc { tenant, key, doc });
        conn.projections().put_docs(name, build, docs.collect()).await?;
        if let Some(Position { partition, offset }) = position {
            let mark = ProjectionMark { partition, offset, event_id: fact(envelope) };
            conn.projections().note_projected(name, &mark).await?;
        }
        Ok(())
    }
}
