// The tree of a book's shards at a place in the past. Where the shards hung follows from the
// genesis and from the changes of the book in the root's chain. How far their streams were is in
// the places of then.
import { create } from "@bufbuild/protobuf";
import type { GetCutResponse } from "../gen/ledgerd/v1/cut_pb";
import {
  TreeSchema,
  type Tree,
  type TransactionSummary,
} from "../gen/ledgerd/v1/ledgerd_pb";
import { appliedUntil, genesisOf } from "./members-then";
import type { Then } from "./open-then";
import { walk } from "./shards";

export interface BookChangeThen {
  height: bigint;
  timeMs: bigint;
  transaction: TransactionSummary;
}

export interface TreeThen {
  tree: Tree;
  /** Shards that the operators had settled with: they were lost. */
  lost: readonly number[];
  /** The changes of the book up to then that were found, the newest first. */
  changes: readonly BookChangeThen[];
  /** Whether the look was through all blocks of the root up to then. */
  complete: boolean;
}

export async function treeThen(
  then: Then,
  { places, root }: GetCutResponse,
  signal: AbortSignal,
): Promise<TreeThen> {
  // The genesis of the last shard has all that were added before it.
  const [genesis, { changes, complete }] = await Promise.all([
    genesisOf(places.length - 1, signal),
    bookChangesThen(then, root, signal),
  ]);
  const parents = [...genesis.parents];
  const lost = new Set<number>();
  for (const { transaction } of changes.toReversed()) {
    const change = transaction.book?.change;
    if (change?.case === "rehang") parents[change.value.shard] = change.value.parent;
    else if (change?.case === "lostShard") lost.add(change.value);
  }
  const childrenOf = (parent: number): number[] =>
    places.flatMap((_, child) => (child !== root && parents[child] === parent ? [child] : []));
  const tree = create(TreeSchema, {
    shards: places.map(({ height, entries, carried, streamed }, shard) => ({
      shard,
      parent: shard === root ? 0 : (parents[shard] ?? root),
      root: shard === root,
      mode: lost.has(shard) ? "lost" : "",
      height: height + (entries > 0 ? 1n : 0n),
      carried: sinceBase(carried),
      streams: childrenOf(shard).map((child, i) => ({
        child,
        streamed: sinceBase(streamed[i] ?? 0n),
        carried: carriedOf(streamed[i] ?? 0n, places[child]?.carried ?? 0n),
      })),
    })),
  });
  return {
    tree,
    lost: [...lost].sort((a, b) => a - b),
    changes,
    complete,
  };
}

/** The changes of the book in the root's chain up to then, the newest first. */
export async function bookChangesThen(
  then: Then,
  root: number,
  signal: AbortSignal,
): Promise<Pick<TreeThen, "changes" | "complete">> {
  const { found, complete } = await appliedUntil(then, "book", root, signal);
  const changes = found.map(({ transaction, timeMs }) => ({
    height: transaction.status?.height ?? 0n,
    timeMs,
    transaction,
  }));
  return { changes: changes.reverse(), complete };
}

/** The shape of a tree: a shard, then its children in brackets. */
export function shapeOf(tree: Pick<Tree, "shards">): string {
  const nodes = new Map(walk(tree.shards).map((node) => [node.shard, node]));
  const shape = (shard: number): string => {
    const children = (nodes.get(shard)?.children ?? []).map(shape);
    return children.length === 0 ? String(shard) : `${shard}(${children.join(",")})`;
  };
  const root = tree.shards.find((shard) => shard.root);
  return root ? shape(root.shard) : "";
}

/** So many bits of an entry's number count the entries since its stream began. */
const streamBits = 40n;
const sinceBase = (number: bigint): bigint => number & ((1n << streamBits) - 1n);

/** How many entries a child has of its stream; none while it takes those of an earlier one. */
function carriedOf(streamed: bigint, carried: bigint): bigint {
  return carried >> streamBits < streamed >> streamBits ? 0n : sinceBase(carried);
}
