// Proofs of balances: what an account has after a block, from the block's state digest.
//
// In chains of version 2 and later the digest is a hash over the number of accounts, the root of a
// tree of all of them by their numbers, and a digest of all else. docs/encoding.md has the form.

import { type Auditor, certified, Finality, FINALITY_BYTES_MAX } from "./certificate.js";
import {
  concat,
  domain,
  elements,
  equal,
  HASH_SIZE,
  MalformedError,
  Reader,
  sha256,
  string,
  uint,
  utf8,
  uvarint,
} from "./codec.js";
import type { Genesis } from "./genesis.js";
import { leafHash, ProofError } from "./merkle.js";
import * as names from "./names.js";
import { AccountNow, NO_TERMS, readStanding, type Standing } from "./terms.js";
import { blockHash, decodeHeader, type Header, HEADER_SIZE } from "./proof.js";

const VERSION = 4;
const ARITY = 4n;
const ENTRY_MAX = 1 << 20;
const SIBLINGS_MAX = 3 * 32;
const ACCOUNT_ASSETS_MAX = 64;
const STATE_DOMAIN = domain("ledgerd/state/2");
const ACCOUNT_KEY = "a";

/** What an account has of an asset. `amount` is without what is set aside. */
export interface ProvenBalance {
  asset: string;
  amount: bigint;
  setAside: bigint;
  incoming: bigint;
}

/** An account after a block. */
export interface ProvenAccount {
  account: string;
  number: bigint; // accounts are numbered from 1, as they were opened
  issuer: boolean;
  alias: string;
  opened: bigint; // the height of the block
  history: bigint; // how many transactions changed it
  balances: ProvenBalance[];
  standing: Standing | undefined; // if it ever had terms
}

/** Returns the terms of a proven account, for a signer that is about to change them. */
export function accountNowOf(proven: ProvenAccount): AccountNow {
  const { account, alias, standing } = proven;
  const none = { revision: 0n, guarded: 0n, terms: NO_TERMS };
  const { revision, guarded, terms } = standing ?? none;
  return new AccountNow({ account, alias, revision, guarded, terms });
}

// Decodes an account as the tree has it, from its number on.
function decodeEntry(account: string, entry: Uint8Array): ProvenAccount {
  const r = new Reader(entry);
  const found: ProvenAccount = {
    account,
    number: r.uvarint(),
    issuer: r.boolean(),
    alias: r.text("bytes of alias", names.ALIAS_MAX),
    opened: r.uvarint(),
    history: r.uvarint(),
    balances: [],
    standing: undefined,
  };
  const asset = () => r.text("bytes of asset", names.ASSET_MAX);
  found.balances = r.list("balances", ACCOUNT_ASSETS_MAX, 2, () => ({
    asset: asset(),
    amount: r.amount(),
    setAside: 0n,
    incoming: 0n,
  }));
  // What waits for other shards is there only if something does.
  const waits = r.left > 0;
  const holds = waits
    ? r.list("holds", ACCOUNT_ASSETS_MAX, 3, () => ({
        asset: asset(),
        setAside: r.amount(),
        incoming: r.amount(),
      }))
    : [];
  if (r.left) found.standing = readStanding(r);
  else if (waits && !holds.length) throw new MalformedError("nothing is set aside, and listed");
  r.end();
  for (const held of holds) {
    let known = found.balances.find((each) => each.asset === held.asset);
    if (!known) found.balances.push((known = { ...held, amount: 0n }));
    Object.assign(known, held, { amount: known.amount - held.setAside });
  }
  found.balances.sort((a, b) => (a.asset < b.asset ? -1 : 1));
  return found;
}

/** The fields of a proof of a balance. */
export interface BalanceProofParts {
  finality?: Finality | undefined;
  header: Uint8Array;
  account: string;
  entry: Uint8Array;
  accounts: bigint;
  siblings: Uint8Array[];
  others: Uint8Array;
}

/** Shows what an account has after a block. */
export class BalanceProof {
  constructor(readonly parts: BalanceProofParts) {}

  /**
   * Returns the account and the header of the block after which it is so, or throws ProofError.
   * Whether the block is in the chain is verify's to say.
   */
  open(): { account: ProvenAccount; header: Header } {
    try {
      return this.#open();
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      throw new ProofError(`the proof does not hold: ${error.message}`);
    }
  }

  #open(): { account: ProvenAccount; header: Header } {
    const p = this.parts;
    const header = decodeHeader(p.header);
    const account = decodeEntry(names.path(p.account), p.entry);
    if (account.number < 1n || account.number > p.accounts) {
      throw new ProofError(`the account is number ${account.number} of ${p.accounts}`);
    }
    const leaf = concat(utf8(ACCOUNT_KEY + p.account), Uint8Array.of(0), p.entry);
    const root = rootOver(leafHash(leaf), account.number - 1n, p.accounts, p.siblings);
    const digest = sha256(STATE_DOMAIN, uint(p.accounts, 8), root, p.others);
    if (!equal(digest, header.stateDigest)) {
      throw new ProofError(`the state digest of block ${header.height} is another one`);
    }
    return { account, header };
  }

  /**
   * Returns the account, and the header of the final block after which it is so. Throws ProofError
   * or CertificateError unless the proof holds from the genesis on.
   */
  verify(genesis: Genesis): { account: ProvenAccount; header: Header; auditor: Auditor } {
    const { account, header } = this.open();
    const hash = blockHash(this.parts.header);
    const auditor = certified(genesis, this.parts.finality, header.height, hash);
    return { account, header, auditor };
  }

  /** Returns the canonical bytes. */
  encode(): Uint8Array {
    const p = this.parts;
    return concat(
      Uint8Array.of(VERSION),
      string(p.finality?.encode() ?? new Uint8Array()),
      p.header,
      string(p.account),
      string(p.entry),
      uvarint(p.accounts),
      elements(p.siblings),
      p.others,
    );
  }

  /** Decodes a proof, or throws MalformedError. It does not verify it. */
  static decode(data: Uint8Array): BalanceProof {
    const r = new Reader(data);
    const version = r.byte();
    if (version !== VERSION) throw new MalformedError(`account proof version ${version}`);
    const finality = r.string("bytes of finality", FINALITY_BYTES_MAX);
    const parts = {
      finality: finality.length ? Finality.decode(finality) : undefined,
      header: r.take(HEADER_SIZE),
      account: r.text("bytes of account", names.PATH_MAX),
      entry: r.string("bytes of entry", ENTRY_MAX),
      accounts: r.uvarint(),
      siblings: r.list("siblings", SIBLINGS_MAX, HASH_SIZE, () => r.hash()),
      others: r.hash(),
    };
    r.end();
    return new BalanceProof(parts);
  }
}

// Returns the root of a tree of so many accounts, in which a node has four below it.
function rootOver(
  leaf: Uint8Array,
  index: bigint,
  count: bigint,
  siblings: Uint8Array[],
): Uint8Array {
  let [hash, rest] = [leaf, siblings];
  for (let [at, size] = [index, count]; size > 1n; at /= ARITY, size = (size + 3n) / ARITY) {
    const within = Number(at % ARITY);
    const left = size - (at - (at % ARITY));
    const others = Number(left < ARITY ? left : ARITY) - 1;
    if (!others) continue; // a single hash that is left moves up unchanged
    if (rest.length < others) throw new ProofError("it has too few hashes");
    const [before, after] = [rest.slice(0, within), rest.slice(within, others)];
    hash = sha256(Uint8Array.of(1), ...before, hash, ...after);
    rest = rest.slice(others);
  }
  if (rest.length) throw new ProofError("it has too many hashes");
  return hash;
}
