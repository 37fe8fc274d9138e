// Checks from the genesis alone that a block is final, as ledger.Auditor does: the certificates of
// all joins and leaves in order, headers that lead from the block to a certified one, and that
// block's certificate. A certificate is the signatures of a majority of the members before its
// block, each counted once.
//
// Nothing here believes the node or throws, whatever bytes it sent. Names of signers are those of
// the genesis and of the signed joins.
import { concatBytes, equalBytes } from "./bytes";
import type { Ed25519, Verify } from "./ed25519";
import { isWord, maxMembers, readMember, type Genesis, type Member } from "./genesis";
import { leadsTo, pathRoot } from "./merkle";
import { decodeShown, isShown, packedId, pathLengths } from "./packed";
import { Reader, type Decoded } from "./reader";
import { sha256 } from "./sha256";

export interface Seal {
  member: number;
  signature: Uint8Array;
}

export interface Certificate {
  height: bigint;
  hash: Uint8Array;
  /** The number of joins and leaves before the block. */
  epoch: bigint;
  seals: readonly Seal[];
  /** The proof of the join or leave in the block, if it has one. */
  change?: TransactionProof;
}

export interface Finality {
  changes: readonly Certificate[];
  /** The headers of the blocks after the proven one, up to the certified one. */
  headers: readonly Uint8Array[];
  certificate: Certificate;
}

export interface Header {
  height: bigint;
  previous: Uint8Array;
  transactionsRoot: Uint8Array;
  resultsRoot: Uint8Array;
  stateDigest: Uint8Array;
  transactions: number;
  /** Whether the leaves of the first two roots are bundles, and not transactions. */
  byBundle: boolean;
}

/**
 * Where the bundle is in a block by bundle. first is the index of its first transaction in the
 * block, and kept is how many of its transactions are in the block.
 */
export interface Placing {
  bundle: number;
  bundles: number;
  first: number;
  kept: number;
  transactionPath: readonly Uint8Array[];
  resultPath: readonly Uint8Array[];
  allApplied: boolean;
}

/** Proves that a transaction is in a block with its result, and that its bundle was signed. */
export interface TransactionProof {
  body: Uint8Array;
  id: Uint8Array;
  header: Uint8Array;
  blockHash: Uint8Array;
  index: number;
  count: number;
  transactionPath: readonly Uint8Array[];
  code: number;
  item: Uint8Array;
  resultPath: readonly Uint8Array[];
  /** Only in a block by bundle. The two paths above then lead to roots of the bundle. */
  placing: Placing | undefined;
  bundleIndex: number;
  bundleCount: number;
  bundlePath: readonly Uint8Array[];
  bundleRoot: Uint8Array;
  signatures: readonly { key: Uint8Array; signature: Uint8Array }[];
}

export interface Evidence {
  first: Certificate;
  second: Certificate;
}

const text = new TextEncoder();
const statementDomain = text.encode("ledgerd/stored/1\0");
const blockDomain = text.encode("ledgerd/block/1\0");
const transactionDomain = text.encode("ledgerd/transaction/1\0");
const bundleDomain = text.encode("ledgerd/bundle/1\0");
const packedDomain = text.encode("ledgerd/bundle/2\0");

const headerSize = 205;
const maxPath = 33;
const maxMemberIndexes = 1 << 16;
const maxTransactionBytes = 256 << 10;
const maxName = 64;
const maxNote = 16 << 10;
const maxSignatures = 64;
const maxHeaders = 1 << 12;
const maxProofBytes =
  maxTransactionBytes +
  headerSize +
  3 * (1 + maxPath * 32) +
  4 * 32 +
  64 +
  maxSignatures * (maxName + 100);
const maxCertificateBytes = 1 + 8 + 8 + 32 + 5 + maxMembers * 68 + 1 + 5 + maxProofBytes;
const certifiedProofVersion = 2;

export function decodeFinality(data: Uint8Array): Decoded<Finality> {
  const reader = new Reader(data);
  const version = reader.byte();
  if (version !== 1) reader.fail(`finality version ${version}`);
  const certificate = (): Certificate =>
    reader.enclosed("certificate", maxCertificateBytes, readCertificate);
  const changes = reader.list("changes", 2 * maxMemberIndexes, 128, certificate);
  const headers = reader.list("headers", maxHeaders, headerSize, () => reader.take(headerSize));
  const last = certificate();
  return reader.end({ changes, headers, certificate: last });
}

export function decodeProof(data: Uint8Array): Decoded<TransactionProof> {
  const reader = new Reader(data);
  const proof = readProof(reader);
  return reader.end(proof);
}

export function decodeEvidence(data: Uint8Array): Decoded<Evidence> {
  const reader = new Reader(data);
  const version = reader.byte();
  if (version !== 1) reader.fail(`evidence version ${version}`);
  const first = reader.enclosed("certificate", maxCertificateBytes, readCertificate);
  const second = reader.enclosed("certificate", maxCertificateBytes, readCertificate);
  return reader.end({ first, second });
}

export function decodeHeader(data: Uint8Array): Decoded<Header> {
  const reader = new Reader(data);
  const version = reader.byte();
  if (version !== 1 && version !== 2) reader.fail(`header version ${version}`);
  const height = reader.uint64();
  const previous = reader.hash();
  reader.take(8 + 8 + 8); // epoch, round, time
  const transactionsRoot = reader.hash();
  const resultsRoot = reader.hash();
  reader.take(32); // bundles root
  const stateDigest = reader.hash();
  const transactions = reader.uint32();
  reader.uint64(); // transactions in all blocks
  const byBundle = version === 2;
  return reader.end({
    height,
    previous,
    transactionsRoot,
    resultsRoot,
    stateDigest,
    transactions,
    byBundle,
  });
}

export function headerHash(header: Uint8Array): Promise<Uint8Array> {
  return sha256(concatBytes(blockDomain, header));
}

function readCertificate(reader: Reader): Certificate {
  const version = reader.byte();
  if (version !== 1) reader.fail(`certificate version ${version}`);
  const epoch = reader.uint64();
  const height = reader.uint64();
  const hash = reader.hash();
  if (height === 0n) reader.fail("a certificate of the genesis");
  const seals = reader.list("signatures", maxMembers, 68, () => ({
    member: reader.uint32(),
    signature: reader.take(64),
  }));
  if (seals.some((seal, i) => i > 0 && seal.member <= (seals[i - 1]?.member ?? 0)))
    reader.fail("a member signed twice, or the signatures are not in order");
  if (seals.length === 0) reader.fail("a certificate without signatures");
  if (seals.some((seal) => seal.member >= maxMemberIndexes)) reader.fail("a member out of bounds");
  if (!reader.bool()) return { height, hash, epoch, seals };
  return { height, hash, epoch, seals, change: reader.enclosed("proof", maxProofBytes, readProof) };
}

function readProof(reader: Reader): TransactionProof {
  const version = reader.byte();
  if (version !== 1 && version !== 3) reader.fail(`proof version ${version}`);
  // The order of the members of a literal is the order in which they are read.
  return {
    body: reader.bytes("transaction", maxTransactionBytes),
    id: reader.hash(),
    header: reader.bytes("header", headerSize),
    blockHash: reader.hash(),
    index: reader.uint32(),
    count: reader.uint32(),
    transactionPath: readPath(reader),
    code: reader.byte(),
    item: reader.take(4),
    resultPath: readPath(reader),
    placing: version === 3 ? readPlacing(reader) : undefined,
    bundleIndex: reader.uint32(),
    bundleCount: reader.uint32(),
    bundlePath: readPath(reader),
    bundleRoot: reader.hash(),
    signatures: reader.list("signatures", maxSignatures, 97, () => {
      reader.bytes("organisation", maxName);
      return { key: reader.take(32), signature: reader.take(64) };
    }),
  };
}

function readPath(reader: Reader): Uint8Array[] {
  return reader.list("hashes", maxPath, 32, () => reader.hash());
}

function readPlacing(reader: Reader): Placing {
  return {
    bundle: reader.uint32(),
    bundles: reader.uint32(),
    first: reader.uint32(),
    kept: reader.uint32(),
    transactionPath: readPath(reader),
    resultPath: readPath(reader),
    allApplied: reader.bool(),
  };
}

/**
 * The file that `ledgerd tx status --proof FILE --genesis FILE` checks: the proof, with the
 * finality before it if there is one.
 */
export function proofFile(proof: Uint8Array, finality: Uint8Array): Uint8Array<ArrayBuffer> {
  if (finality.length === 0) return concatBytes(proof);
  const length: number[] = [];
  let left = finality.length;
  for (; left >= 0x80; left = Math.floor(left / 0x80)) length.push((left % 0x80) | 0x80);
  length.push(left);
  return concatBytes(new Uint8Array([certifiedProofVersion, ...length]), finality, proof);
}

/** Returns what is wrong with a proof, or "". The caller must know its block from elsewhere. */
export async function proofProblem(proof: TransactionProof, verify: Verify): Promise<string> {
  const header = decodeHeader(proof.header);
  if (header.problem !== undefined) return `its header: ${header.problem}`;
  if (!equalBytes(await headerHash(proof.header), proof.blockHash))
    return "its header has another hash";
  if (header.value.transactions !== proof.count)
    return "its block has another number of transactions";
  const packed = isShown(proof.body);
  const inBundle = await (packed ? packedProblem(proof) : bodyProblem(proof));
  if (inBundle !== "") return inBundle;
  if (header.value.byBundle !== (proof.placing !== undefined) || (packed && !proof.placing))
    return "it is not of such a block";
  const inBlock = await (proof.placing
    ? placingProblem(proof, proof.placing, header.value)
    : pathsProblem(proof, header.value));
  if (inBlock !== "") return inBlock;
  const message = concatBytes(packed ? packedDomain : bundleDomain, proof.bundleRoot);
  const good = await Promise.all(
    proof.signatures.map(({ key, signature }) => verify(key, message, signature)),
  );
  return good.every(Boolean) ? "" : "a signature of its bundle is wrong";
}

/** Checks that the bundle's root is over the id, which is the hash of the body. */
async function bodyProblem(proof: TransactionProof): Promise<string> {
  const { id, bundleIndex, bundleCount, bundlePath, bundleRoot } = proof;
  if (!equalBytes(await sha256(concatBytes(transactionDomain, proof.body)), id))
    return "its transaction has another id";
  return (await leadsTo(id, bundleIndex, bundleCount, bundlePath, bundleRoot))
    ? ""
    : "its path does not lead to the bundle's root";
}

/** Checks that a packed bundle's root is over the parts that show the transfer. */
async function packedProblem(proof: TransactionProof): Promise<string> {
  const decoded = decodeShown(proof.body);
  if (decoded.problem !== undefined) return `its transfer cannot be read: ${decoded.problem}`;
  const shown = decoded.value;
  if (!equalBytes(packedId(proof.bundleRoot, shown.place), proof.id))
    return "its transfer has another id";
  if (proof.bundleIndex !== shown.place || proof.bundleCount !== shown.count)
    return "its transfer has another place in the bundle";
  const lengths = pathLengths(shown);
  let from = 0;
  for (const [i, part] of shown.parts.entries()) {
    const path = proof.bundlePath.slice(from, from + (lengths[i] ?? 0));
    if (!(await leadsTo(part.bytes, part.index, shown.size, path, proof.bundleRoot)))
      return `the path of its bundle's ${part.what} does not lead to the bundle's root`;
    from += path.length;
  }
  return from === proof.bundlePath.length ? "" : "its path to the bundle's root is too long";
}

/** Checks the paths to the roots of a block that is not by bundle. */
async function pathsProblem(proof: TransactionProof, header: Header): Promise<string> {
  const { id, index, count, transactionPath, resultPath } = proof;
  if (!(await leadsTo(id, index, count, transactionPath, header.transactionsRoot)))
    return "its path does not lead to the transactions root";
  const result = concatBytes(id, new Uint8Array([proof.code]), proof.item);
  return (await leadsTo(result, index, count, resultPath, header.resultsRoot))
    ? ""
    : "its result's path does not lead to the results root";
}

/** Checks the paths to the roots of a block by bundle. */
async function placingProblem(
  proof: TransactionProof,
  placing: Placing,
  header: Header,
): Promise<string> {
  const { bundle, bundles, first, kept, allApplied } = placing;
  const within = proof.index - first;
  if (within < 0 || within >= kept || first + kept > proof.count)
    return "its transaction is not among those of its bundle";
  const packed = isShown(proof.body);
  let root: Uint8Array | undefined = proof.bundleRoot;
  if (!packed) root = await pathRoot(proof.id, within, kept, proof.transactionPath);
  else if (
    proof.transactionPath.length > 0 ||
    kept !== proof.bundleCount ||
    within !== proof.bundleIndex
  )
    return "its packed bundle is not in the block as a whole";
  if (root === undefined) return "its path does not lead to its bundle's leaf";
  const leaf = concatBytes(bundleLeaf(packed, first, kept), root);
  if (!(await leadsTo(leaf, bundle, bundles, placing.transactionPath, header.transactionsRoot)))
    return "its bundle's path does not lead to the transactions root";
  const result = concatBytes(new Uint8Array([proof.code]), proof.item);
  let results: Uint8Array | undefined = new Uint8Array();
  if (!allApplied) results = await pathRoot(result, within, kept, proof.resultPath);
  else if (!equalBytes(result, applied) || proof.resultPath.length > 0)
    return "its result is not that of all transactions of its bundle";
  if (results === undefined) return "its result's path does not lead to its bundle's leaf";
  const outcome = concatBytes(leaf, new Uint8Array([allApplied ? 0 : 1]), results);
  return (await leadsTo(outcome, bundle, bundles, placing.resultPath, header.resultsRoot))
    ? ""
    : "its bundle's result's path does not lead to the results root";
}

/** The result of a transaction that was applied. */
const applied = new Uint8Array([0, 255, 255, 255, 255]);

/** Returns the data of a bundle's leaf without its root: the kind, and what is in the block. */
function bundleLeaf(packed: boolean, first: number, kept: number): Uint8Array {
  const view = new DataView(new ArrayBuffer(9));
  view.setUint8(0, packed ? 2 : 1);
  view.setUint32(1, first);
  view.setUint32(5, kept);
  return new Uint8Array(view.buffer);
}

type MembershipChange = { join: Member } | { leave: number };

/** Decodes a transaction that is a join or a leave. */
function decodeChange(body: Uint8Array): Decoded<MembershipChange> {
  const reader = new Reader(body);
  const version = reader.byte();
  if (version !== 2) reader.fail("the transaction changes no members");
  reader.hash(); // the ledger
  for (let i = 0; i < 3; i++) reader.uvarint(); // nonce and last valid block
  const kind = reader.byte();
  let change: MembershipChange = { leave: 0 };
  if (kind === 1) change = { join: readMember(reader) };
  else if (kind === 2) change = { leave: reader.number("member", maxMemberIndexes - 1) };
  else reader.fail("the transaction changes no members");
  if ("join" in change && (!isWord(change.join.name) || change.join.key.length !== 32))
    reader.fail("the new member has no proper name or key");
  reader.bytes("note", maxNote);
  return reader.end(change);
}

export interface Signer {
  index: number;
  name: string;
}

/** A join or leave that was followed. */
export interface Followed {
  height: bigint;
  joined: boolean;
  member: Signer;
  signers: readonly Signer[];
  /** How many members might have signed. */
  of: number;
}

/** A certificate that was checked from the genesis on. */
export interface Certified {
  height: bigint;
  hash: Uint8Array;
  epoch: bigint;
  signers: readonly Signer[];
  of: number;
  /** How many headers lead from the block to the certified one. */
  headers: number;
  changes: readonly Followed[];
}

/**
 * The outcome of a check. certified: all of it holds. unchecked: all but the signatures holds, and
 * this browser cannot check those. wrong: the node's answer proves nothing.
 */
export type Verdict =
  | { state: "certified"; certified: Certified }
  | { state: "unchecked"; certified: Certified; problem: string }
  | { state: "wrong"; problem: string };

/** What a certificate does not prove. Only this file throws and catches it. */
class Refused extends Error {}

/** Follows the members of a chain from its genesis by certificates. It believes nothing else. */
class Auditor {
  private epoch = 0n;
  private since = 0n;
  private next: number;
  private readonly present = new Map<number, Member>();
  /** All members that there ever were. */
  readonly all = new Map<number, Member>();
  readonly changes: Followed[] = [];

  constructor(
    private readonly genesis: Genesis,
    private readonly verify: Verify,
  ) {
    this.next = genesis.members.length;
    for (const [index, member] of genesis.members.entries()) {
      this.present.set(index, member);
      this.all.set(index, member);
    }
  }

  /** Throws unless a majority of the members signed the certificate, for a block of their epoch. */
  async check(c: Certificate): Promise<{ signers: Signer[]; of: number }> {
    const of = this.present.size;
    const majority = Math.floor(of / 2) + 1;
    if (c.epoch !== this.epoch)
      throw new Refused(
        `block ${c.height} is certified by members of epoch ${c.epoch}, not ${this.epoch}`,
      );
    if (c.height <= this.since)
      throw new Refused(
        `block ${c.height} is not of epoch ${c.epoch}, which began at block ${this.since}`,
      );
    if (c.seals.length < majority)
      throw new Refused(`only ${c.seals.length} of ${of} members signed block ${c.height}`);
    const signers = c.seals.map(({ member }, i) => {
      const name = this.present.get(member)?.name;
      if (i > 0 && member <= (c.seals[i - 1]?.member ?? 0))
        throw new Refused(`member ${member} signed block ${c.height} twice`);
      if (name === undefined)
        throw new Refused(`${member} signed block ${c.height} and was no member then`);
      return { index: member, name };
    });
    const wrong = await wrongSeal(c, this.genesis.hash, this.present, this.verify);
    if (wrong !== undefined)
      throw new Refused(`the signature of member ${wrong} of block ${c.height} is wrong`);
    return { signers, of };
  }

  /** Checks the certificate of the next join or leave, and then knows the members after it. */
  async follow(c: Certificate): Promise<void> {
    const signed = await this.check(c);
    const change = await this.change(c);
    let member: Signer;
    if ("join" in change) {
      const { name, key } = change.join;
      // A join that repeats what is so is applied, and changes nothing.
      for (const other of this.present.values())
        if (equalBytes(other.key, key))
          throw new Refused(`${name} was a member already before block ${c.height}`);
      member = { index: this.next++, name };
      this.present.set(member.index, change.join);
      this.all.set(member.index, change.join);
    } else {
      const leaving = this.present.get(change.leave);
      if (leaving === undefined || this.present.size === 1)
        throw new Refused(`member ${change.leave} left at block ${c.height}, and was none`);
      member = { index: change.leave, name: leaving.name };
      this.present.delete(change.leave);
    }
    this.changes.push({ height: c.height, joined: "join" in change, member, ...signed });
    this.epoch++;
    this.since = c.height;
  }

  /** Returns the join or leave that the certificate proves of its block. */
  private async change(c: Certificate): Promise<MembershipChange> {
    const at = `the change of the members in block ${c.height}`;
    if (!c.change || !equalBytes(c.change.blockHash, c.hash))
      throw new Refused(`${at} is not proven`);
    const problem = await proofProblem(c.change, this.verify);
    if (problem !== "") throw new Refused(`${at}: ${problem}`);
    const header = decodeHeader(c.change.header);
    if (header.value?.height !== c.height) throw new Refused(`${at} is of another height`);
    const change = decodeChange(c.change.body);
    if (change.problem !== undefined) throw new Refused(`${at}: ${change.problem}`);
    if (c.change.code !== 0) throw new Refused(`${at} was not applied`);
    return change.value;
  }

  async verifyBlock(f: Finality, height: bigint, hash: Uint8Array): Promise<Certified> {
    for (const encoded of f.headers) {
      const header = decodeHeader(encoded);
      if (header.value?.height !== height + 1n || !equalBytes(header.value.previous, hash))
        throw new Refused(`a header does not follow block ${height}`);
      height++;
      hash = await headerHash(encoded);
    }
    const c = f.certificate;
    if (c.height !== height || !equalBytes(c.hash, hash))
      throw new Refused(`the certificate is not of block ${height}, or of another such block`);
    for (const change of f.changes) await this.follow(change);
    const signed = await this.check(c);
    const { epoch } = c;
    return { height, hash, epoch, ...signed, headers: f.headers.length, changes: this.changes };
  }
}

/** Returns the first member whose signature is wrong. The members must have all signers. */
async function wrongSeal(
  c: Certificate,
  chain: Uint8Array,
  members: ReadonlyMap<number, Member>,
  verify: Verify,
): Promise<number | undefined> {
  const numbers = new DataView(new ArrayBuffer(16));
  numbers.setBigUint64(0, c.epoch);
  numbers.setBigUint64(8, c.height);
  const message = concatBytes(statementDomain, chain, new Uint8Array(numbers.buffer), c.hash);
  const good = await Promise.all(
    c.seals.map(({ member, signature }) => {
      const key = members.get(member)?.key;
      return key === undefined ? false : verify(key, message, signature);
    }),
  );
  return c.seals[good.indexOf(false)]?.member;
}

/** Checks from the genesis that the block with this height and hash is final. */
export async function verifyFinality(
  encoded: Uint8Array,
  genesis: Genesis,
  height: bigint,
  hash: Uint8Array,
  ed25519: Ed25519,
): Promise<Verdict> {
  const finality = decodeFinality(encoded);
  if (finality.problem !== undefined)
    return { state: "wrong", problem: `it cannot be read: ${finality.problem}` };
  const verify = ed25519.missing === undefined ? ed25519.verify : () => Promise.resolve(true);
  try {
    const auditor = new Auditor(genesis, verify);
    const certified = await auditor.verifyBlock(finality.value, height, hash);
    if (ed25519.missing === undefined) return { state: "certified", certified };
    return { state: "unchecked", certified, problem: ed25519.missing };
  } catch (error) {
    if (error instanceof Refused) return { state: "wrong", problem: error.message };
    throw error;
  }
}

/** What a transaction's proof shows, beside the certificate of its block. */
export type TransactionVerdict = Verdict & {
  /** The code of the transaction's result in its block; undefined if it is not proven. */
  code?: number;
};

/**
 * Checks the proof in the form that `ledgerd` reads, and from the genesis that its block is final.
 * The proof must be of the transaction and of the block that the page shows.
 */
export async function verifyTransaction(
  proof: { encoded: Uint8Array; finality: Uint8Array },
  genesis: Genesis,
  id: Uint8Array,
  blockHash: Uint8Array,
  ed25519: Ed25519,
): Promise<TransactionVerdict> {
  const decoded = decodeProof(proof.encoded);
  if (decoded.problem !== undefined)
    return { state: "wrong", problem: `its proof cannot be read: ${decoded.problem}` };
  const whole = decoded.value;
  const verify = ed25519.missing === undefined ? ed25519.verify : () => Promise.resolve(true);
  const problem = await proofProblem(whole, verify);
  if (problem !== "") return { state: "wrong", problem: `its proof: ${problem}` };
  if (!equalBytes(whole.id, id) || !equalBytes(whole.blockHash, blockHash))
    return { state: "wrong", problem: "its proof is of another transaction or block" };
  const height = decodeHeader(whole.header).value?.height ?? 0n;
  const verdict = await verifyFinality(proof.finality, genesis, height, blockHash, ed25519);
  return { ...verdict, code: whole.code };
}

/** Evidence as the node shows it, beside its encoding. */
export interface ShownEvidence {
  height: bigint;
  first?: ShownSide | undefined;
  second?: ShownSide | undefined;
  encoded: Uint8Array;
}

interface ShownSide {
  hash: Uint8Array;
  seals: readonly { member: number; name: string }[];
}

/**
 * Checks that evidence proves its accusation: two blocks of one height, all signatures good, and
 * the hashes and signers as the node shows them. The finality of any later block leads to the
 * members' keys; if it is empty, only the members of the genesis are known. Returns what is wrong,
 * or "".
 */
export async function evidenceProblem(
  shown: ShownEvidence,
  finality: Uint8Array,
  genesis: Genesis,
  verify: Verify,
): Promise<string> {
  const evidence = decodeEvidence(shown.encoded);
  if (evidence.problem !== undefined) return `it cannot be read: ${evidence.problem}`;
  const { first, second } = evidence.value;
  if (first.height !== second.height || equalBytes(first.hash, second.hash))
    return "both blocks can be true";
  const members = await membersBefore(finality, genesis, verify);
  if (members.problem !== undefined) return `the keys of the members: ${members.problem}`;
  for (const side of [first, second]) {
    const wrong = await wrongSeal(side, genesis.hash, members.value, verify);
    if (wrong !== undefined) return `a signature of member ${wrong} is wrong`;
  }
  const says = (side: Certificate, told: ShownSide | undefined): boolean =>
    told !== undefined &&
    equalBytes(told.hash, side.hash) &&
    told.seals.length === side.seals.length &&
    told.seals.every(
      ({ member, name }, i) =>
        member === side.seals[i]?.member && name === members.value.get(member)?.name,
    );
  return shown.height === first.height && says(first, shown.first) && says(second, shown.second)
    ? ""
    : "the node shows other blocks or signers than the signed ones";
}

/** Returns all members that the changes of a finality lead to, present and former. */
async function membersBefore(
  encoded: Uint8Array,
  genesis: Genesis,
  verify: Verify,
): Promise<Decoded<ReadonlyMap<number, Member>>> {
  const auditor = new Auditor(genesis, verify);
  if (encoded.length === 0) return { value: auditor.all };
  const finality = decodeFinality(encoded);
  if (finality.problem !== undefined) return finality;
  try {
    for (const change of finality.value.changes) await auditor.follow(change);
    return { value: auditor.all };
  } catch (error) {
    if (error instanceof Refused) return { problem: error.message };
    throw error;
  }
}
