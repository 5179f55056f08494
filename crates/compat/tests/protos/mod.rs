//! Pairs of `.proto` files, the second one a mutation of the first.

use std::fmt::Write as _;

use fastrand::Rng;

#[derive(Clone)]
struct Field {
    label: &'static str,
    kind: String,
    name: String,
    number: u32,
    options: Vec<String>,
    oneof: Option<&'static str>,
}

#[derive(Clone)]
struct Message {
    name: String,
    fields: Vec<Field>,
    reserved: Vec<String>,
    enums: Vec<Enum>,
}

#[derive(Clone)]
struct Enum {
    name: String,
    values: Vec<(String, i32)>,
    reserved: Vec<String>,
}

#[derive(Clone)]
struct File {
    syntax: &'static str,
    package: String,
    options: Vec<String>,
    messages: Vec<Message>,
    enums: Vec<Enum>,
}

/// A pair that compiles on both sides.
pub(crate) fn pair(seed: u64) -> (String, String) {
    let mut rng = Rng::with_seed(seed);
    let old = base(if seed % 4 == 3 { "proto2" } else { "proto3" }, seed);
    loop {
        let mut new = old.clone();
        for _ in 0..rng.usize(1..4) {
            mutate(&mut new, &mut rng);
        }
        let (old, new) = (render(&old), render(&new));
        let compiles = chapar_compat::proto::Protos::parse(&[("p.proto", new.as_bytes())]).is_ok();
        if compiles && old != new {
            return (old, new);
        }
    }
}

fn field(label: &'static str, kind: &str, name: &str, number: u32) -> Field {
    Field {
        label,
        kind: kind.to_owned(),
        name: name.to_owned(),
        number,
        options: Vec::new(),
        oneof: None,
    }
}

fn base(syntax: &'static str, seed: u64) -> File {
    let one = if syntax == "proto2" { "optional" } else { "" };
    let mut order = vec![
        field(one, "string", "order_id", 1),
        field(one, "int32", "count", 2),
        field(one, "int64", "total", 3),
        field("repeated", "string", "tags", 4),
        field("", "map<string, int32>", "extra", 5),
        field(one, "Status", "status", 6),
        field(one, "Money", "price", 7),
        field("", "string", "card", 8),
        field("", "bytes", "cash", 9),
        field("optional", "string", "note", 10),
        field(one, "bytes", "blob", 11),
        field(one, "uint32", "small", 12),
        field(one, "sint64", "signed", 13),
        field("repeated", "Money", "taxes", 14),
        field(one, "Color", "color", 15),
    ];
    for inside in &mut order[7..9] {
        inside.oneof = Some("how");
    }
    if syntax == "proto2" {
        order[1].options.push("default = 7".to_owned());
        order.push(field("required", "string", "must", 16));
    }
    let status = |name: &str, prefix: &str| Enum {
        name: name.to_owned(),
        values: ["UNSPECIFIED", "OPEN", "CLOSED", "LOST"]
            .iter()
            .zip(0..)
            .map(|(value, number)| (format!("{prefix}_{value}"), number))
            .collect(),
        reserved: vec!["9".to_owned(), "20 to 25".to_owned(), format!("\"{prefix}_GONE\"")],
    };
    let money = vec![
        field(one, "string", "currency", 1),
        field(one, "int64", "units", 2),
        field(one, "fixed32", "nanos", 3),
    ];
    let message = |name: &str, fields, enums| Message {
        name: name.to_owned(),
        fields,
        reserved: vec!["30".to_owned(), "40 to 45".to_owned(), "\"gone\"".to_owned()],
        enums,
    };
    File {
        syntax,
        package: format!("pkg{seed}.v1"),
        options: vec![
            "go_package = \"example.com/a\"".to_owned(),
            "java_package = \"com.example\"".to_owned(),
        ],
        messages: vec![
            message("Order", order, vec![status("Color", "COLOR")]),
            message("Money", money, Vec::new()),
            message("Unused", vec![field(one, "double", "x", 1)], Vec::new()),
        ],
        enums: vec![status("Status", "STATUS"), status("Other", "OTHER")],
    }
}

const KINDS: [&str; 16] = [
    "string", "bytes", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32",
    "sfixed32", "fixed64", "bool", "double", "float", "Status", "Money",
];

fn mutate(file: &mut File, rng: &mut Rng) {
    let proto2 = file.syntax == "proto2";
    let message = rng.usize(..file.messages.len().min(2));
    let which = rng.usize(..file.enums.len());
    let message = &mut file.messages[message];
    let at = rng.usize(..message.fields.len().max(1));
    if message.fields.is_empty() {
        return;
    }
    match rng.usize(..24) {
        0 => {
            message.fields.remove(at);
        }
        1 => {
            let gone = message.fields.remove(at);
            message.reserved.push(gone.number.to_string());
        }
        2 => {
            let gone = message.fields.remove(at);
            message.reserved.extend([gone.number.to_string(), format!("\"{}\"", gone.name)]);
        }
        3 => message.fields[at].name.push_str("_new"),
        4 => message.fields[at].number += 100,
        5 | 6 => {
            message.fields[at].kind = KINDS[rng.usize(..KINDS.len())].to_owned();
            message.fields[at].options.clear();
        }
        7 => {
            let labels: &[&str] = if proto2 {
                &["optional", "repeated", "required"]
            } else {
                &["", "repeated", "optional"]
            };
            message.fields[at].label = labels[rng.usize(..labels.len())];
            message.fields[at].options.clear();
        }
        8 if message.reserved.len() > 2 => {
            message.reserved.remove(rng.usize(..message.reserved.len()));
        }
        9 => message.fields[at].oneof = Some(["how", "other"][rng.usize(..2)]),
        10 => message.fields.iter_mut().for_each(|field| field.oneof = None),
        11 => message.fields[at].options.push(format!("json_name = \"renamed{at}\"")),
        12 => {
            file.messages.remove(2);
            file.messages.push(Message {
                name: "Unused2".to_owned(),
                fields: Vec::new(),
                reserved: Vec::new(),
                enums: Vec::new(),
            });
        }
        13 => {
            file.enums[which].values.pop();
        }
        14 if file.enums[which].values.len() > 2 => {
            let (name, number) = file.enums[which].values.remove(2);
            file.enums[which].reserved.push(number.to_string());
            if rng.bool() {
                file.enums[which].reserved.push(format!("\"{name}\""));
            }
        }
        15 if file.enums[which].values.len() > 1 => file.enums[which].values[1].0.push_str("_NEW"),
        16 if !file.enums[which].reserved.is_empty() => {
            file.enums[which].reserved.remove(0);
        }
        17 => {
            file.enums.retain(|one| one.name != "Other");
        }
        18 => file.package.push_str("beta"),
        19 => file.options[rng.usize(..2)] = "go_package = \"example.com/b\"".to_owned(),
        20 => message.fields[at].options.push("jstype = JS_STRING".to_owned()),
        21 if proto2 => message.fields[at].options = vec!["default = 8".to_owned()],
        22 => {
            message.reserved[1] =
                ["40 to 42", "38 to 50", "40 to 43, 44 to 45"][rng.usize(..3)].to_owned()
        }
        23 => message.fields[at].kind = "map<string, int64>".to_owned(),
        _ => {
            message.fields.push(field(if proto2 { "optional" } else { "" }, "string", "added", 60))
        }
    }
    if let Some(changed) = message_by_name(file, "Order") {
        changed.fields.iter_mut().filter(|field| field.kind.starts_with("map<")).for_each(
            |field| {
                field.label = "";
                field.oneof = None;
            },
        );
        changed
            .fields
            .iter_mut()
            .filter(|field| field.oneof.is_some())
            .for_each(|field| field.label = "");
    }
}

fn message_by_name<'f>(file: &'f mut File, name: &str) -> Option<&'f mut Message> {
    file.messages.iter_mut().find(|message| message.name == name)
}

fn render(file: &File) -> String {
    let mut text = format!("syntax = \"{}\";\npackage {};\n", file.syntax, file.package);
    for option in &file.options {
        let _ = writeln!(text, "option {option};");
    }
    for message in &file.messages {
        let _ = writeln!(text, "message {} {{", message.name);
        message.enums.iter().for_each(|one| render_enum(one, &mut text));
        for reserved in &message.reserved {
            let _ = writeln!(text, "  reserved {reserved};");
        }
        for field in message.fields.iter().filter(|field| field.oneof.is_none()) {
            render_field(field, &mut text);
        }
        for oneof in ["how", "other"] {
            let inside: Vec<&Field> =
                message.fields.iter().filter(|field| field.oneof == Some(oneof)).collect();
            if !inside.is_empty() {
                let _ = writeln!(text, "  oneof {oneof} {{");
                inside.iter().for_each(|field| render_field(field, &mut text));
                text.push_str("  }\n");
            }
        }
        text.push_str("}\n");
    }
    file.enums.iter().for_each(|one| render_enum(one, &mut text));
    text
}

fn render_field(field: &Field, text: &mut String) {
    let proto2_out_of_oneof =
        field.label.is_empty() && field.oneof.is_none() && !field.kind.starts_with("map<");
    let label = if proto2_out_of_oneof && text.starts_with("syntax = \"proto2\"") {
        "optional"
    } else {
        field.label
    };
    // buf refuses jstype on anything but a 64-bit integer.
    let wide = ["int64", "uint64", "sint64", "fixed64"].contains(&field.kind.as_str());
    let options: Vec<&str> = field
        .options
        .iter()
        .map(String::as_str)
        .filter(|option| wide || !option.starts_with("jstype"))
        .collect();
    let options =
        if options.is_empty() { String::new() } else { format!(" [{}]", options.join(", ")) };
    let _ = writeln!(text, "  {label} {} {} = {}{options};", field.kind, field.name, field.number);
}

fn render_enum(one: &Enum, text: &mut String) {
    let _ = writeln!(text, "enum {} {{", one.name);
    for reserved in &one.reserved {
        let _ = writeln!(text, "  reserved {reserved};");
    }
    for (name, number) in &one.values {
        let _ = writeln!(text, "  {name} = {number};");
    }
    text.push_str("}\n");
}
