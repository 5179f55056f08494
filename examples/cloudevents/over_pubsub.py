"""CloudEvents on Google Pub/Sub, with the official SDKs and Chapar on the other side.

  PUBSUB_EMULATOR_HOST=localhost:8085 python3 over_pubsub.py read  my-project inventory.held.sub 2
  PUBSUB_EMULATOR_HOST=localhost:8085 python3 over_pubsub.py write my-project melmastoon.reservation.booking.held.v1

`read` prints and acknowledges the next events of a subscription, one JSON object per line. `write`
publishes one event in binary mode and one in structured mode. Needs `cloudevents` and
`google-cloud-pubsub`.
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
from google.cloud import pubsub_v1

# The SDK has no binding for Pub/Sub, which spells attributes as Kafka does its headers, in UTF-8,
# apart from the sign behind `ce`. The ordering key is what the key is there.
PUBSUB, KAFKA = "ce-", "ce_"


def respelled(name, old, new):
    return new + name.removeprefix(old) if name.startswith(old) else name


def from_pubsub(message):
    headers = {
        respelled(name, PUBSUB, KAFKA): value.encode()
        for name, value in message.attributes.items()
    }
    return from_kafka_event(KafkaMessage(headers, message.ordering_key or None, message.data))


def shown(event):
    attributes = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in event.get_attributes().items()
    }
    return json.dumps({"attributes": attributes, "data": event.get_data()})


def read(project, subscription, count):
    with pubsub_v1.SubscriberClient() as client:
        path, left = client.subscription_path(project, subscription), int(count)
        while left > 0:
            pulled = client.pull(subscription=path, max_messages=left, timeout=10)
            for received in pulled.received_messages:
                print(shown(from_pubsub(received.message)))
            ack_ids = [received.ack_id for received in pulled.received_messages]
            if ack_ids:
                client.acknowledge(subscription=path, ack_ids=ack_ids)
            left -= len(ack_ids)


def write(project, topic):
    in_order = pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
    client = pubsub_v1.PublisherClient(publisher_options=in_order)
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
        headers = {
            respelled(name, KAFKA, PUBSUB): value.decode()
            for name, value in message.headers.items()
        }
        path = client.topic_path(project, topic)
        client.publish(path, message.value, ordering_key=message.key, **headers).result(timeout=10)


{"read": read, "write": write}[sys.argv[1]](*sys.argv[2:])
