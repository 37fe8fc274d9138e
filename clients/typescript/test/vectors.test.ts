// The published vectors, in the form in which every language reads them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { amount, concat, domain, Reader, sha256, string, uint, uvarint } from "../src/codec.js";
import * as ledgerd from "../src/index.js";
import {
  ACCOUNTS,
  BASICS,
  BLOCKS,
  BY_BUNDLE,
  bytes,
  DETAILS,
  each,
  file,
  FILES,
  GENESIS,
  KEYS,
  MEMBERS,
  PACKED,
  SCHEDULES,
  TERMS,
  TRANSACTIONS,
  type Vector,
  vectors,
} from "./vectors.js";

each(BASICS.keys, "key", (v) => {
  assert.equal(ledgerd.hex(KEYS.get(v.name)!.public), v.public);
});

each(BASICS.values, "value", (v) => {
  const encoded = bytes(v.encoded);
  const r = new Reader(encoded);
  const kinds: Vector = {
    string: [() => r.text("bytes", 1 << 20), (value: string) => string(value)],
    uvarint: [() => String(r.uvarint()), (value: string) => uvarint(BigInt(value))],
    amount: [() => String(r.amount()), (value: string) => amount(BigInt(value))],
  };
  const [take, encode] = kinds[v.kind];
  if (v.value.startsWith("refused: ")) {
    assert.throws(take, ledgerd.MalformedError);
    return;
  }
  assert.deepEqual(encode(v.value), encoded);
  assert.equal(take(), v.value);
  r.end();
});

each(BASICS.geneses, "genesis", (v) => {
  const genesis = ledgerd.Genesis.decode(bytes(v.encoded));
  assert.equal(ledgerd.hex(genesis.encode()), v.encoded);
  assert.equal(ledgerd.hex(genesis.hash()), v.hash);
  assert.equal(ledgerd.hex(genesis.book()), v.book);
});

test("homes", () => {
  for (const [shards, homes] of Object.entries<Vector[]>(BASICS.homes)) {
    for (const v of homes) assert.equal(ledgerd.home(v.organisation, parseInt(shards)), v.shard);
  }
});

each([...TRANSACTIONS.transactions, ...DETAILS.transactions,
  ...SCHEDULES.transactions, ...MEMBERS.transactions], "transaction", (v) => {
  const body = bytes(v.encoded);
  assert.equal(ledgerd.hex(ledgerd.transactionId(body)), v.hash);
  ledgerd.checkBody(body); // bundles and proofs take every kind that nodes take
  if ([1, 9, 17].includes(body[0]!)) {
    const made = ledgerd.Transaction.decode(body);
    assert.equal(ledgerd.hex(made.encode()), v.encoded);
    assert.equal(ledgerd.hex(made.id()), v.hash);
  } else if (body[0] === 2) {
    assert.equal(ledgerd.hex(ledgerd.MembershipChange.decode(body).encode()), v.encoded);
  } else if (body[0] === 13) {
    assert.equal(ledgerd.hex(ledgerd.AssetChange.decode(body).encode()), v.encoded);
  } else if (body[0] === 4) {
    const made = ledgerd.PolicyChange.decode(body);
    assert.equal(ledgerd.hex(made.encode()), v.encoded);
    assert.equal(ledgerd.hex(made.id()), v.hash);
  } else if (body[0]! >= 5 && body[0]! <= 7) {
    const made = ledgerd.CharterChange.decode(body);
    assert.equal(ledgerd.hex(made.encode()), v.encoded);
    assert.equal(ledgerd.hex(made.id()), v.hash);
  } else if (body[0] === 11) {
    assert.equal(ledgerd.hex(ledgerd.BookChange.decode(body).encode()), v.encoded);
  } else if (body[0] === 14) {
    assert.equal(ledgerd.hex(ledgerd.Hold.decode(body).encode()), v.encoded);
  } else if (body[0] === 15) {
    assert.equal(ledgerd.hex(ledgerd.HoldEnd.decode(body).encode()), v.encoded);
  } else if (body[0] === 16) {
    assert.equal(ledgerd.hex(ledgerd.AccountChange.decode(body).encode()), v.encoded);
  } else if (body[0] === 10) {
    // The parts, by their names, make the same bytes.
    const parts = new Map<string, Uint8Array>(
      v.parts.map(([name, value]: [string, string]) => [name, bytes(value)]),
    );
    const part = (name: string) => parts.get(name) ?? new Uint8Array();
    const number = (name: string) => new Reader(part(name)).uvarint();
    const made = new ledgerd.Cancellation({
      ledger: part("ledger"),
      signer: Buffer.from(part("signer")).toString(),
      stream: number("nonce, stream"),
      sequence: number("nonce, sequence"),
      deadline: number("deadline"),
      transaction: part("id of the other transaction"),
      shard: Number(number("shard")),
      note: Buffer.from(part("note")).toString(),
    });
    assert.equal(ledgerd.hex(made.encode()), v.encoded);
    assert.deepEqual(ledgerd.Cancellation.decode(body), made);
    assert.throws(() => ledgerd.Cancellation.decode(body.slice(0, -1)), ledgerd.MalformedError);
    const late = new ledgerd.Cancellation({ ...made.parts, shard: 2 ** 32 });
    assert.throws(() => late.encode(), ledgerd.MalformedError);
    const other = bytes(TRANSACTIONS.transactions[0].encoded);
    assert.throws(() => ledgerd.Cancellation.decode(other), ledgerd.MalformedError);
  }
});

function checkSigned(bundle: ledgerd.Bundle | ledgerd.PackedBundle, v: Vector): void {
  assert.deepEqual(bundle.ids().map(ledgerd.hex), v.ids);
  assert.equal(ledgerd.hex(bundle.encode()), v.encoded);
  assert.equal(ledgerd.hex(bundle.root()), v.root);
  assert.equal(ledgerd.hex(bundle.message()), v.signed);
  const signatures = bundle.signatures;
  bundle.signatures = [];
  for (const signature of signatures) {
    assert.ok(ledgerd.verifySignature(signature, bundle.message()));
    bundle.sign(signature.organisation, KEYS.get(signature.organisation || "operator")!);
  }
  assert.equal(ledgerd.hex(bundle.encode()), v.encoded);
}

each(TRANSACTIONS.bundles, "bundle", (v) => {
  checkSigned(ledgerd.Bundle.decode(bytes(v.encoded)), v);
});

each(PACKED.bundles, "packed bundle", (v) => {
  const bundle = ledgerd.PackedBundle.decode(bytes(v.encoded));
  assert.deepEqual(
    bundle.parts.map(ledgerd.hex),
    v.tree_parts.map((part: string[]) => part[1]),
  );
  checkSigned(bundle, v);
  const again = ledgerd.PackedBundle.of(bundle.head, bundle.transfers);
  assert.deepEqual(again.content(), bundle.content());
});

each(PACKED.shown, "shown", (v) => {
  const shown = ledgerd.PackedBody.decode(bytes(v.encoded));
  const bundle: ledgerd.PackedBundle = PACKED.bundles
    .map((each: Vector) => ledgerd.PackedBundle.decode(bytes(each.encoded)))
    .find((each: ledgerd.PackedBundle) => isDeepStrictEqual(each.head, shown.head));
  assert.equal(ledgerd.hex(bundle.body(shown.place)), v.encoded);
  assert.equal(ledgerd.hex(bundle.ids()[shown.place]!), v.hash);
  assert.deepEqual(bundle.transfers[shown.place], shown.transfer);
  const leaves = bundle.parts.map(ledgerd.leafHash);
  const path = shown.places.flatMap((place) => ledgerd.pathOf(leaves, place));
  shown.verify(path, bundle.root());
  path[path.length - 1] = new Uint8Array(32);
  assert.throws(() => shown.verify(path, bundle.root()), ledgerd.ProofError);
});

each([...BLOCKS.blocks, ...BY_BUNDLE.blocks], "block", (v) => {
  const header = ledgerd.decodeHeader(bytes(v.header));
  assert.equal(ledgerd.hex(ledgerd.encodeHeader(header)), v.header);
  assert.equal(ledgerd.hex(ledgerd.blockHash(bytes(v.header))), v.hash);
  const trees: [string, Uint8Array][] = [
    ["transaction_leaves", header.transactionsRoot],
    ["result_leaves", header.resultsRoot],
    ["bundle_leaves", header.bundlesRoot],
  ];
  for (const [name, root] of trees) {
    const hashes: Uint8Array[] = v[name].map(bytes);
    assert.deepEqual(ledgerd.rootOf(hashes), root);
    hashes.forEach((leaf, index) => {
      ledgerd.verifyPath(leaf, index, hashes.length, ledgerd.pathOf(hashes, index), root);
    });
  }
});

const flipped = (value: Uint8Array, at = 0): Uint8Array =>
  value.map((byte, i) => (i === at ? byte ^ 1 : byte));

each([...BLOCKS.proofs, ...BY_BUNDLE.proofs], "proof", (v) => {
  const proof = ledgerd.Proof.decode(bytes(v.encoded));
  assert.equal(ledgerd.hex(proof.encode()), v.encoded);
  proof.verify();
  assert.equal(proof.transaction().signer, "alice");
  // No field of it can be changed. The state digest is nothing that the paths lead to.
  const good = proof.parts;
  const other = ledgerd.transfer(
    { ledger: GENESIS.book(), signer: "alice", stream: 7n, sequence: 1n },
    "alice:cash",
    "bob:cash",
    6n,
  );
  const more = new Uint8Array(32);
  const lies: Partial<ledgerd.ProofParts>[] = [
    { header: flipped(good.header, 170) },
    { blockHash: flipped(good.blockHash) },
    { count: good.count + 1 },
    { id: flipped(good.id) },
    { bundleRoot: more },
    { body: other.encode() },
    { index: good.index + 1 },
    { result: { code: 9, item: 1 } },
    { bundleIndex: good.bundleIndex + 1 },
    { bundleCount: good.bundleCount + 4096 },
    { transactionPath: [...good.transactionPath, more] },
    { resultPath: [...good.resultPath, more] },
    { bundlePath: [...good.bundlePath, more] },
    ...good.signatures.map((_, place) => ({
      signatures: good.signatures.map((each, i) =>
        i === place ? { ...each, signature: flipped(each.signature) } : each,
      ),
    })),
  ];
  for (const lie of lies) {
    const made = new ledgerd.Proof({ ...good, ...lie });
    assert.throws(() => made.verify(), ledgerd.ProofError, Object.keys(lie).join());
  }
});

each(BLOCKS.certificates, "certificate", (v) => {
  assert.equal(ledgerd.hex(ledgerd.Certificate.decode(bytes(v.encoded)).encode()), v.encoded);
});

each(BLOCKS.certified_proofs, "certified proof", (v) => {
  const proof = ledgerd.CertifiedProof.decode(bytes(v.encoded));
  assert.equal(ledgerd.hex(proof.encode()), v.encoded);
  const auditor = proof.verify(GENESIS);
  assert.ok(auditor.signers(proof.finality!.certificate).length >= auditor.majority);
  const other = ledgerd.Genesis.decode(bytes(BASICS.geneses[2].encoded));
  assert.throws(() => proof.verify(other), ledgerd.CertificateError);
});

test("members that joined certify, and a minority does not", () => {
  const joined = ledgerd.CertifiedProof.decode(bytes(BLOCKS.certified_proofs[1].encoded));
  const auditor = joined.verify(GENESIS);
  assert.equal(auditor.epoch, 1n);
  assert.equal(auditor.members.get(3)?.name, "node-3");
  joined.finality!.changes.pop();
  assert.throws(() => joined.verify(GENESIS), /epoch 1, not 0/);
  const few = ledgerd.CertifiedProof.decode(bytes(BLOCKS.certified_proofs[0].encoded));
  few.finality!.certificate.seals.splice(1);
  assert.throws(() => few.verify(GENESIS), /1 of 3 members/);
});

test("a change that failed changes no members", () => {
  const good = ledgerd.Certificate.decode(bytes(BLOCKS.certificates[1].encoded));
  assert.equal(good.membershipChange().kind, "join");
  // A block in which the change failed, whose roots are right.
  const parts = good.change!.parts;
  const result = { code: 13, item: ledgerd.NO_ITEM };
  const leaf = Buffer.concat([parts.id, ledgerd.encodeResult(result)]);
  const header = ledgerd.encodeHeader({
    ...ledgerd.decodeHeader(parts.header),
    resultsRoot: ledgerd.leafHash(leaf),
  });
  const hash = ledgerd.blockHash(header);
  const proof = new ledgerd.Proof({ ...parts, result, header, blockHash: hash });
  proof.verify();
  const failed = new ledgerd.Certificate(good.epoch, good.height, hash, good.seals, proof);
  assert.throws(() => failed.membershipChange(), /changed no members/);
});

test("signatures at the edge", () => {
  const cases = file("ledger/testdata/ed25519-edge-cases.txt")
    .split("\n")
    .filter((line) => line && !line.startsWith("#"))
    .map((line) => line.split(/\s+/));
  assert.ok(cases.length >= 10);
  for (const [message = "", key = "", signature = "", good] of cases) {
    const taken = ledgerd.verify(bytes(key), bytes(signature), bytes(message));
    assert.equal(taken, good === "true", key);
  }
});

test("reasons", () => {
  const reasons = JSON.parse(file("node/api/testdata/reasons.json"));
  const words = Array.from({ length: ledgerd.CODES }, (_, code) => ledgerd.reasonCode(code));
  assert.deepEqual(words, reasons);
});

test("bounds are those of the page", () => {
  const page = file("docs/encoding.md").matchAll(/^\| ([^|]+) \| (\d+) \|$/gm);
  const bounds = new Map(Array.from(page, (found) => [found[1], Number(found[2])]));
  const names = ledgerd.names;
  const wanted: [string, number][] = [
    ["bytes of an organisation's or a member's name", names.ORGANISATION_MAX],
    ["bytes of a chain's name", names.CHAIN_NAME_MAX],
    ["bytes of an asset's name", names.ASSET_MAX],
    ["bytes of an account or of a record's key", names.PATH_MAX],
    ["bytes of an alias", names.ALIAS_MAX],
    ["bytes of a note", names.NOTE_MAX],
    ["bytes of a record's value", names.RECORD_VALUE_MAX],
    ["bytes of a body", names.BODY_MAX],
    ["registrations of a transaction", names.REGISTRATIONS_MAX],
    ["openings of a transaction", names.OPENINGS_MAX],
    ["postings of a transaction", names.POSTINGS_MAX],
    ["records of a transaction", names.RECORDS_MAX],
    ["keys of an organisation", names.KEYS_MAX],
    ["limits of a policy", names.LIMITS_MAX],
    ["assets of a policy", names.POLICY_ASSETS_MAX],
    ["operators", names.OPERATORS_MAX],
    ["members of a shard", names.MEMBERS_MAX],
    ["bytes of a member's key", names.MEMBER_KEY_MAX],
    ["bytes of a member's address", names.ADDRESS_MAX],
    ["shards", names.SHARDS_MAX],
    ["indexes that members ever had", names.MEMBER_INDEXES_MAX],
    ["transactions of a bundle", names.BUNDLE_TRANSACTIONS_MAX],
    ["signatures of a bundle", names.BUNDLE_SIGNATURES_MAX],
    ["assets of a packed bundle", names.PACKED_ASSETS_MAX],
    ["bytes of a bundle", names.BUNDLE_BYTES_MAX],
    ["hashes of a path", names.PATH_HASHES_MAX],
    ["headers of a finality", names.FINALITY_HEADERS_MAX],
    ["decimals of an asset", names.DECIMALS_MAX],
    ["issuers of an asset", names.ISSUERS_MAX],
    ["accounts of a hold", names.HOLD_ACCOUNTS_MAX],
    ["limits of an account", names.ACCOUNT_LIMITS_MAX],
    ["metadata of an account", names.METADATA_MAX],
    ["bytes of a key of metadata", names.METADATA_KEY_MAX],
    ["bytes of a value of metadata", names.METADATA_VALUE_MAX],
    ["seconds of a velocity", names.VELOCITY_SECONDS_MAX],
  ];
  for (const [what, most] of wanted) assert.equal(bounds.get(what), most, what);
});

const decodeBundle = (data: Uint8Array) =>
  data[0] === 3 ? ledgerd.PackedBundle.decode(data) : ledgerd.Bundle.decode(data);
const decodeBody = (data: Uint8Array) =>
  data[0] === 8 ? ledgerd.PackedBody.decode(data) : ledgerd.checkBody(data);
const DECODERS: { [list: string]: (data: Uint8Array) => unknown } = {
  geneses: ledgerd.Genesis.decode,
  transactions: decodeBody,
  bundles: decodeBundle,
  shown: decodeBody,
  proofs: ledgerd.Proof.decode,
  certificates: ledgerd.Certificate.decode,
  certified_proofs: ledgerd.CertifiedProof.decode,
};

const encodedOf = (v: Vector): Uint8Array =>
  bytes(FILES[v.file][v.list].find((each: Vector) => each.name === v.name).encoded);
const flips: Vector[] = vectors("flipped");
// Of verdicts and arrivals, which no client makes, this package checks the version only.
const known = flips.filter((v) => v.list !== "transactions" || ![3, 12].includes(encodedOf(v)[0]!));

each(known, "one bit changed in", (v) => {
  const good = encodedOf(v);
  const decode = v.file === "accounts.json" ? ledgerd.BalanceProof.decode : DECODERS[v.list]!;
  // The version of the first body of a bundle, after the bundle's own version and two lengths.
  const bodyAt = 3 + (good[2]! >= 0x80 ? 1 : 0);
  for (const [flip, expected] of [[1, v.flip_01], [0x80, v.flip_80]]) {
    assert.equal(expected.length, good.length);
    for (let at = 0; at < good.length; at++) {
      if (v.list === "transactions" && at === 0) continue; // another kind
      if (v.list === "bundles" && good[0] === 1 && at === bodyAt) continue;
      const changed = good.slice();
      changed[at]! ^= flip;
      let taken = "1";
      try {
        decode(changed);
      } catch (error) {
        assert.ok(error instanceof ledgerd.MalformedError, `byte ${at}: ${error}`);
        taken = "0";
      }
      assert.equal(taken, expected[at], `byte ${at} ^ ${flip}`);
    }
  }
});

const FINALITY = JSON.parse(file("explorer/test/fixtures/finality.json"));

test("chains whose members change, and lies about them", () => {
  const genesis = ledgerd.Genesis.decode(bytes(FINALITY.genesis.canonical));
  for (const block of FINALITY.blocks) {
    const finality = ledgerd.Finality.decode(bytes(block.finality));
    assert.equal(ledgerd.hex(finality.encode()), block.finality);
    new ledgerd.Auditor(genesis).verify(finality, BigInt(block.height), bytes(block.hash));
  }
  const proven = FINALITY.blocks[2];
  for (const lie of FINALITY.lies) {
    assert.throws(
      () => {
        const finality = ledgerd.Finality.decode(bytes(lie.finality));
        const auditor = new ledgerd.Auditor(genesis);
        auditor.verify(finality, BigInt(proven.height), bytes(proven.hash));
      },
      (error) =>
        error instanceof ledgerd.CertificateError || error instanceof ledgerd.MalformedError,
      lie.name,
    );
  }
  ledgerd.CertifiedProof.decode(bytes(FINALITY.certified)).verify(genesis);
});

each(ACCOUNTS.proofs, "proof of a balance", (v) => {
  const encoded = bytes(v.encoded);
  const proof = ledgerd.BalanceProof.decode(encoded);
  assert.deepEqual(proof.encode(), encoded);
  const { account } = proof.open();
  const expected = ACCOUNTS.accounts.find((each: Vector) => each.name === v.name);
  const { entry } = proof.parts;
  assert.equal(ledgerd.hex(entry), expected.encoded);
  const leaf = concat(Buffer.from(`a${account.account}\0`), entry);
  assert.equal(ledgerd.hex(ledgerd.leafHash(leaf)), expected.hash);
  assert.throws(() => proof.verify(GENESIS), ledgerd.CertificateError);
  const lies = [...entry].map((_, at) => flipped(entry, at));
  lies.push(...[[0], [0, 0], [1]].map((more) => concat(entry, Uint8Array.from(more))));
  for (const lie of lies) {
    const made = new ledgerd.BalanceProof({ ...proof.parts, entry: lie });
    assert.throws(() => made.open(), ledgerd.ProofError);
  }
  if (v.name.includes("velocity")) {
    const spent = { slot: 78_703n, amounts: [300n, 0n, 256n, 1n, 44n] };
    const standing = { revision: 5n, guarded: 2n, terms: TERMS, spent: [undefined, spent] };
    assert.deepEqual(account.standing, standing);
    assert.equal(ledgerd.accountNowOf(account).alias, "front desk");
  } else if (v.name.includes("set aside")) {
    assert.deepEqual(account.balances, [
      { asset: "EUR", amount: 500n, setAside: 0n, incoming: 0n },
      { asset: "unit", amount: 35n, setAside: 7n, incoming: 1n },
    ]);
  } else if (v.name.includes("closed")) {
    assert.ok(account.standing?.terms.closed);
  } else {
    assert.equal(account.standing, undefined);
  }
});

test("a proof of a balance shows that of its block only", () => {
  // The second of three accounts; 7 is set aside for another shard.
  const entry = concat(
    ...[uvarint(2), Uint8Array.of(0), string("Kasse"), uvarint(3), uvarint(9)],
    ...[uvarint(1), string("unit"), amount(42n)],
    ...[uvarint(1), string("unit"), amount(7n), amount(1n)],
    ...[uvarint(4), ledgerd.encodeAccountTerms(TERMS)],
    ...[uvarint(77), ...Array.from({ length: 5 }, (_, i) => amount(BigInt(i)))],
    uvarint(2),
  );
  const [first, third, others] = [1, 3, 4].map((each) => new Uint8Array(32).fill(each));
  const leaf = ledgerd.leafHash(concat(Buffer.from("aacme:till\0"), entry));
  const root = sha256(Uint8Array.of(1), first!, leaf, third!);
  const known = ledgerd.decodeHeader(bytes(BLOCKS.blocks[0].header));
  const stateDigest = sha256(domain("ledgerd/state/2"), uint(3, 8), root, others!);
  const parts: ledgerd.BalanceProofParts = {
    header: ledgerd.encodeHeader({ ...known, stateDigest }),
    account: "acme:till",
    entry,
    accounts: 3n,
    siblings: [first!, third!],
    others: others!,
  };
  const good = ledgerd.BalanceProof.decode(new ledgerd.BalanceProof(parts).encode());
  const { account, header } = good.open();
  assert.equal(header.height, known.height);
  assert.equal(account.alias, "Kasse");
  assert.deepEqual(account.balances, [
    { asset: "unit", amount: 35n, setAside: 7n, incoming: 1n },
  ]);
  assert.deepEqual(account.standing, {
    revision: 4n,
    guarded: 2n,
    terms: TERMS,
    spent: [undefined, { slot: 77n, amounts: [0n, 1n, 2n, 3n, 4n] }],
  });
  assert.equal(ledgerd.accountNowOf(account).guarded, 2n);
  assert.throws(() => good.verify(GENESIS), ledgerd.CertificateError); // without a certificate
  const certified = bytes(BLOCKS.certified_proofs[0].encoded);
  const finality = ledgerd.CertifiedProof.decode(certified).finality;
  const foreign = new ledgerd.BalanceProof({ ...parts, finality });
  assert.throws(() => foreign.verify(GENESIS), ledgerd.CertificateError); // of another block
  const lies: Partial<ledgerd.BalanceProofParts>[] = [
    { account: "acme:safe" },
    { account: "no account" },
    { header: flipped(parts.header, 170) },
    { others: first! },
    { accounts: 0n },
    { accounts: 1n },
    { accounts: 4n },
    { siblings: [third!, first!] },
    { siblings: [first!] },
    { siblings: [first!, third!, others!] },
    { entry: new Uint8Array() },
    ...Array.from(entry, (_, at) => ({ entry: flipped(entry, at) })),
  ];
  for (const lie of lies) {
    const made = new ledgerd.BalanceProof({ ...parts, ...lie });
    assert.throws(() => made.open(), ledgerd.ProofError, Object.keys(lie).join());
  }
});

test("text that is no UTF-8 keeps its bytes", () => {
  const parts = { ledger: GENESIS.book(), signer: "alice", stream: 0n, sequence: 1n };
  const body = new ledgerd.Transaction({ ...parts, note: "aé?😀" }).encode();
  body[body.length - 5] = 0xff; // the question mark
  const made = ledgerd.Transaction.decode(body);
  assert.equal(made.note, "aé\udcff😀");
  assert.deepEqual(made.encode(), body);
});
