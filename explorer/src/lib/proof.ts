// Checks a Merkle proof step by step, from a transaction's bytes to its block's hash (RFC 6962,
// section 2.1.1).
//
// It trusts nothing that the node reports about the outcome. Every hash is computed here, the order
// of the siblings follows from the leaf's place and the tree's size, and the domain prefixes are
// this ledger's own. The page shows the same steps.
//
// In a block by bundle the leaves are bundles. The first steps then lead from the transaction to
// its bundle's leaf. For a bundle of bodies that is a path from the id. For a packed bundle it is a
// path from each of the bundle's parts that show the transfer.
import type { Proof, ProofStep } from "../gen/ledgerd/v1/proofs_pb";
import { concatBytes, equalBytes, fromHex, toHex } from "./bytes";
import { decodeHeader, decodeProof } from "./finality";
import { leafHash, siblingSides, withSibling } from "./merkle";
import { decodeShown, isShown, packedId, pathLengths, type Part, type Shown } from "./packed";
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
  /** If the proof holds: the transaction is number `number` of `of` in the block. */
  number: bigint;
  of: bigint;
  /** Whether the leaves of the block's tree are bundles. */
  byBundle: boolean;
}

const transactionPrefix = /^ledgerd\/transaction\/\d+\0$/;
const blockPrefix = /^ledgerd\/block\/\d+\0$/;

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
  const wantedId = fromHex(idHex) ?? new Uint8Array();
  const header = decodeHeader(proof.header?.canonical ?? new Uint8Array()).value;
  const start =
    header?.byBundle === true
      ? await toBundle(proof, wantedId, header.transactions)
      : await toLeaf(proof, wantedId);
  const checks = [...start.checks, ...(await toRoot(proof, start.what))];

  const canonical = proof.header?.canonical ?? new Uint8Array();
  const held = canonical.subarray(proof.rootOffset, proof.rootOffset + 32);
  checks.push(
    equal(
      "The block's header holds this root",
      `bytes ${proof.rootOffset} to ${proof.rootOffset + 31} of the header`,
      held,
      proof.transactionsRoot,
      header?.byBundle === true && !equalBytes(header.transactionsRoot, held)
        ? "The header has its transactions root in another place."
        : undefined,
    ),
  );

  const blockHash = await sha256(concatBytes(proof.hashPrefix, canonical));
  const hashPrefix = new TextDecoder("latin1").decode(proof.hashPrefix);
  checks.push(
    equal(
      "The header has the block's hash",
      `SHA-256("${printable(proof.hashPrefix)}" ‖ ${canonical.length} bytes of the header)`,
      blockHash,
      proof.header?.hash ?? new Uint8Array(),
      blockPrefix.test(hashPrefix) ? undefined : "The prefix is not the one that marks a block.",
    ),
  );
  const { number, of, what } = start;
  return {
    ok: checks.every((check) => check.ok),
    checks,
    blockHash: toHex(blockHash),
    number,
    of,
    byBundle: what === "bundle",
  };
}

/** The steps to a leaf of the block's tree, and what the leaf is. */
interface Start {
  checks: ProofCheck[];
  what: "transaction" | "bundle";
  number: bigint;
  of: bigint;
}

/** The steps to the leaf of a block whose leaves are ids. */
async function toLeaf(proof: Proof, wantedId: Uint8Array): Promise<Start> {
  const leaf = await leafHash(proof.leafData);
  const begins = startsWith(proof.leafData, wantedId);
  const checks: ProofCheck[] = [
    await idOfBody(proof, wantedId),
    {
      title: "The leaf of the tree begins with the id",
      formula: "leaf = SHA-256(0x00 ‖ leaf data)",
      computed: toHex(leaf),
      ok: begins,
      ...(begins ? {} : { problem: "The leaf belongs to another transaction." }),
    },
  ];
  return { checks, what: "transaction", number: proof.leafIndex + 1n, of: proof.treeSize };
}

async function idOfBody(proof: Proof, wantedId: Uint8Array): Promise<ProofCheck> {
  const idPrefix = new TextDecoder("latin1").decode(proof.idPrefix);
  return equal(
    "The transaction's bytes have this id",
    `SHA-256("${printable(proof.idPrefix)}" ‖ ` +
      `${proof.canonicalTransaction.length} bytes of the transaction)`,
    await sha256(concatBytes(proof.idPrefix, proof.canonicalTransaction)),
    wantedId,
    transactionPrefix.test(idPrefix)
      ? undefined
      : "The prefix is not the one that marks a transaction.",
  );
}

/** A bundle's leaf in a block by bundle. */
interface Leaf {
  packed: boolean;
  /** The index of the bundle's first transaction in the block. */
  first: number;
  /** How many of its transactions are in the block. */
  kept: number;
  root: Uint8Array;
}

function decodeLeaf(data: Uint8Array): Leaf | undefined {
  const kind = data[0];
  if (data.length !== 41 || (kind !== 1 && kind !== 2)) return undefined;
  const view = new DataView(data.buffer, data.byteOffset);
  return {
    packed: kind === 2,
    first: view.getUint32(1),
    kept: view.getUint32(5),
    root: data.subarray(9),
  };
}

/** The steps to the leaf of the bundle, in a block of count transactions by bundle. */
async function toBundle(proof: Proof, wantedId: Uint8Array, count: number): Promise<Start> {
  const checks: ProofCheck[] = [];
  const wrong = (title: string, problem: string): Start => {
    checks.push({ title, formula: "", computed: "", ok: false, problem });
    return { checks, what: "bundle", number: 0n, of: BigInt(count) };
  };
  const leaf = decodeLeaf(proof.leafData);
  if (!leaf) return wrong("The leaf of the tree is a bundle", "The leaf is not that of a bundle.");
  const encoded = decodeProof(proof.encoded);
  if (encoded.problem !== undefined)
    return wrong("The paths in the bundle can be read", `They cannot: ${encoded.problem}.`);
  if (isShown(proof.canonicalTransaction) !== leaf.packed)
    return wrong(
      "The leaf is of the transaction's kind of bundle",
      "The leaf is that of another kind of bundle.",
    );
  let within: number;
  if (leaf.packed) {
    const shown = decodeShown(proof.canonicalTransaction);
    if (shown.problem !== undefined)
      return wrong("The transfer can be read from its bundle", `It cannot: ${shown.problem}.`);
    within = shown.value.place;
    const path = encoded.value.bundlePath;
    checks.push(...(await fromParts(shown.value, leaf, path, wantedId)));
  } else {
    within = encoded.value.index - leaf.first;
    checks.push(await idOfBody(proof, wantedId));
    checks.push(...(await fromId(wantedId, within, leaf, encoded.value.transactionPath)));
  }
  const inside = within >= 0 && within < leaf.kept && leaf.first + leaf.kept <= count;
  checks.push({
    title:
      `The leaf says that this bundle has the transactions ${leaf.first + 1} to ` +
      `${leaf.first + leaf.kept} of the block; this is number ${leaf.first + within + 1}`,
    formula:
      `leaf = SHA-256(0x00 ‖ kind ${leaf.packed ? "2, packed" : "1, bodies"} ‖ ` +
      `first ${leaf.first} ‖ ${leaf.kept} transactions ‖ root)`,
    computed: toHex(await leafHash(proof.leafData)),
    ok: inside,
    ...(inside ? {} : { problem: "The transaction is not among those of the bundle." }),
  });
  return { checks, what: "bundle", number: BigInt(leaf.first + within + 1), of: BigInt(count) };
}

/** The steps from the id to the root over the bundle's ids in the block. */
async function fromId(
  id: Uint8Array,
  within: number,
  leaf: Leaf,
  path: readonly Uint8Array[],
): Promise<ProofCheck[]> {
  const node = await leafHash(id);
  const first: ProofCheck = {
    title: "The id is a leaf of its bundle's tree",
    formula: "leaf = SHA-256(0x00 ‖ id)",
    computed: toHex(node),
    ok: true,
  };
  const place = `place ${within + 1} of ${leaf.kept} in the bundle`;
  return [
    first,
    ...(await climb(node, within, leaf.kept, path, leaf.root, "In the bundle", {
      title: "The top is the root over the bundle's ids, which the bundle's leaf holds",
      place,
    })),
  ];
}

const partNames: Readonly<Record<Part["what"], string>> = {
  head: "The bundle's head has what all its transfers have in common",
  names: "This part of the bundle has names of accounts",
  records: "This part of the bundle has the transfer",
};
const ways: Readonly<Record<Part["what"], string>> = {
  head: "From the head",
  names: "From the names",
  records: "From the transfer",
};

/** Says in words what a part shows of the transfer. */
function content(shown: Shown, part: Part): string {
  switch (part.what) {
    case "head":
      return `the signer ${shown.signer}, ${shown.count} transfers`;
    case "records":
      return `number ${shown.place + 1}, of ${shown.amount} ${shown.asset}`;
    case "names": {
      const parts = shown.parts.filter(({ what }) => what === "names");
      if (parts.length === 1) return `from ${shown.from} to ${shown.to}`;
      return part === parts[0] ? `from ${shown.from}` : `to ${shown.to}`;
    }
  }
}

/** The steps from the parts that show a transfer to the packed bundle's root, and to the id. */
async function fromParts(
  shown: Shown,
  leaf: Leaf,
  path: readonly Uint8Array[],
  wantedId: Uint8Array,
): Promise<ProofCheck[]> {
  const checks: ProofCheck[] = [];
  const lengths = pathLengths(shown);
  let from = 0;
  for (const [i, part] of shown.parts.entries()) {
    // What is too much is left for the last part, whose steps then do not hold.
    const last = i === shown.parts.length - 1;
    const own = path.slice(from, last ? undefined : from + (lengths[i] ?? 0));
    from += own.length;
    const node = await leafHash(part.bytes);
    checks.push({
      title: `${partNames[part.what]}: ${content(shown, part)}`,
      formula: `leaf = SHA-256(0x00 ‖ ${part.bytes.length} bytes of part ${part.index + 1})`,
      computed: toHex(node),
      ok: true,
    });
    checks.push(
      ...(await climb(node, part.index, shown.size, own, leaf.root, ways[part.what], {
        title: "The top is the bundle's root, which its leaf in the block holds",
        place: `part ${part.index + 1} of ${shown.size}`,
      })),
    );
  }
  checks.push(
    equal(
      "The id is made of the bundle's root and the transfer's place",
      `the first 30 bytes of the root ‖ place ${shown.place} as 2 bytes`,
      packedId(leaf.root, shown.place),
      wantedId,
      leaf.kept === shown.count
        ? undefined
        : "A packed bundle is in a block as a whole, and this leaf has another number.",
    ),
  );
  return checks;
}

/** The steps of a path inside a bundle, and the comparison of its top with the root. */
async function climb(
  node: Uint8Array,
  index: number,
  size: number,
  path: readonly Uint8Array[],
  root: Uint8Array,
  where: string,
  top: { title: string; place: string },
): Promise<ProofCheck[]> {
  const checks: ProofCheck[] = [];
  const sides = siblingSides(BigInt(index), BigInt(size));
  for (const [i, sibling] of path.entries()) {
    const left = sides?.[i] === true;
    node = await withSibling(node, sibling, left);
    const title = `${where}, level ${i + 1} of ${path.length}`;
    checks.push(level(title, sibling, left, node, sides?.[i] !== undefined));
  }
  const complete = sides !== undefined && sides.length === path.length;
  checks.push(
    equal(
      top.title,
      `${top.place}, ${levels(path.length)}`,
      node,
      root,
      complete ? undefined : "The path's length does not fit the place in the bundle.",
    ),
  );
  return checks;
}

/** The steps from the leaf to the block's transactions root. */
async function toRoot(proof: Proof, what: Start["what"]): Promise<ProofCheck[]> {
  const checks: ProofCheck[] = [];
  const sides = siblingSides(proof.leafIndex, proof.treeSize);
  let node = await leafHash(proof.leafData);
  for (const [i, step] of proof.path.entries()) {
    const left = step.siblingIsLeft;
    node = await withSibling(node, step.sibling, left);
    const fits = sides?.[i] === left && step.sibling.length === 32;
    const title =
      what === "bundle"
        ? `In the block, level ${i + 1} of ${proof.path.length}`
        : `Level ${i + 1} of ${proof.path.length}`;
    checks.push(level(title, step.sibling, left, node, fits, what));
  }
  const complete = sides !== undefined && sides.length === proof.path.length;
  checks.push(
    equal(
      `The top is the block's transactions root`,
      `${what === "bundle" ? "bundle" : "place"} ${proof.leafIndex + 1n} of ${proof.treeSize}, ` +
        levels(proof.path.length),
      node,
      proof.transactionsRoot,
      complete ? undefined : `The path's length does not fit the ${what}'s place in the block.`,
    ),
  );
  return checks;
}

function levels(count: number): string {
  return `${count} ${count === 1 ? "level" : "levels"}`;
}

function level(
  where: string,
  sibling: ProofStep["sibling"],
  left: boolean,
  node: Uint8Array,
  fits: boolean,
  what?: Start["what"],
): ProofCheck {
  const place = what === undefined ? "place in the bundle" : `${what}'s place in the block`;
  return {
    title: `${where}: hashed with the neighbour on the ${left ? "left" : "right"}`,
    formula: left
      ? `SHA-256(0x01 ‖ ${toHex(sibling)} ‖ node)`
      : `SHA-256(0x01 ‖ node ‖ ${toHex(sibling)})`,
    computed: toHex(node),
    ok: fits,
    ...(fits ? {} : { problem: `This neighbour does not fit the ${place}.` }),
  };
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
