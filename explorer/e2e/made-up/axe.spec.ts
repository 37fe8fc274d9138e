import { expectNoViolations } from "../axe";
import { expect, test } from "../fixtures";
import { addressOf, pages, startNode } from "./pages";

// axe finds nothing on any page, in both themes, on a screen and on a phone.
test.describe("axe finds nothing", () => {
  test.describe.configure({ mode: "parallel" });
  test.use({ expected: [/Failed to load resource/] });
  for (const name of pages)
    test(name, async ({ page }) => {
      test.slow(); // axe looks at every row
      const node = await startNode(name);
      try {
        const address = addressOf(name, node);
        // A page may look at its width only as it loads. A theme changes nothing but colours.
        for (const width of [1280, 390]) {
          await page.setViewportSize({ width, height: 900 });
          await page.emulateMedia({ colorScheme: "light" });
          await page.goto(address);
          await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
          await expect(page.locator('main [aria-busy="true"]')).toHaveCount(0);
          await expect(page.getByText(/^(checking|Looking .*)$/)).toHaveCount(0);
          for (const colorScheme of ["light", "dark"] as const) {
            await page.emulateMedia({ colorScheme });
            await expectNoViolations(
              page,
              `${address}, ${colorScheme}, ${width} pixels`,
              colorScheme === "light" ? "all" : "colours",
            );
          }
        }
      } finally {
        await node.stop();
      }
    });
});
