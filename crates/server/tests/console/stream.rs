use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::harness::House;

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn the_stream_begins_at_once_goes_on_and_ends_with_the_console() {
    let house = House::new().await;
    let bound = house.console.bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = bound.address();
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(bound.serve(shutdown.clone()));

    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(stream).lines();
    let mut next = async |beginning: &str| {
        let line = async {
            loop {
                let line = lines.next_line().await.unwrap().expect("the stream goes on");
                if line.starts_with(beginning) {
                    return line;
                }
            }
        };
        timeout(SOON, line).await.expect(beginning)
    };
    next("content-type: text/event-stream").await;
    next("retry: ").await;
    let first = next("data: ").await;
    assert!(first.contains("\"dead_letters\":0"), "{first}");

    house.bury("no such room").await;
    let second = timeout(SOON, async {
        loop {
            let line = next("data: ").await;
            if line.contains("no such room") {
                return line;
            }
        }
    });
    assert!(second.await.expect("the letter shows").contains("\"dead_letters\":1"));

    shutdown.cancel();
    let mut rest = Vec::new();
    let ended = timeout(SOON, lines.into_inner().read_to_end(&mut rest)).await;
    ended.expect("the stream ends").unwrap();
    timeout(Duration::from_secs(2), server).await.expect("within the grace").unwrap().unwrap();
}

#[tokio::test]
async fn the_snapshot_is_what_the_stream_sends() {
    let house = House::new().await;
    house.start_saga("b-1").await;
    let answer = house.get("/snapshot").await;
    assert_eq!(answer.header("content-type"), "application/json");
    let snapshot: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
    assert_eq!(snapshot["figures"]["sagas_in_flight"], 1);
    assert_eq!(snapshot["saga_states"][0]["label"], "Awaiting payment");
    assert_eq!(snapshot["store_failed"], false);
}
