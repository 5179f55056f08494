//! The bare calls of Pub/Sub, over `tonic`: a `Publish` for every message, because a request has one ordering key, and
//! a `StreamingPull` (or pulls, from the emulator), while messages are acknowledged in batches with an answer to each.
//! No lease is watched or extended, nothing is reordered, and duplicates are not tracked.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use chapar_core::port::Transport;
use chapar_transports::pubsub::{PubSub, PubSubOptions};
use futures_util::future::{Fuse, FusedFuture as _, FutureExt as _, LocalBoxFuture};
use futures_util::stream::{self, FuturesUnordered, LocalBoxStream, StreamExt};
use google_cloud_auth::credentials::{CacheableResource, Credentials};
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Extensions, Request, Status};
use tonic_prost::ProstCodec;

use super::{Bare, Load, Read, WINDOW};

/// The acknowledgement deadline: long enough that nothing is redelivered within a turn.
const DEADLINE: i32 = 600;
/// The most messages of one `Pull`, which the service sets, and ids of one `Acknowledge`, as in
/// the adapter.
const MOST: usize = 1000;
/// Connections, as the adapter has for publishing.
const LINES: usize = 4;
/// How long the service keeps messages for subscriptions that are made later.
const DAY: i64 = 24 * 3600;
const MOST_BYTES: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

struct BarePubSub {
    /// As many connections as the adapter publishes over, in turns.
    lines: Vec<Grpc<Channel>>,
    line: Cell<usize>,
    /// Whether it is the service itself.
    streams: bool,
    credentials: Credentials,
    project: String,
    turns: Cell<u32>,
}

/// Connects the adapter and the bare client, each over connections of its own.
pub(super) async fn open(
    url: &str,
    run: &str,
) -> Result<(&'static str, Arc<dyn Transport>, Box<dyn Bare>)> {
    let options = PubSubOptions {
        owner: format!("bench-{run}"),
        // The emulator is slow to create a subscription to a topic with many messages.
        timeout: PATIENCE,
        ..PubSubOptions::default()
    };
    let ours = PubSub::connect(url, options).await?;
    let endpoint = ours.endpoint();
    let mut lines = Vec::new();
    for _ in 0..LINES {
        let channel = endpoint.connect().await.context("the bare client cannot connect")?;
        lines.push(Grpc::new(channel).max_decoding_message_size(MOST_BYTES));
    }
    let bare = BarePubSub {
        lines,
        line: Cell::new(0),
        streams: endpoint.uri().scheme_str() == Some("https"),
        credentials: ours.credentials(),
        project: ours.project().to_owned(),
        turns: Cell::new(0),
    };
    Ok(("Pub/Sub", Arc::new(ours), Box::new(bare)))
}

impl BarePubSub {
    fn topic(&self, topic: &str) -> String {
        format!("projects/{}/topics/{topic}", self.project)
    }

    async fn call<M, A>(&self, method: &'static str, message: M) -> Result<A, Status>
    where
        M: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let request = self.request(message).await?;
        let mut grpc = self.ready().await?;
        let path = PathAndQuery::from_static(method);
        Ok(grpc.unary(request, path, ProstCodec::default()).await?.into_inner())
    }

    async fn ready(&self) -> Result<Grpc<Channel>, Status> {
        let line = self.line.replace(self.line.get() + 1);
        let mut grpc = self.lines[line % LINES].clone();
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(grpc)
    }

    async fn request<M>(&self, message: M) -> Result<Request<M>, Status> {
        let headers = self.credentials.headers(Default::default()).await;
        let headers = headers.map_err(|error| Status::unauthenticated(error.to_string()))?;
        let metadata = match headers {
            CacheableResource::New { data, .. } => MetadataMap::from_headers(data),
            CacheableResource::NotModified => MetadataMap::new(),
        };
        Ok(Request::from_parts(metadata, Extensions::new(), message))
    }

    /// A subscription as the adapter makes them, at the beginning of what the topic has kept.
    async fn subscribe(&self, load: &Load) -> Result<String> {
        self.turns.set(self.turns.get() + 1);
        let short = load.topic.replace('.', "-");
        let name =
            format!("projects/{}/subscriptions/bare-{short}-{}", self.project, self.turns.get());
        let wanted = Subscription {
            name: name.clone(),
            topic: self.topic(&load.topic),
            ack_deadline_seconds: DEADLINE,
            retain_acked_messages: true,
            enable_message_ordering: true,
            enable_exactly_once_delivery: true,
        };
        let () = self.call("/google.pubsub.v1.Subscriber/CreateSubscription", wanted).await?;
        let time = Some(prost_types::Timestamp { seconds: 0, nanos: 0 });
        let seek = Seek { subscription: name.clone(), time };
        match self.call("/google.pubsub.v1.Subscriber/Seek", seek).await {
            Ok(()) => {}
            // Google's emulator cannot seek, and starts new subscriptions at the beginning.
            Err(status) if status.code() == tonic::Code::Unimplemented => {}
            Err(status) => return Err(status.into()),
        }
        Ok(name)
    }

    /// Messages as they arrive: over a stream, or from the emulator, whose streams are slower, by one pull after the
    /// other.
    async fn deliveries<'a>(
        &'a self,
        subscription: &'a str,
    ) -> Result<LocalBoxStream<'a, Result<Batch, Status>>> {
        if !self.streams {
            let pull = move || Pull {
                subscription: subscription.to_owned(),
                return_immediately: true,
                max_messages: MOST as i32,
            };
            let pulls =
                stream::repeat_with(move || self.call("/google.pubsub.v1.Subscriber/Pull", pull()));
            return Ok(pulls.buffered(1).boxed_local());
        }
        let first = StreamingPull {
            subscription: subscription.to_owned(),
            stream_ack_deadline_seconds: DEADLINE,
            client_id: subscription.to_owned(),
            max_outstanding_messages: WINDOW as i64,
        };
        let asked = stream::iter([first]).chain(stream::pending());
        let path = PathAndQuery::from_static("/google.pubsub.v1.Subscriber/StreamingPull");
        let (request, mut grpc) = (self.request(asked).await?, self.ready().await?);
        let answer = grpc.streaming(request, path, ProstCodec::default()).await?;
        Ok(answer.into_inner().boxed_local())
    }

    async fn acknowledge(&self, subscription: &str, ack_ids: Vec<String>) -> Result<(), Status> {
        let ack = Acknowledge { subscription: subscription.to_owned(), ack_ids };
        self.call("/google.pubsub.v1.Subscriber/Acknowledge", ack).await
    }

    /// Deletes the subscriptions of a topic, the adapter's too.
    async fn unsubscribe(&self, topic: &str) -> Result<(), Status> {
        let list = ListTopicSubscriptions { topic: self.topic(topic), page_size: 1000 };
        let found: Names =
            self.call("/google.pubsub.v1.Publisher/ListTopicSubscriptions", list).await?;
        for name in found.names {
            let () =
                self.call("/google.pubsub.v1.Subscriber/DeleteSubscription", Name { name }).await?;
        }
        Ok(())
    }

    async fn delete(&self, topic: &str) -> Result<(), Status> {
        self.unsubscribe(topic).await?;
        let name = Name { name: self.topic(topic) };
        self.call("/google.pubsub.v1.Publisher/DeleteTopic", name).await
    }
}

impl Bare for BarePubSub {
    /// Less than elsewhere: each message is a request, and the emulator needs memory for each, and a thread for each
    /// key of each subscription.
    fn backlog(&self) -> (u64, u64) {
        (20_000, 20)
    }

    fn publish<'a>(&'a self, load: &'a Load, turn: Duration) -> LocalBoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let (began, mut sent) = (Instant::now(), 0u64);
            let mut calls = FuturesUnordered::new();
            while began.elapsed() < turn {
                let mut attributes: HashMap<String, String> =
                    load.headers.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
                attributes.insert("chapar-id".into(), Load::id(sent).to_string());
                attributes.insert("chapar-tenant".into(), Load::tenant(sent));
                let message =
                    Message { data: load.body(sent), attributes, ordering_key: load.key(sent) };
                let publish = Publish { topic: self.topic(&load.topic), messages: vec![message] };
                calls.push(self.call("/google.pubsub.v1.Publisher/Publish", publish));
                if calls.len() >= WINDOW
                    && let Some(answer) = calls.next().await
                {
                    let _: Names = answer?;
                }
                sent += 1;
            }
            while let Some(answer) = calls.next().await {
                let _: Names = answer?;
            }
            Ok(sent)
        })
    }

    fn read<'a>(&'a self, load: &'a Load, all: u64) -> LocalBoxFuture<'a, Result<Read>> {
        Box::pin(async move {
            let subscription = self.subscribe(load).await?;
            let mut messages = self.deliveries(&subscription).await?;
            let (mut began, mut read, mut ids) = (None, Read::default(), Vec::new());
            let mut acking = Fuse::terminated();
            while read.messages < all {
                tokio::select! {
                    batch = tokio::time::timeout(PATIENCE, messages.next()) => {
                        let batch = batch.context("the service stopped delivering")?;
                        let batch = batch.context("the service ended the stream")??;
                        read.messages += batch.messages.len() as u64;
                        ids.extend(batch.messages.into_iter().map(|received| received.ack_id));
                        began.get_or_insert_with(Instant::now);
                    }
                    acked = &mut acking, if !acking.is_terminated() => acked?,
                }
                if acking.is_terminated() && !ids.is_empty() {
                    let some = ids.drain(..ids.len().min(MOST)).collect();
                    acking = Box::pin(self.acknowledge(&subscription, some)).fuse();
                }
            }
            if !acking.is_terminated() {
                acking.await?;
            }
            for some in ids.chunks(MOST) {
                self.acknowledge(&subscription, some.to_vec()).await?;
            }
            read.time = began.map_or(read.time, |began| began.elapsed());
            drop(messages);
            let name = Name { name: subscription.clone() };
            let () = self.call("/google.pubsub.v1.Subscriber/DeleteSubscription", name).await?;
            Ok(read)
        })
    }

    fn empty<'a>(&'a self, load: &'a Load) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let name = self.topic(&load.topic);
            self.delete(&load.topic).await?;
            let keep = Some(prost_types::Duration { seconds: DAY, nanos: 0 });
            let topic = Topic { name, message_retention_duration: keep };
            let () = self.call("/google.pubsub.v1.Publisher/CreateTopic", topic).await?;
            Ok(())
        })
    }

    fn leave<'a>(&'a self, loads: &'a [&'a Load]) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for load in loads {
                for topic in [load.topic.clone(), format!("{}.dlq", load.topic)] {
                    // Absent if the topics could not be created.
                    let _ = self.delete(&topic).await;
                }
            }
            Ok(())
        })
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct Message {
    #[prost(bytes = "bytes", tag = "1")]
    data: Bytes,
    #[prost(map = "string, string", tag = "2")]
    attributes: HashMap<String, String>,
    #[prost(string, tag = "5")]
    ordering_key: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Publish {
    #[prost(string, tag = "1")]
    topic: String,
    #[prost(message, repeated, tag = "2")]
    messages: Vec<Message>,
}

/// What a `Publish` and a listing answer.
#[derive(Clone, PartialEq, prost::Message)]
struct Names {
    #[prost(string, repeated, tag = "1")]
    names: Vec<String>,
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
struct StreamingPull {
    #[prost(string, tag = "1")]
    subscription: String,
    #[prost(int32, tag = "5")]
    stream_ack_deadline_seconds: i32,
    #[prost(string, tag = "6")]
    client_id: String,
    #[prost(int64, tag = "7")]
    max_outstanding_messages: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Batch {
    #[prost(message, repeated, tag = "1")]
    messages: Vec<Received>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Received {
    #[prost(string, tag = "1")]
    ack_id: String,
    #[prost(message, optional, tag = "2")]
    message: Option<Message>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Acknowledge {
    #[prost(string, tag = "1")]
    subscription: String,
    #[prost(string, repeated, tag = "2")]
    ack_ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Topic {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "8")]
    message_retention_duration: Option<prost_types::Duration>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Subscription {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    topic: String,
    #[prost(int32, tag = "5")]
    ack_deadline_seconds: i32,
    #[prost(bool, tag = "7")]
    retain_acked_messages: bool,
    #[prost(bool, tag = "10")]
    enable_message_ordering: bool,
    #[prost(bool, tag = "16")]
    enable_exactly_once_delivery: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Seek {
    #[prost(string, tag = "1")]
    subscription: String,
    #[prost(message, optional, tag = "2")]
    time: Option<prost_types::Timestamp>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ListTopicSubscriptions {
    #[prost(string, tag = "1")]
    topic: String,
    #[prost(int32, tag = "2")]
    page_size: i32,
}

/// What is to be deleted.
#[derive(Clone, PartialEq, prost::Message)]
struct Name {
    #[prost(string, tag = "1")]
    name: String,
}
