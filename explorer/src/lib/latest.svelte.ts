// The newest transactions for the overview, without the verdicts of other shards. They come from
// the newest blocks, with at most a few requests at a time, however fast the chain grows.
import type { TransactionSummary } from "../gen/ledgerd/v1/ledgerd_pb";
import type { BlockHeader } from "../gen/ledgerd/v1/proofs_pb";
import { api, callTimeoutMs } from "./api";
import { equalBytes } from "./bytes";

const blocksAtOnce = 3;

export class LatestTransactions {
  rows = $state.raw<readonly TransactionSummary[]>([]);
  /** False until the first answer for this chain. */
  loaded = $state(false);
  /** The newest block whose transactions are here, or were left out because there are enough. */
  private seen: BlockHeader | undefined;
  private busy = false;

  constructor(private readonly most: number) {}

  /**
   * Adds the blocks' transactions that are not here yet. The blocks come newest first. If they do
   * not continue the blocks seen before, the chain may have been replaced by another one, and the
   * list begins again. While a refresh runs, another one does nothing.
   */
  async refresh(blocks: readonly BlockHeader[], signal: AbortSignal): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    if (!this.continues(blocks)) this.forget();
    try {
      const wanted: BlockHeader[] = [];
      let count = 0;
      for (const block of blocks) {
        if (
          (this.seen && block.height <= this.seen.height) ||
          wanted.length >= blocksAtOnce * (this.seen ? 1 : 4) ||
          count >= this.most
        )
          break;
        if (block.transactionCount === 0) continue;
        wanted.push(block);
        count += block.transactionCount;
      }
      const fresh: TransactionSummary[] = [];
      for (let i = 0; i < wanted.length; i += blocksAtOnce) {
        const answers = await Promise.all(
          wanted
            .slice(i, i + blocksAtOnce)
            .map((block) =>
              api.getBlock(
                { block: { case: "height", value: block.height }, pageSize: this.most },
                { signal, timeoutMs: callTimeoutMs },
              ),
            ),
        );
        for (const answer of answers)
          fresh.push(
            ...(answer.block?.transactions ?? []).filter((row) => row.verdict === "").toReversed(),
          );
      }
      this.seen = blocks[0] ?? this.seen;
      if (fresh.length > 0) {
        const ids = new Set(fresh.map((row) => row.status?.idHex));
        this.rows = [...fresh, ...this.rows.filter((row) => !ids.has(row.status?.idHex))].slice(
          0,
          this.most,
        );
      }
      this.loaded = true;
    } catch {
      // The link's banner shows the problem. The next refresh tries again.
    } finally {
      this.busy = false;
    }
  }

  /** Whether the blocks contain the newest block seen. */
  private continues(blocks: readonly BlockHeader[]): boolean {
    const { seen } = this;
    return (
      seen === undefined ||
      blocks.some((block) => block.height === seen.height && equalBytes(block.hash, seen.hash))
    );
  }

  private forget(): void {
    this.rows = [];
    this.loaded = false;
    this.seen = undefined;
  }
}
