import { expect, test } from "vitest";
import { cancelledBy, sameCancellation } from "../src/lib/cancellation";
import { toHex } from "../src/lib/bytes";

const target = new Uint8Array(32).fill(7);

/** The canonical bytes of a cancellation: see appendCancellation in package ledger. */
function canonical(version = 10): Uint8Array {
  const signer = new TextEncoder().encode("acme");
  return new Uint8Array([
    version,
    ...new Uint8Array(32).fill(1), // the ledger
    signer.length,
    ...signer,
    3, // the nonce's stream
    0x85, // and its sequence, of two bytes
    1,
    9, // the deadline
    ...target,
    0xac, // shard 300
    2,
    1, // a note
    65,
  ]);
}

test("what a cancellation cancels is read from its bytes", () => {
  expect(cancelledBy(canonical())).toEqual({ transactionHex: toHex(target), shard: 300n });
  expect(cancelledBy(canonical(9))).toBeUndefined();
  for (let length = 0; length < canonical().length - 2; length++)
    expect(cancelledBy(canonical().subarray(0, length)), `${length} bytes`).toBeUndefined();
});

test("a page must show what the bytes say", () => {
  const shown = { transactionHex: toHex(target), shard: 300 };
  expect(sameCancellation(shown, canonical())).toBe(true);
  expect(sameCancellation({ ...shown, shard: 44 }, canonical())).toBe(false);
  expect(sameCancellation({ ...shown, transactionHex: "00" }, canonical())).toBe(false);
  expect(sameCancellation(undefined, canonical())).toBe(false);
  expect(sameCancellation(shown, canonical(9))).toBe(false);
  expect(sameCancellation(undefined, canonical(9))).toBe(true);
});
