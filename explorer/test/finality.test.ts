import { generateKeyPairSync } from "node:crypto";
import { expect, test } from "vitest";
import { concatBytes, toHex } from "../src/lib/bytes";
import { ed25519, type Ed25519 } from "../src/lib/ed25519";
import {
  decodeEvidence,
  decodeFinality,
  decodeHeader,
  decodeProof,
  evidenceProblem,
  proofFile,
  verifyFinality,
  verifyTransaction,
  type Certificate,
  type ShownEvidence,
  type Verdict,
} from "../src/lib/finality";
import { decodeGenesis, type Genesis } from "../src/lib/genesis";
import { bytes, fixtures, type Fixture } from "./fixtures";

// The fixtures' chain has three members. Member 3 joins at block 2, member 0 leaves at block 4, and
// block 6 is certified.
interface Told {
  member: number;
  name: string;
}
const proven = fixtures.blocks[2] as Fixture;

async function genesisOf(canonical = fixtures.genesis.canonical): Promise<Genesis> {
  const decoded = await decodeGenesis(bytes(canonical));
  if (decoded.value === undefined) throw new Error(decoded.problem);
  return decoded.value;
}

async function verify(
  finality: Uint8Array,
  block = proven,
  signatures?: Ed25519,
): Promise<Verdict> {
  const genesis = await genesisOf();
  const height = BigInt(block.height ?? 0);
  const known = signatures ?? (await ed25519());
  return verifyFinality(finality, genesis, height, bytes(block.hash), known);
}

test("a genesis has the hash that the ledger computes", async () => {
  const genesis = await genesisOf();
  expect(toHex(genesis.hash)).toBe(fixtures.genesis.hash);
  expect(genesis.members.map((member) => member.name)).toEqual(["node-0", "node-1", "node-2"]);
  expect(genesis.shard).toBe(0);
  for (const [i, { canonical, hash }] of fixtures.other_geneses.entries()) {
    expect(bytes(canonical)[0]).toBe([2, 3, 4, 5, 6, 8, 10, 9, 8, 10, 9, 12][i]); // the version
    const other = await genesisOf(canonical);
    expect(toHex(other.hash)).toBe(hash);
    expect(other.members.length).toBe(2);
  }
  const grown = await genesisOf(fixtures.other_geneses.at(-1)?.canonical);
  expect([grown.shard, grown.members[0]?.name]).toEqual([4, "node-7"]);
});

test("every block is final by the certificate of block 6", async () => {
  for (const block of fixtures.blocks) {
    const verdict = await verify(bytes(block.finality), block);
    expect(verdict).toMatchObject({
      state: "certified",
      certified: {
        height: 6n,
        epoch: 2n,
        of: 3,
        headers: 6 - (block.height ?? 0),
        signers: [
          { index: 1, name: "node-1" },
          { index: 3, name: "node-3" },
        ],
        changes: [
          { height: 2n, joined: true, member: { index: 3, name: "node-3" }, of: 3 },
          { height: 4n, joined: false, member: { index: 0, name: "node-0" }, of: 4 },
        ],
      },
    });
  }
});

test.each(fixtures.lies.map((lie) => [lie.name, lie]))("a lie: %s", async (_, lie) => {
  expect(await verify(bytes(lie.finality))).toMatchObject({ state: "wrong" });
});

test("a lie: no certificate", async () => {
  for (const none of [[], [1, 0, 0], [1, 0, 0, 0]])
    expect(await verify(new Uint8Array(none))).toMatchObject({ state: "wrong" });
});

test("a lie: too many headers", async () => {
  const genesis = await genesisOf();
  const count = 4097; // 0x81 0x20 as a uvarint
  const headers = new Uint8Array(count * 205);
  const finality = concatBytes(new Uint8Array([1, 0, 0x81, 0x20]), headers, new Uint8Array([0]));
  const verdict = await verifyFinality(finality, genesis, 1n, genesis.hash, await ed25519());
  const problem: unknown = expect.stringMatching(/headers 4097/);
  expect(verdict).toMatchObject({ state: "wrong", problem });
});

test("a lie: another block than the proven one", async () => {
  const finality = bytes(proven.finality);
  const other = { ...proven, hash: "01".padEnd(64, "0") };
  expect(await verify(finality, other)).toMatchObject({ state: "wrong" });
  expect(await verify(finality, { ...proven, height: 4 })).toMatchObject({ state: "wrong" });
});

test("a lie: another genesis", async () => {
  const canonical = bytes(fixtures.genesis.canonical);
  canonical[3] = (canonical[3] ?? 0) ^ 1; // a letter of the chain's name
  const genesis = await genesisOf(toHex(canonical));
  const known = await ed25519();
  expect(
    await verifyFinality(bytes(proven.finality), genesis, 3n, bytes(proven.hash), known),
  ).toMatchObject({ state: "wrong" });
});

test("damage of any byte is found, and none throws", async () => {
  const finality = bytes(proven.finality);
  // 7 is prime to the sizes of all parts: every kind of part is hit.
  for (let at = 0; at < finality.length; at += 7) {
    const damaged = finality.slice();
    damaged[at] = (damaged[at] ?? 0) ^ (1 << at % 8);
    expect(await verify(damaged), `byte ${at}`).toMatchObject({ state: "wrong" });
  }
  for (let length = 0; length < finality.length; length++)
    expect(decodeFinality(finality.subarray(0, length)).problem).toBeTruthy();
  expect(decodeFinality(concatBytes(finality, new Uint8Array(1))).problem).toBeTruthy();
});

test("any bytes decode to a value or a problem", () => {
  let seed = 1;
  const next = (): number => (seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31);
  for (let i = 0; i < 5_000; i++) {
    // Small numbers pass more checks.
    const data = new Uint8Array(next() % 600).map(() => next() % (i % 2 === 0 ? 256 : 3));
    data[0] = i % 3 === 0 ? 3 : 1; // of proofs by bundle, and of all others
    for (const decode of [decodeFinality, decodeProof, decodeEvidence, decodeHeader]) {
      const { value, problem } = decode(data);
      expect((value === undefined) !== (problem === undefined)).toBe(true);
    }
  }
});

test("without Ed25519 the rest is checked, and the signatures are called unchecked", async () => {
  const missing = { missing: "no such thing" };
  expect(await verify(bytes(proven.finality), proven, missing)).toMatchObject({
    state: "unchecked",
    problem: "no such thing",
    certified: { height: 6n },
  });
  const lie = fixtures.lies.find(({ name }) => name === "too few sign") as Fixture;
  expect(await verify(bytes(lie.finality), proven, missing)).toMatchObject({ state: "wrong" });
});

test("a transaction's proof file is the one that ledgerd writes", async () => {
  const proof = bytes(fixtures.proof);
  const finality = bytes(proven.finality);
  expect(toHex(proofFile(proof, finality))).toBe(fixtures.certified);
  expect(toHex(proofFile(proof, new Uint8Array()))).toBe(fixtures.proof);
  const genesis = await genesisOf();
  const known = await ed25519();
  const answer = { encoded: proof, finality };
  const id = bytes(fixtures.id);
  const check = (
    told: { encoded: Uint8Array; finality: Uint8Array },
    asked: Uint8Array,
    hash: string | undefined,
  ): Promise<Verdict> => verifyTransaction(told, genesis, asked, bytes(hash), known);
  expect(await check(answer, id, proven.hash)).toMatchObject({ state: "certified", code: 0 });
  expect(await check(answer, bytes(proven.hash), proven.hash)).toMatchObject({ state: "wrong" });
  expect(await check(answer, id, fixtures.blocks[4]?.hash)).toMatchObject({ state: "wrong" });
  for (let at = 0; at < proof.length; at++) {
    const damaged = proof.slice();
    damaged[at] = (damaged[at] ?? 0) ^ 0x40;
    const verdict = await check({ encoded: damaged, finality }, id, proven.hash);
    // Which organisation a key belongs to is not in the proof.
    const name = at - proof.length + 96 + "acme".length;
    if (name < 0 || name >= "acme".length)
      expect(verdict.state, `byte ${at} of ${proof.length}`).toBe("wrong");
  }
});

test("evidence is checked with the keys of all members that there were", async () => {
  const genesis = await genesisOf();
  const known = await ed25519();
  if (known.missing !== undefined) throw new Error(known.missing);
  const encoded = bytes(fixtures.evidence);
  const { value } = decodeEvidence(encoded);
  if (!value) throw new Error("it cannot be read");
  const side = ({ hash, seals }: Certificate): { hash: Uint8Array; seals: Told[] } => ({
    hash,
    seals: seals.map(({ member }) => ({ member, name: `node-${member}` })),
  });
  const [first, second] = [side(value.first), side(value.second)];
  const shown = { height: 5n, first, second, encoded };
  const check = (told: ShownEvidence, from = proven.finality): Promise<string> =>
    evidenceProblem(told, bytes(from), genesis, known.verify);
  expect(await check(shown)).toBe("");
  for (let at = 0; at < encoded.length; at++) {
    const damaged = encoded.slice();
    damaged[at] = (damaged[at] ?? 0) ^ 1;
    expect(await check({ ...shown, encoded: damaged }), `byte ${at}`).not.toBe("");
  }
  const lie = fixtures.lies.find(({ name }) => name === "a change that does not prove itself");
  expect(await check(shown, lie?.finality)).not.toBe("");
  expect(await check(shown, "")).not.toBe(""); // member 3 is not of the genesis
  const accused = { ...first, seals: first.seals.map((told) => ({ ...told, name: "node-0" })) };
  const lies = [{ height: 6n }, { first: second }, { second: undefined }, { first: accused }];
  for (const told of lies) expect(await check({ ...shown, ...told })).not.toBe("");
});

test("a key of small order signs nothing", async () => {
  const known = await ed25519();
  if (known.missing !== undefined) throw new Error(known.missing);
  const identity = new Uint8Array(32);
  identity[0] = 1;
  const signature = concatBytes(identity, new Uint8Array(32));
  for (const sign of [0, 0x80]) {
    identity[31] = sign;
    expect(await known.verify(identity, new Uint8Array([7]), signature)).toBe(false);
  }
  const { publicKey } = generateKeyPairSync("ed25519");
  const key = new Uint8Array(publicKey.export({ type: "spki", format: "der" }).subarray(-32));
  expect(await known.verify(key, new Uint8Array(), new Uint8Array(64))).toBe(false);
});
