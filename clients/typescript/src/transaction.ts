// Transactions: their canonical bytes (the body) and their ids.

import {
  amount,
  boolean,
  concat,
  domain,
  elements,
  fixed,
  hex,
  HASH_SIZE,
  KEY_SIZE,
  known,
  MalformedError,
  Reader,
  sha256,
  string,
  uint,
  utf8,
  uvarint,
} from "./codec.js";
import * as names from "./names.js";

export const VERSION = 1;
export const VERSION_MEMBERSHIP = 2;
export const VERSION_POLICY = 4;
export const VERSION_CHARTER = 5;
export const VERSION_CHARTER_LAST = 7;
export const VERSION_PACKED = 8;
export const VERSION_DEADLINE = 9;
export const VERSION_CANCELLATION = 10;
export const VERSION_BOOK = 11;
export const VERSION_ASSET = 13;
export const VERSION_HOLD = 14;
export const VERSION_HOLD_END = 15;
export const VERSION_ACCOUNT = 16;
export const VERSION_DETAILS = 17;
export const VERSION_SCHEDULE = 18;
export const VERSION_SCHEDULE_END = 19;
export const VERSION_OCCURRENCE = 20;
/** Of the newest kind of body that proofs may have: an occurrence of a schedule. */
export const VERSION_LAST = 20;
/** Times are below this. */
export const TIME_LIMIT = 1n << 63n;

const ID_DOMAIN = domain("ledgerd/transaction/1");

/** Returns the id of a transaction, by its body. */
export function transactionId(body: Uint8Array): Uint8Array {
  return sha256(ID_DOMAIN, body);
}

/** Registers an organisation with its keys, and pins it to a shard if one is given. */
export interface Registration {
  organisation: string;
  keys: Uint8Array[];
  shard?: number;
}

/** Opens an account. The balances of an issuer may go below zero. */
export interface Opening {
  account: string;
  issuer?: boolean;
  alias?: string;
}

/** Adds an amount, which may be below zero, to an account. */
export interface Posting {
  account: string;
  amount: bigint;
  asset?: string;
}

/** Writes a value under a key of an organisation. */
export interface Record {
  key: string;
  value: Uint8Array;
}

function encodeRegistration(each: Registration): Uint8Array {
  known(each, "a registration", ["organisation", "keys", "shard"]);
  names.organisation(each.organisation);
  const keys = each.keys.map((key) => fixed(key, KEY_SIZE, "a key"));
  if (keys.length < 1 || keys.length > names.KEYS_MAX) {
    throw new MalformedError(`an organisation has 1 to ${names.KEYS_MAX} keys`);
  }
  if (new Set(keys.map(hex)).size !== keys.length) throw new MalformedError("a key twice");
  const shard = each.shard ?? 0;
  if (shard >= 2 ** 32) throw new MalformedError(`shard ${shard}`);
  return concat(
    string(each.organisation),
    elements(keys),
    boolean(each.shard !== undefined),
    uvarint(shard),
  );
}

function readRegistration(r: Reader): Registration {
  const found: Registration = {
    organisation: r.text("bytes of organisation", names.ORGANISATION_MAX),
    keys: r.list("keys", names.KEYS_MAX, KEY_SIZE, () => r.take(KEY_SIZE)),
  };
  const [pinned, shard] = [r.boolean(), r.uvarint32()];
  if (!pinned && shard) throw new MalformedError("a shard that is not pinned");
  if (pinned) found.shard = shard;
  encodeRegistration(found);
  return found;
}

function encodeOpening(each: Opening): Uint8Array {
  known(each, "an opening", ["account", "issuer", "alias"]);
  return concat(
    string(names.path(each.account)),
    boolean(each.issuer ?? false),
    string(names.alias(each.alias ?? "")),
  );
}

export function encodePosting(each: Posting): Uint8Array {
  known(each, "a posting", ["account", "amount", "asset"]);
  const asset = names.asset(each.asset ?? names.DEFAULT_ASSET);
  return concat(string(names.path(each.account)), string(asset), amount(each.amount));
}

function encodeRecord(each: Record): Uint8Array {
  known(each, "a record", ["key", "value"]);
  if (each.value.length > names.RECORD_VALUE_MAX) {
    throw new MalformedError(
      `a record's value of ${each.value.length} bytes, at most ${names.RECORD_VALUE_MAX} allowed`,
    );
  }
  return concat(string(names.path(each.key)), string(each.value));
}

export function encodeNote(text: string): Uint8Array {
  const encoded = utf8(text);
  if (encoded.length > names.NOTE_MAX) {
    throw new MalformedError(`a note of ${encoded.length} bytes, at most ${names.NOTE_MAX}`);
  }
  return string(encoded);
}

function group<T>(what: string, most: number, found: T[], encode: (each: T) => Uint8Array) {
  if (found.length > most) {
    throw new MalformedError(`${found.length} ${what}, at most ${most} allowed`);
  }
  return elements(found.map(encode));
}

/** The entry that an entry refunds, and the organisation that signed it. */
export interface Refund {
  entry: Uint8Array;
  organisation: string;
}

/**
 * What an entry says of itself beyond its postings. Times are milliseconds since 1970. Of the
 * signer's entries with one key at most one takes effect within seven days.
 */
export interface Details {
  effective?: bigint;
  key?: string;
  refundable?: bigint; // until when it can be refunded
  refund?: Refund;
}

function encodeDetails(each: Details, postings: Posting[]): Uint8Array {
  const effective = each.effective ?? 0n;
  const key = each.key ?? "";
  const refundable = each.refundable ?? 0n;
  if (effective < 0n || effective > names.EFFECTIVE_MAX) {
    throw new MalformedError(`an effective date of ${effective}`);
  }
  if (refundable < 0n || refundable >= TIME_LIMIT || (refundable && each.refund)) {
    throw new MalformedError(`refundable until ${refundable}`);
  }
  if (key.length > names.IDEMPOTENCY_KEY_MAX || !/^[ -~]*$/.test(key)) {
    throw new MalformedError("an idempotency key that is none");
  }
  if (!effective && !key && !refundable && !each.refund) {
    throw new MalformedError("details that are none");
  }
  if (refundable || each.refund) {
    const pairs = new Set(
      postings.map((p) => `${p.account} ${p.asset ?? names.DEFAULT_ASSET}`),
    );
    if (
      postings.length < 2 ||
      postings.length > names.REFUND_POSTINGS_MAX ||
      pairs.size < postings.length ||
      postings.some((p) => p.amount === 0n)
    ) {
      throw new MalformedError("the postings of a refund, or of an entry that can be refunded");
    }
  }
  return concat(
    uvarint(effective),
    string(key),
    uvarint(refundable),
    boolean(each.refund !== undefined),
    each.refund
      ? concat(
          fixed(each.refund.entry, HASH_SIZE, "an entry"),
          string(names.organisation(each.refund.organisation)),
        )
      : new Uint8Array(),
  );
}

function readDetails(r: Reader): Details {
  const details: Details = {
    effective: r.uvarint(),
    key: r.text("bytes of key", names.IDEMPOTENCY_KEY_MAX),
    refundable: r.uvarint(),
  };
  if (r.boolean()) {
    details.refund = {
      entry: r.hash(),
      organisation: r.text("bytes of organisation", names.ORGANISATION_MAX),
    };
  }
  return details;
}

/** What a transaction is made of; what is not given is empty. */
export interface TransactionParts {
  ledger: Uint8Array; // the book: see Genesis.book
  signer: string;
  stream: bigint;
  sequence: bigint;
  lastValid?: bigint;
  deadline?: bigint; // in milliseconds since 1970
  registrations?: Registration[];
  openings?: Opening[];
  postings?: Posting[];
  records?: Record[];
  note?: string;
  details?: Details; // of an entry without registrations
}

/**
 * A client's transaction.
 *
 * The node refuses a transaction whose nonce is not above those before in its stream, and executes
 * one once however often it is submitted. With a deadline no block of that time or later applies
 * it; a transaction that concerns several shards needs one.
 */
export class Transaction implements TransactionParts {
  ledger: Uint8Array;
  signer: string;
  stream: bigint;
  sequence: bigint;
  lastValid: bigint;
  deadline: bigint;
  registrations: Registration[];
  openings: Opening[];
  postings: Posting[];
  records: Record[];
  note: string;
  details?: Details;

  constructor(parts: TransactionParts) {
    this.ledger = parts.ledger;
    this.signer = parts.signer;
    this.stream = parts.stream;
    this.sequence = parts.sequence;
    this.lastValid = parts.lastValid ?? 0n;
    this.deadline = parts.deadline ?? 0n;
    this.registrations = parts.registrations ?? [];
    this.openings = parts.openings ?? [];
    this.postings = parts.postings ?? [];
    this.records = parts.records ?? [];
    this.note = parts.note ?? "";
    this.details = parts.details;
    known(parts, "a transaction", Object.keys(this));
  }

  /** Returns the body: the canonical bytes. Throws MalformedError. */
  encode(): Uint8Array {
    names.organisation(this.signer);
    if (this.details && this.registrations.length > 0) {
      throw new MalformedError("a registration with details");
    }
    if (this.deadline < 0n || this.deadline >= TIME_LIMIT) {
      throw new MalformedError(`a deadline of ${this.deadline}`);
    }
    const body = concat(
      Uint8Array.of(
        this.details ? VERSION_DETAILS : this.deadline ? VERSION_DEADLINE : VERSION,
      ),
      fixed(this.ledger, HASH_SIZE, "a ledger"),
      string(this.signer),
      uvarint(this.stream),
      uvarint(this.sequence),
      uvarint(this.lastValid),
      this.deadline || this.details ? uvarint(this.deadline) : new Uint8Array(),
      this.details
        ? encodeDetails(this.details, this.postings)
        : group("registrations", names.REGISTRATIONS_MAX, this.registrations, encodeRegistration),
      group("openings", names.OPENINGS_MAX, this.openings, encodeOpening),
      group("postings", names.POSTINGS_MAX, this.postings, encodePosting),
      group("records", names.RECORDS_MAX, this.records, encodeRecord),
      encodeNote(this.note),
    );
    if (body.length > names.BODY_MAX) throw new MalformedError(`a body of ${body.length} bytes`);
    return body;
  }

  /** Returns the id: the hash of the body. */
  id(): Uint8Array {
    return transactionId(this.encode());
  }

  /**
   * Returns the organisations that have to sign: the signer, those whose accounts are opened or
   * have something taken, and those whose records are written.
   */
  consents(): Set<string> {
    return new Set([
      this.signer,
      ...this.openings.map((each) => names.organisationOf(each.account)),
      ...this.postings
        .filter((each) => each.amount < 0n)
        .map((each) => names.organisationOf(each.account)),
      ...this.records.map((each) => names.organisationOf(each.key)),
    ]);
  }

  /** Decodes a body, or throws MalformedError. */
  static decode(body: Uint8Array): Transaction {
    if (body.length > names.BODY_MAX) throw new MalformedError(`a body of ${body.length} bytes`);
    const r = new Reader(body);
    const version = r.byte();
    if (version !== VERSION && version !== VERSION_DEADLINE && version !== VERSION_DETAILS) {
      throw new MalformedError(`transaction version ${version} is not a client's`);
    }
    const t = new Transaction({
      ledger: r.hash(),
      signer: r.text("bytes of organisation", names.ORGANISATION_MAX),
      stream: r.uvarint(),
      sequence: r.uvarint(),
      lastValid: r.uvarint(),
    });
    if (version === VERSION_DEADLINE) {
      t.deadline = r.uvarint();
      if (!t.deadline) throw new MalformedError("a deadline of 0");
    }
    if (version === VERSION_DETAILS) {
      t.deadline = r.uvarint();
      t.details = readDetails(r);
    } else {
      t.registrations = r.list("registrations", names.REGISTRATIONS_MAX, 4, () =>
        readRegistration(r),
      );
    }
    t.openings = r.list("openings", names.OPENINGS_MAX, 3, () => ({
      account: r.text("bytes of account", names.PATH_MAX),
      issuer: r.boolean(),
      alias: r.text("bytes of alias", names.ALIAS_MAX),
    }));
    t.postings = r.list("postings", names.POSTINGS_MAX, 3, () => ({
      account: r.text("bytes of account", names.PATH_MAX),
      asset: r.text("bytes of asset", names.ASSET_MAX),
      amount: r.amount(),
    }));
    t.records = r.list("records", names.RECORDS_MAX, 2, () => ({
      key: r.text("bytes of key", names.PATH_MAX),
      value: r.string("bytes of value", names.RECORD_VALUE_MAX),
    }));
    t.note = r.text("bytes of note", names.NOTE_MAX);
    r.end();
    t.encode(); // which checks names and bounds
    return t;
  }
}

/** Makes a transaction that moves a value from one account to another. */
export function transfer(
  parts: TransactionParts,
  from: string,
  to: string,
  value: bigint,
  asset: string = names.DEFAULT_ASSET,
): Transaction {
  const postings = [
    { account: from, amount: -value, asset },
    { account: to, amount: value, asset },
  ];
  return new Transaction({ ...parts, postings });
}

/** Withdraws its signer's consent to another transaction, at one shard. */
export class Cancellation {
  constructor(
    readonly parts: {
      ledger: Uint8Array;
      signer: string;
      stream: bigint;
      sequence: bigint;
      deadline: bigint;
      transaction: Uint8Array;
      shard?: number;
      note?: string;
    },
  ) {}

  /** Returns the body: the canonical bytes. Throws MalformedError. */
  encode(): Uint8Array {
    const head = ["ledger", "signer", "stream", "sequence", "deadline"];
    const p = known(this.parts, "a cancellation", [...head, "transaction", "shard", "note"]);
    const shard = p.shard ?? 0;
    if (p.deadline <= 0n || p.deadline >= TIME_LIMIT || shard >= 2 ** 32) {
      throw new MalformedError("a cancellation names a deadline and a shard");
    }
    return concat(
      Uint8Array.of(VERSION_CANCELLATION),
      fixed(p.ledger, HASH_SIZE, "a ledger"),
      string(names.organisation(p.signer)),
      uvarint(p.stream),
      uvarint(p.sequence),
      uvarint(p.deadline),
      fixed(p.transaction, HASH_SIZE, "an id"),
      uvarint(shard),
      encodeNote(p.note ?? ""),
    );
  }

  id(): Uint8Array {
    return transactionId(this.encode());
  }

  /** Decodes a body, or throws MalformedError. */
  static decode(body: Uint8Array): Cancellation {
    const r = new Reader(body);
    if (r.byte() !== VERSION_CANCELLATION) {
      throw new MalformedError("the transaction cancels nothing");
    }
    const parts = {
      ledger: r.hash(),
      signer: r.text("bytes of organisation", names.ORGANISATION_MAX),
      stream: r.uvarint(),
      sequence: r.uvarint(),
      deadline: r.uvarint(),
      transaction: r.hash(),
      shard: r.uvarint32(),
      note: r.text("bytes of note", names.NOTE_MAX),
    };
    r.end();
    const found = new Cancellation(parts);
    found.encode(); // which checks names and bounds
    return found;
  }
}

/** A node of the group that keeps a chain. */
export interface Member {
  name: string;
  key: Uint8Array;
  address: string;
}

export function encodeMember(member: Member): Uint8Array {
  checkMember(member);
  return concat(string(member.name), string(member.key), string(member.address));
}

/** Throws MalformedError unless a genesis may have the member. */
export function checkMember(member: Member): void {
  names.organisation(member.name);
  if (
    member.key.length > names.MEMBER_KEY_MAX ||
    utf8(member.address).length > names.ADDRESS_MAX
  ) {
    throw new MalformedError(`member ${member.name}: key or address too long`);
  }
}

/** Throws MalformedError unless the member may join a running chain: a genesis is laxer. */
export function checkJoins(member: Member): void {
  checkMember(member);
  fixed(member.key, KEY_SIZE, "a node's key");
  if (!member.address || !names.printable(member.address)) {
    throw new MalformedError("a member's address is printable text");
  }
}

export function readMember(r: Reader): Member {
  const member = {
    name: r.text("bytes of member", names.ORGANISATION_MAX),
    key: r.string("bytes of key", names.MEMBER_KEY_MAX),
    address: r.text("bytes of address", names.ADDRESS_MAX),
  };
  checkMember(member);
  return member;
}

const [JOIN, LEAVE, ADMIT, ENGINE] = [1, 2, 3, 4];
const ADMIT_STREAM = (1n << 64n) - 1n;

/** What a change of the members does. */
export type Change =
  | { kind: "join"; member: Member }
  | { kind: "leave"; index: number }
  | { kind: "admit"; index: number; disk: Uint8Array }
  | { kind: "engine"; engine: string };

/**
 * A change of a chain's members: one joins or leaves, its disk is admitted, or all get an engine.
 * It names the chain, which is the genesis' hash. An operator signs it.
 */
export class MembershipChange {
  constructor(
    readonly chain: Uint8Array,
    readonly stream: bigint,
    readonly sequence: bigint,
    readonly lastValid: bigint,
    readonly change: Change,
    readonly note = "",
  ) {}

  /** Returns the body: the canonical bytes. Throws MalformedError. */
  encode(): Uint8Array {
    return concat(
      Uint8Array.of(VERSION_MEMBERSHIP),
      fixed(this.chain, HASH_SIZE, "a chain"),
      uvarint(this.stream),
      uvarint(this.sequence),
      uvarint(this.lastValid),
      this.#encodeChange(),
      encodeNote(this.note),
    );
  }

  #encodeChange(): Uint8Array {
    const change = this.change;
    if (change.kind === "join") {
      checkJoins(change.member);
      return concat(uint(JOIN, 1), encodeMember(change.member));
    }
    if (change.kind === "engine") {
      return concat(uint(ENGINE, 1), string(names.engine(change.engine)));
    }
    if (change.index < 0 || change.index >= names.MEMBER_INDEXES_MAX) {
      throw new MalformedError(`member ${change.index}`);
    }
    if (change.kind === "leave") return concat(uint(LEAVE, 1), uvarint(change.index));
    if (this.stream !== ADMIT_STREAM || !this.sequence) {
      throw new MalformedError(
        `the nonce of an admission is in stream ${ADMIT_STREAM}, and is the number of the ` +
          "membership that it makes",
      );
    }
    if (!change.disk.some((each) => each !== 0)) {
      throw new MalformedError("an admission of no disk");
    }
    return concat(uint(ADMIT, 1), uvarint(change.index), fixed(change.disk, 16, "a disk"));
  }

  id(): Uint8Array {
    return transactionId(this.encode());
  }

  /** Decodes a body, or throws MalformedError. */
  static decode(body: Uint8Array): MembershipChange {
    const r = new Reader(body);
    if (r.byte() !== VERSION_MEMBERSHIP) {
      throw new MalformedError("the transaction changes no members");
    }
    const [chain, stream, sequence, lastValid] = [r.hash(), r.uvarint(), r.uvarint(), r.uvarint()];
    const kind = r.byte();
    let change: Change;
    if (kind === JOIN) change = { kind: "join", member: readMember(r) };
    else if (kind === LEAVE) change = { kind: "leave", index: r.uvarint32() };
    else if (kind === ADMIT) change = { kind: "admit", index: r.uvarint32(), disk: r.take(16) };
    else if (kind === ENGINE) {
      change = { kind: "engine", engine: r.text("bytes of an engine's name", names.ENGINE_MAX) };
    } else throw new MalformedError(`a change of kind ${kind}`);
    const text = r.text("bytes of note", names.NOTE_MAX);
    r.end();
    const found = new MembershipChange(chain, stream, sequence, lastValid, change, text);
    found.encode(); // which checks names and bounds
    return found;
  }
}
