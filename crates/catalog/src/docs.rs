//! The catalog as a static site.
//!
//! Static files without external resources: they work from disk and from a server, in the reader's
//! light or dark theme, and everything except the search works without a script.

use std::collections::BTreeMap;

use askama::Template;
use chapar_core::catalog::{Catalog, Change, Encoding, Event, Service};
use serde_json::Value;

use crate::inventory::{dead_letter, ordering_key, subscription_name};
use crate::{Loaded, graph};

/// Every file of the site, by its path. The output is deterministic.
pub fn site(loaded: &Loaded) -> Result<BTreeMap<String, String>, askama::Error> {
    let catalog = &loaded.catalog;
    let mut site = BTreeMap::new();
    site.insert("style.css".to_owned(), include_str!("../assets/style.css").to_owned());
    site.insert("search.js".to_owned(), include_str!("../assets/search.js").to_owned());
    site.insert("graph.svg".to_owned(), graph::svg(catalog));
    site.insert("index.html".to_owned(), index(catalog).render()?);
    for service in &catalog.services {
        let page =
            ServicePage { title: &catalog.system.title, service, reads: reads(catalog, service) };
        site.insert(format!("services/{}.html", service.name), page.render()?);
    }
    for event in catalog.events() {
        site.insert(format!("events/{}.html", event.subject), event_page(loaded, event).render()?);
    }
    Ok(site)
}

#[derive(Template)]
#[template(path = "index.html")]
struct IndexPage<'a> {
    title: &'a str,
    summary: &'a str,
    version: &'a str,
    groups: Vec<(&'a str, Vec<&'a Service>)>,
    events: usize,
    services: usize,
}

#[derive(Template)]
#[template(path = "service.html")]
struct ServicePage<'a> {
    title: &'a str,
    service: &'a Service,
    reads: Vec<&'a Event>,
}

#[derive(Template)]
#[template(path = "event.html")]
struct EventPage<'a> {
    title: &'a str,
    event: &'a Event,
    description: &'a str,
    schema_uri: Option<String>,
    message: Option<&'a str>,
    ordering_key: Option<String>,
    residency: &'a str,
    keeps: String,
    dead_letter: String,
    fields: Vec<Field>,
    readers: Vec<Reader<'a>>,
    examples: Vec<String>,
    schema: Option<&'a str>,
    versions: Vec<Version<'a>>,
    changes: &'a [Change],
}

/// A row of the table of fields.
struct Field {
    name: String,
    kind: String,
    required: bool,
    personal: bool,
    about: String,
}

struct Reader<'a> {
    service: &'a str,
    /// Whether it has a page: only services that publish have one.
    page: bool,
    purpose: &'a str,
    accepts: String,
    subscription: String,
}

struct Version<'a> {
    subject: &'a str,
    this: bool,
    status: String,
}

fn index(catalog: &Catalog) -> IndexPage<'_> {
    let named =
        |(group, services)| (if str::is_empty(group) { "Services" } else { group }, services);
    IndexPage {
        title: &catalog.system.title,
        summary: &catalog.system.summary,
        version: &catalog.system.version,
        groups: catalog.grouped().into_iter().map(named).collect(),
        events: catalog.events().count(),
        services: catalog.services.len(),
    }
}

fn reads<'a>(catalog: &'a Catalog, service: &Service) -> Vec<&'a Event> {
    let reads = |event: &&Event| event.consumers.iter().any(|c| c.service == service.name);
    catalog.events().filter(reads).collect()
}

fn event_page<'a>(loaded: &'a Loaded, event: &'a Event) -> EventPage<'a> {
    let catalog = &loaded.catalog;
    let schema = loaded.schemas.get(event.subject.as_str());
    let message = match &event.encoding {
        Encoding::Protobuf(message) => Some(message.as_str()),
        Encoding::Json => None,
    };
    EventPage {
        title: &catalog.system.title,
        event,
        description: schema.map_or("", |schema| schema.description()),
        schema_uri: schema.map(|schema| schema.uri()),
        message,
        ordering_key: ordering_key(catalog, event),
        residency: event.residency.as_deref().unwrap_or("the tenant's region"),
        keeps: keeps(catalog, event),
        dead_letter: dead_letter(catalog, event),
        fields: match (schema, message) {
            (Some(schema), _) => schema_fields(&schema.inlined()),
            (None, Some(message)) => message_fields(loaded, message),
            (None, None) => Vec::new(),
        },
        readers: readers(catalog, event),
        examples: schema.map_or_else(Vec::new, |s| s.examples().iter().map(pretty).collect()),
        schema: schema.map(|schema| schema.text.as_str()),
        versions: versions(catalog, event),
        changes: &event.changes,
    }
}

fn keeps(catalog: &Catalog, event: &Event) -> String {
    let Some(days) = catalog.profile.retention.get(&event.retention) else { return String::new() };
    let places =
        [("broker", days.hot_days), ("warehouse", days.warm_days), ("cold", days.cold_days)];
    let places = places.iter().filter(|(_, days)| *days > 0);
    places.map(|(place, days)| format!("{place} {days} days")).collect::<Vec<_>>().join(", ")
}

fn readers<'a>(catalog: &'a Catalog, event: &'a Event) -> Vec<Reader<'a>> {
    let reader = |service: &'a str| {
        let consumer = event.consumers.iter().find(|consumer| consumer.service == service);
        let accepts = consumer.map_or_else(|| vec![event.subject.version()], |c| c.accepts.clone());
        let purpose = consumer.map_or("reads every topic", |c| c.purpose.as_deref().unwrap_or(""));
        let accepts: Vec<String> = accepts.iter().map(|version| format!("v{version}")).collect();
        Reader {
            service,
            page: catalog.services.iter().any(|known| known.name == service),
            purpose,
            accepts: accepts.join(", "),
            subscription: subscription_name(catalog, service, event),
        }
    };
    catalog.readers(event).map(reader).collect()
}

fn versions<'a>(catalog: &'a Catalog, event: &Event) -> Vec<Version<'a>> {
    let all = catalog.versions().remove(event.subject.event_type()).unwrap_or_default();
    let version = |other: &'a Event| Version {
        subject: other.subject.as_str(),
        this: other.subject == event.subject,
        status: match &other.deprecated {
            Some(gone) => format!("deprecated since {}, read {}", gone.since, gone.replaced_by),
            None => "current".to_owned(),
        },
    };
    all.into_iter().map(version).collect()
}

/// The fields of an object and, indented by their path, of the objects inside it.
fn schema_fields(schema: &Value) -> Vec<Field> {
    let mut fields = Vec::new();
    collect(schema, "", &mut fields);
    fields
}

fn collect(schema: &Value, path: &str, fields: &mut Vec<Field>) {
    let Some(properties) = schema["properties"].as_object() else { return };
    let required = schema["required"].as_array();
    for (name, field) in properties {
        let name_in_path = format!("{path}{name}");
        let personal = field["x-personal"].as_bool().unwrap_or(false);
        fields.push(Field {
            required: required.is_some_and(|required| required.iter().any(|r| r == name)),
            kind: kind(field),
            personal,
            about: field["description"].as_str().unwrap_or_default().to_owned(),
            name: name_in_path.clone(),
        });
        collect(field, &format!("{name_in_path}."), fields);
        collect(&field["items"], &format!("{name_in_path}[]."), fields);
    }
}

fn kind(field: &Value) -> String {
    if let Some(values) = field["enum"].as_array() {
        let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        return values.join(" | ");
    }
    let kinds: Vec<&str> = match &field["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => vec![kind.as_str().unwrap_or("any")],
    };
    let kind = kinds.join(" or ");
    match (kind.as_str(), field["format"].as_str(), field["items"]["type"].as_str()) {
        ("array", _, Some(items)) => format!("list of {items}"),
        (kind, Some(format), _) => format!("{kind}, {format}"),
        (kind, None, _) => kind.to_owned(),
    }
}

fn message_fields(loaded: &Loaded, message: &str) -> Vec<Field> {
    let Some(message) = loaded.protos.message(message) else { return Vec::new() };
    let field = |field: prost_reflect::FieldDescriptor| Field {
        name: field.name().to_owned(),
        kind: format!("{:?}", field.kind()),
        required: false,
        personal: false,
        about: format!("field {}", field.number()),
    };
    message.fields().map(field).collect()
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
