import { clone } from "@bufbuild/protobuf";
import { beforeAll, expect, test } from "vitest";
import { ProofSchema, type Proof } from "../src/gen/ledgerd/v1/proofs_pb";
import { siblingSides } from "../src/lib/merkle";
import { verifyProof } from "../src/lib/proof";
import { sha256 } from "../src/lib/sha256";
import { sha256 as portable } from "@noble/hashes/sha2.js";
import { FakeChain, hash } from "./fake-chain";

const chains = new Map<number, FakeChain>();
beforeAll(() => {
  for (let size = 1; size <= 33; size++) {
    const chain = new FakeChain();
    chain.add([{ signer: "first" }], 1);
    chain.add(
      Array.from({ length: size }, (_, i) => ({ signer: `bank-${i}`, note: `${i}` })),
      2,
    );
    chains.set(size, chain);
  }
});

function proofOf(size: number, index: number): { proof: Proof; id: string } {
  const chain = chains.get(size) as FakeChain;
  const id = chain.blocks[1]?.transactions[index]?.status?.idHex ?? "";
  return { proof: chain.proof(id) as Proof, id };
}

test("every place in blocks of 1 to 33 transactions verifies", async () => {
  for (const size of chains.keys()) {
    for (let index = 0; index < size; index++) {
      const { proof, id } = proofOf(size, index);
      const result = await verifyProof(proof, id);
      expect(
        result.checks.filter((check) => !check.ok),
        `place ${index} of ${size}`,
      ).toEqual([]);
      expect(result.ok).toBe(true);
      expect(result.checks).toHaveLength(5 + proof.path.length);
    }
  }
});

const other = new Uint8Array(32).fill(7);
const damages: [string, (proof: Proof) => void][] = [
  ["a bit of the transaction", (proof) => flip(proof.canonicalTransaction, 3)],
  ["a bit of the leaf", (proof) => flip(proof.leafData, 0)],
  ["a byte behind the leaf", (proof) => (proof.leafData = new Uint8Array([...proof.leafData, 1]))],
  ["a bit of a sibling", (proof) => flip((proof.path[1] as Proof["path"][0]).sibling, 31)],
  [
    "a swapped side",
    (proof) => ((proof.path[0] as Proof["path"][0]).siblingIsLeft = !proof.path[0]?.siblingIsLeft),
  ],
  ["a missing step", (proof) => proof.path.pop()],
  [
    "a step too many",
    (proof) => proof.path.push(clone(ProofSchema, proof).path[0] as Proof["path"][0]),
  ],
  ["another place", (proof) => (proof.leafIndex ^= 1n)],
  ["a place outside", (proof) => (proof.leafIndex = proof.treeSize)],
  ["another size", (proof) => (proof.treeSize = 64n)],
  ["another root", (proof) => (proof.transactionsRoot = other)],
  ["a bit of the header", (proof) => flip(proof.header?.canonical ?? other, 0)],
  ["a wrong offset", (proof) => (proof.rootOffset += 1)],
  ["an offset outside", (proof) => (proof.rootOffset = 100_000)],
  ["another block's hash", (proof) => proof.header && (proof.header.hash = other)],
  ["no header", (proof) => delete proof.header],
  ["the block's prefix for the transaction", (proof) => (proof.idPrefix = proof.hashPrefix)],
  ["no prefix", (proof) => (proof.hashPrefix = new Uint8Array())],
];

test.each(damages)("damage is found: %s", async (_, damage) => {
  const { proof, id } = proofOf(13, 6);
  const damaged = clone(ProofSchema, proof);
  damage(damaged);
  const result = await verifyProof(damaged, id);
  expect(result.ok).toBe(false);
  expect(result.checks.some((check) => !check.ok)).toBe(true);
});

test("a sound proof of another transaction is no proof of this one", async () => {
  const { proof } = proofOf(13, 6);
  const { id } = proofOf(13, 7);
  expect((await verifyProof(proof, id)).ok).toBe(false);
  expect((await verifyProof(proof, "")).ok).toBe(false);
});

test("a prefix that moves bytes between prefix and transaction is refused", async () => {
  const { proof, id } = proofOf(3, 1);
  const moved = clone(ProofSchema, proof);
  moved.idPrefix = new Uint8Array([...proof.idPrefix, ...proof.canonicalTransaction.slice(0, 4)]);
  moved.canonicalTransaction = proof.canonicalTransaction.slice(4);
  expect((await verifyProof(moved, id)).ok).toBe(false);
});

test("sides follow from the place and the size", () => {
  expect(siblingSides(0n, 1n)).toEqual([]);
  expect(siblingSides(6n, 7n)).toEqual([true, true]);
  expect(siblingSides(2n, 7n)).toEqual([false, true, false]);
  expect(siblingSides(7n, 7n)).toBeUndefined();
  expect(siblingSides(0n, 0n)).toBeUndefined();
});

test("the browser's and the page's own SHA-256 agree", async () => {
  for (const length of [0, 1, 55, 56, 63, 64, 65, 1000]) {
    const bytes = new Uint8Array(length).map((_, i) => i * 31);
    expect(await sha256(bytes)).toEqual(hash(bytes));
    expect(portable(bytes)).toEqual(hash(bytes));
  }
});

function flip(bytes: Uint8Array, at: number): void {
  bytes[at] = (bytes[at] ?? 0) ^ 1;
}
