//! Protobuf changes that the comparison with buf does not reach: constraints, defaults of 64 bits,
//! extensions, imports.
#![allow(clippy::unwrap_used, reason = "tests")]

use chapar_compat::proto::{Category, Protos, TIGHTENED, WIDENED, diff};
use chapar_compat::{Report, Severity, Verdict};

const VALIDATE: &[u8] =
    include_bytes!("../../../systems/meridian/proto/buf/validate/validate.proto");

fn message(fields: &str) -> Protos {
    let source = format!(
        "syntax = \"proto3\"; package a.v1; import \"buf/validate/validate.proto\";\n\
         enum E {{ ZERO = 0; ONE = 1; TWO = 2; }}\nmessage M {{ {fields} }}"
    );
    let files = [("m.proto", source.as_bytes()), ("buf/validate/validate.proto", VALIDATE)];
    Protos::parse(&files).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

fn rules(report: &Report) -> Vec<&str> {
    report.findings.iter().map(|finding| finding.rule.as_str()).collect()
}

#[test]
fn a_tightened_constraint_is_breaking_and_a_wider_one_is_noted() {
    let field = |kind: &str, rules: &str| match rules {
        "" => format!("{kind} x = 1;"),
        rules => format!("{kind} x = 1 [(buf.validate.field).{rules}];"),
    };
    // The kind of field, a constraint, and one that refuses more.
    for (kind, wide, tight) in [
        ("string", "", "string.uuid = true"),
        ("string", "", "required = true"),
        ("string", "string.min_len = 1", "string.min_len = 2"),
        ("string", "string.max_len = 9", "string.max_len = 8"),
        ("string", "", "string.pattern = \"^a\""),
        ("int64", "int64.gte = -1", "int64.gte = 0"),
        ("int64", "int64.lt = 9007199254740993", "int64.lt = 9007199254740992"),
        ("double", "double.lte = 1.5", "double.lte = 1.25"),
        ("E", "enum = { in: [1, 2] }", "enum = { in: [1] }"),
        ("E", "enum = { not_in: [0] }", "enum = { not_in: [0, 1] }"),
        ("E", "", "enum.defined_only = true"),
        ("repeated string", "repeated.max_items = 3", "repeated.max_items = 2"),
        (
            "repeated string",
            "repeated.items.string.min_len = 1",
            "repeated.items.string.min_len = 2",
        ),
        ("string", "", "cel = { id: \"a\" expression: \"this != 'x'\" }"),
    ] {
        let (wide, tight) = (message(&field(kind, wide)), message(&field(kind, tight)));
        for category in [Category::File, Category::Wire] {
            let report = diff(&wide, &tight, category);
            assert_eq!(rules(&report), [TIGHTENED], "{kind} {report:#?}");
            assert_eq!(report.verdict, Verdict::Breaking);
            let report = diff(&tight, &wide, category);
            assert_eq!(rules(&report), [WIDENED], "{kind} {report:#?}");
            assert_eq!(report.verdict, Verdict::Compatible);
            assert!(diff(&tight, &tight, category).findings.is_empty());
        }
    }
}

#[test]
fn a_new_field_may_only_have_constraints_that_earlier_events_keep() {
    let with = |field: &str| message(&format!("string x = 1; {field}"));
    for (field, fine) in [
        ("string y = 2 [(buf.validate.field).string.max_len = 5];", true),
        ("string y = 2 [(buf.validate.field).string.min_len = 1];", false),
        ("string y = 2 [(buf.validate.field).string.uuid = true];", false),
        ("optional string y = 2 [(buf.validate.field).string.uuid = true];", true),
        ("optional string y = 2 [(buf.validate.field).required = true];", false),
        ("int64 y = 2 [(buf.validate.field).int64.gte = 0];", true),
        ("int64 y = 2 [(buf.validate.field).int64.gt = 0];", false),
        ("E y = 2 [(buf.validate.field).enum = { not_in: [0] }];", false),
        ("repeated string y = 2 [(buf.validate.field).repeated.items.string.min_len = 1];", true),
        ("repeated string y = 2 [(buf.validate.field).repeated.min_items = 1];", false),
    ] {
        let report = diff(&with(""), &with(field), Category::Wire);
        assert_eq!(report.passes(), fine, "{field} {report:#?}");
    }
}

#[test]
fn descriptors_of_a_bundle_keep_their_constraints() {
    let compiled = |fields: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("buf/validate")).unwrap();
        std::fs::write(folder.path().join("buf/validate/validate.proto"), VALIDATE).unwrap();
        let source = format!(
            "syntax = \"proto3\"; import \"buf/validate/validate.proto\"; message M {{ {fields} }}"
        );
        std::fs::write(folder.path().join("m.proto"), source).unwrap();
        let mut compiler = protox::Compiler::new([folder.path()]).unwrap();
        compiler.include_imports(true).open_file("m.proto").unwrap();
        Protos::described("bundle", &[compiler.encode_file_descriptor_set()]).unwrap()
    };
    let field =
        |least: u8| format!("string x = 1 [(buf.validate.field).string.min_len = {least}];");
    let report = diff(&compiled(&field(1)), &compiled(&field(2)), Category::File);
    assert_eq!(rules(&report), [TIGHTENED]);
}

fn parsed(source: &str) -> Protos {
    Protos::parse(&[("a.proto", source.as_bytes())]).unwrap_or_else(|e| panic!("{e}\n{source}"))
}

#[test]
fn defaults_are_compared_to_the_last_bit() {
    let field = |kind: &str, default: &str| {
        parsed(&format!(
            "syntax = \"proto2\"; message M {{ optional {kind} x = 1 [default = {default}]; }}"
        ))
    };
    for (kind, old, new, same) in [
        ("int64", "9007199254740992", "9007199254740993", false),
        ("uint64", "18446744073709551614", "18446744073709551615", false),
        ("int64", "-9223372036854775808", "-9223372036854775808", true),
        ("double", "nan", "nan", true),
        ("float", "nan", "nan", true),
        ("double", "nan", "1", false),
        ("double", "inf", "inf", true),
        ("double", "inf", "-inf", false),
        ("string", "\"a\"", "\"b\"", false),
        ("bool", "true", "true", true),
    ] {
        let report = diff(&field(kind, old), &field(kind, new), Category::Wire);
        let expected: &[&str] = if same { &[] } else { &["FIELD_SAME_DEFAULT"] };
        assert_eq!(rules(&report), expected, "{kind} {old} {new}");
    }
}

#[test]
fn extensions_are_compared_like_fields() {
    let extended = |extension: &str| {
        parsed(&format!(
            "syntax = \"proto2\"; package p; message M {{ extensions 100 to 200; }}\n{extension}"
        ))
    };
    let old = extended("extend M { optional int32 tag = 100; }");
    for (new, expected) in [
        ("extend M { optional int32 tag = 100; optional string more = 101; }", &[][..]),
        ("extend M { optional string tag = 100; }", &["FIELD_SAME_TYPE"]),
        ("extend M { repeated int32 tag = 100; }", &["FIELD_SAME_CARDINALITY"]),
        ("extend M { optional int32 tag = 100 [default = 7]; }", &["FIELD_SAME_DEFAULT"]),
        ("", &["EXTENSION_NO_DELETE"]),
    ] {
        let report = diff(&old, &extended(new), Category::File);
        let found = rules(&report);
        assert!(expected.iter().all(|rule| found.contains(rule)), "{new} {report:#?}");
        assert_eq!(found.is_empty(), expected.is_empty(), "{new} {report:#?}");
    }
}

#[test]
fn every_finding_is_kept() {
    let old = parsed("syntax = \"proto3\"; message A {} message B {} message C {}");
    let report = diff(&old, &parsed("syntax = \"proto3\"; message A {}"), Category::File);
    assert_eq!(rules(&report), ["MESSAGE_NO_DELETE"; 2], "{report:#?}");
    assert!(report.findings.iter().all(|found| found.severity == Severity::Breaking));
}

#[test]
fn signs_in_comments_and_strings_are_no_nesting() {
    let mut source = String::from("syntax = \"proto3\";\n");
    for _ in 0..300 {
        source += "// this < that ( and [ so { on\n/* < < < */\n";
    }
    source += "message M { string x = 1 [json_name = \"<<<{{{[[[\"]; map<string, string> y = 2; }";
    parsed(&source);
    let deep = format!("syntax = \"proto3\"; {}", "message A {".repeat(200));
    let error = Protos::parse(&[("a.proto", deep.as_bytes())]).unwrap_err();
    assert!(error.to_string().contains("nested more than 100 deep"), "{error}");
}

#[test]
fn editions_are_refused_by_their_name() {
    let source = b"// A comment.\nedition = \"2023\";\nmessage A { string x = 1; }";
    let error = Protos::parse(&[("a.proto", source)]).unwrap_err().to_string();
    assert!(error.starts_with("a.proto:2:1: editions are not supported; say syntax"), "{error}");
    // A field may have the name.
    parsed("syntax = \"proto3\"; message A { string edition = 1; }");
}

#[test]
fn imports_come_from_where_the_caller_says() {
    let source = |field: &str| {
        format!("syntax = \"proto3\"; import \"c/money.proto\"; message A {{ {field} }}")
    };
    let files = |source: &str| Protos::parse(&[("a.proto", source.as_bytes())]);
    let error = files(&source("c.Money x = 1;")).unwrap_err().to_string();
    assert!(error.contains("c/money.proto") && error.contains("--proto-path"), "{error}");
    let with = |source: &str| {
        Protos::parse_with(&[("a.proto", source.as_bytes())], |name| {
            let money = b"syntax = \"proto3\"; package c; message Money { int64 units = 1; }";
            (name == "c/money.proto").then(|| money.to_vec())
        })
        .unwrap()
    };
    let report = diff(&with(&source("c.Money x = 1;")), &with(&source("")), Category::File);
    assert_eq!(rules(&report), ["FIELD_NO_DELETE"], "{report:#?}");
}

#[test]
fn a_changed_message_of_an_import_is_a_change_of_its_users() {
    let with = |money: &'static str| {
        let source = "syntax = \"proto3\"; package a; import \"c/money.proto\";\n\
                      message A { repeated c.Price x = 1; }";
        Protos::parse_with(&[("a.proto", source.as_bytes())], move |name| {
            let file = format!("syntax = \"proto3\"; package c; {money}");
            (name == "c/money.proto").then(|| file.into_bytes())
        })
        .unwrap()
    };
    let old = with("message Price { Money m = 1; } message Money { int64 u = 1; } message B {}");
    let new = with("message Price { Money m = 1; } message Money { string u = 1; } message B {}");
    let report = diff(&old, &new, Category::Wire);
    assert_eq!(rules(&report), ["FIELD_WIRE_COMPATIBLE_TYPE"], "{report:#?}");
    assert_eq!(report.findings[0].pointer, "c/money.proto:c.Money.u");
    // What no field uses is not part of the contract.
    let new = with("message Price { Money m = 1; } message Money { int64 u = 1; }");
    assert!(diff(&old, &new, Category::File).findings.is_empty());
}

#[test]
fn what_only_options_use_is_left_out() {
    let files = |options: &str, event: &str| {
        let options = format!(
            "syntax = \"proto3\"; package o; import \"google/protobuf/descriptor.proto\";\n\
             {options}"
        );
        let event =
            format!("syntax = \"proto3\"; package a; import \"o.proto\"; message A {{ {event} }}");
        Protos::parse(&[("a.proto", event.as_bytes()), ("o.proto", options.as_bytes())])
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let one = "extend google.protobuf.FieldOptions { Rules rules = 1159; }\n\
               message Rules { int32 least = 1; Level level = 2; } enum Level { LOW = 0; }";
    let other = "option java_package = \"o\";\n\
                 extend google.protobuf.FieldOptions { optional Other rules = 1159; }\n\
                 message Other { repeated string least = 1; }";
    let marked = "string x = 1 [(o.rules).least = 1];";
    let report = diff(&files(one, marked), &files(other, "string x = 1;"), Category::File);
    assert!(report.findings.is_empty(), "{report:#?}");
    // A field that uses the same message makes it a contract.
    let used = "string x = 1; Rules y = 2;".replace("Rules", "o.Rules");
    let narrower = one.replace("int32 least = 1; ", "");
    let report = diff(&files(one, &used), &files(&narrower, &used), Category::File);
    assert_eq!(rules(&report), ["FIELD_NO_DELETE"], "{report:#?}");
    // An event beside the options is still compared.
    let event = |field: &str| format!("{one}\nmessage E {{ {field} }}");
    let (old, new) = (event("string id = 1;"), event(""));
    let report = diff(&files(&old, ""), &files(&new, ""), Category::File);
    assert_eq!(rules(&report), ["FIELD_NO_DELETE"], "{report:#?}");
}
