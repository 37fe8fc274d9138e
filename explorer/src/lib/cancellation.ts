// Reads what a cancellation cancels from the bytes that its id and its proof cover. The node says
// the same in fields of their own, which no hash covers.
import type { Cancellation } from "../gen/ledgerd/v1/transaction_pb";
import { toHex } from "./bytes";
import { Reader } from "./reader";

const version = 10;

/** What the canonical bytes of a transaction cancel: nothing, if it is no cancellation. */
export function cancelledBy(
  canonical: Uint8Array,
): { transactionHex: string; shard: bigint } | undefined {
  const r = new Reader(canonical);
  if (r.byte() !== version) return undefined;
  r.hash(); // the ledger
  r.bytes("organisation", canonical.length); // the signer
  for (let i = 0; i < 3; i++) r.uvarint(); // nonce and deadline
  const transactionHex = toHex(r.hash());
  const shard = r.uvarint();
  return r.problem === "" ? { transactionHex, shard } : undefined;
}

/** Whether a page shows that a transaction cancels what its bytes say. */
export function sameCancellation(
  shown: Pick<Cancellation, "transactionHex" | "shard"> | undefined,
  canonical: Uint8Array,
): boolean {
  const proven = cancelledBy(canonical);
  return (
    proven?.transactionHex === shown?.transactionHex &&
    proven?.shard === (shown === undefined ? undefined : BigInt(shown.shard))
  );
}
