// What a node says about schedules, and the files of them.
import { Code, ConnectError } from "@connectrpc/connect";
import type { ListedTransaction, Transaction } from "../gen/ledgerd/v1/ledgerd_pb";
import type { OpenSchedule } from "../gen/ledgerd/v1/schedules_pb";
import type { Posting } from "../gen/ledgerd/v1/transaction_pb";
import { api, callTimeoutMs } from "./api";
import type { Cell } from "./csv";
import { isoTime, placePoint } from "./format";
import { wasApplied } from "./holds";
import { findListed } from "./look-through";
import { occurrenceId, occurrencesOf, timeOf } from "./occurrences";

/** An occurrence that has fallen due, as far as the node knows it. */
export interface Occurred {
  number: number;
  /** The time for which it was scheduled. */
  timeMs: number;
  idHex: string;
  /** Undefined if no block has it. */
  transaction: Transaction | undefined;
}

/** Asks the node for an occurrence of the schedule that a transaction placed. */
export async function findOccurrence(
  placed: Transaction,
  number: number,
  signal: AbortSignal,
): Promise<Occurred | undefined> {
  const schedule = placed.body?.schedule;
  const idHex = await occurrenceId(placed.canonical, placed.status?.idHex ?? "", number);
  if (!schedule || idHex === undefined) return undefined;
  const found = { number, timeMs: timeOf(schedule, number), idHex };
  try {
    const { transaction } = await api.getTransaction(
      { idHex },
      { signal, timeoutMs: callTimeoutMs },
    );
    return { ...found, transaction };
  } catch (error) {
    if (ConnectError.from(error).code !== Code.NotFound) throw error;
    return { ...found, transaction: undefined };
  }
}

/** Occurrences from a number down, at most so many. */
export async function findOccurrences(
  placed: Transaction,
  from: number,
  most: number,
  signal: AbortSignal,
): Promise<Occurred[]> {
  const numbers = Array.from({ length: Math.min(from, most) }, (_, i) => from - i);
  const found = await Promise.all(
    numbers.map((number) => findOccurrence(placed, number, signal)),
  );
  return found.flatMap((each) => each ?? []);
}

/**
 * How many occurrences blocks have of a schedule that is not open any more. Blocks have them in the
 * order of their numbers, so few questions tell.
 */
export async function countIssued(placed: Transaction, signal: AbortSignal): Promise<number> {
  const schedule = placed.body?.schedule;
  if (!schedule) return 0;
  const isThere = async (number: number): Promise<boolean> =>
    (await findOccurrence(placed, number, signal))?.transaction !== undefined;
  let [least, most] = [0, occurrencesOf(schedule)];
  // Most schedules have had all of their occurrences.
  for (let next = most; least < most; next = Math.ceil((least + most) / 2))
    if (await isThere(next)) least = next;
    else most = next - 1;
  return least;
}

/** Looks for the transaction that ended a schedule, from the block that placed it on. */
export async function findEnd(
  placed: Transaction,
  signal: AbortSignal,
): Promise<ListedTransaction | undefined> {
  const { listed } = await findListed(
    {
      kind: "schedule_end",
      organisation: placed.body?.signer ?? "",
      fromTimeMs: placed.blockTimeMs,
      ascending: true,
    },
    ({ transaction }) =>
      transaction?.scheduleEnd?.scheduleHex === placed.status?.idHex &&
      wasApplied(transaction?.status?.state),
    signal,
  );
  return listed;
}

/** Whether a schedule takes from an account. */
export const takesFrom = ({ schedule }: OpenSchedule, account: string): boolean =>
  (schedule?.postings ?? []).some(
    (posting) => posting.account === account && posting.amount.startsWith("-"),
  );

/** The assets of the postings of schedules, each once. */
export const assetsOf = (schedules: readonly Pick<OpenSchedule, "schedule">[]): string[] => [
  ...new Set(
    schedules.flatMap(({ schedule }) => (schedule?.postings ?? []).map(({ asset }) => asset)),
  ),
];

/** The columns of a file of schedules, which has a row for each posting. */
export const scheduleHeader = [
  "schedule",
  "signer",
  "account",
  "asset",
  "amount",
  "first",
  "period",
  "every",
  "count",
  "until",
  "issued",
  "occurrences",
  "next",
  "note",
] as const;

export function scheduleRows(
  open: Omit<OpenSchedule, "$typeName">,
  decimalsOf: (asset: string) => number,
): Cell[][] {
  const { schedule } = open;
  const time = (ms: bigint): string => (ms > 0n ? isoTime(Number(ms)) : "");
  return (schedule?.postings ?? []).map(({ account, asset, amount }: Posting) => [
    open.scheduleHex,
    open.signer,
    account,
    asset || "unit",
    placePoint(amount, decimalsOf(asset)),
    time(schedule?.firstMs ?? 0n),
    schedule?.period ?? "",
    schedule?.every ?? 0,
    schedule?.count ?? 0,
    time(schedule?.untilMs ?? 0n),
    open.issued,
    open.occurrences,
    time(open.nextMs),
    open.note,
  ]);
}
