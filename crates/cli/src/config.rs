//! Configuration: a file, then the environment, then flags; checked once, printed on demand.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::push::Push;
use crate::transport::{self, IN_THE_STORE, NatsConfig};

/// The default file, if it exists.
const DEFAULT_FILE: &str = "chapar.toml";

/// The content of a configuration file. A missing field has its default.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Options of `chapar up`.
    pub(crate) up: Up,
    /// Options of `chapar relay`.
    pub(crate) relay: Relay,
    /// Options of `chapar push`.
    pub(crate) push: Push,
    /// Options of the transport `nats://`.
    pub(crate) nats: NatsConfig,
}

/// `[up]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Up {
    /// The SQLite file.
    pub(crate) file: PathBuf,
    /// The store, instead of a file.
    pub(crate) store: Option<String>,
    /// The transport; `sql:` is the log in the store.
    pub(crate) transport: String,
    /// The address of the console.
    pub(crate) listen: String,
    /// Bookings per second.
    pub(crate) rate: f64,
    /// Seconds after which a held booking without a room is cancelled.
    pub(crate) allocation_deadline_seconds: f64,
    /// The seed of the traffic.
    pub(crate) seed: u64,
}

impl Default for Up {
    fn default() -> Self {
        Up {
            file: "chapar.db".into(),
            store: None,
            transport: IN_THE_STORE.into(),
            listen: "127.0.0.1:7070".into(),
            rate: 5.0,
            allocation_deadline_seconds: 5.0,
            seed: 1,
        }
    }
}

/// `[relay]`
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Relay {
    /// The transport.
    pub(crate) transport: String,
}

impl Default for Relay {
    fn default() -> Self {
        Relay { transport: IN_THE_STORE.into() }
    }
}

impl Config {
    /// Reads the named file, or `chapar.toml` if it exists.
    pub(crate) fn load(file: Option<&Path>) -> Result<Self> {
        let file = match file {
            Some(file) => file,
            None if Path::new(DEFAULT_FILE).exists() => Path::new(DEFAULT_FILE),
            None => return Ok(Config::default()),
        };
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("the configuration {} cannot be read", file.display()))?;
        toml::from_str(&text).map_err(|error: toml::de::Error| {
            // The error of the library quotes the line, which may hold a secret.
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            let why = without_values(error.message());
            anyhow!("the configuration {} is not valid, line {line}: {why}", file.display())
        })
    }

    /// Refuses invalid values.
    pub(crate) fn check(self) -> Result<Self> {
        let up = &self.up;
        if !(up.rate.is_finite() && (0.0..=100_000.0).contains(&up.rate)) {
            bail!("a rate of {} bookings per second makes no sense; use 0 to 100000", up.rate);
        }
        let deadline = up.allocation_deadline_seconds;
        if !(deadline.is_finite() && deadline > 0.0 && deadline <= 86_400.0) {
            bail!("an allocation deadline of {deadline} s makes no sense; use more than 0 s");
        }
        transport::check(&up.transport)?;
        transport::check(&self.relay.transport)?;
        self.push.check()?;
        self.nats.check()?;
        Ok(self)
    }
}

/// The message without what it quotes of the file.
fn without_values(message: &str) -> String {
    let message = match (message.find('"'), message.rfind('"')) {
        (Some(from), Some(to)) if from < to => {
            format!("{}…{}", &message[..=from], &message[to..])
        }
        _ => message.to_owned(),
    };
    match message.strip_prefix("unknown variant `").and_then(|rest| rest.split_once('`')) {
        Some((_, expected)) => format!("unknown value{expected}"),
        None => message,
    }
}

/// `chapar config`: the effective configuration as TOML, with secrets masked.
pub(crate) fn print(mut config: Config) -> Result<ExitCode> {
    let store = config.up.store.iter_mut();
    let transports =
        [&mut config.up.transport, &mut config.relay.transport, &mut config.push.transport];
    let others = config.nats.monitor.iter_mut().chain([&mut config.push.to]);
    for url in transports.into_iter().chain(store).chain(others) {
        *url = transport::masked(url);
    }
    print!("{}", toml::to_string_pretty(&config.check()?)?);
    Ok(ExitCode::SUCCESS)
}

/// Reads `20s`, `5m`, `1.5h`, `30d`, `300ms` or plain seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| format!("{text:?} is not a time such as 20s"))?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" | "" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        "d" => number * 86_400.0,
        _ => return Err(format!("{unit:?} is not a unit of time; use ms, s, m, h or d")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text:?} is too long a time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        let ms = |text| duration(text).map(|time| time.as_millis());
        assert_eq!(ms("20s"), Ok(20_000));
        assert_eq!(ms("300ms"), Ok(300));
        assert_eq!(ms("1.5m"), Ok(90_000));
        assert_eq!(ms("2"), Ok(2_000));
        assert_eq!(ms("30d"), Ok(2_592_000_000));
        for wrong in ["", "s", "20 s", "-1s", "1y", "9e99s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_with_a_typo_is_refused_and_an_empty_one_is_the_defaults() {
        let typo: Result<Config, _> = toml::from_str("[up]\nrat = 5");
        assert!(typo.unwrap_err().to_string().contains("unknown field `rat`"));
        let empty: Config = toml::from_str("").unwrap();
        assert_eq!(empty.up.listen, "127.0.0.1:7070");
    }
}
