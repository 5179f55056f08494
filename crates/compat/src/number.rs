//! Numbers compared exactly: two bounds that differ beyond 2^53 are two bounds.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// A JSON number, an integer wherever it is one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Num {
    Int(i128),
    Float(f64),
}

/// Doubles at or above this are integers, and those below it convert without loss.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Num {
    pub(crate) fn of(value: &Value) -> Option<Num> {
        value.as_number().map(Num::from_number)
    }

    fn from_number(number: &Number) -> Num {
        if let Some(int) = number.as_i128() {
            return Num::Int(int);
        }
        let float = number.as_f64().unwrap_or(f64::NAN);
        if float.fract() == 0.0 && float.abs() < 1e30 {
            Num::Int(float as i128)
        } else {
            Num::Float(float)
        }
    }

    pub(crate) fn is_integer(self) -> bool {
        match self {
            Num::Int(_) => true,
            // A huge double has no fraction; it only does not fit the integer form.
            Num::Float(float) => float.is_finite() && float.fract() == 0.0,
        }
    }

    pub(crate) fn as_int(self) -> Option<i128> {
        match self {
            Num::Int(int) => Some(int),
            Num::Float(_) => None,
        }
    }

    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Num::Int(int) => int as f64,
            Num::Float(float) => float,
        }
    }

    pub(crate) fn compare(self, other: Num) -> Option<Ordering> {
        match (self, other) {
            (Num::Int(a), Num::Int(b)) => Some(a.cmp(&b)),
            (Num::Float(a), Num::Float(b)) => a.partial_cmp(&b),
            (Num::Int(a), Num::Float(b)) => int_against_float(a, b),
            (Num::Float(a), Num::Int(b)) => int_against_float(b, a).map(Ordering::reverse),
        }
    }

    pub(crate) fn json(self) -> Value {
        match self {
            Num::Int(int) => i64::try_from(int)
                .map(Value::from)
                .or_else(|_| u64::try_from(int).map(Value::from))
                .unwrap_or_else(|_| Value::from(int as f64)),
            Num::Float(float) => Value::from(float),
        }
    }
}

fn int_against_float(int: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float.abs() < EXACT {
        // The integer part decides; a tie is broken by the fraction.
        let whole = float.trunc() as i128;
        return Some(
            int.cmp(&whole)
                .then_with(|| 0.0_f64.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal)),
        );
    }
    (int as f64).partial_cmp(&float)
}

/// A text that is equal for values that are the [`same`], for use in a set.
pub(crate) fn key(value: &Value) -> String {
    let mut text = String::new();
    write_key(value, &mut text);
    text
}

fn write_key(value: &Value, out: &mut String) {
    match value {
        Value::Number(number) => match Num::from_number(number) {
            Num::Int(int) => out.push_str(&int.to_string()),
            // Integers beyond 128 bits and doubles of that size are compared as doubles.
            Num::Float(float) => out.push_str(&format!("{float:e}")),
        },
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_key(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut names: Vec<&String> = members.keys().collect();
            names.sort();
            out.push('{');
            for name in names {
                out.push_str(&Value::from(name.as_str()).to_string());
                out.push(':');
                write_key(&members[name], out);
                out.push(',');
            }
            out.push('}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// Equality as JSON Schema has it: 1 and 1.0 are the same value.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            Num::from_number(a).compare(Num::from_number(b)) == Some(Ordering::Equal)
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_beyond_doubles_stay_apart() {
        assert!(!same(&json!(9_007_199_254_740_993_u64), &json!(9_007_199_254_740_992_u64)));
    }

    #[test]
    fn one_and_one_point_zero_are_the_same_value() {
        assert!(same(&json!({ "a": [1] }), &json!({ "a": [1.0] })));
    }

    #[test]
    fn keys_are_equal_where_values_are_the_same() {
        let values = [
            json!(1),
            json!(1.0),
            json!(-0.0),
            json!(0),
            json!("1"),
            json!(1.5),
            json!(null),
            json!([1]),
            json!([1.0]),
            json!({ "a": 1, "b": 2 }),
            json!({ "b": 2.0, "a": 1 }),
            json!({ "a": [] }),
            json!(9_007_199_254_740_993_u64),
            json!(9_007_199_254_740_992_u64),
            json!(1e300),
        ];
        for a in &values {
            for b in &values {
                assert_eq!(key(a) == key(b), same(a, b), "{a} {b}");
            }
        }
    }

    #[test]
    fn a_fraction_decides_a_tie() {
        let half = Num::of(&json!(-1.5)).unwrap();
        assert_eq!(Num::Int(-1).compare(half), Some(Ordering::Greater));
        assert_eq!(Num::Int(-2).compare(half), Some(Ordering::Less));
    }
}
