import { clusterTest as test, expect, heightsOf } from "../fixtures";

test.use({
  expected: [/ERR_INTERNET_DISCONNECTED|ERR_NETWORK|ERR_FAILED|Failed to load resource/],
});

test("a stream that is cut goes on where it was, without a gap", async ({ page, context }) => {
  const asked: bigint[] = [];
  page.on("request", (request) => {
    const body = request.postDataBuffer();
    // An enveloped protobuf message: a frame of five bytes, the field's tag, the height as a
    // varint.
    if (!request.url().endsWith("/Subscribe") || !body || body[5] !== 0x08) return;
    let height = 0n;
    for (let i = 6, shift = 0n; i < body.length; i++, shift += 7n) {
      height |= BigInt((body[i] ?? 0) & 0x7f) << shift;
      if ((body[i] ?? 0) < 0x80) break;
    }
    asked.push(height);
  });
  await page.goto("/blocks");
  await expect.poll(async () => (await heightsOf(page)).length).toBeGreaterThan(4);
  await expect.poll(() => asked.length).toBe(1);

  await context.setOffline(true);
  await expect(page.getByText("Reconnecting.")).toBeVisible();
  const before = await heightsOf(page);
  expect(before.length).toBeGreaterThan(4);

  await context.setOffline(false);
  await expect(page.getByText("Reconnecting.")).toBeHidden();
  await expect.poll(async () => (await heightsOf(page))[0]).toBeGreaterThan((before[0] ?? 0) + 2);
  const after = await heightsOf(page);
  expect(after).toEqual(after.map((_, i) => (after[0] ?? 0) - i));
  expect(asked.at(-1)).toBeGreaterThanOrEqual(BigInt(before[0] ?? 0));
  expect(asked.at(-1)).toBeGreaterThan(asked[0] ?? 0n);
});

test("a stream that cannot be opened is tried again until it can", async ({ page }) => {
  let refused = 0;
  await page.route("**/Subscribe", async (route) => {
    refused++;
    if (refused <= 2) await route.abort("connectionreset");
    else await route.continue();
  });
  await page.goto("/");
  await expect.poll(() => refused).toBeGreaterThan(2);
  await expect.poll(async () => (await heightsOf(page)).length).toBeGreaterThan(0);
  const first = (await heightsOf(page))[0] ?? 0;
  await expect.poll(async () => (await heightsOf(page))[0]).toBeGreaterThan(first);
});
