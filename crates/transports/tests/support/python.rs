//! Programs in Python against the same broker, with packages from its registry.

use std::path::{Path, PathBuf};
use std::process::Command;

use chapar_core::dialect::{CloudEvents, Dialect, Message};
use chapar_core::port::{Delivery, Outgoing};
use chapar_testkit::servers;
use serde_json::{Value, json};

/// The programs of `examples/cloudevents`, and the packages they need.
pub(crate) struct Python {
    packages: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl Python {
    /// Gets packages the first time, into the cache of the test servers: those that `pins/python`
    /// of the testkit lists under a name, with their hashes. Where they cannot be had the test is
    /// skipped by name; in CI that is an error.
    pub(crate) fn with(test: &str, wanted: &str) -> Option<Self> {
        match servers::python_packages(wanted) {
            Ok(packages) => Some(Python { packages, variables: Vec::new() }),
            Err(why) if std::env::var("CI").is_ok_and(|ci| ci == "true") => {
                panic!("{test} needs {wanted} for Python: {why}");
            }
            Err(why) => {
                use std::io::Write;
                let _ = writeln!(std::io::stderr(), "skipped {test}: {why}");
                None
            }
        }
    }

    /// Sets a variable for the programs.
    #[allow(dead_code, reason = "each transport takes what it needs")]
    pub(crate) fn set(mut self, variable: &'static str, value: &str) -> Self {
        self.variables.push((variable, value.to_owned()));
        self
    }

    /// Runs a program to its end; returns what it printed.
    pub(crate) fn run(&self, script: &str, args: &[&str]) -> String {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cloudevents");
        run(self.command().arg(examples.join(script)).args(args)).unwrap()
    }

    /// Runs the lines of a program to their end.
    #[allow(dead_code, reason = "each transport takes what it needs")]
    pub(crate) fn run_lines(&self, lines: &str, args: &[&str]) {
        run(self.command().args(["-c", lines]).args(args)).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", &self.packages).envs(self.variables.iter().cloned());
        command
    }
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("python3 does not start: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// An event as the SDK is to read it.
pub(crate) fn event_of(topic: &str) -> Value {
    json!({
        "specversion": "1.0", "id": "rs-1", "type": topic, "source": "/services/reservation-service",
        "time": "2026-01-02T03:04:05.5Z", "subject": "Zimmer „7“ & 8 %", "tenantid": "acme",
        "correlationid": "c-1", "partitionkey": "acme:res_1", "datacontenttype": "application/json",
        "data": {"reservationId": "res_1", "nights": 2, "total": 10.50, "guest": "Ägäis"},
    })
}

/// The event in binary and in structured mode, as messages of a transport.
pub(crate) fn written(
    event: &Value,
    binary: CloudEvents,
    message: impl Fn() -> Outgoing,
) -> Vec<Outgoing> {
    let envelope = CloudEvents::Structured.decode(&Message::from_body(event.to_string())).unwrap();
    let written = |dialect: CloudEvents| {
        let written = dialect.encode(&envelope).unwrap();
        Outgoing { headers: written.headers, body: written.body, ..message() }
    };
    [binary, CloudEvents::Structured].map(written).into()
}

/// The SDK has read both, every attribute and the data.
pub(crate) fn check_read(event: &Value, printed: &str) {
    let read: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read.len(), 2, "{printed}");
    for read in read {
        assert_eq!(read["data"], event["data"], "{read:#}");
        for (name, value) in event.as_object().unwrap() {
            let expected = match name.as_str() {
                "data" => continue,
                "time" => json!("2026-01-02T03:04:05.500000+00:00"),
                _ => value.clone(),
            };
            assert_eq!(read["attributes"][name], expected, "{name} in {read:#}");
        }
    }
}

/// We have read the `number`th that the SDK wrote.
pub(crate) fn check_written(number: usize, binary: CloudEvents, delivery: Delivery) {
    assert_eq!(delivery.key.as_deref(), Some("acme:res_1"));
    let message =
        Message { topic: Some(delivery.topic), headers: delivery.headers, body: delivery.body };
    // One dialect for both: a structured event is known by its content type.
    let event = binary.decode(&message).unwrap();
    assert_eq!(event.id.to_string(), format!("py-{number}"));
    assert_eq!(event.producer.service, "front-desk");
    assert_eq!(event.ordering_key.as_deref(), Some("acme:res_1"));
    assert_eq!(event.aggregate.as_ref().map(|a| a.id.as_str()), Some("Zimmer „7“ & 8 %"));
    assert_eq!(event.occurred_at.to_string(), "2026-01-02T03:04:05Z");
    let payload: Value = serde_json::from_slice(event.payload.as_bytes()).unwrap();
    assert_eq!(payload, json!({"reservationId": "res_1", "nights": number}));
}
