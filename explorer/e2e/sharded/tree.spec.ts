import { startDemo, type Demo } from "../demo";
import { call, expect, heightsOf, numberIn, test } from "../fixtures";

// Three shards of two nodes each. Banks and airlines pay each other across the shards.
let demo: Demo | undefined;
test.beforeAll(async () => {
  test.skip(
    !process.env["LEDGERD_BINARY"],
    "a running node is tested, and there is no binary to make a sharded book with",
  );
  demo = await startDemo(["--shards", "3", "--nodes", "2", "--rate", "20"]);
});
test.afterAll(async () => {
  if (demo) await demo.stop();
});

function url(): string {
  if (!demo) throw new Error("no book was started");
  return demo.url;
}

interface Block {
  block: {
    transactions?: {
      status: { idHex: string; destinations?: number[]; settledHeight?: string };
      verdict?: string;
    }[];
  };
}

/**
 * Finds a transaction that crossed and is settled, and a block with a verdict, on the root's chain.
 */
async function crossed(): Promise<{ id: string; verdictHeight: string }> {
  const found = { id: "", verdictHeight: "" };
  await expect
    .poll(async () => {
      const { blocks } = await call<{ blocks: { height: string }[] }>(url(), "ListBlocks", {
        shard: 0,
        pageSize: 40,
      });
      for (const { height } of blocks) {
        const { block } = await call<Block>(url(), "GetBlock", { shard: 0, height });
        for (const { status, verdict } of block.transactions ?? []) {
          if (verdict) found.verdictHeight = height;
          else if (Number(status.settledHeight ?? 0) > 0) found.id = status.idHex;
        }
        if (found.id && found.verdictHeight) return true;
      }
      return false;
    })
    .toBe(true);
  return found;
}

const final = "✓ final, verified in this browser";

test("one list has the blocks of all shards as they come", async ({ page }) => {
  await page.goto(`${url()}/shards/blocks`);
  const rows = page.getByTestId("book-blocks").locator("tbody tr");
  for (const shard of ["0", "1", "2"])
    await expect(
      rows.filter({ has: page.locator("td:first-child", { hasText: shard }) }).first(),
    ).toBeVisible();
  const before = await rows.first().textContent();
  await expect.poll(async () => await rows.first().textContent()).not.toBe(before);
});

test("the tree of a running book moves, and each shard has its blocks", async ({ page }) => {
  await page.goto(`${url()}/shards`);
  await expect(page.getByTestId("ordering")).toHaveText("3 of 3");
  await expect(page.getByTestId("tree").locator("a")).toHaveCount(3);
  await expect(page.getByTestId("tree").locator("circle.mark").first()).toBeAttached();
  const height = async (): Promise<number> =>
    numberIn(
      await page.getByTestId("shard-table").locator('[data-shard="1"] td').nth(4).textContent(),
    );
  const first = await height();
  await expect.poll(height).toBeGreaterThan(first);

  await page.getByTestId("shard-table").getByRole("link", { name: "Shard 1" }).click();
  await expect(page.getByTestId("members").getByText("ordering", { exact: true })).toHaveCount(2);
  await page.mouse.move(5, 5);
  await expect.poll(async () => (await heightsOf(page)).length).toBeGreaterThan(3);
  const newest = (await heightsOf(page))[0] ?? 0;
  await expect.poll(async () => (await heightsOf(page))[0]).toBeGreaterThan(newest);
  await page.goto(`${url()}/shards/1/blocks/3`);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Block 3 of shard 1");
  // Its members are those of the genesis of shard 1.
  await expect(page.getByTestId("certificate-verdict")).toHaveText(final);
});

test("what crossed shards has its path, its verdicts and a proof", async ({ page }) => {
  const { id, verdictHeight } = await crossed();
  await page.goto(`${url()}/tx/${id}`);
  await expect(page.getByTestId("path-state")).toHaveText(/^(It took effect in|Refused by) shard/);
  const rows = page.getByTestId("path").locator("tbody tr");
  expect(await rows.count()).toBeGreaterThan(1);
  await expect(rows.first()).toContainText("entered here");
  await expect(rows.nth(1)).toContainText(/number \d+ from shard 0/);
  await expect(page.getByTestId("proof-verdict")).toHaveText("✓ verified in this browser");
  await expect(page.getByTestId("certificate-verdict")).toHaveText(final);
  await rows.nth(1).getByRole("link").nth(1).click();
  await expect(page).toHaveURL(/\/shards\/[12]\/blocks\/\d+$/);
  await expect(page.locator(`a[href="/tx/${id}"]`).first()).toBeVisible();

  await page.goto(`${url()}/shards/0/blocks/${verdictHeight}`);
  await page.locator('tr[data-kind="verdict"]').first().getByRole("link").last().click();
  await expect(page.getByTestId("path")).toBeVisible();
});
