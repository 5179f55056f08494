//! Clients of librdkafka: how they are set up, and what they complain about.

use std::sync::{Arc, Mutex};

use chapar_core::port::TransportError;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tracing::{debug, warn};

use super::options::{KafkaOptions, Sasl, Security};
use super::{lock, setup, unavailable};

/// What every client is set up with. Secrets are read anew.
pub(super) fn config(
    servers: &str,
    options: &KafkaOptions,
) -> Result<ClientConfig, TransportError> {
    let mut config = ClientConfig::new();
    let millis = |duration: std::time::Duration| duration.as_millis().max(1).to_string();
    config
        .set("bootstrap.servers", servers)
        .set("client.id", format!("chapar {}", options.owner))
        .set("socket.timeout.ms", millis(options.timeout * 2))
        .set("socket.connection.setup.timeout.ms", millis(options.timeout.max(MIN_SETUP)))
        .set("socket.nagle.disable", "true")
        .set("socket.keepalive.enable", "true")
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "1000")
        .set("topic.metadata.refresh.interval.ms", "60000")
        .set("allow.auto.create.topics", "false")
        .set("log.connection.close", "false");
    let security = &options.security;
    let protocol = match (security.tls, security.sasl.is_some()) {
        (false, false) => "plaintext",
        (true, false) => "ssl",
        (false, true) => "sasl_plaintext",
        (true, true) => "sasl_ssl",
    };
    config.set("security.protocol", protocol);
    let files = [
        ("ca", "ssl.ca.location", &security.ca),
        ("cert", "ssl.certificate.location", &security.certificate),
        ("key", "ssl.key.location", &security.key),
    ];
    for (option, name, file) in files {
        let Some(file) = file else { continue };
        // librdkafka would say so too, without the name of the option.
        std::fs::metadata(file).map_err(|error| {
            setup(format!("the file {} of the option {option}: {error}", file.display()))
        })?;
        config.set(name, file.display().to_string());
    }
    if let Some(password) = &security.key_password {
        config.set("ssl.key.password", password.read()?);
    }
    if let Some(Sasl { mechanism, user, password }) = &security.sasl {
        config.set("sasl.mechanisms", mechanism.name());
        config.set("sasl.username", user);
        config.set("sasl.password", password.read()?);
    }
    Ok(config)
}

/// librdkafka takes no less.
const MIN_SETUP: std::time::Duration = std::time::Duration::from_secs(1);

/// A client could not be made out of its settings.
pub(super) fn creation(error: &KafkaError) -> TransportError {
    // librdkafka names its own settings; people know ours.
    let mut said = error.to_string();
    for (theirs, ours) in [
        ("ssl.ca.location", "the file of ca"),
        ("ssl.certificate.location", "the file of cert"),
        ("ssl.key.location", "the file of key"),
        ("ssl.key.password", "key_password_file"),
    ] {
        said = said.replace(theirs, ours);
    }
    setup(format!("the Kafka client does not take its settings: {said}"))
}

/// Nobody has answered yet: the address may be wrong, and a broker just hangs up on who does not
/// come as it asks.
pub(super) fn unanswered(error: TransportError, security: &Security) -> TransportError {
    let TransportError::Unavailable(what) = error else { return error };
    let tls = if security.tls { "" } else { ", tls" };
    let sasl = if security.sasl.is_some() { "" } else { ", sasl and user" };
    TransportError::Unavailable(format!("{what}; check host, port{tls}{sasl}"))
}

/// Listens to what a client complains about.
#[derive(Debug, Clone)]
pub(super) struct Ears(Arc<Mutex<Heard>>);

#[derive(Debug, Default)]
struct Heard {
    /// The connection is encrypted, or should be.
    tls: bool,
    /// Credentials or certificates were refused: the client has to be made anew.
    refused: Option<TransportRefusal>,
    /// The last complaint about the connection.
    last: Option<String>,
}

#[derive(Debug, Clone)]
enum TransportRefusal {
    Credentials(String),
    Certificate(String),
}

impl Ears {
    pub(super) fn new(options: &KafkaOptions) -> Self {
        let heard = Heard { tls: options.security.tls, ..Heard::default() };
        Ears(Arc::new(Mutex::new(heard)))
    }

    /// Whether the broker refuses who we say we are.
    pub(super) fn is_refused(&self) -> bool {
        lock(&self.0).refused.is_some()
    }

    /// Why something failed, with the setting that is wrong where one is.
    pub(super) fn explain(&self, error: &KafkaError) -> TransportError {
        let heard = lock(&self.0);
        match &heard.refused {
            Some(TransportRefusal::Credentials(why)) => setup(format!(
                "the Kafka broker refuses the credentials; check sasl, user and password_file or \
                 password_env: {why}"
            )),
            Some(TransportRefusal::Certificate(why)) => setup(format!(
                "there is no TLS with the Kafka broker; check tls, ca, cert and key, and that its \
                 certificate is for the host of the address: {why}"
            )),
            None => match (unavailable(error), &heard.last) {
                (TransportError::Unavailable(what), Some(why)) => {
                    // A broker that misses our certificate just hangs up.
                    let hint =
                        if heard.tls { "; with TLS, check tls, ca, cert and key too" } else { "" };
                    TransportError::Unavailable(format!("{what}: {why}{hint}"))
                }
                (error, _) => error,
            },
        }
    }
}

impl ConsumerContext for Ears {}

impl ClientContext for Ears {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        debug!(?level, facility, message, "librdkafka");
        // Said in the log alone where the broker just hangs up on a client without TLS.
        if facility == "FAIL" {
            lock(&self.0).last = Some(message.to_owned());
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        debug!(%error, reason, "librdkafka");
        let mut heard = lock(&self.0);
        let first = heard.refused.is_none();
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed) => {
                heard.refused = Some(TransportRefusal::Credentials(reason.to_owned()));
            }
            Some(RDKafkaErrorCode::SSL) => {
                heard.refused = Some(TransportRefusal::Certificate(reason.to_owned()));
            }
            Some(RDKafkaErrorCode::AllBrokersDown) => return,
            _ => {
                heard.last = Some(reason.to_owned());
                return;
            }
        }
        if first {
            warn!(reason, "the Kafka broker refuses the connection");
        }
    }
}
