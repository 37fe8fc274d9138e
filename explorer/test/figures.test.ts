import { expect, test } from "vitest";
import {
  barsOf,
  bookTotal,
  countedPercent,
  periodName,
  periodRows,
  startsOf,
  type ShardFigures,
} from "../src/lib/figures";

const hour = 3_600_000;
function shardOf(
  shard: number,
  [transactions, first, between]: [bigint, bigint, bigint],
  other: Partial<NonNullable<ShardFigures["answer"]>> = {},
): ShardFigures {
  const figures = { startMs: 0n, transactions, first, failed: 0n, between } as never;
  return {
    shard,
    answer: {
      total: figures,
      fromHeight: 1n,
      countedHeight: 50n,
      headHeight: 50n,
      hours: [],
      days: [],
      months: [],
      ...other,
    },
  };
}

test("the book's total counts a transaction once, and names shards that lack some", () => {
  const shards = [
    shardOf(0, [10n, 10n, 4n]),
    shardOf(1, [12n, 5n, 6n], { countedHeight: 20n }),
    shardOf(2, [3n, 2n, 1n], { fromHeight: 9n }),
    { shard: 3, answer: undefined },
  ];
  expect(bookTotal(shards)).toEqual({ transactions: 17n, between: 11n, missing: [1, 2, 3] });
  expect(shards.map(countedPercent)).toEqual([100, 40, 100, 100]);
});

test("bars add up the shards by hour, and have the hours without blocks", () => {
  const at = (hours: number, first: bigint): never =>
    ({ startMs: BigInt(hours * hour), first, transactions: 99n }) as never;
  const bars = barsOf(
    [
      shardOf(0, [0n, 0n, 0n], { hours: [at(7, 2n), at(9, 3n)] }),
      shardOf(1, [0n, 0n, 0n], { hours: [at(1, 50n), at(9, 4n)] }),
    ],
    "hours",
    4,
    10 * hour + 5,
  );
  expect(bars.map(({ startMs, transactions }) => [startMs / hour, transactions])).toEqual([
    [7, 2],
    [8, 0],
    [9, 7],
    [10, 0],
  ]);
  const hours = [at(9, 3n)];
  const own = barsOf([shardOf(0, [0n, 0n, 0n], { hours })], "hours", 2, 10 * hour, "transactions");
  expect(own.map(({ transactions }) => transactions)).toEqual([99, 0]);
});

test("months are of the calendar, over a year's end and from its last day", () => {
  const starts = startsOf("months", 4, Date.UTC(2027, 0, 31, 23, 59));
  expect(starts.map((startMs) => periodName("months", startMs))).toEqual([
    "2026-10",
    "2026-11",
    "2026-12",
    "2027-01",
  ]);
  const month = { startMs: BigInt(Date.UTC(2026, 10)), first: 6n } as never;
  const shards = [0, 1].map((shard) => shardOf(shard, [0n, 0n, 0n], { months: [month] }));
  const bars = barsOf(shards, "months", 4, Date.UTC(2027, 0, 31));
  expect(bars.map(({ transactions }) => transactions)).toEqual([0, 12, 0, 0]);
});

test("a file of figures has a row for each shard and period", () => {
  const day = { startMs: 86_400_000n, transactions: 3n, first: 2n, failed: 1n, between: 4n };
  const shards = [
    shardOf(1, [0n, 0n, 0n], { days: [day as never] }),
    { shard: 2, answer: undefined },
  ];
  expect(periodRows(shards, "days")).toEqual([[1, "1970-01-02", 3n, 2n, 1n, 4n]]);
  expect(periodName("hours", 90_000_000)).toBe("1970-01-02 01:00");
});
