//! What the CloudEvents specification 1.0.2 asks of attributes.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::dialect::{DecodeError, invalid, short};

/// Checks the attributes of an event as they came.
pub(super) fn check(
    attributes: &BTreeMap<String, Value>,
    content_type: Option<&str>,
) -> Result<(), DecodeError> {
    for (name, value) in attributes {
        let wrong = |reason: &str| {
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Err(invalid(short(name), &shown, reason))
        };
        if !is_name(name) {
            return wrong("the name of an attribute is lower-case letters and digits");
        }
        if let Some(reason) = broken(name, value) {
            return wrong(reason);
        }
    }
    match content_type {
        Some(media_type) if !is_media_type(media_type) => {
            Err(invalid("datacontenttype", media_type, "a media type is expected"))
        }
        _ => Ok(()),
    }
}

/// Why the specification forbids a value as the attribute of a name.
pub(super) fn broken(name: &str, value: &Value) -> Option<&'static str> {
    let text = match value {
        Value::String(text) => text,
        Value::Bool(_) if !is_core(name) => return None,
        Value::Number(number) if !is_core(name) => {
            let fits = number.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
            return (!fits).then_some("a number is an integer of 32 bits");
        }
        _ if is_core(name) => return Some("a string is expected"),
        _ => return Some("an extension is a text, a boolean or an integer of 32 bits"),
    };
    if !is_text(text) {
        return Some("control characters and noncharacters are not allowed");
    }
    match name {
        "subject" | "partitionkey" if text.is_empty() => Some("it is empty; leave it out"),
        "dataschema" if !is_uri(text) => Some("an absolute URI is expected"),
        // An empty one is reported as missing.
        "source" if !is_uri_reference(text) => Some("a URI reference is expected"),
        "time" if !is_time(text) => Some("a time as in RFC 3339 is expected, with its seconds"),
        _ => None,
    }
}

/// Attributes that the specification defines itself; all of them are texts.
fn is_core(name: &str) -> bool {
    matches!(name, "specversion" | "id" | "type" | "source" | "subject" | "time" | "dataschema")
}

pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

/// A string without control characters and noncharacters.
pub(super) fn is_text(text: &str) -> bool {
    !text.chars().any(is_forbidden)
}

fn is_forbidden(c: char) -> bool {
    let code = u32::from(c);
    c.is_control() || (0xFDD0..=0xFDEF).contains(&code) || code & 0xFFFE == 0xFFFE
}

/// JSON whose text is allowed as an attribute: what is not is escaped, which only occurs inside
/// its strings.
pub(super) fn json_text<T: serde::Serialize>(value: &T) -> String {
    let json = serde_json::to_string(value).expect("memory takes every JSON value");
    if is_text(&json) {
        return json;
    }
    let mut text = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_forbidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            text.push(c);
        }
    }
    text
}

/// RFC 3986, `URI`.
fn is_uri(text: &str) -> bool {
    scheme(text).is_some() && is_uri_reference(text)
}

/// RFC 3986, `URI-reference`.
fn is_uri_reference(text: &str) -> bool {
    let (main, fragment) = text.split_once('#').unwrap_or((text, ""));
    let path = main.split('?').next().unwrap_or_default();
    let rest = match scheme(text) {
        Some(scheme) => &main[scheme.len() + 1..],
        // Without a scheme the first segment has no colon.
        None if path.split('/').next().is_some_and(|segment| segment.contains(':')) => {
            return false;
        }
        None => main,
    };
    let (authority, rest) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let plain = |part: &str| !part.contains(['[', ']', '#']) && is_escaped(part);
    is_authority(authority) && plain(rest) && plain(fragment)
}

/// RFC 3986, `authority`: brackets stand around an IP address of version 6 or later, and a port is
/// a number.
fn is_authority(text: &str) -> bool {
    let (user, address) = text.rsplit_once('@').unwrap_or(("", text));
    let plain = |part: &str| !part.contains(['[', ']', '#', '@']) && is_escaped(part);
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let Some((literal, port)) = rest.split_once(']') else { return false };
            let later = literal.strip_prefix(['v', 'V']).is_some_and(|rest| {
                rest.split_once('.').is_some_and(|(version, address)| {
                    !version.is_empty()
                        && version.bytes().all(|b| b.is_ascii_hexdigit())
                        && !address.is_empty()
                })
            });
            if !later && literal.parse::<std::net::Ipv6Addr>().is_err() {
                return false;
            }
            (literal, port)
        }
        None => address.split_at(address.find(':').unwrap_or(address.len())),
    };
    let numbered = port.strip_prefix(':').unwrap_or(port).bytes().all(|b| b.is_ascii_digit());
    plain(user) && plain(host) && numbered && (port.is_empty() || port.starts_with(':'))
}

fn scheme(text: &str) -> Option<&str> {
    let (scheme, _) = text.split_once(':')?;
    let valid = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    valid.then_some(scheme)
}

/// Characters of URIs, and percent signs that are followed by two hex digits.
fn is_escaped(text: &str) -> bool {
    let known = |b: u8| b.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&b);
    text.bytes().all(known)
        && text
            .split('%')
            .skip(1)
            .all(|rest| rest.len() >= 2 && rest.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
}

/// RFC 3339, `date-time`. Whether the day exists is for the calendar to say.
pub(super) fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let shaped = |part: &[u8], shape: &[u8]| {
        part.len() == shape.len()
            && part.iter().zip(shape).all(|(byte, wanted)| match wanted {
                b'0' => byte.is_ascii_digit(),
                wanted => byte.eq_ignore_ascii_case(wanted),
            })
    };
    let Some((main, mut rest)) = bytes.split_at_checked("2026-01-31T12:00:00".len()) else {
        return false;
    };
    if let Some(fraction) = rest.strip_prefix(b".") {
        let end = fraction.iter().position(|b| !b.is_ascii_digit()).unwrap_or(fraction.len());
        if !digits(&fraction[..end]) {
            return false;
        }
        rest = &fraction[end..];
    }
    let zone = shaped(rest, b"z") || shaped(rest, b"+00:00") || shaped(rest, b"-00:00");
    shaped(main, b"0000-00-00t00:00:00") && zone
}

/// RFC 2045: two tokens, and parameters that are left to those who know the type.
pub(super) fn is_media_type(text: &str) -> bool {
    let token = |part: &str| {
        let known = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`{|}~".contains(&b);
        !part.is_empty() && part.bytes().all(known)
    };
    let essence = text.split(';').next().unwrap_or_default().trim();
    let tokens = essence.split_once('/');
    tokens.is_some_and(|(kind, subtype)| token(kind) && token(subtype)) && is_text(text)
}
