//! `async-nats` alone: the stream that the adapter created, a pull consumer for each of its partitions, and no owner,
//! lease, order or tracking of open messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use async_nats::HeaderMap;
use async_nats::jetstream;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::message::PublishMessage;
use chapar_core::port::Transport;
use chapar_transports::nats::{Nats, NatsOptions};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt, select_all};

use super::{Bare, Load, Read, WINDOW};

/// The adapter's default.
const PARTITIONS: u64 = 12;

struct BareNats {
    context: jetstream::Context,
    bucket: String,
}

/// Connects the adapter and the bare client, each over a connection of its own.
pub(super) async fn open(
    url: &str,
    run: &str,
) -> Result<(&'static str, Arc<dyn Transport>, Box<dyn Bare>)> {
    let bucket = format!("chapar-bench-{run}");
    let options = NatsOptions { bucket: bucket.clone(), ..NatsOptions::default() };
    let ours = Nats::connect(url, options).await?;
    let client = async_nats::connect(url).await.context("the bare client cannot connect")?;
    let context = ContextBuilder::new().max_ack_inflight(WINDOW).build(client);
    Ok(("NATS JetStream", Arc::new(ours), Box::new(BareNats { context, bucket })))
}

impl Bare for BareNats {
    fn publish<'a>(&'a self, load: &'a Load, turn: Duration) -> LocalBoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            let (began, mut sent) = (Instant::now(), 0u64);
            let mut acks = FuturesUnordered::new();
            while began.elapsed() < turn {
                let mut headers = HeaderMap::new();
                headers.insert("Chapar-Tenant", Load::tenant(sent));
                headers.insert("Chapar-Key", load.key(sent));
                for (name, value) in &load.headers {
                    headers.insert(name, value);
                }
                headers.insert("Nats-Msg-Id", Load::id(sent).to_string());
                let message = PublishMessage::build().headers(headers).payload(load.body(sent));
                let subject = format!("{}.p{}", load.topic, sent % PARTITIONS);
                acks.push(self.context.send_publish(subject, message).await?.into_future());
                if acks.len() >= WINDOW {
                    acks.next().await.transpose()?;
                }
                sent += 1;
            }
            while let Some(ack) = acks.next().await {
                ack?;
            }
            Ok(sent)
        })
    }

    fn read<'a>(&'a self, load: &'a Load, all: u64) -> LocalBoxFuture<'a, Result<Read>> {
        Box::pin(async move {
            let stream = self.context.get_stream_no_info(stream_of(load)).await?;
            let mut streams = Vec::new();
            for partition in 0..PARTITIONS {
                let config = pull::Config {
                    ack_policy: AckPolicy::Explicit,
                    ack_wait: Duration::from_secs(3600),
                    max_ack_pending: -1,
                    filter_subject: format!("{}.p{partition}", load.topic),
                    durable_name: Some(format!("bare_p{partition}")),
                    ..Default::default()
                };
                let consumer = stream.create_consumer(config).await?;
                streams.push(consumer.stream().max_messages_per_batch(256).messages().await?);
            }
            let mut messages = select_all(streams);
            let (mut began, mut read) = (None, Read::default());
            while read.messages < all {
                let message = messages.next().await.context("the client stopped delivering")??;
                message.ack().await.map_err(anyhow::Error::from_boxed)?;
                read.messages += 1;
                began.get_or_insert_with(Instant::now);
            }
            // Once the server answers, it has processed all acknowledgements.
            self.context.client().flush().await?;
            read.time = began.map_or(read.time, |began| began.elapsed());
            drop(messages);
            for partition in 0..PARTITIONS {
                stream.delete_consumer(&format!("bare_p{partition}")).await?;
            }
            Ok(read)
        })
    }

    fn empty<'a>(&'a self, load: &'a Load) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            // A purge keeps the ids of the duplicate window; a new stream has none.
            let mut stream = self.context.get_stream(stream_of(load)).await?;
            let config = stream.info().await?.config.clone();
            self.context.delete_stream(stream_of(load)).await?;
            self.context.create_stream(config).await?;
            Ok(())
        })
    }

    fn leave<'a>(&'a self, loads: &'a [&'a Load]) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for load in loads {
                // Absent if the topics could not be created.
                let _ = self.context.delete_stream(stream_of(load)).await;
            }
            let _ = self.context.delete_key_value(&self.bucket).await;
            Ok(())
        })
    }
}

/// The stream that the adapter makes for a topic.
fn stream_of(load: &Load) -> String {
    let domain = load.topic.split('.').next().unwrap_or_default();
    domain.to_ascii_uppercase().replace('-', "_")
}
