import { expect, test } from "vitest";
import { barsOf, bookTotal, countedPercent, type ShardFigures } from "../src/lib/figures";

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
});
