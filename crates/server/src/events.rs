use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream;

use crate::console::Console;

/// How long a browser waits before it connects again.
const RETRY: Duration = Duration::from_secs(1);
const HEARTBEAT: Duration = Duration::from_secs(15);

/// A snapshot at once and one per second from then on, until the console closes.
pub(crate) async fn events(State(console): State<Console>) -> impl IntoResponse {
    let watch = console.live().watch();
    let stream = stream::unfold((console, watch, true), async |(console, mut watch, first)| {
        let event = if first {
            let snapshot = console.live().snapshot();
            let snapshot = console.closing().run_until_cancelled(snapshot).await?;
            Event::default().retry(RETRY).data(snapshot.to_json())
        } else {
            let next = async {
                watch.changed().await.ok()?;
                watch.borrow_and_update().clone()
            };
            let json = console.closing().run_until_cancelled(next).await??;
            Event::default().data(&*json)
        };
        Some((Ok::<_, Infallible>(event), (console, watch, false)))
    });
    let heartbeat = KeepAlive::new().interval(HEARTBEAT);
    ([(CACHE_CONTROL, "no-store")], Sse::new(stream).keep_alive(heartbeat))
}

/// The same, once.
pub(crate) async fn snapshot(State(console): State<Console>) -> impl IntoResponse {
    ([(CACHE_CONTROL, "no-store")], Json(console.live().snapshot().await))
}
