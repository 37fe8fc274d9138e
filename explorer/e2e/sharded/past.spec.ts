import { expectSound } from "../axe";
import { call, expect, numberIn, test } from "../fixtures";
import { startTestnet, type Testnet } from "../testnet";

// An account that was not open then answers with 404.
test.use({ expected: [/Failed to load resource/] });

// Three shards of one node each, between two of which an organisation moves.
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

test("nodes, shards, crossings, organisations and search are as of a block", async ({ page }) => {
  if (!testnet) throw new Error("no book was started");
  const { command, url } = testnet;
  const via = ["--node", url];
  const signed = ["--keys", "keys", ...via];
  for (const [name = "", shard = ""] of [["acme", "1"], ["zeta", "2"]]) {
    await command("keys", "create", name, "--plain", "--keys", "keys");
    await command("org", "add", name, "--shard", shard, ...signed);
    await command("account", "open", `${name}:cash`, "--issuer", ...signed);
  }
  await command("tx", "transfer", "acme:cash", "zeta:cash", "5", ...signed);
  await page.goto(`${url}/shards`);
  const row = (shard: number) => page.getByTestId("shard-table").locator(`[data-shard="${shard}"]`);
  await expect(row(0)).toBeVisible();
  const before = numberIn(await row(0).locator("td").nth(4).textContent());
  expect(before).toBeGreaterThan(0);
  const signing = ["--operator", "net/operator.key", "--out", "move.tx", "--via", url];
  await command("shards", "move", "acme", "--to", "2", ...signing);
  await command("tx", "submit", "move.tx", ...via);
  const arrived = page.getByTestId("changes").getByRole("listitem");
  await expect(arrived).toHaveAttribute("data-state", "done");
  const after = numberIn(await row(0).locator("td").nth(4).textContent());
  expect(after).toBeGreaterThan(before);

  const changes = page.getByTestId("book-changes");
  await page.goto(`${url}/shards?at=${before}`);
  await expect(page.getByTestId("shards")).toHaveText("3");
  await expect(changes).toContainText("None: the shards are those of the genesis.");
  await expect(page.getByTestId("shards-then").locator("tbody tr")).toHaveCount(3);
  await expect(page.getByTestId("entries")).toContainText(/\d/);
  const entries = numberIn(await page.getByTestId("entries").textContent());
  await page.goto(`${url}/shards?at=${after}`);
  await expect(changes).toContainText("Moves acme to shard 2");
  await expect(page.getByTestId("entries")).toContainText(/\d/);
  expect(numberIn(await page.getByTestId("entries").textContent())).toBeGreaterThan(entries);
  await expectSound(page, "shards in the past");

  await page.goto(`${url}/shards/1?at=${before}`);
  await expect(page.getByTestId("members-count")).toHaveText("1");
  await expect(page.getByTestId("height")).toContainText(/[1-9]/);
  await page.goto(`${url}/nodes?at=${before}`);
  await expect(page.getByTestId("members-then").locator("tbody tr")).toHaveCount(1);
  await expect(page.getByTestId("changes-count")).toHaveText("0");

  await page.goto(`${url}/shards/crossings?at=${before}`);
  await expect(page.getByTestId("pairs").locator('tr[data-pair="1-2"]')).toBeVisible();
  await expect(page.getByTestId("latest-then").locator("tbody tr").first()).toBeVisible();
  await page.goto(`${url}/shards/crossings?at=1`);
  await expect(page.getByTestId("latest-then").locator("tbody tr")).toHaveCount(1);

  const facts = page.locator("main .facts");
  await page.goto(`${url}/organisation/acme?at=${before}`);
  await expect(facts.getByRole("link", { name: "shard 1" })).toBeVisible();
  await expect(facts).toContainText("1 of 1 key sign");
  await page.goto(`${url}/organisation/acme?at=${after}`);
  await expect(facts.getByRole("link", { name: "shard 2" })).toBeVisible();

  const hits = page.getByTestId("hits").getByRole("link");
  await page.goto(`${url}/search?q=zeta&at=1`);
  await expect(page.getByTestId("left-out")).toContainText("2 hits came later");
  await page.goto(`${url}/search?q=zeta&at=${before}`);
  await expect(hits).toHaveCount(2);
});

test("the tree is as of a block, before and after a shard hangs elsewhere", async ({ page }) => {
  if (!testnet) throw new Error("no book was started");
  const { command, url } = testnet;
  const headOf = async (): Promise<number> => {
    const { cluster } = await call<{ cluster: { node: { durableHeight: string } } }>(
      url,
      "GetCluster",
    );
    return Number(cluster.node.durableHeight);
  };
  const before = await headOf();
  const hang = ["--shard", "2", "--parent", "1", "--operator", "net/operator.key", "--yes"];
  await command("shards", "tree", ...hang, "--via", url);
  const after = await headOf();
  expect(after).toBeGreaterThan(before);
  await page.goto(`${url}/shards?at=${before}`);
  await expect(page.locator("main")).toContainText("0(1,2)");
  await page.goto(`${url}/shards?at=${after}`);
  await expect(page.locator("main")).toContainText("0(1(2))");
  await expect(page.getByTestId("book-changes")).toContainText("Hangs shard 2 below shard 1");
  await page.goto(`${url}/shards/2?at=${after}`);
  await expect(page.getByTestId("carried")).toContainText(/^\d{1,3}$/);
});
