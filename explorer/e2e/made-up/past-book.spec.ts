import { FakeNode } from "../../test/fake-node";
import { expectSound, looks, shoot } from "../axe";
import { expect, test } from "../fixtures";

test.use({ expected: [/Failed to load resource/] });
test.slow();

test("a search as of a block finds what was there then", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 40 });
  try {
    const [early, late] = [12n, 13n].map((height) => node.chain.at(height)?.transactions[0]);
    const hits = page.getByTestId("hits").getByRole("link");
    const leftOut = page.getByTestId("left-out");
    const search = (text: string): string => `${node.url}/search?q=${text}&at=12`;
    await page.goto(search("12"));
    await expect(hits).toHaveText([/block\s*12/]);
    await expect(page.getByTestId("past-reach")).toContainText("What was there then.");
    await page.goto(search("13"));
    await expect(leftOut).toContainText("1 hit came later, and is left out.");
    await expect(hits).toHaveCount(0);
    await page.goto(search(early?.status?.idHex ?? ""));
    await expect(hits).toHaveCount(1);
    await expect(leftOut).toHaveCount(0);
    await page.goto(search(late?.status?.idHex ?? ""));
    await expect(leftOut).toContainText("1 hit came later");
    await page.goto(search("north"));
    await expect(hits).toHaveCount(2); // an organisation and its account

    // Notes and moments, too.
    const found = page.getByTestId("found");
    await page.goto(search("INV-12-0"));
    await expect(found.locator(`a[href="/tx/${early?.status?.idHex}"]`).first()).toBeAttached();
    await expect(page.getByTestId("looked")).toContainText("in blocks 1 to 12:");
    await page.goto(search("INV-13-0"));
    await expect(page.getByText("Nothing there.")).toBeVisible();
    const time = new Date(Number(node.chain.at(20n)?.header.timeMs)).toISOString();
    await page.goto(search(`${time.slice(0, 10)}Z`));
    await expect(page.getByTestId("at-moment")).toContainText(/\b12\b/);
    await expect(page.getByTestId("at-moment")).not.toContainText(/\b40\b/);
    for (const { colorScheme, width } of looks) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      await page.goto(search("13"));
      await expect(leftOut).toBeVisible();
      await expectSound(page, `a search in the past, ${colorScheme}, ${width}`);
      await shoot(page, `past-search-${colorScheme}-${width}`);
    }
  } finally {
    await node.stop();
  }
});

test("crossings as of a block: by pair, on their way, and the last ones", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 30, parents: [0, 0, 0] });
  try {
    const at = (height: bigint) => {
      const found = node.chain.at(height)?.transactions[0];
      if (!found) throw new Error(`no block ${height}`);
      return found;
    };
    node.shards.cross(at(8n), [0, 1], "settled"); // in block 10
    node.shards.cross(at(11n), [0, 1, 2], "settled"); // in block 13
    node.shards.cross(at(12n), [0, 2], "waiting");
    node.shards.cross(at(20n), [0, 1], "settled");
    const link = (height: bigint): string => `a[href="/tx/${at(height).status?.idHex}"]`;
    await page.goto(`${node.url}/shards/crossings?at=12`);
    await expect(page.getByTestId("past-reach")).toContainText("What had crossed then.");
    const pairs = page.getByTestId("pairs");
    await expect(pairs.locator('tr[data-pair="0-1"] td').nth(1)).toHaveText("2");
    await expect(pairs.locator('tr[data-pair="0-2"] td').nth(1)).toHaveText("2");
    const map = page.getByTestId("crossings-map");
    await expect(map.locator(".card")).toHaveCount(3);
    await expect(map.locator('.card[data-shard="0"]')).toContainText("block 12");
    await expect(map.locator(".card .chip")).toHaveCount(0);
    await expect(map.locator('a.count[data-pair="0-1"]')).toContainText("2");
    const open = page.getByTestId("open-then");
    await expect(open.locator("tbody tr")).toHaveCount(2);
    await expect(open.locator(link(11n)).first()).toBeVisible();
    await expect(open.locator(link(12n)).first()).toBeVisible();
    await expect(page.getByTestId("open-told")).toContainText("All 3 transactions");
    const latest = page.getByTestId("latest-then");
    await expect(latest.locator(link(8n)).first()).toBeVisible();
    await expect(latest.locator(link(20n))).toHaveCount(0);
    await page.goto(`${node.url}/shards/crossings?at=14`);
    await expect(open.locator(link(12n)).first()).toBeVisible();
    await expect(open.locator(link(11n))).toHaveCount(0);

    for (const { colorScheme, width } of looks) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      await page.goto(`${node.url}/shards/crossings?at=12&over=days`);
      await expect(latest).toBeVisible();
      await expectSound(page, `crossings in the past, ${colorScheme}, ${width}`);
      await shoot(page, `past-crossings-${colorScheme}-${width}`);
    }
  } finally {
    await node.stop();
  }
});
