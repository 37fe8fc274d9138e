// A small made-up chain in memory, with real hashes, Merkle proofs and certificates. The tests use
// it, and it shows the pages without a node.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { createHash } from "node:crypto";
import {
  TransactionSchema,
  TransactionState,
  TransactionStatusSchema,
  TransactionSummarySchema,
  type Transaction,
  type TransactionSummary,
} from "../src/gen/ledgerd/v1/ledgerd_pb";
import {
  BlockHeaderSchema,
  Level,
  ProofSchema,
  type BlockHeader,
  type Proof,
} from "../src/gen/ledgerd/v1/proofs_pb";
import type { TransactionBodySchema } from "../src/gen/ledgerd/v1/transaction_pb";
import { concatBytes, toHex } from "../src/lib/bytes";
import {
  certificate,
  fakeGenesis,
  finality,
  keyOf,
  list,
  member,
  sized,
  uint32,
  uint64,
  type FakeGenesis,
} from "./fake-certificates";
import { scheduledBody } from "./fake-schedules";

const encoder = new TextEncoder();
export const idPrefix = encoder.encode("ledgerd/transaction/1\0");
export const blockPrefix = encoder.encode("ledgerd/block/1\0");

export function hash(...parts: Uint8Array[]): Uint8Array {
  return new Uint8Array(
    createHash("sha256")
      .update(concatBytes(...parts))
      .digest(),
  );
}

const leafOf = (data: Uint8Array): Uint8Array => hash(new Uint8Array([0]), data);
const nodeOf = (left: Uint8Array, right: Uint8Array): Uint8Array =>
  hash(new Uint8Array([1]), left, right);

/** The root of RFC 6962, by its recursive definition. */
export function merkleRoot(leaves: readonly Uint8Array[]): Uint8Array {
  if (leaves.length === 0) return hash();
  if (leaves.length === 1) return leafOf(leaves[0] as Uint8Array);
  const split = splitOf(leaves.length);
  return nodeOf(merkleRoot(leaves.slice(0, split)), merkleRoot(leaves.slice(split)));
}

/** The path of RFC 6962, by its recursive definition. */
export function merklePath(
  index: number,
  leaves: readonly Uint8Array[],
): { sibling: Uint8Array; siblingIsLeft: boolean }[] {
  if (leaves.length <= 1) return [];
  const split = splitOf(leaves.length);
  return index < split
    ? [
        ...merklePath(index, leaves.slice(0, split)),
        { sibling: merkleRoot(leaves.slice(split)), siblingIsLeft: false },
      ]
    : [
        ...merklePath(index - split, leaves.slice(split)),
        { sibling: merkleRoot(leaves.slice(0, split)), siblingIsLeft: true },
      ];
}

/** The largest power of two below a count. */
function splitOf(count: number): number {
  let split = 1;
  while (2 * split < count) split *= 2;
  return split;
}

export interface FakeBlock {
  header: BlockHeader;
  transactions: Transaction[];
}

/** A certificate, and what of it a node shows beside its encoding. */
export interface FakeCertificate {
  encoded: Uint8Array;
  finality: Uint8Array;
  header: BlockHeader;
  signers: number[];
  names: string[];
}

export class FakeChain {
  readonly blocks: FakeBlock[] = [];
  readonly byId = new Map<string, Transaction>();
  /** Fewer members than a majority sign. */
  tooFewSign = false;
  /** The digest of the state after the next block; by default one of nothing. */
  digestOf: (() => Uint8Array) | undefined;
  private serial = 0;

  /** The chain begins above the height `base`, so a short chain can have large heights. */
  constructor(
    readonly base = 0n,
    readonly shard = 0,
    readonly genesis: FakeGenesis = fakeGenesis("demo", 1, [["node-0", "node-1", "node-2"]]),
  ) {}

  get head(): bigint {
    return this.base + BigInt(this.blocks.length);
  }

  /** Adds a block. With a verdict, its entries are this verdict of another shard. */
  add(
    bodies: MessageInitShape<typeof TransactionBodySchema>[],
    timeMs: number,
    verdict?: Pick<Transaction, "verdict" | "verdictShard" | "verdictTransactionHex">,
  ): FakeBlock {
    const height = this.head + 1n;
    const previous = this.blocks.at(-1)?.header.hash ?? this.genesis.hash;
    const canonicals = bodies.map((body) =>
      body.membershipChange?.change?.case === "join"
        ? this.join(body.membershipChange.change.value.name ?? "")
        : (scheduledBody(this.genesis.hash, body) ??
          encoder.encode(
            JSON.stringify({
              shard: this.shard,
              serial: this.serial++,
              signer: body.signer,
              note: body.note,
            }),
          )),
    );
    const ids = canonicals.map((canonical) => hash(idPrefix, canonical));
    const root = merkleRoot(ids);
    const resultsRoot = merkleRoot(
      ids.map((id, i) => concatBytes(id, resultOf(fails(bodies[i])))),
    );
    const stateDigest = this.digestOf?.() ?? hash(hash(root));
    const canonical = concatBytes(
      new Uint8Array([1]),
      uint64(height),
      previous,
      uint64(3n),
      uint64(height + 40n),
      uint64(BigInt(timeMs)),
      root,
      resultsRoot,
      hash(encoder.encode("bundles")),
      stateDigest,
      uint32(bodies.length),
      uint64(BigInt(this.byId.size + bodies.length)),
    );
    const blockHash = hash(blockPrefix, canonical);
    const failedCount = bodies.filter(fails).length;
    const header = create(BlockHeaderSchema, {
      height,
      hash: blockHash,
      hashHex: toHex(blockHash),
      previous,
      previousHex: toHex(previous),
      epoch: 3n,
      round: height + 40n,
      timeMs: BigInt(timeMs),
      transactionsRoot: root,
      resultsRoot,
      stateDigest,
      transactionCount: bodies.length,
      failedCount,
      sizeBytes: BigInt(220 * bodies.length + 180),
      level: Level.ORDERED,
      canonical,
      shard: this.shard,
    });
    const transactions = bodies.map((body, index) => {
      const id = ids[index] as Uint8Array;
      const failed = fails(body);
      return create(TransactionSchema, {
        status: create(TransactionStatusSchema, {
          id,
          idHex: toHex(id),
          state: failed ? TransactionState.FAILED : TransactionState.DURABLE,
          height,
          index,
          shard: this.shard,
          reasonCode: failed ? "insufficient_funds" : "",
          reason: failed ? "The account would fall below zero." : "",
        }),
        body,
        ...verdict,
        signatures: verdict || body.occurrence
          ? []
          : [
              {
                organisation: body.signer ?? "",
                publicKey: hash(encoder.encode(body.signer ?? "")),
                signature: concatBytes(hash(id), hash(hash(id))),
              },
            ],
        blockHash,
        blockTimeMs: BigInt(timeMs),
        canonical: canonicals[index] as Uint8Array,
        bundleSize: 1,
      });
    });
    for (const transaction of transactions)
      this.byId.set(transaction.status?.idHex ?? "", transaction);
    const block = { header, transactions };
    this.blocks.push(block);
    return block;
  }

  at(height: bigint): FakeBlock | undefined {
    return this.blocks[Number(height - this.base) - 1];
  }

  proof(idHex: string): Proof | undefined {
    const transaction = this.byId.get(idHex);
    const block = this.at(transaction?.status?.height ?? 0n);
    if (!transaction?.status || !block) return undefined;
    const ids = block.transactions.map((other) => other.status?.id ?? new Uint8Array());
    const certified = this.certificate(block.header.height);
    return create(ProofSchema, {
      transactionId: transaction.status.id,
      leafData: transaction.status.id,
      leafIndex: BigInt(transaction.status.index),
      treeSize: BigInt(ids.length),
      path: merklePath(transaction.status.index, ids),
      transactionsRoot: block.header.transactionsRoot,
      header: block.header,
      rootOffset: 1 + 8 + 32 + 8 + 8 + 8,
      hashPrefix: blockPrefix,
      canonicalTransaction: transaction.canonical,
      idPrefix,
      encoded: this.encodedProof(transaction, block),
      shard: this.shard,
      finality: certified?.finality ?? new Uint8Array(),
    });
  }

  /** The proof as package ledger encodes it. Each transaction is alone in its bundle. */
  private encodedProof(transaction: Transaction, block: FakeBlock): Uint8Array {
    const { id = new Uint8Array(), index = 0 } = transaction.status ?? {};
    const failed = (other: Transaction): boolean => fails(other.body);
    const idsOf = block.transactions.map((other) => other.status?.id ?? new Uint8Array());
    const results = block.transactions.map((other, i) =>
      concatBytes(idsOf[i] ?? new Uint8Array(), resultOf(failed(other))),
    );
    const path = (leaves: Uint8Array[]): Uint8Array =>
      list(merklePath(index, leaves).map((step) => step.sibling));
    const root = merkleRoot([id]);
    const signer = transaction.body?.signer ?? "";
    const key = keyOf(signer === "" ? "operator" : signer);
    const message = concatBytes(encoder.encode("ledgerd/bundle/1\0"), root);
    return concatBytes(
      new Uint8Array([1]),
      sized(transaction.canonical),
      id,
      sized(block.header.canonical),
      block.header.hash,
      uint32(index),
      uint32(idsOf.length),
      path(idsOf),
      resultOf(failed(transaction)),
      path(results),
      uint32(0),
      uint32(1),
      list([]),
      root,
      list([concatBytes(sized(signer), key.publicKey, key.sign(message))]),
    );
  }

  /** The canonical body of a join, which an operator signs. */
  private join(name: string): Uint8Array {
    const nonce = new Uint8Array([0, this.serial++ % 0x80, 0]);
    const change = concatBytes(new Uint8Array([1]), member(name));
    return concatBytes(new Uint8Array([2]), this.genesis.hash, nonce, change, sized(""));
  }

  /**
   * The certificate of the first certified block at a height or above: every 64th block, each block
   * with a join, and the last one.
   */
  certificate(height: bigint): FakeCertificate | undefined {
    const names = [...this.genesis.members];
    const changes: Uint8Array[] = [];
    const joinOf = (block: FakeBlock): Transaction | undefined =>
      block.transactions.find((each) => each.body?.membershipChange?.change.case === "join");
    for (const block of this.blocks) {
      const join = joinOf(block);
      const { header } = block;
      const certified = join || header.height % 64n === 0n || header.height === this.head;
      const most = Math.floor(names.length / 2) + (this.tooFewSign ? 0 : 1);
      const signers = names.map((_, index) => index).slice(-most);
      if (certified && header.height >= height) {
        const after = height - this.base;
        const encoded = certificate(this.genesis, changes.length, header, names, signers);
        const headers = this.blocks
          .slice(Number(after), Number(header.height - this.base))
          .map((each) => each.header.canonical);
        return { encoded, finality: finality(changes, headers, encoded), header, signers, names };
      }
      if (!join) continue;
      const proof = this.encodedProof(join, block);
      changes.push(certificate(this.genesis, changes.length, header, names, signers, proof));
      const { change } = join.body?.membershipChange ?? {};
      if (change?.case === "join") names.push(change.value.name);
    }
    return undefined;
  }
}

/** Whether a made-up transaction fails: by its note, or as the second occurrence of a schedule. */
const fails = (body: MessageInitShape<typeof TransactionBodySchema> | undefined): boolean =>
  body?.note === "fails" || body?.occurrence?.number === 2;

/** The encoding of a transaction's result: its code, and no item. */
function resultOf(failed: boolean): Uint8Array {
  return concatBytes(new Uint8Array([failed ? 9 : 0]), new Uint8Array(4).fill(255));
}

export function summary(transaction: Transaction): TransactionSummary {
  const body = transaction.body;
  return create(TransactionSummarySchema, {
    ...(transaction.status ? { status: transaction.status } : {}),
    signer: body?.signer ?? "",
    postings: body?.postings.slice(0, 4) ?? [],
    postingCount: body?.postings.length ?? 0,
    recordCount: body?.records.length ?? 0,
    organisationCount: body?.organisations.length ?? 0,
    accountCount: body?.accounts.length ?? 0,
    note: body?.note.slice(0, 200) ?? "",
    ...(body?.membershipChange ? { membershipChange: body.membershipChange } : {}),
    ...(body?.book ? { book: body.book } : {}),
    policy: body?.policy !== undefined,
    ...(body?.hold ? { hold: body.hold } : {}),
    ...(body?.holdEnd ? { holdEnd: body.holdEnd } : {}),
    ...(body?.schedule ? { schedule: body.schedule } : {}),
    ...(body?.scheduleEnd ? { scheduleEnd: body.scheduleEnd } : {}),
    ...(body?.occurrence ? { occurrence: body.occurrence } : {}),
    verdict: transaction.verdict,
    verdictShard: transaction.verdictShard,
    verdictTransactionHex: transaction.verdictTransactionHex,
  });
}
