// Schedules: entries that the ledger executes by itself at agreed times, and how they end.
// docs/schedules.md says what a schedule is. The id of a schedule is that of the transaction that
// placed it.

import {
  AMOUNT_MAX,
  AMOUNT_MIN,
  bigint,
  concat,
  elements,
  fixed,
  HASH_SIZE,
  known,
  MalformedError,
  Reader,
  string,
  utf8,
  uvarint,
} from "./codec.js";
import { encodeHead, HEAD, readHead, type TransactionHead } from "./head.js";
import * as names from "./names.js";
import {
  encodeNote,
  encodePosting,
  type Posting,
  transactionId,
  VERSION_OCCURRENCE,
  VERSION_SCHEDULE,
  VERSION_SCHEDULE_END,
} from "./transaction.js";

/** The periods between two occurrences, in the order of their numbers. */
export const PERIODS = ["once", "minutes", "days", "weeks", "months"] as const;
export type Period = (typeof PERIODS)[number];

/** What a transaction that places a schedule says; what is not given is empty. */
export interface ScheduleParts extends Omit<TransactionHead, "lastValid"> {
  postings: Posting[]; // all that take are of accounts of the signer
  first: bigint; // the time of the first occurrence, in milliseconds since 1970
  period?: Period; // "once" if it is not given
  every?: number; // so many periods between two occurrences
  count?: number; // at most so many occurrences; 1 if the period is "once"
  until?: bigint; // no occurrence is after this time
  shard?: number; // the root of the book's tree; 0 in a book of one shard
  note?: string; // that of each occurrence
}

const HEAD_OF_SCHEDULE = HEAD.filter((each) => each !== "lastValid");
const SCHEDULE = [
  ...HEAD_OF_SCHEDULE,
  ...["postings", "first", "period", "every", "count", "until", "shard", "note"],
];
const SCHEDULE_END = [...HEAD_OF_SCHEDULE, "schedule", "shard", "note"];
const OCCURRENCE = ["ledger", "signer", "schedule", "number", "time", "postings", "note"];
const DAY = 86_400_000n; // in milliseconds
const SPAN_MAX = 50n * 366n * DAY;
const FIRST_MAX = 1n << 48n;
const UNTIL_MAX = 1n << 49n;
const STEPS = { once: 0n, minutes: 60_000n, days: DAY, weeks: 7n * DAY };

/**
 * Returns the time so many months later: on the same day of the month, or on its last day. A Date
 * has years enough, and UTC has no summer time.
 */
function monthsLater(first: bigint, months: number): bigint {
  const from = new Date(Number(first));
  const month = from.getUTCMonth() + months;
  const last = new Date(0);
  last.setUTCFullYear(from.getUTCFullYear(), month + 1, 0);
  const later = new Date(Number(first % DAY));
  later.setUTCFullYear(
    from.getUTCFullYear(),
    month,
    Math.min(from.getUTCDate(), last.getUTCDate()),
  );
  return BigInt(later.getTime());
}

function integer(value: number, what: string, least: number, most: number): number {
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new MalformedError(`${what} of ${value}: a number of ${least} to ${most}`);
  }
  return value;
}

function note(text: string): Uint8Array {
  const size = utf8(text).length;
  if (size > names.SCHEDULE_NOTE_MAX) {
    throw new MalformedError(
      `a note of ${size} bytes, at most ${names.SCHEDULE_NOTE_MAX} of a schedule`,
    );
  }
  return encodeNote(text);
}

/** Encodes the postings of an occurrence, or throws MalformedError. */
function encodePostings(signer: string, postings: Posting[]): Uint8Array {
  if (postings.length < 2 || postings.length > names.SCHEDULE_POSTINGS_MAX) {
    throw new MalformedError(
      `a schedule of ${postings.length} postings, 2 to ${names.SCHEDULE_POSTINGS_MAX} allowed`,
    );
  }
  const encoded = elements(postings.map(encodePosting));
  const sums = new Map<string, bigint>();
  for (const { account, amount, asset = names.DEFAULT_ASSET } of postings) {
    if (amount < 0n && names.organisationOf(account) !== signer) {
      throw new MalformedError(
        `a schedule of ${signer} that takes from ${account}: its organisation has to place it`,
      );
    }
    const sum = (sums.get(asset) ?? 0n) + amount;
    if (sum < AMOUNT_MIN || sum > AMOUNT_MAX) {
      throw new MalformedError(`the sum of ${asset} is no amount`);
    }
    sums.set(asset, sum);
  }
  for (const [asset, sum] of sums) {
    if (sum !== 0n) throw new MalformedError(`the postings of ${asset} add up to ${sum}, not to 0`);
  }
  return encoded;
}

function readPostings(r: Reader): Posting[] {
  return r.list("postings", names.SCHEDULE_POSTINGS_MAX, 3, () => ({
    account: r.text("bytes of account", names.PATH_MAX),
    asset: r.text("bytes of asset", names.ASSET_MAX),
    amount: r.amount(),
  }));
}

function readHeadOf(r: Reader): Omit<Required<TransactionHead>, "lastValid"> {
  const { lastValid, ...head } = readHead(r);
  if (lastValid !== 0n) throw new MalformedError("a schedule has no last valid height");
  return head;
}

/** Takes a number that fits in 32 bits, such as that of a shard. */
function small(r: Reader, what: string): number {
  const value = r.uvarint();
  if (value >= 1n << 32n) throw new MalformedError(`${what} ${value}`);
  return Number(value);
}

/** A transaction that places a schedule. */
export class Schedule {
  constructor(readonly parts: ScheduleParts) {}

  /** Returns the body: the canonical bytes. Throws MalformedError. */
  encode(): Uint8Array {
    const p = known(this.parts, "a schedule", SCHEDULE);
    this.#check();
    return concat(
      encodeHead(VERSION_SCHEDULE, p),
      uvarint(integer(p.shard ?? 0, "a shard", 0, 2 ** 32 - 1)),
      uvarint(p.first),
      Uint8Array.of(PERIODS.indexOf(this.period)),
      uvarint(p.every ?? 0),
      uvarint(this.#count),
      uvarint(p.until ?? 0n),
      encodePostings(p.signer, p.postings),
      note(p.note ?? ""),
    );
  }

  /** The period, which is "once" if none is given. */
  get period(): Period {
    return this.parts.period ?? "once";
  }

  get #count(): number {
    return this.parts.count ?? (this.period === "once" ? 1 : 0);
  }

  #check(): void {
    const { first, every = 0, until = 0n } = this.parts;
    bigint(first, "a time");
    bigint(until, "a time");
    if (first <= 0n || first > FIRST_MAX || until < 0n || until > UNTIL_MAX) {
      throw new MalformedError(
        `a schedule from ${first} until ${until}: milliseconds since 1970, the first above 0`,
      );
    }
    if (!PERIODS.includes(this.period)) {
      throw new MalformedError(`period ${this.period}, which is none of ${PERIODS.join(", ")}`);
    }
    const count = integer(this.#count, "a count", 0, names.OCCURRENCES_MAX);
    if (this.period === "once") {
      if (every !== 0 || count !== 1 || until !== 0n) {
        throw new MalformedError("a schedule of one occurrence has no every, until or other count");
      }
    } else {
      integer(every, "every", 1, names.SCHEDULE_STEP_MAX);
    }
    const occurrences = this.occurrences();
    if (
      occurrences < 1 ||
      occurrences > names.OCCURRENCES_MAX ||
      this.timeOf(occurrences) - first > SPAN_MAX
    ) {
      throw new MalformedError(
        `a schedule has 1 to ${names.OCCURRENCES_MAX} occurrences within 50 years: say how many ` +
          "with count, or until when",
      );
    }
  }

  /** Returns the time of an occurrence, by its number from 1 on, in milliseconds since 1970. */
  timeOf(number: number): bigint {
    const { first, every = 0 } = this.parts;
    const steps = (number - 1) * every;
    if (this.period === "months") return monthsLater(first, steps);
    return first + BigInt(steps) * STEPS[this.period];
  }

  /** Returns how many occurrences there are, or one more than a schedule may have. */
  occurrences(): number {
    const { until = 0n } = this.parts;
    let [least, most] = [0, this.period === "once" ? 1 : names.OCCURRENCES_MAX + 1];
    if (this.#count > 0) most = Math.min(most, this.#count);
    while (until !== 0n && least < most) {
      // All up to least are in time, and none after most.
      const middle = Math.floor((least + most + 1) / 2);
      if (this.timeOf(middle) <= until) least = middle;
      else most = middle - 1;
    }
    return most;
  }

  /** Returns the times of all occurrences, in milliseconds since 1970. */
  times(): bigint[] {
    return Array.from({ length: this.occurrences() }, (_, i) => this.timeOf(i + 1));
  }

  /** Returns an occurrence, by its number from 1 on. Its id is the one that a block has. */
  occurrence(number: number): Occurrence {
    if (!Number.isInteger(number) || number < 1 || number > this.occurrences()) {
      throw new RangeError(`occurrence ${number} of ${this.occurrences()}`);
    }
    const { ledger, signer, postings, note = "" } = this.parts;
    const time = this.timeOf(number);
    return new Occurrence({ ledger, signer, schedule: this.id(), number, time, postings, note });
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
  static decode(body: Uint8Array): Schedule {
    const r = new Reader(body);
    if (r.byte() !== VERSION_SCHEDULE) {
      throw new MalformedError("the transaction places no schedule");
    }
    const parts = {
      ...readHeadOf(r),
      shard: small(r, "shard"),
      first: r.uvarint(),
      period: periodOf(r.byte()),
      every: small(r, "every"),
      count: small(r, "count"),
      until: r.uvarint(),
      postings: readPostings(r),
      note: r.text("bytes of note", names.SCHEDULE_NOTE_MAX),
    };
    r.end();
    const schedule = new Schedule(parts);
    schedule.encode(); // which checks names and bounds
    return schedule;
  }
}

function periodOf(number: number): Period {
  const period = PERIODS[number];
  if (!period) throw new MalformedError(`period ${number}`);
  return period;
}

/** What a transaction that ends a schedule says. */
export interface ScheduleEndParts extends Omit<TransactionHead, "lastValid"> {
  schedule: Uint8Array; // its id
  shard?: number; // that of the schedule
  note?: string;
}

/** A transaction that ends a schedule of its signer. There are no occurrences after it. */
export class ScheduleEnd {
  constructor(readonly parts: ScheduleEndParts) {}

  /** Returns the body: the canonical bytes. Throws MalformedError. */
  encode(): Uint8Array {
    const p = known(this.parts, "the end of a schedule", SCHEDULE_END);
    return concat(
      encodeHead(VERSION_SCHEDULE_END, p),
      uvarint(integer(p.shard ?? 0, "a shard", 0, 2 ** 32 - 1)),
      fixed(p.schedule, HASH_SIZE, "an id"),
      note(p.note ?? ""),
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
  static decode(body: Uint8Array): ScheduleEnd {
    const r = new Reader(body);
    if (r.byte() !== VERSION_SCHEDULE_END) {
      throw new MalformedError("the transaction ends no schedule");
    }
    const parts = {
      ...readHeadOf(r),
      shard: small(r, "shard"),
      schedule: r.hash(),
      note: r.text("bytes of note", names.SCHEDULE_NOTE_MAX),
    };
    r.end();
    const end = new ScheduleEnd(parts);
    end.encode(); // which checks names and bounds
    return end;
  }
}

/** What an occurrence of a schedule says. */
export interface OccurrenceParts {
  ledger: Uint8Array;
  signer: string;
  schedule: Uint8Array; // the id of its schedule
  number: number; // from 1
  time: bigint; // for which it was scheduled; the block may have a later one
  postings: Posting[];
  note?: string;
}

/** An occurrence of a schedule. Blocks have it without a signature; clients cannot submit it. */
export class Occurrence {
  constructor(readonly parts: OccurrenceParts) {}

  /** Returns the body: the canonical bytes. Throws MalformedError. */
  encode(): Uint8Array {
    const p = known(this.parts, "an occurrence", OCCURRENCE);
    if (bigint(p.time, "a time") <= 0n || p.time > FIRST_MAX) {
      throw new MalformedError(`a time of ${p.time}: milliseconds since 1970`);
    }
    return concat(
      Uint8Array.of(VERSION_OCCURRENCE),
      fixed(p.ledger, HASH_SIZE, "a ledger"),
      string(names.organisation(p.signer)),
      fixed(p.schedule, HASH_SIZE, "an id"),
      uvarint(integer(p.number, "an occurrence's number", 1, names.OCCURRENCES_MAX)),
      uvarint(p.time),
      encodePostings(p.signer, p.postings),
      note(p.note ?? ""),
    );
  }

  /** Returns the id: the hash of the body. */
  id(): Uint8Array {
    return transactionId(this.encode());
  }

  /** Decodes a body, or throws MalformedError. */
  static decode(body: Uint8Array): Occurrence {
    const r = new Reader(body);
    if (r.byte() !== VERSION_OCCURRENCE) {
      throw new MalformedError("the transaction is no occurrence of a schedule");
    }
    const parts = {
      ledger: r.hash(),
      signer: r.text("bytes of organisation", names.ORGANISATION_MAX),
      schedule: r.hash(),
      number: small(r, "number"),
      time: r.uvarint(),
      postings: readPostings(r),
      note: r.text("bytes of note", names.SCHEDULE_NOTE_MAX),
    };
    r.end();
    const occurrence = new Occurrence(parts);
    occurrence.encode(); // which checks names and bounds
    return occurrence;
  }
}
