// Holds: an amount of an account that is set aside for others, and how it ends. docs/holds.md says
// what a hold is. The id of a hold is that of the transaction that placed it.

import {
  amount,
  bigint,
  concat,
  elements,
  fixed,
  HASH_SIZE,
  known,
  MalformedError,
  Reader,
  string,
  uvarint,
} from "./codec.js";
import { encodeHead, HEAD, readHead, type TransactionHead } from "./head.js";
import * as names from "./names.js";
import {
  encodeNote,
  encodePosting,
  type Posting,
  TIME_LIMIT,
  transactionId,
  VERSION_HOLD,
  VERSION_HOLD_END,
} from "./transaction.js";

export type { TransactionHead } from "./head.js";

/** What a hold says; what is not given is empty. */
export interface HoldParts extends TransactionHead {
  account: string; // of the signer
  amount: bigint;
  to: string[]; // the accounts that it may be posted to, ascending
  poster: string; // the organisation that may post or void it
  expires: bigint; // in milliseconds since 1970
  asset?: string;
  note?: string;
}

const HOLD = [...HEAD, "account", "amount", "to", "poster", "expires", "asset", "note"];
const HOLD_END = [...HEAD, "hold", "account", "postings", "note"];

/** A transaction that sets an amount of an account of its signer aside, until the hold ends. */
export class Hold {
  constructor(readonly parts: HoldParts) {}

  /** Returns the body: the canonical bytes. Throws MalformedError. */
  encode(): Uint8Array {
    const p = known(this.parts, "a hold", HOLD);
    this.#check();
    return concat(
      encodeHead(VERSION_HOLD, p),
      string(names.path(p.account)),
      string(names.asset(p.asset ?? names.DEFAULT_ASSET)),
      amount(p.amount),
      elements(p.to.map((each) => string(names.path(each)))),
      string(names.organisation(p.poster)),
      uvarint(p.expires),
      encodeNote(p.note ?? ""),
    );
  }

  #check(): void {
    const { account, signer, to, expires } = this.parts;
    if (names.organisationOf(names.path(account)) !== signer) {
      throw new MalformedError(
        `a hold on ${account} by ${signer}: the organisation of the account signs`,
      );
    }
    if (bigint(this.parts.amount, "an amount") <= 0n) {
      throw new MalformedError(`a hold of ${this.parts.amount}: an amount above 0`);
    }
    if (to.length < 1 || to.length > names.HOLD_ACCOUNTS_MAX) {
      throw new MalformedError(
        `a hold for ${to.length} accounts, 1 to ${names.HOLD_ACCOUNTS_MAX} allowed`,
      );
    }
    if (to.includes(account)) throw new MalformedError("a hold for its own account: name others");
    if (to.some((each, i) => i > 0 && to[i - 1]! >= each)) {
      throw new MalformedError("the accounts of a hold out of order: ascending, and each once");
    }
    if (bigint(expires, "an expiry") <= 0n || expires >= TIME_LIMIT) {
      throw new MalformedError(
        `a hold that expires at ${expires}: name a time in milliseconds since 1970`,
      );
    }
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
  static decode(body: Uint8Array): Hold {
    const r = new Reader(body);
    if (r.byte() !== VERSION_HOLD) throw new MalformedError("the transaction places no hold");
    const path = () => r.text("bytes of account", names.PATH_MAX);
    const parts = {
      ...readHead(r),
      account: path(),
      asset: r.text("bytes of asset", names.ASSET_MAX),
      amount: r.amount(),
      to: r.list("accounts", names.HOLD_ACCOUNTS_MAX, 1, path),
      poster: r.text("bytes of organisation", names.ORGANISATION_MAX),
      expires: r.uvarint(),
      note: r.text("bytes of note", names.NOTE_MAX),
    };
    r.end();
    const hold = new Hold(parts);
    hold.encode(); // which checks names and bounds
    return hold;
  }
}

/** What the end of a hold says. Without postings the hold is voided. */
export interface HoldEndParts extends TransactionHead {
  hold: Uint8Array; // its id
  account: string; // its account
  postings?: Posting[]; // the first takes from the account, the others give
  note?: string;
}

/** A transaction with which the poster of a hold posts or voids it. */
export class HoldEnd {
  constructor(readonly parts: HoldEndParts) {}

  /** Returns the body: the canonical bytes. Throws MalformedError. */
  encode(): Uint8Array {
    const p = known(this.parts, "the end of a hold", HOLD_END);
    const postings = p.postings ?? [];
    this.#check(postings);
    return concat(
      encodeHead(VERSION_HOLD_END, p),
      fixed(p.hold, HASH_SIZE, "an id"),
      string(names.path(p.account)),
      elements(postings.map(encodePosting)),
      encodeNote(p.note ?? ""),
    );
  }

  #check(postings: Posting[]): void {
    const [first] = postings;
    if (!first) return;
    const { account } = this.parts;
    const most = names.HOLD_ACCOUNTS_MAX + 1;
    if (postings.length < 2 || postings.length > most || first.account !== account) {
      throw new MalformedError(
        `a hold is posted from its account ${account} to 1 to ${names.HOLD_ACCOUNTS_MAX} others`,
      );
    }
    const asset = (each: Posting) => each.asset ?? names.DEFAULT_ASSET;
    postings.forEach((each, i) => {
      const takes = bigint(each.amount, "an amount") < 0n;
      if (
        asset(each) !== asset(first) ||
        takes !== (i === 0) ||
        each.amount === 0n ||
        (i > 0 && each.account === account)
      ) {
        throw new MalformedError(
          `posting ${i + 1} of a hold's end: the first one takes from the hold's account, and ` +
            "the others give to other accounts, all in one asset",
        );
      }
    });
  }

  /** Returns the id: the hash of the body. */
  id(): Uint8Array {
    return transactionId(this.encode());
  }

  /** Returns who has to sign: the signer. The holder consented with the hold. */
  consents(): Set<string> {
    return new Set([this.parts.signer]);
  }

  /** Decodes a body, or throws MalformedError. */
  static decode(body: Uint8Array): HoldEnd {
    const r = new Reader(body);
    if (r.byte() !== VERSION_HOLD_END) throw new MalformedError("the transaction ends no hold");
    const path = () => r.text("bytes of account", names.PATH_MAX);
    const parts = {
      ...readHead(r),
      hold: r.hash(),
      account: path(),
      postings: r.list("postings", names.HOLD_ACCOUNTS_MAX + 1, 3, () => ({
        account: path(),
        asset: r.text("bytes of asset", names.ASSET_MAX),
        amount: r.amount(),
      })),
      note: r.text("bytes of note", names.NOTE_MAX),
    };
    r.end();
    const end = new HoldEnd(parts);
    end.encode(); // which checks names and bounds
    return end;
  }
}

/** What a hold is posted for: all of it, an amount, or what each of its accounts gets. */
export type Shares = bigint | { [account: string]: bigint } | undefined;

/**
 * Returns the postings that give what a hold is posted for. Without accounts the hold has to name
 * one only. Throws RangeError for what the hold does not allow.
 */
export function sharesOf(hold: Hold, shares?: Shares): Posting[] {
  const { account, to, amount: most, asset = names.DEFAULT_ASSET } = hold.parts;
  if (shares === undefined || typeof shares === "bigint") {
    if (to.length > 1) {
      throw new RangeError(`say how much each of ${to.join(", ")} gets, as { account: amount }`);
    }
    shares = { [to[0]!]: shares ?? most };
  }
  if (typeof shares !== "object" || shares === null) {
    throw new RangeError(`what is posted is a bigint, or { account: bigint }, not ${shares}`);
  }
  const gets = Object.entries(shares);
  if (!gets.length) throw new RangeError("voidHold is for a hold that nothing is posted of");
  for (const [name, value] of gets) {
    if (!to.includes(name)) {
      throw new RangeError(`the hold cannot be posted to ${name}, only to ${to.join(", ")}`);
    }
    if (typeof value !== "bigint" || value <= 0n) {
      throw new RangeError(`an amount of ${value} for ${name}: a bigint above 0, or leave it out`);
    }
  }
  const total = gets.reduce((sum, [, value]) => sum + value, 0n);
  if (total > most) {
    throw new RangeError(`the hold is of ${most}, and ${total} cannot be posted`);
  }
  return [
    { account, asset, amount: -total },
    ...gets.map(([name, value]) => ({ account: name, asset, amount: value })),
  ];
}
