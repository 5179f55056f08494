//! CloudEvents on Pub/Sub, read and written by the official SDKs for Python.

use chapar_core::dialect::{Binding, CloudEvents};
use chapar_core::port::Transport;
use chapar_testkit::need;
use chapar_testkit::servers;

use super::python::{Python, check_read, check_written, event_of, written};
use super::specifics::{PROJECT, connect, fetch, message, spec, subscription_of, topic};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_sdk_reads_and_writes_what_we_write_and_read() {
    let host = need!(servers::pubsub()).url().to_owned();
    let test = "cloudevents::the_official_sdk_reads_and_writes_what_we_write_and_read";
    let Some(python) = Python::with(test, "cloudevents-pubsub") else { return };
    let python = python.set("PUBSUB_EMULATOR_HOST", &host);
    let run = |args: &[&str]| tokio::task::block_in_place(|| python.run("over_pubsub.py", args));

    let (pubsub, held) = (connect(&host).await, topic());
    pubsub.apply(&[], &[spec(&held)]).await.unwrap();
    let binary = CloudEvents::Binary(Binding::PubSub);
    let event = event_of(&held);
    for outgoing in written(&event, binary, || message(&held, "acme:res_1", 1)) {
        pubsub.publish(vec![outgoing]).await.remove(0).unwrap();
    }
    let printed = run(&["read", PROJECT, &subscription_of(&held), "2"]);
    check_read(&event, &printed);

    let held = topic();
    let reader = pubsub.subscribe(&spec(&held)).await.unwrap();
    run(&["write", PROJECT, &held]);
    for number in 1..=2 {
        let delivery = fetch(&*reader, 1).await.remove(0);
        reader.ack(std::slice::from_ref(&delivery.token)).await.unwrap();
        check_written(number, binary, delivery);
    }
}
