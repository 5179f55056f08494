//! Queries that depend on the transport.

use chapar::{App, StoreError};
use chapar_sql::{Conn, Subscribed, Verdict};
use jiff::Timestamp;

use crate::transport::IN_THE_STORE;

pub(crate) enum Road {
    /// The log in the store, which has the cursors of each consumer.
    Store,
    /// A broker, with these consumers.
    Broker(Vec<Subscribed>),
}

impl Road {
    pub(crate) fn of(transport: &str, app: &App) -> Self {
        match transport {
            IN_THE_STORE => Road::Store,
            _ => Road::Broker(app.subscriptions()),
        }
    }

    pub(crate) async fn verdict(&self, conn: &mut Conn<'_>) -> Result<Verdict, StoreError> {
        match self {
            Road::Store => conn.verdict().await,
            Road::Broker(subscriptions) => conn.verdict_over_broker(subscriptions).await,
        }
    }

    pub(crate) async fn under_way(&self, conn: &mut Conn<'_>) -> Result<i64, StoreError> {
        let now = Timestamp::now();
        match self {
            Road::Store => conn.under_way(now).await,
            Road::Broker(subscriptions) => conn.under_way_over_broker(subscriptions, now).await,
        }
    }
}
