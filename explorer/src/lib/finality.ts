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
import { siblingSides } from "./proof";
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
  transactions: number;
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
  if (version !== 1) reader.fail(`header version ${version}`);
  const height = reader.uint64();
  const previous = reader.hash();
  reader.take(8 + 8 + 8); // epoch, round, time
  const transactionsRoot = reader.hash();
  const resultsRoot = reader.hash();
  reader.take(32 + 32); // bundles root, state digest
  const transactions = reader.uint32();
  reader.uint64(); // transactions in all blocks
  return reader.end({ height, previous, transactionsRoot, resultsRoot, transactions });
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
  const path = (): Uint8Array[] => reader.list("hashes", maxPath, 32, () => reader.hash());
  const version = reader.byte();
  if (version !== 1) reader.fail(`proof version ${version}`);
  // The order of the members of a literal is the order in which they are read.
  return {
    body: reader.bytes("transaction", maxTransactionBytes),
    id: reader.hash(),
    header: reader.bytes("header", headerSize),
    blockHash: reader.hash(),
    index: reader.uint32(),
    count: reader.uint32(),
    transactionPath: path(),
    code: reader.byte(),
    item: reader.take(4),
    resultPath: path(),
    bundleIndex: reader.uint32(),
    bundleCount: reader.uint32(),
    bundlePath: path(),
    bundleRoot: reader.hash(),
    signatures: reader.list("signatures", maxSignatures, 97, () => {
      reader.bytes("organisation", maxName);
      return { key: reader.take(32), signature: reader.take(64) };
    }),
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

async function leadsTo(
  leaf: Uint8Array,
  index: number,
  size: number,
  path: readonly Uint8Array[],
  root: Uint8Array,
): Promise<boolean> {
  const sides = siblingSides(BigInt(index), BigInt(size));
  if (!sides || sides.length !== path.length) return false;
  let node = await sha256(concatBytes(new Uint8Array([0]), leaf));
  for (const [i, sibling] of path.entries())
    node = await sha256(
      concatBytes(new Uint8Array([1]), ...(sides[i] ? [sibling, node] : [node, sibling])),
    );
  return equalBytes(node, root);
}

/** Returns what is wrong with a proof, or "". The caller must know its block from elsewhere. */
export async function proofProblem(proof: TransactionProof, verify: Verify): Promise<string> {
  const header = decodeHeader(proof.header);
  if (header.problem !== undefined) return `its header: ${header.problem}`;
  const { transactionsRoot, resultsRoot, transactions } = header.value;
  if (!equalBytes(await headerHash(proof.header), proof.blockHash))
    return "its header has another hash";
  if (!equalBytes(await sha256(concatBytes(transactionDomain, proof.body)), proof.id))
    return "its transaction has another id";
  if (transactions !== proof.count) return "its block has another number of transactions";
  if (!(await leadsTo(proof.id, proof.index, proof.count, proof.transactionPath, transactionsRoot)))
    return "its path does not lead to the transactions root";
  const result = concatBytes(proof.id, new Uint8Array([proof.code]), proof.item);
  if (!(await leadsTo(result, proof.index, proof.count, proof.resultPath, resultsRoot)))
    return "its result's path does not lead to the results root";
  const { bundleIndex, bundleCount, bundlePath, bundleRoot } = proof;
  if (!(await leadsTo(proof.id, bundleIndex, bundleCount, bundlePath, bundleRoot)))
    return "its path does not lead to the bundle's root";
  const message = concatBytes(bundleDomain, bundleRoot);
  const good = await Promise.all(
    proof.signatures.map(({ key, signature }) => verify(key, message, signature)),
  );
  return good.every(Boolean) ? "" : "a signature of its bundle is wrong";
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
