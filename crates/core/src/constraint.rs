//! The constraints of Protobuf fields, as `buf.validate` states them in the options.
//!
//! What is enforced: `required`, `ignore`; lengths, `pattern`, `uuid` and `email` of strings;
//! bounds of numbers and timestamps; `defined_only`, `in` and `not_in` of enums; how many items a
//! list has, and the rules of each; and `cel` as far as comparisons of fields go. Anything else
//! is [refused](Unsupported) by its name when the constraints are read, and never ignored.

mod cel;
mod read;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use prost_reflect::{
    DynamicMessage, EnumDescriptor, FieldDescriptor, MessageDescriptor, ReflectMessage, Value,
};
use regex::Regex;

use cel::Expression;

/// The constraints of a message and of all messages nested in it.
#[derive(Debug)]
pub struct Constraints {
    message: MessageDescriptor,
    /// By the full name of the message that they are declared in.
    rules: BTreeMap<String, MessageRules>,
}

/// A constraint that is not supported, and therefore refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{place}: the constraint {constraint} is not supported; remove it, or check it in the service"
)]
pub struct Unsupported {
    /// The field or message, by its full name.
    pub place: String,
    /// The constraint, as `buf.validate` calls it.
    pub constraint: String,
}

/// A value that breaks a constraint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct Broken {
    /// The field, such as `lines[2].amount`.
    pub path: String,
    /// What the constraint requires.
    pub reason: String,
}

#[derive(Debug, Default)]
struct MessageRules {
    fields: Vec<FieldRules>,
    cel: Vec<Cel>,
}

#[derive(Debug)]
struct FieldRules {
    field: FieldDescriptor,
    required: bool,
    ignore: Ignore,
    checks: Vec<Check>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ignore {
    /// Only for fields with presence that are not set.
    Absent,
    Zero,
    Always,
}

#[derive(Debug)]
enum Check {
    MinLen(u64),
    MaxLen(u64),
    Pattern(Regex),
    Uuid,
    Email,
    Bound(Bound, Number),
    DefinedOnly(EnumDescriptor),
    In(Vec<i32>),
    NotIn(Vec<i32>),
    MinItems(u64),
    MaxItems(u64),
    Items(Vec<Check>),
    Cel(Cel),
}

#[derive(Debug)]
struct Cel {
    id: String,
    message: String,
    expression: Expression,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    Lt,
    Lte,
    Gt,
    Gte,
}

/// A number or a time, compared with values of the same kind.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum Number {
    Int(i128),
    Float(f64),
    /// In nanoseconds since 1970.
    Time(i128),
}

impl Constraints {
    /// Reads the constraints of a message and of every message that it can hold.
    pub fn of(message: &MessageDescriptor) -> Result<Constraints, Unsupported> {
        Ok(Constraints { message: message.clone(), rules: read::all(message)? })
    }

    /// Checks a message on the wire. The error names the first field that is wrong.
    pub fn check(&self, body: &[u8]) -> Result<(), Broken> {
        let message = DynamicMessage::decode(self.message.clone(), body).map_err(|error| {
            let path = self.message.full_name().to_owned();
            Broken { path, reason: format!("it cannot be read: {error}") }
        })?;
        self.check_message(&message, "")
    }

    fn check_message(&self, message: &DynamicMessage, path: &str) -> Result<(), Broken> {
        let descriptor = message.descriptor();
        if let Some(rules) = self.rules.get(descriptor.full_name()) {
            for rules in &rules.fields {
                rules.check(message, path)?;
            }
            for cel in &rules.cel {
                let path = if path.is_empty() { descriptor.name() } else { path };
                cel.check(&Value::Message(message.clone()), path)?;
            }
        }
        for (field, value) in message.fields() {
            self.check_inside(value, &join(path, field.name()))?;
        }
        Ok(())
    }

    fn check_inside(&self, value: &Value, path: &str) -> Result<(), Broken> {
        match value {
            Value::Message(message) => self.check_message(message, path),
            Value::List(items) => {
                for (n, item) in items.iter().enumerate() {
                    self.check_inside(item, &format!("{path}[{n}]"))?;
                }
                Ok(())
            }
            Value::Map(entries) => {
                for (key, value) in entries {
                    self.check_inside(value, &format!("{path}[{key:?}]"))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl FieldRules {
    fn check(&self, message: &DynamicMessage, path: &str) -> Result<(), Broken> {
        if self.ignore == Ignore::Always {
            return Ok(());
        }
        let path = join(path, self.field.name());
        // Without presence, this says whether it is the zero value.
        let set = message.has_field(&self.field);
        if self.required && !set {
            return Err(Broken { path, reason: "it must be set".into() });
        }
        let skip = self.field.supports_presence() || self.ignore == Ignore::Zero;
        if !set && skip {
            return Ok(());
        }
        let value = message.get_field(&self.field);
        self.checks.iter().try_for_each(|check| check.check(&value, &path))
    }
}

impl Check {
    fn check(&self, value: &Value, path: &str) -> Result<(), Broken> {
        let reason = match (self, value) {
            (Check::MinLen(least), Value::String(text)) if length(text) < *least => {
                format!("it has {} characters, at least {least} are asked for", length(text))
            }
            (Check::MaxLen(most), Value::String(text)) if length(text) > *most => {
                format!("it has {} characters, at most {most} are allowed", length(text))
            }
            (Check::Pattern(pattern), Value::String(text)) if !pattern.is_match(text) => {
                format!("{text:?} does not match {:?}", pattern.as_str())
            }
            (Check::Uuid, Value::String(text)) if !is_uuid(text) => {
                format!("{text:?} is not a UUID")
            }
            (Check::Email, Value::String(text)) if !is_email(text) => {
                format!("{text:?} is not an e-mail address")
            }
            (Check::Bound(bound, limit), value) => match Number::of(value) {
                Some(number) if !bound.holds(number, *limit) => {
                    format!("{} is not {} {}", number.shown(), bound.shown(), limit.shown())
                }
                _ => return Ok(()),
            },
            (Check::DefinedOnly(known), Value::EnumNumber(n)) if known.get_value(*n).is_none() => {
                format!("{n} is not a value of {}", known.full_name())
            }
            (Check::In(allowed), Value::EnumNumber(n)) if !allowed.contains(n) => {
                format!("{n} is not one of {allowed:?}")
            }
            (Check::NotIn(forbidden), Value::EnumNumber(n)) if forbidden.contains(n) => {
                format!("{n} is not allowed")
            }
            (Check::MinItems(least), Value::List(items)) if (items.len() as u64) < *least => {
                format!("it has {} items, at least {least} are asked for", items.len())
            }
            (Check::MaxItems(most), Value::List(items)) if items.len() as u64 > *most => {
                format!("it has {} items, at most {most} are allowed", items.len())
            }
            (Check::Items(checks), Value::List(items)) => {
                for (n, item) in items.iter().enumerate() {
                    let path = format!("{path}[{n}]");
                    checks.iter().try_for_each(|check| check.check(item, &path))?;
                }
                return Ok(());
            }
            (Check::Cel(cel), value) => return cel.check(value, path),
            _ => return Ok(()),
        };
        Err(Broken { path: path.to_owned(), reason })
    }
}

impl Cel {
    fn check(&self, value: &Value, path: &str) -> Result<(), Broken> {
        if self.expression.holds(value) {
            return Ok(());
        }
        let reason = match self.message.as_str() {
            "" => format!("{} does not hold", self.expression.text()),
            message => message.to_owned(),
        };
        Err(Broken { path: path.to_owned(), reason: format!("{reason} ({})", self.id) })
    }
}

impl Bound {
    fn holds(self, number: Number, limit: Number) -> bool {
        // A value that cannot be compared, such as NaN, breaks every bound.
        let Some(order) = number.partial_cmp(&limit) else { return false };
        match self {
            Bound::Lt => order == Ordering::Less,
            Bound::Lte => order != Ordering::Greater,
            Bound::Gt => order == Ordering::Greater,
            Bound::Gte => order != Ordering::Less,
        }
    }

    fn shown(self) -> &'static str {
        match self {
            Bound::Lt => "less than",
            Bound::Lte => "at most",
            Bound::Gt => "greater than",
            Bound::Gte => "at least",
        }
    }
}

impl Number {
    fn of(value: &Value) -> Option<Number> {
        Some(match value {
            Value::I32(n) | Value::EnumNumber(n) => Number::Int((*n).into()),
            Value::I64(n) => Number::Int((*n).into()),
            Value::U32(n) => Number::Int((*n).into()),
            Value::U64(n) => Number::Int((*n).into()),
            Value::F32(n) => Number::Float((*n).into()),
            Value::F64(n) => Number::Float(*n),
            Value::Message(time) if time.descriptor().full_name() == TIMESTAMP => {
                let part = |name: &str| match time.get_field_by_name(name).as_deref() {
                    Some(Value::I64(n)) => i128::from(*n),
                    Some(Value::I32(n)) => i128::from(*n),
                    _ => 0,
                };
                Number::Time(part("seconds") * 1_000_000_000 + part("nanos"))
            }
            _ => return None,
        })
    }

    fn shown(self) -> String {
        match self {
            Number::Int(n) => n.to_string(),
            Number::Float(n) => n.to_string(),
            Number::Time(nanos) => jiff::Timestamp::from_nanosecond(nanos)
                .map_or_else(|_| format!("{nanos} ns"), |time| time.to_string()),
        }
    }
}

const TIMESTAMP: &str = "google.protobuf.Timestamp";

fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

fn length(text: &str) -> u64 {
    text.chars().count() as u64
}

/// The form with dashes, in either case.
fn is_uuid(text: &str) -> bool {
    text.len() == 36 && uuid::Uuid::try_parse(text).is_ok()
}

/// As in HTML: a local part of ordinary characters, and a host of labels.
fn is_email(text: &str) -> bool {
    let Some((name, host)) = text.split_once('@') else { return false };
    let ordinary = |b: u8| b.is_ascii_alphanumeric() || b".!#$%&'*+/=?^_`{|}~-".contains(&b);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    !name.is_empty() && name.bytes().all(ordinary) && host.split('.').all(label)
}
