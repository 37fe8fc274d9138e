// The genesis that the node gives. The browser remembers the hash of the first genesis that it saw
// of each chain at this address, as ssh remembers the key of a host.
import { api, callTimeoutMs } from "./api";
import { toHex } from "./bytes";
import { decodeGenesis, type Genesis } from "./genesis";
import type { Decoded } from "./reader";

export interface KnownGenesis {
  genesis: Genesis;
  hashHex: string;
  /** The hash that this browser saw first, if it is another one. */
  before: string;
}

/** Fetches the genesis of a shard's chain from the node. The rest is checked here. */
export async function loadGenesis(
  shard: number,
  signal: AbortSignal,
): Promise<Decoded<KnownGenesis>> {
  const { canonical } = await api.getGenesis({ shard }, { signal, timeoutMs: callTimeoutMs });
  const decoded = await decodeGenesis(canonical);
  if (decoded.problem !== undefined)
    return { problem: `the node's genesis cannot be read: ${decoded.problem}` };
  const genesis = decoded.value;
  if (genesis.shard !== shard) return { problem: "the node's genesis is of another shard" };
  const hashHex = toHex(genesis.hash);
  const first = firstSeen(shard, hashHex);
  return { value: { genesis, hashHex, before: first === hashHex ? "" : first } };
}

const storageKey = (shard: number): string => `ledgerd.genesis.${shard}`;

/** Returns the hash that this browser saw first, which is the given one if it has seen none. */
function firstSeen(shard: number, hashHex: string): string {
  try {
    const before = localStorage.getItem(storageKey(shard));
    if (before !== null && /^[0-9a-f]{64}$/.test(before)) return before;
  } catch {
    return hashHex; // Storage is forbidden here. The browser remembers nothing.
  }
  rememberGenesis(shard, hashHex);
  return hashHex;
}

/** Remembers a genesis in the place of the one that this browser saw first. */
export function rememberGenesis(shard: number, hashHex: string): void {
  try {
    localStorage.setItem(storageKey(shard), hashHex);
  } catch {
    // Storage is forbidden or full.
  }
}
