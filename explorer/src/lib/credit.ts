import type { Posting } from "../gen/ledgerd/v1/transaction_pb";

/** The largest credit of a transaction, and how many more it has. */
export interface Credit {
  amount: string;
  asset: string;
  more: number;
}

/** Returns the largest credit, or undefined if nothing is given to an account. */
export function largestCredit(
  postings: readonly Pick<Posting, "amount" | "asset">[],
): Credit | undefined {
  let best: { amount: string; asset: string } | undefined;
  let credits = 0;
  for (const { amount, asset } of postings) {
    if (amount.startsWith("-")) continue;
    credits++;
    if (
      !best ||
      amount.length > best.amount.length ||
      (amount.length === best.amount.length && amount > best.amount)
    )
      best = { amount, asset };
  }
  return best && { ...best, more: credits - 1 };
}
