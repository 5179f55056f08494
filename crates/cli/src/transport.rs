//! Opening a transport by its URL.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use chapar::{SqlTransport, Store};
use chapar_core::port::{Transport, TransportError};
use chapar_transports::OpenOptions;
use chapar_transports::nats::{NatsLogin, NatsOptions};
use serde::{Deserialize, Serialize};

pub(crate) use chapar_transports::shown;

/// The log in the store itself.
pub(crate) const IN_THE_STORE: &str = "sql:";

/// `[nats]`: options that must be the same in every process of a system.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NatsConfig {
    /// Partitions of each stream. Cannot be changed later.
    pub(crate) partitions: u32,
    /// Replicas of each stream.
    pub(crate) replicas: usize,
    /// Retention of messages, in days.
    pub(crate) retention_days: f64,
    /// The duplicate window in seconds, in which the server recognises the id of a message.
    pub(crate) duplicate_window_seconds: f64,
    /// The server's monitoring address, to check whether it syncs before it acknowledges.
    pub(crate) monitor: Option<String>,
    /// Tenants with a partition of their own.
    pub(crate) own_partitions: BTreeMap<String, u32>,
    /// The service of this process, on a server where each service has its own rights.
    pub(crate) service: Option<String>,
    /// Whether `chapar topology` sets up a stream and a bucket for each reading service.
    pub(crate) isolated: bool,
    /// The certificate authority of the server.
    pub(crate) ca_file: Option<PathBuf>,
    /// The client's certificate.
    pub(crate) cert_file: Option<PathBuf>,
    /// Its key.
    pub(crate) key_file: Option<PathBuf>,
    /// A credentials file in the format of `nsc`.
    pub(crate) credentials_file: Option<PathBuf>,
    /// The seed of an nkey.
    pub(crate) nkey_file: Option<PathBuf>,
    /// The user whose password is in `password_file`.
    pub(crate) user: Option<String>,
    /// A password.
    pub(crate) password_file: Option<PathBuf>,
    /// A token.
    pub(crate) token_file: Option<PathBuf>,
    /// Whether a password or a token may be sent without TLS to another machine.
    pub(crate) without_tls: bool,
}

impl Default for NatsConfig {
    fn default() -> Self {
        let NatsOptions { partitions, replicas, retention, duplicate_window, .. } =
            NatsOptions::default();
        NatsConfig {
            partitions,
            replicas,
            retention_days: retention.as_secs_f64() / DAY,
            duplicate_window_seconds: duplicate_window.as_secs_f64(),
            monitor: None,
            own_partitions: BTreeMap::new(),
            service: None,
            isolated: false,
            ca_file: None,
            cert_file: None,
            key_file: None,
            credentials_file: None,
            nkey_file: None,
            user: None,
            password_file: None,
            token_file: None,
            without_tls: false,
        }
    }
}

const DAY: f64 = 86_400.0;

impl NatsConfig {
    pub(crate) fn check(&self) -> Result<()> {
        for (name, value) in [
            ("retention_days", self.retention_days),
            ("duplicate_window_seconds", self.duplicate_window_seconds),
        ] {
            if !(value.is_finite() && value > 0.0 && value <= 36_500.0 * DAY) {
                bail!("[nats] {name} = {value} makes no sense; use more than 0");
            }
        }
        if !(1..=5).contains(&self.replicas) {
            bail!("[nats] replicas = {} makes no sense; use 1, 3 or 5", self.replicas);
        }
        Ok(())
    }

    pub(crate) fn options(&self, owner: &str, system: &str) -> NatsOptions {
        NatsOptions {
            owner: owner.to_owned(),
            prefix: Some(system.to_owned()),
            partitions: self.partitions,
            replicas: self.replicas,
            retention: Duration::from_secs_f64(self.retention_days * DAY),
            duplicate_window: Duration::from_secs_f64(self.duplicate_window_seconds),
            monitor: self.monitor.clone(),
            own_partitions: self.own_partitions.clone(),
            service: self.service.clone(),
            isolated: self.isolated,
            login: NatsLogin {
                ca_file: self.ca_file.clone(),
                cert_file: self.cert_file.clone(),
                key_file: self.key_file.clone(),
                credentials_file: self.credentials_file.clone(),
                nkey_file: self.nkey_file.clone(),
                user: self.user.clone(),
                password_file: self.password_file.clone(),
                token_file: self.token_file.clone(),
                without_tls: self.without_tls,
            },
            ..NatsOptions::default()
        }
    }
}

/// Refuses a URL that is not a transport, before anything is opened.
pub(crate) fn check(url: &str) -> Result<()> {
    if url == IN_THE_STORE {
        return Ok(());
    }
    chapar_transports::check(url).map_err(|error| match error {
        // It names the URL already.
        TransportError::Setup(why) => anyhow!("--transport {why}"),
        error => anyhow!("--transport {}: {error}", shown(url)),
    })
}

/// Opens a transport. `owner` identifies this process, `system` is the prefix of the system's
/// topics.
pub(crate) async fn open(
    url: &str,
    nats: &NatsConfig,
    store: &Store,
    owner: &str,
    system: &str,
) -> Result<Arc<dyn Transport>> {
    if url == IN_THE_STORE {
        return Ok(Arc::new(SqlTransport::new(store.clone(), owner)));
    }
    broker(url, nats, owner, system).await
}

/// Opens a transport other than the log in the store.
pub(crate) async fn broker(
    url: &str,
    nats: &NatsConfig,
    owner: &str,
    system: &str,
) -> Result<Arc<dyn Transport>> {
    check(url)?;
    let options = OpenOptions {
        owner: owner.to_owned(),
        system: system.to_owned(),
        nats: nats.options(owner, system),
    };
    let opened = chapar_transports::open(url, options).await;
    opened.with_context(|| format!("--transport {}", shown(url)))
}

/// The URL with its password or token as `***`.
pub(crate) fn masked(url: &str) -> String {
    let hosts = url.rfind('@').unwrap_or(0);
    let end = url[hosts..].find('?').map_or(url.len(), |at| hosts + at);
    let (url, options) = url.split_at(end);
    let options = options.split_inclusive(['?', '&']).map(|option| {
        let (name, _) = option.split_once('=').unwrap_or((option, ""));
        let is_secret = ["password", "secret", "token"].iter().any(|word| name.ends_with(word));
        match is_secret && option.contains('=') {
            true if option.ends_with('&') => format!("{name}=***&"),
            true => format!("{name}=***"),
            false => option.to_owned(),
        }
    });
    let masked = url.split(',').map(|server| {
        let (scheme, rest) = server.split_once("://").unwrap_or(("", server));
        let Some((login, host)) = rest.rsplit_once('@') else { return server.to_owned() };
        let user = match (login.split_once(':'), scheme.starts_with("postgres")) {
            (Some((user, _)), _) => format!("{user}:***"),
            (None, true) => login.to_owned(),
            (None, false) => "***".to_owned(),
        };
        format!("{scheme}://{user}@{host}")
    });
    masked.collect::<Vec<_>>().join(",") + &options.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        let url = "nats://me:se@cret@a:4222,nats://token@b:4222";
        assert_eq!(masked(url), "nats://me:***@a:4222,nats://***@b:4222");
        assert_eq!(masked("postgres://me@h/db?a=b"), "postgres://me@h/db?a=b");
        assert_eq!(masked("sql:"), "sql:");
        let url = "kafka://a:9092?sasl=PLAIN&sasl.password=x&password_file=/p";
        assert_eq!(masked(url), "kafka://a:9092?sasl=PLAIN&sasl.password=***&password_file=/p");
    }

    #[test]
    fn a_refusal_names_the_option() {
        assert!(check("sql:").is_ok() && check("nats://localhost").is_ok());
        for (url, known) in [
            ("amqp://me:secret@localhost", false),
            ("kafka://me:secret@localhost", cfg!(feature = "kafka")),
            ("pubsub://hotel-prod", cfg!(feature = "pubsub")),
        ] {
            let said = check(url).err().map(|error| error.to_string());
            assert_eq!(said.is_none(), known, "{said:?}");
            let clear = |said: &str| said.starts_with("--transport ") && !said.contains("secret");
            assert!(said.as_deref().is_none_or(clear), "{said:?}");
        }
    }
}
