import { untrack } from "svelte";
import { api, callTimeoutMs } from "./api";
import { sleep } from "./backoff";
import { periodsShown, type ShardFigures } from "./figures";
import { live } from "./live.svelte";
import { inShard } from "./shards";

const againMs = 10_000;
/** While a node still counts, each question makes it count some more. */
const onMs = 200;

/**
 * What the nodes of all shards, or of one, have counted. Create it during a component's
 * initialisation. It asks now and then while the page is looked at.
 */
export class Counted {
  shards = $state.raw<readonly ShardFigures[]>();

  constructor(
    only: () => number | undefined = () => undefined,
    private readonly also: { crossings?: boolean } = {},
  ) {
    const numbers = $derived(
      only() !== undefined
        ? String(only())
        : (live.tree?.shards.map(({ shard }) => shard).join() ?? ""),
    );
    $effect(() => {
      if (!live.seeded) return;
      const wanted = numbers === "" ? [undefined] : numbers.split(",").map(Number);
      const controller = new AbortController();
      untrack(() => void this.run(wanted, controller.signal));
      return () => controller.abort();
    });
  }

  private async run(wanted: readonly (number | undefined)[], signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const answers = await Promise.allSettled(
        wanted.map((shard) =>
          api.getFigures(
            { ...inShard(shard), ...periodsShown, ...this.also },
            { signal, timeoutMs: callTimeoutMs },
          ),
        ),
      );
      if (signal.aborted) return;
      this.shards = answers.map((answer, i) => ({
        shard: wanted[i] ?? 0,
        answer: answer.status === "fulfilled" ? answer.value : undefined,
      }));
      const counting = this.shards.some(
        ({ answer }) => answer && answer.countedHeight < answer.headHeight - 100n,
      );
      do await sleep(counting ? onMs : againMs, signal);
      while (!signal.aborted && (live.paused || document.visibilityState === "hidden"));
    }
  }
}
