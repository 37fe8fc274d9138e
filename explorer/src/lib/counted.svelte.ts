import { untrack } from "svelte";
import { api, callTimeoutMs } from "./api";
import { sleep } from "./backoff";
import { periodsShown, type ShardFigures } from "./figures";
import { live } from "./live.svelte";
import { inShard } from "./shards";

const againMs = 10_000;
/** While a node still counts, each question makes it count some more. */
const onMs = 200;

/** How many periods to ask for, and whether for the crossings in them. */
interface Wanted {
  hours?: number;
  days?: number;
  months?: number;
  crossings?: boolean;
}

/**
 * What the nodes of all shards, or of one, have counted. Create it during a component's
 * initialisation. It asks now and then while the page is looked at.
 */
export class Counted {
  shards = $state.raw<readonly ShardFigures[]>();
  /** What the answers are to. Those to another question are dropped. */
  private answered = "";

  constructor(
    only: () => number | undefined = () => undefined,
    private readonly wanted: () => Wanted = () => periodsShown,
  ) {
    const numbers = $derived(
      only() !== undefined
        ? String(only())
        : (live.tree?.shards.map(({ shard }) => shard).join() ?? ""),
    );
    $effect(() => {
      if (!live.seeded) return;
      const asked = numbers === "" ? [undefined] : numbers.split(",").map(Number);
      const wanted = this.wanted();
      const controller = new AbortController();
      untrack(() => {
        const words = JSON.stringify(wanted);
        if (words !== this.answered) this.shards = undefined;
        this.answered = words;
        void this.run(asked, wanted, controller.signal);
      });
      return () => controller.abort();
    });
  }

  private async run(
    asked: readonly (number | undefined)[],
    wanted: Wanted,
    signal: AbortSignal,
  ): Promise<void> {
    while (!signal.aborted) {
      const answers = await Promise.allSettled(
        asked.map((shard) =>
          api.getFigures({ ...inShard(shard), ...wanted }, { signal, timeoutMs: callTimeoutMs }),
        ),
      );
      if (signal.aborted) return;
      this.shards = answers.map((answer, i) => ({
        shard: asked[i] ?? 0,
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
