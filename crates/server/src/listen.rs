//! Listening on an address, as every small server of this crate does.

use std::net::SocketAddr;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::ConsoleError;

/// Binds an address; port 0 chooses a free one. Returns the bound address, and the future to run.
pub(crate) async fn bind(
    router: Router,
    address: SocketAddr,
    closing: CancellationToken,
) -> Result<(SocketAddr, impl Future<Output = ()> + Send + use<>), ConsoleError> {
    let refused = |source: std::io::Error| ConsoleError::listen(address, source);
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    let server = axum::serve(listener, router).with_graceful_shutdown(closing.cancelled_owned());
    Ok((bound, async move {
        // The server retries a failed accept itself; it never ends with an error.
        let _ = server.await;
    }))
}
