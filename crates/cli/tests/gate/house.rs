//! A small system in a repository of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const QUOTE: &str = "melmastoon.pricing.quote.expired.v1";
pub(crate) const QUOTES: &str = "catalog/pricing-service.toml";
pub(crate) const QUOTE_SCHEMA: &str = "event-schemas/pricing/quote/expired/v1.json";
pub(crate) const HELD_SCHEMA: &str = "event-schemas/reservation/booking/held/v1.json";

/// The entry of the quote's second version, whose reason is gone and may be left out of the first.
pub(crate) const WINDOW: &str = "[events.dual_publish]\nsince = 2027-01-31\n\
    until = 2027-02-14\nrelease = \"2\"\nconvert = []\n";

/// A repository with a system of two services, committed once.
pub(crate) struct House {
    pub(crate) folder: TempDir,
}

impl House {
    pub(crate) fn new() -> Self {
        let house = House { folder: tempfile::tempdir().unwrap() };
        house.write("catalog.toml", "title = \"Toy\"\nsummary = \"A toy.\"\nversion = \"1\"\n");
        house.write("profile.toml", include_str!("../../../../systems/melmastoon/profile.toml"));
        house.write(
            QUOTES,
            &format!(
                "service = \"pricing-service\"\nsummary = \"Prices.\"\n{}",
                event(QUOTE, "integration", "quoteId", "", r#""analytics-service""#)
            ),
        );
        house.write(
            "catalog/reservation-service.toml",
            &format!(
                "service = \"reservation-service\"\nsummary = \"Bookings.\"\n{}",
                event(
                    "melmastoon.reservation.booking.held.v1",
                    "domain",
                    "reservationId",
                    "",
                    r#""inventory-service", "pricing-service""#
                )
            ),
        );
        house.schema(QUOTE_SCHEMA, &quote(1));
        house.schema(HELD_SCHEMA, &held());
        house.git(&["init", "--quiet"]);
        house.commit();
        house
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("systems/toy").join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn schema(&self, name: &str, schema: &Value) {
        self.write(name, &serde_json::to_string_pretty(schema).unwrap());
    }

    /// Copies a system's files from elsewhere.
    pub(crate) fn copy(&self, from: &Path, to: &str) {
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{to}{}", entry.file_name().to_str().unwrap());
            if entry.path().is_dir() {
                self.copy(&entry.path(), &format!("{name}/"));
            } else {
                self.write(&name, &fs::read_to_string(entry.path()).unwrap());
            }
        }
    }

    pub(crate) fn add_event(&self, file: &str, event: &str) {
        self.write(file, &(self.read(file) + event));
    }

    /// Adds version 2 of the quote's event, with or without its predecessor marked.
    pub(crate) fn bump(&self, deprecate: bool) {
        let second = QUOTE.replace("v1", "v2");
        if deprecate {
            let marked = format!("deprecated = {{ since = 2027-01-31, replaced_by = {second:?} }}");
            let file = self.read(QUOTES).replace("volume", &format!("{marked}\nvolume"));
            self.write(QUOTES, &file);
        }
        let consumer = r#"{ service = "analytics-service", accepts = [1, 2] }"#;
        self.add_event(QUOTES, &event(&second, "integration", "quoteId", "", consumer));
        if deprecate {
            self.add_event(QUOTES, WINDOW);
        }
        let mut schema = quote(2);
        schema["properties"].as_object_mut().unwrap().remove("reason");
        self.schema(&QUOTE_SCHEMA.replace("v1", "v2"), &schema);
    }

    pub(crate) fn git(&self, args: &[&str]) {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=Toy", "-c", "user.email=toy@example.com"]);
        clean(&mut command).args(args).current_dir(self.folder.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub(crate) fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["-c", "commit.gpgsign=false", "commit", "--quiet", "--message", "A state."]);
    }

    pub(crate) fn chapar(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_chapar"));
        clean(&mut command).args(args).current_dir(self.folder.path()).output().unwrap()
    }

    pub(crate) fn check(&self, args: &[&str]) -> (i32, String, String) {
        let output = self.chapar(&[&["schema", "check", "--system", "toy"], args].concat());
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    /// The findings against the last commit as `severity rule subject`.
    pub(crate) fn found(&self, expected: i32) -> Vec<String> {
        let (code, out, err) = self.check(&["--against", "HEAD", "--format", "json"]);
        assert_eq!(code, expected, "{out}{err}");
        let report: Value = serde_json::from_str(&out).unwrap();
        let text = |finding: &Value, field: &str| finding[field].as_str().unwrap().to_owned();
        let findings = report["findings"].as_array().unwrap().iter();
        findings
            .map(|f| [text(f, "severity"), text(f, "rule"), text(f, "subject")].join(" "))
            .collect()
    }
}

/// A run from a hook of another repository must not reach it.
pub(crate) fn clean(command: &mut Command) -> &mut Command {
    command.env_remove("GIT_DIR").env_remove("GIT_INDEX_FILE").env_remove("GIT_WORK_TREE");
    command.env_remove("DATABASE_URL")
}

pub(crate) fn event(subject: &str, kind: &str, key: &str, more: &str, consumers: &str) -> String {
    format!(
        "\n[[events]]\nsubject = \"{subject}\"\ntrigger = \"It happened.\"\nkind = \"{kind}\"\n\
         key = \"{key}\"\nretention = \"warm\"\nvolume = \"low\"\n{more}consumers = [{consumers}]\n"
    )
}

pub(crate) fn quote(version: u32) -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": format!("schemas://pricing/quote/expired/v{version}"),
        "title": "Quote expired",
        "description": "A quote that was not taken.",
        "type": "object",
        "required": ["quoteId"],
        "properties": { "quoteId": { "type": "string" }, "reason": { "type": "string" } },
        "examples": [{ "quoteId": "q-1" }]
    })
}

pub(crate) fn held() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "schemas://reservation/booking/held/v1",
        "title": "Booking held",
        "description": "A hold of a room.",
        "type": "object",
        "required": ["reservationId", "channel"],
        "properties": {
            "reservationId": { "type": "string" },
            "channel": { "enum": ["web", "desk"] },
            "nights": { "type": "integer", "minimum": 1, "maximum": 90 }
        },
        "examples": [{ "reservationId": "r-1", "channel": "web" }]
    })
}

pub(crate) fn without_reason() -> Value {
    let mut schema = quote(1);
    schema["properties"].as_object_mut().unwrap().remove("reason");
    schema
}

/// The audit log: actor, action, target, reason, detail.
pub(crate) fn audited(url: &str) -> Vec<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = chapar_sql::Store::open(url, &Default::default()).await.unwrap();
        let mut tx = store.begin_read().await.unwrap();
        let sql = "select actor, action, target, reason, detail from chapar_audit_log order by id";
        let rows = tx.fetch(sql, Vec::new()).await.unwrap();
        let texts = |row: &chapar_sql::Row| (0..5).map(|at| row.get(at).unwrap()).collect();
        rows.iter().map(texts).collect()
    })
}
