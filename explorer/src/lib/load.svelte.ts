import { untrack } from "svelte";
import { explain, type Problem } from "./api";
import { live } from "./live.svelte";

const unansweredAgainMs = 2_000;

/**
 * A value that a page loads from the node. Create it during a component's initialisation, with a
 * function that reads its dependencies before its first await. When a dependency changes, the value
 * is loaded again, and the older call is cancelled. The older value stays until the newer one
 * arrives, so the page does not jump. A load that failed because the node was away is retried when
 * the node is back. A load that a shard did not answer is retried after unansweredAgainMs.
 */
export class Load<T> {
  value = $state.raw<T>();
  problem = $state.raw<Problem>();
  busy = $state(true);
  private turn = $state(0);

  constructor(fetcher: (signal: AbortSignal) => Promise<T>) {
    $effect(() => {
      void this.turn;
      const controller = new AbortController();
      const promise = fetcher(controller.signal);
      untrack(() => void this.settle(promise, controller.signal));
      return () => controller.abort();
    });
    $effect(() => {
      void live.links;
      untrack(() => {
        if (this.problem?.kind === "unreachable") this.again();
      });
    });
    $effect(() => {
      if (this.problem?.kind !== "unanswered" || this.busy) return;
      const timer = setTimeout(() => this.again(), unansweredAgainMs);
      return () => clearTimeout(timer);
    });
  }

  again(): void {
    this.turn++;
  }

  private async settle(promise: Promise<T>, signal: AbortSignal): Promise<void> {
    this.busy = true;
    try {
      const value = await promise;
      if (signal.aborted) return;
      this.value = value;
      this.problem = undefined;
    } catch (error) {
      if (signal.aborted) return;
      this.value = undefined;
      this.problem = explain(error);
    }
    this.busy = false;
  }
}
