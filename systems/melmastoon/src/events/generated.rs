//! The payloads of melmastoon, generated from its schemas. Do not edit: change a schema and run
//! `chapar catalog rust`.
#![allow(missing_docs, reason = "a schema need not describe everything")]
#![allow(clippy::too_many_arguments, reason = "an event has as many facts as it has")]

use serde::{Deserialize, Serialize};

/// Every subject.
pub const SUBJECTS: &[&str] = &[
    "melmastoon.ai_orchestrator.anomaly.detected.v1",
    "melmastoon.ai_orchestrator.completion.completed.v1",
    "melmastoon.ai_orchestrator.completion.refused.v1",
    "melmastoon.ai_orchestrator.hitl.decided.v1",
    "melmastoon.ai_orchestrator.inference.local_completed.v1",
    "melmastoon.analytics.snapshot.computed.v1",
    "melmastoon.audit.entry.appended.v1",
    "melmastoon.audit.merkle.anchored.v1",
    "melmastoon.billing.folio.charge_posted.v1",
    "melmastoon.billing.folio.closed.v1",
    "melmastoon.billing.folio.opened.v1",
    "melmastoon.billing.folio.refund_posted.v1",
    "melmastoon.billing.invoice.issued.v1",
    "melmastoon.billing.invoice.voided.v1",
    "melmastoon.file.scanned.v1",
    "melmastoon.file.uploaded.v1",
    "melmastoon.housekeeping.room.status_changed.v1",
    "melmastoon.housekeeping.task.assigned.v1",
    "melmastoon.housekeeping.task.completed.v1",
    "melmastoon.housekeeping.task.created.v1",
    "melmastoon.iam.device.bound.v1",
    "melmastoon.iam.device.unbound.v1",
    "melmastoon.iam.mfa.enrolled.v1",
    "melmastoon.iam.session.issued.v1",
    "melmastoon.iam.session.revoked.v1",
    "melmastoon.iam.user.created.v1",
    "melmastoon.inventory.allocation.committed.v1",
    "melmastoon.inventory.allocation.reallocated.v1",
    "melmastoon.inventory.allocation.released.v1",
    "melmastoon.inventory.oversell.blocked.v1",
    "melmastoon.inventory.stop_sell.activated.v1",
    "melmastoon.inventory.stop_sell.cleared.v1",
    "melmastoon.lock_integration.device.paired.v1",
    "melmastoon.lock_integration.key_credential.issued.v1",
    "melmastoon.lock_integration.key_credential.revoked.v1",
    "melmastoon.lock_integration.key_credential.suspended.v1",
    "melmastoon.lock_integration.key_credential.updated.v1",
    "melmastoon.lock_integration.vendor.error.v1",
    "melmastoon.maintenance.ticket.closed.v1",
    "melmastoon.maintenance.ticket.opened.v1",
    "melmastoon.notification.message.bounced.v1",
    "melmastoon.notification.message.delivered.v1",
    "melmastoon.notification.message.dispatched.v1",
    "melmastoon.payment.cash.reconciled.v1",
    "melmastoon.payment.intent.captured.v1",
    "melmastoon.payment.intent.created.v1",
    "melmastoon.payment.intent.failed.v1",
    "melmastoon.payment.intent.refunded.v1",
    "melmastoon.pricing.calendar.updated.v1",
    "melmastoon.pricing.delta.applied.v1",
    "melmastoon.pricing.quote.expired.v1",
    "melmastoon.pricing.rate_plan.archived.v1",
    "melmastoon.pricing.rate_plan.published.v1",
    "melmastoon.property.amenity.changed.v1",
    "melmastoon.property.property.created.v1",
    "melmastoon.property.room.added.v1",
    "melmastoon.property.room.archived.v1",
    "melmastoon.property.room_type.published.v1",
    "melmastoon.reporting.report.generated.v1",
    "melmastoon.reservation.booking.cancelled.v1",
    "melmastoon.reservation.booking.check_in_started.v1",
    "melmastoon.reservation.booking.check_out_started.v1",
    "melmastoon.reservation.booking.checked_in.v1",
    "melmastoon.reservation.booking.checked_out.v1",
    "melmastoon.reservation.booking.confirmed.v1",
    "melmastoon.reservation.booking.dates_changed.v1",
    "melmastoon.reservation.booking.held.v1",
    "melmastoon.reservation.booking.modified.v1",
    "melmastoon.reservation.booking.no_show.v1",
    "melmastoon.search_aggregation.listing.evicted.v1",
    "melmastoon.search_aggregation.listing.indexed.v1",
    "melmastoon.staff.shift.closed.v1",
    "melmastoon.staff.shift.opened.v1",
    "melmastoon.sync.conflict.recorded.v1",
    "melmastoon.sync.cursor.advanced.v1",
    "melmastoon.tenant.role.granted.v1",
    "melmastoon.tenant.settings.changed.v1",
    "melmastoon.tenant.tenant.created.v1",
    "melmastoon.tenant.tenant.suspended.v1",
    "melmastoon.theme.content_block.changed.v1",
    "melmastoon.theme.preset.published.v1",
    "melmastoon.theme.tokens.changed.v1",
];

/// Who did it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Actor {
    /// What kind.
    pub r#type: Type,
    /// Which.
    pub id: String,
}

/// Where it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Address {
    /// Street and number.
    pub line: String,
    /// The town.
    pub city: String,
    /// Two letters, as ISO 3166 has them.
    pub country: String,
}

/// Where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Area {
    #[serde(rename = "booking")]
    Booking,
    #[serde(rename = "payment")]
    Payment,
    #[serde(rename = "lock")]
    Lock,
}

impl Area {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Booking => "booking",
            Self::Payment => "payment",
            Self::Lock => "lock",
        }
    }
}

/// What is still open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beds {
    /// The bed.
    pub kind: BedsKind,
    /// How many.
    pub count: i64,
}

/// The bed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BedsKind {
    #[serde(rename = "single")]
    Single,
    #[serde(rename = "double")]
    Double,
    #[serde(rename = "queen")]
    Queen,
    #[serde(rename = "king")]
    King,
    #[serde(rename = "sofa")]
    Sofa,
}

impl BedsKind {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Double => "double",
            Self::Queen => "queen",
            Self::King => "king",
            Self::Sofa => "sofa",
        }
    }
}

/// Whom it is made out to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BillTo {
    /// The name.
    pub name: String,
    /// Its language.
    pub locale: String,
    /// Where it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

impl BillTo {
    /// With the required fields only.
    pub fn new(name: String, locale: String) -> Self {
        Self { name, locale, email: None }
    }
}

/// What is eaten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Board {
    #[serde(rename = "room_only")]
    RoomOnly,
    #[serde(rename = "breakfast")]
    Breakfast,
    #[serde(rename = "half_board")]
    HalfBoard,
    #[serde(rename = "full_board")]
    FullBoard,
}

impl Board {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RoomOnly => "room_only",
            Self::Breakfast => "breakfast",
            Self::HalfBoard => "half_board",
            Self::FullBoard => "full_board",
        }
    }
}

/// The policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cancellation {
    #[serde(rename = "free_until_day_before")]
    FreeUntilDayBefore,
    #[serde(rename = "free_until_arrival")]
    FreeUntilArrival,
    #[serde(rename = "non_refundable")]
    NonRefundable,
}

impl Cancellation {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FreeUntilDayBefore => "free_until_day_before",
            Self::FreeUntilArrival => "free_until_arrival",
            Self::NonRefundable => "non_refundable",
        }
    }
}

/// By which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Channel {
    #[serde(rename = "email")]
    Email,
    #[serde(rename = "sms")]
    Sms,
    #[serde(rename = "whatsapp")]
    Whatsapp,
    #[serde(rename = "push")]
    Push,
}

impl Channel {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Sms => "sms",
            Self::Whatsapp => "whatsapp",
            Self::Push => "push",
        }
    }
}

/// The sum of the charges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Charged {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// What it cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// The price now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Current {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Days {
    /// The day.
    pub date: jiff::civil::Date,
    /// The room type.
    #[serde(rename = "roomTypeId")]
    pub room_type_id: String,
    /// The price of the night.
    pub price: Price,
    /// Whether nobody may arrive.
    #[serde(rename = "closedToArrival", default, skip_serializing_if = "Option::is_none")]
    pub closed_to_arrival: Option<bool>,
    /// The shortest stay.
    #[serde(rename = "minNights", default, skip_serializing_if = "Option::is_none")]
    pub min_nights: Option<i64>,
}

impl Days {
    /// With the required fields only.
    pub fn new(date: jiff::civil::Date, room_type_id: String, price: Price) -> Self {
        Self { date, room_type_id, price, closed_to_arrival: None, min_nights: None }
    }
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Decision {
    #[serde(rename = "accepted")]
    Accepted,
    #[serde(rename = "edited")]
    Edited,
    #[serde(rename = "rejected")]
    Rejected,
}

impl Decision {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Edited => "edited",
            Self::Rejected => "rejected",
        }
    }
}

/// What was promised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Factors {
    #[serde(rename = "password")]
    Password,
    #[serde(rename = "totp")]
    Totp,
    #[serde(rename = "webauthn")]
    Webauthn,
    #[serde(rename = "sso")]
    Sso,
}

impl Factors {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Totp => "totp",
            Self::Webauthn => "webauthn",
            Self::Sso => "sso",
        }
    }
}

/// What the policy charges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fee {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// Its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Format {
    #[serde(rename = "pdf")]
    Pdf,
    #[serde(rename = "csv")]
    Csv,
}

impl Format {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pdf => "pdf",
            Self::Csv => "csv",
        }
    }
}

/// The old window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct From {
    /// The day of arrival.
    #[serde(rename = "checkIn")]
    pub check_in: jiff::civil::Date,
    /// How many nights.
    pub nights: i64,
}

/// The lowest price of a night.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FromPrice {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// How long the period is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Granularity {
    #[serde(rename = "hour")]
    Hour,
    #[serde(rename = "day")]
    Day,
    #[serde(rename = "month")]
    Month,
}

impl Granularity {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

/// Who stays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Guest {
    /// The guest.
    #[serde(rename = "guestId")]
    pub guest_id: String,
    /// The language of the guest's messages.
    pub locale: String,
    /// Where letters reach the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// The name to greet and to register.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where text messages reach the guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phone: Option<String>,
}

impl Guest {
    /// With the required fields only.
    pub fn new(guest_id: String, locale: String) -> Self {
        Self { guest_id, locale, email: None, name: None, phone: None }
    }
}

/// For maps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Location {
    /// Degrees north.
    pub latitude: serde_json::Number,
    /// Degrees east.
    pub longitude: serde_json::Number,
}

/// Its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Method {
    #[serde(rename = "totp")]
    Totp,
    #[serde(rename = "webauthn")]
    Webauthn,
}

impl Method {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Totp => "totp",
            Self::Webauthn => "webauthn",
        }
    }
}

/// Before tax.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Net {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operation {
    #[serde(rename = "issue")]
    Issue,
    #[serde(rename = "update")]
    Update,
    #[serde(rename = "revoke")]
    Revoke,
    #[serde(rename = "suspend")]
    Suspend,
    #[serde(rename = "pair")]
    Pair,
}

impl Operation {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Issue => "issue",
            Self::Update => "update",
            Self::Revoke => "revoke",
            Self::Suspend => "suspend",
            Self::Pair => "pair",
        }
    }
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outcome {
    #[serde(rename = "fixed")]
    Fixed,
    #[serde(rename = "replaced")]
    Replaced,
    #[serde(rename = "not_reproduced")]
    NotReproduced,
    #[serde(rename = "deferred")]
    Deferred,
}

impl Outcome {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Replaced => "replaced",
            Self::NotReproduced => "not_reproduced",
            Self::Deferred => "deferred",
        }
    }
}

/// The sum of the payments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Paid {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// The part.
    pub name: String,
    /// How many.
    pub count: i64,
    /// What it cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

impl Parts {
    /// With the required fields only.
    pub fn new(name: String, count: i64) -> Self {
        Self { name, count, cost: None }
    }
}

/// What it pays for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Plan {
    #[serde(rename = "starter")]
    Starter,
    #[serde(rename = "professional")]
    Professional,
    #[serde(rename = "enterprise")]
    Enterprise,
}

impl Plan {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starter => "starter",
            Self::Professional => "professional",
            Self::Enterprise => "enterprise",
        }
    }
}

/// The rule for such things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    #[serde(rename = "server_authoritative")]
    ServerAuthoritative,
    #[serde(rename = "append_only")]
    AppendOnly,
    #[serde(rename = "max_of")]
    MaxOf,
    #[serde(rename = "operator")]
    Operator,
}

impl Policy {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ServerAuthoritative => "server_authoritative",
            Self::AppendOnly => "append_only",
            Self::MaxOf => "max_of",
            Self::Operator => "operator",
        }
    }
}

/// The price before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Previous {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// The price of the night.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// How bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Priority {
    #[serde(rename = "low")]
    Low,
    #[serde(rename = "normal")]
    Normal,
    #[serde(rename = "high")]
    High,
    #[serde(rename = "urgent")]
    Urgent,
}

impl Priority {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
            Self::Urgent => "urgent",
        }
    }
}

/// How it is paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Rail {
    #[serde(rename = "card")]
    Card,
    #[serde(rename = "paypal")]
    Paypal,
    #[serde(rename = "mfs")]
    Mfs,
    #[serde(rename = "cash")]
    Cash,
}

impl Rail {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Paypal => "paypal",
            Self::Mfs => "mfs",
            Self::Cash => "cash",
        }
    }
}

/// What was counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// How much of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refund {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// The region its data stays in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Residency {
    #[serde(rename = "me-central1")]
    MeCentral1,
    #[serde(rename = "asia-south1")]
    AsiaSouth1,
    #[serde(rename = "europe-west1")]
    EuropeWest1,
    #[serde(rename = "us-central1")]
    UsCentral1,
}

impl Residency {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MeCentral1 => "me-central1",
            Self::AsiaSouth1 => "asia-south1",
            Self::EuropeWest1 => "europe-west1",
            Self::UsCentral1 => "us-central1",
        }
    }
}

/// As what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    #[serde(rename = "front_desk")]
    FrontDesk,
    #[serde(rename = "housekeeping")]
    Housekeeping,
    #[serde(rename = "maintenance")]
    Maintenance,
    #[serde(rename = "manager")]
    Manager,
}

impl Role {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FrontDesk => "front_desk",
            Self::Housekeeping => "housekeeping",
            Self::Maintenance => "maintenance",
            Self::Manager => "manager",
        }
    }
}

/// How bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Severity {
    #[serde(rename = "info")]
    Info,
    #[serde(rename = "warning")]
    Warning,
    #[serde(rename = "critical")]
    Critical,
}

impl Severity {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Where it was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stage {
    #[serde(rename = "input")]
    Input,
    #[serde(rename = "output")]
    Output,
}

impl Stage {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }
}

/// The tax in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tax {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// What the till holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Till {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// The new window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct To {
    /// The day of arrival.
    #[serde(rename = "checkIn")]
    pub check_in: jiff::civil::Date,
    /// How many nights.
    pub nights: i64,
}

/// Together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Total {
    /// In the currency's smallest unit.
    #[serde(rename = "amountMinor")]
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// What kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Type {
    #[serde(rename = "user")]
    User,
    #[serde(rename = "system")]
    System,
    #[serde(rename = "service")]
    Service,
    #[serde(rename = "api_key")]
    ApiKey,
}

impl Type {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::System => "system",
            Self::Service => "service",
            Self::ApiKey => "api_key",
        }
    }
}

/// When it opens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Validity {
    /// From.
    pub from: jiff::Timestamp,
    /// Until.
    pub until: jiff::Timestamp,
}

/// Whose lock it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Vendor {
    #[serde(rename = "ttlock")]
    Ttlock,
    #[serde(rename = "salto")]
    Salto,
    #[serde(rename = "assa_abloy")]
    AssaAbloy,
    #[serde(rename = "wiegand")]
    Wiegand,
}

impl Vendor {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ttlock => "ttlock",
            Self::Salto => "salto",
            Self::AssaAbloy => "assa_abloy",
            Self::Wiegand => "wiegand",
        }
    }
}

/// What the scan says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Verdict {
    #[serde(rename = "clean")]
    Clean,
    #[serde(rename = "infected")]
    Infected,
    #[serde(rename = "unreadable")]
    Unreadable,
}

impl Verdict {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clean => "clean",
            Self::Infected => "infected",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What ai-orchestrator-service publishes.
pub mod ai_orchestrator {
    use serde::{Deserialize, Serialize};

    /// Something looks wrong; a person decides.
    ///
    /// `melmastoon.ai_orchestrator.anomaly.detected.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct AnomalyDetected {
        /// The anomaly.
        #[serde(rename = "anomalyId")]
        pub anomaly_id: String,
        /// Where.
        pub area: super::Area,
        /// How bad.
        pub severity: super::Severity,
        /// What it is about.
        #[serde(rename = "entityId")]
        pub entity_id: String,
        /// Why it was raised.
        pub explanation: String,
        /// How unusual it is.
        pub score: serde_json::Number,
        /// When.
        #[serde(rename = "detectedAt")]
        pub detected_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl AnomalyDetected {
        /// With the required fields only.
        pub fn new(
            anomaly_id: String,
            area: super::Area,
            severity: super::Severity,
            entity_id: String,
            explanation: String,
            score: serde_json::Number,
            detected_at: jiff::Timestamp,
        ) -> Self {
            Self {
                anomaly_id,
                area,
                severity,
                entity_id,
                explanation,
                score,
                detected_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for AnomalyDetected {
        const SUBJECT: &'static str = "melmastoon.ai_orchestrator.anomaly.detected.v1";
        const AGGREGATE: &'static str = "anomaly";

        fn aggregate_id(&self) -> String {
            self.anomaly_id.clone()
        }
    }

    /// What was asked for and what it cost; how it came about is in the envelope's provenance.
    ///
    /// `melmastoon.ai_orchestrator.completion.completed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct CompletionCompleted {
        /// The completion.
        #[serde(rename = "completionId")]
        pub completion_id: String,
        /// What for.
        pub purpose: CompletionCompletedPurpose,
        /// The model and its version.
        pub model: String,
        /// What went in.
        #[serde(rename = "tokensIn")]
        pub tokens_in: i64,
        /// What came out.
        #[serde(rename = "tokensOut")]
        pub tokens_out: i64,
        /// What it cost, in millionths of a dollar.
        #[serde(rename = "costMicroUsd")]
        pub cost_micro_usd: i64,
        /// How long it took.
        #[serde(rename = "latencyMs")]
        pub latency_ms: i64,
        /// Whether a person must decide.
        #[serde(rename = "needsReview")]
        pub needs_review: bool,
        /// When.
        #[serde(rename = "completedAt")]
        pub completed_at: jiff::Timestamp,
        /// The prompt.
        #[serde(rename = "promptId", default, skip_serializing_if = "Option::is_none")]
        pub prompt_id: Option<String>,
        /// Its version.
        #[serde(rename = "promptVersion", default, skip_serializing_if = "Option::is_none")]
        pub prompt_version: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl CompletionCompleted {
        /// With the required fields only.
        pub fn new(
            completion_id: String,
            purpose: CompletionCompletedPurpose,
            model: String,
            tokens_in: i64,
            tokens_out: i64,
            cost_micro_usd: i64,
            latency_ms: i64,
            needs_review: bool,
            completed_at: jiff::Timestamp,
        ) -> Self {
            Self {
                completion_id,
                purpose,
                model,
                tokens_in,
                tokens_out,
                cost_micro_usd,
                latency_ms,
                needs_review,
                completed_at,
                prompt_id: None,
                prompt_version: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for CompletionCompleted {
        const SUBJECT: &'static str = "melmastoon.ai_orchestrator.completion.completed.v1";
        const AGGREGATE: &'static str = "completion";

        fn aggregate_id(&self) -> String {
            self.completion_id.clone()
        }
    }

    /// What for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum CompletionCompletedPurpose {
        #[serde(rename = "guest_message")]
        GuestMessage,
        #[serde(rename = "listing_text")]
        ListingText,
        #[serde(rename = "pricing_hint")]
        PricingHint,
        #[serde(rename = "anomaly_summary")]
        AnomalySummary,
        #[serde(rename = "translation")]
        Translation,
    }

    impl CompletionCompletedPurpose {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::GuestMessage => "guest_message",
                Self::ListingText => "listing_text",
                Self::PricingHint => "pricing_hint",
                Self::AnomalySummary => "anomaly_summary",
                Self::Translation => "translation",
            }
        }
    }

    /// Nothing was shown, and why.
    ///
    /// `melmastoon.ai_orchestrator.completion.refused.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct CompletionRefused {
        /// The completion.
        #[serde(rename = "completionId")]
        pub completion_id: String,
        /// Where it was stopped.
        pub stage: super::Stage,
        /// Why.
        pub reason: CompletionRefusedReason,
        /// The model and its version.
        pub model: String,
        /// When.
        #[serde(rename = "refusedAt")]
        pub refused_at: jiff::Timestamp,
        /// What it was taken for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub category: Option<String>,
        /// The prompt.
        #[serde(rename = "promptId", default, skip_serializing_if = "Option::is_none")]
        pub prompt_id: Option<String>,
        /// Its version.
        #[serde(rename = "promptVersion", default, skip_serializing_if = "Option::is_none")]
        pub prompt_version: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl CompletionRefused {
        /// With the required fields only.
        pub fn new(
            completion_id: String,
            stage: super::Stage,
            reason: CompletionRefusedReason,
            model: String,
            refused_at: jiff::Timestamp,
        ) -> Self {
            Self {
                completion_id,
                stage,
                reason,
                model,
                refused_at,
                category: None,
                prompt_id: None,
                prompt_version: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for CompletionRefused {
        const SUBJECT: &'static str = "melmastoon.ai_orchestrator.completion.refused.v1";
        const AGGREGATE: &'static str = "completion";

        fn aggregate_id(&self) -> String {
            self.completion_id.clone()
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum CompletionRefusedReason {
        #[serde(rename = "safety")]
        Safety,
        #[serde(rename = "privacy")]
        Privacy,
        #[serde(rename = "budget")]
        Budget,
        #[serde(rename = "policy")]
        Policy,
        #[serde(rename = "provider_unavailable")]
        ProviderUnavailable,
    }

    impl CompletionRefusedReason {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Safety => "safety",
                Self::Privacy => "privacy",
                Self::Budget => "budget",
                Self::Policy => "policy",
                Self::ProviderUnavailable => "provider_unavailable",
            }
        }
    }

    /// Who decided what, for the trail behind every model.
    ///
    /// `melmastoon.ai_orchestrator.hitl.decided.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct HitlDecided {
        /// The decision.
        #[serde(rename = "decisionId")]
        pub decision_id: String,
        /// What was decided.
        pub decision: super::Decision,
        /// Who decided.
        #[serde(rename = "decidedBy")]
        pub decided_by: String,
        /// When.
        #[serde(rename = "decidedAt")]
        pub decided_at: jiff::Timestamp,
        /// The anomaly it is about.
        #[serde(rename = "anomalyId", default, skip_serializing_if = "Option::is_none")]
        pub anomaly_id: Option<String>,
        /// The completion it is about.
        #[serde(rename = "completionId", default, skip_serializing_if = "Option::is_none")]
        pub completion_id: Option<String>,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub note: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl HitlDecided {
        /// With the required fields only.
        pub fn new(
            decision_id: String,
            decision: super::Decision,
            decided_by: String,
            decided_at: jiff::Timestamp,
        ) -> Self {
            Self {
                decision_id,
                decision,
                decided_by,
                decided_at,
                anomaly_id: None,
                completion_id: None,
                note: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for HitlDecided {
        const SUBJECT: &'static str = "melmastoon.ai_orchestrator.hitl.decided.v1";
        const AGGREGATE: &'static str = "hitl";

        fn aggregate_id(&self) -> String {
            self.decision_id.clone()
        }
    }

    /// An inference made offline, recorded when the desktop came back.
    ///
    /// `melmastoon.ai_orchestrator.inference.local_completed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct InferenceLocalCompleted {
        /// The inference.
        #[serde(rename = "inferenceId")]
        pub inference_id: String,
        /// The desktop.
        #[serde(rename = "deviceId")]
        pub device_id: String,
        /// What for.
        pub purpose: InferenceLocalCompletedPurpose,
        /// The model and its version.
        pub model: String,
        /// The hash of what went in.
        #[serde(rename = "inputSha256")]
        pub input_sha256: String,
        /// How sure it was.
        pub confidence: serde_json::Number,
        /// How long it took.
        #[serde(rename = "latencyMs")]
        pub latency_ms: i64,
        /// When, by the desktop's clock.
        #[serde(rename = "completedAt")]
        pub completed_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl InferenceLocalCompleted {
        /// With the required fields only.
        pub fn new(
            inference_id: String,
            device_id: String,
            purpose: InferenceLocalCompletedPurpose,
            model: String,
            input_sha256: String,
            confidence: serde_json::Number,
            latency_ms: i64,
            completed_at: jiff::Timestamp,
        ) -> Self {
            Self {
                inference_id,
                device_id,
                purpose,
                model,
                input_sha256,
                confidence,
                latency_ms,
                completed_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for InferenceLocalCompleted {
        const SUBJECT: &'static str = "melmastoon.ai_orchestrator.inference.local_completed.v1";
        const AGGREGATE: &'static str = "inference";

        fn aggregate_id(&self) -> String {
            self.inference_id.clone()
        }
    }

    /// What for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum InferenceLocalCompletedPurpose {
        #[serde(rename = "duplicate_guest")]
        DuplicateGuest,
        #[serde(rename = "demand_forecast")]
        DemandForecast,
        #[serde(rename = "document_scan")]
        DocumentScan,
    }

    impl InferenceLocalCompletedPurpose {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::DuplicateGuest => "duplicate_guest",
                Self::DemandForecast => "demand_forecast",
                Self::DocumentScan => "document_scan",
            }
        }
    }
}

/// What analytics-service publishes.
pub mod analytics {
    use serde::{Deserialize, Serialize};

    /// The figures of a tenant for a period. It is read across tenants, so nothing personal is in it.
    ///
    /// `melmastoon.analytics.snapshot.computed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct SnapshotComputed {
        /// The snapshot.
        #[serde(rename = "snapshotId")]
        pub snapshot_id: String,
        /// How long the period is.
        pub granularity: super::Granularity,
        /// From.
        #[serde(rename = "periodFrom")]
        pub period_from: jiff::Timestamp,
        /// Until.
        #[serde(rename = "periodUntil")]
        pub period_until: jiff::Timestamp,
        /// The figures by name.
        pub figures: std::collections::BTreeMap<String, serde_json::Number>,
        /// When.
        #[serde(rename = "computedAt")]
        pub computed_at: jiff::Timestamp,
        /// The currency of money among them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub currency: Option<String>,
        /// The property, where it is about one.
        #[serde(rename = "propertyId", default, skip_serializing_if = "Option::is_none")]
        pub property_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl SnapshotComputed {
        /// With the required fields only.
        pub fn new(
            snapshot_id: String,
            granularity: super::Granularity,
            period_from: jiff::Timestamp,
            period_until: jiff::Timestamp,
            figures: std::collections::BTreeMap<String, serde_json::Number>,
            computed_at: jiff::Timestamp,
        ) -> Self {
            Self {
                snapshot_id,
                granularity,
                period_from,
                period_until,
                figures,
                computed_at,
                currency: None,
                property_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for SnapshotComputed {
        const SUBJECT: &'static str = "melmastoon.analytics.snapshot.computed.v1";
        const AGGREGATE: &'static str = "snapshot";

        fn aggregate_id(&self) -> String {
            self.snapshot_id.clone()
        }
    }
}

/// What audit-service publishes.
pub mod audit {
    use serde::{Deserialize, Serialize};

    /// Who did what to what, chained to the entry before.
    ///
    /// `melmastoon.audit.entry.appended.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct EntryAppended {
        /// The entry.
        #[serde(rename = "entryId")]
        pub entry_id: String,
        /// Its number in the trail.
        pub sequence: i64,
        /// What was done.
        pub action: String,
        /// Who did it.
        pub actor: super::Actor,
        /// What kind of thing it is about.
        #[serde(rename = "entityType")]
        pub entity_type: String,
        /// Which.
        #[serde(rename = "entityId")]
        pub entity_id: String,
        /// The hash of the entry before.
        #[serde(rename = "previousHash")]
        pub previous_hash: String,
        /// The hash of this one.
        pub hash: String,
        /// When.
        #[serde(rename = "appendedAt")]
        pub appended_at: jiff::Timestamp,
        /// The event behind it.
        #[serde(rename = "sourceEventId", default, skip_serializing_if = "Option::is_none")]
        pub source_event_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl EntryAppended {
        /// With the required fields only.
        pub fn new(
            entry_id: String,
            sequence: i64,
            action: String,
            actor: super::Actor,
            entity_type: String,
            entity_id: String,
            previous_hash: String,
            hash: String,
            appended_at: jiff::Timestamp,
        ) -> Self {
            Self {
                entry_id,
                sequence,
                action,
                actor,
                entity_type,
                entity_id,
                previous_hash,
                hash,
                appended_at,
                source_event_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for EntryAppended {
        const SUBJECT: &'static str = "melmastoon.audit.entry.appended.v1";
        const AGGREGATE: &'static str = "entry";

        fn aggregate_id(&self) -> String {
            self.entry_id.clone()
        }
    }

    /// A proof that the day's entries are what they were; it belongs to the platform.
    ///
    /// `melmastoon.audit.merkle.anchored.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct MerkleAnchored {
        /// The day.
        pub date: jiff::civil::Date,
        /// The root.
        #[serde(rename = "rootId")]
        pub root_id: String,
        /// The Merkle root.
        #[serde(rename = "rootHash")]
        pub root_hash: String,
        /// How many entries it covers.
        pub entries: i64,
        /// Where it is anchored.
        pub anchor: String,
        /// How it is found there.
        #[serde(rename = "anchorReference")]
        pub anchor_reference: String,
        /// When.
        #[serde(rename = "anchoredAt")]
        pub anchored_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl MerkleAnchored {
        /// With the required fields only.
        pub fn new(
            date: jiff::civil::Date,
            root_id: String,
            root_hash: String,
            entries: i64,
            anchor: String,
            anchor_reference: String,
            anchored_at: jiff::Timestamp,
        ) -> Self {
            Self {
                date,
                root_id,
                root_hash,
                entries,
                anchor,
                anchor_reference,
                anchored_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for MerkleAnchored {
        const SUBJECT: &'static str = "melmastoon.audit.merkle.anchored.v1";
        const AGGREGATE: &'static str = "merkle";

        fn aggregate_id(&self) -> String {
            self.root_id.clone()
        }
    }
}

/// What billing-service publishes.
pub mod billing {
    use serde::{Deserialize, Serialize};

    /// One more line on the account.
    ///
    /// `melmastoon.billing.folio.charge_posted.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct FolioChargePosted {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The folio.
        #[serde(rename = "folioId")]
        pub folio_id: String,
        /// The amount in the currency's smallest unit.
        #[serde(rename = "amountMinor")]
        pub amount_minor: i64,
        /// Three letters, as ISO 4217 has them.
        pub currency: String,
        /// What for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub category: Option<FolioChargePostedCategory>,
        /// The line.
        #[serde(rename = "lineId", default, skip_serializing_if = "Option::is_none")]
        pub line_id: Option<String>,
        /// When.
        #[serde(rename = "postedAt", default, skip_serializing_if = "Option::is_none")]
        pub posted_at: Option<jiff::Timestamp>,
        /// The tax in it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tax: Option<super::Tax>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl FolioChargePosted {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            folio_id: String,
            amount_minor: i64,
            currency: String,
        ) -> Self {
            Self {
                reservation_id,
                folio_id,
                amount_minor,
                currency,
                category: None,
                line_id: None,
                posted_at: None,
                tax: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for FolioChargePosted {
        const SUBJECT: &'static str = "melmastoon.billing.folio.charge_posted.v1";
        const AGGREGATE: &'static str = "folio";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// What for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum FolioChargePostedCategory {
        #[serde(rename = "stay")]
        Stay,
        #[serde(rename = "date_change")]
        DateChange,
        #[serde(rename = "no_show_fee")]
        NoShowFee,
        #[serde(rename = "minibar")]
        Minibar,
        #[serde(rename = "restaurant")]
        Restaurant,
        #[serde(rename = "laundry")]
        Laundry,
        #[serde(rename = "other")]
        Other,
    }

    impl FolioChargePostedCategory {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Stay => "stay",
                Self::DateChange => "date_change",
                Self::NoShowFee => "no_show_fee",
                Self::Minibar => "minibar",
                Self::Restaurant => "restaurant",
                Self::Laundry => "laundry",
                Self::Other => "other",
            }
        }
    }

    /// The account's last word, with what is still open.
    ///
    /// `melmastoon.billing.folio.closed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct FolioClosed {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The folio.
        #[serde(rename = "folioId")]
        pub folio_id: String,
        /// The sum of the charges.
        pub charged: super::Charged,
        /// The sum of the payments.
        pub paid: super::Paid,
        /// What is still open.
        pub balance: super::Balance,
        /// When.
        #[serde(rename = "closedAt")]
        pub closed_at: jiff::Timestamp,
        /// Its invoice.
        #[serde(rename = "invoiceId", default, skip_serializing_if = "Option::is_none")]
        pub invoice_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl FolioClosed {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            folio_id: String,
            charged: super::Charged,
            paid: super::Paid,
            balance: super::Balance,
            closed_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                folio_id,
                charged,
                paid,
                balance,
                closed_at,
                invoice_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for FolioClosed {
        const SUBJECT: &'static str = "melmastoon.billing.folio.closed.v1";
        const AGGREGATE: &'static str = "folio";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// The booking has an account to charge to.
    ///
    /// `melmastoon.billing.folio.opened.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct FolioOpened {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The folio.
        #[serde(rename = "folioId")]
        pub folio_id: String,
        /// Who pays.
        #[serde(rename = "guestId")]
        pub guest_id: String,
        /// The currency of the account.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub currency: Option<String>,
        /// When.
        #[serde(rename = "openedAt", default, skip_serializing_if = "Option::is_none")]
        pub opened_at: Option<jiff::Timestamp>,
        /// The property.
        #[serde(rename = "propertyId", default, skip_serializing_if = "Option::is_none")]
        pub property_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl FolioOpened {
        /// With the required fields only.
        pub fn new(reservation_id: String, folio_id: String, guest_id: String) -> Self {
            Self {
                reservation_id,
                folio_id,
                guest_id,
                currency: None,
                opened_at: None,
                property_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for FolioOpened {
        const SUBJECT: &'static str = "melmastoon.billing.folio.opened.v1";
        const AGGREGATE: &'static str = "folio";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }

        fn intent(&self) -> Option<String> {
            Some(format!("{}:opened", self.aggregate_id()))
        }
    }

    /// A line that gives money back; the charge stays where it is.
    ///
    /// `melmastoon.billing.folio.refund_posted.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct FolioRefundPosted {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The folio.
        #[serde(rename = "folioId")]
        pub folio_id: String,
        /// The amount in the currency's smallest unit.
        #[serde(rename = "amountMinor")]
        pub amount_minor: i64,
        /// Three letters, as ISO 4217 has them.
        pub currency: String,
        /// The line.
        #[serde(rename = "lineId")]
        pub line_id: String,
        /// Why.
        pub reason: FolioRefundPostedReason,
        /// When.
        #[serde(rename = "postedAt")]
        pub posted_at: jiff::Timestamp,
        /// The charge it gives back.
        #[serde(rename = "chargeLineId", default, skip_serializing_if = "Option::is_none")]
        pub charge_line_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl FolioRefundPosted {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            folio_id: String,
            amount_minor: i64,
            currency: String,
            line_id: String,
            reason: FolioRefundPostedReason,
            posted_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                folio_id,
                amount_minor,
                currency,
                line_id,
                reason,
                posted_at,
                charge_line_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for FolioRefundPosted {
        const SUBJECT: &'static str = "melmastoon.billing.folio.refund_posted.v1";
        const AGGREGATE: &'static str = "folio";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum FolioRefundPostedReason {
        #[serde(rename = "cancelled")]
        Cancelled,
        #[serde(rename = "date_change")]
        DateChange,
        #[serde(rename = "complaint")]
        Complaint,
        #[serde(rename = "correction")]
        Correction,
    }

    impl FolioRefundPostedReason {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Cancelled => "cancelled",
                Self::DateChange => "date_change",
                Self::Complaint => "complaint",
                Self::Correction => "correction",
            }
        }
    }

    /// The document that the guest and the tax office see.
    ///
    /// `melmastoon.billing.invoice.issued.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct InvoiceIssued {
        /// The invoice.
        #[serde(rename = "invoiceId")]
        pub invoice_id: String,
        /// Its number in the tenant's series.
        pub number: String,
        /// The folio.
        #[serde(rename = "folioId")]
        pub folio_id: String,
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// Whom it is made out to.
        #[serde(rename = "billTo")]
        pub bill_to: super::BillTo,
        /// Before tax.
        pub net: super::Net,
        /// The tax.
        pub tax: super::Tax,
        /// Together.
        pub total: super::Total,
        /// The document.
        #[serde(rename = "fileId")]
        pub file_id: String,
        /// When.
        #[serde(rename = "issuedAt")]
        pub issued_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl InvoiceIssued {
        /// With the required fields only.
        pub fn new(
            invoice_id: String,
            number: String,
            folio_id: String,
            reservation_id: String,
            bill_to: super::BillTo,
            net: super::Net,
            tax: super::Tax,
            total: super::Total,
            file_id: String,
            issued_at: jiff::Timestamp,
        ) -> Self {
            Self {
                invoice_id,
                number,
                folio_id,
                reservation_id,
                bill_to,
                net,
                tax,
                total,
                file_id,
                issued_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for InvoiceIssued {
        const SUBJECT: &'static str = "melmastoon.billing.invoice.issued.v1";
        const AGGREGATE: &'static str = "invoice";

        fn aggregate_id(&self) -> String {
            self.invoice_id.clone()
        }
    }

    /// The invoice no longer counts; its number stays used.
    ///
    /// `melmastoon.billing.invoice.voided.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct InvoiceVoided {
        /// The invoice.
        #[serde(rename = "invoiceId")]
        pub invoice_id: String,
        /// Its number in the tenant's series.
        pub number: String,
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// Why.
        pub reason: String,
        /// Who did it.
        #[serde(rename = "voidedBy")]
        pub voided_by: String,
        /// When.
        #[serde(rename = "voidedAt")]
        pub voided_at: jiff::Timestamp,
        /// The invoice instead.
        #[serde(rename = "replacedBy", default, skip_serializing_if = "Option::is_none")]
        pub replaced_by: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl InvoiceVoided {
        /// With the required fields only.
        pub fn new(
            invoice_id: String,
            number: String,
            reservation_id: String,
            reason: String,
            voided_by: String,
            voided_at: jiff::Timestamp,
        ) -> Self {
            Self {
                invoice_id,
                number,
                reservation_id,
                reason,
                voided_by,
                voided_at,
                replaced_by: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for InvoiceVoided {
        const SUBJECT: &'static str = "melmastoon.billing.invoice.voided.v1";
        const AGGREGATE: &'static str = "invoice";

        fn aggregate_id(&self) -> String {
            self.invoice_id.clone()
        }
    }
}

/// What file-storage-service publishes.
pub mod file {
    use serde::{Deserialize, Serialize};

    /// It is safe, or it is locked away.
    ///
    /// `melmastoon.file.scanned.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Scanned {
        /// The object.
        #[serde(rename = "fileId")]
        pub file_id: String,
        /// What it was called.
        pub name: String,
        /// Its media type.
        #[serde(rename = "contentType")]
        pub content_type: String,
        /// Its size.
        #[serde(rename = "sizeBytes")]
        pub size_bytes: i64,
        /// The hash of its content.
        pub sha256: String,
        /// What the scan says.
        pub verdict: super::Verdict,
        /// When.
        #[serde(rename = "scannedAt")]
        pub scanned_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
        /// What was found.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub threat: Option<String>,
    }

    impl Scanned {
        /// With the required fields only.
        pub fn new(
            file_id: String,
            name: String,
            content_type: String,
            size_bytes: i64,
            sha256: String,
            verdict: super::Verdict,
            scanned_at: jiff::Timestamp,
        ) -> Self {
            Self {
                file_id,
                name,
                content_type,
                size_bytes,
                sha256,
                verdict,
                scanned_at,
                tenant_id: None,
                threat: None,
            }
        }
    }

    impl chapar::Event for Scanned {
        const SUBJECT: &'static str = "melmastoon.file.scanned.v1";
        const AGGREGATE: &'static str = "file";

        fn aggregate_id(&self) -> String {
            self.file_id.clone()
        }
    }

    /// It is there; nobody should open it before the scan.
    ///
    /// `melmastoon.file.uploaded.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct Uploaded {
        /// The object.
        #[serde(rename = "fileId")]
        pub file_id: String,
        /// What it was called.
        pub name: String,
        /// Its media type.
        #[serde(rename = "contentType")]
        pub content_type: String,
        /// Its size.
        #[serde(rename = "sizeBytes")]
        pub size_bytes: i64,
        /// The hash of its content.
        pub sha256: String,
        /// What for.
        pub purpose: UploadedPurpose,
        /// Who did it.
        #[serde(rename = "uploadedBy")]
        pub uploaded_by: String,
        /// When.
        #[serde(rename = "uploadedAt")]
        pub uploaded_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl Uploaded {
        /// With the required fields only.
        pub fn new(
            file_id: String,
            name: String,
            content_type: String,
            size_bytes: i64,
            sha256: String,
            purpose: UploadedPurpose,
            uploaded_by: String,
            uploaded_at: jiff::Timestamp,
        ) -> Self {
            Self {
                file_id,
                name,
                content_type,
                size_bytes,
                sha256,
                purpose,
                uploaded_by,
                uploaded_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for Uploaded {
        const SUBJECT: &'static str = "melmastoon.file.uploaded.v1";
        const AGGREGATE: &'static str = "file";

        fn aggregate_id(&self) -> String {
            self.file_id.clone()
        }
    }

    /// What for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum UploadedPurpose {
        #[serde(rename = "photo")]
        Photo,
        #[serde(rename = "logo")]
        Logo,
        #[serde(rename = "invoice")]
        Invoice,
        #[serde(rename = "identity_document")]
        IdentityDocument,
        #[serde(rename = "report")]
        Report,
        #[serde(rename = "attachment")]
        Attachment,
    }

    impl UploadedPurpose {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Photo => "photo",
                Self::Logo => "logo",
                Self::Invoice => "invoice",
                Self::IdentityDocument => "identity_document",
                Self::Report => "report",
                Self::Attachment => "attachment",
            }
        }
    }
}

/// What housekeeping-service publishes.
pub mod housekeeping {
    use serde::{Deserialize, Serialize};

    /// The room's state before and after.
    ///
    /// `melmastoon.housekeeping.room.status_changed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct RoomStatusChanged {
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// Before.
        pub from: RoomStatusChangedFrom,
        /// After.
        pub to: RoomStatusChangedTo,
        /// Who said so.
        #[serde(rename = "changedBy")]
        pub changed_by: String,
        /// When.
        #[serde(rename = "changedAt")]
        pub changed_at: jiff::Timestamp,
        /// Why, where it is out of use.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
        /// Until when it is out of use.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub until: Option<jiff::civil::Date>,
    }

    impl RoomStatusChanged {
        /// With the required fields only.
        pub fn new(
            property_id: String,
            room_id: String,
            from: RoomStatusChangedFrom,
            to: RoomStatusChangedTo,
            changed_by: String,
            changed_at: jiff::Timestamp,
        ) -> Self {
            Self {
                property_id,
                room_id,
                from,
                to,
                changed_by,
                changed_at,
                reason: None,
                tenant_id: None,
                until: None,
            }
        }
    }

    impl chapar::Event for RoomStatusChanged {
        const SUBJECT: &'static str = "melmastoon.housekeeping.room.status_changed.v1";
        const AGGREGATE: &'static str = "room";

        fn aggregate_id(&self) -> String {
            self.room_id.clone()
        }
    }

    /// Before.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum RoomStatusChangedFrom {
        #[serde(rename = "clean")]
        Clean,
        #[serde(rename = "dirty")]
        Dirty,
        #[serde(rename = "out_of_order")]
        OutOfOrder,
        #[serde(rename = "out_of_service")]
        OutOfService,
    }

    impl RoomStatusChangedFrom {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Clean => "clean",
                Self::Dirty => "dirty",
                Self::OutOfOrder => "out_of_order",
                Self::OutOfService => "out_of_service",
            }
        }
    }

    /// After.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum RoomStatusChangedTo {
        #[serde(rename = "clean")]
        Clean,
        #[serde(rename = "dirty")]
        Dirty,
        #[serde(rename = "out_of_order")]
        OutOfOrder,
        #[serde(rename = "out_of_service")]
        OutOfService,
    }

    impl RoomStatusChangedTo {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Clean => "clean",
                Self::Dirty => "dirty",
                Self::OutOfOrder => "out_of_order",
                Self::OutOfService => "out_of_service",
            }
        }
    }

    /// Someone has it in hand.
    ///
    /// `melmastoon.housekeeping.task.assigned.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct TaskAssigned {
        /// The task.
        #[serde(rename = "taskId")]
        pub task_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// Who does it.
        #[serde(rename = "staffId")]
        pub staff_id: String,
        /// When.
        #[serde(rename = "assignedAt")]
        pub assigned_at: jiff::Timestamp,
        /// The language of the message.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub locale: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
        /// The account to tell.
        #[serde(rename = "userId", default, skip_serializing_if = "Option::is_none")]
        pub user_id: Option<String>,
    }

    impl TaskAssigned {
        /// With the required fields only.
        pub fn new(
            task_id: String,
            property_id: String,
            room_id: String,
            staff_id: String,
            assigned_at: jiff::Timestamp,
        ) -> Self {
            Self {
                task_id,
                property_id,
                room_id,
                staff_id,
                assigned_at,
                locale: None,
                tenant_id: None,
                user_id: None,
            }
        }
    }

    impl chapar::Event for TaskAssigned {
        const SUBJECT: &'static str = "melmastoon.housekeeping.task.assigned.v1";
        const AGGREGATE: &'static str = "task";

        fn aggregate_id(&self) -> String {
            self.room_id.clone()
        }
    }

    /// The room is ready for whoever comes next.
    ///
    /// `melmastoon.housekeeping.task.completed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct TaskCompleted {
        /// The task.
        #[serde(rename = "taskId")]
        pub task_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// Who did it.
        #[serde(rename = "staffId")]
        pub staff_id: String,
        /// How long it took.
        pub minutes: i64,
        /// When.
        #[serde(rename = "completedAt")]
        pub completed_at: jiff::Timestamp,
        /// What was found.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub found: Option<Vec<String>>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl TaskCompleted {
        /// With the required fields only.
        pub fn new(
            task_id: String,
            property_id: String,
            room_id: String,
            staff_id: String,
            minutes: i64,
            completed_at: jiff::Timestamp,
        ) -> Self {
            Self {
                task_id,
                property_id,
                room_id,
                staff_id,
                minutes,
                completed_at,
                found: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for TaskCompleted {
        const SUBJECT: &'static str = "melmastoon.housekeeping.task.completed.v1";
        const AGGREGATE: &'static str = "task";

        fn aggregate_id(&self) -> String {
            self.room_id.clone()
        }
    }

    /// A room wants work.
    ///
    /// `melmastoon.housekeeping.task.created.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct TaskCreated {
        /// The task.
        #[serde(rename = "taskId")]
        pub task_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// What kind.
        pub kind: TaskCreatedKind,
        /// Where it came from.
        pub origin: TaskCreatedOrigin,
        /// When.
        #[serde(rename = "createdAt")]
        pub created_at: jiff::Timestamp,
        /// When it must be done.
        #[serde(rename = "dueAt", default, skip_serializing_if = "Option::is_none")]
        pub due_at: Option<jiff::Timestamp>,
        /// The booking that left the room.
        #[serde(rename = "reservationId", default, skip_serializing_if = "Option::is_none")]
        pub reservation_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl TaskCreated {
        /// With the required fields only.
        pub fn new(
            task_id: String,
            property_id: String,
            room_id: String,
            kind: TaskCreatedKind,
            origin: TaskCreatedOrigin,
            created_at: jiff::Timestamp,
        ) -> Self {
            Self {
                task_id,
                property_id,
                room_id,
                kind,
                origin,
                created_at,
                due_at: None,
                reservation_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for TaskCreated {
        const SUBJECT: &'static str = "melmastoon.housekeeping.task.created.v1";
        const AGGREGATE: &'static str = "task";

        fn aggregate_id(&self) -> String {
            self.room_id.clone()
        }
    }

    /// What kind.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum TaskCreatedKind {
        #[serde(rename = "turnover")]
        Turnover,
        #[serde(rename = "stay_over")]
        StayOver,
        #[serde(rename = "deep_clean")]
        DeepClean,
        #[serde(rename = "inspection")]
        Inspection,
    }

    impl TaskCreatedKind {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Turnover => "turnover",
                Self::StayOver => "stay_over",
                Self::DeepClean => "deep_clean",
                Self::Inspection => "inspection",
            }
        }
    }

    /// Where it came from.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum TaskCreatedOrigin {
        #[serde(rename = "checked_out")]
        CheckedOut,
        #[serde(rename = "scheduled")]
        Scheduled,
        #[serde(rename = "requested")]
        Requested,
    }

    impl TaskCreatedOrigin {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::CheckedOut => "checked_out",
                Self::Scheduled => "scheduled",
                Self::Requested => "requested",
            }
        }
    }
}

/// What iam-service publishes.
pub mod iam {
    use serde::{Deserialize, Serialize};

    /// A desktop may work offline for a property from now on.
    ///
    /// `melmastoon.iam.device.bound.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct DeviceBound {
        /// The desktop.
        #[serde(rename = "deviceId")]
        pub device_id: String,
        /// The account.
        #[serde(rename = "userId")]
        pub user_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// What people call it.
        pub name: String,
        /// The SHA-256 of its public key.
        #[serde(rename = "publicKeyFingerprint")]
        pub public_key_fingerprint: String,
        /// When.
        #[serde(rename = "boundAt")]
        pub bound_at: jiff::Timestamp,
        /// Until when it need not pair again.
        #[serde(rename = "certificateExpiresAt")]
        pub certificate_expires_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl DeviceBound {
        /// With the required fields only.
        pub fn new(
            device_id: String,
            user_id: String,
            property_id: String,
            name: String,
            public_key_fingerprint: String,
            bound_at: jiff::Timestamp,
            certificate_expires_at: jiff::Timestamp,
        ) -> Self {
            Self {
                device_id,
                user_id,
                property_id,
                name,
                public_key_fingerprint,
                bound_at,
                certificate_expires_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for DeviceBound {
        const SUBJECT: &'static str = "melmastoon.iam.device.bound.v1";
        const AGGREGATE: &'static str = "device";

        fn aggregate_id(&self) -> String {
            self.device_id.clone()
        }
    }

    /// A desktop is no longer trusted and wipes what it holds.
    ///
    /// `melmastoon.iam.device.unbound.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct DeviceUnbound {
        /// The desktop.
        #[serde(rename = "deviceId")]
        pub device_id: String,
        /// The account.
        #[serde(rename = "userId")]
        pub user_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// Why.
        pub reason: DeviceUnboundReason,
        /// When.
        #[serde(rename = "unboundAt")]
        pub unbound_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl DeviceUnbound {
        /// With the required fields only.
        pub fn new(
            device_id: String,
            user_id: String,
            property_id: String,
            reason: DeviceUnboundReason,
            unbound_at: jiff::Timestamp,
        ) -> Self {
            Self { device_id, user_id, property_id, reason, unbound_at, tenant_id: None }
        }
    }

    impl chapar::Event for DeviceUnbound {
        const SUBJECT: &'static str = "melmastoon.iam.device.unbound.v1";
        const AGGREGATE: &'static str = "device";

        fn aggregate_id(&self) -> String {
            self.device_id.clone()
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum DeviceUnboundReason {
        #[serde(rename = "lost")]
        Lost,
        #[serde(rename = "replaced")]
        Replaced,
        #[serde(rename = "retired")]
        Retired,
        #[serde(rename = "security_incident")]
        SecurityIncident,
    }

    impl DeviceUnboundReason {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Lost => "lost",
                Self::Replaced => "replaced",
                Self::Retired => "retired",
                Self::SecurityIncident => "security_incident",
            }
        }
    }

    /// The user has one more way to prove who they are.
    ///
    /// `melmastoon.iam.mfa.enrolled.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct MfaEnrolled {
        /// The account.
        #[serde(rename = "userId")]
        pub user_id: String,
        /// The factor.
        #[serde(rename = "factorId")]
        pub factor_id: String,
        /// Its kind.
        pub method: super::Method,
        /// The language of the notice.
        pub locale: String,
        /// When.
        #[serde(rename = "enrolledAt")]
        pub enrolled_at: jiff::Timestamp,
        /// Where the notice goes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub email: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl MfaEnrolled {
        /// With the required fields only.
        pub fn new(
            user_id: String,
            factor_id: String,
            method: super::Method,
            locale: String,
            enrolled_at: jiff::Timestamp,
        ) -> Self {
            Self { user_id, factor_id, method, locale, enrolled_at, email: None, tenant_id: None }
        }
    }

    impl chapar::Event for MfaEnrolled {
        const SUBJECT: &'static str = "melmastoon.iam.mfa.enrolled.v1";
        const AGGREGATE: &'static str = "mfa";

        fn aggregate_id(&self) -> String {
            self.user_id.clone()
        }
    }

    /// Someone signed in. The tokens themselves are never part of it.
    ///
    /// `melmastoon.iam.session.issued.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct SessionIssued {
        /// The session.
        #[serde(rename = "sessionId")]
        pub session_id: String,
        /// The account.
        #[serde(rename = "userId")]
        pub user_id: String,
        /// How the user proved who they are.
        pub factors: Vec<super::Factors>,
        /// When.
        #[serde(rename = "issuedAt")]
        pub issued_at: jiff::Timestamp,
        /// Until when the session can be refreshed.
        #[serde(rename = "expiresAt")]
        pub expires_at: jiff::Timestamp,
        /// The paired desktop, where it is one.
        #[serde(rename = "deviceId", default, skip_serializing_if = "Option::is_none")]
        pub device_id: Option<String>,
        /// Where from.
        #[serde(rename = "ipAddress", default, skip_serializing_if = "Option::is_none")]
        pub ip_address: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl SessionIssued {
        /// With the required fields only.
        pub fn new(
            session_id: String,
            user_id: String,
            factors: Vec<super::Factors>,
            issued_at: jiff::Timestamp,
            expires_at: jiff::Timestamp,
        ) -> Self {
            Self {
                session_id,
                user_id,
                factors,
                issued_at,
                expires_at,
                device_id: None,
                ip_address: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for SessionIssued {
        const SUBJECT: &'static str = "melmastoon.iam.session.issued.v1";
        const AGGREGATE: &'static str = "session";

        fn aggregate_id(&self) -> String {
            self.user_id.clone()
        }
    }

    /// A session ends before its time; desktops that hold it lock themselves.
    ///
    /// `melmastoon.iam.session.revoked.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct SessionRevoked {
        /// The session.
        #[serde(rename = "sessionId")]
        pub session_id: String,
        /// The account.
        #[serde(rename = "userId")]
        pub user_id: String,
        /// Why.
        pub reason: SessionRevokedReason,
        /// When.
        #[serde(rename = "revokedAt")]
        pub revoked_at: jiff::Timestamp,
        /// The paired desktop, where it is one.
        #[serde(rename = "deviceId", default, skip_serializing_if = "Option::is_none")]
        pub device_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl SessionRevoked {
        /// With the required fields only.
        pub fn new(
            session_id: String,
            user_id: String,
            reason: SessionRevokedReason,
            revoked_at: jiff::Timestamp,
        ) -> Self {
            Self { session_id, user_id, reason, revoked_at, device_id: None, tenant_id: None }
        }
    }

    impl chapar::Event for SessionRevoked {
        const SUBJECT: &'static str = "melmastoon.iam.session.revoked.v1";
        const AGGREGATE: &'static str = "session";

        fn aggregate_id(&self) -> String {
            self.user_id.clone()
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum SessionRevokedReason {
        #[serde(rename = "signed_out")]
        SignedOut,
        #[serde(rename = "token_reuse")]
        TokenReuse,
        #[serde(rename = "administrator")]
        Administrator,
        #[serde(rename = "password_changed")]
        PasswordChanged,
        #[serde(rename = "device_unbound")]
        DeviceUnbound,
        #[serde(rename = "security_incident")]
        SecurityIncident,
    }

    impl SessionRevokedReason {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::SignedOut => "signed_out",
                Self::TokenReuse => "token_reuse",
                Self::Administrator => "administrator",
                Self::PasswordChanged => "password_changed",
                Self::DeviceUnbound => "device_unbound",
                Self::SecurityIncident => "security_incident",
            }
        }
    }

    /// An account exists, with what is needed to greet its owner and to let a desktop know it.
    ///
    /// `melmastoon.iam.user.created.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct UserCreated {
        /// The account.
        #[serde(rename = "userId")]
        pub user_id: String,
        /// The name to show.
        #[serde(rename = "displayName")]
        pub display_name: String,
        /// Where letters reach the user.
        pub email: String,
        /// The language of the user's messages.
        pub locale: String,
        /// How the account came to be.
        pub origin: UserCreatedOrigin,
        /// When.
        #[serde(rename = "createdAt")]
        pub created_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl UserCreated {
        /// With the required fields only.
        pub fn new(
            user_id: String,
            display_name: String,
            email: String,
            locale: String,
            origin: UserCreatedOrigin,
            created_at: jiff::Timestamp,
        ) -> Self {
            Self { user_id, display_name, email, locale, origin, created_at, tenant_id: None }
        }
    }

    impl chapar::Event for UserCreated {
        const SUBJECT: &'static str = "melmastoon.iam.user.created.v1";
        const AGGREGATE: &'static str = "user";

        fn aggregate_id(&self) -> String {
            self.user_id.clone()
        }
    }

    /// How the account came to be.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum UserCreatedOrigin {
        #[serde(rename = "invited")]
        Invited,
        #[serde(rename = "self_registered")]
        SelfRegistered,
        #[serde(rename = "imported")]
        Imported,
    }

    impl UserCreatedOrigin {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Invited => "invited",
                Self::SelfRegistered => "self_registered",
                Self::Imported => "imported",
            }
        }
    }
}

/// What inventory-service publishes.
pub mod inventory {
    use serde::{Deserialize, Serialize};

    /// The room is the booking's for all its nights.
    ///
    /// `melmastoon.inventory.allocation.committed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct AllocationCommitted {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The allocation.
        #[serde(rename = "allocationId")]
        pub allocation_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The day of arrival.
        #[serde(rename = "checkIn")]
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl AllocationCommitted {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            allocation_id: String,
            property_id: String,
            room_id: String,
            check_in: jiff::civil::Date,
            nights: i64,
        ) -> Self {
            Self {
                reservation_id,
                allocation_id,
                property_id,
                room_id,
                check_in,
                nights,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for AllocationCommitted {
        const SUBJECT: &'static str = "melmastoon.inventory.allocation.committed.v1";
        const AGGREGATE: &'static str = "allocation";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }

        fn intent(&self) -> Option<String> {
            Some(format!("{}:committed", self.aggregate_id()))
        }
    }

    /// Old and new window; the new one is sure.
    ///
    /// `melmastoon.inventory.allocation.reallocated.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct AllocationReallocated {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The allocation.
        #[serde(rename = "allocationId")]
        pub allocation_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The room before.
        #[serde(rename = "previousRoomId")]
        pub previous_room_id: String,
        /// The old window.
        pub from: super::From,
        /// The new window.
        pub to: super::To,
        /// When.
        #[serde(rename = "reallocatedAt")]
        pub reallocated_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl AllocationReallocated {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            allocation_id: String,
            property_id: String,
            room_id: String,
            previous_room_id: String,
            from: super::From,
            to: super::To,
            reallocated_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                allocation_id,
                property_id,
                room_id,
                previous_room_id,
                from,
                to,
                reallocated_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for AllocationReallocated {
        const SUBJECT: &'static str = "melmastoon.inventory.allocation.reallocated.v1";
        const AGGREGATE: &'static str = "allocation";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// The nights can be sold again.
    ///
    /// `melmastoon.inventory.allocation.released.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct AllocationReleased {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The allocation.
        #[serde(rename = "allocationId")]
        pub allocation_id: String,
        /// How many nights are free again.
        #[serde(rename = "nightsReleased")]
        pub nights_released: i64,
        /// Why.
        pub reason: AllocationReleasedReason,
        /// The property.
        #[serde(rename = "propertyId", default, skip_serializing_if = "Option::is_none")]
        pub property_id: Option<String>,
        /// The room.
        #[serde(rename = "roomId", default, skip_serializing_if = "Option::is_none")]
        pub room_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl AllocationReleased {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            allocation_id: String,
            nights_released: i64,
            reason: AllocationReleasedReason,
        ) -> Self {
            Self {
                reservation_id,
                allocation_id,
                nights_released,
                reason,
                property_id: None,
                room_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for AllocationReleased {
        const SUBJECT: &'static str = "melmastoon.inventory.allocation.released.v1";
        const AGGREGATE: &'static str = "allocation";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }

        fn intent(&self) -> Option<String> {
            Some(format!("{}:released", self.aggregate_id()))
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum AllocationReleasedReason {
        #[serde(rename = "guest_request")]
        GuestRequest,
        #[serde(rename = "property_request")]
        PropertyRequest,
        #[serde(rename = "hold_expired")]
        HoldExpired,
        #[serde(rename = "payment_failed")]
        PaymentFailed,
        #[serde(rename = "no_availability")]
        NoAvailability,
        #[serde(rename = "fraud")]
        Fraud,
        #[serde(rename = "no_show")]
        NoShow,
    }

    impl AllocationReleasedReason {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::GuestRequest => "guest_request",
                Self::PropertyRequest => "property_request",
                Self::HoldExpired => "hold_expired",
                Self::PaymentFailed => "payment_failed",
                Self::NoAvailability => "no_availability",
                Self::Fraud => "fraud",
                Self::NoShow => "no_show",
            }
        }
    }

    /// The room could not be sold; the booking saga cancels.
    ///
    /// `melmastoon.inventory.oversell.blocked.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct OversellBlocked {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The day of arrival.
        #[serde(rename = "checkIn")]
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// What stood in the way.
        pub reason: String,
        /// The booking that has the room.
        #[serde(rename = "heldBy", default, skip_serializing_if = "Option::is_none")]
        pub held_by: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl OversellBlocked {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            property_id: String,
            room_id: String,
            check_in: jiff::civil::Date,
            nights: i64,
            reason: String,
        ) -> Self {
            Self {
                reservation_id,
                property_id,
                room_id,
                check_in,
                nights,
                reason,
                held_by: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for OversellBlocked {
        const SUBJECT: &'static str = "melmastoon.inventory.oversell.blocked.v1";
        const AGGREGATE: &'static str = "oversell";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }

        fn intent(&self) -> Option<String> {
            Some(format!("{}:blocked", self.aggregate_id()))
        }
    }

    /// Nothing of this type is sold for the day, whatever is free.
    ///
    /// `melmastoon.inventory.stop_sell.activated.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct StopSellActivated {
        /// The stop-sell.
        #[serde(rename = "stopSellId")]
        pub stop_sell_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room type.
        #[serde(rename = "roomTypeId")]
        pub room_type_id: String,
        /// The day it is about.
        pub date: jiff::civil::Date,
        /// Why.
        pub reason: String,
        /// Who did it.
        #[serde(rename = "activatedBy")]
        pub activated_by: String,
        /// When.
        #[serde(rename = "activatedAt")]
        pub activated_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl StopSellActivated {
        /// With the required fields only.
        pub fn new(
            stop_sell_id: String,
            property_id: String,
            room_type_id: String,
            date: jiff::civil::Date,
            reason: String,
            activated_by: String,
            activated_at: jiff::Timestamp,
        ) -> Self {
            Self {
                stop_sell_id,
                property_id,
                room_type_id,
                date,
                reason,
                activated_by,
                activated_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for StopSellActivated {
        const SUBJECT: &'static str = "melmastoon.inventory.stop_sell.activated.v1";
        const AGGREGATE: &'static str = "stop_sell";

        fn aggregate_id(&self) -> String {
            self.stop_sell_id.clone()
        }
    }

    /// The day is sold again by what is free.
    ///
    /// `melmastoon.inventory.stop_sell.cleared.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct StopSellCleared {
        /// The stop-sell.
        #[serde(rename = "stopSellId")]
        pub stop_sell_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room type.
        #[serde(rename = "roomTypeId")]
        pub room_type_id: String,
        /// The day it is about.
        pub date: jiff::civil::Date,
        /// How many rooms are free.
        pub available: i64,
        /// When.
        #[serde(rename = "clearedAt")]
        pub cleared_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl StopSellCleared {
        /// With the required fields only.
        pub fn new(
            stop_sell_id: String,
            property_id: String,
            room_type_id: String,
            date: jiff::civil::Date,
            available: i64,
            cleared_at: jiff::Timestamp,
        ) -> Self {
            Self {
                stop_sell_id,
                property_id,
                room_type_id,
                date,
                available,
                cleared_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for StopSellCleared {
        const SUBJECT: &'static str = "melmastoon.inventory.stop_sell.cleared.v1";
        const AGGREGATE: &'static str = "stop_sell";

        fn aggregate_id(&self) -> String {
            self.stop_sell_id.clone()
        }
    }
}

/// What lock-integration-service publishes.
pub mod lock_integration {
    use serde::{Deserialize, Serialize};

    /// A door has a lock that takes keys from us.
    ///
    /// `melmastoon.lock_integration.device.paired.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct DevicePaired {
        /// The lock.
        #[serde(rename = "lockId")]
        pub lock_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// Whose lock it is.
        pub vendor: super::Vendor,
        /// Who did it.
        #[serde(rename = "pairedBy")]
        pub paired_by: String,
        /// When.
        #[serde(rename = "pairedAt")]
        pub paired_at: jiff::Timestamp,
        /// How full its battery is.
        #[serde(rename = "batteryPercent", default, skip_serializing_if = "Option::is_none")]
        pub battery_percent: Option<i64>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl DevicePaired {
        /// With the required fields only.
        pub fn new(
            lock_id: String,
            property_id: String,
            room_id: String,
            vendor: super::Vendor,
            paired_by: String,
            paired_at: jiff::Timestamp,
        ) -> Self {
            Self {
                lock_id,
                property_id,
                room_id,
                vendor,
                paired_by,
                paired_at,
                battery_percent: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for DevicePaired {
        const SUBJECT: &'static str = "melmastoon.lock_integration.device.paired.v1";
        const AGGREGATE: &'static str = "device";

        fn aggregate_id(&self) -> String {
            self.lock_id.clone()
        }
    }

    /// The guest's key works. The code itself is never part of it.
    ///
    /// `melmastoon.lock_integration.key_credential.issued.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct KeyCredentialIssued {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The key.
        #[serde(rename = "credentialId")]
        pub credential_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
        /// When it opens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub validity: Option<super::Validity>,
        /// Whose lock it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub vendor: Option<super::Vendor>,
    }

    impl KeyCredentialIssued {
        /// With the required fields only.
        pub fn new(reservation_id: String, credential_id: String, room_id: String) -> Self {
            Self {
                reservation_id,
                credential_id,
                room_id,
                tenant_id: None,
                validity: None,
                vendor: None,
            }
        }
    }

    impl chapar::Event for KeyCredentialIssued {
        const SUBJECT: &'static str = "melmastoon.lock_integration.key_credential.issued.v1";
        const AGGREGATE: &'static str = "key_credential";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// The key opens nothing any more.
    ///
    /// `melmastoon.lock_integration.key_credential.revoked.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct KeyCredentialRevoked {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The key.
        #[serde(rename = "credentialId")]
        pub credential_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// Whose lock it is.
        pub vendor: super::Vendor,
        /// Why.
        pub reason: KeyCredentialRevokedReason,
        /// When.
        #[serde(rename = "revokedAt")]
        pub revoked_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl KeyCredentialRevoked {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            credential_id: String,
            room_id: String,
            vendor: super::Vendor,
            reason: KeyCredentialRevokedReason,
            revoked_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                credential_id,
                room_id,
                vendor,
                reason,
                revoked_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for KeyCredentialRevoked {
        const SUBJECT: &'static str = "melmastoon.lock_integration.key_credential.revoked.v1";
        const AGGREGATE: &'static str = "key_credential";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum KeyCredentialRevokedReason {
        #[serde(rename = "checked_out")]
        CheckedOut,
        #[serde(rename = "cancelled")]
        Cancelled,
        #[serde(rename = "no_show")]
        NoShow,
        #[serde(rename = "security")]
        Security,
    }

    impl KeyCredentialRevokedReason {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::CheckedOut => "checked_out",
                Self::Cancelled => "cancelled",
                Self::NoShow => "no_show",
                Self::Security => "security",
            }
        }
    }

    /// The key is asleep; it can be woken again.
    ///
    /// `melmastoon.lock_integration.key_credential.suspended.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct KeyCredentialSuspended {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The key.
        #[serde(rename = "credentialId")]
        pub credential_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// Whose lock it is.
        pub vendor: super::Vendor,
        /// Why.
        pub reason: KeyCredentialSuspendedReason,
        /// Who ordered it.
        #[serde(rename = "orderedBy")]
        pub ordered_by: String,
        /// When.
        #[serde(rename = "suspendedAt")]
        pub suspended_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl KeyCredentialSuspended {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            credential_id: String,
            room_id: String,
            vendor: super::Vendor,
            reason: KeyCredentialSuspendedReason,
            ordered_by: String,
            suspended_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                credential_id,
                room_id,
                vendor,
                reason,
                ordered_by,
                suspended_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for KeyCredentialSuspended {
        const SUBJECT: &'static str = "melmastoon.lock_integration.key_credential.suspended.v1";
        const AGGREGATE: &'static str = "key_credential";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum KeyCredentialSuspendedReason {
        #[serde(rename = "police_hold")]
        PoliceHold,
        #[serde(rename = "dispute")]
        Dispute,
    }

    impl KeyCredentialSuspendedReason {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::PoliceHold => "police_hold",
                Self::Dispute => "dispute",
            }
        }
    }

    /// The same key, for another door or other days.
    ///
    /// `melmastoon.lock_integration.key_credential.updated.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct KeyCredentialUpdated {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The key.
        #[serde(rename = "credentialId")]
        pub credential_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// Whose lock it is.
        pub vendor: super::Vendor,
        /// When it opens.
        pub validity: super::Validity,
        /// Why.
        pub reason: KeyCredentialUpdatedReason,
        /// When.
        #[serde(rename = "updatedAt")]
        pub updated_at: jiff::Timestamp,
        /// The room before.
        #[serde(rename = "previousRoomId", default, skip_serializing_if = "Option::is_none")]
        pub previous_room_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl KeyCredentialUpdated {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            credential_id: String,
            room_id: String,
            vendor: super::Vendor,
            validity: super::Validity,
            reason: KeyCredentialUpdatedReason,
            updated_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                credential_id,
                room_id,
                vendor,
                validity,
                reason,
                updated_at,
                previous_room_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for KeyCredentialUpdated {
        const SUBJECT: &'static str = "melmastoon.lock_integration.key_credential.updated.v1";
        const AGGREGATE: &'static str = "key_credential";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum KeyCredentialUpdatedReason {
        #[serde(rename = "room_changed")]
        RoomChanged,
        #[serde(rename = "dates_changed")]
        DatesChanged,
        #[serde(rename = "reinstated")]
        Reinstated,
    }

    impl KeyCredentialUpdatedReason {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::RoomChanged => "room_changed",
                Self::DatesChanged => "dates_changed",
                Self::Reinstated => "reinstated",
            }
        }
    }

    /// The vendor did not do its part; people at the desk can.
    ///
    /// `melmastoon.lock_integration.vendor.error.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct VendorError {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// What the vendor said.
        pub reason: String,
        /// How often it was tried.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub attempts: Option<i64>,
        /// When.
        #[serde(rename = "failedAt", default, skip_serializing_if = "Option::is_none")]
        pub failed_at: Option<jiff::Timestamp>,
        /// What was asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub operation: Option<super::Operation>,
        /// Whether another try may help.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub retryable: Option<bool>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
        /// Whose lock it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub vendor: Option<super::Vendor>,
    }

    impl VendorError {
        /// With the required fields only.
        pub fn new(reservation_id: String, room_id: String, reason: String) -> Self {
            Self {
                reservation_id,
                room_id,
                reason,
                attempts: None,
                failed_at: None,
                operation: None,
                retryable: None,
                tenant_id: None,
                vendor: None,
            }
        }
    }

    impl chapar::Event for VendorError {
        const SUBJECT: &'static str = "melmastoon.lock_integration.vendor.error.v1";
        const AGGREGATE: &'static str = "vendor";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }
}

/// What maintenance-service publishes.
pub mod maintenance {
    use serde::{Deserialize, Serialize};

    /// It is mended, and what that took.
    ///
    /// `melmastoon.maintenance.ticket.closed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct TicketClosed {
        /// The work order.
        #[serde(rename = "ticketId")]
        pub ticket_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// How it ended.
        pub outcome: super::Outcome,
        /// How long it took.
        #[serde(rename = "labourMinutes")]
        pub labour_minutes: i64,
        /// What was used.
        pub parts: Vec<super::Parts>,
        /// All of it.
        pub cost: super::Cost,
        /// Whether the room can be sold again.
        #[serde(rename = "roomUsable")]
        pub room_usable: bool,
        /// When.
        #[serde(rename = "closedAt")]
        pub closed_at: jiff::Timestamp,
        /// The room.
        #[serde(rename = "roomId", default, skip_serializing_if = "Option::is_none")]
        pub room_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl TicketClosed {
        /// With the required fields only.
        pub fn new(
            ticket_id: String,
            property_id: String,
            outcome: super::Outcome,
            labour_minutes: i64,
            parts: Vec<super::Parts>,
            cost: super::Cost,
            room_usable: bool,
            closed_at: jiff::Timestamp,
        ) -> Self {
            Self {
                ticket_id,
                property_id,
                outcome,
                labour_minutes,
                parts,
                cost,
                room_usable,
                closed_at,
                room_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for TicketClosed {
        const SUBJECT: &'static str = "melmastoon.maintenance.ticket.closed.v1";
        const AGGREGATE: &'static str = "ticket";

        fn aggregate_id(&self) -> String {
            self.ticket_id.clone()
        }
    }

    /// Something is broken.
    ///
    /// `melmastoon.maintenance.ticket.opened.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct TicketOpened {
        /// The work order.
        #[serde(rename = "ticketId")]
        pub ticket_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// What.
        pub category: TicketOpenedCategory,
        /// How bad.
        pub priority: super::Priority,
        /// In a sentence.
        pub summary: String,
        /// Whether the room cannot be sold.
        #[serde(rename = "roomUnusable")]
        pub room_unusable: bool,
        /// Who reported it.
        #[serde(rename = "openedBy")]
        pub opened_by: String,
        /// When.
        #[serde(rename = "openedAt")]
        pub opened_at: jiff::Timestamp,
        /// The room.
        #[serde(rename = "roomId", default, skip_serializing_if = "Option::is_none")]
        pub room_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl TicketOpened {
        /// With the required fields only.
        pub fn new(
            ticket_id: String,
            property_id: String,
            category: TicketOpenedCategory,
            priority: super::Priority,
            summary: String,
            room_unusable: bool,
            opened_by: String,
            opened_at: jiff::Timestamp,
        ) -> Self {
            Self {
                ticket_id,
                property_id,
                category,
                priority,
                summary,
                room_unusable,
                opened_by,
                opened_at,
                room_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for TicketOpened {
        const SUBJECT: &'static str = "melmastoon.maintenance.ticket.opened.v1";
        const AGGREGATE: &'static str = "ticket";

        fn aggregate_id(&self) -> String {
            self.ticket_id.clone()
        }
    }

    /// What.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum TicketOpenedCategory {
        #[serde(rename = "plumbing")]
        Plumbing,
        #[serde(rename = "electrical")]
        Electrical,
        #[serde(rename = "lock")]
        Lock,
        #[serde(rename = "furniture")]
        Furniture,
        #[serde(rename = "climate")]
        Climate,
        #[serde(rename = "other")]
        Other,
    }

    impl TicketOpenedCategory {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Plumbing => "plumbing",
                Self::Electrical => "electrical",
                Self::Lock => "lock",
                Self::Furniture => "furniture",
                Self::Climate => "climate",
                Self::Other => "other",
            }
        }
    }
}

/// What notification-service publishes.
pub mod notification {
    use serde::{Deserialize, Serialize};

    /// It did not arrive, and somebody should call.
    ///
    /// `melmastoon.notification.message.bounced.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct MessageBounced {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The message.
        #[serde(rename = "messageId")]
        pub message_id: String,
        /// What the provider said.
        pub reason: String,
        /// When.
        #[serde(rename = "bouncedAt", default, skip_serializing_if = "Option::is_none")]
        pub bounced_at: Option<jiff::Timestamp>,
        /// By which way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub channel: Option<super::Channel>,
        /// Whether the address is wrong for good.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub permanent: Option<bool>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl MessageBounced {
        /// With the required fields only.
        pub fn new(reservation_id: String, message_id: String, reason: String) -> Self {
            Self {
                reservation_id,
                message_id,
                reason,
                bounced_at: None,
                channel: None,
                permanent: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for MessageBounced {
        const SUBJECT: &'static str = "melmastoon.notification.message.bounced.v1";
        const AGGREGATE: &'static str = "message";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// It arrived.
    ///
    /// `melmastoon.notification.message.delivered.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct MessageDelivered {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The message.
        #[serde(rename = "messageId")]
        pub message_id: String,
        /// By which way.
        pub channel: super::Channel,
        /// Who carried it.
        pub provider: String,
        /// How the provider knows it.
        #[serde(rename = "providerReference")]
        pub provider_reference: String,
        /// When.
        #[serde(rename = "deliveredAt")]
        pub delivered_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl MessageDelivered {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            message_id: String,
            channel: super::Channel,
            provider: String,
            provider_reference: String,
            delivered_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                message_id,
                channel,
                provider,
                provider_reference,
                delivered_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for MessageDelivered {
        const SUBJECT: &'static str = "melmastoon.notification.message.delivered.v1";
        const AGGREGATE: &'static str = "message";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// It is on its way; nobody has it yet.
    ///
    /// `melmastoon.notification.message.dispatched.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct MessageDispatched {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The message.
        #[serde(rename = "messageId")]
        pub message_id: String,
        /// Which letter.
        pub template: String,
        /// Its language.
        pub locale: String,
        /// By which way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub channel: Option<super::Channel>,
        /// When.
        #[serde(rename = "dispatchedAt", default, skip_serializing_if = "Option::is_none")]
        pub dispatched_at: Option<jiff::Timestamp>,
        /// Who carries it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub provider: Option<String>,
        /// Who gets it.
        #[serde(rename = "recipientId", default, skip_serializing_if = "Option::is_none")]
        pub recipient_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl MessageDispatched {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            message_id: String,
            template: String,
            locale: String,
        ) -> Self {
            Self {
                reservation_id,
                message_id,
                template,
                locale,
                channel: None,
                dispatched_at: None,
                provider: None,
                recipient_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for MessageDispatched {
        const SUBJECT: &'static str = "melmastoon.notification.message.dispatched.v1";
        const AGGREGATE: &'static str = "message";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }
}

/// What payment-gateway-service publishes.
pub mod payment {
    use serde::{Deserialize, Serialize};

    /// The promised cash is in the till, or part of it.
    ///
    /// `melmastoon.payment.cash.reconciled.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct CashReconciled {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The payment intent.
        #[serde(rename = "intentId")]
        pub intent_id: String,
        /// What was promised.
        pub expected: super::Expected,
        /// What was counted.
        pub received: super::Received,
        /// The shift whose till it is.
        #[serde(rename = "shiftId")]
        pub shift_id: String,
        /// Who counted it.
        #[serde(rename = "receivedBy")]
        pub received_by: String,
        /// When.
        #[serde(rename = "reconciledAt")]
        pub reconciled_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl CashReconciled {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            intent_id: String,
            expected: super::Expected,
            received: super::Received,
            shift_id: String,
            received_by: String,
            reconciled_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                intent_id,
                expected,
                received,
                shift_id,
                received_by,
                reconciled_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for CashReconciled {
        const SUBJECT: &'static str = "melmastoon.payment.cash.reconciled.v1";
        const AGGREGATE: &'static str = "cash";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// The money is here, or will be on arrival.
    ///
    /// `melmastoon.payment.intent.captured.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct IntentCaptured {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The payment intent.
        #[serde(rename = "intentId")]
        pub intent_id: String,
        /// The amount in the currency's smallest unit.
        #[serde(rename = "amountMinor")]
        pub amount_minor: i64,
        /// Three letters, as ISO 4217 has them.
        pub currency: String,
        /// How it came; cash_pending is still to come.
        pub rail: IntentCapturedRail,
        /// When.
        #[serde(rename = "capturedAt", default, skip_serializing_if = "Option::is_none")]
        pub captured_at: Option<jiff::Timestamp>,
        /// The folio it is for.
        #[serde(rename = "folioId", default, skip_serializing_if = "Option::is_none")]
        pub folio_id: Option<String>,
        /// How the processor knows it.
        #[serde(rename = "processorReference", default, skip_serializing_if = "Option::is_none")]
        pub processor_reference: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl IntentCaptured {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            intent_id: String,
            amount_minor: i64,
            currency: String,
            rail: IntentCapturedRail,
        ) -> Self {
            Self {
                reservation_id,
                intent_id,
                amount_minor,
                currency,
                rail,
                captured_at: None,
                folio_id: None,
                processor_reference: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for IntentCaptured {
        const SUBJECT: &'static str = "melmastoon.payment.intent.captured.v1";
        const AGGREGATE: &'static str = "intent";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }

        fn intent(&self) -> Option<String> {
            Some(format!("{}:captured", self.aggregate_id()))
        }
    }

    /// How it came; cash_pending is still to come.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum IntentCapturedRail {
        #[serde(rename = "card")]
        Card,
        #[serde(rename = "paypal")]
        Paypal,
        #[serde(rename = "mfs")]
        Mfs,
        #[serde(rename = "cash_pending")]
        CashPending,
    }

    impl IntentCapturedRail {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Card => "card",
                Self::Paypal => "paypal",
                Self::Mfs => "mfs",
                Self::CashPending => "cash_pending",
            }
        }
    }

    /// Money is about to be asked for.
    ///
    /// `melmastoon.payment.intent.created.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct IntentCreated {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The payment intent.
        #[serde(rename = "intentId")]
        pub intent_id: String,
        /// The amount in the currency's smallest unit.
        #[serde(rename = "amountMinor")]
        pub amount_minor: i64,
        /// Three letters, as ISO 4217 has them.
        pub currency: String,
        /// How it is paid.
        pub rail: super::Rail,
        /// When.
        #[serde(rename = "createdAt", default, skip_serializing_if = "Option::is_none")]
        pub created_at: Option<jiff::Timestamp>,
        /// The folio it is for.
        #[serde(rename = "folioId", default, skip_serializing_if = "Option::is_none")]
        pub folio_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl IntentCreated {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            intent_id: String,
            amount_minor: i64,
            currency: String,
            rail: super::Rail,
        ) -> Self {
            Self {
                reservation_id,
                intent_id,
                amount_minor,
                currency,
                rail,
                created_at: None,
                folio_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for IntentCreated {
        const SUBJECT: &'static str = "melmastoon.payment.intent.created.v1";
        const AGGREGATE: &'static str = "intent";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }

        fn intent(&self) -> Option<String> {
            Some(format!("{}:created", self.aggregate_id()))
        }
    }

    /// The payment is refused for good; the saga gives the room back.
    ///
    /// `melmastoon.payment.intent.failed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct IntentFailed {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The payment intent.
        #[serde(rename = "intentId")]
        pub intent_id: String,
        /// What the processor said.
        pub reason: String,
        /// When.
        #[serde(rename = "failedAt", default, skip_serializing_if = "Option::is_none")]
        pub failed_at: Option<jiff::Timestamp>,
        /// How it was to be paid.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rail: Option<super::Rail>,
        /// Whether another try may help.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub retryable: Option<bool>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl IntentFailed {
        /// With the required fields only.
        pub fn new(reservation_id: String, intent_id: String, reason: String) -> Self {
            Self {
                reservation_id,
                intent_id,
                reason,
                failed_at: None,
                rail: None,
                retryable: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for IntentFailed {
        const SUBJECT: &'static str = "melmastoon.payment.intent.failed.v1";
        const AGGREGATE: &'static str = "intent";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }

        fn intent(&self) -> Option<String> {
            Some(format!("{}:failed", self.aggregate_id()))
        }
    }

    /// The money went back the way it came.
    ///
    /// `melmastoon.payment.intent.refunded.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct IntentRefunded {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The payment intent.
        #[serde(rename = "intentId")]
        pub intent_id: String,
        /// The amount in the currency's smallest unit.
        #[serde(rename = "amountMinor")]
        pub amount_minor: i64,
        /// Three letters, as ISO 4217 has them.
        pub currency: String,
        /// How the processor knows it.
        #[serde(rename = "processorReference", default, skip_serializing_if = "Option::is_none")]
        pub processor_reference: Option<String>,
        /// How it went back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub rail: Option<super::Rail>,
        /// When.
        #[serde(rename = "refundedAt", default, skip_serializing_if = "Option::is_none")]
        pub refunded_at: Option<jiff::Timestamp>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl IntentRefunded {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            intent_id: String,
            amount_minor: i64,
            currency: String,
        ) -> Self {
            Self {
                reservation_id,
                intent_id,
                amount_minor,
                currency,
                processor_reference: None,
                rail: None,
                refunded_at: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for IntentRefunded {
        const SUBJECT: &'static str = "melmastoon.payment.intent.refunded.v1";
        const AGGREGATE: &'static str = "intent";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }

        fn intent(&self) -> Option<String> {
            Some(format!("{}:refunded", self.aggregate_id()))
        }
    }
}

/// What pricing-service publishes.
pub mod pricing {
    use serde::{Deserialize, Serialize};

    /// The days that changed, whole.
    ///
    /// `melmastoon.pricing.calendar.updated.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct CalendarUpdated {
        /// The calendar: a property and a rate plan.
        #[serde(rename = "calendarId")]
        pub calendar_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The rate plan.
        #[serde(rename = "ratePlanId")]
        pub rate_plan_id: String,
        /// What changed.
        pub days: Vec<super::Days>,
        /// When.
        #[serde(rename = "updatedAt")]
        pub updated_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl CalendarUpdated {
        /// With the required fields only.
        pub fn new(
            calendar_id: String,
            property_id: String,
            rate_plan_id: String,
            days: Vec<super::Days>,
            updated_at: jiff::Timestamp,
        ) -> Self {
            Self { calendar_id, property_id, rate_plan_id, days, updated_at, tenant_id: None }
        }
    }

    impl chapar::Event for CalendarUpdated {
        const SUBJECT: &'static str = "melmastoon.pricing.calendar.updated.v1";
        const AGGREGATE: &'static str = "calendar";

        fn aggregate_id(&self) -> String {
            self.calendar_id.clone()
        }
    }

    /// What a guest owes or gets back for other dates.
    ///
    /// `melmastoon.pricing.delta.applied.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct DeltaApplied {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The new quote.
        #[serde(rename = "quoteId")]
        pub quote_id: String,
        /// The price before.
        pub previous: super::Previous,
        /// The price now.
        pub current: super::Current,
        /// What is owed, in the smallest unit; less than zero is given back.
        #[serde(rename = "deltaMinor")]
        pub delta_minor: i64,
        /// When.
        #[serde(rename = "appliedAt")]
        pub applied_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl DeltaApplied {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            quote_id: String,
            previous: super::Previous,
            current: super::Current,
            delta_minor: i64,
            applied_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                quote_id,
                previous,
                current,
                delta_minor,
                applied_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for DeltaApplied {
        const SUBJECT: &'static str = "melmastoon.pricing.delta.applied.v1";
        const AGGREGATE: &'static str = "delta";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// The price is no longer promised.
    ///
    /// `melmastoon.pricing.quote.expired.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct QuoteExpired {
        /// The quote.
        #[serde(rename = "quoteId")]
        pub quote_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The rate plan.
        #[serde(rename = "ratePlanId")]
        pub rate_plan_id: String,
        /// The day of arrival.
        #[serde(rename = "checkIn")]
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// What was promised.
        pub price: super::Price,
        /// When.
        #[serde(rename = "expiredAt")]
        pub expired_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl QuoteExpired {
        /// With the required fields only.
        pub fn new(
            quote_id: String,
            property_id: String,
            rate_plan_id: String,
            check_in: jiff::civil::Date,
            nights: i64,
            price: super::Price,
            expired_at: jiff::Timestamp,
        ) -> Self {
            Self {
                quote_id,
                property_id,
                rate_plan_id,
                check_in,
                nights,
                price,
                expired_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for QuoteExpired {
        const SUBJECT: &'static str = "melmastoon.pricing.quote.expired.v1";
        const AGGREGATE: &'static str = "quote";

        fn aggregate_id(&self) -> String {
            self.quote_id.clone()
        }
    }

    /// The plan is no longer sold; bookings keep theirs.
    ///
    /// `melmastoon.pricing.rate_plan.archived.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct RatePlanArchived {
        /// The rate plan.
        #[serde(rename = "ratePlanId")]
        pub rate_plan_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// When.
        #[serde(rename = "archivedAt")]
        pub archived_at: jiff::Timestamp,
        /// The plan to offer instead.
        #[serde(rename = "replacedBy", default, skip_serializing_if = "Option::is_none")]
        pub replaced_by: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl RatePlanArchived {
        /// With the required fields only.
        pub fn new(
            rate_plan_id: String,
            property_id: String,
            archived_at: jiff::Timestamp,
        ) -> Self {
            Self { rate_plan_id, property_id, archived_at, replaced_by: None, tenant_id: None }
        }
    }

    impl chapar::Event for RatePlanArchived {
        const SUBJECT: &'static str = "melmastoon.pricing.rate_plan.archived.v1";
        const AGGREGATE: &'static str = "rate_plan";

        fn aggregate_id(&self) -> String {
            self.rate_plan_id.clone()
        }
    }

    /// What is sold from now on, for which room types and under which rules.
    ///
    /// `melmastoon.pricing.rate_plan.published.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct RatePlanPublished {
        /// The rate plan.
        #[serde(rename = "ratePlanId")]
        pub rate_plan_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// What guests see.
        pub name: String,
        /// What it sells.
        #[serde(rename = "roomTypeIds")]
        pub room_type_ids: Vec<String>,
        /// What is eaten.
        pub board: super::Board,
        /// The policy.
        pub cancellation: super::Cancellation,
        /// The lowest price of a night.
        #[serde(rename = "fromPrice")]
        pub from_price: super::FromPrice,
        /// The first night.
        #[serde(rename = "validFrom")]
        pub valid_from: jiff::civil::Date,
        /// When.
        #[serde(rename = "publishedAt")]
        pub published_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
        /// The last night.
        #[serde(rename = "validUntil", default, skip_serializing_if = "Option::is_none")]
        pub valid_until: Option<jiff::civil::Date>,
    }

    impl RatePlanPublished {
        /// With the required fields only.
        pub fn new(
            rate_plan_id: String,
            property_id: String,
            name: String,
            room_type_ids: Vec<String>,
            board: super::Board,
            cancellation: super::Cancellation,
            from_price: super::FromPrice,
            valid_from: jiff::civil::Date,
            published_at: jiff::Timestamp,
        ) -> Self {
            Self {
                rate_plan_id,
                property_id,
                name,
                room_type_ids,
                board,
                cancellation,
                from_price,
                valid_from,
                published_at,
                tenant_id: None,
                valid_until: None,
            }
        }
    }

    impl chapar::Event for RatePlanPublished {
        const SUBJECT: &'static str = "melmastoon.pricing.rate_plan.published.v1";
        const AGGREGATE: &'static str = "rate_plan";

        fn aggregate_id(&self) -> String {
            self.rate_plan_id.clone()
        }
    }
}

/// What property-service publishes.
pub mod property {
    use serde::{Deserialize, Serialize};

    /// The whole list after the change, and what came and went.
    ///
    /// `melmastoon.property.amenity.changed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct AmenityChanged {
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// What it offers now.
        pub amenities: Vec<String>,
        /// What came.
        pub added: Vec<String>,
        /// What went.
        pub removed: Vec<String>,
        /// When.
        #[serde(rename = "changedAt")]
        pub changed_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl AmenityChanged {
        /// With the required fields only.
        pub fn new(
            property_id: String,
            amenities: Vec<String>,
            added: Vec<String>,
            removed: Vec<String>,
            changed_at: jiff::Timestamp,
        ) -> Self {
            Self { property_id, amenities, added, removed, changed_at, tenant_id: None }
        }
    }

    impl chapar::Event for AmenityChanged {
        const SUBJECT: &'static str = "melmastoon.property.amenity.changed.v1";
        const AGGREGATE: &'static str = "amenity";

        fn aggregate_id(&self) -> String {
            self.property_id.clone()
        }
    }

    /// A property with what a listing and a booking site show first.
    ///
    /// `melmastoon.property.property.created.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct PropertyCreated {
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// What guests know it by.
        pub name: String,
        /// What it is.
        pub category: PropertyCreatedCategory,
        /// Where it is.
        pub address: super::Address,
        /// Its clock.
        #[serde(rename = "timeZone")]
        pub time_zone: String,
        /// When.
        #[serde(rename = "createdAt")]
        pub created_at: jiff::Timestamp,
        /// For maps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub location: Option<super::Location>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl PropertyCreated {
        /// With the required fields only.
        pub fn new(
            property_id: String,
            name: String,
            category: PropertyCreatedCategory,
            address: super::Address,
            time_zone: String,
            created_at: jiff::Timestamp,
        ) -> Self {
            Self {
                property_id,
                name,
                category,
                address,
                time_zone,
                created_at,
                location: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for PropertyCreated {
        const SUBJECT: &'static str = "melmastoon.property.property.created.v1";
        const AGGREGATE: &'static str = "property";

        fn aggregate_id(&self) -> String {
            self.property_id.clone()
        }
    }

    /// What it is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum PropertyCreatedCategory {
        #[serde(rename = "hotel")]
        Hotel,
        #[serde(rename = "guest_house")]
        GuestHouse,
        #[serde(rename = "hostel")]
        Hostel,
        #[serde(rename = "apartment")]
        Apartment,
    }

    impl PropertyCreatedCategory {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Hotel => "hotel",
                Self::GuestHouse => "guest_house",
                Self::Hostel => "hostel",
                Self::Apartment => "apartment",
            }
        }
    }

    /// One more room that can be sold, cleaned and locked.
    ///
    /// `melmastoon.property.room.added.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct RoomAdded {
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The room type.
        #[serde(rename = "roomTypeId")]
        pub room_type_id: String,
        /// What stands on the door.
        pub number: String,
        /// How many may sleep in it.
        #[serde(rename = "maxOccupancy")]
        pub max_occupancy: i64,
        /// When.
        #[serde(rename = "addedAt")]
        pub added_at: jiff::Timestamp,
        /// Where to find it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub floor: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl RoomAdded {
        /// With the required fields only.
        pub fn new(
            property_id: String,
            room_id: String,
            room_type_id: String,
            number: String,
            max_occupancy: i64,
            added_at: jiff::Timestamp,
        ) -> Self {
            Self {
                property_id,
                room_id,
                room_type_id,
                number,
                max_occupancy,
                added_at,
                floor: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for RoomAdded {
        const SUBJECT: &'static str = "melmastoon.property.room.added.v1";
        const AGGREGATE: &'static str = "room";

        fn aggregate_id(&self) -> String {
            self.property_id.clone()
        }
    }

    /// The room is no longer sold from a day on.
    ///
    /// `melmastoon.property.room.archived.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct RoomArchived {
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The room type.
        #[serde(rename = "roomTypeId")]
        pub room_type_id: String,
        /// What stands on the door.
        pub number: String,
        /// Why.
        pub reason: RoomArchivedReason,
        /// When.
        #[serde(rename = "archivedAt")]
        pub archived_at: jiff::Timestamp,
        /// Where to find it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub floor: Option<String>,
        /// The last night it may still be sold for.
        #[serde(rename = "lastNight", default, skip_serializing_if = "Option::is_none")]
        pub last_night: Option<jiff::civil::Date>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl RoomArchived {
        /// With the required fields only.
        pub fn new(
            property_id: String,
            room_id: String,
            room_type_id: String,
            number: String,
            reason: RoomArchivedReason,
            archived_at: jiff::Timestamp,
        ) -> Self {
            Self {
                property_id,
                room_id,
                room_type_id,
                number,
                reason,
                archived_at,
                floor: None,
                last_night: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for RoomArchived {
        const SUBJECT: &'static str = "melmastoon.property.room.archived.v1";
        const AGGREGATE: &'static str = "room";

        fn aggregate_id(&self) -> String {
            self.property_id.clone()
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum RoomArchivedReason {
        #[serde(rename = "renovation")]
        Renovation,
        #[serde(rename = "closed")]
        Closed,
        #[serde(rename = "merged")]
        Merged,
        #[serde(rename = "sold")]
        Sold,
    }

    impl RoomArchivedReason {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Renovation => "renovation",
                Self::Closed => "closed",
                Self::Merged => "merged",
                Self::Sold => "sold",
            }
        }
    }

    /// What is sold under the name of this type.
    ///
    /// `melmastoon.property.room_type.published.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct RoomTypePublished {
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room type.
        #[serde(rename = "roomTypeId")]
        pub room_type_id: String,
        /// What guests see.
        pub name: String,
        /// How many may sleep in it.
        #[serde(rename = "maxOccupancy")]
        pub max_occupancy: i64,
        /// What stands in it.
        pub beds: Vec<super::Beds>,
        /// What it offers.
        pub amenities: Vec<String>,
        /// When.
        #[serde(rename = "publishedAt")]
        pub published_at: jiff::Timestamp,
        /// Its pictures.
        #[serde(rename = "photoFileIds", default, skip_serializing_if = "Option::is_none")]
        pub photo_file_ids: Option<Vec<String>>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl RoomTypePublished {
        /// With the required fields only.
        pub fn new(
            property_id: String,
            room_type_id: String,
            name: String,
            max_occupancy: i64,
            beds: Vec<super::Beds>,
            amenities: Vec<String>,
            published_at: jiff::Timestamp,
        ) -> Self {
            Self {
                property_id,
                room_type_id,
                name,
                max_occupancy,
                beds,
                amenities,
                published_at,
                photo_file_ids: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for RoomTypePublished {
        const SUBJECT: &'static str = "melmastoon.property.room_type.published.v1";
        const AGGREGATE: &'static str = "room_type";

        fn aggregate_id(&self) -> String {
            self.property_id.clone()
        }
    }
}

/// What reporting-service publishes.
pub mod reporting {
    use serde::{Deserialize, Serialize};

    /// The report can be fetched. It carries a reference, not the report.
    ///
    /// `melmastoon.reporting.report.generated.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ReportGenerated {
        /// The report.
        #[serde(rename = "reportId")]
        pub report_id: String,
        /// Which report.
        pub template: String,
        /// Its form.
        pub format: super::Format,
        /// The document.
        #[serde(rename = "fileId")]
        pub file_id: String,
        /// The first day in it.
        #[serde(rename = "periodFrom")]
        pub period_from: jiff::civil::Date,
        /// The last day in it.
        #[serde(rename = "periodUntil")]
        pub period_until: jiff::civil::Date,
        /// How many rows it has.
        pub rows: i64,
        /// Who wanted it.
        #[serde(rename = "requestedBy")]
        pub requested_by: String,
        /// Its language.
        pub locale: String,
        /// When.
        #[serde(rename = "generatedAt")]
        pub generated_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl ReportGenerated {
        /// With the required fields only.
        pub fn new(
            report_id: String,
            template: String,
            format: super::Format,
            file_id: String,
            period_from: jiff::civil::Date,
            period_until: jiff::civil::Date,
            rows: i64,
            requested_by: String,
            locale: String,
            generated_at: jiff::Timestamp,
        ) -> Self {
            Self {
                report_id,
                template,
                format,
                file_id,
                period_from,
                period_until,
                rows,
                requested_by,
                locale,
                generated_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for ReportGenerated {
        const SUBJECT: &'static str = "melmastoon.reporting.report.generated.v1";
        const AGGREGATE: &'static str = "report";

        fn aggregate_id(&self) -> String {
            self.report_id.clone()
        }
    }
}

/// What reservation-service publishes.
pub mod reservation {
    use serde::{Deserialize, Serialize};

    /// The booking is off, and whoever did something for it undoes it.
    ///
    /// `melmastoon.reservation.booking.cancelled.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct BookingCancelled {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// Why.
        pub reason: BookingCancelledReason,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The day of arrival.
        #[serde(rename = "checkIn")]
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// The allocation to release, where there is one.
        #[serde(rename = "allocationId", default, skip_serializing_if = "Option::is_none")]
        pub allocation_id: Option<String>,
        /// When.
        #[serde(rename = "cancelledAt", default, skip_serializing_if = "Option::is_none")]
        pub cancelled_at: Option<jiff::Timestamp>,
        /// How much of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub refund: Option<super::Refund>,
        /// Whether the policy gives money back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub refundable: Option<bool>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl BookingCancelled {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            reason: BookingCancelledReason,
            property_id: String,
            room_id: String,
            check_in: jiff::civil::Date,
            nights: i64,
            guest: super::Guest,
        ) -> Self {
            Self {
                reservation_id,
                reason,
                property_id,
                room_id,
                check_in,
                nights,
                guest,
                allocation_id: None,
                cancelled_at: None,
                refund: None,
                refundable: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for BookingCancelled {
        const SUBJECT: &'static str = "melmastoon.reservation.booking.cancelled.v1";
        const AGGREGATE: &'static str = "booking";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }

        fn intent(&self) -> Option<String> {
            Some(format!("{}:cancelled", self.aggregate_id()))
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum BookingCancelledReason {
        #[serde(rename = "guest_request")]
        GuestRequest,
        #[serde(rename = "property_request")]
        PropertyRequest,
        #[serde(rename = "hold_expired")]
        HoldExpired,
        #[serde(rename = "payment_failed")]
        PaymentFailed,
        #[serde(rename = "no_availability")]
        NoAvailability,
        #[serde(rename = "fraud")]
        Fraud,
    }

    impl BookingCancelledReason {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::GuestRequest => "guest_request",
                Self::PropertyRequest => "property_request",
                Self::HoldExpired => "hold_expired",
                Self::PaymentFailed => "payment_failed",
                Self::NoAvailability => "no_availability",
                Self::Fraud => "fraud",
            }
        }
    }

    /// The guest is here. Folio, key and welcome must follow within half a minute.
    ///
    /// `melmastoon.reservation.booking.check_in_started.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct BookingCheckInStarted {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The day of arrival.
        #[serde(rename = "checkIn")]
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// Who stands at the desk.
        #[serde(rename = "startedBy")]
        pub started_by: String,
        /// When the check-in counts as partial.
        #[serde(rename = "deadlineAt")]
        pub deadline_at: jiff::Timestamp,
        /// When.
        #[serde(rename = "startedAt")]
        pub started_at: jiff::Timestamp,
        /// A key issued before.
        #[serde(rename = "credentialId", default, skip_serializing_if = "Option::is_none")]
        pub credential_id: Option<String>,
        /// The folio, where there is one.
        #[serde(rename = "folioId", default, skip_serializing_if = "Option::is_none")]
        pub folio_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl BookingCheckInStarted {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            property_id: String,
            room_id: String,
            check_in: jiff::civil::Date,
            nights: i64,
            guest: super::Guest,
            started_by: String,
            deadline_at: jiff::Timestamp,
            started_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                property_id,
                room_id,
                check_in,
                nights,
                guest,
                started_by,
                deadline_at,
                started_at,
                credential_id: None,
                folio_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for BookingCheckInStarted {
        const SUBJECT: &'static str = "melmastoon.reservation.booking.check_in_started.v1";
        const AGGREGATE: &'static str = "booking";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// The guest leaves. The folio is closed and the key revoked, in this order.
    ///
    /// `melmastoon.reservation.booking.check_out_started.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct BookingCheckOutStarted {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The day of arrival.
        #[serde(rename = "checkIn")]
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// The folio to close.
        #[serde(rename = "folioId")]
        pub folio_id: String,
        /// Who stands at the desk.
        #[serde(rename = "startedBy")]
        pub started_by: String,
        /// When.
        #[serde(rename = "startedAt")]
        pub started_at: jiff::Timestamp,
        /// The key to revoke.
        #[serde(rename = "credentialId", default, skip_serializing_if = "Option::is_none")]
        pub credential_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl BookingCheckOutStarted {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            property_id: String,
            room_id: String,
            check_in: jiff::civil::Date,
            nights: i64,
            guest: super::Guest,
            folio_id: String,
            started_by: String,
            started_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                property_id,
                room_id,
                check_in,
                nights,
                guest,
                folio_id,
                started_by,
                started_at,
                credential_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for BookingCheckOutStarted {
        const SUBJECT: &'static str = "melmastoon.reservation.booking.check_out_started.v1";
        const AGGREGATE: &'static str = "booking";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// The room is occupied from now on.
    ///
    /// `melmastoon.reservation.booking.checked_in.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct BookingCheckedIn {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The day of arrival.
        #[serde(rename = "checkIn")]
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// The folio of the stay.
        #[serde(rename = "folioId")]
        pub folio_id: String,
        /// The guest's key.
        #[serde(rename = "credentialId")]
        pub credential_id: String,
        /// When.
        #[serde(rename = "checkedInAt")]
        pub checked_in_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl BookingCheckedIn {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            property_id: String,
            room_id: String,
            check_in: jiff::civil::Date,
            nights: i64,
            guest: super::Guest,
            folio_id: String,
            credential_id: String,
            checked_in_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                property_id,
                room_id,
                check_in,
                nights,
                guest,
                folio_id,
                credential_id,
                checked_in_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for BookingCheckedIn {
        const SUBJECT: &'static str = "melmastoon.reservation.booking.checked_in.v1";
        const AGGREGATE: &'static str = "booking";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// The guest is gone and the key is dead; money may still be open.
    ///
    /// `melmastoon.reservation.booking.checked_out.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct BookingCheckedOut {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The day of arrival.
        #[serde(rename = "checkIn")]
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// Whether money is still open.
        pub status: BookingCheckedOutStatus,
        /// The folio of the stay.
        #[serde(rename = "folioId")]
        pub folio_id: String,
        /// What is still open.
        pub balance: super::Balance,
        /// When.
        #[serde(rename = "checkedOutAt")]
        pub checked_out_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl BookingCheckedOut {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            property_id: String,
            room_id: String,
            check_in: jiff::civil::Date,
            nights: i64,
            guest: super::Guest,
            status: BookingCheckedOutStatus,
            folio_id: String,
            balance: super::Balance,
            checked_out_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                property_id,
                room_id,
                check_in,
                nights,
                guest,
                status,
                folio_id,
                balance,
                checked_out_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for BookingCheckedOut {
        const SUBJECT: &'static str = "melmastoon.reservation.booking.checked_out.v1";
        const AGGREGATE: &'static str = "booking";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// Whether money is still open.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum BookingCheckedOutStatus {
        #[serde(rename = "checked_out")]
        CheckedOut,
        #[serde(rename = "checked_out_balance_pending")]
        CheckedOutBalancePending,
    }

    impl BookingCheckedOutStatus {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::CheckedOut => "checked_out",
                Self::CheckedOutBalancePending => "checked_out_balance_pending",
            }
        }
    }

    /// The booking stands. It carries what opens a folio, cuts a key and writes a letter.
    ///
    /// `melmastoon.reservation.booking.confirmed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct BookingConfirmed {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// Paid, or to be paid on arrival; without payment no key is issued.
        pub status: BookingConfirmedStatus,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The day of arrival.
        #[serde(rename = "checkIn")]
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// The amount in the currency's smallest unit.
        #[serde(rename = "amountMinor")]
        pub amount_minor: i64,
        /// Three letters, as ISO 4217 has them.
        pub currency: String,
        /// How many grown-ups.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub adults: Option<i64>,
        /// How many children.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub children: Option<i64>,
        /// The quote it was sold at.
        #[serde(rename = "quoteId", default, skip_serializing_if = "Option::is_none")]
        pub quote_id: Option<String>,
        /// What was sold.
        #[serde(rename = "ratePlanId", default, skip_serializing_if = "Option::is_none")]
        pub rate_plan_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl BookingConfirmed {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            status: BookingConfirmedStatus,
            property_id: String,
            room_id: String,
            check_in: jiff::civil::Date,
            nights: i64,
            guest: super::Guest,
            amount_minor: i64,
            currency: String,
        ) -> Self {
            Self {
                reservation_id,
                status,
                property_id,
                room_id,
                check_in,
                nights,
                guest,
                amount_minor,
                currency,
                adults: None,
                children: None,
                quote_id: None,
                rate_plan_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for BookingConfirmed {
        const SUBJECT: &'static str = "melmastoon.reservation.booking.confirmed.v1";
        const AGGREGATE: &'static str = "booking";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }

        fn intent(&self) -> Option<String> {
            Some(format!("{}:confirmed", self.aggregate_id()))
        }
    }

    /// Paid, or to be paid on arrival; without payment no key is issued.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum BookingConfirmedStatus {
        #[serde(rename = "confirmed")]
        Confirmed,
        #[serde(rename = "confirmed_cash_pending")]
        ConfirmedCashPending,
    }

    impl BookingConfirmedStatus {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Confirmed => "confirmed",
                Self::ConfirmedCashPending => "confirmed_cash_pending",
            }
        }
    }

    /// Old and new window together, so that each service can let go of one and take the other.
    ///
    /// `melmastoon.reservation.booking.dates_changed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct BookingDatesChanged {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The room type.
        #[serde(rename = "roomTypeId")]
        pub room_type_id: String,
        /// The old window.
        pub from: super::From,
        /// The new window.
        pub to: super::To,
        /// Who stays.
        pub guest: super::Guest,
        /// When.
        #[serde(rename = "changedAt")]
        pub changed_at: jiff::Timestamp,
        /// The allocation to move.
        #[serde(rename = "allocationId", default, skip_serializing_if = "Option::is_none")]
        pub allocation_id: Option<String>,
        /// The key whose window moves.
        #[serde(rename = "credentialId", default, skip_serializing_if = "Option::is_none")]
        pub credential_id: Option<String>,
        /// The folio that the difference is charged to.
        #[serde(rename = "folioId", default, skip_serializing_if = "Option::is_none")]
        pub folio_id: Option<String>,
        /// The quote of the old window.
        #[serde(rename = "quoteId", default, skip_serializing_if = "Option::is_none")]
        pub quote_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl BookingDatesChanged {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            property_id: String,
            room_id: String,
            room_type_id: String,
            from: super::From,
            to: super::To,
            guest: super::Guest,
            changed_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                property_id,
                room_id,
                room_type_id,
                from,
                to,
                guest,
                changed_at,
                allocation_id: None,
                credential_id: None,
                folio_id: None,
                quote_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for BookingDatesChanged {
        const SUBJECT: &'static str = "melmastoon.reservation.booking.dates_changed.v1";
        const AGGREGATE: &'static str = "booking";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    /// A room is wanted for a guest; the booking saga has begun. Whoever commits the room or asks for the money needs nothing else.
    ///
    /// `melmastoon.reservation.booking.held.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct BookingHeld {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The day of arrival.
        #[serde(rename = "checkIn")]
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// The amount in the currency's smallest unit.
        #[serde(rename = "amountMinor")]
        pub amount_minor: i64,
        /// Three letters, as ISO 4217 has them.
        pub currency: String,
        /// How the guest wants to pay.
        pub rail: super::Rail,
        /// When the hold ends by itself.
        #[serde(rename = "holdExpiresAt")]
        pub hold_expires_at: jiff::Timestamp,
        /// How many grown-ups.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub adults: Option<i64>,
        /// How many children.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub children: Option<i64>,
        /// The quote it was sold at.
        #[serde(rename = "quoteId", default, skip_serializing_if = "Option::is_none")]
        pub quote_id: Option<String>,
        /// What was sold.
        #[serde(rename = "ratePlanId", default, skip_serializing_if = "Option::is_none")]
        pub rate_plan_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl BookingHeld {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            property_id: String,
            room_id: String,
            check_in: jiff::civil::Date,
            nights: i64,
            guest: super::Guest,
            amount_minor: i64,
            currency: String,
            rail: super::Rail,
            hold_expires_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                property_id,
                room_id,
                check_in,
                nights,
                guest,
                amount_minor,
                currency,
                rail,
                hold_expires_at,
                adults: None,
                children: None,
                quote_id: None,
                rate_plan_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for BookingHeld {
        const SUBJECT: &'static str = "melmastoon.reservation.booking.held.v1";
        const AGGREGATE: &'static str = "booking";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }

        fn intent(&self) -> Option<String> {
            Some(format!("{}:held", self.aggregate_id()))
        }
    }

    /// Guest or wishes after the change, and what it touched.
    ///
    /// `melmastoon.reservation.booking.modified.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct BookingModified {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// Who stays.
        pub guest: super::Guest,
        /// What changed.
        pub changed: Vec<BookingModifiedChanged>,
        /// When.
        #[serde(rename = "modifiedAt")]
        pub modified_at: jiff::Timestamp,
        /// How many grown-ups.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub adults: Option<i64>,
        /// When the guest expects to come, by the property's clock.
        #[serde(rename = "arrivalTime", default, skip_serializing_if = "Option::is_none")]
        pub arrival_time: Option<String>,
        /// How many children.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub children: Option<i64>,
        /// What the guest wishes for.
        #[serde(rename = "specialRequests", default, skip_serializing_if = "Option::is_none")]
        pub special_requests: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl BookingModified {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            property_id: String,
            guest: super::Guest,
            changed: Vec<BookingModifiedChanged>,
            modified_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                property_id,
                guest,
                changed,
                modified_at,
                adults: None,
                arrival_time: None,
                children: None,
                special_requests: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for BookingModified {
        const SUBJECT: &'static str = "melmastoon.reservation.booking.modified.v1";
        const AGGREGATE: &'static str = "booking";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum BookingModifiedChanged {
        #[serde(rename = "guest")]
        Guest,
        #[serde(rename = "special_requests")]
        SpecialRequests,
        #[serde(rename = "party")]
        Party,
        #[serde(rename = "arrival_time")]
        ArrivalTime,
    }

    impl BookingModifiedChanged {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Guest => "guest",
                Self::SpecialRequests => "special_requests",
                Self::Party => "party",
                Self::ArrivalTime => "arrival_time",
            }
        }
    }

    /// The room is free again, and the policy decides about the money.
    ///
    /// `melmastoon.reservation.booking.no_show.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct BookingNoShow {
        /// The booking.
        #[serde(rename = "reservationId")]
        pub reservation_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// The room.
        #[serde(rename = "roomId")]
        pub room_id: String,
        /// The day of arrival.
        #[serde(rename = "checkIn")]
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// What the policy charges.
        pub fee: super::Fee,
        /// When.
        #[serde(rename = "declaredAt")]
        pub declared_at: jiff::Timestamp,
        /// The allocation to release.
        #[serde(rename = "allocationId", default, skip_serializing_if = "Option::is_none")]
        pub allocation_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl BookingNoShow {
        /// With the required fields only.
        pub fn new(
            reservation_id: String,
            property_id: String,
            room_id: String,
            check_in: jiff::civil::Date,
            nights: i64,
            guest: super::Guest,
            fee: super::Fee,
            declared_at: jiff::Timestamp,
        ) -> Self {
            Self {
                reservation_id,
                property_id,
                room_id,
                check_in,
                nights,
                guest,
                fee,
                declared_at,
                allocation_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for BookingNoShow {
        const SUBJECT: &'static str = "melmastoon.reservation.booking.no_show.v1";
        const AGGREGATE: &'static str = "booking";

        fn aggregate_id(&self) -> String {
            self.reservation_id.clone()
        }
    }
}

/// What search-aggregation-service publishes.
pub mod search_aggregation {
    use serde::{Deserialize, Serialize};

    /// The property can no longer be found.
    ///
    /// `melmastoon.search_aggregation.listing.evicted.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ListingEvicted {
        /// The listing.
        #[serde(rename = "listingId")]
        pub listing_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// Why.
        pub reason: ListingEvictedReason,
        /// When.
        #[serde(rename = "evictedAt")]
        pub evicted_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl ListingEvicted {
        /// With the required fields only.
        pub fn new(
            listing_id: String,
            property_id: String,
            reason: ListingEvictedReason,
            evicted_at: jiff::Timestamp,
        ) -> Self {
            Self { listing_id, property_id, reason, evicted_at, tenant_id: None }
        }
    }

    impl chapar::Event for ListingEvicted {
        const SUBJECT: &'static str = "melmastoon.search_aggregation.listing.evicted.v1";
        const AGGREGATE: &'static str = "listing";

        fn aggregate_id(&self) -> String {
            self.property_id.clone()
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum ListingEvictedReason {
        #[serde(rename = "tenant_suspended")]
        TenantSuspended,
        #[serde(rename = "property_closed")]
        PropertyClosed,
        #[serde(rename = "stale")]
        Stale,
        #[serde(rename = "policy")]
        Policy,
    }

    impl ListingEvictedReason {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::TenantSuspended => "tenant_suspended",
                Self::PropertyClosed => "property_closed",
                Self::Stale => "stale",
                Self::Policy => "policy",
            }
        }
    }

    /// What the search shows of a property. It is read across tenants, so nothing personal is in it.
    ///
    /// `melmastoon.search_aggregation.listing.indexed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ListingIndexed {
        /// The listing.
        #[serde(rename = "listingId")]
        pub listing_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// What guests see.
        pub name: String,
        /// The town.
        pub city: String,
        /// Two letters, as ISO 3166 has them.
        pub country: String,
        /// What it offers.
        pub amenities: Vec<String>,
        /// The lowest price of a night.
        #[serde(rename = "fromPrice")]
        pub from_price: super::FromPrice,
        /// How many rooms are free tonight.
        #[serde(rename = "roomsAvailable")]
        pub rooms_available: i64,
        /// Counts the snapshots.
        pub revision: i64,
        /// When.
        #[serde(rename = "indexedAt")]
        pub indexed_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl ListingIndexed {
        /// With the required fields only.
        pub fn new(
            listing_id: String,
            property_id: String,
            name: String,
            city: String,
            country: String,
            amenities: Vec<String>,
            from_price: super::FromPrice,
            rooms_available: i64,
            revision: i64,
            indexed_at: jiff::Timestamp,
        ) -> Self {
            Self {
                listing_id,
                property_id,
                name,
                city,
                country,
                amenities,
                from_price,
                rooms_available,
                revision,
                indexed_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for ListingIndexed {
        const SUBJECT: &'static str = "melmastoon.search_aggregation.listing.indexed.v1";
        const AGGREGATE: &'static str = "listing";

        fn aggregate_id(&self) -> String {
            self.property_id.clone()
        }
    }
}

/// What staff-service publishes.
pub mod staff {
    use serde::{Deserialize, Serialize};

    /// Someone went home; the till of the shift is counted.
    ///
    /// `melmastoon.staff.shift.closed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ShiftClosed {
        /// The shift.
        #[serde(rename = "shiftId")]
        pub shift_id: String,
        /// Who.
        #[serde(rename = "staffId")]
        pub staff_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// As what.
        pub role: super::Role,
        /// How long it was.
        #[serde(rename = "minutesWorked")]
        pub minutes_worked: i64,
        /// When it began.
        #[serde(rename = "openedAt")]
        pub opened_at: jiff::Timestamp,
        /// When it ended.
        #[serde(rename = "closedAt")]
        pub closed_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
        /// What the till holds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub till: Option<super::Till>,
    }

    impl ShiftClosed {
        /// With the required fields only.
        pub fn new(
            shift_id: String,
            staff_id: String,
            property_id: String,
            role: super::Role,
            minutes_worked: i64,
            opened_at: jiff::Timestamp,
            closed_at: jiff::Timestamp,
        ) -> Self {
            Self {
                shift_id,
                staff_id,
                property_id,
                role,
                minutes_worked,
                opened_at,
                closed_at,
                tenant_id: None,
                till: None,
            }
        }
    }

    impl chapar::Event for ShiftClosed {
        const SUBJECT: &'static str = "melmastoon.staff.shift.closed.v1";
        const AGGREGATE: &'static str = "shift";

        fn aggregate_id(&self) -> String {
            self.shift_id.clone()
        }
    }

    /// Someone is at work and can be given tasks.
    ///
    /// `melmastoon.staff.shift.opened.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ShiftOpened {
        /// The shift.
        #[serde(rename = "shiftId")]
        pub shift_id: String,
        /// Who.
        #[serde(rename = "staffId")]
        pub staff_id: String,
        /// The property.
        #[serde(rename = "propertyId")]
        pub property_id: String,
        /// As what.
        pub role: super::Role,
        /// When.
        #[serde(rename = "openedAt")]
        pub opened_at: jiff::Timestamp,
        /// Where.
        #[serde(rename = "deviceId", default, skip_serializing_if = "Option::is_none")]
        pub device_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl ShiftOpened {
        /// With the required fields only.
        pub fn new(
            shift_id: String,
            staff_id: String,
            property_id: String,
            role: super::Role,
            opened_at: jiff::Timestamp,
        ) -> Self {
            Self {
                shift_id,
                staff_id,
                property_id,
                role,
                opened_at,
                device_id: None,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for ShiftOpened {
        const SUBJECT: &'static str = "melmastoon.staff.shift.opened.v1";
        const AGGREGATE: &'static str = "shift";

        fn aggregate_id(&self) -> String {
            self.shift_id.clone()
        }
    }
}

/// What sync-service publishes.
pub mod sync {
    use serde::{Deserialize, Serialize};

    /// Two truths about one thing; a person must choose.
    ///
    /// `melmastoon.sync.conflict.recorded.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ConflictRecorded {
        /// The conflict.
        #[serde(rename = "conflictId")]
        pub conflict_id: String,
        /// The desktop.
        #[serde(rename = "deviceId")]
        pub device_id: String,
        /// What kind of thing it is about.
        #[serde(rename = "entityType")]
        pub entity_type: String,
        /// Which.
        #[serde(rename = "entityId")]
        pub entity_id: String,
        /// The rule for such things.
        pub policy: super::Policy,
        /// What the server has.
        #[serde(rename = "serverValue")]
        pub server_value: std::collections::BTreeMap<String, serde_json::Value>,
        /// What the desktop has.
        #[serde(rename = "deviceValue")]
        pub device_value: std::collections::BTreeMap<String, serde_json::Value>,
        /// When.
        #[serde(rename = "recordedAt")]
        pub recorded_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl ConflictRecorded {
        /// With the required fields only.
        pub fn new(
            conflict_id: String,
            device_id: String,
            entity_type: String,
            entity_id: String,
            policy: super::Policy,
            server_value: std::collections::BTreeMap<String, serde_json::Value>,
            device_value: std::collections::BTreeMap<String, serde_json::Value>,
            recorded_at: jiff::Timestamp,
        ) -> Self {
            Self {
                conflict_id,
                device_id,
                entity_type,
                entity_id,
                policy,
                server_value,
                device_value,
                recorded_at,
                tenant_id: None,
            }
        }
    }

    impl chapar::Event for ConflictRecorded {
        const SUBJECT: &'static str = "melmastoon.sync.conflict.recorded.v1";
        const AGGREGATE: &'static str = "conflict";

        fn aggregate_id(&self) -> String {
            self.device_id.clone()
        }
    }

    /// How far a desktop has caught up.
    ///
    /// `melmastoon.sync.cursor.advanced.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct CursorAdvanced {
        /// The desktop.
        #[serde(rename = "deviceId")]
        pub device_id: String,
        /// The cursor before.
        pub from: i64,
        /// The cursor after.
        pub to: i64,
        /// How many changes it took.
        pub applied: i64,
        /// When.
        #[serde(rename = "advancedAt")]
        pub advanced_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl CursorAdvanced {
        /// With the required fields only.
        pub fn new(
            device_id: String,
            from: i64,
            to: i64,
            applied: i64,
            advanced_at: jiff::Timestamp,
        ) -> Self {
            Self { device_id, from, to, applied, advanced_at, tenant_id: None }
        }
    }

    impl chapar::Event for CursorAdvanced {
        const SUBJECT: &'static str = "melmastoon.sync.cursor.advanced.v1";
        const AGGREGATE: &'static str = "cursor";

        fn aggregate_id(&self) -> String {
            self.device_id.clone()
        }
    }
}

/// What tenant-service publishes.
pub mod tenant {
    use serde::{Deserialize, Serialize};

    /// A user may do more in a tenant than before.
    ///
    /// `melmastoon.tenant.role.granted.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct RoleGranted {
        /// The tenant.
        #[serde(rename = "tenantId")]
        pub tenant_id: String,
        /// The membership.
        #[serde(rename = "membershipId")]
        pub membership_id: String,
        /// The account.
        #[serde(rename = "userId")]
        pub user_id: String,
        /// The role.
        pub role: RoleGrantedRole,
        /// Who gave it.
        #[serde(rename = "grantedBy")]
        pub granted_by: String,
        /// When.
        #[serde(rename = "grantedAt")]
        pub granted_at: jiff::Timestamp,
        /// The property it is limited to.
        #[serde(rename = "propertyId", default, skip_serializing_if = "Option::is_none")]
        pub property_id: Option<String>,
    }

    impl RoleGranted {
        /// With the required fields only.
        pub fn new(
            tenant_id: String,
            membership_id: String,
            user_id: String,
            role: RoleGrantedRole,
            granted_by: String,
            granted_at: jiff::Timestamp,
        ) -> Self {
            Self {
                tenant_id,
                membership_id,
                user_id,
                role,
                granted_by,
                granted_at,
                property_id: None,
            }
        }
    }

    impl chapar::Event for RoleGranted {
        const SUBJECT: &'static str = "melmastoon.tenant.role.granted.v1";
        const AGGREGATE: &'static str = "role";

        fn aggregate_id(&self) -> String {
            self.membership_id.clone()
        }
    }

    /// The role.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum RoleGrantedRole {
        #[serde(rename = "owner")]
        Owner,
        #[serde(rename = "manager")]
        Manager,
        #[serde(rename = "front_desk")]
        FrontDesk,
        #[serde(rename = "housekeeping")]
        Housekeeping,
        #[serde(rename = "maintenance")]
        Maintenance,
        #[serde(rename = "accountant")]
        Accountant,
        #[serde(rename = "auditor")]
        Auditor,
    }

    impl RoleGrantedRole {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Owner => "owner",
                Self::Manager => "manager",
                Self::FrontDesk => "front_desk",
                Self::Housekeeping => "housekeeping",
                Self::Maintenance => "maintenance",
                Self::Accountant => "accountant",
                Self::Auditor => "auditor",
            }
        }
    }

    /// The settings after the change, and which of them it touched.
    ///
    /// `melmastoon.tenant.settings.changed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct SettingsChanged {
        /// The tenant.
        #[serde(rename = "tenantId")]
        pub tenant_id: String,
        /// What changed.
        pub changed: Vec<SettingsChangedChanged>,
        /// The currency of its books.
        pub currency: String,
        /// The languages of its guests.
        pub locales: Vec<String>,
        /// The tax on a stay, in hundredths of a percent.
        #[serde(rename = "taxBasisPoints")]
        pub tax_basis_points: i64,
        /// The region its data stays in.
        pub residency: super::Residency,
        /// Its clock.
        #[serde(rename = "timeZone")]
        pub time_zone: String,
        /// When.
        #[serde(rename = "changedAt")]
        pub changed_at: jiff::Timestamp,
    }

    impl chapar::Event for SettingsChanged {
        const SUBJECT: &'static str = "melmastoon.tenant.settings.changed.v1";
        const AGGREGATE: &'static str = "settings";

        fn aggregate_id(&self) -> String {
            self.tenant_id.clone()
        }
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum SettingsChangedChanged {
        #[serde(rename = "currency")]
        Currency,
        #[serde(rename = "locales")]
        Locales,
        #[serde(rename = "tax")]
        Tax,
        #[serde(rename = "residency")]
        Residency,
        #[serde(rename = "time_zone")]
        TimeZone,
        #[serde(rename = "policies")]
        Policies,
    }

    impl SettingsChangedChanged {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::Currency => "currency",
                Self::Locales => "locales",
                Self::Tax => "tax",
                Self::Residency => "residency",
                Self::TimeZone => "time_zone",
                Self::Policies => "policies",
            }
        }
    }

    /// A house joins the platform. Services set up what they keep for it.
    ///
    /// `melmastoon.tenant.tenant.created.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct TenantCreated {
        /// The tenant.
        #[serde(rename = "tenantId")]
        pub tenant_id: String,
        /// What guests know it by.
        pub name: String,
        /// Its part of web addresses.
        pub slug: String,
        /// What it pays for.
        pub plan: super::Plan,
        /// The currency of its books.
        pub currency: String,
        /// The languages of its guests.
        pub locales: Vec<String>,
        /// Its clock.
        #[serde(rename = "timeZone")]
        pub time_zone: String,
        /// The region its data stays in.
        pub residency: super::Residency,
        /// Who answers for it.
        #[serde(rename = "ownerUserId")]
        pub owner_user_id: String,
        /// When.
        #[serde(rename = "createdAt")]
        pub created_at: jiff::Timestamp,
    }

    impl chapar::Event for TenantCreated {
        const SUBJECT: &'static str = "melmastoon.tenant.tenant.created.v1";
        const AGGREGATE: &'static str = "tenant";

        fn aggregate_id(&self) -> String {
            self.tenant_id.clone()
        }
    }

    /// The tenant may look but not sell until the suspension ends.
    ///
    /// `melmastoon.tenant.tenant.suspended.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct TenantSuspended {
        /// The tenant.
        #[serde(rename = "tenantId")]
        pub tenant_id: String,
        /// Why.
        pub reason: TenantSuspendedReason,
        /// Whether new bookings are refused.
        #[serde(rename = "bookingsStopped")]
        pub bookings_stopped: bool,
        /// When.
        #[serde(rename = "suspendedAt")]
        pub suspended_at: jiff::Timestamp,
        /// What support should know.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub note: Option<String>,
    }

    impl TenantSuspended {
        /// With the required fields only.
        pub fn new(
            tenant_id: String,
            reason: TenantSuspendedReason,
            bookings_stopped: bool,
            suspended_at: jiff::Timestamp,
        ) -> Self {
            Self { tenant_id, reason, bookings_stopped, suspended_at, note: None }
        }
    }

    impl chapar::Event for TenantSuspended {
        const SUBJECT: &'static str = "melmastoon.tenant.tenant.suspended.v1";
        const AGGREGATE: &'static str = "tenant";

        fn aggregate_id(&self) -> String {
            self.tenant_id.clone()
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub enum TenantSuspendedReason {
        #[serde(rename = "plan_limit")]
        PlanLimit,
        #[serde(rename = "billing_failure")]
        BillingFailure,
        #[serde(rename = "compliance")]
        Compliance,
    }

    impl TenantSuspendedReason {
        /// As it is written.
        pub fn as_str(self) -> &'static str {
            match self {
                Self::PlanLimit => "plan_limit",
                Self::BillingFailure => "billing_failure",
                Self::Compliance => "compliance",
            }
        }
    }
}

/// What theme-config-service publishes.
pub mod theme {
    use serde::{Deserialize, Serialize};

    /// The text of one block in every language it has.
    ///
    /// `melmastoon.theme.content_block.changed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ContentBlockChanged {
        /// The tenant's theme.
        #[serde(rename = "themeId")]
        pub theme_id: String,
        /// The block.
        #[serde(rename = "blockId")]
        pub block_id: String,
        /// Counts the changes.
        pub revision: i64,
        /// The text by language.
        pub texts: std::collections::BTreeMap<String, String>,
        /// When.
        #[serde(rename = "changedAt")]
        pub changed_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl ContentBlockChanged {
        /// With the required fields only.
        pub fn new(
            theme_id: String,
            block_id: String,
            revision: i64,
            texts: std::collections::BTreeMap<String, String>,
            changed_at: jiff::Timestamp,
        ) -> Self {
            Self { theme_id, block_id, revision, texts, changed_at, tenant_id: None }
        }
    }

    impl chapar::Event for ContentBlockChanged {
        const SUBJECT: &'static str = "melmastoon.theme.content_block.changed.v1";
        const AGGREGATE: &'static str = "content_block";

        fn aggregate_id(&self) -> String {
            self.theme_id.clone()
        }
    }

    /// A preset that tenants may choose; it belongs to the platform.
    ///
    /// `melmastoon.theme.preset.published.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct PresetPublished {
        /// The preset.
        #[serde(rename = "presetId")]
        pub preset_id: String,
        /// What it is called.
        pub name: String,
        /// Its version.
        #[serde(rename = "presetVersion")]
        pub preset_version: String,
        /// The hash of its files.
        #[serde(rename = "contentSha256")]
        pub content_sha256: String,
        /// When.
        #[serde(rename = "publishedAt")]
        pub published_at: jiff::Timestamp,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl PresetPublished {
        /// With the required fields only.
        pub fn new(
            preset_id: String,
            name: String,
            preset_version: String,
            content_sha256: String,
            published_at: jiff::Timestamp,
        ) -> Self {
            Self { preset_id, name, preset_version, content_sha256, published_at, tenant_id: None }
        }
    }

    impl chapar::Event for PresetPublished {
        const SUBJECT: &'static str = "melmastoon.theme.preset.published.v1";
        const AGGREGATE: &'static str = "preset";

        fn aggregate_id(&self) -> String {
            self.preset_id.clone()
        }
    }

    /// Colours, type and logo of a tenant after the change.
    ///
    /// `melmastoon.theme.tokens.changed.v1`
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct TokensChanged {
        /// The tenant's theme.
        #[serde(rename = "themeId")]
        pub theme_id: String,
        /// Counts the changes.
        pub revision: i64,
        /// The tokens by name.
        pub tokens: std::collections::BTreeMap<String, String>,
        /// When.
        #[serde(rename = "changedAt")]
        pub changed_at: jiff::Timestamp,
        /// The logo.
        #[serde(rename = "logoFileId", default, skip_serializing_if = "Option::is_none")]
        pub logo_file_id: Option<String>,
        /// The tenant again, where a producer repeats it; it must be the envelope's.
        #[serde(rename = "tenantId", default, skip_serializing_if = "Option::is_none")]
        pub tenant_id: Option<String>,
    }

    impl TokensChanged {
        /// With the required fields only.
        pub fn new(
            theme_id: String,
            revision: i64,
            tokens: std::collections::BTreeMap<String, String>,
            changed_at: jiff::Timestamp,
        ) -> Self {
            Self { theme_id, revision, tokens, changed_at, logo_file_id: None, tenant_id: None }
        }
    }

    impl chapar::Event for TokensChanged {
        const SUBJECT: &'static str = "melmastoon.theme.tokens.changed.v1";
        const AGGREGATE: &'static str = "tokens";

        fn aggregate_id(&self) -> String {
            self.theme_id.clone()
        }
    }
}

#[cfg(test)]
pub(super) fn round_trip(
    subject: &str,
    payload: serde_json::Value,
) -> serde_json::Result<serde_json::Value> {
    fn through<T: Serialize + serde::de::DeserializeOwned>(
        payload: serde_json::Value,
    ) -> serde_json::Result<serde_json::Value> {
        serde_json::to_value(serde_json::from_value::<T>(payload)?)
    }
    match subject {
        "melmastoon.ai_orchestrator.anomaly.detected.v1" => {
            through::<ai_orchestrator::AnomalyDetected>(payload)
        }
        "melmastoon.ai_orchestrator.completion.completed.v1" => {
            through::<ai_orchestrator::CompletionCompleted>(payload)
        }
        "melmastoon.ai_orchestrator.completion.refused.v1" => {
            through::<ai_orchestrator::CompletionRefused>(payload)
        }
        "melmastoon.ai_orchestrator.hitl.decided.v1" => {
            through::<ai_orchestrator::HitlDecided>(payload)
        }
        "melmastoon.ai_orchestrator.inference.local_completed.v1" => {
            through::<ai_orchestrator::InferenceLocalCompleted>(payload)
        }
        "melmastoon.analytics.snapshot.computed.v1" => {
            through::<analytics::SnapshotComputed>(payload)
        }
        "melmastoon.audit.entry.appended.v1" => through::<audit::EntryAppended>(payload),
        "melmastoon.audit.merkle.anchored.v1" => through::<audit::MerkleAnchored>(payload),
        "melmastoon.billing.folio.charge_posted.v1" => {
            through::<billing::FolioChargePosted>(payload)
        }
        "melmastoon.billing.folio.closed.v1" => through::<billing::FolioClosed>(payload),
        "melmastoon.billing.folio.opened.v1" => through::<billing::FolioOpened>(payload),
        "melmastoon.billing.folio.refund_posted.v1" => {
            through::<billing::FolioRefundPosted>(payload)
        }
        "melmastoon.billing.invoice.issued.v1" => through::<billing::InvoiceIssued>(payload),
        "melmastoon.billing.invoice.voided.v1" => through::<billing::InvoiceVoided>(payload),
        "melmastoon.file.scanned.v1" => through::<file::Scanned>(payload),
        "melmastoon.file.uploaded.v1" => through::<file::Uploaded>(payload),
        "melmastoon.housekeeping.room.status_changed.v1" => {
            through::<housekeeping::RoomStatusChanged>(payload)
        }
        "melmastoon.housekeeping.task.assigned.v1" => {
            through::<housekeeping::TaskAssigned>(payload)
        }
        "melmastoon.housekeeping.task.completed.v1" => {
            through::<housekeeping::TaskCompleted>(payload)
        }
        "melmastoon.housekeeping.task.created.v1" => through::<housekeeping::TaskCreated>(payload),
        "melmastoon.iam.device.bound.v1" => through::<iam::DeviceBound>(payload),
        "melmastoon.iam.device.unbound.v1" => through::<iam::DeviceUnbound>(payload),
        "melmastoon.iam.mfa.enrolled.v1" => through::<iam::MfaEnrolled>(payload),
        "melmastoon.iam.session.issued.v1" => through::<iam::SessionIssued>(payload),
        "melmastoon.iam.session.revoked.v1" => through::<iam::SessionRevoked>(payload),
        "melmastoon.iam.user.created.v1" => through::<iam::UserCreated>(payload),
        "melmastoon.inventory.allocation.committed.v1" => {
            through::<inventory::AllocationCommitted>(payload)
        }
        "melmastoon.inventory.allocation.reallocated.v1" => {
            through::<inventory::AllocationReallocated>(payload)
        }
        "melmastoon.inventory.allocation.released.v1" => {
            through::<inventory::AllocationReleased>(payload)
        }
        "melmastoon.inventory.oversell.blocked.v1" => {
            through::<inventory::OversellBlocked>(payload)
        }
        "melmastoon.inventory.stop_sell.activated.v1" => {
            through::<inventory::StopSellActivated>(payload)
        }
        "melmastoon.inventory.stop_sell.cleared.v1" => {
            through::<inventory::StopSellCleared>(payload)
        }
        "melmastoon.lock_integration.device.paired.v1" => {
            through::<lock_integration::DevicePaired>(payload)
        }
        "melmastoon.lock_integration.key_credential.issued.v1" => {
            through::<lock_integration::KeyCredentialIssued>(payload)
        }
        "melmastoon.lock_integration.key_credential.revoked.v1" => {
            through::<lock_integration::KeyCredentialRevoked>(payload)
        }
        "melmastoon.lock_integration.key_credential.suspended.v1" => {
            through::<lock_integration::KeyCredentialSuspended>(payload)
        }
        "melmastoon.lock_integration.key_credential.updated.v1" => {
            through::<lock_integration::KeyCredentialUpdated>(payload)
        }
        "melmastoon.lock_integration.vendor.error.v1" => {
            through::<lock_integration::VendorError>(payload)
        }
        "melmastoon.maintenance.ticket.closed.v1" => through::<maintenance::TicketClosed>(payload),
        "melmastoon.maintenance.ticket.opened.v1" => through::<maintenance::TicketOpened>(payload),
        "melmastoon.notification.message.bounced.v1" => {
            through::<notification::MessageBounced>(payload)
        }
        "melmastoon.notification.message.delivered.v1" => {
            through::<notification::MessageDelivered>(payload)
        }
        "melmastoon.notification.message.dispatched.v1" => {
            through::<notification::MessageDispatched>(payload)
        }
        "melmastoon.payment.cash.reconciled.v1" => through::<payment::CashReconciled>(payload),
        "melmastoon.payment.intent.captured.v1" => through::<payment::IntentCaptured>(payload),
        "melmastoon.payment.intent.created.v1" => through::<payment::IntentCreated>(payload),
        "melmastoon.payment.intent.failed.v1" => through::<payment::IntentFailed>(payload),
        "melmastoon.payment.intent.refunded.v1" => through::<payment::IntentRefunded>(payload),
        "melmastoon.pricing.calendar.updated.v1" => through::<pricing::CalendarUpdated>(payload),
        "melmastoon.pricing.delta.applied.v1" => through::<pricing::DeltaApplied>(payload),
        "melmastoon.pricing.quote.expired.v1" => through::<pricing::QuoteExpired>(payload),
        "melmastoon.pricing.rate_plan.archived.v1" => through::<pricing::RatePlanArchived>(payload),
        "melmastoon.pricing.rate_plan.published.v1" => {
            through::<pricing::RatePlanPublished>(payload)
        }
        "melmastoon.property.amenity.changed.v1" => through::<property::AmenityChanged>(payload),
        "melmastoon.property.property.created.v1" => through::<property::PropertyCreated>(payload),
        "melmastoon.property.room.added.v1" => through::<property::RoomAdded>(payload),
        "melmastoon.property.room.archived.v1" => through::<property::RoomArchived>(payload),
        "melmastoon.property.room_type.published.v1" => {
            through::<property::RoomTypePublished>(payload)
        }
        "melmastoon.reporting.report.generated.v1" => {
            through::<reporting::ReportGenerated>(payload)
        }
        "melmastoon.reservation.booking.cancelled.v1" => {
            through::<reservation::BookingCancelled>(payload)
        }
        "melmastoon.reservation.booking.check_in_started.v1" => {
            through::<reservation::BookingCheckInStarted>(payload)
        }
        "melmastoon.reservation.booking.check_out_started.v1" => {
            through::<reservation::BookingCheckOutStarted>(payload)
        }
        "melmastoon.reservation.booking.checked_in.v1" => {
            through::<reservation::BookingCheckedIn>(payload)
        }
        "melmastoon.reservation.booking.checked_out.v1" => {
            through::<reservation::BookingCheckedOut>(payload)
        }
        "melmastoon.reservation.booking.confirmed.v1" => {
            through::<reservation::BookingConfirmed>(payload)
        }
        "melmastoon.reservation.booking.dates_changed.v1" => {
            through::<reservation::BookingDatesChanged>(payload)
        }
        "melmastoon.reservation.booking.held.v1" => through::<reservation::BookingHeld>(payload),
        "melmastoon.reservation.booking.modified.v1" => {
            through::<reservation::BookingModified>(payload)
        }
        "melmastoon.reservation.booking.no_show.v1" => {
            through::<reservation::BookingNoShow>(payload)
        }
        "melmastoon.search_aggregation.listing.evicted.v1" => {
            through::<search_aggregation::ListingEvicted>(payload)
        }
        "melmastoon.search_aggregation.listing.indexed.v1" => {
            through::<search_aggregation::ListingIndexed>(payload)
        }
        "melmastoon.staff.shift.closed.v1" => through::<staff::ShiftClosed>(payload),
        "melmastoon.staff.shift.opened.v1" => through::<staff::ShiftOpened>(payload),
        "melmastoon.sync.conflict.recorded.v1" => through::<sync::ConflictRecorded>(payload),
        "melmastoon.sync.cursor.advanced.v1" => through::<sync::CursorAdvanced>(payload),
        "melmastoon.tenant.role.granted.v1" => through::<tenant::RoleGranted>(payload),
        "melmastoon.tenant.settings.changed.v1" => through::<tenant::SettingsChanged>(payload),
        "melmastoon.tenant.tenant.created.v1" => through::<tenant::TenantCreated>(payload),
        "melmastoon.tenant.tenant.suspended.v1" => through::<tenant::TenantSuspended>(payload),
        "melmastoon.theme.content_block.changed.v1" => {
            through::<theme::ContentBlockChanged>(payload)
        }
        "melmastoon.theme.preset.published.v1" => through::<theme::PresetPublished>(payload),
        "melmastoon.theme.tokens.changed.v1" => through::<theme::TokensChanged>(payload),
        _ => Err(serde::de::Error::custom("no such subject")),
    }
}
