//! `chapar bench`, driven as a user would. What it measures is not judged here: a test machine
//! has other things to do.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::process::{Command, Output};

use chapar_testkit::{need, servers};
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

#[test]
fn the_relay_the_append_the_consumer_and_the_way_to_the_broker_are_measured_on_real_servers() {
    need!(servers::postgres());
    need!(servers::nats());
    let report = |args: &[&str]| {
        let output = bench(&[args, &["--rounds", "1", "--format", "json"]].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let positive = |report: &Value, figures: &[&str]| {
        for figure in figures {
            assert!(report[figure].as_f64().is_some_and(|figure| figure > 0.0), "{report}");
        }
    };
    let relay = report(&["relay", "--events", "3000", "--naive-seconds", "1"]);
    positive(&relay, &["ratio", "ratio_stamped", "events_per_s", "raw_per_s", "naive_factor"]);
    positive(&relay, &["naive_eager_factor", "peak_rss_mib", "cpu_s_per_million"]);
    let letters = report(&["letters", "--letters", "3000", "--replayed", "1000"]);
    positive(&letters, &["replayed_per_s", "slowest_s", "command_rss_mib"]);
    assert_eq!(letters["applied"], 1000, "{letters}");
    assert_eq!((&letters["lost"], &letters["repeated"]), (&0.into(), &0.into()), "{letters}");
    for question in letters["questions"].as_array().unwrap() {
        let nothing = question["asked"].as_str().unwrap().contains("no-such-tenant");
        assert_eq!(question["answers"] == 0, nothing, "{question}");
    }
    let append = report(&["append", "--turn-ms", "100"]);
    assert!(append["loss_32"].is_number(), "{append}");
    let consume = report(&["consume", "--turn-ms", "300", "--messages", "2000"]);
    positive(&consume, &["over_handwritten", "set_over_handwritten", "rls_ratio"]);
    positive(&consume, &["batch_over_single_1", "poison_throughput_ratio", "peak_rss_mib"]);
    let latency = report(&["latency", "--rate", "100", "--turn-ms", "1000"]);
    positive(&latency, &["p50_ms", "p99_ms", "transaction_p99_ms", "p99_over_transaction"]);
}

#[test]
fn an_adapter_is_measured_against_the_bare_client_and_leaves_nothing_on_the_broker() {
    let broker = need!(servers::Launch::of(servers::Kind::Nats).start());
    let small = ["--rounds", "1", "--turn-ms", "200", "--format", "json"];
    let output = bench(&[&["transport", "--transport", broker.url()], &small[..]].concat());
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for figure in ["publish_ratio", "subscribe_ratio", "publish_per_s", "subscribe_per_s"] {
        assert!(report[figure].as_f64().is_some_and(|figure| figure > 0.0), "{report}");
    }
    assert_eq!(report["contestants"].as_array().map(Vec::len), Some(4), "{report}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let left = runtime.block_on(async {
        use futures_util::StreamExt;
        let client = async_nats::connect(broker.url()).await.unwrap();
        async_nats::jetstream::new(client).stream_names().count().await
    });
    assert_eq!(left, 0);

    let output = bench(&["transport", "--transport", "smoke://signals"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("use nats://host:port"), "{output:?}");
}
