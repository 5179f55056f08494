//! The Rust type of a schema.

use serde_json::{Map, Value};

use super::names::{distinct, field_name, variant_name};
use super::text;

/// A named type: a struct or an enum. Descriptions do not count for equality.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) doc: String,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Fields(Vec<Field>),
    /// The variant and its JSON text.
    Choices(Vec<(String, String)>),
}

#[derive(Debug, Clone)]
pub(super) struct Field {
    /// In the schema.
    pub(super) name: String,
    /// In Rust.
    pub(super) rust: String,
    pub(super) kind: Type,
    pub(super) required: bool,
    pub(super) doc: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Type {
    Text,
    Integer,
    Number,
    Flag,
    Date,
    Time,
    /// Any value that the schema accepts.
    Any,
    List(Box<Type>),
    Map(Box<Type>),
    Nullable(Box<Type>),
    Named(Shape),
}

/// Keywords that a field of a plain type cannot express.
const BEYOND: [&str; 9] =
    ["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "const"];

impl PartialEq for Shape {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl PartialEq for Field {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.kind, self.required) == (&other.name, &other.kind, other.required)
    }
}

impl Shape {
    /// The shape of an object with declared fields.
    pub(super) fn of(schema: &Value) -> Option<Shape> {
        let properties = schema.get("properties")?.as_object()?;
        let required: Vec<&str> = match schema.get("required").and_then(Value::as_array) {
            Some(names) => names.iter().filter_map(Value::as_str).collect(),
            None => Vec::new(),
        };
        let names = distinct(properties.keys().map(|name| field_name(name)));
        let fields = properties.iter().zip(names).map(|((name, schema), rust)| Field {
            name: name.clone(),
            rust,
            kind: Type::of(schema),
            required: required.contains(&name.as_str()),
            doc: describe(schema),
        });
        let mut fields: Vec<Field> = fields.collect();
        // Required fields come first, in the order in which the schema requires them.
        let place = |field: &Field| {
            required.iter().position(|name| *name == field.name).unwrap_or(usize::MAX)
        };
        fields.sort_by_key(place);
        Some(Shape { doc: text(schema, "description").to_owned(), kind: Kind::Fields(fields) })
    }

    fn of_choices(schema: &Value) -> Option<Shape> {
        let values = schema.get("enum")?.as_array()?;
        let values: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
        let values = values.filter(|values| !values.is_empty())?;
        let variants = distinct(values.iter().map(|value| variant_name(value)));
        let choices = variants.into_iter().zip(values.iter().map(|&value| value.to_owned()));
        let doc = text(schema, "description").to_owned();
        Some(Shape { doc, kind: Kind::Choices(choices.collect()) })
    }

    /// Leaves fields out that no program needs to set or read.
    pub(super) fn leave_out(&mut self, names: &[String]) {
        if let Kind::Fields(fields) = &mut self.kind {
            fields.retain(|field| field.required || !names.contains(&field.name));
        }
    }

    pub(super) fn fields(&self) -> &[Field] {
        match &self.kind {
            Kind::Fields(fields) => fields,
            Kind::Choices(_) => &[],
        }
    }

    pub(super) fn choices(&self) -> Option<&[(String, String)]> {
        match &self.kind {
            Kind::Fields(_) => None,
            Kind::Choices(choices) => Some(choices),
        }
    }

    /// The named shapes below, each with its field, at any depth.
    pub(super) fn inner(&self) -> Vec<(&str, &Shape)> {
        let mut found: Vec<(&str, &Shape)> = Vec::new();
        for field in self.fields() {
            let Some(shape) = field.kind.named() else { continue };
            found.push((field.name.as_str(), shape));
            found.extend(shape.inner());
        }
        found
    }
}

impl Type {
    fn of(schema: &Value) -> Type {
        let Some(fields) = schema.as_object() else { return Type::Any };
        if BEYOND.iter().any(|keyword| fields.contains_key(*keyword)) {
            return Type::Any;
        }
        match fields.get("type") {
            Some(Value::String(kind)) => Type::plain(kind, schema, fields),
            Some(Value::Array(kinds)) => match kinds.as_slice() {
                [Value::String(kind), Value::String(null)] if null == "null" => {
                    Type::Nullable(Box::new(Type::plain(kind, schema, fields)))
                }
                [Value::String(null), Value::String(kind)] if null == "null" => {
                    Type::Nullable(Box::new(Type::plain(kind, schema, fields)))
                }
                _ => Type::Any,
            },
            _ => Type::Any,
        }
    }

    fn plain(kind: &str, schema: &Value, fields: &Map<String, Value>) -> Type {
        match kind {
            "string" if fields.contains_key("enum") => {
                Shape::of_choices(schema).map_or(Type::Any, Type::Named)
            }
            // Enumerations of numbers and the like are left to the registry.
            _ if fields.contains_key("enum") => Type::Any,
            "string" => match text(schema, "format") {
                "date" => Type::Date,
                "date-time" => Type::Time,
                _ => Type::Text,
            },
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Flag,
            "array" if fields.contains_key("prefixItems") => Type::List(Box::new(Type::Any)),
            "array" => Type::List(Box::new(fields.get("items").map_or(Type::Any, Type::of))),
            "object" if fields.contains_key("patternProperties") => Type::Any,
            "object" => match (Shape::of(schema), fields.get("additionalProperties")) {
                (Some(shape), None | Some(Value::Bool(false))) => Type::Named(shape),
                (Some(_), Some(_)) => Type::Any,
                (None, Some(item @ Value::Object(_))) => Type::Map(Box::new(Type::of(item))),
                (None, _) => Type::Map(Box::new(Type::Any)),
            },
            _ => Type::Any,
        }
    }

    pub(super) fn named(&self) -> Option<&Shape> {
        match self {
            Type::Named(shape) => Some(shape),
            Type::List(inner) | Type::Map(inner) | Type::Nullable(inner) => inner.named(),
            _ => None,
        }
    }
}

fn describe(schema: &Value) -> String {
    let mut doc = text(schema, "description").to_owned();
    if Type::of(schema) == Type::Any {
        let hint = "No plain type says what the schema says; the registry checks it.";
        doc = if doc.is_empty() { hint.to_owned() } else { format!("{doc} {hint}") };
    }
    doc
}
