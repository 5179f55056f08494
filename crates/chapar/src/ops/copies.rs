//! Copies of dead letters on the broker, for readers there.
//!
//! The dead letter in the database is the truth, and the only thing that is replayed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use chapar_core::Headers;
use chapar_core::port::{Outgoing, Transport};
use chapar_sql::{DeadLetter, StoreError, Tables};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::chapar::Chapar;
use crate::supervisor::{Ended, Part};

/// Publishes what is to be copied, until it is stopped.
#[derive(Clone)]
pub(crate) struct Copier {
    pub(crate) chapar: Chapar,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) stop: CancellationToken,
}

impl Copier {
    pub(crate) async fn run(self) -> Part {
        const EVERY: Duration = Duration::from_secs(1);
        while !self.stop.is_cancelled() {
            match self.copy_some().await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => debug!(%error, "cannot copy dead letters; retrying in 1 s"),
            }
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = self.stop.cancelled() => {}
            }
        }
        Ok(Ended::Stopped)
    }

    /// Copies some letters; says whether there may be more. Two processes may publish the same
    /// one, under the same id.
    async fn copy_some(&self) -> Result<bool, StoreError> {
        const AT_ONCE: usize = 100;
        let store = self.chapar.store();
        let mut tx = store.begin_read().await?;
        let letters = tx.letters().to_copy(AT_ONCE as i64).await?;
        tx.rollback().await?;
        let mut copied = Vec::new();
        // One after the other: several may have one key, and there is no hurry.
        for letter in &letters {
            let Some(copy) = self.copy(letter) else {
                copied.push(letter.id.clone());
                continue;
            };
            match self.transport.publish(vec![copy]).await.pop() {
                Some(Err(error)) if error.is_retryable() => break,
                Some(Err(error)) => {
                    warn!(letter = letter.id, %error, "cannot publish the copy of a dead letter");
                }
                _ => {}
            }
            copied.push(letter.id.clone());
        }
        let more = letters.len() == AT_ONCE && copied.len() == AT_ONCE;
        if !copied.is_empty() {
            let mut tx = store.begin_engine().await?;
            tx.letters().copied(copied).await?;
            tx.commit().await?;
        }
        Ok(more)
    }

    /// The message that the readers of dead letters know, and what they do not know as headers.
    fn copy(&self, letter: &DeadLetter) -> Option<Outgoing> {
        let arrival = &letter.arrival;
        let profile = self.chapar.profile();
        let subject = profile.subject(&arrival.topic).ok()?;
        let topic = profile.dlq_template.fill(&arrival.topic, &subject.service().to_uppercase());
        let body = json!({
            "original_topic": arrival.topic,
            "original_partition": arrival.partition,
            "original_offset": arrival.offset,
            "original_key": arrival.ordering_key,
            "original_value": BASE64_STANDARD.encode(&arrival.body),
            "error_message": letter.error,
            "retry_count": letter.attempts,
            "failed_at": letter.last_failed_at,
            "headers": arrival.headers.iter().collect::<BTreeMap<_, _>>(),
        });
        Some(Outgoing {
            id: letter.id.parse().ok()?,
            topic,
            tenant: arrival.tenant.clone(),
            key: arrival.ordering_key.clone(),
            headers: Headers::from([
                ("chapar-consumer", &letter.consumer),
                ("chapar-letter", &letter.id),
                ("chapar-kind", &letter.kind),
            ]),
            body: body.to_string().into(),
        })
    }
}
