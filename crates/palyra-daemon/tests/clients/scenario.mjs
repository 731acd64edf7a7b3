// What an agent's client meets, told by the official TypeScript SDK.
//
// Arguments: the folder of installed clients, and the program `palyra`. The environment is the
// daemon's owner's; the agent `claude` is registered. Every line that is not true ends it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, palyra] = process.argv.slice(2);
const sdk = (file) => import(pathToFileURL(join(folder, "node_modules/@modelcontextprotocol/sdk/dist/esm", file)).href);
const { Client } = await sdk("client/index.js");
const { StdioClientTransport } = await sdk("client/stdio.js");

const person = (...words) => JSON.parse(execFileSync(palyra, [...words, "--json"], { encoding: "utf8" }));
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
async function waiting() {
  for (let turn = 0; turn < 600; turn++) {
    const [first] = person("approvals", "list").items;
    if (first) return first.approval_id;
    await pause(50);
  }
  throw new Error("nothing waits");
}

const client = new Client({ name: "scenario", version: "1.0.0" });
const args = ["mcp", "serve", "--as", "agent:claude"];
await client.connect(new StdioClientTransport({ command: palyra, args, env: process.env }));
assert.equal(client.getServerVersion().name, "palyra");
assert.equal(client.getServerCapabilities().tools.listChanged, true);

const { tools } = await client.listTools();
assert.ok(tools.length >= 6 && tools.every((tool) => /^[A-Za-z0-9_-]{1,64}$/.test(tool.name) && tool.outputSchema));

// The client checks structured results against the tool's output schema by itself.
const echoed = await client.callTool({ name: "palyra_echo", arguments: { message: "from TypeScript" } });
assert.equal(echoed.structuredContent.decision, "permitted");
assert.equal(echoed.structuredContent.output.message, "from TypeScript");
assert.match(echoed.structuredContent.attestation_id, /^att_/);

const heard = [];
const asked = client.callTool(
  { name: "palyra_process_run", arguments: { argv: ["sh", "-c", "echo from the sandbox"] } },
  undefined,
  { onprogress: (progress) => heard.push(progress.message) },
);
const approval = await waiting();
person("approvals", "decide", approval, "--decision", "allow");
const ran = await asked;
assert.equal(ran.structuredContent.exit_code, 0);
assert.match(ran.content[0].text, /from the sandbox/);
assert.ok(heard.some((message) => message.includes(approval)), JSON.stringify(heard));

const gone = new AbortController();
const cancelled = client.callTool(
  { name: "palyra_process_run", arguments: { argv: ["true", "never"] } },
  undefined,
  { signal: gone.signal },
);
const left = await waiting();
gone.abort();
await assert.rejects(cancelled);
person("approvals", "decide", left, "--decision", "deny");

const again = await client.callTool({ name: "palyra_echo", arguments: { message: "still here" } });
assert.equal(again.structuredContent.decision, "permitted");
await client.close();
console.log("all of it holds");
