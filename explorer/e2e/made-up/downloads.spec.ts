import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { expect, test } from "../fixtures";
import { addressOf, pages, startNode } from "./pages";

// Every table is saved as CSV and as JSON, with the same rows: from the header of its panel, or
// from that of its page.
test("the pages of the router are all here", () => {
  const router = readFileSync("src/lib/router.svelte.ts", "utf8");
  const routes = [...router.matchAll(/^ {2}(?:"(\/[^"]*)"|([a-z]+)): "[a-z]+",$/gm)]
    .map(([, path, segment]) => path ?? `/${segment}/`)
    .filter((path) => path !== "/index.html");
  expect(routes.length).toBeGreaterThan(20);
  const source = readFileSync("e2e/made-up/pages.ts", "utf8");
  expect(
    routes.filter((route) => !new RegExp(`: ["\`]${route}(?:["?]|(?<=/).)`).test(source)),
  ).toEqual([]);
});

test.describe("tables are saved as CSV and JSON", () => {
  test.use({ expected: [/Failed to load resource/] });
  for (const name of pages)
    test(name, async ({ page }) => {
      const node = await startNode(name);
      try {
        await page.goto(addressOf(name, node));
        await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
        const waiting = 'main :is([aria-busy="true"], tr[aria-hidden="true"])';
        await expect(page.locator(waiting)).toHaveCount(0);
        await expect(page.getByText(/^(checking|Looking .*)$/)).toHaveCount(0);
        const bare = await page.evaluate(() => {
          const saves = (within: Element | null | undefined, format: string): boolean =>
            [...(within?.querySelectorAll("button") ?? [])].some((button) =>
              button.textContent?.includes(`${format} download of`),
            );
          const lists = 'table, [data-testid="changes"], [data-testid="hits"]';
          const tables = [...document.querySelectorAll(`main :is(${lists})`)];
          // The buttons of a page save its only list.
          const places = (table: Element): (Element | null | undefined)[] => [
            table.closest("section"),
            tables.length === 1 ? document.querySelector("main .page-head") : undefined,
          ];
          return tables
            .filter((table) => !places(table).some((at) => saves(at, "CSV") && saves(at, "JSON")))
            .map((table) => table.closest("section")?.textContent?.trim().slice(0, 60));
        });
        expect(bare, `${name} has tables that are not saved`).toEqual([]);

        const of = / download of (.*)$/;
        const buttons = await page.getByRole("button", { name: /^CSV download of/ }).all();
        const lists = await Promise.all(
          buttons.map(async (button) => of.exec((await button.textContent()) ?? "")?.[1] ?? ""),
        );
        expect(new Set(lists).size, `two buttons have one name: ${lists}`).toBe(lists.length);
        for (const list of lists) {
          const saved: Record<string, string> = {};
          for (const format of ["CSV", "JSON"]) {
            const download = page.waitForEvent("download");
            await page.getByRole("button", { name: `${format} download of ${list}` }).click();
            const file = await download;
            expect(file.suggestedFilename()).toMatch(
              new RegExp(`^[\\w.-]+\\.${format.toLowerCase()}$`),
            );
            saved[format] = await readFile(await file.path(), "utf8");
          }
          const header = (saved["CSV"] ?? "").split("\r\n")[0]?.split(",") ?? [];
          expect(header.length, list).toBeGreaterThan(1);
          for (const row of JSON.parse(saved["JSON"] ?? "") as object[])
            expect(Object.keys(row), list).toEqual(header);
        }
      } finally {
        await node.stop();
      }
    });
});
