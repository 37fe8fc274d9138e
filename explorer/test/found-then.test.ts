import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { beforeEach, expect, test, vi } from "vitest";
import { SearchHitSchema, type TransactionStatus } from "../src/gen/ledgerd/v1/ledgerd_pb";
import { hitsThen, type HitThen } from "../src/lib/found-then";

const calls = vi.hoisted(() => ({
  getTransaction: vi.fn(),
  getOrganisation: vi.fn(),
  getAccount: vi.fn(),
}));
vi.mock("../src/lib/api", () => ({ api: calls, callTimeoutMs: 1000 }));

const signal = new AbortController().signal;
const then: HitThen = {
  places: [],
  own: 0,
  isLater: (_, height) => height > 10n,
  cameLater: (status: TransactionStatus | undefined) => (status?.height ?? 0n) > 10n,
};
const hit = (kind: string, key: string) => create(SearchHitSchema, { kind, key });
const keys = async (...hits: [kind: string, key: string][]) => {
  const found = await hitsThen(hits.map((each) => hit(...each)), then, signal);
  return { ...found, hits: found.hits.map(({ key }) => key) };
};

beforeEach(() => {
  for (const call of Object.values(calls)) call.mockReset();
});

test("later blocks, transactions and organisations are left out", async () => {
  calls.getTransaction.mockImplementation(({ idHex }: { idHex: string }) =>
    Promise.resolve({ transaction: { status: { height: BigInt(idHex) } } }),
  );
  calls.getOrganisation.mockImplementation(({ name }: { name: string }) =>
    Promise.resolve({ organisation: { registeredHeight: BigInt(name) } }),
  );
  expect(await keys(["block", "10"], ["block", "11"])).toEqual({
    hits: ["10"],
    later: 1,
    unknown: 0,
  });
  expect(await keys(["transaction", "9"], ["transaction", "0"], ["transaction", "11"])).toEqual({
    hits: ["9"],
    later: 2,
    unknown: 0,
  });
  expect((await keys(["organisation", "1"], ["organisation", "20"])).hits).toEqual(["1"]);
});

test("accounts that were not open are left out, and unknown ones are counted", async () => {
  calls.getAccount.mockImplementation(({ account }: { account: string }) => {
    if (account === "later") throw new ConnectError("not open", Code.NotFound);
    if (account === "silent") throw new ConnectError("no answer", Code.Unavailable);
    return Promise.resolve({ atCut: account !== "old" });
  });
  const account = (key: string): [string, string] => ["account", key];
  expect(await keys(...["there", "later", "silent", "old"].map(account))).toEqual({
    hits: ["there"],
    later: 1,
    unknown: 2,
  });
  expect(await keys(["weather", "rain"])).toEqual({ hits: [], later: 0, unknown: 1 });
});
