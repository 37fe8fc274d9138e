import { expect, test as base, type Page } from "@playwright/test";
import { readFile } from "node:fs/promises";

/**
 * A test fails when its page logs an error, breaks its policy or throws. A test that provokes
 * errors names them in `expected`.
 */
export const test = base.extend<{ expected: RegExp[]; watched: void }>({
  expected: [[], { option: true }],
  watched: [
    async ({ page, expected }, use) => {
      const errors: string[] = [];
      page.on("pageerror", (error) => errors.push(error.message));
      page.on("console", (message) => {
        if (message.type() === "error" && !expected.some((pattern) => pattern.test(message.text())))
          errors.push(message.text());
      });
      await use();
      expect(errors).toEqual([]);
    },
    { auto: true },
  ],
});
export { expect };

/** The same over the real cluster, which exists only once the tests run. */
export const clusterTest = test.extend({
  baseURL: async ({}, use) => {
    await use(clusterUrl());
  },
});

export function clusterUrl(): string {
  const url = process.env["LEDGERD_URL"];
  if (!url) throw new Error("no cluster was started");
  return url;
}

/** Makes one call of the API, as JSON. */
export async function call<T>(base: string, method: string, request: object = {}): Promise<T> {
  const answer = await fetch(`${base}/ledgerd.v1.LedgerService/${method}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(request),
  });
  if (!answer.ok) throw new Error(`${method}: ${answer.status} ${await answer.text()}`);
  return (await answer.json()) as T;
}

export function numberIn(text: string | null): number {
  return Number((text ?? "").replace(/[^\d]/g, ""));
}

/** Returns the height that the overview shows as the chain's head. */
export async function headOf(page: Page): Promise<number> {
  return numberIn(await page.getByTestId("head").textContent());
}

/** Returns the heights in the list of blocks, from the top. */
export async function heightsOf(page: Page, table = "blocks"): Promise<number[]> {
  const cells = await page
    .getByTestId(table)
    .locator("tbody tr td:first-child a")
    .allTextContents();
  return cells.map(numberIn);
}

/**
 * Downloads the list's CSV and returns its rows, the header first. It does not support cells with
 * line breaks.
 */
export async function downloadCsv(page: Page): Promise<{ name: string; rows: string[][] }> {
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: /CSV/ }).click();
  const saved = await download;
  const text = await readFile(await saved.path(), "utf8");
  const rows = text
    .split("\r\n")
    .filter((line) => line !== "")
    .map((line) =>
      [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map((match) =>
        (match[1] ?? match[2] ?? "").replaceAll('""', '"'),
      ),
    );
  return { name: saved.suggestedFilename(), rows };
}

/** Expects that nothing is wider than the window. */
export async function expectNoSidewaysScroll(page: Page): Promise<void> {
  const [content, window] = await page.evaluate(() => [
    document.documentElement.scrollWidth,
    document.documentElement.clientWidth,
  ]);
  expect(content, `${page.url()} is wider than its window`).toBeLessThanOrEqual(window ?? 0);
}

/**
 * Expects that the content of each panel and table cell fits its width. A failure names the
 * elements that do not fit.
 */
export async function expectPanelsFit(page: Page): Promise<void> {
  const wide = await page.evaluate(() =>
    [...document.querySelectorAll("main .panel, main .panel :is(th, td)")]
      .filter((box) => box.scrollWidth > box.clientWidth + 1)
      .map((box) => {
        const textOf = (element: Element): string =>
          `“${(element.textContent ?? "").trim().slice(0, 60)}”`;
        const right = box.getBoundingClientRect().left + box.clientLeft + box.clientWidth;
        const outside = [...box.querySelectorAll("*")]
          .filter((element) => element.getBoundingClientRect().right > right + 1)
          .slice(0, 5);
        const name =
          box.getAttribute("aria-label") ??
          (box.querySelector("h2") ?? box.closest(".panel")?.querySelector("h2"))?.textContent ??
          "";
        const told = outside.map(
          (element) =>
            `<${element.tagName.toLowerCase()} class="${element.getAttribute("class") ?? ""}"> ` +
            textOf(element),
        );
        return (
          `${box.tagName.toLowerCase()} in “${name.trim()}”: ` +
          `${box.scrollWidth} in ${box.clientWidth} pixels, ` +
          `by ${told.join(", ") || `its text ${textOf(box)}`}`
        );
      }),
  );
  expect(
    wide,
    `${page.url()} has panels or cells that overflow at ${page.viewportSize()?.width} pixels`,
  ).toEqual([]);
}
