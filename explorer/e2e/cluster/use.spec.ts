import {
  call,
  clusterTest as test,
  clusterUrl,
  expect,
  expectNoSidewaysScroll,
  expectPanelsFit,
  heightsOf,
} from "../fixtures";

interface Found {
  height: string;
  hash: string;
  id: string;
  account: string;
  organisation: string;
}

/** Returns one object of each kind that the cluster holds. */
async function something(): Promise<Found> {
  const base = clusterUrl();
  const { accounts } = await call<{
    accounts: { account: string; organisation: string; balances?: object[] }[];
  }>(base, "ListAccounts", { pageSize: 50 });
  const account =
    accounts.find((candidate) => (candidate.balances ?? []).length > 0) ?? accounts[0];
  const { entries } = await call<{ entries: { height: string; transactionIdHex: string }[] }>(
    base,
    "ListHistory",
    { account: account?.account, pageSize: 1 },
  );
  const { block } = await call<{ block: { header: { hashHex: string } } }>(base, "GetBlock", {
    height: entries[0]?.height,
  });
  return {
    height: entries[0]?.height ?? "",
    hash: block.header.hashHex,
    id: entries[0]?.transactionIdHex ?? "",
    account: account?.account ?? "",
    organisation: account?.organisation ?? "",
  };
}

test("search finds a height, a hash, an id, an account and an organisation", async ({ page }) => {
  const found = await something();
  await page.goto("/");
  const search = page.getByRole("combobox");
  const grouped = found.height.replace(/\B(?=(\d{3})+$)/g, ",");
  const cases: [string, RegExp, string][] = [
    [found.height, new RegExp(`/block/${found.height}$`), `Block ${grouped}`],
    [found.hash, /\/block\//, `Block ${grouped}`],
    [found.id, new RegExp(`/tx/${found.id}$`), "Transaction"],
    [found.account, /\/account\//, found.account],
    [found.organisation, /\/organisation\//, found.organisation],
  ];
  for (const [query, url, heading] of cases) {
    await search.fill(query);
    const kind = heading.startsWith("Block")
      ? "block"
      : heading === "Transaction"
        ? "transaction"
        : heading.includes(":")
          ? "account"
          : "organisation";
    await page.getByRole("option").filter({ hasText: kind }).first().click();
    await expect(page).toHaveURL(url);
    await expect(page.getByRole("heading", { level: 1 })).toContainText(heading);
  }
  await search.fill("nothing-is-called-this");
  await expect(page.getByText("Nothing has the name “nothing-is-called-this”.")).toBeVisible();
});

test("everything is reached by keyboard", async ({ page }) => {
  const found = await something();
  await page.goto("/");
  await expect.poll(async () => (await heightsOf(page)).length).toBeGreaterThan(4);
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Skip to the content" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.locator("#main")).toBeFocused();

  await page.keyboard.press("/");
  await expect(page.getByRole("combobox")).toBeFocused();
  await page.keyboard.type(found.id);
  await expect(page.getByRole("option").first()).toBeVisible();
  await page.keyboard.press("ArrowDown");
  await expect(page.getByRole("option").first()).toHaveAttribute("aria-selected", "true");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(new RegExp(found.id));
  await expect(page.getByRole("heading", { level: 1 })).toBeFocused();
  await expect(page.getByTestId("proof-verdict")).toBeVisible();

  // Starting at the heading, Tab reaches the proof's steps, and Enter opens them.
  const steps = page.getByText(/^\d+ steps$/);
  await expect(async () => {
    await page.keyboard.press("Tab");
    await expect(steps).toBeFocused({ timeout: 50 });
  }).toPass();
  const ring = await steps.evaluate((element) => getComputedStyle(element).outlineStyle);
  expect(ring).toBe("solid");
  await page.keyboard.press("Enter");
  await expect(page.getByText("The header has the block's hash")).toBeVisible();

  // The sections in order.
  for (const [name, path] of [
    ["Blocks", "/blocks"],
    ["Nodes", "/nodes"],
  ] as const) {
    await page.getByRole("navigation", { name: "Sections" }).getByRole("link", { name }).focus();
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(path);
    await expect(page.getByRole("heading", { level: 1, name })).toBeFocused();
  }
  const member = page.getByTestId("members").getByRole("button").first();
  await member.focus();
  await page.keyboard.press("Space");
  await expect(member).toHaveAttribute("aria-pressed", "true");
});

for (const colorScheme of ["light", "dark"] as const) {
  test(`every page fits 390 pixels, ${colorScheme}`, async ({ page }) => {
    const found = await something();
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width: 390, height: 844 });
    for (const path of [
      "/",
      "/blocks",
      `/block/${found.height}`,
      `/tx/${found.id}`,
      "/accounts",
      `/account/${found.account}`,
      "/organisations",
      `/organisation/${found.organisation}`,
      "/nodes",
      "/search?q=a",
    ]) {
      await page.goto(path);
      await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
      await expect(page.locator('main [aria-busy="true"]')).toHaveCount(0);
      await expectPanelsFit(page);
      await expectNoSidewaysScroll(page);
    }
  });
}

test("the colours follow the system, or the choice, which a reload keeps", async ({ page }) => {
  const ground = (): Promise<string> =>
    page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.emulateMedia({ colorScheme: "light" });
  await page.goto("/nodes");
  const light = await ground();
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await ground();
  expect(dark).not.toBe(light);
  await page.getByRole("button", { name: /^Colours/ }).click();
  expect(await ground()).toBe(light);
  await page.reload();
  expect(await ground()).toBe(light);
  await page.getByRole("button", { name: /^Colours/ }).click();
  await page.getByRole("button", { name: /^Colours/ }).click();
  expect(await ground()).toBe(dark);
});

test.describe("what is not there", () => {
  test.use({ expected: [/status of 404/] });

  for (const colorScheme of ["light", "dark"] as const) {
    test(`an address without a page fits 390 pixels, ${colorScheme}`, async ({ page }) => {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width: 390, height: 844 });
      await page.goto("/nowhere");
      await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
      await expectPanelsFit(page);
      await expectNoSidewaysScroll(page);
    });
  }

  test("an address without a page says so, and a reload of any page works", async ({ page }) => {
    await page.goto("/what/is/this");
    await expect(page.getByText("The explorer has no page at this address")).toBeVisible();
    await page.goto("/block/999999999");
    await expect(page.getByText("The chain has no such block yet")).toBeVisible();
    await page.goto(`/tx/${"0".repeat(64)}`);
    await expect(page.getByText("This node does not know the transaction")).toBeVisible();
    await page.goto("/account/nobody:nothing");
    await expect(page.getByText("This account is not open")).toBeVisible();
    await page.reload();
    await expect(page.getByText("This account is not open")).toBeVisible();
  });
});
