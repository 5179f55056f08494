//! One field on both sides: the same number in the same message.

use prost_reflect::{
    Cardinality, EnumDescriptor, ExtensionDescriptor, FieldDescriptor, Kind, Syntax, Value,
};

use super::Rule;
use super::compare::Break;

/// What the rules look at, of a field or of an extension.
pub(super) struct Field {
    place: String,
    name: String,
    json_name: String,
    kind: Kind,
    is_group: bool,
    occurs: Occurs,
    in_map_entry: bool,
    oneof: Option<String>,
    default: Option<Default>,
    jstype: i32,
    /// Whether a text is checked to be UTF-8.
    checked: bool,
}

impl Field {
    pub(super) fn of(field: &FieldDescriptor) -> Field {
        let file = field.parent_message().parent_file();
        let oneof = field.containing_oneof().filter(|oneof| !oneof.is_synthetic());
        let scalar = !field.is_list() && !field.is_map();
        Field {
            place: format!("{}:{}", file.name(), field.full_name()),
            name: field.name().to_owned(),
            json_name: field.json_name().to_owned(),
            kind: field.kind(),
            is_group: field.is_group(),
            occurs: Occurs::of(field.cardinality(), field.is_map(), field.supports_presence()),
            in_map_entry: field.parent_message().is_map_entry(),
            oneof: oneof.map(|oneof| oneof.name().to_owned()),
            default: scalar.then(|| default(&field.kind(), field.default_value())).flatten(),
            jstype: jstype(field.field_descriptor_proto()),
            checked: file.syntax() == Syntax::Proto3,
        }
    }

    pub(super) fn of_extension(field: &ExtensionDescriptor) -> Field {
        let file = field.parent_file();
        let scalar = !field.is_list() && !field.is_map();
        Field {
            place: format!("{}:{}", file.name(), field.full_name()),
            name: field.name().to_owned(),
            json_name: field.json_name().to_owned(),
            kind: field.kind(),
            is_group: field.is_group(),
            occurs: Occurs::of(field.cardinality(), field.is_map(), field.supports_presence()),
            in_map_entry: false,
            oneof: None,
            default: scalar.then(|| default(&field.kind(), field.default_value())).flatten(),
            jstype: jstype(field.field_descriptor_proto()),
            checked: file.syntax() == Syntax::Proto3,
        }
    }
}

fn jstype(field: &prost_types::FieldDescriptorProto) -> i32 {
    field.options.as_ref().map_or(0, |options| options.jstype() as i32)
}

pub(super) fn compare(before: &Field, after: &Field, breaks: &mut Vec<Break>) {
    // The file is the new one, the name the one that readers know.
    let file = after.place.split(':').next().unwrap_or_default();
    let place = format!("{file}:{}", before.place.split_once(':').map_or("", |(_, name)| name));
    let mut add = |rule: Rule, reason: String| breaks.push((rule, place.clone(), reason));
    cardinality(before, after, &mut add);
    types(before, after, &mut add);
    if before.name != after.name {
        add(Rule::FieldSameName, format!("the name was `{}` and is `{}`", before.name, after.name));
    }
    if before.json_name != after.json_name {
        add(
            Rule::FieldSameJsonName,
            format!("in JSON it was `{}` and is `{}`", before.json_name, after.json_name),
        );
    }
    if before.oneof != after.oneof {
        add(Rule::FieldSameOneof, "it moved into, out of or between oneofs".to_owned());
    }
    if let (Some(old), Some(new)) = (&before.default, &after.default)
        && !old.is(new)
        && !(old.is_zero() && new.is_zero())
    {
        add(Rule::FieldSameDefault, "the value of an absent field is another one".to_owned());
    }
    if wide(&before.kind) && wide(&after.kind) && before.jstype != after.jstype {
        add(Rule::FieldSameJstype, "the option jstype changed".to_owned());
    }
    if before.kind == Kind::String && after.kind == Kind::String && before.checked != after.checked
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
    fn of(cardinality: Cardinality, map: bool, presence: bool) -> Occurs {
        match cardinality {
            _ if map => Occurs::Map,
            Cardinality::Repeated => Occurs::Repeated,
            Cardinality::Required => Occurs::Required,
            Cardinality::Optional if presence => Occurs::Explicit,
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

fn cardinality(before: &Field, after: &Field, add: &mut impl FnMut(Rule, String)) {
    // The members of a map's entry are generated and cannot be written otherwise.
    if before.in_map_entry && after.in_map_entry {
        return;
    }
    let (old, new) = (before.occurs, after.occurs);
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

fn types(before: &Field, after: &Field, add: &mut impl FnMut(Rule, String)) {
    let (old, new) = (&before.kind, &after.kind);
    let reason = format!("the type was {} and is {}", name(old), name(new));
    let renamed = name(old) != name(new);
    if renamed || before.is_group != after.is_group {
        add(Rule::FieldSameType, reason.clone());
    }
    // An enum under another path is the same one where it has the same name and keeps every value.
    let moved = match (old, new) {
        (Kind::Enum(old), Kind::Enum(new)) => {
            renamed && !(old.name() == new.name() && keeps(old, new))
        }
        (Kind::Message(_), Kind::Message(_)) => renamed,
        _ => false,
    };
    if json_group(old) != json_group(new) || before.is_group != after.is_group || moved {
        add(Rule::FieldWireJsonCompatibleType, reason.clone());
    }
    let into_bytes = *old == Kind::String && *new == Kind::Bytes;
    let differs = wire_group(old) != wire_group(new) || before.is_group != after.is_group;
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

#[derive(Debug)]
enum Default {
    Text(Vec<u8>),
    /// Integers have up to 64 bits, more than a float can tell apart.
    Integer(i128),
    Float(f64),
}

impl Default {
    fn is_zero(&self) -> bool {
        match self {
            Default::Text(text) => text.is_empty(),
            Default::Integer(number) => *number == 0,
            Default::Float(number) => *number == 0.0,
        }
    }

    /// Whether both are the same value, whatever the types of their fields.
    fn is(&self, other: &Default) -> bool {
        match (self, other) {
            (Default::Text(a), Default::Text(b)) => a == b,
            (Default::Integer(a), Default::Integer(b)) => a == b,
            (Default::Float(a), Default::Float(b)) => a == b || (a.is_nan() && b.is_nan()),
            (Default::Integer(int), Default::Float(float))
            | (Default::Float(float), Default::Integer(int)) => {
                float.fract() == 0.0 && float.abs() < 1e30 && *float as i128 == *int
            }
            _ => false,
        }
    }
}

/// The value of an absent field, where the field has one.
fn default(kind: &Kind, value: Value) -> Option<Default> {
    if matches!(kind, Kind::Message(_)) {
        return None;
    }
    Some(match value {
        Value::String(text) => Default::Text(text.into_bytes()),
        Value::Bytes(bytes) => Default::Text(bytes.to_vec()),
        Value::Bool(one) => Default::Integer(one.into()),
        Value::I32(number) | Value::EnumNumber(number) => Default::Integer(number.into()),
        Value::U32(number) => Default::Integer(number.into()),
        Value::I64(number) => Default::Integer(number.into()),
        Value::U64(number) => Default::Integer(number.into()),
        Value::F32(number) => Default::Float(number.into()),
        Value::F64(number) => Default::Float(number),
        _ => return None,
    })
}
