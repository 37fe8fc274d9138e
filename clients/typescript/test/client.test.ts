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

test("what must fail has failed, also if an attempt before may be in", async (t) => {
  const foreseen = refusal("failed_precondition", { "Ledgerd-Reason": "stale_nonce" });
  const { url } = await serve(t, [0, {}, ""], foreseen);
  const [status] = await new ledgerd.Client(url).submit(bundle);
  assert.deepEqual(
    [ledgerd.hex(status!.id), status!.state, status!.height, status!.reasonCode],
    [idHex, "failed", 0n, "stale_nonce"],
  );
  const lost = refusal("failed_precondition", { "Ledgerd-Reason": "shard_lost" });
  const other = await serve(t, lost);
  await assert.rejects(new ledgerd.Client(other.url).submit(bundle), ledgerd.ApiError);
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

const OPEN = {
  holdHex: "07".repeat(32),
  shard: 1,
  decimals: 2,
  hold: {
    account: "a:till",
    asset: "EUR",
    amount: "5",
    to: ["b:till"],
    poster: "b",
    expiresMs: "1700000000000",
  },
};

test("open holds are read and checked", async (t) => {
  const { url } = await serve(t, [200, {}, { hold: { ...OPEN, later: 1 } }]);
  const found = await new ledgerd.Client(url).hold(new Uint8Array(32).fill(7));
  assert.deepEqual([found.amount, found.to, found.decimals], [5n, ["b:till"], 2]);
  await assert.rejects(new ledgerd.Client(url).hold(new Uint8Array(32)), ledgerd.MalformedAnswer);
  const changed = [
    { amount: "0" },
    { amount: "" },
    { amount: String(1n << 127n) },
    { amount: "5.5" },
    { account: "a" },
    { to: [] },
    { to: "b:till" },
    { to: [5] },
    { poster: "" },
    { expiresMs: "0" },
  ].map((each) => ({ ...OPEN, hold: { ...OPEN.hold, ...each } }));
  const lies = [
    ...changed,
    { ...OPEN, holdHex: "07" },
    { ...OPEN, holdHex: "x" },
    { ...OPEN, decimals: 31 },
    { ...OPEN, hold: {} },
    { ...OPEN, hold: [] },
    5,
  ];
  const listed = async (answer: unknown) => {
    const { url } = await serve(t, [200, {}, answer]);
    for await (const each of new ledgerd.Client(url).holds()) assert.fail(each.account);
  };
  for (const lie of lies) {
    await assert.rejects(listed({ holds: [lie] }), ledgerd.MalformedAnswer, JSON.stringify(lie));
  }
  // Holds of shards that are silent are not left out in silence.
  await assert.rejects(listed({ holds: [OPEN], unansweredShards: [2] }), ledgerd.ApiError);
});

test("terms that no account has are no answer", async (t) => {
  for (const terms of [
    { freeze: "ice" },
    { freeze: 1 },
    { closed: "true" },
    { noDebits: 1 },
    { guardian: "a b" },
    { limits: [{ asset: "EUR" }] },
    { limits: [{ asset: "EUR", floor: "5.5" }] },
    { limits: [{ asset: "EUR", velocity: "5" }] },
    { metadata: [{ key: "" }] },
    { metadata: {} },
  ]) {
    const { url } = await serve(t, [200, {}, { account: { account: "a:till", terms } }]);
    const answer = new ledgerd.Client(url).account("a:till");
    await assert.rejects(answer, ledgerd.MalformedAnswer, JSON.stringify(terms));
  }
  const { url } = await serve(t, [200, {}, { account: { account: "a:safe", alias: "safe" } }]);
  const client = new ledgerd.Client(url);
  await assert.rejects(client.accountNow("a:till"), ledgerd.MalformedAnswer);
  await assert.rejects(client.accountByAlias("a", "till"), ledgerd.MalformedAnswer);
});

test("a sender says what is wrong", async (t) => {
  const { url, seen } = await serve(t, [200, {}, { nextSequence: "7" }]);
  const client = new ledgerd.Client(url);
  const sender = new ledgerd.Sender(client, parts.ledger, "alice", key);
  const hold = { account: "alice:till", amount: 5n, expires: 1n };
  for (const to of [[], "bob:till" as unknown as string[]]) {
    await assert.rejects(sender.hold({ ...hold, to }), /a list of 1 or more accounts/);
  }
  const id = new Uint8Array(32);
  const options = { dedline: 5n } as ledgerd.EndOptions;
  await assert.rejects(sender.voidHold(id, options), /has no "dedline", only placed, deadline/);
  await assert.rejects(sender.postHold(id.slice(2)), /the id of a hold of 30 bytes/);
  const now = new ledgerd.AccountNow({
    account: "bob:till",
    alias: "",
    revision: 0n,
    guarded: 0n,
    terms: ledgerd.NO_TERMS,
  });
  assert.throws(() => sender.change(now), /its guardian calls guard/);
  assert.throws(() => sender.guard(now, true), /not the guardian of bob:till, but nobody/);
  const guarded = now.with({ guardian: "alice" });
  assert.throws(() => sender.guard(guarded, false), /the freeze of bob:till is none/);
  await assert.rejects(client.chart({ unter: "a" } as object), /has no "unter"/);
  assert.equal(seen.length, 0); // and no nonce was taken
});

const SCHEDULED = {
  scheduleHex: "07".repeat(32),
  signer: "a",
  issued: 1,
  occurrences: 12,
  nextMs: "1772524800000",
  schedule: {
    postings: [
      { account: "a:till", asset: "EUR", amount: "-5" },
      { account: "b:till", asset: "EUR", amount: "5" },
    ],
    firstMs: "1769846400000",
    period: "months",
    every: 1,
    count: 12,
  },
};

test("schedules are read and checked", async (t) => {
  const { url } = await serve(t, [200, {}, { schedule: { ...SCHEDULED, later: 1 } }]);
  const found = await new ledgerd.Client(url).schedule(new Uint8Array(32).fill(7));
  assert.deepEqual([found.schedule.parts.signer, found.schedule.period, found.issued], [
    "a",
    "months",
    1,
  ]);
  assert.equal(found.next, 1772265600000n); // the last day of February, whatever the node says
  const other = new ledgerd.Client(url).schedule(new Uint8Array(32));
  await assert.rejects(other, ledgerd.MalformedAnswer);
  const changed = [
    { period: "years" },
    { every: 0 },
    { count: 4097 },
    { firstMs: "0" },
    { postings: [] },
    { postings: [5] },
    { untilMs: "x" },
  ].map((each) => ({ ...SCHEDULED, schedule: { ...SCHEDULED.schedule, ...each } }));
  const lies = [
    ...changed,
    { ...SCHEDULED, scheduleHex: "07" },
    { ...SCHEDULED, issued: 12 },
    { ...SCHEDULED, signer: "b" },
    { ...SCHEDULED, schedule: {} },
    5,
  ];
  for (const lie of lies) {
    const { url } = await serve(t, [200, {}, { schedules: [lie] }]);
    const listed = async () => {
      for await (const _ of new ledgerd.Client(url).schedules("a")) assert.fail();
    };
    await assert.rejects(listed(), ledgerd.MalformedAnswer, JSON.stringify(lie));
  }
});

test("the root keeps schedules", async (t) => {
  const shards = [{ shard: 0, parent: 2 }, { shard: 2, root: true }];
  const key = new ledgerd.PrivateKey(new Uint8Array(32));
  const parts = {
    postings: [
      { account: "acme:till", amount: -5n },
      { account: "b:till", amount: 5n },
    ],
    first: 1769846400000n,
  };
  for (const [tree, root] of [[{ shards }, 2], [{}, 0]] as const) {
    const { url } = await serve(t, [200, {}, { tree }]);
    const acme = new ledgerd.Sender(new ledgerd.Client(url), new Uint8Array(32), "acme", key);
    assert.equal((await acme.schedule(parts)).parts.shard, root);
    assert.equal((await acme.endSchedule(new Uint8Array(32))).parts.shard, root);
    const monthly = { ...parts, period: "months", count: 12, shard: 1 } as const;
    const [one, other] = [await acme.schedule(monthly), await acme.schedule(monthly)];
    assert.deepEqual([one.parts.every, one.parts.shard, one.times().length], [1, 1, 12]);
    assert.notDeepEqual(one.id(), other.id());
    const endless = await acme.schedule({ ...parts, period: "weeks" });
    assert.throws(() => endless.encode(), ledgerd.MalformedError); // nor until when
  }
});
