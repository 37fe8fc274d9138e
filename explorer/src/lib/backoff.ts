/**
 * The wait before an attempt, in milliseconds. It doubles from half a second to ten seconds. A
 * random part keeps pages from reconnecting at the same moment.
 */
export function backoffMs(attempt: number, random: () => number = Math.random): number {
  const most = Math.min(10_000, 500 * 2 ** Math.min(attempt, 10));
  return Math.round(most * (0.75 + 0.25 * random()));
}

/** Waits. It ends early, without an error, when the signal aborts. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done);
  });
}
