//! Publish acknowledgements.
//!
//! The client library creates a channel, a timer and a random inbox for each message, which costs
//! about as much as sending it. Here the messages of a batch share them: the subject of a reply
//! names the batch and the message.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{Client, Message, StatusCode, Subscriber};
use chapar_core::port::TransportError;
use futures_util::StreamExt as _;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::{lock, unavailable};

/// The server's answer to a publish.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The message is in the stream, with this sequence number.
    Stored { sequence: u64, duplicate: bool },
    /// No stream has its subject.
    NoStream,
    /// The stream refuses it.
    Refused(String),
}

/// Where acknowledgements arrive.
#[derive(Debug)]
pub(super) struct Acks {
    inbox: String,
    open: Arc<Open>,
    next: AtomicU64,
    /// Reads replies for as long as this value lives.
    _reader: JoinSet<()>,
}

/// The batches that wait for acknowledgements.
#[derive(Debug, Default)]
struct Open(Mutex<HashMap<u64, Arc<Waiting>>>);

#[derive(Debug)]
struct Waiting {
    answers: Mutex<Answers>,
    complete: Notify,
}

#[derive(Debug)]
struct Answers {
    of: Vec<Option<Answer>>,
    missing: usize,
}

/// The most replies that are read at once.
const AT_ONCE: usize = 256;

impl Acks {
    pub(super) async fn subscribe(client: &Client) -> Result<Self, TransportError> {
        let inbox = client.new_inbox();
        let replies = client.subscribe(format!("{inbox}.*.*")).await;
        let replies = replies.map_err(|error| unavailable(&error))?;
        let open: Arc<Open> = Arc::default();
        let mut reader = JoinSet::new();
        reader.spawn(read(replies, inbox.len() + 1, open.clone()));
        Ok(Acks { inbox, open, next: AtomicU64::new(0), _reader: reader })
    }

    /// Waits for the acknowledgements of this many messages.
    pub(super) fn expect(&self, messages: usize) -> Batch<'_> {
        let of = (0..messages).map(|_| None).collect();
        let answers = Mutex::new(Answers { of, missing: messages });
        let waiting = Arc::new(Waiting { answers, complete: Notify::new() });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.open.0).insert(number, waiting.clone());
        Batch { acks: self, number, waiting }
    }
}

/// A batch that waits for its acknowledgements.
pub(super) struct Batch<'a> {
    acks: &'a Acks,
    number: u64,
    waiting: Arc<Waiting>,
}

impl Batch<'_> {
    /// The reply subject of a message.
    pub(super) fn reply(&self, message: usize) -> String {
        format!("{}.{}.{message}", self.acks.inbox, self.number)
    }

    /// The message was not sent, so no acknowledgement is expected.
    pub(super) fn forget(&self, message: usize) {
        self.waiting.missing_one(&mut lock(&self.waiting.answers), message);
    }

    /// The answer to each message, once all are answered or none has arrived for `patience`.
    pub(super) async fn answers(self, patience: Duration) -> Vec<Option<Answer>> {
        let mut missing = usize::MAX;
        loop {
            let still = lock(&self.waiting.answers).missing;
            if still == 0 || still == missing {
                return std::mem::take(&mut lock(&self.waiting.answers).of);
            }
            missing = still;
            // A timeout is detected from the number that is still missing.
            let _ = tokio::time::timeout(patience, self.waiting.complete.notified()).await;
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        lock(&self.acks.open.0).remove(&self.number);
    }
}

impl Waiting {
    fn missing_one(&self, answers: &mut Answers, message: usize) {
        // Ignore answers that come twice or too late.
        if message < answers.of.len() && answers.of[message].is_none() && answers.missing > 0 {
            answers.missing -= 1;
            if answers.missing == 0 {
                self.complete.notify_one();
            }
        }
    }

    fn answered(&self, message: usize, answer: Answer) {
        let mut answers = lock(&self.answers);
        self.missing_one(&mut answers, message);
        if let Some(place) = answers.of.get_mut(message) {
            place.get_or_insert(answer);
        }
    }
}

async fn read(replies: Subscriber, prefix: usize, open: Arc<Open>) {
    let mut replies = replies.ready_chunks(AT_ONCE);
    while let Some(some) = replies.next().await {
        let batches = lock(&open.0);
        for reply in some {
            if let Some((batch, message)) = place(reply.subject.as_str(), prefix)
                && let Some(waiting) = batches.get(&batch)
            {
                waiting.answered(message, answer(&reply));
            }
        }
    }
}

fn place(subject: &str, prefix: usize) -> Option<(u64, usize)> {
    let (batch, message) = subject.get(prefix..)?.split_once('.')?;
    Some((batch.parse().ok()?, message.parse().ok()?))
}

fn answer(reply: &Message) -> Answer {
    #[derive(Deserialize)]
    struct Said {
        seq: Option<u64>,
        #[serde(default)]
        duplicate: bool,
        error: Option<Failure>,
    }
    #[derive(Deserialize)]
    struct Failure {
        #[serde(default)]
        description: String,
        #[serde(default)]
        err_code: u64,
    }
    if reply.status == Some(StatusCode::NO_RESPONDERS) {
        return Answer::NoStream;
    }
    match serde_json::from_slice(&reply.payload) {
        Ok(Said { error: Some(Failure { description, err_code }), .. }) => {
            Answer::Refused(format!("{description} ({err_code})"))
        }
        Ok(Said { seq: Some(sequence), duplicate, .. }) => Answer::Stored { sequence, duplicate },
        _ => Answer::Refused("malformed acknowledgement from the server".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(payload: &'static str, status: Option<StatusCode>) -> Message {
        Message {
            subject: "_INBOX.a.7.2".into(),
            reply: None,
            payload: payload.into(),
            headers: None,
            status,
            description: None,
            length: payload.len(),
        }
    }

    #[test]
    fn an_acknowledgement_is_read_and_anything_else_is_none() {
        let said = |payload| answer(&reply(payload, None));
        let stored = |duplicate| Answer::Stored { sequence: 5, duplicate };
        assert_eq!(said(r#"{"stream":"S","seq":5}"#), stored(false));
        assert_eq!(said(r#"{"stream":"S","domain":"d","seq":5,"duplicate":true}"#), stored(true));
        let full = r#"{"error":{"code":400,"err_code":10077,"description":"full"},"seq":0}"#;
        assert_eq!(said(full), Answer::Refused("full (10077)".into()));
        for garbage in ["", "{", "[]", "{}", "\u{0}", r#"{"seq":-1}"#, r#"{"seq":"5"}"#] {
            assert!(matches!(said(garbage), Answer::Refused(_)), "{garbage}");
        }
        assert_eq!(answer(&reply("", Some(StatusCode::NO_RESPONDERS))), Answer::NoStream);
    }

    #[test]
    fn a_reply_is_for_the_message_that_its_subject_names() {
        let prefix = "_INBOX.a.".len();
        assert_eq!(place("_INBOX.a.7.2", prefix), Some((7, 2)));
        for other in ["_INBOX.a.7", "_INBOX.a.7.x", "_INBOX.a.-1.2", "_INB", ""] {
            assert_eq!(place(other, prefix), None, "{other}");
        }
    }

    #[tokio::test]
    async fn what_is_not_answered_is_given_up_when_nothing_more_comes() {
        let answers = Mutex::new(Answers { of: vec![None, None, None, None], missing: 4 });
        let waiting = Arc::new(Waiting { answers, complete: Notify::new() });
        let acks = Acks {
            inbox: String::new(),
            open: Arc::default(),
            next: AtomicU64::new(0),
            _reader: JoinSet::new(),
        };
        let batch = Batch { acks: &acks, number: 0, waiting: waiting.clone() };
        batch.forget(3);
        waiting.answered(1, Answer::NoStream);
        waiting.answered(1, Answer::Refused("again".into()));
        waiting.answered(9, Answer::NoStream);
        let answers = batch.answers(Duration::from_millis(10)).await;
        assert_eq!(answers, [None, Some(Answer::NoStream), None, None]);
        // Too late: the batch has ended.
        waiting.answered(0, Answer::NoStream);
    }
}
