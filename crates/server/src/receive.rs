//! A receiver of pushed events, for trying pushes before a service exists.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use chapar_core::webhook::{Novelty, Secrets, Seen, Signed, WebhookError};
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::console::ConsoleError;

/// The largest accepted message, in bytes.
const LARGEST: usize = 32 * 1024 * 1024;
/// How many events are remembered.
const REMEMBERED: usize = 100_000;

/// A service that receives pushed events, verifies them, and reports them.
#[derive(Clone)]
pub struct Receiver(Arc<Inner>);

struct Inner {
    secrets: Secrets,
    trouble: Option<Trouble>,
    tell: Box<dyn Fn(&Received) + Send + Sync>,
    seen: Mutex<Seen>,
    asked: AtomicU64,
}

/// How a receiver simulates failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trouble {
    /// The status it answers instead of applying the event.
    pub status: u16,
    /// Every how many messages: 1 is all of them.
    pub every: u64,
}

/// A received message.
#[derive(Debug)]
pub struct Received {
    /// The last part of the address: the topic without the system's name.
    pub topic: String,
    /// The headers that are text.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
    /// The result.
    pub outcome: Answer,
    /// The answered status.
    pub status: u16,
}

/// The result of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// New, and applied.
    Applied,
    /// A duplicate.
    Duplicate,
    /// Failed on purpose.
    Trouble,
    /// Rejected by the signature check.
    Refused(WebhookError),
}

impl Receiver {
    /// A receiver with these secrets that calls `tell` for each message.
    pub fn new(
        secrets: Secrets,
        trouble: Option<Trouble>,
        tell: impl Fn(&Received) + Send + Sync + 'static,
    ) -> Self {
        let seen = Mutex::new(Seen::new(REMEMBERED));
        let asked = AtomicU64::new(0);
        Receiver(Arc::new(Inner { secrets, trouble, tell: Box::new(tell), seen, asked }))
    }

    /// The one route.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/internal/events/{topic}", post(receive))
            .layer(DefaultBodyLimit::max(LARGEST))
            .with_state(self.clone())
    }

    /// Binds an address; port 0 chooses a free one. Returns the bound address, and the future to
    /// run.
    pub async fn bind(
        &self,
        address: SocketAddr,
        closing: CancellationToken,
    ) -> Result<(SocketAddr, impl Future<Output = ()> + Send + use<>), ConsoleError> {
        crate::listen::bind(self.router(), address, closing).await
    }

    fn judge(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> (StatusCode, Answer) {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let signed = match self.0.secrets.verify(header, body, now) {
            Ok(signed) => signed,
            Err(refusal) => return (StatusCode::UNAUTHORIZED, Answer::Refused(refusal)),
        };
        self.apply(signed, body)
    }

    fn apply(&self, signed: Signed<'_>, body: &[u8]) -> (StatusCode, Answer) {
        let mut seen = self.0.seen.lock().unwrap_or_else(|p| p.into_inner());
        match seen.judge(signed, body) {
            Err(refusal) => return (StatusCode::UNAUTHORIZED, Answer::Refused(refusal)),
            Ok(Novelty::Known) => return (StatusCode::OK, Answer::Duplicate),
            Ok(Novelty::New) => {}
        }
        let asked = self.0.asked.fetch_add(1, Relaxed) + 1;
        if let Some(Trouble { status, every }) = self.0.trouble
            && asked.is_multiple_of(every.max(1))
        {
            let status = StatusCode::from_u16(status);
            return (status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), Answer::Trouble);
        }
        seen.remember(signed, body);
        (StatusCode::OK, Answer::Applied)
    }
}

async fn receive(
    State(receiver): State<Receiver>,
    Path(topic): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let (status, outcome) = receiver.judge(&headers, &body, Timestamp::now());
    let text = headers.iter().filter_map(|(name, value)| {
        Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
    });
    let received =
        Received { topic, headers: text.collect(), body, outcome, status: status.as_u16() };
    (receiver.0.tell)(&received);
    let said = match received.outcome {
        Answer::Applied => "applied".to_owned(),
        Answer::Duplicate => "applied before".to_owned(),
        Answer::Trouble => "refused on purpose".to_owned(),
        Answer::Refused(refusal) => refusal.to_string(),
    };
    (status, said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chapar_core::webhook::{ID, SIGNATURE, TIMESTAMP};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn signed(secret: &str, id: &str, at: i64, body: &[u8]) -> HeaderMap {
        let secrets: Secrets = secret.parse().unwrap();
        let signature = secrets.sign(id, &at.to_string(), body);
        let mut headers = HeaderMap::new();
        headers.insert(ID, id.parse().unwrap());
        headers.insert(TIMESTAMP, at.to_string().parse().unwrap());
        headers.insert(SIGNATURE, signature.parse().unwrap());
        headers
    }

    fn receiver(trouble: Option<Trouble>) -> Receiver {
        Receiver::new(SECRET.parse().unwrap(), trouble, |_| {})
    }

    #[test]
    fn what_is_forged_stale_replayed_or_changed_under_its_id_gets_401() {
        let receiver = receiver(None);
        let now = Timestamp::from_second(10_000).unwrap();
        let judge = |headers: HeaderMap, body: &[u8]| receiver.judge(&headers, body, now);
        let fine = signed(SECRET, "a", 10_000, b"x");
        assert_eq!(judge(fine.clone(), b"x"), (StatusCode::OK, Answer::Applied));
        let again = signed(SECRET, "a", 10_001, b"x");
        assert_eq!(judge(again, b"x"), (StatusCode::OK, Answer::Duplicate));
        let other = "whsec_c2VjcmV0LW9mLWEtcm90YXRlZC1lbmRwb2ludA==";
        for (headers, body, refusal) in [
            (fine, b"x", WebhookError::Replayed),
            (signed(SECRET, "a", 10_002, b"y"), b"y", WebhookError::OtherBody),
            (signed(other, "b", 10_000, b"x"), b"x", WebhookError::Forged),
            (signed(SECRET, "b", 10_000, b"x"), b"y", WebhookError::Forged),
            (signed(SECRET, "b", 9_699, b"x"), b"x", WebhookError::Stale(301)),
            (HeaderMap::new(), b"x", WebhookError::Missing(ID)),
        ] {
            let expected = (StatusCode::UNAUTHORIZED, Answer::Refused(refusal));
            assert_eq!(judge(headers, body), expected);
        }
    }

    #[test]
    fn a_broken_service_remembers_nothing_of_what_it_refused() {
        let receiver = receiver(Some(Trouble { status: 503, every: 2 }));
        let now = Timestamp::from_second(10_000).unwrap();
        let outcomes = ["a", "b", "b"].map(|id| {
            let headers = signed(SECRET, id, 10_000, b"x");
            receiver.judge(&headers, b"x", now)
        });
        let broken = (StatusCode::SERVICE_UNAVAILABLE, Answer::Trouble);
        let applied = || (StatusCode::OK, Answer::Applied);
        assert_eq!(outcomes, [applied(), broken, applied()]);
    }
}
