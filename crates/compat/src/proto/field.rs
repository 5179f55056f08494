//! One field on both sides: the same number in the same message.

use prost_reflect::{Cardinality, EnumDescriptor, FieldDescriptor, Kind, Syntax, Value};

use super::Rule;
use super::compare::Break;

pub(super) fn compare(before: &FieldDescriptor, after: &FieldDescriptor, breaks: &mut Vec<Break>) {
    let place = format!("{}:{}", after.parent_message().parent_file().name(), before.full_name());
    let mut add = |rule: Rule, reason: String| breaks.push((rule, place.clone(), reason));
    cardinality(before, after, &mut add);
    types(before, after, &mut add);
    if before.name() != after.name() {
        add(
            Rule::FieldSameName,
            format!("the name was `{}` and is `{}`", before.name(), after.name()),
        );
    }
    if before.json_name() != after.json_name() {
        add(
            Rule::FieldSameJsonName,
            format!("in JSON it was `{}` and is `{}`", before.json_name(), after.json_name()),
        );
    }
    let oneof = |field: &FieldDescriptor| {
        field
            .containing_oneof()
            .filter(|oneof| !oneof.is_synthetic())
            .map(|oneof| oneof.name().to_owned())
    };
    if oneof(before) != oneof(after) {
        add(Rule::FieldSameOneof, "it moved into, out of or between oneofs".to_owned());
    }
    if let (Some(old), Some(new)) = (default(before), default(after))
        && old != new
        && !(old.is_zero() && new.is_zero())
    {
        add(Rule::FieldSameDefault, "the value of an absent field is another one".to_owned());
    }
    let jstype = |field: &FieldDescriptor| {
        field.field_descriptor_proto().options.as_ref().map_or(0, |options| options.jstype() as i32)
    };
    if wide(&before.kind()) && wide(&after.kind()) && jstype(before) != jstype(after) {
        add(Rule::FieldSameJstype, "the option jstype changed".to_owned());
    }
    let checked =
        |field: &FieldDescriptor| field.parent_message().parent_file().syntax() == Syntax::Proto3;
    if before.kind() == Kind::String
        && after.kind() == Kind::String
        && checked(before) != checked(after)
    {
        add(
            Rule::FieldSameUtf8Validation,
            "whether the text is checked to be UTF-8 changed".to_owned(),
        );
    }
}

/// How often a field occurs and whether its absence shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occurs {
    Explicit,
    Implicit,
    Required,
    Repeated,
    Map,
}

impl Occurs {
    fn of(field: &FieldDescriptor) -> Occurs {
        match field.cardinality() {
            _ if field.is_map() => Occurs::Map,
            Cardinality::Repeated => Occurs::Repeated,
            Cardinality::Required => Occurs::Required,
            Cardinality::Optional if field.supports_presence() => Occurs::Explicit,
            Cardinality::Optional => Occurs::Implicit,
        }
    }

    /// Optional fields look alike on the wire, with or without presence.
    fn in_json(self) -> Occurs {
        if self == Occurs::Implicit { Occurs::Explicit } else { self }
    }

    /// A map is a repeated message there.
    fn on_wire(self) -> Occurs {
        if self == Occurs::Map { Occurs::Repeated } else { self.in_json() }
    }
}

fn cardinality(
    before: &FieldDescriptor,
    after: &FieldDescriptor,
    add: &mut impl FnMut(Rule, String),
) {
    // The members of a map's entry are generated and cannot be written otherwise.
    if before.parent_message().is_map_entry() && after.parent_message().is_map_entry() {
        return;
    }
    let (old, new) = (Occurs::of(before), Occurs::of(after));
    let reason = format!("it was {old:?} and is {new:?}").to_lowercase();
    if old != new {
        add(Rule::FieldSameCardinality, reason.clone());
    }
    if old.in_json() != new.in_json() {
        add(Rule::FieldWireJsonCompatibleCardinality, reason.clone());
    }
    if old.on_wire() != new.on_wire() {
        add(Rule::FieldWireCompatibleCardinality, reason);
    }
}

fn types(before: &FieldDescriptor, after: &FieldDescriptor, add: &mut impl FnMut(Rule, String)) {
    let (old, new) = (before.kind(), after.kind());
    let reason = format!("the type was {} and is {}", name(&old), name(&new));
    let renamed = name(&old) != name(&new);
    if renamed || before.is_group() != after.is_group() {
        add(Rule::FieldSameType, reason.clone());
    }
    // An enum under another path is the same one where it has the same name and keeps every value.
    let moved = match (&old, &new) {
        (Kind::Enum(old), Kind::Enum(new)) => {
            renamed && !(old.name() == new.name() && keeps(old, new))
        }
        (Kind::Message(_), Kind::Message(_)) => renamed,
        _ => false,
    };
    if json_group(&old) != json_group(&new) || before.is_group() != after.is_group() || moved {
        add(Rule::FieldWireJsonCompatibleType, reason.clone());
    }
    let into_bytes = old == Kind::String && new == Kind::Bytes;
    let differs = wire_group(&old) != wire_group(&new) || before.is_group() != after.is_group();
    if (differs && !into_bytes) || moved {
        add(Rule::FieldWireCompatibleType, reason);
    }
}

fn keeps(old: &EnumDescriptor, new: &EnumDescriptor) -> bool {
    old.values().all(|value| {
        new.values().any(|other| other.number() == value.number() && other.name() == value.name())
    })
}

fn name(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(one) => one.full_name().to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

fn wire_group(kind: &Kind) -> u8 {
    match kind {
        Kind::Int32 | Kind::Int64 | Kind::Uint32 | Kind::Uint64 | Kind::Bool => 1,
        Kind::Sint32 | Kind::Sint64 => 2,
        Kind::String => 3,
        Kind::Bytes => 4,
        Kind::Fixed32 | Kind::Sfixed32 => 5,
        Kind::Fixed64 | Kind::Sfixed64 => 6,
        Kind::Double => 7,
        Kind::Float => 8,
        Kind::Message(_) => 9,
        Kind::Enum(_) => 10,
    }
}

/// JSON writes 64-bit integers as strings and booleans as words, so fewer types are interchangeable.
fn json_group(kind: &Kind) -> u8 {
    match kind {
        Kind::Int32 | Kind::Uint32 => 11,
        Kind::Int64 | Kind::Uint64 => 12,
        Kind::Bool => 13,
        Kind::Sint32 => 14,
        Kind::Sint64 => 15,
        other => wire_group(other),
    }
}

fn wide(kind: &Kind) -> bool {
    matches!(kind, Kind::Int64 | Kind::Uint64 | Kind::Sint64 | Kind::Fixed64 | Kind::Sfixed64)
}

#[derive(Debug, PartialEq)]
enum Default {
    Text(Vec<u8>),
    Number(f64),
}

impl Default {
    fn is_zero(&self) -> bool {
        match self {
            Default::Text(text) => text.is_empty(),
            Default::Number(number) => *number == 0.0,
        }
    }
}

/// The value of an absent field, where the field has one.
fn default(field: &FieldDescriptor) -> Option<Default> {
    if field.is_list() || field.is_map() || matches!(field.kind(), Kind::Message(_)) {
        return None;
    }
    Some(match field.default_value() {
        Value::String(text) => Default::Text(text.into_bytes()),
        Value::Bytes(bytes) => Default::Text(bytes.to_vec()),
        Value::Bool(one) => Default::Number(f64::from(u8::from(one))),
        Value::I32(number) | Value::EnumNumber(number) => Default::Number(number.into()),
        Value::U32(number) => Default::Number(number.into()),
        Value::I64(number) => Default::Number(number as f64),
        Value::U64(number) => Default::Number(number as f64),
        Value::F32(number) => Default::Number(number.into()),
        Value::F64(number) => Default::Number(number),
        _ => return None,
    })
}
