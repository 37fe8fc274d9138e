// Packed bundles: plain transfers of one signer, in a fraction of the bytes.
//
// Nodes take them from version 3 of a chain on, in books of one shard. What the transfers have in
// common is in a head, once; then come the names of the accounts, and a short record of each
// transfer.

import { type Signature, readSignatures, signedBytes, signingMessage } from "./bundle.js";
import {
  AMOUNT_MAX,
  byteLength,
  concat,
  elements,
  fixed,
  HASH_SIZE,
  known,
  MalformedError,
  Reader,
  string,
  textOf,
  uint,
  UINT64_MAX,
  utf8,
  uvarint,
} from "./codec.js";
import type { PrivateKey } from "./ed25519.js";
import { leafHash, pathLength, ProofError, rootOf, verifyPath } from "./merkle.js";
import * as names from "./names.js";
import { Transaction, transfer, VERSION_PACKED } from "./transaction.js";

const VERSION = 3;
const PART = 64; // names or records of a leaf
const NOTHING = new Uint8Array();

/** Returns the id of a transfer: part of the root, and the place in the bundle. */
export function packedId(root: Uint8Array, place: number): Uint8Array {
  return concat(root.slice(0, HASH_SIZE - 2), uint(place, 2));
}

const partsOf = (count: number): number => Math.ceil(count / PART);
const inPart = (item: number, count: number): number =>
  Math.min(PART, count - Math.floor(item / PART) * PART);

/** Moves an amount above zero from one account to another. */
export interface Transfer {
  from: string;
  to: string;
  amount: bigint;
  asset?: string;
}

/** What all transfers of a packed bundle have in common. */
export interface Head {
  ledger: Uint8Array;
  signer: string;
  stream: bigint;
  sequence: bigint; // of the first transfer; each other one has the next
  lastValid: bigint;
  assets: string[];
  names: number;
  count: number;
  width: number; // of an amount in bytes
}

function checkHead(head: Head): void {
  names.organisation(head.signer);
  if (head.count < 1 || head.count > names.BUNDLE_TRANSACTIONS_MAX) {
    throw new MalformedError(`${head.count} transfers`);
  }
  if (head.names < 2 || head.names > 2 * head.count) {
    throw new MalformedError(`${head.names} names of ${head.count} transfers`);
  }
  if (head.assets.length < 1 || head.assets.length > names.PACKED_ASSETS_MAX) {
    throw new MalformedError(`${head.assets.length} assets`);
  }
  if (head.width < 1 || head.width > 16) {
    throw new MalformedError(`amounts of ${head.width} bytes`);
  }
  if (head.sequence > UINT64_MAX - BigInt(head.count)) {
    throw new MalformedError("the nonces overflow");
  }
  head.assets.forEach(names.asset);
  if (new Set(head.assets).size !== head.assets.length) throw new MalformedError("an asset twice");
}

function encodeHead(head: Head): Uint8Array {
  return concat(
    Uint8Array.of(VERSION),
    fixed(head.ledger, HASH_SIZE, "a ledger"),
    string(head.signer),
    uvarint(head.stream),
    uvarint(head.sequence),
    uvarint(head.lastValid),
    elements(head.assets.map(string)),
    uvarint(head.names),
    uvarint(head.count),
    Uint8Array.of(head.width),
  );
}

function readHead(r: Reader): Head {
  const version = r.byte();
  if (version !== VERSION) throw new MalformedError(`packed bundle version ${version}`);
  const head: Head = {
    ledger: r.hash(),
    signer: r.text("bytes of organisation", names.ORGANISATION_MAX),
    stream: r.uvarint(),
    sequence: r.uvarint(),
    lastValid: r.uvarint(),
    assets: r.list("assets", names.PACKED_ASSETS_MAX, 2, () =>
      r.text("bytes of asset", names.ASSET_MAX),
    ),
    names: Number(r.uvarint()),
    count: Number(r.uvarint()),
    width: r.byte(),
  };
  checkHead(head);
  return head;
}

const numberWidth = (head: Head): number => (head.names > 256 ? 2 : 1);
const recordSize = (head: Head): number =>
  2 * numberWidth(head) + (head.assets.length > 1 ? 1 : 0) + head.width;
const leavesOf = (head: Head): number => 1 + partsOf(head.names) + partsOf(head.count);

/** Takes the names of one part. Each is checked, and as short as it can be written. */
function readNames(r: Reader, count: number): string[] {
  const found: string[] = [];
  let before: Uint8Array = NOTHING;
  for (let i = 0; i < count; i++) {
    const shared = Number(r.uvarint());
    const rest = r.string("bytes of account", names.PATH_MAX);
    if (shared > before.length) {
      throw new MalformedError(`a name shares ${shared} bytes with one of ${before.length}`);
    }
    if (rest.length && shared < before.length && rest[0] === before[shared]) {
      throw new MalformedError("a name shares more with the one before it");
    }
    before = concat(before.slice(0, shared), rest);
    found.push(names.path(textOf(before)));
  }
  return found;
}

// A transfer within a packed bundle: accounts and asset by their numbers.
interface PackedRecord {
  from: number;
  to: number;
  asset: number;
  amount: bigint;
}

function readRecord(head: Head, r: Reader): PackedRecord {
  const from = Number(r.uint(numberWidth(head)));
  const to = Number(r.uint(numberWidth(head)));
  const asset = head.assets.length > 1 ? r.byte() : 0;
  const amount = r.uint(head.width);
  if (Math.max(from, to) >= head.names || from === to || asset >= head.assets.length) {
    throw new MalformedError(`a record of names ${from} and ${to}, asset ${asset}`);
  }
  if (amount <= 0n || amount > AMOUNT_MAX) throw new MalformedError(`a transfer of ${amount}`);
  return { from, to, asset, amount };
}

// Gives the next number to each value that it has not seen.
function numbering(numbers: Map<string, number>, value: string): number {
  const number = numbers.get(value) ?? numbers.size;
  numbers.set(value, number);
  return number;
}

/** A packed bundle. Use `of` to make one, and `sign` to sign it. */
export class PackedBundle {
  private constructor(
    readonly head: Head,
    readonly transfers: Transfer[],
    readonly parts: Uint8Array[], // the leaves of the tree: the head, names, records
    public signatures: Signature[] = [],
  ) {}

  /** Packs transfers, of which the first has this nonce, and each other one the next. */
  static of(
    common: {
      ledger: Uint8Array;
      signer: string;
      stream: bigint;
      sequence: bigint;
      lastValid?: bigint;
    },
    transfers: Transfer[],
  ): PackedBundle {
    const [paths, assets] = [new Map<string, number>(), new Map<string, number>()];
    let largest = 1n;
    const records = transfers.map((each): PackedRecord => {
      known(each, "a transfer", ["from", "to", "amount", "asset"]);
      if (each.amount <= 0n || each.amount > AMOUNT_MAX || each.from === each.to) {
        throw new MalformedError(`no plain transfer: ${each.amount} from ${each.from}`);
      }
      if (each.amount > largest) largest = each.amount;
      return {
        from: numbering(paths, names.path(each.from)),
        to: numbering(paths, names.path(each.to)),
        asset: numbering(assets, each.asset ?? names.DEFAULT_ASSET),
        amount: each.amount,
      };
    });
    const head: Head = {
      ledger: common.ledger,
      signer: common.signer,
      stream: common.stream,
      sequence: common.sequence,
      lastValid: common.lastValid ?? 0n,
      assets: [...assets.keys()],
      names: paths.size,
      count: records.length,
      width: byteLength(largest),
    };
    checkHead(head);
    const parts = [encodeHead(head)];
    const sorted = [...paths.keys()];
    for (let first = 0; first < sorted.length; first += PART) {
      parts.push(encodeNames(sorted.slice(first, first + PART)));
    }
    for (let first = 0; first < records.length; first += PART) {
      const some = records.slice(first, first + PART);
      parts.push(concat(...some.map((each) => encodeRecord(head, each))));
    }
    return new PackedBundle(head, [...transfers], parts);
  }

  /** Decodes a packed bundle, or throws MalformedError. Signatures are not verified. */
  static decode(data: Uint8Array): PackedBundle {
    if (data.length > names.BUNDLE_BYTES_MAX) {
      throw new MalformedError(`a bundle of ${data.length} bytes`);
    }
    const r = new Reader(data);
    const head = readHead(r);
    const ends = [0, r.at];
    const paths: string[] = [];
    for (let first = 0; first < head.names; first += PART) {
      paths.push(...readNames(r, inPart(first, head.names)));
      ends.push(r.at);
    }
    const transfers: Transfer[] = [];
    let [numbers, assets, width] = [0, 0, 0];
    for (let place = 0; place < head.count; place++) {
      const record = readRecord(head, r);
      for (const number of [record.from, record.to]) {
        if (number > numbers) {
          throw new MalformedError("names that are not in the order of their first use");
        }
        numbers = Math.max(numbers, number + 1);
      }
      if (record.asset > assets) {
        throw new MalformedError("assets that are not in the order of their first use");
      }
      assets = Math.max(assets, record.asset + 1);
      width = Math.max(width, byteLength(record.amount));
      transfers.push(shownBy(head, record, paths[record.from], paths[record.to]));
      if ((place + 1) % PART === 0 || place + 1 === head.count) ends.push(r.at);
    }
    if (numbers !== head.names || assets !== head.assets.length || width !== head.width) {
      throw new MalformedError(
        "a name or asset of no transfer, or amounts with more bytes than they need",
      );
    }
    const signatures = readSignatures(r);
    r.end();
    const parts = ends.slice(1).map((end, i) => data.slice(ends[i], end));
    return new PackedBundle(head, transfers, parts, signatures);
  }

  /** Returns the canonical bytes without the signatures. */
  content(): Uint8Array {
    return concat(...this.parts);
  }

  /** Returns the canonical bytes, signatures included. Throws MalformedError. */
  encode(): Uint8Array {
    return signedBytes(this.content(), this.signatures);
  }

  /** Returns the root of the tree over the parts. */
  root(): Uint8Array {
    return rootOf(this.parts.map(leafHash));
  }

  /** Returns what is signed. */
  message(): Uint8Array {
    return signingMessage(this.root(), true);
  }

  /** Adds a signature, and returns the bundle. */
  sign(organisation: string, key: PrivateKey): this {
    this.signatures.push({ organisation, key: key.public, signature: key.sign(this.message()) });
    return this;
  }

  /** Returns the transfers' ids. */
  ids(): Uint8Array[] {
    const root = this.root();
    return this.transfers.map((_, place) => packedId(root, place));
  }

  /** Returns what shows a transfer: the parts that it is in. */
  body(place: number): Uint8Array {
    const records = this.#part(1 + partsOf(this.head.names) + Math.floor(place / PART));
    const r = new Reader(records);
    r.take((place % PART) * recordSize(this.head));
    const record = readRecord(this.head, r);
    const [first, second] = [Math.floor(record.from / PART), Math.floor(record.to / PART)];
    return concat(
      Uint8Array.of(VERSION_PACKED),
      string(this.#part(0)),
      uvarint(place),
      string(this.#part(1 + first)),
      string(first === second ? NOTHING : this.#part(1 + second)),
      string(records),
    );
  }

  #part(place: number): Uint8Array {
    const found = this.parts[place];
    if (!found) throw new RangeError(`part ${place} of ${this.parts.length}`);
    return found;
  }
}

function encodeNames(paths: string[]): Uint8Array {
  let before = "";
  const encoded = paths.map((path) => {
    let shared = 0;
    while (shared < Math.min(before.length, path.length) && before[shared] === path[shared]) {
      shared++;
    }
    before = path;
    return concat(uvarint(shared), string(utf8(path.slice(shared))));
  });
  return concat(...encoded);
}

function encodeRecord(head: Head, each: PackedRecord): Uint8Array {
  return concat(
    uint(each.from, numberWidth(head)),
    uint(each.to, numberWidth(head)),
    head.assets.length > 1 ? Uint8Array.of(each.asset) : NOTHING,
    uint(each.amount, head.width),
  );
}

function shownBy(head: Head, record: PackedRecord, from?: string, to?: string): Transfer {
  const asset = head.assets[record.asset];
  if (from === undefined || to === undefined || asset === undefined || from === to) {
    throw new MalformedError("a transfer from an account to itself");
  }
  return { from, to, amount: record.amount, asset };
}

/** What shows a transfer of a packed bundle, in a proof and elsewhere. */
export class PackedBody {
  private constructor(
    readonly head: Head,
    readonly place: number,
    readonly transfer: Transfer,
    readonly parts: Uint8Array[],
    readonly places: number[], // of the parts among the leaves of the bundle's tree
  ) {}

  /** Decodes it, or throws MalformedError. */
  static decode(body: Uint8Array): PackedBody {
    const r = new Reader(body);
    const version = r.byte();
    if (version !== VERSION_PACKED) {
      throw new MalformedError(`transaction version ${version} is no packed transfer's`);
    }
    const part = () => r.string("bytes of a bundle's part", names.BODY_MAX);
    const encodedHead = part();
    const place = Number(r.uvarint());
    const [from, to, records] = [part(), part(), part()];
    r.end();
    const headReader = new Reader(encodedHead);
    const head = readHead(headReader);
    headReader.end();
    if (place >= head.count) throw new MalformedError(`transfer ${place} of ${head.count}`);
    if (records.length !== inPart(place, head.count) * recordSize(head)) {
      throw new MalformedError(`a part of ${records.length} bytes with records`);
    }
    const recordReader = new Reader(records);
    recordReader.take((place % PART) * recordSize(head));
    const record = readRecord(head, recordReader);
    const [first, second] = [Math.floor(record.from / PART), Math.floor(record.to / PART)];
    if ((first === second) !== (to.length === 0)) {
      throw new MalformedError("the part of a name is missing, or there twice");
    }
    const [parts, places] = [
      [encodedHead, from],
      [0, 1 + first],
    ];
    if (to.length) {
      parts.push(to);
      places.push(1 + second);
    }
    parts.push(records);
    places.push(1 + partsOf(head.names) + Math.floor(place / PART));
    const shown = shownBy(
      head,
      record,
      nameIn(head, from, record.from),
      nameIn(head, to.length ? to : from, record.to),
    );
    return new PackedBody(head, place, shown, parts, places);
  }

  /** Returns the transfer as a transaction. */
  transaction(): Transaction {
    const { from, to, amount, asset } = this.transfer;
    const { ledger, signer, stream, lastValid } = this.head;
    const sequence = this.head.sequence + BigInt(this.place);
    return transfer({ ledger, signer, stream, sequence, lastValid }, from, to, amount, asset);
  }

  /** Throws ProofError unless the path leads from each of the parts to the bundle's root. */
  verify(path: Uint8Array[], root: Uint8Array): void {
    const leaves = leavesOf(this.head);
    let left = path;
    this.parts.forEach((part, i) => {
      const place = this.places[i] ?? leaves;
      const length = pathLength(place, leaves);
      if (left.length < length) throw new ProofError(`a path of ${length} hashes is missing`);
      verifyPath(leafHash(part), place, leaves, left.slice(0, length), root);
      left = left.slice(length);
    });
    if (left.length) throw new ProofError(`${left.length} hashes too many in the bundle's path`);
  }
}

function nameIn(head: Head, part: Uint8Array, number: number): string | undefined {
  const r = new Reader(part);
  const found = readNames(r, inPart(number, head.names));
  r.end();
  return found[number % PART];
}
