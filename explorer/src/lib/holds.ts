// How holds stand and how they ended.
import { TransactionState, type ListedTransaction } from "../gen/ledgerd/v1/ledgerd_pb";
import { findListed } from "./look-through";

export interface Ending {
  listed: ListedTransaction;
  /** What was taken from the account of the hold, in the smallest unit; "0" if it was voided. */
  posted: bigint;
}

/**
 * Looks for the transaction that ended a hold, from the block that placed it on. complete says that
 * all blocks since were looked at.
 */
export async function findEnding(
  holdHex: string,
  placedMs: bigint,
  account: string,
  signal: AbortSignal,
): Promise<{ ending: Ending | undefined; complete: boolean }> {
  const { listed, complete } = await findListed(
    { holdHex, kind: "hold_end", fromTimeMs: placedMs, ascending: true },
    ({ transaction }) =>
      transaction?.holdEnd?.holdHex === holdHex && wasApplied(transaction.status?.state),
    signal,
  );
  return { ending: listed && { listed, posted: postedBy(listed, account) }, complete };
}

export const wasApplied = (state: TransactionState | undefined): boolean =>
  state === TransactionState.ORDERED ||
  state === TransactionState.STORED ||
  state === TransactionState.DURABLE;

/** What a transaction takes from the account of the hold that it ends. */
export function postedBy({ transaction }: ListedTransaction, account: string): bigint {
  return (transaction?.postings ?? [])
    .filter((posting) => posting.account === account && posting.amount.startsWith("-"))
    .reduce((sum, { amount }) => sum - BigInt(amount), 0n);
}
