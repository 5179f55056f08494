//! Files, messages and enums that stand on both sides, and those that do not.

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{
    EnumDescriptor, ExtensionDescriptor, FileDescriptor, MessageDescriptor, Syntax,
};

use super::reach::{Reach, is_option};
use super::{Protos, Rule, constraint, field};

/// A rule, where it was broken, and how.
pub(super) type Break = (Rule, String, String);

/// The changed constraints of messages that stand on both sides.
pub(super) fn constraints(old: &Protos, new: &Protos) -> Vec<constraint::Changed> {
    let mut changes = Vec::new();
    let (old, new) = (Reach::of(old), Reach::of(new));
    for (name, before) in &old.messages {
        if let Some(after) = new.messages.get(name) {
            constraint::compare(before, after, &mut changes);
        }
    }
    changes
}

pub(super) fn all(old: &Protos, new: &Protos) -> Vec<Break> {
    let mut breaks = Vec::new();
    let (old, new) = (Reach::of(old), Reach::of(new));
    for (name, before) in &old.files {
        if old.declares_options(before) {
            continue;
        }
        match new.files.get(name) {
            None => breaks.push((Rule::FileNoDelete, name.clone(), "the file is gone".to_owned())),
            Some(after) => file(before, after, &old.options, &mut breaks),
        }
    }
    for (name, before) in &old.messages {
        if let Some(after) = new.messages.get(name) {
            message(before, after, &mut breaks);
        }
    }
    let (before, after) = (extensions(&old.files), extensions(&new.files));
    for (key, before) in &before {
        if let Some(after) = after.get(key) {
            let sides = (field::Field::of_extension(before), field::Field::of_extension(after));
            field::compare(&sides.0, &sides.1, &mut breaks);
        }
    }
    for (name, before) in &old.enums {
        if let Some(after) = new.enums.get(name) {
            enumeration(before, after, &mut breaks);
        }
    }
    breaks
}

pub(super) fn messages_of(file: &FileDescriptor) -> Vec<MessageDescriptor> {
    let mut all: Vec<MessageDescriptor> = file.messages().collect();
    let mut next = 0;
    while let Some(message) = all.get(next).cloned() {
        all.extend(message.child_messages());
        next += 1;
    }
    all
}

/// Extensions by the message that they extend and their number, without options.
fn extensions(
    files: &BTreeMap<String, FileDescriptor>,
) -> BTreeMap<(String, u32), ExtensionDescriptor> {
    let all = files.values().flat_map(extensions_of).filter(|one| !is_option(one));
    all.map(|one| ((one.containing_message().full_name().to_owned(), one.number()), one)).collect()
}

pub(super) fn extensions_of(file: &FileDescriptor) -> Vec<ExtensionDescriptor> {
    let nested = messages_of(file)
        .into_iter()
        .flat_map(|message| message.child_extensions().collect::<Vec<_>>());
    file.extensions().chain(nested).collect()
}

pub(super) fn enums_of(file: &FileDescriptor) -> Vec<EnumDescriptor> {
    let nested =
        messages_of(file).into_iter().flat_map(|message| message.child_enums().collect::<Vec<_>>());
    file.enums().chain(nested).collect()
}

/// `options` are the names of what only options use.
fn file(
    before: &FileDescriptor,
    after: &FileDescriptor,
    options: &BTreeSet<String>,
    breaks: &mut Vec<Break>,
) {
    let place = before.name().to_owned();
    // The package is left out: where it changed, the same message has another full name.
    let nested = |package: &str, name: &str| {
        name.strip_prefix(package).unwrap_or(name).trim_start_matches('.').to_owned()
    };
    let names = |file: &FileDescriptor| -> BTreeSet<String> {
        messages_of(file)
            .iter()
            .filter(|message| !options.contains(message.full_name()))
            .map(|message| nested(file.package_name(), message.full_name()))
            .collect()
    };
    for gone in names(before).difference(&names(after)) {
        breaks.push((Rule::MessageNoDelete, place.clone(), format!("message {gone} is gone")));
    }
    let names = |file: &FileDescriptor| -> BTreeSet<String> {
        let all = enums_of(file).into_iter().filter(|one| !options.contains(one.full_name()));
        all.map(|one| nested(file.package_name(), one.full_name())).collect()
    };
    for gone in names(before).difference(&names(after)) {
        breaks.push((Rule::EnumNoDelete, place.clone(), format!("enum {gone} is gone")));
    }
    let names = |file: &FileDescriptor| -> BTreeSet<String> {
        let all = extensions_of(file);
        let all = all.iter().filter(|one| !is_option(one));
        all.map(|one| nested(file.package_name(), one.full_name())).collect()
    };
    for gone in names(before).difference(&names(after)) {
        breaks.push((Rule::ExtensionNoDelete, place.clone(), format!("extension {gone} is gone")));
    }
    let mut same = |rule: Rule, name: &str, before: String, after: String| {
        if before != after {
            breaks.push((rule, place.clone(), format!("{name} was {before:?} and is {after:?}")));
        }
    };
    same(
        Rule::FileSamePackage,
        "package",
        before.package_name().to_owned(),
        after.package_name().to_owned(),
    );
    same(
        Rule::FileSameSyntax,
        "syntax",
        format!("{:?}", before.syntax()),
        format!("{:?}", after.syntax()),
    );
    let (old, new) = (
        before.file_descriptor_proto().options.clone().unwrap_or_default(),
        after.file_descriptor_proto().options.clone().unwrap_or_default(),
    );
    macro_rules! options {
        ($($rule:ident $option:ident $getter:ident;)+) => {
            $(same(Rule::$rule, stringify!($option), old.$getter().to_string(), new.$getter().to_string());)+
        };
    }
    options! {
        FileSameCsharpNamespace csharp_namespace csharp_namespace;
        FileSameGoPackage go_package go_package;
        FileSameJavaMultipleFiles java_multiple_files java_multiple_files;
        FileSameJavaOuterClassname java_outer_classname java_outer_classname;
        FileSameJavaPackage java_package java_package;
        FileSameObjcClassPrefix objc_class_prefix objc_class_prefix;
        FileSamePhpClassPrefix php_class_prefix php_class_prefix;
        FileSamePhpMetadataNamespace php_metadata_namespace php_metadata_namespace;
        FileSamePhpNamespace php_namespace php_namespace;
        FileSameRubyPackage ruby_package ruby_package;
        FileSameSwiftPrefix swift_prefix swift_prefix;
    }
    same(
        Rule::FileSameOptimizeFor,
        "optimize_for",
        format!("{:?}", old.optimize_for()),
        format!("{:?}", new.optimize_for()),
    );
}

fn message(before: &MessageDescriptor, after: &MessageDescriptor, breaks: &mut Vec<Break>) {
    let place = format!("{}:{}", after.parent_file().name(), before.full_name());
    let mut add = |rule: Rule, reason: String| breaks.push((rule, place.clone(), reason));
    let (old, new) = (before.descriptor_proto(), after.descriptor_proto());
    reservations(before, after, &mut add);
    let real = |message: &MessageDescriptor| -> BTreeSet<String> {
        message
            .oneofs()
            .filter(|oneof| !oneof.is_synthetic())
            .map(|oneof| oneof.name().to_owned())
            .collect()
    };
    let still: BTreeSet<String> = after.oneofs().map(|oneof| oneof.name().to_owned()).collect();
    for gone in real(before).difference(&still) {
        add(Rule::OneofNoDelete, format!("oneof `{gone}` is gone"));
    }
    let extensions: Vec<(i64, i64)> = after
        .extension_ranges()
        .map(|range| (range.start.into(), i64::from(range.end) - 1))
        .collect();
    for range in before.extension_ranges() {
        if !covered((range.start.into(), i64::from(range.end) - 1), &extensions) {
            add(
                Rule::ExtensionMessageNoDelete,
                format!("{}..{} is no longer open to extensions", range.start, range.end),
            );
        }
    }
    let required = |message: &MessageDescriptor| -> BTreeSet<u32> {
        message.fields().filter(|field| field.is_required()).map(|field| field.number()).collect()
    };
    for number in required(before).symmetric_difference(&required(after)) {
        add(
            Rule::MessageSameRequiredFields,
            format!("field {number} became required or ceased to be"),
        );
    }
    let accessor = |options: Option<&prost_types::MessageOptions>| {
        options.is_some_and(|options| options.no_standard_descriptor_accessor())
    };
    if !accessor(old.options.as_ref()) && accessor(new.options.as_ref()) {
        add(
            Rule::MessageNoRemoveStandardDescriptorAccessor,
            "the standard descriptor accessor is gone".to_owned(),
        );
    }
    if before.parent_file().syntax() == Syntax::Proto3
        && after.parent_file().syntax() == Syntax::Proto2
    {
        add(Rule::MessageSameJsonFormat, "JSON is only supported as far as it goes".to_owned());
    }
    for before in before.fields() {
        if let Some(after) = after.get_field(before.number()) {
            field::compare(&field::Field::of(&before), &field::Field::of(&after), breaks);
        }
    }
}

/// Fields that are gone, with what is reserved in their place, and reservations that are gone.
fn reservations(
    before: &MessageDescriptor,
    after: &MessageDescriptor,
    add: &mut impl FnMut(Rule, String),
) {
    let (old, new) = (before.descriptor_proto(), after.descriptor_proto());
    let reserved_names: BTreeSet<&String> = new.reserved_name.iter().collect();
    let reserved: Vec<(i64, i64)> = after
        .reserved_ranges()
        .map(|range| (range.start.into(), i64::from(range.end) - 1))
        .collect();
    for gone in before.fields().filter(|field| after.get_field(field.number()).is_none()) {
        let (number, name) = (i64::from(gone.number()), gone.name().to_owned());
        add(Rule::FieldNoDelete, format!("field {number} `{name}` is gone"));
        if !reserved_names.contains(&name) {
            add(
                Rule::FieldNoDeleteUnlessNameReserved,
                format!("field {number} is gone and the name `{name}` is not reserved"),
            );
        }
        if !covered((number, number), &reserved) {
            add(
                Rule::FieldNoDeleteUnlessNumberReserved,
                format!("field `{name}` is gone and its number {number} is not reserved"),
            );
        }
    }
    for range in before.reserved_ranges() {
        if !covered((range.start.into(), i64::from(range.end) - 1), &reserved) {
            add(
                Rule::ReservedMessageNoDelete,
                format!("{}..{} is no longer reserved", range.start, range.end),
            );
        }
    }
    for name in old.reserved_name.iter().filter(|name| !reserved_names.contains(name)) {
        add(Rule::ReservedMessageNoDelete, format!("`{name}` is no longer reserved"));
    }
}

fn enumeration(before: &EnumDescriptor, after: &EnumDescriptor, breaks: &mut Vec<Break>) {
    let place = format!("{}:{}", after.parent_file().name(), before.full_name());
    let mut add = |rule: Rule, reason: String| breaks.push((rule, place.clone(), reason));
    let (old, new) = (before.enum_descriptor_proto(), after.enum_descriptor_proto());
    // Unlike those of a message, the ranges of an enum include their end.
    let ranges = |proto: &prost_types::EnumDescriptorProto| -> Vec<(i64, i64)> {
        proto
            .reserved_range
            .iter()
            .map(|range| (range.start().into(), range.end().into()))
            .collect()
    };
    let (reserved, names) = (ranges(new), new.reserved_name.iter().collect::<BTreeSet<_>>());
    let (olds, news) = (by_number(before), by_number(after));
    for (number, old_names) in &olds {
        match news.get(number) {
            Some(new_names) if !old_names.is_subset(new_names) => {
                add(
                    Rule::EnumValueSameName,
                    format!("value {number} was {old_names:?} and is {new_names:?}"),
                );
            }
            Some(_) => {}
            None => {
                add(Rule::EnumValueNoDelete, format!("value {number} {old_names:?} is gone"));
                if !old_names.iter().all(|name| names.contains(name)) {
                    add(
                        Rule::EnumValueNoDeleteUnlessNameReserved,
                        format!("value {number} is gone and its name is not reserved"),
                    );
                }
                if !covered((i64::from(*number), i64::from(*number)), &reserved) {
                    add(
                        Rule::EnumValueNoDeleteUnlessNumberReserved,
                        format!("value {number} is gone and the number is not reserved"),
                    );
                }
            }
        }
    }
    for range in ranges(old).into_iter().filter(|range| !covered(*range, &reserved)) {
        add(
            Rule::ReservedEnumNoDelete,
            format!("{} to {} is no longer reserved", range.0, range.1),
        );
    }
    for name in old.reserved_name.iter().filter(|name| !names.contains(name)) {
        add(Rule::ReservedEnumNoDelete, format!("`{name}` is no longer reserved"));
    }
    let (was, is) = (before.parent_file().syntax(), after.parent_file().syntax());
    if was != is {
        add(Rule::EnumSameType, "the enum changed between open and closed".to_owned());
        if was == Syntax::Proto3 {
            add(Rule::EnumSameJsonFormat, "JSON is only supported as far as it goes".to_owned());
        }
    }
}

fn by_number(one: &EnumDescriptor) -> BTreeMap<i32, BTreeSet<String>> {
    let mut values: BTreeMap<i32, BTreeSet<String>> = BTreeMap::new();
    for value in one.values() {
        values.entry(value.number()).or_default().insert(value.name().to_owned());
    }
    values
}

/// Whether a range, ends included, lies inside the others put together.
fn covered((mut from, to): (i64, i64), others: &[(i64, i64)]) -> bool {
    let mut others = others.to_vec();
    others.sort_unstable();
    for (start, end) in others {
        if start <= from && end >= from {
            from = end + 1;
        }
    }
    from > to
}
