//! Counts that depend on the transport.

use chapar::ops::{Census, Subscribed, census, under_way};
use chapar::{App, Store, StoreError};

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

    pub(crate) async fn census(&self, store: &Store) -> Result<Census, StoreError> {
        census(store, self.broker()).await
    }

    pub(crate) async fn under_way(&self, store: &Store) -> Result<i64, StoreError> {
        under_way(store, self.broker()).await
    }

    fn broker(&self) -> Option<&[Subscribed]> {
        match self {
            Road::Store => None,
            Road::Broker(subscriptions) => Some(subscriptions),
        }
    }
}
