// Names and bounds, which decoders of every language keep alike.

import { MalformedError, utf8 } from "./codec.js";

export const ORGANISATION_MAX = 64;
export const CHAIN_NAME_MAX = 64;
export const ASSET_MAX = 32;
export const PATH_MAX = 128;
export const ALIAS_MAX = 128;
export const NOTE_MAX = 16384;
export const RECORD_VALUE_MAX = 65536;
export const BODY_MAX = 262144;
export const REGISTRATIONS_MAX = 16;
export const OPENINGS_MAX = 256;
export const POSTINGS_MAX = 1024;
export const RECORDS_MAX = 64;
export const IDEMPOTENCY_KEY_MAX = 64;
export const REFUND_POSTINGS_MAX = 16;
export const EFFECTIVE_MAX = 253_402_300_799_999n; // the end of the year 9999
export const KEYS_MAX = 16;
export const OPERATORS_MAX = 64;
export const MEMBERS_MAX = 1024;
export const MEMBER_KEY_MAX = 128;
export const ADDRESS_MAX = 256;
export const SHARDS_MAX = 1024;
export const MEMBER_INDEXES_MAX = 65536;
export const ENGINE_MAX = 32;
export const BUNDLE_TRANSACTIONS_MAX = 4096;
export const BUNDLE_SIGNATURES_MAX = 64;
export const BUNDLE_BYTES_MAX = 1048576;
export const PACKED_ASSETS_MAX = 16;
export const PATH_HASHES_MAX = 33;
export const FINALITY_HEADERS_MAX = 4096;
export const DECIMALS_MAX = 30;
export const ISSUERS_MAX = 64;
export const HOLD_ACCOUNTS_MAX = 16;
export const SCHEDULE_POSTINGS_MAX = 16;
export const SCHEDULE_NOTE_MAX = 256;
export const SCHEDULE_STEP_MAX = 366;
export const OCCURRENCES_MAX = 4096;
export const ACCOUNT_LIMITS_MAX = 16;
export const METADATA_MAX = 16;
export const METADATA_KEY_MAX = 32;
export const METADATA_VALUE_MAX = 128;
export const VELOCITY_SECONDS_MAX = 366 * 24 * 60 * 60;
export const LIMITS_MAX = 64;
export const POLICY_ASSETS_MAX = 256;

export const DEFAULT_ASSET = "unit";

const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}\p{Zs}]/u;
const WORD = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;
const ENGINE = /^[A-Za-z0-9][A-Za-z0-9._+-]*$/;
const SEGMENTS = /^(?::[A-Za-z0-9_.~@+=$!*/-]+)+$/;

function word(text: string, most: number, what: string): string {
  if (text.length > most || !WORD.test(text)) {
    throw new MalformedError(
      `${JSON.stringify(text.slice(0, 80))} is no ${what} name (1 to ${most} letters, digits, ` +
        "'-', '_', '.')",
    );
  }
  return text;
}

/** Returns the name of an organisation or member, or throws MalformedError. */
export function organisation(text: string): string {
  return word(text, ORGANISATION_MAX, "organisation");
}

/** Returns the name of an engine, or throws MalformedError. */
export function engine(text: string): string {
  if (text.length > ENGINE_MAX || !ENGINE.test(text)) {
    throw new MalformedError(
      `${JSON.stringify(text.slice(0, 80))} is no engine's name (1 to ${ENGINE_MAX} letters, ` +
        "digits, '-', '_', '.', '+')",
    );
  }
  return text;
}

export function asset(text: string): string {
  return word(text, ASSET_MAX, "asset");
}

/** Returns a key of metadata, or throws MalformedError. */
export function metadataKey(text: string): string {
  return word(text, METADATA_KEY_MAX, "metadata");
}

export function chain(text: string): string {
  return word(text, CHAIN_NAME_MAX, "chain");
}

/** Returns an account or a record's key, or throws MalformedError. */
export function path(text: string): string {
  const first = organisationOf(text);
  if (
    text.length > PATH_MAX ||
    first.length > ORGANISATION_MAX ||
    !WORD.test(first) ||
    !SEGMENTS.test(text.slice(first.length))
  ) {
    throw new MalformedError(
      `${JSON.stringify(text.slice(0, 150))} is no account (organisation:name, at most ` +
        `${PATH_MAX} characters, letters, digits and -_.~@+=$!*/)`,
    );
  }
  return text;
}

/** Returns the organisation to which an account or record belongs. */
export function organisationOf(account: string): string {
  return account.split(":", 1)[0] ?? "";
}

/** Returns an alias of an account, or throws MalformedError: printable text. */
export function alias(text: string): string {
  if (utf8(text).length > ALIAS_MAX || !printable(text)) {
    throw new MalformedError(`an alias is at most ${ALIAS_MAX} bytes of printable text`);
  }
  return text;
}

/**
 * Reports whether all characters can be shown. A character that this engine's Unicode does not know
 * yet passes: the node may know it.
 */
export function printable(text: string): boolean {
  return !UNPRINTABLE.test(text.replaceAll(" ", ""));
}
