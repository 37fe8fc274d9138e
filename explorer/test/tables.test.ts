import { create } from "@bufbuild/protobuf";
import { describe, expect, test } from "vitest";
import { AccountSchema } from "../src/gen/ledgerd/v1/accounts_pb";
import {
  MemberStateSchema,
  NodeMode,
  SearchHitSchema,
  ShardPlaceSchema,
  TransactionSchema,
  TransactionState,
  TransactionSummarySchema,
  TreeSchema,
} from "../src/gen/ledgerd/v1/ledgerd_pb";
import { BlockHeaderSchema, Level } from "../src/gen/ledgerd/v1/proofs_pb";
import { RecordingSchema } from "../src/gen/ledgerd/v1/rounds_pb";
import { ShardChangeSchema } from "../src/gen/ledgerd/v1/shards_pb";
import { TransactionBodySchema } from "../src/gen/ledgerd/v1/transaction_pb";
import { jsonLine, type Table } from "../src/lib/csv";
import { eventsTable, namesOf, runsTable } from "../src/lib/rounds";
import * as tables from "../src/lib/tables";

const bytes = Uint8Array.of(0xab, 1);
const timeMs = BigInt(Date.UTC(2026, 10, 29, 5));
const summary = create(TransactionSummarySchema, {
  status: {
    index: 3,
    height: 7n,
    idHex: "aa",
    state: TransactionState.FAILED,
    reasonCode: "funds",
  },
  signer: "north",
  postingCount: 2,
  note: "rent",
});
const body = create(TransactionBodySchema, {
  postings: [{ account: "north:a", amount: "-5", asset: "" }],
  records: [{ key: "north:r", value: bytes }],
  organisations: [{ name: "south", publicKeys: [bytes, bytes] }],
  accounts: [{ account: "north:b", issuer: true, alias: "mint" }],
});
const recording = create(RecordingSchema, {
  node: 1,
  events: [{ number: 4n, atUs: 1_000_002n, epoch: 2n, round: 9n, blockTimeMs: timeMs }],
  runs: [{ generation: 1n, eon: 2, firstRound: 3n, members: [0, 1], begunUs: 5n, end: "" }],
});
const member = { index: 2, name: "node-2", apiAddress: "h:1", orderedHeight: 9n };

// Each table with a row, as an object. What a page shortens or formats is whole.
const cases: [string, Table, Record<string, unknown>][] = [
  [
    "blocks",
    tables.blocksTable(
      [create(BlockHeaderSchema, { height: 7n, shard: 2, hashHex: "ab", timeMs })],
      () => Level.DURABLE,
    ),
    { shard: 2, height: "7", hash: "ab", time: "2026-11-29T05:00:00.000Z", level: "durable" },
  ],
  [
    "transactions",
    tables.summaryTable([summary]),
    { height: "7", index: 3, id: "aa", state: "failed", reason: "funds", note: "rent" },
  ],
  [
    "found",
    tables.foundTable([{ transaction: summary, shard: 4, timeMs, where: "note" }]),
    { shard: 4, id: "aa", found_in: "note" },
  ],
  [
    "hits",
    tables.hitsTable([create(SearchHitSchema, { kind: "account", key: "north:a", shard: 1 })]),
    { kind: "account", key: "north:a", label: "", shard: 1 },
  ],
  [
    "members",
    tables.membersTable([
      create(MemberStateSchema, {
        ...member,
        member: true,
        connected: true,
        mode: NodeMode.HALTED,
      }),
    ]),
    { index: 2, name: "node-2", ordered_height: "9", heard: "", state: "halted" },
  ],
  [
    "members of a shard",
    tables.shardMembersTable([{ ...member, mode: "", lastHeardMs: timeMs } as never]),
    { index: 2, heard: "2026-11-29T05:00:00.000Z", state: "silent" },
  ],
  [
    "shards",
    tables.shardsTable(
      create(TreeSchema, {
        shards: [
          { shard: 0, root: true, streams: [{ child: 1, streamed: 9n }] },
          { shard: 1, parent: 0, carried: 6n, mode: "halted" },
        ],
      }),
    ),
    { shard: 0, parent: "", entries_behind: "", nodes: 0 },
  ],
  [
    "changes",
    tables.changesTable([
      create(ShardChangeSchema, { number: 3n, kind: "addition", shard: 2, waitsFor: [1, 2] }),
    ]),
    { number: "3", kind: "addition", from: "", waits_for: "1 2", since: "" },
  ],
  [
    "nodes compared",
    tables.reportsTable([
      {
        origin: "http://h",
        name: "node-2",
        genesisHex: "cd",
        newest: { height: 5n, hash: bytes, timeMs, signers: [{ index: 0, name: "a" }], of: 4 },
        stand: "differs",
        problem: "it lies",
        unsigned: false,
      },
    ]),
    { address: "http://h", certified_hash: "ab01", signers: "0", stands: "differs" },
  ],
  [
    "accounts",
    {
      header: tables.accountHeader,
      rows: tables.accountRows(
        create(AccountSchema, { account: "north:a", balances: [{ asset: "", amount: "12" }] }),
      ),
    },
    { account: "north:a", issuer: "no", asset: "unit", amount: "12" },
  ],
  ["postings", tables.postingsTable(body), { account: "north:a", amount: "-5", asset: "unit" }],
  ["records", tables.recordsTable(body), { record: "north:r", bytes: 2, value_hex: "ab01" }],
  ["openings", tables.openingsTable(body), { name: "south", public_keys: "ab01 ab01" }],
  [
    "signatures",
    tables.signaturesTable(
      create(TransactionSchema, {
        signatures: [{ organisation: "north", publicKey: bytes, signature: bytes }],
      }),
    ),
    { organisation: "north", public_key: "ab01", signature: "ab01" },
  ],
  [
    "places",
    tables.placesTable([
      create(ShardPlaceSchema, { shard: 1, state: "waiting", waitsFor: [2], overdue: true }),
    ]),
    { shard: 1, state: "waiting", waits_for: "2", overdue: "yes", signers_home: "" },
  ],
  [
    "crossings",
    tables.crossingsTable([
      { idHex: "aa", shard: 1, destinations: [1, 2], signer: "north", timeMs },
    ]),
    { id: "aa", signer: "north", shards: "1 2" },
  ],
  [
    "events",
    eventsTable(recording, namesOf(recording)),
    { number: "4", second: "1.000002", round: "9", block_time: "2026-11-29T05:00:00.000Z" },
  ],
  ["runs", runsTable(recording), { generation: "1", eon: 2, members: "0 1", ended_second: "" }],
];

describe("tables as files", () => {
  for (const [name, { header, rows }, wanted] of cases)
    test(name, () => {
      expect(new Set(header).size).toBe(header.length);
      for (const row of rows) expect(row).toHaveLength(header.length);
      expect(JSON.parse(jsonLine(header, rows[0] ?? []))).toMatchObject(wanted);
    });
});
