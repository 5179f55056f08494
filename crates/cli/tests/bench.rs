//! `chapar bench`, driven as a user would. What it measures is not judged here: a test machine
//! has other things to do.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::process::{Command, Output};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chapar")).arg("bench").args(args).output().unwrap()
}

#[test]
fn validate_reports_its_figures_as_json_and_as_a_table() {
    let output = bench(&["validate", "--turn-ms", "1", "--format", "json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for figure in ["mean_us", "over_bare"] {
        assert!(report[figure].as_f64().is_some_and(|figure| figure > 0.0), "{report}");
    }
    assert_eq!((&report["event_bytes"], &report["rounds"]), (&1024.into(), &5.into()));
    for line in report["contestants"].as_array().unwrap() {
        let mean = &line["mean_us"];
        let [min, median, max] = ["min", "median", "max"].map(|name| mean[name].as_f64().unwrap());
        assert!(0.0 < min && min <= median && median <= max, "{line}");
    }

    let output = bench(&["validate", "--turn-ms", "1"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("× bare") && table.contains("as a producer"), "{table}");
    assert!(!table.contains('\x1b') && !String::from_utf8_lossy(&output.stderr).contains('\r'));
}

#[test]
fn a_wrong_option_is_a_wrong_usage() {
    assert_eq!(bench(&["validate", "--turn-ms", "0"]).status.code(), Some(2));
    assert_eq!(bench(&["nothing"]).status.code(), Some(2));
}
