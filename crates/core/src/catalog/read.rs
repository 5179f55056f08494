//! Reading the file of one service.

use std::collections::BTreeSet;

use super::contract::is_pointer;
use super::fields::{Fields, Item, meant};
use super::place::{Mistake, Rule, Source};
use super::{
    Change, Consumer, Deprecation, DualPublish, Encoding, Event, Kind, PayloadStyle, Service,
    Volume,
};
use crate::convert::{Conversion, Rewrite};
use crate::profile::{Profile, matches_any};
use crate::subject::Subject;

/// The service of a file, with the events that could be parsed.
pub(super) fn service(
    file: &Source,
    profile: &Profile,
    mistakes: &mut Vec<Mistake>,
) -> Option<Service> {
    Fields::of_file(file, mistakes, |mut fields| {
        let name = fields.text("service");
        let place = fields.place("service");
        if let Some(name) = &name {
            known_service(&mut fields, "service", name, profile);
            named_like(&mut fields, file, name);
        }
        let summary = fields.text("summary").unwrap_or_default();
        let group = fields.optional_text("group").unwrap_or_default();
        let code = fields.declared("code");
        let calls = fields.declared("calls");
        for callee in &calls.names {
            known_service(&mut fields, "calls", callee, profile);
        }
        let defaults = fields
            .table("defaults")
            .map(|fields| Defaults::read(fields, profile))
            .unwrap_or_default();
        // Without a name the events are still read, to report their mistakes.
        let owner = name.clone().unwrap_or_default();
        let mut events = Vec::new();
        fields.tables("events", |event_fields| {
            events.extend(event(event_fields, &owner, &defaults, profile));
        });
        fields.finish();
        Some(Service { name: name?, summary, group, events, code, calls, place })
    })
}

/// Defaults for the events of a file.
#[derive(Default)]
struct Defaults {
    kind: Option<Kind>,
    key: Option<String>,
    retention: Option<String>,
    residency: Option<String>,
    volume: Option<Volume>,
    payload: Option<PayloadStyle>,
}

impl Defaults {
    fn read(mut fields: Fields<'_, '_>, profile: &Profile) -> Self {
        let defaults = Defaults {
            kind: fields.choice("kind", Kind::NAMES),
            key: fields.optional_text("key"),
            retention: fields.optional_text("retention"),
            residency: fields.optional_text("residency"),
            volume: fields.choice("volume", Volume::NAMES),
            payload: fields.choice("payload", PayloadStyle::NAMES),
        };
        if let Some(class) = &defaults.retention {
            known_class(&mut fields, class, profile);
        }
        if let Some(region) = &defaults.residency {
            known_region(&mut fields, region, profile);
        }
        fields.finish();
        defaults
    }
}

fn event(
    mut fields: Fields<'_, '_>,
    owner: &str,
    defaults: &Defaults,
    profile: &Profile,
) -> Option<Event> {
    let text = fields.text("subject");
    let trigger = fields.text("trigger").unwrap_or_default();
    let kind = fields.choice("kind", Kind::NAMES).or(defaults.kind);
    let volume = fields.choice("volume", Volume::NAMES).or(defaults.volume);
    let payload = fields.choice("payload", PayloadStyle::NAMES).or(defaults.payload);
    let key = fields.optional_text("key").or_else(|| defaults.key.clone());
    let provenance = fields.flag("provenance");
    let once = fields.flag("once");
    let untenanted = fields.flag("untenanted");
    let subject = text.as_deref().and_then(|text| {
        let parsed = profile.subject(text);
        if let Err(error) = &parsed {
            fields.mistake(fields.span_of("subject"), Rule::Subject, error.to_string());
        }
        parsed.ok()
    });
    for (field, given) in
        [("kind", kind.is_some()), ("volume", volume.is_some()), ("key", key.is_some())]
    {
        if !given && !fields.has(field) {
            let message = format!("{field} is missing, here and in [defaults]");
            fields.mistake(fields.span_of("subject"), Rule::MissingField, message);
        }
    }
    let retention = retention(&mut fields, text.as_deref(), defaults, profile);
    let residency = residency(&mut fields, defaults, profile);
    let encoding = encoding(&mut fields, profile);
    let deprecated = fields.table("deprecated").and_then(|mut fields| {
        let since = fields.date("since");
        let replaced_by = fields.text("replaced_by");
        fields.finish();
        Some(Deprecation { since: since?, replaced_by: replaced_by? })
    });
    let dual_publish = fields.table("dual_publish").and_then(dual_publish);
    let version = subject.as_ref().map_or(1, |subject| subject.version());
    let consumers = consumers(&mut fields, owner, version, profile);
    let mut changes = Vec::new();
    fields.tables("changes", |mut fields| {
        let (date, note) = (fields.date("date"), fields.text("note"));
        changes.extend(date.zip(note).map(|(date, note)| Change { date, note }));
        fields.finish();
    });

    let subject = match subject {
        Some(subject) => subject,
        None => {
            fields.finish();
            return None;
        }
    };
    check_subject(&mut fields, &subject, owner, profile, provenance, untenanted);
    let place = fields.place("subject");
    fields.finish();
    Some(Event {
        subject,
        owner: owner.to_owned(),
        trigger,
        kind: kind.unwrap_or(Kind::Domain),
        key: key.filter(|key| key != "none"),
        retention: retention.unwrap_or_default(),
        residency,
        volume: volume.unwrap_or(Volume::Low),
        payload: payload.unwrap_or(PayloadStyle::Fat),
        encoding,
        provenance,
        once,
        untenanted,
        deprecated,
        dual_publish,
        consumers,
        changes,
        place,
    })
}

/// Checks who owns a subject, and that what the profile asks of it is declared.
fn check_subject(
    fields: &mut Fields<'_, '_>,
    subject: &Subject,
    owner: &str,
    profile: &Profile,
    provenance: bool,
    untenanted: bool,
) {
    let token = profile.services.get(owner).map(String::as_str);
    // A platform service may own subjects under another name; those are listed as exceptions.
    if let Some(token) = token
        && token != subject.service()
        && !profile.exceptions.contains_key(subject.as_str())
    {
        let message = format!("{subject} is not {owner}'s: its subjects say {token:?}");
        fields.mistake(fields.span_of("subject"), Rule::Owner, message);
    }
    if matches_any(&profile.ai_subjects, subject.as_str()) && !provenance {
        let message = format!("{subject} is an AI event; set provenance = true");
        fields.mistake(fields.span_of("subject"), Rule::Provenance, message);
    }
    if untenanted && !matches_any(&profile.platform_subjects, subject.as_str()) {
        let message =
            format!("{subject} belongs to no tenant, and platform_subjects does not list it");
        fields.mistake(fields.span_of("untenanted"), Rule::Untenanted, message);
    }
}

/// The window of dual publication, and the conversion to the previous version.
fn dual_publish(mut fields: Fields<'_, '_>) -> Option<DualPublish> {
    let (since, until) = (fields.day("since"), fields.day("until"));
    let release = fields.text("release");
    let mut steps = Vec::new();
    fields.tables("convert", |step| steps.extend(convert_step(step)));
    let place = fields.place("");
    fields.finish();
    let convert = Conversion { steps };
    Some(DualPublish { since: since?, until: until?, release: release?, convert, place })
}

fn convert_step(mut fields: Fields<'_, '_>) -> Option<Rewrite> {
    const WORDS: [&str; 5] = ["rename", "move", "drop", "default", "constant"];
    let said: Vec<&str> = WORDS.into_iter().filter(|word| fields.has(word)).collect();
    let [word] = said[..] else {
        let message = format!("a step is one of {}", WORDS.join(", "));
        fields.mistake(fields.span_of(""), Rule::WrongValue, message);
        return None;
    };
    let step = match word {
        "rename" => {
            let (rename, to) = (fields.text("rename"), fields.text("to"));
            if to.as_ref().is_some_and(|to| to.starts_with('/')) {
                let message = "rename takes a field name; use move for another place";
                fields.mistake(fields.span_of("to"), Rule::WrongValue, message);
            }
            rename.zip(to).map(|(rename, to)| Rewrite::Rename { rename, to })
        }
        "move" => {
            let (from, to) = (fields.text("move"), fields.text("to"));
            from.zip(to).map(|(from, to)| Rewrite::Move { from, to })
        }
        "drop" => fields.text("drop").map(|drop| Rewrite::Drop { drop }),
        "default" => {
            let (default, value) = (fields.text("default"), fields.json("value"));
            default.zip(value).map(|(default, value)| Rewrite::Default { default, value })
        }
        _ => {
            let (constant, value) = (fields.text("constant"), fields.json("value"));
            constant.zip(value).map(|(constant, value)| Rewrite::Constant { constant, value })
        }
    };
    for pointer in step.iter().flat_map(Rewrite::pointers).filter(|at| !is_pointer(at)) {
        let message = format!("{pointer:?} is not a JSON pointer such as \"/guest/name\"");
        fields.mistake(fields.span_of(word), Rule::WrongValue, message);
    }
    fields.finish();
    step
}

/// The class must exist and be the one that the system's rules give the subject.
fn retention(
    fields: &mut Fields<'_, '_>,
    subject: Option<&str>,
    defaults: &Defaults,
    profile: &Profile,
) -> Option<String> {
    let given = fields.optional_text("retention");
    let span = fields.span_of(if fields.has("retention") { "retention" } else { "subject" });
    if let Some(class) = &given {
        known_class(fields, class, profile);
    }
    let Some(class) = given.or_else(|| defaults.retention.clone()) else {
        if !fields.has("retention") {
            let message = "retention is missing, here and in [defaults]";
            fields.mistake(span, Rule::MissingField, message);
        }
        return None;
    };
    if profile.retention.contains_key(&class)
        && let Some(ruled) = subject.and_then(|subject| profile.retention_of(subject))
        && ruled != class
    {
        let message = format!("retention is {class:?}, but the system's rules say {ruled:?}");
        fields.mistake(span, Rule::Retention, message);
    }
    Some(class)
}

fn known_class(fields: &mut Fields<'_, '_>, class: &str, profile: &Profile) {
    if !profile.retention.contains_key(class) {
        let known: Vec<&str> = profile.retention.keys().map(String::as_str).collect();
        let message = format!("retention class {class:?} is not one of {}", known.join(", "));
        fields.mistake(fields.span_of("retention"), Rule::Retention, message);
    }
}

/// A region of the system; `tenant`, which is also the default, means the tenant's own.
fn residency(
    fields: &mut Fields<'_, '_>,
    defaults: &Defaults,
    profile: &Profile,
) -> Option<String> {
    let given = fields.optional_text("residency");
    if let Some(region) = &given {
        known_region(fields, region, profile);
    }
    given.or_else(|| defaults.residency.clone()).filter(|region| region != "tenant")
}

fn known_region(fields: &mut Fields<'_, '_>, region: &str, profile: &Profile) {
    let known = &profile.residencies;
    if region != "tenant" && !known.is_empty() && !known.iter().any(|other| other == region) {
        let known = known.join(", ");
        let message = format!("residency {region:?} is neither \"tenant\" nor one of {known}");
        fields.mistake(fields.span_of("residency"), Rule::Residency, message);
    }
}

/// `message` makes an event Protobuf; all events of a system use one encoding.
fn encoding(fields: &mut Fields<'_, '_>, profile: &Profile) -> Encoding {
    let message = fields.optional_text("message");
    match (message, profile.speaks_protobuf()) {
        (Some(message), true) => Encoding::Protobuf(message),
        (None, false) => Encoding::Json,
        (Some(message), false) => {
            let complaint = format!("{} uses JSON, so its events have no message", profile.name);
            fields.mistake(fields.span_of("message"), Rule::Encoding, complaint);
            Encoding::Protobuf(message)
        }
        (None, true) => {
            let complaint = format!("{} uses Protobuf: set the event's message", profile.name);
            fields.mistake(fields.span_of("subject"), Rule::Encoding, complaint);
            Encoding::Json
        }
    }
}

fn consumers(
    fields: &mut Fields<'_, '_>,
    owner: &str,
    version: u32,
    profile: &Profile,
) -> Vec<Consumer> {
    let mut consumers: Vec<Consumer> = Vec::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    fields.each("consumers", |item| {
        let (mut fields, service, field) = match item {
            Item::Text(fields, value) => (fields, value.get_ref().as_str().map(str::to_owned), ""),
            Item::Table(mut fields) => {
                let service = fields.text("service");
                (fields, service, "service")
            }
        };
        let table = !field.is_empty();
        let purpose = if table { fields.optional_text("for") } else { None };
        let accepts = if table { fields.versions("accepts") } else { None };
        let accepts_span = fields.span_of(if table { "accepts" } else { "" });
        let accepts = accepts.unwrap_or_else(|| vec![version]);
        if let Some(service) = service {
            known_service(&mut fields, field, &service, profile);
            let span = fields.span_of(field);
            if service == owner {
                let message = format!("{service} publishes this event itself");
                fields.mistake(span, Rule::Consumer, message);
            } else if !names.insert(service.clone()) {
                fields.mistake(span, Rule::Consumer, format!("{service} is listed twice"));
            }
            if !accepts.contains(&version) {
                let message = format!("{service} is listed for v{version} but does not accept it");
                fields.mistake(accepts_span, Rule::AcceptedVersion, message);
            }
            let place = fields.place(field);
            consumers.push(Consumer { service, purpose, accepts, place });
        }
        if table {
            fields.finish();
        }
    });
    consumers
}

/// The file name must be the service name.
pub(super) fn named_like(fields: &mut Fields<'_, '_>, file: &Source, name: &str) {
    let stem = file.file().rsplit(['/', '\\']).next().unwrap_or_default();
    let stem = stem.strip_suffix(".toml").unwrap_or(stem);
    if stem != name {
        let message = format!("the file of {name} is named {name}.toml, not {stem}.toml");
        fields.mistake(fields.span_of("service"), Rule::MisplacedService, message);
    }
}

pub(super) fn known_service(
    fields: &mut Fields<'_, '_>,
    field: &str,
    name: &str,
    profile: &Profile,
) {
    if profile.services.contains_key(name) || profile.services.is_empty() {
        return;
    }
    let known: Vec<&str> = profile.services.keys().map(String::as_str).collect();
    let message = format!("{} has no service {name:?}{}", profile.name, meant(name, &known));
    fields.mistake(fields.span_of(field), Rule::UnknownService, message);
}
