import { readFile } from "node:fs/promises";
import { FakeNode } from "../../test/fake-node";
import { expect, expectNoSidewaysScroll, test } from "../fixtures";

test.describe("rounds", () => {
  test.use({
    expected: [/Failed to load resource|ERR_CONNECTION|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE/],
  });

  test("they are live, then step by step, then a file without a node", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 5, servers: 5 });
    let stopped = false;
    try {
      await page.goto(`${node.url}/nodes`);
      await page.getByRole("link", { name: "Watch its rounds" }).click();
      await expect(page.getByRole("heading", { level: 1 })).toHaveText("Rounds");
      await expect(page.getByRole("button", { name: "Stop recording" })).toBeVisible();
      const place = page.getByTestId("place");
      await expect(place).toHaveText("65 of 65 events");
      await expect(page.getByTestId("awaited")).toHaveText("nobody");
      await page.getByRole("button", { name: "Stop recording" }).click();
      await expect(page).toHaveURL(/\/rounds\?at=65$/);

      // The keys step, and the round at each event is shown.
      await page.getByRole("heading", { level: 1 }).click();
      await page.keyboard.press("Home");
      await expect(place).toHaveText("1 of 65 events");
      for (let i = 0; i < 5; i++) await page.keyboard.press("ArrowRight");
      await expect(place).toHaveText("6 of 65 events");
      await expect(page.getByTestId("awaited")).toHaveText("node-1, node-2, node-3, node-4");
      await expect(page.getByTestId("round-state")).toHaveText("[1,7]");
      await expect(page.locator('[data-member="3"]')).toHaveClass(/awaited/);
      await page.keyboard.press("ArrowLeft");
      await expect(page.getByTestId("moving")).toHaveText("0");
      await page.keyboard.press("ArrowRight");
      await page.keyboard.press("ArrowRight");
      await page.keyboard.press("ArrowRight");
      await expect(page.getByTestId("awaited")).toHaveText("node-2, node-3, node-4");
      await expect(page.locator('[data-member="1"]')).not.toHaveClass(/awaited/);

      // It plays: the message of an event moves along its edge.
      await page.getByLabel("Speed").selectOption("1");
      await page.getByRole("button", { name: "One event back" }).click();
      await page.getByRole("button", { name: "One event back" }).click();
      await expect(page.getByTestId("moving")).toHaveCount(0);
      await page.getByRole("button", { name: "Play" }).click();
      const dot = page.getByTestId("moving").locator("circle");
      const x = async (): Promise<string | null> => dot.getAttribute("cx");
      const before = await x();
      await expect.poll(x).not.toBe(before);
      await page.getByLabel("Speed").selectOption("40");
      await expect(place).toHaveText("65 of 65 events");
      await expect(page.getByRole("button", { name: "Play" })).toBeVisible();

      // A failure: whom the node suspects, who told of it, and where the message can be.
      await page.getByLabel("Event", { exact: true }).fill("53");
      await expect(page.getByTestId("round-state")).toHaveText("[[2,10]]");
      await expect(page.getByTestId("suspected")).toHaveText("node-4");
      await expect(page.getByTestId("failures")).toHaveText("node-0 says node-4 failed");
      await expect(page.getByTestId("tracks")).toHaveText(
        "that of node-4 can be at node-1, node-3",
      );
      await expect(page.locator('[data-member="4"]')).toHaveClass(/failed/);
      await expect(page.getByTestId("eons").locator("tbody tr")).toHaveCount(2);

      const download = page.waitForEvent("download");
      await page.getByRole("button", { name: "Download", exact: true }).click();
      const saved = await download;
      expect(saved.suggestedFilename()).toBe("rounds-demo-node-0.json");
      const text = await readFile(await saved.path(), "utf8");
      expect((JSON.parse(text) as { events: object[] }).events).toHaveLength(65);

      await node.stop();
      stopped = true;
      const open = (name: string, content: string): Promise<void> =>
        page
          .getByLabel("Open a file")
          .setInputFiles({ name, mimeType: "application/json", buffer: Buffer.from(content) });
      await open("kept.json", text);
      await expect(page.getByText("from the file kept.json")).toBeVisible();
      await expect(place).toHaveText("1 of 65 events");
      await page.getByRole("button", { name: "One event on" }).click();
      await expect(place).toHaveText("2 of 65 events");
      await open("other.json", '{"format":1,"colour":2}');
      await expect(page.getByRole("alert")).toContainText("colour");
    } finally {
      if (!stopped) await node.stop();
    }
  });

  test("a link names an event", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 5, servers: 5 });
    try {
      await page.goto(`${node.url}/rounds?at=51`);
      await expect(page.getByTestId("place")).toHaveText("51 of 65 events");
      await expect(page.getByRole("button", { name: "Record live" })).toBeVisible();
      await expect(page.locator('[aria-current="step"]')).toHaveText("12.007140");
    } finally {
      await node.stop();
    }
  });

  test("without motion there are steps only", async ({ page }) => {
    await page.emulateMedia({ reducedMotion: "reduce" });
    const node = await FakeNode.start({ blocks: 5, servers: 5 });
    try {
      await page.goto(`${node.url}/rounds?at=2`);
      await expect(page.getByTestId("place")).toHaveText("2 of 65 events");
      await expect(page.getByRole("button", { name: "Play" })).toBeDisabled();
      await page.keyboard.press("Space");
      await page.getByRole("button", { name: "One event on" }).click();
      await expect(page.getByTestId("place")).toHaveText("3 of 65 events");
      const dot = page.getByTestId("moving").locator("circle");
      const before = await dot.getAttribute("cx");
      await page.waitForFunction(
        () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))),
      );
      expect(await dot.getAttribute("cx")).toBe(before);
      await expect(page.getByTestId("place")).toHaveText("3 of 65 events");
    } finally {
      await node.stop();
    }
  });

  test("an eon of five digits is on one line on a phone", async ({ page }) => {
    await page.setViewportSize({ width: 390, height: 900 });
    const node = await FakeNode.start({ blocks: 5, servers: 9, wide: true });
    try {
      await page.goto(`${node.url}/rounds?at=51`);
      const eons = page.getByTestId("eon");
      await expect(eons).toHaveText(["0", "65535"]);
      const lines = await eons.last().evaluate((cell) => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        return range.getClientRects().length;
      });
      expect(lines).toBe(1);
      await expectNoSidewaysScroll(page);
    } finally {
      await node.stop();
    }
  });

  test("a tab that nobody sees does not watch", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 5, servers: 5 });
    const see = (state: string): Promise<void> =>
      page.evaluate((value) => {
        Object.defineProperty(document, "visibilityState", { value, configurable: true });
        document.dispatchEvent(new Event("visibilitychange"));
      }, state);
    try {
      await page.goto(`${node.url}/rounds`);
      await expect(page.getByTestId("place")).toHaveText("65 of 65 events");
      await see("hidden");
      await expect(page.getByRole("button", { name: "Record live" })).toBeVisible();
      await see("visible");
      await expect(page.getByRole("button", { name: "Stop recording" })).toBeVisible();
      await expect(page).toHaveURL(/\/rounds$/);

      // What was stopped before stays so.
      await page.getByRole("button", { name: "Stop recording" }).click();
      await see("hidden");
      await see("visible");
      await expect(page.getByRole("button", { name: "Record live" })).toBeVisible();
    } finally {
      await node.stop();
    }
  });

  test("an idle group and a refusal are said", async ({ page }) => {
    for (const [rounds, text] of [
      ["idle", "Nothing has passed yet."],
      ["refused", "does not make the call WatchRounds"],
    ] as const) {
      const node = await FakeNode.start({ blocks: 5, servers: 5, rounds });
      try {
        await page.goto(`${node.url}/rounds`);
        await expect(page.getByText(text)).toBeVisible();
      } finally {
        await node.stop();
      }
    }
  });
});
