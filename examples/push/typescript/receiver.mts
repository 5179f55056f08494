// Receives events that Chapar pushes: checks the signature, applies each event once.
//
//     node receiver.mts PORT SECRET_FILE JOURNAL          (Node 22.18 or newer; older: compile it with tsc)

import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, truncateSync, writeSync } from "node:fs";
import { createServer, type IncomingHttpHeaders, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";

const TOLERANCE = 300; // seconds
const LARGEST = 32 * 1024 * 1024; // bytes

interface Applied {
  id: string;
  timestamp: number;
  body: string;
  topic: string;
  payload: unknown;
}

class Refused extends Error {}

function readSecrets(path: string): Buffer[] {
  const lines = readFileSync(path, "utf8").split("\n").map((line) => line.trim());
  const secrets = lines.filter((line) => line !== "" && !line.startsWith("#"));
  return secrets.map((line) => Buffer.from(line.replace(/^whsec_/, ""), "base64"));
}

/** The id and the timestamp of a message that was really sent by Chapar, and just now. */
function verify(secrets: Buffer[], headers: IncomingHttpHeaders, body: Buffer): { id: string; timestamp: number } {
  const header = (name: string): string => String(headers[name] ?? "");
  const id = header("webhook-id");
  const at = header("webhook-timestamp");
  if (!/^\d{1,15}$/.test(at)) throw new Refused("the timestamp is not a number of seconds");
  if (Math.abs(Date.now() / 1000 - Number(at)) > TOLERANCE) {
    throw new Refused("the timestamp is off by more than five minutes");
  }
  const expected = secrets.map((secret) => createHmac("sha256", secret).update(`${id}.${at}.`).update(body).digest());
  for (const signature of header("webhook-signature").split(" ")) {
    if (!signature.startsWith("v1,")) continue;
    const given = Buffer.from(signature.slice(3), "base64");
    if (expected.some((known) => known.length === given.length && timingSafeEqual(known, given))) {
      return { id, timestamp: Number(at) };
    }
  }
  throw new Refused("no signature fits");
}

/** What was applied, one line of JSON each. In a service this is a table, beside the rows that the event changes. */
class Journal {
  private readonly seen = new Map<string, { timestamp: number; body: string }>();
  private readonly file: number;

  constructor(path: string) {
    const text = existsSync(path) ? readFileSync(path) : Buffer.alloc(0);
    // The last line may be half a line: its writer has not answered, so that it comes again.
    const whole = text.subarray(0, text.lastIndexOf("\n") + 1);
    if (whole.length < text.length) truncateSync(path, whole.length);
    for (const line of whole.toString("utf8").split("\n").filter(Boolean)) this.remember(JSON.parse(line) as Applied);
    this.file = openSync(path, "a");
  }

  /** False where the event was applied before. */
  apply(id: string, timestamp: number, topic: string, body: Buffer): boolean {
    const digest = createHash("sha256").update(body).digest("hex");
    const known = this.seen.get(id);
    if (known !== undefined) {
      if (known.body !== digest) throw new Refused("the id was taken before with another body");
      if (known.timestamp === timestamp) throw new Refused("this attempt was taken before and is now replayed");
      return false;
    }
    const { payload } = JSON.parse(body.toString("utf8")) as { payload: unknown };
    const applied: Applied = { id, timestamp, body: digest, topic, payload };
    writeSync(this.file, JSON.stringify(applied) + "\n");
    fsyncSync(this.file);
    this.remember(applied);
    return true;
  }

  close(): void {
    closeSync(this.file);
  }

  private remember({ id, timestamp, body }: Applied): void {
    this.seen.set(id, { timestamp, body });
  }
}

async function read(request: IncomingMessage): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > LARGEST) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

async function receive(request: IncomingMessage): Promise<[number, string]> {
  const prefix = "/internal/events/";
  const path = request.url ?? "";
  const body = await read(request);
  if (body === undefined) return [413, "too large"];
  if (request.method !== "POST" || !path.startsWith(prefix)) return [404, "no such topic"];
  try {
    const { id, timestamp } = verify(secrets, request.headers, body);
    return [200, journal.apply(id, timestamp, path.slice(prefix.length), body) ? "applied" : "applied before"];
  } catch (error) {
    if (error instanceof Refused) return [401, error.message];
    // Never to be understood: Chapar keeps it as a dead letter.
    if (error instanceof SyntaxError) return [422, `not an event: ${error.message}`];
    throw error;
  }
}

const [port, secretFile, journalFile] = process.argv.slice(2);
if (port === undefined || secretFile === undefined || journalFile === undefined) {
  console.error("usage: receiver PORT SECRET_FILE JOURNAL");
  process.exit(2);
}
const secrets = readSecrets(secretFile);
const journal = new Journal(journalFile);
const server = createServer((request, response) => {
  receive(request).then(
    ([status, text]) => response.writeHead(status).end(text),
    (error: unknown) => response.writeHead(500).end(String(error)),
  );
});
server.listen(Number(port), "127.0.0.1", () => {
  console.log(`receiving at http://127.0.0.1:${(server.address() as AddressInfo).port}`);
});
process.once("SIGTERM", () => {
  server.close(() => journal.close());
  server.closeAllConnections();
});
