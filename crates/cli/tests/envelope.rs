//! `chapar envelope`, driven as a user would: the real program, files and pipes.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

const TOPIC: &str = "current-account.account-created.v1";

#[test]
fn every_json_dialect_is_recognised_and_shown() {
    for (file, dialect, subject) in [
        (
            "melmastoon/booking_confirmed.json",
            "metadata-json",
            "melmastoon.reservation.booking.confirmed.v1",
        ),
        (
            "learning/course_draft_published.json",
            "flat-json",
            "authoring.course_draft.published.v1",
        ),
        (
            "learning/course_draft_published_bare.json",
            "flat-json",
            "authoring.course_draft.published.v1",
        ),
        ("cloudevents/invoice_created.json", "cloudevents", "invoicing.invoice.created.v1"),
        ("cloudevents/binary_kafka.msg", "cloudevents-binary", "invoicing.invoice.created.v1"),
        ("cloudevents/binary_http.msg", "cloudevents-binary", "invoicing.invoice.created.v1"),
    ] {
        let shown = chapar(&["show", &fixture(file)], b"").ok();
        assert!(shown.text().contains(subject), "{file}: {}", shown.text());
        assert_eq!(shown.err, format!("note: read as {dialect}\n"), "{file}");
    }
}

#[test]
fn a_shown_event_has_every_field_and_marks_the_unknown_ones() {
    let shown = chapar(&["show", &fixture("melmastoon/booking_confirmed.json")], b"").ok();
    for line in [
        "tenant           tnt_kabul_grand\n",
        "actor            user usr_front_desk_7\n",
        "ingested at      -\n",
        "unknown fields   kept as they came\n",
        "  signature      \"c2lnbmF0dXJl\"\n",
        "      \"amount\": 1250.50,\n",
    ] {
        assert!(shown.text().contains(line), "{line:?} is not in {}", shown.text());
    }
}

#[test]
fn an_event_shown_as_json_has_canonical_names_and_its_payload_to_the_letter() {
    let event = read("melmastoon/booking_confirmed.json");
    let shown = chapar(&["show", "--format", "json"], &event).ok();
    let event = shown.json();
    assert_eq!(event["subject"], "melmastoon.reservation.booking.confirmed.v1");
    assert_eq!(event["producer"]["service"], "reservation-service");
    assert_eq!(event["ordering_key"], "tnt_kabul_grand:res_81");
    assert_eq!(event["causation"], "01932f0a-7a00-7000-8000-000000000001");
    assert_eq!(event["extensions"]["signature"], "c2lnbmF0dXJl");
    assert!(event["trace"].is_null());
    assert!(shown.text().contains("1250.50"), "digits stay");
}

#[test]
fn a_payload_that_is_not_json_is_shown_as_what_it_is() {
    let file = fixture("cloudevents/thumbnail_base64.json");
    let shown = chapar(&["show", &file], b"").ok();
    assert!(shown.text().contains("image/png, 8 bytes\n  89504e470d0a1a0a\n"), "{}", shown.text());
    let event = chapar(&["show", "--format", "json", &file], b"").ok().json();
    assert_eq!(event["payload_hex"], "89504e470d0a1a0a");
}

#[test]
fn a_bank_message_is_shown_with_its_topic_and_refused_without() {
    let shown = chapar(&["show", "--from", "inline-protobuf", "--topic", TOPIC], &account()).ok();
    for line in ["aggregate        account account-123, version 1\n", "CURRENCY_GBP"] {
        assert!(shown.text().contains(line), "{}", shown.text());
    }
    chapar(&["show", "--from", "inline-protobuf"], &account()).fails(2, "--topic current-account");
    chapar(&["show"], &account()).fails(2, "inline-protobuf also needs --topic");
    let unknown =
        ["show", "--from", "inline-protobuf", "--topic", "current-account.account-closed.v1"];
    chapar(&unknown, &account()).fails(1, "no Protobuf message is registered");
}

#[test]
fn a_wrong_topic_is_pointed_at() {
    let topic = "current-account.AccountCreated.v1";
    let refused = chapar(&["show", "--from", "inline-protobuf", "--topic", topic], &account());
    refused.fails(2, "\ncurrent-account.AccountCreated.v1\n                ^^^^^^^^^^^^^^\n");
    let event = read("melmastoon/booking_confirmed.json");
    let refused = chapar(&["validate", "--topic", "melmastoon.reservation.x.v1"], &event);
    refused.fails(2, "\nmelmastoon.reservation.x.v1\n^^^");
}

#[test]
fn an_event_survives_the_way_through_every_dialect_and_back() {
    let file = fixture("melmastoon/booking_confirmed.json");
    let straight = ["convert", "--from", "metadata-json", "--to", "metadata-json", &file];
    let original = chapar(&straight, b"").ok().json();
    for (there, binding) in [
        ("flat-json", "http"),
        ("cloudevents", "http"),
        ("cloudevents-binary", "http"),
        ("cloudevents-binary", "kafka"),
        ("cloudevents-binary", "nats"),
        ("cloudevents-binary", "pubsub"),
    ] {
        let way =
            ["convert", "--from", "metadata-json", "--to", there, "--binding", binding, &file];
        let away = chapar(&way, b"").ok();
        let way = ["convert", "--from", there, "--binding", binding, "--to", "metadata-json"];
        let back = chapar(&way, &away.out).ok().json();
        assert_eq!(back, original, "{there} {binding}");
    }
}

#[test]
fn a_bank_message_becomes_json_and_protobuf_again() {
    let show = ["show", "--format", "json", "--from", "inline-protobuf", "--topic", TOPIC];
    let shown = |body: &[u8]| chapar(&show, body).ok().json();
    for json in ["metadata-json", "flat-json", "cloudevents"] {
        let way = ["convert", "--from", "inline-protobuf", "--to", json, "--topic", TOPIC];
        let away = chapar(&way, &account()).ok();
        assert!(away.err.contains("written as JSON"), "{}", away.err);
        let back = chapar(&["convert", "--from", json, "--to", "inline-protobuf"], &away.out).ok();
        assert!(back.err.contains(&format!("its topic is {TOPIC}")), "{}", back.err);
        assert_eq!(shown(&back.out), shown(&account()), "{json}");
    }
    let way =
        ["convert", "--from", "inline-protobuf", "--to", "cloudevents-binary", "--topic", TOPIC];
    let binary = chapar(&way, &account()).ok();
    let head = String::from_utf8_lossy(&binary.out).into_owned();
    assert!(
        head.starts_with("Content-Type: application/protobuf\nce-specversion: 1.0\n"),
        "{head}"
    );
}

#[test]
fn the_headers_of_one_binding_are_written_in_another() {
    let file = fixture("cloudevents/binary_kafka.msg");
    let from = ["convert", "--from", "cloudevents-binary", "--binding", "kafka"];
    let to = ["--to", "cloudevents-binary", "--to-binding", "http", &file];
    let written = chapar(&[&from[..], &to].concat(), b"").ok();
    assert!(written.text().contains("\nce-note: caf%C3%A9%20%22x%22\n"), "{}", written.text());
    assert!(written.text().ends_with("\n\n{\"invoiceId\": \"inv_1\"}"), "{}", written.text());
}

#[test]
fn header_lines_may_end_as_on_the_web_and_must_be_headers() {
    let text = String::from_utf8(read("cloudevents/binary_http.msg")).unwrap();
    let show = ["show", "--from", "cloudevents-binary"];
    chapar(&show, text.replace('\n', "\r\n").as_bytes()).ok();
    chapar(&show, b"ce-specversion: 1.0\nnonsense\n\n{}").fails(1, "line 2 of stdin is no header");
    chapar(&show, b": 1.0\n\n{}").fails(1, "line 1 of stdin has no name");
    chapar(&show, b"ce-id: \xff\n\n{}").fails(1, "line 1 of stdin is not UTF-8");
}

#[test]
fn a_line_break_never_reaches_a_header() {
    let event = booking("res_81:confirmed:3", "two\\nlines");
    let to = |binding: &str| {
        let way = ["convert", "--from", "metadata-json", "--to", "cloudevents-binary", "--binding"];
        chapar(&[&way[..], &[binding]].concat(), &event)
    };
    let kafka = to("kafka").ok();
    let expected = "ce_unfitfields: {\"idempotencykey\":\"two\\nlines\"}\n";
    assert!(kafka.text().contains(expected), "{}", kafka.text());
    let back = ["convert", "--from", "cloudevents-binary", "--to", "metadata-json"];
    let back = chapar(&back, kafka.text().as_bytes()).ok();
    assert_eq!(back.json()["idempotencyKey"], "two\nlines");
}

#[test]
fn converting_writes_a_file_when_asked() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.json").display().to_string();
    let file = fixture("learning/course_draft_published.json");
    let way = ["convert", "--from", "flat-json", "--to", "cloudevents", &file, "--out"];
    let written = chapar(&[&way[..], &[&out]].concat(), b"").ok();
    assert!(written.out.is_empty());
    let event: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    assert_eq!(event["specversion"], "1.0");
    let nowhere = folder.path().join("no/such/folder").display().to_string();
    chapar(&[&way[..], &[&nowhere]].concat(), b"").fails(2, "no/such/folder cannot be written");
}

#[test]
fn a_cloud_event_against_the_specification_is_read_only_when_asked_for() {
    let event = br#"{"specversion":"1.0","id":"1","type":"a.b","source":"/a","myTag":{"x":1}}"#;
    for command in
        [&["show"][..], &["validate"], &["convert", "--from=cloudevents", "--to=flat-json"]]
    {
        let arguments = [command, &["-"]].concat();
        chapar(&arguments, event).fails(1, "lower-case letters and digits");
    }
    let shown = chapar(&["show", "--lenient", "-"], event).ok();
    assert!(shown.text().contains("myTag"), "{}", shown.text());
    let judged = chapar(&["validate", "--lenient", "-"], event);
    judged.fails(1, "");
    assert!(judged.text().contains("CH10"), "its system's rules are checked: {}", judged.text());
    let both = ["--from=cloudevents", "--to=cloudevents"];
    let convert = [&["convert", "--lenient"], &both[..], &["-"]].concat();
    let written = chapar(&convert, event).ok();
    let strict = [&["convert"], &both[..], &["-"]].concat();
    chapar(&strict, written.text().as_bytes()).ok();
}

#[test]
fn what_a_dialect_cannot_carry_is_refused_with_advice() {
    let file = fixture("cloudevents/thumbnail_base64.json");
    let refused = chapar(&["convert", "--from", "cloudevents", "--to", "flat-json", &file], b"");
    refused.fails(1, "carries JSON only, the payload is image/png; convert it");
    let file = fixture("melmastoon/booking_confirmed.json");
    let refused =
        chapar(&["convert", "--from", "metadata-json", "--to", "inline-protobuf", &file], b"");
    refused.fails(1, "no Protobuf message is registered for event type");
}

#[test]
fn other_descriptors_come_from_a_folder() {
    let show = |folder: &str| {
        let show = ["show", "--from", "inline-protobuf", "--topic", TOPIC, "--proto-path", folder];
        chapar(&show, &account())
    };
    let protos = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../systems/meridian/proto");
    show(&protos.display().to_string()).ok();
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().display().to_string();
    show(&other).fails(2, "there are no .proto files");
    fs::write(folder.path().join("other.proto"), "syntax = \"proto3\"; message Other {}").unwrap();
    show(&other).fails(2, "--proto-path names a folder");
    fs::write(folder.path().join("other.proto"), "not proto").unwrap();
    show(&other).fails(2, "other.proto");
}

#[test]
fn the_fixtures_of_every_system_are_valid() {
    for file in [
        "melmastoon/booking_confirmed.json",
        "melmastoon/ai_completion.json",
        "melmastoon/platform_merkle_anchored.json",
        "learning/course_draft_published.json",
        "cloudevents/invoice_created.json",
        "cloudevents/binary_nats.msg",
    ] {
        let valid = chapar(&["validate", &fixture(file)], b"").ok();
        assert!(valid.text().starts_with("valid: "), "{file}: {}", valid.text());
    }
    let valid =
        chapar(&["validate", "--from", "inline-protobuf", "--topic", TOPIC], &account()).ok();
    assert!(valid.text().contains("every rule of meridian"), "{}", valid.text());
}

#[test]
fn every_broken_rule_is_listed_with_its_page() {
    let event = booking("booking.confirmed", "Booking.confirmed");
    let text = String::from_utf8(event).unwrap().replace("res_81:confirmed:3", "");
    let event = text.replace("\"warm\"", "\"for ever\"").into_bytes();
    let told = chapar(&["validate"], &event);
    assert_eq!((told.code, told.err.as_str()), (1, ""));
    for code in ["CH1001", "CH1002", "CH1008"] {
        assert!(told.text().contains(&format!("see docs/errors/{code}.md")), "{}", told.text());
    }
    let place = "melmastoon.reservation.".len() + 10;
    let pointer = format!("\n{}^^^^^^^\n", " ".repeat(place));
    assert!(told.text().contains(&pointer), "{}", told.text());

    let verdict = chapar(&["validate", "--format", "json"], &event);
    assert_eq!(verdict.code, 1);
    let verdict = verdict.json();
    assert_eq!((&verdict["valid"], &verdict["profile"]), (&false.into(), &"melmastoon".into()));
    let violations = verdict["violations"].as_array().unwrap();
    let codes: Vec<_> = violations.iter().map(|violation| &violation["code"]).collect();
    assert_eq!(codes, ["CH1001", "CH1002", "CH1008"]);
    assert_eq!(violations[0]["page"], "docs/errors/CH1001.md");
}

#[test]
fn an_event_is_held_against_the_topic_it_came_on() {
    let topic = "melmastoon.reservation.booking.confirmed.v2";
    let event = read("melmastoon/booking_confirmed.json");
    let told = chapar(&["validate", "--topic", topic], &event);
    assert_eq!(told.code, 1);
    assert!(told.text().contains("CH1009"), "{}", told.text());
}

#[test]
fn a_large_payload_is_valid_only_where_it_is_thin() {
    let event = booking("\"nights\": 3", &format!("\"note\": \"{}\"", "x".repeat(300_000)));
    let told = chapar(&["validate"], &event);
    assert_eq!(told.code, 1);
    assert!(told.text().contains("CH1007"), "{}", told.text());
    chapar(&["validate", "--thin"], &event).ok();
}

#[test]
fn another_profile_has_other_rules() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ours.toml");
    let preset =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../systems/melmastoon/profile.toml");
    let text = fs::read_to_string(preset).unwrap().replace("\"me-central1\"", "\"mars-1\"");
    fs::write(&file, text).unwrap();
    let ours = file.display().to_string();
    let event = read("melmastoon/booking_confirmed.json");
    let told = chapar(&["validate", "--profile", &ours], &event);
    assert_eq!(told.code, 1);
    assert!(told.text().contains("CH1011"), "{}", told.text());
    chapar(&["validate", "--profile", "nothing"], &event).fails(2, "none of melmastoon, meridian");
    fs::write(&file, "name = 1").unwrap();
    chapar(&["validate", "--profile", &ours], &event).fails(2, "not valid TOML");
}

#[test]
fn what_is_no_event_is_invalid_and_says_why() {
    let verdict =
        chapar(&["validate", "--from", "metadata-json", "--format", "json"], b"{\"eventId\":");
    assert_eq!(verdict.code, 1);
    assert_eq!(verdict.json()["valid"], false);
    assert!(verdict.json()["error"].as_str().unwrap().contains("EOF while parsing"));
    let event = read("melmastoon/booking_confirmed.json");
    let refused = chapar(&["validate", "--from", "flat-json"], &event);
    refused.fails(1, "it looks like metadata-json: try --from metadata-json");
}

#[test]
fn input_that_cannot_be_read_is_refused_with_what_to_do() {
    chapar(&["show", "/no/such/file"], b"").fails(2, "/no/such/file cannot be read");
    chapar(&["show", "-"], b"").fails(1, "stdin is empty");
    chapar(&["show", "--from", "flat-json"], b"{\"a\": \"\xff\"}").fails(1, "byte 7 is wrong");
    chapar(&["show"], b"{\"neither\": 1}").fails(2, "say which it is with --from");
    let large = vec![b' '; 16 * 1024 * 1024 + 1];
    chapar(&["show", "--from", "flat-json"], &large).fails(1, "stdin has more than 16 MiB");
}

#[test]
fn an_unknown_dialect_is_answered_with_the_known_ones() {
    let file = fixture("melmastoon/booking_confirmed.json");
    let refused = chapar(&["convert", "--from", "soap", "--to", "metadata-json", &file], b"");
    refused.fails(2, "metadata-json, flat-json, cloudevents, cloudevents-binary, inline-protobuf");
    chapar(&["convert", "--from", "flat-json", &file], b"").fails(2, "--to <DIALECT>");
}

#[test]
fn a_byte_order_mark_is_no_obstacle() {
    let mut event = b"\xef\xbb\xbf".to_vec();
    event.extend(read("cloudevents/invoice_created.json"));
    chapar(&["validate"], &event).ok();
}

#[test]
fn an_event_cannot_steer_the_terminal_it_is_shown_on() {
    let event = booking("res_81:confirmed:3", "\\u001b[2Jgone");
    let shown = chapar(&["show"], &event).ok();
    assert!(shown.text().contains("idempotency key  \\u{1b}[2Jgone\n"), "{}", shown.text());
    assert!(!shown.out.contains(&0x1b));
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly_as_the_signal_would() {
    let note = format!("\"note\": \"{}\"", "x".repeat(1_000_000));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), booking("\"nights\": 3", &note)).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_chapar"))
        .args(["envelope", "show"])
        .arg(file.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(program.stdout.take());
    let output = program.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*err), (Some(141), "note: read as metadata-json\n"));
}

#[test]
fn help_shows_examples() {
    for command in ["show", "convert", "validate"] {
        let help = chapar(&[command, "--help"], b"").ok();
        assert!(help.text().contains("Examples:\n  chapar envelope"), "{}", help.text());
        assert!(help.text().contains("Exit status:"), "{}", help.text());
    }
}

struct Answer {
    code: i32,
    out: Vec<u8>,
    err: String,
}

impl Answer {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("stdout is text")
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    #[track_caller]
    fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}", self.err);
        self
    }

    #[track_caller]
    fn fails(&self, code: i32, with: &str) {
        assert_eq!(self.code, code, "{}{}", String::from_utf8_lossy(&self.out), self.err);
        assert!(self.err.contains(with), "{with:?} is not in {}", self.err);
    }
}

fn chapar(arguments: &[&str], stdin: &[u8]) -> Answer {
    let mut program = Command::new(env!("CARGO_BIN_EXE_chapar"))
        .arg("envelope")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = program.stdin.take().unwrap();
    let stdin = stdin.to_vec();
    // A program that refuses its arguments does not read, and that is no failure of the test.
    let feeder = std::thread::spawn(move || drop(input.write_all(&stdin)));
    let output = program.wait_with_output().unwrap();
    feeder.join().unwrap();
    Answer {
        code: output.status.code().expect("it ended by itself"),
        out: output.stdout,
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn fixture(name: &str) -> String {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../core/tests/fixtures");
    fixtures.join(name).display().to_string()
}

fn read(name: &str) -> Vec<u8> {
    fs::read(fixture(name)).unwrap()
}

/// The bare Protobuf bytes of the bank's fixture.
fn account() -> Vec<u8> {
    let message = read("meridian/account_created.msg");
    let body = message.windows(2).position(|two| two == b"\n\n").unwrap() + 2;
    message[body..].to_vec()
}

/// The hotel's fixture with something replaced.
fn booking(from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(read("melmastoon/booking_confirmed.json")).unwrap();
    assert!(text.contains(from), "{from}");
    text.replace(from, to).into_bytes()
}
