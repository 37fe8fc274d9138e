// `npm run -s paint -- lines 1000000` writes the lines of a book for `ledgerd tx import`: payments
// between 5,000 customers, half of them with a note. `npm run -s paint -- URL [TIMES]` measures how
// soon the pages of a running node are painted and filled, each time with an empty cache. It prints
// medians and longest times in milliseconds, and ends with status 1 if the median of a page's first
// paint is a second or more. docs/performance.md has figures.
import { cpus, loadavg } from "node:os";
import { chromium, type Browser } from "@playwright/test";
import { chromiumOptions } from "./chromium";

const [first = "", second] = process.argv.slice(2);
const usage = "usage: npm run -s paint -- URL [TIMES], or npm run -s paint -- lines COUNT";
const bound = 1000;

/** Writes a line of JSON for each transaction. The same count gives the same lines. */
async function writeLines(count: number): Promise<void> {
  const customers = 5000;
  let state = 1n;
  const random = (below: number): number => {
    state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffff_ffff_ffff_ffffn;
    return Number((state >> 33n) % BigInt(below));
  };
  for (let i = 0; i < count; i++) {
    const begins = i < customers; // each customer gets some first
    const to = begins ? i : random(customers);
    const from = (to + 1 + random(customers - 1)) % customers;
    const amount = begins ? 1_000_000_000_000 : 1 + random(1_000_000);
    const line = JSON.stringify({
      postings: [
        { account: begins ? "mint" : `customer:${from}`, amount: -amount },
        { account: `customer:${to}`, amount },
      ],
      ...(i % 2 === 1 ? { text: `invoice ${i} of customer:${to}` } : {}),
    });
    if (!process.stdout.write(`${line}\n`))
      await new Promise((resolve) => process.stdout.once("drain", resolve));
  }
}

if (first === "lines" && Number(second) > 0) {
  await writeLines(Number(second));
  process.exit(0);
}
if (!/^https?:/.test(first)) {
  console.error(usage);
  process.exit(2);
}
const url = first.replace(/\/$/, "");
const times = Number(second ?? 5);

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
  /** Until the first row of a list is there, in a page that has one. */
  row: number;
  /** Until the page has what it shows first: nothing in it is busy. */
  filled: number;
  /** Processor time of the page's thread until then. Other work on the machine is no part of it. */
  thread: number;
  /** What came over the network until then, in bytes. */
  bytes: number;
}

async function load(browser: Browser, path: string): Promise<Painted> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  const session = await context.newCDPSession(page);
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  await page.addInitScript(() => {
    const seen = globalThis as unknown as { largest: number };
    seen.largest = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) seen.largest = entry.startTime;
    }).observe({ type: "largest-contentful-paint", buffered: true });
  });
  await page.goto(`${url}${path}`, { waitUntil: "commit" });
  const [row, filled] = await page.evaluate(async () => {
    const waiting = 'main [aria-busy="true"], main tr[aria-hidden="true"]';
    const isFilled = (): boolean =>
      document.querySelector("main h1") !== null &&
      document.querySelector(waiting) === null &&
      !/\b(Loading|Looking)\b/.test(document.querySelector("main")?.textContent ?? "");
    let atRow = 0;
    while (!isFilled() && performance.now() < 30_000) {
      if (atRow === 0 && document.querySelector("main tbody tr a"))
        atRow = performance.now();
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    const end = performance.now();
    const hasRow = document.querySelector("main tbody tr a") !== null;
    return [atRow > 0 ? atRow : hasRow ? end : NaN, end];
  });
  const { metrics } = await session.send("Performance.getMetrics");
  const seconds = metrics.find(({ name }) => name === "ThreadTime")?.value ?? NaN;
  await page.waitForTimeout(300);
  const painted = await page.evaluate(() => ({
    first: performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 1e9,
    largest: (globalThis as unknown as { largest: number }).largest,
    bytes: performance
      .getEntriesByType("resource")
      .reduce((sum, entry) => sum + (entry as PerformanceResourceTiming).transferSize, 0),
  }));
  await context.close();
  return { ...painted, row, filled, thread: seconds * 1000 };
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
  "/schedules",
  "/nodes",
  "/rounds",
  "/shards",
  "/shards/crossings",
  "/search?q=bank",
];
const middle = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
const shown = (values: readonly number[]): string =>
  (values.some(Number.isNaN)
    ? "–"
    : `${Math.round(middle(values))} (${Math.round(Math.max(...values))})`
  ).padStart(14);

const browser = await chromium.launch(chromiumOptions);
let slow = 0;
await load(browser, "/");
const columns = ["first paint", "largest paint", "first row", "filled", "thread"] as const;
console.log(
  "median (longest), in ms".padEnd(46),
  ...columns.map((name) => name.padStart(14)),
  "    kB",
);
for (const path of paths) {
  const runs: Painted[] = [];
  for (let i = 0; i < times; i++) runs.push(await load(browser, path));
  const paints = runs.map((run) => run.first);
  if (middle(paints) >= bound) slow++;
  console.log(
    (path.length > 46 ? `${path.slice(0, 43)}...` : path).padEnd(46),
    shown(paints),
    shown(runs.map(({ largest }) => largest)),
    shown(runs.map(({ row }) => row)),
    shown(runs.map(({ filled }) => filled)),
    shown(runs.map(({ thread }) => thread)),
    String(Math.round(middle(runs.map(({ bytes }) => bytes)) / 1000)).padStart(6),
  );
}
await browser.close();
const load1 = (loadavg()[0] ?? 0).toFixed(1);
console.log(`${cpus().length} processors, for which ${load1} processes waited in the last minute`);
process.exit(slow > 0 ? 1 : 0);
