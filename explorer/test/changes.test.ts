import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { ShardSchema } from "../src/gen/ledgerd/v1/ledgerd_pb";
import { ShardChangeSchema } from "../src/gen/ledgerd/v1/shards_pb";
import { arrowsIn, changeList, changeState, changeTitle, roomBelow } from "../src/lib/changes";
import { layOutTree, walk } from "../src/lib/shards";

const sizes = { width: 100, height: 50, gap: 20, rise: 60 };
const now = 1_000_000;

function changed(init: MessageInitShape<typeof ShardChangeSchema>) {
  return create(ShardChangeSchema, {
    kind: "move",
    organisation: "acme",
    from: 1,
    to: 2,
    sinceMs: BigInt(now - 5_000),
    ...init,
  });
}

function layout(width: number) {
  const shards = [0, 1, 2].map((shard) => ({ shard, parent: 0, root: shard === 0 }));
  return layOutTree(walk(shards), width, sizes);
}

test("what moves between two shards has one arrow, and what is over soon has none", () => {
  const changes = [
    changed({ number: 1n, state: "done", doneMs: BigInt(now - 30_000) }),
    changed({ number: 2n, state: "done", doneMs: BigInt(now - 3_000), organisation: "bank" }),
    changed({ number: 3n, state: "arriving" }),
    changed({ number: 4n, state: "never", from: 0 }),
    changed({ number: 5n, state: "moving", kind: "rehang", shard: 2, from: 0, to: 1 }),
    changed({ number: 6n, state: "arriving", to: 9 }),
  ];
  const arrows = arrowsIn(changes, layout(600), now);
  expect(arrows.map(({ key, what, over }) => [key, what, over])).toEqual([
    ["rehang 0 2", "shard 2", false],
    ["move 1 2", "acme and 1 other", false],
  ]);
  expect(arrows.map(({ word }) => word.text)).toEqual(["coming over", "on its way"]);
  expect(arrowsIn(changes.slice(0, 2), layout(600), now)[0]?.word.text).toBe("arrived");
  expect(changeList(changes).map(({ number }) => Number(number))).toEqual([6, 5, 3, 4, 2, 1]);
});

test("lines and their texts stay in the drawing, and no two texts are at one place", () => {
  const changes = [
    changed({ state: "arriving" }),
    changed({ state: "arriving", from: 2, to: 1 }),
    changed({ state: "arriving", from: 0, to: 2 }),
  ];
  for (const width of [600, 150]) {
    const laid = layout(width);
    const arrows = arrowsIn(changes, laid, now);
    expect(arrows).toHaveLength(3);
    expect(new Set(arrows.map(({ label }) => `${label.x} ${label.y}`)).size).toBe(3);
    for (const { label } of arrows) {
      expect(label.y).toBeLessThan(laid.height + roomBelow(arrows, laid));
      expect(label.x).toBeGreaterThan(0);
      expect(label.x).toBeLessThanOrEqual(width);
    }
  }
  expect(roomBelow([], layout(600))).toBe(0);
});

test("each state is told with what it waits for", () => {
  const shard = create(ShardSchema, { shard: 1, waitsFor: [{ shard: 0 }, { shard: 4 }] });
  const tell = (init: MessageInitShape<typeof ShardChangeSchema>): string =>
    changeState(changed(init), { shards: [shard] });
  expect(tell({ state: "departing" })).toBe(
    "It waits until shard 1 has settled what came before; " +
      "transactions there wait for shards 0 and 4.",
  );
  expect(tell({ state: "departing", from: 3 })).toBe(
    "It waits until shard 3 has settled what came before.",
  );
  expect(tell({ state: "ordered" })).toContain("shard 2 knows of it");
  expect(tell({ kind: "rehang", state: "moving", shard: 3, waitsFor: [3] })).toContain("silent");
  for (const state of ["arriving", "done", "never", "unknown"])
    expect(tell({ state })).not.toBe("");
  expect(tell({ state: "something else" })).toBe("");
  expect(changeTitle(changed({ kind: "addition", shard: 3, to: 1 }))).toBe(
    "shard 3 is added below shard 1",
  );
});
