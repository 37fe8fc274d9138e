// Terms of accounts: limits, freezes, closing, guardians, metadata and aliases.
// docs/account-terms.md says what they do. A change by the account's organisation replaces all
// terms, so begin with the present ones: Client.accountNow.

import {
  amount,
  bigint,
  boolean,
  concat,
  elements,
  equal,
  fixed,
  HASH_SIZE,
  known,
  MalformedError,
  Reader,
  string,
  uint,
  utf8,
  uvarint,
} from "./codec.js";
import * as names from "./names.js";
import { encodeNote, transactionId, VERSION_ACCOUNT } from "./transaction.js";

/** Who froze an account. With "both", each side lifts its own freeze, the guardian first. */
export type Freeze = (typeof FREEZES)[number];
export const FREEZES = ["none", "owner", "guardian", "both"] as const;

const [NO_DEBITS, NO_CREDITS, CLOSED] = [1, 2, 4];
const [FLOOR, CEILING, VELOCITY] = [1, 2, 4];
const SLOTS = 5; // of what counts against a velocity
const SECONDS_MAX = names.VELOCITY_SECONDS_MAX;

/** The most that may be taken within a time, by the time of the blocks. */
export interface Velocity {
  amount: bigint;
  seconds: number;
}

/** What the terms of an account say of one asset. What is not given does not count. */
export interface AccountLimit {
  asset: string;
  floor?: bigint | undefined; // the least that a debit may leave
  ceiling?: bigint | undefined; // the most that a credit may make
  velocity?: Velocity | undefined;
}

/** A remark on an account. Accounts are found by those that are indexed. */
export interface Metadatum {
  key: string;
  value: string;
  indexed: boolean;
}

/** What an organisation says of one of its accounts. */
export interface AccountTerms {
  noDebits: boolean;
  noCredits: boolean;
  freeze: Freeze;
  closed: boolean;
  guardian: string; // an organisation that may freeze the account, or ""
  limits: AccountLimit[]; // in ascending order of their assets
  metadata: Metadatum[]; // in ascending order of their keys
}

/** The terms of an account that has none. */
export const NO_TERMS: Readonly<AccountTerms> = {
  noDebits: false,
  noCredits: false,
  freeze: "none",
  closed: false,
  guardian: "",
  limits: [],
  metadata: [],
};

/** Returns the terms of a guardian's change, which freezes an account or lifts its freeze. */
export function guarding(guardian: string, freeze: boolean): AccountTerms {
  return { ...NO_TERMS, guardian, freeze: freeze ? "guardian" : "none" };
}

/** Reports whether the guardian froze the account. */
export function frozenByGuardian(terms: AccountTerms): boolean {
  return terms.freeze === "guardian" || terms.freeze === "both";
}

const LIMIT = ["asset", "floor", "ceiling", "velocity"];
const HEAD = ["ledger", "signer", "stream", "sequence"];
const CHANGE = [...HEAD, "account", "number", "terms", "alias", "note"];

function limitsNothing(limit: AccountLimit): boolean {
  const { floor, ceiling, velocity } = limit;
  return floor === undefined && ceiling === undefined && velocity === undefined;
}

function encodeLimit(limit: AccountLimit): Uint8Array {
  const { floor, ceiling, velocity } = known(limit, "a limit", LIMIT);
  if (limitsNothing(limit)) {
    throw new MalformedError(
      `a limit of ${limit.asset} that limits nothing: name a floor, a ceiling or a velocity, or ` +
        "leave it out",
    );
  }
  for (const each of [floor, ceiling, velocity?.amount]) {
    if (each !== undefined) bigint(each, "an amount");
  }
  if (floor !== undefined && ceiling !== undefined && floor > ceiling) {
    throw new MalformedError(`a floor of ${floor} above the ceiling of ${ceiling}`);
  }
  if (velocity) {
    const { amount: most, seconds } = known(velocity, "a velocity", ["amount", "seconds"]);
    if (bigint(most, "a velocity") < 0n || !(seconds >= 1 && seconds <= SECONDS_MAX)) {
      throw new MalformedError(
        `a velocity of ${most} in ${seconds} seconds: at least 0, in 1 to ${SECONDS_MAX} seconds`,
      );
    }
  }
  const parts =
    (floor === undefined ? 0 : FLOOR!) |
    (ceiling === undefined ? 0 : CEILING!) |
    (velocity ? VELOCITY! : 0);
  const none = new Uint8Array();
  return concat(
    string(names.asset(limit.asset)),
    uint(parts, 1),
    floor === undefined ? none : amount(floor),
    ceiling === undefined ? none : amount(ceiling),
    velocity ? concat(amount(velocity.amount), uvarint(velocity.seconds)) : none,
  );
}

function readLimit(r: Reader): AccountLimit {
  const [asset, parts] = [r.text("bytes of asset", names.ASSET_MAX), r.byte()];
  if (parts > 7) throw new MalformedError(`parts ${parts} of a limit`);
  const limit: AccountLimit = { asset };
  if (parts & FLOOR!) limit.floor = r.amount();
  if (parts & CEILING!) limit.ceiling = r.amount();
  if (parts & VELOCITY!) limit.velocity = { amount: r.amount(), seconds: r.uvarint32() };
  return limit;
}

function encodeMetadatum(each: Metadatum): Uint8Array {
  known(each, "a metadatum", ["key", "value", "indexed"]);
  names.metadataKey(each.key);
  const value = utf8(each.value);
  if (value.length > names.METADATA_VALUE_MAX || !names.printable(each.value)) {
    throw new MalformedError(
      `metadata ${each.key}: at most ${names.METADATA_VALUE_MAX} bytes of printable text`,
    );
  }
  return concat(string(each.key), string(value), boolean(each.indexed));
}

function ordered(what: string, keys: string[]): void {
  if (keys.some((each, i) => i > 0 && keys[i - 1]! >= each)) {
    throw new MalformedError(`${what} out of order: ascending, and each once`);
  }
}

/** Returns the canonical bytes of terms. Throws MalformedError. */
export function encodeAccountTerms(terms: AccountTerms): Uint8Array {
  const { limits, metadata, guardian } = known(terms, "terms", Object.keys(NO_TERMS));
  const freeze = FREEZES.indexOf(terms.freeze);
  if (freeze < 0) {
    throw new MalformedError(`a freeze of kind ${terms.freeze}: ${FREEZES.join(", ")}`);
  }
  if (guardian) names.organisation(guardian);
  else if (frozenByGuardian(terms)) {
    throw new MalformedError(
      "an account without guardian that its guardian froze: name the guardian",
    );
  }
  if (limits.length > names.ACCOUNT_LIMITS_MAX || metadata.length > names.METADATA_MAX) {
    throw new MalformedError(
      `at most ${names.ACCOUNT_LIMITS_MAX} limits and ${names.METADATA_MAX} metadata`,
    );
  }
  ordered("limits", limits.map((each) => each.asset));
  ordered("metadata", metadata.map((each) => each.key));
  const { noDebits, noCredits, closed } = terms;
  for (const each of [noDebits, noCredits, closed]) boolean(each); // which checks that it is one
  const flags =
    (noDebits ? NO_DEBITS! : 0) | (noCredits ? NO_CREDITS! : 0) | (closed ? CLOSED! : 0);
  return concat(
    uint(flags, 1),
    uint(freeze, 1),
    string(guardian),
    elements(limits.map(encodeLimit)),
    elements(metadata.map(encodeMetadatum)),
  );
}

/** Takes terms from a reader, as a change of them and the state of a chain have them. */
export function readAccountTerms(r: Reader): AccountTerms {
  const [flags, kind] = [r.byte(), r.byte()];
  if (flags > 7) throw new MalformedError(`flags ${flags} of an account`);
  const freeze = FREEZES[kind];
  if (!freeze) throw new MalformedError(`a freeze of kind ${kind}`);
  const terms = {
    noDebits: (flags & NO_DEBITS!) !== 0,
    noCredits: (flags & NO_CREDITS!) !== 0,
    freeze,
    closed: (flags & CLOSED!) !== 0,
    guardian: r.text("bytes of organisation", names.ORGANISATION_MAX),
    limits: r.list("limits", names.ACCOUNT_LIMITS_MAX, 4, () => readLimit(r)),
    metadata: r.list("metadata", names.METADATA_MAX, 3, () => ({
      key: r.text("bytes of key", names.METADATA_KEY_MAX),
      value: r.text("bytes of value", names.METADATA_VALUE_MAX),
      indexed: r.boolean(),
    })),
  };
  encodeAccountTerms(terms); // which checks names and bounds
  return terms;
}

/** What a change of the terms of an account says. */
export interface AccountChangeParts {
  ledger: Uint8Array;
  signer: string;
  stream: bigint;
  sequence: bigint; // no nonce is taken
  account: string;
  number: bigint; // one above the changes before, or for a guardian above those of guardians
  terms: AccountTerms;
  alias?: string;
  note?: string;
}

/**
 * A transaction that changes the terms of an account. If the account's organisation signs, the
 * terms and the alias replace those before. If its guardian signs, the change makes or lifts the
 * guardian's freeze and leaves all else: see guarding.
 */
export class AccountChange {
  constructor(readonly parts: AccountChangeParts) {}

  /** Returns the body: the canonical bytes. Throws MalformedError. */
  encode(): Uint8Array {
    const p = known(this.parts, "a change of an account", CHANGE);
    const owner = names.organisationOf(names.path(p.account));
    if (bigint(p.number, "a number") < 1n) {
      throw new MalformedError(
        "a change of an account has a number above 0: one above that of the change before",
      );
    }
    if (p.terms.guardian === owner) {
      throw new MalformedError("an organisation is no guardian of its own account");
    }
    const terms = encodeAccountTerms(p.terms);
    if (p.signer !== owner) {
      names.organisation(p.signer);
      const only = encodeAccountTerms(guarding(p.signer, p.terms.freeze === "guardian"));
      if (p.alias || !equal(terms, only)) {
        throw new MalformedError(
          "a guardian names itself, and changes its own freeze only: guardian or none",
        );
      }
    }
    return concat(
      Uint8Array.of(VERSION_ACCOUNT),
      fixed(p.ledger, HASH_SIZE, "a ledger"),
      string(names.organisation(p.signer)),
      uvarint(p.stream),
      uvarint(p.sequence),
      string(p.account),
      uvarint(p.number),
      string(names.alias(p.alias ?? "")),
      terms,
      encodeNote(p.note ?? ""),
    );
  }

  /** Returns the id: the hash of the body. */
  id(): Uint8Array {
    return transactionId(this.encode());
  }

  /** Returns who has to sign: the signer. */
  consents(): Set<string> {
    return new Set([this.parts.signer]);
  }

  /** Decodes a body, or throws MalformedError. */
  static decode(body: Uint8Array): AccountChange {
    const r = new Reader(body);
    if (r.byte() !== VERSION_ACCOUNT) {
      throw new MalformedError("the transaction changes no account");
    }
    const parts = {
      ledger: r.hash(),
      signer: r.text("bytes of organisation", names.ORGANISATION_MAX),
      stream: r.uvarint(),
      sequence: r.uvarint(),
      account: r.text("bytes of account", names.PATH_MAX),
      number: r.uvarint(),
      alias: r.text("bytes of alias", names.ALIAS_MAX),
      terms: readAccountTerms(r),
      note: r.text("bytes of note", names.NOTE_MAX),
    };
    r.end();
    const change = new AccountChange(parts);
    change.encode(); // which checks names and bounds
    return change;
  }
}

/** The parts of AccountNow. */
export interface AccountNowParts {
  account: string;
  alias: string;
  revision: bigint; // how often the terms were changed
  guarded: bigint; // how often guardians did
  terms: AccountTerms;
}

/** What labelled sets. An empty value takes a key of the metadata away. */
export interface Labels {
  metadata?: { [key: string]: string };
  index?: string[]; // keys by which the account is found, as long as it has them
  alias?: string;
  guardian?: string;
}

/**
 * The terms of an account, for a signer that is about to change them. Each method returns the terms
 * as they will be: `now.limited(...).labelled(...)`. Sender.change makes the transaction.
 */
export class AccountNow implements AccountNowParts {
  readonly account: string;
  readonly alias: string;
  readonly revision: bigint;
  readonly guarded: bigint;
  readonly terms: AccountTerms;

  constructor(parts: AccountNowParts) {
    this.account = parts.account;
    this.alias = parts.alias;
    this.revision = parts.revision;
    this.guarded = parts.guarded;
    this.terms = parts.terms;
  }

  /** Replaces parts of the terms. */
  with(terms: Partial<AccountTerms>): AccountNow {
    return new AccountNow({ ...this, terms: { ...this.terms, ...terms } });
  }

  /** Replaces the limit of an asset. One that limits nothing takes it away. */
  limited(limit: AccountLimit): AccountNow {
    const others = this.terms.limits.filter((each) => each.asset !== limit.asset);
    const limits = limitsNothing(limit) ? others : [...others, limit];
    return this.with({ limits: limits.sort((a, b) => (a.asset < b.asset ? -1 : 1)) });
  }

  /** Freezes the account, as its organisation. */
  frozen(): AccountNow {
    return this.with({ freeze: "owner" });
  }

  /** Lifts the freeze of the account's organisation. */
  unfrozen(): AccountNow {
    return this.with({ freeze: "none" });
  }

  /** Closes the account for good. It must have no amounts. */
  closed(): AccountNow {
    return this.with({ closed: true });
  }

  /** Sets metadata, the alias and the guardian. */
  labelled(labels: Labels): AccountNow {
    known(labels, "a label", ["metadata", "index", "alias", "guardian"]);
    const found = new Map(this.terms.metadata.map((each) => [each.key, each]));
    for (const [key, value] of Object.entries(labels.metadata ?? {})) {
      const indexed = found.get(key)?.indexed ?? false;
      if (value) found.set(key, { key, value, indexed });
      else found.delete(key);
    }
    for (const key of labels.index ?? []) {
      const each = found.get(key);
      if (!each) {
        throw new RangeError(
          `${this.account} has no metadatum ${key} to be found by: give it a value first`,
        );
      }
      found.set(key, { ...each, indexed: true });
    }
    const metadata = [...found.values()].sort((a, b) => (a.key < b.key ? -1 : 1));
    const guardian = labels.guardian ?? this.terms.guardian;
    const changed = this.with({ metadata, guardian });
    return new AccountNow({ ...changed, alias: labels.alias ?? this.alias });
  }
}

/** What counts against the velocity of a limit: the newest quarter of its time, and amounts. */
export interface Spent {
  slot: bigint;
  amounts: bigint[];
}

/** What a chain keeps of the terms of an account, as a proof of a balance has it. */
export interface Standing {
  revision: bigint; // how often the terms were changed
  guarded: bigint; // how often guardians did
  terms: AccountTerms;
  spent: (Spent | undefined)[]; // of each limit, if it has a velocity
}

/** Takes what a chain keeps of the terms of an account from a reader. */
export function readStanding(r: Reader): Standing {
  const [revision, terms] = [r.uvarint(), readAccountTerms(r)];
  const spent = terms.limits.map((limit) =>
    limit.velocity
      ? { slot: r.uvarint(), amounts: Array.from({ length: SLOTS }, () => r.amount()) }
      : undefined,
  );
  let guarded = 0n;
  if (r.left) {
    // The count is there only if there were any.
    guarded = r.uvarint();
    if (!guarded) throw new MalformedError("no changes by guardians, and counted");
  }
  if (!revision || guarded > revision) {
    throw new MalformedError(`${revision} changes of terms, ${guarded} of them by guardians`);
  }
  return { revision, guarded, terms, spent };
}
