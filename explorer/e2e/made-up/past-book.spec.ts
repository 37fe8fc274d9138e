import { FakeNode } from "../../test/fake-node";
import { expectSound, looks, shoot } from "../axe";
import { expect, test } from "../fixtures";

test.use({ expected: [/Failed to load resource/] });
test.slow();

test("a search as of a block finds what was there then", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 40 });
  try {
    const [early, late] = [12n, 13n].map((height) => node.chain.at(height)?.transactions[0]);
    const hits = page.getByTestId("hits").getByRole("link");
    const leftOut = page.getByTestId("left-out");
    const search = (text: string): string => `${node.url}/search?q=${text}&at=12`;
    await page.goto(search("12"));
    await expect(hits).toHaveText([/block\s*12/]);
    await expect(page.getByTestId("past-reach")).toContainText("What was there then.");
    await page.goto(search("13"));
    await expect(leftOut).toContainText("1 hit came later, and is left out.");
    await expect(hits).toHaveCount(0);
    await page.goto(search(early?.status?.idHex ?? ""));
    await expect(hits).toHaveCount(1);
    await expect(leftOut).toHaveCount(0);
    await page.goto(search(late?.status?.idHex ?? ""));
    await expect(leftOut).toContainText("1 hit came later");
    await page.goto(search("north"));
    await expect(hits).toHaveCount(2); // an organisation and its account

    // Notes and moments, too.
    const found = page.getByTestId("found");
    await page.goto(search("INV-12-0"));
    await expect(found.locator(`a[href="/tx/${early?.status?.idHex}"]`).first()).toBeAttached();
    await expect(page.getByTestId("looked")).toContainText("in blocks 1 to 12:");
    await page.goto(search("INV-13-0"));
    await expect(page.getByText("Nothing there.")).toBeVisible();
    const time = new Date(Number(node.chain.at(20n)?.header.timeMs)).toISOString();
    await page.goto(search(`${time.slice(0, 10)}Z`));
    await expect(page.getByTestId("at-moment")).toContainText(/\b12\b/);
    await expect(page.getByTestId("at-moment")).not.toContainText(/\b40\b/);
    for (const { colorScheme, width } of looks) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      await page.goto(search("13"));
      await expect(leftOut).toBeVisible();
      await expectSound(page, `a search in the past, ${colorScheme}, ${width}`);
      await shoot(page, `past-search-${colorScheme}-${width}`);
    }
  } finally {
    await node.stop();
  }
});
