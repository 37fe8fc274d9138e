// Posts an organisation's transactions: nonces, bundles, signatures, submission.

import { type Bundle, bundlesOf } from "./bundle.js";
import type { Client, Level, Status } from "./client.js";
import type { PrivateKey } from "./ed25519.js";
import * as names from "./names.js";
import { PackedBundle, type Transfer } from "./packed.js";
import { Transaction, type TransactionParts } from "./transaction.js";

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
