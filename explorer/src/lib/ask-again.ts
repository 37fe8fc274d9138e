import { sleep } from "./backoff";
import { live } from "./live.svelte";

/**
 * Calls a function again and again, after growing waits, until the returned function is called. It
 * rests while the view is paused or the page is hidden.
 */
export function askAgain(call: () => void): () => void {
  const controller = new AbortController();
  void (async () => {
    for (let wait = 300; !controller.signal.aborted; wait = Math.min(wait * 1.5, 5000)) {
      await sleep(wait, controller.signal);
      if (!controller.signal.aborted && !live.paused && document.visibilityState === "visible")
        call();
    }
  })();
  return () => controller.abort();
}
