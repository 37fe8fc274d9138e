// Bodies of transactions of every kind, as bundles and proofs hold them.

import { AssetChange } from "./asset.js";
import { MalformedError } from "./codec.js";
import {
  MembershipChange,
  Transaction,
  VERSION,
  VERSION_ASSET,
  VERSION_DEADLINE,
  VERSION_MEMBERSHIP,
  VERSION_PACKED,
} from "./transaction.js";

/**
 * Throws MalformedError if the body is of a kind that this package decodes, and malformed.
 *
 * Of the other kinds (policies, charters, verdicts, changes of a book, arrivals) only the version
 * is checked. Their ids are hashes of their bytes, so a proof of one holds as any other.
 */
export function checkBody(body: Uint8Array): void {
  const version = body[0] ?? 0;
  if (version === VERSION || version === VERSION_DEADLINE) Transaction.decode(body);
  else if (version === VERSION_MEMBERSHIP) MembershipChange.decode(body);
  else if (version === VERSION_ASSET) AssetChange.decode(body);
  else if (version === 0 || version === VERSION_PACKED || version > VERSION_ASSET) {
    throw new MalformedError(`transaction version ${version}`);
  }
}
