// `npm run paint -- URL [TIMES]` measures how soon the pages of a running node are painted and
// filled, each time with an empty cache. It prints the median and the longest, in milliseconds, and
// ends with status 1 if a page's median of the first paint is a second or more.
import { chromium, type Browser } from "@playwright/test";
import { chromiumOptions } from "./chromium";

const [url, times = "5"] = process.argv.slice(2);
if (!url) {
  console.error("usage: npm run paint -- URL [TIMES]");
  process.exit(2);
}
const bound = 1000;

interface Answer {
  accounts?: { account: string }[];
  blocks?: { height: string }[];
  transactions?: { transaction: { status: { idHex: string } } }[];
}
async function call(method: string, request: object): Promise<Answer> {
  const answer = await fetch(`${url}/ledgerd.v1.LedgerService/${method}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(request),
  });
  return (await answer.json()) as Answer;
}

interface Painted {
  first: number;
  largest: number;
  /** Until the page has what it shows first: nothing in it is busy. */
  filled: number;
  /** What came over the network until then, in bytes. */
  bytes: number;
}

async function load(browser: Browser, path: string): Promise<Painted> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.addInitScript(() => {
    const seen = globalThis as unknown as { largest: number };
    seen.largest = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) seen.largest = entry.startTime;
    }).observe({ type: "largest-contentful-paint", buffered: true });
  });
  await page.goto(`${url}${path}`, { waitUntil: "commit" });
  const filled = await page.evaluate(async () => {
    const isFilled = (): boolean =>
      document.querySelector("main h1") !== null &&
      document.querySelector('main [aria-busy="true"], main .skeleton') === null &&
      !/\b(Loading|Looking)\b/.test(document.querySelector("main")?.textContent ?? "");
    while (!isFilled() && performance.now() < 30_000)
      await new Promise((resolve) => setTimeout(resolve, 10));
    return performance.now();
  });
  await page.waitForTimeout(300);
  const painted = await page.evaluate(() => ({
    first: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 1e9,
    largest: (globalThis as unknown as { largest: number }).largest,
    bytes: performance
      .getEntriesByType("resource")
      .reduce((sum, entry) => sum + (entry as PerformanceResourceTiming).transferSize, 0),
  }));
  await context.close();
  return { ...painted, filled };
}

const { accounts } = await call("ListAccounts", { pageSize: 1 });
const { blocks } = await call("ListBlocks", { pageSize: 1 });
const { transactions } = await call("ListTransactions", { pageSize: 1 });
const account = accounts?.[0]?.account ?? "";
const paths = [
  "/",
  "/blocks",
  `/block/${blocks?.[0]?.height}`,
  "/transactions",
  "/transactions?kind=payment&min=1000&asset=unit",
  `/tx/${transactions?.[0]?.transaction.status.idHex}`,
  "/accounts",
  `/account/${account}`,
  "/organisations",
  `/organisation/${account.split(":")[0]}`,
  "/assets",
  "/chart",
  "/records",
  "/holds",
  "/nodes",
  "/rounds",
  "/shards",
  "/shards/crossings",
  "/search?q=bank",
];
const middle = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
const shown = (values: readonly number[]): string =>
  `${Math.round(middle(values))} (${Math.round(Math.max(...values))})`.padStart(14);

const browser = await chromium.launch(chromiumOptions);
let slow = 0;
await load(browser, "/");
console.log("median (longest), in ms".padEnd(48), "first paint", "   largest paint", "   filled", "   kB");
for (const path of paths) {
  const runs: Painted[] = [];
  for (let i = 0; i < Number(times); i++) runs.push(await load(browser, path));
  const first = runs.map((run) => run.first);
  if (middle(first) >= bound) slow++;
  console.log(
    (path.length > 46 ? `${path.slice(0, 43)}...` : path).padEnd(46),
    shown(first),
    shown(runs.map(({ largest }) => largest)),
    shown(runs.map(({ filled }) => filled)),
    String(Math.round(middle(runs.map(({ bytes }) => bytes)) / 1000)).padStart(6),
  );
}
await browser.close();
process.exit(slow > 0 ? 1 : 0);
