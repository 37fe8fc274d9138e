// The decimals of registered assets, as the node says. A page asks once for all assets that it
// shows, and again after a while for names that were not registered. Decimals never change.
import { SvelteMap } from "svelte/reactivity";
import { Code, ConnectError } from "@connectrpc/connect";
import { api, callTimeoutMs } from "./api";

const againMs = 30_000;
const maxKnown = 4096;
/** How many names the node takes at once. */
const maxNames = 100;

interface Known {
  /** Undefined while the node is asked. */
  decimals: number | undefined;
  registered: boolean;
  askedMs: number;
}

const known = new SvelteMap<string, Known>();
let waiting: string[] = [];

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
  waiting.push(name);
  // All names of a page come in one turn, and are asked for together.
  if (waiting.length === 1) setTimeout(askWaiting);
}

function askWaiting(): void {
  const all = waiting;
  waiting = [];
  for (let first = 0; first < all.length; first += maxNames)
    void askFor(all.slice(first, first + maxNames));
}

async function askNode(names: string[], signal?: AbortSignal): Promise<Map<string, number>> {
  const options = { timeoutMs: callTimeoutMs, ...(signal ? { signal } : {}) };
  const { assets } = await api.listAssets({ names }, options);
  return new Map(assets.map((asset) => [asset.name, asset.terms?.decimals ?? 0]));
}

async function askFor(names: string[]): Promise<void> {
  let registered = new Map<string, number>();
  try {
    registered = await askNode(names);
  } catch (error) {
    // A node of a version without assets has whole numbers.
    if (ConnectError.from(error).code !== Code.Unimplemented) {
      for (const name of names) known.delete(name);
      return;
    }
  }
  for (const name of names) {
    const decimals = registered.get(name);
    known.set(name, {
      decimals: decimals ?? 0,
      registered: decimals !== undefined,
      askedMs: Date.now(),
    });
  }
}

/** Asks the node for the decimals of assets, for a file. */
export async function decimalsFor(
  names: readonly string[],
  signal: AbortSignal,
): Promise<(name: string) => number> {
  const all = names.filter((name) => name !== "" && name !== "unit");
  const found = new Map<string, number>();
  for (let first = 0; first < all.length; first += maxNames)
    for (const [name, decimals] of await askNode(all.slice(first, first + maxNames), signal))
      found.set(name, decimals);
  return (name) => found.get(name) ?? 0;
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
