import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ProofSchema, type Proof } from "../src/gen/ledgerd/v1/proofs_pb";
import { concatBytes, toHex } from "../src/lib/bytes";
import { ed25519, type Verify } from "../src/lib/ed25519";
import {
  decodeHeader,
  decodeProof,
  headerHash,
  proofProblem,
  verifyTransaction,
  type Placing,
  type TransactionProof,
} from "../src/lib/finality";
import { decodeGenesis } from "../src/lib/genesis";
import { leafHash, siblingSides } from "../src/lib/merkle";
import { decodeShown, isShown } from "../src/lib/packed";
import { verifyProof } from "../src/lib/proof";
import { uint32 } from "./fake-certificates";
import { blockPrefix, idPrefix } from "./fake-chain";
import { bytes, fixtures, type ByBundle } from "./fixtures";

const cases = fixtures.by_bundle.map((each): [string, ByBundle] => [each.name, each]);

function decoded(fixture: ByBundle): TransactionProof & { placing: Placing } {
  const { value, problem } = decodeProof(bytes(fixture.encoded));
  if (value?.placing === undefined) throw new Error(problem ?? "no placing");
  return { ...value, placing: value.placing };
}

async function verify(): Promise<Verify> {
  const known = await ed25519();
  if (known.missing !== undefined) throw new Error(known.missing);
  return known.verify;
}

/** What a node answers (GetProof in node/api/transactions.go). */
function answer(fixture: ByBundle): Proof {
  const proof = decoded(fixture);
  const { bundle, bundles, transactionPath } = proof.placing;
  const header = decodeHeader(proof.header).value;
  const sides = siblingSides(BigInt(bundle), BigInt(bundles)) ?? [];
  return create(ProofSchema, {
    transactionId: proof.id,
    leafData: bytes(fixture.leaf),
    leafIndex: BigInt(bundle),
    treeSize: BigInt(bundles),
    path: transactionPath.map((sibling, i) => ({ sibling, siblingIsLeft: sides[i] === true })),
    transactionsRoot: header?.transactionsRoot ?? new Uint8Array(),
    header: { height: header?.height ?? 0n, hash: proof.blockHash, canonical: proof.header },
    rootOffset: 65,
    hashPrefix: blockPrefix,
    canonicalTransaction: proof.body,
    idPrefix,
    encoded: bytes(fixture.encoded),
    finality: bytes(fixture.finality),
  });
}

test.each(cases)("%s is proven and final", async (_, fixture) => {
  const genesis = (await decodeGenesis(bytes(fixtures.genesis.canonical))).value;
  if (!genesis) throw new Error("no genesis");
  const proof = decoded(fixture);
  expect(await proofProblem(proof, await verify())).toBe("");
  const told = { encoded: bytes(fixture.encoded), finality: bytes(fixture.finality) };
  expect(
    await verifyTransaction(told, genesis, bytes(fixture.id), proof.blockHash, await ed25519()),
  ).toMatchObject({
    state: "certified",
    code: proof.code,
    certified: {
      height: 3n,
      changes: [{ height: 2n, joined: true, member: { index: 3, name: "node-3" } }],
    },
  });
});

test.each(cases)("%s: each step holds", async (_, fixture) => {
  const proof = decoded(fixture);
  const result = await verifyProof(answer(fixture), fixture.id);
  expect(result.checks.filter((check) => !check.ok)).toEqual([]);
  expect(result).toMatchObject({
    ok: true,
    byBundle: true,
    blockHash: toHex(proof.blockHash),
    number: BigInt(proof.index + 1),
    of: BigInt(proof.count),
  });
});

test.each(cases)("%s: the bytes show the transfer", (_, fixture) => {
  const { body, bundleIndex, bundleCount } = decoded(fixture);
  expect(isShown(body)).toBe(fixture.name.startsWith("a packed transfer"));
  if (!isShown(body)) return;
  const { from, to, asset, amount } = fixture;
  expect(decodeShown(body).value).toMatchObject({
    signer: "acme",
    place: bundleIndex,
    count: bundleCount,
    from,
    to,
    asset,
    amount: BigInt(amount),
  });
});

test("the steps say what each part of a packed bundle shows", async () => {
  const [fixture] = fixtures.by_bundle;
  if (!fixture) throw new Error("no fixture");
  const { checks } = await verifyProof(answer(fixture), fixture.id);
  const titles = checks.map((check) => check.title).join("\n");
  for (const says of [
    "the signer acme, 150 transfers",
    "from acme:from-100",
    "to acme:to-50",
    "number 101, of 101 unit",
    "The id is made of the bundle's root and the transfer's place",
    "the transactions 1 to 150 of the block; this is number 101",
  ])
    expect(titles).toContain(says);
});

type Lie = [string, (proof: TransactionProof & { placing: Placing }) => void];

const flip = (data: Uint8Array, at: number): Uint8Array => {
  const copy = data.slice();
  copy[at] = (copy[at] ?? 0) ^ 1;
  return copy;
};
const flipped = (path: readonly Uint8Array[]): Uint8Array[] =>
  path.map((hash, i) => (i === 0 ? flip(hash, 3) : hash));
const other = new Uint8Array(32).fill(7);

const lies: Lie[] = [
  ["id", (p) => (p.id = flip(p.id, 31))],
  ["id of another root", (p) => (p.id = flip(p.id, 3))],
  ["header", (p) => (p.header = flip(p.header, 70))],
  [
    "another kind of header",
    (p) => (p.header = concatBytes(new Uint8Array([1]), p.header.slice(1))),
  ],
  ["hash of the block", (p) => (p.blockHash = flip(p.blockHash, 0))],
  ["index", (p) => p.index++],
  ["index before", (p) => p.index--],
  ["count", (p) => p.count++],
  ["a longer path", (p) => (p.transactionPath = [...p.transactionPath, other])],
  ["code", (p) => (p.code ^= 2)],
  ["item", (p) => (p.item = flip(p.item, 3))],
  ["a longer result path", (p) => (p.resultPath = [...p.resultPath, other])],
  ["bundle", (p) => (p.placing.bundle ^= 1)],
  ["a bundle outside", (p) => (p.placing.bundle = p.placing.bundles)],
  ["first", (p) => p.placing.first++],
  ["kept", (p) => p.placing.kept++],
  ["all but none kept", (p) => (p.placing.kept = 0)],
  ["placing's path", (p) => (p.placing.transactionPath = flipped(p.placing.transactionPath))],
  [
    "a longer placing's path",
    (p) => (p.placing.transactionPath = [...p.placing.transactionPath, other]),
  ],
  ["placing's result path", (p) => (p.placing.resultPath = flipped(p.placing.resultPath))],
  ["no placing's result path", (p) => (p.placing.resultPath = [])],
  ["all applied", (p) => (p.placing.allApplied = !p.placing.allApplied)],
  ["no placing", (p) => delete (p as Partial<TransactionProof>).placing],
  ["bundle index", (p) => (p.bundleIndex ^= 1)],
  ["bundle path", (p) => (p.bundlePath = flipped(p.bundlePath))],
  ["no bundle path", (p) => (p.bundlePath = [])],
  ["a longer bundle path", (p) => (p.bundlePath = [...p.bundlePath, other])],
  ["bundle root", (p) => (p.bundleRoot = flip(p.bundleRoot, 31))],
  ["key", (p) => (p.signatures = p.signatures.map((s) => ({ ...s, key: other })))],
  [
    "signature",
    (p) => (p.signatures = p.signatures.map((s) => ({ ...s, signature: flip(s.signature, 5) }))),
  ],
  ["no body", (p) => (p.body = new Uint8Array())],
];

test.each(cases)("%s: a lie in any field is found", async (_, fixture) => {
  const check = await verify();
  for (const [name, lie] of lies) {
    const proof = decoded(fixture);
    lie(proof);
    expect(await proofProblem(proof, check), name).not.toBe("");
  }
  if (decodeShown(decoded(fixture).body).value) {
    const proof = decoded(fixture);
    proof.bundleCount++; // a path alone does not show how many leaves a tree has
    expect(await proofProblem(proof, check), "bundle count").not.toBe("");
  }
  for (const [another, { encoded }] of cases) {
    if (another === fixture.name) continue;
    const proof = decoded(fixture);
    proof.body = decodeProof(bytes(encoded)).value?.body ?? new Uint8Array();
    expect(await proofProblem(proof, check), `body of ${another}`).not.toBe("");
  }
});

test.each(cases)("%s: damage of any byte is found, and none throws", async (_, fixture) => {
  const encoded = bytes(fixture.encoded);
  const check = await verify();
  for (let at = 0; at < encoded.length; at += 3) {
    const damaged = encoded.slice();
    damaged[at] = (damaged[at] ?? 0) ^ (1 << (at % 8));
    const { value } = decodeProof(damaged);
    // Which organisation a key belongs to is not in the proof, and a path does not show how many
    // leaves a tree has.
    const name = at - encoded.length + 96 + "acme".length;
    if (!value || (name >= 0 && name < "acme".length)) continue;
    if (!isShown(value.body) && value.bundleCount !== decoded(fixture).bundleCount) continue;
    expect(await proofProblem(value, check), `byte ${at} of ${encoded.length}`).not.toBe("");
  }
  for (let length = 0; length < encoded.length; length += 5)
    expect(decodeProof(encoded.subarray(0, length)).problem).toBeTruthy();
});

test.each(cases)("%s: a lie of the node makes a step fail", async (_, fixture) => {
  const body = decoded(fixture).body;
  const encodedElse = cases.find(([name]) => name !== fixture.name)?.[1].encoded;
  const leaf = bytes(fixture.leaf);
  const told: [string, (proof: Proof) => void][] = [
    ["no transaction", (p) => (p.canonicalTransaction = new Uint8Array())],
    ...[...body.keys()].map((at): [string, (proof: Proof) => void] => [
      `byte ${at} of the transaction`,
      (p) => (p.canonicalTransaction = flip(body, at)),
    ]),
    ...[...leaf.keys()].map((at): [string, (proof: Proof) => void] => [
      `byte ${at} of the leaf`,
      (p) => (p.leafData = flip(leaf, at)),
    ]),
    ["a byte behind the leaf", (p) => (p.leafData = concatBytes(leaf, new Uint8Array(1)))],
    ["a short leaf", (p) => (p.leafData = leaf.subarray(0, 40))],
    ["no leaf", (p) => (p.leafData = new Uint8Array())],
    ["the id as the leaf", (p) => (p.leafData = bytes(fixture.id))],
    ["another place", (p) => (p.leafIndex ^= 1n)],
    ["another size", (p) => (p.treeSize = 64n)],
    ["a missing step", (p) => p.path.pop()],
    ["a step too many", (p) => p.path.push(...p.path.slice(0, 1))],
    ["another root", (p) => (p.transactionsRoot = other)],
    ["another header", (p) => p.header && (p.header.canonical = flip(p.header.canonical, 70))],
    ["another kind of header", (p) => p.header?.canonical.set([1], 0)],
    ["another offset", (p) => (p.rootOffset += 32)],
    ["another hash", (p) => p.header && (p.header.hash = other)],
    ["no header", (p) => delete p.header],
    ["another prefix", (p) => (p.hashPrefix = idPrefix)],
    ["no paths", (p) => (p.encoded = new Uint8Array())],
    ["cut paths", (p) => (p.encoded = p.encoded.subarray(0, 400))],
    ["paths of another transaction", (p) => (p.encoded = bytes(encodedElse))],
  ];
  for (const [name, lie] of told) {
    const proof = answer(fixture);
    proof.header = proof.header && {
      ...proof.header,
      canonical: proof.header.canonical.slice(),
    };
    lie(proof);
    expect((await verifyProof(proof, fixture.id)).ok, name).toBe(false);
  }
  for (const [name, { id }] of cases)
    expect((await verifyProof(answer(fixture), id)).ok).toBe(name === fixture.name);
  expect((await verifyProof(answer(fixture), "")).ok).toBe(false);
});

/** A proof in a well hashed block of one bundle that no chain would have. */
async function forged(
  fixture: ByBundle,
  block: { version?: number; kind?: number; first?: number; kept?: number; behind?: number[] },
): Promise<{ whole: TransactionProof; answer: Proof; id: string }> {
  const { version = 2, kind = 2, first = 0, kept, behind = [] } = block;
  const proof = decoded(fixture);
  const { bundleCount, bundleIndex, bundleRoot, id } = proof;
  const leaf = concatBytes(
    new Uint8Array([kind]),
    uint32(first),
    uint32(kept ?? bundleCount),
    bundleRoot,
    new Uint8Array(behind),
  );
  const header = proof.header.slice();
  header[0] = version;
  const applied = new Uint8Array([0, 255, 255, 255, 255]);
  const ofId = concatBytes(id, applied);
  header.set(await leafHash(version === 1 ? id : leaf), 65);
  header.set(await leafHash(version === 1 ? ofId : concatBytes(leaf, new Uint8Array(1))), 97);
  const count = version === 1 ? 1 : bundleCount;
  header.set(uint32(count), 193);
  const placing = {
    ...proof.placing,
    ...{ bundle: 0, bundles: 1, first, kept: kept ?? bundleCount },
    ...{ transactionPath: [], resultPath: [], allApplied: true },
  };
  const whole = {
    ...proof,
    header,
    blockHash: await headerHash(header),
    index: version === 1 ? 0 : first + bundleIndex,
    count,
    ...{ code: 0, item: applied.subarray(1), resultPath: [] },
    placing: version === 1 ? undefined : placing,
  };
  const told = answer(fixture);
  told.leafData = leaf;
  told.leafIndex = 0n;
  told.treeSize = 1n;
  told.path = [];
  told.transactionsRoot = header.slice(65, 97);
  if (told.header) Object.assign(told.header, { canonical: header, hash: whole.blockHash });
  return { whole, answer: told, id: fixture.id };
}

test("a block that is well hashed, and none of a chain", async () => {
  const check = await verify();
  const of = (name: string): ByBundle =>
    fixtures.by_bundle.find((each) => each.name === name) ?? (fixtures.by_bundle[0] as ByBundle);
  const packed = of("a packed transfer, names of two parts");
  const fine = await forged(packed, {});
  expect(await proofProblem(fine.whole, check)).toBe("");
  expect((await verifyProof(fine.answer, fine.id)).ok).toBe(true);
  for (const block of [{ first: 1 }, { kept: 101 }, { kept: 151 }, { kept: 100 }, { kind: 1 }]) {
    const { whole, answer, id } = await forged(packed, block);
    expect(await proofProblem(whole, check), JSON.stringify(block)).not.toBe("");
    expect((await verifyProof(answer, id)).ok, JSON.stringify(block)).toBe(false);
  }
  const longer = await forged(packed, { behind: [0] });
  expect((await verifyProof(longer.answer, longer.id)).ok).toBe(false);
  const old = await forged(packed, { version: 1 });
  expect(await proofProblem(old.whole, check)).toBe("it is not of such a block");
  const body = of("a body in a bundle that was applied");
  const { answer: packedLeaf, id } = await forged(body, { kind: 2 });
  expect((await verifyProof(packedLeaf, id)).ok).toBe(false);
});

test("a path of a packed bundle with a hash too many makes a step fail", async () => {
  const fixture = fixtures.by_bundle[0] as ByBundle;
  const told = answer(fixture);
  const hashes = decoded(fixture).bundlePath.length;
  const after = told.encoded.length - 32 - (1 + 1 + "acme".length + 32 + 64); // root, signature
  const count = after - 32 * hashes - 1;
  expect(told.encoded[count]).toBe(hashes);
  told.encoded = concatBytes(
    told.encoded.subarray(0, count),
    new Uint8Array([hashes + 1]),
    told.encoded.subarray(count + 1, after),
    other,
    told.encoded.subarray(after),
  );
  expect(decodeProof(told.encoded).value?.bundlePath).toHaveLength(hashes + 1);
  expect((await verifyProof(told, fixture.id)).ok).toBe(false);
});

test("any bytes show a transfer or a problem", () => {
  let seed = 1;
  const next = (): number => (seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31);
  const shown = decoded(fixtures.by_bundle[0] as ByBundle).body;
  for (let i = 0; i < 3_000; i++) {
    const data = i % 2 === 0 ? new Uint8Array(next() % 300).map(() => next() % 5) : shown.slice();
    if (i % 2 !== 0) data[next() % data.length] = next() % 256;
    data[0] = 8;
    const { value, problem } = decodeShown(data);
    expect((value === undefined) !== (problem === undefined)).toBe(true);
  }
});
