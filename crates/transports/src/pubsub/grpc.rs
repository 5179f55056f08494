//! The calls of Pub/Sub that are made without the official client: publishing, and pulling,
//! acknowledging and extending with an answer to each. See `docs/decisions` for why.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use chapar_core::port::TransportError;
use google_cloud_auth::credentials::{CacheableResource, Credentials};
use prost::Message as _;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Extensions, Request, Status};
use tonic_prost::ProstCodec;

use super::lock;

/// The most ids in one request, which may have 512 KiB.
const MOST_IDS: usize = 1000;
/// Longer than the service lets a pull wait. Pings detect a dead connection.
const LONG_POLL: Duration = Duration::from_secs(100);
/// A message may have 10 MB, and an answer several messages.
const MOST_BYTES: usize = 64 << 20;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Message {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) data: Bytes,
    #[prost(map = "string, string", tag = "2")]
    pub(super) attributes: HashMap<String, String>,
    #[prost(string, tag = "3")]
    pub(super) id: String,
    #[prost(message, optional, tag = "4")]
    pub(super) published: Option<prost_types::Timestamp>,
    #[prost(string, tag = "5")]
    pub(super) ordering_key: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Received {
    #[prost(string, tag = "1")]
    pub(super) ack_id: String,
    #[prost(message, optional, tag = "2")]
    pub(super) message: Option<Message>,
    #[prost(int32, tag = "3")]
    pub(super) attempt: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Batch {
    #[prost(message, repeated, tag = "1")]
    messages: Vec<Received>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Publish {
    #[prost(string, tag = "1")]
    topic: String,
    #[prost(message, repeated, tag = "2")]
    messages: Vec<Message>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Published {
    #[prost(string, repeated, tag = "1")]
    ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Pull {
    #[prost(string, tag = "1")]
    subscription: String,
    #[prost(bool, tag = "2")]
    return_immediately: bool,
    #[prost(int32, tag = "3")]
    max_messages: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Acknowledge {
    #[prost(string, tag = "1")]
    subscription: String,
    #[prost(string, repeated, tag = "2")]
    ack_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ModifyAckDeadline {
    #[prost(string, tag = "1")]
    subscription: String,
    #[prost(int32, tag = "3")]
    seconds: i32,
    #[prost(string, repeated, tag = "4")]
    ack_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ErrorInfo {
    #[prost(map = "string, string", tag = "3")]
    metadata: HashMap<String, String>,
}

/// Why ids were not acknowledged or extended.
#[derive(Debug)]
pub(super) enum Denied {
    /// The lease of some of them has expired.
    Gone,
    /// A retryable error.
    Later(TransportError),
}

/// A connection that is opened on first use, and can be replaced: when a network drops all packets,
/// the old one may look alive for minutes.
#[derive(Debug)]
pub(super) struct Line {
    endpoint: Endpoint,
    /// The connection and its number.
    channel: Mutex<(u64, Channel)>,
    credentials: Credentials,
    timeout: Duration,
}

impl Line {
    pub(super) fn new(endpoint: Endpoint, credentials: Credentials, timeout: Duration) -> Self {
        let channel = Mutex::new((0, endpoint.connect_lazy()));
        Line { endpoint, channel, credentials, timeout }
    }

    /// Drops the connection with this number, unless another call has already.
    fn renew(&self, number: u64) {
        let mut channel = lock(&self.channel);
        if channel.0 == number {
            *channel = (number + 1, self.endpoint.connect_lazy());
        }
    }

    /// Publishes messages of one key; returns their ids.
    pub(super) async fn publish(
        &self,
        topic: &str,
        messages: Vec<Message>,
        timeout: Duration,
    ) -> Result<Vec<String>, Status> {
        let publish = Publish { topic: topic.to_owned(), messages };
        let route = format!("topic={topic}");
        let published: Published =
            self.unary("/google.pubsub.v1.Publisher/Publish", route, publish, timeout).await?;
        Ok(published.ids)
    }

    /// Pulls at most `max` messages: returns immediately, or as soon as there are some.
    pub(super) async fn pull(
        &self,
        subscription: &str,
        max: i32,
        at_once: bool,
    ) -> Result<Vec<Received>, Status> {
        let pull = Pull {
            subscription: subscription.to_owned(),
            return_immediately: at_once,
            max_messages: max,
        };
        let timeout = if at_once { self.timeout } else { LONG_POLL };
        let batch: Batch = self
            .unary("/google.pubsub.v1.Subscriber/Pull", route(subscription), pull, timeout)
            .await?;
        Ok(batch.messages)
    }

    pub(super) async fn acknowledge(
        &self,
        subscription: &str,
        ack_ids: &[String],
    ) -> Result<(), Denied> {
        for ids in ack_ids.chunks(MOST_IDS) {
            let request =
                Acknowledge { subscription: subscription.to_owned(), ack_ids: ids.to_vec() };
            self.tell("/google.pubsub.v1.Subscriber/Acknowledge", subscription, request).await?;
        }
        Ok(())
    }

    /// Extends the lease of messages; a lease of zero hands them back.
    pub(super) async fn extend(
        &self,
        subscription: &str,
        ack_ids: &[String],
        lease: Duration,
    ) -> Result<(), Denied> {
        for ids in ack_ids.chunks(MOST_IDS) {
            let request = ModifyAckDeadline {
                subscription: subscription.to_owned(),
                seconds: seconds(lease),
                ack_ids: ids.to_vec(),
            };
            self.tell("/google.pubsub.v1.Subscriber/ModifyAckDeadline", subscription, request)
                .await?;
        }
        Ok(())
    }

    async fn tell<M>(
        &self,
        method: &'static str,
        subscription: &str,
        message: M,
    ) -> Result<(), Denied>
    where
        M: prost::Message + Send + Sync + 'static,
    {
        let answer: Result<(), Status> =
            self.unary(method, route(subscription), message, self.timeout).await;
        answer.map_err(|status| match is_gone(&status) {
            true => Denied::Gone,
            false => Denied::Later(later(&status)),
        })
    }

    async fn unary<M, A>(
        &self,
        method: &'static str,
        route: String,
        message: M,
        timeout: Duration,
    ) -> Result<A, Status>
    where
        M: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let (number, channel) = lock(&self.channel).clone();
        let call = async {
            let request = self.request(message, &route).await?;
            let mut grpc = Grpc::new(channel).max_decoding_message_size(MOST_BYTES);
            grpc.ready().await.map_err(not_ready)?;
            Ok(grpc.unary(request, path(method), ProstCodec::default()).await?.into_inner())
        };
        let answer = tokio::time::timeout(timeout, call).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time")));
        if let Err(status) = &answer
            && matches!(status.code(), Code::DeadlineExceeded | Code::Unavailable | Code::Unknown)
        {
            self.renew(number);
        }
        answer
    }

    async fn request<T>(&self, message: T, route: &str) -> Result<Request<T>, Status> {
        let headers = self.credentials.headers(Default::default()).await;
        let headers = headers.map_err(|error| Status::unauthenticated(error.to_string()))?;
        let mut metadata = MetadataMap::new();
        if let CacheableResource::New { data, .. } = headers {
            metadata = MetadataMap::from_headers(data);
        }
        if let Ok(route) = route.parse() {
            metadata.insert("x-goog-request-params", route);
        }
        Ok(Request::from_parts(metadata, Extensions::new(), message))
    }
}

/// A retryable error with the status of the service.
pub(super) fn later(status: &Status) -> TransportError {
    let code = status.code();
    let text = match status.message() {
        "" => format!("Pub/Sub answers {code:?}"),
        message => format!("Pub/Sub answers {code:?}: {message}"),
    };
    TransportError::Unavailable(text)
}

/// Whether the lease of a message has expired. The service reports that only with exactly-once
/// delivery, where it names the ids.
fn is_gone(status: &Status) -> bool {
    let details = RpcStatus::decode(status.details()).unwrap_or_default().details;
    let infos = details.iter().filter_map(|any| ErrorInfo::decode(any.value.as_slice()).ok());
    let mut verdicts = infos.flat_map(|info| info.metadata.into_values());
    let permanent = verdicts.any(|verdict| verdict.starts_with("PERMANENT_FAILURE"));
    permanent || status.code() == Code::InvalidArgument
}

/// The routing header of a request.
fn route(subscription: &str) -> String {
    format!("subscription={subscription}")
}

fn not_ready(error: tonic::transport::Error) -> Status {
    use std::error::Error as _;
    let chain = std::iter::successors(error.source(), |&error| error.source());
    let text: Vec<String> = chain.map(ToString::to_string).collect();
    Status::unavailable(format!("{error}: {}", text.join(": ")))
}

fn path(method: &'static str) -> PathAndQuery {
    PathAndQuery::from_static(method)
}

fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(600).min(600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_id_is_told_from_a_bad_moment() {
        let status = |verdict: &str| {
            let metadata = [("id".to_owned(), verdict.to_owned())].into();
            let any = prost_types::Any {
                type_url: "type.googleapis.com/google.rpc.ErrorInfo".into(),
                value: ErrorInfo { metadata }.encode_to_vec(),
            };
            let details = RpcStatus { details: vec![any] }.encode_to_vec();
            Status::with_details(Code::FailedPrecondition, "", details.into())
        };
        assert!(is_gone(&status("PERMANENT_FAILURE_INVALID_ACK_ID")));
        assert!(!is_gone(&status("TRANSIENT_FAILURE_UNORDERED_ACK_ID")));
        assert!(!is_gone(&Status::unavailable("")));
    }
}
