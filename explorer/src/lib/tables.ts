// Tables of pages, as the rows of a file: what a page shows, in full and without its formats.
import {
  MemberStanding,
  TransactionState,
  type MemberState,
  type SearchHit,
  type Shard,
  type ShardMember,
  type ShardPlace,
  type Transaction,
  type TransactionSummary,
  type Tree,
} from "../gen/ledgerd/v1/ledgerd_pb";
import type { Account } from "../gen/ledgerd/v1/accounts_pb";
import { Level, type BlockHeader } from "../gen/ledgerd/v1/proofs_pb";
import type { ShardChange } from "../gen/ledgerd/v1/shards_pb";
import { csvHeader, csvRow } from "./blockscsv";
import { toHex } from "./bytes";
import type { Crossing } from "./crossings";
import type { Cell, Table } from "./csv";
import { isoTime } from "./format";
import type { NodeReport } from "./light";
import type { Found } from "./look";
import { standing } from "./members";
import type { MemberThen } from "./members-then";
import { memberMode, membersRunning, streamTo } from "./shards";

const time = (ms: bigint): string => (ms > 0n ? isoTime(Number(ms)) : "");
const listOf = (numbers: readonly number[]): string => numbers.join(" ");
const yes = (is: boolean): string => (is ? "yes" : "");

/** Blocks of one chain or of several. */
export function blocksTable(
  blocks: readonly BlockHeader[],
  levelOf: (block: BlockHeader) => Level,
): Table {
  return {
    header: ["shard", ...csvHeader],
    rows: blocks.map((block) => [block.shard, ...csvRow(block, Level[levelOf(block)] ?? "")]),
  };
}

export const summaryHeader = [
  "index",
  "id",
  "state",
  "signer",
  "postings",
  "records",
  "reason",
  "note",
] as const;

export function summaryRow({
  status,
  signer,
  postingCount,
  recordCount,
  note,
}: TransactionSummary): Cell[] {
  return [
    status?.index ?? 0,
    status?.idHex ?? "",
    (TransactionState[status?.state ?? 0] ?? "").toLowerCase(),
    signer,
    postingCount,
    recordCount,
    status?.reasonCode ?? "",
    note,
  ];
}

/** Transactions of several blocks. */
export function summaryTable(transactions: readonly TransactionSummary[]): Table {
  return {
    header: ["height", ...summaryHeader],
    rows: transactions.map((each) => [each.status?.height ?? 0n, ...summaryRow(each)]),
  };
}

/** What a search found in transactions. */
export function foundTable(found: readonly Found[]): Table {
  return {
    header: ["time", "shard", "height", ...summaryHeader, "found_in"],
    rows: found.map(({ transaction, timeMs, shard, where }) => [
      time(timeMs),
      shard,
      transaction.status?.height ?? 0n,
      ...summaryRow(transaction),
      where,
    ]),
  };
}

export function hitsTable(hits: readonly SearchHit[]): Table {
  return {
    header: ["kind", "key", "label", "shard"],
    rows: hits.map(({ kind, key, label, shard }) => [kind, key, label, shard]),
  };
}

/** The members of the group, as one node sees them. */
export function membersTable(members: readonly MemberState[]): Table {
  return {
    header: [
      "index",
      "name",
      "api_address",
      "ordered_height",
      "stored_height",
      "heard",
      "state",
      "seen_as",
    ],
    rows: members.map((member) => [
      member.index,
      member.name,
      member.apiAddress,
      member.orderedHeight,
      member.storedHeight,
      member.self ? "" : time(member.lastHeardMs),
      standing(member),
      (MemberStanding[member.standing] ?? "").toLowerCase(),
    ]),
  };
}

/** The members of a chain at a place in the past; what is not known is empty. */
export function membersThenTable(members: readonly MemberThen[]): Table {
  return {
    header: ["index", "name", "address", "key", "joined_height", "disk"],
    rows: members.map(({ index, name, address, key, joinedHeight, disk }) => [
      index,
      name,
      address ?? "",
      toHex(key),
      joinedHeight,
      disk ?? "",
    ]),
  };
}

/** The members of a shard. */
export function shardMembersTable(members: readonly ShardMember[]): Table {
  return {
    header: ["index", "name", "api_address", "ordered_height", "heard", "state"],
    rows: members.map((member) => [
      member.index,
      member.name,
      member.apiAddress,
      member.orderedHeight,
      member.self ? "" : time(member.lastHeardMs),
      memberMode(member) ?? "silent",
    ]),
  };
}

export function shardsTable(tree: Tree): Table {
  return {
    header: [
      "shard",
      "parent",
      "mode",
      "nodes",
      "nodes_running",
      "height",
      "durable_height",
      "entries",
      "accounts",
      "pending",
      "overdue",
      "entries_behind",
      "heard",
    ],
    rows: tree.shards.map((shard: Shard) => [
      shard.shard,
      shard.root ? "" : shard.parent,
      shard.mode,
      shard.members.length,
      membersRunning(shard),
      shard.height,
      shard.durableHeight,
      shard.transactionsTotal,
      shard.accountsTotal,
      shard.pending,
      shard.overdue,
      streamTo(tree, shard)?.behind ?? "",
      shard.self ? "" : time(shard.lastHeardMs),
    ]),
  };
}

/** Changes of the book's shards. */
export function changesTable(changes: readonly ShardChange[]): Table {
  return {
    header: [
      "number",
      "kind",
      "organisation",
      "shard",
      "from",
      "to",
      "state",
      "waits_for",
      "since",
      "done",
      "height",
    ],
    rows: changes.map((change) => [
      change.number,
      change.kind,
      change.organisation,
      change.shard,
      change.from ?? "",
      change.to,
      change.state,
      listOf(change.waitsFor),
      time(change.sinceMs),
      time(change.doneMs),
      change.height,
    ]),
  };
}

/** What nodes say about a chain, and how they compare. */
export function reportsTable(reports: readonly NodeReport[]): Table {
  return {
    header: [
      "address",
      "name",
      "genesis",
      "certified_height",
      "certified_hash",
      "certified_time",
      "signers",
      "members",
      "hash_where_compared",
      "stands",
      "problem",
    ],
    rows: reports.map(({ origin, name, genesisHex, newest, common, stand, problem }) => [
      origin,
      name,
      genesisHex,
      newest?.height ?? "",
      newest ? toHex(newest.hash) : "",
      newest ? time(newest.timeMs) : "",
      listOf((newest?.signers ?? []).map(({ index }) => index)),
      newest?.of ?? "",
      common ? toHex(common) : "",
      stand,
      problem,
    ]),
  };
}

export const accountHeader = [
  "account",
  "organisation",
  "issuer",
  "alias",
  "opened_height",
  "asset",
  "amount",
] as const;

/** A row for each asset that an account has. Amounts are in the smallest unit. */
export function accountRows(account: Account): Cell[][] {
  const start = [
    account.account,
    account.organisation,
    account.issuer ? "yes" : "no",
    account.alias,
    account.openedHeight,
  ];
  return account.balances.length === 0
    ? [[...start, "", ""]]
    : account.balances.map(({ asset, amount }) => [...start, asset || "unit", amount]);
}

type Body = NonNullable<Transaction["body"]>;

export function postingsTable({ postings }: Body): Table {
  return {
    header: ["account", "amount", "asset"],
    rows: postings.map(({ account, amount, asset }) => [account, amount, asset || "unit"]),
  };
}

export function recordsTable({ records }: Body): Table {
  return {
    header: ["record", "bytes", "value_hex"],
    rows: records.map(({ key, value }) => [key, value.length, toHex(value)]),
  };
}

/** What a transaction opens. */
export function openingsTable({ organisations, accounts }: Body): Table {
  return {
    header: ["name", "as", "alias", "public_keys"],
    rows: [
      ...organisations.map(({ name, publicKeys }) => [
        name,
        "organisation",
        "",
        publicKeys.map(toHex).join(" "),
      ]),
      ...accounts.map(({ account, issuer, alias }) => [
        account,
        issuer ? "issuer account" : "account",
        alias,
        "",
      ]),
    ],
  };
}

export function signaturesTable({ signatures }: Transaction): Table {
  return {
    header: ["organisation", "public_key", "signature"],
    rows: signatures.map(({ organisation, publicKey, signature }) => [
      organisation,
      toHex(publicKey),
      toHex(signature),
    ]),
  };
}

/** Where a transaction is in the chains of the shards. */
export function placesTable(places: readonly ShardPlace[]): Table {
  return {
    header: [
      "shard",
      "state",
      "verdict",
      "height",
      "index",
      "block_hash",
      "time",
      "settled_height",
      "settled_index",
      "waits_for",
      "overdue",
      "signers_home",
      "entered_here",
      "stream_number",
    ],
    rows: places.map((place) => [
      place.shard,
      place.state,
      place.verdict,
      place.height,
      place.index,
      place.blockHashHex,
      time(place.timeMs),
      place.settledHeight,
      place.settledIndex,
      listOf(place.waitsFor),
      yes(place.overdue),
      yes(place.home),
      yes(place.entry),
      place.streamNumber,
    ]),
  };
}

export function crossingsTable(crossings: readonly Crossing[]): Table {
  return {
    header: ["time", "id", "signer", "shards"],
    rows: crossings.map(({ timeMs, idHex, signer, destinations }) => [
      time(timeMs),
      idHex,
      signer,
      listOf(destinations),
    ]),
  };
}
