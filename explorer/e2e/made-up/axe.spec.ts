import { NodeMode } from "../../src/gen/ledgerd/v1/ledgerd_pb";
import { FakeNode } from "../../test/fake-node";
import { expectNoViolations } from "../axe";
import { expect, test } from "../fixtures";

// axe finds nothing on any page, in both themes, on a screen and on a phone. The made-up book has
// halted and silent shards and nodes in every state, so that all colours and words appear.

const pages = [
  "overview",
  "blocks",
  "block",
  "transaction",
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

test.describe("axe finds nothing", () => {
  test.describe.configure({ mode: "parallel" });
  test.use({ expected: [/Failed to load resource/] });
  for (const name of pages)
    test(name, async ({ page }) => {
      test.slow(); // axe looks at every row
      const split = sharded.includes(name);
      const node = await FakeNode.start({
        blocks: name === "search for a note" ? 8 : 40,
        servers: 9,
        suspected: [3],
        assets: /^(asset|amounts)/.test(name),
        holds: /hold|terms/.test(name),
        unreachable: [5],
        away: [6],
        following: [8],
        modes: { 1: NodeMode.HALTED, 2: NodeMode.STARTING, 4: NodeMode.STOPPING },
        ...(split ? { parents: [0, 0, 0, 1], halted: [2], silent: [3] } : {}),
      });
      try {
        const block = node.chain.blocks.at(-2);
        const id = block?.transactions[2]?.status?.idHex;
        if (name === "path" && block?.transactions[2])
          node.shards.cross(block.transactions[2], [0, 1, 2], "waiting", 2);
        const verdict = node.shards.verdictsIn(0)[0]?.status?.idHex;
        const paths: Record<(typeof pages)[number], string> = {
          overview: "/",
          blocks: "/blocks",
          block: `/block/${block?.header.height}`,
          transaction: `/tx/${id}`,
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
          chart: "/chart",
          terms: `/account/${node.settlement("clearing")}`,
          nowhere: "/there/is/nothing",
        };
        // A page may look at its width only as it loads. A theme changes nothing but its style.
        for (const width of [1280, 390]) {
          await page.setViewportSize({ width, height: 900 });
          await page.emulateMedia({ colorScheme: "light" });
          await page.goto(`${node.url}${paths[name]}`);
          await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
          await expect(page.locator('main [aria-busy="true"]')).toHaveCount(0);
          await expect(page.getByText(/^(checking|Looking .*)$/)).toHaveCount(0);
          for (const colorScheme of ["light", "dark"] as const) {
            await page.emulateMedia({ colorScheme });
            await expectNoViolations(page, `${paths[name]}, ${colorScheme}, ${width} pixels`);
          }
        }
      } finally {
        await node.stop();
      }
    });
});
