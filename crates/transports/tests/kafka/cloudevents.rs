//! CloudEvents on Kafka, read and written by the official SDK for Python.

use chapar_core::dialect::{Binding, CloudEvents};
use chapar_core::port::Transport;
use chapar_testkit::{need, servers};
use chapar_transports::kafka::Kafka;

use super::python::{Python, check_read, check_written, event_of, written};
use super::specifics::{fetch, message, options, spec, topic};

pub(super) const PACKAGES: &str = "cloudevents-kafka";

#[tokio::test]
async fn the_official_sdk_reads_and_writes_what_we_write_and_read() {
    let server = need!(servers::kafka());
    const TEST: &str =
        "kafka cloudevents::the_official_sdk_reads_and_writes_what_we_write_and_read";
    let Some(python) = Python::with(TEST, PACKAGES) else { return };
    let url = format!("kafka://{}", server.url());
    let kafka = Kafka::connect(&url, options("a")).await.unwrap();
    let (ours, theirs) = (topic(), topic());
    let binary = CloudEvents::Binary(Binding::Kafka);
    let event = event_of(&ours);
    for outgoing in written(&event, binary, || message(&ours, "acme:res_1")) {
        kafka.publish(vec![outgoing]).await.remove(0).unwrap();
    }
    let printed = python.run("over_kafka.py", &["read", server.url(), &ours, "2"]);
    check_read(&event, &printed);

    let reader = kafka.subscribe(&spec("desk", &[&theirs])).await.unwrap();
    python.run("over_kafka.py", &["write", server.url(), &theirs]);
    for (number, delivery) in (1..).zip(fetch(&*reader, 2).await) {
        check_written(number, binary, delivery);
    }
}
