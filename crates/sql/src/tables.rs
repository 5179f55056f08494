//! Handles: the statements of each family of tables, on a transaction.
//!
//! A handle is borrowed from a transaction for one call: `tx.letters().bury(&letter)`. [`Tables`]
//! is a trait so that only those who import it reach our tables; the handlers of users, who get a
//! [`Tx`] as well, do not.

use crate::conn::{Conn, Tx};

macro_rules! handles {
    ($($(#[$doc:meta])* $handle:ident by $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $handle<'t>(pub(crate) Conn<'t>);
        )*

        /// A transaction whose tables can be reached.
        pub trait Tables {
            /// Borrows the connection.
            fn conn(&mut self) -> Conn<'_>;

            $(
                $(#[$doc])*
                fn $name(&mut self) -> $handle<'_> {
                    $handle(self.conn())
                }
            )*
        }
    };
}

handles! {
    /// What a consumer has applied: claims, intents with their responses, marks and holes.
    Inbox by inbox;
    /// Events that arrived before their saga.
    Stash by stash;
    /// Dead letters, the followers parked behind them, and the replays of many.
    Letters by letters;
    /// Sagas and their history.
    Sagas by sagas;
    /// The timers of sagas.
    Timers by timers;
    /// Calls to vendors.
    Effects by effects;
    /// What operators did.
    AuditLog by audit_log;
    /// Consumers: what they declare, what they read, whether they are paused.
    Consumers by consumers;
    /// How far subscriptions have read the log.
    LogCursors by cursors;
    /// Read models and their builds.
    Projections by projections;
    /// The outbox: appending, what is parked or in quarantine, what is published again.
    OutboxRows by outbox_rows;
    /// What belongs to a correlation, an aggregate or an intent.
    Story by story;
    /// Counts over all tables.
    Surveys by survey;
}

impl Tables for Tx {
    fn conn(&mut self) -> Conn<'_> {
        self.borrow()
    }
}

impl Tables for Conn<'_> {
    fn conn(&mut self) -> Conn<'_> {
        match self {
            #[cfg(feature = "sqlite")]
            Conn::Sqlite(conn) => Conn::Sqlite(conn),
            Conn::Postgres(conn) => Conn::Postgres(conn),
        }
    }
}
