//! The right side's keywords about the members of objects and the items of arrays.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::facts::{Case, Facts};
use crate::include::Inclusion;
use crate::members;
use crate::obstacle::{At, Cause};
use crate::scalars;

impl<'a> Inclusion<'a> {
    pub(crate) fn object(
        &mut self,
        left: &Case<'a>,
        facts: &Facts<'a>,
        part: &'a Map<String, Value>,
        right: &'a Value,
        at: &At,
    ) -> bool {
        let mut holds = true;
        let names = part
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        for name in names.filter(|name| !facts.required.contains(name)) {
            holds = self.obstacle(left, right, at, Cause::Required(name.to_owned()));
        }
        let named = part.get("properties").and_then(Value::as_object);
        for (name, schema) in named.into_iter().flatten() {
            let member = members::member(left.root, facts, name);
            let at = at.member(name);
            if member.schemas.is_empty() && !scalars::is_trivial(schema) {
                holds &= self.anything(&member, schema, &at);
            } else {
                holds &= self.below(&member, schema, &at);
            }
        }
        holds &= self.patterns(left, facts, part, right, at);
        holds & self.others(left, facts, part, right, at)
    }

    /// A name that the left side neither declares nor forbids may hold anything.
    fn anything(&mut self, member: &Case<'a>, schema: &'a Value, at: &At) -> bool {
        let mark = self.obstacles.len();
        if self.below(member, schema, at) {
            return true;
        }
        self.obstacles.truncate(mark);
        self.obstacle(member, schema, at, Cause::OpenName)
    }

    fn patterns(
        &mut self,
        left: &Case<'a>,
        facts: &Facts<'a>,
        part: &'a Map<String, Value>,
        right: &'a Value,
        at: &At,
    ) -> bool {
        let mut holds = true;
        for (pattern, schema) in
            part.get("patternProperties").and_then(Value::as_object).into_iter().flatten()
        {
            let same: Vec<&Value> = facts
                .parts
                .iter()
                .filter_map(|part| part.get("patternProperties")?.get(pattern))
                .collect();
            let at_pattern = at.unnamed("patternProperties", pattern);
            holds &= if same.is_empty() {
                self.every_name(left, facts, &BTreeSet::new(), schema, right, at)
            } else {
                self.below(&Case::new(left.root, same), schema, &at_pattern)
            };
        }
        holds
    }

    /// `additionalProperties` and, where it can be told from the outside, `unevaluatedProperties`.
    fn others(
        &mut self,
        left: &Case<'a>,
        facts: &Facts<'a>,
        part: &'a Map<String, Value>,
        right: &'a Value,
        at: &At,
    ) -> bool {
        let mut holds = true;
        let own: BTreeSet<&str> = part
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(Map::keys)
            .map(String::as_str)
            .collect();
        if let Some(schema) = part.get("additionalProperties")
            && !scalars::is_trivial(schema)
        {
            holds &= self.every_name(left, facts, &own, schema, right, at);
        }
        if let Some(schema) = part.get("unevaluatedProperties")
            && !scalars::is_trivial(schema)
        {
            let applied = [
                "$ref",
                "allOf",
                "anyOf",
                "oneOf",
                "if",
                "dependentSchemas",
                "additionalProperties",
            ];
            if applied.iter().any(|keyword| part.contains_key(*keyword)) {
                holds &= self.opaque(left, facts, part, &["unevaluatedProperties"], right, at);
            } else {
                holds &= self.every_name(left, facts, &own, schema, right, at);
            }
        }
        holds
    }

    /// Every member outside `own` satisfies `schema`.
    fn every_name(
        &mut self,
        left: &Case<'a>,
        facts: &Facts<'a>,
        own: &BTreeSet<&str>,
        schema: &'a Value,
        right: &'a Value,
        at: &At,
    ) -> bool {
        let mark = self.obstacles.len();
        let names = members::declared(left.root, facts);
        let mut holds = facts.parts.iter().all(|part| {
            part.get("patternProperties").and_then(Value::as_object).is_none_or(Map::is_empty)
        }) || facts.closed.is_some();
        for name in names.iter().filter(|name| !own.contains(*name)) {
            holds = holds
                && self.below(&members::member(left.root, facts, name), schema, &at.member(name));
        }
        holds = holds && self.below(&members::undeclared(left.root, facts), schema, at);
        if !holds {
            self.obstacles.truncate(mark);
            self.obstacle(left, right, at, Cause::Extra);
        }
        holds
    }

    pub(crate) fn array(
        &mut self,
        left: &Case<'a>,
        facts: &Facts<'a>,
        part: &'a Map<String, Value>,
        right: &'a Value,
        at: &At,
    ) -> bool {
        let mut holds = true;
        let most =
            facts.items.1.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let prefix =
            part.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (index, schema) in prefix.iter().enumerate().take(most) {
            holds &= self.below(
                &members::item(left.root, facts, index),
                schema,
                &at.item("prefixItems", index),
            );
        }
        if let Some(schema) = part.get("items")
            && !scalars::is_trivial(schema)
        {
            let longest = members::prefix(facts).max(prefix.len());
            for index in prefix.len()..=longest {
                if index < most {
                    holds &= self.below(
                        &members::item(left.root, facts, index),
                        schema,
                        &at.item("items", index),
                    );
                }
            }
        }
        holds
            & self.opaque(left, facts, part, &["contains", "minContains", "maxContains"], right, at)
            & self.opaque(left, facts, part, &["unevaluatedItems"], right, at)
    }
}
