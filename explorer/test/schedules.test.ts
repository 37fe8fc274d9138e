import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { readFileSync } from "node:fs";
import { expect, test, vi } from "vitest";
import {
  TransactionSchema,
  TransactionState,
  TransactionSummarySchema,
  type Transaction,
} from "../src/gen/ledgerd/v1/ledgerd_pb";
import { ScheduleSchema, type Schedule } from "../src/gen/ledgerd/v1/transaction_pb";
import { toHex } from "../src/lib/bytes";
import { actions } from "../src/lib/format";
import {
  occurrenceBody,
  occurrenceId,
  occurrencesOf,
  periodWords,
  timeOf,
} from "../src/lib/occurrences";
import { countIssued, findEnd, findOccurrences } from "../src/lib/schedules";
import { bytes } from "./fixtures";

const calls = vi.hoisted(() => ({
  getTransaction: vi.fn<(request: { idHex: string }) => Promise<{ transaction: Transaction }>>(),
  listTransactions: vi.fn<(request: object) => Promise<object>>(),
}));
vi.mock("../src/lib/api", () => ({ api: calls, callTimeoutMs: 1000 }));

const signal = new AbortController().signal;

test("a period in words", () => {
  expect(periodWords(0, "once")).toBe("once");
  expect(periodWords(1, "months")).toBe("every month");
  expect(periodWords(2, "weeks")).toBe("every 2 weeks");
});

test("what transactions of schedules do", () => {
  const words = (init: Parameters<typeof create<typeof TransactionSummarySchema>>[1]): string =>
    actions(create(TransactionSummarySchema, init));
  expect(words({ schedule: { period: "once" } })).toBe("places a schedule");
  expect(words({ scheduleEnd: { scheduleHex: "07" } })).toBe("ends a schedule");
  expect(words({ occurrence: { number: 3 }, postingCount: 2 })).toBe(
    "occurrence 3 of a schedule, makes 2 postings",
  );
});

interface Vectors {
  transactions: { name: string; encoded: string; hash: string }[];
}
const vectors = JSON.parse(
  readFileSync("../ledger/testdata/vectors/schedules.json", "utf8"),
) as Vectors;

test("the occurrence of the vectors follows from their schedule", async () => {
  const [schedule, , occurrence] = vectors.transactions;
  const canonical = bytes(schedule?.encoded);
  const id = `010203${"0".repeat(58)}`;
  expect(toHex(occurrenceBody(canonical, id, 2) ?? new Uint8Array())).toBe(occurrence?.encoded);
  expect(await occurrenceId(canonical, id, 2)).toBe(occurrence?.hash);
  expect(await occurrenceId(canonical, id, 3)).not.toBe(occurrence?.hash);
});

test("what places no schedule has no occurrences", () => {
  const [schedule, end] = vectors.transactions;
  const id = "0".repeat(64);
  expect(occurrenceBody(bytes(end?.encoded), id, 1)).toBeUndefined();
  expect(occurrenceBody(bytes(schedule?.encoded), "none", 1)).toBeUndefined();
  expect(occurrenceBody(bytes(schedule?.encoded).subarray(0, 60), id, 1)).toBeUndefined();
});

const times = (first: string, period: string, every: number, count = 0, until = ""): Schedule =>
  create(ScheduleSchema, {
    firstMs: BigInt(Date.parse(first)),
    period,
    every,
    count,
    untilMs: until === "" ? 0n : BigInt(Date.parse(until)),
  });
test.each([
  [times("2027-01-31T08:00Z", "months", 1, 12), 2, "2027-02-28T08:00"],
  [times("2027-01-31T08:00Z", "months", 1, 12), 3, "2027-03-31T08:00"],
  [times("2027-10-31T08:00Z", "months", 4, 12), 2, "2028-02-29T08:00"],
  [times("2096-02-29T23:59Z", "months", 12, 12), 5, "2100-02-28T23:59"],
  [times("2027-03-27T00:30Z", "days", 1, 12), 3, "2027-03-29T00:30"],
  [times("2027-03-27T00:30Z", "weeks", 2, 12), 2, "2027-04-10T00:30"],
  [times("2027-03-27T00:30Z", "minutes", 30, 12), 4, "2027-03-27T02:00"],
  [times("2027-03-27T00:30Z", "once", 0, 1), 1, "2027-03-27T00:30"],
])("%# the time of an occurrence", (schedule, number, want) => {
  expect(new Date(timeOf(schedule, number)).toISOString()).toBe(`${want}:00.000Z`);
});

test.each([
  [times("2027-01-31T08:00Z", "months", 1, 12), 12],
  [times("2027-01-31T08:00Z", "once", 0, 1), 1],
  [times("2027-01-31T08:00Z", "months", 1, 12, "2027-04-30T08:00Z"), 4],
  [times("2027-01-31T08:00Z", "months", 1, 12, "2027-04-30T07:59Z"), 3],
  [times("2027-01-31T08:00Z", "days", 1, 0, "2027-02-10T08:00Z"), 11],
])("%# how many occurrences there are", (schedule, want) => {
  expect(occurrencesOf(schedule)).toBe(want);
});

const placed = create(TransactionSchema, {
  status: { idHex: "07".repeat(32) },
  body: { signer: "alice", schedule: times("2027-01-31T08:00Z", "months", 1, 48) },
  canonical: bytes(vectors.transactions[0]?.encoded),
});

/** A node that knows the occurrences up to a number. */
async function know(issued: number): Promise<void> {
  const id = placed.status?.idHex ?? "";
  const numbers = Array.from({ length: issued }, (_, i) => i + 1);
  const known = await Promise.all(
    numbers.map((number) => occurrenceId(placed.canonical, id, number)),
  );
  calls.getTransaction.mockReset().mockImplementation(async ({ idHex }) => {
    if (known.includes(idHex)) return { transaction: create(TransactionSchema, {}) };
    throw new ConnectError("not here", Code.NotFound);
  });
}

test("how many occurrences blocks have, by few questions", async () => {
  for (const issued of [0, 1, 2, 17, 31, 47, 48]) {
    await know(issued);
    expect(await countIssued(placed, signal)).toBe(issued);
    expect(calls.getTransaction.mock.calls.length).toBeLessThanOrEqual(issued === 48 ? 1 : 7);
  }
});

test("an answer that fails is not taken for an occurrence that is not there", async () => {
  calls.getTransaction.mockRejectedValue(new ConnectError("away", Code.Unavailable));
  await expect(countIssued(placed, signal)).rejects.toThrow("away");
});

test("occurrences from a number down", async () => {
  await know(3);
  const found = await findOccurrences(placed, 5, 4, signal);
  expect(found.map(({ number, transaction }) => [number, transaction !== undefined])).toEqual([
    [5, false],
    [4, false],
    [3, true],
    [2, true],
  ]);
});

test("the end of a schedule is found on a later page, and one that failed is none", async () => {
  const listed = (scheduleHex: string, state: TransactionState): object => ({
    transaction: { scheduleEnd: { scheduleHex }, status: { state } },
  });
  const id = placed.status?.idHex ?? "";
  calls.listTransactions
    .mockResolvedValueOnce({
      transactions: [listed("08", TransactionState.DURABLE), listed(id, TransactionState.FAILED)],
      nextPageToken: "2",
      unansweredShards: [],
    })
    .mockResolvedValueOnce({
      transactions: [listed(id, TransactionState.DURABLE)],
      nextPageToken: "",
    });
  const found = await findEnd(placed, signal);
  expect(found?.transaction?.status?.state).toBe(TransactionState.DURABLE);
  expect(calls.listTransactions.mock.lastCall?.[0]).toMatchObject({
    organisation: "alice",
    pageToken: "2",
  });
});
