//! Rules between events, which cannot be checked within a single file.

use std::collections::BTreeMap;

use super::place::{Mistake, Place, Rule};
use super::{Catalog, Encoding, Event, Kind};
use crate::profile::matches_any;

/// Checks rules that span several files.
pub(super) fn between_events(catalog: &Catalog, mistakes: &mut Vec<Mistake>) {
    services_once(catalog, mistakes);
    subjects_once(catalog, mistakes);
    let versions = catalog.versions();
    for event in catalog.events() {
        let siblings = versions.get(event.subject.event_type()).map_or(&[][..], Vec::as_slice);
        accepted_versions(event, siblings, mistakes);
        contracted(event, mistakes);
        cross_tenant(catalog, event, mistakes);
        replaced(catalog, event, mistakes);
        dual_published(catalog, event, mistakes);
    }
    readers_of_all(catalog, mistakes);
}

fn readers_of_all(catalog: &Catalog, mistakes: &mut Vec<Mistake>) {
    let place = catalog.system.place.clone().unwrap_or_else(|| Place::start("catalog.toml"));
    let services = &catalog.profile.services;
    for reader in &catalog.system.readers_of_all {
        if !services.contains_key(reader) && !services.is_empty() {
            let message = format!("{} has no service {reader:?}", catalog.profile.name);
            mistakes.push(place.mistake(Rule::UnknownService, message));
        }
    }
}

fn services_once(catalog: &Catalog, mistakes: &mut Vec<Mistake>) {
    let mut first: BTreeMap<&str, &Place> = BTreeMap::new();
    let groups = &catalog.system.groups;
    for service in &catalog.services {
        if !groups.is_empty() && !groups.contains(&service.group) {
            let known = groups.join(", ");
            let message = format!("group {:?} is not one of {known}", service.group);
            mistakes.push(service.place.mistake(Rule::WrongValue, message));
        }
        if let Some(other) = first.insert(&service.name, &service.place) {
            let message = format!("{} is also declared in {other}", service.name);
            mistakes.push(service.place.mistake(Rule::MisplacedService, message));
        }
    }
}

fn subjects_once(catalog: &Catalog, mistakes: &mut Vec<Mistake>) {
    let mut first: BTreeMap<&str, &Place> = BTreeMap::new();
    for event in catalog.events() {
        let subject = event.subject.as_str();
        match first.get(subject) {
            Some(other) => {
                let message = format!("{subject} is already declared at {other}");
                mistakes.push(event.place.mistake(Rule::DuplicateSubject, message));
            }
            None => {
                first.insert(subject, &event.place);
            }
        }
    }
}

fn accepted_versions(event: &Event, siblings: &[&Event], mistakes: &mut Vec<Mistake>) {
    for consumer in &event.consumers {
        for version in &consumer.accepts {
            if siblings.iter().any(|sibling| sibling.subject.version() == *version) {
                continue;
            }
            let (service, name) = (&consumer.service, event.subject.event_type());
            let message = format!("{service} accepts v{version} of {name}, which is not published");
            mistakes.push(consumer.place.mistake(Rule::AcceptedVersion, message));
        }
    }
}

fn contracted(event: &Event, mistakes: &mut Vec<Mistake>) {
    if event.kind == Kind::Integration && event.consumers.is_empty() {
        let message = format!(
            "{} is an integration event without consumers; list its consumers, or make it a \
             domain event",
            event.subject
        );
        mistakes.push(event.place.mistake(Rule::NoConsumers, message));
    }
}

/// A topic in a cross-tenant space is read by registered services only, even if the topic itself
/// was not registered.
fn cross_tenant(catalog: &Catalog, event: &Event, mistakes: &mut Vec<Mistake>) {
    let profile = &catalog.profile;
    let subject = event.subject.as_str();
    let topic = profile.cross_tenant.iter().find(|topic| topic.subject == subject);
    if topic.is_none() && !matches_any(&profile.cross_tenant_spaces, subject) {
        return;
    }
    if let Some(topic) = topic
        && topic.publisher != event.owner
    {
        let message = format!("cross-tenant {subject} is registered for {}", topic.publisher);
        mistakes.push(event.place.mistake(Rule::CrossTenant, message));
    }
    for consumer in &event.consumers {
        let service = &consumer.service;
        let registered = topic.is_some_and(|topic| topic.readers.contains(service));
        // A service that reads everything, such as an audit trail, is exempt: it reads tenant by
        // tenant.
        if !registered && !catalog.system.readers_of_all.contains(service) {
            let message =
                format!("{service} is not registered to read the cross-tenant topic {subject}");
            mistakes.push(consumer.place.mistake(Rule::CrossTenant, message));
        }
    }
}

fn replaced(catalog: &Catalog, event: &Event, mistakes: &mut Vec<Mistake>) {
    let Some(deprecation) = &event.deprecated else { return };
    let wrong = match catalog.event(&deprecation.replaced_by) {
        None => "is not in the catalog",
        Some(other) if other.subject == event.subject => "is the same event",
        Some(other) if other.deprecated.is_some() => "is deprecated itself",
        Some(_) => return,
    };
    let message = format!("the replacement {:?} {wrong}", deprecation.replaced_by);
    mistakes.push(event.place.mistake(Rule::Deprecation, message));
}

/// Two versions must be published together for the minimum window.
fn dual_published(catalog: &Catalog, event: &Event, mistakes: &mut Vec<Mistake>) {
    let Some(dual) = &event.dual_publish else { return };
    let subject = &event.subject;
    let mut wrong = |message: String| {
        mistakes.push(dual.place.mistake(Rule::DualPublish, message));
    };
    if event.encoding != Encoding::Json {
        wrong(format!("{subject} is not JSON; only JSON events can be converted"));
    }
    let days = (dual.until - dual.since).get_days();
    let least = catalog.system.least_dual_publish_days();
    if days < i32::from(least) {
        wrong(format!("the window has {days} days; publish both versions for at least {least}"));
    }
    match catalog.before(event) {
        None => wrong(format!("{subject} has no previous version to publish together with it")),
        Some(old) if old.deprecated.as_ref().is_none_or(|d| d.replaced_by != subject.as_str()) => {
            wrong(format!("set deprecated with replaced_by {subject} on {}", old.subject));
        }
        Some(old) if old.owner != event.owner => {
            wrong(format!("{} is {}'s, not {}'s", old.subject, old.owner, event.owner));
        }
        Some(_) => {}
    }
}
