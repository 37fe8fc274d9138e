import { expect, test } from "vitest";
import type { BlockHeader } from "../src/gen/ledgerd/v1/proofs_pb";
import { BookBlocks } from "../src/lib/bookblocks";
import { FakeChain } from "./fake-chain";

/** Makes a shard's chain with a block at each of the times, in milliseconds. */
function chainOf(shard: number, times: readonly number[], name = "bank"): FakeChain {
  const chain = new FakeChain(0n, shard);
  for (const time of times) chain.add([{ signer: name }], time);
  return chain;
}

const headers = (chain: FakeChain): BlockHeader[] => chain.blocks.map(({ header }) => header);
const shown = (blocks: BookBlocks): string[] =>
  blocks.blocks().map(({ shard, height }) => `${shard}/${height}`);

test("blocks of all shards are sorted by time, and those of one shard by height", () => {
  const blocks = new BookBlocks(100);
  for (const header of headers(chainOf(1, [10, 20, 20, 40]))) blocks.take(header);
  for (const header of headers(chainOf(0, [15, 20, 30]))) blocks.take(header);
  expect(shown(blocks)).toEqual(["1/4", "0/3", "0/2", "1/3", "1/2", "0/1", "1/1"]);
  expect(blocks.begin()).toEqual([
    { shard: 1, height: 5n },
    { shard: 0, height: 4n },
  ]);
});

test("a block that is here already is left out", () => {
  const blocks = new BookBlocks(100);
  const all = headers(chainOf(2, [10, 20, 30]));
  for (const header of [...all, ...all]) blocks.take(header);
  expect(shown(blocks)).toEqual(["2/3", "2/2", "2/1"]);
});

test("a chain that replaces another one begins again", () => {
  const blocks = new BookBlocks(100);
  for (const header of headers(chainOf(0, [10, 20]))) blocks.take(header);
  for (const header of headers(chainOf(1, [10, 20]))) blocks.take(header);
  const other = headers(chainOf(1, [10, 20, 30], "other"));
  for (const header of other.slice(2)) blocks.take(header);
  expect(shown(blocks)).toEqual(["1/3", "0/2", "0/1"]);
});

test("the list is bounded, and keeps the newest", () => {
  const blocks = new BookBlocks(10);
  const times = Array.from({ length: 1_000 }, (_, i) => i);
  for (const header of headers(chainOf(0, times))) blocks.take(header);
  expect(shown(blocks)).toHaveLength(10);
  expect(shown(blocks)[0]).toBe("0/1000");
  expect(blocks.head(0)).toBe(1000n);
  expect(blocks.head(1)).toBe(0n);
});

test("a shard without a block continues where the node said that it begins", () => {
  const blocks = new BookBlocks(10);
  for (const header of headers(chainOf(0, [10, 20]))) blocks.take(header);
  blocks.hear(
    [1],
    [
      { shard: 0, height: 9n },
      { shard: 1, height: 1n },
    ],
  );
  expect(blocks.silent).toEqual([1]);
  expect(blocks.begin()).toEqual([
    { shard: 0, height: 3n },
    { shard: 1, height: 1n },
  ]);
  blocks.hear([], []);
  expect(blocks.silent).toEqual([]);
  for (const header of headers(chainOf(1, [10]))) blocks.take(header);
  expect(blocks.begin()).toEqual([
    { shard: 0, height: 3n },
    { shard: 1, height: 2n },
  ]);
  blocks.forget(1);
  expect(blocks.begin()).toEqual([{ shard: 0, height: 3n }]);
});
