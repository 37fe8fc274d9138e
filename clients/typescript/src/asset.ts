// Registered assets: the transaction that registers or changes one, and amounts with decimals.

import {
  amount,
  AMOUNT_MAX,
  AMOUNT_MIN,
  boolean,
  concat,
  elements,
  fixed,
  HASH_SIZE,
  known,
  MalformedError,
  Reader,
  string,
  uint,
  uvarint,
} from "./codec.js";
import * as names from "./names.js";
import { encodeNote, transactionId, VERSION_ASSET } from "./transaction.js";

const SUPPLIES = ["unlimited", "capped", "fixed"] as const;

/** An organisation that may issue an asset, up to its allowance if the supply has a bound. */
export interface Issuer {
  organisation: string;
  allowance?: bigint;
  withdrawn?: boolean;
}

/** What an asset's registration says; what is not given is empty. */
export interface AssetTerms {
  ledger: Uint8Array;
  signer: string;
  stream: bigint;
  sequence: bigint;
  asset: string;
  number?: bigint; // 1, or one above the number that the replaced terms have
  decimals?: number;
  supply?: (typeof SUPPLIES)[number];
  cap?: bigint;
  closed?: boolean;
  issuers?: Issuer[]; // by their names
  note?: string;
}

const ASSET = [
  ...["ledger", "signer", "stream", "sequence", "asset", "number", "decimals", "supply", "cap"],
  ...["closed", "issuers", "note"],
];

function encodeIssuer(each: Issuer): Uint8Array {
  known(each, "an issuer", ["organisation", "allowance", "withdrawn"]);
  const [organisation, allowance] = [string(each.organisation), amount(each.allowance ?? 0n)];
  return concat(organisation, allowance, boolean(each.withdrawn ?? false));
}

/** Takes the terms of an asset, as its registration and the state of a chain have them. */
export function readTerms(r: Reader) {
  const [decimals, kind] = [r.byte(), r.byte()];
  const supply = SUPPLIES[kind];
  if (!supply) throw new MalformedError(`a supply of kind ${kind}`);
  const [cap, closed] = [r.amount(), r.boolean()];
  const issuers = r.list("issuers", names.ISSUERS_MAX, 3, () => ({
    organisation: r.text("bytes of organisation", names.ORGANISATION_MAX),
    allowance: r.amount(),
    withdrawn: r.boolean(),
  }));
  checkTerms({ decimals, supply, cap, issuers });
  return { decimals, supply, cap, closed, issuers };
}

// Throws MalformedError unless an asset may have the terms.
function checkTerms(terms: Pick<AssetTerms, "decimals" | "supply" | "cap" | "issuers">): void {
  const { decimals = 0, supply = "unlimited", cap = 0n, issuers = [] } = terms;
  if (decimals > names.DECIMALS_MAX) throw new MalformedError(`${decimals} decimals`);
  if (cap < 0n || (cap && supply === "unlimited")) throw new MalformedError(`a cap of ${cap}`);
  if (issuers.length > names.ISSUERS_MAX) throw new MalformedError(`${issuers.length} issuers`);
  issuers.forEach((each, i) => {
    names.organisation(each.organisation);
    if ((each.allowance ?? 0n) < 0n) {
      throw new MalformedError(`an allowance of ${each.allowance}`);
    }
    const before = issuers[i - 1];
    if (before && before.organisation >= each.organisation) {
      throw new MalformedError("issuers out of order");
    }
  });
  if (issuers.reduce((sum, each) => sum + (each.allowance ?? 0n), 0n) > cap) {
    throw new MalformedError("the allowances add up to more than the cap");
  }
}

/**
 * Registers an asset, or replaces its terms. Amounts are integers of the smallest unit. Decimals
 * say only how they are written.
 */
export class AssetChange {
  constructor(readonly terms: AssetTerms) {}

  /** Returns the body: the canonical bytes. Throws MalformedError. */
  encode(): Uint8Array {
    const { number = 1n, decimals = 0, supply = "unlimited", cap = 0n, issuers = [] } = this.terms;
    const t = known(this.terms, "an asset", ASSET);
    if (t.asset === names.DEFAULT_ASSET) {
      throw new MalformedError(`${t.asset} is the asset of amounts that name none`);
    }
    if (number < 1n) throw new MalformedError("a change of an asset has a number above 0");
    checkTerms(t);
    return concat(
      Uint8Array.of(VERSION_ASSET),
      fixed(t.ledger, HASH_SIZE, "a ledger"),
      string(names.organisation(t.signer)),
      uvarint(t.stream),
      uvarint(t.sequence),
      string(names.asset(t.asset)),
      uvarint(number),
      uint(decimals, 1),
      uint(SUPPLIES.indexOf(supply), 1),
      amount(cap),
      boolean(t.closed ?? false),
      elements(issuers.map(encodeIssuer)),
      encodeNote(t.note ?? ""),
    );
  }

  /** Returns the id: the hash of the body. */
  id(): Uint8Array {
    return transactionId(this.encode());
  }

  /** Decodes a body, or throws MalformedError. */
  static decode(body: Uint8Array): AssetChange {
    const r = new Reader(body);
    if (r.byte() !== VERSION_ASSET) throw new MalformedError("the transaction changes no asset");
    const [ledger, signer] = [r.hash(), r.text("bytes of organisation", names.ORGANISATION_MAX)];
    const [stream, sequence] = [r.uvarint(), r.uvarint()];
    const [asset, number] = [r.text("bytes of asset", names.ASSET_MAX), r.uvarint()];
    const terms = readTerms(r);
    const note = r.text("bytes of note", names.NOTE_MAX);
    r.end();
    const nonce = { stream, sequence };
    const change = new AssetChange({ ledger, signer, ...nonce, asset, number, ...terms, note });
    change.encode(); // which checks names and bounds
    return change;
  }
}

/** Returns an amount as it is written with this many decimals: 1250 with two is 12.50. */
export function decimal(value: bigint, decimals: number): string {
  const sign = value < 0n ? "-" : "";
  const digits = String(value < 0n ? -value : value).padStart(decimals + 1, "0");
  if (!decimals) return sign + digits;
  return `${sign}${digits.slice(0, -decimals)}.${digits.slice(-decimals)}`;
}

/** Returns the amount that a text says, or throws MalformedError. Nothing is ever rounded. */
export function parseDecimal(text: string, decimals: number): bigint {
  const [all, sign = "", whole = "", fraction = ""] =
    /^(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?$/.exec(text) ?? [];
  const shown = JSON.stringify(text.slice(0, 60));
  if (all === undefined) throw new MalformedError(`${shown} is no amount`);
  if (fraction.length > decimals) {
    throw new MalformedError(`${shown} has more than ${decimals} decimals: nothing is rounded`);
  }
  const long = whole.length + decimals > 40;
  const value = long ? 0n : BigInt(sign + whole + fraction.padEnd(decimals, "0"));
  if (long || value < AMOUNT_MIN || value > AMOUNT_MAX || (sign && !value)) {
    throw new MalformedError(`${shown} is no amount of 128 bits`);
  }
  return value;
}
