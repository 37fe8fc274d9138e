// What an organisation, and the operators of a book, ask of signatures: policies and the charter.

import {
  amount,
  boolean,
  concat,
  elements,
  fixed,
  HASH_SIZE,
  hex,
  KEY_SIZE,
  known,
  MalformedError,
  Reader,
  string,
  uint,
  uvarint,
} from "./codec.js";
import { checkChainVersion, checkQuotas, readChainVersion, readQuotas } from "./genesis.js";
import * as names from "./names.js";
import {
  encodeNote,
  transactionId,
  VERSION_CHARTER,
  VERSION_CHARTER_LAST,
  VERSION_POLICY,
} from "./transaction.js";

const VERSION_CHARTER_QUOTAS = 6;

// What a key may sign. The place of a word is its code.
const ROLES = ["all", "open", "post", "read"] as const;

/** What a key may sign. */
export type Role = (typeof ROLES)[number];

/** Asks for more signatures if a transaction takes more than this of an asset. */
export interface Limit {
  asset: string;
  above: bigint;
  signatures: number;
}

/** What a policy says; what is not given is empty. */
export interface PolicyTerms {
  ledger: Uint8Array;
  signer: string;
  stream?: bigint; // a policy takes no nonce: its number keeps it from being executed twice
  sequence?: bigint;
  number: bigint; // one above that of the policy that it replaces
  keys: { key: Uint8Array; role: Role }[];
  threshold: number;
  limits?: Limit[]; // by their assets, then by their amounts
  refuseAssets?: boolean; // all that `assets` does not name
  assets?: string[]; // by their names
  note?: string;
}

const POLICY = [
  ...["ledger", "signer", "stream", "sequence", "number", "keys", "threshold", "limits"],
  ...["refuseAssets", "assets", "note"],
];

/** Replaces the policy of its signer. It does not expire. */
export class PolicyChange {
  constructor(readonly terms: PolicyTerms) {}

  /** Returns the body: the canonical bytes. Throws MalformedError. */
  encode(): Uint8Array {
    const t = known(this.terms, "a policy", POLICY);
    const { limits = [], assets = [], refuseAssets = false } = t;
    checkPolicy(t, limits, assets, refuseAssets);
    return concat(
      Uint8Array.of(VERSION_POLICY),
      fixed(t.ledger, HASH_SIZE, "a ledger"),
      string(names.organisation(t.signer)),
      uvarint(t.stream ?? 0n),
      uvarint(t.sequence ?? 0n),
      uvarint(t.number),
      elements(t.keys.map((each) => concat(each.key, uint(ROLES.indexOf(each.role), 1)))),
      uvarint(t.threshold),
      elements(
        limits.map((each) =>
          concat(string(each.asset), amount(each.above), uvarint(each.signatures)),
        ),
      ),
      boolean(refuseAssets),
      elements(assets.map(string)),
      encodeNote(t.note ?? ""),
    );
  }

  /** Returns the id: the hash of the body. */
  id(): Uint8Array {
    return transactionId(this.encode());
  }

  /** Returns the organisation that has to sign. */
  consents(): Set<string> {
    return new Set([this.terms.signer]);
  }

  /** Decodes a body, or throws MalformedError. */
  static decode(body: Uint8Array): PolicyChange {
    const r = new Reader(body);
    if (r.byte() !== VERSION_POLICY) throw new MalformedError("the transaction changes no policy");
    const change = new PolicyChange({
      ledger: r.hash(),
      signer: r.text("bytes of organisation", names.ORGANISATION_MAX),
      stream: r.uvarint(),
      sequence: r.uvarint(),
      number: r.uvarint(),
      keys: r.list("keys", names.KEYS_MAX, KEY_SIZE + 1, () => ({
        key: r.take(KEY_SIZE),
        role: roleOf(r.byte()),
      })),
      threshold: r.count("signatures", names.KEYS_MAX),
      limits: r.list("limits", names.LIMITS_MAX, 3, () => ({
        asset: r.text("bytes of asset", names.ASSET_MAX),
        above: r.amount(),
        signatures: r.count("signatures", names.KEYS_MAX),
      })),
      refuseAssets: r.boolean(),
      assets: r.list("assets", names.POLICY_ASSETS_MAX, 2, () =>
        r.text("bytes of asset", names.ASSET_MAX),
      ),
      note: r.text("bytes of note", names.NOTE_MAX),
    });
    r.end();
    change.encode(); // which checks names and bounds
    return change;
  }
}

function roleOf(code: number): Role {
  const role = ROLES[code];
  if (!role) throw new MalformedError(`role ${code}`);
  return role;
}

function checkPolicy(
  t: PolicyTerms,
  limits: Limit[],
  assets: string[],
  refuseAssets: boolean,
): void {
  if (t.keys.length < 1 || t.keys.length > names.KEYS_MAX) {
    throw new MalformedError(`an organisation has 1 to ${names.KEYS_MAX} keys`);
  }
  checkDistinct(t.keys.map((each) => each.key), "a key");
  if (t.number < 1n) throw new MalformedError("a change of a policy has a number above 0");
  if (t.threshold < 1) throw new MalformedError(`a threshold of ${t.threshold}`);
  if (limits.length > names.LIMITS_MAX || assets.length > names.POLICY_ASSETS_MAX) {
    throw new MalformedError(
      `at most ${names.LIMITS_MAX} limits and ${names.POLICY_ASSETS_MAX} assets`,
    );
  }
  limits.forEach((each, i) => {
    known(each, "a limit", ["asset", "above", "signatures"]);
    names.asset(each.asset);
    if (each.above < 0n || each.signatures < 1) {
      throw new MalformedError(`a limit above ${each.above} with ${each.signatures} signatures`);
    }
    const before = limits[i - 1];
    if (!before || before.asset < each.asset) return;
    if (before.asset > each.asset || before.above >= each.above) {
      throw new MalformedError("limits out of order");
    }
  });
  const most = Math.max(t.threshold, ...limits.map((each) => each.signatures));
  if (most > t.keys.filter((each) => each.role === "all").length) {
    throw new MalformedError(
      `the policy asks for ${most} signatures, and fewer keys have the role all: it could never ` +
        "be changed again",
    );
  }
  if (!refuseAssets && assets.length) {
    throw new MalformedError("assets that are accepted, in a policy that refuses none");
  }
  assets.forEach((each, i) => {
    const before = assets[i - 1];
    if (before !== undefined && before >= names.asset(each)) {
      throw new MalformedError("assets out of order");
    }
    names.asset(each);
  });
}

function checkDistinct(keys: Uint8Array[], what: string): void {
  if (new Set(keys.map((key) => hex(fixed(key, KEY_SIZE, what)))).size !== keys.length) {
    throw new MalformedError(`${what} twice`);
  }
}

/** What a charter says; what is not given is empty. */
export interface CharterTerms {
  ledger: Uint8Array;
  stream?: bigint; // as for a policy
  sequence?: bigint;
  number: bigint; // one above that of the charter that it replaces
  operators: Uint8Array[];
  threshold: number;
  registrationByOperators: boolean;
  version?: bigint; // of the chains; 0 or 1 leaves it
  quotas?: bigint[]; // streams, accounts, assets, records, pending; or none
  note?: string;
}

const CHARTER = [
  ...["ledger", "stream", "sequence", "number", "operators", "threshold"],
  ...["registrationByOperators", "version", "quotas", "note"],
];

/** Replaces the charter: the operators, and what they ask for. The operators sign it. */
export class CharterChange {
  constructor(readonly terms: CharterTerms) {}

  /** Returns the body: the canonical bytes. Throws MalformedError. */
  encode(): Uint8Array {
    const t = known(this.terms, "a charter", CHARTER);
    const { version = 0n, quotas = [] } = t;
    const count = t.operators.length;
    if (count < 1 || count > names.OPERATORS_MAX) {
      throw new MalformedError(`${count} operators, 1 to ${names.OPERATORS_MAX} allowed`);
    }
    checkDistinct(t.operators, "an operator's key");
    if (t.threshold < 1 || t.threshold > count) {
      throw new MalformedError(`a threshold of ${t.threshold} of ${count}`);
    }
    if (t.number < 1n) throw new MalformedError("a change of the charter has a number above 0");
    checkQuotas(quotas);
    if (version > 1n) checkChainVersion(version);
    let kind = quotas.length ? VERSION_CHARTER_QUOTAS : VERSION_CHARTER;
    if (version > 1n) kind = VERSION_CHARTER_LAST;
    return concat(
      Uint8Array.of(kind),
      fixed(t.ledger, HASH_SIZE, "a ledger"),
      uvarint(t.stream ?? 0n),
      uvarint(t.sequence ?? 0n),
      uvarint(t.number),
      elements(t.operators),
      uvarint(t.threshold),
      boolean(t.registrationByOperators),
      ...(version > 1n ? [uvarint(version), boolean(quotas.length > 0)] : []),
      ...quotas.map(uvarint),
      encodeNote(t.note ?? ""),
    );
  }

  /** Returns the id: the hash of the body. */
  id(): Uint8Array {
    return transactionId(this.encode());
  }

  /** Decodes a body, or throws MalformedError. */
  static decode(body: Uint8Array): CharterChange {
    const r = new Reader(body);
    const kind = r.byte();
    if (kind < VERSION_CHARTER || kind > VERSION_CHARTER_LAST) {
      throw new MalformedError("the transaction changes no charter");
    }
    const terms: CharterTerms = {
      ledger: r.hash(),
      stream: r.uvarint(),
      sequence: r.uvarint(),
      number: r.uvarint(),
      operators: r.list("operators", names.OPERATORS_MAX, KEY_SIZE, () => r.take(KEY_SIZE)),
      threshold: r.count("signatures", names.OPERATORS_MAX),
      registrationByOperators: r.boolean(),
    };
    let bounded = kind === VERSION_CHARTER_QUOTAS;
    if (kind === VERSION_CHARTER_LAST) {
      terms.version = readChainVersion(r);
      bounded = r.boolean();
    }
    if (bounded) terms.quotas = readQuotas(r);
    terms.note = r.text("bytes of note", names.NOTE_MAX);
    r.end();
    const change = new CharterChange(terms);
    change.encode(); // which checks names and bounds
    return change;
  }
}
