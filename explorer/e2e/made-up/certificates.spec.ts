import { TransactionState } from "../../src/gen/ledgerd/v1/ledgerd_pb";
import { FakeNode, type FakeOptions } from "../../test/fake-node";
import { expect, expectNoSidewaysScroll, expectPanelsFit, test } from "../fixtures";

/** Runs a test against a fake node. */
async function over(options: FakeOptions, run: (node: FakeNode) => Promise<void>): Promise<void> {
  const node = await FakeNode.start(options);
  try {
    await run(node);
  } finally {
    await node.stop();
  }
}

const pathOf = (node: FakeNode, height: bigint, place = 4): string =>
  `${node.url}/tx/${node.chain.at(height)?.transactions[place]?.status?.idHex ?? ""}`;

test("a transaction is followed from the genesis over a join", async ({ page }) => {
  await over({ blocks: 70, servers: 4, joins: true }, async (node) => {
    await page.goto(pathOf(node, 61n));
    await expect(page.getByTestId("certificate-verdict")).toHaveText(
      "✓ final, verified in this browser",
    );
    await expect(page.getByTestId("certified")).toHaveText(
      "The transaction is final: certified by node-1, node-2, node-3 (3 of 4 members) " +
        "in block 64, followed from the genesis over 1 change of members.",
    );
    await page.getByText("What was checked here, and what was not").click();
    const steps = page.getByTestId("certificate").locator("ol li");
    await expect(steps).toHaveText([
      /3 members of the genesis of\s+demo/,
      /Block\s+2:\s+node-3\s+joined, certified by\s+node-1, node-2\s+\(2 of 3\)/,
      /3 headers from block 61 to block\s+64, each with the hash of the one before/,
      /Block 64 signed by\s+node-1, node-2, node-3\s*:/,
    ]);
    // The reader compares the genesis with a hash from elsewhere.
    const missing = page.getByTestId("not-checked");
    await expect(missing).toContainText("whether this genesis is that of your ledger");
    const own = page.getByLabel("Hash from elsewhere");
    await own.fill("ab".repeat(32));
    await expect(page.getByTestId("compared")).toContainText("✗ another one");
    const text = await page.getByTestId("certificate").locator(".genesis").textContent();
    await own.fill(/[0-9a-f]{64}/.exec(text ?? "")?.[0].toUpperCase() ?? "");
    await expect(page.getByTestId("compared")).toHaveText("✓ the same genesis");
    await expect(missing).not.toContainText("whether this genesis");
  });
});

test("a certificate of too few members is red and proves nothing", async ({ page }) => {
  await over({ blocks: 20, servers: 4, tooFewSign: true }, async (node) => {
    for (const url of [pathOf(node, 9n), `${node.url}/block/9`]) {
      await page.goto(url);
      await expect(page.getByTestId("certificate-verdict")).toHaveText("✗ does not verify");
      const panel = page.getByTestId("certificate");
      await expect(panel.getByText("only 2 of 4 members signed block 20")).toBeVisible();
      await expect(panel.getByTestId("certified")).toHaveCount(0);
    }
  });
});

test.describe("what has no certificate yet", () => {
  // The browser logs that the node refused a call.
  test.use({ expected: [/Failed to load resource/] });

  test("says so, until its certificate comes", async ({ page }) => {
    await over({ blocks: 20 }, async (node) => {
      for (const url of [pathOf(node, 9n), `${node.url}/block/9`]) {
        node.uncertified = true;
        await page.goto(url);
        const verdict = page.getByTestId("certificate-verdict");
        await expect(verdict).toHaveText("not certified yet");
        node.uncertified = false;
        await expect(verdict).toHaveText("✓ final, verified in this browser");
      }
    });
  });
});

test("a failed transaction is called failed by its proof, too", async ({ page }) => {
  await over({ blocks: 20 }, async (node) => {
    await page.goto(pathOf(node, 9n, 1));
    await expect(page.getByTestId("failed")).toBeVisible();
    await expect(page.getByTestId("proven-result")).toHaveText("not applied (code 9)");
    await expect(page.getByText("The node says otherwise")).toHaveCount(0);
    // The same proof against a node that calls the transaction applied.
    const transaction = node.chain.at(9n)?.transactions[1];
    if (transaction?.status) transaction.status.state = TransactionState.DURABLE;
    await page.reload();
    await expect(page.getByText("The node says otherwise: do not rely on it.")).toBeVisible();
  });
});

test("without Ed25519, as over plain http, the signatures are called unchecked", async ({
  page,
}) => {
  await over({ blocks: 20 }, async (node) => {
    await page.addInitScript(() =>
      Object.defineProperty(globalThis.crypto, "subtle", { value: undefined }),
    );
    await page.goto(pathOf(node, 9n));
    await expect(page.getByTestId("certificate-verdict")).toHaveText("signatures not checked");
    await expect(page.getByText("this page is from neither")).toBeVisible();
    await expect(page.getByTestId("certified")).not.toContainText("is final");
  });
});

test("another genesis than before is an alarm until it is accepted", async ({ page }) => {
  let before = "";
  let port = 0;
  await over({ blocks: 20 }, async (node) => {
    port = Number(new URL(node.url).port);
    await page.goto(`${node.url}/block/9`);
    await expect(page.getByText("the first that this browser saw")).toBeVisible();
    before = Buffer.from(node.chain.genesis.hash).toString("hex");
    await page.goto("about:blank");
  });
  await over({ blocks: 20, foundedMs: 2, port }, async (node) => {
    for (const url of [`${node.url}/block/9`, pathOf(node, 9n)]) {
      await page.goto(url);
      await expect(page.getByTestId("certificate-verdict")).toHaveText(
        "✗ of another genesis than before",
      );
      await expect(page.getByRole("alert").getByText(before)).toBeVisible();
    }
    await page.getByRole("button", { name: "I know: remember the new one" }).click();
    const verdict = page.getByTestId("certificate-verdict");
    await expect(verdict).toHaveText("✓ final, verified in this browser");
    await page.reload();
    await expect(verdict).toHaveText("✓ final, verified in this browser");
    await expect(page.getByRole("alert")).toHaveCount(0);
  });
});

test("evidence against members is an alarm on every page", async ({ page }) => {
  await over({ blocks: 20, servers: 4, evidence: "true" }, async (node) => {
    await page.goto(`${node.url}/accounts`);
    await page.getByRole("link", { name: "What it means, and what to do" }).click();
    const panel = page.getByTestId("evidence");
    await expect(panel.getByText("✓ verified in this browser")).toHaveCount(2);
    await expect(panel.getByRole("heading", { level: 3 })).toHaveText([
      /Block 1\s*:\s+node-2\s+signed two blocks/,
      /Block 3\s*:\s+no member signed both/,
    ]);
    await expect(panel.getByText("signed by")).toHaveCount(4);
    const hash = node.chain.at(1n)?.header.hashHex ?? "";
    await expect(panel.getByText(hash)).toBeVisible();
    await expect(panel.getByText("ledgerd evidence")).toBeVisible();
  });
});

test("forged evidence accuses nobody", async ({ page }) => {
  await over({ blocks: 20, servers: 4, evidence: "forged" }, async (node) => {
    await page.goto(`${node.url}/nodes`);
    const panel = page.getByTestId("evidence");
    await expect(panel.getByText("✗ proves nothing")).toHaveCount(2);
    await expect(panel.getByText("Do not accuse a member by this").first()).toBeVisible();
  });
});

for (const parents of [undefined, [0, 0, 0]])
  test(`it fits every width, ${parents ? "in a book of shards" : "in one shard"}`, async ({
    page,
  }) => {
    const options: FakeOptions = { blocks: 12, servers: 5, wide: true, evidence: "true" };
    await over(parents ? { ...options, parents } : options, async (node) => {
      const height = node.chain.base + 5n;
      const block = parents ? `/shards/1/blocks/${height}` : `/block/${height}`;
      for (const url of [pathOf(node, height, 1), `${node.url}${block}`, `${node.url}/nodes`]) {
        await page.setViewportSize({ width: 1280, height: 900 });
        await page.goto(url);
        const panel = url.endsWith("/nodes")
          ? page.getByTestId("evidence").getByText("verified in this browser")
          : page.getByTestId("certificate").getByText("verified in this browser");
        await expect(panel.first()).toBeVisible();
        for (const width of [320, 390, 761, 940, 1280]) {
          await page.setViewportSize({ width, height: 844 });
          await expectPanelsFit(page);
          await expectNoSidewaysScroll(page);
        }
      }
    });
  });
