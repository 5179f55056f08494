//! `chapar check`: every policy has a test that trips it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "gate/house.rs"]
#[allow(dead_code, reason = "shared with the gate's tests")]
mod house;

use std::fs;
use std::path::Path;

use chapar_catalog::policy::Policy;
use serde_json::{Value, json};

use house::{House, QUOTE_SCHEMA, QUOTES, event, quote, without_reason};

const BOOKINGS: &str = "catalog/reservation-service.toml";
const HELD: &str = "melmastoon.reservation.booking.held.v1";

/// The offences of the toy as `code file:line`, with their messages.
fn offences(house: &House, args: &[&str], code: i32) -> Vec<(String, String)> {
    let args = [&["check", "--format", "json"], args].concat();
    let output = house.chapar(&args);
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{err}");
    let systems: Value = serde_json::from_str(&out).unwrap();
    let offences = systems[0]["offences"].as_array().unwrap().iter();
    offences
        .map(|offence| {
            let text = |field: &str| offence[field].as_str().unwrap().to_owned();
            let file = text("file").replace("systems/toy/", "");
            (format!("{} {file}:{}", text("code"), offence["line"]), text("message"))
        })
        .collect()
}

/// The only offence of a house, where it stands and what it says.
fn only(house: &House, at: &str, words: &str) {
    let found = offences(house, &["--alone"], 1);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, at, "{found:?}");
    assert!(found[0].1.contains(words), "{found:?}");
}

/// Adds a field to the file of the bookings' service.
fn declare(house: &House, line: &str) {
    let file = house.read(BOOKINGS);
    house.write(BOOKINGS, &file.replacen("\n\n", &format!("\n{line}\n\n"), 1));
}

/// A house whose bookings' service has this code.
fn with_code(code: &str) -> House {
    let house = House::new();
    declare(&house, "code = [\"src\"]");
    house.write("src/booking.rs", code);
    house
}

#[test]
fn the_systems_of_this_repository_keep_every_policy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.to_str().unwrap();
    let house = House::new();
    let output = house.chapar(&["check", "--root", root, "--alone"]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{err}", String::from_utf8_lossy(&output.stdout));
    for system in ["learning: 2 events", "melmastoon: 82 events and 17 files", "meridian: 2 events"]
    {
        assert!(err.contains(system), "{err}");
    }
}

#[test]
fn a_flawless_house_passes_with_and_without_something_to_compare_with() {
    let house = House::new();
    assert!(offences(&house, &[], 0).is_empty());
    assert!(offences(&house, &["--against", "HEAD"], 0).is_empty());
    assert!(offences(&house, &["--alone"], 0).is_empty());
}

#[test]
fn ch2000_mistakes_of_a_catalog_and_code_that_is_not_there() {
    let house = House::new();
    declare(&house, "code = [\"nowhere\"]\ncalls = [\"unknown-service\"]");
    let found = offences(&house, &["--alone"], 1);
    assert_eq!(found[0].0, "CH2000 catalog/reservation-service.toml:3", "{found:?}");
    assert!(found[0].1.contains("there is no code at systems/toy/nowhere"), "{found:?}");
    assert!(found[1].1.contains("no service \"unknown-service\""), "{found:?}");
}

#[test]
fn ch2001_a_topic_that_the_catalog_lacks() {
    let code = format!(
        "// \"melmastoon.reservation.booking.gone.v1\" in a comment\nconsumer.on_any(&[\n    \
         \"{HELD}\",\n    \"melmastoon.reservation.booking.heId.v1\"]);\n"
    );
    let house = with_code(&code);
    only(&house, "CH2001 src/booking.rs:4", "booking.heId.v1 is not in the catalog");
}

#[test]
fn ch2002_an_event_of_another_service() {
    let subject = "melmastoon.pricing.quote.expired.v1";
    let typed = format!(
        "impl Event for QuoteExpired {{\n    const SUBJECT: &'static str = \"{subject}\";\n    \
         fn intent(&self) -> Option<String> {{ Some(self.id.clone()) }}\n}}\n\
         async fn expire(cx: &mut Cx) {{\n    cx.emit(QuoteExpired {{ id }}).await\n}}\n"
    );
    only(
        &with_code(&typed),
        "CH2002 src/booking.rs:6",
        "belongs to pricing-service; reservation-service may not publish it",
    );
    let sql = format!("select chapar.emit('{subject}', tenant => $1, idempotency_key => $2);");
    only(&with_code(&sql), "CH2002 src/booking.rs:1", "belongs to pricing-service");
    // Two types of one name say nothing.
    let twice = format!("{typed}\nmod own {{ QuoteExpired = \"{HELD}\" }}\n");
    assert!(offences(&with_code(&twice), &["--alone"], 0).is_empty());
    // Reading it is no offence, and neither is publishing one's own.
    let fine = format!("consumer.on_any(&[\"{subject}\"], see);\nemit(\"{HELD}\", payload)\n");
    assert!(offences(&with_code(&fine), &["--alone"], 0).is_empty());
    // The catalog itself: a subject under the name of another service.
    let house = House::new();
    house.write(BOOKINGS, &house.read(BOOKINGS).replace(".reservation.", ".pricing."));
    let found = offences(&house, &["--alone"], 1);
    assert!(
        found.iter().any(|(at, _)| at == "CH2002 catalog/reservation-service.toml:5"),
        "{found:?}"
    );
}

#[test]
fn ch2003_an_event_of_no_tenant() {
    let house = House::new();
    house.write(BOOKINGS, &house.read(BOOKINGS).replace("trigger", "untenanted = true\ntrigger"));
    only(&house, "CH2003 catalog/reservation-service.toml:6", "platform_subjects does not list it");
    let code = format!(
        "chapar.append(&mut tx, &Tenant::platform(), \
         Draft::new(\"{HELD}\", aggregate, payload).idempotency_key(key));\n"
    );
    only(&with_code(&code), "CH2003 src/booking.rs:1", "published for the platform");
}

#[test]
fn ch2004_a_cross_tenant_topic_outside_of_the_register() {
    let house = House::new();
    let rows = event(
        "melmastoon.analytics.row.added.v1",
        "integration",
        "quoteId",
        "",
        "\"pricing-service\"",
    );
    house.write(
        "catalog/analytics-service.toml",
        &format!("service = \"analytics-service\"\nsummary = \"Figures.\"\n{rows}"),
    );
    let mut schema = quote(1);
    schema["$id"] = "schemas://analytics/row/added/v1".into();
    house.schema("event-schemas/analytics/row/added/v1.json", &schema);
    only(&house, "CH2004 catalog/analytics-service.toml:11", "pricing-service is not registered");
}

#[test]
fn ch2005_an_ai_event_without_provenance() {
    let house = House::new();
    let event = event("melmastoon.ai_orchestrator.hitl.decided.v1", "domain", "quoteId", "", "");
    house.write(
        "catalog/ai-orchestrator-service.toml",
        &format!(
            "service = \"ai-orchestrator-service\"\nsummary = \"Models.\"\n{}",
            event.replace("warm", "cold")
        ),
    );
    let mut schema = quote(1);
    schema["$id"] = "schemas://ai_orchestrator/hitl/decided/v1".into();
    house.schema("event-schemas/ai_orchestrator/hitl/decided/v1.json", &schema);
    only(&house, "CH2005 catalog/ai-orchestrator-service.toml:5", "provenance = true");
}

#[test]
fn ch2006_an_event_without_an_idempotency_key() {
    let typed =
        format!("\nimpl Event for Held {{\n    const SUBJECT: &'static str = \"{HELD}\";\n}}\n");
    only(&with_code(&typed), "CH2006 src/booking.rs:2", "Held has no intent()");
    let derived =
        format!("#[derive(Event)]\n#[event(\"{HELD}\", id = a)]\nstruct Held {{ a: u8 }}\n");
    only(&with_code(&derived), "CH2006 src/booking.rs:2", "Held has no intent");
    let keyed = derived.replace("id = a", "id = a, intent = \"{a}:held\"");
    assert!(offences(&with_code(&keyed), &["--alone"], 0).is_empty());
    let draft = format!("let draft = Draft::new(\"{HELD}\", aggregate, payload);\n");
    only(&with_code(&draft), "CH2006 src/booking.rs:1", "derive one from the business intent");
    let sql = format!("db.query(\"select chapar.emit('{HELD}', tenant => $1, key => $2)\")\n");
    only(&with_code(&sql), "CH2006 src/booking.rs:1", "derive one from the business intent");
    // A system that does not demand one is left alone.
    let house = with_code(&draft);
    house
        .write("profile.toml", &house.read("profile.toml").replace("\"required\"", "\"optional\""));
    assert!(offences(&house, &["--alone"], 0).is_empty());
}

#[test]
fn ch2007_a_breaking_change_without_a_version() {
    let house = House::new();
    house.schema(QUOTE_SCHEMA, &without_reason());
    let found = offences(&house, &[], 1);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "CH2007 catalog/pricing-service.toml:5");
    assert!(
        found[0].1.contains("/properties/reason") && found[0].1.contains("needs v2"),
        "{found:?}"
    );
    assert!(offences(&house, &["--alone"], 0).is_empty(), "nothing to compare with");
}

/// A repository with the hotel in it, as `toy`.
fn hotel() -> House {
    let house = House::new();
    fs::remove_dir_all(house.path("")).unwrap();
    house.copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systems/melmastoon"), "");
    house.commit();
    house
}

#[test]
fn ch2008_a_change_that_breaks_a_consumer_of_the_hotel() {
    let house = hotel();
    assert!(offences(&house, &[], 0).is_empty());
    let file = "event-schemas/reservation/booking/held/v1.json";
    let released: Value = serde_json::from_str(&house.read(file)).unwrap();

    // Renamed: the field is gone, and the example that has the old name is refused.
    let text = house.read(file).replace("\"roomId\"", "\"room\"");
    house.write(file, &text);
    let breaches = |house: &House| {
        let mut found = offences(house, &["--alone"], 1);
        found.retain(|(at, _)| at.starts_with("CH2008"));
        found
    };
    let found = breaches(&house);
    assert_eq!(found[0].0, "CH2008 consumers/inventory-service.toml:5", "{found:?}");
    for words in ["inventory-service reads", "/roomId of", "inventory-service/booking-held.json"] {
        assert!(found.iter().any(|(_, message)| message.contains(words)), "{words}: {found:?}");
    }
    // The gate of the producer says the same, and names the consumer.
    let (code, out, _) = house.check(&["--against", "HEAD"]);
    assert_eq!(code, 1, "{out}");
    assert!(
        out.contains("breaking  consumer-contract  melmastoon.reservation.booking.held.v1 /roomId"),
        "{out}"
    );
    assert!(out.contains("let inventory-service change consumers/inventory-service.toml"), "{out}");

    // No longer required.
    let mut schema = released.clone();
    schema["required"].as_array_mut().unwrap().retain(|name| name != "nights");
    house.schema(file, &schema);
    let found = breaches(&house);
    assert!(
        found[0].1.contains("/nights of") && found[0].1.contains("does not require"),
        "{found:?}"
    );

    // Of another type: only the example shows it.
    let mut schema = released.clone();
    schema["properties"]["nights"] = json!({ "type": "string" });
    schema["examples"][0]["nights"] = "2".into();
    house.schema(file, &schema);
    let found = breaches(&house);
    assert!(
        found[0].1.contains("/nights of") && found[0].1.contains("refuses the example"),
        "{found:?}"
    );

    // What no consumer reads may go, as far as consumers are concerned.
    let mut schema = released.clone();
    schema["properties"].as_object_mut().unwrap().remove("quoteId");
    schema["examples"][0].as_object_mut().unwrap().remove("quoteId");
    house.schema(file, &schema);
    assert!(offences(&house, &["--alone"], 0).is_empty());

    // Taking the contract away does not make the change safe.
    house.schema(file, &released);
    fs::remove_file(house.path("consumers/inventory-service.toml")).unwrap();
    let found = house.found(1);
    assert!(found.iter().all(|found| found.contains("consumer-contract-withdrawn")), "{found:?}");
}

#[test]
fn code_of_the_hotel_that_publishes_for_another_service_is_found() {
    let house = hotel();
    let file = "src/inventory.rs";
    let foreign = house
        .read(file)
        .replace("cx.emit(AllocationReleased::from(", "cx.emit(IntentFailed::from(");
    house.write(file, &foreign);
    let found = offences(&house, &["--alone"], 1);
    assert!(found[0].0.starts_with("CH2002 src/inventory.rs:"), "{found:?}");
    assert!(
        found[0].1.contains("payment.intent.failed.v1 belongs to payment-gateway-service"),
        "{found:?}"
    );
}

#[test]
fn ch2009_a_synchronous_chain_over_two_hops() {
    let house = House::new();
    declare(&house, "calls = [\"pricing-service\"]");
    house.write(
        QUOTES,
        &house.read(QUOTES).replacen("\n\n", "\ncalls = [\"billing-service\"]\n\n", 1),
    );
    let billing = |calls: &str| {
        let file =
            format!("service = \"billing-service\"\nsummary = \"Money.\"\ncalls = [{calls}]\n");
        house.write("catalog/billing-service.toml", &file);
    };
    billing("");
    assert!(offences(&house, &["--alone"], 0).is_empty(), "two hops are allowed");
    billing("\"tenant-service\"");
    only(
        &house,
        "CH2009 catalog/reservation-service.toml:3",
        "reservation-service → pricing-service → billing-service → tenant-service",
    );
    billing("\"pricing-service\"");
    assert_eq!(offences(&house, &["--alone"], 1).len(), 3, "a circle has no end");
}

#[test]
fn ch2010_events_as_request_and_reply() {
    let house = House::new();
    let mut schema = quote(1);
    schema["properties"]["replyTo"] = json!({ "type": "string" });
    house.schema(QUOTE_SCHEMA, &schema);
    only(&house, "CH2010 catalog/pricing-service.toml:5", "\"replyTo\"");
    let house = House::new();
    let asked = "melmastoon.pricing.quote.replied.v1";
    house.add_event(QUOTES, &event(asked, "domain", "quoteId", "", ""));
    let mut schema = quote(1);
    schema["$id"] = "schemas://pricing/quote/replied/v1".into();
    house.schema("event-schemas/pricing/quote/replied/v1.json", &schema);
    only(&house, "CH2010 catalog/pricing-service.toml:14", "asks or answers");
}

#[test]
fn ch2011_vendor_code_outside_of_its_adapter() {
    let house = with_code("use stripe::Charge;\n");
    let vendor = "code = [\"shared\"]\n[[vendors]]\nname = \"Stripe\"\nmarks = [\"stripe::\"]\n\
                  adapter = [\"shared/stripe\"]\n";
    house.write("catalog.toml", &(house.read("catalog.toml") + vendor));
    house.write("shared/stripe/charge.ts", "import stripe::Client\n");
    only(&house, "CH2011 src/booking.rs:1", "only its adapter may name: shared/stripe");
}

#[test]
fn ch2012_a_version_without_its_dual_publication() {
    let house = House::new();
    house.bump(false);
    let found = offences(&house, &[], 1);
    assert_eq!(found[0].0, "CH2012 catalog/pricing-service.toml:14", "{found:?}");
}

#[test]
fn every_policy_has_its_test_here() {
    let tests = include_str!("check.rs");
    for policy in Policy::ALL {
        let name = format!("fn {}_", policy.as_str().to_lowercase());
        assert!(tests.contains(&name), "{policy} has no test");
    }
}

#[test]
fn everything_is_said_at_once_and_in_three_forms() {
    let house = with_code(&format!("emit(\"{}\")\nuse nothing;\n", HELD.replace("held", "hold")));
    house.schema(QUOTE_SCHEMA, &without_reason());
    let found: Vec<String> = offences(&house, &[], 1).into_iter().map(|(at, _)| at).collect();
    assert_eq!(found, ["CH2007 catalog/pricing-service.toml:5", "CH2001 src/booking.rs:1"]);
    let output = house.chapar(&["check"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("systems/toy/src/booking.rs:1:7: CH2001 "), "{text}");
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("2 offences against HEAD; see docs/errors for CH2001, CH2007"), "{err}");
    let output = house.chapar(&["check", "--format", "github"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let start = "::error file=systems/toy/src/booking.rs,line=1,col=7,title=CH2001::";
    assert!(text.contains(start), "{text}");
}

#[test]
fn a_wrong_usage_is_neither_fine_nor_an_offence() {
    let house = House::new();
    for wrong in [
        &["--system", "nowhere"][..],
        &["--against", "no-such-revision"],
        &["--dir", "nowhere", "--alone"],
        &["--audited", "nothing.v1"],
        &["--alone", "--against", "HEAD"],
    ] {
        let output = house.chapar(&[&["check"], wrong].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty(), "{wrong:?}");
    }
}
