//! Reading constraints out of the options of a descriptor.

use std::collections::BTreeMap;

use prost_reflect::{
    DynamicMessage, ExtensionDescriptor, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage,
    Value,
};
use regex::Regex;

use super::cel::Expression;
use super::{Bound, Cel, Check, FieldRules, Ignore, MessageRules, Number, Unsupported};

/// The rules of a message and of every message nested in it, by name.
pub(super) fn all(
    message: &MessageDescriptor,
) -> Result<BTreeMap<String, MessageRules>, Unsupported> {
    let pool = message.parent_pool();
    let extension = |name: &str| pool.get_extension_by_name(name);
    let Some(of_field) = extension("buf.validate.field") else { return Ok(BTreeMap::new()) };
    let (of_message, of_oneof) =
        (extension("buf.validate.message"), extension("buf.validate.oneof"));
    let mut found = BTreeMap::new();
    let mut open = vec![message.clone()];
    while let Some(message) = open.pop() {
        let name = message.full_name().to_owned();
        if found.contains_key(&name) {
            continue;
        }
        let mut rules = MessageRules::default();
        if let Some(options) = of_message.as_ref().and_then(|ext| set(&message.options(), ext)) {
            let at = Place { name: &name, holder: &Kind::Message(message.clone()) };
            rules.cel = at.message_rules(&options)?;
        }
        for oneof in message.oneofs() {
            if of_oneof.as_ref().is_some_and(|ext| oneof.options().has_extension(ext)) {
                return Err(unsupported(oneof.full_name(), "buf.validate.oneof"));
            }
        }
        for field in message.fields() {
            if let Some(options) = set(&field.options(), &of_field) {
                rules.fields.push(field_rules(&field, &options)?);
            }
            if let Kind::Message(inner) = field.kind() {
                open.push(inner);
            }
        }
        found.insert(name, rules);
    }
    Ok(found)
}

fn set(options: &DynamicMessage, extension: &ExtensionDescriptor) -> Option<DynamicMessage> {
    if !options.has_extension(extension) {
        return None;
    }
    options.get_extension(extension).as_message().cloned()
}

fn field_rules(
    field: &FieldDescriptor,
    options: &DynamicMessage,
) -> Result<FieldRules, Unsupported> {
    let at = Place { name: field.full_name(), holder: &field.kind() };
    let mut rules = FieldRules {
        field: field.clone(),
        required: false,
        ignore: Ignore::Absent,
        checks: Vec::new(),
    };
    for (option, value) in at.options(options)? {
        match (option.as_str(), &value) {
            ("required", Value::Bool(required)) => rules.required = *required,
            ("ignore", Value::EnumNumber(0)) => rules.ignore = Ignore::Absent,
            ("ignore", Value::EnumNumber(1)) => rules.ignore = Ignore::Zero,
            ("ignore", Value::EnumNumber(3)) => rules.ignore = Ignore::Always,
            _ => at.checks(&option, &value, field.is_list(), &mut rules.checks)?,
        }
    }
    Ok(rules)
}

/// The position of constraints, and what they apply to.
struct Place<'a> {
    name: &'a str,
    holder: &'a Kind,
}

impl Place<'_> {
    fn message_rules(&self, options: &DynamicMessage) -> Result<Vec<Cel>, Unsupported> {
        let mut cel = Vec::new();
        for (option, value) in self.options(options)? {
            match (option.as_str(), &value) {
                ("cel", Value::List(rules)) => {
                    for rule in rules {
                        cel.push(self.cel(rule)?);
                    }
                }
                _ => return Err(self.refuse(&option)),
            }
        }
        Ok(cel)
    }

    /// The constraints under one of the options of a field.
    fn checks(
        &self,
        option: &str,
        value: &Value,
        list: bool,
        checks: &mut Vec<Check>,
    ) -> Result<(), Unsupported> {
        match (option, value) {
            // An expression over a whole list needs more than field comparisons; not supported.
            ("cel", Value::List(rules)) if !list => {
                for rule in rules {
                    checks.push(Check::Cel(self.cel(rule)?));
                }
            }
            ("repeated", Value::Message(rules)) if list => {
                for (name, value) in self.options(rules)? {
                    checks.push(match (name.as_str(), &value) {
                        ("min_items", Value::U64(n)) => Check::MinItems(*n),
                        ("max_items", Value::U64(n)) => Check::MaxItems(*n),
                        ("items", Value::Message(items)) => Check::Items(self.items(items)?),
                        _ => return Err(self.refuse(&format!("repeated.{name}"))),
                    });
                }
            }
            (group, Value::Message(rules)) if !list && group == group_of(self.holder) => {
                for (name, value) in self.options(rules)? {
                    let check = self.check(group, &name, &value)?;
                    checks.extend(check);
                }
                self.refuse_reversed(checks)?;
            }
            _ => return Err(self.refuse(option)),
        }
        Ok(())
    }

    fn items(&self, rules: &DynamicMessage) -> Result<Vec<Check>, Unsupported> {
        let mut checks = Vec::new();
        for (option, value) in self.options(rules)? {
            self.checks(&option, &value, false, &mut checks)?;
        }
        Ok(checks)
    }

    fn check(&self, group: &str, name: &str, value: &Value) -> Result<Option<Check>, Unsupported> {
        let bound = match name {
            "lt" => Some(Bound::Lt),
            "lte" => Some(Bound::Lte),
            "gt" => Some(Bound::Gt),
            "gte" => Some(Bound::Gte),
            _ => None,
        };
        if let Some(bound) = bound.filter(|_| group != "string" && group != "enum")
            && let Some(limit) = Number::of(value)
        {
            return Ok(Some(Check::Bound(bound, limit)));
        }
        Ok(Some(match (group, name, value) {
            ("string", "min_len", Value::U64(n)) => Check::MinLen(*n),
            ("string", "max_len", Value::U64(n)) => Check::MaxLen(*n),
            ("string", "pattern", Value::String(text)) => match Regex::new(text) {
                Ok(pattern) => Check::Pattern(pattern),
                Err(_) => return Err(self.refuse(&format!("string.pattern {text:?}"))),
            },
            ("string", "uuid", Value::Bool(true)) => Check::Uuid,
            ("string", "email", Value::Bool(true)) => Check::Email,
            ("string", "uuid" | "email", Value::Bool(false)) => return Ok(None),
            ("enum", "defined_only", Value::Bool(true)) => match self.holder {
                Kind::Enum(known) => Check::DefinedOnly(known.clone()),
                _ => return Err(self.refuse("enum.defined_only")),
            },
            ("enum", "defined_only", Value::Bool(false)) => return Ok(None),
            ("enum", "in", Value::List(values)) => Check::In(numbers(values)),
            ("enum", "not_in", Value::List(values)) => Check::NotIn(numbers(values)),
            _ => return Err(self.refuse(&format!("{group}.{name}"))),
        }))
    }

    /// A lower bound above the upper one means the outside of a range, which is not supported.
    fn refuse_reversed(&self, checks: &[Check]) -> Result<(), Unsupported> {
        let limit = |lower: bool| {
            checks.iter().find_map(|check| match check {
                Check::Bound(bound, limit) if matches!(bound, Bound::Gt | Bound::Gte) == lower => {
                    Some(*limit)
                }
                _ => None,
            })
        };
        match (limit(true), limit(false)) {
            (Some(low), Some(high)) if low > high => Err(self.refuse("a reversed range")),
            _ => Ok(()),
        }
    }

    fn cel(&self, rule: &Value) -> Result<Cel, Unsupported> {
        let Some(rule) = rule.as_message() else { return Err(self.refuse("cel")) };
        let text = |name: &str| match rule.get_field_by_name(name).as_deref() {
            Some(Value::String(text)) => text.clone(),
            _ => String::new(),
        };
        let (id, source) = (text("id"), text("expression"));
        let expression = Expression::parse(&source, self.holder)
            .map_err(|why| self.refuse(&format!("cel {id:?}, {source:?}: {why}")))?;
        Ok(Cel { id, message: text("message"), expression })
    }

    /// The rules that are set; numbers without a name are rules of a newer `validate.proto`.
    fn options(&self, rules: &DynamicMessage) -> Result<Vec<(String, Value)>, Unsupported> {
        if let Some(unknown) = rules.unknown_fields().next() {
            let (rules, number) = (rules.descriptor(), unknown.number());
            return Err(self.refuse(&format!("number {number} of {}", rules.full_name())));
        }
        if rules.extensions().next().is_some() {
            return Err(self.refuse("a predefined rule"));
        }
        Ok(rules.fields().map(|(field, value)| (field.name().to_owned(), value.clone())).collect())
    }

    fn refuse(&self, constraint: &str) -> Unsupported {
        unsupported(self.name, constraint)
    }
}

fn unsupported(place: &str, constraint: &str) -> Unsupported {
    Unsupported { place: place.to_owned(), constraint: constraint.to_owned() }
}

fn numbers(values: &[Value]) -> Vec<i32> {
    values.iter().filter_map(Value::as_i32).collect()
}

/// The option that holds the rules of a kind of field.
fn group_of(kind: &Kind) -> &'static str {
    match kind {
        Kind::Float => "float",
        Kind::Double => "double",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::Uint32 => "uint32",
        Kind::Uint64 => "uint64",
        Kind::Sint32 => "sint32",
        Kind::Sint64 => "sint64",
        Kind::Fixed32 => "fixed32",
        Kind::Fixed64 => "fixed64",
        Kind::Sfixed32 => "sfixed32",
        Kind::Sfixed64 => "sfixed64",
        Kind::Bool => "bool",
        Kind::String => "string",
        Kind::Bytes => "bytes",
        Kind::Enum(_) => "enum",
        Kind::Message(message) if message.full_name() == super::TIMESTAMP => "timestamp",
        Kind::Message(_) => "",
    }
}
