// The transactions of the book and of each shard, as their nodes counted them: users' transactions
// apart from the entries between shards, in all and by hour,
// day and month.
import type { Figures, GetFiguresResponse } from "../gen/ledgerd/v1/figures_pb";

export interface ShardFigures {
  shard: number;
  /** Undefined if the shard did not answer. */
  answer: Pick<
    GetFiguresResponse,
    "total" | "fromHeight" | "countedHeight" | "headHeight" | "hours" | "days" | "months"
  >
    | undefined;
}

/** How far a shard's node has counted: in percent, below 100 until it has counted all. */
export function countedPercent({ answer }: ShardFigures): number {
  if (!answer || answer.headHeight === 0n || answer.countedHeight >= answer.headHeight) return 100;
  return Math.min(99, Number((answer.countedHeight * 100n) / answer.headHeight));
}

export interface BookTotal {
  /** Each transaction of the book once. */
  transactions: bigint;
  between: bigint;
  /** Shards that did not answer, or have not counted all their blocks, or lack the first ones. */
  missing: number[];
}

/** The total of the book. A transaction that crosses shards counts once: at the lowest of them. */
export function bookTotal(shards: readonly ShardFigures[]): BookTotal {
  const sum = (of: (total: Figures) => bigint): bigint =>
    shards.reduce((all, { answer }) => all + (answer?.total ? of(answer.total) : 0n), 0n);
  return {
    transactions: sum(({ first }) => first),
    between: sum(({ between }) => between),
    missing: shards
      .filter((each) => !each.answer || countedPercent(each) < 100 || each.answer.fromHeight > 1n)
      .map(({ shard }) => shard),
  };
}

export interface Bar {
  startMs: number;
  transactions: number;
}

export const periodKinds = ["hours", "days", "months"] as const;
export type PeriodKind = (typeof periodKinds)[number];

/** How many periods are drawn. */
export const periodsShown: { readonly [kind in PeriodKind]: number } = {
  hours: 48,
  days: 90,
  months: 24,
};

/** The beginnings of the last periods in UTC, the present one last. Months are of the calendar. */
export function startsOf(kind: PeriodKind, count: number, nowMs: number): number[] {
  if (kind === "months") {
    const now = new Date(nowMs);
    return Array.from({ length: count }, (_, i) =>
      Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - (count - 1 - i), 1),
    );
  }
  const length = kind === "hours" ? 3_600_000 : 86_400_000;
  const last = nowMs - (nowMs % length);
  return Array.from({ length: count }, (_, i) => last - (count - 1 - i) * length);
}

/** The name of a period, by its beginning in UTC: "2026-11-28 14:00", "2026-11-28", "2026-11". */
export function periodName(kind: PeriodKind, startMs: number): string {
  const length = { hours: 16, days: 10, months: 7 }[kind];
  return new Date(startMs).toISOString().slice(0, length).replace("T", " ");
}

export const periodHeader = ["shard", "period", "transactions", "first", "failed", "between"];

/** What the nodes answered for the periods that are drawn, a row for each shard and period. */
export function periodRows(
  shards: readonly ShardFigures[],
  kind: PeriodKind,
): (string | number | bigint)[][] {
  return shards.flatMap(({ shard, answer }) =>
    (answer?.[kind] ?? []).map(({ startMs, transactions, first, failed, between }) => [
      shard,
      periodName(kind, Number(startMs)),
      transactions,
      first,
      failed,
      between,
    ]),
  );
}

/**
 * The book's transactions in each of the last periods, the present one last. Those of one shard are
 * its `transactions`: what crosses shards counts there, too.
 */
export function barsOf(
  shards: readonly ShardFigures[],
  kind: PeriodKind,
  count: number,
  nowMs: number,
  counts: "first" | "transactions" = "first",
): Bar[] {
  const sums = new Map<number, number>();
  for (const { answer } of shards)
    for (const figures of answer?.[kind] ?? []) {
      const start = Number(figures.startMs);
      sums.set(start, (sums.get(start) ?? 0) + Number(figures[counts]));
    }
  return startsOf(kind, count, nowMs).map((startMs) => ({
    startMs,
    transactions: sums.get(startMs) ?? 0,
  }));
}
