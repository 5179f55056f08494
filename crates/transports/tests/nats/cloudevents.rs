//! CloudEvents on NATS, read and written by the official SDK for Python.

use chapar_core::dialect::{Binding, CloudEvents};
use chapar_core::port::Transport;
use chapar_testkit::need;
use chapar_transports::nats::Nats;

use super::python::{Python, check_read, check_written, event_of, written};
use super::specifics::{fetch, message, options, server, spec};
use super::topology::HELD;

#[tokio::test]
async fn the_official_sdk_reads_and_writes_what_we_write_and_read() {
    let server = need!(server());
    const TEST: &str = "nats cloudevents::the_official_sdk_reads_and_writes_what_we_write_and_read";
    let Some(python) = Python::with(TEST, "cloudevents-nats") else { return };
    let nats = Nats::connect(server.url(), options("a")).await.unwrap();
    let binary = CloudEvents::Binary(Binding::Nats);
    let event = event_of(HELD);
    for outgoing in written(&event, binary, || message(HELD, "acme", "acme:res_1")) {
        nats.publish(vec![outgoing]).await.remove(0).unwrap();
    }
    let printed = python.run("over_nats.py", &["read", server.url(), "RESERVATION", "2"]);
    check_read(&event, &printed);

    let stream = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    stream.get_stream("RESERVATION").await.unwrap().purge().await.unwrap();
    python.run("over_nats.py", &["write", server.url(), HELD]);
    let reader = nats.subscribe(&spec(&[HELD])).await.unwrap();
    for (number, delivery) in (1..).zip(fetch(&*reader, 2).await) {
        check_written(number, binary, delivery);
    }
}
