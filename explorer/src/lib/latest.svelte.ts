// The newest transactions for the overview, without the verdicts of other shards. They come from
// the newest blocks, with at most a few requests at a time, however fast the chain grows.
import type { BlockHeader, TransactionSummary } from "../gen/ledgerd/v1/ledgerd_pb";
import { api, callTimeoutMs } from "./api";

const blocksAtOnce = 3;

export class LatestTransactions {
  rows = $state.raw<readonly TransactionSummary[]>([]);
  /** False until the first answer. */
  loaded = $state(false);
  private seen = 0n;
  private busy = false;

  constructor(private readonly most: number) {}

  /**
   * Adds the blocks' transactions that are not here yet. The blocks come newest first. While a
   * refresh runs, another one does nothing.
   */
  async refresh(blocks: readonly BlockHeader[], signal: AbortSignal): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    try {
      const wanted: BlockHeader[] = [];
      let count = 0;
      for (const block of blocks) {
        if (block.height <= this.seen || wanted.length >= blocksAtOnce * (this.loaded ? 1 : 4) || count >= this.most) break;
        if (block.transactionCount === 0) continue;
        wanted.push(block);
        count += block.transactionCount;
      }
      const fresh: TransactionSummary[] = [];
      for (let i = 0; i < wanted.length; i += blocksAtOnce) {
        const answers = await Promise.all(
          wanted.slice(i, i + blocksAtOnce).map((block) => api.getBlock({ block: { case: "height", value: block.height }, pageSize: this.most }, { signal, timeoutMs: callTimeoutMs })),
        );
        for (const answer of answers) fresh.push(...(answer.block?.transactions ?? []).filter((row) => row.verdict === "").toReversed());
      }
      this.seen = blocks[0]?.height ?? this.seen;
      if (fresh.length > 0) {
        const ids = new Set(fresh.map((row) => row.status?.idHex));
        this.rows = [...fresh, ...this.rows.filter((row) => !ids.has(row.status?.idHex))].slice(0, this.most);
      }
      this.loaded = true;
    } catch {
      // The link's banner shows the problem. The next refresh tries again.
    } finally {
      this.busy = false;
    }
  }

  /** Starts again after the chain was replaced by another one. */
  forget(): void {
    this.rows = [];
    this.seen = 0n;
  }
}
