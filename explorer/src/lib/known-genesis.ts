// The genesis that a node gives, and what the reader knows of it. The browser remembers the hash of
// the first genesis that it saw of each chain at this address, as ssh remembers the key of a host.
// The node that serves the page gave that one, too. So a check ends at a genesis that the reader
// can trust only once the reader has compared it with a hash from elsewhere, and confirmed it.
import { api, callTimeoutMs } from "./api";
import { toHex } from "./bytes";
import { decodeGenesis, type Genesis } from "./genesis";
import type { Decoded } from "./reader";

export interface KnownGenesis {
  genesis: Genesis;
  hashHex: string;
  /** The hash of the book; that of the genesis in a book of one shard. */
  bookHex: string;
  /** The hash that this browser saw first, if it is another one. */
  before: string;
  /** Whether the reader confirmed it, or its book if that covers it. */
  confirmed: boolean;
}

/** Fetches the genesis of a shard's chain from the node. The rest is checked here. */
export async function loadGenesis(
  shard: number,
  signal: AbortSignal,
): Promise<Decoded<KnownGenesis>> {
  const { canonical } = await api.getGenesis({ shard }, { signal, timeoutMs: callTimeoutMs });
  return await knownGenesis(canonical, shard);
}

/** Reads a node's genesis of a shard, and says what this browser knows of it. */
export async function knownGenesis(
  canonical: Uint8Array,
  shard: number,
): Promise<Decoded<KnownGenesis>> {
  const decoded = await decodeGenesis(canonical);
  if (decoded.problem !== undefined)
    return { problem: `the node's genesis cannot be read: ${decoded.problem}` };
  const genesis = decoded.value;
  if (genesis.shard !== shard) return { problem: "the node's genesis is of another shard" };
  const hashHex = toHex(genesis.hash);
  const first = firstSeen(shard, hashHex);
  return {
    value: {
      genesis,
      hashHex,
      bookHex: toHex(genesis.book),
      before: first === hashHex ? "" : first,
      confirmed: isConfirmed(genesis),
    },
  };
}

const isHash = (text: unknown): text is string =>
  typeof text === "string" && /^[0-9a-f]{64}$/.test(text);

const storageKey = (shard: number): string => `ledgerd.genesis.${shard}`;

/** Returns the hash that this browser saw first, which is the given one if it has seen none. */
function firstSeen(shard: number, hashHex: string): string {
  try {
    const before = localStorage.getItem(storageKey(shard));
    if (isHash(before)) return before;
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

const confirmedKey = "ledgerd.confirmed";
const maxConfirmed = 64;
/** Those of this page, for browsers that may store nothing. */
let confirmedHere: readonly string[] = [];

/** The hashes of geneses and books that the reader confirmed, the newest first. */
function confirmedHashes(): readonly string[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(confirmedKey) ?? "[]");
    if (Array.isArray(stored)) return [...stored.filter(isHash).slice(0, maxConfirmed)];
  } catch {
    // Storage is forbidden, or another program wrote there.
  }
  return confirmedHere;
}

/** Whether the reader confirmed a genesis, or the book if that covers the members of the chain. */
export function isConfirmed(genesis: Genesis): boolean {
  const hashes = confirmedHashes();
  return (
    hashes.includes(toHex(genesis.hash)) ||
    (!genesis.grown && hashes.includes(toHex(genesis.book)))
  );
}

/**
 * Keeps that the reader confirmed a genesis. With it the reader confirms the book if that covers
 * the members, and so the chains of the other first shards.
 */
export function confirmGenesis(known: KnownGenesis): void {
  const hashes = known.genesis.grown ? [known.hashHex] : [known.hashHex, known.bookHex];
  keep([...new Set([...hashes, ...confirmedHashes()])].slice(0, maxConfirmed));
  rememberGenesis(known.genesis.shard, known.hashHex);
}

/** Forgets that the reader confirmed a genesis and its book. */
export function doubtGenesis(known: KnownGenesis): void {
  keep(confirmedHashes().filter((hash) => hash !== known.hashHex && hash !== known.bookHex));
}

function keep(hashes: readonly string[]): void {
  confirmedHere = hashes;
  try {
    localStorage.setItem(confirmedKey, JSON.stringify(hashes));
  } catch {
    // Storage is forbidden or full: it holds for this page.
  }
}

/** How a typed hash compares with a genesis: empty while it is no hash of 64 digits. */
export function compareHash(typed: string, known: KnownGenesis): "" | "same" | "other" {
  const hash = typed.trim().toLowerCase();
  if (!isHash(hash)) return "";
  const same = hash === known.hashHex || (!known.genesis.grown && hash === known.bookHex);
  return same ? "same" : "other";
}
