import type { MessageInitShape } from "@bufbuild/protobuf";
import type {
  BookChangeSchema,
  MembershipChangeSchema,
  PolicySchema,
} from "../../src/gen/ledgerd/v1/transaction_pb";
import { joining } from "../../test/fake-certificates";
import { FakeNode } from "../../test/fake-node";
import { expectSound, looks, shoot } from "../axe";
import { expect, heightsOf, test } from "../fixtures";

type Change = NonNullable<MessageInitShape<typeof MembershipChangeSchema>["change"]>;

test.use({ expected: [/Failed to load resource/] });
test.slow();

test("a search as of a block finds what was there then", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 40 });
  try {
    const [early, late] = [12n, 13n].map((height) => node.chain.at(height)?.transactions[0]);
    const hits = page.getByTestId("hits").getByRole("link");
    const leftOut = page.getByTestId("left-out");
    const search = (text: string): string => `${node.url}/search?q=${text}&at=12`;
    await page.goto(search("12"));
    await expect(hits).toHaveText([/block\s*12/]);
    await expect(page.getByTestId("past-reach")).toContainText("What was there then.");
    await page.goto(search("13"));
    await expect(leftOut).toContainText("1 hit came later, and is left out.");
    await expect(hits).toHaveCount(0);
    await page.goto(search(early?.status?.idHex ?? ""));
    await expect(hits).toHaveCount(1);
    await expect(leftOut).toHaveCount(0);
    await page.goto(search(late?.status?.idHex ?? ""));
    await expect(leftOut).toContainText("1 hit came later");
    await page.goto(search("north"));
    await expect(hits).toHaveCount(2); // an organisation and its account

    // Notes and moments, too.
    const found = page.getByTestId("found");
    await page.goto(search("INV-12-0"));
    await expect(found.locator(`a[href="/tx/${early?.status?.idHex}"]`).first()).toBeAttached();
    await expect(page.getByTestId("looked")).toContainText("in blocks 1 to 12:");
    await page.goto(search("INV-13-0"));
    await expect(page.getByText("Nothing there.")).toBeVisible();
    const time = new Date(Number(node.chain.at(20n)?.header.timeMs)).toISOString();
    await page.goto(search(`${time.slice(0, 10)}Z`));
    await expect(page.getByTestId("at-moment")).toContainText(/\b12\b/);
    await expect(page.getByTestId("at-moment")).not.toContainText(/\b40\b/);
    for (const { colorScheme, width } of looks) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      await page.goto(search("13"));
      await expect(leftOut).toBeVisible();
      await expectSound(page, `a search in the past, ${colorScheme}, ${width}`);
      await shoot(page, `past-search-${colorScheme}-${width}`);
    }
  } finally {
    await node.stop();
  }
});

test("crossings as of a block: by pair, on their way, and the last ones", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 30, parents: [0, 0, 0] });
  try {
    const at = (height: bigint) => {
      const found = node.chain.at(height)?.transactions[0];
      if (!found) throw new Error(`no block ${height}`);
      return found;
    };
    node.shards.cross(at(8n), [0, 1], "settled"); // in block 10
    node.shards.cross(at(11n), [0, 1, 2], "settled"); // in block 13
    node.shards.cross(at(12n), [0, 2], "waiting");
    node.shards.cross(at(20n), [0, 1], "settled");
    const link = (height: bigint): string => `a[href="/tx/${at(height).status?.idHex}"]`;
    await page.goto(`${node.url}/shards/crossings?at=12`);
    await expect(page.getByTestId("past-reach")).toContainText("What had crossed then.");
    const pairs = page.getByTestId("pairs");
    await expect(pairs.locator('tr[data-pair="0-1"] td').nth(1)).toHaveText("2");
    await expect(pairs.locator('tr[data-pair="0-2"] td').nth(1)).toHaveText("2");
    const map = page.getByTestId("crossings-map");
    await expect(map.locator(".card")).toHaveCount(3);
    await expect(map.locator('.card[data-shard="0"]')).toContainText("block 12");
    await expect(map.locator(".card .chip")).toHaveCount(0);
    await expect(map.locator('a.count[data-pair="0-1"]')).toContainText("2");
    const open = page.getByTestId("open-then");
    await expect(open.locator("tbody tr")).toHaveCount(2);
    await expect(open.locator(link(11n)).first()).toBeVisible();
    await expect(open.locator(link(12n)).first()).toBeVisible();
    await expect(page.getByTestId("open-told")).toContainText("All 3 transactions");
    const latest = page.getByTestId("latest-then");
    await expect(latest.locator(link(8n)).first()).toBeVisible();
    await expect(latest.locator(link(20n))).toHaveCount(0);
    await page.goto(`${node.url}/shards/crossings?at=14`);
    await expect(open.locator(link(12n)).first()).toBeVisible();
    await expect(open.locator(link(11n))).toHaveCount(0);

    for (const { colorScheme, width } of looks) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      await page.goto(`${node.url}/shards/crossings?at=12&over=days`);
      await expect(latest).toBeVisible();
      await expectSound(page, `crossings in the past, ${colorScheme}, ${width}`);
      await shoot(page, `past-crossings-${colorScheme}-${width}`);
    }
  } finally {
    await node.stop();
  }
});

test("the nodes as of a block: who was a member, with which disk", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 20, servers: 5, joins: true });
  const change = (made: Change): bigint =>
    node.chain.add([{ membershipChange: { change: made } }], Date.now()).header.height;
  const disk = "ab".repeat(16);
  const admitted = change({ case: "admit", value: { index: 2, disk } });
  const left = change({ case: "leave", value: 1 });
  node.grow(Date.now());
  const rows = page.getByTestId("members-then").locator("tbody tr");
  const changes = page.getByTestId("member-changes");
  try {
    await page.goto(`${node.url}/nodes?at=1`);
    await expect(rows).toHaveCount(4);
    await expect(page.getByTestId("past-reach")).toContainText("Not kept: what their nodes did");
    await expect(changes).toContainText("None: these are the members of the genesis.");
    await page.goto(`${node.url}/nodes?at=${admitted - 1n}`);
    await expect(rows).toHaveCount(5);
    await expect(rows.nth(4)).toContainText("node-4");
    await expect(rows.nth(4)).toContainText("127.0.0.1:7000");
    await expect(rows.nth(4).getByRole("link", { name: "2", exact: true })).toBeVisible();
    await expect(rows.nth(2)).toContainText("its first");
    await expect(changes).toContainText("node-4 joins as member 4");
    await page.goto(`${node.url}/nodes?at=${admitted}`);
    await expect(rows.nth(2)).toContainText("abab");
    await expect(page.getByTestId("changes-count")).toHaveText("2");
    await page.goto(`${node.url}/nodes?at=${left}`);
    await expect(rows).toHaveCount(4);
    await expect(changes.getByRole("listitem").first()).toContainText("node-1 leaves");
    await expect(page.getByTestId("members-count")).toHaveText("4");
    await expect(page.locator("main").getByText("ordering")).toHaveCount(0); // nothing live
    for (const { colorScheme, width } of looks) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      await page.goto(`${node.url}/nodes?at=${left}`);
      await expect(rows).toHaveCount(4);
      await expectSound(page, `nodes in the past, ${colorScheme}, ${width}`);
      await shoot(page, `past-nodes-${colorScheme}-${width}`);
    }
  } finally {
    await node.stop();
  }
});

test("the shards as of a block: the tree, its changes, and each shard", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 20, parents: [0, 0, 0, 1] });
  const change = (made: MessageInitShape<typeof BookChangeSchema>): bigint =>
    node.chain.add([{ book: made }], Date.now()).header.height;
  const members = [joining("node-9"), joining("node-10"), joining("node-11")];
  const added = change({ number: 1n, change: { case: "addition", value: { parent: 1, members } } });
  const rehung = change({
    number: 2n,
    change: { case: "rehang", value: { shard: 2, parent: 1 } },
  });
  node.grow(Date.now());
  node.shards.addedAt.set(3, added);
  const cards = page.getByTestId("tree").locator(".card");
  const rows = page.getByTestId("shards-then").locator("tbody tr");
  const changes = page.getByTestId("book-changes");
  try {
    await page.goto(`${node.url}/shards?at=12`);
    await expect(page.getByTestId("past-reach")).toContainText("Tree and figures of then.");
    await expect(cards).toHaveCount(3);
    await expect(page.getByTestId("shards")).toHaveText("3");
    await expect(page.locator("main")).toContainText("0(1,2)");
    await expect(page.locator('.card[data-shard="0"]')).toContainText("block 12");
    await expect(cards.locator(".chip")).toHaveCount(0);
    await expect(changes).toContainText("None: the shards are those of the genesis.");
    await expect(rows.nth(1)).toContainText("1 entry behind");
    const transactions = BigInt(
      node.chain.blocks.slice(0, 12).reduce((sum, { transactions: { length } }) => sum + length, 0),
    );
    const figures = page.getByTestId("figures-table").locator('tr[data-shard="0"] td').nth(1);
    await expect(figures).toHaveText(transactions.toString());
    await expect(rows.nth(0).locator("td").nth(3)).toHaveText(transactions.toString());

    await page.goto(`${node.url}/shards?at=${rehung}`);
    await expect(cards).toHaveCount(4);
    await expect(page.locator("main")).toContainText("0(1(2,3))");
    await expect(changes.getByRole("listitem")).toHaveText([
      /^Hangs shard 2 below shard 1/,
      /^Adds a shard of 3 nodes below shard 1/,
    ]);

    await page.goto(`${node.url}/shards/3?at=12`);
    await expect(page.getByText("There was no such shard then")).toBeVisible();
    await page.goto(`${node.url}/shards/1?at=12`);
    await expect(page.getByTestId("height")).toHaveText("1,012");
    await expect(page.getByTestId("carried")).toHaveText("23");
    await expect(page.getByTestId("members-then").locator("tbody tr")).toHaveCount(3);
    await expect.poll(async () => (await heightsOf(page, "blocks-then"))[0]).toBe(1012);
    await expect(page.locator("main").getByText("ordering")).toHaveCount(0);
    await page.goto(`${node.url}/shards/1?at=${rehung}`);
    await expect(page.locator("main .facts")).toContainText("shard 2, had");

    for (const { colorScheme, width } of looks)
      for (const path of ["shards", "shards/1"]) {
        await page.emulateMedia({ colorScheme });
        await page.setViewportSize({ width, height: 900 });
        await page.goto(`${node.url}/${path}?at=${rehung}`);
        await expect(page.getByTestId("entries")).toContainText(/\d/);
        await expect(page.locator('main [aria-busy="true"]')).toHaveCount(0);
        await expectSound(page, `${path} in the past, ${colorScheme}, ${width}`);
        await shoot(page, `past-${path.replace("/", "-")}-${colorScheme}-${width}`);
      }
  } finally {
    await node.stop();
  }
});

test("keys, policy and home of an organisation as of a block", async ({ page }) => {
  const node = await FakeNode.start({ blocks: 20, parents: [0, 0, 0] });
  const key = (byte: number): Uint8Array => new Uint8Array(32).fill(byte);
  const change = (made: MessageInitShape<typeof PolicySchema>): bigint =>
    node.chain.add([{ signer: "southbank", policy: made }], Date.now()).header.height;
  const keys = [0xab, 0xcd].map((byte) => ({ publicKey: key(byte), role: "all" }));
  const first = change({ number: 1n, threshold: 2, keys });
  change({ number: 2n, threshold: 1, keys: keys.slice(1) });
  const move = { organisation: "southbank", to: 1 };
  const moved = node.chain.add(
    [{ book: { number: 1n, change: { case: "move", value: move } } }],
    Date.now(),
  ).header.height;
  node.grow(Date.now());
  node.moving = "southbank"; // from shard 2
  const facts = page.locator("main .facts");
  const way = page.getByTestId("way");
  try {
    await page.goto(`${node.url}/organisation/southbank?at=12`);
    await expect(facts).toContainText("1 of 1 key sign");
    await expect(facts).not.toContainText(/(abab|cdcd)/);
    await expect(facts.getByRole("link", { name: "shard 2" })).toBeVisible();
    await expect(way).toContainText("lived, or were on their way to");
    await page.goto(`${node.url}/organisation/southbank?at=${first}`);
    await expect(facts).toContainText("2 of 2 keys sign");
    await expect(facts).toContainText("ab".repeat(32));
    await page.goto(`${node.url}/organisation/southbank?at=${moved}`);
    await expect(facts).toContainText("1 of 1 key sign");
    await expect(facts).toContainText("cd".repeat(32));
    await expect(facts.getByRole("link", { name: "shard 1" })).toBeVisible();
    const list = page.getByTestId("organisations");
    await page.goto(`${node.url}/organisations?at=12`);
    await expect(list.locator("tbody tr", { hasText: "southbank" })).toContainText("on its page");
    for (const { colorScheme, width } of looks) {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width, height: 900 });
      await page.goto(`${node.url}/organisation/southbank?at=${first}`);
      await expect(facts).toContainText("2 of 2 keys sign");
      await expect(page.locator('main [aria-busy="true"]')).toHaveCount(0);
      await expectSound(page, `an organisation in the past, ${colorScheme}, ${width}`);
      await shoot(page, `past-organisation-${colorScheme}-${width}`);
    }
  } finally {
    await node.stop();
  }
});

for (const width of [1280, 390, 320])
  test(`what is as long as a chain can have it fits in the past, ${width} pixels`, async ({
    page,
  }) => {
    const node = await FakeNode.start({ blocks: 12, parents: [0, 0, 0, 1], wide: true });
    const crossing = node.chain.at(node.chain.base + 3n)?.transactions[0];
    if (crossing) node.shards.cross(crossing, [0, 1, 2, 3], "settled");
    try {
      await page.setViewportSize({ width, height: 900 });
      for (const path of ["nodes", "shards", "shards/1", "shards/crossings", "organisations"]) {
        await page.goto(`${node.url}/${path}?at=${node.chain.base + 8n}`);
        await expect(page.getByTestId("past")).toContainText("As of block");
        await expect(page.locator("main table").first()).toBeVisible();
        await expect(page.locator('main [aria-busy="true"]')).toHaveCount(0);
        await expectSound(page, `${path} in the past, wide, ${width}`);
        await shoot(page, `past-wide-${path.replace("/", "-")}-${width}`);
      }
    } finally {
      await node.stop();
    }
  });
