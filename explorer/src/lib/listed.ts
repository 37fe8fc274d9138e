// Transactions of a list, as the rows of a file.
import { TransactionState, type ListedTransaction } from "../gen/ledgerd/v1/ledgerd_pb";
import type { Cell } from "./csv";
import { isoTime } from "./format";

export const listedHeader = [
  "time",
  "shard",
  "height",
  "index",
  "transaction",
  "status",
  "reason",
  "signer",
  "postings",
  "records",
  "account",
  "amount",
  "asset",
  "note",
] as const;

/** The first posting that gives stands for all; amounts are in the smallest unit. */
export function listedRow({ transaction, timeMs }: ListedTransaction): Cell[] {
  const status = transaction?.status;
  const first = transaction?.postings.find(({ amount }) => !amount.startsWith("-"));
  const hold = transaction?.hold;
  return [
    isoTime(Number(timeMs)),
    status?.shard ?? 0,
    status?.height ?? 0n,
    status?.index ?? 0,
    status?.idHex ?? "",
    statusWord(transaction?.status?.state ?? 0, status?.waitsFor.length ?? 0),
    status?.reasonCode ?? "",
    transaction?.signer ?? "",
    transaction?.postingCount ?? 0,
    transaction?.recordCount ?? 0,
    first?.account ?? hold?.account ?? "",
    first?.amount ?? hold?.amount ?? "",
    first ? first.asset || "unit" : hold ? hold.asset || "unit" : "",
    transaction?.note ?? "",
  ];
}

export function statusWord(state: TransactionState, waits: number): string {
  if (state === TransactionState.FAILED) return "failed";
  return waits > 0 || state === TransactionState.PENDING ? "waiting" : "applied";
}
