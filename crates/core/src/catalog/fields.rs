//! Reading a TOML table field by field, so that one mistake does not hide the next.

use std::ops::Range;

use jiff::civil::Date;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Declared;
use super::place::{Mistake, Place, Rule, Source};

/// The fields of one table. [`Fields::finish`] reports every field that was never asked for.
pub(super) struct Fields<'m, 't> {
    source: &'m Source,
    mistakes: &'m mut Vec<Mistake>,
    table: &'t DeTable<'t>,
    /// The position to report for a missing field.
    span: Range<usize>,
    asked: Vec<&'static str>,
}

type Value<'t> = &'t Spanned<DeValue<'t>>;

impl<'m, 't> Fields<'m, 't> {
    /// Reads a whole file.
    pub(super) fn of_file<T>(
        source: &'m Source,
        mistakes: &'m mut Vec<Mistake>,
        read: impl FnOnce(Fields<'_, '_>) -> T,
    ) -> T {
        let (table, errors) = DeTable::parse_recoverable(source.text());
        let before = mistakes.len();
        let fields =
            Fields { source, mistakes, table: table.get_ref(), span: 0..0, asked: Vec::new() };
        let value = read(fields);
        if !errors.is_empty() {
            // After a syntax error the parser's guess says nothing about the author's intent.
            mistakes.truncate(before);
            mistakes.extend(errors.iter().map(|error| {
                let message = error.message().trim_end().replace('\n', "; ");
                source.mistake(error.span().unwrap_or(0..0), Rule::Syntax, message)
            }));
        }
        value
    }

    pub(super) fn mistake(&mut self, span: Range<usize>, rule: Rule, message: impl Into<String>) {
        self.mistakes.push(self.source.mistake(span, rule, message));
    }

    /// The position of the table, or of one of its fields.
    pub(super) fn place(&self, field: &str) -> Place {
        self.source.place(self.span_of(field).start)
    }

    pub(super) fn span_of(&self, field: &str) -> Range<usize> {
        self.table.get(field).map_or_else(|| self.span.clone(), Spanned::span)
    }

    pub(super) fn has(&self, field: &str) -> bool {
        self.table.contains_key(field)
    }

    fn optional(&mut self, field: &'static str) -> Option<Value<'t>> {
        self.asked.push(field);
        self.table.get(field)
    }

    fn required(&mut self, field: &'static str) -> Option<Value<'t>> {
        let value = self.optional(field);
        if value.is_none() {
            self.mistake(self.span.clone(), Rule::MissingField, format!("{field} is missing"));
        }
        value
    }

    fn wrong(&mut self, value: Value<'_>, field: &str, expected: &str) {
        let found = value.get_ref().type_str();
        let message = format!("{field} must be {expected}, not {}", article(found));
        self.mistake(value.span(), Rule::WrongValue, message);
    }

    /// A mandatory, non-empty text.
    pub(super) fn text(&mut self, field: &'static str) -> Option<String> {
        let value = self.required(field)?;
        self.as_text(value, field)
    }

    pub(super) fn optional_text(&mut self, field: &'static str) -> Option<String> {
        let value = self.optional(field)?;
        self.as_text(value, field)
    }

    /// A text that was asked for before, without reporting it again.
    pub(super) fn peek_text(&self, field: &str) -> Option<(&'t str, Range<usize>)> {
        let value = self.table.get(field)?;
        Some((value.get_ref().as_str()?, value.span()))
    }

    fn as_text(&mut self, value: Value<'t>, field: &str) -> Option<String> {
        match value.get_ref().as_str() {
            Some(text) if text.trim().is_empty() => {
                self.mistake(value.span(), Rule::WrongValue, format!("{field} is empty"));
                None
            }
            Some(text) => Some(text.to_owned()),
            None => {
                self.wrong(value, field, "a text");
                None
            }
        }
    }

    pub(super) fn texts(&mut self, field: &'static str) -> Vec<String> {
        let value = self.required(field);
        self.as_texts(value, field)
    }

    pub(super) fn optional_texts(&mut self, field: &'static str) -> Vec<String> {
        let value = self.optional(field);
        self.as_texts(value, field)
    }

    /// An optional list of texts, and its position.
    pub(super) fn declared(&mut self, field: &'static str) -> Declared {
        Declared { names: self.optional_texts(field), place: self.place(field) }
    }

    fn as_texts(&mut self, value: Option<Value<'t>>, field: &str) -> Vec<String> {
        let Some(value) = value else { return Vec::new() };
        let Some(items) = value.get_ref().as_array() else {
            self.wrong(value, field, "a list of texts");
            return Vec::new();
        };
        items.iter().filter_map(|item| self.as_text(item, field)).collect()
    }

    pub(super) fn flag(&mut self, field: &'static str) -> bool {
        let Some(value) = self.optional(field) else { return false };
        value.get_ref().as_bool().unwrap_or_else(|| {
            self.wrong(value, field, "true or false");
            false
        })
    }

    /// A calendar day, as `YYYY-MM-DD`.
    pub(super) fn date(&mut self, field: &'static str) -> Option<String> {
        let value = self.required(field)?;
        match value.get_ref().as_datetime() {
            Some(day) if day.date.is_some() && day.time.is_none() => Some(day.to_string()),
            _ => {
                self.wrong(value, field, "a day such as 2027-01-31, without quotes");
                None
            }
        }
    }

    /// One of a few names.
    pub(super) fn choice<T: Copy>(
        &mut self,
        field: &'static str,
        names: &[(&'static str, T)],
    ) -> Option<T> {
        let value = self.optional(field)?;
        let text = self.as_text(value, field)?;
        let found = names.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            let message = format!("{field} {text:?} is not one of {}", known.join(", "));
            self.mistake(value.span(), Rule::WrongValue, message);
        }
        found.map(|(_, choice)| *choice)
    }

    /// A calendar day as such.
    pub(super) fn day(&mut self, field: &'static str) -> Option<Date> {
        let text = self.date(field)?;
        let day = text.parse().ok();
        if day.is_none() {
            let span = self.span_of(field);
            self.mistake(span, Rule::WrongValue, format!("{field} {text} is not on a calendar"));
        }
        day
    }

    /// A positive number of days.
    pub(super) fn days(&mut self, field: &'static str) -> Option<u16> {
        let value = self.optional(field)?;
        let number = value.get_ref().as_integer();
        let number = number.and_then(|n| u16::from_str_radix(n.as_str(), n.radix()).ok());
        let number = number.filter(|days| *days > 0);
        if number.is_none() {
            self.wrong(value, field, "a number of days");
        }
        number
    }

    /// Any value that JSON can represent.
    pub(super) fn json(&mut self, field: &'static str) -> Option<serde_json::Value> {
        let value = self.required(field)?;
        let json = as_json(value.get_ref());
        if json.is_none() {
            self.wrong(value, field, "something that JSON can say");
        }
        json
    }

    /// Version numbers, from 1.
    pub(super) fn versions(&mut self, field: &'static str) -> Option<Vec<u32>> {
        let value = self.optional(field)?;
        let Some(items) = value.get_ref().as_array() else {
            self.wrong(value, field, "a list of versions such as [1, 2]");
            return None;
        };
        let mut versions = Vec::new();
        for item in items.iter() {
            let number = item.get_ref().as_integer();
            let number = number.and_then(|n| u32::from_str_radix(n.as_str(), n.radix()).ok());
            match number {
                Some(version) if version > 0 => versions.push(version),
                _ => self.wrong(item, field, "a list of versions such as [1, 2]"),
            }
        }
        Some(versions)
    }

    /// Each table of a list.
    pub(super) fn tables(&mut self, field: &'static str, mut read: impl FnMut(Fields<'_, 't>)) {
        self.each(field, |item| match item {
            Item::Table(fields) => read(fields),
            Item::Text(mut fields, value) => fields.wrong(value, field, "a list of tables"),
        });
    }

    /// Each entry of a list of tables and texts.
    pub(super) fn each(&mut self, field: &'static str, mut read: impl FnMut(Item<'_, 't>)) {
        let Some(value) = self.optional(field) else { return };
        let Some(items) = value.get_ref().as_array() else {
            return self.wrong(value, field, "a list");
        };
        for item in items.iter() {
            match item.get_ref() {
                DeValue::Table(table) => read(Item::Table(self.inner(table, item.span()))),
                DeValue::String(_) => {
                    // A text entry has no fields of its own, but mistakes need a position.
                    read(Item::Text(self.inner(self.table, item.span()), item));
                }
                _ => self.wrong(item, field, "a list of tables"),
            }
        }
    }

    /// The table of this name.
    pub(super) fn table(&mut self, field: &'static str) -> Option<Fields<'_, 't>> {
        let value = self.optional(field)?;
        match value.get_ref() {
            DeValue::Table(table) => Some(self.inner(table, value.span())),
            _ => {
                self.wrong(value, field, "a table");
                None
            }
        }
    }

    fn inner(&mut self, table: &'t DeTable<'t>, span: Range<usize>) -> Fields<'_, 't> {
        Fields { source: self.source, mistakes: self.mistakes, table, span, asked: Vec::new() }
    }

    /// Reports every field that was never asked for.
    pub(super) fn finish(self) {
        for (name, _) in self.table {
            let field: &str = name.get_ref();
            if self.asked.contains(&field) {
                continue;
            }
            let message = format!("unknown field {field:?}{}", meant(field, &self.asked));
            self.mistakes.push(self.source.mistake(name.span(), Rule::UnknownField, message));
        }
    }
}

/// An entry of a list.
pub(super) enum Item<'m, 't> {
    Table(Fields<'m, 't>),
    Text(Fields<'m, 't>, Value<'t>),
}

fn as_json(value: &DeValue<'_>) -> Option<serde_json::Value> {
    use serde_json::Value;
    Some(match value {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(number) => {
            Value::from(i64::from_str_radix(number.as_str(), number.radix()).ok()?)
        }
        DeValue::Float(number) => {
            Value::Number(serde_json::Number::from_f64(number.as_str().parse().ok()?)?)
        }
        DeValue::Array(items) => {
            Value::Array(items.iter().map(|i| as_json(i.get_ref())).collect::<Option<_>>()?)
        }
        DeValue::Table(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| Some((name.get_ref().to_string(), as_json(value.get_ref())?)));
            Value::Object(fields.collect::<Option<_>>()?)
        }
        DeValue::Datetime(_) => return None,
    })
}

fn article(kind: &str) -> String {
    let vowel = kind.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {kind}", if vowel { "an" } else { "a" })
}

/// `; did you mean …?` where one of the names is close.
pub(super) fn meant<'a>(word: &str, names: impl IntoIterator<Item = &'a &'a str>) -> String {
    let close = names.into_iter().map(|name| (distance(word, name), name));
    match close.min() {
        Some((steps, name)) if steps <= 1 + word.len() / 4 => format!("; did you mean {name:?}?"),
        _ => String::new(),
    }
}

/// How many letters must be changed, added or left out.
fn distance(from: &str, to: &str) -> usize {
    // Skip names that are much longer: no typo explains them, and the distance costs the product of
    // both lengths.
    if from.len() > 64 || to.len() > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, b) in to.bytes().enumerate() {
            let change = corner + usize::from(a != b);
            corner = row[j + 1];
            row[j + 1] = change.min(corner + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}
