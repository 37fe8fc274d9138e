// A small made-up chain in memory, with real hashes and real Merkle proofs. The tests use it, and
// it shows the pages without a node.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { createHash } from "node:crypto";
import {
  BlockHeaderSchema,
  Level,
  ProofSchema,
  TransactionSchema,
  TransactionState,
  TransactionStatusSchema,
  TransactionSummarySchema,
  type BlockHeader,
  type Proof,
  type Transaction,
  type TransactionBodySchema,
  type TransactionSummary,
} from "../src/gen/ledgerd/v1/ledgerd_pb";
import { concatBytes, toHex } from "../src/lib/bytes";

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

export class FakeChain {
  readonly blocks: FakeBlock[] = [];
  readonly byId = new Map<string, Transaction>();
  readonly genesis = hash(encoder.encode("genesis"));
  private serial = 0;

  /** The chain begins above the height `base`, so a short chain can have large heights. */
  constructor(
    readonly base = 0n,
    readonly shard = 0,
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
    const previous = this.blocks.at(-1)?.header.hash ?? this.genesis;
    const canonicals = bodies.map((body) =>
      encoder.encode(
        JSON.stringify({
          shard: this.shard,
          serial: this.serial++,
          signer: body.signer,
          note: body.note,
        }),
      ),
    );
    const ids = canonicals.map((canonical) => hash(idPrefix, canonical));
    const root = merkleRoot(ids);
    const start = encoder.encode(`height ${height.toString().padStart(12, "0")} `);
    const canonical = concatBytes(start, previous, root, encoder.encode(` time ${timeMs}`));
    const blockHash = hash(blockPrefix, canonical);
    const failedCount = bodies.filter((body) => body.note === "fails").length;
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
      resultsRoot: hash(root),
      stateDigest: hash(hash(root)),
      transactionCount: bodies.length,
      failedCount,
      sizeBytes: BigInt(220 * bodies.length + 180),
      level: Level.ORDERED,
      canonical,
      shard: this.shard,
    });
    const transactions = bodies.map((body, index) => {
      const id = ids[index] as Uint8Array;
      const failed = body.note === "fails";
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
        signatures: verdict
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
    return create(ProofSchema, {
      transactionId: transaction.status.id,
      leafData: transaction.status.id,
      leafIndex: BigInt(transaction.status.index),
      treeSize: BigInt(ids.length),
      path: merklePath(transaction.status.index, ids),
      transactionsRoot: block.header.transactionsRoot,
      header: block.header,
      rootOffset: 20 + 32,
      hashPrefix: blockPrefix,
      canonicalTransaction: transaction.canonical,
      idPrefix,
    });
  }
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
    verdict: transaction.verdict,
    verdictShard: transaction.verdictShard,
    verdictTransactionHex: transaction.verdictTransactionHex,
  });
}
