import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
  ShardMemberSchema,
  ShardPlaceSchema,
  TransactionSummarySchema,
} from "../src/gen/ledgerd/v1/ledgerd_pb";
import { blockPath, blocksPath, hitPath } from "../src/lib/links";
import {
  bookChangeWords,
  cancellationText,
  kindsOfEntries,
  lagWord,
  layOutTree,
  memberMode,
  membersRunning,
  memberWord,
  modeWord,
  overdueIn,
  overdueText,
  refusedText,
  placeMoves,
  placeWord,
  shardLabel,
  shardList,
  streamTo,
  verdictText,
  waitsFor,
  walk,
  wayWords,
  type BoxSizes,
} from "../src/lib/shards";
import { BookChangeSchema } from "../src/gen/ledgerd/v1/transaction_pb";
import { FakeShards } from "./fake-shards";

const sizes: BoxSizes = { width: 188, height: 96, gap: 20, rise: 64 };
const compact: BoxSizes = { width: 120, height: 124, gap: 12, rise: 60 };
const treeOf = (parents: number[]): { shard: number; parent: number; root: boolean }[] =>
  parents.map((parent, shard) => ({ shard, parent, root: parent === shard }));
const shapes: Readonly<Record<string, number[]>> = {
  one: [0],
  breadth: [0, 0, 0, 0, 0, 0],
  binary: [0, 0, 0, 1, 1, 2, 2, 3],
  chain: [0, 0, 1, 2, 3],
  "root in the middle": [2, 2, 2, 0, 1],
  large: Array.from({ length: 300 }, (_, i) => Math.max(0, Math.floor((i - 1) / 3))),
};

test("the walk goes from the root down, children by number, and every shard once", () => {
  expect(walk(treeOf([0, 0, 0, 1, 1])).map(({ shard, depth }) => [shard, depth])).toEqual([
    [0, 0],
    [1, 1],
    [3, 2],
    [4, 2],
    [2, 1],
  ]);
  expect(walk(treeOf([2, 2, 2, 0])).map(({ shard, parent }) => [shard, parent])).toEqual([
    [2, undefined],
    [0, 2],
    [3, 0],
    [1, 2],
  ]);
  // The walk ends even if the shards form no tree.
  expect(
    walk([
      { shard: 0, parent: 1, root: false },
      { shard: 1, parent: 0, root: false },
    ]),
  ).toEqual([]);
});

test.each(Object.entries(shapes))(
  "boxes of the tree %s stand apart and inside the picture, at any width",
  (_, parents) => {
    for (const width of [260, 350, 700, 1200]) {
      const layout = layOutTree(walk(treeOf(parents)), width, sizes, compact);
      expect(layout.boxes).toHaveLength(parents.length);
      expect(layout.edges).toHaveLength(parents.length - 1);
      expect(JSON.stringify(layout)).not.toMatch(/null|NaN/);
      for (const [i, box] of layout.boxes.entries()) {
        expect(box.x).toBeGreaterThanOrEqual(0);
        expect(box.x + layout.boxWidth).toBeLessThanOrEqual(width + 0.2);
        expect(box.y + layout.boxHeight).toBeLessThanOrEqual(layout.height);
        for (const other of layout.boxes.slice(i + 1)) {
          const apart =
            Math.abs(box.x - other.x) >= layout.boxWidth ||
            Math.abs(box.y - other.y) >= layout.boxHeight;
          if (!apart)
            throw new Error(`shards ${box.shard} and ${other.shard} overlap at ${width} pixels`);
        }
      }
      const y = new Map(layout.boxes.map((box) => [box.shard, box.y]));
      for (const edge of layout.edges)
        expect(y.get(edge.child)).toBeGreaterThan(y.get(edge.parent) ?? 0);
    }
  },
);

test("a tree with room stands from the top down, its leaves in order; else it is indented", () => {
  const nodes = walk(treeOf([0, 0, 0, 1, 1]));
  const down = layOutTree(nodes, 1200, sizes);
  expect(down.form).toBe("down");
  const x = new Map(down.boxes.map((box) => [box.shard, box.x]));
  expect([3, 4, 2].map((shard) => x.get(shard) ?? 0)).toEqual(
    [3, 4, 2].map((shard) => x.get(shard) ?? 0).toSorted((a, b) => a - b),
  );
  expect(x.get(1)).toBeCloseTo(((x.get(3) ?? 0) + (x.get(4) ?? 0)) / 2, 0);
  expect(
    [600, 400, 380, 260].map((width) => layOutTree(nodes, width, sizes, compact).form),
  ).toEqual(["compact", "compact", "indented", "indented"]);
});

test("what is overdue is told by the shard that is waited for, the longest wait first", () => {
  expect(overdueIn(new FakeShards({ parents: [0, 0, 0, 1], silent: [3] }).tree())).toEqual([]);
  const tree = new FakeShards({ parents: [0, 0, 0, 1], silent: [3], awaited: 3 }).tree();
  const overdue = overdueIn(tree);
  expect(overdue.map(({ awaited, shard, kind, count }) => [awaited, shard, kind, count])).toEqual([
    [3, 2, "verdict", 2n],
    [3, 1, "verdict", 1n],
  ]);
  expect(overdueText(overdue[0]!)).toBe("2 transactions of shard 2 wait for its verdict");
  expect(overdueText({ ...overdue[0]!, kind: "stream", count: 3n, lost: 2n })).toBe(
    "it has not taken 3 entries that shard 2 streamed to it, of which 2 cannot be had any more: " +
      "no member there has them",
  );
  expect(overdueText(overdue[1]!)).toBe("1 transaction of shard 1 waits for its verdict");
  const behind = new FakeShards({ parents: [0, 0, 1], silent: [1], awaited: 1 });
  behind.step(4);
  const told = overdueIn(behind.tree()).map((each) => [each.kind, each.shard, overdueText(each)]);
  expect(told).toEqual([
    ["verdict", 2, "2 transactions of shard 2 wait for its verdict"],
    ["stream", 0, "it has not taken 5 entries that shard 0 streamed to it"],
  ]);
  // What waits, but not for too long, raises no alarm.
  for (const shard of tree.shards) for (const wait of shard.waitsFor) wait.overdue = 0n;
  expect(overdueIn(tree)).toEqual([]);
});

test("what a node refuses is told by shard", () => {
  const { refuses } = new FakeShards({ parents: [0, 0, 0], silent: [2] }).tree();
  expect(refuses.map(refusedText)).toEqual([
    "transactions that cross to shard 2, which is down",
  ]);
  expect(refusedText({ shard: 1, awaited: 0 })).toBe(
    "transactions between shards 1 and 0, since too many wait there already",
  );
});

test("a stream lags by what its parent streamed and its child has not carried", () => {
  const shards = new FakeShards({ parents: [0, 0, 1], halted: [2] });
  const before = streamTo(shards.tree(), shards.tree().shards[2]!);
  shards.step(5);
  const tree = shards.tree();
  expect(streamTo(tree, tree.shards[0]!)).toBeUndefined();
  expect(streamTo(tree, tree.shards[2]!)?.behind).toBe((before?.behind ?? 0n) + 5n);
  expect(lagWord(streamTo(tree, tree.shards[2]!)!)).toBe("7 entries behind");
  // If a child is ahead of its parent's report, its lag is zero, not negative.
  tree.shards[2]!.carried = 10_000n;
  expect(streamTo(tree, tree.shards[2]!)).toEqual({
    streamed: 10_000n,
    carried: 10_000n,
    behind: 0n,
  });
  expect(lagWord(streamTo(tree, tree.shards[2]!)!)).toBe("up to date");
  expect(tree.shape).toBe("0(1(2))");
});

test("members and modes are told in words", () => {
  const member = (mode: string, heard = 1n): ReturnType<typeof memberWord> =>
    memberWord(create(ShardMemberSchema, { mode, lastHeardMs: heard }));
  expect(
    ["ordering", "following", "starting", "halted", "stopping", "silent"].map((mode) => [
      member(mode).text,
      member(mode).colour,
    ]),
  ).toEqual([
    ["ordering", "good"],
    ["following", "warn"],
    ["starting", ""],
    ["halted", "bad"],
    ["stopping", "hollow"],
    ["silent", "bad dashed"],
  ]);
  expect(
    ["halted", "silent", "toString", ""].map((mode) =>
      memberMode(create(ShardMemberSchema, { mode })),
    ),
  ).toEqual(["halted", undefined, undefined, undefined]);
  expect(member("silent", 0n).text).toBe("never heard");
  expect(["ordering", "halted", "silent", "odd", ""].map((mode) => modeWord(mode).text)).toEqual([
    "ordering",
    "halted",
    "silent",
    "odd",
    "unknown",
  ]);
  expect(membersRunning(new FakeShards({ parents: [0, 0, 0] }).tree().shards[2]!)).toBe(2);
});

test("places of an entry are told in words, and waits are gathered", () => {
  const place = (state: string, waits: number[] = []): Parameters<typeof placeWord>[0] =>
    create(ShardPlaceSchema, { state, waitsFor: waits });
  expect(
    ["settled", "refused", "waiting", "passed", "absent", "unanswered", "odd"].map(
      (state) => placeWord(place(state)).text,
    ),
  ).toEqual(["settled", "refused", "waiting", "passed on", "not there yet", "no answer", "odd"]);
  expect(["settled", "refused", "passed"].map((state) => placeMoves(place(state)))).toEqual([
    false,
    false,
    false,
  ]);
  expect(["waiting", "absent", "unanswered"].map((state) => placeMoves(place(state)))).toEqual([
    true,
    true,
    true,
  ]);
  expect(waitsFor([place("waiting", [3, 1]), place("waiting", [3])])).toEqual([1, 3]);
  expect([[2], [2, 1], [3, 0, 1]].map(shardList)).toEqual([
    "shard 2",
    "shards 1 and 2",
    "shards 0, 1 and 3",
  ]);
  expect(verdictText("insufficient_funds")).toBe("insufficient funds");
});

test("users' transactions are counted apart from verdicts and from what is only passed on", () => {
  const entry = (
    status: { destinations?: number[]; reasonCode?: string },
    verdict = "",
  ): ReturnType<typeof create<typeof TransactionSummarySchema>> =>
    create(TransactionSummarySchema, { status, verdict });
  const own = entry({});
  const here = entry({ destinations: [1, 2] });
  const past = entry({ destinations: [2, 3] });
  const relayed = entry({ destinations: [2], reasonCode: "relayed" });
  expect(
    kindsOfEntries(
      [own, here, past, relayed, entry({}, "good"), entry({}, "insufficient_funds")],
      1,
    ),
  ).toBe("2 transactions, 2 verdicts, 2 only passed on");
  expect(kindsOfEntries([own], 1)).toBe("1 transaction");
  expect(kindsOfEntries([], 1)).toBe("0 transactions");
  expect([shardLabel("Accounts", 3), shardLabel("Accounts", undefined)]).toEqual([
    "Accounts, shard\u00a03",
    "Accounts",
  ]);
});

test("block links carry the shard where there are several", () => {
  expect(blockPath(17n)).toBe("/block/17");
  expect(blockPath(17n, 0)).toBe("/shards/0/blocks/17");
  expect([blocksPath(), blocksPath(2), blocksPath(2, 9n), blocksPath(undefined, 9n)]).toEqual([
    "/blocks",
    "/shards/2/blocks",
    "/shards/2/blocks?from=9",
    "/blocks?from=9",
  ]);
  expect(hitPath("block", "12", 3)).toBe("/shards/3/blocks/12");
  expect(hitPath("account", "a:b", 3)).toBe("/account/a:b");
});

test("what came of a cancellation, by the place of the other transaction in the same chain", () => {
  const said = (took: boolean, state?: string): string =>
    cancellationText(took, state === undefined ? undefined : create(ShardPlaceSchema, { state }));
  expect(said(true, "absent")).toContain("refuses it if it concerns");
  expect(said(false, "absent")).toBe("The shard has not executed it.");
  expect(said(true, "refused")).toBe("The transaction changed nothing.");
  expect(said(true, "settled")).toContain("took effect");
  expect(said(false, "waiting")).toContain("the other shards decide");
  for (const state of ["unanswered", "passed", undefined])
    expect(said(true, state)).toContain("does not know");
});

test("a change of the book says what it does, and an organisation where it is", () => {
  const title = (change: MessageInitShape<typeof BookChangeSchema>["change"]): string =>
    bookChangeWords(create(BookChangeSchema, { number: 1n, change: change ?? { case: undefined } }))
      .title;
  expect(title({ case: "addition", value: { parent: 2, members: [{ name: "a" }] } })).toBe(
    "adds a shard of 1 node below shard 2",
  );
  expect(title({ case: "move", value: { organisation: "acme", to: 3 } })).toBe(
    "moves acme to shard 3",
  );
  expect(title({ case: "lostShard", value: 4 })).toBe(
    "settles with shard 4, which is lost for good",
  );
  expect(title({ case: undefined })).toContain("does not know");
  expect(wayWords({ moving: true, arrivalUnknown: false })).toBe("on its way there");
  expect(wayWords({ moving: false, arrivalUnknown: true })).toContain("does not answer");
  expect(wayWords({ moving: false, arrivalUnknown: false })).toBe("");
});
