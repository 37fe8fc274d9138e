import { FakeNode } from "../../test/fake-node";
import { expect, test } from "../fixtures";

test.describe("the map of crossings", () => {
  test.use({
    expected: [/Failed to load resource|ERR_CONNECTION|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE/],
  });

  test("each pair has an arc and a row, and leads to its transactions", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 20, parents: [0, 0, 0, 1], silent: [3] });
    try {
      await page.goto(`${node.url}/shards`);
      await page.getByRole("link", { name: "Map of crossings" }).click();
      await expect(page.getByRole("heading", { level: 1 })).toHaveText("Crossings between shards");
      const map = page.getByTestId("crossings-map");
      await expect(map.locator(".card")).toHaveCount(4);
      await expect(map.locator('.card[data-shard="3"]')).toContainText("silent");
      await expect(map.locator("path.edge")).toHaveCount(3);
      const row = page.getByTestId("pairs").locator('tr[data-pair="1-2"]');
      await expect(row).toContainText("402");
      await expect(map.locator('a.count[data-pair="1-2"]')).toHaveAccessibleName(
        "402 transactions between shards 1 and 2",
      );
      await expect(map.locator('path.arc[data-pair="1-2"]')).toBeAttached();
      await expect(map.locator('path.arc[data-pair="0-3"]')).toHaveCount(0); // nothing crossed
      // The silent shard does not count; what the others know of it is told.
      await expect(page.getByTestId("pairs").locator('tr[data-pair="1-3"]')).toContainText("–");
      await expect(page.getByTestId("explained")).toContainText("No answer from shard 3.");

      // The period is in the address.
      await page.getByRole("link", { name: "90 days" }).click();
      await expect(page).toHaveURL(/\?over=days$/);
      await page.reload();
      await expect(page.getByRole("link", { name: "90 days" })).toHaveAttribute(
        "aria-current",
        "page",
      );
      await map.locator('a.count[data-pair="1-2"]').focus();
      await page.keyboard.press("Enter");
      await expect(page).toHaveURL(/\/transactions\?shard=1&with=2&from=\d{4}-\d\d-\d\dT/);
      await expect(page.getByTestId("filter").getByLabel("Concerns")).toHaveValue("2");
      await page.goBack();
      // A pointer follows an arc too, at any place of it.
      const place = await map.locator("path.touch").first().evaluate((path: SVGPathElement) => {
        const { x, y } = path.getPointAtLength(path.getTotalLength() * 0.35);
        const { left, top } = path.ownerSVGElement?.getBoundingClientRect() ?? new DOMRect();
        return { x: left + x, y: top + y };
      });
      await page.mouse.click(place.x, place.y);
      await expect(page).toHaveURL(/\/transactions\?shard=\d&with=\d/);
      await page.goBack();
      await map.locator('.card[data-shard="2"]').getByRole("link", { name: "list" }).click();
      await expect(page).toHaveURL(/\/transactions\?shard=2$/);
    } finally {
      await node.stop();
    }
  });

  test("a book of one shard has none", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 3 });
    try {
      await page.goto(`${node.url}/shards/crossings`);
      await expect(page.getByText("Nothing crosses between shards.")).toBeVisible();
    } finally {
      await node.stop();
    }
  });
});
