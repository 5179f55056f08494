//! Options, and how they are read from an address.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use chapar_core::port::TransportError;
use percent_encoding::percent_decode_str;

use super::setup;
use crate::open::is_loopback;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// How to use a Kafka cluster.
#[derive(Debug, Clone)]
pub struct KafkaOptions {
    /// Names this process in the broker's logs. Default random.
    pub owner: String,
    /// Which consumer groups a subscription has. Default [`Groups::Service`].
    pub groups: Groups,
    /// Partitions of topics that declare none: 3 for low traffic, 6 for medium, 12 for high.
    /// Default 3.
    pub partitions: u32,
    /// Retention of topics that declare none. Default 7 days.
    pub retention: Duration,
    /// Replicas of new topics, as far as there are brokers. Default 3.
    pub replication: u32,
    /// The session timeout: how long a crashed process keeps its partitions. Default 10 s; the broker's
    /// `group.min.session.timeout.ms` is 6 s unless changed.
    pub session: Duration,
    /// How long a revoked partition is drained: how long messages in flight are waited for.
    /// Default 5 s.
    pub drain: Duration,
    /// How long to wait for the broker's answer. Default 5 s.
    pub timeout: Duration,
    /// How long a message waits for others to be sent with it (`linger.ms`), beyond the time of
    /// the request in progress. Default 0.
    pub linger: Duration,
    /// How batches are compressed: `none`, `gzip`, `snappy` or `lz4`. Default `snappy`.
    pub compression: String,
    /// How many ids of published messages are remembered at most, and at least half as many.
    /// Default 65536.
    pub duplicate_window: usize,
    /// Encryption and credentials.
    pub security: Security,
}

impl Default for KafkaOptions {
    fn default() -> Self {
        KafkaOptions {
            owner: format!("{:016x}", fastrand::u64(..)),
            groups: Groups::Service,
            partitions: 3,
            retention: 7 * DAY,
            replication: 3,
            session: Duration::from_secs(10),
            drain: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
            linger: Duration::ZERO,
            compression: "snappy".into(),
            duplicate_window: 65_536,
            security: Security::default(),
        }
    }
}

/// Which consumer groups a subscription has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Groups {
    /// One, with the subscription's name.
    #[default]
    Service,
    /// One for each of its topics, `NAME.TOPIC`: a busy topic does not rebalance the others.
    Topic,
}

/// Encryption and credentials. Files and variables are read whenever a client is created, also
/// after a broker refused the earlier ones.
#[derive(Debug, Clone, Default)]
pub struct Security {
    /// Whether to encrypt.
    pub tls: bool,
    /// The certificates of authorities that are trusted, PEM. Default those of the machine.
    pub ca: Option<PathBuf>,
    /// Our own certificate, PEM, for mutual TLS.
    pub certificate: Option<PathBuf>,
    /// Its private key, PEM.
    pub key: Option<PathBuf>,
    /// The password of the private key.
    pub key_password: Option<Secret>,
    /// The user to authenticate as.
    pub sasl: Option<Sasl>,
    /// Whether SASL PLAIN may send its password without TLS to another machine. Default false.
    pub plaintext: bool,
}

/// A user and how it authenticates.
#[derive(Debug, Clone)]
pub struct Sasl {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// The user.
    pub user: String,
    /// The password.
    pub password: Secret,
}

/// How a user authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// Sends the password as it is: only with TLS.
    Plain,
    /// SCRAM with SHA-256.
    ScramSha256,
    /// SCRAM with SHA-512.
    ScramSha512,
}

impl Mechanism {
    /// As Kafka spells it.
    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

impl FromStr for Mechanism {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let all = [Mechanism::Plain, Mechanism::ScramSha256, Mechanism::ScramSha512];
        all.into_iter().find(|mechanism| mechanism.name().eq_ignore_ascii_case(text)).ok_or(())
    }
}

/// Where a secret is. Its debug output names the place and never the secret.
#[derive(Clone)]
pub enum Secret {
    /// In a file, without the line break at its end.
    File(PathBuf),
    /// In an environment variable.
    Variable(String),
    /// Given directly.
    Given(String),
}

impl Secret {
    pub(super) fn read(&self) -> Result<String, TransportError> {
        match self {
            Secret::Given(secret) => Ok(secret.clone()),
            Secret::Variable(name) => std::env::var(name)
                .map_err(|_| setup(format!("the environment has no variable {name}"))),
            Secret::File(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    setup(format!("the file {} cannot be read: {error}", path.display()))
                })?;
                Ok(text.trim_end_matches(['\r', '\n']).to_owned())
            }
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Secret::File(path) => write!(f, "in the file {}", path.display()),
            Secret::Variable(name) => write!(f, "in the variable {name}"),
            Secret::Given(_) => f.write_str("given"),
        }
    }
}

/// An address `kafka://[user:password@]host[:port][,…][?option=value&…]`, parsed.
///
/// | option | value |
/// | --- | --- |
/// | `tls` | `true` to encrypt; implied by `ca` and `cert` |
/// | `ca`, `cert`, `key` | files, PEM |
/// | `key_password_file`, `key_password_env` | where the password of `key` is |
/// | `sasl` | `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512` (default where there is a user) |
/// | `user` | the user, if not given before the host |
/// | `password_file`, `password_env` | where its password is |
/// | `plaintext` | `true` to allow SASL PLAIN without TLS to another machine |
/// | `groups` | `service` or `topic` |
/// | `partitions`, `replication`, `retention_days` | of new topics |
/// | `session_seconds`, `timeout_seconds`, `drain_seconds` | see [`KafkaOptions`] |
/// | `compression` | `none`, `gzip`, `snappy` or `lz4` |
#[derive(Debug, Clone)]
pub struct Address {
    /// `host:port`, with commas between.
    pub servers: String,
    /// The options given, overridden by those of the address.
    pub options: KafkaOptions,
}

impl Address {
    /// Parses an address, without connecting.
    pub fn parse(url: &str, options: KafkaOptions) -> Result<Self, TransportError> {
        let odd = || setup("not a Kafka address; give kafka://host:port".into());
        let rest = url.strip_prefix("kafka://").ok_or_else(odd)?;
        let (hosts, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (who, hosts) = match hosts.rsplit_once('@') {
            Some((who, hosts)) => (Some(who), hosts),
            None => (None, hosts),
        };
        let mut parsed = Parsed { options, user: None, password: None, mechanism: None };
        if let Some(who) = who {
            let (user, password) = who.split_once(':').unwrap_or((who, ""));
            parsed.user = Some(decoded(user));
            parsed.password = (!password.is_empty()).then(|| Secret::Given(decoded(password)));
        }
        let mut servers = Vec::new();
        for host in hosts.trim_end_matches('/').split(',') {
            let (name, port) = host.rsplit_once(':').unwrap_or((host, "9092"));
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.[]:".contains(c);
            if name.is_empty() || !name.chars().all(plain) || port.parse::<u16>().is_err() {
                return Err(odd());
            }
            servers.push(format!("{name}:{port}"));
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            parsed.set(name, decoded(value))?;
        }
        let options = parsed.finish()?;
        let security = &options.security;
        let plain = |sasl: &Sasl| sasl.mechanism == Mechanism::Plain;
        if security.sasl.as_ref().is_some_and(plain)
            && !security.tls
            && !security.plaintext
            && !servers.iter().all(|server| is_loopback(server))
        {
            return Err(setup(
                "SASL PLAIN without TLS sends the password readably over the network; use \
                 tls=true or a SCRAM mechanism, or allow it with plaintext=true"
                    .into(),
            ));
        }
        Ok(Address { servers: servers.join(","), options })
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

struct Parsed {
    options: KafkaOptions,
    user: Option<String>,
    password: Option<Secret>,
    mechanism: Option<Mechanism>,
}

impl Parsed {
    fn set(&mut self, name: &str, value: String) -> Result<(), TransportError> {
        let wrong =
            |known: &str| setup(format!("the option {name}={value} is wrong; give {known}"));
        let seconds = || {
            let seconds = value.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
            let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            duration.filter(|duration| *duration < 10 * 365 * DAY)
        };
        let number = || value.parse::<u32>().ok().filter(|number| (1..1000).contains(number));
        let options = &mut self.options;
        match name {
            "tls" => {
                options.security.tls = match value.as_str() {
                    "true" | "" => true,
                    "false" => false,
                    _ => return Err(wrong("true or false")),
                }
            }
            "plaintext" => {
                options.security.plaintext = match value.as_str() {
                    "true" | "" => true,
                    "false" => false,
                    _ => return Err(wrong("true or false")),
                }
            }
            "ca" => options.security.ca = Some(value.into()),
            "cert" => options.security.certificate = Some(value.into()),
            "key" => options.security.key = Some(value.into()),
            "key_password_file" => {
                options.security.key_password = Some(Secret::File(value.into()));
            }
            "key_password_env" => options.security.key_password = Some(Secret::Variable(value)),
            "sasl" => {
                let mechanism = value.parse().ok();
                let known = "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512";
                self.mechanism = Some(mechanism.ok_or_else(|| wrong(known))?);
            }
            "user" => self.user = Some(value),
            "password_file" => self.password = Some(Secret::File(value.into())),
            "password_env" => self.password = Some(Secret::Variable(value)),
            "groups" => {
                options.groups = match value.as_str() {
                    "service" => Groups::Service,
                    "topic" => Groups::Topic,
                    _ => return Err(wrong("service or topic")),
                }
            }
            "partitions" => options.partitions = number().ok_or_else(|| wrong("1 to 999"))?,
            "replication" => options.replication = number().ok_or_else(|| wrong("1 to 999"))?,
            "retention_days" => {
                let days = seconds().map(|days| days * 24 * 3600);
                options.retention = days.ok_or_else(|| wrong("a number of days"))?;
            }
            "session_seconds" => {
                options.session = seconds().ok_or_else(|| wrong("a number of seconds"))?;
            }
            "timeout_seconds" => {
                options.timeout = seconds().ok_or_else(|| wrong("a number of seconds"))?;
            }
            "drain_seconds" => {
                options.drain = seconds().ok_or_else(|| wrong("a number of seconds"))?;
            }
            "compression" => {
                if !["none", "gzip", "snappy", "lz4"].contains(&value.as_str()) {
                    return Err(wrong("none, gzip, snappy or lz4"));
                }
                options.compression = value;
            }
            // The value may be a secret in the wrong place.
            _ => {
                return Err(setup(format!(
                    "a Kafka address has no option {name:?}; there are tls, ca, cert, key, \
                     key_password_file, key_password_env, sasl, user, password_file, password_env, \
                     plaintext, groups, partitions, replication, retention_days, session_seconds, \
                     timeout_seconds, drain_seconds and compression"
                )));
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<KafkaOptions, TransportError> {
        let Parsed { mut options, user, password, mechanism } = self;
        let security = &mut options.security;
        security.tls |= security.ca.is_some() || security.certificate.is_some();
        if security.certificate.is_some() != security.key.is_some() {
            return Err(setup("a certificate needs its key: give both cert and key".into()));
        }
        match (user, password) {
            (Some(user), Some(password)) => {
                let mechanism = mechanism.unwrap_or(Mechanism::ScramSha512);
                security.sasl = Some(Sasl { mechanism, user, password });
            }
            (Some(_), None) => {
                return Err(setup(
                    "a user needs a password: give password_file or password_env".into(),
                ));
            }
            (None, Some(_)) => return Err(setup("a password needs a user: give user".into())),
            (None, None) if mechanism.is_some() => {
                return Err(setup(
                    "sasl needs a user: give user and password_file or password_env".into(),
                ));
            }
            (None, None) => {}
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, String> {
        Address::parse(url, KafkaOptions::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_is_taken_apart() {
        let address = parse("kafka://clerk:sec%40ret@a,b:9093?groups=topic&partitions=6").unwrap();
        assert_eq!(address.servers, "a:9092,b:9093");
        assert_eq!((address.options.groups, address.options.partitions), (Groups::Topic, 6));
        let sasl = address.options.security.sasl.as_ref().unwrap();
        assert_eq!((sasl.user.as_str(), sasl.mechanism), ("clerk", Mechanism::ScramSha512));
        assert_eq!(sasl.password.read().unwrap(), "sec@ret");
        assert!(!format!("{address:?}").contains("sec@ret"), "a secret is never printed");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let says = |url: &str, what: &str| {
            let said = parse(url).map(|address| address.servers).unwrap_err();
            assert!(said.contains(what), "{url}: {said}");
        };
        says("nats://a", "give kafka://host:port");
        says("kafka://", "give kafka://host:port");
        says("kafka://a b", "give kafka://host:port");
        says("kafka://a:port", "give kafka://host:port");
        says("kafka://a?sasl=GSSAPI", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512");
        says("kafka://a?sasl=PLAIN", "give user");
        says("kafka://a?user=clerk", "give password_file or password_env");
        says("kafka://a?cert=x.pem", "give both cert and key");
        says("kafka://a?partitions=0", "partitions=0");
        says("kafka://a?session_seconds=soon", "session_seconds=soon");
        says("kafka://a?pasword=hunter2", "no option \"pasword\"");
        assert!(!parse("kafka://a?pasword=hunter2").unwrap_err().contains("hunter2"));
    }

    #[test]
    fn a_password_is_not_sent_readably_to_another_machine_unless_that_is_asked_for() {
        for fine in [
            "kafka://me:x@localhost?sasl=PLAIN",
            "kafka://me:x@127.0.0.1:9092,[::1]:9093?sasl=PLAIN",
            "kafka://me:x@kafka?sasl=PLAIN&tls=true",
            "kafka://me:x@kafka?sasl=PLAIN&plaintext=true",
            "kafka://me:x@kafka?sasl=SCRAM-SHA-256",
            "kafka://kafka",
        ] {
            assert!(parse(fine).is_ok(), "{fine}: {:?}", parse(fine));
        }
        for refused in [
            "kafka://me:x@kafka?sasl=PLAIN",
            "kafka://me:x@localhost,kafka?sasl=PLAIN",
            "kafka://me:x@localhost.example.org?sasl=plain",
        ] {
            let said = parse(refused).map(|address| address.servers).unwrap_err();
            assert!(said.contains("plaintext=true"), "{refused}: {said}");
        }
    }

    #[test]
    fn a_secret_comes_from_its_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "hunter2\n").unwrap();
        let url = format!("kafka://a?user=clerk&password_file={}", file.path().display());
        let sasl = parse(&url).unwrap().options.security.sasl.unwrap();
        assert_eq!(sasl.password.read().unwrap(), "hunter2");
        std::fs::write(file.path(), "changed").unwrap();
        assert_eq!(sasl.password.read().unwrap(), "changed", "read again each time");
    }
}
