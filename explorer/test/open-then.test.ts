import { create } from "@bufbuild/protobuf";
import { beforeEach, expect, test, vi } from "vitest";
import {
  ListedTransactionSchema,
  TransactionStatusSchema,
  TransactionSummarySchema,
  type ListTransactionsRequest,
  type ListedTransaction,
} from "../src/gen/ledgerd/v1/ledgerd_pb";
import { findListed, gatherListed, mostPages } from "../src/lib/look-through";
import { holdsThen, schedulesThen, type Then } from "../src/lib/open-then";

const calls = vi.hoisted(() => ({
  listTransactions: vi.fn<(request: Partial<ListTransactionsRequest>) => Promise<object>>(),
}));
vi.mock("../src/lib/api", () => ({ api: calls, callTimeoutMs: 1000 }));

const signal = new AbortController().signal;
const minuteMs = 60_000n;

/** A transaction in the block of that minute. */
function at(
  minute: number,
  idHex: string,
  init: object,
): ListedTransaction {
  return create(ListedTransactionSchema, {
    timeMs: BigInt(minute) * minuteMs,
    transaction: create(TransactionSummarySchema, {
      ...init,
      status: create(TransactionStatusSchema, { idHex, height: BigInt(minute) }),
    }),
  });
}
const hold = (account: string, poster: string, expires: number) => ({
  hold: { account, poster, amount: "5", asset: "EUR", expiresMs: BigInt(expires) * minuteMs },
});
const then: Then = {
  timeMs: 10n * minuteMs,
  untilMs: 12n * minuteMs,
  isLater: ({ height }) => height > 10n,
};

let listed: ListedTransaction[] = [];
beforeEach(() => {
  calls.listTransactions.mockReset().mockImplementation(({ kind, pageToken, toTimeMs = 0n }) => {
    const found = listed.filter(
      ({ transaction, timeMs }) =>
        timeMs < toTimeMs &&
        ((kind === "hold" && transaction?.hold) ||
          (kind === "hold_end" && transaction?.holdEnd) ||
          (kind === "schedule" && transaction?.schedule) ||
          (kind === "schedule_end" && transaction?.scheduleEnd)),
    );
    // One a page.
    const from = Number(pageToken || "0");
    return Promise.resolve({
      transactions: found.slice(from, from + 1),
      nextPageToken: from + 1 < found.length ? String(from + 1) : "",
      unansweredShards: [],
    });
  });
});

test("the holds that were open then", async () => {
  const any = { organisation: "", account: "", poster: "" };
  listed = [
    at(11, "placed-later", hold("acme:cash", "hotel", 90)),
    at(11, "end-later", { holdEnd: { holdHex: "ended-later" } }),
    at(9, "end", { holdEnd: { holdHex: "ended" } }),
    at(4, "ended-later", hold("acme:cash", "hotel", 90)),
    at(3, "open", hold("acme:till", "bank", 90)),
    at(2, "ended", hold("acme:cash", "hotel", 90)),
    at(1, "expired", hold("acme:cash", "hotel", 10)),
    at(1, "other", hold("acmeco:cash", "hotel", 90)),
  ];
  const ids = async (filter: object): Promise<string[]> => {
    const { rows, complete } = await holdsThen(then, { ...any, ...filter }, signal);
    expect(complete).toBe(true);
    return rows.map(({ holdHex }) => holdHex);
  };
  expect(await ids({})).toEqual(["ended-later", "open", "other"]);
  expect(await ids({ organisation: "acme" })).toEqual(["ended-later", "open"]);
  expect(await ids({ account: "acme:till" })).toEqual(["open"]);
  expect(await ids({ poster: "hotel" })).toEqual(["ended-later", "other"]);
});

test("the schedules that were open then, and where they stood", async () => {
  const every = { period: "minutes", every: 4, count: 3, firstMs: 4n * minuteMs };
  listed = [
    at(11, "later", { signer: "acme", schedule: every }),
    at(9, "end", { signer: "acme", scheduleEnd: { scheduleHex: "ended" } }),
    at(3, "open", { signer: "acme", schedule: every, note: "rent" }),
    at(2, "ended", { signer: "acme", schedule: every }),
    at(1, "complete", { signer: "acme", schedule: { ...every, count: 2 } }),
  ];
  const { rows } = await schedulesThen(then, "", signal);
  expect(rows).toHaveLength(1);
  expect(rows[0]).toMatchObject({
    scheduleHex: "open",
    note: "rent",
    issued: 2,
    occurrences: 3,
    nextMs: 12n * minuteMs,
  });
  expect((await schedulesThen(then, "bank", signal)).rows).toEqual([]);
});

test("a look ends after a bounded number of pages, and says so", async () => {
  listed = Array.from({ length: mostPages + 5 }, (_, i) =>
    at(9, `hold-${i}`, hold("acme:cash", "hotel", 90)),
  );
  const request = { kind: "hold", toTimeMs: then.untilMs };
  const gathered = await gatherListed(request, signal);
  expect(gathered.listed).toHaveLength(mostPages);
  expect(gathered.complete).toBe(false);
  const idIs = (idHex: string) => (each: ListedTransaction) =>
    each.transaction?.status?.idHex === idHex;
  expect((await findListed(request, idIs("hold-7"), signal)).listed).toBeDefined();
  const missed = await findListed(request, idIs(`hold-${mostPages}`), signal);
  expect(missed).toEqual({ listed: undefined, complete: false });
});

test("what a shard did not answer may be missing", async () => {
  calls.listTransactions.mockResolvedValue({
    transactions: [],
    nextPageToken: "",
    unansweredShards: [1],
  });
  expect((await gatherListed({ kind: "hold" }, signal)).complete).toBe(false);
});
