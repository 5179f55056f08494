use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use crate::problem::{Problem, Wants};

/// The style sheet, the script and the icon, which are compiled in.
pub(crate) async fn asset(wants: Wants, Path(name): Path<String>) -> Result<Response, Problem> {
    let (kind, text) = match name.as_str() {
        "console.css" => ("text/css; charset=utf-8", include_str!("../assets/console.css")),
        "console.js" => ("text/javascript; charset=utf-8", include_str!("../assets/console.js")),
        "icon.svg" => ("image/svg+xml", include_str!("../assets/icon.svg")),
        _ => return Err(wants.problem(StatusCode::NOT_FOUND, "There is no such file.")),
    };
    // After a restart another version of the program may answer on the same address.
    Ok(([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")], text).into_response())
}
