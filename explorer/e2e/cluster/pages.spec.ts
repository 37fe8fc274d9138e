import {
  call,
  clusterTest as test,
  clusterUrl,
  downloadCsv,
  expect,
  headOf,
  heightsOf,
  numberIn,
} from "../fixtures";

interface Block {
  block: {
    header: { height: string; hashHex: string; transactionCount: number };
    transactions?: { status: { idHex: string } }[];
  };
}

test("the overview moves with the chain", async ({ page }) => {
  await page.goto("/");
  await expect(page.getByRole("heading", { level: 1, name: "Overview" })).toBeVisible();
  await expect.poll(() => headOf(page)).toBeGreaterThan(0);
  const first = await headOf(page);
  await expect.poll(() => headOf(page)).toBeGreaterThan(first);
  await expect.poll(async () => (await heightsOf(page))[0]).toBeGreaterThan(first);
  const heights = await heightsOf(page);
  expect(heights).toEqual(heights.map((_, i) => (heights[0] ?? 0) - i));
  await expect(page.locator(".uplot canvas")).toHaveCount(2);
  await expect(page.getByTestId("transactions-list").locator("tbody tr").nth(3)).toBeVisible();
  const total = numberIn(await page.getByTestId("transactions").textContent());
  await expect
    .poll(async () => numberIn(await page.getByTestId("transactions").textContent()))
    .toBeGreaterThan(total);
});

test("the pause switch holds everything still and counts what comes in", async ({ page }) => {
  await page.goto("/");
  await expect.poll(async () => (await heightsOf(page)).length).toBeGreaterThan(4);
  await page.getByRole("button", { name: "Pause live updates" }).click();
  const before = await heightsOf(page);
  await expect
    .poll(async () =>
      numberIn(
        (await page.getByTestId("missed").textContent({ timeout: 15_000 }))?.split("block")[0] ??
          "",
      ),
    )
    .toBeGreaterThan(1);
  expect(await heightsOf(page)).toEqual(before);
  await page.getByRole("button", { name: "Resume live updates" }).click();
  await expect(page.getByText("Paused.")).toBeHidden();
  await expect.poll(async () => (await heightsOf(page))[0]).toBeGreaterThan(before[0] ?? 0);
});

test("blocks: pages, a block by height and by hash, its transactions as CSV", async ({ page }) => {
  await page.goto("/blocks");
  await expect.poll(async () => (await heightsOf(page)).length).toBeGreaterThan(4);
  await page.goto("/blocks?from=3");
  await expect.poll(() => heightsOf(page)).toEqual([3, 2, 1]);

  const { block } = await call<Block>(clusterUrl(), "GetBlock", { height: "3" });
  await page.getByRole("link", { name: "3", exact: true }).first().click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Block 3");
  await expect(page.getByText(block.header.hashHex)).toBeVisible();
  await page.goto(`/block/${block.header.hashHex}`);
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Block 3");
  const { name, rows } = await downloadCsv(page);
  expect(name).toBe("block-3.csv");
  expect(rows[0]?.slice(0, 3)).toEqual(["index", "id", "state"]);
  expect(rows.slice(1).map((row) => row[1])).toEqual(
    block.transactions?.map((transaction) => transaction.status.idHex),
  );

  await page.getByRole("link", { name: "← Previous" }).click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Block 2");
  await page.goBack();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Block 3");
});

test("the list of blocks as CSV follows the hash chain", async ({ page }) => {
  await page.goto("/blocks?from=40");
  await expect.poll(async () => (await heightsOf(page)).length).toBeGreaterThan(0);
  const { rows } = await downloadCsv(page);
  const [header, ...blocks] = rows;
  expect(header?.slice(0, 4)).toEqual(["height", "hash", "previous", "time"]);
  expect(blocks.length).toBeGreaterThan(2);
  expect(blocks.at(-1)?.[0]).toBe("1");
  for (const [i, block] of blocks.slice(0, -1).entries())
    expect(block[2], `block ${block[0]}`).toBe(blocks[i + 1]?.[1]);
});

test("a transaction: its levels, its postings, and a proof that this browser checks", async ({
  page,
}) => {
  await page.goto("/");
  await page.getByTestId("transactions-list").locator("tbody a").first().click();
  await expect(page.getByRole("heading", { level: 1 })).toContainText("Transaction");
  await expect(page.locator('[data-level="Durable"]')).toHaveClass(/reached/);
  await expect(page.getByTestId("proof-verdict")).toHaveText("✓ verified in this browser");
  await page.getByText(/^\d+ steps$/).click();
  const marks = page
    .getByRole("region", { name: "Proof that it is in the block" })
    .locator("ol .mark");
  expect(await marks.count()).toBeGreaterThanOrEqual(5);
  for (const mark of await marks.allTextContents()) expect(mark).toContain("✓");
  const block = page.getByRole("region", { name: "Status" }).getByRole("link").first();
  await block.click();
  await expect(page.getByRole("heading", { level: 1 })).toContainText("Block");
});

test("proofs verify for every transaction of some blocks", async ({ page }) => {
  const head = (await call<Block>(clusterUrl(), "GetBlock", { head: true })).block.header;
  const ids: string[] = [];
  for (let height = Number(head.height); height > 0 && ids.length < 6; height -= 2) {
    const { block } = await call<Block>(clusterUrl(), "GetBlock", { height: String(height) });
    for (const transaction of (block.transactions ?? []).slice(0, 3))
      ids.push(transaction.status.idHex);
  }
  expect(ids.length).toBeGreaterThan(0);
  for (const id of ids) {
    await page.goto(`/tx/${id}`);
    await expect(page.getByTestId("proof-verdict")).toHaveText("✓ verified in this browser");
  }
});

test("an account: its balances are the sum of its history, as the CSV has it", async ({ page }) => {
  await page.goto("/accounts");
  await page
    .getByTestId("accounts")
    .locator("tbody tr")
    .filter({ hasText: /[1-9]/ })
    .first()
    .getByRole("link")
    .first()
    .click();
  await expect(page.getByRole("heading", { name: "Balances" })).toBeVisible();
  await page.getByRole("button", { name: "Pause live updates" }).click();
  const account = decodeURIComponent(new URL(page.url()).pathname.replace("/account/", ""));
  await expect(page.getByTestId("history").locator("tbody tr").first()).toBeVisible();
  const { rows } = await downloadCsv(page);
  const [header, ...entries] = rows;
  expect(header).toEqual([
    "time",
    "height",
    "index",
    "transaction",
    "asset",
    "change",
    "balance",
    "effective",
    "note",
  ]);
  expect(entries.length).toBeGreaterThan(0);

  const { account: now } = await call<{
    account: { height: string; balances: { asset: string; amount: string }[] };
  }>(clusterUrl(), "GetAccount", { account });
  const until = BigInt(now.height);
  const later = await call<{
    entries?: { height: string; changes?: { asset: string; amount: string }[] }[];
  }>(clusterUrl(), "ListHistory", { account, pageSize: 1000 });
  const known = BigInt(entries[0]?.[1] ?? "0");
  const sums = new Map<string, bigint>();
  const add = (asset: string, amount: string): void =>
    void sums.set(asset || "unit", (sums.get(asset || "unit") ?? 0n) + BigInt(amount));
  for (const entry of entries)
    if (BigInt(entry[1] ?? "0") < known) add(entry[4] ?? "", entry[5] ?? "0");
  // Entries that arrived between the download and the balances come from the history.
  for (const entry of later.entries ?? []) {
    const height = BigInt(entry.height);
    if (height >= known && height <= until)
      for (const change of entry.changes ?? []) add(change.asset, change.amount);
  }
  for (const balance of now.balances)
    expect(sums.get(balance.asset || "unit"), balance.asset).toBe(BigInt(balance.amount));
});

test("a history is filtered, and a period has a statement", async ({ page }) => {
  interface History {
    entries?: { timeMs: string; transactionIdHex: string; changes?: { amount: string }[] }[];
    openingBalances?: { asset: string; amount: string }[];
    closingBalances?: { asset: string; amount: string }[];
  }
  const { accounts } = await call<{ accounts: { account: string; issuer?: boolean }[] }>(
    clusterUrl(),
    "ListAccounts",
    { pageSize: 50 },
  );
  const account = accounts.find(({ issuer }) => issuer)?.account ?? "";
  const read = (wanted: object): Promise<History> =>
    call<History>(clusterUrl(), "ListHistory", { account, pageSize: 1000, ...wanted });
  const all = (await read({ ascending: true })).entries ?? [];
  expect(all.length).toBeGreaterThan(2);

  // A period that is over, so that no new entry comes into it.
  const second = (entry?: { timeMs: string }): number => Math.floor(Number(entry?.timeMs) / 1000);
  const [from, to] = [second(all[1]), second(all[2])];
  await expect.poll(() => Date.now() / 1000).toBeGreaterThan(to + 2);
  const utc = (seconds: number): string =>
    new Date(seconds * 1000).toISOString().replace(".000Z", "Z");
  await page.goto(`/account/${account}`);
  await page.getByTestId("history-filter").getByText("Filter").click();
  await page.getByLabel("From").fill(utc(from));
  await page.getByLabel("To, with it").fill(utc(to));
  await page.getByRole("button", { name: "Show" }).click();
  const statement = page.getByTestId("statement");
  await expect(statement.getByTestId("statement-closing").first()).toBeVisible();
  const period = await read({ fromTimeMs: from * 1000, toTimeMs: (to + 1) * 1000 });
  await expect(page.getByTestId("history").locator("tbody tr")).toHaveCount(
    Math.min(50, period.entries?.length ?? 0),
  );
  const digits = async (name: string): Promise<string> =>
    ((await statement.getByTestId(`statement-${name}`).first().textContent()) ?? "").replace(
      /[^-\d]/g,
      "",
    );
  expect(await digits("opening")).toBe(period.openingBalances?.[0]?.amount ?? "0");
  expect(await digits("closing")).toBe(period.closingBalances?.[0]?.amount ?? "0");
  expect(BigInt(await digits("opening")) + BigInt(await digits("in")) - BigInt(await digits("out")))
    .toBe(BigInt(await digits("closing")));

  // The address is enough to see the same again, and what is wrong is said.
  await page.reload();
  await expect(page.getByLabel("From")).toHaveValue(utc(from));
  await expect(statement.getByTestId("statement-closing").first()).toBeVisible();
  await page.getByLabel("Metadata").fill("no-such-member=1");
  await page.getByRole("button", { name: "Show" }).click();
  await expect(page.getByText("No such entries")).toBeVisible();
  await expect(statement).toHaveCount(0);
  await page.getByLabel("At least").fill("1.5");
  await page.getByRole("button", { name: "Show" }).click();
  await expect(page.getByRole("alert")).toContainText("name the asset");
  await page.getByRole("button", { name: "All entries" }).click();
  await expect(page.getByTestId("history").locator("tbody tr").first()).toBeVisible();
});

test("accounts are filtered by their beginning", async ({ page }) => {
  await page.goto("/accounts");
  const first = await page.getByTestId("accounts").locator("tbody a").first().textContent();
  const organisation = (first ?? "").split(":")[0] ?? "";
  await page.getByLabel("Begins with").fill(`${organisation}:`);
  await expect(page).toHaveURL(new RegExp(`prefix=${encodeURIComponent(`${organisation}:`)}`));
  await expect(page.getByTestId("accounts").locator("tbody tr").first()).toBeVisible();
  for (const name of await page.getByTestId("accounts").locator("tbody a").allTextContents())
    expect(name.startsWith(`${organisation}:`)).toBe(true);
  await page.getByLabel("Begins with").fill("nobody-is-called-this");
  await expect(page.getByText("No account begins with")).toBeVisible();
});

test("organisations lead to their keys and accounts", async ({ page }) => {
  await page.goto("/organisations");
  const link = page.getByTestId("organisations").locator("tbody a").first();
  const name = (await link.textContent()) ?? "";
  await link.click();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText(name);
  await expect(page.getByText(/^[0-9a-f]{64}$/).first()).toBeVisible();
});

test("nodes: the digraph is drawn, every member orders, rounds go by", async ({ page }) => {
  const { cluster } = await call<{
    cluster: { members: object[]; edges: object[]; digraph: string };
  }>(clusterUrl(), "GetCluster");
  await page.goto("/nodes");
  const drawing = page.getByTestId("digraph");
  await expect(drawing.locator("g.node")).toHaveCount(cluster.members.length);
  await expect(drawing.locator("path.edge")).toHaveCount(cluster.edges.length);
  await expect(drawing.locator("g.node.self")).toHaveCount(1);
  await expect(page.getByTestId("nodes-ordering")).toHaveText(
    `${cluster.members.length} of ${cluster.members.length}`,
  );
  await expect(
    page.getByTestId("members").locator("tbody tr", { hasText: "this node" }),
  ).toHaveCount(1);
  await expect(page.getByTestId("members").getByText("ordering", { exact: true })).toHaveCount(
    cluster.members.length,
  );
  await expect(page.getByTestId("mode")).toHaveText(/^(reliable|fast path)$/);
  const round = numberIn(await page.getByTestId("round").textContent());
  await expect
    .poll(async () => numberIn(await page.getByTestId("round").textContent()))
    .toBeGreaterThan(round);
  await page.getByTestId("members").getByRole("button").first().click();
  await expect(page.getByText(/sends to/)).toBeVisible();
});
