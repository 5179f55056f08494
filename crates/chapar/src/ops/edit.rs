use bytes::Bytes;
use chapar_core::dialect::Message;
use chapar_core::{Envelope, Payload, rules};
use chapar_sql::{EditedLetter, Tables};
use jiff::Timestamp;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::replay::{changed, refusal, remembered_since};
use super::{DeadLetter, Letters, Operator, TriageError, audit};
use crate::chapar::Chapar;

/// An edited version of an event that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Another payload in the same envelope, as JSON.
    Payload(String),
    /// Another message, for an event that could not even be read. Its id, tenant and topic stay
    /// where they could.
    Message(Bytes),
}

impl Letters {
    /// The message that an edit makes of a letter, if its consumer could take it: checked by the
    /// rules, and by the contract of its topic as its producer would have been.
    pub fn edited(
        &self,
        chapar: &Chapar,
        letter: &DeadLetter,
        edit: &Edit,
    ) -> Result<(Envelope, Message), TriageError> {
        let refuse = |reason: String| TriageError::Edit(reason);
        let topic = &letter.arrival.topic;
        let (headers, body) = (letter.arrival.headers.clone(), letter.arrival.body.clone());
        let original = Message { topic: Some(topic.clone()), headers, body };
        let dialect = chapar.dialect();
        let before = dialect.decode(&original);
        let envelope = match edit {
            Edit::Payload(text) => {
                let mut envelope = before.map_err(|error| {
                    refuse(format!(
                        "the envelope itself cannot be read ({error}); give the whole message"
                    ))
                })?;
                envelope.payload = Payload::from_json_text(text.trim()).map_err(|error| {
                    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                    refuse(format!("{error}{}", cause.unwrap_or_default()))
                })?;
                envelope
            }
            Edit::Message(body) => {
                let message = Message { body: body.clone(), ..original.clone() };
                let after = dialect.decode(&message).map_err(|error| refuse(error.to_string()))?;
                if let Ok(before) = before {
                    for (what, was, is) in [
                        ("id", before.id.to_string(), after.id.to_string()),
                        ("tenant", before.tenant.to_string(), after.tenant.to_string()),
                    ] {
                        if was != is {
                            return Err(refuse(format!(
                                "its {what} was {was} and would be {is}; it stays the same event"
                            )));
                        }
                    }
                }
                after
            }
        };
        let subject = chapar.profile().subject(topic).map_err(|error| refuse(error.to_string()))?;
        rules::check_topic(&envelope, &subject).map_err(|error| refuse(error.to_string()))?;
        rules::check(&envelope, chapar.profile(), true)
            .map_err(|error| refuse(error.to_string()))?;
        let mut message = dialect.encode(&envelope).map_err(|error| refuse(error.to_string()))?;
        if let Some(registry) = chapar.registry() {
            if !registry.contains(topic) {
                return Err(refuse(format!("{topic} is not among the contracts")));
            }
            registry
                .check_written(topic, &envelope.payload)
                .map_err(|error| refuse(error.to_string()))?;
            registry.check_message(topic, &message.body).map_err(refuse)?;
        }
        // What others have put beside the dialect's own headers, such as the relay's stamps.
        for (name, value) in &original.headers {
            if message.header(name).is_none() {
                message.headers.push(name, value);
            }
        }
        Ok((envelope, message))
    }

    /// Has an edited event delivered instead of the one that failed, under the same id. The
    /// original stays with the letter, and the audit log has the hashes of both.
    pub async fn edit_and_replay(
        &self,
        chapar: &Chapar,
        id: &str,
        edit: &Edit,
        by: Operator<'_>,
    ) -> Result<(), TriageError> {
        let letter = self.get(id).await?;
        let (envelope, message) = self.edited(chapar, &letter, edit)?;
        let (before, after) = (hash(&letter.arrival.body), hash(&message.body));
        let (at, who) = (Timestamp::now(), by.name.to_owned());
        let edited = EditedLetter { headers: message.headers, body: message.body, by: who, at };
        let arrival = &letter.arrival;
        // The name under which it is claimed stays, unless it had none because it could not be read.
        let fact = match arrival.event_id.starts_with(crate::consumer::NAMELESS) {
            true => crate::consumer::fact(&envelope),
            false => arrival.event_id.clone(),
        };
        let tenant = envelope.tenant.to_string();
        let mut tx = self.store.begin_engine().await?;
        if !tx.letters().edit(id, &fact, &tenant, &edited).await? {
            return Err(refusal(&letter, None).unwrap_or_else(|| changed(id)));
        }
        let since = remembered_since(at);
        if tx.letters().ask_for_replay(vec![id.to_owned()], None, Some(since)).await? == 0 {
            let letter = DeadLetter { fix: Some("edited".into()), ..letter };
            return Err(refusal(&letter, Some(since)).unwrap_or_else(|| changed(id)));
        }
        let detail = json!({ "original_sha256": before, "edited_sha256": after,
                             "before": { "open": 1 }, "after": { "replay": 1 } });
        audit(&mut tx.conn(), by, "dead_letter.edit_and_replay", id, &detail).await?;
        tx.commit().await?;
        self.store.nudge();
        Ok(())
    }
}

fn hash(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}
