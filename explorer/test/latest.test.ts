import { create } from "@bufbuild/protobuf";
import { expect, test, vi } from "vitest";
import type { BlockHeader } from "../src/gen/ledgerd/v1/proofs_pb";
import { GetBlockResponseSchema, type GetBlockResponse } from "../src/gen/ledgerd/v1/ledgerd_pb";
import { LatestTransactions } from "../src/lib/latest.svelte";
import { FakeChain, summary } from "./fake-chain";

const getBlock = vi.hoisted(() =>
  vi.fn<(request: { block: { value: bigint } }) => Promise<GetBlockResponse>>(),
);
vi.mock("../src/lib/api", () => ({ api: { getBlock }, callTimeoutMs: 1000 }));

const signal = new AbortController().signal;

/** Makes a chain whose blocks have one transaction each, "NAME-HEIGHT" in its note. */
function chainOf(name: string, blocks: number): FakeChain {
  const chain = new FakeChain();
  grow(chain, name, blocks);
  return chain;
}

function grow(chain: FakeChain, name: string, blocks: number): void {
  for (let i = 0; i < blocks; i++)
    chain.add([{ signer: "bank", note: `${name}-${chain.head + 1n}` }], 1_000);
}

/** Lets the node answer from this chain. */
function serve(chain: FakeChain): void {
  getBlock.mockImplementation(async ({ block }) => {
    const found = chain.at(block.value);
    if (!found) throw new Error(`there is no block ${block.value}`);
    return create(GetBlockResponseSchema, {
      block: { header: found.header, transactions: found.transactions.map(summary) },
    });
  });
}

/** Returns the chain's newest blocks, newest first, as the page has them. */
const newest = (chain: FakeChain, most = 300): BlockHeader[] =>
  chain.blocks
    .slice(-most)
    .map((block) => block.header)
    .reverse();
const notes = (latest: LatestTransactions): string[] => latest.rows.map((row) => row.note);

test("new blocks add their transactions on top", async () => {
  const chain = chainOf("a", 5);
  serve(chain);
  const latest = new LatestTransactions(4);
  await latest.refresh(newest(chain), signal);
  expect(notes(latest)).toEqual(["a-5", "a-4", "a-3", "a-2"]);
  grow(chain, "a", 1);
  getBlock.mockClear();
  await latest.refresh(newest(chain), signal);
  expect(notes(latest)).toEqual(["a-6", "a-5", "a-4", "a-3"]);
  expect(getBlock).toHaveBeenCalledTimes(1);
});

test.each([
  ["shorter", 3],
  ["equally long", 8],
  ["longer", 9],
])("no transaction stays of a chain that a %s one replaced", async (_, length) => {
  const old = chainOf("old", 8);
  serve(old);
  const latest = new LatestTransactions(4);
  await latest.refresh(newest(old), signal);
  const other = chainOf("new", length);
  serve(other);
  await latest.refresh(newest(other), signal);
  expect(notes(latest)).toEqual(
    [length, length - 1, length - 2, length - 3]
      .filter((height) => height > 0)
      .map((height) => `new-${height}`),
  );
  grow(other, "new", 1);
  await latest.refresh(newest(other), signal);
  expect(notes(latest)[0]).toBe(`new-${length + 1}`);
  expect(notes(latest).filter((note) => note.startsWith("old"))).toEqual([]);
});

test("after a gap the list begins again, since the chain may be another one", async () => {
  const chain = chainOf("a", 5);
  serve(chain);
  const latest = new LatestTransactions(4);
  await latest.refresh(newest(chain), signal);
  grow(chain, "a", 10);
  await latest.refresh(newest(chain, 2), signal);
  expect(notes(latest)).toEqual(["a-15", "a-14"]);
});

test("an answer that arrives after the chain was replaced goes with the next refresh", async () => {
  const old = chainOf("old", 8);
  const latest = new LatestTransactions(4);
  let answer: () => void = () => undefined;
  const late = new Promise<void>((resolve) => (answer = resolve));
  getBlock.mockImplementation(async ({ block }) => {
    await late;
    return create(GetBlockResponseSchema, {
      block: { transactions: (old.at(block.value)?.transactions ?? []).map(summary) },
    });
  });
  const first = latest.refresh(newest(old), signal);
  const other = chainOf("new", 3);
  await latest.refresh(newest(other), signal);
  answer();
  await first;
  serve(other);
  await latest.refresh(newest(other), signal);
  expect(notes(latest)).toEqual(["new-3", "new-2", "new-1"]);
});
