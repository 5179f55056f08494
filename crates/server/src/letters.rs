use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use chapar::StoreError;
use chapar::sql::AuditEntry;
use serde_json::json;

use crate::console::Console;
use crate::problem::{Problem, Wants};

/// Asks for a dead letter to be delivered again.
pub(crate) async fn retry(
    State(console): State<Console>,
    wants: Wants,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    if !request_replay(&console, &id).await.map_err(wants.store_failed())? {
        const NOT_OPEN: &str =
            "There is no open dead letter of this id. It may be on its way again already.";
        return Err(wants.problem(StatusCode::CONFLICT, NOT_OPEN));
    }
    console.live().expire().await;
    Ok(match wants {
        Wants::Html => Redirect::to("/#dead-letters").into_response(),
        Wants::Json => {
            (StatusCode::ACCEPTED, Json(json!({"id": id, "status": "replay"}))).into_response()
        }
    })
}

async fn request_replay(console: &Console, id: &str) -> Result<bool, StoreError> {
    let store = console.chapar().store();
    let mut tx = store.begin_engine().await?;
    if !tx.conn().request_replay(id).await? {
        return Ok(false);
    }
    let entry = AuditEntry {
        // Nobody signs in yet, so nobody is known by name.
        actor: "console",
        action: "dead_letter.retry",
        target: id,
        reason: "",
        detail: "{}",
    };
    tx.conn().audit(&entry).await?;
    tx.commit().await?;
    store.nudge();
    Ok(true)
}
