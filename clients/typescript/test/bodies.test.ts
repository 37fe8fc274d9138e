// Bodies made from their words, and what no node would take.

import assert from "node:assert/strict";
import { test } from "node:test";
import { concat } from "../src/codec.js";
import * as ledgerd from "../src/index.js";
import {
  BASICS,
  bytes,
  GENESIS,
  KEYS,
  nonce,
  SCHEDULES,
  TERMS,
  TRANSACTIONS,
  type Vector,
  vectorOf,
} from "./vectors.js";

test("a transfer is made from its words", () => {
  const parts = { ledger: GENESIS.book(), signer: "alice", stream: 7n, sequence: 1n };
  const made = ledgerd.transfer(parts, "alice:cash", "bob:cash", 5n);
  assert.equal(ledgerd.hex(made.encode()), TRANSACTIONS.transactions[0].encoded);
  assert.deepEqual(made.consents(), new Set(["alice"]));
});

test("a registration of an asset is made from its words", () => {
  const nonce = { ledger: GENESIS.book(), signer: "alice", stream: 7n, sequence: 5n };
  const alice = { organisation: "alice", allowance: 700_000n };
  const bob = { organisation: "bob", allowance: 300_000n, withdrawn: true };
  const terms = { asset: "EUR", decimals: 2, supply: "capped", cap: 1_000_000n } as const;
  const made = new ledgerd.AssetChange({ ...nonce, ...terms, issuers: [alice, bob] });
  const expected = TRANSACTIONS.transactions.find(
    (each: Vector) => each.name === "a registration of an asset",
  );
  assert.equal(ledgerd.hex(made.encode()), expected.encoded);
  const lies = [{ asset: "unit" }, { decimals: 31 }, { cap: 7n }, { issuers: [bob, alice] }];
  for (const wrong of lies) {
    const lie = new ledgerd.AssetChange({ ...nonce, ...terms, issuers: [alice, bob], ...wrong });
    assert.throws(() => lie.encode(), ledgerd.MalformedError);
  }
});

test("a policy that could not be, or not be changed, is not made", () => {
  const [first, second] = [KEYS.get("alice")!.public, KEYS.get("bob")!.public];
  const terms: ledgerd.PolicyTerms = {
    ledger: GENESIS.book(),
    signer: "alice",
    number: 2n,
    keys: [{ key: first, role: "all" }, { key: second, role: "post" }],
    threshold: 1,
    limits: [{ asset: "EUR", above: 5n, signatures: 1 }],
    refuseAssets: true,
    assets: ["CHF", "EUR"],
  };
  const good = new ledgerd.PolicyChange(terms);
  const decoded = ledgerd.PolicyChange.decode(good.encode());
  assert.deepEqual(decoded.terms.keys, terms.keys);
  assert.deepEqual(decoded.terms.assets, terms.assets);
  const lies: Partial<ledgerd.PolicyTerms>[] = [
    { signer: "" },
    { number: 0n },
    { keys: [] },
    { keys: [{ key: first, role: "all" }, { key: first, role: "post" }] },
    { keys: [{ key: first, role: "post" }] },
    { threshold: 0 },
    { threshold: 2 }, // one key alone may change the policy
    { limits: [{ asset: "EUR", above: 5n, signatures: 2 }] },
    { limits: [{ asset: "EUR", above: -1n, signatures: 1 }] },
    { limits: [terms.limits![0]!, terms.limits![0]!] },
    { refuseAssets: false },
    { assets: ["EUR", "CHF"] },
    { assets: ["EUR", "EUR"] },
    { note: "x".repeat(ledgerd.names.NOTE_MAX + 1) },
  ];
  for (const lie of lies) {
    const made = new ledgerd.PolicyChange({ ...terms, ...lie });
    assert.throws(() => made.encode(), ledgerd.MalformedError, Object.keys(lie).join());
  }
});

test("a charter that could not be is not made", () => {
  const operators = [KEYS.get("alice")!.public, KEYS.get("bob")!.public];
  const terms: ledgerd.CharterTerms = {
    ledger: GENESIS.book(),
    number: 2n,
    operators,
    threshold: 2,
    registrationByOperators: true,
  };
  const quotas = [1n, 0n, 0n, 0n, 5n];
  for (const [more, kind] of [
    [{}, 5],
    [{ quotas }, 6],
    [{ version: 2n }, 7],
    [{ version: 2n, quotas }, 7],
  ] as const) {
    const body = new ledgerd.CharterChange({ ...terms, ...more } as typeof terms).encode();
    assert.equal(body[0], kind);
    assert.deepEqual(ledgerd.CharterChange.decode(body).encode(), body);
  }
  const lies: Partial<ledgerd.CharterTerms>[] = [
    { number: 0n },
    { operators: [] },
    { operators: [operators[0]!, operators[0]!] },
    { threshold: 0 },
    { threshold: 3 },
    { quotas: [1n] },
    { quotas: [0n, 0n, 0n, 0n, 0n] },
    { quotas: [(1n << 48n) + 1n, 0n, 0n, 0n, 0n] },
    { version: 1n << 17n },
  ];
  for (const lie of lies) {
    const made = new ledgerd.CharterChange({ ...terms, ...lie });
    assert.throws(() => made.encode(), ledgerd.MalformedError, Object.keys(lie).join());
  }
});

test("changes of the shards are made from their words, and no other ones", () => {
  const ledger = ledgerd.Genesis.decode(bytes(BASICS.geneses[1].encoded)).book();
  const make = (number: bigint, change: ledgerd.ShardsChange, sequence = 0n) =>
    new ledgerd.BookChange({ ledger, number, change, sequence }).encode();
  const lost = make(1n, { kind: "lose", shard: 1 }, 5n);
  assert.equal(ledgerd.hex(lost), vectorOf("two shards: a settlement with a lost shard"));
  const hung = make(2n, { kind: "hang", shard: 3, parent: 1 }, 6n);
  assert.equal(ledgerd.hex(hung), vectorOf("two shards: a change of the tree"));
  const member = { name: "node-9", key: KEYS.get("alice")!.public, address: "127.0.0.1:9" };
  const added: ledgerd.ShardsChange = { kind: "add", parent: 1, members: [member] };
  const moved: ledgerd.ShardsChange = { kind: "move", organisation: "alice", to: 1 };
  for (const change of [added, moved]) {
    const body = make(7n, change);
    assert.deepEqual(ledgerd.BookChange.decode(body).terms.change, change);
    assert.throws(() => ledgerd.BookChange.decode(body.slice(0, -1)), ledgerd.MalformedError);
  }
  const lies: [bigint, object][] = [
    [0n, { kind: "lose", shard: 1 }],
    [1n, { kind: "lose", shard: -1 }],
    [1n, { kind: "lose", shard: 2 ** 32 }],
    [1n, { kind: "lose", shard: 1, parent: 0 }],
    [1n, { kind: "leave", shard: 1 }],
    [1n << 24n, { kind: "hang", shard: 1, parent: 0 }],
    [1n << 32n, moved],
    [1n, { ...moved, organisation: "" }],
    [1n, { ...added, members: [] }],
    [1n, { ...added, members: [member, member] }],
    [1n, { ...added, members: [{ ...member, address: "" }] }],
    [1n, { ...added, parent: 1024 }],
  ];
  for (const [number, change] of lies) {
    const lie = change as ledgerd.ShardsChange;
    assert.throws(() => make(number, lie), ledgerd.MalformedError, JSON.stringify(change));
  }
});

test("amounts with decimals are never rounded nor guessed", () => {
  for (const [text, decimals, value, shown] of [
    ["12.5", 2, 1250n, "12.50"],
    ["-0.05", 2, -5n, "-0.05"],
    ["0", 2, 0n, "0.00"],
    ["7", 0, 7n, "7"],
  ] as const) {
    assert.equal(ledgerd.parseDecimal(text, decimals), value);
    assert.equal(ledgerd.decimal(value, decimals), shown);
  }
  const wrong = ["12.505", "1.", ".5", "+1", "01", "1e2", "-0", "", " 1", "9".repeat(39)];
  for (const text of wrong) {
    assert.throws(() => ledgerd.parseDecimal(text, 2), ledgerd.MalformedError, text);
  }
});

const HELD: ledgerd.HoldParts = {
  ...nonce(6n),
  account: "alice:cash",
  asset: "EUR",
  amount: 5000n,
  to: ["bob:cash", "carol:fees"],
  poster: "bob",
  expires: 1_700_600_000_000n,
  deadline: 1_700_000_060_000n,
};

test("holds are made from their words, and no other ones", () => {
  assert.equal(ledgerd.hex(new ledgerd.Hold(HELD).encode()), vectorOf("a hold"));
  const hold = new Uint8Array(32);
  hold.set([1, 2, 3]);
  const end = { ...nonce(7n), hold, account: "carol:cash", lastValid: 12n };
  const postings = [
    { account: "carol:cash", amount: -4200n, asset: "EUR" },
    { account: "alice:cash", amount: 4200n, asset: "EUR" },
  ];
  const posted = new ledgerd.HoldEnd({ ...end, postings });
  assert.equal(ledgerd.hex(posted.encode()), vectorOf("the end of a hold"));
  const voided = new ledgerd.HoldEnd({ ...end, lastValid: 0n, sequence: 8n });
  assert.equal(ledgerd.hex(voided.encode()), vectorOf("a voided hold"));
  const lies: Partial<ledgerd.HoldParts>[] = [
    { account: "bob:cash" },
    { account: "alice" },
    { amount: 0n },
    { amount: -1n },
    { amount: 1n << 127n },
    { to: [] },
    { to: ["b:b", "a:a"] },
    { to: ["b:b", "b:b"] },
    { to: ["alice:cash"] },
    { to: ["b"] },
    { to: Array.from({ length: 17 }, (_, i) => `a:${10 + i}`) },
    { poster: "" },
    { expires: 0n },
    { expires: 1n << 63n },
    { asset: "" },
    { deadline: -1n },
    { note: "x".repeat(16385) },
  ];
  for (const lie of lies) {
    const made = new ledgerd.Hold({ ...HELD, ...lie });
    assert.throws(() => made.encode(), ledgerd.MalformedError, Object.keys(lie).join());
  }
  const [a, b] = ["a:a", "b:b"];
  const wrong: [string, bigint, string?][][] = [
    [[a, -5n]],
    [["a:b", -5n], [b, 5n]],
    [[a, -5n], [a, 5n]],
    [[a, 5n], [b, 5n]],
    [[a, -5n], [b, -5n]],
    [[a, -5n], [b, 0n]],
    [[a, -5n], [b, 5n, "EUR"]],
    [[a, -17n], ...Array.from({ length: 17 }, (_, i): [string, bigint] => [`b:${i}`, 1n])],
  ];
  for (const each of wrong) {
    const postings = each.map(([account, amount, asset = "unit"]) => ({ account, amount, asset }));
    const made = new ledgerd.HoldEnd({ ...nonce(1n), hold, account: a, postings });
    assert.throws(() => made.encode(), ledgerd.MalformedError, String(each));
  }
});

test("shares of a hold", () => {
  const both = new ledgerd.Hold(HELD);
  const one = new ledgerd.Hold({ ...HELD, to: ["bob:cash"] });
  const sums = (of: ledgerd.Posting[]) => of.map((each) => [each.account, each.amount]);
  const all = [["alice:cash", -5000n], ["bob:cash", 5000n]];
  assert.deepEqual(sums(ledgerd.sharesOf(one)), all);
  assert.deepEqual(sums(ledgerd.sharesOf(one, 20n))[0], ["alice:cash", -20n]);
  const parts = ledgerd.sharesOf(both, { "carol:fees": 1n, "bob:cash": 4999n });
  assert.deepEqual(parts.map((each) => each.amount), [-5000n, 1n, 4999n]);
  const lies: [ledgerd.Hold, ledgerd.Shares][] = [
    [both, undefined],
    [both, 5n],
    [one, 5001n],
    [one, 0n],
    [one, -1n],
    [both, {}],
    [both, { "bob:till": 1n }],
    [both, { "bob:cash": 5000n, "carol:fees": 1n }],
  ];
  for (const [hold, shares] of lies) {
    assert.throws(() => ledgerd.sharesOf(hold, shares), RangeError);
  }
});

test("terms of accounts are made from their words, and no other ones", () => {
  const change = { ...nonce(9n), account: "alice:till", number: 2n, alias: "front desk" };
  const made = new ledgerd.AccountChange({ ...change, terms: TERMS });
  assert.equal(ledgerd.hex(made.encode()), vectorOf("a change of the terms of an account"));
  const freeze = {
    ...nonce(10n),
    account: "bob:till",
    number: 3n,
    terms: ledgerd.guarding("alice", true),
  };
  assert.equal(
    ledgerd.hex(new ledgerd.AccountChange(freeze).encode()),
    vectorOf("a freeze by a guardian"),
  );
  const unit = { asset: "unit" };
  const lies: Partial<ledgerd.AccountTerms>[] = [
    { freeze: "ice" as ledgerd.Freeze },
    { guardian: "a b" },
    { guardian: "" },
    { guardian: "alice" },
    { limits: [unit] },
    { limits: [{ asset: "", floor: 1n }] },
    { limits: [{ ...unit, floor: 2n, ceiling: 1n }] },
    { limits: [{ ...unit, velocity: { amount: 1n, seconds: 0 } }] },
    { limits: [{ ...unit, velocity: { amount: -1n, seconds: 1 } }] },
    { limits: [{ ...unit, velocity: { amount: 1n, seconds: 31622401 } }] },
    { limits: [{ asset: "b", floor: 1n }, { asset: "a", floor: 1n }] },
    { limits: Array.from({ length: 17 }, (_, i) => ({ asset: `a${10 + i}`, floor: 1n })) },
    { metadata: [{ key: "", value: "x", indexed: false }] },
    { metadata: [{ key: "a", value: "\n", indexed: false }] },
    { metadata: [{ key: "a".repeat(33), value: "x", indexed: false }] },
    { metadata: [{ key: "a", value: "x".repeat(129), indexed: false }] },
    { metadata: [TERMS.metadata[0]!, TERMS.metadata[0]!] },
  ];
  const refused = (parts: ledgerd.AccountChangeParts, what: string) =>
    assert.throws(() => new ledgerd.AccountChange(parts).encode(), ledgerd.MalformedError, what);
  for (const lie of lies) {
    refused({ ...change, terms: { ...TERMS, ...lie } }, Object.keys(lie).join());
  }
  refused({ ...freeze, number: 0n }, "number");
  refused({ ...freeze, alias: "x" }, "alias");
  for (const terms of [
    ledgerd.NO_TERMS,
    ledgerd.guarding("carol", true),
    { ...TERMS, guardian: "alice" },
    { ...ledgerd.guarding("alice", true), freeze: "both" as const },
    { ...ledgerd.guarding("alice", true), closed: true },
  ]) {
    refused({ ...freeze, terms: terms as ledgerd.AccountTerms }, "a guardian's");
  }
});

test("terms are edited part by part", () => {
  const terms: ledgerd.AccountTerms = { ...TERMS, freeze: "none" };
  const parts = { account: "alice:till", alias: "desk", revision: 4n, guarded: 2n, terms };
  const now = new ledgerd.AccountNow(parts);
  assert.deepEqual(now.limited({ asset: "EUR" }).terms.limits, TERMS.limits.slice(1));
  const more = now.limited({ asset: "CHF", floor: 1n }).terms.limits;
  assert.deepEqual(more.map((each) => each.asset), ["CHF", "EUR", "unit"]);
  const metadata = { note: "", iban: "DE13", b: "c" };
  const labelled = now.labelled({ metadata, index: ["b"], alias: "", guardian: "" });
  assert.deepEqual(labelled.terms.metadata, [
    { key: "b", value: "c", indexed: true },
    { key: "iban", value: "DE13", indexed: true },
  ]);
  assert.deepEqual([labelled.alias, labelled.terms.guardian], ["", ""]);
  assert.throws(() => now.labelled({ index: ["none"] }), RangeError);
  assert.equal(now.frozen().terms.freeze, "owner");
  assert.deepEqual(now.frozen().unfrozen(), now);
  assert.ok(now.closed().terms.closed && !now.terms.closed);
});

test("what a caller without types may give is refused, and named", () => {
  const any = (value: object) => value as any;
  const held = (more: object) => new ledgerd.Hold(any({ ...HELD, ...more })).encode();
  const change = { ...nonce(9n), account: "alice:till", number: 2n };
  const termed = (more: object) => {
    const terms = any({ ...ledgerd.NO_TERMS, ...more });
    return new ledgerd.AccountChange({ ...change, terms }).encode();
  };
  const end = { ...nonce(7n), hold: new Uint8Array(32), account: "a:a" };
  const give = (value: unknown) => [
    { account: "a:a", amount: value },
    { account: "b:b", amount: 5n },
  ];
  const ended = (more: object) => new ledgerd.HoldEnd(any({ ...end, ...more })).encode();
  for (const [make, what] of [
    [() => held({ expire: 1n }), /a hold has no "expire", only/],
    [() => held({ amount: 5 }), /an amount is a bigint, not 5/],
    [() => held({ amount: "5" }), /an amount is a bigint/],
    [() => held({ amount: undefined }), /an amount is a bigint/],
    [() => held({ expires: undefined }), /an expiry is a bigint/],
    [() => held({ deadline: 5 }), /a deadline is a bigint/],
    [() => ended({ posting: [] }), /the end of a hold has no "posting"/],
    [() => ended({ postings: give(-5) }), /an amount is a bigint, not -5/],
    [() => termed({ frozen: true }), /terms has no "frozen"/],
    [() => termed({ noDebits: "false" }), /false is neither true nor false/],
    [() => termed({ closed: undefined }), /undefined is neither true nor false/],
    [() => termed({ limits: [{ asset: "EUR", floor: 1n, ceilng: 2n }] }), /no "ceilng"/],
    [() => termed({ limits: [{ asset: "EUR", floor: 1 }] }), /an amount is a bigint, not 1/],
    [() => termed({ limits: [{ asset: "EUR", velocity: { amount: 1n } }] }), /in undefined/],
    [() => termed({ metadata: [{ key: "a", value: "b", index: true }] }), /has no "index"/],
    [() => new ledgerd.AccountChange(any({ ...change, terms: TERMS, nr: 1n })).encode(), /"nr"/],
  ] as [() => unknown, RegExp][]) {
    assert.throws(make, (error) => error instanceof ledgerd.MalformedError &&
      what.test(error.message), String(what));
  }
  // What it misspells must not become the default asset, no decimals, or no limit.
  const made = (parts: object) => new ledgerd.Transaction(any({ ...nonce(1n), ...parts })).encode();
  const asset = (more: object) =>
    new ledgerd.AssetChange(any({ ...nonce(1n), asset: "EUR", ...more })).encode();
  const policy = (more: object) => {
    const keys = [{ key: KEYS.get("alice")!.public, role: "all" }];
    const terms = { ledger: GENESIS.book(), signer: "alice", number: 1n, keys, threshold: 1 };
    return new ledgerd.PolicyChange(any({ ...terms, ...more })).encode();
  };
  const pack = (each: object) => ledgerd.PackedBundle.of(nonce(1n), [any(each)]).encode();
  made({});
  asset({});
  policy({});
  for (const [make, what] of [
    [() => made({ posting: [] }), /a transaction has no "posting"/],
    [() => made({ postings: [{ account: "a:a", amount: 1n, aset: "EUR" }] }), /"aset"/],
    [() => made({ openings: [{ account: "a:a", isuer: true }] }), /"isuer"/],
    [() => made({ records: [{ key: "a:a", value: new Uint8Array(), text: "" }] }), /"text"/],
    [() => pack({ from: "a:a", to: "a:b", amount: 1n, aset: "EUR" }), /"aset"/],
    [() => asset({ decimal: 2 }), /an asset has no "decimal"/],
    [() => asset({ issuers: [{ organisation: "a", allowence: 1n }] }), /"allowence"/],
    [() => policy({ limit: [] }), /a policy has no "limit"/],
    [() => policy({ limits: [{ asset: "a", above: 1n, signatures: 1, of: 2 }] }), /"of"/],
  ] as [() => unknown, RegExp][]) {
    assert.throws(make, what);
  }
  const one = new ledgerd.Hold({ ...HELD, to: ["bob:cash"] });
  for (const shares of [5, "5", null, { "bob:cash": 5 }, true]) {
    assert.throws(() => ledgerd.sharesOf(one, shares as any), RangeError);
  }
});

const BODIES = ["a hold", "the end of a hold", "a voided hold", "a freeze by a guardian"];
test("bodies that are cut short, or go on, are refused", () => {
  for (const name of [...BODIES, "a change of the terms of an account"]) {
    const body = bytes(vectorOf(name));
    const wrong = Array.from(body, (_, size) => body.slice(0, size));
    for (const each of [...wrong, concat(body, new Uint8Array(1)), concat(body, body)]) {
      assert.throws(() => ledgerd.checkBody(each), ledgerd.MalformedError, name);
    }
  }
});

const scheduled = (name: string): Uint8Array =>
  bytes(SCHEDULES.transactions.find((each: Vector) => each.name === name).encoded);

test("schedules are made from their words", () => {
  const placed = ledgerd.Schedule.decode(scheduled("a schedule"));
  const { first, until, deadline } = placed.parts;
  const made = new ledgerd.Schedule({
    ledger: GENESIS.book(),
    signer: "alice",
    stream: 7n,
    sequence: 10n,
    deadline: deadline!,
    shard: 2,
    first,
    period: "months",
    every: 1,
    until: until!,
    postings: [
      { account: "alice:cash", amount: -90_000n, asset: "EUR" },
      { account: "bob:rents", amount: 90_000n, asset: "EUR" },
    ],
  });
  assert.deepEqual(made.encode(), scheduled("a schedule"));
  const end = new ledgerd.ScheduleEnd({
    ...nonce(11n),
    schedule: concat(Uint8Array.of(1, 2, 3), new Uint8Array(29)),
    shard: 2,
  });
  assert.deepEqual(end.encode(), scheduled("the end of a schedule"));
  const occurrence = ledgerd.Occurrence.decode(scheduled("an occurrence of a schedule"));
  assert.equal(occurrence.parts.time, placed.timeOf(2));
  const { schedule } = occurrence.parts;
  const again = new ledgerd.Occurrence({ ...placed.occurrence(2).parts, schedule });
  assert.deepEqual(again.encode(), scheduled("an occurrence of a schedule"));
  assert.deepEqual(made.consents(), new Set(["alice"]));
  const lies: { [field: string]: unknown }[] = [
    { first: 0n },
    { first: (1n << 48n) + 1n },
    { first: 1.5 },
    { period: "years" },
    { period: "once" },
    { every: 0 },
    { every: 367 },
    { every: 1.5 },
    { count: 4097 },
    { until: 0n },
    { until: 1n },
    { until: -1n },
    { every: 366, count: 4096, until: 0n },
    { note: "x".repeat(257) },
    { deadline: -1n },
    { shard: -1 },
    { shard: 2 ** 32 },
    { signer: "bob" },
    { postings: [] },
    { postings: [{ account: "alice:cash", amount: 0n }] },
    { postings: [made.parts.postings[0]!, made.parts.postings[0]!] },
    { lastValid: 7n },
    { cuont: 7 },
  ];
  for (const lie of lies) {
    const parts = { ...made.parts, ...lie } as ledgerd.ScheduleParts;
    const what = Object.keys(lie).join();
    assert.throws(() => new ledgerd.Schedule(parts).encode(), ledgerd.MalformedError, what);
  }
});

test("months have their last day", () => {
  const placed = ledgerd.Schedule.decode(scheduled("a schedule"));
  const times = (first: bigint, more: object = {}): string[] =>
    new ledgerd.Schedule({ ...placed.parts, first, count: 26, until: 0n, ...more })
      .times()
      .map((each) => new Date(Number(each)).toISOString());
  const january = BigInt(Date.UTC(2027, 0, 31, 8));
  const days = times(january).map((each) => each.slice(5, 10));
  assert.deepEqual(days.slice(0, 4), ["01-31", "02-28", "03-31", "04-30"]);
  assert.equal(times(january)[13], "2028-02-29T08:00:00.000Z");
  const until = BigInt(Date.UTC(2027, 7, 31, 8));
  assert.equal(times(january, { count: 0, until }).length, 8);
  assert.equal(times(january, { count: 5, until }).length, 5);
  assert.match(times(253_402_214_400_000n)[1]!, /^\+010000-01-31T/);
});
