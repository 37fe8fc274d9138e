// The transactions of the book and of each shard, as their nodes counted them: users' transactions
// apart from the entries between shards, in all and by hour and day.
import type { Figures, GetFiguresResponse } from "../gen/ledgerd/v1/figures_pb";

export interface ShardFigures {
  shard: number;
  /** Undefined if the shard did not answer. */
  answer: Pick<
    GetFiguresResponse,
    "total" | "fromHeight" | "countedHeight" | "headHeight" | "hours" | "days"
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

/** The book's transactions in each of the last periods, the present one last. */
export function barsOf(
  shards: readonly ShardFigures[],
  kind: "hours" | "days",
  count: number,
  nowMs: number,
): Bar[] {
  const length = kind === "hours" ? 3_600_000 : 86_400_000;
  const counts = new Map<number, number>();
  for (const { answer } of shards)
    for (const { startMs, first } of answer?.[kind] ?? [])
      counts.set(Number(startMs), (counts.get(Number(startMs)) ?? 0) + Number(first));
  const last = nowMs - (nowMs % length);
  return Array.from({ length: count }, (_, i) => {
    const startMs = last - (count - 1 - i) * length;
    return { startMs, transactions: counts.get(startMs) ?? 0 };
  });
}
