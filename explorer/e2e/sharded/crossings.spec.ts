import { startDemo, type Demo } from "../demo";
import { call, expect, numberIn, test } from "../fixtures";

// Three shards of one node each. Banks and airlines pay each other across the shards.
let demo: Demo | undefined;
test.beforeAll(async () => {
  test.skip(!process.env["LEDGERD_BINARY"], "there is no binary to make a sharded book with");
  demo = await startDemo(["--shards", "3", "--nodes", "1", "--rate", "20"]);
});
test.afterAll(async () => {
  if (demo) await demo.stop();
});

interface List {
  transactions?: { transaction: { status: { idHex: string; destinations: number[] } } }[];
}

test("crossings are counted, move, and lead to the transactions behind them", async ({ page }) => {
  const url = demo?.url ?? "";
  await page.goto(`${url}/shards/crossings`);
  const map = page.getByTestId("crossings-map");
  await expect(map.locator("circle.mark.entry").first()).toBeAttached();
  await expect(map.locator("circle.mark.verdict").first()).toBeAttached();
  await expect(map.locator('.card[data-shard="1"]')).toContainText("/s");
  const count = page.getByTestId("pairs").locator('tr[data-pair="1-2"] td').nth(1);
  await expect.poll(async () => numberIn(await count.textContent())).toBeGreaterThan(0);
  const before = numberIn(await count.textContent());
  await expect.poll(async () => numberIn(await count.textContent())).toBeGreaterThan(before);

  // The API's list of the pair is not shorter than the count before it.
  const told = numberIn(await count.textContent());
  const list = await call<List>(url, "ListTransactions", {
    shard: 1,
    withShard: 2,
    pageSize: 1000,
  });
  const rows = list.transactions ?? [];
  expect(rows.length).toBeGreaterThanOrEqual(Math.min(told, 1000));
  for (const { transaction } of rows)
    expect(transaction.status.destinations).toEqual(expect.arrayContaining([1, 2]));

  const latest = page.getByTestId("latest-crossings").locator("tbody tr").first();
  await expect(latest).toContainText("shards");
  await page.getByTestId("pairs").locator('tr[data-pair="1-2"]').getByRole("link").click();
  await expect(page).toHaveURL(/\/transactions\?shard=1&with=2$/);
  await expect(page.getByTestId("listed").locator("tbody tr").first()).toBeVisible();

  // With reduced motion nothing moves, and the same is told.
  await page.emulateMedia({ reducedMotion: "reduce" });
  await page.goto(`${url}/shards/crossings`);
  await expect(page.getByTestId("latest-crossings").locator("tbody tr").nth(2)).toBeVisible();
  await expect(map.locator("circle.mark")).toHaveCount(0);
});
