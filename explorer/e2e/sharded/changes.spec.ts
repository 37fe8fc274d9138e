import { expect, test } from "../fixtures";
import { startTestnet, type Testnet } from "../testnet";

// Three shards of one node each, of which the old home of an organisation stands still meanwhile.
let testnet: Testnet | undefined;
test.beforeAll(async () => {
  test.skip(
    !process.env["LEDGERD_BINARY"],
    "a running node is tested, and there is no binary to make a sharded book with",
  );
  testnet = await startTestnet(3);
});
test.afterAll(async () => {
  if (testnet) await testnet.stop();
});

test("a move is watched from its order to its arrival", async ({ page }) => {
  if (!testnet) throw new Error("no book was started");
  const { command, url } = testnet;
  const via = ["--node", url];
  await command("keys", "create", "acme", "--plain", "--keys", "keys");
  await command("org", "add", "acme", "--shard", "1", "--keys", "keys", ...via);
  await command("account", "open", "acme:cash", "--issuer", "--keys", "keys", ...via);
  const signing = ["--operator", "net/operator.key", "--out", "move.tx", "--via", url];
  await command("shards", "move", "acme", "--to", "2", ...signing);
  await page.goto(`${url}/shards`);
  await expect(page.getByTestId("ordering")).toHaveText("3 of 3");
  await expect(page.getByTestId("changes")).toHaveCount(0);

  await command("testnet", "stop", "net", "--shard", "1");
  await command("tx", "submit", "move.tx", ...via);
  const arrow = page.getByTestId("arrow");
  await expect(arrow).toHaveText(/acme\s*leaving/);
  await expect(page.getByTestId("tree").locator("path.arrow")).toHaveAttribute("data-from", "1");
  await expect(page.getByTestId("tree").locator("path.arrow")).toHaveAttribute("data-to", "2");
  const row = page.getByTestId("changes").getByRole("listitem");
  await expect(row).toContainText("acme moves from shard 1 to shard 2");
  await expect(row).toContainText("It waits until shard 1 has settled what came before");
  await row.getByRole("link", { name: /^block/ }).click();
  await expect(page).toHaveURL(/\/shards\/0\/blocks\/\d+$/);
  await page.goBack();

  await command("testnet", "start", "net", "--shard", "1");
  await expect(arrow).toHaveText(/acme\s*arrived/);
  await expect(row).toContainText("It lives in shard 2.");
  await expect(row).toHaveAttribute("data-state", "done");
  // The arrow goes, and the list keeps what was done.
  await expect(arrow).toHaveCount(0, { timeout: 40_000 });
  await expect(row).toContainText("acme moves from shard 1 to shard 2");
});
