//! Checks at the server's monitoring port whether it syncs before it acknowledges. A client
//! connection can ask only in the system account.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// When a server writes acknowledged messages to disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Syncing {
    /// Before it acknowledges.
    Always,
    /// At this interval: a power cut loses what came since.
    Every(Duration),
    /// Not known, and why.
    Unknown(String),
}

pub(super) async fn ask(monitor: &str, timeout: Duration) -> Syncing {
    // The port has no logins; one in the address must not reach the log.
    let host = monitor.trim_start_matches("http://").trim_end_matches('/');
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    match tokio::time::timeout(timeout, get(host)).await {
        Ok(Ok(answer)) => read(&answer),
        Ok(Err(error)) => Syncing::Unknown(format!("{host} does not answer: {error}")),
        Err(_) => Syncing::Unknown(format!("{host} does not answer in time")),
    }
}

async fn get(host: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(host).await?;
    let request = format!("GET /jsz HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn read(answer: &str) -> Syncing {
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let config = serde_json::from_str::<Value>(body).map(|jsz| jsz["config"].clone());
    let Ok(config) = config else { return Syncing::Unknown("the answer is not JSON".into()) };
    match (config["sync_always"].as_bool(), config["sync_interval"].as_u64()) {
        (Some(true), _) => Syncing::Always,
        (_, Some(nanoseconds)) => Syncing::Every(Duration::from_nanos(nanoseconds)),
        _ => Syncing::Unknown("the server does not say".into()),
    }
}
