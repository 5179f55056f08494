"""CloudEvents on Kafka, with the official SDK and Chapar on the other side.

  python3 over_kafka.py read  localhost:9092 melmastoon.reservation.booking.held.v1 2
  python3 over_kafka.py write localhost:9092 melmastoon.reservation.booking.held.v1

`read` prints the first events of a topic, one JSON object per line. `write` publishes one event in
binary mode and one in structured mode. Needs `cloudevents` and `kafka-python[snappy]`: Chapar
compresses with snappy unless told otherwise.
"""

import json
import sys
from datetime import datetime, timezone

from cloudevents.core.bindings.kafka import (
    KafkaMessage,
    from_kafka_event,
    to_binary_event,
    to_structured_event,
)
from cloudevents.core.v1.event import CloudEvent
from kafka import KafkaConsumer, KafkaProducer


def shown(event):
    attributes = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in event.get_attributes().items()
    }
    return json.dumps({"attributes": attributes, "data": event.get_data()})


def read(brokers, topic, count):
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=brokers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20000,
    )
    for _ in range(int(count)):
        record = next(consumer)
        print(shown(from_kafka_event(KafkaMessage(dict(record.headers), record.key, record.value))))
    consumer.close()


def write(brokers, topic):
    producer = KafkaProducer(bootstrap_servers=brokers, acks="all")
    for number, as_message in enumerate([to_binary_event, to_structured_event], start=1):
        attributes = {
            "id": f"py-{number}",
            "source": "/services/front-desk",
            "type": topic,
            "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
            "datacontenttype": "application/json",
            "subject": "Zimmer „7“ & 8 %",
            "tenantid": "acme",
            "partitionkey": "acme:res_1",
        }
        message = as_message(CloudEvent(attributes, {"reservationId": "res_1", "nights": number}))
        key = message.key.encode() if isinstance(message.key, str) else message.key
        sent = producer.send(topic, message.value, key=key, headers=list(message.headers.items()))
        sent.get(timeout=20)
    producer.close()


{"read": read, "write": write}[sys.argv[1]](*sys.argv[2:])
