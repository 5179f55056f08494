//! What can be said about every value that a conjunction of schemas accepts.
//!
//! Facts are an over-approximation: an unknown keyword is left out, so whatever follows from the
//! facts follows from the schemas. That makes them sound on the left of an inclusion and on both
//! sides of a disjointness.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};

use chapar_core::schema::resolve;
use serde_json::{Map, Value};

use crate::formats;
use crate::members::closed_names;
use crate::number::{Num, key};

/// A set of instance types; numbers with a fraction are distinguished from integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Types(pub(crate) u8);

impl Types {
    pub(crate) const NULL: Types = Types(1);
    pub(crate) const BOOLEAN: Types = Types(2);
    pub(crate) const INTEGER: Types = Types(4);
    pub(crate) const FRACTION: Types = Types(8);
    pub(crate) const STRING: Types = Types(16);
    pub(crate) const ARRAY: Types = Types(32);
    pub(crate) const OBJECT: Types = Types(64);
    pub(crate) const NUMBER: Types = Types(4 | 8);
    pub(crate) const ANY: Types = Types(127);
    const EACH: [Types; 7] = [
        Types::OBJECT,
        Types::STRING,
        Types::INTEGER,
        Types::FRACTION,
        Types::ARRAY,
        Types::BOOLEAN,
        Types::NULL,
    ];

    pub(crate) fn of(value: &Value) -> Types {
        match value {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::String(_) => Types::STRING,
            Value::Array(_) => Types::ARRAY,
            Value::Object(_) => Types::OBJECT,
            Value::Number(_) if Num::of(value).is_some_and(Num::is_integer) => Types::INTEGER,
            Value::Number(_) => Types::FRACTION,
        }
    }

    fn named(name: &str) -> Types {
        match name {
            "null" => Types::NULL,
            "boolean" => Types::BOOLEAN,
            "integer" => Types::INTEGER,
            "number" => Types::NUMBER,
            "string" => Types::STRING,
            "array" => Types::ARRAY,
            "object" => Types::OBJECT,
            _ => Types(0),
        }
    }

    /// The keyword `type`, a name or a list of names.
    pub(crate) fn keyword(value: &Value) -> Types {
        match value {
            Value::String(name) => Types::named(name),
            Value::Array(names) => Types(
                names
                    .iter()
                    .filter_map(Value::as_str)
                    .fold(0, |all, name| all | Types::named(name).0),
            ),
            _ => Types::ANY,
        }
    }

    pub(crate) fn has(self, other: Types) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn within(self, other: Types) -> bool {
        self.0 & !other.0 == 0
    }

    pub(crate) fn and(self, other: Types) -> Types {
        Types(self.0 & other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn each(self) -> impl Iterator<Item = Types> {
        Types::EACH.into_iter().filter(move |one| self.has(*one))
    }
}

impl std::fmt::Display for Types {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.within(Types(0)) {
            return f.write_str("nothing");
        }
        let mut names = Vec::new();
        for one in self.each() {
            names.push(match one {
                Types::NULL => "null",
                Types::BOOLEAN => "boolean",
                Types::STRING => "string",
                Types::ARRAY => "array",
                Types::OBJECT => "object",
                Types::INTEGER if self.has(Types::FRACTION) => "number",
                Types::INTEGER => "integer",
                _ if self.has(Types::INTEGER) => continue,
                _ => "number with a fraction",
            });
        }
        f.write_str(&names.join(" or "))
    }
}

/// A conjunction of schemas of one document, with the disjunctions in it that are already decided.
#[derive(Debug, Clone)]
pub(crate) struct Case<'a> {
    pub(crate) root: &'a Value,
    pub(crate) schemas: Vec<&'a Value>,
    taken: Vec<&'a Value>,
    /// Only values of these types.
    only: Types,
}

impl<'a> Case<'a> {
    pub(crate) fn new(root: &'a Value, schemas: Vec<&'a Value>) -> Case<'a> {
        Case { root, schemas, taken: Vec::new(), only: Types::ANY }
    }

    /// This case where `branch` of the disjunction `list` holds.
    pub(crate) fn taking(&self, list: &'a Value, branch: &'a Value) -> Case<'a> {
        let mut case = self.clone();
        case.schemas.push(branch);
        case.taken.push(list);
        case
    }

    /// Equal for cases of the same schemas, by where they stand in memory.
    pub(crate) fn identity(&self) -> Vec<usize> {
        let address = |schema: &&Value| std::ptr::from_ref::<Value>(schema).addr();
        let mut identity: Vec<usize> = self.schemas.iter().map(address).collect();
        identity.push(usize::from(self.only.0));
        identity.extend(self.taken.iter().map(address));
        identity
    }

    pub(crate) fn only(&self, types: Types) -> Case<'a> {
        Case { only: self.only.and(types), ..self.clone() }
    }
}

/// A bound and whether the bound itself is outside.
pub(crate) type Bound = (Num, bool);

#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) types: Types,
    /// The only values there can be, where they can be listed.
    pub(crate) values: Option<Vec<Value>>,
    pub(crate) low: Option<Bound>,
    pub(crate) high: Option<Bound>,
    pub(crate) multiples: Vec<Num>,
    pub(crate) length: (u64, Option<u64>),
    pub(crate) patterns: BTreeSet<&'a str>,
    pub(crate) formats: BTreeSet<&'static str>,
    pub(crate) items: (u64, Option<u64>),
    pub(crate) unique: bool,
    pub(crate) members: (u64, Option<u64>),
    pub(crate) required: BTreeSet<&'a str>,
    /// The only names there can be, where some part closes the object.
    pub(crate) closed: Option<BTreeSet<&'a str>>,
    /// Every schema object that applies here, references and `allOf` followed.
    pub(crate) parts: Vec<&'a Map<String, Value>>,
    /// The `anyOf` and `oneOf` lists that are still open.
    pub(crate) splits: Vec<&'a Value>,
    /// Something was left out for its depth.
    pub(crate) cut: bool,
}

impl<'a> Facts<'a> {
    pub(crate) fn of(case: &Case<'a>) -> Facts<'a> {
        let mut facts = Facts {
            types: case.only,
            values: None,
            low: None,
            high: None,
            multiples: Vec::new(),
            length: (0, None),
            patterns: BTreeSet::new(),
            formats: BTreeSet::new(),
            items: (0, None),
            unique: false,
            members: (0, None),
            required: BTreeSet::new(),
            closed: None,
            parts: Vec::new(),
            splits: Vec::new(),
            cut: false,
        };
        for schema in &case.schemas {
            facts.add(case, schema, 0);
        }
        for part in &facts.parts {
            if let Some(names) = closed_names(case.root, part) {
                facts.closed = Some(match facts.closed.take() {
                    Some(known) => known.intersection(&names).copied().collect(),
                    None => names,
                });
            }
        }
        facts.settle();
        facts
    }

    /// How many parts and names were read for them.
    pub(crate) fn weight(&self) -> u64 {
        let closed = self.closed.as_ref().map_or(0, BTreeSet::len);
        (self.parts.len() + self.required.len() + closed) as u64
    }

    /// No value satisfies these facts.
    pub(crate) fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    fn add(&mut self, case: &Case<'a>, schema: &'a Value, depth: usize) {
        let map = match schema {
            Value::Bool(false) => {
                self.types = Types(0);
                return;
            }
            Value::Object(map) => map,
            _ => return,
        };
        // Leaving out the rest of such a long chain weakens the facts; the right-hand side must
        // know about it.
        if depth > 256 {
            self.cut = true;
            return;
        }
        self.parts.push(map);
        self.scalars(map);
        if let Some(target) =
            map.get("$ref").and_then(Value::as_str).and_then(|to| resolve(case.root, to))
        {
            self.add(case, target, depth + 1);
        }
        for branch in map.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.add(case, branch, depth + 1);
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(list) = map.get(keyword)
                && !case.taken.iter().any(|taken| std::ptr::eq(*taken, list))
                && !self.splits.iter().any(|open| std::ptr::eq(*open, list))
            {
                self.splits.push(list);
            }
        }
    }

    fn scalars(&mut self, map: &'a Map<String, Value>) {
        if let Some(types) = map.get("type") {
            self.types = self.types.and(Types::keyword(types));
        }
        if let Some(value) = map.get("const") {
            self.narrow(std::slice::from_ref(value));
        }
        if let Some(values) = map.get("enum").and_then(Value::as_array) {
            self.narrow(values);
        }
        for (keyword, open) in [("minimum", false), ("exclusiveMinimum", true)] {
            if let Some(bound) = map.get(keyword).and_then(Num::of) {
                self.low = Some(tighter(self.low, (bound, open), Ordering::Greater));
            }
        }
        for (keyword, open) in [("maximum", false), ("exclusiveMaximum", true)] {
            if let Some(bound) = map.get(keyword).and_then(Num::of) {
                self.high = Some(tighter(self.high, (bound, open), Ordering::Less));
            }
        }
        self.multiples.extend(map.get("multipleOf").and_then(Num::of));
        sizes(&mut self.length, map, "minLength", "maxLength");
        sizes(&mut self.items, map, "minItems", "maxItems");
        sizes(&mut self.members, map, "minProperties", "maxProperties");
        self.patterns.extend(map.get("pattern").and_then(Value::as_str));
        self.formats.extend(formats::asserted(map));
        self.unique |= map.get("uniqueItems") == Some(&Value::Bool(true));
        self.required.extend(
            map.get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str),
        );
    }

    fn narrow(&mut self, values: &[Value]) {
        match &mut self.values {
            None => self.values = Some(values.to_vec()),
            Some(known) => {
                let values: HashSet<String> = values.iter().map(key).collect();
                known.retain(|known| values.contains(&key(known)));
            }
        }
    }

    /// Draws the conclusions that need every keyword at once.
    fn settle(&mut self) {
        if self.multiples.iter().any(|step| step.as_int().is_some()) {
            self.forbid(Types::FRACTION);
        }
        if self.types.has(Types::NUMBER) && !self.types.has(Types::FRACTION) {
            self.low = self.low.map(|bound| inward(bound, 1));
            self.high = self.high.map(|bound| inward(bound, -1));
        }
        if let (Some(low), Some(high)) = (self.low, self.high) {
            match low.0.compare(high.0) {
                Some(Ordering::Greater) => self.forbid(Types::NUMBER),
                Some(Ordering::Equal) if low.1 || high.1 => self.forbid(Types::NUMBER),
                _ => {}
            }
        }
        let empty = |(low, high): (u64, Option<u64>)| high.is_some_and(|high| high < low);
        for (sizes, types) in [
            (self.length, Types::STRING),
            (self.items, Types::ARRAY),
            (self.members, Types::OBJECT),
        ] {
            if empty(sizes) {
                self.forbid(types);
            }
        }
        if self.members.1.is_some_and(|most| (self.required.len() as u64) > most) {
            self.forbid(Types::OBJECT);
        }
        if self.values.is_none() && self.types.within(Types(Types::BOOLEAN.0 | Types::NULL.0)) {
            self.values = Some(vec![Value::Bool(true), Value::Bool(false), Value::Null]);
        }
        if let Some(values) = &mut self.values {
            values.retain(|value| Types::of(value).within(self.types));
            self.types = Types(values.iter().fold(0, |all, value| all | Types::of(value).0));
        }
    }

    fn forbid(&mut self, types: Types) {
        self.types = Types(self.types.0 & !types.0);
    }
}

fn tighter(known: Option<Bound>, new: Bound, wins: Ordering) -> Bound {
    match known {
        None => new,
        Some(known) => match new.0.compare(known.0) {
            Some(order) if order == wins => new,
            Some(Ordering::Equal) => (known.0, known.1 || new.1),
            _ => known,
        },
    }
}

/// The nearest integer inside a bound.
fn inward((bound, open): Bound, step: i128) -> Bound {
    match bound {
        Num::Int(int) if open => (Num::Int(int.saturating_add(step)), false),
        Num::Float(float) if float.abs() < 1e15 => {
            (Num::Int(if step > 0 { float.ceil() } else { float.floor() } as i128), false)
        }
        _ => (bound, open),
    }
}

fn sizes(known: &mut (u64, Option<u64>), map: &Map<String, Value>, least: &str, most: &str) {
    if let Some(least) = map.get(least).and_then(size) {
        known.0 = known.0.max(least);
    }
    if let Some(most) = map.get(most).and_then(size) {
        known.1 = Some(known.1.map_or(most, |known| known.min(most)));
    }
}

/// A count; JSON Schema allows 3.0 for 3.
pub(crate) fn size(value: &Value) -> Option<u64> {
    Num::of(value)?.as_int().and_then(|int| u64::try_from(int).ok())
}
