// The newest blocks of all shards of a book, and where each shard's chain continues.
import type { BlockHeader } from "../gen/ledgerd/v1/proofs_pb";
import { equalBytes } from "./bytes";

export interface ShardHeight {
  shard: number;
  height: bigint;
}

export class BookBlocks {
  /** The shards that do not answer now. */
  silent: readonly number[] = [];
  private kept: BlockHeader[] = [];
  private readonly newest = new Map<number, BlockHeader>();
  /** Where the chains begin of which there is no block here, as a node said. */
  private readonly places = new Map<number, bigint>();

  constructor(private readonly capacity: number) {}

  /**
   * Adds a block. A block that is here already, or comes before those of its shard that are here,
   * is left out. If it does not continue the last one of its shard, the chain has been replaced by
   * another one, and its older blocks are forgotten.
   */
  take(header: BlockHeader): void {
    const last = this.newest.get(header.shard);
    if (last && header.height <= last.height) return;
    if (last && header.height === last.height + 1n && !equalBytes(header.previous, last.hash))
      this.forget(header.shard);
    this.newest.set(header.shard, header);
    this.places.delete(header.shard);
    this.kept.push(header);
    if (this.kept.length >= 2 * this.capacity) this.kept = this.blocks().reverse();
  }

  /** Forgets the blocks of a shard. */
  forget(shard: number): void {
    this.newest.delete(shard);
    this.places.delete(shard);
    this.kept = this.kept.filter((header) => header.shard !== shard);
  }

  /** The height of the newest block of a shard; 0 if there is none here. */
  head(shard: number): bigint {
    return this.newest.get(shard)?.height ?? 0n;
  }

  /** Takes a message without a block: the shards that do not answer, and where chains begin. */
  hear(silent: readonly number[], begin: readonly ShardHeight[]): void {
    this.silent = silent;
    for (const { shard, height } of begin)
      if (!this.newest.has(shard)) this.places.set(shard, height);
  }

  /** Where the chains continue, for those with a block here or a known beginning. */
  begin(): ShardHeight[] {
    return [
      ...[...this.newest.values()].map(({ shard, height }) => ({ shard, height: height + 1n })),
      ...[...this.places].map(([shard, height]) => ({ shard, height })),
    ];
  }

  /** The newest blocks by time, newest first. Those of one shard are in their order. */
  blocks(): BlockHeader[] {
    return this.kept
      .toSorted((a, b) =>
        a.timeMs !== b.timeMs
          ? a.timeMs < b.timeMs
            ? 1
            : -1
          : a.shard !== b.shard
            ? a.shard - b.shard
            : a.height < b.height
              ? 1
              : -1,
      )
      .slice(0, this.capacity);
  }
}
