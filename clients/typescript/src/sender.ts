// Posts an organisation's transactions: nonces, bundles, signatures, submission.

import { randomBytes } from "@noble/hashes/utils";
import type { Level, Status } from "./answers.js";
import { type Bundle, bundlesOf } from "./bundle.js";
import type { Client } from "./client.js";
import { equal, fixed, HASH_SIZE, hex, known } from "./codec.js";
import type { PrivateKey } from "./ed25519.js";
import {
  Hold,
  HoldEnd,
  type HoldParts,
  type Shares,
  sharesOf,
  type TransactionHead,
} from "./hold.js";
import * as names from "./names.js";
import { PackedBundle, type Transfer } from "./packed.js";
import { Schedule, ScheduleEnd, type ScheduleParts } from "./schedule.js";
import {
  AccountChange,
  type AccountChangeParts,
  type AccountNow,
  frozenByGuardian,
  guarding,
} from "./terms.js";
import { type Posting, Transaction, type TransactionParts } from "./transaction.js";

/** Options of a transaction that ends a hold. */
export interface EndOptions {
  placed?: Hold;
  deadline?: bigint; // in milliseconds since 1970
  note?: string;
}

/** What can go into a bundle. */
export type Encodable = { encode(): Uint8Array };

/**
 * Signs for one organisation, with the nonces of one stream, and submits. Each process needs a
 * stream of its own: two senders of one stream take each other's nonces, and the later one's
 * transactions fail with stale_nonce. Post transactions in the order in which they were made.
 */
export class Sender {
  readonly #key: PrivateKey;
  #next: Promise<bigint> | undefined;

  /** `ledger` is the book: see Genesis.book. */
  constructor(
    readonly client: Client,
    readonly ledger: Uint8Array,
    readonly organisation: string,
    key: PrivateKey,
    readonly stream = 0n,
  ) {
    names.organisation(organisation);
    this.#key = key;
  }

  /** Resolves to the first of so many sequence numbers, which this sender gives to nothing else. */
  async nonce(count = 1): Promise<bigint> {
    const first = this.#next ?? this.client.nonce(this.organisation, this.stream);
    const next = first.then((sequence) => sequence + BigInt(count));
    this.#next = next;
    try {
      await next;
      return await first;
    } catch (error) {
      this.#next = undefined; // the node is asked again
      throw error;
    }
  }

  /** Makes a transaction with the next nonce. Nothing is submitted. */
  async transaction(
    parts: Omit<TransactionParts, "ledger" | "signer" | "stream" | "sequence">,
  ): Promise<Transaction> {
    const { ledger, organisation: signer, stream } = this;
    return new Transaction({ ...parts, ledger, signer, stream, sequence: await this.nonce() });
  }

  /**
   * Makes a transaction that holds an amount of an account for others. Its id is that of the hold.
   * Unless another organisation is named as the poster, that of the first account may post or void
   * it.
   */
  async hold(
    parts: Omit<HoldParts, keyof TransactionHead | "poster"> & { poster?: string },
  ): Promise<Hold> {
    if (!Array.isArray(parts.to) || !parts.to.length) {
      throw new RangeError("a hold is for a list of 1 or more accounts");
    }
    const to = [...new Set(parts.to)].sort();
    const poster = parts.poster ?? names.organisationOf(to[0] ?? "");
    return new Hold({ ...parts, to, poster, ...(await this.#head()) });
  }

  /**
   * Makes a transaction that posts a hold: all of it, an amount, or what each account gets. What
   * the hold says is taken from the transaction that placed it, which its id is the hash of: no
   * node is believed. Give `placed` if no node has that transaction any more. Across shards it
   * needs a deadline.
   */
  async postHold(id: Uint8Array, shares?: Shares, options: EndOptions = {}): Promise<HoldEnd> {
    const placed = await this.#placed(id, options);
    const postings = sharesOf(placed, shares);
    return this.#end({ hold: id, account: placed.parts.account, postings }, options);
  }

  /** Makes a transaction that gives a hold up, as postHold. */
  async voidHold(id: Uint8Array, options: EndOptions = {}): Promise<HoldEnd> {
    const placed = await this.#placed(id, options);
    return this.#end({ hold: id, account: placed.parts.account }, options);
  }

  async #placed(id: Uint8Array, options: EndOptions): Promise<Hold> {
    known(options, "the end of a hold", ["placed", "deadline", "note"]);
    fixed(id, HASH_SIZE, "the id of a hold");
    const placed = options.placed ?? (await this.client.placedHold(id));
    if (!equal(placed.id(), id)) {
      throw new RangeError(`\`placed\` is hold ${hex(placed.id())}, not ${hex(id)}`);
    }
    return placed;
  }

  async #end(
    of: { hold: Uint8Array; account: string; postings?: Posting[] },
    { deadline = 0n, note = "" }: EndOptions,
  ): Promise<HoldEnd> {
    return new HoldEnd({ ...of, ...(await this.#head()), deadline, note });
  }

  async #head(): Promise<TransactionHead> {
    const { ledger, organisation: signer, stream } = this;
    return { ledger, signer, stream, sequence: await this.nonce() };
  }

  /**
   * Makes a transaction that has postings executed at agreed times. Its id is that of the schedule.
   * With a period, `every` is 1 if it is not given; give `count` or `until`, too. The root of the
   * book's tree keeps it: `shard`, or the one that a node names. It takes no nonce.
   */
  async schedule(parts: Omit<ScheduleParts, keyof TransactionHead>): Promise<Schedule> {
    const once = (parts.period ?? "once") === "once";
    const every = parts.every ?? (once ? 0 : 1);
    const shard = parts.shard ?? (await this.client.root());
    return new Schedule({ ...parts, every, shard, ...this.#anyNonce() });
  }

  /** Makes a transaction that ends a schedule of the organisation, as schedule. */
  async endSchedule(
    schedule: Uint8Array,
    options: { shard?: number; note?: string } = {},
  ): Promise<ScheduleEnd> {
    known(options, "the end of a schedule", ["shard", "note"]);
    fixed(schedule, HASH_SIZE, "the id of a schedule");
    const shard = options.shard ?? (await this.client.root());
    return new ScheduleEnd({ ...options, schedule, shard, ...this.#anyNonce() });
  }

  /** Returns a head whose sequence number only makes the id another one. */
  #anyNonce(): Omit<TransactionHead, "lastValid" | "deadline"> {
    const { ledger, organisation: signer, stream } = this;
    const sequence = randomBytes(8).reduce((sum, each) => (sum << 8n) | BigInt(each), 0n);
    return { ledger, signer, stream, sequence };
  }

  /**
   * Makes a transaction that gives an account of the organisation these terms, and its alias. Begin
   * with Client.accountNow. It is refused if another change comes between. Throws RangeError for an
   * account of others.
   */
  change(now: AccountNow, note = ""): AccountChange {
    const { account, alias, terms } = now;
    if (names.organisationOf(account) !== this.organisation) {
      throw new RangeError(
        `${account} is no account of ${this.organisation}: its organisation changes its terms, ` +
          "and its guardian calls guard",
      );
    }
    return this.#accountChange({ account, alias, terms, number: now.revision + 1n, note });
  }

  /**
   * Makes a transaction with which the organisation, as guardian, freezes an account or lifts its
   * freeze. No change by the account's organisation outdates it. Throws RangeError if the
   * organisation is not the guardian, or there is nothing to change.
   */
  guard(now: AccountNow, freeze: boolean, note = ""): AccountChange {
    const { account, terms: present } = now;
    if (present.guardian !== this.organisation) {
      throw new RangeError(
        `${this.organisation} is not the guardian of ${account}, but ` +
          (present.guardian || "nobody"),
      );
    }
    if (frozenByGuardian(present) === freeze) {
      throw new RangeError(`nothing to change: the freeze of ${account} is ${present.freeze}`);
    }
    const terms = guarding(this.organisation, freeze);
    return this.#accountChange({ account, terms, number: now.guarded + 1n, note });
  }

  #accountChange(parts: Omit<AccountChangeParts, keyof TransactionHead>): AccountChange {
    const { ledger, organisation: signer, stream } = this;
    return new AccountChange({ ...parts, ledger, signer, stream, sequence: 0n });
  }

  /** Bundles transactions, in order, and signs each bundle once. */
  bundles(transactions: Encodable[]): Bundle[] {
    return bundlesOf(transactions).map((each) => each.sign(this.organisation, this.#key));
  }

  /**
   * Bundles, signs and submits transactions, and waits for the level. Resolves to a status for
   * each; require throws for those that failed. If it rejects with ConnectionFailed, or an ApiError
   * with `unsure`, post the same transactions again: they are executed once.
   */
  async post(
    transactions: Encodable | Encodable[],
    wait: Level = "durable",
    options: { queue?: boolean; timeout?: number } = {},
  ): Promise<Status[]> {
    const statuses: Status[] = [];
    for (const bundle of this.bundles([transactions].flat())) {
      statuses.push(...(await this.client.submit(bundle, wait, options)));
    }
    return statuses;
  }

  /** Packs plain transfers and signs them, in a book of one shard. Nothing is submitted. */
  async pack(transfers: Transfer[], lastValid = 0n): Promise<PackedBundle> {
    const { ledger, organisation: signer, stream } = this;
    const sequence = await this.nonce(transfers.length);
    const common = { ledger, signer, stream, sequence, lastValid };
    return PackedBundle.of(common, transfers).sign(this.organisation, this.#key);
  }
}
