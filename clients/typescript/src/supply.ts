// Proofs of supplies: what the chains of a book have of a registered asset, and how much there is.
//
// In chains of version 8 and later the state digest has a tree over the assets, and an asset says
// what each of its issuers issued and redeemed there. The supply of a book is the sum over the
// issuers, each with the shard to which it came last. docs/encoding.md has the form.

import { type AssetTerms, type Issuer, readTerms } from "./asset.js";
import { certified, Finality, FINALITY_BYTES_MAX } from "./certificate.js";
import {
  AMOUNT_MAX,
  concat,
  domain,
  equal,
  HASH_SIZE,
  MalformedError,
  Reader,
  sha256,
  string,
  uint,
  uvarint,
} from "./codec.js";
import type { Genesis } from "./genesis.js";
import { leafHash, ProofError } from "./merkle.js";
import * as names from "./names.js";
import { blockHash, decodeHeader, type Header, HEADER_SIZE } from "./proof.js";

const VERSION = 1;
const SUPPLY_VERSION = 5;
const ARITY = 4;
const LEVELS_MAX = 8;
const ASSETS_MAX = 65536;
const ENTRY_MAX = 32 << 10;
const PROOF_MAX = ENTRY_MAX + LEVELS_MAX * (1 + ARITY * HASH_SIZE) + 4096;
const KIND_ASSET = 0x73;
const ASSETS_DOMAIN = domain("ledgerd/state/4");
const STATE_DOMAIN = domain("ledgerd/state/2");

/** What an organisation issued of an asset in one chain. */
export interface Issuance {
  issued: bigint;
  redeemed: bigint;
  waiting: bigint; // what transactions that wait for other shards may still issue
  arrived: bigint; // the number of the move with which the issuer came to the shard, or 0
}

/** A registered asset after a block of a chain. */
export interface ProvenAsset {
  number: number; // assets are numbered from 1, as they were registered
  name: string;
  owner: string; // the organisation that registered it
  revision: bigint; // the number of the last change of its terms
  registered: bigint; // the height of the block; 0 if the chain began with it
  decimals: number;
  supply: NonNullable<AssetTerms["supply"]>;
  cap: bigint;
  closed: boolean;
  issuers: Required<Issuer>[];
  issuances: Issuance[]; // of the issuers, in their order
}

/** How much there is of an asset. */
export interface Supply {
  issued: bigint;
  redeemed: bigint;
  outstanding: bigint;
  waiting: bigint;
}

// Decodes an asset as the tree has it.
function decodeEntry(entry: Uint8Array): ProvenAsset {
  const r = new Reader(entry);
  if (r.byte() !== KIND_ASSET) throw new MalformedError("an entry that is no asset's");
  const number = r.uint32();
  if (r.byte() !== 0) throw new MalformedError("an entry that is no asset's");
  const name = names.asset(r.text("bytes of asset", names.ASSET_MAX));
  const owner = names.organisation(r.text("bytes of organisation", names.ORGANISATION_MAX));
  const [revision, registered] = [r.uvarint(), r.uvarint()];
  const terms = readTerms(r);
  const issuances = terms.issuers.map(() => {
    const each = {
      issued: r.amount(),
      redeemed: r.amount(),
      waiting: r.amount(),
      arrived: r.uvarint(),
    };
    if (each.issued < each.redeemed || each.redeemed < 0n || each.waiting < 0n) {
      throw new MalformedError("an issuance out of bounds");
    }
    return each;
  });
  r.end();
  if (number < 1 || number > ASSETS_MAX || !revision) {
    throw new MalformedError(`asset ${number}, revision ${revision}`);
  }
  return { number, name, owner, revision, registered, ...terms, issuances };
}

/** The fields of a proof of what a chain has of an asset. */
export interface AssetProofParts {
  entry: Uint8Array;
  path: Uint8Array[][]; // from the leaves up: all children of each node above the entry
  assets: number;
  assetRoot: Uint8Array;
  others: Uint8Array;
  accounts: bigint;
  accountRoot: Uint8Array;
  header: Uint8Array;
}

/** Shows what a chain has of a registered asset after a block. */
export class AssetProof {
  constructor(readonly parts: AssetProofParts) {}

  /**
   * Returns the asset and the header of the block after which it is so, or throws ProofError.
   * Whether the block is in the chain is SupplyProof's to say.
   */
  open(): { asset: ProvenAsset; header: Header } {
    try {
      return this.#open();
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      throw new ProofError(`the proof does not hold: ${error.message}`);
    }
  }

  #open(): { asset: ProvenAsset; header: Header } {
    const p = this.parts;
    const header = decodeHeader(p.header);
    const asset = decodeEntry(p.entry);
    let [hash, place, count] = [leafHash(p.entry), asset.number - 1, p.assets];
    const wrong = "a path that does not lead from the entry to the root";
    if (place >= count) throw new ProofError(`asset ${asset.number} of ${count}`);
    for (const children of p.path) {
      const within = place % ARITY;
      const wanted = Math.min(ARITY, count - (place - within));
      const own = children[within];
      if (count <= 1 || children.length !== wanted || !own || !equal(own, hash)) {
        throw new ProofError(wrong);
      }
      // A single hash that is left moves up unchanged.
      hash = wanted > 1 ? sha256(Uint8Array.of(1), ...children) : hash;
      [place, count] = [Math.floor(place / ARITY), Math.ceil(count / ARITY)];
    }
    if (count !== 1 || !equal(hash, p.assetRoot)) throw new ProofError(wrong);
    const rest = sha256(ASSETS_DOMAIN, uint(p.assets, 4), p.assetRoot, p.others);
    const digest = sha256(STATE_DOMAIN, uint(p.accounts, 8), p.accountRoot, rest);
    if (!equal(digest, header.stateDigest)) {
      throw new ProofError(`the state digest of block ${header.height} is another one`);
    }
    return { asset, header };
  }

  /** Returns the canonical bytes. */
  encode(): Uint8Array {
    const p = this.parts;
    return concat(
      Uint8Array.of(VERSION),
      string(p.entry),
      uvarint(p.path.length),
      ...p.path.map((children) => concat(uvarint(children.length), ...children)),
      uvarint(p.assets),
      p.assetRoot,
      p.others,
      uvarint(p.accounts),
      p.accountRoot,
      p.header,
    );
  }

  /** Decodes a proof, or throws MalformedError. It does not verify it. */
  static decode(data: Uint8Array): AssetProof {
    const r = new Reader(data);
    const version = r.byte();
    if (version !== VERSION) throw new MalformedError(`asset proof version ${version}`);
    const hash = () => r.hash();
    const parts = {
      entry: r.string("bytes of an asset", ENTRY_MAX),
      path: r.list("levels", LEVELS_MAX, 1, () => r.list("hashes", ARITY, HASH_SIZE, hash)),
      assets: r.uvarint32(),
      assetRoot: r.hash(),
      others: r.hash(),
      accounts: r.uvarint(),
      accountRoot: r.hash(),
      header: r.take(HEADER_SIZE),
    };
    r.end();
    return new AssetProof(parts);
  }
}

/** What the chain of one shard proves of an asset, and that the block is final. */
export interface ShardProof {
  proof: AssetProof;
  finality: Finality;
}

/** Proves the supply of an asset in a whole book: what each shard has of it, by their numbers. */
export class SupplyProof {
  constructor(readonly shards: ShardProof[]) {}

  /**
   * Returns the supply, and what each shard's chain has of the asset after which block. Throws
   * ProofError or CertificateError unless the proof holds. The genesis is that of any shard, of the
   * one that was added last if shards were added.
   */
  verify(genesis: Genesis): {
    supply: Supply;
    shards: { asset: ProvenAsset; header: Header }[];
  } {
    if (this.shards.length !== genesis.bookShards()) {
      throw new ProofError(
        `it is of a book of ${this.shards.length} shards, the genesis of ${genesis.bookShards()}`,
      );
    }
    const shards = this.shards.map(({ proof, finality }, shard) => {
      const { asset, header } = proof.open();
      const chain = genesis.forShard(shard);
      certified(chain, finality, header.height, blockHash(proof.parts.header));
      return { asset, header };
    });
    return { supply: supplyOf(shards.map((each) => each.asset)), shards };
  }

  /** Returns the canonical bytes, as `ledgerd asset show --proof --out FILE` keeps them. */
  encode(): Uint8Array {
    return concat(
      Uint8Array.of(SUPPLY_VERSION),
      uvarint(this.shards.length),
      ...this.shards.map((each) =>
        concat(string(each.proof.encode()), string(each.finality.encode())),
      ),
    );
  }

  /** Decodes a proof, or throws MalformedError. It does not verify it. */
  static decode(data: Uint8Array): SupplyProof {
    const r = new Reader(data);
    const version = r.byte();
    if (version !== SUPPLY_VERSION) throw new MalformedError(`supply proof version ${version}`);
    const shards = r.list("shards", names.SHARDS_MAX, 2, () => ({
      proof: AssetProof.decode(r.string("bytes of an asset's proof", PROOF_MAX)),
      finality: Finality.decode(r.string("bytes of finality", FINALITY_BYTES_MAX)),
    }));
    r.end();
    return new SupplyProof(shards);
  }
}

// What two shards have to say alike of an asset.
function termsOf(asset: ProvenAsset): string {
  const { number, name, owner, decimals, supply, cap, closed, issuers } = asset;
  const text = (_: string, value: unknown) => (typeof value === "bigint" ? String(value) : value);
  return JSON.stringify([number, name, owner, decimals, supply, cap, closed, issuers], text);
}

function isEmpty(each: Issuance): boolean {
  return !each.issued && !each.redeemed && !each.waiting;
}

/**
 * Adds up the issuances of an asset, given as the chains of all shards have it. Each issuer counts
 * where it came to last. Throws ProofError if they are not of one asset with the same terms, or if
 * an issuer issued in two shards without a move between them.
 */
export function supplyOf(shards: ProvenAsset[]): Supply {
  const all = { issued: 0n, redeemed: 0n, outstanding: 0n, waiting: 0n };
  const first = shards[0];
  if (!first) return all;
  if (shards.some((each) => termsOf(each) !== termsOf(first))) {
    throw new ProofError(`asset ${first.name} differs between shards: its terms were changing`);
  }
  first.issuers.forEach((issuer, i) => {
    const each = shards.map((shard) => shard.issuances[i] as Issuance);
    const arrived = each.reduce((last, one) => (one.arrived > last ? one.arrived : last), 0n);
    const counted = each.filter((one) => one.arrived === arrived && !isEmpty(one));
    if (counted.length > 1) {
      throw new ProofError(`${issuer.organisation} issued ${first.name} in two shards at once`);
    }
    for (const { issued, redeemed, waiting } of counted) {
      all.issued += issued;
      all.redeemed += redeemed;
      all.outstanding += issued - redeemed;
      all.waiting += waiting;
    }
  });
  if (all.issued > AMOUNT_MAX || all.waiting > AMOUNT_MAX) {
    throw new ProofError("the supply has more than 128 bits");
  }
  return all;
}
