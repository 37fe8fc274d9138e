// The client against a real ledger of two shards, and key files that the product wrote.

import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import * as ledgerd from "../src/index.js";

const BINARY = process.env["LEDGERD_BINARY"] ?? "";
const skip = BINARY ? false : "LEDGERD_BINARY names no ledgerd: scripts/test typescript builds one";
const PORTS = 8; // two of each of two nodes of two shards

let folder = "";
let net: ChildProcess | undefined;
let client: ledgerd.Client;
let addresses: string[] = [];
const geneses: ledgerd.Genesis[] = [];

const listen = (port: number): Promise<Server | undefined> =>
  new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(undefined));
    server.listen(port, "127.0.0.1", () => resolve(server));
  });

/** Resolves to the first of some free ports in a row, below those that systems give out. */
async function freePorts(): Promise<number> {
  for (let first = 20000 + ((process.pid * 16) % 10000); first < 32000; first += PORTS) {
    const found: (Server | undefined)[] = [];
    for (let i = 0; i < PORTS; i++) found.push(await listen(first + i));
    const free = found.every((each) => each);
    await Promise.all(
      found.map((each) => each && new Promise((resolve) => each.close(resolve))),
    );
    if (free) return first;
  }
  throw new Error("no free ports");
}

before(async () => {
  if (skip) return;
  folder = mkdtempSync(join(tmpdir(), "ledgerd-typescript-"));
  const port = await freePorts();
  const dir = join(folder, "net");
  const started = spawn(
    BINARY,
    ["testnet", "--dir", dir, "--shards", "2", "--nodes", "2", "--base-port", `${port}`, "--run"],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  net = started;
  let log = "";
  started.stdout.on("data", (data) => (log += data));
  started.stderr.on("data", (data) => (log += data));
  addresses = [0, 1].map((node) => `http://127.0.0.1:${port + 2 * node}`);
  client = new ledgerd.Client(addresses);
  const deadline = Date.now() + 60_000;
  for (;;) {
    assert.equal(started.exitCode, null, log);
    assert.ok(Date.now() < deadline, log);
    if ((await client.mode().catch(() => "")) === "ordering") break;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  for (const each of readdirSync(dir, { recursive: true }) as string[]) {
    if (!each.endsWith("genesis.json")) continue;
    const genesis = ledgerd.Genesis.parse(readFileSync(join(dir, each), "utf8"));
    geneses[genesis.shard] = genesis;
  }
});

after(async () => {
  if (net && net.exitCode === null) {
    const ended = new Promise((resolve) => net?.once("exit", resolve));
    net.kill("SIGINT");
    await ended;
  }
  if (folder) rmSync(folder, { recursive: true });
});

/** Registers an organisation at a shard, with an issuer and an account. */
async function registered(prefix: string, shard: number): Promise<[string, ledgerd.PrivateKey]> {
  const name = Array.from({ length: 100 }, (_, i) => `${prefix}${i}`).find(
    (each) => ledgerd.home(each, 2) === shard,
  )!;
  const key = ledgerd.PrivateKey.generate();
  const common = { ledger: geneses[0]!.book(), signer: name, stream: 0n };
  // One of several shards takes a registration alone.
  for (const content of [
    { registrations: [{ organisation: name, keys: [key.public] }] },
    { openings: [{ account: `${name}:mint`, issuer: true }, { account: `${name}:till` }] },
  ]) {
    const sequence = await client.nonce(name);
    const made = new ledgerd.Transaction({ ...common, sequence, ...content });
    ledgerd.require(
      await client.submit(ledgerd.Bundle.of([made]).sign(name, key)),
      "durable",
    );
  }
  return [name, key];
}

test("post within a shard and across shards, read, and verify offline", { skip }, async () => {
  const genesis = geneses[0]!;
  assert.deepEqual((await client.genesis(1)).encode(), geneses[1]!.encode());
  const [alice, key] = await registered("alice", 0);
  const [bob] = await registered("bob", 1);
  const common = { ledger: genesis.book(), signer: alice, stream: 0n };
  const sequence = await client.nonce(alice);
  const within = ledgerd.transfer({ ...common, sequence }, `${alice}:mint`, `${alice}:till`, 42n);
  const across = ledgerd.transfer(
    { ...common, sequence: sequence + 1n, deadline: BigInt(Date.now() + 30_000) },
    `${alice}:till`,
    `${bob}:till`,
    2n,
  );
  const [bundle] = ledgerd.bundlesOf([within, across]);
  bundle!.sign(alice, key);
  const statuses = await client.submit(bundle!, "durable_everywhere", { timeout: 30_000 });
  ledgerd.require(statuses, "durable_everywhere");
  assert.equal((await client.account(`${alice}:till`)).balances[0]!.amount, 40n);
  assert.equal((await client.account(`${bob}:till`)).balances[0]!.amount, 2n);
  // The same bytes again are the same transactions.
  const again = await client.submit(bundle!);
  assert.deepEqual(again.map((each) => each.height), statuses.map((each) => each.height));

  const { proof, auditor } = await client.certifiedProof(within.id(), genesis);
  assert.deepEqual(proof.proof.transaction().encode(), within.encode());
  assert.ok(auditor.signers(proof.finality!.certificate).length >= 2);
  // The product's own command agrees about the same bytes.
  const [file, genesisFile] = [join(folder, "a.proof"), join(folder, "net/node-0/genesis.json")];
  writeFileSync(file, proof.encode());
  const told = execFileSync(
    BINARY,
    ["tx", "status", "--proof", file, "--genesis", genesisFile],
    { encoding: "utf8", timeout: 60_000 },
  );
  assert.match(told, /holds/);
  assert.throws(() => proof.verify(geneses[1]!), ledgerd.CertificateError);
  // At its home, one across shards says that the other shards decide.
  const crossing = await client.certifiedProof(across.id(), genesis);
  assert.equal(ledgerd.reasonOf(crossing.proof.proof.result), "set_aside");
});

test("pages, and proofs of balances that hold offline", { skip }, async () => {
  const genesis = geneses[0]!;
  const [dora, key] = await registered("dora", 0);
  const sender = new ledgerd.Sender(client, genesis.book(), dora, key);
  const made: ledgerd.Transaction[] = [];
  for (const value of [401n, 402n, 403n]) {
    const postings = [
      { account: `${dora}:mint`, amount: -value },
      { account: `${dora}:till`, amount: value },
    ];
    made.push(await sender.transaction({ postings, note: `number ${value}` }));
  }
  const statuses = await sender.post(made);
  ledgerd.require(statuses, "durable");
  assert.equal(ledgerd.balance(await client.account(`${dora}:till`)), 1206n);
  assert.deepEqual(
    (await all(client.accounts(`${dora}:`, 1))).map((each) => each.account),
    [`${dora}:mint`, `${dora}:till`],
  );
  assert.deepEqual(
    (await all(client.history(`${dora}:till`, true, 2))).map((each) => [
      each.id,
      each.changes[0]?.amount,
      each.note,
    ]),
    made.map((each, i) => [each.id(), BigInt(i + 401), `number ${i + 401}`]),
  );
  const headers = await all(client.blocks(1n, 0, 3));
  assert.deepEqual(headers[0]!.previous, genesis.hash());
  headers.slice(1).forEach((each, i) => assert.deepEqual(each.previous, headers[i]!.hash));
  const { block, auditor } = await client.certifiedBlock(statuses[0]!.height, genesis);
  assert.equal(block.height, statuses[0]!.height);
  assert.equal(auditor.members.size, 2);

  const proof = await client.provenAccount(`${dora}:till`, genesis);
  const encoded = proof.encode();
  const { account } = ledgerd.BalanceProof.decode(encoded).verify(genesis);
  assert.equal(account.balances[0]!.amount, 1206n);
  assert.throws(() => proof.verify(geneses[1]!), ledgerd.CertificateError);
  const [file, genesisFile] = [join(folder, "b.proof"), join(folder, "net/node-0/genesis.json")];
  writeFileSync(file, encoded);
  const verify = ["verify", "--proof", file, "--genesis", genesisFile];
  assert.match(execFileSync(BINARY, verify, { encoding: "utf8", timeout: 60_000 }), /1,?206/);
  for (let at = 0; at < encoded.length; at += 7) {
    const changed = encoded.map((byte, i) => (i === at ? byte ^ 1 : byte));
    assert.throws(() => ledgerd.BalanceProof.decode(changed).verify(genesis), `byte ${at}`);
  }
});

test("proofs of supplies hold offline, over all shards", { skip }, async () => {
  const genesis = geneses[0]!;
  const [mint, key] = await registered("erin", 0);
  const [other] = await registered("finn", 1);
  const change = new ledgerd.AssetChange({
    ledger: genesis.book(),
    signer: mint,
    stream: 0n,
    sequence: 0n,
    asset: "EUR",
    decimals: 2,
    supply: "capped",
    cap: 100_000n,
    issuers: [{ organisation: mint, allowance: 60_000n }, { organisation: other }],
  });
  const register = new ledgerd.Bundle([change.encode()]).sign(mint, key);
  ledgerd.require(
    await client.submit(register, "durable_everywhere", { timeout: 30_000 }),
    "durable_everywhere",
  );
  const sender = new ledgerd.Sender(client, genesis.book(), mint, key);
  for (const [value, back] of [
    [12_345n, 0n],
    [0n, 345n],
  ] as const) {
    const moved = value - back;
    const postings = [
      { account: `${mint}:mint`, asset: "EUR", amount: -moved },
      { account: `${mint}:till`, asset: "EUR", amount: moved },
    ];
    ledgerd.require(await sender.post([await sender.transaction({ postings })]), "durable");
  }
  const found = await client.provenSupply("EUR", genesis, 30_000);
  assert.deepEqual(found.supply, {
    issued: 12_345n,
    redeemed: 345n,
    outstanding: 12_000n,
    waiting: 0n,
  });
  assert.equal(found.shards.length, 2);
  assert.deepEqual(
    found.shards.map(({ asset }) => [asset.name, asset.owner, asset.decimals, asset.cap]),
    [0, 1].map(() => ["EUR", mint, 2, 100_000n]),
  );
  const encoded = found.proof.encode();
  const kept = ledgerd.SupplyProof.decode(encoded);
  assert.deepEqual(kept.verify(geneses[1]!).supply, found.supply); // that of any shard
  // The product's own command agrees about the same bytes, and writes such a file.
  const [file, genesisFile] = [join(folder, "c.proof"), join(folder, "net/node-0/genesis.json")];
  writeFileSync(file, encoded);
  const run = (...of: string[]) => execFileSync(BINARY, of, { encoding: "utf8", timeout: 60_000 });
  const told = JSON.parse(run("verify", "--proof", file, "--genesis", genesisFile, "--json"));
  assert.equal(told.outstanding, "12000");
  const out = join(folder, "d.proof");
  run("asset", "show", "EUR", "--genesis", genesisFile, "--out", out, "--node", addresses[0]!);
  const written = ledgerd.SupplyProof.decode(new Uint8Array(readFileSync(out)));
  assert.deepEqual(written.verify(genesis).supply, found.supply);
  for (let at = 0; at < encoded.length; at += 7) {
    const changed = encoded.map((byte, i) => (i === at ? byte ^ 1 : byte));
    assert.throws(() => ledgerd.SupplyProof.decode(changed).verify(genesis), `byte ${at}`);
  }
  const less = new ledgerd.SupplyProof(kept.shards.slice(0, 1));
  assert.throws(() => less.verify(genesis), ledgerd.ProofError);
  const twice = new ledgerd.SupplyProof([kept.shards[0]!, kept.shards[0]!]);
  assert.throws(() => twice.verify(genesis), ledgerd.CertificateError);
  await assert.rejects(client.provenSupply("NONE", genesis), ledgerd.ApiError);
});

const all = async <T>(of: AsyncIterable<T>): Promise<T[]> => {
  const found: T[] = [];
  for await (const each of of) found.push(each);
  return found;
};

/** Moves a value between accounts of a sender's organisation. */
const moved = (sender: ledgerd.Sender, from: string, to: string, value: bigint) =>
  sender.transaction({
    postings: [
      { account: `${sender.organisation}:${from}`, amount: -value },
      { account: `${sender.organisation}:${to}`, amount: value },
    ],
  });
const soon = () => BigInt(Date.now() + 30_000);

test("schedules are executed across shards, and ended", { skip }, async () => {
  const book = geneses[0]!.book();
  const [name, key] = await registered("tenant", 0);
  const [landlord, landlordKey] = await registered("landlord", 1);
  const tenant = new ledgerd.Sender(client, book, name, key);
  ledgerd.require(await tenant.post(await moved(tenant, "mint", "till", 100n)), "durable");
  const postings = [
    { account: `${name}:till`, amount: -30n },
    { account: `${landlord}:till`, amount: 30n },
  ];
  const first = BigInt(Date.now() + 5000);
  const once = await tenant.schedule({ postings, first, note: "rent" });
  const later = first + 3_600_000n;
  const monthly = await tenant.schedule({ postings, first: later, period: "months", count: 12 });
  ledgerd.require(await tenant.post([once, monthly]), "durable");
  assert.equal((await client.schedule(monthly.id())).next, later);
  for (const over = Date.now() + 60_000; ; ) {
    const { balances } = await client.account(`${landlord}:till`);
    if (balances[0]?.amount === 30n) break;
    assert.ok(Date.now() < over, "the occurrence is not executed");
    await new Promise((done) => setTimeout(done, 100));
  }
  const status = await client.status(once.occurrence(1).id());
  assert.deepEqual([status.state, status.reasonCode], ["durable", ""]);
  assert.deepEqual(await all(client.schedules(landlord)), []);
  const thief = new ledgerd.Sender(client, book, landlord, landlordKey);
  const [stolen] = await thief.post(await thief.endSchedule(monthly.id()));
  assert.equal(stolen!.reasonCode, "unknown_schedule");
  ledgerd.require(await tenant.post(await tenant.endSchedule(monthly.id())), "durable");
  await assert.rejects(client.schedule(monthly.id()), ledgerd.ApiError);
  assert.deepEqual(await all(client.schedules(name)), []);
});

test("holds are placed, listed, and posted across shards", { skip }, async () => {
  const book = geneses[0]!.book();
  const [payer, payerKey] = await registered("payer", 0);
  const [shop, shopKey] = await registered("shop", 1);
  const holder = new ledgerd.Sender(client, book, payer, payerKey);
  const poster = new ledgerd.Sender(client, book, shop, shopKey);
  ledgerd.require(await holder.post(await moved(holder, "mint", "till", 100n)), "durable");
  const [till, to] = [`${payer}:till`, `${shop}:till`];
  const place = (amount: bigint) =>
    holder.hold({ account: till, amount, to: [to], expires: soon() * 2n - BigInt(Date.now()) });
  const holds = [await place(20n), await place(40n), await place(10n)];
  ledgerd.require(await holder.post(holds), "durable");
  const [first, second, third] = holds.map((each) => each.id());
  const found = await client.hold(second!);
  assert.deepEqual(
    [found.account, found.asset, found.amount, found.to, found.poster, found.shard],
    [till, "unit", 40n, [to], shop, 0],
  );
  for (const of of [{ organisation: payer }, { account: till }, { poster: shop }]) {
    const ids = (await all(client.holds(of, 1))).map((each) => ledgerd.hex(each.id));
    assert.deepEqual(ids, holds.map((each) => ledgerd.hex(each.id())).sort());
  }
  assert.deepEqual(await client.placedHold(first!), ledgerd.Hold.decode(holds[0]!.encode()));
  await assert.rejects(poster.postHold(first!, undefined, { placed: holds[1]! }), RangeError);

  // A node cannot make the poster sign for less.
  class Liar extends ledgerd.Client {
    override async call(name: string, request: ledgerd.Json, timeout?: number) {
      const answer = await super.call(name, request, timeout);
      if (name !== "GetProof") return answer;
      const proof = answer["proof"] as { encoded: string };
      const { parts } = ledgerd.Proof.decode(ledgerd.fromBase64(proof.encoded));
      const lie = new ledgerd.Proof({ ...parts, body: holds[2]!.encode() });
      return { proof: { ...proof, encoded: ledgerd.base64(lie.encode()) } };
    }
  }
  const fooled = new ledgerd.Sender(new Liar(addresses), book, shop, shopKey);
  await assert.rejects(fooled.postHold(first!), ledgerd.ProofError);

  const ends = [
    await poster.postHold(first!, undefined, { deadline: soon() }),
    await poster.postHold(second!, { [to]: 5n }, { deadline: soon() }),
    await poster.voidHold(third!, { deadline: soon(), note: "cancelled" }),
  ];
  const statuses = await poster.post(ends, "durable_everywhere", { timeout: 30_000 });
  ledgerd.require(statuses, "durable_everywhere");
  assert.equal(ledgerd.balance(await client.account(to)), 25n);
  assert.deepEqual((await client.account(till)).balances[0], {
    asset: "unit",
    amount: 75n,
    setAside: 0n,
    incoming: 0n,
  });
  await assert.rejects(client.hold(first!), ledgerd.ApiError);
});

test("terms of accounts, aliases, metadata and charts", { skip }, async () => {
  const genesis = geneses[0]!;
  const [name, key] = await registered("terms", 1);
  const [bank, bankKey] = await registered("guard", 0);
  const acme = new ledgerd.Sender(client, genesis.book(), name, key);
  const guard = new ledgerd.Sender(client, genesis.book(), bank, bankKey);
  const till = `${name}:till`;
  const reason = async (of: ledgerd.Encodable, by = acme) => (await by.post(of))[0]!.reasonCode;
  const now = () => client.accountNow(till, genesis); // of another shard than the account
  const velocity = { amount: 20n, seconds: 3600 };
  const first = (await now())
    .limited({ asset: "unit", floor: 5n, ceiling: 50n, velocity })
    .labelled({
      metadata: { iban: `DE${name}`, note: "ours" },
      index: ["iban"],
      alias: "front desk",
      guardian: bank,
    });
  assert.equal(await reason(acme.change(first)), "");
  assert.equal(await reason(await moved(acme, "mint", "till", 50n)), "");
  assert.equal(await reason(await moved(acme, "mint", "till", 1n)), "above_ceiling");
  assert.equal(await reason(await moved(acme, "till", "mint", 46n)), "below_floor");
  assert.equal(await reason(await moved(acme, "till", "mint", 21n)), "velocity_exceeded");
  assert.equal(await reason(acme.change(first, "again")), "account_outdated");
  assert.deepEqual((await now()).terms, first.terms);
  assert.deepEqual(await client.accountNow(till), await now());

  assert.equal((await client.accountByAlias(name, "front desk")).account, till);
  await assert.rejects(client.accountByAlias(name, "none"), ledgerd.ApiError);
  const where = async (datum: string, value: string) =>
    (await all(client.accountsWhere(datum, value))).map((each) => each.account);
  assert.deepEqual(await where("iban", `DE${name}`), [till]);
  assert.deepEqual(await where("note", "ours"), []); // not indexed

  // The freeze takes effect although the terms changed since.
  const freeze = guard.guard(await now(), true);
  assert.equal(await reason(acme.change((await now()).labelled({ metadata: { a: "b" } }))), "");
  assert.equal(await reason(freeze, guard), "");
  assert.equal(await reason(await moved(acme, "mint", "till", 1n)), "account_frozen");
  assert.equal(await reason(acme.change((await now()).unfrozen())), "account_fixed");
  assert.equal(await reason(guard.guard(await now(), false), guard), "");

  const lines = await client.chart({ under: name });
  assert.deepEqual(
    lines.map((each) => [each.path, each.account, each.accounts, each.totals.get("unit")]),
    [
      [name, false, 2, 0n],
      [`${name}:mint`, true, 1, -50n],
      [till, true, 1, 50n],
    ],
  );
  const cut = await client.cut();
  assert.equal(cut.length, 2);
  const sums = (await client.chart({ depth: 0, cut }))[0]!.totals;
  assert.ok([...sums.values()].every((each) => each === 0n));
});

test("supplies add up where issuers came to last", () => {
  const asset = (issued: bigint, arrived: bigint): ledgerd.ProvenAsset => ({
    number: 1,
    name: "EUR",
    owner: "a",
    revision: 1n,
    registered: 1n,
    decimals: 2,
    supply: "unlimited",
    cap: 0n,
    closed: false,
    issuers: [{ organisation: "a", allowance: 0n, withdrawn: false }],
    issuances: [{ issued, redeemed: 0n, waiting: 0n, arrived }],
  });
  const sum = (...of: ledgerd.ProvenAsset[]) => ledgerd.supplyOf(of).issued;
  assert.equal(sum(asset(5n, 0n), asset(0n, 0n)), 5n);
  assert.equal(sum(asset(0n, 0n), asset(5n, 0n)), 5n);
  assert.equal(sum(asset(5n, 0n), asset(7n, 3n)), 7n); // it moved, and took 5 along
  assert.throws(() => sum(asset(5n, 0n), asset(7n, 0n)), ledgerd.ProofError);
  assert.throws(() => sum(asset(5n, 0n), { ...asset(0n, 0n), decimals: 3 }), ledgerd.ProofError);
});

test("failures are told apart", { skip }, async () => {
  const [carol, key] = await registered("carol", 0);
  const sequence = await client.nonce(carol);
  const common = { ledger: geneses[0]!.book(), signer: carol, stream: 0n, sequence };
  const poor = ledgerd.transfer(common, `${carol}:till`, `${carol}:mint`, 5n);
  const [status] = await client.submit(ledgerd.Bundle.of([poor]).sign(carol, key));
  assert.equal(status!.reasonCode, "insufficient_funds");
  assert.throws(() => ledgerd.require([status!], "durable"), ledgerd.NotDone);
  const code = (wanted: string) => (error: unknown) =>
    error instanceof ledgerd.ApiError && error.code === wanted;
  await assert.rejects(client.account(`${carol}:none`), code("not_found"));
  await assert.rejects(client.call("GetAccount", { account: "none" }), code("invalid_argument"));
  const forged = ledgerd.Bundle.of([poor]).sign(carol, ledgerd.PrivateKey.generate());
  await assert.rejects(client.submit(forged), code("permission_denied"));
});

test("the example", { skip }, () => {
  const shop = fileURLToPath(new URL("../examples/shop.js", import.meta.url));
  const genesisFile = join(folder, "net/node-0/genesis.json");
  const told = execFileSync(process.execPath, [shop, genesisFile, ...addresses], {
    encoding: "utf8",
    timeout: 60_000,
  });
  assert.match(told, /is final: 2 of 2/);
  assert.match(told, /proven to hold 600 unit/);
});

test("key files", { skip }, async () => {
  const keys = join(folder, "keys");
  const env = { ...process.env, LEDGERD_KEYS: keys, HOME: folder };
  const run = (...of: string[]) => execFileSync(BINARY, of, { env, encoding: "utf8" });
  const words = join(folder, "passphrase");
  writeFileSync(words, "correct horse battery staple\n", { mode: 0o600 });
  run("keys", "create", "plain", "--plain");
  run("keys", "create", "sealed", "--passphrase-file", words);
  const read = (name: string) =>
    ledgerd.parseKeyFile(readFileSync(join(keys, `${name}.key`), "utf8"));
  const [plain, sealed] = [read("plain"), read("sealed")];
  assert.deepEqual((await plain.private()).public, plain.publicKey);
  assert.equal(sealed.organisation, "sealed");
  await assert.rejects(sealed.private(), ledgerd.PassphraseError);
  await assert.rejects(sealed.private("wrong"), ledgerd.PassphraseError);
  const key = await sealed.private("correct horse battery staple");
  assert.deepEqual(key.public, sealed.publicKey);
  // The other way round: the product reads what this package wrote.
  const made = ledgerd.PrivateKey.generate();
  writeFileSync(join(keys, "made.key"), ledgerd.plainKeyFile("made", made), { mode: 0o600 });
  assert.ok(run("keys", "list", "--json").includes(ledgerd.hex(made.public)));
});
