import { FakeNode } from "../../test/fake-node";
import { expect, test } from "../fixtures";

test.describe("search beyond names", () => {
  test.use({ expected: [/Failed to load resource/] });
  test("an amount is found in recent blocks, the bound is told, and a facet narrows it", async ({
    page,
  }) => {
    const node = await FakeNode.start({ blocks: 700 });
    try {
      const row = node.chain.at(690n)?.transactions.find(({ body }) => body?.postings.length);
      const amount = row?.body?.postings.find((each) => !each.amount.startsWith("-"))?.amount ?? "";
      await page.goto(node.url);
      await page.getByRole("combobox").fill(`${amount}`);
      await page.getByRole("combobox").press("Enter");
      await expect(page).toHaveURL(new RegExp(`/search\\?q=${amount}$`));
      const found = page.getByTestId("found").locator("tbody tr");
      await expect(found.first()).toBeVisible();
      await expect(page.getByTestId("found").locator(`a[href="/tx/${row?.status?.idHex}"]`).first())
        .toBeAttached();
      await expect(page.getByTestId("looked")).toContainText("in blocks 201 to 700:");
      await page.getByRole("button", { name: "Look in earlier blocks" }).click();
      await expect(page.getByTestId("looked")).toContainText("in blocks 1 to 200:");
      await expect(page.getByRole("button", { name: "Look in earlier blocks" })).toHaveCount(0);
      await page.goto(`${node.url}/search?q=${amount}&signer=nobody-at-all`);
      await expect(page.getByText("Nothing there with these choices.")).toBeVisible();
    } finally {
      await node.stop();
    }
  });

  test("a time finds the block of that moment in each shard", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 60, parents: [0, 0, 0], silent: [2] });
    try {
      const block = node.chain.at(30n);
      const typed = new Date(Number(block?.header.timeMs)).toISOString().replace(/\.\d+/, "");
      await page.goto(`${node.url}/search?q=${encodeURIComponent(typed)}`);
      const period = page.getByTestId("at-moment");
      await expect(period.getByRole("link", { name: "30", exact: true })).toHaveAttribute(
        "href",
        "/shards/0/blocks/30",
      );
      await expect(period).toContainText("in UTC");
      await expect(period.getByRole("listitem")).toHaveCount(3);
      await page.goto(`${node.url}/search?q=2001-01-01`);
      await expect(period).toContainText("the chain begins later");
    } finally {
      await node.stop();
    }
  });
});
