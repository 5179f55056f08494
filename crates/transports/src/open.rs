//! Opening a broker by its URL.

use std::sync::Arc;

use chapar_core::port::{Transport, TransportError};

/// What every transport is told when it is opened.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Names this process among others; two that run at the same time must differ.
    pub owner: String,
    /// The system's name: the first segment of its topics.
    pub system: String,
    /// Settings of NATS. Its owner and prefix are taken from here.
    #[cfg(feature = "nats")]
    pub nats: crate::nats::NatsOptions,
}

/// The schemes of URLs that this build can open, and the cargo feature of each.
const SCHEMES: [(&str, &str, bool); 4] = [
    ("nats://", "nats", cfg!(feature = "nats")),
    ("tls://", "nats", cfg!(feature = "nats")),
    ("kafka://", "kafka", cfg!(feature = "kafka")),
    ("pubsub://", "pubsub", cfg!(feature = "pubsub")),
];

const USE: &str = "use sql:, nats://host:port, kafka://host:port or pubsub://project";

/// Refuses a URL that names no broker, or one that this build lacks, before anything is opened.
pub fn check(url: &str) -> Result<(), TransportError> {
    let Some((scheme, feature, built)) =
        SCHEMES.iter().find(|(scheme, ..)| url.starts_with(scheme))
    else {
        return Err(TransportError::Setup(format!("{:?} names no transport; {USE}", shown(url))));
    };
    if !built {
        return Err(TransportError::Setup(format!(
            "{}: this program was built without {feature}; build it with --features {feature}",
            shown(url)
        )));
    }
    #[cfg(feature = "kafka")]
    if *feature == "kafka" {
        crate::kafka::Address::parse(url, crate::kafka::KafkaOptions::default())?;
    }
    let place = &url[scheme.len()..];
    if place.rsplit('@').next().is_none_or(str::is_empty) {
        return Err(TransportError::Setup(format!("{:?} names no host; {USE}", shown(url))));
    }
    Ok(())
}

/// Connects to the broker of a URL.
pub async fn open(url: &str, options: OpenOptions) -> Result<Arc<dyn Transport>, TransportError> {
    check(url)?;
    #[cfg(feature = "nats")]
    if url.starts_with("nats://") || url.starts_with("tls://") {
        use crate::nats::{Nats, NatsOptions};
        let OpenOptions { owner, system, nats } = options;
        let options = NatsOptions { owner, prefix: Some(system), ..nats };
        return Ok(Arc::new(Nats::connect(url, options).await?));
    }
    #[cfg(feature = "kafka")]
    if url.starts_with("kafka://") {
        use crate::kafka::{Kafka, KafkaOptions};
        let options = KafkaOptions { owner: options.owner, ..KafkaOptions::default() };
        return Ok(Arc::new(Kafka::connect(url, options).await?));
    }
    #[cfg(feature = "pubsub")]
    if url.starts_with("pubsub://") {
        use crate::pubsub::{PubSub, PubSubOptions};
        let OpenOptions { owner, system, .. } = options;
        let options = PubSubOptions { owner, prefix: Some(system), ..PubSubOptions::default() };
        return Ok(Arc::new(PubSub::connect(url, options).await?));
    }
    let _ = options;
    Err(TransportError::Setup(format!("{} names no transport", shown(url))))
}

/// The URL without its secrets, and without options, one of which may be a secret.
pub fn shown(url: &str) -> String {
    let hosts = url.rfind('@').unwrap_or(0);
    let url = url[hosts..].find('?').map_or(url, |options| &url[..hosts + options]);
    let servers = url.split(',').map(|server| match server.split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            format!("{scheme}://{host}")
        }
        None => server.rsplit_once('@').map_or(server, |(_, host)| host).to_owned(),
    });
    servers.collect::<Vec<_>>().join(",")
}

/// Whether `host`, `host:port` or `[host]:port` is this machine.
#[cfg(any(feature = "nats", feature = "kafka"))]
pub(crate) fn is_loopback(place: &str) -> bool {
    let place = place.split('/').next().unwrap_or_default();
    let host = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => place.rsplit_once(':').map_or(place, |(host, _)| host),
    };
    let address = host.parse::<std::net::IpAddr>();
    address.map_or(host.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        let url = "nats://me:se@cret@a:4222,nats://token@b:4222";
        assert_eq!(shown(url), "nats://a:4222,nats://b:4222");
        assert_eq!(shown("sql:"), "sql:");
        let url = "kafka://me:se?cret@a:9092,b:9092?sasl=PLAIN&password=secret";
        assert_eq!(shown(url), "kafka://a:9092,b:9092");
    }

    #[test]
    #[cfg(any(feature = "nats", feature = "kafka"))]
    fn this_machine_is_known_by_its_addresses() {
        for ours in ["localhost", "localhost:4222", "127.0.0.1", "127.8.0.1:1", "[::1]:4222"] {
            assert!(is_loopback(ours), "{ours}");
        }
        for other in ["nats:4222", "10.0.0.1", "localhost.example.org", "127.0.0.1.nip.io:1", ""] {
            assert!(!is_loopback(other), "{other}");
        }
    }

    #[test]
    fn only_known_transports_are_taken() {
        assert_eq!(check("nats://localhost").is_ok(), cfg!(feature = "nats"));
        assert_eq!(check("pubsub://hotel-prod").is_ok(), cfg!(feature = "pubsub"));
        assert!(check("pubsub://").is_err() && check("nats://me@").is_err());
        let said = check("amqp://me:secret@localhost").unwrap_err().to_string();
        assert!(said.contains("use sql:, nats://") && !said.contains("secret"), "{said}");
        assert_eq!(check("kafka://me:secret@localhost").is_ok(), cfg!(feature = "kafka"));
    }
}
