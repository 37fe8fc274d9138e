import type { Page } from "@playwright/test";
import { FakeLiar, type Lie } from "../../test/fake-liar";
import { FakeNode } from "../../test/fake-node";
import { expectSound, looks, shoot } from "../axe";
import { expect, test } from "../fixtures";

// What does not answer, and calls that a node refuses, are logged by the browser.
test.use({ expected: [/Failed to load resource|ERR_CONNECTION|CORS policy/] });
test.slow();

const bare = (url: string): string => url.replace("http://", "");

/** Names nodes on the page, as a reader does. */
async function name(page: Page, urls: readonly string[]): Promise<void> {
  for (const url of urls) {
    await page.getByLabel("Ask another node").fill(bare(url));
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await expect(page.locator(`tr[data-origin="${url}"]`)).toBeVisible();
  }
}

test("nodes that agree, lag, lie, are of another ledger or do not answer", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 20, servers: 4, ageMs: 60_000, open: true });
  const other = await FakeNode.start({ blocks: 20, servers: 4, foundedMs: 7, open: true });
  const closed = await FakeNode.start({ blocks: 20, servers: 4 });
  const liars = new Map<Lie, FakeLiar>();
  for (const lie of ["header", "balance", "proof", "stale"] as const)
    liars.set(lie, await FakeLiar.start(node.url, lie));
  const urlOf = (lie: Lie): string => liars.get(lie)?.url ?? "";
  try {
    node.grow(Date.now());
    await page.goto(`${node.url}/nodes`);
    await page.getByRole("link", { name: "Compare nodes" }).click();
    await expect(page.getByTestId("agreement")).toHaveText("✓ 1 of 1 node agrees");
    await name(page, [urlOf("balance")]);
    await expect(page.getByTestId("agreement")).toHaveText("✓ 2 of 2 nodes agree");
    await name(page, [urlOf("header"), urlOf("stale"), urlOf("proof"), other.url, closed.url]);
    const row = (url: string) => page.locator(`tr[data-origin="${url}"]`);
    await expect(row(node.url).getByTestId("stand")).toHaveText("✓ agrees");
    await expect(row(urlOf("header")).getByTestId("stand")).toHaveText("✗ differs");
    await expect(row(urlOf("header")).getByTestId("reason")).toContainText(
      "is not the one that the members certified",
    );
    await expect(row(urlOf("stale")).getByTestId("stand")).toHaveText("lags");
    await expect(row(urlOf("stale"))).toContainText(/1 block and .* behind/);
    await expect(row(other.url).getByTestId("reason")).toContainText("another genesis");
    await expect(row(closed.url).getByTestId("stand")).toHaveText("no answer");
    await expect(row(closed.url).getByTestId("reason")).toContainText("allow this page's origin");
    await expect(page.getByTestId("agreement")).toHaveText("✗ 3 of 7 nodes agree");
    await page.getByLabel("Ask another node").fill("no address at all");
    await page.getByRole("button", { name: "Add", exact: true }).click();
    await expect(page.getByText("This is no address")).toBeVisible();
    for (const { colorScheme, width } of looks) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      await expectSound(page, `agreement, ${colorScheme}, ${width}`);
      await shoot(page, `agreement-${colorScheme}-${width}`);
    }

    // The account's page asks the same nodes for proofs of its balance.
    await page.goto(`${node.url}/account/${node.settlement("northbank")}`);
    await expect(page.getByTestId("proven-by")).toHaveText("2 of 7 nodes prove this balance");
    const of = (url: string) => page.getByTestId("proven").locator(`[data-origin="${url}"]`);
    await expect(of(urlOf("balance"))).toContainText("it shows another balance than it proves");
    await expect(of(urlOf("proof"))).toContainText("its proof does not hold");
    await expect(of(urlOf("stale"))).toContainText("lags: it proves another balance");
    await expect(of(urlOf("header"))).toContainText("✓ proves it");
    await expect(of(other.url)).toContainText("it has another genesis");
    await expect(of(closed.url)).toContainText("no proof: it does not answer");
    await expect(page.getByTestId("proven")).toContainText("that you did not confirm");
    for (const { colorScheme, width } of looks) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      await expectSound(page, `account, ${colorScheme}, ${width}`);
      await shoot(page, `account-${colorScheme}-${width}`);
    }

    // It forgets a node that the reader removes.
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.goto(`${node.url}/agreement`);
    await page.getByRole("button", { name: `Stop asking ${bare(other.url)}` }).click();
    await expect(row(other.url)).toHaveCount(0);
    await page.reload();
    await expect(row(node.url)).toBeVisible();
    await expect(row(other.url)).toHaveCount(0);
  } finally {
    for (const each of [...liars.values(), node, other, closed]) await each.stop();
  }
});

test("two certified blocks of one height are an alarm", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 20, servers: 4, ageMs: 60_000, open: true });
  const fork = await FakeNode.start({ blocks: 20, servers: 4, ageMs: 1_000, open: true });
  try {
    await page.goto(`${node.url}/agreement`);
    await name(page, [fork.url]);
    await expect(page.getByRole("alert")).toContainText("certified two different blocks");
    await expect(page.getByTestId("agreement")).toHaveText("✗ 0 of 2 nodes agree");
    await shoot(page, "fork");
  } finally {
    await node.stop();
    await fork.stop();
  }
});

test("proofs end at a genesis that the reader confirms, once for all first shards", async ({
  page,
}) => {
  const node = await FakeNode.start({ blocks: 20, parents: [0, 0, 0] });
  try {
    await page.goto(`${node.url}/shards/1/blocks/1009`);
    const trust = page.getByTestId("genesis-trust");
    await expect(trust).toHaveText("from a genesis that you did not confirm");
    const book = /Book\s*([0-9a-f]{64})/.exec(
      (await page.getByTestId("certificate").textContent()) ?? "",
    )?.[1];
    const confirm = page.getByRole("button", { name: "I compared it: confirm" });
    await page.getByLabel("Hash from elsewhere").fill("ab".repeat(32));
    await expect(confirm).toBeDisabled();
    await page.getByLabel("Hash from elsewhere").fill(book ?? "");
    await expect(page.getByTestId("compared")).toHaveText("✓ the same genesis");
    await confirm.click();
    await expect(trust).toHaveText("from your genesis");
    await page.goto(`${node.url}/shards/2/blocks/2009`);
    await expect(trust).toHaveText("from your genesis");
    await page.goto(`${node.url}/agreement?shard=2`);
    await expect(page.getByTestId("genesis-confirmed")).toBeVisible();
    await page.getByRole("button", { name: "Take it back" }).click();
    await expect(page.getByTestId("genesis-confirmed")).toHaveCount(0);
  } finally {
    await node.stop();
  }
});
