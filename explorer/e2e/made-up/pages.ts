// Every page, in a made-up book that has halted and silent shards and nodes in every state, so that
// all colours and words appear.
import { NodeMode } from "../../src/gen/ledgerd/v1/ledgerd_pb";
import { FakeNode } from "../../test/fake-node";

export const pages = [
  "overview",
  "blocks",
  "block",
  "transaction",
  "refundable entry",
  "refund",
  "verdict",
  "accounts",
  "account",
  "statement",
  "wrong filter",
  "organisations",
  "organisation",
  "assets",
  "asset",
  "asset of several shards",
  "amounts with decimals",
  "nodes",
  "agreement",
  "rounds",
  "search",
  "search for a note",
  "search for a date",
  "search for nothing",
  "book",
  "shards",
  "shard",
  "halted shard",
  "blocks of the book",
  "crossings",
  "path",
  "transactions",
  "transactions of a book",
  "no such transactions",
  "records",
  "record",
  "holds",
  "hold",
  "hold that ended",
  "schedules",
  "schedule",
  "schedule that ended",
  "schedule of an account",
  "occurrence",
  "chart",
  "terms",
  "nowhere",
] as const;
const sharded: readonly string[] = [
  "verdict",
  "asset of several shards",
  "book",
  "shards",
  "shard",
  "halted shard",
  "blocks of the book",
  "crossings",
  "path",
  "transactions of a book",
];

export type PageName = (typeof pages)[number];

/** Starts the node of a page. The caller stops it. */
export async function startNode(name: PageName): Promise<FakeNode> {
  const split = sharded.includes(name);
  return await FakeNode.start({
    blocks: name === "search for a note" ? 8 : 40,
    servers: 9,
    suspected: [3],
    assets: /^(asset|amounts|schedule)/.test(name),
    holds: /hold|terms/.test(name),
    schedules: /schedule|occurrence/.test(name),
    details: name.startsWith("refund"),
    unreachable: [5],
    away: [6],
    following: [8],
    modes: { 1: NodeMode.HALTED, 2: NodeMode.STARTING, 4: NodeMode.STOPPING },
    ...(split ? { parents: [0, 0, 0, 1], halted: [2], silent: [3] } : {}),
  });
}

/** The address of a page, in the node that startNode made for it. */
export function addressOf(name: PageName, node: FakeNode): string {
  const block = node.chain.blocks.at(-2);
  const id = block?.transactions[2]?.status?.idHex;
  if (name === "path" && block?.transactions[2])
    node.shards.cross(block.transactions[2], [0, 1, 2], "waiting", 2);
  const verdict = node.shards.verdictsIn(0)[0]?.status?.idHex;
  const paths: Record<PageName, string> = {
    overview: "/",
    blocks: "/blocks",
    block: `/block/${block?.header.height}`,
    transaction: `/tx/${id}`,
    "refundable entry": `/tx/${node.details[0]}`,
    refund: `/tx/${node.details[1]}`,
    verdict: `/tx/${verdict ?? id}`,
    accounts: "/accounts",
    account: `/account/${node.settlement("northbank")}`,
    statement: `/account/${node.settlement("northbank")}?from=2020-01-01Z`,
    "wrong filter": `/account/${node.settlement("northbank")}?min=much`,
    organisations: "/organisations",
    organisation: "/organisation/northbank",
    assets: "/assets",
    asset: "/asset/SKYL",
    "asset of several shards": "/asset/EUR",
    "amounts with decimals": `/account/${node.settlement("northbank")}`,
    nodes: "/nodes",
    agreement: "/agreement",
    rounds: "/rounds?at=57",
    search: "/search?q=north",
    "search for a note": "/search?q=settle",
    "search for a date": "/search?q=2026-01-01",
    "search for nothing": "/search",
    book: "/",
    shards: "/shards",
    shard: "/shards/1",
    "halted shard": "/shards/2",
    "blocks of the book": "/shards/blocks",
    crossings: "/shards/crossings?over=days",
    path: `/tx/${id}`,
    transactions: "/transactions",
    "transactions of a book": "/transactions?organisation=northbank",
    "no such transactions": "/transactions?note=never",
    records: "/records",
    record: `/record/${block?.transactions[2]?.body?.records[0]?.key}`,
    holds: "/holds",
    hold: `/hold/${node.holds[1]}`,
    "hold that ended": `/hold/${node.holds[0]}`,
    schedules: "/schedules",
    schedule: `/schedule/${node.schedules[0]}`,
    "schedule that ended": `/schedule/${node.schedules[1]}`,
    "schedule of an account": `/account/${node.settlement("clearing")}`,
    occurrence: `/tx/${node.chain.blocks.at(-1)?.transactions[0]?.status?.idHex}`,
    chart: "/chart",
    terms: `/account/${node.settlement("clearing")}`,
    nowhere: "/there/is/nothing",
  };
  return `${node.url}${paths[name]}`;
}
