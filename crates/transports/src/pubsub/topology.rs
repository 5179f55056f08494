//! Topics, subscriptions and dead-letter topics, and their names.
//!
//! A topic has the name of its subject. A consumer has a subscription per topic,
//! `CONSUMER.TOPIC-SHORT.sub`, where the short name is the topic's without the prefix of its
//! system, and a second one on the topic's dead letters.

use std::time::Duration;

use chapar_core::port::{SeekTo, SubscriptionSpec, TransportError};
use futures_util::{StreamExt, TryStreamExt, stream};
use google_cloud_gax::error::rpc::Code;
use google_cloud_gax::paginator::ItemPaginator as _;
use google_cloud_pubsub::Error;
use google_cloud_pubsub::model::{
    DeadLetterPolicy, ExpirationPolicy, RetryPolicy, Subscription, Topic,
};
use google_cloud_wkt::{FieldMask, Timestamp};
use sha2::{Digest, Sha256};
use tracing::{debug, info};

use super::wire::{SOURCE, hex};
use super::{PubSub, Shared, lock, setup};

const CONSUMER: &str = "chapar-consumer";
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The limits of Pub/Sub for retention.
const RETENTION: [Duration; 2] = [Duration::from_secs(600), Duration::from_secs(31 * 24 * 3600)];
const BACKOFF: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(600)];
/// Calls at a time.
const WIDTH: usize = 16;

/// A subscription of a consumer to a topic, and the one on the topic's dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) topic: String,
    pub(super) main: String,
    pub(super) dead: String,
    /// The acknowledgement deadline of the service, if we have the right to read it.
    pub(super) deadline: Option<Duration>,
}

/// An existing subscription.
struct Ensured {
    is_new: bool,
    deadline: Option<Duration>,
}

impl PubSub {
    pub(super) fn topic_path(&self, topic: &str) -> String {
        format!("projects/{}/topics/{topic}", self.0.address.project)
    }

    /// The names of a consumer's subscriptions to a topic, as paths.
    pub(super) fn pair(&self, consumer: &str, topic: &str) -> Pair {
        let prefix = self.0.options.prefix.as_deref();
        let path = |topic: &str| {
            let name = subscription_name(consumer, topic, prefix);
            format!("projects/{}/subscriptions/{name}", self.0.address.project)
        };
        let (main, dead) = (path(topic), path(&format!("{topic}.dlq")));
        Pair { topic: topic.to_owned(), main, dead, deadline: None }
    }

    /// Ensures that a topic and its dead-letter topic exist with sufficient retention.
    pub(super) async fn ensure_topic(
        &self,
        topic: &str,
        retention: Option<Duration>,
    ) -> Result<(), TransportError> {
        if retention.is_none() && lock(&self.0.topics).contains(topic) {
            return Ok(());
        }
        check_topic(topic)?;
        let keep = retention.unwrap_or(self.0.options.retention);
        let keep = keep.clamp(RETENTION[0], RETENTION[1]);
        for name in [format!("{topic}.dlq"), topic.to_owned()] {
            let wanted = Topic::new()
                .set_name(self.topic_path(&name))
                .set_message_retention_duration(wkt(keep));
            let created = self.0.topic_admin.create_topic().with_request(wanted.clone());
            match created.send().await {
                Ok(_) => info!(topic = name, "topic created"),
                Err(error) if code(&error) == Some(Code::AlreadyExists) => {
                    if retention.is_some() {
                        self.keep_longer(wanted).await?;
                    }
                }
                // A service that only publishes may lack the right; then the topic must exist.
                Err(error) if code(&error) == Some(Code::PermissionDenied) => {
                    debug!(topic = name, "no right to create topics; assuming that it exists");
                }
                Err(error) => return Err(self.explain(&error)),
            }
        }
        lock(&self.0.topics).insert(topic.to_owned());
        Ok(())
    }

    async fn keep_longer(&self, wanted: Topic) -> Result<(), TransportError> {
        let found = self.0.topic_admin.get_topic().set_topic(&wanted.name).send().await;
        let found = found.map_err(|error| self.explain(&error))?;
        let seconds = |topic: &Topic| {
            topic.message_retention_duration.map_or(0, |duration| duration.seconds())
        };
        if seconds(&found) >= seconds(&wanted) {
            return Ok(());
        }
        let update = self
            .0
            .topic_admin
            .update_topic()
            .set_topic(wanted)
            .set_update_mask(FieldMask::default().set_paths(["message_retention_duration"]));
        match update.send().await {
            Ok(_) => Ok(()),
            // The emulator keeps everything while it runs.
            Err(error) if code(&error) == Some(Code::Unimplemented) => Ok(()),
            Err(error) => Err(self.explain(&error)),
        }
    }

    /// Ensures that the topics and subscriptions of a consumer exist.
    pub(super) async fn ensure_consumer(
        &self,
        spec: &SubscriptionSpec,
    ) -> Result<Vec<Pair>, TransportError> {
        let mut calls = Vec::new();
        for topic in &spec.topics {
            calls.push(self.ensure_pair(&spec.name, topic));
        }
        side_by_side(calls).await
    }

    async fn ensure_pair(&self, consumer: &str, topic: &str) -> Result<Pair, TransportError> {
        self.ensure_topic(topic, None).await?;
        let mut pair = self.pair(consumer, topic);
        let dead_topic = self.topic_path(&format!("{topic}.dlq"));
        let label = [(CONSUMER, label(consumer))];
        // After this time, what a process pulled just before it crashed is delivered again.
        let deadline = i32::try_from(self.0.options.lease.as_secs()).unwrap_or(600).clamp(10, 600);
        let keep = wkt(self.0.options.retention.clamp(RETENTION[0], 7 * DAY));
        let base = Subscription::new()
            .set_ack_deadline_seconds(deadline)
            .set_message_retention_duration(keep)
            .set_enable_message_ordering(true)
            .set_enable_exactly_once_delivery(true)
            // By default, a subscription that is not read for a month is deleted.
            .set_expiration_policy(ExpirationPolicy::new())
            .set_labels(label);
        let dead = base
            .clone()
            .set_name(&pair.dead)
            .set_topic(&dead_topic)
            .set_filter(format!("attributes.{SOURCE} = \"{}\"", last_segment(&pair.main)));
        self.ensure_subscription(dead).await?;
        let main = base
            .set_name(&pair.main)
            .set_topic(self.topic_path(topic))
            .set_retain_acked_messages(true)
            .set_retry_policy(
                RetryPolicy::new()
                    .set_minimum_backoff(wkt(BACKOFF[0]))
                    .set_maximum_backoff(wkt(BACKOFF[1])),
            )
            .set_dead_letter_policy(
                DeadLetterPolicy::new()
                    .set_dead_letter_topic(dead_topic)
                    .set_max_delivery_attempts(self.0.options.max_delivery_attempts),
            );
        let ensured = self.ensure_subscription(main).await?;
        pair.deadline = ensured.deadline;
        if ensured.is_new {
            // A new subscription starts with everything that its topic has retained.
            self.seek_one(&pair.main, Timestamp::clamp(0, 0)).await?;
        }
        Ok(pair)
    }

    /// Ensures that a subscription exists. Settings of an existing one are updated, except those that
    /// Pub/Sub cannot change, which must match.
    async fn ensure_subscription(&self, wanted: Subscription) -> Result<Ensured, TransportError> {
        let admin = &self.0.subscription_admin;
        let there = |found: Option<&Subscription>| Ensured {
            is_new: false,
            deadline: found.and_then(deadline),
        };
        match admin.create_subscription().with_request(wanted.clone()).send().await {
            Ok(made) => return Ok(Ensured { is_new: true, deadline: deadline(&made) }),
            Err(error) if code(&error) == Some(Code::AlreadyExists) => {}
            Err(error) if code(&error) == Some(Code::PermissionDenied) => {
                debug!(
                    subscription = wanted.name,
                    "no right to create the subscription; assuming that it exists"
                );
                return Ok(there(None));
            }
            Err(error) => return Err(self.explain(&error)),
        }
        let found = match admin.get_subscription().set_subscription(&wanted.name).send().await {
            Ok(found) => found,
            Err(error) if code(&error) == Some(Code::PermissionDenied) => return Ok(there(None)),
            Err(error) => return Err(self.explain(&error)),
        };
        let paths = differences(&found, &wanted)?;
        if paths.is_empty() {
            return Ok(there(Some(&found)));
        }
        info!(subscription = wanted.name, ?paths, "settings of the subscription updated");
        let update = admin
            .update_subscription()
            .set_subscription(wanted)
            .set_update_mask(FieldMask::default().set_paths(paths));
        let changed = update.send().await.map_err(|error| self.explain(&error))?;
        Ok(there(Some(&changed)))
    }

    /// Moves all subscriptions of a consumer.
    pub(super) async fn seek_consumer(
        &self,
        consumer: &str,
        to: SeekTo,
    ) -> Result<(), TransportError> {
        if !self.0.seeks {
            return Err(TransportError::Unsupported("seek on the emulator"));
        }
        let time = match to {
            SeekTo::Beginning => Timestamp::clamp(0, 0),
            SeekTo::End => at(jiff::Timestamp::now()),
            SeekTo::Time(time) => at(time),
            SeekTo::Position(_) => return Err(TransportError::Unsupported("seek to a position")),
        };
        let project = format!("projects/{}", self.0.address.project);
        let listing = self.0.subscription_admin.list_subscriptions().set_project(project);
        let (mut items, mut found) = (listing.by_item(), Vec::new());
        while let Some(item) = items.next().await {
            let item = item.map_err(|error| self.explain(&error))?;
            if item.labels.get(CONSUMER) == Some(&label(consumer))
                && item.dead_letter_policy.is_some()
            {
                found.push(item.name);
            }
        }
        if found.is_empty() {
            return Err(setup(format!("there is no subscription of {consumer}")));
        }
        let mut calls = Vec::new();
        for name in &found {
            calls.push(self.seek_one(name, time));
        }
        side_by_side(calls).await.map(drop)
    }

    async fn seek_one(&self, name: &str, time: Timestamp) -> Result<(), TransportError> {
        let seek = self.0.subscription_admin.seek().set_subscription(name).set_time(time);
        match seek.send().await {
            Ok(_) => Ok(()),
            // The emulator cannot, and a new subscription on it starts at the beginning anyway.
            Err(error) if code(&error) == Some(Code::Unimplemented) => Ok(()),
            Err(error) => Err(self.explain(&error)),
        }
    }

    pub(super) fn explain(&self, error: &Error) -> TransportError {
        self.0.explain(error)
    }
}

impl Shared {
    /// An error of the service, with the settings to correct.
    pub(super) fn explain(&self, error: &Error) -> TransportError {
        let address = &self.address;
        if error.is_authentication() {
            return setup(format!("the credentials of {} are refused", self.identity));
        }
        let Some(status) = error.status() else {
            return TransportError::Unavailable(format!("{}: {}", address.endpoint, chain(error)));
        };
        match tonic::Code::from_i32(status.code as i32) {
            tonic::Code::Unknown | tonic::Code::Unavailable => {
                TransportError::Unavailable(format!("{}: {}", address.endpoint, chain(error)))
            }
            code => self.explain_status(code, &status.message),
        }
    }

    /// The same for a call that was made without Google's client.
    pub(super) fn explain_status(&self, code: tonic::Code, said: &str) -> TransportError {
        use tonic::Code;
        let address = &self.address;
        match code {
            Code::Unauthenticated => {
                setup(format!("Pub/Sub refuses the credentials of {}", self.identity))
            }
            Code::PermissionDenied => setup(format!(
                "{} may not do this in project {}; give it the role: {said}",
                self.identity, address.project
            )),
            Code::NotFound => {
                setup(format!("project {} or what is in it is not found: {said}", address.project))
            }
            Code::InvalidArgument | Code::FailedPrecondition => {
                setup(format!("Pub/Sub refuses it in project {}: {said}", address.project))
            }
            code => TransportError::Unavailable(format!("{}: {code:?}: {said}", address.endpoint)),
        }
    }
}

/// Makes many calls, some at a time.
pub(super) async fn side_by_side<T>(
    calls: Vec<impl Future<Output = Result<T, TransportError>>>,
) -> Result<Vec<T>, TransportError> {
    stream::iter(calls).buffered(WIDTH).try_collect().await
}

fn deadline(subscription: &Subscription) -> Option<Duration> {
    u64::try_from(subscription.ack_deadline_seconds).ok().map(Duration::from_secs)
}

/// The settings to change, as paths of a field mask.
fn differences(
    found: &Subscription,
    wanted: &Subscription,
) -> Result<Vec<&'static str>, TransportError> {
    for (setting, is, should) in [
        ("topic", &found.topic, &wanted.topic),
        (
            "enable_message_ordering",
            &found.enable_message_ordering.to_string(),
            &wanted.enable_message_ordering.to_string(),
        ),
    ] {
        if is != should {
            return Err(setup(format!(
                "the subscription {} has {setting} {is} where {should} is asked for, which \
                 Pub/Sub never changes; delete it or use another name, nothing was touched",
                last_segment(&found.name)
            )));
        }
    }
    let retention = |subscription: &Subscription| {
        subscription.message_retention_duration.map_or(0, |duration| duration.seconds())
    };
    let changes = [
        ("retain_acked_messages", !found.retain_acked_messages && wanted.retain_acked_messages),
        ("message_retention_duration", retention(found) < retention(wanted)),
        ("enable_exactly_once_delivery", !found.enable_exactly_once_delivery),
        ("retry_policy", found.retry_policy != wanted.retry_policy),
        ("dead_letter_policy", found.dead_letter_policy != wanted.dead_letter_policy),
    ];
    Ok(changes.into_iter().filter(|(_, changes)| *changes).map(|(path, _)| path).collect())
}

/// The name of a consumer's subscription to a topic.
pub(super) fn subscription_name(consumer: &str, topic: &str, prefix: Option<&str>) -> String {
    fitting(&format!("{consumer}.{}.sub", short(topic, prefix)))
}

/// A topic without the prefix of its system.
pub(super) fn short<'a>(topic: &'a str, prefix: Option<&str>) -> &'a str {
    prefix.and_then(|prefix| topic.strip_prefix(prefix)?.strip_prefix('.')).unwrap_or(topic)
}

/// The number of a topic: a hash of its name that fits into the signed column in which dead letters
/// store it. A subscription refuses two topics with the same number.
pub(super) fn number(topic: &str) -> u32 {
    let hash = Sha256::digest(topic.as_bytes());
    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) >> 1
}

pub(super) fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

pub(super) fn code(error: &Error) -> Option<Code> {
    error.status().map(|status| status.code)
}

fn check_topic(topic: &str) -> Result<(), TransportError> {
    let longest = 255 - ".dlq".len();
    if fitting(topic) == topic && topic.len() <= longest {
        return Ok(());
    }
    Err(TransportError::Refused(format!(
        "the topic {topic:?} is no name of a Pub/Sub topic: 3 to {longest} of letters, digits \
         and -_.~+%, a letter first, and not goog"
    )))
}

/// A name with the characters that Pub/Sub allows: unchanged where it fits.
fn fitting(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.~+%".contains(c);
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let google = name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("goog"));
    if begins && !google && name.chars().all(plain) && (3..=255).contains(&name.len()) {
        return name.to_owned();
    }
    let letters = name.chars().map(|c| if plain(c) { c } else { '_' });
    let letters: String = letters.take(200).collect();
    format!("c-{letters}-{}", &label(name)[..8])
}

/// A consumer's name as the value of a label, which allows few characters.
fn label(consumer: &str) -> String {
    hex(&Sha256::digest(consumer.as_bytes())[..16])
}

fn wkt(duration: Duration) -> google_cloud_wkt::Duration {
    google_cloud_wkt::Duration::clamp(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), 0)
}

fn at(time: jiff::Timestamp) -> Timestamp {
    Timestamp::clamp(time.as_second(), time.subsec_nanosecond())
}

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |&error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_or_is_made_to() {
        assert_eq!(fitting("inventory.booking-held.sub"), "inventory.booking-held.sub");
        for odd in ["7days", "goog-x", "a b", "ab", "كابل", &"x".repeat(300)] {
            let name = fitting(odd);
            assert!(name.starts_with("c-") && name.len() <= 255, "{name}");
        }
        assert_ne!(fitting("a b"), fitting("a_b"));
        assert!(check_topic("melmastoon.reservation.booking.held.v1").is_ok());
        assert!(check_topic("a b").is_err() && check_topic(&"x".repeat(254)).is_err());
        assert_eq!(short("melmastoon.a.b.v1", Some("melmastoon")), "a.b.v1");
        assert_eq!(short("melmastoon.a.b.v1", None), "melmastoon.a.b.v1");
    }

    #[test]
    fn what_differs_is_changed_or_refused() {
        let wanted = Subscription::new()
            .set_name("projects/p/subscriptions/s")
            .set_enable_message_ordering(true)
            .set_enable_exactly_once_delivery(true)
            .set_retain_acked_messages(true)
            .set_message_retention_duration(wkt(DAY));
        assert_eq!(differences(&wanted, &wanted).unwrap(), Vec::<&str>::new());
        let longer = wanted.clone().set_message_retention_duration(wkt(DAY * 2));
        assert!(differences(&longer, &wanted).unwrap().is_empty(), "a longer retention is kept");
        let less = wanted.clone().set_retain_acked_messages(false);
        assert_eq!(differences(&less, &wanted).unwrap(), ["retain_acked_messages"]);
        let unordered = wanted.clone().set_enable_message_ordering(false);
        let said = differences(&unordered, &wanted).unwrap_err().to_string();
        assert!(said.contains("enable_message_ordering false where true"), "{said}");
    }
}
