// Merkle trees of RFC 6962, section 2.1.1.
import { concatBytes, equalBytes } from "./bytes";
import { sha256 } from "./sha256";

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

export function leafHash(data: Uint8Array): Promise<Uint8Array> {
  return sha256(concatBytes(new Uint8Array([0]), data));
}

/** Hashes a node with its sibling, which stands on the left or on the right. */
export function withSibling(
  node: Uint8Array,
  sibling: Uint8Array,
  left: boolean,
): Promise<Uint8Array> {
  return sha256(concatBytes(new Uint8Array([1]), ...(left ? [sibling, node] : [node, sibling])));
}

/** Returns the root to which a path leads, or undefined if the path does not fit the place. */
export async function pathRoot(
  leaf: Uint8Array,
  index: number,
  size: number,
  path: readonly Uint8Array[],
): Promise<Uint8Array | undefined> {
  const sides = siblingSides(BigInt(index), BigInt(size));
  if (!sides || sides.length !== path.length) return undefined;
  let node = await leafHash(leaf);
  for (const [i, sibling] of path.entries())
    node = await withSibling(node, sibling, sides[i] === true);
  return node;
}

export async function leadsTo(
  leaf: Uint8Array,
  index: number,
  size: number,
  path: readonly Uint8Array[],
  root: Uint8Array,
): Promise<boolean> {
  const reached = await pathRoot(leaf, index, size, path);
  return reached !== undefined && equalBytes(reached, root);
}
