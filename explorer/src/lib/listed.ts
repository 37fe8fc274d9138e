// Transactions of a list, as the rows of a file.
import {
  TransactionState,
  type ListedTransaction,
  type TransactionSummary,
} from "../gen/ledgerd/v1/ledgerd_pb";
import type { Hold, Posting } from "../gen/ledgerd/v1/transaction_pb";
import type { Cell } from "./csv";
import { isoTime, placePoint } from "./format";

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

/** What stands for all of a transaction: its first posting that gives, or its hold. */
function shown(transaction: TransactionSummary | undefined): Posting | Hold | undefined {
  return transaction?.postings.find(({ amount }) => !amount.startsWith("-")) ?? transaction?.hold;
}

/** The assets of rows, each once. */
export const assetsListed = (listed: readonly ListedTransaction[]): string[] => [
  ...new Set(listed.map(({ transaction }) => shown(transaction)?.asset ?? "")),
];

export function listedRow(
  { transaction, timeMs }: ListedTransaction,
  decimalsOf: (asset: string) => number,
): Cell[] {
  const status = transaction?.status;
  const first = shown(transaction);
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
    first?.account ?? "",
    placePoint(first?.amount ?? "", decimalsOf(first?.asset ?? "")),
    first ? first.asset || "unit" : "",
    transaction?.note ?? "",
  ];
}

export function statusWord(state: TransactionState, waits: number): string {
  if (state === TransactionState.FAILED) return "failed";
  return waits > 0 || state === TransactionState.PENDING ? "waiting" : "applied";
}
