import { readFile } from "node:fs/promises";
import { call, clusterTest as test, clusterUrl, expect } from "../fixtures";

interface Event {
  number: string;
  at_us: string;
  kind: string;
  round: string;
  epoch: string;
  from?: number;
  to?: number;
  origin?: number;
  servers?: number[];
  block_time_ms?: string;
  height?: string;
}

// The rounds of a real node: what the page shows and keeps agrees with itself and with the chain.
test("rounds of a real node are recorded, and replayed from the file", async ({ page }) => {
  await page.goto("/rounds");
  const place = page.getByTestId("place");
  await expect(place).toHaveText(/of [\d,]{3,} events/);
  await page.getByRole("button", { name: "Stop recording" }).click();
  await expect(page).toHaveURL(/\/rounds\?at=\d+$/);
  await expect(page.getByTestId("eons")).toContainText("it lasts");
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Download", exact: true }).click();
  const text = await readFile(await (await download).path(), "utf8");
  const recording = JSON.parse(text) as {
    node?: number;
    events: Event[];
    runs: { members: number[]; edges: object[] }[];
  };
  const { events } = recording;
  const self = recording.node ?? 0;
  expect(recording.runs.at(-1)?.members).toHaveLength(4);
  expect(recording.runs.at(-1)?.edges.length).toBeGreaterThan(4);
  for (const [i, event] of events.entries()) {
    if (i > 0) expect(Number(event.number)).toBe(Number(events[i - 1]?.number) + 1);
    if (event.kind.endsWith("_SENT"))
      expect([event.from, event.to === self]).toEqual([self, false]);
    if (event.kind.endsWith("_RECEIVED"))
      expect([event.to, event.from === self]).toEqual([self, false]);
  }
  const kinds = new Set(events.map(({ kind }) => kind.replace("ROUND_EVENT_KIND_", "")));
  for (const kind of ["BROADCAST", "SENT", "RECEIVED", "WAITS", "DELIVERED", "SEALED"])
    expect(kinds).toContain(kind);
  // A block has the time that the chain has.
  const sealed = events.find(({ kind }) => kind.endsWith("_SEALED"));
  const { block } = await call<{ block: { header: { timeMs: string; round: string } } }>(
    clusterUrl(),
    "GetBlock",
    { height: sealed?.height },
  );
  expect([block.header.timeMs, block.header.round]).toEqual([sealed?.block_time_ms, sealed?.round]);

  await page.getByLabel("Open a file").setInputFiles({
    name: "kept.json",
    mimeType: "application/json",
    buffer: Buffer.from(text),
  });
  await expect(page.getByText("from the file kept.json")).toBeVisible();
  // In an event that waits, the members of the table are those that the drawing marks.
  const waits = events.findIndex(
    ({ kind, servers }) => kind.endsWith("_WAITS") && servers?.length && !servers.includes(self),
  );
  await page.getByLabel("Event", { exact: true }).fill(String(waits));
  await expect(place).toContainText(`${(waits + 1).toLocaleString("en")} of `);
  await expect(page.locator("[data-member].awaited")).toHaveCount(
    events[waits]?.servers?.length ?? 0,
  );
  await page.getByRole("button", { name: "One event on" }).click();
  await expect(page.locator('[aria-current="step"]')).toBeVisible();
});

test("what the API answers is shown as a file too", async ({ page }) => {
  const { recording } = await call<{ recording: { events: object[] } }>(
    clusterUrl(),
    "GetRounds",
    { forMs: 1000 },
  );
  expect(recording.events.length).toBeGreaterThan(10);
  await page.goto("/rounds?at=1");
  await page.getByLabel("Open a file").setInputFiles({
    name: "api.json",
    mimeType: "application/json",
    buffer: Buffer.from(JSON.stringify(recording)),
  });
  await expect(page.getByText("from the file api.json")).toBeVisible();
});
