// The newest blocks of a shard. Those of the node's own shard come over the link's stream. Those of
// another shard are requested again and again.
import type { BlockHeader } from "../gen/ledgerd/v1/proofs_pb";
import { api, callTimeoutMs, type Problem } from "./api";
import { live } from "./live.svelte";
import { Load } from "./load.svelte";
import { inShard } from "./shards";

export const askEveryMs = 1_000;

/**
 * Counts up at an interval while the page is visible and not paused, and `wanted` returns true. It
 * is for data without a stream. Create it during a component's initialisation.
 */
export class Turns {
  count = $state(0);

  constructor(everyMs: number, wanted: () => boolean) {
    $effect(() => {
      if (!wanted()) return;
      const timer = setInterval(() => {
        if (!live.paused && live.connection === "live" && document.visibilityState === "visible")
          this.count++;
      }, everyMs);
      return () => clearInterval(timer);
    });
  }
}

export class NewestBlocks {
  private load: Load<readonly BlockHeader[]> | undefined = $state.raw();
  readonly rows: readonly BlockHeader[] = $derived.by(() =>
    live.elsewhere(this.shard()) ? this.asked() : live.blocks.slice(0, this.most),
  );
  readonly seeded: boolean = $derived.by(() =>
    live.elsewhere(this.shard())
      ? this.load?.value !== undefined && this.of === this.shard()
      : live.seeded,
  );
  readonly problem: Problem | undefined = $derived.by(() =>
    live.elsewhere(this.shard()) ? this.load?.problem : undefined,
  );
  /** The shard whose blocks the load's value has. */
  private of = $state<number>();

  /**
   * Follows the blocks of a shard; undefined stands for the node's own. While `wanted` returns
   * false nothing is requested. Create it during a component's initialisation.
   */
  constructor(
    private readonly shard: () => number | undefined,
    private readonly most: number,
    wanted: () => boolean = () => true,
  ) {
    // The next request waits for the last answer, which takes long if a shard does not answer.
    const turns = new Turns(
      askEveryMs,
      () => live.elsewhere(shard()) && wanted() && this.load?.busy === false,
    );
    this.load = new Load(async (signal) => {
      const asked = shard();
      void turns.count;
      if (!live.elsewhere(asked) || !wanted()) return [];
      const { blocks } = await api.listBlocks(
        { pageSize: most, ...inShard(asked) },
        { signal, timeoutMs: callTimeoutMs },
      );
      this.of = asked;
      return blocks;
    });
  }

  private asked(): readonly BlockHeader[] {
    return this.of === this.shard() ? (this.load?.value ?? []) : [];
  }

  again(): void {
    this.load?.again();
  }
}
