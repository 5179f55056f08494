//! Push: events to a service in any language, over HTTP and signed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chapar_core::Profile;
use chapar_core::machine::failure::FailureKind;
use chapar_core::port::{BoxFuture, Clock};
use chapar_core::webhook::{ID, SIGNATURE, Secrets, TIMESTAMP};
use chapar_sql::Arrival;

use crate::failure::Failure;

/// A service that is called for each event: `POST <base>/internal/events/<topic-short>`.
///
/// The body is the message as it lies on the wire. Of its headers, those of CloudEvents (`ce-…`),
/// of Chapar (`chapar-…`), of tracing and the content type are headers of the request; see
/// [`Endpoint::forward`]. Standard Webhooks' three say who sent it. A 2xx means that the event is applied there. What
/// another answer leads to is written at [`Endpoint::new`].
#[derive(Clone)]
pub struct Endpoint(Arc<Inner>);

struct Inner {
    base: String,
    secrets: Secrets,
    agent: ureq::Agent,
    forwarded: Vec<String>,
}

/// Why an address is none that events can be pushed to, or a header none that goes along.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{address:?}: {reason}")]
pub struct EndpointError {
    address: String,
    reason: &'static str,
}

impl Endpoint {
    /// A service at `http://host:port` or `https://host`, with a path before ours or none.
    ///
    /// | answer | meaning |
    /// | --- | --- |
    /// | 2xx | applied |
    /// | 400, 410, 413, 415, 422 | this event never: a dead letter at once |
    /// | anything else, or none | not now: tried again as the consumer says, then a dead letter |
    ///
    /// Redirects are not followed: a signature is for the one it was made for.
    pub fn new(base: &str, secrets: Secrets) -> Result<Self, EndpointError> {
        check(base).map_err(|reason| EndpointError { address: shown(base), reason })?;
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_idle_connections_per_host(64)
            .user_agent(concat!("chapar/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let base = base.trim_end_matches('/').to_owned();
        Ok(Endpoint(Arc::new(Inner { base, secrets, agent, forwarded: Vec::new() })))
    }

    /// Sends further headers of the event along, by their names. Headers that a server acts upon,
    /// such as `authorization`, `cookie` and `host`, are refused: an event must not decide as whom
    /// a request is made.
    pub fn forward<N: Into<String>>(
        self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, EndpointError> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        if let Some(name) = names.iter().find(|name| !may_be_forwarded(name)) {
            let reason = "this header of an event is never sent";
            return Err(EndpointError { address: name.clone(), reason });
        }
        let Inner { base, secrets, agent, .. } = &*self.0;
        let (base, secrets, agent) = (base.clone(), secrets.clone(), agent.clone());
        Ok(Endpoint(Arc::new(Inner { base, secrets, agent, forwarded: names })))
    }

    /// Where the events of a topic go. The version stays, as in the names of subscriptions.
    pub fn address(&self, profile: &Profile, topic: &str) -> String {
        format!("{}/internal/events/{}", self.0.base, profile.short(topic))
    }

    /// Calls the service, outside of any transaction.
    pub(crate) fn call(
        &self,
        profile: &Profile,
        clock: &dyn Clock,
        consumer: &str,
        arrival: &Arrival,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<(), Failure>> {
        let url = self.address(profile, &arrival.topic);
        // The signature holds the time, so every attempt is signed again.
        let headers = self.headers(clock.now().as_second(), consumer, arrival);
        let (endpoint, body) = (self.clone(), arrival.body.clone());
        Box::pin(async move {
            let headers = headers?;
            let call = move || endpoint.post(&url, &headers, &body, timeout);
            let called = tokio::task::spawn_blocking(call).await;
            called.unwrap_or_else(|error| Err(Failure::retry(error)))
        })
    }

    fn headers(
        &self,
        now: i64,
        consumer: &str,
        arrival: &Arrival,
    ) -> Result<Vec<(String, String)>, Failure> {
        let id = &arrival.event_id;
        // Where a part of the id could be read as the time, two messages had one signature.
        let like_time = id.split('.').skip(1).any(|part| part.parse::<i64>().is_ok());
        if like_time || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Failure::terminal(format!("the id {id:?} cannot be a {ID}")));
        }
        let given = arrival.headers.iter().filter(|(name, _)| self.passes(name));
        let mut headers: Vec<_> =
            given.map(|(name, value)| (name.to_owned(), printable(value))).collect();
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            headers.push(("content-type".into(), "application/json".into()));
        }
        let at = now.to_string();
        let signature = self.0.secrets.sign(id, &at, &arrival.body);
        headers.extend([
            ("chapar-topic".into(), printable(&arrival.topic)),
            ("chapar-consumer".into(), printable(consumer)),
            (ID.into(), id.clone()),
            (TIMESTAMP.into(), at),
            (SIGNATURE.into(), signature),
        ]);
        Ok(headers)
    }

    /// Whether a header of the event goes along. A list of what may, because a list of what may not
    /// is never complete.
    fn passes(&self, name: &str) -> bool {
        const NAMES: [&str; 3] = ["content-type", "traceparent", "tracestate"];
        const PREFIXES: [&str; 3] = ["ce-", "ce_", "chapar-"];
        let lower = name.to_ascii_lowercase();
        let known = NAMES.contains(&lower.as_str())
            || PREFIXES.iter().any(|prefix| lower.starts_with(prefix));
        let forwarded = || self.0.forwarded.iter().any(|wanted| wanted.eq_ignore_ascii_case(name));
        may_be_forwarded(name) && (known || forwarded())
    }

    fn post(
        &self,
        url: &str,
        headers: &[(String, String)],
        body: &[u8],
        timeout: Duration,
    ) -> Result<(), Failure> {
        const MOST_SAID: u64 = 300;
        let mut request = self.0.agent.post(url).config().timeout_global(Some(timeout)).build();
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let mut answer = request.send(body).map_err(|error| match error {
            ureq::Error::Timeout(_) => Failure::new(
                FailureKind::Timeout,
                format!("POST {url}: no answer within {timeout:?}"),
            ),
            error => Failure::retry(format!("POST {url}: {error}")),
        })?;
        let status = answer.status().as_u16();
        // Read in any case, so that the connection can be used again.
        let said = answer.body_mut().with_config().limit(64 * 1024).read_to_vec();
        let Some(kind) = judge(status) else { return Ok(()) };
        let said = String::from_utf8_lossy(&said.unwrap_or_default()).trim().to_owned();
        let said: String = said.chars().take(MOST_SAID as usize).collect();
        let advice = if (300..400).contains(&status) { "; redirects are not followed" } else { "" };
        let colon = if said.is_empty() { "" } else { ": " };
        Err(Failure::new(kind, format!("POST {url} answered {status}{advice}{colon}{said}")))
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&self.0.base).finish()
    }
}

/// What an answer means; none is success.
fn judge(status: u16) -> Option<FailureKind> {
    match status {
        200..300 => None,
        // The service has looked at it: the same bytes will not do tomorrow either.
        400 | 410 | 413 | 415 | 422 => Some(FailureKind::RuleViolation),
        // A wrong secret, path or login among them, which people put right.
        _ => Some(FailureKind::Transient),
    }
}

/// Whether a header may come from an event at all: none of the connection, of a login or of a proxy,
/// and no signature.
fn may_be_forwarded(name: &str) -> bool {
    const NEVER: [&str; 16] = [
        "authorization",
        "connection",
        "content-length",
        "cookie",
        "expect",
        "forwarded",
        "host",
        "keep-alive",
        "origin",
        "proxy-authorization",
        "referer",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    ];
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let lower = name.to_ascii_lowercase();
    !name.is_empty()
        && name.bytes().all(token)
        && !NEVER.contains(&lower.as_str())
        && !lower.starts_with("webhook-")
        && !lower.starts_with("x-forwarded-")
        && !["chapar-topic", "chapar-consumer"].contains(&lower.as_str())
}

/// What HTTP cannot carry is written as `%XX`, as CloudEvents does it.
fn printable(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b' '..=b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn check(base: &str) -> Result<(), &'static str> {
    let rest = base.strip_prefix("https://").or_else(|| base.strip_prefix("http://"));
    let rest = rest.ok_or("write it as http://host:port or https://host")?;
    let authority = rest.split('/').next().unwrap_or_default();
    if authority.contains('@') {
        return Err("leave the login out; the signature says who calls");
    }
    if rest.contains(['?', '#']) || rest.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("leave out what follows the path");
    }
    let parsed: Result<ureq::http::Uri, _> = base.parse();
    match parsed.ok().and_then(|uri| uri.host().map(str::len)) {
        None | Some(0) => Err("it names no host"),
        Some(_) => Ok(()),
    }
}

/// The address without a login.
fn shown(base: &str) -> String {
    match (base.split_once("://"), base.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        (None, Some((_, host))) => host.to_owned(),
        _ => base.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap()
    }

    #[test]
    fn an_address_is_checked_before_anything_is_sent_and_its_login_is_not_repeated() {
        for fine in ["http://127.0.0.1:8080", "https://billing.internal/hooks/", "http://[::1]:80"]
        {
            assert!(Endpoint::new(fine, secrets()).is_ok(), "{fine}");
        }
        for wrong in
            ["", "billing:80", "ftp://x", "http://", "http:///x", "https://x?a=b", "https://a b"]
        {
            assert!(Endpoint::new(wrong, secrets()).is_err(), "{wrong}");
        }
        let said = Endpoint::new("https://me:geheim@x", secrets()).unwrap_err().to_string();
        assert!(said.contains("leave the login out") && !said.contains("geheim"), "{said}");
    }

    #[test]
    fn only_listed_headers_of_the_event_go_along() {
        let endpoint = Endpoint::new("http://x", secrets()).unwrap().forward(["Guest"]).unwrap();
        let given = [
            ("ce-id", "1"),
            ("Host", "evil"),
            ("Webhook-Signature", "v1,x"),
            ("bad name", "x"),
            ("guest", "Äva"),
            ("Content-Type", "application/cloudevents+json"),
            ("Authorization", "Bearer x"),
            ("cookie", "session=1"),
            ("X-Forwarded-For", "10.0.0.1"),
            ("x-api-key", "x"),
            ("chapar-topic", "other"),
        ];
        let arrival = Arrival {
            event_id: "e1".into(),
            tenant: "acme".into(),
            topic: "melmastoon.reservation.booking.held.v1".into(),
            ordering_key: None,
            partition: 0,
            offset: 0,
            headers: given.into(),
            body: "{}".into(),
        };
        let headers = endpoint.headers(7, "billing", &arrival).unwrap();
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "ce-id",
            "guest",
            "Content-Type",
            "chapar-topic",
            "chapar-consumer",
            ID,
            TIMESTAMP,
            SIGNATURE,
        ];
        assert_eq!(names, expected);
        assert_eq!(headers[1].1, "%C3%84va");
        for never in ["authorization", "Cookie", "host", "x-forwarded-for", "webhook-id", "a b"] {
            let endpoint = Endpoint::new("http://x", secrets()).unwrap();
            assert!(endpoint.forward([never]).is_err(), "{never}");
        }
        let dotted = Arrival { event_id: "e1.5".into(), ..arrival };
        assert!(endpoint.headers(7, "billing", &dotted).is_err());
    }

    #[test]
    fn only_what_the_service_has_looked_at_and_refused_is_not_tried_again() {
        for status in [200, 202, 204] {
            assert_eq!(judge(status), None);
        }
        for status in [400, 410, 413, 415, 422] {
            assert_eq!(judge(status).map(FailureKind::is_retryable), Some(false), "{status}");
        }
        for status in [301, 401, 403, 404, 408, 409, 425, 429, 500, 503] {
            assert_eq!(judge(status).map(FailureKind::is_retryable), Some(true), "{status}");
        }
    }
}
