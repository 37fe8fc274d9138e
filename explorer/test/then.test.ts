import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { beforeEach, expect, test, vi } from "vitest";
import { GetCutResponseSchema, PlaceSchema } from "../src/gen/ledgerd/v1/cut_pb";
import { FiguresSchema, GetFiguresResponseSchema } from "../src/gen/ledgerd/v1/figures_pb";
import {
  ClusterStateSchema,
  ListedTransactionSchema,
  OrganisationSchema,
  TransactionState,
  TransactionStatusSchema,
  TransactionSummarySchema,
  type ListTransactionsRequest,
  type ListedTransaction,
} from "../src/gen/ledgerd/v1/ledgerd_pb";
import { wasOpen } from "../src/lib/crossings-then";
import { figuresThen, figuresUntil } from "../src/lib/figures-then";
import { membersThen } from "../src/lib/members-then";
import type { Then } from "../src/lib/open-then";
import { homeThen, policyThen } from "../src/lib/organisation-then";
import { treeThen } from "../src/lib/tree-then";
import { fakeGenesis, joining, uint64 } from "./fake-certificates";

const calls = vi.hoisted(() => ({
  listTransactions: vi.fn<(request: Partial<ListTransactionsRequest>) => Promise<object>>(),
  getGenesis: vi.fn(),
  getFigures: vi.fn(),
  listBlocks: vi.fn(),
  getTransaction: vi.fn(),
}));
vi.mock("../src/lib/api", () => ({ api: calls, callTimeoutMs: 1000 }));

const signal = new AbortController().signal;
const hour = 3_600_000;
const day = 24 * hour;
const thenMs = Date.UTC(2026, 10, 28, 14, 30);
const then: Then = {
  timeMs: BigInt(thenMs),
  untilMs: BigInt(thenMs + 60_000),
  isLater: ({ height }) => height > 10n,
};

/** A transaction in the block of a height. */
const at = (
  height: number,
  transaction: MessageInitShape<typeof TransactionSummarySchema>,
  status: MessageInitShape<typeof TransactionStatusSchema> = {},
): ListedTransaction =>
  create(ListedTransactionSchema, {
    timeMs: BigInt(thenMs + (height - 10) * 1000),
    transaction: create(TransactionSummarySchema, {
      ...transaction,
      status: create(TransactionStatusSchema, {
        idHex: String(height),
        height: BigInt(height),
        state: TransactionState.DURABLE,
        ...status,
      }),
    }),
  });

let listed: ListedTransaction[] = [];
let more = "";
beforeEach(() => {
  more = "";
  calls.listTransactions.mockReset().mockImplementation(({ kind }) =>
    Promise.resolve({
      transactions:
        kind === "verdict"
          ? listed.filter(({ transaction }) => transaction?.verdict !== "")
          : listed.filter(({ transaction }) => transaction?.verdict === ""),
      nextPageToken: more,
      unansweredShards: [],
    }),
  );
  calls.getFigures.mockReset().mockResolvedValue({ fromHeight: 1n });
  calls.getGenesis.mockReset().mockResolvedValue(fakeGenesis("demo", 1, [["a", "b", "c"]]));
});

const join = (height: number, name: string): ListedTransaction =>
  at(height, {
    membershipChange: {
      change: { case: "join", value: { ...joining(name), address: `${name}:7000` } },
    },
  });
const leave = (height: number, index: number): ListedTransaction =>
  at(height, { membershipChange: { change: { case: "leave", value: index } } });
const admit = (height: number, index: number, disk: string): ListedTransaction =>
  at(height, { membershipChange: { change: { case: "admit", value: { index, disk } } } });
const engine = (height: number, name: string): ListedTransaction =>
  at(height, { membershipChange: { change: { case: "engine", value: name } } });

test("members of then are those of the genesis and the changes up to then", async () => {
  // The list has the newest first. A join that repeats what is so takes no index.
  const [early, late] = [[join(5, "a"), join(4, "d")], [join(12, "late"), join(10, "e")]];
  listed = [...late, leave(9, 1), engine(8, "allconcur"), admit(7, 0, "d1"), ...early];
  const found = await membersThen(then, undefined, undefined, () => false, signal);
  expect(found.complete).toBe(true);
  expect(found.members?.map(({ index, name, address, joinedHeight, disk }) => [
    index,
    name,
    address,
    joinedHeight,
    disk,
  ])).toEqual([
    [0, "a", "127.0.0.1:7000", 0n, "d1"],
    [2, "c", "127.0.0.1:7000", 0n, ""],
    [3, "d", "d:7000", 4n, ""],
    [4, "e", "e:7000", 10n, ""],
  ]);
  expect(found.changes.map(({ height, kind, name }) => [height, kind, name])).toEqual([
    [10n, "join", "e"],
    [9n, "leave", "b"],
    [8n, "engine", "allconcur"],
    [7n, "admit", "a"],
    [5n, "join", "a"],
    [4n, "join", "d"],
  ]);
});

test("without the first blocks the node's own words say who was a member", async () => {
  listed = [admit(9, 0, "d2")];
  calls.getFigures.mockResolvedValue({ fromHeight: 500n });
  const blind = await membersThen(then, 1, undefined, () => false, signal);
  expect(blind).toMatchObject({ complete: false, members: undefined });
  const cluster = create(ClusterStateSchema, {
    members: [
      { index: 0, name: "a", address: "a:1" },
      { index: 3, name: "d", address: "d:1", joinedHeight: 12n },
    ],
    former: [
      { index: 1, name: "b", leftHeight: 11n },
      { index: 2, name: "c", leftHeight: 10n },
    ],
  });
  const known = await membersThen(then, undefined, cluster, (height) => height > 10n, signal);
  expect(known.members?.map(({ name, address, disk }) => [name, address, disk])).toEqual([
    ["a", "a:1", "d2"],
    ["b", undefined, undefined],
  ]);
});

test("the tree of then has the shards and parents of then, and their streams", async () => {
  calls.getGenesis.mockResolvedValue(
    fakeGenesis("demo", 1, [["a"], ["b"], ["c"], ["d"]], [0, 0, 0, 1]),
  );
  const rehang = (height: number, number: number, parent: number): ListedTransaction =>
    at(height, {
      book: { number: BigInt(number), change: { case: "rehang", value: { shard: 2, parent } } },
    });
  const lost = at(9, { book: { number: 6n, change: { case: "lostShard", value: 3 } } });
  listed = [rehang(11, 7, 3), lost, rehang(8, 5, 1)];
  const base = 5n << 40n;
  const cut = create(GetCutResponseSchema, {
    places: [
      { height: 10n, streamed: [9n] },
      { height: 7n, entries: 1, carried: 8n, streamed: [base + 4n, 3n] },
      { height: 6n, carried: 77n }, // it still takes entries of its earlier parent
      { height: 5n, carried: 3n },
    ],
  });
  const { tree, lost: gone, complete, changes } = await treeThen(then, cut, signal);
  expect(tree.shards.map(({ shard, parent, root, mode }) => [shard, parent, root, mode])).toEqual([
    [0, 0, true, ""],
    [1, 0, false, ""],
    [2, 1, false, ""],
    [3, 1, false, "lost"],
  ]);
  expect(tree.shards.map(({ height }) => height)).toEqual([10n, 8n, 6n, 5n]);
  const streams = tree.shards.map((each) =>
    each.streams.map(({ child, streamed, carried }) => [child, streamed, carried]),
  );
  expect(streams).toEqual([[[1, 9n, 8n]], [[2, 4n, 0n], [3, 3n, 3n]], [], []]);
  expect([gone, complete]).toEqual([[3], true]);
  expect(changes.map(({ height }) => height)).toEqual([9n, 8n]);
});

const figures = (startMs: number, transactions: bigint) =>
  create(FiguresSchema, {
    startMs: BigInt(startMs),
    transactions,
    crossings: [{ shard: 1, transactions, verdicts: 1n }],
  });
const monthMs = Date.UTC(2026, 10, 1);
const dayMs = thenMs - (thenMs % day);
const hourMs = thenMs - (thenMs % hour);
const answer = create(GetFiguresResponseSchema, {
  total: { startMs: 5n, transactions: 1000n },
  fromHeight: 1n,
  countedHeight: 50n,
  months: [figures(Date.UTC(2026, 9, 1), 100n), figures(monthMs, 900n)],
  days: [figures(dayMs - day, 20n), figures(dayMs, 880n)],
  hours: [figures(hourMs - hour, 3n), figures(hourMs, 800n), figures(hourMs + hour, 77n)],
});

test("figures of then are the periods that were over, and what there was of the others", () => {
  const until = figuresUntil(answer, thenMs, figures(hourMs, 7n));
  expect(until.total).toMatchObject({ startMs: 5n, transactions: 130n });
  expect(until.total?.crossings).toMatchObject([{ shard: 1, transactions: 130n, verdicts: 4n }]);
  const counts = (kind: "hours" | "days" | "months") =>
    until[kind].map(({ startMs, transactions }) => [Number(startMs), transactions]);
  expect(counts("hours")).toEqual([[hourMs - hour, 3n], [hourMs, 7n]]);
  expect(counts("days")).toEqual([[dayMs - day, 20n], [dayMs, 10n]]);
  expect(counts("months")).toEqual([[Date.UTC(2026, 9, 1), 100n], [monthMs, 30n]]);
});

test("where hours are forgotten, the day of then is counted from its beginning", () => {
  const hours = Array.from({ length: 744 }, (_, i) => figures(hourMs + i * hour, 1n));
  const until = figuresUntil({ ...answer, hours }, thenMs, figures(dayMs, 9n));
  expect(until.total?.transactions).toBe(129n);
  expect(until.days.at(-1)?.transactions).toBe(9n);
  expect(until.hours).toEqual([]);
});

test("what came in the hour of then is counted from the list", async () => {
  calls.getFigures.mockResolvedValue(answer);
  const canonical = new Uint8Array([9, 9, ...uint64(140n)]);
  calls.listBlocks.mockResolvedValue({ blocks: [{ canonical, timeMs: BigInt(thenMs) }] });
  const crossing = { destinations: [0, 1] };
  listed = [
    at(12, {}),
    at(10, {}, crossing),
    at(10, {}, { state: TransactionState.FAILED }),
    at(9, {}, { ...crossing, state: TransactionState.FAILED, settledHeight: 12n }),
    at(9, { verdict: "good", verdictShard: 1 }),
  ];
  const place = create(PlaceSchema, { height: 10n, entries: 2 });
  const found = await figuresThen(0, 0, place, then, true, signal);
  expect(found).toMatchObject({ shard: 0, clipped: false, entries: 142n });
  expect(found.answer?.total).toMatchObject({
    transactions: 126n, // 123 and three
    failed: 1n,
    between: 16n,
    crossings: [{ shard: 1, transactions: 125n, verdicts: 4n }],
  });
  expect(found.answer).toMatchObject({ countedHeight: 10n, headHeight: 10n });
  expect(calls.listTransactions.mock.calls[0]?.[0]).toMatchObject({
    fromTimeMs: BigInt(hourMs),
    shard: 0,
  });
  calls.getFigures.mockRejectedValue(new Error("silent"));
  expect((await figuresThen(0, 0, place, then, true, signal)).answer).toBeUndefined();
});

test("a transaction was on its way until a later block ended its wait", () => {
  const open = (init: MessageInitShape<typeof TransactionStatusSchema>): boolean =>
    wasOpen(create(TransactionStatusSchema, { height: 8n, ...init }), then);
  expect(open({ settledHeight: 10n })).toBe(false);
  expect(open({ settledHeight: 11n })).toBe(true);
  expect(open({ state: TransactionState.PENDING, waitsFor: [1] })).toBe(true);
  expect(open({ state: TransactionState.FAILED })).toBe(false);
});

test("an organisation's policy and home of then", async () => {
  const organisation = (number: bigint) =>
    create(OrganisationSchema, {
      name: "acme",
      shard: 3,
      policy: { number },
      earlierHomes: [{ shard: 1 }, { shard: 2 }],
    });
  expect(await policyThen(organisation(0n), then, signal)).toEqual(organisation(0n).policy);
  expect(calls.listTransactions).not.toHaveBeenCalled();
  calls.getTransaction.mockImplementation(({ idHex }: { idHex: string }) =>
    Promise.resolve({
      transaction: {
        body:
          idHex === "9"
            ? { policy: { number: 1n, threshold: 2 } }
            : { organisations: [{ name: "acme", publicKeys: [new Uint8Array([7])] }] },
      },
    }),
  );
  const policies = [at(11, { signer: "acme" }), at(9, { signer: "acme" })];
  const registration = [at(2, { signer: "acme" })];
  calls.listTransactions.mockImplementation(({ kind }) =>
    Promise.resolve({
      transactions: kind === "policy" ? policies : registration,
      nextPageToken: more,
      unansweredShards: [],
    }),
  );
  expect(await policyThen(organisation(2n), then, signal)).toMatchObject({ threshold: 2 });
  policies.pop();
  const implied = await policyThen(organisation(1n), then, signal);
  expect(implied).toMatchObject({ threshold: 1, keys: [{ publicKey: new Uint8Array([7]) }] });
  registration.pop();
  expect(await policyThen(organisation(1n), then, signal)).toBeUndefined();

  const move = (to: number, name = "acme"): ListedTransaction =>
    at(9, { book: { change: { case: "move", value: { organisation: name, to } } } });
  const changes = (...moves: ListedTransaction[]) =>
    moves.map(({ transaction, timeMs }) => ({
      height: 9n,
      timeMs,
      transaction: transaction ?? create(TransactionSummarySchema),
    }));
  const home = (complete: boolean, ...moves: ListedTransaction[]) =>
    homeThen(organisation(0n), { changes: changes(...moves), complete });
  expect(home(true)).toBe(1);
  expect(home(false)).toBeUndefined();
  expect(home(false, move(9, "zeta"), move(3), move(2))).toBe(3);
  const never = { name: "acme", shard: 5, earlierHomes: [] };
  expect(homeThen(never, { changes: [], complete: false })).toBe(5);
});
