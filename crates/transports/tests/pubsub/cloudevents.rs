//! CloudEvents on Pub/Sub, read and written by the official SDKs for Python.

use chapar_core::dialect::{Binding, CloudEvents, Dialect, Message};
use chapar_core::port::Transport;
use chapar_testkit::need;
use chapar_testkit::servers;
use serde_json::{Value, json};

use super::python::Python;
use super::specifics::{PROJECT, connect, fetch, message, spec, subscription_of, topic};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_sdk_reads_and_writes_what_we_write_and_read() {
    let host = need!(servers::pubsub()).url().to_owned();
    let test = "cloudevents::the_official_sdk_reads_and_writes_what_we_write_and_read";
    let wanted = ["cloudevents==2.2.0", "google-cloud-pubsub==2.43.0"];
    let Some(python) = Python::with(test, &wanted) else { return };
    let python = python.set("PUBSUB_EMULATOR_HOST", &host);
    let run = |args: &[&str]| tokio::task::block_in_place(|| python.run("over_pubsub.py", args));

    let (pubsub, held) = (connect(&host).await, topic());
    pubsub.apply(&[], &[spec(&held)]).await.unwrap();
    let binary = CloudEvents::Binary(Binding::PubSub);
    let event = json!({
        "specversion": "1.0", "id": "rs-1", "type": held, "source": "/services/reservation-service",
        "time": "2026-01-02T03:04:05.5Z", "subject": "Zimmer „7“ & 8 %", "tenantid": "acme",
        "correlationid": "c-1", "partitionkey": "acme:res_1", "datacontenttype": "application/json",
        "data": {"reservationId": "res_1", "nights": 2, "total": 10.50, "guest": "Ägäis"},
    });
    let envelope = CloudEvents::Structured.decode(&Message::from_body(event.to_string())).unwrap();
    for dialect in [binary, CloudEvents::Structured] {
        let written = dialect.encode(&envelope).unwrap();
        let mut outgoing = message(&held, "acme:res_1", 1);
        (outgoing.headers, outgoing.body) = (written.headers, written.body);
        pubsub.publish(vec![outgoing]).await.remove(0).unwrap();
    }
    let printed = run(&["read", PROJECT, &subscription_of(&held), "2"]);
    let read: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read.len(), 2, "{printed}");
    for read in read {
        assert_eq!(read["data"], event["data"], "{read:#}");
        for (name, value) in event.as_object().unwrap() {
            let expected = match name.as_str() {
                "data" => continue,
                "time" => json!("2026-01-02T03:04:05.500000+00:00"),
                _ => value.clone(),
            };
            assert_eq!(read["attributes"][name], expected, "{name} in {read:#}");
        }
    }

    let held = topic();
    let reader = pubsub.subscribe(&spec(&held)).await.unwrap();
    run(&["write", PROJECT, &held]);
    for number in 1..=2 {
        let delivery = fetch(&*reader, 1).await.remove(0);
        reader.ack(std::slice::from_ref(&delivery.token)).await.unwrap();
        assert_eq!(delivery.key.as_deref(), Some("acme:res_1"));
        let message =
            Message { topic: Some(delivery.topic), headers: delivery.headers, body: delivery.body };
        // One dialect for both: a structured event is known by its content type.
        let event = binary.decode(&message).unwrap();
        assert_eq!(event.id.to_string(), format!("py-{number}"));
        assert_eq!(event.producer.service, "front-desk");
        assert_eq!(event.ordering_key.as_deref(), Some("acme:res_1"));
        assert_eq!(event.aggregate.as_ref().map(|a| a.id.as_str()), Some("Zimmer „7“ & 8 %"));
        assert_eq!(event.occurred_at.to_string(), "2026-01-02T03:04:05Z");
        let payload: Value = serde_json::from_slice(event.payload.as_bytes()).unwrap();
        assert_eq!(payload, json!({"reservationId": "res_1", "nights": number}));
    }
}
