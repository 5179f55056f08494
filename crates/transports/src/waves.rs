//! One message of a key at a time.

use std::collections::HashSet;

use chapar_core::port::{Outgoing, Receipt, TransportError};

/// The result of publishing one message.
pub(crate) type Published = Result<Receipt, TransportError>;

/// Publishes in waves: a message waits until the earlier ones of its key in the batch are
/// acknowledged, and fails if one of them fails.
pub(crate) async fn in_waves<F: Future<Output = Vec<Published>>>(
    batch: Vec<Outgoing>,
    publish: impl Fn(Vec<Outgoing>) -> F,
) -> Vec<Published> {
    let one_per_key = {
        let mut keys = HashSet::with_capacity(batch.len());
        batch.iter().all(|m| m.key.as_ref().is_none_or(|key| keys.insert(key)))
    };
    if one_per_key {
        return publish(batch).await;
    }
    let mut results: Vec<Option<Published>> = batch.iter().map(|_| None).collect();
    let mut rest: Vec<(usize, Outgoing)> = batch.into_iter().enumerate().collect();
    let mut failed: HashSet<String> = HashSet::new();
    while !rest.is_empty() {
        let mut keys = HashSet::new();
        let (wave, later): (Vec<_>, Vec<_>) = rest
            .into_iter()
            .partition(|(_, m)| m.key.as_ref().is_none_or(|key| keys.insert(key.clone())));
        rest = later;
        let (mut indices, mut keys, mut messages) = (Vec::new(), Vec::new(), Vec::new());
        for (index, message) in wave {
            if message.key.as_ref().is_some_and(|key| failed.contains(key)) {
                results[index] = Some(Err(behind_another()));
            } else {
                indices.push(index);
                keys.push(message.key.clone());
                messages.push(message);
            }
        }
        let published = publish(messages).await;
        for ((index, key), result) in indices.into_iter().zip(keys).zip(published) {
            if result.is_err() {
                failed.extend(key);
            }
            results[index] = Some(result);
        }
    }
    results.into_iter().map(|result| result.unwrap_or_else(|| Err(behind_another()))).collect()
}

fn behind_another() -> TransportError {
    TransportError::Unavailable("an earlier message of its key was not published".into())
}
