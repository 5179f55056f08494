//! Clients of librdkafka: their settings and their errors.

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

/// The settings of every client. Secrets are read again for each client.
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
        // librdkafka reports it too, but without the name of the option.
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

/// The least that librdkafka accepts.
const MIN_SETUP: std::time::Duration = std::time::Duration::from_secs(1);

/// The error of a client that could not be created from its settings.
pub(super) fn creation(error: &KafkaError) -> TransportError {
    // librdkafka names its own settings; name the options of the address instead.
    let mut said = error.to_string();
    for (theirs, ours) in [
        ("ssl.ca.location", "the file of ca"),
        ("ssl.certificate.location", "the file of cert"),
        ("ssl.key.location", "the file of key"),
        ("ssl.key.password", "key_password_file"),
    ] {
        said = said.replace(theirs, ours);
    }
    setup(format!("the Kafka client rejects its settings: {said}"))
}

/// No broker has answered yet: the address may be wrong, or the broker closes connections that lack
/// TLS or credentials.
pub(super) fn unanswered(error: TransportError, security: &Security) -> TransportError {
    let TransportError::Unavailable(what) = error else { return error };
    let tls = if security.tls { "" } else { ", tls" };
    let sasl = if security.sasl.is_some() { "" } else { ", sasl and user" };
    TransportError::Unavailable(format!("{what}; check host, port{tls}{sasl}"))
}

/// Collects the errors that a client reports.
#[derive(Debug, Clone)]
pub(super) struct Ears(Arc<Mutex<Heard>>);

#[derive(Debug, Default)]
struct Heard {
    /// TLS is configured.
    tls: bool,
    /// Credentials or certificates were refused: the client has to be created again.
    refused: Option<TransportRefusal>,
    /// The last error of the connection.
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

    /// Whether the broker refuses our credentials or certificate.
    pub(super) fn is_refused(&self) -> bool {
        lock(&self.0).refused.is_some()
    }

    /// Why something failed, with the setting to correct where it is known.
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
                    // A broker that requires a client certificate closes the connection.
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
        // For a broker that closes connections without TLS, the log is the only sign.
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
