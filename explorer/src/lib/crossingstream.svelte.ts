// What crosses now: the blocks of all shards as they come, with their transactions.
import { untrack } from "svelte";
import { api } from "./api";
import { backoffMs, sleep } from "./backoff";
import { movesIn, type Crossing, type Move } from "./crossings";
import { live } from "./live.svelte";

/** How many of the last crossings are kept, and how many marks move at the same time. */
export const crossingsKept = 10;
export const marksMost = 60;
/** A block this old is not shown as if it came now. */
const staleMs = 8_000;
/** After so many of them the stream begins again with what comes next. */
const staleMost = 100;

export interface Mark extends Move {
  key: number;
}

/**
 * Watches the book while the page is visible and not paused. Create it during a component's
 * initialisation.
 */
export class CrossingStream {
  /** The newest first. */
  latest = $state.raw<readonly Crossing[]>([]);
  /** What moves on the map now. It stays empty if the reader wants no motion. */
  marks = $state.raw<readonly Mark[]>([]);
  /** Whether the book moves too fast for this page, which then leaves blocks out. */
  skips = $state(false);
  private serial = 0;

  constructor() {
    const shape = $derived(
      (live.tree?.shards ?? [])
        .map(({ shard, parent, root }) => `${shard} ${root ? "" : parent}`)
        .join(),
    );
    $effect(() => {
      if (!live.seeded || live.paused || shape === "") return;
      const parents = new Map(
        shape.split(",").map((text): [number, number | undefined] => {
          const [shard, parent] = text.split(" ");
          return [Number(shard), parent ? Number(parent) : undefined];
        }),
      );
      let controller = new AbortController();
      const look = (): void => {
        controller.abort();
        controller = new AbortController();
        if (document.visibilityState === "visible")
          untrack(() => void this.run(parents, controller.signal));
      };
      document.addEventListener("visibilitychange", look);
      look();
      return () => {
        document.removeEventListener("visibilitychange", look);
        controller.abort();
      };
    });
  }

  ended(key: number): void {
    this.marks = this.marks.filter((mark) => mark.key !== key);
  }

  private async run(
    parents: ReadonlyMap<number, number | undefined>,
    signal: AbortSignal,
  ): Promise<void> {
    this.marks = [];
    for (let attempt = 0; !signal.aborted; attempt++) {
      try {
        await this.follow(parents, signal);
      } catch {
        // The header says that the node does not answer. This stream begins again.
      }
      await sleep(backoffMs(Math.min(attempt, 4)), signal);
    }
  }

  private async follow(
    parents: ReadonlyMap<number, number | undefined>,
    signal: AbortSignal,
  ): Promise<void> {
    let stale = 0;
    const request = { book: true, withTransactions: true };
    for await (const { block } of api.subscribe(request, { signal })) {
      const header = block?.header;
      if (!header) continue;
      this.skips = live.nowMs - Number(header.timeMs) > staleMs;
      if (this.skips && ++stale > staleMost) return;
      if (this.skips) continue;
      const { moves, crossings } = movesIn(
        header.shard,
        block.transactions,
        header.timeMs,
        parents,
      );
      if (crossings.length > 0)
        this.latest = [...crossings.reverse(), ...this.latest].slice(0, crossingsKept);
      if (
        moves.length > 0 &&
        !window.matchMedia("(prefers-reduced-motion: reduce)").matches &&
        this.marks.length < marksMost
      )
        this.marks = [
          ...this.marks,
          ...moves.map((move) => ({ ...move, key: this.serial++ })),
        ].slice(0, marksMost);
    }
  }
}
