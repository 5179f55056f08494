//! The broker crashes and restarts.

use std::time::{Duration, Instant};

use super::desk::{PATIENCE, bodies, consume, numbered, of_key, publish};
use super::{Bench, Desk, Lacks, Verdict};

/// A message with a receipt survives a crash of the broker.
///
/// Without a broker that can crash, a transport that is opened afterwards must see it.
pub async fn an_acknowledged_publish_is_durable<B: Bench>(mut desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    publish(&*transport, desk.messages(&["a", "b"], 25)).await;
    reader.close().await.expect("it leaves");
    drop((transport, reader));
    if desk.bench.crash() {
        desk.bench.revive();
    }
    let transport = desk.transport("two").await;
    let reader = transport.subscribe(&desk.spec("reader")).await.expect("a subscription");
    let got = consume(&*reader, 50).await;
    assert_eq!(of_key(&got, "a"), numbered("a", 1..=25));
    assert_eq!(of_key(&got, "b"), numbered("b", 1..=25));
    Ok(())
}

/// The same transport and subscription continue after the broker has restarted.
pub async fn a_restarted_broker_is_found_again<B: Bench>(mut desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    publish(&*transport, vec![desk.message("a", 1)]).await;
    consume(&*reader, 1).await;
    if !desk.bench.crash() {
        return Err(Lacks("be without its broker"));
    }
    desk.bench.revive();
    let message = desk.message("a", 2);
    let limit = Instant::now() + PATIENCE;
    while let Err(error) = transport.publish(vec![message.clone()]).await.remove(0) {
        assert!(error.is_retryable(), "{error}");
        assert!(Instant::now() < limit, "publishing does not recover: {error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Errors and old messages are allowed at first; the new one must arrive.
    loop {
        let got = reader.fetch(16, Duration::from_millis(300)).await.unwrap_or_default();
        let tokens: Vec<_> = got.iter().map(|delivery| delivery.token).collect();
        let acked = reader.ack(&tokens).await;
        if bodies(&got).contains(&"a:2".to_owned()) && acked.is_ok() {
            return Ok(());
        }
        assert!(Instant::now() < limit, "the subscription does not recover");
    }
}

/// Without a broker, publishing fails soon and for every message; when it is repeated afterwards,
/// each message is stored once.
pub async fn publishing_fails_in_time_while_the_broker_is_down<B: Bench>(
    mut desk: Desk<B>,
) -> Verdict {
    let (transport, reader) = desk.open().await;
    publish(&*transport, vec![desk.message("a", 1)]).await;
    consume(&*reader, 1).await;
    if !desk.bench.crash() {
        return Err(Lacks("be without its broker"));
    }
    let batch = vec![desk.message("a", 2), desk.message("b", 1)];
    let since = Instant::now();
    for result in transport.publish(batch.clone()).await {
        let error = result.expect_err("there is no broker");
        assert!(error.is_retryable(), "{error}");
    }
    assert!(since.elapsed() < Duration::from_secs(15), "took {:?}", since.elapsed());
    desk.bench.revive();
    let limit = Instant::now() + PATIENCE;
    while transport.publish(batch.clone()).await.iter().any(Result::is_err) {
        assert!(Instant::now() < limit, "publishing does not recover");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (reader, mut got) = (desk.transport("two").await, Vec::new());
    let reader = reader.subscribe(&desk.spec("other")).await.expect("a subscription");
    got.extend(bodies(&consume(&*reader, 3).await));
    got.sort();
    assert_eq!(got, ["a:1", "a:2", "b:1"]);
    super::desk::nothing(&*reader).await;
    Ok(())
}
