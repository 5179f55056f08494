"""CloudEvents on NATS JetStream, with the official SDK and Chapar on the other side.

  python3 over_nats.py read  nats://localhost:4222 RESERVATION 2
  python3 over_nats.py write nats://localhost:4222 melmastoon.reservation.booking.held.v1

`read` prints the first events of a stream, one JSON object per line. `write` publishes one event in
binary mode and one in structured mode. Needs `cloudevents` and `nats-py`.
"""

import asyncio
import json
import sys
from datetime import datetime, timezone

import nats
from cloudevents.core.bindings.http import (
    HTTPMessage,
    from_http_event,
    to_binary_event,
    to_structured_event,
)
from cloudevents.core.v1.event import CloudEvent


def shown(event):
    attributes = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in event.get_attributes().items()
    }
    return json.dumps({"attributes": attributes, "data": event.get_data()})


async def read(url, stream, count):
    client = await nats.connect(url)
    pull = await client.jetstream().pull_subscribe(">", stream=stream)
    for message in await pull.fetch(int(count), timeout=10):
        # NATS spells attributes as HTTP does.
        print(shown(from_http_event(HTTPMessage(dict(message.headers or {}), message.data))))
        await message.ack()
    await client.close()


async def write(url, topic):
    client = await nats.connect(url)
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
        # All events of a key go to one partition; it is ours to choose as long as we always
        # choose the same.
        headers = {**message.headers, "Nats-Msg-Id": f"py-{number}", "Chapar-Key": "acme:res_1"}
        await client.jetstream().publish(f"{topic}.p0", message.body, headers=headers)
    await client.close()


asyncio.run({"read": read, "write": write}[sys.argv[1]](*sys.argv[2:]))
