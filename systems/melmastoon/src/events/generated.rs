//! The payloads of melmastoon, generated from its schemas. Do not edit: change a schema and run
//! `chapar catalog rust`.
#![allow(missing_docs, reason = "a schema need not describe everything")]

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Area {
    Booking,
    Payment,
    Lock,
}

/// What is still open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Balance {
    /// In the currency's smallest unit.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum BedsKind {
    Single,
    Double,
    Queen,
    King,
    Sofa,
}

/// Whom it is made out to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BillTo {
    /// The name.
    pub name: String,
    /// Its language.
    pub locale: String,
    /// Where it goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

/// What a [`BillTo`] must have; `.into()` makes one with nothing optional.
#[derive(Debug, Clone, PartialEq)]
pub struct BillToRequired {
    pub name: String,
    pub locale: String,
}

impl std::convert::From<BillToRequired> for BillTo {
    fn from(required: BillToRequired) -> Self {
        Self { name: required.name, locale: required.locale, email: None }
    }
}

/// What is eaten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Board {
    RoomOnly,
    Breakfast,
    HalfBoard,
    FullBoard,
}

/// The policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Cancellation {
    FreeUntilDayBefore,
    FreeUntilArrival,
    NonRefundable,
}

/// By which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Channel {
    Email,
    Sms,
    Whatsapp,
    Push,
}

/// The sum of the charges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Charged {
    /// In the currency's smallest unit.
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// What it cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// In the currency's smallest unit.
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// The price now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Current {
    /// In the currency's smallest unit.
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Days {
    /// The day.
    pub date: jiff::civil::Date,
    /// The room type.
    pub room_type_id: String,
    /// The price of the night.
    pub price: Price,
    /// Whether nobody may arrive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_to_arrival: Option<bool>,
    /// The shortest stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_nights: Option<i64>,
}

/// What a [`Days`] must have; `.into()` makes one with nothing optional.
#[derive(Debug, Clone, PartialEq)]
pub struct DaysRequired {
    pub date: jiff::civil::Date,
    pub room_type_id: String,
    pub price: Price,
}

impl std::convert::From<DaysRequired> for Days {
    fn from(required: DaysRequired) -> Self {
        Self {
            date: required.date,
            room_type_id: required.room_type_id,
            price: required.price,
            closed_to_arrival: None,
            min_nights: None,
        }
    }
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Decision {
    Accepted,
    Edited,
    Rejected,
}

/// What was promised.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Expected {
    /// In the currency's smallest unit.
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Factors {
    Password,
    Totp,
    Webauthn,
    Sso,
}

/// What the policy charges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fee {
    /// In the currency's smallest unit.
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// Its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Format {
    Pdf,
    Csv,
}

/// The old window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct From {
    /// The day of arrival.
    pub check_in: jiff::civil::Date,
    /// How many nights.
    pub nights: i64,
}

/// The lowest price of a night.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FromPrice {
    /// In the currency's smallest unit.
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// How long the period is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Granularity {
    Hour,
    Day,
    Month,
}

/// Who stays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Guest {
    /// The guest.
    pub guest_id: String,
    /// The language of the guest's messages.
    pub locale: String,
    /// Where letters reach the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// The name to greet and to register.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where text messages reach the guest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phone: Option<String>,
}

/// What a [`Guest`] must have; `.into()` makes one with nothing optional.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestRequired {
    pub guest_id: String,
    pub locale: String,
}

impl std::convert::From<GuestRequired> for Guest {
    fn from(required: GuestRequired) -> Self {
        Self {
            guest_id: required.guest_id,
            locale: required.locale,
            email: None,
            name: None,
            phone: None,
        }
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Method {
    Totp,
    Webauthn,
}

/// Before tax.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Net {
    /// In the currency's smallest unit.
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Operation {
    Issue,
    Update,
    Revoke,
    Suspend,
    Pair,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Outcome {
    Fixed,
    Replaced,
    NotReproduced,
    Deferred,
}

/// The sum of the payments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Paid {
    /// In the currency's smallest unit.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// What a [`Parts`] must have; `.into()` makes one with nothing optional.
#[derive(Debug, Clone, PartialEq)]
pub struct PartsRequired {
    pub name: String,
    pub count: i64,
}

impl std::convert::From<PartsRequired> for Parts {
    fn from(required: PartsRequired) -> Self {
        Self { name: required.name, count: required.count, cost: None }
    }
}

/// What it pays for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Plan {
    Starter,
    Professional,
    Enterprise,
}

/// The rule for such things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Policy {
    ServerAuthoritative,
    AppendOnly,
    MaxOf,
    Operator,
}

/// The price before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Previous {
    /// In the currency's smallest unit.
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// The price of the night.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Price {
    /// In the currency's smallest unit.
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// How bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Priority {
    Low,
    Normal,
    High,
    Urgent,
}

/// How it is paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Rail {
    Card,
    Paypal,
    Mfs,
    Cash,
}

/// What was counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Received {
    /// In the currency's smallest unit.
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// How much of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refund {
    /// In the currency's smallest unit.
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// The region its data stays in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Residency {
    #[text("me-central1")]
    MeCentral1,
    #[text("asia-south1")]
    AsiaSouth1,
    #[text("europe-west1")]
    EuropeWest1,
    #[text("us-central1")]
    UsCentral1,
}

/// As what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Role {
    FrontDesk,
    Housekeeping,
    Maintenance,
    Manager,
}

/// How bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Severity {
    Info,
    Warning,
    Critical,
}

/// Where it was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Stage {
    Input,
    Output,
}

/// The tax in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tax {
    /// In the currency's smallest unit.
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// What the till holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Till {
    /// In the currency's smallest unit.
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// The new window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct To {
    /// The day of arrival.
    pub check_in: jiff::civil::Date,
    /// How many nights.
    pub nights: i64,
}

/// Together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Total {
    /// In the currency's smallest unit.
    pub amount_minor: i64,
    /// Three letters, as ISO 4217 has them.
    pub currency: String,
}

/// What kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Type {
    User,
    System,
    Service,
    ApiKey,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Vendor {
    Ttlock,
    Salto,
    AssaAbloy,
    Wiegand,
}

/// What the scan says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
pub enum Verdict {
    Clean,
    Infected,
    Unreadable,
}

/// What ai-orchestrator-service publishes.
pub mod ai_orchestrator {
    use serde::{Deserialize, Serialize};

    /// Something looks wrong; a person decides.
    ///
    /// `melmastoon.ai_orchestrator.anomaly.detected.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.ai_orchestrator.anomaly.detected.v1",
        aggregate = "anomaly",
        id = anomaly_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct AnomalyDetected {
        /// The anomaly.
        pub anomaly_id: String,
        /// Where.
        pub area: super::Area,
        /// How bad.
        pub severity: super::Severity,
        /// What it is about.
        pub entity_id: String,
        /// Why it was raised.
        pub explanation: String,
        /// How unusual it is.
        pub score: serde_json::Number,
        /// When.
        pub detected_at: jiff::Timestamp,
    }

    /// What was asked for and what it cost; how it came about is in the envelope's provenance.
    ///
    /// `melmastoon.ai_orchestrator.completion.completed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.ai_orchestrator.completion.completed.v1",
        aggregate = "completion",
        id = completion_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct CompletionCompleted {
        /// The completion.
        pub completion_id: String,
        /// What for.
        pub purpose: CompletionCompletedPurpose,
        /// The model and its version.
        pub model: String,
        /// What went in.
        pub tokens_in: i64,
        /// What came out.
        pub tokens_out: i64,
        /// What it cost, in millionths of a dollar.
        pub cost_micro_usd: i64,
        /// How long it took.
        pub latency_ms: i64,
        /// Whether a person must decide.
        pub needs_review: bool,
        /// When.
        pub completed_at: jiff::Timestamp,
        /// The prompt.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub prompt_id: Option<String>,
        /// Its version.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub prompt_version: Option<String>,
    }

    /// What a [`CompletionCompleted`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct CompletionCompletedRequired {
        pub completion_id: String,
        pub purpose: CompletionCompletedPurpose,
        pub model: String,
        pub tokens_in: i64,
        pub tokens_out: i64,
        pub cost_micro_usd: i64,
        pub latency_ms: i64,
        pub needs_review: bool,
        pub completed_at: jiff::Timestamp,
    }

    impl std::convert::From<CompletionCompletedRequired> for CompletionCompleted {
        fn from(required: CompletionCompletedRequired) -> Self {
            Self {
                completion_id: required.completion_id,
                purpose: required.purpose,
                model: required.model,
                tokens_in: required.tokens_in,
                tokens_out: required.tokens_out,
                cost_micro_usd: required.cost_micro_usd,
                latency_ms: required.latency_ms,
                needs_review: required.needs_review,
                completed_at: required.completed_at,
                prompt_id: None,
                prompt_version: None,
            }
        }
    }

    /// What for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum CompletionCompletedPurpose {
        GuestMessage,
        ListingText,
        PricingHint,
        AnomalySummary,
        Translation,
    }

    /// Nothing was shown, and why.
    ///
    /// `melmastoon.ai_orchestrator.completion.refused.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.ai_orchestrator.completion.refused.v1",
        aggregate = "completion",
        id = completion_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct CompletionRefused {
        /// The completion.
        pub completion_id: String,
        /// Where it was stopped.
        pub stage: super::Stage,
        /// Why.
        pub reason: CompletionRefusedReason,
        /// The model and its version.
        pub model: String,
        /// When.
        pub refused_at: jiff::Timestamp,
        /// What it was taken for.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub category: Option<String>,
        /// The prompt.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub prompt_id: Option<String>,
        /// Its version.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub prompt_version: Option<String>,
    }

    /// What a [`CompletionRefused`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct CompletionRefusedRequired {
        pub completion_id: String,
        pub stage: super::Stage,
        pub reason: CompletionRefusedReason,
        pub model: String,
        pub refused_at: jiff::Timestamp,
    }

    impl std::convert::From<CompletionRefusedRequired> for CompletionRefused {
        fn from(required: CompletionRefusedRequired) -> Self {
            Self {
                completion_id: required.completion_id,
                stage: required.stage,
                reason: required.reason,
                model: required.model,
                refused_at: required.refused_at,
                category: None,
                prompt_id: None,
                prompt_version: None,
            }
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum CompletionRefusedReason {
        Safety,
        Privacy,
        Budget,
        Policy,
        ProviderUnavailable,
    }

    /// Who decided what, for the trail behind every model.
    ///
    /// `melmastoon.ai_orchestrator.hitl.decided.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.ai_orchestrator.hitl.decided.v1", aggregate = "hitl", id = decision_id)]
    #[serde(rename_all = "camelCase")]
    pub struct HitlDecided {
        /// The decision.
        pub decision_id: String,
        /// What was decided.
        pub decision: super::Decision,
        /// Who decided.
        pub decided_by: String,
        /// When.
        pub decided_at: jiff::Timestamp,
        /// The anomaly it is about.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub anomaly_id: Option<String>,
        /// The completion it is about.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub completion_id: Option<String>,
        /// Why.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub note: Option<String>,
    }

    /// What a [`HitlDecided`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct HitlDecidedRequired {
        pub decision_id: String,
        pub decision: super::Decision,
        pub decided_by: String,
        pub decided_at: jiff::Timestamp,
    }

    impl std::convert::From<HitlDecidedRequired> for HitlDecided {
        fn from(required: HitlDecidedRequired) -> Self {
            Self {
                decision_id: required.decision_id,
                decision: required.decision,
                decided_by: required.decided_by,
                decided_at: required.decided_at,
                anomaly_id: None,
                completion_id: None,
                note: None,
            }
        }
    }

    /// An inference made offline, recorded when the desktop came back.
    ///
    /// `melmastoon.ai_orchestrator.inference.local_completed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.ai_orchestrator.inference.local_completed.v1",
        aggregate = "inference",
        id = inference_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct InferenceLocalCompleted {
        /// The inference.
        pub inference_id: String,
        /// The desktop.
        pub device_id: String,
        /// What for.
        pub purpose: InferenceLocalCompletedPurpose,
        /// The model and its version.
        pub model: String,
        /// The hash of what went in.
        pub input_sha256: String,
        /// How sure it was.
        pub confidence: serde_json::Number,
        /// How long it took.
        pub latency_ms: i64,
        /// When, by the desktop's clock.
        pub completed_at: jiff::Timestamp,
    }

    /// What for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum InferenceLocalCompletedPurpose {
        DuplicateGuest,
        DemandForecast,
        DocumentScan,
    }
}

/// What analytics-service publishes.
pub mod analytics {
    use serde::{Deserialize, Serialize};

    /// The figures of a tenant for a period. It is read across tenants, so nothing personal is in it.
    ///
    /// `melmastoon.analytics.snapshot.computed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.analytics.snapshot.computed.v1", aggregate = "snapshot", id = snapshot_id)]
    #[serde(rename_all = "camelCase")]
    pub struct SnapshotComputed {
        /// The snapshot.
        pub snapshot_id: String,
        /// How long the period is.
        pub granularity: super::Granularity,
        /// From.
        pub period_from: jiff::Timestamp,
        /// Until.
        pub period_until: jiff::Timestamp,
        /// The figures by name.
        pub figures: std::collections::BTreeMap<String, serde_json::Number>,
        /// When.
        pub computed_at: jiff::Timestamp,
        /// The currency of money among them.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub currency: Option<String>,
        /// The property, where it is about one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub property_id: Option<String>,
    }

    /// What a [`SnapshotComputed`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct SnapshotComputedRequired {
        pub snapshot_id: String,
        pub granularity: super::Granularity,
        pub period_from: jiff::Timestamp,
        pub period_until: jiff::Timestamp,
        pub figures: std::collections::BTreeMap<String, serde_json::Number>,
        pub computed_at: jiff::Timestamp,
    }

    impl std::convert::From<SnapshotComputedRequired> for SnapshotComputed {
        fn from(required: SnapshotComputedRequired) -> Self {
            Self {
                snapshot_id: required.snapshot_id,
                granularity: required.granularity,
                period_from: required.period_from,
                period_until: required.period_until,
                figures: required.figures,
                computed_at: required.computed_at,
                currency: None,
                property_id: None,
            }
        }
    }
}

/// What audit-service publishes.
pub mod audit {
    use serde::{Deserialize, Serialize};

    /// Who did what to what, chained to the entry before.
    ///
    /// `melmastoon.audit.entry.appended.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.audit.entry.appended.v1", aggregate = "entry", id = entry_id)]
    #[serde(rename_all = "camelCase")]
    pub struct EntryAppended {
        /// The entry.
        pub entry_id: String,
        /// Its number in the trail.
        pub sequence: i64,
        /// What was done.
        pub action: String,
        /// Who did it.
        pub actor: super::Actor,
        /// What kind of thing it is about.
        pub entity_type: String,
        /// Which.
        pub entity_id: String,
        /// The hash of the entry before.
        pub previous_hash: String,
        /// The hash of this one.
        pub hash: String,
        /// When.
        pub appended_at: jiff::Timestamp,
        /// The event behind it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub source_event_id: Option<String>,
    }

    /// What a [`EntryAppended`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct EntryAppendedRequired {
        pub entry_id: String,
        pub sequence: i64,
        pub action: String,
        pub actor: super::Actor,
        pub entity_type: String,
        pub entity_id: String,
        pub previous_hash: String,
        pub hash: String,
        pub appended_at: jiff::Timestamp,
    }

    impl std::convert::From<EntryAppendedRequired> for EntryAppended {
        fn from(required: EntryAppendedRequired) -> Self {
            Self {
                entry_id: required.entry_id,
                sequence: required.sequence,
                action: required.action,
                actor: required.actor,
                entity_type: required.entity_type,
                entity_id: required.entity_id,
                previous_hash: required.previous_hash,
                hash: required.hash,
                appended_at: required.appended_at,
                source_event_id: None,
            }
        }
    }

    /// A proof that the day's entries are what they were; it belongs to the platform.
    ///
    /// `melmastoon.audit.merkle.anchored.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.audit.merkle.anchored.v1", aggregate = "merkle", id = root_id)]
    #[serde(rename_all = "camelCase")]
    pub struct MerkleAnchored {
        /// The day.
        pub date: jiff::civil::Date,
        /// The root.
        pub root_id: String,
        /// The Merkle root.
        pub root_hash: String,
        /// How many entries it covers.
        pub entries: i64,
        /// Where it is anchored.
        pub anchor: String,
        /// How it is found there.
        pub anchor_reference: String,
        /// When.
        pub anchored_at: jiff::Timestamp,
    }
}

/// What billing-service publishes.
pub mod billing {
    use serde::{Deserialize, Serialize};

    /// One more line on the account.
    ///
    /// `melmastoon.billing.folio.charge_posted.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.billing.folio.charge_posted.v1", aggregate = "folio", id = reservation_id)]
    #[serde(rename_all = "camelCase")]
    pub struct FolioChargePosted {
        /// The booking.
        pub reservation_id: String,
        /// The folio.
        pub folio_id: String,
        /// The amount in the currency's smallest unit.
        pub amount_minor: i64,
        /// Three letters, as ISO 4217 has them.
        pub currency: String,
        /// What for.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub category: Option<FolioChargePostedCategory>,
        /// The line.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub line_id: Option<String>,
        /// When.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub posted_at: Option<jiff::Timestamp>,
        /// The tax in it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tax: Option<super::Tax>,
    }

    /// What a [`FolioChargePosted`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct FolioChargePostedRequired {
        pub reservation_id: String,
        pub folio_id: String,
        pub amount_minor: i64,
        pub currency: String,
    }

    impl std::convert::From<FolioChargePostedRequired> for FolioChargePosted {
        fn from(required: FolioChargePostedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                folio_id: required.folio_id,
                amount_minor: required.amount_minor,
                currency: required.currency,
                category: None,
                line_id: None,
                posted_at: None,
                tax: None,
            }
        }
    }

    /// What for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum FolioChargePostedCategory {
        Stay,
        DateChange,
        NoShowFee,
        Minibar,
        Restaurant,
        Laundry,
        Other,
    }

    /// The account's last word, with what is still open.
    ///
    /// `melmastoon.billing.folio.closed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.billing.folio.closed.v1", aggregate = "folio", id = reservation_id)]
    #[serde(rename_all = "camelCase")]
    pub struct FolioClosed {
        /// The booking.
        pub reservation_id: String,
        /// The folio.
        pub folio_id: String,
        /// The sum of the charges.
        pub charged: super::Charged,
        /// The sum of the payments.
        pub paid: super::Paid,
        /// What is still open.
        pub balance: super::Balance,
        /// When.
        pub closed_at: jiff::Timestamp,
        /// Its invoice.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub invoice_id: Option<String>,
    }

    /// What a [`FolioClosed`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct FolioClosedRequired {
        pub reservation_id: String,
        pub folio_id: String,
        pub charged: super::Charged,
        pub paid: super::Paid,
        pub balance: super::Balance,
        pub closed_at: jiff::Timestamp,
    }

    impl std::convert::From<FolioClosedRequired> for FolioClosed {
        fn from(required: FolioClosedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                folio_id: required.folio_id,
                charged: required.charged,
                paid: required.paid,
                balance: required.balance,
                closed_at: required.closed_at,
                invoice_id: None,
            }
        }
    }

    /// The booking has an account to charge to.
    ///
    /// `melmastoon.billing.folio.opened.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.billing.folio.opened.v1",
        aggregate = "folio",
        id = reservation_id,
        intent = "{reservation_id}:opened"
    )]
    #[serde(rename_all = "camelCase")]
    pub struct FolioOpened {
        /// The booking.
        pub reservation_id: String,
        /// The folio.
        pub folio_id: String,
        /// Who pays.
        pub guest_id: String,
        /// The currency of the account.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub currency: Option<String>,
        /// When.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub opened_at: Option<jiff::Timestamp>,
        /// The property.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub property_id: Option<String>,
    }

    /// What a [`FolioOpened`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct FolioOpenedRequired {
        pub reservation_id: String,
        pub folio_id: String,
        pub guest_id: String,
    }

    impl std::convert::From<FolioOpenedRequired> for FolioOpened {
        fn from(required: FolioOpenedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                folio_id: required.folio_id,
                guest_id: required.guest_id,
                currency: None,
                opened_at: None,
                property_id: None,
            }
        }
    }

    /// A line that gives money back; the charge stays where it is.
    ///
    /// `melmastoon.billing.folio.refund_posted.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.billing.folio.refund_posted.v1", aggregate = "folio", id = reservation_id)]
    #[serde(rename_all = "camelCase")]
    pub struct FolioRefundPosted {
        /// The booking.
        pub reservation_id: String,
        /// The folio.
        pub folio_id: String,
        /// The amount in the currency's smallest unit.
        pub amount_minor: i64,
        /// Three letters, as ISO 4217 has them.
        pub currency: String,
        /// The line.
        pub line_id: String,
        /// Why.
        pub reason: FolioRefundPostedReason,
        /// When.
        pub posted_at: jiff::Timestamp,
        /// The charge it gives back.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub charge_line_id: Option<String>,
    }

    /// What a [`FolioRefundPosted`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct FolioRefundPostedRequired {
        pub reservation_id: String,
        pub folio_id: String,
        pub amount_minor: i64,
        pub currency: String,
        pub line_id: String,
        pub reason: FolioRefundPostedReason,
        pub posted_at: jiff::Timestamp,
    }

    impl std::convert::From<FolioRefundPostedRequired> for FolioRefundPosted {
        fn from(required: FolioRefundPostedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                folio_id: required.folio_id,
                amount_minor: required.amount_minor,
                currency: required.currency,
                line_id: required.line_id,
                reason: required.reason,
                posted_at: required.posted_at,
                charge_line_id: None,
            }
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum FolioRefundPostedReason {
        Cancelled,
        DateChange,
        Complaint,
        Correction,
    }

    /// The document that the guest and the tax office see.
    ///
    /// `melmastoon.billing.invoice.issued.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.billing.invoice.issued.v1", aggregate = "invoice", id = invoice_id)]
    #[serde(rename_all = "camelCase")]
    pub struct InvoiceIssued {
        /// The invoice.
        pub invoice_id: String,
        /// Its number in the tenant's series.
        pub number: String,
        /// The folio.
        pub folio_id: String,
        /// The booking.
        pub reservation_id: String,
        /// Whom it is made out to.
        pub bill_to: super::BillTo,
        /// Before tax.
        pub net: super::Net,
        /// The tax.
        pub tax: super::Tax,
        /// Together.
        pub total: super::Total,
        /// The document.
        pub file_id: String,
        /// When.
        pub issued_at: jiff::Timestamp,
    }

    /// The invoice no longer counts; its number stays used.
    ///
    /// `melmastoon.billing.invoice.voided.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.billing.invoice.voided.v1", aggregate = "invoice", id = invoice_id)]
    #[serde(rename_all = "camelCase")]
    pub struct InvoiceVoided {
        /// The invoice.
        pub invoice_id: String,
        /// Its number in the tenant's series.
        pub number: String,
        /// The booking.
        pub reservation_id: String,
        /// Why.
        pub reason: String,
        /// Who did it.
        pub voided_by: String,
        /// When.
        pub voided_at: jiff::Timestamp,
        /// The invoice instead.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub replaced_by: Option<String>,
    }

    /// What a [`InvoiceVoided`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct InvoiceVoidedRequired {
        pub invoice_id: String,
        pub number: String,
        pub reservation_id: String,
        pub reason: String,
        pub voided_by: String,
        pub voided_at: jiff::Timestamp,
    }

    impl std::convert::From<InvoiceVoidedRequired> for InvoiceVoided {
        fn from(required: InvoiceVoidedRequired) -> Self {
            Self {
                invoice_id: required.invoice_id,
                number: required.number,
                reservation_id: required.reservation_id,
                reason: required.reason,
                voided_by: required.voided_by,
                voided_at: required.voided_at,
                replaced_by: None,
            }
        }
    }
}

/// What file-storage-service publishes.
pub mod file {
    use serde::{Deserialize, Serialize};

    /// It is safe, or it is locked away.
    ///
    /// `melmastoon.file.scanned.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.file.scanned.v1", aggregate = "file", id = file_id)]
    #[serde(rename_all = "camelCase")]
    pub struct Scanned {
        /// The object.
        pub file_id: String,
        /// What it was called.
        pub name: String,
        /// Its media type.
        pub content_type: String,
        /// Its size.
        pub size_bytes: i64,
        /// The hash of its content.
        pub sha256: String,
        /// What the scan says.
        pub verdict: super::Verdict,
        /// When.
        pub scanned_at: jiff::Timestamp,
        /// What was found.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub threat: Option<String>,
    }

    /// What a [`Scanned`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ScannedRequired {
        pub file_id: String,
        pub name: String,
        pub content_type: String,
        pub size_bytes: i64,
        pub sha256: String,
        pub verdict: super::Verdict,
        pub scanned_at: jiff::Timestamp,
    }

    impl std::convert::From<ScannedRequired> for Scanned {
        fn from(required: ScannedRequired) -> Self {
            Self {
                file_id: required.file_id,
                name: required.name,
                content_type: required.content_type,
                size_bytes: required.size_bytes,
                sha256: required.sha256,
                verdict: required.verdict,
                scanned_at: required.scanned_at,
                threat: None,
            }
        }
    }

    /// It is there; nobody should open it before the scan.
    ///
    /// `melmastoon.file.uploaded.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.file.uploaded.v1", aggregate = "file", id = file_id)]
    #[serde(rename_all = "camelCase")]
    pub struct Uploaded {
        /// The object.
        pub file_id: String,
        /// What it was called.
        pub name: String,
        /// Its media type.
        pub content_type: String,
        /// Its size.
        pub size_bytes: i64,
        /// The hash of its content.
        pub sha256: String,
        /// What for.
        pub purpose: UploadedPurpose,
        /// Who did it.
        pub uploaded_by: String,
        /// When.
        pub uploaded_at: jiff::Timestamp,
    }

    /// What for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum UploadedPurpose {
        Photo,
        Logo,
        Invoice,
        IdentityDocument,
        Report,
        Attachment,
    }
}

/// What housekeeping-service publishes.
pub mod housekeeping {
    use serde::{Deserialize, Serialize};

    /// The room's state before and after.
    ///
    /// `melmastoon.housekeeping.room.status_changed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.housekeeping.room.status_changed.v1", aggregate = "room", id = room_id)]
    #[serde(rename_all = "camelCase")]
    pub struct RoomStatusChanged {
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// Before.
        pub from: RoomStatusChangedFrom,
        /// After.
        pub to: RoomStatusChangedTo,
        /// Who said so.
        pub changed_by: String,
        /// When.
        pub changed_at: jiff::Timestamp,
        /// Why, where it is out of use.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reason: Option<String>,
        /// Until when it is out of use.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub until: Option<jiff::civil::Date>,
    }

    /// What a [`RoomStatusChanged`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct RoomStatusChangedRequired {
        pub property_id: String,
        pub room_id: String,
        pub from: RoomStatusChangedFrom,
        pub to: RoomStatusChangedTo,
        pub changed_by: String,
        pub changed_at: jiff::Timestamp,
    }

    impl std::convert::From<RoomStatusChangedRequired> for RoomStatusChanged {
        fn from(required: RoomStatusChangedRequired) -> Self {
            Self {
                property_id: required.property_id,
                room_id: required.room_id,
                from: required.from,
                to: required.to,
                changed_by: required.changed_by,
                changed_at: required.changed_at,
                reason: None,
                until: None,
            }
        }
    }

    /// Before.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum RoomStatusChangedFrom {
        Clean,
        Dirty,
        OutOfOrder,
        OutOfService,
    }

    /// After.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum RoomStatusChangedTo {
        Clean,
        Dirty,
        OutOfOrder,
        OutOfService,
    }

    /// Someone has it in hand.
    ///
    /// `melmastoon.housekeeping.task.assigned.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.housekeeping.task.assigned.v1", aggregate = "task", id = room_id)]
    #[serde(rename_all = "camelCase")]
    pub struct TaskAssigned {
        /// The task.
        pub task_id: String,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// Who does it.
        pub staff_id: String,
        /// When.
        pub assigned_at: jiff::Timestamp,
        /// The language of the message.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub locale: Option<String>,
        /// The account to tell.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub user_id: Option<String>,
    }

    /// What a [`TaskAssigned`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TaskAssignedRequired {
        pub task_id: String,
        pub property_id: String,
        pub room_id: String,
        pub staff_id: String,
        pub assigned_at: jiff::Timestamp,
    }

    impl std::convert::From<TaskAssignedRequired> for TaskAssigned {
        fn from(required: TaskAssignedRequired) -> Self {
            Self {
                task_id: required.task_id,
                property_id: required.property_id,
                room_id: required.room_id,
                staff_id: required.staff_id,
                assigned_at: required.assigned_at,
                locale: None,
                user_id: None,
            }
        }
    }

    /// The room is ready for whoever comes next.
    ///
    /// `melmastoon.housekeeping.task.completed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.housekeeping.task.completed.v1", aggregate = "task", id = room_id)]
    #[serde(rename_all = "camelCase")]
    pub struct TaskCompleted {
        /// The task.
        pub task_id: String,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// Who did it.
        pub staff_id: String,
        /// How long it took.
        pub minutes: i64,
        /// When.
        pub completed_at: jiff::Timestamp,
        /// What was found.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub found: Option<Vec<String>>,
    }

    /// What a [`TaskCompleted`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TaskCompletedRequired {
        pub task_id: String,
        pub property_id: String,
        pub room_id: String,
        pub staff_id: String,
        pub minutes: i64,
        pub completed_at: jiff::Timestamp,
    }

    impl std::convert::From<TaskCompletedRequired> for TaskCompleted {
        fn from(required: TaskCompletedRequired) -> Self {
            Self {
                task_id: required.task_id,
                property_id: required.property_id,
                room_id: required.room_id,
                staff_id: required.staff_id,
                minutes: required.minutes,
                completed_at: required.completed_at,
                found: None,
            }
        }
    }

    /// A room wants work.
    ///
    /// `melmastoon.housekeeping.task.created.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.housekeeping.task.created.v1", aggregate = "task", id = room_id)]
    #[serde(rename_all = "camelCase")]
    pub struct TaskCreated {
        /// The task.
        pub task_id: String,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// What kind.
        pub kind: TaskCreatedKind,
        /// Where it came from.
        pub origin: TaskCreatedOrigin,
        /// When.
        pub created_at: jiff::Timestamp,
        /// When it must be done.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub due_at: Option<jiff::Timestamp>,
        /// The booking that left the room.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub reservation_id: Option<String>,
    }

    /// What a [`TaskCreated`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TaskCreatedRequired {
        pub task_id: String,
        pub property_id: String,
        pub room_id: String,
        pub kind: TaskCreatedKind,
        pub origin: TaskCreatedOrigin,
        pub created_at: jiff::Timestamp,
    }

    impl std::convert::From<TaskCreatedRequired> for TaskCreated {
        fn from(required: TaskCreatedRequired) -> Self {
            Self {
                task_id: required.task_id,
                property_id: required.property_id,
                room_id: required.room_id,
                kind: required.kind,
                origin: required.origin,
                created_at: required.created_at,
                due_at: None,
                reservation_id: None,
            }
        }
    }

    /// What kind.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum TaskCreatedKind {
        Turnover,
        StayOver,
        DeepClean,
        Inspection,
    }

    /// Where it came from.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum TaskCreatedOrigin {
        CheckedOut,
        Scheduled,
        Requested,
    }
}

/// What iam-service publishes.
pub mod iam {
    use serde::{Deserialize, Serialize};

    /// A desktop may work offline for a property from now on.
    ///
    /// `melmastoon.iam.device.bound.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.iam.device.bound.v1", aggregate = "device", id = device_id)]
    #[serde(rename_all = "camelCase")]
    pub struct DeviceBound {
        /// The desktop.
        pub device_id: String,
        /// The account.
        pub user_id: String,
        /// The property.
        pub property_id: String,
        /// What people call it.
        pub name: String,
        /// The SHA-256 of its public key.
        pub public_key_fingerprint: String,
        /// When.
        pub bound_at: jiff::Timestamp,
        /// Until when it need not pair again.
        pub certificate_expires_at: jiff::Timestamp,
    }

    /// A desktop is no longer trusted and wipes what it holds.
    ///
    /// `melmastoon.iam.device.unbound.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.iam.device.unbound.v1", aggregate = "device", id = device_id)]
    #[serde(rename_all = "camelCase")]
    pub struct DeviceUnbound {
        /// The desktop.
        pub device_id: String,
        /// The account.
        pub user_id: String,
        /// The property.
        pub property_id: String,
        /// Why.
        pub reason: DeviceUnboundReason,
        /// When.
        pub unbound_at: jiff::Timestamp,
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum DeviceUnboundReason {
        Lost,
        Replaced,
        Retired,
        SecurityIncident,
    }

    /// The user has one more way to prove who they are.
    ///
    /// `melmastoon.iam.mfa.enrolled.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.iam.mfa.enrolled.v1", aggregate = "mfa", id = user_id)]
    #[serde(rename_all = "camelCase")]
    pub struct MfaEnrolled {
        /// The account.
        pub user_id: String,
        /// The factor.
        pub factor_id: String,
        /// Its kind.
        pub method: super::Method,
        /// The language of the notice.
        pub locale: String,
        /// When.
        pub enrolled_at: jiff::Timestamp,
        /// Where the notice goes.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub email: Option<String>,
    }

    /// What a [`MfaEnrolled`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct MfaEnrolledRequired {
        pub user_id: String,
        pub factor_id: String,
        pub method: super::Method,
        pub locale: String,
        pub enrolled_at: jiff::Timestamp,
    }

    impl std::convert::From<MfaEnrolledRequired> for MfaEnrolled {
        fn from(required: MfaEnrolledRequired) -> Self {
            Self {
                user_id: required.user_id,
                factor_id: required.factor_id,
                method: required.method,
                locale: required.locale,
                enrolled_at: required.enrolled_at,
                email: None,
            }
        }
    }

    /// Someone signed in. The tokens themselves are never part of it.
    ///
    /// `melmastoon.iam.session.issued.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.iam.session.issued.v1", aggregate = "session", id = user_id)]
    #[serde(rename_all = "camelCase")]
    pub struct SessionIssued {
        /// The session.
        pub session_id: String,
        /// The account.
        pub user_id: String,
        /// How the user proved who they are.
        pub factors: Vec<super::Factors>,
        /// When.
        pub issued_at: jiff::Timestamp,
        /// Until when the session can be refreshed.
        pub expires_at: jiff::Timestamp,
        /// The paired desktop, where it is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub device_id: Option<String>,
        /// Where from.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub ip_address: Option<String>,
    }

    /// What a [`SessionIssued`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct SessionIssuedRequired {
        pub session_id: String,
        pub user_id: String,
        pub factors: Vec<super::Factors>,
        pub issued_at: jiff::Timestamp,
        pub expires_at: jiff::Timestamp,
    }

    impl std::convert::From<SessionIssuedRequired> for SessionIssued {
        fn from(required: SessionIssuedRequired) -> Self {
            Self {
                session_id: required.session_id,
                user_id: required.user_id,
                factors: required.factors,
                issued_at: required.issued_at,
                expires_at: required.expires_at,
                device_id: None,
                ip_address: None,
            }
        }
    }

    /// A session ends before its time; desktops that hold it lock themselves.
    ///
    /// `melmastoon.iam.session.revoked.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.iam.session.revoked.v1", aggregate = "session", id = user_id)]
    #[serde(rename_all = "camelCase")]
    pub struct SessionRevoked {
        /// The session.
        pub session_id: String,
        /// The account.
        pub user_id: String,
        /// Why.
        pub reason: SessionRevokedReason,
        /// When.
        pub revoked_at: jiff::Timestamp,
        /// The paired desktop, where it is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub device_id: Option<String>,
    }

    /// What a [`SessionRevoked`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct SessionRevokedRequired {
        pub session_id: String,
        pub user_id: String,
        pub reason: SessionRevokedReason,
        pub revoked_at: jiff::Timestamp,
    }

    impl std::convert::From<SessionRevokedRequired> for SessionRevoked {
        fn from(required: SessionRevokedRequired) -> Self {
            Self {
                session_id: required.session_id,
                user_id: required.user_id,
                reason: required.reason,
                revoked_at: required.revoked_at,
                device_id: None,
            }
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum SessionRevokedReason {
        SignedOut,
        TokenReuse,
        Administrator,
        PasswordChanged,
        DeviceUnbound,
        SecurityIncident,
    }

    /// An account exists, with what is needed to greet its owner and to let a desktop know it.
    ///
    /// `melmastoon.iam.user.created.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.iam.user.created.v1", aggregate = "user", id = user_id)]
    #[serde(rename_all = "camelCase")]
    pub struct UserCreated {
        /// The account.
        pub user_id: String,
        /// The name to show.
        pub display_name: String,
        /// Where letters reach the user.
        pub email: String,
        /// The language of the user's messages.
        pub locale: String,
        /// How the account came to be.
        pub origin: UserCreatedOrigin,
        /// When.
        pub created_at: jiff::Timestamp,
    }

    /// How the account came to be.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum UserCreatedOrigin {
        Invited,
        SelfRegistered,
        Imported,
    }
}

/// What inventory-service publishes.
pub mod inventory {
    use serde::{Deserialize, Serialize};

    /// The room is the booking's for all its nights.
    ///
    /// `melmastoon.inventory.allocation.committed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.inventory.allocation.committed.v1",
        aggregate = "allocation",
        id = reservation_id,
        intent = "{reservation_id}:committed"
    )]
    #[serde(rename_all = "camelCase")]
    pub struct AllocationCommitted {
        /// The booking.
        pub reservation_id: String,
        /// The allocation.
        pub allocation_id: String,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// The day of arrival.
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
    }

    /// Old and new window; the new one is sure.
    ///
    /// `melmastoon.inventory.allocation.reallocated.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.inventory.allocation.reallocated.v1",
        aggregate = "allocation",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct AllocationReallocated {
        /// The booking.
        pub reservation_id: String,
        /// The allocation.
        pub allocation_id: String,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// The room before.
        pub previous_room_id: String,
        /// The old window.
        pub from: super::From,
        /// The new window.
        pub to: super::To,
        /// When.
        pub reallocated_at: jiff::Timestamp,
    }

    /// The nights can be sold again.
    ///
    /// `melmastoon.inventory.allocation.released.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.inventory.allocation.released.v1",
        aggregate = "allocation",
        id = reservation_id,
        intent = "{reservation_id}:released"
    )]
    #[serde(rename_all = "camelCase")]
    pub struct AllocationReleased {
        /// The booking.
        pub reservation_id: String,
        /// The allocation.
        pub allocation_id: String,
        /// How many nights are free again.
        pub nights_released: i64,
        /// Why.
        pub reason: AllocationReleasedReason,
        /// The property.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub property_id: Option<String>,
        /// The room.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub room_id: Option<String>,
    }

    /// What a [`AllocationReleased`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct AllocationReleasedRequired {
        pub reservation_id: String,
        pub allocation_id: String,
        pub nights_released: i64,
        pub reason: AllocationReleasedReason,
    }

    impl std::convert::From<AllocationReleasedRequired> for AllocationReleased {
        fn from(required: AllocationReleasedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                allocation_id: required.allocation_id,
                nights_released: required.nights_released,
                reason: required.reason,
                property_id: None,
                room_id: None,
            }
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum AllocationReleasedReason {
        GuestRequest,
        PropertyRequest,
        HoldExpired,
        PaymentFailed,
        NoAvailability,
        Fraud,
        NoShow,
    }

    /// The room could not be sold; the booking saga cancels.
    ///
    /// `melmastoon.inventory.oversell.blocked.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.inventory.oversell.blocked.v1",
        aggregate = "oversell",
        id = reservation_id,
        intent = "{reservation_id}:blocked"
    )]
    #[serde(rename_all = "camelCase")]
    pub struct OversellBlocked {
        /// The booking.
        pub reservation_id: String,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// The day of arrival.
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// What stood in the way.
        pub reason: String,
        /// The booking that has the room.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub held_by: Option<String>,
    }

    /// What a [`OversellBlocked`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct OversellBlockedRequired {
        pub reservation_id: String,
        pub property_id: String,
        pub room_id: String,
        pub check_in: jiff::civil::Date,
        pub nights: i64,
        pub reason: String,
    }

    impl std::convert::From<OversellBlockedRequired> for OversellBlocked {
        fn from(required: OversellBlockedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                property_id: required.property_id,
                room_id: required.room_id,
                check_in: required.check_in,
                nights: required.nights,
                reason: required.reason,
                held_by: None,
            }
        }
    }

    /// Nothing of this type is sold for the day, whatever is free.
    ///
    /// `melmastoon.inventory.stop_sell.activated.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.inventory.stop_sell.activated.v1",
        aggregate = "stop_sell",
        id = stop_sell_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct StopSellActivated {
        /// The stop-sell.
        pub stop_sell_id: String,
        /// The property.
        pub property_id: String,
        /// The room type.
        pub room_type_id: String,
        /// The day it is about.
        pub date: jiff::civil::Date,
        /// Why.
        pub reason: String,
        /// Who did it.
        pub activated_by: String,
        /// When.
        pub activated_at: jiff::Timestamp,
    }

    /// The day is sold again by what is free.
    ///
    /// `melmastoon.inventory.stop_sell.cleared.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.inventory.stop_sell.cleared.v1",
        aggregate = "stop_sell",
        id = stop_sell_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct StopSellCleared {
        /// The stop-sell.
        pub stop_sell_id: String,
        /// The property.
        pub property_id: String,
        /// The room type.
        pub room_type_id: String,
        /// The day it is about.
        pub date: jiff::civil::Date,
        /// How many rooms are free.
        pub available: i64,
        /// When.
        pub cleared_at: jiff::Timestamp,
    }
}

/// What lock-integration-service publishes.
pub mod lock_integration {
    use serde::{Deserialize, Serialize};

    /// A door has a lock that takes keys from us.
    ///
    /// `melmastoon.lock_integration.device.paired.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.lock_integration.device.paired.v1", aggregate = "device", id = lock_id)]
    #[serde(rename_all = "camelCase")]
    pub struct DevicePaired {
        /// The lock.
        pub lock_id: String,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// Whose lock it is.
        pub vendor: super::Vendor,
        /// Who did it.
        pub paired_by: String,
        /// When.
        pub paired_at: jiff::Timestamp,
        /// How full its battery is.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub battery_percent: Option<i64>,
    }

    /// What a [`DevicePaired`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct DevicePairedRequired {
        pub lock_id: String,
        pub property_id: String,
        pub room_id: String,
        pub vendor: super::Vendor,
        pub paired_by: String,
        pub paired_at: jiff::Timestamp,
    }

    impl std::convert::From<DevicePairedRequired> for DevicePaired {
        fn from(required: DevicePairedRequired) -> Self {
            Self {
                lock_id: required.lock_id,
                property_id: required.property_id,
                room_id: required.room_id,
                vendor: required.vendor,
                paired_by: required.paired_by,
                paired_at: required.paired_at,
                battery_percent: None,
            }
        }
    }

    /// The guest's key works. The code itself is never part of it.
    ///
    /// `melmastoon.lock_integration.key_credential.issued.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.lock_integration.key_credential.issued.v1",
        aggregate = "key_credential",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct KeyCredentialIssued {
        /// The booking.
        pub reservation_id: String,
        /// The key.
        pub credential_id: String,
        /// The room.
        pub room_id: String,
        /// When it opens.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub validity: Option<super::Validity>,
        /// Whose lock it is.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub vendor: Option<super::Vendor>,
    }

    /// What a [`KeyCredentialIssued`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct KeyCredentialIssuedRequired {
        pub reservation_id: String,
        pub credential_id: String,
        pub room_id: String,
    }

    impl std::convert::From<KeyCredentialIssuedRequired> for KeyCredentialIssued {
        fn from(required: KeyCredentialIssuedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                credential_id: required.credential_id,
                room_id: required.room_id,
                validity: None,
                vendor: None,
            }
        }
    }

    /// The key opens nothing any more.
    ///
    /// `melmastoon.lock_integration.key_credential.revoked.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.lock_integration.key_credential.revoked.v1",
        aggregate = "key_credential",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct KeyCredentialRevoked {
        /// The booking.
        pub reservation_id: String,
        /// The key.
        pub credential_id: String,
        /// The room.
        pub room_id: String,
        /// Whose lock it is.
        pub vendor: super::Vendor,
        /// Why.
        pub reason: KeyCredentialRevokedReason,
        /// When.
        pub revoked_at: jiff::Timestamp,
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum KeyCredentialRevokedReason {
        CheckedOut,
        Cancelled,
        NoShow,
        Security,
    }

    /// The key is asleep; it can be woken again.
    ///
    /// `melmastoon.lock_integration.key_credential.suspended.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.lock_integration.key_credential.suspended.v1",
        aggregate = "key_credential",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct KeyCredentialSuspended {
        /// The booking.
        pub reservation_id: String,
        /// The key.
        pub credential_id: String,
        /// The room.
        pub room_id: String,
        /// Whose lock it is.
        pub vendor: super::Vendor,
        /// Why.
        pub reason: KeyCredentialSuspendedReason,
        /// Who ordered it.
        pub ordered_by: String,
        /// When.
        pub suspended_at: jiff::Timestamp,
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum KeyCredentialSuspendedReason {
        PoliceHold,
        Dispute,
    }

    /// The same key, for another door or other days.
    ///
    /// `melmastoon.lock_integration.key_credential.updated.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.lock_integration.key_credential.updated.v1",
        aggregate = "key_credential",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct KeyCredentialUpdated {
        /// The booking.
        pub reservation_id: String,
        /// The key.
        pub credential_id: String,
        /// The room.
        pub room_id: String,
        /// Whose lock it is.
        pub vendor: super::Vendor,
        /// When it opens.
        pub validity: super::Validity,
        /// Why.
        pub reason: KeyCredentialUpdatedReason,
        /// When.
        pub updated_at: jiff::Timestamp,
        /// The room before.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub previous_room_id: Option<String>,
    }

    /// What a [`KeyCredentialUpdated`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct KeyCredentialUpdatedRequired {
        pub reservation_id: String,
        pub credential_id: String,
        pub room_id: String,
        pub vendor: super::Vendor,
        pub validity: super::Validity,
        pub reason: KeyCredentialUpdatedReason,
        pub updated_at: jiff::Timestamp,
    }

    impl std::convert::From<KeyCredentialUpdatedRequired> for KeyCredentialUpdated {
        fn from(required: KeyCredentialUpdatedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                credential_id: required.credential_id,
                room_id: required.room_id,
                vendor: required.vendor,
                validity: required.validity,
                reason: required.reason,
                updated_at: required.updated_at,
                previous_room_id: None,
            }
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum KeyCredentialUpdatedReason {
        RoomChanged,
        DatesChanged,
        Reinstated,
    }

    /// The vendor did not do its part; people at the desk can.
    ///
    /// `melmastoon.lock_integration.vendor.error.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.lock_integration.vendor.error.v1",
        aggregate = "vendor",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct VendorError {
        /// The booking.
        pub reservation_id: String,
        /// The room.
        pub room_id: String,
        /// What the vendor said.
        pub reason: String,
        /// How often it was tried.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub attempts: Option<i64>,
        /// When.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub failed_at: Option<jiff::Timestamp>,
        /// What was asked.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub operation: Option<super::Operation>,
        /// Whether another try may help.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub retryable: Option<bool>,
        /// Whose lock it is.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub vendor: Option<super::Vendor>,
    }

    /// What a [`VendorError`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct VendorErrorRequired {
        pub reservation_id: String,
        pub room_id: String,
        pub reason: String,
    }

    impl std::convert::From<VendorErrorRequired> for VendorError {
        fn from(required: VendorErrorRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                room_id: required.room_id,
                reason: required.reason,
                attempts: None,
                failed_at: None,
                operation: None,
                retryable: None,
                vendor: None,
            }
        }
    }
}

/// What maintenance-service publishes.
pub mod maintenance {
    use serde::{Deserialize, Serialize};

    /// It is mended, and what that took.
    ///
    /// `melmastoon.maintenance.ticket.closed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.maintenance.ticket.closed.v1", aggregate = "ticket", id = ticket_id)]
    #[serde(rename_all = "camelCase")]
    pub struct TicketClosed {
        /// The work order.
        pub ticket_id: String,
        /// The property.
        pub property_id: String,
        /// How it ended.
        pub outcome: super::Outcome,
        /// How long it took.
        pub labour_minutes: i64,
        /// What was used.
        pub parts: Vec<super::Parts>,
        /// All of it.
        pub cost: super::Cost,
        /// Whether the room can be sold again.
        pub room_usable: bool,
        /// When.
        pub closed_at: jiff::Timestamp,
        /// The room.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub room_id: Option<String>,
    }

    /// What a [`TicketClosed`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TicketClosedRequired {
        pub ticket_id: String,
        pub property_id: String,
        pub outcome: super::Outcome,
        pub labour_minutes: i64,
        pub parts: Vec<super::Parts>,
        pub cost: super::Cost,
        pub room_usable: bool,
        pub closed_at: jiff::Timestamp,
    }

    impl std::convert::From<TicketClosedRequired> for TicketClosed {
        fn from(required: TicketClosedRequired) -> Self {
            Self {
                ticket_id: required.ticket_id,
                property_id: required.property_id,
                outcome: required.outcome,
                labour_minutes: required.labour_minutes,
                parts: required.parts,
                cost: required.cost,
                room_usable: required.room_usable,
                closed_at: required.closed_at,
                room_id: None,
            }
        }
    }

    /// Something is broken.
    ///
    /// `melmastoon.maintenance.ticket.opened.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.maintenance.ticket.opened.v1", aggregate = "ticket", id = ticket_id)]
    #[serde(rename_all = "camelCase")]
    pub struct TicketOpened {
        /// The work order.
        pub ticket_id: String,
        /// The property.
        pub property_id: String,
        /// What.
        pub category: TicketOpenedCategory,
        /// How bad.
        pub priority: super::Priority,
        /// In a sentence.
        pub summary: String,
        /// Whether the room cannot be sold.
        pub room_unusable: bool,
        /// Who reported it.
        pub opened_by: String,
        /// When.
        pub opened_at: jiff::Timestamp,
        /// The room.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub room_id: Option<String>,
    }

    /// What a [`TicketOpened`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TicketOpenedRequired {
        pub ticket_id: String,
        pub property_id: String,
        pub category: TicketOpenedCategory,
        pub priority: super::Priority,
        pub summary: String,
        pub room_unusable: bool,
        pub opened_by: String,
        pub opened_at: jiff::Timestamp,
    }

    impl std::convert::From<TicketOpenedRequired> for TicketOpened {
        fn from(required: TicketOpenedRequired) -> Self {
            Self {
                ticket_id: required.ticket_id,
                property_id: required.property_id,
                category: required.category,
                priority: required.priority,
                summary: required.summary,
                room_unusable: required.room_unusable,
                opened_by: required.opened_by,
                opened_at: required.opened_at,
                room_id: None,
            }
        }
    }

    /// What.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum TicketOpenedCategory {
        Plumbing,
        Electrical,
        Lock,
        Furniture,
        Climate,
        Other,
    }
}

/// What notification-service publishes.
pub mod notification {
    use serde::{Deserialize, Serialize};

    /// It did not arrive, and somebody should call.
    ///
    /// `melmastoon.notification.message.bounced.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.notification.message.bounced.v1",
        aggregate = "message",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct MessageBounced {
        /// The booking.
        pub reservation_id: String,
        /// The message.
        pub message_id: String,
        /// What the provider said.
        pub reason: String,
        /// When.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub bounced_at: Option<jiff::Timestamp>,
        /// By which way.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub channel: Option<super::Channel>,
        /// Whether the address is wrong for good.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub permanent: Option<bool>,
    }

    /// What a [`MessageBounced`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct MessageBouncedRequired {
        pub reservation_id: String,
        pub message_id: String,
        pub reason: String,
    }

    impl std::convert::From<MessageBouncedRequired> for MessageBounced {
        fn from(required: MessageBouncedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                message_id: required.message_id,
                reason: required.reason,
                bounced_at: None,
                channel: None,
                permanent: None,
            }
        }
    }

    /// It arrived.
    ///
    /// `melmastoon.notification.message.delivered.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.notification.message.delivered.v1",
        aggregate = "message",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct MessageDelivered {
        /// The booking.
        pub reservation_id: String,
        /// The message.
        pub message_id: String,
        /// By which way.
        pub channel: super::Channel,
        /// Who carried it.
        pub provider: String,
        /// How the provider knows it.
        pub provider_reference: String,
        /// When.
        pub delivered_at: jiff::Timestamp,
    }

    /// It is on its way; nobody has it yet.
    ///
    /// `melmastoon.notification.message.dispatched.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.notification.message.dispatched.v1",
        aggregate = "message",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct MessageDispatched {
        /// The booking.
        pub reservation_id: String,
        /// The message.
        pub message_id: String,
        /// Which letter.
        pub template: String,
        /// Its language.
        pub locale: String,
        /// By which way.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub channel: Option<super::Channel>,
        /// When.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub dispatched_at: Option<jiff::Timestamp>,
        /// Who carries it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub provider: Option<String>,
        /// Who gets it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub recipient_id: Option<String>,
    }

    /// What a [`MessageDispatched`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct MessageDispatchedRequired {
        pub reservation_id: String,
        pub message_id: String,
        pub template: String,
        pub locale: String,
    }

    impl std::convert::From<MessageDispatchedRequired> for MessageDispatched {
        fn from(required: MessageDispatchedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                message_id: required.message_id,
                template: required.template,
                locale: required.locale,
                channel: None,
                dispatched_at: None,
                provider: None,
                recipient_id: None,
            }
        }
    }
}

/// What payment-gateway-service publishes.
pub mod payment {
    use serde::{Deserialize, Serialize};

    /// The promised cash is in the till, or part of it.
    ///
    /// `melmastoon.payment.cash.reconciled.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.payment.cash.reconciled.v1", aggregate = "cash", id = reservation_id)]
    #[serde(rename_all = "camelCase")]
    pub struct CashReconciled {
        /// The booking.
        pub reservation_id: String,
        /// The payment intent.
        pub intent_id: String,
        /// What was promised.
        pub expected: super::Expected,
        /// What was counted.
        pub received: super::Received,
        /// The shift whose till it is.
        pub shift_id: String,
        /// Who counted it.
        pub received_by: String,
        /// When.
        pub reconciled_at: jiff::Timestamp,
    }

    /// The money is here, or will be on arrival.
    ///
    /// `melmastoon.payment.intent.captured.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.payment.intent.captured.v1",
        aggregate = "intent",
        id = reservation_id,
        intent = "{reservation_id}:captured"
    )]
    #[serde(rename_all = "camelCase")]
    pub struct IntentCaptured {
        /// The booking.
        pub reservation_id: String,
        /// The payment intent.
        pub intent_id: String,
        /// The amount in the currency's smallest unit.
        pub amount_minor: i64,
        /// Three letters, as ISO 4217 has them.
        pub currency: String,
        /// How it came; cash_pending is still to come.
        pub rail: IntentCapturedRail,
        /// When.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub captured_at: Option<jiff::Timestamp>,
        /// The folio it is for.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub folio_id: Option<String>,
        /// How the processor knows it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub processor_reference: Option<String>,
    }

    /// What a [`IntentCaptured`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct IntentCapturedRequired {
        pub reservation_id: String,
        pub intent_id: String,
        pub amount_minor: i64,
        pub currency: String,
        pub rail: IntentCapturedRail,
    }

    impl std::convert::From<IntentCapturedRequired> for IntentCaptured {
        fn from(required: IntentCapturedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                intent_id: required.intent_id,
                amount_minor: required.amount_minor,
                currency: required.currency,
                rail: required.rail,
                captured_at: None,
                folio_id: None,
                processor_reference: None,
            }
        }
    }

    /// How it came; cash_pending is still to come.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum IntentCapturedRail {
        Card,
        Paypal,
        Mfs,
        CashPending,
    }

    /// Money is about to be asked for.
    ///
    /// `melmastoon.payment.intent.created.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.payment.intent.created.v1",
        aggregate = "intent",
        id = reservation_id,
        intent = "{reservation_id}:created"
    )]
    #[serde(rename_all = "camelCase")]
    pub struct IntentCreated {
        /// The booking.
        pub reservation_id: String,
        /// The payment intent.
        pub intent_id: String,
        /// The amount in the currency's smallest unit.
        pub amount_minor: i64,
        /// Three letters, as ISO 4217 has them.
        pub currency: String,
        /// How it is paid.
        pub rail: super::Rail,
        /// When.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub created_at: Option<jiff::Timestamp>,
        /// The folio it is for.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub folio_id: Option<String>,
    }

    /// What a [`IntentCreated`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct IntentCreatedRequired {
        pub reservation_id: String,
        pub intent_id: String,
        pub amount_minor: i64,
        pub currency: String,
        pub rail: super::Rail,
    }

    impl std::convert::From<IntentCreatedRequired> for IntentCreated {
        fn from(required: IntentCreatedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                intent_id: required.intent_id,
                amount_minor: required.amount_minor,
                currency: required.currency,
                rail: required.rail,
                created_at: None,
                folio_id: None,
            }
        }
    }

    /// The payment is refused for good; the saga gives the room back.
    ///
    /// `melmastoon.payment.intent.failed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.payment.intent.failed.v1",
        aggregate = "intent",
        id = reservation_id,
        intent = "{reservation_id}:failed"
    )]
    #[serde(rename_all = "camelCase")]
    pub struct IntentFailed {
        /// The booking.
        pub reservation_id: String,
        /// The payment intent.
        pub intent_id: String,
        /// What the processor said.
        pub reason: String,
        /// When.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub failed_at: Option<jiff::Timestamp>,
        /// How it was to be paid.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rail: Option<super::Rail>,
        /// Whether another try may help.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub retryable: Option<bool>,
    }

    /// What a [`IntentFailed`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct IntentFailedRequired {
        pub reservation_id: String,
        pub intent_id: String,
        pub reason: String,
    }

    impl std::convert::From<IntentFailedRequired> for IntentFailed {
        fn from(required: IntentFailedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                intent_id: required.intent_id,
                reason: required.reason,
                failed_at: None,
                rail: None,
                retryable: None,
            }
        }
    }

    /// The money went back the way it came.
    ///
    /// `melmastoon.payment.intent.refunded.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.payment.intent.refunded.v1",
        aggregate = "intent",
        id = reservation_id,
        intent = "{reservation_id}:refunded"
    )]
    #[serde(rename_all = "camelCase")]
    pub struct IntentRefunded {
        /// The booking.
        pub reservation_id: String,
        /// The payment intent.
        pub intent_id: String,
        /// The amount in the currency's smallest unit.
        pub amount_minor: i64,
        /// Three letters, as ISO 4217 has them.
        pub currency: String,
        /// How the processor knows it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub processor_reference: Option<String>,
        /// How it went back.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rail: Option<super::Rail>,
        /// When.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub refunded_at: Option<jiff::Timestamp>,
    }

    /// What a [`IntentRefunded`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct IntentRefundedRequired {
        pub reservation_id: String,
        pub intent_id: String,
        pub amount_minor: i64,
        pub currency: String,
    }

    impl std::convert::From<IntentRefundedRequired> for IntentRefunded {
        fn from(required: IntentRefundedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                intent_id: required.intent_id,
                amount_minor: required.amount_minor,
                currency: required.currency,
                processor_reference: None,
                rail: None,
                refunded_at: None,
            }
        }
    }
}

/// What pricing-service publishes.
pub mod pricing {
    use serde::{Deserialize, Serialize};

    /// The days that changed, whole.
    ///
    /// `melmastoon.pricing.calendar.updated.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.pricing.calendar.updated.v1", aggregate = "calendar", id = calendar_id)]
    #[serde(rename_all = "camelCase")]
    pub struct CalendarUpdated {
        /// The calendar: a property and a rate plan.
        pub calendar_id: String,
        /// The property.
        pub property_id: String,
        /// The rate plan.
        pub rate_plan_id: String,
        /// What changed.
        pub days: Vec<super::Days>,
        /// When.
        pub updated_at: jiff::Timestamp,
    }

    /// What a guest owes or gets back for other dates.
    ///
    /// `melmastoon.pricing.delta.applied.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.pricing.delta.applied.v1", aggregate = "delta", id = reservation_id)]
    #[serde(rename_all = "camelCase")]
    pub struct DeltaApplied {
        /// The booking.
        pub reservation_id: String,
        /// The new quote.
        pub quote_id: String,
        /// The price before.
        pub previous: super::Previous,
        /// The price now.
        pub current: super::Current,
        /// What is owed, in the smallest unit; less than zero is given back.
        pub delta_minor: i64,
        /// When.
        pub applied_at: jiff::Timestamp,
    }

    /// The price is no longer promised.
    ///
    /// `melmastoon.pricing.quote.expired.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.pricing.quote.expired.v1", aggregate = "quote", id = quote_id)]
    #[serde(rename_all = "camelCase")]
    pub struct QuoteExpired {
        /// The quote.
        pub quote_id: String,
        /// The property.
        pub property_id: String,
        /// The rate plan.
        pub rate_plan_id: String,
        /// The day of arrival.
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// What was promised.
        pub price: super::Price,
        /// When.
        pub expired_at: jiff::Timestamp,
    }

    /// The plan is no longer sold; bookings keep theirs.
    ///
    /// `melmastoon.pricing.rate_plan.archived.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.pricing.rate_plan.archived.v1", aggregate = "rate_plan", id = rate_plan_id)]
    #[serde(rename_all = "camelCase")]
    pub struct RatePlanArchived {
        /// The rate plan.
        pub rate_plan_id: String,
        /// The property.
        pub property_id: String,
        /// When.
        pub archived_at: jiff::Timestamp,
        /// The plan to offer instead.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub replaced_by: Option<String>,
    }

    /// What a [`RatePlanArchived`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct RatePlanArchivedRequired {
        pub rate_plan_id: String,
        pub property_id: String,
        pub archived_at: jiff::Timestamp,
    }

    impl std::convert::From<RatePlanArchivedRequired> for RatePlanArchived {
        fn from(required: RatePlanArchivedRequired) -> Self {
            Self {
                rate_plan_id: required.rate_plan_id,
                property_id: required.property_id,
                archived_at: required.archived_at,
                replaced_by: None,
            }
        }
    }

    /// What is sold from now on, for which room types and under which rules.
    ///
    /// `melmastoon.pricing.rate_plan.published.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.pricing.rate_plan.published.v1",
        aggregate = "rate_plan",
        id = rate_plan_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct RatePlanPublished {
        /// The rate plan.
        pub rate_plan_id: String,
        /// The property.
        pub property_id: String,
        /// What guests see.
        pub name: String,
        /// What it sells.
        pub room_type_ids: Vec<String>,
        /// What is eaten.
        pub board: super::Board,
        /// The policy.
        pub cancellation: super::Cancellation,
        /// The lowest price of a night.
        pub from_price: super::FromPrice,
        /// The first night.
        pub valid_from: jiff::civil::Date,
        /// When.
        pub published_at: jiff::Timestamp,
        /// The last night.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub valid_until: Option<jiff::civil::Date>,
    }

    /// What a [`RatePlanPublished`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct RatePlanPublishedRequired {
        pub rate_plan_id: String,
        pub property_id: String,
        pub name: String,
        pub room_type_ids: Vec<String>,
        pub board: super::Board,
        pub cancellation: super::Cancellation,
        pub from_price: super::FromPrice,
        pub valid_from: jiff::civil::Date,
        pub published_at: jiff::Timestamp,
    }

    impl std::convert::From<RatePlanPublishedRequired> for RatePlanPublished {
        fn from(required: RatePlanPublishedRequired) -> Self {
            Self {
                rate_plan_id: required.rate_plan_id,
                property_id: required.property_id,
                name: required.name,
                room_type_ids: required.room_type_ids,
                board: required.board,
                cancellation: required.cancellation,
                from_price: required.from_price,
                valid_from: required.valid_from,
                published_at: required.published_at,
                valid_until: None,
            }
        }
    }
}

/// What property-service publishes.
pub mod property {
    use serde::{Deserialize, Serialize};

    /// The whole list after the change, and what came and went.
    ///
    /// `melmastoon.property.amenity.changed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.property.amenity.changed.v1", aggregate = "amenity", id = property_id)]
    #[serde(rename_all = "camelCase")]
    pub struct AmenityChanged {
        /// The property.
        pub property_id: String,
        /// What it offers now.
        pub amenities: Vec<String>,
        /// What came.
        pub added: Vec<String>,
        /// What went.
        pub removed: Vec<String>,
        /// When.
        pub changed_at: jiff::Timestamp,
    }

    /// A property with what a listing and a booking site show first.
    ///
    /// `melmastoon.property.property.created.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.property.property.created.v1", aggregate = "property", id = property_id)]
    #[serde(rename_all = "camelCase")]
    pub struct PropertyCreated {
        /// The property.
        pub property_id: String,
        /// What guests know it by.
        pub name: String,
        /// What it is.
        pub category: PropertyCreatedCategory,
        /// Where it is.
        pub address: super::Address,
        /// Its clock.
        pub time_zone: String,
        /// When.
        pub created_at: jiff::Timestamp,
        /// For maps.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub location: Option<super::Location>,
    }

    /// What a [`PropertyCreated`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct PropertyCreatedRequired {
        pub property_id: String,
        pub name: String,
        pub category: PropertyCreatedCategory,
        pub address: super::Address,
        pub time_zone: String,
        pub created_at: jiff::Timestamp,
    }

    impl std::convert::From<PropertyCreatedRequired> for PropertyCreated {
        fn from(required: PropertyCreatedRequired) -> Self {
            Self {
                property_id: required.property_id,
                name: required.name,
                category: required.category,
                address: required.address,
                time_zone: required.time_zone,
                created_at: required.created_at,
                location: None,
            }
        }
    }

    /// What it is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum PropertyCreatedCategory {
        Hotel,
        GuestHouse,
        Hostel,
        Apartment,
    }

    /// One more room that can be sold, cleaned and locked.
    ///
    /// `melmastoon.property.room.added.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.property.room.added.v1", aggregate = "room", id = property_id)]
    #[serde(rename_all = "camelCase")]
    pub struct RoomAdded {
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// The room type.
        pub room_type_id: String,
        /// What stands on the door.
        pub number: String,
        /// How many may sleep in it.
        pub max_occupancy: i64,
        /// When.
        pub added_at: jiff::Timestamp,
        /// Where to find it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub floor: Option<String>,
    }

    /// What a [`RoomAdded`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct RoomAddedRequired {
        pub property_id: String,
        pub room_id: String,
        pub room_type_id: String,
        pub number: String,
        pub max_occupancy: i64,
        pub added_at: jiff::Timestamp,
    }

    impl std::convert::From<RoomAddedRequired> for RoomAdded {
        fn from(required: RoomAddedRequired) -> Self {
            Self {
                property_id: required.property_id,
                room_id: required.room_id,
                room_type_id: required.room_type_id,
                number: required.number,
                max_occupancy: required.max_occupancy,
                added_at: required.added_at,
                floor: None,
            }
        }
    }

    /// The room is no longer sold from a day on.
    ///
    /// `melmastoon.property.room.archived.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.property.room.archived.v1", aggregate = "room", id = property_id)]
    #[serde(rename_all = "camelCase")]
    pub struct RoomArchived {
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// The room type.
        pub room_type_id: String,
        /// What stands on the door.
        pub number: String,
        /// Why.
        pub reason: RoomArchivedReason,
        /// When.
        pub archived_at: jiff::Timestamp,
        /// Where to find it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub floor: Option<String>,
        /// The last night it may still be sold for.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub last_night: Option<jiff::civil::Date>,
    }

    /// What a [`RoomArchived`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct RoomArchivedRequired {
        pub property_id: String,
        pub room_id: String,
        pub room_type_id: String,
        pub number: String,
        pub reason: RoomArchivedReason,
        pub archived_at: jiff::Timestamp,
    }

    impl std::convert::From<RoomArchivedRequired> for RoomArchived {
        fn from(required: RoomArchivedRequired) -> Self {
            Self {
                property_id: required.property_id,
                room_id: required.room_id,
                room_type_id: required.room_type_id,
                number: required.number,
                reason: required.reason,
                archived_at: required.archived_at,
                floor: None,
                last_night: None,
            }
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum RoomArchivedReason {
        Renovation,
        Closed,
        Merged,
        Sold,
    }

    /// What is sold under the name of this type.
    ///
    /// `melmastoon.property.room_type.published.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.property.room_type.published.v1",
        aggregate = "room_type",
        id = property_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct RoomTypePublished {
        /// The property.
        pub property_id: String,
        /// The room type.
        pub room_type_id: String,
        /// What guests see.
        pub name: String,
        /// How many may sleep in it.
        pub max_occupancy: i64,
        /// What stands in it.
        pub beds: Vec<super::Beds>,
        /// What it offers.
        pub amenities: Vec<String>,
        /// When.
        pub published_at: jiff::Timestamp,
        /// Its pictures.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub photo_file_ids: Option<Vec<String>>,
    }

    /// What a [`RoomTypePublished`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct RoomTypePublishedRequired {
        pub property_id: String,
        pub room_type_id: String,
        pub name: String,
        pub max_occupancy: i64,
        pub beds: Vec<super::Beds>,
        pub amenities: Vec<String>,
        pub published_at: jiff::Timestamp,
    }

    impl std::convert::From<RoomTypePublishedRequired> for RoomTypePublished {
        fn from(required: RoomTypePublishedRequired) -> Self {
            Self {
                property_id: required.property_id,
                room_type_id: required.room_type_id,
                name: required.name,
                max_occupancy: required.max_occupancy,
                beds: required.beds,
                amenities: required.amenities,
                published_at: required.published_at,
                photo_file_ids: None,
            }
        }
    }
}

/// What reporting-service publishes.
pub mod reporting {
    use serde::{Deserialize, Serialize};

    /// The report can be fetched. It carries a reference, not the report.
    ///
    /// `melmastoon.reporting.report.generated.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.reporting.report.generated.v1", aggregate = "report", id = report_id)]
    #[serde(rename_all = "camelCase")]
    pub struct ReportGenerated {
        /// The report.
        pub report_id: String,
        /// Which report.
        pub template: String,
        /// Its form.
        pub format: super::Format,
        /// The document.
        pub file_id: String,
        /// The first day in it.
        pub period_from: jiff::civil::Date,
        /// The last day in it.
        pub period_until: jiff::civil::Date,
        /// How many rows it has.
        pub rows: i64,
        /// Who wanted it.
        pub requested_by: String,
        /// Its language.
        pub locale: String,
        /// When.
        pub generated_at: jiff::Timestamp,
    }
}

/// What reservation-service publishes.
pub mod reservation {
    use serde::{Deserialize, Serialize};

    /// The booking is off, and whoever did something for it undoes it.
    ///
    /// `melmastoon.reservation.booking.cancelled.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.reservation.booking.cancelled.v1",
        aggregate = "booking",
        id = reservation_id,
        intent = "{reservation_id}:cancelled"
    )]
    #[serde(rename_all = "camelCase")]
    pub struct BookingCancelled {
        /// The booking.
        pub reservation_id: String,
        /// Why.
        pub reason: BookingCancelledReason,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// The day of arrival.
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// The allocation to release, where there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub allocation_id: Option<String>,
        /// When.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub cancelled_at: Option<jiff::Timestamp>,
        /// How much of it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub refund: Option<super::Refund>,
        /// Whether the policy gives money back.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub refundable: Option<bool>,
    }

    /// What a [`BookingCancelled`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct BookingCancelledRequired {
        pub reservation_id: String,
        pub reason: BookingCancelledReason,
        pub property_id: String,
        pub room_id: String,
        pub check_in: jiff::civil::Date,
        pub nights: i64,
        pub guest: super::Guest,
    }

    impl std::convert::From<BookingCancelledRequired> for BookingCancelled {
        fn from(required: BookingCancelledRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                reason: required.reason,
                property_id: required.property_id,
                room_id: required.room_id,
                check_in: required.check_in,
                nights: required.nights,
                guest: required.guest,
                allocation_id: None,
                cancelled_at: None,
                refund: None,
                refundable: None,
            }
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum BookingCancelledReason {
        GuestRequest,
        PropertyRequest,
        HoldExpired,
        PaymentFailed,
        NoAvailability,
        Fraud,
    }

    /// The guest is here. Folio, key and welcome must follow within half a minute.
    ///
    /// `melmastoon.reservation.booking.check_in_started.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.reservation.booking.check_in_started.v1",
        aggregate = "booking",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct BookingCheckInStarted {
        /// The booking.
        pub reservation_id: String,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// The day of arrival.
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// Who stands at the desk.
        pub started_by: String,
        /// When the check-in counts as partial.
        pub deadline_at: jiff::Timestamp,
        /// When.
        pub started_at: jiff::Timestamp,
        /// A key issued before.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub credential_id: Option<String>,
        /// The folio, where there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub folio_id: Option<String>,
    }

    /// What a [`BookingCheckInStarted`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct BookingCheckInStartedRequired {
        pub reservation_id: String,
        pub property_id: String,
        pub room_id: String,
        pub check_in: jiff::civil::Date,
        pub nights: i64,
        pub guest: super::Guest,
        pub started_by: String,
        pub deadline_at: jiff::Timestamp,
        pub started_at: jiff::Timestamp,
    }

    impl std::convert::From<BookingCheckInStartedRequired> for BookingCheckInStarted {
        fn from(required: BookingCheckInStartedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                property_id: required.property_id,
                room_id: required.room_id,
                check_in: required.check_in,
                nights: required.nights,
                guest: required.guest,
                started_by: required.started_by,
                deadline_at: required.deadline_at,
                started_at: required.started_at,
                credential_id: None,
                folio_id: None,
            }
        }
    }

    /// The guest leaves. The folio is closed and the key revoked, in this order.
    ///
    /// `melmastoon.reservation.booking.check_out_started.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.reservation.booking.check_out_started.v1",
        aggregate = "booking",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct BookingCheckOutStarted {
        /// The booking.
        pub reservation_id: String,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// The day of arrival.
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// The folio to close.
        pub folio_id: String,
        /// Who stands at the desk.
        pub started_by: String,
        /// When.
        pub started_at: jiff::Timestamp,
        /// The key to revoke.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub credential_id: Option<String>,
    }

    /// What a [`BookingCheckOutStarted`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct BookingCheckOutStartedRequired {
        pub reservation_id: String,
        pub property_id: String,
        pub room_id: String,
        pub check_in: jiff::civil::Date,
        pub nights: i64,
        pub guest: super::Guest,
        pub folio_id: String,
        pub started_by: String,
        pub started_at: jiff::Timestamp,
    }

    impl std::convert::From<BookingCheckOutStartedRequired> for BookingCheckOutStarted {
        fn from(required: BookingCheckOutStartedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                property_id: required.property_id,
                room_id: required.room_id,
                check_in: required.check_in,
                nights: required.nights,
                guest: required.guest,
                folio_id: required.folio_id,
                started_by: required.started_by,
                started_at: required.started_at,
                credential_id: None,
            }
        }
    }

    /// The room is occupied from now on.
    ///
    /// `melmastoon.reservation.booking.checked_in.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.reservation.booking.checked_in.v1",
        aggregate = "booking",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct BookingCheckedIn {
        /// The booking.
        pub reservation_id: String,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// The day of arrival.
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// The folio of the stay.
        pub folio_id: String,
        /// The guest's key.
        pub credential_id: String,
        /// When.
        pub checked_in_at: jiff::Timestamp,
    }

    /// The guest is gone and the key is dead; money may still be open.
    ///
    /// `melmastoon.reservation.booking.checked_out.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.reservation.booking.checked_out.v1",
        aggregate = "booking",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct BookingCheckedOut {
        /// The booking.
        pub reservation_id: String,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// The day of arrival.
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// Whether money is still open.
        pub status: BookingCheckedOutStatus,
        /// The folio of the stay.
        pub folio_id: String,
        /// What is still open.
        pub balance: super::Balance,
        /// When.
        pub checked_out_at: jiff::Timestamp,
    }

    /// Whether money is still open.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum BookingCheckedOutStatus {
        CheckedOut,
        CheckedOutBalancePending,
    }

    /// The booking stands. It carries what opens a folio, cuts a key and writes a letter.
    ///
    /// `melmastoon.reservation.booking.confirmed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.reservation.booking.confirmed.v1",
        aggregate = "booking",
        id = reservation_id,
        intent = "{reservation_id}:confirmed"
    )]
    #[serde(rename_all = "camelCase")]
    pub struct BookingConfirmed {
        /// The booking.
        pub reservation_id: String,
        /// Paid, or to be paid on arrival; without payment no key is issued.
        pub status: BookingConfirmedStatus,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// The day of arrival.
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// The amount in the currency's smallest unit.
        pub amount_minor: i64,
        /// Three letters, as ISO 4217 has them.
        pub currency: String,
        /// How many grown-ups.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub adults: Option<i64>,
        /// How many children.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub children: Option<i64>,
        /// The quote it was sold at.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub quote_id: Option<String>,
        /// What was sold.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rate_plan_id: Option<String>,
    }

    /// What a [`BookingConfirmed`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct BookingConfirmedRequired {
        pub reservation_id: String,
        pub status: BookingConfirmedStatus,
        pub property_id: String,
        pub room_id: String,
        pub check_in: jiff::civil::Date,
        pub nights: i64,
        pub guest: super::Guest,
        pub amount_minor: i64,
        pub currency: String,
    }

    impl std::convert::From<BookingConfirmedRequired> for BookingConfirmed {
        fn from(required: BookingConfirmedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                status: required.status,
                property_id: required.property_id,
                room_id: required.room_id,
                check_in: required.check_in,
                nights: required.nights,
                guest: required.guest,
                amount_minor: required.amount_minor,
                currency: required.currency,
                adults: None,
                children: None,
                quote_id: None,
                rate_plan_id: None,
            }
        }
    }

    /// Paid, or to be paid on arrival; without payment no key is issued.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum BookingConfirmedStatus {
        Confirmed,
        ConfirmedCashPending,
    }

    /// Old and new window together, so that each service can let go of one and take the other.
    ///
    /// `melmastoon.reservation.booking.dates_changed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.reservation.booking.dates_changed.v1",
        aggregate = "booking",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct BookingDatesChanged {
        /// The booking.
        pub reservation_id: String,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// The room type.
        pub room_type_id: String,
        /// The old window.
        pub from: super::From,
        /// The new window.
        pub to: super::To,
        /// Who stays.
        pub guest: super::Guest,
        /// When.
        pub changed_at: jiff::Timestamp,
        /// The allocation to move.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub allocation_id: Option<String>,
        /// The key whose window moves.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub credential_id: Option<String>,
        /// The folio that the difference is charged to.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub folio_id: Option<String>,
        /// The quote of the old window.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub quote_id: Option<String>,
    }

    /// What a [`BookingDatesChanged`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct BookingDatesChangedRequired {
        pub reservation_id: String,
        pub property_id: String,
        pub room_id: String,
        pub room_type_id: String,
        pub from: super::From,
        pub to: super::To,
        pub guest: super::Guest,
        pub changed_at: jiff::Timestamp,
    }

    impl std::convert::From<BookingDatesChangedRequired> for BookingDatesChanged {
        fn from(required: BookingDatesChangedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                property_id: required.property_id,
                room_id: required.room_id,
                room_type_id: required.room_type_id,
                from: required.from,
                to: required.to,
                guest: required.guest,
                changed_at: required.changed_at,
                allocation_id: None,
                credential_id: None,
                folio_id: None,
                quote_id: None,
            }
        }
    }

    /// A room is wanted for a guest; the booking saga has begun. Whoever commits the room or asks for the money needs nothing else.
    ///
    /// `melmastoon.reservation.booking.held.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.reservation.booking.held.v1",
        aggregate = "booking",
        id = reservation_id,
        intent = "{reservation_id}:held"
    )]
    #[serde(rename_all = "camelCase")]
    pub struct BookingHeld {
        /// The booking.
        pub reservation_id: String,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// The day of arrival.
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// The amount in the currency's smallest unit.
        pub amount_minor: i64,
        /// Three letters, as ISO 4217 has them.
        pub currency: String,
        /// How the guest wants to pay.
        pub rail: super::Rail,
        /// When the hold ends by itself.
        pub hold_expires_at: jiff::Timestamp,
        /// How many grown-ups.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub adults: Option<i64>,
        /// How many children.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub children: Option<i64>,
        /// The quote it was sold at.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub quote_id: Option<String>,
        /// What was sold.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rate_plan_id: Option<String>,
    }

    /// What a [`BookingHeld`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct BookingHeldRequired {
        pub reservation_id: String,
        pub property_id: String,
        pub room_id: String,
        pub check_in: jiff::civil::Date,
        pub nights: i64,
        pub guest: super::Guest,
        pub amount_minor: i64,
        pub currency: String,
        pub rail: super::Rail,
        pub hold_expires_at: jiff::Timestamp,
    }

    impl std::convert::From<BookingHeldRequired> for BookingHeld {
        fn from(required: BookingHeldRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                property_id: required.property_id,
                room_id: required.room_id,
                check_in: required.check_in,
                nights: required.nights,
                guest: required.guest,
                amount_minor: required.amount_minor,
                currency: required.currency,
                rail: required.rail,
                hold_expires_at: required.hold_expires_at,
                adults: None,
                children: None,
                quote_id: None,
                rate_plan_id: None,
            }
        }
    }

    /// Guest or wishes after the change, and what it touched.
    ///
    /// `melmastoon.reservation.booking.modified.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.reservation.booking.modified.v1",
        aggregate = "booking",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct BookingModified {
        /// The booking.
        pub reservation_id: String,
        /// The property.
        pub property_id: String,
        /// Who stays.
        pub guest: super::Guest,
        /// What changed.
        pub changed: Vec<BookingModifiedChanged>,
        /// When.
        pub modified_at: jiff::Timestamp,
        /// How many grown-ups.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub adults: Option<i64>,
        /// When the guest expects to come, by the property's clock.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub arrival_time: Option<String>,
        /// How many children.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub children: Option<i64>,
        /// What the guest wishes for.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub special_requests: Option<String>,
    }

    /// What a [`BookingModified`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct BookingModifiedRequired {
        pub reservation_id: String,
        pub property_id: String,
        pub guest: super::Guest,
        pub changed: Vec<BookingModifiedChanged>,
        pub modified_at: jiff::Timestamp,
    }

    impl std::convert::From<BookingModifiedRequired> for BookingModified {
        fn from(required: BookingModifiedRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                property_id: required.property_id,
                guest: required.guest,
                changed: required.changed,
                modified_at: required.modified_at,
                adults: None,
                arrival_time: None,
                children: None,
                special_requests: None,
            }
        }
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum BookingModifiedChanged {
        Guest,
        SpecialRequests,
        Party,
        ArrivalTime,
    }

    /// The room is free again, and the policy decides about the money.
    ///
    /// `melmastoon.reservation.booking.no_show.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.reservation.booking.no_show.v1",
        aggregate = "booking",
        id = reservation_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct BookingNoShow {
        /// The booking.
        pub reservation_id: String,
        /// The property.
        pub property_id: String,
        /// The room.
        pub room_id: String,
        /// The day of arrival.
        pub check_in: jiff::civil::Date,
        /// How many nights.
        pub nights: i64,
        /// Who stays.
        pub guest: super::Guest,
        /// What the policy charges.
        pub fee: super::Fee,
        /// When.
        pub declared_at: jiff::Timestamp,
        /// The allocation to release.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub allocation_id: Option<String>,
    }

    /// What a [`BookingNoShow`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct BookingNoShowRequired {
        pub reservation_id: String,
        pub property_id: String,
        pub room_id: String,
        pub check_in: jiff::civil::Date,
        pub nights: i64,
        pub guest: super::Guest,
        pub fee: super::Fee,
        pub declared_at: jiff::Timestamp,
    }

    impl std::convert::From<BookingNoShowRequired> for BookingNoShow {
        fn from(required: BookingNoShowRequired) -> Self {
            Self {
                reservation_id: required.reservation_id,
                property_id: required.property_id,
                room_id: required.room_id,
                check_in: required.check_in,
                nights: required.nights,
                guest: required.guest,
                fee: required.fee,
                declared_at: required.declared_at,
                allocation_id: None,
            }
        }
    }
}

/// What search-aggregation-service publishes.
pub mod search_aggregation {
    use serde::{Deserialize, Serialize};

    /// The property can no longer be found.
    ///
    /// `melmastoon.search_aggregation.listing.evicted.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.search_aggregation.listing.evicted.v1",
        aggregate = "listing",
        id = property_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct ListingEvicted {
        /// The listing.
        pub listing_id: String,
        /// The property.
        pub property_id: String,
        /// Why.
        pub reason: ListingEvictedReason,
        /// When.
        pub evicted_at: jiff::Timestamp,
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum ListingEvictedReason {
        TenantSuspended,
        PropertyClosed,
        Stale,
        Policy,
    }

    /// What the search shows of a property. It is read across tenants, so nothing personal is in it.
    ///
    /// `melmastoon.search_aggregation.listing.indexed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.search_aggregation.listing.indexed.v1",
        aggregate = "listing",
        id = property_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct ListingIndexed {
        /// The listing.
        pub listing_id: String,
        /// The property.
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
        pub from_price: super::FromPrice,
        /// How many rooms are free tonight.
        pub rooms_available: i64,
        /// Counts the snapshots.
        pub revision: i64,
        /// When.
        pub indexed_at: jiff::Timestamp,
    }
}

/// What staff-service publishes.
pub mod staff {
    use serde::{Deserialize, Serialize};

    /// Someone went home; the till of the shift is counted.
    ///
    /// `melmastoon.staff.shift.closed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.staff.shift.closed.v1", aggregate = "shift", id = shift_id)]
    #[serde(rename_all = "camelCase")]
    pub struct ShiftClosed {
        /// The shift.
        pub shift_id: String,
        /// Who.
        pub staff_id: String,
        /// The property.
        pub property_id: String,
        /// As what.
        pub role: super::Role,
        /// How long it was.
        pub minutes_worked: i64,
        /// When it began.
        pub opened_at: jiff::Timestamp,
        /// When it ended.
        pub closed_at: jiff::Timestamp,
        /// What the till holds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub till: Option<super::Till>,
    }

    /// What a [`ShiftClosed`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ShiftClosedRequired {
        pub shift_id: String,
        pub staff_id: String,
        pub property_id: String,
        pub role: super::Role,
        pub minutes_worked: i64,
        pub opened_at: jiff::Timestamp,
        pub closed_at: jiff::Timestamp,
    }

    impl std::convert::From<ShiftClosedRequired> for ShiftClosed {
        fn from(required: ShiftClosedRequired) -> Self {
            Self {
                shift_id: required.shift_id,
                staff_id: required.staff_id,
                property_id: required.property_id,
                role: required.role,
                minutes_worked: required.minutes_worked,
                opened_at: required.opened_at,
                closed_at: required.closed_at,
                till: None,
            }
        }
    }

    /// Someone is at work and can be given tasks.
    ///
    /// `melmastoon.staff.shift.opened.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.staff.shift.opened.v1", aggregate = "shift", id = shift_id)]
    #[serde(rename_all = "camelCase")]
    pub struct ShiftOpened {
        /// The shift.
        pub shift_id: String,
        /// Who.
        pub staff_id: String,
        /// The property.
        pub property_id: String,
        /// As what.
        pub role: super::Role,
        /// When.
        pub opened_at: jiff::Timestamp,
        /// Where.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub device_id: Option<String>,
    }

    /// What a [`ShiftOpened`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ShiftOpenedRequired {
        pub shift_id: String,
        pub staff_id: String,
        pub property_id: String,
        pub role: super::Role,
        pub opened_at: jiff::Timestamp,
    }

    impl std::convert::From<ShiftOpenedRequired> for ShiftOpened {
        fn from(required: ShiftOpenedRequired) -> Self {
            Self {
                shift_id: required.shift_id,
                staff_id: required.staff_id,
                property_id: required.property_id,
                role: required.role,
                opened_at: required.opened_at,
                device_id: None,
            }
        }
    }
}

/// What sync-service publishes.
pub mod sync {
    use serde::{Deserialize, Serialize};

    /// Two truths about one thing; a person must choose.
    ///
    /// `melmastoon.sync.conflict.recorded.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.sync.conflict.recorded.v1", aggregate = "conflict", id = device_id)]
    #[serde(rename_all = "camelCase")]
    pub struct ConflictRecorded {
        /// The conflict.
        pub conflict_id: String,
        /// The desktop.
        pub device_id: String,
        /// What kind of thing it is about.
        pub entity_type: String,
        /// Which.
        pub entity_id: String,
        /// The rule for such things.
        pub policy: super::Policy,
        /// What the server has.
        pub server_value: std::collections::BTreeMap<String, serde_json::Value>,
        /// What the desktop has.
        pub device_value: std::collections::BTreeMap<String, serde_json::Value>,
        /// When.
        pub recorded_at: jiff::Timestamp,
    }

    /// How far a desktop has caught up.
    ///
    /// `melmastoon.sync.cursor.advanced.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.sync.cursor.advanced.v1", aggregate = "cursor", id = device_id)]
    #[serde(rename_all = "camelCase")]
    pub struct CursorAdvanced {
        /// The desktop.
        pub device_id: String,
        /// The cursor before.
        pub from: i64,
        /// The cursor after.
        pub to: i64,
        /// How many changes it took.
        pub applied: i64,
        /// When.
        pub advanced_at: jiff::Timestamp,
    }
}

/// What tenant-service publishes.
pub mod tenant {
    use serde::{Deserialize, Serialize};

    /// A user may do more in a tenant than before.
    ///
    /// `melmastoon.tenant.role.granted.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.tenant.role.granted.v1", aggregate = "role", id = membership_id)]
    #[serde(rename_all = "camelCase")]
    pub struct RoleGranted {
        /// The tenant.
        pub tenant_id: String,
        /// The membership.
        pub membership_id: String,
        /// The account.
        pub user_id: String,
        /// The role.
        pub role: RoleGrantedRole,
        /// Who gave it.
        pub granted_by: String,
        /// When.
        pub granted_at: jiff::Timestamp,
        /// The property it is limited to.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub property_id: Option<String>,
    }

    /// What a [`RoleGranted`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct RoleGrantedRequired {
        pub tenant_id: String,
        pub membership_id: String,
        pub user_id: String,
        pub role: RoleGrantedRole,
        pub granted_by: String,
        pub granted_at: jiff::Timestamp,
    }

    impl std::convert::From<RoleGrantedRequired> for RoleGranted {
        fn from(required: RoleGrantedRequired) -> Self {
            Self {
                tenant_id: required.tenant_id,
                membership_id: required.membership_id,
                user_id: required.user_id,
                role: required.role,
                granted_by: required.granted_by,
                granted_at: required.granted_at,
                property_id: None,
            }
        }
    }

    /// The role.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum RoleGrantedRole {
        Owner,
        Manager,
        FrontDesk,
        Housekeeping,
        Maintenance,
        Accountant,
        Auditor,
    }

    /// The settings after the change, and which of them it touched.
    ///
    /// `melmastoon.tenant.settings.changed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.tenant.settings.changed.v1", aggregate = "settings", id = tenant_id)]
    #[serde(rename_all = "camelCase")]
    pub struct SettingsChanged {
        /// The tenant.
        pub tenant_id: String,
        /// What changed.
        pub changed: Vec<SettingsChangedChanged>,
        /// The currency of its books.
        pub currency: String,
        /// The languages of its guests.
        pub locales: Vec<String>,
        /// The tax on a stay, in hundredths of a percent.
        pub tax_basis_points: i64,
        /// The region its data stays in.
        pub residency: super::Residency,
        /// Its clock.
        pub time_zone: String,
        /// When.
        pub changed_at: jiff::Timestamp,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum SettingsChangedChanged {
        Currency,
        Locales,
        Tax,
        Residency,
        TimeZone,
        Policies,
    }

    /// A house joins the platform. Services set up what they keep for it.
    ///
    /// `melmastoon.tenant.tenant.created.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.tenant.tenant.created.v1", aggregate = "tenant", id = tenant_id)]
    #[serde(rename_all = "camelCase")]
    pub struct TenantCreated {
        /// The tenant.
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
        pub time_zone: String,
        /// The region its data stays in.
        pub residency: super::Residency,
        /// Who answers for it.
        pub owner_user_id: String,
        /// When.
        pub created_at: jiff::Timestamp,
    }

    /// The tenant may look but not sell until the suspension ends.
    ///
    /// `melmastoon.tenant.tenant.suspended.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.tenant.tenant.suspended.v1", aggregate = "tenant", id = tenant_id)]
    #[serde(rename_all = "camelCase")]
    pub struct TenantSuspended {
        /// The tenant.
        pub tenant_id: String,
        /// Why.
        pub reason: TenantSuspendedReason,
        /// Whether new bookings are refused.
        pub bookings_stopped: bool,
        /// When.
        pub suspended_at: jiff::Timestamp,
        /// What support should know.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub note: Option<String>,
    }

    /// What a [`TenantSuspended`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TenantSuspendedRequired {
        pub tenant_id: String,
        pub reason: TenantSuspendedReason,
        pub bookings_stopped: bool,
        pub suspended_at: jiff::Timestamp,
    }

    impl std::convert::From<TenantSuspendedRequired> for TenantSuspended {
        fn from(required: TenantSuspendedRequired) -> Self {
            Self {
                tenant_id: required.tenant_id,
                reason: required.reason,
                bookings_stopped: required.bookings_stopped,
                suspended_at: required.suspended_at,
                note: None,
            }
        }
    }

    /// Why.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum)]
    pub enum TenantSuspendedReason {
        PlanLimit,
        BillingFailure,
        Compliance,
    }
}

/// What theme-config-service publishes.
pub mod theme {
    use serde::{Deserialize, Serialize};

    /// The text of one block in every language it has.
    ///
    /// `melmastoon.theme.content_block.changed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event(
        "melmastoon.theme.content_block.changed.v1",
        aggregate = "content_block",
        id = theme_id
    )]
    #[serde(rename_all = "camelCase")]
    pub struct ContentBlockChanged {
        /// The tenant's theme.
        pub theme_id: String,
        /// The block.
        pub block_id: String,
        /// Counts the changes.
        pub revision: i64,
        /// The text by language.
        pub texts: std::collections::BTreeMap<String, String>,
        /// When.
        pub changed_at: jiff::Timestamp,
    }

    /// A preset that tenants may choose; it belongs to the platform.
    ///
    /// `melmastoon.theme.preset.published.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.theme.preset.published.v1", aggregate = "preset", id = preset_id)]
    #[serde(rename_all = "camelCase")]
    pub struct PresetPublished {
        /// The preset.
        pub preset_id: String,
        /// What it is called.
        pub name: String,
        /// Its version.
        pub preset_version: String,
        /// The hash of its files.
        pub content_sha256: String,
        /// When.
        pub published_at: jiff::Timestamp,
    }

    /// Colours, type and logo of a tenant after the change.
    ///
    /// `melmastoon.theme.tokens.changed.v1`
    #[derive(Debug, Clone, PartialEq, chapar::Event, Serialize, Deserialize)]
    #[event("melmastoon.theme.tokens.changed.v1", aggregate = "tokens", id = theme_id)]
    #[serde(rename_all = "camelCase")]
    pub struct TokensChanged {
        /// The tenant's theme.
        pub theme_id: String,
        /// Counts the changes.
        pub revision: i64,
        /// The tokens by name.
        pub tokens: std::collections::BTreeMap<String, String>,
        /// When.
        pub changed_at: jiff::Timestamp,
        /// The logo.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub logo_file_id: Option<String>,
    }

    /// What a [`TokensChanged`] must have; `.into()` makes one with nothing optional.
    #[derive(Debug, Clone, PartialEq)]
    pub struct TokensChangedRequired {
        pub theme_id: String,
        pub revision: i64,
        pub tokens: std::collections::BTreeMap<String, String>,
        pub changed_at: jiff::Timestamp,
    }

    impl std::convert::From<TokensChangedRequired> for TokensChanged {
        fn from(required: TokensChangedRequired) -> Self {
            Self {
                theme_id: required.theme_id,
                revision: required.revision,
                tokens: required.tokens,
                changed_at: required.changed_at,
                logo_file_id: None,
            }
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
