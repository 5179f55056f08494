"""One transaction: the business row and its event, from Python with psycopg 3."""

import sys

import psycopg
from psycopg.types.json import Jsonb

with psycopg.connect(sys.argv[1]) as connection, connection.transaction():
    connection.execute("select set_config('app.tenant_id', %s, true)", ["acme"])
    connection.execute("insert into orders (tenant, id, total) values (%s, %s, %s)", ["acme", "ord_2", 999])
    event_id = connection.execute(
        "select chapar.emit('melmastoon.reservation.booking.confirmed.v1',"
        " tenant => %s, key => %s, payload => %s, idempotency_key => %s)",
        ["acme", "ord_2", Jsonb({"reservationId": "ord_2", "total": 999}), "ord_2:confirmed:1"],
    ).fetchone()[0]

print(event_id)
