// Bodies of transactions of every kind, as bundles and proofs hold them.

import { AssetChange } from "./asset.js";
import { MalformedError } from "./codec.js";
import { CharterChange, PolicyChange } from "./policy.js";
import {
  Cancellation,
  MembershipChange,
  Transaction,
  VERSION,
  VERSION_ASSET,
  VERSION_CANCELLATION,
  VERSION_CHARTER,
  VERSION_CHARTER_LAST,
  VERSION_DEADLINE,
  VERSION_DETAILS,
  VERSION_LAST,
  VERSION_MEMBERSHIP,
  VERSION_PACKED,
  VERSION_POLICY,
} from "./transaction.js";

/**
 * Throws MalformedError if the body is of a kind that this package decodes, and malformed.
 *
 * Of the other kinds (verdicts, changes of a book, arrivals, holds, terms of accounts) only the
 * version is checked. Their ids are hashes of their bytes, so a proof of one holds as any other.
 */
export function checkBody(body: Uint8Array): void {
  const version = body[0] ?? 0;
  const entries = [VERSION, VERSION_DEADLINE, VERSION_DETAILS];
  if (entries.includes(version)) Transaction.decode(body);
  else if (version === VERSION_MEMBERSHIP) MembershipChange.decode(body);
  else if (version === VERSION_ASSET) AssetChange.decode(body);
  else if (version === VERSION_CANCELLATION) Cancellation.decode(body);
  else if (version === VERSION_POLICY) PolicyChange.decode(body);
  else if (version >= VERSION_CHARTER && version <= VERSION_CHARTER_LAST) {
    CharterChange.decode(body);
  } else if (version === 0 || version === VERSION_PACKED || version > VERSION_LAST) {
    throw new MalformedError(`transaction version ${version}`);
  }
}
