import { create } from "@bufbuild/protobuf";
import { beforeEach, expect, test, vi } from "vitest";
import {
  ListBlocksResponseSchema,
  SubscribeResponseSchema,
  type ListBlocksResponse,
  type SubscribeResponse,
} from "../src/gen/ledgerd/v1/ledgerd_pb";
import {
  blocksIn,
  blocksInLook,
  look,
  matches,
  maxFound,
  newestRanges,
  rangesBefore,
} from "../src/lib/look";
import { parseAmount } from "../src/lib/moment";
import { FakeChain, summary } from "./fake-chain";

interface Subscribed {
  fromHeight?: bigint;
  book?: boolean;
  begin?: { shard: number; height: bigint }[];
}
const calls = vi.hoisted(() => ({
  subscribe: vi.fn<(request: Subscribed) => AsyncIterable<SubscribeResponse>>(),
  listAssets:
    vi.fn<(request: { names: string[] }) => Promise<{ assets: object[] }>>(),
  listBlocks: vi.fn<(request: { fromHeight: bigint }) => Promise<ListBlocksResponse>>(),
}));
vi.mock("../src/lib/api", () => ({ api: calls, callTimeoutMs: 1000 }));

const signal = new AbortController().signal;

function chainOf(notes: readonly string[]): FakeChain {
  const chain = new FakeChain();
  for (const [i, note] of notes.entries()) chain.add([{ signer: "bank", note }], 1_000 * (i + 1));
  return chain;
}

/** Streams the chain's blocks from a height on, and then waits as a node does. */
function serve(chain: FakeChain, silent: readonly number[] = []): void {
  calls.subscribe.mockImplementation(async function* ({ fromHeight, begin }) {
    if (silent.length > 0) yield create(SubscribeResponseSchema, { silentShards: [...silent] });
    const from = begin?.find(({ shard }) => shard === chain.shard)?.height ?? fromHeight ?? 1n;
    for (let height = from; ; height++) {
      const block = chain.at(height);
      if (!block) throw new Error("it was read on after the last block of its range");
      yield create(SubscribeResponseSchema, {
        block: { header: block.header, transactions: block.transactions.map(summary) },
      });
    }
  });
  calls.listBlocks.mockImplementation(async ({ fromHeight }) => {
    const block = chain.at(fromHeight === 0n ? chain.head : fromHeight);
    return create(ListBlocksResponseSchema, { blocks: block ? [block.header] : [] });
  });
}

beforeEach(() => vi.clearAllMocks());

test("notes and amounts match, verdicts do not", () => {
  const row = { note: "Rent for Flat 4", verdict: "", postings: [] as never[] };
  const postings = [{ account: "a:b", amount: "-1812", asset: "EUR" }] as never[];
  expect(matches(row, "rent")).toBe("note");
  expect(matches(row, "flat 5")).toBeUndefined();
  expect(matches({ ...row, postings }, "1,812")).toBe("amount");
  expect(matches({ ...row, postings }, "1812 eur")).toBe("amount");
  expect(matches({ ...row, postings }, "1812 USD")).toBeUndefined();
  expect(matches({ ...row, postings }, "181")).toBeUndefined();
  const cents = new Map([["EUR", 2]]);
  const at = (typed: string): string | undefined =>
    matches({ ...row, postings }, typed, parseAmount(typed), cents);
  for (const typed of ["18.12", "18.12 eur", "-18.120", "1812"]) expect(at(typed)).toBe("amount");
  for (const typed of ["18.121", "181.2", "1.812", "18.1", "18", "18.12 USD", "1812.00"])
    expect(at(typed)).toBeUndefined();
  const round = [{ account: "a:b", amount: "500", asset: "EUR" }] as never[];
  for (const typed of ["5", "5.0", "5.00", "500"])
    expect(matches({ ...row, postings: round }, typed, parseAmount(typed), cents)).toBe("amount");
  expect(matches({ ...row, postings: round }, "50", parseAmount("50"), cents)).toBeUndefined();
  expect(matches({ ...row, verdict: "good" }, "rent")).toBeUndefined();
});

test("a look covers a bounded number of the newest blocks, and the next one those before", () => {
  const newest = newestRanges([
    { shard: 0, height: 1_200n },
    { shard: 1, height: 30n },
    { shard: 2, height: 0n },
  ]);
  expect(newest).toEqual([
    { shard: 0, from: 1_201n - blocksInLook, to: 1_200n },
    { shard: 1, from: 1n, to: 30n },
  ]);
  expect(rangesBefore(newest)).toEqual([{ shard: 0, from: 201n, to: 700n }]);
  expect(rangesBefore(rangesBefore(newest))).toEqual([{ shard: 0, from: 1n, to: 200n }]);
  expect(rangesBefore(rangesBefore(rangesBefore(newest)))).toEqual([]);
});

test("a look finds the newest first, ends with its range and tells what it covered", async () => {
  const chain = chainOf(["rent a", "food", "rent b", "rent c", "rent d"]);
  serve(chain);
  const looked = await look("RENT", [{ shard: 0, from: 2n, to: 4n }], false, signal);
  expect(looked.found.map(({ transaction }) => transaction.note)).toEqual(["rent c", "rent b"]);
  expect(looked.ranges).toEqual([{ shard: 0, from: 2n, to: 4n }]);
  expect(looked).toMatchObject({ count: 2, transactions: 3, clipped: 0, unanswered: [] });
});

test("of one moment, a look has the last first", async () => {
  const chain = new FakeChain();
  chain.add([{ signer: "bank", note: "rent a" }, { signer: "bank", note: "rent b" }], 1_000);
  chain.add([{ signer: "bank", note: "rent c" }], 1_000);
  serve(chain);
  const looked = await look("rent", [{ shard: 0, from: 1n, to: 2n }], false, signal);
  const notes = looked.found.map(({ transaction }) => transaction.note);
  expect(notes).toEqual(["rent c", "rent b", "rent a"]);
});

test("a look keeps a bounded number of what it found, and counts all", async () => {
  serve(chainOf(Array.from({ length: maxFound + 7 }, (_, i) => `rent ${i}`)));
  const looked = await look(
    "rent",
    [{ shard: 0, from: 1n, to: BigInt(maxFound + 7) }],
    false,
    signal,
  );
  expect(looked.found).toHaveLength(maxFound);
  expect(looked.count).toBe(maxFound + 7);
});

test("a look does without a silent shard, and names it", async () => {
  serve(chainOf(["rent a", "food"]), [1]);
  const ranges = newestRanges([
    { shard: 0, height: 2n },
    { shard: 1, height: 9n },
  ]);
  const looked = await look("rent", ranges, true, signal);
  expect(looked.found).toHaveLength(1);
  expect(looked.ranges.map(({ shard }) => shard)).toEqual([0]);
  expect(looked.unanswered).toEqual([1]);
});

test("the blocks of a period are found with few questions", async () => {
  const chain = chainOf(Array.from({ length: 1000 }, (_, i) => `n${i}`));
  serve(chain);
  const at = (height: bigint): number => Number(chain.at(height)?.header.timeMs);
  const period = await blocksIn(at(400n), at(500n), 0, false, signal);
  expect(period.first?.height).toBe(400n);
  expect(period.last?.height).toBe(499n);
  expect(period.before?.height).toBe(399n);
  expect(calls.listBlocks.mock.calls.length).toBeLessThan(30);
  const late = await blocksIn(at(1000n) + 1, at(1000n) + 2, 0, false, signal);
  expect(late).toMatchObject({ first: undefined, last: undefined });
  expect(late.before?.height).toBe(1000n);
  const early = await blocksIn(at(1n) - 2, at(1n) - 1, 0, false, signal);
  expect([early.first, early.last, early.before]).toEqual([undefined, undefined, undefined]);
});
