//! What a consumer does when something is missing.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chapar_core::port::BoxFuture;

use crate::consumer::HandlerFn;
use crate::cx::Cx;
use crate::failure::Failure;

/// What to do with an event when one that belongs before it has not come.
///
/// Whatever is left out is recorded, and applied if it comes after all.
#[derive(Clone)]
#[non_exhaustive]
pub enum Gap {
    /// Wait this long, then go on without.
    Wait {
        /// The longest wait, from when the event was first looked at.
        limit: Duration,
    },
    /// Go on at once.
    Accept,
    /// Wait this long, then have the consumer brought up to date by [`Gap::fetch`]'s function.
    #[doc(hidden)]
    Fetch { limit: Duration, fetch: Arc<Fetch> },
}

pub(crate) type Fetch =
    dyn for<'a> Fn(Missing, &'a mut Cx) -> BoxFuture<'a, Result<(), Failure>> + Send + Sync;

/// What is missing before an event.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Missing {
    /// The ordering key.
    pub key: String,
    /// The number of the event that has come: its stamp, or the version of its aggregate.
    pub number: i64,
}

impl Gap {
    /// Waits for `limit`, then calls `fetch` in the transaction of the event that has come and
    /// before its handler, to bring the consumer's rows up to date. If it fails, the event has
    /// failed.
    pub fn fetch<F>(limit: Duration, fetch: F) -> Self
    where
        F: for<'a> HandlerFn<'a, Missing> + 'static,
    {
        let fetch: Arc<Fetch> = Arc::new(move |missing, cx: &mut Cx| -> BoxFuture<'_, _> {
            Box::pin(fetch.call(missing, cx))
        });
        Gap::Fetch { limit, fetch }
    }

    pub(crate) fn limit(&self) -> Duration {
        match self {
            Gap::Wait { limit } | Gap::Fetch { limit, .. } => *limit,
            Gap::Accept => Duration::ZERO,
        }
    }
}

impl Default for Gap {
    fn default() -> Self {
        Gap::Wait { limit: Duration::from_secs(30) }
    }
}

impl fmt::Debug for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gap::Wait { limit } => f.debug_struct("Wait").field("limit", limit).finish(),
            Gap::Accept => f.write_str("Accept"),
            Gap::Fetch { limit, .. } => {
                f.debug_struct("Fetch").field("limit", limit).finish_non_exhaustive()
            }
        }
    }
}
