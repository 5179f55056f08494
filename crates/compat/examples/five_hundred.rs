//! How long a diff of 500 properties takes: `cargo run --release -p chapar-compat --example five_hundred`.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::time::Instant;

use chapar_compat::{InputError, Kind, Request, Schema, diff};
use serde_json::{Map, Value, json};

fn main() -> Result<(), InputError> {
    let compare = |name: &str, old: Value, new: Value| -> Result<(), InputError> {
        let started = Instant::now();
        let (old, new) =
            (Schema::from_value("old.json", old)?, Schema::from_value("new.json", new)?);
        let report = diff(&Request::new(&old, &new).kind(Kind::Integration));
        println!(
            "{name}: {:?}, {} findings, {} steps, {:?}",
            report.verdict,
            report.findings.len(),
            report.spent,
            started.elapsed()
        );
        Ok(())
    };
    let mut added = wide("string");
    added["properties"]["added"] = json!({ "type": "string" });
    compare("one field added", wide("string"), added)?;
    compare("every type changed", wide("string"), wide("integer"))?;
    compare("every field removed", wide("string"), json!({ "type": "object", "properties": {} }))
}

fn wide(kind: &str) -> Value {
    let members: Map<String, Value> =
        (0..500).map(|n| (format!("field{n}"), json!({ "type": kind, "minLength": 1 }))).collect();
    json!({ "type": "object", "required": ["field1", "field7"], "properties": members })
}
