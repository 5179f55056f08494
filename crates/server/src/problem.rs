//! Error responses: a page for people, RFC 9457 for programs.

use std::convert::Infallible;

use askama::Template;
use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use chapar::StoreError;
use serde::Serialize;
use tracing::warn;

/// What the client can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    Html,
    Json,
}

/// An error response.
#[derive(Debug)]
pub(crate) struct Problem {
    wants: Wants,
    status: StatusCode,
    detail: &'static str,
}

impl Wants {
    pub(crate) fn problem(self, status: StatusCode, detail: &'static str) -> Problem {
        Problem { wants: self, status, detail }
    }

    /// The store's error may name hosts and users: it goes to the log, not to the page.
    pub(crate) fn store_failed(self) -> impl FnOnce(StoreError) -> Problem {
        move |error| {
            warn!(%error, "a request of the console failed in the store");
            const DETAIL: &str = "The store cannot be read or written. See the log of the process.";
            self.problem(StatusCode::SERVICE_UNAVAILABLE, DETAIL)
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Wants {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let accept = parts.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let json = accept.is_some_and(|a| a.contains("json") && !a.contains("text/html"));
        Ok(if json { Wants::Json } else { Wants::Html })
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Details {
            title: &'static str,
            status: u16,
            detail: &'static str,
        }
        let title = self.status.canonical_reason().unwrap_or("Problem");
        let status = self.status.as_u16();
        let mut response = match self.wants {
            Wants::Html => page(&ProblemPage { title, status, detail: self.detail }),
            Wants::Json => {
                let mut response =
                    Json(Details { title, status, detail: self.detail }).into_response();
                let kind = HeaderValue::from_static("application/problem+json");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                response
            }
        };
        *response.status_mut() = self.status;
        response
    }
}

pub(crate) async fn not_found(wants: Wants) -> Problem {
    wants.problem(StatusCode::NOT_FOUND, "There is nothing at this address.")
}

pub(crate) async fn wrong_method(wants: Wants) -> Problem {
    wants.problem(StatusCode::METHOD_NOT_ALLOWED, "This address is for another kind of request.")
}

/// A template as an answer.
pub(crate) fn page(template: &impl Template) -> Response {
    match template.render() {
        Ok(text) => Html(text).into_response(),
        Err(error) => {
            warn!(%error, "a page could not be rendered");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    title: &'static str,
    status: u16,
    detail: &'static str,
}
