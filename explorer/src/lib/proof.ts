// Checks a Merkle proof step by step, from a transaction's bytes to its block's hash (RFC 6962,
// section 2.1.1).
//
// It trusts nothing that the node reports about the outcome. Every hash is computed here, the order
// of the siblings follows from the leaf's place and the tree's size, and the domain prefixes are
// this ledger's own. The page shows the same steps.
import type { Proof } from "../gen/ledgerd/v1/ledgerd_pb";
import { concatBytes, equalBytes, fromHex, toHex } from "./bytes";
import { sha256 } from "./sha256";

export interface ProofCheck {
  /** A sentence that states what this step proves. */
  title: string;
  /** The formula in words. */
  formula: string;
  computed: string;
  /** The value that computed must equal; undefined for a step that only computes. */
  expected?: string;
  ok: boolean;
  /** Why the step fails, if the hashes alone do not show it. */
  problem?: string;
}

export interface ProofResult {
  ok: boolean;
  checks: ProofCheck[];
  blockHash: string;
}

const transactionPrefix = /^ledgerd\/transaction\/\d+\0$/;
const blockPrefix = /^ledgerd\/block\/\d+\0$/;

/**
 * For each sibling from the leaf up, whether it stands on the left, given the leaf's place and the
 * tree's size. Returns undefined if the tree has no such place.
 */
export function siblingSides(index: bigint, size: bigint): boolean[] | undefined {
  if (index < 0n || index >= size) return undefined;
  const sides: boolean[] = [];
  for (let last = size - 1n; last > 0n; index >>= 1n, last >>= 1n) {
    if ((index & 1n) === 1n) sides.push(true);
    else if (index < last) sides.push(false);
    // A last node without a sibling moves up unchanged.
  }
  return sides;
}

function printable(prefix: Uint8Array): string {
  return Array.from(prefix, (byte) =>
    byte === 0
      ? "\\0"
      : byte >= 32 && byte < 127
        ? String.fromCharCode(byte)
        : `\\x${byte.toString(16).padStart(2, "0")}`,
  ).join("");
}

function startsWith(bytes: Uint8Array, start: Uint8Array): boolean {
  return (
    start.length > 0 &&
    bytes.length >= start.length &&
    equalBytes(bytes.subarray(0, start.length), start)
  );
}

/**
 * Checks the proof for the transaction with this id, 64 hex digits. The id is the one that was
 * asked for, not the one that the proof names.
 */
export async function verifyProof(proof: Proof, idHex: string): Promise<ProofResult> {
  const checks: ProofCheck[] = [];
  const wantedId = fromHex(idHex) ?? new Uint8Array();

  const id = await sha256(concatBytes(proof.idPrefix, proof.canonicalTransaction));
  const idPrefix = new TextDecoder("latin1").decode(proof.idPrefix);
  checks.push(
    equal(
      "The transaction's bytes have this id",
      `SHA-256("${printable(proof.idPrefix)}" ‖ ` +
        `${proof.canonicalTransaction.length} bytes of the transaction)`,
      id,
      wantedId,
      transactionPrefix.test(idPrefix)
        ? undefined
        : "The prefix is not the one that marks a transaction.",
    ),
  );

  const leaf = await sha256(concatBytes(new Uint8Array([0]), proof.leafData));
  checks.push({
    title: "The leaf of the tree begins with the id",
    formula: "leaf = SHA-256(0x00 ‖ leaf data)",
    computed: toHex(leaf),
    ok: startsWith(proof.leafData, wantedId),
    ...(startsWith(proof.leafData, wantedId)
      ? {}
      : { problem: "The leaf belongs to another transaction." }),
  });

  const sides = siblingSides(proof.leafIndex, proof.treeSize);
  let node = leaf;
  for (const [i, step] of proof.path.entries()) {
    const left = step.siblingIsLeft;
    node = await sha256(
      concatBytes(new Uint8Array([1]), left ? step.sibling : node, left ? node : step.sibling),
    );
    const fits = sides?.[i] === left && step.sibling.length === 32;
    checks.push({
      title:
        `Level ${i + 1} of ${proof.path.length}: ` +
        `hashed with the neighbour on the ${left ? "left" : "right"}`,
      formula: left
        ? `SHA-256(0x01 ‖ ${toHex(step.sibling)} ‖ node)`
        : `SHA-256(0x01 ‖ node ‖ ${toHex(step.sibling)})`,
      computed: toHex(node),
      ok: fits,
      ...(fits
        ? {}
        : { problem: "This neighbour does not fit the transaction's place in the block." }),
    });
  }

  const complete = sides !== undefined && sides.length === proof.path.length;
  checks.push(
    equal(
      `The top is the block's transactions root`,
      `place ${proof.leafIndex + 1n} of ${proof.treeSize}, ` +
        `${proof.path.length} ${proof.path.length === 1 ? "level" : "levels"}`,
      node,
      proof.transactionsRoot,
      complete ? undefined : "The path's length does not fit the transaction's place in the block.",
    ),
  );

  const header = proof.header;
  const canonical = header?.canonical ?? new Uint8Array();
  const held = canonical.subarray(proof.rootOffset, proof.rootOffset + 32);
  checks.push(
    equal(
      "The block's header holds this root",
      `bytes ${proof.rootOffset} to ${proof.rootOffset + 31} of the header`,
      held,
      proof.transactionsRoot,
    ),
  );

  const blockHash = await sha256(concatBytes(proof.hashPrefix, canonical));
  const hashPrefix = new TextDecoder("latin1").decode(proof.hashPrefix);
  checks.push(
    equal(
      "The header has the block's hash",
      `SHA-256("${printable(proof.hashPrefix)}" ‖ ${canonical.length} bytes of the header)`,
      blockHash,
      header?.hash ?? new Uint8Array(),
      blockPrefix.test(hashPrefix) ? undefined : "The prefix is not the one that marks a block.",
    ),
  );

  return { ok: checks.every((check) => check.ok), checks, blockHash: toHex(blockHash) };
}

function equal(
  title: string,
  formula: string,
  computed: Uint8Array,
  expected: Uint8Array,
  problem?: string,
): ProofCheck {
  const ok = problem === undefined && computed.length === 32 && equalBytes(computed, expected);
  return {
    title,
    formula,
    computed: toHex(computed),
    expected: toHex(expected),
    ok,
    ...(problem === undefined ? {} : { problem }),
  };
}
