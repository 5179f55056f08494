//! Random pairs of schemas: what is called compatible is never refuted by an event, and what is called breaking
//! always is.

use fastrand::Rng;
use jsonschema::Validator;
use serde_json::{Map, Value, json};

use crate::differ::Sides;
use crate::{Direction, Kind, Request, Schema, Verdict, Writers, diff};

const PAIRS: u64 = 1_000;

#[test]
fn a_verdict_is_never_refuted_by_random_events() {
    let mut counts = [0_u32; 3];
    for seed in 0..PAIRS {
        let mut rng = Rng::with_seed(seed);
        let (old, new) = pair(&mut rng);
        for writers in [Writers::Declared, Writers::Any] {
            let report = ask(&old, &new, writers);
            counts[report.verdict as usize] += 1;
            let sides = Sides::of(&old, &new, writers).unwrap();
            let breaks = |event: &Value| {
                sides.writer.iter().all(|writer| writer.is_valid(event))
                    && !sides.reader.is_valid(event)
            };
            let about =
                || format!("seed {seed} {writers:?}\n{}\n{}\n{report:#?}", old.root, new.root);
            match report.verdict {
                Verdict::Compatible => {
                    for _ in 0..150 {
                        let event = event(&mut rng, 3);
                        assert!(!breaks(&event), "{event} refutes {}", about());
                    }
                    for schema in [&sides.left, &sides.right] {
                        for event in
                            crate::witness::variants(&crate::facts::Case::new(schema, vec![schema]))
                        {
                            assert!(!breaks(&event), "{event} refutes {}", about());
                        }
                    }
                }
                Verdict::Breaking => {
                    let shown = report
                        .findings
                        .iter()
                        .filter_map(|finding| finding.counterexample.as_ref());
                    assert!(shown.clone().count() > 0, "{}", about());
                    shown.for_each(|event| {
                        assert!(breaks(event), "{event} does not show {}", about())
                    });
                }
                Verdict::Unknown => {}
            }
        }
    }
    eprintln!("compatible, unknown, breaking: {counts:?}");
    // A differ that never decides is sound and useless.
    assert!(counts[0] > 200 && counts[2] > 400 && counts[1] < counts[0] + counts[2], "{counts:?}");
}

#[test]
fn the_small_evaluator_agrees_with_the_validator() {
    for seed in 0..2_000 {
        let mut rng = Rng::with_seed(50_000 + seed);
        let root = schema(&mut rng, 3);
        let Ok(parsed) = Schema::from_value("s", root) else { continue };
        let validator: Validator = parsed.validator(&parsed.root).unwrap();
        for _ in 0..20 {
            let event = event(&mut rng, 3);
            if let Some(verdict) =
                crate::accepts::accepts(&Default::default(), &parsed.root, &parsed.root, &event)
            {
                assert_eq!(verdict, validator.is_valid(&event), "{event} {}", parsed.root);
            }
        }
    }
}

#[test]
fn garbage_never_panics() {
    let mut rng = Rng::with_seed(7);
    let text = json!({ "type": "object", "properties": { "a": { "$ref": "#/$defs/x" } }, "$defs": { "x": { "pattern": "^a+$" } } }).to_string();
    for _ in 0..3_000 {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..rng.usize(1..6) {
            let at = rng.usize(..bytes.len().max(1));
            if at >= bytes.len() {
                break;
            }
            match rng.u8(..4) {
                0 => bytes[at] = rng.u8(..),
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b"{}[]\",:$#/0-9e."[rng.usize(..15)]),
                _ => bytes.truncate(at.max(1)),
            }
        }
        if let (Ok(old), Ok(new)) =
            (Schema::parse("old", text.as_bytes()), Schema::parse("new", &bytes))
        {
            let _ = diff(&Request::new(&old, &new).kind(Kind::Integration));
        }
        let _ = crate::proto::Protos::parse(&[("x.proto", &bytes)]);
    }
}

fn ask(old: &Schema, new: &Schema, writers: Writers) -> crate::Report {
    diff(&Request::new(old, new).kind(Kind::Bare).direction(Direction::Backward).writers(writers))
}

fn pair(rng: &mut Rng) -> (Schema, Schema) {
    loop {
        let old = schema(rng, 3);
        let new = if rng.u8(..4) == 0 { schema(rng, 3) } else { mutated(rng, &old) };
        if let (Ok(old), Ok(new)) = (Schema::from_value("old", old), Schema::from_value("new", new))
            && old.root != new.root
        {
            return (old, new);
        }
    }
}

fn name(rng: &mut Rng) -> &'static str {
    ["a", "b", "c"][rng.usize(..3)]
}

fn scalar(rng: &mut Rng) -> Value {
    match rng.u8(..9) {
        0 => json!(null),
        1 => json!(rng.bool()),
        2 | 3 => json!(rng.i32(-4..8)),
        4 => json!(f64::from(rng.i32(-4..8)) + 0.5),
        5 => json!(f64::from(rng.i32(-4..8))),
        6 => {
            json!(["2026-01-31", "/a", "(", "0190d6f2-7b1c-7c3e-8a4d-5b6c7d8e9f00"][rng.usize(..4)])
        }
        _ => json!("abcdefg"[..rng.usize(..6)]),
    }
}

fn event(rng: &mut Rng, depth: u32) -> Value {
    match rng.u8(..if depth == 0 { 2 } else { 6 }) {
        0 | 1 => scalar(rng),
        2 => Value::Array((0..rng.usize(..4)).map(|_| event(rng, depth - 1)).collect()),
        _ => Value::Object(
            (0..rng.usize(..4)).map(|_| (name(rng).to_owned(), event(rng, depth - 1))).collect(),
        ),
    }
}

fn schema(rng: &mut Rng, depth: u32) -> Value {
    let mut map = Map::new();
    for _ in 0..rng.usize(1..4) {
        keyword(rng, &mut map, depth);
    }
    if rng.u8(..30) == 0 { Value::Bool(rng.bool()) } else { Value::Object(map) }
}

fn keyword(rng: &mut Rng, map: &mut Map<String, Value>, depth: u32) {
    let types = ["null", "boolean", "integer", "number", "string", "array", "object", "object"];
    let mut put = |key: &str, value: Value| {
        map.insert(key.to_owned(), value);
    };
    match rng.u8(..if depth == 0 { 10 } else { 24 }) {
        0 | 1 => put("type", json!(types[rng.usize(..8)])),
        2 => {
            let mut list = vec![types[rng.usize(..7)], types[rng.usize(..7)]];
            list.sort_unstable();
            list.dedup();
            put("type", json!(list));
        }
        3 => put("enum", Value::Array((0..rng.usize(1..4)).map(|_| event(rng, 1)).collect())),
        4 => put(["minimum", "exclusiveMinimum"][rng.usize(..2)], json!(rng.i32(-3..4))),
        5 => put(
            ["maximum", "exclusiveMaximum"][rng.usize(..2)],
            json!(f64::from(rng.i32(-3..8)) / 2.0),
        ),
        6 => put(
            "multipleOf",
            [json!(1), json!(2), json!(3), json!(0.5), json!(6)][rng.usize(..5)].clone(),
        ),
        7 => put(["minLength", "maxLength"][rng.usize(..2)], json!(rng.u8(..4))),
        8 if rng.bool() => {
            put("format", json!(["date", "uuid", "json-pointer", "regex", "room"][rng.usize(..5)]))
        }
        8 => put("pattern", json!(["^a", "b", "^[ab]*$", "^abc?$"][rng.usize(..4)])),
        9 => put(
            ["minItems", "maxItems", "minProperties", "maxProperties"][rng.usize(..4)],
            json!(rng.u8(..4)),
        ),
        10 => put("uniqueItems", json!(rng.bool())),
        11 => put("required", json!([name(rng)])),
        12..=15 => {
            let members: Map<String, Value> = (0..rng.usize(1..4))
                .map(|_| (name(rng).to_owned(), schema(rng, depth - 1)))
                .collect();
            put("properties", Value::Object(members));
        }
        16 => put(
            "additionalProperties",
            if rng.bool() { json!(false) } else { schema(rng, depth - 1) },
        ),
        17 => put("items", schema(rng, depth - 1)),
        18 => put("prefixItems", json!([schema(rng, depth - 1)])),
        19 => put(
            ["anyOf", "allOf"][rng.usize(..2)],
            json!([schema(rng, depth - 1), schema(rng, depth - 1)]),
        ),
        20 => put("oneOf", json!([schema(rng, depth - 1), schema(rng, depth - 1)])),
        21 => put("not", schema(rng, depth - 1)),
        22 => put("patternProperties", json!({ "^a": schema(rng, depth - 1) })),
        _ => match rng.u8(..5) {
            0 => put("unevaluatedProperties", json!(false)),
            1 => put("contains", schema(rng, depth - 1)),
            2 => put("propertyNames", json!({ "maxLength": 1 })),
            3 => put("dependentRequired", json!({ "a": ["b"] })),
            _ => {
                put("if", schema(rng, depth - 1));
                put("then", schema(rng, depth - 1));
            }
        },
    }
}

fn mutated(rng: &mut Rng, schema: &Value) -> Value {
    let mut copy = schema.clone();
    let Some(map) = copy.as_object_mut() else { return self::schema(rng, 2) };
    let keys: Vec<String> = map.keys().cloned().collect();
    match rng.u8(..3) {
        0 => keyword(rng, map, 2),
        1 if !keys.is_empty() => drop(map.remove(&keys[rng.usize(..keys.len())])),
        _ => {
            if let Some(members) = map.get_mut("properties").and_then(Value::as_object_mut) {
                for child in members.values_mut() {
                    *child = mutated(rng, child);
                }
            } else {
                keyword(rng, map, 1);
            }
        }
    }
    copy
}
