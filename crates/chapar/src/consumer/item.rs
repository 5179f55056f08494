//! An event on its way through a consumer, and reading it from a message.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use chapar_core::convert::DUAL_PUBLISH_OF;
use chapar_core::dialect::Message;
use chapar_core::machine::admission::UNREADABLE;
use chapar_core::machine::failure::FailureKind;
use chapar_core::machine::order::Place;
use chapar_core::port::{AckToken, Delivery};
use chapar_core::{Code, Envelope, Headers, Violations, rules};
use chapar_sql::Arrival;
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use crate::consumer::runner::Runner;
use crate::failure::Failure;
use crate::registry::SchemaRefusal;

/// A delivery on its way through a consumer. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Item {
    /// What to acknowledge it by, unless it was held.
    pub(crate) token: Option<AckToken>,
    pub(crate) arrival: Arc<Arrival>,
    pub(crate) envelope: Result<Arc<Envelope>, Unusable>,
    pub(crate) attempts: u32,
    pub(crate) first_failed_at: Option<Timestamp>,
    /// The event is known to be next in its key, although others of the key are parked.
    pub(crate) released: Option<Release>,
    /// Its place among the events of its key, if it says so.
    pub(crate) place: Option<Place>,
    /// Since when it waits for one before it.
    pub(crate) held_since: Option<Timestamp>,
    /// When it was published, if it comes from the transport.
    pub(crate) published_at: Option<Timestamp>,
    /// How often the consumer had been moved when it was fetched.
    pub(crate) epoch: Option<i64>,
}

/// Why a message cannot be given to a handler.
#[derive(Debug, Clone)]
pub(crate) struct Unusable {
    kind: FailureKind,
    reason: String,
    /// Id and tenant, where nothing but the payload is in doubt.
    known: Option<(String, String)>,
    /// Set where a newer bundle could help.
    unknown_schema: Option<String>,
}

/// Where a released item was stored.
#[derive(Debug, Clone)]
pub(crate) enum Release {
    /// A letter; `deferred` if it has never been open.
    Letter {
        id: String,
        deferred: bool,
    },
    Parked(i64),
    Stash(i64),
}

impl Runner {
    /// An item that was delivered in an epoch of the consumer.
    pub(crate) async fn item(&self, delivery: Delivery, spread: bool, epoch: i64) -> Item {
        let Delivery { token, topic, key, headers, body, published_at, .. } = delivery;
        let message = Message { topic: Some(topic), headers, body };
        let envelope = self.decode_or_learn(&message, key.as_deref()).await;
        let Message { topic, headers, body } = message;
        let topic = topic.unwrap_or_default();
        let known = envelope.as_ref().ok().map(|envelope| &**envelope);
        let place = self.place(&topic, &headers, known, spread);
        let position = token.position;
        let (event_id, tenant) = match &envelope {
            Ok(envelope) => (fact(envelope), envelope.tenant.as_str().to_owned()),
            Err(unusable) => unusable.known.clone().unwrap_or_else(|| {
                (unreadable(&topic, key.as_deref(), &headers, &body), UNREADABLE.to_owned())
            }),
        };
        let arrival = Arrival {
            event_id,
            tenant,
            topic,
            ordering_key: key,
            partition: position.partition,
            offset: position.offset,
            headers,
            body,
        };
        Item {
            arrival: Arc::new(arrival),
            envelope,
            attempts: 0,
            first_failed_at: None,
            released: None,
            place,
            held_since: None,
            published_at: Some(published_at),
            epoch: Some(epoch),
            token: Some(token),
        }
    }

    /// A stored item that is released inside of a transaction, where nothing is fetched.
    pub(crate) fn stored(&self, arrival: Arrival) -> Item {
        let message = message_of(&arrival);
        let envelope = self.decode(&message, arrival.ordering_key.as_deref());
        self.item_of(arrival, &message, envelope, None)
    }

    /// A stored item that is released.
    pub(crate) async fn released(&self, arrival: Arrival, release: Release) -> Item {
        let message = message_of(&arrival);
        let envelope = self.decode_or_learn(&message, arrival.ordering_key.as_deref()).await;
        self.item_of(arrival, &message, envelope, Some(release))
    }

    fn item_of(
        &self,
        arrival: Arrival,
        message: &Message,
        envelope: Result<Arc<Envelope>, Unusable>,
        released: Option<Release>,
    ) -> Item {
        let known = envelope.as_ref().ok().map(|envelope| &**envelope);
        // Its turn was decided before it was stored.
        let place = self.place(&arrival.topic, &message.headers, known, false);
        Item {
            envelope,
            token: None,
            arrival: Arc::new(arrival),
            attempts: 0,
            first_failed_at: None,
            released,
            place,
            held_since: None,
            published_at: None,
            epoch: None,
        }
    }

    /// Reads a message; if it names a schema that the registry does not have, the bundle is
    /// fetched again first.
    async fn decode_or_learn(
        &self,
        message: &Message,
        key: Option<&str>,
    ) -> Result<Arc<Envelope>, Unusable> {
        let decoded = self.decode(message, key);
        if let Err(Unusable { unknown_schema: Some(uri), .. }) = &decoded
            && let (Some(registry), Some(topic)) = (self.chapar.registry(), &message.topic)
        {
            return match registry.learn(topic, uri).await {
                Ok(()) => self.decode(message, key),
                Err(why) => decoded.map_err(|unusable| {
                    let reason = format!("{}: {why}", unusable.reason);
                    Unusable { reason, ..unusable }
                }),
            };
        }
        decoded
    }

    /// Reads a message. A panic, in a dialect or a schema's format, makes that message unreadable.
    fn decode(&self, message: &Message, key: Option<&str>) -> Result<Arc<Envelope>, Unusable> {
        let decoded = catch_unwind(AssertUnwindSafe(|| self.try_to_decode(message, key)));
        decoded.unwrap_or_else(|_| {
            let reason = "reading it panicked; see the log".to_owned();
            let kind = FailureKind::Undecodable;
            Err(Unusable { kind, reason, known: None, unknown_schema: None })
        })
    }

    fn try_to_decode(
        &self,
        message: &Message,
        key: Option<&str>,
    ) -> Result<Arc<Envelope>, Unusable> {
        let unusable = |kind| {
            move |reason: String| Unusable { kind, reason, known: None, unknown_schema: None }
        };
        let envelope = self.chapar.dialect().decode(message).map_err(|error| error.to_string());
        let envelope = envelope.map_err(unusable(FailureKind::Undecodable))?;
        self.check(&envelope, message, key)?;
        if let (Some(registry), Some(topic)) = (self.chapar.registry(), &message.topic) {
            let checked = registry.check_read(topic, &envelope).and_then(|()| {
                registry.check_message(topic, &message.body).map_err(SchemaRefusal::Invalid)
            });
            checked.map_err(|refusal| {
                let (id, tenant) = (envelope.id.to_string(), envelope.tenant.as_str().to_owned());
                Unusable {
                    kind: FailureKind::SchemaInvalid,
                    reason: refusal.to_string(),
                    known: Some((id, tenant)),
                    unknown_schema: match refusal {
                        SchemaRefusal::UnknownSchema(uri) => Some(uri),
                        SchemaRefusal::Invalid(_) => None,
                    },
                }
            })?;
        }
        Ok(Arc::new(envelope))
    }

    /// What comes in keeps the same rules as what goes out. Size limits are not checked:
    /// only the producer knows `thin`.
    fn check(
        &self,
        envelope: &Envelope,
        message: &Message,
        key: Option<&str>,
    ) -> Result<(), Unusable> {
        let tenant = envelope.tenant.as_str();
        let broken = |reason: String, known| {
            let kind = FailureKind::RuleViolation;
            Unusable { kind, reason, known, unknown_schema: None }
        };
        let of_one = self.chapar.check_tenant(None, tenant, message, key);
        of_one.map_err(|error| broken(error.to_string(), None))?;
        let known = || Some((envelope.id.to_string(), tenant.to_owned()));
        let profile = self.chapar.profile();
        let checked = |result: Result<(), Violations>| {
            result.map_err(|violations| {
                let known = known().filter(|_| !violations.iter().any(|v| doubts_tenant(v.code)));
                broken(violations.to_string(), known)
            })
        };
        // The rules about the envelope first: they say whether its tenant can be relied on.
        checked(rules::check(envelope, profile, true))?;
        let Some(topic) = &message.topic else { return Ok(()) };
        let subject = profile.subject(topic);
        let subject = subject.map_err(|error| broken(error.to_string(), known()))?;
        checked(rules::check_topic(envelope, &subject))
    }
}

/// Whether an event that breaks a rule may be of another tenant than its envelope says, or has
/// names that are too long to store. Its letter belongs to the platform.
fn doubts_tenant(code: Code) -> bool {
    use Code::{CrossTenant, ForeignTenant, TenantMismatch, TenantMissing, TooLong};
    matches!(code, CrossTenant | ForeignTenant | TenantMismatch | TenantMissing | TooLong)
}

/// The name under which an event is claimed. Two versions of one fact have one, so that a
/// consumer of both applies whichever comes first, and one that changes over misses neither.
pub(crate) fn fact(envelope: &Envelope) -> String {
    let twin = envelope.metadata.get(DUAL_PUBLISH_OF).and_then(serde_json::Value::as_str);
    twin.map_or_else(|| envelope.id.to_string(), str::to_owned)
}

/// The name of a message that cannot be read: the same bytes have the same name wherever they
/// lie, and others never do.
fn unreadable(topic: &str, key: Option<&str>, headers: &Headers, body: &[u8]) -> String {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    };
    add(topic.as_bytes());
    add(key.unwrap_or_default().as_bytes());
    for (name, value) in headers {
        add(name.as_bytes());
        add(value.as_bytes());
    }
    add(body);
    let digest = hash.finalize();
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{NAMELESS}{hex}")
}

/// What the names of unreadable messages begin with.
pub(crate) const NAMELESS: &str = "unreadable-";

fn message_of(arrival: &Arrival) -> Message {
    Message {
        topic: Some(arrival.topic.clone()),
        headers: arrival.headers.clone(),
        body: arrival.body.clone(),
    }
}

pub(crate) fn unusable(item: &Item) -> Failure {
    match &item.envelope {
        Err(unusable) => Failure::new(unusable.kind, &unusable.reason),
        Ok(_) => Failure::terminal("the event is usable"),
    }
}
