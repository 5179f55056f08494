//! Addresses: `pubsub://PROJECT`, with options after `?` for the endpoint, the credentials, and what
//! [`PubSubOptions`](super::PubSubOptions) has.

use std::ops::RangeInclusive;
use std::time::Duration;

use chapar_core::port::TransportError;
use percent_encoding::percent_decode_str;

use super::setup;

/// The variable that Google's other clients read.
pub(super) const EMULATOR: &str = "PUBSUB_EMULATOR_HOST";
const GOOGLE: &str = "https://pubsub.googleapis.com";

/// The endpoint and credentials of Pub/Sub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) project: String,
    pub(super) endpoint: String,
    pub(super) emulator: bool,
    pub(super) credentials: Option<String>,
    pub(super) lease: Option<Duration>,
    pub(super) timeout: Option<Duration>,
    pub(super) retention: Option<Duration>,
    pub(super) max_delivery_attempts: Option<i32>,
}

/// Parses an address; `emulator` is the value of the environment variable.
pub(super) fn read(url: &str, emulator: Option<&str>) -> Result<Address, TransportError> {
    let odd = |what: String| setup(format!("{what}; give pubsub://PROJECT"));
    let rest = url.strip_prefix("pubsub://").ok_or_else(|| odd("not a Pub/Sub address".into()))?;
    let (project, query) = rest.split_once('?').unwrap_or((rest, ""));
    let project = project.trim_end_matches('/');
    let plain = |c: char| c.is_ascii_alphanumeric() || "-.:_".contains(c);
    if project.is_empty() || !project.chars().all(plain) {
        return Err(odd(format!("{project:?} is no project id of Google Cloud")));
    }
    let mut address = Address {
        project: project.to_owned(),
        endpoint: GOOGLE.to_owned(),
        emulator: false,
        credentials: None,
        lease: None,
        timeout: None,
        retention: None,
        max_delivery_attempts: None,
    };
    let mut host = emulator.filter(|host| !host.is_empty()).map(str::to_owned);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
        match name {
            _ if value.is_empty() => return Err(setup(format!("?{name}= is empty"))),
            "emulator" => host = Some(value),
            "credentials" => address.credentials = Some(value),
            "endpoint" => address.endpoint = value,
            "lease" => address.lease = Some(seconds(name, &value, 1..=600)?),
            "timeout_seconds" => address.timeout = Some(seconds(name, &value, 1..=600)?),
            "retention_days" => address.retention = Some(seconds(name, &value, 1..=31)? * 86_400),
            "max_delivery_attempts" => {
                let attempts = number(name, &value, 5..=100)?;
                address.max_delivery_attempts = i32::try_from(attempts).ok();
            }
            _ => {
                return Err(setup(format!(
                    "?{name} is unknown; there are emulator, credentials, endpoint, lease, \
                     timeout_seconds, retention_days and max_delivery_attempts"
                )));
            }
        }
    }
    if let Some(host) = host {
        let host = host.trim_start_matches("http://").trim_end_matches('/');
        (address.endpoint, address.emulator) = (format!("http://{host}"), true);
    }
    if !address.endpoint.starts_with("http://") && !address.endpoint.starts_with("https://") {
        return Err(setup(format!("endpoint={} is not an https:// address", address.endpoint)));
    }
    Ok(address)
}

fn seconds(
    name: &str,
    value: &str,
    range: RangeInclusive<u64>,
) -> Result<Duration, TransportError> {
    number(name, value, range).map(Duration::from_secs)
}

fn number(name: &str, value: &str, range: RangeInclusive<u64>) -> Result<u64, TransportError> {
    let number = value.parse().ok().filter(|number| range.contains(number));
    let (least, most) = (range.start(), range.end());
    number.ok_or_else(|| setup(format!("?{name}={value}: give a whole number, {least} to {most}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_where_and_as_whom() {
        let read = |url, emulator| read(url, emulator).unwrap();
        let plain = read("pubsub://melmastoon-prod", None);
        assert_eq!((plain.project.as_str(), plain.emulator), ("melmastoon-prod", false));
        assert_eq!(plain.endpoint, GOOGLE);
        let by_variable = read("pubsub://p", Some("localhost:8085"));
        assert_eq!(
            (by_variable.endpoint.as_str(), by_variable.emulator),
            ("http://localhost:8085", true)
        );
        let by_url = read("pubsub://p?emulator=127.0.0.1%3A1", Some("localhost:8085"));
        assert_eq!(by_url.endpoint, "http://127.0.0.1:1");
        let set = read(
            "pubsub://p?lease=60&timeout_seconds=9&retention_days=3&max_delivery_attempts=7",
            None,
        );
        assert_eq!(
            [set.lease, set.timeout, set.retention].map(|time| time.unwrap().as_secs()),
            [60, 9, 3 * 24 * 3600]
        );
        assert_eq!(set.max_delivery_attempts, Some(7));
        let file = read("pubsub://p?credentials=/run/secrets/key.json", None);
        assert_eq!(file.credentials.as_deref(), Some("/run/secrets/key.json"));
    }

    #[test]
    fn a_wrong_address_is_refused_by_its_part() {
        for (url, part) in [
            ("nats://x", "pubsub://PROJECT"),
            ("pubsub://", "no project id"),
            ("pubsub://a b", "no project id"),
            ("pubsub://p?emulator=", "emulator"),
            ("pubsub://p?region=x", "region"),
            ("pubsub://p?lease=soon", "lease"),
            ("pubsub://p?lease=0", "1 to 600"),
            ("pubsub://p?timeout_seconds=-1", "timeout_seconds"),
            ("pubsub://p?retention_days=32", "1 to 31"),
            ("pubsub://p?max_delivery_attempts=4", "5 to 100"),
            ("pubsub://p?endpoint=ftp://x", "endpoint"),
        ] {
            let said = read(url, None).unwrap_err().to_string();
            assert!(said.contains(part), "{url}: {said}");
        }
    }
}
