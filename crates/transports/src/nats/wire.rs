//! A message as NATS carries it.
//!
//! Headers become NATS headers, so that consumers in any language can read them. Those that NATS
//! cannot carry unchanged (line breaks, blanks around a value, names with a colon, reserved names)
//! go together as JSON in `Chapar-Headers`.

use chapar_core::Headers;
use std::borrow::Cow;

use async_nats::header::{HeaderMap, HeaderName, NATS_MESSAGE_ID};

const TENANT: [&str; 2] = ["Chapar-Tenant", "Chapar-Tenant-Json"];
const KEY: [&str; 2] = ["Chapar-Key", "Chapar-Key-Json"];
const OTHERS: &str = "Chapar-Headers";

/// What an outgoing message carries beside its headers.
pub(super) struct Named {
    pub(super) id: String,
    pub(super) tenant: String,
    pub(super) key: Option<String>,
}

/// The headers of an outgoing message.
pub(super) fn encode(headers: &Headers, named: Named) -> HeaderMap {
    static PLAIN: [HeaderName; 2] =
        [HeaderName::from_static(TENANT[0]), HeaderName::from_static(KEY[0])];
    let mut map = HeaderMap::new();
    map.insert(NATS_MESSAGE_ID, named.id);
    for (n, value) in [Some(named.tenant), named.key].into_iter().enumerate() {
        match value {
            Some(value) if is_plain_value(&value) => map.insert(PLAIN[n].clone(), value),
            Some(value) => {
                map.insert([TENANT[1], KEY[1]][n], serde_json::Value::from(value).to_string());
            }
            None => {}
        }
    }
    let mut others = Headers::new();
    for (name, value) in headers {
        match is_plain_name(name) && is_plain_value(value) {
            true => map.append(name, value),
            false => others.push(name, value),
        }
    }
    if !others.is_empty() {
        map.insert(OTHERS, serde_json::json!(others).to_string());
    }
    map
}

/// The headers and the key of a message that has arrived.
pub(super) fn decode(map: Option<&HeaderMap>) -> (Headers, Option<String>) {
    let (mut headers, mut key) = (Vec::<(Cow<'_, str>, Cow<'_, str>)>::new(), None);
    let Some(map) = map else { return (Headers::new(), key) };
    for (name, values) in map.iter() {
        let name: &str = name.as_ref();
        for value in values {
            match name {
                _ if name == KEY[0] => key = Some(value.as_str().to_owned()),
                _ if name == KEY[1] => key = serde_json::from_str(value.as_str()).ok(),
                OTHERS => headers.extend(others(value.as_str())),
                _ if is_reserved(name) => {}
                _ => headers.push((name.into(), value.as_str().into())),
            }
        }
    }
    // The map has no order; sort, so that deliveries of one message are equal.
    headers.sort_by(|(a, _), (b, _)| a.cmp(b));
    (headers.into_iter().collect(), key)
}

/// The key of a message that has arrived.
pub(super) fn key(map: Option<&HeaderMap>) -> Option<Cow<'_, str>> {
    let map = map?;
    match (map.get(KEY[0]), map.get(KEY[1])) {
        (Some(key), _) => Some(key.as_str().into()),
        (None, Some(json)) => serde_json::from_str(json.as_str()).ok().map(Cow::Owned),
        (None, None) => None,
    }
}

/// The id and the tenant of a message.
pub(super) fn named(map: Option<&HeaderMap>) -> Option<(String, String)> {
    let map = map?;
    let id = map.get(NATS_MESSAGE_ID)?.as_str().to_owned();
    let tenant = match (map.get(TENANT[0]), map.get(TENANT[1])) {
        (Some(tenant), _) => tenant.as_str().to_owned(),
        (None, Some(json)) => serde_json::from_str(json.as_str()).ok()?,
        (None, None) => String::new(),
    };
    Some((id, tenant))
}

fn others(json: &str) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
    serde_json::from_str(json).unwrap_or_default()
}

fn is_plain_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.bytes().all(plain) && !is_reserved(name)
}

fn is_plain_value(value: &str) -> bool {
    // Nearly all of them are ASCII, which is checked faster byte by byte.
    match value.as_bytes() {
        [] => false,
        [b' ', ..] | [.., b' '] => false,
        bytes if bytes.is_ascii() => !bytes.iter().any(u8::is_ascii_control),
        _ => value.trim() == value && !value.chars().any(char::is_control),
    }
}

fn is_reserved(name: &str) -> bool {
    let ours = [TENANT[0], TENANT[1], KEY[0], KEY[1], OTHERS];
    name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("nats-"))
        || ours.iter().any(|ours| ours.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(key: &str) -> Named {
        Named { id: "7".into(), tenant: "acme".into(), key: Some(key.into()) }
    }

    #[test]
    fn what_nats_cannot_carry_goes_another_way() {
        let headers =
            [("Nats-Msg-Id", "no"), ("ce-id", "7"), ("chapar-key", "no"), ("x", "a\r\nb")];
        let headers = Headers::from(headers);
        let map = encode(&headers, named("a key"));
        assert_eq!(map.get("ce-id").map(|value| value.as_str()), Some("7"));
        assert_eq!(map.get("Nats-Msg-Id").map(|value| value.as_str()), Some("7"));
        // By name, as the map has no order of its own.
        assert_eq!(decode(Some(&map)), (headers, Some("a key".into())));
        for key in [" \n", " a", "b ", "c\u{85}", "\u{2003}d", "", "\u{7f}"] {
            let map = encode(&Headers::new(), named(key));
            assert_eq!(map.get("Chapar-Key"), None, "{key:?}");
            assert_eq!(decode(Some(&map)), (Headers::new(), Some(key.into())));
        }
    }
}
