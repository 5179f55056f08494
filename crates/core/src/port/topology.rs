//! The topology that a catalog declares, and how a transport differs from it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::TopicSpec;

/// The topology that a catalog declares for a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The system. What other systems have on the same transport is ignored.
    pub system: String,
    /// Its topics.
    pub topics: Vec<TopicSpec>,
    /// The topics that each service publishes, by service: only its own.
    pub publishers: BTreeMap<String, Vec<String>>,
    /// The subscriptions: one for each reading service and topic.
    pub subscriptions: Vec<DeclaredSubscription>,
}

/// Retention of the copies of dead letters on a broker, which wait for an operator.
pub const LETTERS_KEPT: Duration = Duration::from_secs(14 * 24 * 3600);

/// A topic that a service reads, as the catalog declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredSubscription {
    /// `<consumer-service>.<topic-short>.sub`.
    pub name: String,
    /// The reading service.
    pub service: String,
    /// The topic that it reads.
    pub topic: String,
    /// Whether it must get the events of a key in order.
    pub ordered: bool,
    /// The topic for its dead letters, on a transport that has such topics.
    pub dead_letter_topic: String,
}

impl Topology {
    /// Whether the topic is declared.
    pub fn declares(&self, topic: &str) -> bool {
        self.topics.iter().any(|spec| spec.name == topic)
    }

    /// Whether a topic is the system's: it is declared, or begins with the system's name.
    pub fn owns(&self, topic: &str) -> bool {
        let rest = topic.strip_prefix(&self.system);
        rest.is_some_and(|rest| rest.starts_with('.')) || self.declares(topic)
    }

    /// The topics that each service reads, by service.
    pub fn readers(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut readers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for subscription in &self.subscriptions {
            readers.entry(&subscription.service).or_default().push(&subscription.topic);
        }
        readers
    }

    /// The reading service that a consumer belongs to: its name is the service, or begins with
    /// it and a dot, such as `billing-service.booking-confirmed`.
    pub fn service_of(&self, consumer: &str) -> Option<&str> {
        let services = self.subscriptions.iter().map(|subscription| &*subscription.service);
        let owns = |service: &&str| {
            let rest = consumer.strip_prefix(*service);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        services.filter(owns).max_by_key(|service| service.len())
    }

    /// How a consumer on the transport differs from the declaration: it reads topics that its
    /// service may not read, or belongs to no declared service.
    pub fn judge(&self, consumer: &str, topics: &[String]) -> Option<Difference> {
        let action = match self.service_of(consumer) {
            Some(service) => {
                let declared = |topic: &str| {
                    self.subscriptions.iter().any(|s| s.service == service && s.topic == topic)
                };
                let undeclared = topics.iter().filter(|topic| !declared(topic));
                let settings = undeclared.map(|topic| Setting {
                    setting: "reads",
                    is: topic.clone(),
                    should: "nothing undeclared".into(),
                    how: How::ByHand(format!(
                        "declare {service} as a consumer of {topic} in the catalog, or remove \
                         the topic from the consumer"
                    )),
                });
                Action::Change { settings: settings.collect() }
            }
            None if topics.iter().any(|topic| self.owns(topic)) => {
                Action::Extra { holds: format!("its place in {} topics", topics.len()) }
            }
            None => return None,
        };
        if matches!(&action, Action::Change { settings } if settings.is_empty()) {
            return None;
        }
        Some(Difference { kind: "subscription", name: consumer.to_owned(), action })
    }
}

/// Something on a transport that differs from the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The kind of object, as the transport calls it: `stream`, `topic`, `subscription`.
    pub kind: &'static str,
    /// Its name there.
    pub name: String,
    /// What to do about it.
    #[serde(flatten)]
    pub action: Action,
}

/// What to do about a [`Difference`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum Action {
    /// It does not exist.
    Create {
        /// The settings that it will have, by name.
        settings: BTreeMap<&'static str, String>,
    },
    /// It exists with other settings.
    Change {
        /// Those that differ.
        settings: Vec<Setting>,
    },
    /// It exists, and the catalog does not declare it.
    Extra {
        /// What would be lost by deleting it.
        holds: String,
    },
}

/// A setting that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name on the transport.
    pub setting: &'static str,
    /// The current value.
    pub is: String,
    /// The declared value.
    pub should: String,
    /// How it can be changed.
    pub how: How,
}

/// How a setting can be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// In place, without loss.
    InPlace,
    /// In place, but the change deletes messages.
    Deletes,
    /// Not by the transport: what the operator has to do.
    ByHand(String),
}

/// Whether to delete what the catalog does not declare, and messages beyond a shorter retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pruning {
    /// Delete nothing.
    Keep,
    /// Delete it.
    Delete,
}

/// How long messages are retained. A longer retention is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retained {
    /// For this time.
    For(Duration),
    /// Without limit.
    Forever,
}

impl Retained {
    /// The retention of a broker that spells "without limit" as zero.
    pub fn unless_zero(time: Duration) -> Self {
        if time.is_zero() { Retained::Forever } else { Retained::For(time) }
    }
}

impl fmt::Display for Retained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Retained::For(time) => f.write_str(&span(*time)),
            Retained::Forever => f.write_str("forever"),
        }
    }
}

impl Difference {
    /// The part of it that the transport can carry out.
    pub fn to_do(&self, pruning: Pruning) -> Option<Difference> {
        let action = match &self.action {
            Action::Create { .. } => self.action.clone(),
            Action::Extra { .. } if pruning == Pruning::Delete => self.action.clone(),
            Action::Extra { .. } => return None,
            Action::Change { settings } => {
                let possible = |setting: &&Setting| match setting.how {
                    How::InPlace => true,
                    How::Deletes => pruning == Pruning::Delete,
                    How::ByHand(_) => false,
                };
                let settings: Vec<_> = settings.iter().filter(possible).cloned().collect();
                if settings.is_empty() {
                    return None;
                }
                Action::Change { settings }
            }
        };
        Some(Difference { action, ..self.clone() })
    }

    /// Whether the transport is not as declared: something is missing or differs, or there is more
    /// than declared and that is to be deleted.
    pub fn counts(&self, pruning: Pruning) -> bool {
        pruning == Pruning::Delete || !matches!(self.action, Action::Extra { .. })
    }
}

impl Setting {
    /// A setting, if its value is not the declared one.
    pub fn differs(
        setting: &'static str,
        is: impl ToString,
        should: impl ToString,
        how: How,
    ) -> Option<Self> {
        let (is, should) = (is.to_string(), should.to_string());
        (is != should).then_some(Setting { setting, is, should, how })
    }

    /// A retention, if it is not the declared one: a shorter one deletes messages.
    pub fn kept(setting: &'static str, is: Retained, should: Retained) -> Option<Self> {
        let how = if should < is { How::Deletes } else { How::InPlace };
        Setting::differs(setting, is, should, how)
    }
}

/// A time in the largest unit that divides it.
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0 if time.is_zero() => "0 s".into(),
        _ if time.subsec_nanos() > 0 => format!("{time:?}"),
        _ if seconds.is_multiple_of(86_400) => format!("{} d", seconds / 86_400),
        _ if seconds.is_multiple_of(3600) => format!("{} h", seconds / 3600),
        _ if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        _ => format!("{seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology() -> Topology {
        let read = |service: &str, topic: &str| DeclaredSubscription {
            name: format!("{service}.{topic}.sub"),
            service: service.into(),
            topic: topic.into(),
            ordered: true,
            dead_letter_topic: format!("{topic}.dlq"),
        };
        Topology {
            system: "hotel".into(),
            topics: vec![],
            publishers: BTreeMap::new(),
            subscriptions: vec![read("billing", "a"), read("billing.eu", "b")],
        }
    }

    #[test]
    fn a_consumer_belongs_to_the_service_that_its_name_begins_with() {
        let topology = topology();
        assert_eq!(topology.service_of("billing.folios"), Some("billing"));
        assert_eq!(topology.service_of("billing.eu.folios"), Some("billing.eu"));
        assert_eq!(topology.service_of("billing-2"), None);
    }

    #[test]
    fn a_consumer_is_judged_by_what_its_service_declares() {
        let topology = topology();
        let judge = |consumer: &str, topics: &[&str]| {
            let topics: Vec<String> = topics.iter().map(|topic| (*topic).to_owned()).collect();
            topology.judge(consumer, &topics).map(|difference| difference.action)
        };
        assert_eq!(judge("billing.folios", &["a"]), None);
        let Some(Action::Change { settings }) = judge("billing.folios", &["a", "b"]) else {
            panic!("b is not billing's to read")
        };
        assert_eq!((settings.len(), &*settings[0].is), (1, "b"));
        assert!(matches!(judge("nobody", &["hotel.x"]), Some(Action::Extra { .. })));
        assert_eq!(judge("nobody", &["bank.x"]), None, "another system's");
    }

    #[test]
    fn deletions_need_pruning_and_manual_changes_are_left_to_the_operator() {
        let day = Duration::from_secs(86_400);
        let settings = vec![
            Setting::kept("longer", Retained::For(day), Retained::For(2 * day)).unwrap(),
            Setting::kept("shorter", Retained::Forever, Retained::For(day)).unwrap(),
            Setting::differs("odd", 1, 2, How::ByHand("ask".into())).unwrap(),
        ];
        let action = Action::Change { settings };
        let change = Difference { kind: "stream", name: "A".into(), action };
        let done = |pruning| match change.to_do(pruning).unwrap().action {
            Action::Change { settings } => settings.iter().map(|s| s.setting).collect::<Vec<_>>(),
            _ => vec![],
        };
        assert_eq!(done(Pruning::Keep), ["longer"]);
        assert_eq!(done(Pruning::Delete), ["longer", "shorter"]);
        let extra = Difference { action: Action::Extra { holds: String::new() }, ..change.clone() };
        assert!(extra.to_do(Pruning::Keep).is_none() && !extra.counts(Pruning::Keep));
        assert!(extra.counts(Pruning::Delete));
        assert_eq!(Setting::kept("same", Retained::For(day), Retained::For(day)), None);
        assert_eq!((span(7 * day), span(day / 5)), ("7 d".into(), "288 min".into()));
    }
}
