//! CloudEvents on Kafka, read and written by the official SDK for Python.

use chapar_core::dialect::{Binding, CloudEvents, Dialect, Message};
use chapar_core::port::Transport;
use chapar_testkit::{need, servers};
use chapar_transports::kafka::Kafka;
use serde_json::{Value, json};

use super::python::Python;
use super::specifics::{fetch, message, options, spec, topic};

#[tokio::test]
async fn the_official_sdk_reads_and_writes_what_we_write_and_read() {
    let server = need!(servers::kafka());
    const TEST: &str =
        "kafka cloudevents::the_official_sdk_reads_and_writes_what_we_write_and_read";
    let wanted = ["cloudevents==2.2.0", "kafka-python[snappy]==3.0.12"];
    let Some(python) = Python::with(TEST, &wanted) else { return };
    let url = format!("kafka://{}", server.url());
    let kafka = Kafka::connect(&url, options("a")).await.unwrap();
    let (ours, theirs) = (topic(), topic());
    let binary = CloudEvents::Binary(Binding::Kafka);
    let event = json!({
        "specversion": "1.0", "id": "rs-1", "type": ours, "source": "/services/reservation-service",
        "time": "2026-01-02T03:04:05.5Z", "subject": "Zimmer „7“ & 8 %", "tenantid": "acme",
        "correlationid": "c-1", "partitionkey": "acme:res_1", "datacontenttype": "application/json",
        "data": {"reservationId": "res_1", "nights": 2, "total": 10.50, "guest": "Ägäis"},
    });
    let envelope = CloudEvents::Structured.decode(&Message::from_body(event.to_string())).unwrap();
    for dialect in [binary, CloudEvents::Structured] {
        let written = dialect.encode(&envelope).unwrap();
        let mut outgoing = message(&ours, "acme:res_1");
        (outgoing.headers, outgoing.body) = (written.headers, written.body);
        kafka.publish(vec![outgoing]).await.remove(0).unwrap();
    }
    let printed = python.run("over_kafka.py", &["read", server.url(), &ours, "2"]);
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

    let reader = kafka.subscribe(&spec("desk", &[&theirs])).await.unwrap();
    python.run("over_kafka.py", &["write", server.url(), &theirs]);
    for (number, delivery) in (1..).zip(fetch(&*reader, 2).await) {
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
