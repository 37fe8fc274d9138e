import { execFileSync } from "node:child_process";
import {
  call,
  clusterTest as test,
  clusterUrl,
  expect,
  expectNoSidewaysScroll,
  expectPanelsFit,
} from "../fixtures";

/** Returns the id and the height of a transaction in an early block, and the genesis' hash. */
async function early(): Promise<{ id: string; height: string; genesis: string }> {
  const base = clusterUrl();
  const { block } = await call<{
    block: { transactions: { status: { idHex: string; height: string } }[] };
  }>(base, "GetBlock", { height: 3 });
  const { hashHex } = await call<{ hashHex: string }>(base, "GetGenesis");
  const { idHex, height } = block.transactions[0]?.status ?? { idHex: "", height: "" };
  return { id: idHex, height, genesis: hashHex };
}

test("a transaction is final from the genesis on, and ledgerd accepts its file", async ({
  page,
}, info) => {
  const { id, genesis } = await early();
  await page.goto(`/tx/${id}`);
  const panel = page.getByTestId("certificate");
  await expect(page.getByTestId("certificate-verdict")).toHaveText(
    "✓ final, verified in this browser",
  );
  await expect(panel.getByTestId("certified")).toHaveText(
    new RegExp(
      "^The transaction is final: certified by (node-\\d, )+node-\\d \\(\\d of 4 members\\) " +
        "in block [\\d,]+, followed from the genesis over no changes of members\\.$",
    ),
  );
  await expect(panel.getByTestId("proven-result")).toHaveText("applied");
  await expect(panel.getByText(genesis)).toBeVisible();

  // What the browser saves is what the command checks.
  const [binary, trusted] = [process.env["LEDGERD_BINARY"], process.env["LEDGERD_GENESIS"]];
  test.skip(!binary || !trusted, "LEDGERD_URL names a cluster whose homes are not known");
  const download = page.waitForEvent("download");
  await panel.getByRole("button", { name: "Proof" }).click();
  const file = info.outputPath((await download).suggestedFilename());
  await (await download).saveAs(file);
  expect(file).toContain(`${id.slice(0, 12)}-${id.slice(-4)}.proof`);
  const flags = ["tx", "status", "--proof", file, "--genesis", trusted ?? "", "--json"];
  const report = JSON.parse(execFileSync(binary ?? "", flags, { encoding: "utf8" })) as {
    id: string;
    proof: { verified: boolean; certificate: { members_of: number } };
  };
  expect(report).toMatchObject({
    id,
    proof: { verified: true, certificate: { members_of: 4 } },
  });
});

test("a block shows its certificate or that of a later block", async ({ page }) => {
  await page.goto("/block/3");
  await expect(page.getByTestId("certificate-verdict")).toHaveText(
    "✓ final, verified in this browser",
  );
  const certified = page.getByTestId("certified");
  await expect(certified).toContainText("Block 3 is final: certified by node-");
  await page.getByText("What was checked here, and what was not").click();
  await expect(page.getByText("4 members of the genesis of demo")).toBeVisible();
  await certified.getByRole("link", { name: "node-", exact: false }).first().click();
  await expect(page).toHaveURL(/\/nodes\?member=\d$/);
  await expect(page.getByTestId("members").locator("[aria-pressed=true]")).toHaveCount(1);
  await expect(page.getByTestId("certified-height")).toHaveText(
    /block\s+[\d,]+\s+by\s+node-.*\d of\s+4 members\)/s,
  );
  await expect(page.getByTestId("evidence")).toHaveCount(0);
});

test.describe("the newest block", () => {
  // The API refuses for a moment: no majority has certified the block yet.
  test.use({ expected: [/status of 400/] });

  test("is certified while the page is open", async ({ page }) => {
    await page.goto("/block/head");
    await expect(page.getByTestId("certificate-verdict")).toHaveText(
      "✓ final, verified in this browser",
    );
    for (const width of [390, 1280]) {
      await page.setViewportSize({ width, height: 900 });
      await expectPanelsFit(page);
      await expectNoSidewaysScroll(page);
    }
  });
});
