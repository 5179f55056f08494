//! What a catalog asks of a transport, and how a transport differs from it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::TopicSpec;

/// Everything that a transport must be set up for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// The system. What another one has on the same transport is none of its business.
    pub system: String,
    /// Its topics.
    pub topics: Vec<TopicSpec>,
    /// The topics that each service publishes, by service: only its own.
    pub publishers: BTreeMap<String, Vec<String>>,
    /// Who reads them: one entry for each service and topic.
    pub subscriptions: Vec<DeclaredSubscription>,
}

/// How long copies of dead letters are kept on a broker: they wait for somebody to look at them.
pub const LETTERS_KEPT: Duration = Duration::from_secs(14 * 24 * 3600);

/// A topic that a service reads, as the catalog declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredSubscription {
    /// `<consumer-service>.<topic-short>.sub`.
    pub name: String,
    /// Who reads.
    pub service: String,
    /// What it reads.
    pub topic: String,
    /// Whether it must get the events of a key in order.
    pub ordered: bool,
    /// Where what it cannot handle goes, on a transport with such topics.
    pub dead_letter_topic: String,
}

impl Topology {
    /// Whether somebody declares the topic.
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

    /// How a consumer on the transport differs from what is declared: it reads what its service
    /// may not, or belongs to no service at all.
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
                        "declare {service} as a consumer of {topic} in the catalog, or have it \
                         read that no longer"
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

/// Something on a transport that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What it is, as the transport calls it: `stream`, `topic`, `subscription`.
    pub kind: &'static str,
    /// Its name there.
    pub name: String,
    /// What is to be done about it.
    #[serde(flatten)]
    pub action: Action,
}

/// What is to be done about a [`Difference`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum Action {
    /// It is not there.
    Create {
        /// How it will be: the name of a setting, and its value.
        settings: BTreeMap<&'static str, String>,
    },
    /// It is there with other settings.
    Change {
        /// Those that differ.
        settings: Vec<Setting>,
    },
    /// It is there, and the catalog does not ask for it.
    Extra {
        /// What deleting it would delete.
        holds: String,
    },
}

/// A setting that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name on the transport.
    pub setting: &'static str,
    /// What it is.
    pub is: String,
    /// What it should be.
    pub should: String,
    /// How it gets there.
    pub how: How,
}

/// How a setting can be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// The transport changes it under way, and nothing is lost.
    InPlace,
    /// The transport changes it under way, and deletes messages by it.
    Deletes,
    /// Not by the transport: what somebody has to do.
    ByHand(String),
}

impl Difference {
    /// The part of it that the transport can carry out: what deletes something only to `prune`.
    pub fn to_do(&self, prune: bool) -> Option<Difference> {
        let action = match &self.action {
            Action::Create { .. } => self.action.clone(),
            Action::Extra { .. } if prune => self.action.clone(),
            Action::Extra { .. } => return None,
            Action::Change { settings } => {
                let possible = |setting: &&Setting| match setting.how {
                    How::InPlace => true,
                    How::Deletes => prune,
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

    /// Whether the transport falls short of the catalog, or to `prune` holds more than it.
    pub fn counts(&self, prune: bool) -> bool {
        prune || !matches!(self.action, Action::Extra { .. })
    }
}

impl Setting {
    /// A setting that is not as it should be.
    pub fn differs(
        setting: &'static str,
        is: impl ToString,
        should: impl ToString,
        how: How,
    ) -> Option<Self> {
        let (is, should) = (is.to_string(), should.to_string());
        (is != should).then_some(Setting { setting, is, should, how })
    }

    /// How long messages are kept: longer is harmless, shorter deletes. Zero stands for ever.
    pub fn kept(setting: &'static str, is: Duration, should: Duration) -> Option<Self> {
        let shorter = !should.is_zero() && (is.is_zero() || should < is);
        let how = if shorter { How::Deletes } else { How::InPlace };
        Setting::differs(setting, span(is), span(should), how)
    }
}

/// A time in the largest unit that divides it; zero is for ever.
pub fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        _ if time.is_zero() => "for ever".into(),
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
    fn what_deletes_is_left_to_prune_and_what_is_by_hand_to_a_hand() {
        let day = Duration::from_secs(86_400);
        let settings = vec![
            Setting::kept("longer", day, 2 * day).unwrap(),
            Setting::kept("shorter", Duration::ZERO, day).unwrap(),
            Setting::differs("odd", 1, 2, How::ByHand("ask".into())).unwrap(),
        ];
        let action = Action::Change { settings };
        let change = Difference { kind: "stream", name: "A".into(), action };
        let done = |prune| match change.to_do(prune).unwrap().action {
            Action::Change { settings } => settings.iter().map(|s| s.setting).collect::<Vec<_>>(),
            _ => vec![],
        };
        assert_eq!(done(false), ["longer"]);
        assert_eq!(done(true), ["longer", "shorter"]);
        let extra = Difference { action: Action::Extra { holds: String::new() }, ..change.clone() };
        assert!(extra.to_do(false).is_none() && !extra.counts(false) && extra.counts(true));
        assert_eq!(Setting::kept("same", day, day), None);
        assert_eq!((span(7 * day), span(day / 5)), ("7 d".into(), "288 min".into()));
    }
}
