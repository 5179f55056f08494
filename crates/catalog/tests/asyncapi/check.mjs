// Prints what the official parser thinks of each document, as one line of JSON per file.
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";

for (const file of process.argv.slice(2)) {
  const { document, diagnostics } = await new Parser().parse(readFileSync(file, "utf8"));
  const errors = diagnostics.filter((d) => d.severity === 0);
  console.log(JSON.stringify({
    channels: document ? document.channels().all().length : 0,
    operations: document ? document.operations().all().length : 0,
    errors: errors.map((d) => `${d.path.join("/")}: ${d.message}`),
  }));
}
