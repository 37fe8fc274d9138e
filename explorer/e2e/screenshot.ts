// `npm run screenshot -- URL OUT` saves the overview of a running node at 1280 pixels, once its
// lists and charts are filled.
import { chromium } from "@playwright/test";
import { chromiumOptions } from "./chromium";

const [url, out] = process.argv.slice(2);
if (!url || !out) {
  console.error(
    "usage: npm run screenshot -- URL OUT, " +
      "for example: npm run screenshot -- http://127.0.0.1:8080 overview.png",
  );
  process.exit(2);
}
const browser = await chromium.launch(chromiumOptions);
const page = await browser.newPage({
  viewport: { width: 1280, height: 900 },
  colorScheme: "light",
});
await page.goto(url);
await page.getByTestId("transactions-list").getByRole("link").nth(10).waitFor();
await page.waitForFunction(() => document.querySelectorAll(".uplot canvas").length >= 2);
// The charts gain a point each second. A minute of points makes a good picture.
await page.waitForTimeout(60_000);
await page.screenshot({ path: out, animations: "disabled", fullPage: true });
await browser.close();
