import { FakeNode } from "../../test/fake-node";
import { expect, test } from "../fixtures";

// Of a schedule that is over, and of occurrences to come, a node says that they are not there.
test.use({ expected: [/Failed to load resource/] });

let node: FakeNode;
test.beforeAll(async () => {
  node = await FakeNode.start({ blocks: 10, assets: true, schedules: true });
});
test.afterAll(async () => await node.stop());

test("an open schedule says what failed, what is to come, and how it is ended", async ({
  page,
}) => {
  const id = node.schedules[0] ?? "";
  await page.goto(`${node.url}/schedule/${id}`);
  await expect(page.getByTestId("schedule-state")).toHaveText("open");
  await expect(page.getByTestId("issued")).toHaveText("14 of 48 in blocks");
  await expect(page.getByTestId("scheduled")).toContainText("-900.00");
  await expect(page.getByText(`ledgerd schedule cancel ${id}`)).toBeVisible();
  const rows = page.getByTestId("occurrences").locator("tbody tr");
  await expect(rows).toHaveCount(10);
  await page.getByRole("button", { name: /Older/ }).click();
  await expect(rows).toHaveCount(4);
  await expect(rows.nth(2)).toContainText("The account would fall below zero.");
  // The address leads to this page of the list again.
  await page.reload();
  await expect(rows).toHaveCount(4);
  await rows.nth(2).getByRole("link").first().click();
  await expect(page.getByTestId("failed")).toBeVisible();
  await expect(page.getByTestId("signer")).toContainText("nobody");
  await page.getByTestId("occurrence").getByRole("link").click();
  await expect(page).toHaveURL(new RegExp(`/schedule/${id}$`));
});

test("schedules that are over say how they ended", async ({ page }) => {
  await page.goto(`${node.url}/schedule/${node.schedules[1]}`);
  await expect(page.getByTestId("schedule-state")).toHaveText("ended");
  await expect(page.getByTestId("issued")).toHaveText("3 of 26 in blocks");
  await page.getByTestId("schedule-ended").getByRole("link").first().click();
  await expect(page.getByTestId("schedule-end")).toContainText("ends");
  await page.goto(`${node.url}/schedule/${node.schedules[2]}`);
  await expect(page.getByTestId("schedule-state")).toHaveText("complete");
  await expect(page.getByTestId("next")).toHaveText("none");
});

test("a search for the id of a schedule leads to its page", async ({ page }) => {
  const id = node.schedules[0] ?? "";
  await page.goto(node.url);
  await page.getByRole("combobox").fill(id);
  await page.getByRole("option").first().click();
  await expect(page).toHaveURL(new RegExp(`/tx/${id}$`));
  await page.getByTestId("schedule").getByRole("link", { name: "places a schedule" }).click();
  await expect(page).toHaveURL(new RegExp(`/schedule/${id}$`));
});

test("what is no schedule says so", async ({ page }) => {
  await page.goto(`${node.url}/schedule/no`);
  await expect(page.getByText("This is not the id of a schedule")).toBeVisible();
  await page.goto(`${node.url}/schedule/${"ab".repeat(32)}`);
  await expect(page.getByText("No transaction with this id placed a schedule")).toBeVisible();
  const other = node.chain.at(5n)?.transactions[0]?.status?.idHex ?? "";
  await page.goto(`${node.url}/schedule/${other}`);
  await expect(page.getByText("This transaction placed no schedule")).toBeVisible();
  await page.goto(`${node.url}/schedules?organisation=aurora-air`);
  await expect(page.getByText("No such schedule is open")).toBeVisible();
});
