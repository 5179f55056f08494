//! A message as Pub/Sub carries it.
//!
//! Headers become attributes, so that consumers in any language can read them. Those that an
//! attribute cannot carry (repeated names, names that are too long or reserved, values over 1,024
//! bytes), and a key that is too long for an ordering key, go together as JSON in
//! `chapar-headers-0`, `-1` and so on, because an attribute holds at most 1,024 bytes.

use std::collections::{BTreeMap, HashMap};

use chapar_core::Headers;
use chapar_core::port::TransportError;
use serde_json::Value;
use sha2::{Digest, Sha256};

pub(super) const ID: &str = "chapar-id";
const TENANT: &str = "chapar-tenant";
const OTHERS: &str = "chapar-headers-";
/// The subscription that a message in a dead-letter topic comes from.
pub(super) const SOURCE: &str = "CloudPubSubDeadLetterSourceSubscription";

/// The most bytes of an attribute and of an ordering key.
const MOST_VALUE: usize = 1024;
const MOST_NAME: usize = 256;
const MOST_ATTRIBUTES: usize = 100;

/// The attributes and the ordering key of an outgoing message.
pub(super) fn encode(
    id: &str,
    tenant: &str,
    key: Option<&str>,
    headers: &Headers,
) -> Result<(HashMap<String, String>, String), TransportError> {
    let mut attributes: HashMap<String, String> = HashMap::new();
    let mut others: Vec<(&str, &str)> = Vec::new();
    for (name, value) in headers {
        let fits = is_plain_name(name)
            && value.len() <= MOST_VALUE
            && attributes.len() < MOST_ATTRIBUTES - 10
            && headers.iter().filter(|(other, _)| *other == name).count() == 1;
        match fits {
            true => drop(attributes.insert(name.to_owned(), value.to_owned())),
            false => others.push((name, value)),
        }
    }
    let ordering = match key {
        Some(key) if key.len() <= MOST_VALUE && !key.is_empty() => key.to_owned(),
        // Use a hash as ordering key: equal keys have equal hashes. The key itself goes in JSON.
        Some(key) => hex(&Sha256::digest(key.as_bytes())),
        None => String::new(),
    };
    attributes.insert(ID.into(), id.into());
    if tenant.len() <= MOST_VALUE {
        attributes.insert(TENANT.into(), tenant.into());
    }
    let key = key.filter(|key| *key != ordering);
    if !others.is_empty() || key.is_some() {
        let json = serde_json::json!({ "headers": others, "key": key }).to_string();
        for (number, piece) in pieces(&json).into_iter().enumerate() {
            attributes.insert(format!("{OTHERS}{number}"), piece);
        }
    }
    if attributes.len() > MOST_ATTRIBUTES {
        return Err(TransportError::Refused(format!(
            "its headers take {} attributes where Pub/Sub has {MOST_ATTRIBUTES}; send fewer",
            attributes.len()
        )));
    }
    Ok((attributes, ordering))
}

/// The headers and the key of a message that has arrived.
pub(super) fn decode(
    attributes: HashMap<String, String>,
    ordering: &str,
) -> (Headers, Option<String>) {
    let mut key = (!ordering.is_empty()).then(|| ordering.to_owned());
    let (mut headers, mut others) = (Vec::<(String, String)>::new(), BTreeMap::new());
    for (name, value) in attributes {
        match name.strip_prefix(OTHERS).and_then(|number| number.parse::<u32>().ok()) {
            Some(number) => drop(others.insert(number, value)),
            None if is_reserved(&name) => {}
            None => headers.push((name, value)),
        }
    }
    if !others.is_empty() {
        key = others_of(others, &mut headers).or(key);
    }
    // The map has no order; sort, so that deliveries of one message are equal.
    headers.sort();
    (headers.into_iter().collect(), key)
}

/// Adds the headers that were sent as JSON; returns the key, if it was among them.
fn others_of(pieces: BTreeMap<u32, String>, headers: &mut Vec<(String, String)>) -> Option<String> {
    let json: String = pieces.into_values().collect();
    let mut others: Value = serde_json::from_str(&json).unwrap_or_default();
    let key = others["key"].as_str().map(str::to_owned);
    let others: Vec<(String, String)> =
        serde_json::from_value(others["headers"].take()).unwrap_or_default();
    headers.extend(others);
    key
}

/// Splits a text into values that fit.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for c in text.chars() {
        if pieces.last().is_some_and(|piece| piece.len() + c.len_utf8() > MOST_VALUE) {
            pieces.push(String::new());
        }
        if let Some(piece) = pieces.last_mut() {
            piece.push(c);
        }
    }
    pieces
}

fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MOST_NAME && !is_reserved(name)
}

fn is_reserved(name: &str) -> bool {
    let begins_with = |prefix: &&str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    ["goog", "chapar-", "cloudpubsub"].iter().any(begins_with)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(key: Option<&str>, headers: &[(&str, &str)]) -> HashMap<String, String> {
        let mut sent = headers.to_vec();
        let headers = Headers::from_iter(headers.iter().copied());
        let (attributes, ordering) = encode("7", "acme", key, &headers).unwrap();
        assert!(attributes.values().all(|value| value.len() <= MOST_VALUE));
        assert!(ordering.len() <= MOST_VALUE);
        sent.sort();
        let sorted = Headers::from_iter(sent);
        assert_eq!(decode(attributes.clone(), &ordering), (sorted, key.map(str::to_owned)));
        attributes
    }

    #[test]
    fn what_an_attribute_cannot_carry_goes_another_way() {
        let long = "ü".repeat(3000);
        let attributes = there_and_back(
            Some("acme:7"),
            &[
                ("ce-id", "7"),
                ("x", ""),
                ("twice", "1"),
                ("twice", "2"),
                ("googclient", "no"),
                ("long", &long),
            ],
        );
        assert_eq!(attributes["ce-id"], "7");
        assert!(!attributes.contains_key("googclient") && !attributes.contains_key("twice"));
        there_and_back(Some(""), &[]);
        there_and_back(Some(&long), &[("chapar-key", "no")]);
        there_and_back(None, &[]);
    }

    #[test]
    fn too_many_headers_are_refused() {
        let huge = Headers::from([("x", "y".repeat(200_000))]);
        let said = encode("7", "acme", None, &huge).unwrap_err().to_string();
        assert!(said.contains("send fewer"), "{said}");
        let many: Headers = (0..300).map(|n| (format!("h{n}"), "v")).collect();
        assert!(encode("7", "acme", None, &many).unwrap().0.len() <= MOST_ATTRIBUTES);
    }
}
