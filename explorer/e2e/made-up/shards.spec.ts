import { readFile } from "node:fs/promises";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { NodeMode } from "../../src/gen/ledgerd/v1/ledgerd_pb";
import { BookChangeSchema } from "../../src/gen/ledgerd/v1/transaction_pb";
import { FakeNode } from "../../test/fake-node";
import {
  expect,
  expectNoSidewaysScroll,
  expectPanelsFit,
  heightsOf,
  numberIn,
  test,
} from "../fixtures";

test.describe("a book of several shards", () => {
  test.use({
    expected: [/Failed to load resource|ERR_CONNECTION|ERR_INCOMPLETE_CHUNKED|ERR_EMPTY_RESPONSE/],
  });

  test("changes of the book are told, and an organisation arrives", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 5, parents: [0, 0, 0] });
    try {
      const changes: [MessageInitShape<typeof BookChangeSchema>["change"], string][] = [
        [{ case: "addition", value: { parent: 1, members: [{ name: "node-9" }] } }, "adds a shard"],
        [{ case: "move", value: { organisation: "northbank", to: 1 } }, "moves northbank"],
        [{ case: "lostShard", value: 2 }, "settles with shard 2"],
        [{ case: "rehang", value: { shard: 2, parent: 1 } }, "hangs shard 2 below shard 1"],
      ];
      for (const [change, words] of changes) {
        const book = create(BookChangeSchema, {
          number: 1n,
          change: change ?? { case: undefined },
        });
        const { transactions } = node.chain.add([{ book }], Date.now());
        await page.goto(`${node.url}/tx/${transactions[0]?.status?.idHex}`);
        await expect(page.getByTestId("book-change")).toContainText(words);
      }
      node.moving = "northbank";
      await page.goto(`${node.url}/organisation/northbank`);
      await expect(page.getByTestId("way")).toContainText("on its way there");
      await expect(page.getByTestId("earlier-homes")).toContainText("shard 2");
      node.moving = "";
      await expect(page.getByTestId("way")).toContainText("where its accounts and records live");
    } finally {
      await node.stop();
    }
  });

  test("changes under way are drawn and told, at any width", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 5, parents: [0, 0, 0, 0, 1] });
    const since = { height: 3n, sinceMs: BigInt(Date.now() - 3_000) };
    const doneAt = { doneHeight: 9n, doneMs: BigInt(Date.now() - 2_600) };
    const long = "an-organisation-with-a-name-that-is-as-long-as-a-name-may-be";
    try {
      node.shards.changes = [
        { number: 1n, kind: "move", organisation: "a", from: 1, to: 2, state: "done", ...doneAt },
        { number: 2n, kind: "move", organisation: "b", from: 1, to: 2, state: "departing" },
        { number: 3n, kind: "move", organisation: long, from: 0, to: 2, state: "unknown" },
        { number: 4n, kind: "rehang", shard: 3, from: 1, to: 0, state: "moving", waitsFor: [1] },
        { kind: "addition", shard: 4, to: 1, state: "ordered", waitsFor: [4] },
      ].map((change) => ({ ...since, ...change }));
      for (const [width, form] of [
        [1280, "down"],
        [390, "indented"],
      ] as const) {
        await page.setViewportSize({ width, height: 900 });
        await page.goto(`${node.url}/shards`);
        await expect(page.getByTestId("tree")).toHaveClass(new RegExp(form));
        const arrows = page.getByTestId("arrow");
        await expect(arrows).toHaveCount(3);
        await expect(arrows.filter({ hasText: "b and 1 other" })).toContainText("leaving");
        await expect(arrows.filter({ hasText: long })).toContainText("no answer");
        await expect(arrows.filter({ hasText: "shard 3" })).toContainText("coming over");
        await expect(page.getByTestId("tree").locator("path.arrow")).toHaveCount(3);
        await expect(page.getByTestId("tree").locator("a.joining")).toContainText("Shard 4 new");
        const list = page.getByTestId("changes").getByRole("listitem");
        await expect(list).toHaveCount(5);
        for (const words of [
          "It lives in shard 2.",
          "It waits until shard 1 has settled what came before",
          "Shard 2 does not answer",
          "It still takes entries from shard 1.",
          "It waits until more than half of the nodes of shard 4 run.",
        ])
          await expect(page.getByTestId("changes")).toContainText(words);
        await expectNoSidewaysScroll(page);
        await expectPanelsFit(page);
      }
      node.shards.changes = [];
      await expect(page.getByTestId("arrow")).toHaveCount(0);
      await expect(page.getByTestId("changes")).toHaveCount(0);
    } finally {
      await node.stop();
    }
  });

  test("the tree is drawn and told, and marks go down it as entries do", async ({ page }) => {
    const node = await FakeNode.start({
      blocks: 20,
      everyMs: 300,
      parents: [0, 0, 0, 1, 1],
      halted: [3],
      silent: [4],
    });
    try {
      await page.goto(node.url);
      await page
        .getByRole("navigation", { name: "Sections" })
        .getByRole("link", { name: "Shards" })
        .click();
      await expect(page.getByTestId("ordering")).toHaveText("3 of 5");
      const cards = page.getByTestId("tree").locator("a");
      await expect(cards).toHaveCount(5);
      await expect(page.getByTestId("tree").locator("path.edge")).toHaveCount(4);
      for (const [shard, mode] of [
        [0, "ordering"],
        [3, "halted"],
        [4, "silent"],
      ] as const) {
        await expect(page.getByTestId("tree").locator(`[data-shard="${shard}"]`)).toContainText(
          mode,
        );
        await expect(
          page.getByTestId("shard-table").locator(`[data-shard="${shard}"]`),
        ).toContainText(mode);
      }
      await expect(page.getByTestId("shard-table").locator('[data-shard="3"]')).toContainText(
        "entries behind",
      );
      await expect(page.getByTestId("tree").locator("circle.mark").first()).toBeAttached();
      const behind = numberIn(await page.getByTestId("behind").textContent());
      await expect
        .poll(async () => numberIn(await page.getByTestId("behind").textContent()))
        .toBeGreaterThan(behind);

      // With reduced motion there are no marks. The numbers show the same.
      await page.emulateMedia({ reducedMotion: "reduce" });
      await page.reload();
      const still = numberIn(await page.getByTestId("behind").textContent());
      await expect
        .poll(async () => numberIn(await page.getByTestId("behind").textContent()))
        .toBeGreaterThan(still);
      await expect(page.getByTestId("tree").locator("circle.mark")).toHaveCount(0);

      await cards.nth(1).click();
      await expect(page.getByRole("heading", { level: 1, name: "Shard 1" })).toBeFocused();
      await expect(page.getByTestId("members").locator("tbody tr")).toHaveCount(3);
      await page.mouse.move(5, 5);
      await expect.poll(async () => (await heightsOf(page)).length).toBeGreaterThan(4);
      const first = (await heightsOf(page))[0] ?? 0;
      await expect.poll(async () => (await heightsOf(page))[0]).toBeGreaterThan(first);
      await page
        .getByRole("navigation", { name: "Shards" })
        .getByRole("link", { name: "shard 4" })
        .click();
      await expect(page.getByText("This shard is silent.")).toBeVisible();
      await expect(page.getByText("Shard 4 does not answer")).toBeVisible();
    } finally {
      await node.stop();
    }
  });

  test("no node of a halted shard is green", async ({ page }) => {
    const node = await FakeNode.start({
      blocks: 5,
      parents: [0, 0],
      halted: [0],
      modes: { 0: NodeMode.HALTED },
    });
    try {
      await page.goto(`${node.url}/shards`);
      const card = page.getByTestId("tree").locator('a[data-shard="0"]');
      await expect(card).toContainText("1 of 3 running");
      await expect(card.locator(".member.halted")).toHaveCount(1);
      await expect(card.locator(".member.ordering")).toHaveCount(0);
      await expect(
        page.getByTestId("tree").locator('a[data-shard="1"] .member.ordering'),
      ).toHaveCount(3);
      await card.click();
      await expect(page.getByTestId("members").locator(".chip.bad").first()).toHaveText("halted");
      await expect(page.getByTestId("members").locator(".chip.good")).toHaveCount(0);
    } finally {
      await node.stop();
    }
  });

  test("what has waited for too long raises an alarm, with the shard that is waited for", async ({
    page,
  }) => {
    const node = await FakeNode.start({
      blocks: 20,
      parents: [0, 0, 0, 1, 1],
      silent: [1],
      awaited: 1,
    });
    const transaction = node.chain.at(12n)?.transactions[2];
    try {
      if (!transaction) throw new Error("there is no such transaction");
      node.shards.cross(transaction, [0, 1], "waiting", 1);
      node.shards.step(4);
      await page.goto(`${node.url}/shards`);
      const alarm = page.getByTestId("overdue");
      await expect(alarm).toContainText("Entries have waited for shard 1 for too long.");
      await expect(alarm).toContainText("Start the nodes of shard 1");
      await expect(alarm).toContainText("2 transactions of shard 2 wait for its verdict");
      await expect(alarm).toContainText(/it has not taken \d+ entries that shard 0 streamed/);
      await expect(alarm.getByRole("listitem")).toHaveCount(4);
      await expect(page.getByTestId("shard-table").locator('[data-shard="3"]')).toContainText(
        "3 overdue",
      );
      await expect(page.getByTestId("pending")).toHaveText("10");
      await expect(page.getByTestId("refused")).toContainText(
        "transactions that cross to shard 1, which is down, for 1 min",
      );

      await page.goto(`${node.url}/shards/3`);
      await expect(alarm.getByRole("listitem")).toHaveCount(1);
      await page.goto(`${node.url}/tx/${transaction.status?.idHex}`);
      await expect(page.getByTestId("path-overdue")).toContainText(
        "It is overdue: shard 0 has waited for",
      );
      await expect(page.getByTestId("path").locator('[data-shard="0"]')).toContainText("overdue");
      node.shards.cross(transaction, [0, 1], "settled");
      await expect(page.getByTestId("path-overdue")).toHaveCount(0);
    } finally {
      await node.stop();
    }
  });

  test("an entry's path is shown, waits, and settles without a reload", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 20, parents: [0, 0, 0, 1, 1], halted: [3] });
    const transaction = node.chain.at(12n)?.transactions[2];
    try {
      if (!transaction) throw new Error("there is no such transaction");
      node.shards.cross(transaction, [0, 2, 3], "waiting", 3);
      await page.goto(`${node.url}/tx/${transaction.status?.idHex}`);
      await expect(page.getByTestId("path-state")).toHaveText("waiting for shard 3");
      const row = (shard: number): ReturnType<typeof page.locator> =>
        page.getByTestId("path").locator(`[data-shard="${shard}"]`);
      await expect(row(0)).toContainText("entered here");
      await expect(row(0)).toContainText("waiting for shard 3");
      await expect(row(1)).toContainText("passed on");
      await expect(row(2)).toContainText(/number \d+ from shard 0/);
      await expect(row(2)).toContainText("says good");
      await expect(row(3)).toContainText("not there yet");
      expect(
        await page
          .getByTestId("path")
          .locator("tbody tr")
          .evaluateAll((rows) => rows.map((each) => each.getAttribute("data-shard"))),
      ).toEqual(["0", "1", "3", "2"]);

      node.shards.cross(transaction, [0, 2, 3], "settled");
      await expect(page.getByTestId("path-state")).toHaveText(
        "It took effect in shards 0, 2 and 3.",
      );
      await expect(row(2)).toContainText("settled");
      await row(2).getByRole("link", { name: /^2,/ }).first().click();
      await expect(page).toHaveURL(/\/shards\/2\/blocks\/\d+$/);
      await expect(page.getByRole("heading", { level: 1 })).toContainText("of shard 2");

      node.shards.cross(transaction, [0, 2], "refused", 2);
      await page.goBack();
      await expect(page.getByTestId("path-state")).toContainText(
        "Refused by shard 2 (insufficient funds)",
      );
      await expect(row(2)).toContainText("insufficient funds");
    } finally {
      await node.stop();
    }
  });

  test("blocks of every shard, verdicts, amounts that wait, and shards that are silent", async ({
    page,
  }) => {
    const node = await FakeNode.start({ blocks: 20, parents: [0, 0, 0], silent: [1] });
    const transaction = node.chain.at(12n)?.transactions[2];
    try {
      if (!transaction) throw new Error("there is no such transaction");
      node.shards.cross(transaction, [0, 2], "settled");
      await page.goto(`${node.url}/blocks`);
      await page
        .getByRole("navigation", { name: "Shards" })
        .getByRole("link", { name: "shard 2" })
        .click();
      await expect(page).toHaveURL(/\/shards\/2\/blocks$/);
      await expect.poll(async () => (await heightsOf(page))[0]).toBe(2020);
      await page.getByRole("link", { name: "2,015", exact: true }).click();
      await expect(page.getByRole("heading", { level: 1 })).toHaveText("Block 2,015 of shard 2");
      await page.keyboard.press("j");
      await expect(page).toHaveURL(/\/shards\/2\/blocks\/2014$/);
      const verdict = page.locator('tr[data-kind="verdict"]');
      await expect(verdict).toHaveCount(1);
      await expect(verdict).toContainText("good on");
      await verdict.getByRole("link").last().click();
      await expect(page).toHaveURL(`${node.url}/tx/${transaction.status?.idHex}`);

      await page.goto(`${node.url}/accounts`);
      await expect(page.getByTestId("unanswered")).toContainText("Shard 1 does not answer.");
      await page
        .getByTestId("accounts")
        .getByRole("link", { name: "aurora-air:settlement" })
        .click();
      await expect(page.getByTestId("balances")).toContainText("set aside 1,250");
      await expect(page.getByTestId("balances")).toContainText("incoming 77,000");
      await expect(page.getByText("lives in shard 2")).toBeVisible();
      await expect(
        page.getByTestId("history").locator('a[href^="/shards/2/blocks/"]').first(),
      ).toBeVisible();
    } finally {
      await node.stop();
    }
  });

  test("a verdict's page names its shard and transaction, and says that nobody signed it", async ({
    page,
  }) => {
    const node = await FakeNode.start({ blocks: 20, parents: [0, 0, 0] });
    const judged = node.chain.at(12n)?.transactions[2]?.status?.idHex ?? "";
    const good = node.chain.add([{}], Date.now(), {
      verdict: "good",
      verdictShard: 2,
      verdictTransactionHex: judged,
    });
    const bad = node.chain.add([{}], Date.now(), {
      verdict: "insufficient_funds",
      verdictShard: 1,
      verdictTransactionHex: judged,
    });
    try {
      await page.goto(`${node.url}/shards/0/blocks/${good.header.height}`);
      await page.locator('tr[data-kind="verdict"]').getByRole("link", { name: "verdict" }).click();
      await expect(page.getByRole("heading", { level: 1 })).toContainText("Verdict");
      await expect(page.getByTestId("verdict")).toContainText(
        "shard 2 says good about transaction",
      );
      await expect(page.getByTestId("signer")).toHaveText(
        "nobody" + "A verdict follows from the chain of shard 2, on which all its members agree.",
      );
      await expect(page.getByText("operator")).toHaveCount(0);
      await expect(page.getByTestId("proof-verdict")).toHaveText("✓ verified in this browser");
      await page.getByTestId("verdict").getByRole("link").last().click();
      await expect(page).toHaveURL(`${node.url}/tx/${judged}`);
      await expect(page.getByRole("heading", { level: 1 })).toContainText("Transaction");

      await page.goto(`${node.url}/tx/${bad.transactions[0]?.status?.idHex}`);
      await expect(page.getByTestId("verdict")).toContainText(
        "shard 1 says insufficient funds about transaction",
      );
      await expect(page.getByTestId("verdict")).toContainText("changes nothing in any shard");
    } finally {
      await node.stop();
    }
  });

  test("the blocks of all shards come in one list, and silent shards are named", async ({
    page,
  }) => {
    const node = await FakeNode.start({
      blocks: 20,
      everyMs: 200,
      parents: [0, 0, 0],
      silent: [2],
    });
    try {
      await page.goto(`${node.url}/blocks`);
      await page.getByRole("link", { name: "all shards" }).click();
      await expect(
        page.getByRole("heading", { level: 1, name: "Blocks of all shards" }),
      ).toBeFocused();
      await expect(page.getByTestId("silent")).toHaveText("no answer from shard 2");
      const rows = page.getByTestId("book-blocks").locator("tbody tr");
      for (const shard of ["0", "1"])
        await expect(
          rows.filter({ has: page.locator("td:first-child", { hasText: shard }) }).first(),
        ).toBeVisible();
      const before = await rows.first().textContent();
      await expect.poll(async () => await rows.first().textContent()).not.toBe(before);
      await page.getByRole("link", { name: "shard 1", exact: true }).first().click();
      await expect(page).toHaveURL(/\/shards\/1\/blocks$/);
    } finally {
      await node.stop();
    }
  });

  test("totals name the shard that they cover, and what they count", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 20, parents: [0, 0, 0] });
    const transaction = node.chain.at(12n)?.transactions[2];
    try {
      if (!transaction) throw new Error("there is no such transaction");
      await page.goto(node.url);
      const totals = page.getByLabel("The ledger at a glance");
      for (const label of ["Head", "Transactions/s", "Entries", "Accounts", "Nodes"])
        await expect(totals.getByText(`${label}, shard 0`, { exact: true })).toBeVisible();
      await expect(page.getByTestId("counted")).toContainText(
        "Entries are transactions and changes of the members, verdicts of other shards, " +
          "and transactions that are only passed on.",
      );
      await expect(page.getByText("Entries per second, shard 0")).toBeVisible();

      node.shards.cross(transaction, [1, 2], "settled");
      await page.goto(`${node.url}/shards/0/blocks/12`);
      const count = node.chain.at(12n)?.transactions.length ?? 0;
      await expect(page.getByTestId("entries")).toContainText(
        `${count + 2}: ${count - 1} transactions, 2 verdicts, 1 only passed on`,
      );
      await expect(page.getByRole("heading", { name: `${count + 2} entries` })).toBeVisible();
    } finally {
      await node.stop();
    }
  });

  test("the book's total has transactions only, by shard and by hour", async ({
    page,
  }) => {
    const node = await FakeNode.start({ blocks: 20, parents: [0, 0, 0], silent: [2] });
    try {
      for (const path of ["/", "/shards"]) {
        await page.goto(`${node.url}${path}`);
        const panel = page.getByTestId("figures");
        await expect(panel.getByRole("heading")).toHaveText("Transactions of the whole book");
        const counts = [0, 1].map((shard) =>
          node.shards
            .chain(shard)
            ?.blocks.reduce((sum, block) => sum + block.transactions.length, 0),
        );
        const [first = 0, second = 0] = counts;
        await expect(page.getByTestId("book-total")).toHaveText(
          (first + second).toLocaleString("en"),
        );
        await expect(page.getByTestId("figures-missing")).toContainText("shard 2");
        const rows = page.getByTestId("figures-table").locator("tbody tr");
        await expect(rows).toHaveCount(3);
        await expect(rows.nth(2)).toContainText("does not answer");
        await expect(panel.getByRole("img")).toHaveAttribute("aria-label", /last 48 hours/);
        await panel.getByRole("button", { name: "90 days" }).click();
        await expect(panel.getByRole("img")).toHaveAttribute("aria-label", /last 90 days/);
        await panel.getByRole("button", { name: "24 months" }).click();
        await expect(panel.getByRole("img")).toHaveAttribute("aria-label", /last 24 months/);
        const download = page.waitForEvent("download");
        await panel.getByRole("button", { name: "CSV download of these figures" }).click();
        const saved = await download;
        expect(saved.suggestedFilename()).toMatch(/^figures-.*-months\.csv$/);
        const text = await readFile(await saved.path(), "utf8");
        expect(text.trim().split("\r\n")).toHaveLength(3);
        expect(text).toMatch(/^shard,period,transactions,first,failed,between\r\n0,\d{4}-\d{2},/);
      }
    } finally {
      await node.stop();
    }
  });

  test("a book of one shard shows nothing of shards", async ({ page }) => {
    const node = await FakeNode.start({ blocks: 10 });
    try {
      await page.goto(`${node.url}/blocks`);
      await expect.poll(async () => (await heightsOf(page)).length).toBe(10);
      await expect(
        page.getByRole("navigation", { name: "Sections" }).getByRole("link"),
      ).toHaveCount(7);
      await expect(page.getByRole("navigation", { name: "Shards" })).toHaveCount(0);
      await expect(page.getByTestId("blocks").locator('a[href="/block/10"]')).toBeVisible();
      await page.goto(`${node.url}/shards`);
      await expect(page.getByText("This book has one shard")).toBeVisible();
      await page.goto(node.url);
      await expect(
        page.getByLabel("The ledger at a glance").getByText("Transactions", { exact: true }),
      ).toBeVisible();
      await expect(page.getByTestId("counted")).toHaveCount(0);
    } finally {
      await node.stop();
    }
  });
});
