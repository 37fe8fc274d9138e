// Proofs that a transaction is in a block, with its result, and that its bundle was signed.
//
// A proof alone shows no more than that: whose the keys are, and whether the block is in the chain,
// comes from elsewhere. certificate.ts shows the second with the genesis alone.

import { checkBody } from "./body.js";
import {
  encodeSignatures,
  readSignatures,
  type Signature,
  signingMessage,
  verifySignature,
} from "./bundle.js";
import {
  boolean,
  concat,
  domain,
  elements,
  equal,
  MalformedError,
  Reader,
  sha256,
  string,
  uint,
} from "./codec.js";
import { leafHash, pathRoot, ProofError, verifyPath } from "./merkle.js";
import * as names from "./names.js";
import { PackedBody, packedId } from "./packed.js";
import { APPLIED, CODES, NO_ITEM, reasonCode } from "./results.js";
import { Transaction, transactionId, VERSION_PACKED } from "./transaction.js";

export const HEADER_SIZE = 205;

const BLOCK_DOMAIN = domain("ledgerd/block/1");
const [PROOF, PLACED_PROOF] = [1, 3];
const [KIND_BODIES, KIND_PACKED] = [1, 2];

/** A block's header, whose hash is the block's. */
export interface Header {
  byBundle: boolean;
  height: bigint;
  previous: Uint8Array;
  epoch: bigint;
  round: bigint;
  time: bigint;
  transactionsRoot: Uint8Array;
  resultsRoot: Uint8Array;
  bundlesRoot: Uint8Array;
  stateDigest: Uint8Array;
  transactions: number;
  total: bigint;
}

export function encodeHeader(header: Header): Uint8Array {
  return concat(
    Uint8Array.of(header.byBundle ? 2 : 1),
    uint(header.height, 8),
    header.previous,
    uint(header.epoch, 8),
    uint(header.round, 8),
    uint(header.time, 8),
    header.transactionsRoot,
    header.resultsRoot,
    header.bundlesRoot,
    header.stateDigest,
    uint(header.transactions, 4),
    uint(header.total, 8),
  );
}

/** Returns the block's hash, by its header's canonical bytes. */
export function blockHash(header: Uint8Array): Uint8Array {
  return sha256(BLOCK_DOMAIN, header);
}

/** Decodes a header, or throws MalformedError. */
export function decodeHeader(data: Uint8Array): Header {
  const r = new Reader(data);
  const version = r.byte();
  if (version !== 1 && version !== 2) throw new MalformedError(`header version ${version}`);
  const header: Header = {
    byBundle: version === 2,
    height: r.uint64(),
    previous: r.hash(),
    epoch: r.uint64(),
    round: r.uint64(),
    time: r.uint64(),
    transactionsRoot: r.hash(),
    resultsRoot: r.hash(),
    bundlesRoot: r.hash(),
    stateDigest: r.hash(),
    transactions: r.uint32(),
    total: r.uint64(),
  };
  r.end();
  return header;
}

/** What became of a transaction in a block: a code, and what part it is about. */
export interface Result {
  code: number;
  item: number;
}

/** Returns the API's word for why a transaction failed, "" if it was applied. */
export function reasonOf(result: Result): string {
  return reasonCode(result.code);
}

export function encodeResult(result: Result): Uint8Array {
  return concat(uint(result.code, 1), uint(result.item, 4));
}

function readResult(r: Reader): Result {
  const result = { code: r.byte(), item: r.uint32() };
  if (result.code >= CODES) throw new MalformedError(`result ${result.code}`);
  return result;
}

function readPath(r: Reader): Uint8Array[] {
  return r.list("hashes", names.PATH_HASHES_MAX, 32, () => r.hash());
}

/** Where the transaction's bundle is in a block by bundle. */
export interface Placing {
  bundle: number;
  bundles: number;
  first: number;
  kept: number;
  transactionPath: Uint8Array[];
  resultPath: Uint8Array[];
  allApplied: boolean;
}

function encodePlacing(each: Placing): Uint8Array {
  return concat(
    uint(each.bundle, 4),
    uint(each.bundles, 4),
    uint(each.first, 4),
    uint(each.kept, 4),
    elements(each.transactionPath),
    elements(each.resultPath),
    boolean(each.allApplied),
  );
}

function readPlacing(r: Reader): Placing {
  return {
    bundle: r.uint32(),
    bundles: r.uint32(),
    first: r.uint32(),
    kept: r.uint32(),
    transactionPath: readPath(r),
    resultPath: readPath(r),
    allApplied: r.boolean(),
  };
}

/** What a proof says. */
export interface ProofParts {
  body: Uint8Array;
  id: Uint8Array;
  header: Uint8Array;
  blockHash: Uint8Array;
  index: number;
  count: number;
  transactionPath: Uint8Array[];
  result: Result;
  resultPath: Uint8Array[];
  placing?: Placing | undefined;
  bundleIndex: number;
  bundleCount: number;
  bundlePath: Uint8Array[];
  bundleRoot: Uint8Array;
  signatures: Signature[];
}

/** Shows that a transaction is in a block, with its result. Call verify. */
export class Proof {
  constructor(readonly parts: ProofParts) {}

  get id(): Uint8Array {
    return this.parts.id;
  }

  get result(): Result {
    return this.parts.result;
  }

  /** Whether the transaction took effect. */
  get applied(): boolean {
    return this.parts.result.code === APPLIED;
  }

  /** Whether the transaction is a transfer of a packed bundle. */
  get packed(): boolean {
    return this.parts.body[0] === VERSION_PACKED;
  }

  /** Returns the header of the block. */
  block(): Header {
    return decodeHeader(this.parts.header);
  }

  /** Returns the transaction, or throws MalformedError if it is not a client's. */
  transaction(): Transaction {
    const body = this.parts.body;
    return this.packed ? PackedBody.decode(body).transaction() : Transaction.decode(body);
  }

  /**
   * Throws ProofError unless the proof holds. Then the transaction is in the block with the proof's
   * result, and the keys of its signatures signed its bundle. Whether the block is in the chain is
   * CertifiedProof's to say.
   */
  verify(): void {
    try {
      this.#verify();
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      throw new ProofError(`the proof does not hold: ${error.message}`);
    }
  }

  #verify(): void {
    const p = this.parts;
    const header = this.block();
    if (!equal(blockHash(p.header), p.blockHash)) {
      throw new ProofError("the header has another hash");
    }
    if (header.transactions !== p.count) {
      throw new ProofError(`the block has ${header.transactions} transactions`);
    }
    this.#verifyBundle();
    if (header.byBundle) {
      if (!p.placing) throw new ProofError("it does not place the bundle in its block");
      this.#verifyPlacing(header, p.placing);
      return;
    }
    if (p.placing || this.packed) throw new ProofError("it is not of such a block");
    verifyPath(leafHash(p.id), p.index, p.count, p.transactionPath, header.transactionsRoot);
    const leaf = leafHash(concat(p.id, encodeResult(p.result)));
    verifyPath(leaf, p.index, p.count, p.resultPath, header.resultsRoot);
  }

  #verifyBundle(): void {
    const p = this.parts;
    if (this.packed) {
      const body = PackedBody.decode(p.body);
      if (!equal(p.id, packedId(p.bundleRoot, body.place))) {
        throw new ProofError("the body has another id");
      }
      if (p.bundleIndex !== body.place || p.bundleCount !== body.head.count) {
        throw new ProofError(`the body is transfer ${body.place} of ${body.head.count}`);
      }
      body.verify(p.bundlePath, p.bundleRoot);
    } else {
      checkBody(p.body);
      if (!equal(transactionId(p.body), p.id)) throw new ProofError("the body has another id");
      verifyPath(leafHash(p.id), p.bundleIndex, p.bundleCount, p.bundlePath, p.bundleRoot);
    }
    const message = signingMessage(p.bundleRoot, this.packed);
    for (const each of p.signatures) {
      if (!verifySignature(each, message)) {
        throw new ProofError(`the signature of ${each.organisation || "an operator"}`);
      }
    }
  }

  #verifyPlacing(header: Header, placed: Placing): void {
    const p = this.parts;
    const within = p.index - placed.first;
    if (within < 0 || within >= placed.kept || placed.first + placed.kept > p.count) {
      throw new ProofError(
        `transaction ${p.index} is not among the ${placed.kept} of its bundle from ` +
          `${placed.first} on`,
      );
    }
    let [kind, root] = [KIND_PACKED, p.bundleRoot];
    if (!this.packed) {
      kind = KIND_BODIES;
      root = pathRoot(leafHash(p.id), within, placed.kept, p.transactionPath);
    } else if (
      p.transactionPath.length ||
      placed.kept !== p.bundleCount ||
      within !== p.bundleIndex
    ) {
      throw new ProofError("a packed bundle is in a block as a whole");
    }
    const part = concat(uint(kind, 1), uint(placed.first, 4), uint(placed.kept, 4), root);
    const { bundle, bundles } = placed;
    verifyPath(leafHash(part), bundle, bundles, placed.transactionPath, header.transactionsRoot);
    let results = concat(part, Uint8Array.of(0));
    if (!placed.allApplied) {
      const leaf = leafHash(encodeResult(p.result));
      results = concat(part, Uint8Array.of(1), pathRoot(leaf, within, placed.kept, p.resultPath));
    } else if (!this.applied || p.result.item !== NO_ITEM || p.resultPath.length) {
      throw new ProofError("all transactions of the bundle were applied");
    }
    verifyPath(leafHash(results), bundle, bundles, placed.resultPath, header.resultsRoot);
  }

  /** Returns the canonical bytes. */
  encode(): Uint8Array {
    const p = this.parts;
    return concat(
      Uint8Array.of(p.placing ? PLACED_PROOF : PROOF),
      string(p.body),
      p.id,
      string(p.header),
      p.blockHash,
      uint(p.index, 4),
      uint(p.count, 4),
      elements(p.transactionPath),
      encodeResult(p.result),
      elements(p.resultPath),
      p.placing ? encodePlacing(p.placing) : new Uint8Array(),
      uint(p.bundleIndex, 4),
      uint(p.bundleCount, 4),
      elements(p.bundlePath),
      p.bundleRoot,
      encodeSignatures(p.signatures),
    );
  }

  /** Decodes a proof, or throws MalformedError. It does not verify it. */
  static decode(data: Uint8Array): Proof {
    const r = new Reader(data);
    const version = r.byte();
    if (version !== PROOF && version !== PLACED_PROOF) {
      throw new MalformedError(`proof version ${version}`);
    }
    const parts: ProofParts = {
      body: r.string("bytes of transaction", names.BODY_MAX),
      id: r.hash(),
      header: r.string("bytes of header", HEADER_SIZE),
      blockHash: r.hash(),
      index: r.uint32(),
      count: r.uint32(),
      transactionPath: readPath(r),
      result: readResult(r),
      resultPath: readPath(r),
      placing: version === PLACED_PROOF ? readPlacing(r) : undefined,
      bundleIndex: r.uint32(),
      bundleCount: r.uint32(),
      bundlePath: readPath(r),
      bundleRoot: r.hash(),
      signatures: readSignatures(r),
    };
    r.end();
    return new Proof(parts);
  }
}
