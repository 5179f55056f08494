//! The cursors of the outbox: how far its rows were read, and what is republished before reading
//! on.

use chapar_core::port::Cursor;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::store::Backend;

/// The position in a PostgreSQL outbox.
///
/// Every row that the snapshot `seen` can see is done. A transaction that it cannot see was either
/// running, and then its id is in the snapshot's list or from its `xmax` up to `seen_xid`, or it
/// had no id yet, and then its sequence numbers are above `seen_seq`. A read covers both and
/// nothing else of the table.
///
/// While a window is open, the rows that `upto` can see are read in order of `seq`, as far as
/// `after`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct At {
    pub(super) seen: String,
    pub(super) seen_xid: u64,
    pub(super) seen_seq: i64,
    /// No row that `seen` can see has a number above this.
    pub(super) seen_top: i64,
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub(super) window: Option<Window>,
    #[serde(default)]
    pub(super) after: i64,
    /// Rows that committed late: of the numbers that were given out at `seen`, those that the
    /// window can see and `seen` could not are above the first of these and not above the second.
    /// `None`: they may be anywhere above the floor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) late: Option<(i64, i64)>,
    /// No row at or below it can become visible any more.
    pub(super) floor: i64,
    /// The floor rises to `floor_next` once all transactions below this id are over.
    pub(super) floor_xid: u64,
    pub(super) floor_next: i64,
    #[serde(default, skip_serializing_if = "Requests::is_none")]
    pub(super) requests: Requests,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Window {
    pub(super) upto: String,
    pub(super) upto_xid: u64,
    pub(super) upto_seq: i64,
    pub(super) upto_top: i64,
}

/// The republish requests of a track.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Requests {
    /// The last one that was started.
    pub(super) started: i64,
    /// How far it has come; `None` once it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) current: Option<Republishing>,
}

/// The progress of a republish request in a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Republishing {
    /// All rows up to here are republished.
    pub(super) after: i64,
    /// Up to here only rows that were parked and published since the request's time; above it all
    /// rows.
    pub(super) from: i64,
    /// The last row: none above it was published when the request was started.
    pub(super) upto: i64,
    /// The request's time, in microseconds since 1970.
    pub(super) since: i64,
}

impl Requests {
    pub(super) fn is_none(&self) -> bool {
        *self == Requests::default()
    }

    /// The request that is being carried out.
    pub(super) fn republishing(&self) -> Option<i64> {
        self.current.map(|_| self.started)
    }
}

impl Republishing {
    /// The share that is done, from 0 to 1.
    pub(super) fn share(&self) -> f64 {
        let (all, done) = (self.upto - self.from, self.after - self.from);
        if all <= 0 { 1.0 } else { (done.max(0) as f64 / all as f64).min(1.0) }
    }
}

/// The position of a track, on either database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Postgres(Box<At>),
    Sqlite(Line),
}

impl Place {
    pub(super) fn parse(backend: Backend, cursor: &Cursor) -> Result<Self, StoreError> {
        Ok(match backend {
            Backend::Postgres => Place::Postgres(Box::new(At::parse(cursor)?)),
            Backend::Sqlite => Place::Sqlite(Line::parse(cursor)?),
        })
    }

    pub(super) fn requests(&mut self) -> &mut Requests {
        match self {
            Place::Postgres(at) => &mut at.requests,
            Place::Sqlite(line) => &mut line.requests,
        }
    }

    /// No row behind this position has a higher number.
    pub(super) fn top(&self) -> i64 {
        match self {
            Place::Postgres(at) => at.top(),
            Place::Sqlite(line) => line.after,
        }
    }

    pub(super) fn to_cursor(&self) -> Cursor {
        match self {
            Place::Postgres(at) => at.to_cursor(),
            Place::Sqlite(line) => line.to_cursor(),
        }
    }
}

/// The rows that a cursor may have passed since it was at a position.
pub(super) struct Since<'a> {
    /// All numbers above this one,
    pub(super) after: i64,
    /// and the transactions that were running in this snapshot,
    pub(super) running: &'a str,
    /// up to this id.
    pub(super) running_below: u64,
}

/// Whether a transaction below the id `below` was running in a snapshot.
fn is_anything_running(snapshot: &str, below: u64) -> bool {
    let mut parts = snapshot.splitn(3, ':').skip(1);
    let xmax = parts.next().and_then(|xmax| xmax.parse().ok()).unwrap_or(0);
    let list = parts.next().is_none_or(|list| !list.is_empty());
    list || xmax < below
}

impl At {
    pub(super) fn parse(cursor: &Cursor) -> Result<Self, StoreError> {
        At::parse_text(&cursor.0)
    }

    pub(super) fn parse_text(cursor: &str) -> Result<Self, StoreError> {
        serde_json::from_str(cursor)
            .map_err(|_| StoreError::Cell { column: 0, expected: "a cursor of the outbox" })
    }

    pub(super) fn since(&self) -> Since<'_> {
        match &self.window {
            // A number above `upto_seq` may be visible and read, and one below it not yet.
            Some(window) => Since {
                after: self.after.min(window.upto_seq),
                running: &window.upto,
                running_below: window.upto_xid,
            },
            None => {
                Since { after: self.seen_seq, running: &self.seen, running_below: self.seen_xid }
            }
        }
    }

    /// Whether rows may have committed late, under numbers that were given out at `seen`.
    pub(super) fn may_come_late(&self) -> bool {
        self.floor < self.seen_seq && is_anything_running(&self.seen, self.seen_xid)
    }

    /// Where rows that committed late can be: above the first number, up to the second.
    pub(super) fn late(&self) -> (i64, i64) {
        let (after, upto) = self.late.unwrap_or((self.floor, self.seen_seq));
        (after.max(self.floor).max(self.after), upto.min(self.seen_seq))
    }

    pub(super) fn top(&self) -> i64 {
        self.after.max(self.seen_top)
    }

    /// The highest transaction id that this position knows of.
    pub(super) fn last_xid(&self) -> u64 {
        self.window.as_ref().map_or(self.seen_xid, |window| window.upto_xid.max(self.seen_xid))
    }

    pub(super) fn to_cursor(&self) -> Cursor {
        Cursor(serde_json::to_string(self).unwrap_or_default())
    }

    /// Whether both positions have the same new rows before them.
    pub(super) fn is_where(&self, other: &At) -> bool {
        let place = |at: &At| (at.seen.clone(), at.seen_xid, at.seen_seq, at.after);
        place(self) == place(other) && self.window == other.window
    }

    pub(super) fn take_floor(&mut self, other: &At) {
        self.floor = other.floor;
        self.floor_xid = other.floor_xid;
        self.floor_next = other.floor_next;
    }

    /// Closes the window: it is read to its end.
    pub(super) fn close(&mut self) {
        let Some(window) = self.window.take() else { return };
        if self.floor_xid < xmin(&window.upto) {
            self.floor = self.floor_next;
            self.floor_xid = window.upto_xid;
            self.floor_next = window.upto_seq;
        }
        self.seen = window.upto;
        self.seen_xid = window.upto_xid;
        self.seen_seq = window.upto_seq;
        self.seen_top = window.upto_top;
        self.after = 0;
        self.late = None;
    }
}

/// The first number of a snapshot's text: all transactions below it have ended.
fn xmin(snapshot: &str) -> u64 {
    snapshot.split(':').next().and_then(|xmin| xmin.parse().ok()).unwrap_or(0)
}

/// The position in a SQLite outbox. SQLite has one writer at a time, so the sequence is the commit
/// order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) after: i64,
    #[serde(default, skip_serializing_if = "Requests::is_none")]
    pub(super) requests: Requests,
}

impl Line {
    pub(super) fn parse(cursor: &Cursor) -> Result<Self, StoreError> {
        Line::parse_text(&cursor.0)
    }

    pub(super) fn parse_text(cursor: &str) -> Result<Self, StoreError> {
        serde_json::from_str(cursor)
            .map_err(|_| StoreError::Cell { column: 0, expected: "a cursor of the outbox" })
    }

    pub(super) fn to_cursor(self) -> Cursor {
        Cursor(serde_json::to_string(&self).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_says_whether_anything_was_running() {
        assert!(!is_anything_running("1:1:", 1));
        assert!(!is_anything_running("956:956:", 956));
        assert!(is_anything_running("956:960:957,958", 960));
        let began = "it began after the snapshot and before the read";
        assert!(is_anything_running("956:956:", 957), "{began}");
        assert!(is_anything_running("no snapshot", 1));
    }

    #[test]
    fn the_floor_rises_only_when_all_that_could_be_below_it_is_over() {
        let start = r#"{"seen":"1:1:","seen_xid":1,"seen_seq":0,"seen_top":0,"floor":0,"floor_xid":1,"floor_next":0}"#;
        let mut at = At::parse(&Cursor(start.into())).unwrap_or_else(|e| panic!("{e}"));
        let window = |upto: &str, xid, seq| {
            Some(Window { upto: upto.into(), upto_xid: xid, upto_seq: seq, upto_top: seq })
        };
        at.window = window("10:20:10", 21, 500);
        at.close();
        assert_eq!((at.floor, at.floor_xid, at.floor_next), (0, 21, 500));
        at.window = window("10:40:10", 41, 900);
        at.close();
        assert_eq!(at.floor, 0, "transaction 10 may still commit a row below 500");
        at.window = window("50:50:", 51, 1000);
        at.close();
        assert_eq!((at.floor, at.floor_next), (500, 1000));
        assert_eq!(At::parse(&at.to_cursor()).ok(), Some(at));
    }
}
