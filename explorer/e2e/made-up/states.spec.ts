import { NodeMode } from "../../src/gen/ledgerd/v1/ledgerd_pb";
import { FakeNode } from "../../test/fake-node";
import { expect, heightsOf, numberIn, test } from "../fixtures";

test.describe("states that a healthy cluster does not show", () => {
  test.use({
    expected: [/Failed to load resource|ERR_CONNECTION|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE/],
  });

  test("a proof that does not verify is red, says so and shows where", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 20, damagedProofs: true });
    try {
      const id = node.chain.at(9n)?.transactions[4]?.status?.idHex ?? "";
      await page.goto(`${node.url}/tx/${id}`);
      await expect(page.getByTestId("proof-verdict")).toHaveText("✗ does not verify");
      await expect(page.getByText("Do not rely on this answer.")).toBeVisible();
      const marks = page
        .getByRole("region", { name: "Proof that it is in the block" })
        .locator("ol .mark");
      expect((await marks.allTextContents()).filter((mark) => mark.includes("✗"))).toHaveLength(1);
      await expect(page.getByText("but must be")).toBeVisible();
    } finally {
      await node.stop();
    }
  });

  test("a proof is checked where the browser offers no SHA-256, as over plain http", async ({
    page,
  }) => {
    const node = await FakeNode.start({ blocks: 20 });
    try {
      await page.addInitScript(() =>
        Object.defineProperty(globalThis.crypto, "subtle", { value: undefined }),
      );
      await page.goto(`${node.url}/tx/${node.chain.at(9n)?.transactions[4]?.status?.idHex ?? ""}`);
      await expect(page.getByTestId("proof-verdict")).toHaveText("✓ verified in this browser");
      await expect(page.getByText("with the page's own SHA-256")).toBeVisible();
    } finally {
      await node.stop();
    }
  });

  test("a node that goes away is told, and the page goes on when it is back", async ({ page }) => {
    let node = await FakeNode.start({ blocks: 30, everyMs: 100 });
    const port = Number(new URL(node.url).port);
    try {
      await page.goto(`${node.url}/`);
      await expect.poll(async () => (await heightsOf(page))[0]).toBeGreaterThan(30);
      await node.stop();
      await expect(page.getByText("Reconnecting.")).toBeVisible();
      const kept = await heightsOf(page);
      expect(kept.length).toBeGreaterThan(4);
      // A page that cannot load says so, and loads once the node is back.
      await page
        .getByRole("navigation", { name: "Sections" })
        .getByRole("link", { name: "Accounts" })
        .click();
      await expect(page.getByText("The node does not answer", { exact: true })).toBeVisible();
      // Slow enough that its height stays below the old node's, however long the page takes.
      node = await FakeNode.start({ blocks: 10, everyMs: 5000, port });
      await expect(page.getByTestId("accounts").getByText("clearing:settlement")).toBeVisible();
      await expect(page.getByText("Reconnecting.")).toBeHidden();
      // The new node has another chain: nothing of the old chain stays.
      await page
        .getByRole("navigation", { name: "Sections" })
        .getByRole("link", { name: "Overview" })
        .click();
      await expect.poll(async () => (await heightsOf(page))[0]).toBeLessThan(kept[0] ?? 0);
      const heights = await heightsOf(page);
      expect(heights).toEqual(heights.map((_, i) => (heights[0] ?? 0) - i));
    } finally {
      await node.stop();
    }
  });

  test("suspected, absent and unreachable members differ in words and in the drawing", async ({
    page,
  }) => {
    const node = await FakeNode.start({
      blocks: 5,
      servers: 9,
      suspected: [3],
      unreachable: [5],
      away: [7],
    });
    try {
      await page.goto(`${node.url}/nodes`);
      await expect(page.getByTestId("nodes-ordering")).toHaveText("6 of 9");
      for (const [state, word] of [
        ["suspected", "suspected"],
        ["away", "not connected"],
        ["unreachable", "unreachable"],
      ]) {
        await expect(page.getByTestId("digraph").locator(`g.node.${state}`)).toHaveCount(1);
        await expect(
          page.getByTestId("members").getByText(word ?? "", { exact: true }),
        ).toHaveCount(1);
      }
    } finally {
      await node.stop();
    }
  });

  test("every mode has its own word, colour and shape; a halted node is an error", async ({
    page,
  }) => {
    const { HALTED, STARTING, FOLLOWING, STOPPING } = NodeMode;
    const node = await FakeNode.start({
      blocks: 5,
      servers: 6,
      away: [5],
      modes: { 0: HALTED, 1: HALTED, 2: STARTING, 3: FOLLOWING, 4: STOPPING },
    });
    try {
      await page.goto(`${node.url}/nodes`);
      await expect(page.getByTestId("nodes-ordering")).toHaveText("0 of 6");
      const chips = page.getByTestId("members").locator("td.state .chip");
      await expect(chips).toHaveText([
        "halted",
        "halted",
        "starting",
        "following",
        "stopping",
        "not connected",
      ]);
      const looks = await chips.evaluateAll((all) =>
        all.map((chip) =>
          [
            getComputedStyle(chip).color,
            getComputedStyle(chip).backgroundColor,
            getComputedStyle(chip).borderStyle,
          ].join(),
        ),
      );
      expect(new Set(looks).size).toBe(5);
      await expect(page.getByTestId("members").locator(".chip.good")).toHaveCount(0);
      await expect(page.getByTestId("digraph").locator("g.node.halted rect")).toHaveCount(2);
      await expect(page.getByTestId("node-mode-word")).toHaveClass(/bad/);
      await expect(page.getByTestId("node-mode")).toHaveClass(/halted/);
      await expect(page.getByRole("status").locator(".banner.bad")).toContainText(
        "This node is halted",
      );
    } finally {
      await node.stop();
    }
  });

  test("a wrong clock, a new disk, a slow member and a follower are told", async ({ page }) => {
    const node = await FakeNode.start({
      blocks: 5,
      servers: 5,
      following: [3],
      slow: [2],
      wrongClock: true,
      newDisk: true,
    });
    try {
      await page.goto(`${node.url}/nodes`);
      await expect(
        page
          .getByRole("status")
          .getByText("Clock warning: its clock is 30 years ahead of the members' median"),
      ).toBeVisible();
      await expect(page.getByTestId("clock")).toContainText(
        "10,950 days ahead of the members' median",
      );
      await expect(
        page.getByTestId("clock").getByText("set it, and check its time service"),
      ).toBeVisible();
      await expect(
        page.getByText("It may have forgotten data of the previous disk: its data are missing"),
      ).toBeVisible();
      await expect(page.getByTestId("members").getByText("following", { exact: true })).toHaveCount(
        1,
      );
      await expect(page.getByTestId("digraph").locator("g.node.following")).toHaveCount(1);
      await expect(
        page
          .getByTestId("members")
          .getByText("the rounds waited for it alone for 0.9 of the last 3 s"),
      ).toBeVisible();
      await expect(page.getByTestId("nodes-ordering")).toHaveText("4 of 5");
    } finally {
      await node.stop();
    }
  });

  test("a large digraph draws one server's edges only", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 5, servers: 128, degree: 4 });
    try {
      await page.goto(`${node.url}/nodes`);
      await expect(page.getByTestId("digraph").locator("g.node")).toHaveCount(128);
      await expect(page.getByTestId("digraph").locator("path.edge.bright")).toHaveCount(4);
      expect(await page.getByTestId("digraph").locator("path.edge").count()).toBeLessThan(16);
    } finally {
      await node.stop();
    }
  });

  test("a failed transaction says why, and keeps its place in the block", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 20 });
    try {
      const id = node.chain.at(18n)?.transactions[1]?.status?.idHex ?? "";
      await page.goto(`${node.url}/tx/${id}`);
      await expect(
        page.getByText("It is in the block, but failed and changed nothing."),
      ).toBeVisible();
      await expect(page.getByText("insufficient_funds")).toBeVisible();
      await expect(page.getByTestId("proof-verdict")).toHaveText("✓ verified in this browser");
    } finally {
      await node.stop();
    }
  });

  test("what a transaction opens, and an account's facts, read as sentences", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 5 });
    try {
      await page.goto(`${node.url}/block/1`);
      await expect(
        page.getByText("registers 5 organisations, opens 5 accounts", { exact: true }),
      ).toBeVisible();
      await page.goto(`${node.url}/account/clearing:settlement`);
      await expect(page.getByTestId("facts")).toHaveText(
        "known as coinbase, opened in block 1, as of block 5",
      );
    } finally {
      await node.stop();
    }
  });

  test("an amount of 128 bits keeps every digit", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 5 });
    try {
      await page.goto(`${node.url}/account/clearing:settlement`);
      await expect(page.getByTestId("balances")).toContainText(
        "170,141,183,460,469,231,731,687,303,715,884,105,727",
      );
    } finally {
      await node.stop();
    }
  });

  test("a long and fast chain leaves the page small", async ({ page }) => {
    test.slow(); // a busy machine takes longer to show 800 blocks
    const node = await FakeNode.start({ blocks: 10, everyMs: 4 });
    try {
      await page.goto(`${node.url}/blocks`);
      await expect
        .poll(async () => (await heightsOf(page))[0], { timeout: 60_000 })
        .toBeGreaterThan(800);
      expect((await heightsOf(page)).length).toBe(50);
      expect(await page.evaluate(() => document.querySelectorAll("*").length)).toBeLessThan(1_500);
    } finally {
      await node.stop();
    }
  });

  test("a list keeps still under the pointer", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 30, everyMs: 100 });
    try {
      await page.goto(`${node.url}/`);
      await expect.poll(async () => (await heightsOf(page))[0]).toBeGreaterThan(30);
      await page.getByTestId("blocks").locator("tbody tr").nth(3).hover();
      await expect(page.getByText("held still for you").first()).toBeVisible();
      const still = await heightsOf(page);
      const header = page.locator(".head .mono");
      const head = numberIn(await header.textContent());
      await expect.poll(async () => numberIn(await header.textContent())).toBeGreaterThan(head + 3);
      expect(await heightsOf(page)).toEqual(still);
      await page.mouse.move(5, 5);
      await expect.poll(async () => (await heightsOf(page))[0]).toBeGreaterThan(still[0] ?? 0);
    } finally {
      await node.stop();
    }
  });

  test("nothing jumps while the overview loads and lives", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 60, everyMs: 150 });
    try {
      await page.addInitScript(() => {
        const state = window as unknown as { shifted: string[] };
        state.shifted = [];
        new PerformanceObserver((list) => {
          for (const entry of list.getEntries() as unknown as {
            sources: { node: Node | null }[];
          }[]) {
            for (const { node } of entry.sources) {
              const element = node instanceof Element ? node : (node?.parentElement ?? null);
              // Only the rows of a live list may move.
              if (element && !element.closest("tbody"))
                state.shifted.push(`${element.tagName}.${element.className.toString()}`);
            }
          }
        }).observe({ type: "layout-shift", buffered: true });
      });
      await page.goto(`${node.url}/`);
      await expect.poll(async () => (await heightsOf(page))[0]).toBeGreaterThan(75);
      expect(
        await page.evaluate(() => (window as unknown as { shifted: string[] }).shifted),
      ).toEqual([]);
    } finally {
      await node.stop();
    }
  });

  test("colours keep AA contrast in both themes", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 2 });
    try {
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        await page.goto(`${node.url}/`);
        const colours = await page.evaluate(() => {
          const style = getComputedStyle(document.documentElement);
          const names = [
            "ground",
            "surface",
            "raised",
            "text",
            "muted",
            "accent",
            "accent-soft",
            "good",
            "good-soft",
            "warn",
            "warn-soft",
            "bad",
            "bad-soft",
          ];
          return Object.fromEntries(
            names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
          );
        });
        const pairs = [
          ...["text", "muted", "accent", "good", "warn", "bad"].flatMap((ink) =>
            ["ground", "surface"].map((paper) => [ink, paper] as const),
          ),
          ...["accent", "good", "warn", "bad"].map((ink) => [ink, `${ink}-soft`] as const),
          ["muted", "raised"] as const,
        ];
        for (const [ink, paper] of pairs)
          expect(
            contrast(colours[ink] ?? "", colours[paper] ?? ""),
            `${colorScheme}: ${ink} on ${paper}`,
          ).toBeGreaterThanOrEqual(4.5);
      }
    } finally {
      await node.stop();
    }
  });
});

/** Returns the contrast of two colours such as #1b1c1e, as WCAG 2.1 defines it. */
function contrast(a: string, b: string): number {
  const luminance = (colour: string): number => {
    const digits = colour.length === 4 ? colour.replace(/[0-9a-f]/gi, "$&$&") : colour;
    const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
      const part = Number.parseInt(digits.slice(at, at + 2), 16) / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const [dark = 0, light = 0] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (light + 0.05) / (dark + 0.05);
}
