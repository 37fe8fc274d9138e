// The client against a server that misbehaves as nodes and networks do.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import * as ledgerd from "../src/index.js";

/** A status, headers, and a body; the status 0 breaks the connection, and -1 never answers. */
type Answer = [status: number, headers: { [name: string]: string }, body: unknown];

/** Serves answers, in order, and repeats the last one. */
async function serve(
  t: TestContext,
  ...answers: Answer[]
): Promise<{ url: string; seen: string[] }> {
  const seen: string[] = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (part: Buffer) => (body += part.toString()));
    request.on("end", () => {
      seen.push(body);
      const [status, headers, content] = answers[Math.min(seen.length, answers.length) - 1]!;
      if (status === 0) request.socket.destroy();
      if (status <= 0) return;
      response.writeHead(status, headers);
      response.end(typeof content === "string" ? content : JSON.stringify(content));
    });
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen };
}

const refusal = (code: string, headers: { [name: string]: string } = {}): Answer => [
  503,
  headers,
  { code, message: "no" },
];

const key = ledgerd.PrivateKey.generate();
const parts = { ledger: new Uint8Array(32), signer: "alice", stream: 0n, sequence: 1n };
const bundle = ledgerd.Bundle.of([ledgerd.transfer(parts, "alice:a", "bob:b", 5n)]);
bundle.sign("alice", key);
const idHex = ledgerd.hex(bundle.ids()[0]!);
const state = "TRANSACTION_STATE_DURABLE";
const done: Answer = [200, {}, { transactions: [{ idHex, state, height: "7", later: {} }] }];

test("a submission is repeated with the same bytes", async (t) => {
  const retry = refusal("unavailable", { "Ledgerd-Retry": "true" });
  const { url, seen } = await serve(t, [0, {}, ""], retry, [502, {}, "<html>"], done);
  const [status] = await new ledgerd.Client(url).submit(bundle);
  assert.equal(status!.height, 7n);
  assert.equal(seen.length, 4);
  assert.equal(new Set(seen).size, 1);
});

test("a refusal is told once, and whether the submission may be in", async (t) => {
  const no = refusal("permission_denied");
  for (const [answers, unsure, calls] of [
    [[no], false, 1],
    [[[0, {}, ""], no], true, 2],
    [[refusal("permission_denied", { "Ledgerd-Unsure": "true" })], true, 1],
  ] as [Answer[], boolean, number][]) {
    const { url, seen } = await serve(t, ...answers);
    await assert.rejects(new ledgerd.Client(url).submit(bundle), (error) => {
      return error instanceof ledgerd.ApiError && error.unsure === unsure;
    });
    assert.equal(seen.length, calls);
  }
});

test("calls end, and go on at the next address", async (t) => {
  const silent = await serve(t, [-1, {}, ""]);
  const short = new ledgerd.Client(silent.url, { timeout: 200 });
  await assert.rejects(short.mode(), ledgerd.ConnectionFailed);
  const down = await serve(t, [0, {}, ""]);
  const good = await serve(t, [200, {}, { node: { mode: "NODE_MODE_ORDERING" } }]);
  const client = new ledgerd.Client([down.url, good.url]);
  assert.equal(await client.mode(), "ordering");
  await client.mode(); // goes to the one that answered
  assert.equal(down.seen.length, 1);
});

test("an answer of any size does not fill the memory", { timeout: 60_000 }, async (t) => {
  const chunk = Buffer.alloc(1 << 20, 0x20);
  let sent = 0;
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(200, { "Content-Type": "application/json" });
    const more = (): void => {
      // It never ends by itself.
      while (!response.destroyed && response.write(chunk)) sent += chunk.length;
      sent += chunk.length;
    };
    response.on("drain", more);
    more();
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const client = new ledgerd.Client(url, { timeout: 50_000 });
  await assert.rejects(client.mode(), /more than 134217728 bytes/);
  assert.ok(sent < 256 << 20, `${sent} bytes`);
});

test("answers that are not what the API promises", async (t) => {
  for (const body of [
    "no JSON",
    "[]",
    "null",
    {},
    { transactions: {} },
    { transactions: [1] },
    { transactions: [{ idHex: "00" }] },
    { transactions: [{ idHex, height: "7.5" }] },
    { transactions: [{ idHex, destinations: ["a"] }] },
  ]) {
    const { url } = await serve(t, [200, {}, body]);
    const client = new ledgerd.Client(url);
    await assert.rejects(client.submit(bundle), ledgerd.MalformedAnswer, JSON.stringify(body));
  }
  const again = await serve(t, [200, {}, { accounts: [], nextPageToken: "a" }]);
  await assert.rejects(async () => {
    for await (const each of new ledgerd.Client(again.url).accounts()) assert.fail(each.account);
  }, ledgerd.MalformedAnswer);
  // A header whose hash is another block's.
  const canonical = Buffer.from([1, ...new Uint8Array(ledgerd.HEADER_SIZE - 1)]);
  const hash = Buffer.from(ledgerd.blockHash(canonical));
  const block = (header: unknown): Answer => [200, {}, { block: { header } }];
  const honest = { canonical: canonical.toString("base64"), hash: hash.toString("base64") };
  const right = await serve(t, block(honest));
  assert.deepEqual((await new ledgerd.Client(right.url).block(0n)).hash, new Uint8Array(hash));
  for (const lie of [{ hash: Buffer.alloc(32).toString("base64") }, { height: "2" }]) {
    const { url } = await serve(t, block({ ...honest, ...lie }));
    await assert.rejects(new ledgerd.Client(url).block(), ledgerd.MalformedAnswer);
  }
  await assert.rejects(new ledgerd.Client(right.url).block(3n), ledgerd.MalformedAnswer);
});

test("nonces of transactions that are made at once differ", async (t) => {
  const { url, seen } = await serve(t, refusal("not_found"), [200, {}, { nextSequence: "7" }]);
  const sender = new ledgerd.Sender(new ledgerd.Client(url), parts.ledger, "alice", key);
  await assert.rejects(sender.transaction({}), ledgerd.ApiError); // and the node is asked again
  const made = await Promise.all([1, 2, 3].map(() => sender.transaction({})));
  assert.deepEqual(made.map((each) => each.sequence), [7n, 8n, 9n]);
  assert.equal(seen.length, 2);
});
