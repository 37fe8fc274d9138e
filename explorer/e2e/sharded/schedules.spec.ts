import { expect, test } from "../fixtures";
import { startTestnet, type Testnet } from "../testnet";

// Two shards of one node each. The root has the schedules, and the payer lives in the other shard.
let testnet: Testnet | undefined;
test.beforeAll(async () => {
  test.skip(
    !process.env["LEDGERD_BINARY"],
    "a running node is tested, and there is no binary to make a sharded book with",
  );
  testnet = await startTestnet(2);
});
test.afterAll(async () => {
  if (testnet) await testnet.stop();
});

// Of a schedule that is over, and of occurrences to come, the node says that they are not there.
test.use({ expected: [/Failed to load resource.*404/] });

test("a schedule is followed from its placing to its occurrence, and another to its end", async ({
  page,
}) => {
  if (!testnet) throw new Error("no book was started");
  const { command, url } = testnet;
  const keys = ["--keys", "keys", "--node", url];
  for (const [shard, name] of ["shop", "acme"].entries()) {
    await command("keys", "create", name, "--plain", "--keys", "keys");
    await command("org", "add", name, "--shard", String(shard), ...keys);
    await command("account", "open", `${name}:cash`, "--issuer", ...keys);
  }
  const place = async (...words: string[]): Promise<string> => {
    const how = ["schedule", "place", "acme:cash", "shop:cash", "90", "--json", ...words, ...keys];
    return (JSON.parse(await command(...how)) as { id: string }).id;
  };
  const rent = await place("--first", "720h", "--every", "1 month", "--count", "12");
  await page.goto(`${url}/schedule/${rent}`);
  await expect(page.getByTestId("schedule-state")).toHaveText("open");
  await expect(page.getByTestId("issued")).toHaveText("0 of 12 in blocks");
  await expect(page.getByText(`ledgerd schedule cancel ${rent}`)).toBeVisible();

  // The page says by itself that a block has the occurrence.
  const once = await place("--first", "6s", "--note", "deposit");
  await page.goto(`${url}/schedule/${once}`);
  await expect(page.getByTestId("schedule-state")).toHaveText("complete");
  const row = page.getByTestId("occurrences").locator("tbody tr");
  await expect(row).toHaveCount(1);
  await row.getByRole("link").first().click();
  await expect(page.getByTestId("signer")).toContainText("nobody");
  await expect(page.getByTestId("occurrence")).toContainText("occurrence 1 of");
  await expect(page.getByTestId("proof-verdict")).toHaveText("✓ verified in this browser");
  await expect(page.getByTestId("certificate-verdict")).toContainText("✓ final");
  await page.getByTestId("occurrence").getByRole("link").click();
  await expect(page).toHaveURL(new RegExp(`/schedule/${once}$`));

  await page.goto(`${url}/account/acme:cash`);
  const listed = page.getByTestId("schedules").locator("tbody tr");
  await expect(listed).toHaveCount(1);
  await expect(listed).toContainText("every month");
  await command("schedule", "cancel", rent, ...keys);
  await page.goto(`${url}/schedules?organisation=acme`);
  await expect(page.getByText("No such schedule is open")).toBeVisible();
  await page.goto(`${url}/schedule/${rent}`);
  await expect(page.getByTestId("schedule-state")).toHaveText("ended");
  await page.getByTestId("schedule-ended").getByRole("link").first().click();
  await expect(page.getByTestId("schedule-end")).toContainText("ends");
});
