import { startDemo, type Demo } from "../demo";
import { shoot } from "../axe";
import { call, expect, test } from "../fixtures";

// Two shards of two nodes each.
test.use({ expected: [/Failed to load resource/] });
let demo: Demo | undefined;
test.beforeAll(async () => {
  test.skip(
    !process.env["LEDGERD_BINARY"],
    "a running node is tested, and there is no binary to make a sharded book with",
  );
  demo = await startDemo(["--shards", "2", "--nodes", "2", "--rate", "5"]);
});
test.afterAll(async () => {
  if (demo) await demo.stop();
});
const url = (): string => demo?.url ?? "";

test("the nodes of a shard agree on its chain, and prove an account that lives there", async ({
  page,
}) => {
  await page.goto(`${url()}/agreement?shard=1`);
  await expect(page.getByTestId("agreement")).toHaveText("✓ 1 of 1 node agrees");
  await page.getByRole("button", { name: "+ all of them" }).click();
  await expect(page.getByTestId("agreement")).toHaveText("✓ 3 of 3 nodes agree");
  await shoot(page, "sharded-agreement");
  const { accounts } = await call<{ accounts: { account: string; shard?: number }[] }>(
    url(),
    "ListAccounts",
    { pageSize: 100 },
  );
  const account = accounts.find(({ shard }) => shard === 1)?.account ?? "";
  await page.goto(`${url()}/account/${account}`);
  await expect(page.getByTestId("proven-by")).toHaveText(/[1-3] of 3 nodes proves? this balance/);
  await expect(page.getByTestId("proven").getByText("✗")).toHaveCount(0);
});

test("the past of a book of shards is one cut of all chains", async ({ page }) => {
  await page.goto(`${url()}/accounts?at=12`);
  await expect(page.getByTestId("past")).toContainText("of shard 0");
  await expect(page.getByTestId("accounts").getByRole("link").first()).toBeVisible();
  const { accounts } = await call<{ accounts: { account: string; shard?: number }[] }>(
    url(),
    "ListAccounts",
    { pageSize: 100 },
  );
  const account = accounts.find(({ shard }) => shard === 1)?.account ?? "";
  await page.goto(`${url()}/account/${account}?at=12`);
  await expect(page.getByTestId("facts")).toContainText(/as of block \d/);
  await expect(page.getByText("Nodes prove balances as of their newest block only")).toBeVisible();
  await page.getByRole("button", { name: "Back to the present" }).click();
  await expect(page.getByTestId("proven-by")).toContainText("this balance");
});
