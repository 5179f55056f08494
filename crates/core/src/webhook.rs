//! Standard Webhooks: signing events that are pushed over HTTP, and verifying them.
//!
//! A message has three headers: [`ID`], [`TIMESTAMP`] in seconds, and [`SIGNATURE`], which is
//! `v1,` and the base64 of the HMAC-SHA256 of `id.timestamp.body`. Several signatures are separated
//! by spaces, so that a secret can be rotated without downtime.
//!
//! ```
//! use chapar_core::webhook::{Secrets, ID, SIGNATURE, TIMESTAMP};
//! let secrets: Secrets = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse()?;
//! let now = "2026-11-15T12:00:00Z".parse().unwrap();
//! let (id, timestamp, body) = ("evt_1", "1794744000", b"{}");
//! let signature = secrets.sign(id, timestamp, body);
//! let header = |name: &str| match name {
//!     ID => Some(id),
//!     TIMESTAMP => Some(timestamp),
//!     SIGNATURE => Some(signature.as_str()),
//!     _ => None,
//! };
//! assert_eq!(secrets.verify(header, body, now).unwrap().id, "evt_1");
//! # Ok::<(), chapar_core::webhook::SecretError>(())
//! ```

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

/// The header with the id of the event: the same at every attempt.
pub const ID: &str = "webhook-id";
/// The header with the time of the attempt, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// The header with the signatures.
pub const SIGNATURE: &str = "webhook-signature";

/// How many seconds the time of an attempt may be off.
pub const TOLERANCE_SECONDS: i64 = 300;

const PREFIX: &str = "whsec_";
/// The length that the standard requires, in bytes.
const SECRET_SIZES: std::ops::RangeInclusive<usize> = 24..=64;

/// The secrets that sender and receiver share. All of them sign, and any of them is accepted.
#[derive(Clone)]
pub struct Secrets(Vec<Vec<u8>>);

/// Why a text is not a secret. It never repeats the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// There is none.
    #[error("there is no secret; write one such as whsec_… on a line of its own")]
    None,
    /// The wrong form.
    #[error(
        "line {0} is no secret: whsec_ and the base64 of 24 to 64 random bytes are expected, as \
         `echo whsec_$(openssl rand -base64 32)` makes it"
    )]
    Malformed(usize),
}

impl FromStr for Secrets {
    type Err = SecretError;

    /// One secret per line; empty lines and lines that begin with `#` are ignored.
    fn from_str(text: &str) -> Result<Self, SecretError> {
        let lines = text.lines().map(str::trim).enumerate();
        let secrets = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let secrets = secrets.map(|(number, line)| {
            let bytes = line.strip_prefix(PREFIX).and_then(|text| STANDARD.decode(text).ok());
            let bytes = bytes.filter(|bytes| SECRET_SIZES.contains(&bytes.len()));
            bytes.ok_or(SecretError::Malformed(number + 1))
        });
        let secrets = secrets.collect::<Result<Vec<_>, _>>()?;
        if secrets.is_empty() { Err(SecretError::None) } else { Ok(Secrets(secrets)) }
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

/// The verified identity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signed<'h> {
    /// The event.
    pub id: &'h str,
    /// When this attempt was made, in seconds since 1970.
    pub timestamp: i64,
}

/// Why a message is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookError {
    /// A header is missing.
    #[error("the header {0} is missing")]
    Missing(&'static str),
    /// The time is not a number of seconds.
    #[error("the header {TIMESTAMP} is not a number of seconds")]
    Malformed,
    /// The attempt is too old.
    #[error("the timestamp is {0} s old, more than {TOLERANCE_SECONDS} s")]
    Stale(i64),
    /// The attempt is in the future; one of the clocks is wrong.
    #[error("the timestamp is {0} s ahead, more than {TOLERANCE_SECONDS} s; compare the clocks")]
    Ahead(i64),
    /// No signature matches one of our secrets.
    #[error("no signature fits: the secret is another one, or the message was changed")]
    Forged,
    /// The very same attempt was accepted before.
    #[error("this attempt was taken before and is now replayed")]
    Replayed,
    /// The id was accepted before with another body.
    #[error("the id was taken before with another body")]
    OtherBody,
}

impl Secrets {
    /// The signatures of a message, one for each secret. `timestamp` is in seconds.
    pub fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let signatures = self.0.iter().map(|secret| {
            let bytes = mac(secret, id, timestamp, body).finalize().into_bytes();
            format!("v1,{}", STANDARD.encode(bytes))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }

    /// Verifies a message by its headers and its original bytes.
    ///
    /// Whether the same attempt came before is checked by [`Seen`].
    pub fn verify<'h>(
        &self,
        header: impl Fn(&str) -> Option<&'h str>,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Signed<'h>, WebhookError> {
        let need =
            |name| header(name).filter(|text| !text.is_empty()).ok_or(WebhookError::Missing(name));
        let (id, at, signatures) = (need(ID)?, need(TIMESTAMP)?, need(SIGNATURE)?);
        let timestamp: i64 = at.parse().map_err(|_| WebhookError::Malformed)?;
        let age = now.as_second().saturating_sub(timestamp);
        if age > TOLERANCE_SECONDS {
            return Err(WebhookError::Stale(age));
        }
        if age < -TOLERANCE_SECONDS {
            return Err(WebhookError::Ahead(age.saturating_neg()));
        }
        // Other signature versions are ignored, as the standard requires.
        let given = signatures.split(' ').filter_map(|signature| signature.strip_prefix("v1,"));
        for given in given.filter_map(|text| STANDARD.decode(text).ok()) {
            // Constant-time comparison.
            if self.0.iter().any(|secret| mac(secret, id, at, body).verify_slice(&given).is_ok()) {
                return Ok(Signed { id, timestamp });
            }
        }
        Err(WebhookError::Forged)
    }
}

fn mac(secret: &[u8], id: &str, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any size");
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    mac
}

/// What a receiver has applied: how to be called at least once and apply once.
///
/// This one forgets the oldest entries beyond its capacity, and everything when its process ends. A
/// service keeps the same data in a table, in the transaction in which it applies the event.
#[derive(Debug)]
pub struct Seen {
    capacity: usize,
    known: HashMap<String, Attempt>,
    order: VecDeque<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct Attempt {
    timestamp: i64,
    body: [u8; 32],
}

/// Whether an event is to be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Novelty {
    /// New: apply it, then [`Seen::remember`] it.
    New,
    /// Applied before: answer with a 2xx again.
    Known,
}

impl Seen {
    /// Remembers at most this many events.
    pub fn new(capacity: usize) -> Self {
        Seen { capacity: capacity.max(1), known: HashMap::new(), order: VecDeque::new() }
    }

    /// Whether a message that was [verified](Secrets::verify) is new.
    ///
    /// A sender that retries signs again, with a later timestamp. The same attempt a second time is
    /// a replayed copy, and the same id with another body is a forgery.
    pub fn judge(&self, signed: Signed<'_>, body: &[u8]) -> Result<Novelty, WebhookError> {
        match self.known.get(signed.id) {
            None => Ok(Novelty::New),
            Some(known) if known.body[..] != Sha256::digest(body)[..] => {
                Err(WebhookError::OtherBody)
            }
            Some(known) if known.timestamp == signed.timestamp => Err(WebhookError::Replayed),
            Some(_) => Ok(Novelty::Known),
        }
    }

    /// The event has been applied.
    pub fn remember(&mut self, signed: Signed<'_>, body: &[u8]) {
        let attempt = Attempt { timestamp: signed.timestamp, body: Sha256::digest(body).into() };
        if self.known.insert(signed.id.to_owned(), attempt).is_none() {
            self.order.push_back(signed.id.to_owned());
        }
        while self.order.len() > self.capacity {
            let Some(oldest) = self.order.pop_front() else { return };
            self.known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published vector of the standard's own libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const EVENT: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const AT: &str = "1614265330";
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const OTHER: &str = "whsec_c2VjcmV0LW9mLWEtcm90YXRlZC1lbmRwb2ludA==";

    fn secrets(text: &str) -> Secrets {
        text.parse().unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_614_265_330 + seconds).unwrap()
    }

    fn judge(
        signature: &str,
        timestamp: &str,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(), WebhookError> {
        let header = |name: &str| match name {
            ID => Some(EVENT),
            TIMESTAMP => Some(timestamp),
            SIGNATURE => Some(signature),
            _ => None,
        };
        secrets(SECRET).verify(header, body, now).map(|signed| assert_eq!(signed.id, EVENT))
    }

    #[test]
    fn the_published_vector_is_signed_and_taken() {
        assert_eq!(secrets(SECRET).sign(EVENT, AT, BODY), SIGNED);
        assert_eq!(judge(SIGNED, AT, BODY, at(0)), Ok(()));
    }

    #[test]
    fn one_of_several_signatures_is_enough_and_unknown_versions_are_passed_over() {
        let both = secrets(&format!("{OTHER}\n# the old one\n{SECRET}\n")).sign(EVENT, AT, BODY);
        assert_eq!(both.split(' ').count(), 2);
        assert_eq!(judge(&both, AT, BODY, at(0)), Ok(()));
        let mixed = format!("v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5B v1,oops {SIGNED}");
        assert_eq!(judge(&mixed, AT, BODY, at(0)), Ok(()));
    }

    #[test]
    fn what_was_changed_or_signed_by_another_is_forged() {
        let foreign = secrets(OTHER).sign(EVENT, AT, BODY);
        let asymmetric = SIGNED.replace("v1,", "v1a,");
        for signature in [foreign.as_str(), "v1,", "g0hM", "v1,!!!", asymmetric.as_str()] {
            assert_eq!(judge(signature, AT, BODY, at(0)), Err(WebhookError::Forged), "{signature}");
        }
        assert_eq!(judge(SIGNED, AT, b"{}", at(0)), Err(WebhookError::Forged));
        assert_eq!(judge(SIGNED, "1614265331", BODY, at(0)), Err(WebhookError::Forged));
    }

    #[test]
    fn a_time_that_is_off_by_more_than_five_minutes_is_turned_away() {
        assert_eq!(judge(SIGNED, AT, BODY, at(300)), Ok(()));
        assert_eq!(judge(SIGNED, AT, BODY, at(301)), Err(WebhookError::Stale(301)));
        assert_eq!(judge(SIGNED, AT, BODY, at(-300)), Ok(()));
        assert_eq!(judge(SIGNED, AT, BODY, at(-301)), Err(WebhookError::Ahead(301)));
        assert_eq!(judge(SIGNED, "today", BODY, at(0)), Err(WebhookError::Malformed));
        assert_eq!(
            judge(SIGNED, "-9223372036854775808", BODY, at(0)),
            Err(WebhookError::Stale(i64::MAX))
        );
        assert_eq!(judge("", AT, BODY, at(0)), Err(WebhookError::Missing(SIGNATURE)));
    }

    #[test]
    fn an_event_is_new_once_and_its_copies_are_told_apart() {
        let mut seen = Seen::new(2);
        let first = Signed { id: "a", timestamp: 1 };
        let again = Signed { id: "a", timestamp: 2 };
        assert_eq!(seen.judge(first, b"x"), Ok(Novelty::New));
        seen.remember(first, b"x");
        assert_eq!(seen.judge(again, b"x"), Ok(Novelty::Known));
        assert_eq!(seen.judge(first, b"x"), Err(WebhookError::Replayed));
        assert_eq!(seen.judge(again, b"y"), Err(WebhookError::OtherBody));
        for id in ["b", "c"] {
            seen.remember(Signed { id, timestamp: 1 }, b"x");
        }
        assert_eq!(seen.judge(again, b"x"), Ok(Novelty::New), "the oldest is forgotten");
    }

    #[test]
    fn a_wrong_secret_is_refused_without_being_repeated() {
        assert_eq!("\n# none\n".parse::<Secrets>().unwrap_err(), SecretError::None);
        let short = "whsec_c2VjcmV0";
        for wrong in [short, "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_not base64 at all!"] {
            let error = format!("\n{wrong}").parse::<Secrets>().unwrap_err();
            assert_eq!(error, SecretError::Malformed(2));
            assert!(!error.to_string().contains(wrong));
        }
        assert_eq!(format!("{:?}", secrets(SECRET)), "Secrets(1)");
    }
}
