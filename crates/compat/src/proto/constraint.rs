//! The options of `buf.validate` on both sides: what events they refuse.
//!
//! A narrower constraint refuses events that were valid. A wider one lets through events that
//! readers with the released constraints refuse.

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{
    DynamicMessage, FieldDescriptor, MessageDescriptor, OneofDescriptor, ReflectMessage, Value,
};

/// The id of a finding where events that were valid are refused.
pub const TIGHTENED: &str = "CONSTRAINT_TIGHTENED";

/// The id of a finding where events that were refused are valid.
pub const WIDENED: &str = "CONSTRAINT_WIDENED";

/// A constraint that changed: the id, where, and how.
pub(super) type Changed = (&'static str, String, String);

pub(super) fn compare(
    before: &MessageDescriptor,
    after: &MessageDescriptor,
    changes: &mut Vec<Changed>,
) {
    let file = after.parent_file().name().to_owned();
    let mut add = |name: &str, (old, new): (Rules, Rules), fresh: bool| {
        for (rule, reason) in differences(&old, &new, fresh) {
            changes.push((rule, format!("{file}:{name}"), reason));
        }
    };
    add(before.full_name(), (of_message(before), of_message(after)), false);
    for new in after.fields() {
        let old = before.get_field(new.number());
        let mut rules = of_field(&new);
        // An earlier event does not have a new field: where absence shows, only `required` minds.
        if old.is_none() && new.supports_presence() {
            rules.retain(|name, _| name == "required");
        }
        let before = old.as_ref().map(of_field).unwrap_or_default();
        add(new.full_name(), (before, rules), old.is_none());
    }
    for new in after.oneofs() {
        let old = before.oneofs().find(|old| old.name() == new.name());
        add(
            new.full_name(),
            (old.as_ref().map(of_oneof).unwrap_or_default(), of_oneof(&new)),
            false,
        );
    }
}

/// Constraints by their path, such as `string.min_len`.
type Rules = BTreeMap<String, Limit>;

#[derive(Debug, Clone, PartialEq)]
enum Limit {
    Int(i128),
    Float(f64),
    Flag(bool),
    Text(String),
    Set(BTreeSet<String>),
}

fn of_field(field: &FieldDescriptor) -> Rules {
    rules(field.parent_pool(), "buf.validate.field", &field.options())
}

fn of_message(message: &MessageDescriptor) -> Rules {
    rules(message.parent_pool(), "buf.validate.message", &message.options())
}

fn of_oneof(oneof: &OneofDescriptor) -> Rules {
    rules(oneof.parent_pool(), "buf.validate.oneof", &oneof.options())
}

fn rules(pool: &prost_reflect::DescriptorPool, extension: &str, options: &DynamicMessage) -> Rules {
    let mut found = Rules::new();
    if let Some(extension) = pool.get_extension_by_name(extension)
        && options.has_extension(&extension)
        && let Some(message) = options.get_extension(&extension).as_message()
    {
        flatten(message, "", &mut found);
    }
    found
}

fn flatten(message: &DynamicMessage, prefix: &str, found: &mut Rules) {
    for (field, value) in message.fields() {
        let path = format!("{prefix}{}", field.name());
        match value {
            Value::Message(inner) => match moment(inner) {
                Some(nanos) => drop(found.insert(path, Limit::Int(nanos))),
                None => flatten(inner, &format!("{path}."), found),
            },
            Value::List(items) if items.iter().any(|item| item.as_message().is_some()) => {
                for expression in items.iter().filter_map(Value::as_message) {
                    let text = |name: &str| match expression.get_field_by_name(name).as_deref() {
                        Some(Value::String(text)) => text.clone(),
                        _ => String::new(),
                    };
                    found.insert(format!("{path}.{}", text("id")), Limit::Text(text("expression")));
                }
            }
            Value::List(items) => {
                let set = items.iter().map(|item| limit(item).shown()).collect();
                found.insert(path, Limit::Set(set));
            }
            scalar => drop(found.insert(path, limit(scalar))),
        }
    }
    // Rules of a newer `validate.proto`, which have no name here.
    for unknown in message.unknown_fields() {
        let path = format!("{prefix}#{}", unknown.number());
        found.insert(path, Limit::Text(format!("{unknown:?}")));
    }
}

/// A timestamp or a duration, in nanoseconds.
fn moment(message: &DynamicMessage) -> Option<i128> {
    let name = message.descriptor().full_name().to_owned();
    if name != "google.protobuf.Timestamp" && name != "google.protobuf.Duration" {
        return None;
    }
    let part = |name: &str| match message.get_field_by_name(name).as_deref() {
        Some(Value::I64(n)) => i128::from(*n),
        Some(Value::I32(n)) => i128::from(*n),
        _ => 0,
    };
    Some(part("seconds") * 1_000_000_000 + part("nanos"))
}

fn limit(value: &Value) -> Limit {
    match value {
        Value::Bool(flag) => Limit::Flag(*flag),
        Value::I32(n) | Value::EnumNumber(n) => Limit::Int((*n).into()),
        Value::I64(n) => Limit::Int((*n).into()),
        Value::U32(n) => Limit::Int((*n).into()),
        Value::U64(n) => Limit::Int((*n).into()),
        Value::F32(n) => Limit::Float((*n).into()),
        Value::F64(n) => Limit::Float(*n),
        Value::String(text) => Limit::Text(text.clone()),
        other => Limit::Text(format!("{other:?}")),
    }
}

impl Limit {
    fn shown(&self) -> String {
        match self {
            Limit::Int(n) => n.to_string(),
            Limit::Float(n) => n.to_string(),
            Limit::Flag(flag) => flag.to_string(),
            Limit::Text(text) => format!("{text:?}"),
            Limit::Set(set) => format!("{set:?}"),
        }
    }

    fn is_above(&self, other: &Limit) -> bool {
        match (self, other) {
            (Limit::Int(mine), Limit::Int(theirs)) => mine > theirs,
            (Limit::Float(mine), Limit::Float(theirs)) => mine > theirs,
            _ => true,
        }
    }
}

/// `fresh`: the field is new, so earlier events do not have it.
fn differences(old: &Rules, new: &Rules, fresh: bool) -> Vec<(&'static str, String)> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let mut found = Vec::new();
    for name in names {
        // A flag that is off is no constraint.
        let set = |limit: &&Limit| **limit != Limit::Flag(false);
        let (was, is) = (old.get(name).filter(set), new.get(name).filter(set));
        if was == is || (fresh && admits_zero(name, is)) {
            continue;
        }
        let rule = if is_tighter(name, was, is) { TIGHTENED } else { WIDENED };
        let shown = |limit: Option<&Limit>| limit.map_or("not set".to_owned(), Limit::shown);
        found.push((rule, format!("{name} was {} and is {}", shown(was), shown(is))));
    }
    found
}

fn is_tighter(name: &str, was: Option<&Limit>, is: Option<&Limit>) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let switch_off = matches!(last, "disabled" | "skipped" | "ignore_empty" | "ignore");
    match (was, is) {
        (None, Some(_)) => !switch_off,
        (Some(_), None) => switch_off,
        (Some(was), Some(is)) => match (last, was, is) {
            ("min_len" | "min_bytes" | "min_items" | "min_pairs" | "gt" | "gte", was, is) => {
                is.is_above(was)
            }
            ("max_len" | "max_bytes" | "max_items" | "max_pairs" | "lt" | "lte", was, is) => {
                was.is_above(is)
            }
            // Later values ignore more.
            ("ignore", was, is) => was.is_above(is),
            ("in", Limit::Set(was), Limit::Set(is)) => !was.is_subset(is),
            ("not_in", Limit::Set(was), Limit::Set(is)) => !is.is_subset(was),
            _ => true,
        },
        (None, None) => false,
    }
}

/// Whether a constraint surely accepts the zero that a new field has in earlier events.
fn admits_zero(name: &str, limit: Option<&Limit>) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let zero = |limit: &Limit| match limit {
        Limit::Int(n) => *n >= 0,
        Limit::Float(n) => *n >= 0.0,
        _ => false,
    };
    match last {
        "max_len" | "max_bytes" | "max_items" | "max_pairs" | "lte" => limit.is_some_and(zero),
        "lt" => limit.is_some_and(|limit| zero(limit) && limit.shown() != "0"),
        "gte" => limit.is_some_and(|limit| limit.shown().starts_with(['-', '0'])),
        "defined_only" | "unique" | "ignore" | "skipped" | "ignore_empty" => true,
        "in" => matches!(limit, Some(Limit::Set(set)) if set.contains("0") || set.contains("\"\"")),
        "not_in" => {
            matches!(limit, Some(Limit::Set(set)) if !set.contains("0") && !set.contains("\"\""))
        }
        // A list of an earlier event has no items.
        _ => name.starts_with("repeated.items") || name.starts_with("map.keys"),
    }
}
