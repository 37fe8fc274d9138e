// Merkle trees as in RFC 6962, with SHA-256.

import { equal, sha256 } from "./codec.js";

/** A proof that does not hold. */
export class ProofError extends Error {
  override name = "ProofError";
}

export function leafHash(data: Uint8Array): Uint8Array {
  return sha256(Uint8Array.of(0), data);
}

export function nodeHash(left: Uint8Array, right: Uint8Array): Uint8Array {
  return sha256(Uint8Array.of(1), left, right);
}

function levelAbove(level: Uint8Array[]): Uint8Array[] {
  const above: Uint8Array[] = [];
  for (let i = 0; i < level.length; i += 2) {
    const [left, right] = [level[i], level[i + 1]];
    // The last one of an odd level moves up unchanged.
    if (left) above.push(right ? nodeHash(left, right) : left);
  }
  return above;
}

/** Returns the root over the hashes of leaves. */
export function rootOf(leaves: Uint8Array[]): Uint8Array {
  let level = leaves;
  while (level.length > 1) level = levelAbove(level);
  return level[0] ?? sha256();
}

/** Returns the siblings of a leaf, from the leaf up. */
export function pathOf(leaves: Uint8Array[], index: number): Uint8Array[] {
  const path: Uint8Array[] = [];
  let [level, at] = [leaves, index];
  while (level.length > 1) {
    const sibling = level[at ^ 1];
    if (sibling) path.push(sibling);
    [level, at] = [levelAbove(level), at >>> 1];
  }
  return path;
}

/** Returns how many hashes the path of a leaf has in a tree of this size. */
export function pathLength(index: number, size: number): number {
  let length = 0;
  for (let [at, left] = [index, size]; left > 1; at = half(at), left = half(left + 1)) {
    if (sibling(at) < left) length++;
  }
  return length;
}

// Places have up to 32 bits without a sign, which the bitwise operators have.
const half = (value: number): number => Math.floor(value / 2);
const sibling = (index: number): number => (index % 2 ? index - 1 : index + 1);

/** Returns the root to which the path of a leaf leads. Throws ProofError if none could. */
export function pathRoot(
  leaf: Uint8Array,
  index: number,
  size: number,
  path: Uint8Array[],
): Uint8Array {
  if (index < 0 || index >= size) throw new ProofError(`leaf ${index} of a tree of ${size}`);
  const wanted = pathLength(index, size);
  if (path.length !== wanted) {
    throw new ProofError(`a path of ${path.length} hashes, not ${wanted}`);
  }
  let [hash, next] = [leaf, 0];
  for (let [at, left] = [index, size]; left > 1; at = half(at), left = half(left + 1)) {
    if (sibling(at) >= left) continue;
    const other = path[next++] ?? new Uint8Array();
    hash = at % 2 ? nodeHash(other, hash) : nodeHash(hash, other);
  }
  return hash;
}

/** Throws ProofError unless the path leads from the leaf at the index to the root. */
export function verifyPath(
  leaf: Uint8Array,
  index: number,
  size: number,
  path: Uint8Array[],
  root: Uint8Array,
): void {
  if (!equal(pathRoot(leaf, index, size, path), root)) {
    throw new ProofError("a path that leads to another root");
  }
}
