// Bodies of transactions of every kind, as bundles and proofs hold them.

import { AssetChange } from "./asset.js";
import { BookChange } from "./book.js";
import { MalformedError } from "./codec.js";
import { Hold, HoldEnd } from "./hold.js";
import { CharterChange, PolicyChange } from "./policy.js";
import { Occurrence, Schedule, ScheduleEnd } from "./schedule.js";
import { AccountChange } from "./terms.js";
import {
  Cancellation,
  MembershipChange,
  Transaction,
  VERSION,
  VERSION_ACCOUNT,
  VERSION_ASSET,
  VERSION_BOOK,
  VERSION_CANCELLATION,
  VERSION_CHARTER,
  VERSION_CHARTER_LAST,
  VERSION_DEADLINE,
  VERSION_DETAILS,
  VERSION_HOLD,
  VERSION_HOLD_END,
  VERSION_LAST,
  VERSION_MEMBERSHIP,
  VERSION_OCCURRENCE,
  VERSION_PACKED,
  VERSION_POLICY,
  VERSION_SCHEDULE,
  VERSION_SCHEDULE_END,
} from "./transaction.js";

/**
 * Throws MalformedError if the body is of a kind that this package decodes, and malformed.
 *
 * Of the other kinds (verdicts and arrivals, which chains make) only the version is checked. Their
 * ids are hashes of their bytes, so a proof of one holds as any other.
 */
export function checkBody(body: Uint8Array): void {
  const version = body[0] ?? 0;
  const entries = [VERSION, VERSION_DEADLINE, VERSION_DETAILS];
  if (entries.includes(version)) Transaction.decode(body);
  else if (version === VERSION_MEMBERSHIP) MembershipChange.decode(body);
  else if (version === VERSION_ASSET) AssetChange.decode(body);
  else if (version === VERSION_BOOK) BookChange.decode(body);
  else if (version === VERSION_CANCELLATION) Cancellation.decode(body);
  else if (version === VERSION_HOLD) Hold.decode(body);
  else if (version === VERSION_HOLD_END) HoldEnd.decode(body);
  else if (version === VERSION_ACCOUNT) AccountChange.decode(body);
  else if (version === VERSION_SCHEDULE) Schedule.decode(body);
  else if (version === VERSION_SCHEDULE_END) ScheduleEnd.decode(body);
  else if (version === VERSION_OCCURRENCE) Occurrence.decode(body);
  else if (version === VERSION_POLICY) PolicyChange.decode(body);
  else if (version >= VERSION_CHARTER && version <= VERSION_CHARTER_LAST) {
    CharterChange.decode(body);
  } else if (version === 0 || version === VERSION_PACKED || version > VERSION_LAST) {
    throw new MalformedError(`transaction version ${version}`);
  }
}
