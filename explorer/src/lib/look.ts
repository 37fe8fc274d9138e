// Looks through recent blocks for what no node keeps an index of: the notes and amounts of
// transactions. Each look is bounded, says which blocks it covered, and can go on before them.
// Blocks at a moment are found exactly, since blocks of a chain never become younger.
import { Code, ConnectError } from "@connectrpc/connect";
import type { TransactionSummary } from "../gen/ledgerd/v1/ledgerd_pb";
import type { BlockHeader } from "../gen/ledgerd/v1/proofs_pb";
import { api, callTimeoutMs } from "./api";
import { parseAmount, type TypedAmount } from "./moment";
import { inShard, passesThrough } from "./shards";

/** How many blocks of each shard one look covers, how long it may take, and what it keeps. */
export const blocksInLook = 500n;
export const lookTimeoutMs = 15_000;
export const maxFound = 200;
/** A node's summaries of a block have so many transactions, and of a note so many bytes. */
export const summariesInBlock = 1000;

/** Blocks of a shard's chain, both ends included. */
export interface Range {
  shard: number;
  from: bigint;
  to: bigint;
}

export interface Found {
  transaction: TransactionSummary;
  shard: number;
  timeMs: bigint;
  where: "note" | "amount";
}

export interface Looked {
  /** The newest first, at most maxFound. */
  found: readonly Found[];
  /** How many transactions were found, if more than there is room for. */
  count: number;
  /** The blocks that were looked through. */
  ranges: readonly Range[];
  /** Transactions of users that were looked at. */
  transactions: number;
  /** Blocks with more transactions than a summary has: the rest was not looked at. */
  clipped: number;
  /** Shards whose blocks did not come. */
  unanswered: readonly number[];
}

/**
 * Whether an amount of the smallest unit is what was typed, for an asset with so many decimals.
 * Typed without a point, it may be of the smallest unit or of the whole one. A typed decimal that
 * the asset does not have is no match, unless it is zero.
 */
function isTyped(digits: string, typed: TypedAmount, decimals: number): boolean {
  if (typed.decimals === 0 && digits === typed.digits) return true;
  const beyond = typed.decimals - decimals;
  if (beyond <= 0) return digits === (typed.digits + "0".repeat(-beyond)).replace(/^0+(?=\d)/, "");
  return digits + "0".repeat(beyond) === typed.digits || (digits === "0" && typed.digits === "0");
}

/** Whether isTyped holds for any number of decimals. */
function mayBeTyped(digits: string, typed: TypedAmount): boolean {
  return digits.replace(/0+$/, "") === typed.digits.replace(/0+$/, "");
}

/**
 * Returns where a transaction has the text or the amount; undefined if it has neither. Without
 * decimals of the assets it returns where the transaction may have them.
 */
export function matches(
  transaction: Pick<TransactionSummary, "note" | "postings" | "verdict">,
  wanted: string,
  amount: TypedAmount | undefined = parseAmount(wanted),
  decimals?: ReadonlyMap<string, number>,
): "note" | "amount" | undefined {
  if (transaction.verdict !== "" || wanted === "") return undefined;
  if (
    amount &&
    transaction.postings.some(
      (posting) =>
        (decimals
          ? isTyped(posting.amount.replace(/^-/, ""), amount, decimals.get(posting.asset) ?? 0)
          : mayBeTyped(posting.amount.replace(/^-/, ""), amount)) &&
        (amount.asset === undefined ||
          (posting.asset || "unit").toLowerCase() === amount.asset.toLowerCase()),
    )
  )
    return "amount";
  return transaction.note.toLowerCase().includes(wanted.toLowerCase()) ? "note" : undefined;
}

/** The last blocks of each chain, as many as one look covers. */
export function newestRanges(heads: readonly { shard: number; height: bigint }[]): Range[] {
  return heads
    .filter(({ height }) => height > 0n)
    .map(({ shard, height }) => ({ shard, from: startOf(height), to: height }));
}

/** The blocks before those of a look; empty once it has come to the first ones. */
export function rangesBefore(ranges: readonly Range[]): Range[] {
  return ranges
    .filter(({ from }) => from > 1n)
    .map(({ shard, from }) => ({ shard, from: startOf(from - 1n), to: from - 1n }));
}

/** Sorts what came in the order of the blocks. Of one moment, the last is the newest. */
function newestFirst(found: Found[]): Found[] {
  return found.reverse().sort((a, b) => Number(b.timeMs - a.timeMs));
}

const startOf = (last: bigint): bigint => (last > blocksInLook ? last - blocksInLook + 1n : 1n);

/**
 * Looks through these blocks. In a book of several shards one stream has the blocks of all of them.
 * A transaction that crosses shards is found once.
 */
export async function look(
  wanted: string,
  ranges: readonly Range[],
  book: boolean,
  signal: AbortSignal,
): Promise<Looked> {
  const amount = parseAmount(wanted);
  const found = new Map<string, Found>();
  const left = new Map(ranges.map((range) => [range.shard, range]));
  const covered = new Map<number, bigint>();
  let [transactions, clipped] = [0, 0];
  const ending = new AbortController();
  const either = AbortSignal.any([signal, ending.signal, AbortSignal.timeout(lookTimeoutMs)]);
  const begin = ranges.map(({ shard, from }) => ({ shard, height: from }));
  try {
    if (left.size > 0)
      for await (const message of api.subscribe(
        book
          ? { book, begin, withTransactions: true }
          : { fromHeight: ranges[0]?.from ?? 0n, withTransactions: true },
        { signal: either },
      )) {
        for (const silent of message.silentShards) left.delete(silent);
        const header = message.block?.header;
        const range = header && left.get(header.shard);
        if (header && range && header.height <= range.to) {
          covered.set(header.shard, header.height);
          const rows = message.block?.transactions ?? [];
          if (header.transactionCount > rows.length) clipped++;
          for (const row of rows) {
            const passed = row.status && passesThrough(row.status, header.shard);
            if (row.verdict !== "" || row.arrivalOf > 0n || passed) continue;
            transactions++;
            const where = matches(row, wanted, amount);
            const id = row.status?.idHex ?? "";
            if (where && !found.has(id))
              found.set(id, {
                transaction: row,
                shard: header.shard,
                timeMs: header.timeMs,
                where,
              });
          }
          if (header.height === range.to) left.delete(header.shard);
        }
        if (left.size === 0) break;
      }
  } catch (error) {
    // What came until the time was over counts.
    if (signal.aborted || !either.aborted) throw error;
  } finally {
    ending.abort();
  }
  if (amount) {
    const names = [...found.values()].flatMap(({ transaction }) =>
      transaction.postings.map(({ asset }) => asset),
    );
    const decimals = await decimalsOf(names, signal);
    for (const [id, each] of found) {
      const where = matches(each.transaction, wanted, amount, decimals);
      if (where) found.set(id, { ...each, where });
      else found.delete(id);
    }
  }
  return {
    found: newestFirst([...found.values()]).slice(0, maxFound),
    count: found.size,
    ranges: ranges.flatMap(({ shard, from }) => {
      const to = covered.get(shard);
      return to === undefined ? [] : [{ shard, from, to }];
    }),
    transactions,
    clipped,
    unanswered: ranges.map(({ shard }) => shard).filter((shard) => !covered.has(shard)),
  };
}

/** How many names a node takes at once. */
const namesAtOnce = 100;

/** The decimals of those of the assets that are registered. */
async function decimalsOf(
  names: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, number>> {
  const decimals = new Map<string, number>();
  const wanted = [...new Set(names)].filter((name) => name !== "" && name !== "unit");
  for (let first = 0; first < wanted.length; first += namesAtOnce)
    try {
      const { assets } = await api.listAssets(
        { names: wanted.slice(first, first + namesAtOnce) },
        { signal, timeoutMs: callTimeoutMs },
      );
      for (const { name, terms } of assets) decimals.set(name, terms?.decimals ?? 0);
    } catch (error) {
      // A node of a version without assets has whole numbers.
      if (ConnectError.from(error).code !== Code.Unimplemented) throw error;
    }
  return decimals;
}

/** The blocks of a period in one chain. */
export interface Period {
  shard: number;
  /** The first and the last block in the period; undefined if it has none. */
  first: BlockHeader | undefined;
  last: BlockHeader | undefined;
  /** The block before the period. */
  before: BlockHeader | undefined;
}

/**
 * Finds the blocks from one moment up to before another one, by about 2·log₂ height questions. With
 * a last height it leaves out what the chain has above it.
 */
export async function blocksIn(
  startMs: number,
  endMs: number,
  shard: number,
  book: boolean,
  signal: AbortSignal,
  last?: bigint,
): Promise<Period> {
  const seen = new Map<bigint, BlockHeader>();
  let head = 0n;
  const ask = async (height: bigint): Promise<BlockHeader | undefined> => {
    const known = seen.get(height);
    if (known) return known;
    const answer = await api.listBlocks(
      { fromHeight: height, pageSize: 1, ...inShard(book ? shard : undefined) },
      { signal, timeoutMs: callTimeoutMs },
    );
    const header = answer.blocks[0];
    if (header) seen.set(header.height, header);
    if (height === 0n) head = header?.height ?? 0n;
    return header;
  };
  if (last === undefined) await ask(0n);
  else head = last;
  /** The lowest height of a block that is not before the moment; one above the head if none is. */
  const lowest = async (ms: number): Promise<bigint> => {
    let [low, high] = [1n, head + 1n];
    while (low < high) {
      const middle = (low + high) / 2n;
      const header = await ask(middle);
      if (header && Number(header.timeMs) < ms) low = middle + 1n;
      else high = middle;
    }
    return low;
  };
  const first = await lowest(startMs);
  const end = await lowest(endMs);
  return {
    shard,
    first: first < end ? await ask(first) : undefined,
    last: first < end ? await ask(end - 1n) : undefined,
    before: first > 1n ? await ask(first - 1n) : undefined,
  };
}
