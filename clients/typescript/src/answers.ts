// The answers of a node, with types.
//
// Fields of an answer that are not known here are ignored, as usual in protobuf: a node of a later
// version may say more. A field of another type is a TypeError, which the client tells as
// MalformedAnswer.

import { equal, fixed, fromBase64, fromHex, HASH_SIZE } from "./codec.js";
import { Hold } from "./hold.js";
import { DECIMALS_MAX, DEFAULT_ASSET, organisationOf } from "./names.js";
import { blockHash, decodeHeader } from "./proof.js";
import { type Period, Schedule } from "./schedule.js";
import {
  type AccountLimit,
  type AccountTerms,
  encodeAccountTerms,
  FREEZES,
  type Freeze,
} from "./terms.js";

const STATES = ["pending", "ordered", "stored", "durable"];

/** How far a submission waits. */
export type Level = "admitted" | "ordered" | "stored" | "durable" | "durable_everywhere";

/** A message of the API as JSON has it. */
export type Json = { [name: string]: unknown };

/** How far a transaction is; `state` is "" if the node does not know it. */
export interface Status {
  id: Uint8Array;
  state: string;
  height: bigint;
  index: number;
  reasonCode: string; // a stable word for why it failed, such as insufficient_funds
  reason: string;
  shard: number;
  destinations: number[];
  everywhere: boolean;
}

/** Reports whether a transaction has reached the level. */
export function reached(status: Status, level: Level): boolean {
  if (level === "durable_everywhere") {
    return status.state === "durable" && (status.everywhere || status.destinations.length < 2);
  }
  const wanted = level === "admitted" ? 0 : STATES.indexOf(level);
  return STATES.indexOf(status.state) >= wanted;
}

/** An account and its balances after a block. */
export interface Account {
  account: string;
  alias: string;
  issuer: boolean;
  height: bigint;
  shard: number;
  balances: Balance[];
  revision: bigint; // how often its terms were changed; 0 without terms
  guarded: bigint; // how often guardians did
  terms: AccountTerms;
}

/** A hold that is open, as a node says: it was not posted or voided, and has not expired. */
export interface OpenHold {
  id: Uint8Array;
  account: string;
  asset: string;
  amount: bigint;
  to: string[];
  poster: string;
  expires: bigint; // in milliseconds since 1970
  ending: Uint8Array; // the transaction that waits for other shards and will end it, or empty
  posted: bigint; // what that one posts
  shard: number;
  decimals: number; // of its asset
}

/** A place in a shard's chain. A cut has one for each shard. */
export interface Place {
  height: bigint;
  entries: number;
  carried: bigint;
  streamed: bigint[];
}

/** A place in a chart of accounts: an account, or what begins the paths of accounts. */
export interface ChartLine {
  path: string;
  depth: number; // the number of parts of the path
  account: boolean; // whether an account has this path
  accounts: number; // how many there are with this path and below it
  totals: Map<string, bigint>; // the sums over all of them, by asset
}

/** An amount of an asset, and what waits for other shards. */
export interface Balance {
  asset: string;
  amount: bigint;
  setAside: bigint;
  incoming: bigint;
}

/** Returns how much an account has of an asset. */
export function balance(account: Account, asset: string = DEFAULT_ASSET): bigint {
  return account.balances.find((each) => each.asset === asset)?.amount ?? 0n;
}

/** A transaction that changed an account. */
export interface HistoryEntry {
  id: Uint8Array;
  height: bigint;
  index: number;
  time: bigint; // in milliseconds since 1970
  changes: Balance[];
  note: string;
}

/** A block without its transactions. `canonical` has the bytes that decodeHeader takes. */
export interface BlockHeader {
  height: bigint;
  hash: Uint8Array;
  previous: Uint8Array;
  time: bigint; // in milliseconds since 1970
  transactions: number;
  failed: number;
  shard: number;
  canonical: Uint8Array;
}

export function text(value: unknown = ""): string {
  if (typeof value !== "string") throw new TypeError("a field that is no text");
  return value;
}

export function whole(value: unknown = 0): bigint {
  if (typeof value === "number" && Number.isSafeInteger(value)) return BigInt(value);
  if (typeof value === "string" && /^(-?[0-9]+)?$/.test(value)) return BigInt(value);
  throw new TypeError("a field that is no integer");
}

function flag(value: unknown = false): boolean {
  if (typeof value !== "boolean") throw new TypeError("a field that is no boolean");
  return value;
}

export function list(value: unknown = []): unknown[] {
  if (!Array.isArray(value)) throw new TypeError("a field that is no list");
  return value;
}

export function part(value: unknown = {}): Json {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new TypeError("a field that is no message");
  }
  return value as Json;
}

export function word(value: unknown, prefix: string): string {
  return text(value).replace(prefix, "").toLowerCase();
}

function balanceOf(found: unknown): Balance {
  const each = part(found);
  return {
    asset: text(each["asset"]),
    amount: whole(each["amount"]),
    setAside: whole(each["setAside"]),
    incoming: whole(each["incoming"]),
  };
}

export function accountOf(found: Json): Account {
  return {
    account: text(found["account"]),
    alias: text(found["alias"]),
    issuer: flag(found["issuer"]),
    height: whole(found["height"]),
    shard: Number(whole(found["shard"])),
    balances: list(found["balances"]).map(balanceOf),
    revision: whole(found["revision"]),
    guarded: whole(found["guarded"]),
    terms: termsOf(part(found["terms"])),
  };
}

function limitOf(value: unknown): AccountLimit {
  const found = part(value);
  const limit: AccountLimit = { asset: text(found["asset"]) };
  const [floor, ceiling] = [text(found["floor"]), text(found["ceiling"])];
  if (floor) limit.floor = whole(floor);
  if (ceiling) limit.ceiling = whole(ceiling);
  if (text(found["velocity"])) {
    const seconds = Number(whole(found["velocitySeconds"]));
    limit.velocity = { amount: whole(found["velocity"]), seconds };
  }
  return limit;
}

function termsOf(found: Json): AccountTerms {
  const terms = {
    noDebits: flag(found["noDebits"]),
    noCredits: flag(found["noCredits"]),
    freeze: (text(found["freeze"]) || FREEZES[0]) as Freeze,
    closed: flag(found["closed"]),
    guardian: text(found["guardian"]),
    limits: list(found["limits"]).map(limitOf),
    metadata: list(found["metadata"]).map((value) => {
      const each = part(value);
      const indexed = flag(each["indexed"]);
      return { key: text(each["key"]), value: text(each["value"]), indexed };
    }),
  };
  encodeAccountTerms(terms); // which checks names and bounds
  return terms;
}

export function openHoldOf(found: Json): OpenHold {
  const said = part(found["hold"]);
  const hold = {
    account: text(said["account"]),
    asset: text(said["asset"]) || DEFAULT_ASSET,
    amount: whole(said["amount"]),
    to: list(said["to"]).map(text),
    poster: text(said["poster"]),
    expires: whole(said["expiresMs"]),
  };
  const nonce = { ledger: new Uint8Array(HASH_SIZE), stream: 0n, sequence: 0n };
  // This checks names and bounds.
  new Hold({ ...hold, ...nonce, signer: organisationOf(hold.account) }).encode();
  const decimals = Number(whole(found["decimals"]));
  if (decimals < 0 || decimals > DECIMALS_MAX) throw new TypeError(`${decimals} decimals`);
  return {
    id: fixed(fromHex(text(found["holdHex"])), HASH_SIZE, "the id of a hold"),
    ...hold,
    ending: fromHex(text(found["endingHex"])),
    posted: whole(found["posted"]),
    shard: Number(whole(found["shard"])),
    decimals,
  };
}

/** A schedule with occurrences to come, as a node says. */
export interface OpenSchedule {
  id: Uint8Array;
  schedule: Schedule; // what it says; its nonce and deadline are not known, so its id is another
  issued: number; // occurrences that blocks have
  next: bigint; // the time of the next one, in milliseconds since 1970
}

export function openScheduleOf(found: Json): OpenSchedule {
  const said = part(found["schedule"]);
  const postings = list(said["postings"]).map((each) => {
    const posting = part(each);
    return {
      account: text(posting["account"]),
      asset: text(posting["asset"]) || DEFAULT_ASSET,
      amount: whole(posting["amount"]),
    };
  });
  const schedule = new Schedule({
    ledger: new Uint8Array(HASH_SIZE),
    signer: text(found["signer"]),
    stream: 0n,
    sequence: 0n,
    postings,
    first: whole(said["firstMs"]),
    period: (text(said["period"]) || "once") as Period,
    every: Number(whole(said["every"])),
    count: Number(whole(said["count"])),
    until: whole(said["untilMs"]),
    shard: Number(whole(said["shard"])),
    note: text(found["note"]),
  });
  schedule.encode(); // which checks names and bounds
  const issued = Number(whole(found["issued"]));
  if (issued < 0 || issued >= schedule.occurrences()) {
    throw new TypeError(`${issued} occurrences of ${schedule.occurrences()} were issued`);
  }
  return {
    id: fixed(fromHex(text(found["scheduleHex"])), HASH_SIZE, "the id of a schedule"),
    schedule,
    issued,
    next: schedule.timeOf(issued + 1),
  };
}

export function placeOf(value: unknown): Place {
  const found = part(value);
  return {
    height: whole(found["height"]),
    entries: Number(whole(found["entries"])),
    carried: whole(found["carried"]),
    streamed: list(found["streamed"]).map(whole),
  };
}

export function historyEntryOf(found: Json): HistoryEntry {
  return {
    id: fromHex(text(found["transactionIdHex"])),
    height: whole(found["height"]),
    index: Number(whole(found["index"])),
    time: whole(found["timeMs"]),
    changes: list(found["changes"]).map(balanceOf),
    note: text(found["note"]),
  };
}

// The canonical bytes have the hash. The moment, the failures and the shard are the node's word.
export function blockHeaderOf(found: Json): BlockHeader {
  const canonical = fromBase64(text(found["canonical"]));
  const [header, hash] = [decodeHeader(canonical), fromBase64(text(found["hash"]))];
  if (!equal(blockHash(canonical), hash) || header.height !== whole(found["height"])) {
    throw new TypeError("a block with the header of another one");
  }
  return {
    height: header.height,
    hash,
    previous: header.previous,
    time: whole(found["timeMs"]),
    transactions: header.transactions,
    failed: Number(whole(found["failedCount"])),
    shard: Number(whole(found["shard"])),
    canonical,
  };
}

export function statusOf(found: Json): Status {
  return {
    id: found["idHex"] ? fromHex(text(found["idHex"])) : fromBase64(text(found["id"])),
    state: word(found["state"], "TRANSACTION_STATE_").replace("unspecified", ""),
    height: whole(found["height"]),
    index: Number(whole(found["index"])),
    reasonCode: text(found["reasonCode"]),
    reason: text(found["reason"]),
    shard: Number(whole(found["shard"])),
    destinations: list(found["destinations"]).map((each) => Number(whole(each))),
    everywhere: flag(found["everywhere"]),
  };
}
