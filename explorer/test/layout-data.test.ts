import { expect, test } from "vitest";
import { backoffMs, sleep } from "../src/lib/backoff";
import { csvCell, csvLine, gather, maxCsvRows } from "../src/lib/csv";
import { layOut } from "../src/lib/digraph";
import { accountPath, hitPath } from "../src/lib/links";
import {
  MemberStanding,
  NodeMode,
  type ClusterState,
  type MemberState,
  type NodeState,
} from "../src/gen/ledgerd/v1/ledgerd_pb";
import {
  clockWords,
  heldUpWords,
  membersOrdering,
  spareWords,
  standing,
  standingWords,
} from "../src/lib/members";
import { modeName, modeWords } from "../src/lib/modes";
import { RateSeries } from "../src/lib/series";

test("servers stand on a circle, apart from each other and inside the picture", () => {
  for (const count of [1, 2, 3, 8, 33, 128]) {
    const layout = layOut([...Array(count).keys()], []);
    expect(layout.nodes).toHaveLength(count);
    for (const node of layout.nodes) {
      expect(node.x - layout.nodeRadius).toBeGreaterThanOrEqual(0);
      expect(node.x + layout.nodeRadius).toBeLessThanOrEqual(layout.size);
      expect(node.y - layout.nodeRadius).toBeGreaterThanOrEqual(0);
      expect(node.y + layout.nodeRadius).toBeLessThanOrEqual(layout.size);
    }
    for (const [i, a] of layout.nodes.entries()) {
      for (const b of layout.nodes.slice(i + 1))
        expect(Math.hypot(a.x - b.x, a.y - b.y)).toBeGreaterThan(2 * layout.nodeRadius);
    }
  }
});

test("the first server stands at the top, and an edge's reverse takes another way", () => {
  const layout = layOut(
    [4, 0, 2],
    [
      { from: 0, to: 2 },
      { from: 2, to: 0 },
      { from: 0, to: 9 },
      { from: 4, to: 4 },
    ],
  );
  expect(layout.nodes.map((node) => node.index)).toEqual([0, 2, 4]);
  expect(layout.nodes[0]?.x).toBe(layout.size / 2);
  expect(layout.edges.map((edge) => [edge.from, edge.to])).toEqual([
    [0, 2],
    [2, 0],
  ]);
  const middle = (path: string | undefined): string | undefined =>
    /Q(\S+ \S+)/.exec(path ?? "")?.[1];
  expect(middle(layout.edges[0]?.path)).not.toBe(middle(layout.edges[1]?.path));
  expect(layOut([], []).nodes).toEqual([]);
});

test("no number of the layout is missing, even where two servers face each other", () => {
  const layout = layOut([0, 1], [{ from: 0, to: 1 }]);
  expect(JSON.stringify(layout)).not.toMatch(/null|NaN/);
  expect(layout.edges[0]?.path).not.toMatch(/NaN/);
});

test.each([
  ["plain", "plain"],
  ["a,b", '"a,b"'],
  ['say "x"', '"say ""x"""'],
  ["two\nlines", '"two\nlines"'],
  ["-1250", "-1250"],
  ["=1+1", "'=1+1"],
  ["-1+cmd", "'-1+cmd"],
  ["@sum", "'@sum"],
])("the cell %j is written %j", (cell, written) => expect(csvCell(cell)).toBe(written));

test("a line of cells", () => expect(csvLine(["bank:a", 12n, 3])).toBe("bank:a,12,3\r\n"));

test("a download goes through all pages", async () => {
  const asked: string[] = [];
  const gathered = await gather(
    "csv",
    ["n"],
    async (token) => {
      asked.push(token);
      return { rows: [[asked.length]], next: asked.length < 3 ? String(asked.length) : "" };
    },
    new AbortController().signal,
    () => undefined,
  );
  expect(asked).toEqual(["", "1", "2"]);
  expect(gathered).toEqual({
    parts: ["n\r\n", "1\r\n", "2\r\n", "3\r\n"],
    rows: 3,
    complete: true,
  });
});

test("a download ends at its bound and says so", async () => {
  const rows = Array.from({ length: 1000 }, (_, i) => [i]);
  const gathered = await gather(
    "csv",
    ["n"],
    async () => ({ rows, next: "more" }),
    new AbortController().signal,
    () => undefined,
  );
  expect(gathered.rows).toBe(maxCsvRows);
  expect(gathered.complete).toBe(false);
});

test("a cancelled download throws", async () => {
  const controller = new AbortController();
  const download = gather(
    "csv",
    ["n"],
    async () => {
      controller.abort();
      return { rows: [], next: "more" };
    },
    controller.signal,
    () => undefined,
  );
  await expect(download).rejects.toThrow();
});

test("rates are per second, zero where no block was made, unknown before the first", () => {
  const series = new RateSeries(5);
  series.add(10_200, 3);
  series.add(10_900, 4);
  series.add(12_000, 5);
  expect(series.window(14_500)).toEqual({
    seconds: [9, 10, 11, 12, 13],
    rates: [null, 7, 0, 5, 0],
  });
  expect(series.window(100_000).rates).toEqual([0, 0, 0, 0, 0]);
});

test("the window grows from its least length to its whole one", () => {
  const series = new RateSeries(5, 2);
  expect(series.window(9_500)).toEqual({ seconds: [7, 8], rates: [null, null] });
  series.add(10_000, 1);
  expect(series.window(11_500).seconds).toEqual([9, 10]);
  expect(series.window(14_500)).toEqual({ seconds: [10, 11, 12, 13], rates: [1, 0, 0, 0] });
  expect(series.window(100_000).seconds).toHaveLength(5);
});

test("nodes of the digraph that are down count among those that may fail", () => {
  const member = (index: number, connected: boolean): object => ({
    index,
    member: true,
    suspected: false,
    connected,
    self: false,
    mode: NodeMode.ORDERING,
  });
  const words = (...up: boolean[]): string =>
    spareWords({
      toleratedFailures: 1,
      edges: up.map((_, i) => ({ from: i, to: (i + 1) % up.length })),
      members: up.map((is, i) => member(i, is)),
    } as unknown as ClusterState);
  expect(words(true, true, true, true)).toBe("1 may fail");
  expect(words(true, false, true, true)).toBe("no more may fail");
  expect(words(true, false, false, true)).toBe("no more may fail");
});

test("the wait between attempts grows to a bound", () => {
  expect([0, 1, 2, 3, 9].map((attempt) => backoffMs(attempt, () => 1))).toEqual([
    500, 1000, 2000, 4000, 10_000,
  ]);
  expect(backoffMs(3, () => 0)).toBe(3000);
});

test("a wait ends with its signal", async () => {
  const controller = new AbortController();
  const waiting = sleep(1_000_000, controller.signal);
  controller.abort();
  await waiting;
  await sleep(1_000_000, controller.signal);
});

test("keys stand in paths as people write them", () => {
  expect(accountPath("bank:a/b c")).toBe("/account/bank:a%2Fb%20c");
  expect(accountPath("bank:x@y+z=$!*~")).toBe("/account/bank:x@y+z=$!*~");
  expect(hitPath("block", "12")).toBe("/block/12");
  expect(hitPath("transaction", "ab")).toBe("/tx/ab");
  expect(hitPath("something", "a b")).toBe("/search?q=a%20b");
});

test("a clock, a slow member and one that follows are told in words", () => {
  const clock = (clockOffsetMs: bigint | undefined): string =>
    clockWords({ clockOffsetMs } as unknown as NodeState);
  expect(clock(undefined)).toBe("has no clocks from a majority");
  expect(clock(-4n)).toBe("as the members' median");
  expect(clock(-2_345n)).toBe("2.35 s behind the members' median");
  expect(clock(946_080_000_000n)).toBe("10,950 days ahead of the members' median");
  expect(heldUpWords({ heldUpMs: 0 } as unknown as MemberState)).toBe("");
  expect(heldUpWords({ heldUpMs: 940 } as unknown as MemberState)).toBe(
    "the rounds waited for it alone for 0.9 of the last 3 s",
  );
});

test("every mode has a word and a colour of its own, and only ordering is green", () => {
  const words = Object.values(modeWords);
  for (const part of ["text", "colour", "title"] as const)
    expect(new Set(words.map((word) => word[part])).size).toBe(words.length);
  expect(
    Object.values(standingWords)
      .filter((word) => word.colour.includes("good"))
      .map((word) => word.text),
  ).toEqual(["ordering"]);
  expect(modeWords.halted.colour).toBe("bad");
  expect(["warn", ""]).toContain(modeWords.starting.colour);
  expect(["warn", ""]).toContain(modeWords.following.colour);
  // A node that does not answer looks like no mode.
  for (const gone of ["suspected", "away", "unreachable", "never"] as const)
    expect(standingWords[gone].colour).toContain("dashed");
  expect(modeName(NodeMode.UNSPECIFIED)).toBeUndefined();
});

test("a member's standing is its mode, as long as it answers", () => {
  const of = (member: Partial<MemberState>): string =>
    standing({ connected: true, member: true, ...member } as MemberState);
  const { STARTING, ORDERING, FOLLOWING, HALTED, STOPPING, UNSPECIFIED } = NodeMode;
  expect(
    [STARTING, ORDERING, FOLLOWING, HALTED, STOPPING, UNSPECIFIED].map((mode) => of({ mode })),
  ).toEqual(["starting", "ordering", "following", "halted", "stopping", "unknown"]);
  expect(of({ mode: HALTED, connected: false, self: true, member: false })).toBe("halted");
  expect(of({ mode: ORDERING, member: false })).toBe("following");
  expect(of({ mode: ORDERING, suspected: true })).toBe("suspected");
  expect(of({ mode: ORDERING, connected: false })).toBe("away");
  expect(
    of({ mode: HALTED, connected: false, member: false, standing: MemberStanding.UNREACHABLE }),
  ).toBe("unreachable");
  expect(of({ connected: false, member: false, standing: MemberStanding.NEVER_SEEN })).toBe(
    "never",
  );
  expect(of({ connected: false, member: false, standing: MemberStanding.FOLLOWING })).toBe(
    "following",
  );
  const members = [
    { self: true, member: true, mode: HALTED },
    { connected: true, member: true, mode: HALTED },
    { connected: true, member: true, mode: ORDERING },
  ];
  expect(membersOrdering({ members } as unknown as ClusterState)).toBe(1);
});

test("a list is gathered as JSON over its pages, with large numbers as texts", async () => {
  const gathered = await gather(
    "json",
    ["height", "note"],
    async (token) =>
      token === ""
        ? { rows: [[9_007_199_254_740_993n, '=1+"2"']], next: "b" }
        : { rows: [[2n, "två\n"]], next: "" },
    new AbortController().signal,
    () => undefined,
  );
  expect(JSON.parse(gathered.parts.join(""))).toEqual([
    { height: "9007199254740993", note: '=1+"2"' },
    { height: "2", note: "två\n" },
  ]);
  const none = await gather(
    "json",
    ["n"],
    async () => ({ rows: [], next: "" }),
    new AbortController().signal,
    () => undefined,
  );
  expect(JSON.parse(none.parts.join(""))).toEqual([]);
});
