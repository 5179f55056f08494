//! Conversions to the previous version, tested on examples before they are released.

use chapar_core::catalog::{Mistake, Place, Rule};
use chapar_core::convert::Conversion;
use jsonschema::Validator;
use serde_json::Value;

use crate::json::escape;
use crate::{Loaded, Schema};

/// The most variants of one example.
const MOST_VARIANTS: usize = 1000;

impl Loaded {
    /// Converts every example, complete and without each optional field, and validates the result
    /// as an event of a producer of the older version.
    pub(crate) fn try_conversions(&mut self) {
        let mut mistakes = Vec::new();
        for event in self.catalog.events() {
            let Some(dual) = &event.dual_publish else { continue };
            let schema = |subject: &str| self.schemas.get(subject);
            let old = self.catalog.before(event).map(|old| &old.subject);
            let old = old.and_then(|old| Some((old, schema(old.as_str())?)));
            // What is missing is already reported as a mistake.
            if let (Some(new), Some((subject, old))) = (schema(event.subject.as_str()), old) {
                let trial = Trial { convert: &dual.convert, place: &dual.place, new };
                mistakes.extend(trial.run(subject.as_str(), old));
            }
        }
        self.mistakes.extend(mistakes);
    }
}

struct Trial<'a> {
    convert: &'a Conversion,
    place: &'a Place,
    new: &'a Schema,
}

impl Trial<'_> {
    fn run(&self, subject: &str, old: &Schema) -> Option<Mistake> {
        let (writer, reader) = (self.new.writer()?, old.writer()?);
        for (number, example) in self.new.examples().iter().enumerate() {
            let whole = (String::new(), example.clone());
            let variants = std::iter::once(whole).chain(variants(example)).take(MOST_VARIANTS);
            for (without, payload) in variants.filter(|(_, payload)| writer.is_valid(payload)) {
                let Some(why) = self.refused(&payload, &reader) else { continue };
                let example = match without.as_str() {
                    "" => format!("example {}", number + 1),
                    without => format!("example {} without {without}", number + 1),
                };
                let message = format!("converted, {example} is not {subject}: {why}");
                // One is enough: the others usually fail for the same reason.
                return Some(self.place.mistake(Rule::DualPublish, message));
            }
        }
        None
    }

    fn refused(&self, payload: &Value, old: &Validator) -> Option<String> {
        match self.convert.apply(payload) {
            Ok(converted) => {
                let error = old.iter_errors(&converted).next()?;
                let at = match error.instance_path().as_str() {
                    "" => "the payload",
                    pointer => pointer,
                };
                Some(format!("{at}: {error}"))
            }
            Err(error) => Some(error.to_string()),
        }
    }
}

/// The payload without each of its fields, one at a time.
fn variants(payload: &Value) -> Vec<(String, Value)> {
    let mut pointers = Vec::new();
    members(payload, &mut String::new(), &mut pointers);
    pointers.truncate(MOST_VARIANTS);
    let variant = |pointer: String| {
        let (parent, name) = pointer.rsplit_once('/')?;
        let name = name.replace("~1", "/").replace("~0", "~");
        let mut variant = payload.clone();
        variant.pointer_mut(parent)?.as_object_mut()?.remove(&name)?;
        Some((pointer, variant))
    };
    pointers.into_iter().filter_map(variant).collect()
}

fn members(value: &Value, at: &mut String, found: &mut Vec<String>) {
    let Value::Object(fields) = value else { return };
    for (name, field) in fields {
        let length = at.len();
        at.push('/');
        at.push_str(&escape(name));
        found.push(at.clone());
        members(field, at, found);
        at.truncate(length);
    }
}
