//! The acknowledgements of what is published.
//!
//! The client would make a channel, a timer and a random name for each message, which costs about
//! as much as sending it. Here the messages of a batch share them: the subject of a reply says
//! which message of which batch it is for.

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

/// What the server says of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is in the stream, under this number.
    Stored { sequence: u64, duplicate: bool },
    /// No stream takes its subject.
    NoStream,
    /// The stream does not take it.
    Refused(String),
}

/// Where acknowledgements arrive.
#[derive(Debug)]
pub(super) struct Acks {
    inbox: String,
    open: Arc<Open>,
    next: AtomicU64,
    /// Reads them for as long as this lives.
    _reader: JoinSet<()>,
}

/// The batches that wait for theirs.
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

/// The most that are read at once.
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
    /// Where the acknowledgement of a message is to go.
    pub(super) fn reply(&self, message: usize) -> String {
        format!("{}.{}.{message}", self.acks.inbox, self.number)
    }

    /// This one was not sent.
    pub(super) fn forget(&self, message: usize) {
        self.waiting.missing_one(&mut lock(&self.waiting.answers), message);
    }

    /// What was said of each message until all are answered, or for this long.
    pub(super) async fn answers(self, patience: Duration) -> Vec<Option<Answer>> {
        let complete = async {
            while lock(&self.waiting.answers).missing > 0 {
                self.waiting.complete.notified().await;
            }
        };
        // Whether all have come is seen from what is there.
        let _ = tokio::time::timeout(patience, complete).await;
        std::mem::take(&mut lock(&self.waiting.answers).of)
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        lock(&self.acks.open.0).remove(&self.number);
    }
}

impl Waiting {
    fn missing_one(&self, answers: &mut Answers, message: usize) {
        // What comes twice or too late is not missed.
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
        _ => Answer::Refused("the server's acknowledgement cannot be read".into()),
    }
}
