//! Down-conversion: converting an event of a new version to the previous version.
//!
//! While a producer publishes both, readers of the old version get events they understand. The
//! conversion is data, so that a catalog can declare it, a check can run it on every example, and
//! every runtime does the same.
//!
//! ```
//! use chapar_core::convert::Conversion;
//! use serde_json::json;
//!
//! let conversion: Conversion = serde_json::from_value(json!([
//!     { "move": "/stay/nights", "to": "/nights" },
//!     { "drop": "/stay" },
//!     { "default": "/channel", "value": "web" },
//! ]))?;
//! let old = conversion.apply(&json!({ "id": "res_1", "stay": { "nights": 2 } }))?;
//! assert_eq!(old, json!({ "id": "res_1", "nights": 2, "channel": "web" }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The metadata key that names, on an event of an old version, the event of the new version that it
/// was made from. A consumer treats both as one fact.
pub const DUAL_PUBLISH_OF: &str = "dualPublishOf";

/// The steps from one version to the previous one, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Conversion {
    /// The steps.
    pub steps: Vec<Rewrite>,
}

/// One step. Positions are JSON pointers through objects.
///
/// A step on a missing field does nothing, except that `default` and `constant` add it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
#[allow(missing_docs, reason = "the fields are the words of the catalog's files")]
pub enum Rewrite {
    /// Renames a field within its object.
    Rename { rename: String, to: String },
    /// Moves a field to another position.
    Move {
        #[serde(rename = "move")]
        from: String,
        to: String,
    },
    /// Removes a field.
    Drop { drop: String },
    /// Sets a field that is missing.
    Default { default: String, value: Value },
    /// Sets a field to a fixed value.
    Constant { constant: String, value: Value },
}

/// Why an event cannot be expressed in the previous version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at} cannot be written: {before} is not an object")]
pub struct ConvertError {
    /// The position to be written.
    pub at: String,
    /// The value in the way, which is not an object.
    pub before: String,
}

impl Conversion {
    /// The payload in the previous version.
    pub fn apply(&self, payload: &Value) -> Result<Value, ConvertError> {
        let mut payload = payload.clone();
        for step in &self.steps {
            step.apply(&mut payload)?;
        }
        Ok(payload)
    }
}

impl Rewrite {
    fn apply(&self, payload: &mut Value) -> Result<(), ConvertError> {
        match self {
            Rewrite::Rename { rename, to } => {
                let parent = rename.rsplit_once('/').map_or("", |(parent, _)| parent);
                let name = to.replace('~', "~0").replace('/', "~1");
                shift(payload, rename, &format!("{parent}/{name}"))
            }
            Rewrite::Move { from, to } => shift(payload, from, to),
            Rewrite::Drop { drop } => {
                take(payload, drop);
                Ok(())
            }
            Rewrite::Default { default, .. } if payload.pointer(default).is_some() => Ok(()),
            Rewrite::Default { default: at, value } | Rewrite::Constant { constant: at, value } => {
                put(payload, at, value.clone())
            }
        }
    }

    /// The positions it refers to, so that a caller can check their spelling.
    pub fn pointers(&self) -> Vec<&str> {
        match self {
            Rewrite::Rename { rename, .. } => vec![rename],
            Rewrite::Move { from, to } => vec![from, to],
            Rewrite::Drop { drop } => vec![drop],
            Rewrite::Default { default: at, .. } | Rewrite::Constant { constant: at, .. } => {
                vec![at]
            }
        }
    }
}

fn shift(payload: &mut Value, from: &str, to: &str) -> Result<(), ConvertError> {
    match take(payload, from) {
        Some(value) => put(payload, to, value),
        None => Ok(()),
    }
}

fn take(payload: &mut Value, at: &str) -> Option<Value> {
    let (parent, name) = at.rsplit_once('/')?;
    payload.pointer_mut(parent)?.as_object_mut()?.remove(&plain(name))
}

/// Sets a value, and creates the objects around it where they are missing.
fn put(payload: &mut Value, at: &str, value: Value) -> Result<(), ConvertError> {
    let mut names: Vec<String> = at.split('/').skip(1).map(plain).collect();
    let last = names.pop().unwrap_or_default();
    let mut place = payload;
    let mut before = String::new();
    for name in &names {
        let Value::Object(fields) = place else {
            return Err(ConvertError { at: at.to_owned(), before: shown(&before) });
        };
        before = format!("{before}/{name}");
        place = fields.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()));
    }
    let Value::Object(fields) = place else {
        return Err(ConvertError { at: at.to_owned(), before: shown(&before) });
    };
    fields.insert(last, value);
    Ok(())
}

fn plain(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}

fn shown(pointer: &str) -> String {
    if pointer.is_empty() { "the payload".to_owned() } else { pointer.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn steps_go_in_order_and_pass_over_what_is_not_there() {
        let steps = json!([
            { "rename": "/a/b~1c", "to": "d/e" },
            { "move": "/a/d~1e", "to": "/x/y/z" },
            { "move": "/nothing", "to": "/x" },
            { "drop": "/a" },
            { "drop": "/nothing/at/all" },
            { "default": "/n", "value": 1 },
            { "default": "/m", "value": [1] },
            { "constant": "/s", "value": "always" },
        ]);
        let conversion: Conversion = serde_json::from_value(steps.clone()).unwrap();
        assert_eq!(serde_json::to_value(&conversion).unwrap(), steps, "as it was written");
        let new = json!({ "a": { "b/c": 7 }, "n": 0, "s": "once" });
        let old = json!({ "x": { "y": { "z": 7 } }, "n": 0, "m": [1], "s": "always" });
        assert_eq!(conversion.apply(&new).unwrap(), old);
    }

    #[test]
    fn what_stands_in_the_way_is_named() {
        let put = |at: &str| {
            let steps = vec![Rewrite::Constant { constant: at.to_owned(), value: json!(1) }];
            Conversion { steps }.apply(&json!({ "a": 1 })).unwrap_err().to_string()
        };
        assert_eq!(put("/a/b"), "/a/b cannot be written: /a is not an object");
        let steps = vec![Rewrite::Constant { constant: "/a".to_owned(), value: json!(1) }];
        let error = Conversion { steps }.apply(&json!(1)).unwrap_err();
        assert!(error.to_string().contains("the payload is not an object"), "{error}");
    }
}
