//! What the examples share: where they run, and waiting for an event to arrive.

use std::time::Duration;

use chapar::prelude::*;

/// An app on the two URLs in `CHAPAR_STORE` and `CHAPAR_TRANSPORT`; by default in memory, without
/// a broker.
pub fn app() -> App {
    let url = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    App::connect(url("CHAPAR_STORE", "sqlite::memory:"), url("CHAPAR_TRANSPORT", "sql:"))
}

/// Waits until a query of a tenant gives this answer, for at most a minute.
pub async fn until(
    chapar: &Chapar,
    tenant: &Tenant,
    query: &'static str,
    expected: &str,
) -> Result<(), Failure> {
    let mut found = None;
    for _ in 0..1200 {
        let command = chapar.command(tenant);
        found = command.run(async |cx| cx.fetch_optional::<String>(query, params![]).await).await?;
        if found.as_deref() == Some(expected) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(Failure::terminal(format!("expected {expected:?}, found {found:?}: {query}")))
}
