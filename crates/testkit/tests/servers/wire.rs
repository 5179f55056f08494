//! The least of each server's protocol that proves it works, so that the testkit needs no client library.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Sends a request and returns the payload of the reply.
pub(crate) fn nats_request(url: &str, subject: &str, payload: &str) -> String {
    let mut stream = connect(url.trim_start_matches("nats://"));
    let size = payload.len();
    let request = format!(
        "CONNECT {{\"verbose\":false}}\r\nSUB _INBOX.reply 1\r\nPUB {subject} _INBOX.reply {size}\r\n{payload}\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    lines.find(|line| line.starts_with("MSG _INBOX.reply")).expect("a reply");
    lines.next().expect("its payload")
}

/// Creates a topic of one partition with CreateTopics, version 2, and returns the error code.
pub(crate) fn kafka_create_topic(url: &str, topic: &str) -> i16 {
    let mut request = Vec::new();
    request.extend(19_i16.to_be_bytes());
    request.extend(2_i16.to_be_bytes());
    request.extend(1_i32.to_be_bytes());
    kafka_string(&mut request, "testkit");
    request.extend(1_i32.to_be_bytes());
    kafka_string(&mut request, topic);
    request.extend(1_i32.to_be_bytes());
    request.extend(1_i16.to_be_bytes());
    // No assignments, no settings, a timeout, and no dry run.
    request.extend(0_i32.to_be_bytes());
    request.extend(0_i32.to_be_bytes());
    request.extend(20_000_i32.to_be_bytes());
    request.push(0);

    let mut stream = connect(url);
    stream.write_all(&i32::try_from(request.len()).unwrap().to_be_bytes()).unwrap();
    stream.write_all(&request).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    // Correlation id, throttle time, one topic with its name, then the code.
    let code = 4 + 4 + 4 + 2 + topic.len();
    i16::from_be_bytes([answer[code], answer[code + 1]])
}

fn kafka_string(request: &mut Vec<u8>, text: &str) {
    request.extend(i16::try_from(text.len()).unwrap().to_be_bytes());
    request.extend(text.as_bytes());
}

/// Creates a topic over gRPC and returns the message that comes back.
pub(crate) fn pubsub_create_topic(url: &str, topic: &str) -> String {
    const HEADERS: u8 = 1;
    const DATA: u8 = 0;
    const END_HEADERS: u8 = 4;
    const END_STREAM: u8 = 1;

    let mut headers = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/google.pubsub.v1.Publisher/CreateTopic"),
        (":authority", url),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ] {
        // HPACK: literal, not indexed, not compressed.
        headers.push(0);
        for text in [name, value] {
            headers.push(u8::try_from(text.len()).unwrap());
            headers.extend(text.as_bytes());
        }
    }
    // The protobuf message Topic { name = 1 } behind gRPC's five bytes: not compressed, its length.
    let mut message = vec![0x0a, u8::try_from(topic.len()).unwrap()];
    message.extend(topic.as_bytes());
    let mut data = vec![0];
    data.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    data.extend(message);

    let mut stream = connect(url);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    stream.write_all(&frame(HEADERS, END_HEADERS, &headers)).unwrap();
    stream.write_all(&frame(DATA, END_STREAM, &data)).unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).expect("an answer on the stream");
        let mut body = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut body).unwrap();
        let stream_ended = head[3] == HEADERS && head[4] & END_STREAM != 0;
        assert!(!stream_ended, "the call failed: {}", String::from_utf8_lossy(&body));
        if head[3] == DATA {
            return String::from_utf8_lossy(&body).into_owned();
        }
    }
}

fn frame(kind: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
    frame.extend(body);
    frame
}

/// Sends one command and returns the first line of the answer.
pub(crate) fn redis(url: &str, command: &str) -> String {
    let mut stream = connect(url.trim_start_matches("redis://"));
    write!(stream, "{command}\r\n").unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}
