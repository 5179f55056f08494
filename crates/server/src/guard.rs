//! Access control: programs on this machine, and pages of this very origin.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{
    CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::problem::Wants;

/// Refuses requests that a foreign page may have caused.
///
/// A DNS name rebound to this machine's address still shows in `Host`; another site's form or
/// script shows in `Origin`.
pub(crate) async fn only_this_machine(
    State(address): State<IpAddr>,
    wants: Wants,
    request: Request,
    next: Next,
) -> Response {
    let Some(host) = host(&request) else {
        return wants
            .problem(StatusCode::BAD_REQUEST, "The request names no host.")
            .into_response();
    };
    if !is_this_machine(&host, address) {
        const FOREIGN: &str =
            "The console answers only to the name of this machine. Open it as localhost.";
        return wants.problem(StatusCode::FORBIDDEN, FOREIGN).into_response();
    }
    if !request.method().is_safe() && !is_same_origin(request.headers(), &host) {
        const CROSS: &str = "Changes may only be asked for by the console's own pages.";
        return wants.problem(StatusCode::FORBIDDEN, CROSS).into_response();
    }
    next.run(request).await
}

/// Headers that forbid external resources, inline scripts and framing.
pub(crate) async fn harden(request: Request, next: Next) -> Response {
    const HEADERS: [(HeaderName, &str); 4] = [
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // Not "no-referrer": with that, browsers send `Origin: null` from our own forms.
        (REFERRER_POLICY, "same-origin"),
    ];
    let mut response = next.run(request).await;
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn host(request: &Request) -> Option<Authority> {
    let header = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    match header {
        Some(host) => host.parse().ok(),
        None => request.uri().authority().cloned(),
    }
}

/// The port is ignored: it may be forwarded, and a foreign page cannot choose the host.
fn is_this_machine(host: &Authority, address: IpAddr) -> bool {
    let name = host.host().trim_start_matches('[').trim_end_matches(']');
    match name.parse::<IpAddr>() {
        Ok(ip) => ip.is_loopback() || (ip == address && !ip.is_unspecified()),
        Err(_) => {
            let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
    }
}

/// Browsers send `Origin` with every request that changes something; a client that sends none is
/// not a page.
fn is_same_origin(headers: &HeaderMap, host: &Authority) -> bool {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if site.is_some_and(|site| site != b"same-origin" && site != b"none") {
        return false;
    }
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let Ok(origin) = origin.to_str() else { return false };
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_its_names() {
        let bound: IpAddr = "192.168.1.7".parse().unwrap();
        for name in ["localhost", "LOCALHOST:80", "127.0.0.1:9", "[::1]:80", "192.168.1.7:8"] {
            assert!(is_this_machine(&name.parse().unwrap(), bound), "{name}");
        }
        for name in ["evil.example", "localhost.evil.example", "10.0.0.1", "0.0.0.0:80"] {
            assert!(!is_this_machine(&name.parse().unwrap(), bound), "{name}");
        }
        assert!(!is_this_machine(&"0.0.0.0:80".parse().unwrap(), "0.0.0.0".parse().unwrap()));
    }
}
