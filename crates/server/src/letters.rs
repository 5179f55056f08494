use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use chapar::ops::{Letters, Operator, TriageError};
use serde_json::json;

use crate::console::Console;
use crate::problem::{Problem, Wants};

/// Requests the replay of a dead letter.
pub(crate) async fn retry(
    State(console): State<Console>,
    wants: Wants,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    // There is no sign-in yet, so the operator has no name.
    let by = Operator { name: "console", reason: "" };
    match Letters::of(console.chapar().store()).retry(&id, by).await {
        Ok(()) => {}
        Err(TriageError::Store(error)) => return Err(wants.store_failed()(error)),
        Err(refused) => return Err(wants.problem(StatusCode::CONFLICT, why(&refused))),
    }
    console.live().expire().await;
    Ok(match wants {
        Wants::Html => Redirect::to("/#dead-letters").into_response(),
        Wants::Json => {
            (StatusCode::ACCEPTED, Json(json!({"id": id, "status": "replay"}))).into_response()
        }
    })
}

fn why(refused: &TriageError) -> &'static str {
    match refused {
        TriageError::Poison(_) => {
            "This dead letter is poison, which is never replayed. Quarantine or delete it, or \
             classify it again, with `chapar dlq`."
        }
        TriageError::Unfixed { .. } => {
            "No fix is recorded for this dead letter, and its class requires one. Record it with \
             `chapar dlq classify`."
        }
        TriageError::Forgotten(_) => {
            "This dead letter is older than the inbox's retention, so its event could be applied \
             twice. `chapar dlq replay --reapply` does it."
        }
        _ => "There is no open dead letter of this id. It may be on its way again already.",
    }
}
