import { FakeLiar } from "../../test/fake-liar";
import { call, clusterTest as test, clusterUrl, expect } from "../fixtures";
import { shoot } from "../axe";

// The browser logs calls that a node refuses for now.
test.use({ expected: [/Failed to load resource/] });

/** The account that changes least: its page can be compared. */
async function anAccount(): Promise<string> {
  const { accounts } = await call<{ accounts: { account: string; balances?: object[] }[] }>(
    clusterUrl(),
    "ListAccounts",
    { pageSize: 100 },
  );
  return accounts.find(({ balances }) => (balances ?? []).length > 0)?.account ?? "";
}

test("the nodes of a demo agree, and one that lies is seen", async ({ page }) => {
  const liar = await FakeLiar.start(clusterUrl(), "header");
  const balance = await FakeLiar.start(clusterUrl(), "proof");
  try {
    await page.goto("/agreement");
    await expect(page.getByTestId("agreement")).toHaveText("✓ 1 of 1 node agrees");
    await page.getByRole("button", { name: "+ all of them" }).click();
    await expect(page.getByTestId("agreement")).toHaveText("✓ 4 of 4 nodes agree");
    for (const { url } of [liar, balance]) {
      await page.getByLabel("Ask another node").fill(url);
      await page.getByRole("button", { name: "Add", exact: true }).click();
    }
    await expect(page.getByTestId("agreement")).toHaveText("✗ 5 of 6 nodes agree");
    const row = page.locator(`tr[data-origin="${liar.url}"]`);
    await expect(row.getByTestId("stand")).toHaveText("✗ differs");
    await shoot(page, "cluster-agreement");
    await page.goto(`/account/${await anAccount()}`);
    await expect(page.getByTestId("proven-by")).toHaveText(/[1-5] of 6 nodes proves? this balance/);
    await expect(
      page.getByTestId("proven").locator(`[data-origin="${balance.url}"]`),
    ).toContainText("✗ its proof does not hold");
    await shoot(page, "cluster-account");
  } finally {
    await liar.stop();
    await balance.stop();
  }
});

test("pages as of a block, and back", async ({ page }) => {
  await page.goto("/accounts?at=20");
  await expect(page.getByTestId("past")).toContainText("As of block 20");
  const first = page.getByTestId("accounts").getByRole("link").first();
  await expect(first).toBeVisible();
  await page.getByTestId("accounts").locator("tbody td.tall a").last().click();
  await expect(page).toHaveURL(/at=20/);
  await page.goto(`/account/${await anAccount()}?at=20`);
  await expect(page.getByTestId("facts")).toContainText("as of block 20");
  // The account may have got its first posting after block 20; until the answer comes, rows are
  // empty shapes without links.
  const blocks = page.getByTestId("history").locator("tbody a[href^='/block/']");
  await expect(blocks.or(page.getByText("No postings yet")).first()).toBeVisible();
  for (const block of await blocks.allTextContents()) expect(Number(block)).toBeLessThanOrEqual(20);
  await page.getByRole("button", { name: "Back to the present" }).click();
  await expect(page.getByTestId("past")).toHaveCount(0);
});
