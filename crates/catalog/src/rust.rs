//! Typed Rust payloads, generated from the schemas.
//!
//! Every event becomes a plain `serde` struct in the module of its service. A nested object or
//! enumeration becomes a type named after its field; the shape that most events share under a name
//! is declared once, at the top, and the others are prefixed with their event's name. Unknown
//! fields are ignored, as readers are open. What a plain type cannot express (`oneOf`, `allOf` and
//! the like) stays a `serde_json::Value`, which the registry validates.

mod names;
mod shape;

use std::collections::BTreeMap;
use std::fmt::Write;

use chapar_core::catalog::Event;
use serde_json::Value;

use crate::Loaded;
use names::{doc, field_name, type_name};
use shape::{Field, Shape, Type};

/// The line width of this repository's `rustfmt.toml`, and Rust's default.
const WIDTH: usize = 100;

/// The source file of a system's payloads. The output is deterministic.
pub fn source(loaded: &Loaded) -> String {
    let mut events: Vec<Payload<'_>> =
        loaded.catalog.events().filter_map(|event| Payload::of(event, loaded)).collect();
    events.sort_by(|a, b| a.event.subject.as_str().cmp(b.event.subject.as_str()));
    let shared = shared(&events);
    let mut out = format!(
        "//! The payloads of {}, generated from its schemas. Do not edit: change a schema and run\n\
         //! `chapar catalog rust`.\n\
         #![allow(missing_docs, reason = \"a schema need not describe everything\")]\n\n\
         use serde::{{Deserialize, Serialize}};\n",
        loaded.catalog.profile.name
    );
    out.push_str("\n/// Every subject.\npub const SUBJECTS: &[&str] = &[\n");
    for payload in &events {
        let _ = writeln!(out, "    {:?},", payload.event.subject.as_str());
    }
    out.push_str("];\n");
    let top = Scope { shared: &shared, indent: "", path: "" };
    for (name, shape) in &shared {
        top.declare(&mut out, name, shape);
        top.declare_inner(&mut out, name, shape);
    }
    let mut modules: BTreeMap<&str, Vec<&Payload<'_>>> = BTreeMap::new();
    for payload in &events {
        modules.entry(payload.event.subject.service()).or_default().push(payload);
    }
    for (service, payloads) in modules {
        let owner = &payloads[0].event.owner;
        let _ = write!(out, "\n/// What {owner} publishes.\npub mod {} {{\n", field_name(service));
        out.push_str("    use serde::{Deserialize, Serialize};\n");
        for payload in payloads {
            let module = Scope { shared: &shared, indent: "    ", path: "super::" };
            module.declare_event(&mut out, payload);
            module.declare_inner(&mut out, &payload.name, &payload.shape);
        }
        out.push_str("}\n");
    }
    round_trip(&mut out, &events);
    out
}

/// A function for the system's tests to try the types on examples by subject.
fn round_trip(out: &mut String, events: &[Payload<'_>]) {
    out.push_str(
        "\n#[cfg(test)]\npub(super) fn round_trip(\n    subject: &str,\n    \
         payload: serde_json::Value,\n) -> serde_json::Result<serde_json::Value> {\n    \
         fn through<T: Serialize + serde::de::DeserializeOwned>(\n        \
         payload: serde_json::Value,\n    ) -> serde_json::Result<serde_json::Value> {\n        \
         serde_json::to_value(serde_json::from_value::<T>(payload)?)\n    }\n    \
         match subject {\n",
    );
    for Payload { event, name, .. } in events {
        let subject = event.subject.as_str();
        let path = format!("{}::{name}", field_name(event.subject.service()));
        let arm = format!("        {subject:?} => through::<{path}>(payload),\n");
        if arm.trim_end().chars().count() <= WIDTH {
            out.push_str(&arm);
        } else {
            let _ = write!(
                out,
                "        {subject:?} => {{\n            through::<{path}>(payload)\n        }}\n"
            );
        }
    }
    out.push_str("        _ => Err(serde::de::Error::custom(\"no such subject\")),\n    }\n}\n");
}

/// An event with the type generated from its schema.
struct Payload<'a> {
    event: &'a Event,
    name: String,
    shape: Shape,
}

impl<'a> Payload<'a> {
    fn of(event: &'a Event, loaded: &Loaded) -> Option<Self> {
        let subject = &event.subject;
        let schema = loaded.schemas.get(subject.as_str())?.inlined();
        let rest = subject.event_type().split('.').skip_while(|part| *part != subject.service());
        let words: Vec<&str> = rest.skip(1).collect();
        let mut name = type_name(&words.join("_"));
        if subject.version() > 1 {
            let _ = write!(name, "V{}", subject.version());
        }
        let mut shape = Shape::of(&schema)?;
        // The envelope says whose it is; a payload that repeats it is checked against that.
        shape.leave_out(&loaded.catalog.profile.payload_tenant_fields);
        shape.doc = format!("{}\n\n`{subject}`", text(&schema, "description"));
        Some(Payload { event, name, shape })
    }
}

/// The shapes that get an unprefixed name: of those under a name, the one that most events share;
/// of equals the first.
fn shared(events: &[Payload<'_>]) -> BTreeMap<String, Shape> {
    let mut found: BTreeMap<String, Vec<(Shape, usize)>> = BTreeMap::new();
    for (field, shape) in events.iter().flat_map(|payload| payload.shape.inner()) {
        let shapes = found.entry(type_name(field)).or_default();
        match shapes.iter_mut().find(|(known, _)| known == shape) {
            Some((_, uses)) => *uses += 1,
            None => shapes.push((shape.clone(), 1)),
        }
    }
    let mut shared = BTreeMap::new();
    for (name, shapes) in found {
        let alone = shapes.len() == 1;
        let most = shapes.iter().map(|(_, uses)| *uses).max().unwrap_or(0);
        let first = shapes.into_iter().find(|(_, uses)| *uses == most);
        if let Some((shape, uses)) = first
            && (alone || uses > 1)
        {
            shared.insert(name, shape);
        }
    }
    shared
}

/// A scope for types: the top of the file, or the module of a service.
struct Scope<'a> {
    shared: &'a BTreeMap<String, Shape>,
    indent: &'static str,
    /// The path from here to the shared types.
    path: &'static str,
}

impl Scope<'_> {
    fn is_shared(&self, field: &str, shape: &Shape) -> bool {
        self.shared.get(&type_name(field)) == Some(shape)
    }

    /// The name of the shape in a field of a type.
    fn name(&self, holder: &str, field: &str, shape: &Shape) -> String {
        let name = type_name(field);
        let prefix = if self.is_shared(field, shape) { self.path } else { holder };
        format!("{prefix}{name}")
    }

    fn spell(&self, holder: &str, field: &str, kind: &Type) -> String {
        let inner = |kind| self.spell(holder, field, kind);
        match kind {
            Type::Text => "String".into(),
            Type::Integer => "i64".into(),
            Type::Number => "serde_json::Number".into(),
            Type::Flag => "bool".into(),
            Type::Date => "jiff::civil::Date".into(),
            Type::Time => "jiff::Timestamp".into(),
            Type::Any => "serde_json::Value".into(),
            Type::List(item) => format!("Vec<{}>", inner(item)),
            Type::Map(item) => format!("std::collections::BTreeMap<String, {}>", inner(item)),
            Type::Nullable(kind) => format!("Option<{}>", inner(kind)),
            Type::Named(shape) => self.name(holder, field, shape),
        }
    }

    /// Declares the unshared shapes in the fields of a type, at any depth.
    fn declare_inner(&self, out: &mut String, holder: &str, shape: &Shape) {
        for field in shape.fields() {
            if let Some(inner) = field.kind.named()
                && !self.is_shared(&field.name, inner)
            {
                let name = self.name(holder, &field.name, inner);
                self.declare(out, &name, inner);
                self.declare_inner(out, &name, inner);
            }
        }
    }

    /// Declares an event: its fields, its subject, and the aggregate that its ordering key names.
    fn declare_event(&self, out: &mut String, payload: &Payload<'_>) {
        let Payload { event, name, shape } = payload;
        let subject = event.subject.as_str();
        let key = event.key.as_ref();
        let key = key.and_then(|key| shape.fields().iter().find(|field| field.name == *key));
        let Some(key) = key else {
            // Without an ordering key nothing says which aggregate it is about.
            self.declare(out, name, shape);
            let _ = write!(
                out,
                "\n    impl {name} {{\n        /// The versioned subject.\n        \
                 pub const SUBJECT: &'static str = {subject:?};\n    }}\n"
            );
            return;
        };
        let mut words = event.subject.event_type().rsplit('.');
        let verb = words.next().unwrap_or_default();
        let aggregate = words.next().unwrap_or_default();
        if key.required && matches!(key.kind, Type::Text | Type::Integer | Type::Named(_)) {
            let id = &key.rust;
            let intent = match event.once {
                true => format!(", intent = \"{{{id}}}:{verb}\""),
                false => String::new(),
            };
            let options = format!("{subject:?}, aggregate = {aggregate:?}, id = {id}{intent}");
            let line = format!("    #[event({options})]");
            let attribute = match line.chars().count() <= WIDTH {
                true => line,
                false => format!(
                    "    #[event(\n        {}\n    )]",
                    options.replace(", ", ",\n        ")
                ),
            };
            return self.declare_as(out, name, shape, Some(&attribute));
        }
        self.declare(out, name, shape);
        wire(out, payload, key, aggregate, verb);
    }

    fn declare(&self, out: &mut String, name: &str, shape: &Shape) {
        self.declare_as(out, name, shape, None);
    }

    fn declare_as(&self, out: &mut String, name: &str, shape: &Shape, event: Option<&str>) {
        let indent = self.indent;
        out.push('\n');
        doc(out, indent, &shape.doc);
        if let Some(choices) = shape.choices() {
            return enumeration(out, indent, name, choices);
        }
        let derive = if event.is_some() { "chapar::Event, " } else { "" };
        let _ = writeln!(
            out,
            "{indent}#[derive(Debug, Clone, PartialEq, {derive}Serialize, Deserialize)]"
        );
        if let Some(event) = event {
            let _ = writeln!(out, "{event}");
        }
        // One attribute for all names, where one rule makes them all.
        let plain = |field: &Field| field.rust == field.name || is_raw(field);
        let camel = |field: &Field| camel_case(&field.rust) == field.name || is_raw(field);
        let rename_all = !shape.fields().iter().all(plain) && shape.fields().iter().all(camel);
        if rename_all {
            let _ = writeln!(out, "{indent}#[serde(rename_all = \"camelCase\")]");
        }
        let _ = writeln!(out, "{indent}pub struct {name} {{");
        let inside = format!("{indent}    ");
        for field in shape.fields() {
            let mut kind = self.spell(name, &field.name, &field.kind);
            doc(out, &inside, &field.doc);
            let rename = !rename_all && !plain(field);
            let rename = rename.then(|| format!("rename = {:?}", field.name));
            let optional =
                (!field.required).then(|| "skip_serializing_if = \"Option::is_none\"".into());
            let attributes: Vec<String> = rename.into_iter().chain(optional).collect();
            if !attributes.is_empty() {
                let _ = writeln!(out, "{inside}#[serde({})]", attributes.join(", "));
            }
            if !field.required && !matches!(field.kind, Type::Nullable(_)) {
                kind = format!("Option<{kind}>");
            }
            let _ = writeln!(out, "{inside}pub {}: {kind},", field.rust);
        }
        let _ = writeln!(out, "{indent}}}");
        if shape.fields().iter().any(|field| !field.required) {
            self.declare_required(out, name, shape);
        }
    }

    /// Declares what must be there by itself, so that a literal need not name what is optional,
    /// and one that forgets a required field does not compile.
    fn declare_required(&self, out: &mut String, name: &str, shape: &Shape) {
        let indent = self.indent;
        let _ = writeln!(
            out,
            "\n{indent}/// What a [`{name}`] must have; `.into()` makes one with nothing optional.\n\
             {indent}#[derive(Debug, Clone, PartialEq)]\n{indent}pub struct {name}Required {{"
        );
        let required = || shape.fields().iter().filter(|field| field.required);
        for field in required() {
            let kind = self.spell(name, &field.name, &field.kind);
            let _ = writeln!(out, "{indent}    pub {}: {kind},", field.rust);
        }
        let _ = write!(
            out,
            "{indent}}}\n\n{indent}impl std::convert::From<{name}Required> for {name} {{\n\
             {indent}    fn from(required: {name}Required) -> Self {{\n"
        );
        let fields = shape.fields().iter().map(|field| match field.required {
            true => format!("{0}: required.{0}", field.rust),
            false => format!("{}: None", field.rust),
        });
        list(out, &format!("{indent}        "), "Self {", fields, "}", true);
        let _ = write!(out, "{indent}    }}\n{indent}}}\n");
    }
}

/// Whether a field has its own name, which is a keyword.
fn is_raw(field: &Field) -> bool {
    field.rust == format!("r#{}", field.name)
}

/// As serde makes it.
fn camel_case(rust: &str) -> String {
    let mut camel = String::with_capacity(rust.len());
    let mut upper = false;
    for letter in rust.chars() {
        match letter {
            '_' => upper = true,
            letter if upper => {
                camel.extend(letter.to_uppercase());
                upper = false;
            }
            letter => camel.push(letter),
        }
    }
    camel
}

/// The event's wiring by hand, where its key is none that the derive macro takes.
fn wire(out: &mut String, payload: &Payload<'_>, key: &Field, aggregate: &str, verb: &str) {
    let (event, name) = (payload.event, &payload.name);
    let subject = event.subject.as_str();
    let id = match (&key.kind, key.required) {
        (Type::Text, _) => format!("self.{}.clone().unwrap_or_default()", key.rust),
        (_, true) => format!("self.{}.to_string()", key.rust),
        (_, false) => {
            format!("self.{}.as_ref().map(ToString::to_string).unwrap_or_default()", key.rust)
        }
    };
    let _ = write!(
        out,
        "\n    impl chapar::Event for {name} {{\n        \
         const SUBJECT: &'static str = {subject:?};\n        \
         const AGGREGATE: &'static str = {aggregate:?};\n\n        \
         fn aggregate_id(&self) -> String {{\n            {id}\n        }}\n"
    );
    if event.once {
        let _ = write!(
            out,
            "\n        fn intent(&self) -> Option<String> {{\n            \
             Some(format!(\"{{}}:{verb}\", self.aggregate_id()))\n        }}\n"
        );
    }
    out.push_str("    }\n");
}

fn enumeration(out: &mut String, indent: &str, name: &str, choices: &[(String, String)]) {
    let derives = "Debug, Clone, Copy, PartialEq, Eq, Hash, chapar::TextEnum";
    let _ = write!(out, "{indent}#[derive({derives})]\n{indent}pub enum {name} {{\n");
    for (variant, value) in choices {
        if snake_case(variant) != *value {
            let _ = writeln!(out, "{indent}    #[text({value:?})]");
        }
        let _ = writeln!(out, "{indent}    {variant},");
    }
    let _ = writeln!(out, "{indent}}}");
}

/// As `derive(TextEnum)` makes it.
fn snake_case(variant: &str) -> String {
    let mut snake = String::with_capacity(variant.len() + 4);
    for (index, letter) in variant.char_indices() {
        if letter.is_uppercase() && index > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// A list on one line if it fits, else with one item per line, as `rustfmt` formats it.
fn list(
    out: &mut String,
    indent: &str,
    open: &str,
    items: impl Iterator<Item = String>,
    close: &str,
    spaced: bool,
) {
    let items: Vec<String> = items.collect();
    let space = if spaced && !items.is_empty() { " " } else { "" };
    let line = format!("{indent}{open}{space}{}{space}{close}", items.join(", "));
    if line.chars().count() <= WIDTH {
        out.push_str(&line);
        out.push('\n');
        return;
    }
    let _ = writeln!(out, "{indent}{open}");
    for item in items {
        let _ = writeln!(out, "{indent}    {item},");
    }
    let _ = writeln!(out, "{indent}{close}");
}

fn text<'a>(schema: &'a Value, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}
