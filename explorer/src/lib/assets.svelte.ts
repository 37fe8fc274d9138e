// The decimals of registered assets, as the node says. A page asks once for each asset that it
// shows, and again after a while for a name that was not registered. Decimals never change.
import { Code, ConnectError } from "@connectrpc/connect";
import { SvelteMap } from "svelte/reactivity";
import { api, callTimeoutMs } from "./api";

const againMs = 30_000;
const maxKnown = 4096;

interface Known {
  /** Undefined while the node is asked. */
  decimals: number | undefined;
  registered: boolean;
  askedMs: number;
}

const known = new SvelteMap<string, Known>();

/**
 * Returns what is known of an asset, and asks the node if nothing is. Call it where a change of the
 * answer is to be seen, and not while something is derived.
 */
export function ask(name: string): void {
  const before = known.get(name);
  if (name === "" || name === "unit" || before?.registered) return;
  if (before && Date.now() - before.askedMs < againMs) return;
  if (known.size >= maxKnown) known.clear();
  known.set(name, { decimals: before?.decimals, registered: false, askedMs: Date.now() });
  void api
    .getAsset({ name }, { timeoutMs: callTimeoutMs })
    .then(
      ({ asset }) => asset?.terms?.decimals,
      // A node that does not know it, or of a version without assets, has whole numbers.
      (error: unknown) =>
        [Code.NotFound, Code.Unimplemented].includes(ConnectError.from(error).code)
          ? undefined
          : -1,
    )
    .then((decimals) => {
      if (decimals === -1) known.delete(name);
      else
        known.set(name, {
          decimals: decimals ?? 0,
          registered: decimals !== undefined,
          askedMs: Date.now(),
        });
    });
}

/** The decimals of an asset that are known by now; 0 for any other. */
export function decimalsOf(name: string): number {
  return known.get(name)?.decimals ?? 0;
}

export function isRegistered(name: string): boolean {
  return known.get(name)?.registered ?? false;
}

/** Whether the node has not answered yet, so an amount may still get decimals. */
export function isAsked(name: string): boolean {
  const found = known.get(name);
  return found !== undefined && found.decimals === undefined;
}
