import { FakeNode } from "../../test/fake-node";
import { expect, expectNoSidewaysScroll, expectPanelsFit, heightsOf, test } from "../fixtures";

// Both sides of each width at which the layout changes, and the narrowest phone.
const widths = [320, 360, 390, 480, 640, 760, 761, 940, 941, 1040, 1041, 1160, 1161, 1280];

test.describe("what is as long as a chain can have it fits", () => {
  test.describe.configure({ mode: "parallel" });
  test.use({
    expected: [/Failed to load resource|ERR_CONNECTION|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE/],
  });

  for (const page of [
    "overview",
    "blocks",
    "block",
    "transaction",
    "refundable",
    "accounts",
    "account",
    "organisations",
    "organisation",
    "assets",
    "asset",
    "nodes",
    "rounds",
    "search",
    "book",
    "shards",
    "shard",
    "bookblocks",
    "crossings",
    "path",
    "transactions",
    "records",
    "holds",
    "hold",
    "schedules",
    "schedule",
    "chart",
    "agreement",
  ] as const) {
    test(page, async ({ page: browser }) => {
      if (page === "account") test.slow(); // each row has the amounts and balances of all assets
      const sharded = ["book", "shards", "shard", "bookblocks", "crossings", "path"].includes(page);
      const node = await FakeNode.start({
        blocks: 40,
        everyMs: 250,
        servers: 9,
        suspected: [3],
        unreachable: [5],
        away: [6, 7],
        following: [8],
        slow: [2],
        wide: true,
        holds: page === "holds" || page === "hold",
        schedules: page === "schedules" || page === "schedule",
        details: page === "refundable",
        assets: page === "assets" || page === "asset",
        ...(sharded ? { parents: [0, 0, 0, 1, 3, 4], halted: [2] } : {}),
      });
      try {
        const block = node.chain.blocks.at(-2);
        const long = node.settlement("W".repeat(64));
        const paths = {
          overview: "/",
          blocks: "/blocks",
          block: `/block/${block?.header.height}`,
          transaction: `/tx/${block?.transactions[2]?.status?.idHex}`,
          refundable: `/tx/${node.details[0]}`,
          accounts: "/accounts",
          account: `/account/${long}`,
          organisations: "/organisations",
          organisation: `/organisation/${"W".repeat(64)}`,
          assets: "/assets",
          asset: `/asset/${"W".repeat(32)}`,
          nodes: "/nodes",
          rounds: "/rounds?at=57",
          search: "/search?q=WW",
          book: "/",
          shards: "/shards",
          shard: "/shards/2",
          bookblocks: "/shards/blocks",
          crossings: "/shards/crossings",
          transactions: "/transactions",
          records: "/records",
          holds: "/holds",
          hold: `/hold/${node.holds[0]}`,
          schedules: "/schedules",
          schedule: `/schedule/${node.schedules[0]}`,
          chart: "/chart?depth=9",
          agreement: "/agreement",
          path: `/tx/${block?.transactions[2]?.status?.idHex}`,
        };
        if (page === "path" && block?.transactions[2])
          node.shards.cross(block.transactions[2], [0, 2, 5], "waiting", 2);
        await browser.setViewportSize({ width: 390, height: 844 });
        await browser.goto(`${node.url}${paths[page]}`);
        await expect(browser.getByRole("heading", { level: 1 })).toBeVisible();
        await expect(browser.locator('main [aria-busy="true"]')).toHaveCount(0);
        await expect(browser.locator("main .panel").first()).toBeVisible();
        if (page === "overview")
          await expect(
            browser.getByTestId("transactions-list").getByText("285,489,231,269").first(),
          ).toBeVisible();
        for (const width of sharded ? widths : [390, ...widths, ...widths.toReversed()]) {
          await browser.setViewportSize({ width, height: 844 });
          await expectPanelsFit(browser);
          await expectNoSidewaysScroll(browser);
        }
      } finally {
        await node.stop();
      }
    });
  }

  for (const ageMs of [0, 400 * 86_400_000]) {
    const age = ageMs === 0 ? "today's" : "last year's";
    test(`an account's history shows every change on a phone, ${age}`, async ({ page }) => {
      const node = await FakeNode.start({ blocks: 12, wide: true, ageMs });
      try {
        for (const width of [320, 390]) {
          await page.setViewportSize({ width, height: 844 });
          await page.goto(`${node.url}/account/${node.settlement("W".repeat(64))}`);
          const rows = page.getByTestId("history").locator("tbody tr");
          await expect(rows.nth(20)).toBeVisible();
          expect(
            await rows.first().getByTestId("change").filter({ visible: true }).count(),
          ).toBeGreaterThan(0);
          // Every amount is inside the window, and none is cut off.
          const outside = await rows
            .locator(".amount")
            .evaluateAll((amounts) =>
              amounts
                .filter(
                  (amount) =>
                    amount.getClientRects().length > 0 &&
                    amount.getBoundingClientRect().right > document.documentElement.clientWidth,
                )
                .map((amount) => amount.textContent),
            );
          expect(outside).toEqual([]);
          await expectPanelsFit(page);
          await expectNoSidewaysScroll(page);
        }
      } finally {
        await node.stop();
      }
    });
  }

  test("the overview while it loads and new blocks come in", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 40, everyMs: 60, wide: true });
    try {
      await page.setViewportSize({ width: 390, height: 844 });
      await page.goto(node.url, { waitUntil: "commit" });
      while ((await heightsOf(page)).length < 12) await expectPanelsFit(page);
      const before = (await heightsOf(page))[0] ?? 0;
      for (let now = before; now < before + 40; now = (await heightsOf(page))[0] ?? 0)
        await expectPanelsFit(page);
    } finally {
      await node.stop();
    }
  });
});
