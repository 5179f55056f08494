//! A small house without a mistake, to damage.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test uses its part")]

use std::fs;
use std::path::Path;

use tempfile::TempDir;

pub const BOOKING: &str = "catalog/reservation-service.toml";
pub const SCHEMA: &str = "event-schemas/reservation/booking/held/v1.json";
/// The same schema, for tests that do more than change a word.
pub const STAY: &str = SCHEMA;

/// The files of a flawless hotel.
pub const FILES: &[(&str, &str)] = &[
    (
        "catalog.toml",
        concat!(
            "profile = \"",
            env!("CARGO_MANIFEST_DIR"),
            "/../../systems/melmastoon/profile.toml\"\n",
            "title = \"House\"\nsummary = \"A house.\"\nversion = \"1.0.0\"\n",
            "readers_of_all = [\"audit-service\"]\n",
        ),
    ),
    (
        BOOKING,
        r#"service = "reservation-service"
summary = "Bookings."

[defaults]
kind = "integration"
key = "reservationId"
retention = "warm"

[[events]]
subject = "melmastoon.reservation.booking.held.v1"
trigger = "A room is held."
volume = "low"
consumers = ["inventory-service"]
"#,
    ),
    (
        SCHEMA,
        r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$id": "schemas://reservation/booking/held/v1",
  "title": "Held",
  "description": "A room is held.",
  "type": "object",
  "required": ["reservationId"],
  "properties": {
    "reservationId": { "type": "string", "minLength": 1 },
    "nights": { "type": "integer" }
  },
  "examples": [{ "reservationId": "res_1", "nights": 2 }]
}
"#,
    ),
    (
        "catalog/search-aggregation-service.toml",
        r#"service = "search-aggregation-service"
summary = "Listings."

[[events]]
subject = "melmastoon.search_aggregation.listing.indexed.v1"
trigger = "A listing is indexed."
kind = "integration"
key = "propertyId"
retention = "hot"
volume = "low"
consumers = ["bff-consumer-service"]

[[events]]
subject = "melmastoon.search_aggregation.listing.evicted.v1"
trigger = "A listing is gone."
kind = "domain"
key = "none"
retention = "hot"
volume = "low"
"#,
    ),
    ("event-schemas/search_aggregation/listing/indexed/v1.json", INDEXED),
    ("event-schemas/search_aggregation/listing/evicted/v1.json", EVICTED),
    (
        "catalog/ai-orchestrator-service.toml",
        r#"service = "ai-orchestrator-service"
summary = "Models."

[[events]]
subject = "melmastoon.ai_orchestrator.hitl.decided.v1"
trigger = "Someone decided."
kind = "domain"
key = "propertyId"
retention = "cold"
volume = "low"
provenance = true
"#,
    ),
    ("event-schemas/ai_orchestrator/hitl/decided/v1.json", DECIDED),
];

macro_rules! simple {
    ($path:literal) => {
        concat!(
            "{\"$schema\": \"https://json-schema.org/draft/2020-12/schema\", \"$id\": \"schemas://",
            $path,
            "\", \"title\": \"T\", \"description\": \"D\", \"type\": \"object\", ",
            "\"required\": [\"propertyId\"], \"properties\": {\"propertyId\": {\"type\": \"string\"}}, ",
            "\"examples\": [{\"propertyId\": \"p\"}]}"
        )
    };
}

const INDEXED: &str = simple!("search_aggregation/listing/indexed/v1");
const EVICTED: &str = simple!("search_aggregation/listing/evicted/v1");
const DECIDED: &str = simple!("ai_orchestrator/hitl/decided/v1");

pub const CONTRACT: &str = "consumers/inventory-service.toml";
pub const EXAMPLE: &str = "consumers/inventory-service/held.json";
pub const CODE: &str = "src/booking.rs";

/// What the hotel has once it has grown: a consumer's contract, a second version, and code.
const MORE: &[(&str, &str)] = &[
    (
        CONTRACT,
        r#"service = "inventory-service"

[[reads]]
subject = "melmastoon.reservation.booking.held.v1"
fields = ["/reservationId"]
optional = ["/nights"]
examples = ["inventory-service/held.json"]
"#,
    ),
    (EXAMPLE, "{\n  \"reservationId\": \"res_1\",\n  \"nights\": 2\n}\n"),
    (
        CODE,
        r#"// The bookings' code, in which "melmastoon.reservation.booking.hld.v1" is only mentioned.
impl Event for Held {
    const SUBJECT: &'static str = "melmastoon.reservation.booking.held.v2";
    fn intent(&self) -> Option<String> { Some(self.id.clone()) }
}
async fn hold(cx: &mut Cx) { cx.emit(Held { id }).await }
"#,
    ),
];

const SECOND: &str = r#"
[[events]]
subject = "melmastoon.reservation.booking.held.v2"
trigger = "A room is held."
volume = "low"
consumers = ["inventory-service"]
[events.dual_publish]
since = 2027-01-01
until = 2027-01-15
release = "1.0.0"
convert = [
  { rename = "/days", to = "nights" },
  { drop = "/channel" },
]
"#;

const BANK: &[(&str, &str)] = &[
    (
        "catalog.toml",
        concat!(
            "profile = \"",
            env!("CARGO_MANIFEST_DIR"),
            "/../../systems/meridian/profile.toml\"\n",
            "title = \"Bank\"\nsummary = \"A bank.\"\nversion = \"1.0.0\"\n",
        ),
    ),
    (
        "catalog/current-account.toml",
        r#"service = "current-account"
summary = "Accounts."

[[events]]
subject = "current-account.account-created.v1"
trigger = "An account is opened."
message = "bank.AccountCreatedEvent"
kind = "integration"
key = "account_id"
retention = "operational"
volume = "high"
consumers = ["position-keeping"]
"#,
    ),
    (
        "proto/events.proto",
        "syntax = \"proto3\";\npackage bank;\nmessage AccountCreatedEvent {\n  string account_id = 1;\n}\n",
    ),
];

/// A system in a folder of its own.
pub struct House(TempDir);

impl House {
    /// The hotel.
    pub fn new() -> Self {
        Self::of(FILES)
    }

    /// The bank.
    pub fn bank() -> Self {
        Self::of(BANK)
    }

    /// The hotel with everything that a system may have.
    pub fn grown() -> Self {
        let house = Self::of(FILES);
        for (file, text) in MORE {
            house.write(file, text.as_bytes());
        }
        let old = "\ndeprecated = { since = 2027-01-01, replaced_by = \
                   \"melmastoon.reservation.booking.held.v2\" }\nvolume";
        house.change(BOOKING, "\nvolume", old);
        house.change(BOOKING, "\n\n", "\ncode = [\"src\"]\ncalls = [\"pricing-service\"]\n\n");
        house.write(BOOKING, (house.text(BOOKING) + SECOND).as_bytes());
        let schema = house.text(SCHEMA).replace("held/v1", "held/v2").replace("nights", "days");
        house.write("event-schemas/reservation/booking/held/v2.json", schema.as_bytes());
        let vendor = "[[vendors]]\nname = \"V\"\nmarks = [\"v::\"]\nadapter = [\"src\"]\n";
        house.write("catalog.toml", (house.text("catalog.toml") + vendor).as_bytes());
        house
    }

    fn of(files: &[(&str, &str)]) -> Self {
        let house = House(tempfile::tempdir().unwrap());
        for (file, text) in files {
            house.write(file, text.as_bytes());
        }
        house
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn text(&self, file: &str) -> String {
        fs::read_to_string(self.path().join(file)).unwrap()
    }

    pub fn write(&self, file: &str, bytes: &[u8]) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub fn change(&self, file: &str, from: &str, to: &str) {
        let text = self.text(file);
        assert!(text.contains(from), "{file} does not hold {from}");
        self.write(file, text.replacen(from, to, 1).as_bytes());
    }
}
