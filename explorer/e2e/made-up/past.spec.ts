import { readFile } from "node:fs/promises";
import { FakeNode } from "../../test/fake-node";
import { expectSound, looks, shoot } from "../axe";
import { expect, heightsOf, test } from "../fixtures";

test.use({ expected: [/Failed to load resource/] });
test.slow();

test("pages as of a block, with the past in the address, and back", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 40, servers: 4, assets: true });
  const account = node.settlement("northbank");
  try {
    await page.goto(`${node.url}/account/${account}`);
    const balances = page.getByTestId("balances");
    await expect(balances).toContainText(/\d/);
    const now = await balances.textContent();
    await page.getByRole("button", { name: "As of now" }).click();
    await page.getByLabel("Look at this page as of").fill("neither");
    await page.getByRole("button", { name: "Look", exact: true }).click();
    await expect(page.getByText("This is no block and no moment")).toBeVisible();
    await page.getByLabel("Look at this page as of").fill("12");
    await page.getByRole("button", { name: "Look", exact: true }).click();
    await expect(page).toHaveURL(/\?at=12$/);
    const bar = page.getByTestId("past");
    await expect(bar).toContainText("You look at the past.");
    await expect(bar).toContainText("As of block 12");
    await expect(page.getByTestId("facts")).toContainText("as of block 12");
    await expect(balances).not.toHaveText(now ?? "");
    const then = node.account(account, 12n)?.balances[0]?.amount ?? "";
    expect((await balances.textContent())?.replaceAll(",", "")).toContain(then.replace("-", ""));
    const newest = page.getByTestId("history").locator("tbody tr").first();
    await expect(newest.locator("td").nth(1)).toHaveText(/^1?\d$/);
    await expect(page.getByText("Nodes prove balances as of their newest")).toBeVisible();
    await shoot(page, "past-account");

    // Links keep the past, and each page says what it can show of it.
    await page.getByRole("link", { name: "Accounts", exact: true }).click();
    await expect(page).toHaveURL(/\/accounts\?at=12$/);
    await expect(page.getByTestId("accounts")).toBeVisible();
    await page.getByRole("link", { name: "Blocks", exact: true }).click();
    await expect.poll(async () => (await heightsOf(page))[0]).toBe(12);
    await page.getByRole("link", { name: "Nodes", exact: true }).click();
    await expect(page.getByTestId("past-reach")).toContainText("The members of then");
    await page.getByRole("link", { name: "Compare nodes" }).click();
    await expect(page.getByTestId("past-reach")).toContainText("Below is the present.");
    await page.goto(`${node.url}/block/30?at=12`);
    await expect(page.getByText("This block came later")).toBeVisible();
    const late = node.chain.at(30n)?.transactions[0]?.status?.idHex ?? "";
    await page.goto(`${node.url}/tx/${late}?at=12`);
    await expect(page.getByText("It was not in the chain then")).toBeVisible();
    await page.goto(`${node.url}/record/${recordOf(node, 5n)}?at=12`);
    await expect(page.locator("pre")).toContainText("flight");
    await page.goto(`${node.url}/record/${recordOf(node, 30n)}?at=12`);
    await expect(page.getByText("It was not written yet")).toBeVisible();
    await page.goto(`${node.url}/accounts?at=4000`);
    await expect(page.getByTestId("past")).toContainText("The chain ends with block 40.");
    await page.goto(`${node.url}/accounts?at=nonsense`);
    await expect(page.getByTestId("past")).toContainText("no block and no moment");

    await page.goto(`${node.url}/organisations?at=12`);
    await page.getByRole("button", { name: "As of then" }).click();
    await expect(page.getByRole("button", { name: "Back to now" })).toBeVisible();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Back to the present" }).click();
    await expect(page.getByTestId("past")).toHaveCount(0);
    await expect(page).toHaveURL(/\/organisations$/);
  } finally {
    await node.stop();
  }
});

for (const { colorScheme, width } of looks)
  test(`pages in the past are sound, ${colorScheme}, ${width} pixels`, async ({ page }) => {
    const node = await FakeNode.start({ blocks: 16, servers: 4, assets: true });
    const account = `/account/${node.settlement("northbank")}`;
    try {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      for (const path of [
        "/",
        "/accounts",
        account,
        "/assets",
        "/blocks",
        "/organisations",
        "/transactions",
        "/chart",
        "/records",
        "/holds",
        "/schedules",
      ]) {
        await page.goto(`${node.url}${path}?at=3`);
        await expect(page.getByTestId("past")).toContainText("As of block 3");
        await expect(page.locator('main [aria-busy="true"]')).toHaveCount(0);
        await expectSound(page, `${path} in the past`);
        if (path === "/accounts") await shoot(page, `past-accounts-${colorScheme}-${width}`);
      }
      await page.getByRole("button", { name: "As of then" }).click();
      await expectSound(page, "choosing the past");
      await shoot(page, `past-choose-${colorScheme}-${width}`);
    } finally {
      await node.stop();
    }
  });

test("the terms of an account, and an asset, as of a block", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 20, servers: 4, assets: true, holds: true });
  const account = node.settlement("clearing");
  const facts = page.getByTestId("facts");
  const terms = page.getByTestId("terms");
  const asset = page.getByTestId("asset");
  const ofNow = page.getByTestId("terms-of-now");
  try {
    await page.goto(`${node.url}/account/${account}`);
    await expect(facts).toContainText("known as coinbase");
    await expect(terms).toContainText("Frozen by");
    await page.goto(`${node.url}/account/${account}?at=5`);
    await expect(facts).toContainText("known as till");
    await expect(terms).toContainText("Refuses debits");
    await expect(terms).not.toContainText("Frozen by");
    await expect(page.getByTestId("past-reach")).toHaveCount(0);
    await expect(ofNow).toHaveCount(0);
    await page.goto(`${node.url}/accounts?at=5`);
    await expect(page.getByTestId("accounts")).toContainText("till");

    await page.goto(`${node.url}/asset/EUR`);
    await expect(asset).toContainText("749,999.95");
    await expect(page.getByTestId("issuers")).toContainText("withdrawn");
    await page.goto(`${node.url}/asset/EUR?at=5`);
    await expect(asset).toContainText("374,999.95");
    await expect(page.getByTestId("issuers")).not.toContainText("withdrawn");
    await expect(page.getByText("Chains prove the supply as of their newest")).toBeVisible();
    await page.goto(`${node.url}/asset/EUR?at=1`);
    await expect(page.getByText("This asset was not registered then")).toBeVisible();
    const assets = page.getByTestId("assets");
    await page.goto(`${node.url}/assets?at=5`);
    await expect(assets).toContainText("374,999.95");
    await expect(assets).not.toContainText("closed");
    await page.goto(`${node.url}/assets?at=12`);
    await expect(assets).toContainText("closed");
    await page.goto(`${node.url}/assets?at=1`);
    await expect(page.getByText("No registered assets")).toBeVisible();
    for (const { colorScheme, width } of looks) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      for (const [name, path] of [
        ["account", `/account/${account}`],
        ["asset", "/asset/EUR"],
      ]) {
        await page.goto(`${node.url}${path}?at=5`);
        await expect(page.getByTestId("past")).toContainText("As of block 5");
        await expect(page.locator('main [aria-busy="true"]')).toHaveCount(0);
        await expectSound(page, `${name} with terms of then`);
        await shoot(page, `past-terms-${name}-${colorScheme}-${width}`);
      }
    }
  } finally {
    await node.stop();
  }
});

test("a node that does not know the terms of then says so", async ({ page }) => {
  const node = await FakeNode.start({
    blocks: 20,
    servers: 4,
    assets: true,
    holds: true,
    termsFrom: 8,
  });
  const account = node.settlement("clearing");
  const ofNow = page.getByTestId("terms-of-now");
  try {
    await page.goto(`${node.url}/account/${account}?at=5`);
    await expect(ofNow).toContainText("does not know the alias and the terms of then");
    await expect(page.getByTestId("facts")).toContainText("known as coinbase");
    await page.goto(`${node.url}/accounts?at=5`);
    await expect(ofNow).toBeVisible();
    await page.goto(`${node.url}/assets?at=5`);
    await expect(page.getByTestId("assets")).toContainText("not known");
    for (const { colorScheme, width } of looks) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      await page.goto(`${node.url}/asset/EUR?at=5`);
      await expect(ofNow).toContainText("does not know the terms and the sums of then");
      await expect(page.getByTestId("asset")).toContainText("749,999.95");
      await expect(page.locator('main [aria-busy="true"]')).toHaveCount(0);
      await expectSound(page, "an asset of now in the past");
      await shoot(page, `past-terms-of-now-${colorScheme}-${width}`);
    }
    await page.goto(`${node.url}/asset/EUR?at=9`);
    await expect(page.getByTestId("asset")).toContainText("374,999.95");
    await expect(ofNow).toHaveCount(0);
  } finally {
    await node.stop();
  }
});

test("the overview, lists, holds and schedules as of a block", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 20, servers: 4, assets: true, holds: true });
  try {
    // The last block ends the first hold.
    const [first = "", second = ""] = node.holds;
    const placed = Number(node.chain.head - 1n);
    await page.goto(`${node.url}/?at=12`);
    await expect(page.getByTestId("heads-then")).toContainText("12");
    await expect.poll(async () => (await heightsOf(page, "blocks-then"))[0]).toBe(12);
    await expect(page.getByTestId("listed").locator("tbody tr").first()).toBeVisible();
    await page.goto(`${node.url}/transactions?at=12`);
    const late = node.chain.at(13n)?.transactions[0]?.status?.idHex ?? "";
    const early = node.chain.at(12n)?.transactions[0]?.status?.idHex ?? "";
    await expect(page.locator(`a[href="/tx/${early}"]`).first()).toBeVisible();
    await expect(page.locator(`a[href="/tx/${late}"]`)).toHaveCount(0);
    await page.goto(`${node.url}/chart?at=12`);
    await expect(page.getByTestId("chart")).toBeVisible();

    const rows = page.getByTestId("holds").locator("tbody tr");
    await page.goto(`${node.url}/holds`);
    await expect(rows).toHaveCount(2);
    await page.goto(`${node.url}/holds?at=${placed}`);
    await expect(rows).toHaveCount(3);
    await page.goto(`${node.url}/holds?at=12`);
    await expect(page.getByText("No hold is open")).toBeVisible();
    const state = page.getByTestId("hold-state");
    await page.goto(`${node.url}/hold/${first}`);
    await expect(state).toHaveText("posted in part");
    await page.goto(`${node.url}/hold/${first}?at=${placed}`);
    await expect(state).toHaveText("open");
    await page.goto(`${node.url}/hold/${second}?at=${placed}`);
    await expect(state).toHaveText("open");
    await page.goto(`${node.url}/hold/${second}?at=12`);
    await expect(page.getByText("It was placed later")).toBeVisible();
    await expect(state).toHaveCount(0);
  } finally {
    await node.stop();
  }
});

test("a moment is as good as a block", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 40, ageMs: 86_400_000 });
  try {
    const time = Number(node.chain.at(20n)?.header.timeMs ?? 0n);
    const at = `${new Date(time).toISOString().slice(0, 19)}Z`;
    await page.goto(`${node.url}/accounts?at=${encodeURIComponent(at)}`);
    await expect(page.getByTestId("past")).toContainText(/As of block (19|20|21)\D/);
    await expect(page.getByTestId("accounts").getByRole("link").first()).toBeVisible();
  } finally {
    await node.stop();
  }
});

test("views are saved, opened, exported, deleted and imported", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 20 });
  try {
    await page.goto(`${node.url}/accounts?prefix=aurora&at=9`);
    const menu = page.getByRole("button", { name: "Views" });
    await menu.click();
    await page.getByLabel("Name of the view").fill("Aurora then");
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await expect(page.getByText("Saved as “Aurora then”.")).toBeVisible();
    for (const { colorScheme, width } of looks) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      await expectSound(page, `views, ${colorScheme}, ${width}`);
      await shoot(page, `views-${colorScheme}-${width}`);
    }
    const download = page.waitForEvent("download");
    await page.getByRole("button", { name: "Export", exact: true }).click();
    const file = await (await download).path();
    expect(JSON.parse(await readFile(file, "utf8"))).toEqual({
      format: "ledgerd views 1",
      views: [{ name: "Aurora then", path: "/accounts?prefix=aurora&at=9" }],
    });
    await page.getByRole("button", { name: "Delete the view Aurora then" }).click();
    await expect(page.getByText("No views yet")).toBeVisible();
    await page.getByLabel("Import views").setInputFiles(file);
    await expect(page.getByText("1 view taken in.")).toBeVisible();
    await page.goto(`${node.url}/nodes`);
    await menu.click();
    await page.getByRole("link", { name: "Aurora then" }).click();
    await expect(page).toHaveURL(/\/accounts\?prefix=aurora&at=9$/);
    await expect(page.getByTestId("past")).toContainText("As of block 9");
    await expect(page.getByLabel("Begins with")).toHaveValue("aurora");
    await menu.click();
    await page.getByLabel("Import views").setInputFiles({
      name: "x.json",
      mimeType: "application/json",
      buffer: Buffer.from("{"),
    });
    await expect(page.getByText("This is no file of views.")).toBeVisible();
  } finally {
    await node.stop();
  }
});

function recordOf(node: FakeNode, height: bigint): string {
  return node.chain.at(height)?.transactions[2]?.body?.records[0]?.key ?? "";
}
