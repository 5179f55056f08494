"""Receives events that Chapar pushes: checks the signature, applies each event once.

    python3 receiver.py PORT SECRET_FILE DATABASE
"""

import base64
import hashlib
import hmac
import json
import sqlite3
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOLERANCE = 300  # seconds
LARGEST = 32 * 1024 * 1024  # bytes


class Refused(Exception):
    """Answered with 401."""


def read_secrets(path):
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    return [base64.b64decode(line.removeprefix("whsec_")) for line in lines if line and not line.startswith("#")]


def verify(secrets, headers, body):
    """The id and the timestamp of a message that was really sent by Chapar, and just now."""
    event, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    try:
        age = time.time() - int(timestamp)
    except ValueError:
        raise Refused("the timestamp is not a number of seconds") from None
    if abs(age) > TOLERANCE:
        raise Refused("the timestamp is off by more than five minutes")
    signed = event.encode() + b"." + timestamp.encode() + b"." + body
    expected = [base64.b64encode(hmac.digest(secret, signed, "sha256")).decode() for secret in secrets]
    for signature in headers.get("webhook-signature", "").split(" "):
        version, _, given = signature.partition(",")
        # Encoded, because text with other letters cannot be compared in constant time.
        if version == "v1" and any(hmac.compare_digest(given.encode(), known.encode()) for known in expected):
            return event, int(timestamp)
    raise Refused("no signature fits")


def apply(database, event, timestamp, topic, body):
    """The claim and what the event changes, in one transaction. False where it was applied before."""
    digest = hashlib.sha256(body).hexdigest()
    with sqlite3.connect(database, timeout=10, isolation_level="IMMEDIATE") as connection:
        claimed = connection.execute(
            "insert into seen (id, timestamp, body) values (?, ?, ?) on conflict do nothing", [event, timestamp, digest]
        )
        if claimed.rowcount == 0:
            known = connection.execute("select timestamp, body from seen where id = ?", [event]).fetchone()
            if known[1] != digest:
                raise Refused("the id was taken before with another body")
            if known[0] == timestamp:
                raise Refused("this attempt was taken before and is now replayed")
            return False
        # Here is your own work, in the same transaction.
        envelope = json.loads(body)
        connection.execute("insert into applied (topic, payload) values (?, ?)", [topic, json.dumps(envelope["payload"])])
    return True


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        if length > LARGEST:
            self.close_connection = True
            return self.answer(413, "too large")
        body = self.rfile.read(length)
        prefix = "/internal/events/"
        if not self.path.startswith(prefix):
            return self.answer(404, "no such topic")
        try:
            event, timestamp = verify(self.server.secrets, self.headers, body)
            new = apply(self.server.database, event, timestamp, self.path.removeprefix(prefix), body)
        except Refused as reason:
            return self.answer(401, str(reason))
        except (ValueError, KeyError) as reason:
            # Never to be understood: Chapar keeps it as a dead letter.
            return self.answer(422, f"not an event: {reason}")
        self.answer(200, "applied" if new else "applied before")

    def answer(self, status, text):
        data = text.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def main():
    port, secret_file, database = sys.argv[1:]
    with sqlite3.connect(database) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("create table if not exists seen (id text primary key, timestamp integer, body text)")
        connection.execute("create table if not exists applied (n integer primary key, topic text, payload text)")
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Receiver)
    server.secrets, server.database = read_secrets(secret_file), database
    print(f"receiving at http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


main()
