//! The proof: whether every value that the left side accepts is accepted by the right side.
//!
//! The left side is a [`Case`], a conjunction whose facts over-approximate it; the right side is
//! split keyword by keyword, and each keyword must follow from the facts. What does not follow is
//! an [`Obstacle`], for which another module searches a counterexample: this module only proves.

use std::collections::HashMap;

use chapar_core::schema::escaped;
use serde_json::{Map, Value};

use crate::accepts::{Lists, accepts};
use crate::disjoint::{disjoint, same_schema};
use crate::facts::{Case, Facts, Types};
use crate::members::NEVER;
use crate::obstacle::{At, Cause, Obstacle, cause_of};
use crate::scalars;

/// Steps before the differ gives up; a schema of 500 properties takes a few thousand.
pub const BUDGET: u64 = 50_000;

/// Schemas inside schemas that are followed; a payload is not that deep.
const DEEPEST: usize = 64;

/// Listed values that are refused at one place and kept as examples of it.
const MOST_REFUSED: usize = 256;

pub(crate) struct Inclusion<'a> {
    pub(crate) obstacles: Vec<Obstacle<'a>>,
    /// Where in `obstacles` a place and a cause stand. Entries of obstacles that were taken back
    /// are recognised by what stands there now.
    known: HashMap<(String, Cause), usize>,
    lists: Lists,
    pub(crate) spent: u64,
    right: &'a Value,
    /// Right-hand schemas that contain the one at hand; meeting one again is recursion.
    above: Vec<&'a Value>,
    depth: usize,
}

impl<'a> Inclusion<'a> {
    pub(crate) fn of(left: &'a Value, right: &'a Value) -> Inclusion<'a> {
        let mut inclusion = Inclusion {
            obstacles: Vec::new(),
            known: HashMap::new(),
            lists: Lists::default(),
            spent: 0,
            right,
            above: Vec::new(),
            depth: 0,
        };
        inclusion.check(&Case::new(left, vec![left]), right, &At::default());
        inclusion
    }

    /// Whether it holds; where it does not, obstacles are added.
    fn check(&mut self, left: &Case<'a>, right: &'a Value, at: &At) -> bool {
        self.spent += 1;
        if self.spent > BUDGET || self.depth > DEEPEST {
            return self.obstacle(left, right, at, Cause::Budget);
        }
        if matches!(right, Value::Bool(true))
            || left.schemas.iter().any(|one| same_schema(left.root, one, self.right, right))
        {
            return true;
        }
        let facts = Facts::of(left);
        self.spent += facts.parts.len() as u64;
        if facts.is_empty() {
            return true;
        }
        if right == &NEVER {
            return self.obstacle(left, right, at, Cause::Never);
        }
        self.depth += 1;
        let holds = match &facts.values {
            Some(values) => self.finite(left, values, right, at),
            None => self.infinite(left, &facts, right, at),
        };
        self.depth -= 1;
        holds
    }

    fn finite(&mut self, left: &Case<'a>, values: &[Value], right: &'a Value, at: &At) -> bool {
        let mut holds = true;
        let mut facts = None;
        let mut refused = 0;
        for value in values {
            self.spent += 1;
            let no = |one: &&Value| accepts(&self.lists, left.root, one, value) == Some(false);
            if left.schemas.iter().any(no)
                || accepts(&self.lists, self.right, right, value) == Some(true)
            {
                continue;
            }
            refused += 1;
            // More of the same would not be shown.
            if refused > MOST_REFUSED {
                break;
            }
            let facts = facts.get_or_insert_with(|| Facts::of(&Case::new(self.right, vec![right])));
            let cause = cause_of(value, facts);
            holds = self.obstacle(left, right, at, cause);
            if let Some(obstacle) = self.obstacles.last_mut() {
                obstacle.hints.push(value.clone());
            }
        }
        holds
    }

    fn infinite(&mut self, left: &Case<'a>, facts: &Facts<'a>, right: &'a Value, at: &At) -> bool {
        let mark = self.obstacles.len();
        if self.whole(left, facts, right, at) {
            return true;
        }
        let cases: Vec<Case<'a>> = match facts.splits.iter().find(|list| list.is_array()) {
            Some(list) => list
                .as_array()
                .into_iter()
                .flatten()
                .map(|branch| left.taking(list, branch))
                .collect(),
            None if facts.types.each().count() > 1 && self.branches(right) => {
                facts.types.each().map(|one| left.only(one)).collect()
            }
            None => return false,
        };
        // Case by case it may hold where it does not hold at once.
        self.obstacles.truncate(mark);
        let mut holds = true;
        for case in &cases {
            holds &= self.check(case, right, at);
        }
        holds
    }

    fn branches(&self, right: &'a Value) -> bool {
        let facts = Facts::of(&Case::new(self.right, vec![right]));
        !facts.splits.is_empty() || facts.parts.iter().any(|part| part.contains_key("not"))
    }

    fn whole(&mut self, left: &Case<'a>, facts: &Facts<'a>, right: &'a Value, at: &At) -> bool {
        let parts = Facts::of(&Case::new(self.right, vec![right]));
        if parts.cut {
            return self.obstacle(left, right, at, Cause::Budget);
        }
        self.spent += parts.parts.len() as u64;
        let mut holds = true;
        for part in &parts.parts {
            for cause in scalars::missing(facts, part) {
                holds = self.obstacle(left, right, at, cause);
            }
            if facts.types.has(Types::OBJECT) {
                holds &= self.object(left, facts, part, right, at);
            }
            if facts.types.has(Types::ARRAY) {
                holds &= self.array(left, facts, part, right, at);
            }
            holds &= self.combined(left, facts, part, right, at);
        }
        holds
    }

    fn combined(
        &mut self,
        left: &Case<'a>,
        facts: &Facts<'a>,
        part: &'a Map<String, Value>,
        right: &'a Value,
        at: &At,
    ) -> bool {
        let mut holds = true;
        for keyword in ["anyOf", "oneOf"] {
            let Some(list) = part.get(keyword).and_then(Value::as_array) else { continue };
            if !self.kept(left, facts, part, &[keyword])
                && !self.one_of_them(left, list, keyword == "oneOf", at)
            {
                holds = self.obstacle(left, right, at, Cause::Alternatives);
            }
        }
        if let Some(schema) = part.get("not")
            && !self.kept(left, facts, part, &["not"])
            && !disjoint(left, &Case::new(self.right, vec![schema]), &mut self.spent)
        {
            holds = self.obstacle(left, right, at, Cause::Alternatives);
        }
        holds &= self.opaque(left, facts, part, &["if", "then", "else"], right, at);
        if facts.types.has(Types::OBJECT) {
            for keyword in ["dependentRequired", "dependentSchemas", "propertyNames"] {
                holds &= self.opaque(left, facts, part, &[keyword], right, at);
            }
        }
        holds
    }

    fn one_of_them(&mut self, left: &Case<'a>, list: &'a [Value], exactly: bool, at: &At) -> bool {
        for (index, branch) in list.iter().enumerate() {
            if self.spent > BUDGET {
                return false;
            }
            let mark = self.obstacles.len();
            let holds = self.check(left, branch, at);
            self.obstacles.truncate(mark);
            if holds {
                return !exactly
                    || list.iter().enumerate().all(|(other, branch)| {
                        other == index
                            || disjoint(left, &Case::new(self.right, vec![branch]), &mut self.spent)
                    });
            }
        }
        false
    }

    /// A keyword group that is not taken apart follows only from the same group on the left.
    pub(crate) fn opaque(
        &mut self,
        left: &Case<'a>,
        facts: &Facts<'a>,
        part: &'a Map<String, Value>,
        group: &[&'static str],
        right: &'a Value,
        at: &At,
    ) -> bool {
        if !part.contains_key(group[0]) || self.kept(left, facts, part, group) {
            return true;
        }
        self.obstacle(left, right, at, Cause::Undecided(group[0]))
    }

    /// Whether some part on the left has exactly this group.
    fn kept(
        &self,
        left: &Case<'a>,
        facts: &Facts<'a>,
        part: &'a Map<String, Value>,
        group: &[&str],
    ) -> bool {
        // What counts as evaluated hangs on everything else in the part.
        let local = !group[0].starts_with("unevaluated");
        local
            && facts.parts.iter().any(|mine| {
                group.iter().all(|keyword| match (mine.get(*keyword), part.get(*keyword)) {
                    (None, None) => true,
                    (Some(mine), Some(theirs)) => same_schema(left.root, mine, self.right, theirs),
                    _ => false,
                })
            })
    }

    /// One step into the instance.
    pub(crate) fn below(&mut self, left: &Case<'a>, right: &'a Value, at: &At) -> bool {
        if self.above.iter().any(|above| std::ptr::eq(*above, right)) {
            let same =
                left.schemas.iter().any(|one| same_schema(left.root, one, self.right, right));
            return same || self.obstacle(left, right, at, Cause::Recursive);
        }
        self.above.push(right);
        let holds = self.check(left, right, at);
        self.above.pop();
        holds
    }

    pub(crate) fn obstacle(
        &mut self,
        left: &Case<'a>,
        right: &'a Value,
        at: &At,
        cause: Cause,
    ) -> bool {
        let key = (at.pointer.clone(), cause);
        let known = self.known.get(&key).and_then(|index| self.obstacles.get_mut(*index));
        match known.filter(|known| known.cause == key.1 && known.at.pointer == key.0) {
            // Another case of the same obstacle may still be the one that shows it.
            Some(known) if known.cases.len() < 16 => known.cases.push((left.clone(), right)),
            Some(_) => {}
            None => {
                let obstacle = Obstacle::new(left.clone(), right, at.clone(), key.1.clone());
                self.known.insert(key, self.obstacles.len());
                self.obstacles.push(obstacle);
            }
        }
        false
    }
}

impl At {
    pub(crate) fn member(&self, name: &str) -> At {
        let mut at = self.clone();
        at.pointer.push_str(&format!("/properties/{}", escaped(name)));
        at.path.push(crate::obstacle::Step::Member(name.to_owned()));
        at
    }

    pub(crate) fn item(&self, keyword: &str, index: usize) -> At {
        let mut at = self.clone();
        at.pointer.push_str(&if keyword == "items" {
            "/items".to_owned()
        } else {
            format!("/{keyword}/{index}")
        });
        at.path.push(crate::obstacle::Step::Item(index));
        at
    }

    pub(crate) fn unnamed(&self, keyword: &str, name: &str) -> At {
        let mut at = self.clone();
        at.pointer.push_str(&format!("/{keyword}/{}", escaped(name)));
        // Some name that the pattern matches is looked for where an instance is built.
        at.path.push(crate::obstacle::Step::Matching(name.to_owned()));
        at
    }
}
