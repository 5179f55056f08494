//! `POST /internal/events/<topic-short>`: receives Pub/Sub pushes with a valid token.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::post;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::console::ConsoleError;
use crate::oidc::{BadToken, Expected, KeySet};

/// Where Google publishes its keys.
pub const GOOGLE_KEYS: &str = "https://www.googleapis.com/oauth2/v3/certs";
/// Pub/Sub pushes 10 MB at most, in base64.
const LARGEST: usize = 16 * 1024 * 1024;
/// Keys are fetched again after this,
const FRESH: Duration = Duration::from_secs(3600);
/// used at most this long while the issuer cannot be asked, because it may have withdrawn them,
const OLDEST: Duration = Duration::from_secs(24 * 3600);
/// and not fetched more often than this, whatever tokens arrive.
const SELDOM: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(10);

/// The answer to a pushed message with a valid token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushAnswer {
    /// Success only if the message is applied or stored (dead letter, parked, stashed).
    pub status: u16,
    /// A text for the broker's logs.
    pub said: String,
}

type Deliver =
    dyn Fn(String, Bytes) -> Pin<Box<dyn Future<Output = PushAnswer> + Send>> + Send + Sync;

/// The endpoint of push subscriptions.
#[derive(Clone)]
pub struct PushEndpoint(Arc<Inner>);

struct Inner {
    expected: Expected,
    keys: Keys,
    deliver: Box<Deliver>,
}

impl PushEndpoint {
    /// Tokens must have the expected claims and be signed by a key published at `keys_url`, such as
    /// [`GOOGLE_KEYS`]. Valid messages go to `deliver`, with the last part of the path.
    pub fn new<F>(
        expected: Expected,
        keys_url: impl Into<String>,
        deliver: impl Fn(String, Bytes) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = PushAnswer> + Send + 'static,
    {
        let (fresh, oldest) = (FRESH, OLDEST);
        let url = keys_url.into();
        let keys = Keys { url, seldom: SELDOM, fresh, oldest, state: Mutex::default() };
        let deliver: Box<Deliver> = Box::new(move |topic, body| Box::pin(deliver(topic, body)));
        PushEndpoint(Arc::new(Inner { expected, keys, deliver }))
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
}

async fn receive(
    State(endpoint): State<PushEndpoint>,
    Path(topic): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let inner = &*endpoint.0;
    let token = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match inner.keys.judge(token, &inner.expected, Timestamp::now()).await {
        Ok(()) => {}
        Err(Unjudged::Bad(why)) => {
            debug!(topic, %why, "pushed message refused");
            return (StatusCode::UNAUTHORIZED, why.to_string());
        }
        Err(Unjudged::NoKeys) => {
            let said = "cannot fetch the issuer's keys; retry later".to_owned();
            return (StatusCode::SERVICE_UNAVAILABLE, said);
        }
    }
    let answer = (inner.deliver)(topic, body).await;
    let status = StatusCode::from_u16(answer.status);
    (status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), answer.said)
}

/// The published keys: fetched when first needed, after a while, and when a token names an unknown
/// one, because issuers rotate keys without notice.
struct Keys {
    url: String,
    seldom: Duration,
    fresh: Duration,
    oldest: Duration,
    state: Mutex<Fetched>,
}

#[derive(Default)]
struct Fetched {
    keys: Option<(KeySet, Instant)>,
    tried: Option<Instant>,
}

enum Unjudged {
    Bad(BadToken),
    NoKeys,
}

impl Keys {
    async fn judge(
        &self,
        token: Option<&str>,
        expected: &Expected,
        now: Timestamp,
    ) -> Result<(), Unjudged> {
        if token.is_none() {
            return Err(Unjudged::Bad(BadToken::Missing));
        }
        let (known, old) = match &self.state().keys {
            Some((_, at)) if at.elapsed() > self.oldest => (None, true),
            Some((keys, at)) => (Some(keys.clone()), at.elapsed() > self.fresh),
            None => (None, true),
        };
        let verdict = known.as_ref().map(|keys| keys.judge(token, expected, now));
        let fetch = old || verdict == Some(Err(BadToken::UnknownKey));
        if !fetch || !self.may_try() {
            return verdict.map_or(Err(Unjudged::NoKeys), |verdict| verdict.map_err(Unjudged::Bad));
        }
        if let Some(fetched) = self.fetch().await {
            let verdict = fetched.judge(token, expected, now);
            self.state().keys = Some((fetched, Instant::now()));
            return verdict.map_err(Unjudged::Bad);
        }
        verdict.map_or(Err(Unjudged::NoKeys), |verdict| verdict.map_err(Unjudged::Bad))
    }

    /// Invalid tokens must not make us query the issuer all the time.
    fn may_try(&self) -> bool {
        let mut state = self.state();
        let may = state.tried.is_none_or(|tried| tried.elapsed() >= self.seldom);
        if may {
            state.tried = Some(Instant::now());
        }
        may
    }

    async fn fetch(&self) -> Option<KeySet> {
        let url = self.url.clone();
        let fetched = tokio::task::spawn_blocking(move || -> Result<KeySet, String> {
            let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).build();
            let mut answer = ureq::Agent::new_with_config(config)
                .get(&url)
                .call()
                .map_err(|error| error.to_string())?;
            let body = answer.body_mut().read_to_vec().map_err(|error| error.to_string())?;
            KeySet::read(&body).map_err(|error| format!("not a key set: {error}"))
        });
        match fetched.await {
            Ok(Ok(keys)) => Some(keys),
            Ok(Err(error)) => {
                warn!(url = self.url, error, "cannot fetch the issuer's keys");
                None
            }
            Err(_) => None,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, Fetched> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    const ACCOUNT: &str = "push@hotel.iam.gserviceaccount.com";

    /// An issuer that publishes whatever set is the current one, and counts who asks.
    async fn issuer(sets: Arc<Mutex<(String, u32)>>) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/certs", listener.local_addr().unwrap());
        let answer = move || {
            let mut sets = sets.lock().unwrap();
            sets.1 += 1;
            std::future::ready(sets.0.clone())
        };
        let router = Router::new().route("/certs", get(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    fn endpoint(url: &str, seldom: Duration) -> PushEndpoint {
        let mut endpoint = PushEndpoint::new(
            Expected::of_google("https://billing", ACCOUNT),
            url,
            |topic, body: Bytes| async move {
                PushAnswer { status: 202, said: format!("{topic}: {} bytes", body.len()) }
            },
        );
        Arc::get_mut(&mut endpoint.0).unwrap().keys.seldom = seldom;
        endpoint
    }

    async fn post(endpoint: &PushEndpoint, token: Option<&str>) -> (u16, String) {
        let mut request = Request::post("/internal/events/a.b.v1");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let request = request.body(Body::from("hello")).unwrap();
        let answer = endpoint.router().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = http_body_util::BodyExt::collect(answer.into_body()).await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn claims(expires_in: i64) -> serde_json::Value {
        let now = Timestamp::now().as_second();
        serde_json::json!({"iss": "https://accounts.google.com", "aud": "https://billing",
            "exp": now + expires_in, "iat": now - 10, "email": ACCOUNT, "email_verified": true})
    }

    #[tokio::test]
    async fn a_new_key_of_the_issuer_is_found_and_bad_tokens_get_401() {
        let (first, second) = (crate::oidc::Signer::new("k1"), crate::oidc::Signer::new("k2"));
        let sets = Arc::new(Mutex::new((first.set(), 0)));
        let url = issuer(sets.clone()).await;
        let endpoint = endpoint(&url, Duration::ZERO);
        let good = first.token(&claims(600));
        assert_eq!(post(&endpoint, Some(&good)).await, (202, "a.b.v1: 5 bytes".into()));
        assert_eq!(post(&endpoint, Some(&good)).await.0, 202);
        assert_eq!(sets.lock().unwrap().1, 1, "the keys are kept");
        // The issuer changes its key: the old one is gone.
        sets.lock().unwrap().0 = second.set();
        assert_eq!(post(&endpoint, Some(&second.token(&claims(600)))).await.0, 202);
        assert_eq!(post(&endpoint, Some(&good)).await.0, 401);
        let stale = second.token(&claims(-600));
        let unsigned = "Bearer eyJhbGciOiJub25lIn0.e30.";
        for bad in [None, Some(stale.as_str()), Some(unsigned), Some("Bearer x")] {
            let (status, said) = post(&endpoint, bad).await;
            assert_eq!(status, 401, "{said}");
        }
    }

    #[tokio::test]
    async fn keys_of_an_issuer_that_cannot_be_asked_end_some_time() {
        let signer = crate::oidc::Signer::new("k1");
        let sets = Arc::new(Mutex::new((signer.set(), 0)));
        let url = issuer(sets.clone()).await;
        let mut endpoint = endpoint(&url, Duration::ZERO);
        let good = signer.token(&claims(600));
        assert_eq!(post(&endpoint, Some(&good)).await.0, 202);
        sets.lock().unwrap().0 = "the issuer is down".into();
        let keys = &mut Arc::get_mut(&mut endpoint.0).unwrap().keys;
        keys.fresh = Duration::ZERO;
        assert_eq!(post(&endpoint, Some(&good)).await.0, 202, "the keys are still young");
        Arc::get_mut(&mut endpoint.0).unwrap().keys.oldest = Duration::ZERO;
        assert_eq!(post(&endpoint, Some(&good)).await.0, 503, "they may have been withdrawn");
        sets.lock().unwrap().0 = signer.set();
        assert_eq!(post(&endpoint, Some(&good)).await.0, 202);
    }

    #[tokio::test]
    async fn strangers_do_not_make_us_ask_and_without_keys_nobody_is_judged() {
        let (ours, strange) = (crate::oidc::Signer::new("k1"), crate::oidc::Signer::new("k9"));
        let sets = Arc::new(Mutex::new((ours.set(), 0)));
        let url = issuer(sets.clone()).await;
        let endpoint = endpoint(&url, Duration::from_secs(600));
        assert_eq!(post(&endpoint, Some(&ours.token(&claims(600)))).await.0, 202);
        for _ in 0..5 {
            assert_eq!(post(&endpoint, Some(&strange.token(&claims(600)))).await.0, 401);
        }
        assert_eq!(sets.lock().unwrap().1, 1);
        let nowhere = self::endpoint("http://127.0.0.1:1/certs", Duration::ZERO);
        assert_eq!(post(&nowhere, Some(&ours.token(&claims(600)))).await.0, 503);
        assert_eq!(post(&nowhere, None).await.0, 401);
    }
}
