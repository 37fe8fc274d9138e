// The transactions that had crossed between shards by a place in the past, and those that were
// still on their way: ordered in a shard, and without the verdicts that they needed.
import {
  TransactionState,
  type ListedTransaction,
  type TransactionStatus,
} from "../gen/ledgerd/v1/ledgerd_pb";
import { lookThrough } from "./look-through";
import type { Then } from "./open-then";

/** How many of the last crossings are looked at for those that were on their way. */
export const mostLookedAt = 2000;

export interface CrossingsThen {
  /** The newest first. */
  latest: ListedTransaction[];
  open: ListedTransaction[];
  /** How many were looked at for those that were open. */
  lookedAt: number;
  /** Whether these are all that had crossed. */
  complete: boolean;
}

export async function crossingsThen(
  then: Then,
  mostLatest: number,
  signal: AbortSignal,
): Promise<CrossingsThen> {
  const all: ListedTransaction[] = [];
  let full = false;
  const request = { kind: "crossing", toTimeMs: then.untilMs, pageSize: 500 };
  const complete = await lookThrough(request, signal, (page) => {
    all.push(
      ...page.filter(
        ({ transaction }) => transaction?.status && !then.isLater(transaction.status),
      ),
    );
    return (full = all.length >= mostLookedAt);
  });
  return {
    latest: all.slice(0, mostLatest),
    open: all.filter(({ transaction }) => transaction?.status && wasOpen(transaction.status, then)),
    lookedAt: all.length,
    complete: complete && !full,
  };
}

/**
 * Whether a transaction waited for other shards then, in the chain that lists it: it waits now, or
 * a block later than then ended its wait.
 */
export function wasOpen(status: TransactionStatus, then: Then): boolean {
  const { settledHeight, waitsFor, state } = status;
  return settledHeight > 0n
    ? then.isLater({ ...status, height: settledHeight, index: 0 })
    : state === TransactionState.PENDING && waitsFor.length > 0;
}
