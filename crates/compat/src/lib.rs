//! Decides whether a change of an event's schema is compatible.
//!
//! Compatibility is set inclusion. *Backward*: every event of the old schema is accepted by the new one, so new
//! readers read old events. *Forward*: every event of the new schema is accepted by the old one. A verdict is
//! [`Compatible`](Verdict::Compatible) only where that is proved, [`Breaking`](Verdict::Breaking) only with an event
//! that an independent validator accepts on one side and refuses on the other, and [`Unknown`](Verdict::Unknown)
//! everywhere else, with the reason. On top of that come evolution rules, as a [`Policy`].
//!
//! ```
//! use chapar_compat::{Kind, Request, Schema, Verdict, diff};
//! use serde_json::json;
//!
//! let old = Schema::from_value("old.json", json!({ "properties": { "nights": { "type": "integer" } } }))?;
//! let new = Schema::from_value("new.json", json!({ "properties": { "nights": { "type": "string" } } }))?;
//! let report = diff(&Request::new(&old, &new).kind(Kind::Domain));
//! assert_eq!(report.verdict, Verdict::Breaking);
//! assert_eq!(report.findings[0].rule, "type-changed");
//! # Ok::<(), chapar_compat::InputError>(())
//! ```

mod accepts;
mod containers;
mod differ;
mod disjoint;
mod error;
mod facts;
mod formats;
mod include;
mod load;
mod members;
mod number;
mod obstacle;
pub mod proto;
#[cfg(test)]
mod random;
mod report;
mod request;
mod rules;
mod scalars;
mod search;
mod shape;
mod strings;
mod table;
mod witness;

pub use differ::diff;
pub use error::InputError;
pub use include::BUDGET;
pub use load::{LARGEST, Schema};
pub use report::{Finding, Report, Severity, Verdict};
pub use request::{Direction, Kind, Request, Writers};
pub use rules::{Policy, Rule};
