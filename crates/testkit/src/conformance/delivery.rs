//! One process: order, fan-out, redelivery, heartbeats, duplicates, message content, and seeking.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use chapar_core::Headers;
use chapar_core::port::{
    AckToken, Delivery, Kept, Outgoing, ReadFrom, SeekTo, SubscriptionSpec, TopicSpec,
    TransportError,
};
use jiff::Timestamp;

use super::desk::{PATIENCE, ack, bodies, consume, fetch, nothing, numbered, of_key, publish};
use super::{Bench, Desk, Lacks, Verdict};

/// The messages of a key are delivered in the order of their receipts.
pub async fn a_key_keeps_its_order<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    let keys = ["a", "b", "c", "d", "e"];
    publish(&*transport, desk.messages(&keys, 20)).await;
    let got = consume(&*reader, 100).await;
    for key in keys {
        assert_eq!(of_key(&got, key), numbered(key, 1..=20));
    }
    nothing(&*reader).await;
    Ok(())
}

/// Over three topics of one service, the messages of a key are delivered in the order of their
/// receipts, also when the first is handed back.
pub async fn a_key_keeps_its_order_over_topics<B: Bench>(desk: Desk<B>) -> Verdict {
    let transport = desk.transport("one").await;
    if !transport.features().ordered_topics {
        return Err(Lacks("keep the order of a key between topics"));
    }
    let topics = ["placed", "paid", "closed"].map(|verb| desk.topic().replace("placed", verb));
    let specs = topics.clone().map(|name| TopicSpec { name, ..desk.topics()[0].clone() });
    let spec = SubscriptionSpec { topics: topics.to_vec(), ..desk.spec("reader") };
    transport.apply(&specs, std::slice::from_ref(&spec)).await.expect("the topology is applied");
    let reader = transport.subscribe(&spec).await.expect("a subscription");
    for (number, topic) in (1..=30).zip(topics.iter().cycle()) {
        let message = Outgoing { topic: topic.clone(), ..desk.message("a", number) };
        publish(&*transport, vec![message]).await;
    }
    let got = fetch(&*reader, 30).await;
    assert_eq!(bodies(&got), numbered("a", 1..=30));
    reader.nack(&got[0].token, Duration::ZERO).await.expect("it is handed back");
    assert_eq!(bodies(&consume(&*reader, 30).await), numbered("a", 1..=30));
    Ok(())
}

/// Two subscriptions each get all messages.
pub async fn every_subscription_gets_its_own_copy<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    let other = transport.subscribe(&desk.spec("other")).await.expect("a second subscription");
    publish(&*transport, desk.messages(&["a", "b"], 10)).await;
    let (first, second) = (consume(&*reader, 20).await, consume(&*other, 20).await);
    assert_eq!(of_key(&first, "a"), numbered("a", 1..=10));
    assert_eq!(of_key(&second, "b"), numbered("b", 1..=10));
    nothing(&*reader).await;
    nothing(&*other).await;
    Ok(())
}

/// A message that is handed back is delivered again, and its followers after it; other keys are not.
pub async fn a_nacked_message_comes_again_before_its_followers<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    publish(&*transport, desk.messages(&["a", "b"], 5)).await;
    let got = fetch(&*reader, 10).await;
    let (of_a, of_b): (Vec<_>, Vec<_>) =
        got.into_iter().partition(|delivery| delivery.key.as_deref() == Some("a"));
    ack(&*reader, &of_b).await;
    ack(&*reader, &of_a[..1]).await;
    reader.nack(&of_a[1].token, Duration::ZERO).await.expect("it is handed back");
    // The earlier deliveries of its followers have expired with it.
    let late = reader.ack(std::slice::from_ref(&of_a[2].token)).await;
    assert!(matches!(late, Err(TransportError::Expired)), "a late acknowledgement: {late:?}");
    let again = consume(&*reader, 4).await;
    assert_eq!(bodies(&again), numbered("a", 2..=5));
    assert!(again[0].attempt > 1, "the attempt is counted");
    nothing(&*reader).await;
    Ok(())
}

/// A message that is handed back with a delay waits for it; other keys do not.
pub async fn a_delayed_nack_waits<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    if !transport.features().delayed_nack {
        return Err(Lacks("delay a message that is handed back"));
    }
    publish(&*transport, vec![desk.message("a", 1), desk.message("b", 1)]).await;
    let got = fetch(&*reader, 2).await;
    let since = Instant::now();
    let delay = Duration::from_millis(900);
    for delivery in &got {
        match delivery.key.as_deref() {
            Some("a") => reader.nack(&delivery.token, delay).await.expect("it is handed back"),
            _ => ack(&*reader, std::slice::from_ref(delivery)).await,
        }
    }
    publish(&*transport, vec![desk.message("a", 2), desk.message("b", 2)]).await;
    let got = consume(&*reader, 3).await;
    assert_eq!(of_key(&got, "a"), numbered("a", 1..=2));
    assert_eq!(bodies(&got)[0], "b:2", "a neighbour does not wait");
    assert!(since.elapsed() >= delay, "the delay is over");
    Ok(())
}

/// A message that is not acknowledged in time is delivered again, and the late acknowledgement is
/// refused.
pub async fn a_message_past_its_deadline_comes_again<B: Bench>(desk: Desk<B>) -> Verdict {
    let transport = desk.transport("one").await;
    desk.apply(&*transport).await;
    let mut spec = desk.spec("hasty");
    spec.ack_deadline = Duration::from_secs(1);
    let reader = transport.subscribe(&spec).await.expect("a subscription");
    publish(&*transport, desk.messages(&["a"], 3)).await;
    let first = fetch(&*reader, 3).await;
    let again = fetch(&*reader, 3).await;
    assert_eq!(bodies(&again), numbered("a", 1..=3));
    let late = reader.ack(std::slice::from_ref(&first[0].token)).await;
    assert!(matches!(late, Err(TransportError::Expired)), "a late acknowledgement: {late:?}");
    ack(&*reader, &again).await;
    ack(&*reader, &again).await;
    nothing(&*reader).await;
    Ok(())
}

/// With heartbeats, a delivery outlives its deadline, and can be acknowledged.
pub async fn a_heartbeat_extends_the_deadline<B: Bench>(desk: Desk<B>) -> Verdict {
    let transport = desk.transport("one").await;
    desk.apply(&*transport).await;
    let mut spec = desk.spec("patient");
    spec.ack_deadline = Duration::from_millis(1500);
    let reader = transport.subscribe(&spec).await.expect("a subscription");
    publish(&*transport, desk.messages(&["a", "b"], 1)).await;
    let got = fetch(&*reader, 2).await;
    let since = Instant::now();
    while since.elapsed() < spec.ack_deadline * 2 {
        nothing(&*reader).await;
        reader.keep_alive().await.expect("the deadlines are extended");
    }
    nothing(&*reader).await;
    ack(&*reader, &got).await;
    Ok(())
}

/// A fetch of at most 0 messages takes none.
pub async fn fetching_none_takes_none<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    publish(&*transport, desk.messages(&["a", "b"], 3)).await;
    let none = reader.fetch(0, Duration::from_millis(300)).await.expect("a fetch");
    assert!(none.is_empty(), "asked for none, and there came {:?}", bodies(&none));
    assert_eq!(consume(&*reader, 6).await.len(), 6);
    Ok(())
}

/// With as much in flight as allowed, the oldest message of another partition can still be had: in
/// order, acknowledged like any other, and not a second time while it is in flight.
pub async fn the_oldest_of_each_partition_comes_beyond_the_bound<B: Bench>(
    desk: Desk<B>,
) -> Verdict {
    let transport = desk.transport("one").await;
    if transport.features().ordered_topics {
        return Err(Lacks("have messages of one key in several partitions"));
    }
    let topics = ["placed", "paid"].map(|verb| desk.topic().replace("placed", verb));
    let specs = topics.clone().map(|name| TopicSpec { name, ..desk.topics()[0].clone() });
    let mut spec = SubscriptionSpec { topics: topics.to_vec(), ..desk.spec("narrow") };
    spec.max_in_flight = 1;
    transport.apply(&specs, std::slice::from_ref(&spec)).await.expect("the topology is applied");
    let reader = transport.subscribe(&spec).await.expect("a subscription");
    for (topic, key) in topics.iter().zip(["a", "b"]) {
        let of_topic = |message| Outgoing { topic: topic.clone(), ..message };
        let messages = desk.messages(&[key], 2).into_iter().map(of_topic).collect();
        publish(&*transport, messages).await;
    }
    let mut got = fetch(&*reader, 1).await;
    nothing(&*reader).await;
    let limit = Instant::now() + PATIENCE;
    while got.len() < 2 {
        let wait = Duration::from_millis(200);
        got.extend(reader.fetch_oldest(wait).await.expect("a fetch of the oldest"));
        assert!(Instant::now() < limit, "the other partition gives nothing");
    }
    let again = reader.fetch_oldest(Duration::from_millis(300)).await.expect("another");
    assert!(again.is_empty(), "in flight already: {:?}", bodies(&again));
    ack(&*reader, &got).await;
    got.extend(consume(&*reader, 2).await);
    for key in ["a", "b"] {
        assert_eq!(of_key(&got, key), numbered(key, 1..=2));
    }
    nothing(&*reader).await;
    Ok(())
}

/// A token that no subscription handed out acknowledges nothing.
pub async fn a_token_that_was_not_delivered_is_refused<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    let receipts = publish(&*transport, vec![desk.message("a", 1)]).await;
    let got = fetch(&*reader, 1).await;
    let token = AckToken::unacknowledgeable(receipts[0].position);
    for refused in [reader.ack(&[token]).await, reader.nack(&token, Duration::ZERO).await] {
        assert!(matches!(refused, Err(TransportError::Expired)), "{refused:?}");
    }
    ack(&*reader, &got).await;
    nothing(&*reader).await;
    Ok(())
}

/// The second publish of an id returns the position of the first, and is not delivered.
pub async fn a_repeated_publish_with_one_id_is_one_message<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    let message = desk.message("a", 1);
    let first = publish(&*transport, vec![message.clone()]).await;
    let second = publish(&*transport, vec![message, desk.message("b", 1)]).await;
    assert!(!first[0].duplicate && second[0].duplicate && !second[1].duplicate);
    assert_eq!(first[0].position, second[0].position);
    let mut got = bodies(&consume(&*reader, 2).await);
    got.sort();
    assert_eq!(got, ["a:1", "b:1"]);
    nothing(&*reader).await;
    Ok(())
}

/// Headers with any text and bodies with any bytes arrive unchanged.
pub async fn headers_and_binary_bodies_survive<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    let mut message = desk.message("a key: with ünïcode", 1);
    let headers = [
        ("ce-type", "order.placed"),
        ("x-city", "كابل"),
        ("x-lines", "one\r\ntwo"),
        ("x-empty", ""),
        ("x-space", " around "),
        ("x twice", "1"),
        ("x twice", "2"),
        ("Nats-Msg-Id", "not the broker's business"),
    ];
    message.headers = headers.into();
    message.body = (0..=255).cycle().take(10_000).collect::<Vec<u8>>().into();
    let mut empty = desk.message("a key: with ünïcode", 2);
    (empty.body, empty.headers) = (Bytes::new(), Headers::new());
    let mut loose = desk.message("", 3);
    loose.key = None;
    let receipts = publish(&*transport, vec![message.clone(), empty.clone(), loose.clone()]).await;
    let got = consume(&*reader, 3).await;
    for (sent, receipt) in [message, empty, loose].into_iter().zip(receipts) {
        let delivery = got.iter().find(|d| d.token.position == receipt.position);
        let delivery = delivery.expect("it has the position of its receipt");
        assert_eq!(sorted(&delivery.headers), sorted(&sent.headers));
        assert_eq!((&delivery.body, &delivery.topic), (&sent.body, &sent.topic));
        assert_eq!(delivery.key, sent.key);
        assert_eq!(delivery.attempt, 1);
        let age = Timestamp::now().duration_since(delivery.published_at);
        assert!(age.unsigned_abs() < Duration::from_secs(60), "published {age} ago");
    }
    Ok(())
}

/// After a seek to a time, exactly what was published at or after it is delivered again.
pub async fn a_subscription_goes_back_to_a_time<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    if !transport.features().seek_time {
        return Err(Lacks("seek to a time"));
    }
    publish(&*transport, desk.messages(&["a", "b"], 2)).await;
    consume(&*reader, 4).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let since = Timestamp::now();
    tokio::time::sleep(Duration::from_millis(20)).await;
    publish(&*transport, vec![desk.message("a", 3), desk.message("a", 4)]).await;
    consume(&*reader, 2).await;
    transport.seek(&desk.spec("reader").name, SeekTo::Time(since)).await.expect("it seeks");
    assert_eq!(bodies(&consume(&*reader, 2).await), numbered("a", 3..=4));
    transport.seek(&desk.spec("reader").name, SeekTo::Beginning).await.expect("it seeks");
    assert_eq!(consume(&*reader, 6).await.len(), 6);
    nothing(&*reader).await;
    Ok(())
}

/// After a seek to a position, that message and those after it are delivered again; after a seek to
/// the end, none.
pub async fn a_subscription_goes_to_a_position<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    if !transport.features().seek_position {
        return Err(Lacks("seek to a position"));
    }
    let receipts = publish(&*transport, desk.messages(&["a"], 5)).await;
    consume(&*reader, 5).await;
    let name = desk.spec("reader").name;
    transport.seek(&name, SeekTo::Position(receipts[2].position)).await.expect("it seeks");
    assert_eq!(bodies(&consume(&*reader, 3).await), numbered("a", 3..=5));
    publish(&*transport, vec![desk.message("a", 6)]).await;
    transport.seek(&name, SeekTo::End).await.expect("it seeks");
    publish(&*transport, vec![desk.message("a", 7)]).await;
    assert_eq!(bodies(&consume(&*reader, 1).await), ["a:7"]);
    Ok(())
}

/// Retained messages can be read without a subscription: from any place, completely, and beyond the
/// end as more are published.
pub async fn what_is_kept_is_read_without_a_subscription<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, subscribed) = desk.open().await;
    let topics = desk.spec("reader").topics;
    publish(&*transport, desk.messages(&["a", "b"], 3)).await;
    let mut reader = match transport.read(&topics, ReadFrom::Beginning).await {
        Ok(reader) => reader,
        Err(TransportError::Unsupported(what)) => return Err(Lacks(what)),
        Err(error) => panic!("{error}"),
    };
    let mut read = Vec::new();
    while !reader.is_caught_up() {
        read.extend(reader.read(4, Duration::from_secs(5)).await.expect("it reads"));
    }
    assert_eq!(read.len(), 6);
    assert!(read.iter().all(|kept| !kept.id.is_empty() && !kept.tenant.is_empty()), "{read:?}");
    let of = |read: &[Kept], key: &str| {
        let read: Vec<Delivery> = read.iter().map(|kept| kept.delivery.clone()).collect();
        of_key(&read, key)
    };
    assert_eq!(of(&read, "a"), numbered("a", 1..=3));

    let mut behind = BTreeMap::new();
    for kept in &read {
        let at = kept.delivery.token.position;
        behind.insert(at.partition, at.offset);
    }
    publish(&*transport, vec![desk.message("a", 4)]).await;
    let more = reader.read(10, Duration::from_secs(5)).await.expect("it goes on");
    assert_eq!(of(&more, "a"), ["a:4"]);
    let mut reader = transport.read(&topics, ReadFrom::Behind(behind)).await.expect("another");
    let more = reader.read(10, Duration::from_secs(5)).await.expect("it reads");
    assert_eq!(of(&more, "a"), ["a:4"], "what was read before is left out");
    let mut reader = transport.read(&topics, ReadFrom::End).await.expect("another");
    assert!(reader.is_caught_up());
    publish(&*transport, vec![desk.message("b", 4)]).await;
    let more = reader.read(10, Duration::from_secs(5)).await.expect("it reads");
    assert_eq!(of(&more, "b"), ["b:4"]);
    assert_eq!(consume(&*subscribed, 8).await.len(), 8, "the subscription has not noticed");
    Ok(())
}

/// A subscription never has more than `max_in_flight` messages in flight.
pub async fn no_more_are_in_flight_than_asked<B: Bench>(desk: Desk<B>) -> Verdict {
    let transport = desk.transport("one").await;
    desk.apply(&*transport).await;
    let mut spec = desk.spec("narrow");
    spec.max_in_flight = 4;
    let reader = transport.subscribe(&spec).await.expect("a subscription");
    publish(&*transport, desk.messages(&["a", "b", "c"], 4)).await;
    let mut left = 12;
    while left > 0 {
        let got = fetch(&*reader, 4).await;
        nothing(&*reader).await;
        ack(&*reader, &got).await;
        left -= 4;
    }
    nothing(&*reader).await;
    Ok(())
}

/// When a backlog is fetched in small portions, no key has to wait until its end.
pub async fn no_key_starves_behind_a_busy_one<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];
    // One of each first: a broker may assign some partitions later than others.
    publish(&*transport, keys.iter().map(|key| desk.message(key, 100)).collect()).await;
    consume(&*reader, keys.len()).await;
    publish(&*transport, desk.messages(&keys, 20)).await;
    let mut seen = HashSet::new();
    for _ in 0..40 {
        let got = consume(&*reader, 4).await;
        seen.extend(got.into_iter().filter_map(|delivery| delivery.key));
    }
    let starved: Vec<_> = keys.iter().filter(|key| !seen.contains(**key)).collect();
    assert!(starved.is_empty(), "half of the backlog is done and nothing came of {starved:?}");
    Ok(())
}

/// A body of 1 MiB is delivered.
pub async fn a_mebibyte_arrives<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    if !transport.features().mebibyte {
        return Err(Lacks("carry 1 MiB"));
    }
    let mut message = desk.message("a", 1);
    message.body = vec![0xA5; 1 << 20].into();
    publish(&*transport, vec![message, desk.message("a", 2)]).await;
    let got = consume(&*reader, 2).await;
    assert_eq!((got[0].body.len(), got[1].body.len()), (1 << 20, 3));
    Ok(())
}

/// Applying the same topology again changes nothing, in particular not the cursor.
pub async fn topology_applied_twice_is_a_no_op<B: Bench>(desk: Desk<B>) -> Verdict {
    let (transport, reader) = desk.open().await;
    publish(&*transport, desk.messages(&["a"], 3)).await;
    let got = fetch(&*reader, 3).await;
    ack(&*reader, &got[..1]).await;
    desk.apply(&*transport).await;
    desk.apply(&*desk.transport("another").await).await;
    ack(&*reader, &got[1..]).await;
    publish(&*transport, vec![desk.message("a", 4)]).await;
    assert_eq!(bodies(&consume(&*reader, 1).await), ["a:4"]);
    nothing(&*reader).await;
    Ok(())
}

fn sorted(headers: &Headers) -> Vec<(&str, &str)> {
    let mut headers: Vec<_> = headers.iter().collect();
    headers.sort();
    headers
}
