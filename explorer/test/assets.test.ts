import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { verifyAssetProof } from "../src/lib/assetproof";
import { fromHex, toHex } from "../src/lib/bytes";
import { formatAmount, placePoint } from "../src/lib/format";

interface Fixture {
  name: string;
  proof: string;
  height: number;
  block_hash: string;
  decimals: number;
  cap: string;
  issued?: string;
  redeemed?: string;
}
// A test in Go keeps them equal to what a chain makes (ledger/state/explorer_test.go).
const fixtures = JSON.parse(readFileSync("test/fixtures/assets.json", "utf8")) as Fixture[];
const bytes = (fixture: Fixture): Uint8Array => fromHex(fixture.proof) ?? new Uint8Array();

test.each(fixtures)("the proof of $name holds", async (fixture) => {
  const { value, problem } = await verifyAssetProof(bytes(fixture), fixture.name);
  expect(problem).toBeUndefined();
  expect(value?.height).toBe(BigInt(fixture.height));
  expect(toHex(value?.blockHash ?? new Uint8Array())).toBe(fixture.block_hash);
  expect(value?.decimals).toBe(fixture.decimals);
  expect(value?.cap).toBe(BigInt(fixture.cap));
  expect(value?.issuers[0]?.issued).toBe(BigInt(fixture.issued ?? "0"));
  expect(value?.issuers[0]?.redeemed).toBe(BigInt(fixture.redeemed ?? "0"));
});

test.each(fixtures)("no byte of the proof of $name can be changed", async (fixture) => {
  const good = bytes(fixture);
  for (let at = 0; at < good.length; at++) {
    const forged = good.slice();
    forged[at] = (forged[at] ?? 0) ^ 1;
    const { value } = await verifyAssetProof(forged, fixture.name);
    // A header that says something else has another hash, which no certificate has.
    if (value) expect(toHex(value.blockHash)).not.toBe(fixture.block_hash);
  }
  expect((await verifyAssetProof(good.slice(0, -1), fixture.name)).problem).toBeDefined();
  const longer = new Uint8Array([...good, 0]);
  expect((await verifyAssetProof(longer, fixture.name)).problem).toBeDefined();
  expect((await verifyAssetProof(good, "other")).problem).toBe("it is of another asset");
});

test("amounts have their decimals", () => {
  expect(formatAmount("-1250000", { decimals: 2 })).toBe("-12,500.00");
  expect(formatAmount("5", { decimals: 2, sign: true })).toBe("+0.05");
  expect(formatAmount("0", { decimals: 2, sign: true })).toBe("0.00");
  expect(formatAmount("170141183460469231731687303715884105727", { decimals: 18 })).toBe(
    "170,141,183,460,469,231,731.687303715884105727",
  );
  expect(formatAmount("1234567", { decimals: 0 })).toBe("1,234,567");
  expect(formatAmount("x", { decimals: 2 })).toBe("x");
  expect(placePoint("-5", 2)).toBe("-0.05");
  expect(placePoint("1250", 0)).toBe("1250");
  expect(placePoint("", 2)).toBe("");
});
