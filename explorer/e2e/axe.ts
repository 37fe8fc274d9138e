import type { Page } from "@playwright/test";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { expect, expectNoSidewaysScroll, expectPanelsFit } from "./fixtures";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

interface Violation {
  id: string;
  help: string;
  nodes: { target: string[]; failureSummary: string }[];
}

/** Expects that axe finds nothing on the page as it is, and that all of it fits. */
export async function expectSound(page: Page, what: string): Promise<void> {
  await expectNoSidewaysScroll(page);
  await expectPanelsFit(page);
  await expectNoViolations(page, what);
}

/**
 * Expects that axe finds nothing on the page as it is, by all of its rules or by those of colours
 * only, which take a fraction of the time.
 */
export async function expectNoViolations(
  page: Page,
  what: string,
  rules: "all" | "colours" = "all",
): Promise<void> {
  // An expression of the test's, which the page's policy does not concern.
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(axe);
  const violations = await page.evaluate(async (only) => {
    const { axe: loaded } = globalThis as unknown as {
      axe: { run: (options: object) => Promise<{ violations: Violation[] }> };
    };
    // axe describes only the elements that break a rule.
    return (await loaded.run({ resultTypes: ["violations"], ...only })).violations;
  }, rules === "colours" && { runOnly: ["color-contrast", "link-in-text-block"] });
  expect(
    violations.map(({ id, help, nodes }) => ({
      rule: id,
      help,
      where: nodes.slice(0, 5).map((each) => `${each.target}: ${each.failureSummary}`),
    })),
    what,
  ).toEqual([]);
}

/** The themes and widths in which every page has to be sound. */
export const looks = (["light", "dark"] as const).flatMap((colorScheme) =>
  [1280, 390].map((width) => ({ colorScheme, width })),
);

/** Saves what a page looks like, if SHOTS names a folder. */
export async function shoot(page: Page, name: string): Promise<void> {
  const folder = process.env["SHOTS"];
  if (folder) await page.screenshot({ path: `${folder}/${name}.png`, fullPage: true });
}
