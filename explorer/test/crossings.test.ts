import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { GetFiguresResponseSchema } from "../src/gen/ledgerd/v1/figures_pb";
import { TransactionSummarySchema } from "../src/gen/ledgerd/v1/ledgerd_pb";
import {
  crossingPath,
  crossingRows,
  hasForgotten,
  layOutMap,
  lowestAbove,
  movesIn,
  nodesOnMap,
  pairsOf,
  shardsOnMap,
  type Pair,
} from "../src/lib/crossings";
import type { ShardFigures } from "../src/lib/figures";
import { walk } from "../src/lib/shards";

const nowMs = Date.UTC(2026, 10, 28, 14, 30);
const hour = 3_600_000;

function answerOf(
  shard: number,
  answer?: MessageInitShape<typeof GetFiguresResponseSchema>,
): ShardFigures {
  return { shard, answer: answer && create(GetFiguresResponseSchema, answer) };
}

const shards: ShardFigures[] = [
  answerOf(0, {
    total: { crossings: [{ shard: 1, transactions: 5n, verdicts: 4n }] },
    hours: [
      { startMs: BigInt(nowMs - 100 * hour), crossings: [{ shard: 1, transactions: 3n }] },
      { startMs: BigInt(nowMs - (nowMs % hour)), crossings: [{ shard: 1, transactions: 2n }] },
    ],
  }),
  answerOf(1, {
    total: {
      crossings: [
        { shard: 0, transactions: 4n, verdicts: 4n },
        { shard: 2, transactions: 9n, verdicts: 1n },
      ],
    },
    days: [{ startMs: BigInt(nowMs), crossingsForgotten: true }],
  }),
  answerOf(2),
];

describe("crossings by pair", () => {
  test("both chains are told apart, and the greater count stands", () => {
    const pairs = pairsOf(shards, "all", nowMs);
    expect(pairs).toEqual([
      {
        a: 1,
        b: 2,
        transactions: 9n,
        inA: { transactions: 9n, verdicts: 1n },
        inB: { transactions: undefined, verdicts: undefined },
      },
      {
        a: 0,
        b: 1,
        transactions: 5n,
        inA: { transactions: 5n, verdicts: 4n },
        inB: { transactions: 4n, verdicts: 4n },
      },
    ]);
    expect(crossingRows(pairs)).toEqual([
      [1, 2, 9n, 1n],
      [2, 1, "", ""],
      [0, 1, 5n, 4n],
      [1, 0, 4n, 4n],
    ]);
  });

  test("a span has what is in it, and what is forgotten is told", () => {
    expect(pairsOf(shards, "hours", nowMs).map(({ transactions }) => transactions)).toEqual([2n]);
    expect(pairsOf(shards, "months", nowMs)).toEqual([]);
    expect(shards.map((each) => hasForgotten(each, "days", nowMs))).toEqual([false, true, false]);
  });

  test("the list of a pair is that of a chain that counts it, from the span's beginning", () => {
    const [pair] = pairsOf(shards, "all", nowMs);
    expect(pair && crossingPath(pair, "all", nowMs)).toBe("/transactions?shard=1&with=2");
    const turned = { ...(pair as Pair), inA: { transactions: undefined, verdicts: undefined } };
    expect(crossingPath(turned, "days", nowMs)).toBe(
      "/transactions?shard=2&with=1&from=2026-08-31T00%3A00%3A00Z",
    );
  });
});

const tree = (parents: readonly number[]): { shard: number; parent: number; root: boolean }[] =>
  parents.map((parent, shard) => ({ shard, parent, root: parent === shard }));
const pair = (a: number, b: number, transactions = 1n): Pair => ({
  a,
  b,
  transactions,
  inA: { transactions, verdicts: 0n },
  inB: { transactions, verdicts: 0n },
});

describe("the map", () => {
  for (const width of [300, 342, 560, 1200])
    for (const parents of [[0], [0, 0, 0], [0, 0, 0, 1, 1, 2, 2, 3, 7, 8, 9]])
      test(`${parents.length} shards fit ${width} pixels, and no arc crosses a box`, () => {
        const pairs = parents.flatMap((_, a) =>
          parents.flatMap((__, b) => (a < b ? [pair(a, b, BigInt(1 + a * b))] : [])),
        );
        const layout = layOutMap(walk(tree(parents)), pairs, width, 70);
        expect(layout.rows).toHaveLength(parents.length);
        expect(layout.edges).toHaveLength(parents.length - 1);
        expect(layout.arcs).toHaveLength(pairs.length);
        const right = Math.max(...layout.rows.map(({ x }) => x + layout.boxWidth));
        const labels = new Set<string>();
        for (const { label } of layout.arcs) {
          expect(label.x - 10).toBeGreaterThan(right);
          expect(label.x + 20).toBeLessThanOrEqual(width);
          expect(label.y).toBeGreaterThan(0);
          expect(label.y).toBeLessThan(layout.height);
          labels.add(`${label.x} ${label.y}`);
        }
        expect(labels.size).toBe(pairs.length);
      });

  test("of many shards it has those with most crossings, and those above them", () => {
    const parents = Array.from({ length: 200 }, (_, shard) => Math.floor((shard - 1) / 2));
    parents[0] = 0;
    const nodes = nodesOnMap(tree(parents), [pair(150, 199, 9n), pair(3, 4)]);
    const drawn = new Set(nodes.map(({ shard }) => shard));
    expect(nodes.length).toBeLessThanOrEqual(shardsOnMap);
    for (const shard of [0, 3, 4, 150, 199]) expect(drawn.has(shard)).toBe(true);
    for (const { parent } of nodes) expect(parent === undefined || drawn.has(parent)).toBe(true);
  });
});

describe("what moves", () => {
  const parents = new Map<number, number | undefined>([
    [0, undefined],
    [1, 0],
    [2, 0],
    [3, 1],
    [4, 1],
  ]);
  type Entry = MessageInitShape<typeof TransactionSummarySchema>;
  const entry = (destinations: number[], idHex = "aa"): Entry => ({
    signer: "north",
    status: { idHex, destinations },
  });
  const moved = (
    shard: number,
    ...entries: MessageInitShape<typeof TransactionSummarySchema>[]
  ): ReturnType<typeof movesIn> =>
    movesIn(
      shard,
      entries.map((each) => create(TransactionSummarySchema, each)),
      7n,
      parents,
    );

  test("the lowest shard above others", () => {
    expect(lowestAbove(parents, [3, 4])).toBe(1);
    expect(lowestAbove(parents, [3, 2])).toBe(0);
    expect(lowestAbove(parents, [3, 1])).toBe(1);
    expect(lowestAbove(new Map([[5, 5]]), [5, 6])).toBeUndefined(); // a ring ends
  });

  test("an entry comes down, unless it enters here; the lowest shard shows the crossing", () => {
    const down = { from: 1, kind: "entry", count: 2 };
    expect(moved(3, entry([3, 4]), entry([2, 3], "bb"), entry([3])).moves).toEqual([
      { ...down, to: 3 },
    ]);
    expect(moved(1, entry([3, 4])).moves).toEqual([]); // it entered here
    expect(moved(1, entry([2, 3])).moves).toEqual([{ from: 0, to: 1, kind: "entry", count: 1 }]);
    expect(moved(3, entry([3, 4])).crossings).toEqual([
      { idHex: "aa", shard: 3, destinations: [3, 4], signer: "north", timeMs: 7n },
    ]);
    expect(moved(4, entry([3, 4])).crossings).toEqual([]);
    expect(moved(1, entry([3, 4])).crossings).toEqual([]); // passed on only
  });

  test("a verdict comes from the shard that gave it", () => {
    const verdicts = ["good", "funds"].map((verdict) => ({ verdict, verdictShard: 3 }));
    expect(moved(2, ...verdicts)).toEqual({
      moves: [{ from: 3, to: 2, kind: "verdict", count: 2 }],
      crossings: [],
    });
  });
});
