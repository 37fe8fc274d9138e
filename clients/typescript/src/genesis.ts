// The genesis: the beginning of a chain, its identity, and its first members.

import {
  boolean,
  concat,
  domain,
  elements,
  equal,
  fixed,
  fromBase64,
  fromHex,
  HASH_SIZE,
  hex,
  KEY_SIZE,
  MalformedError,
  Reader,
  sha256,
  string,
  uint,
  utf8,
  uvarint,
} from "./codec.js";
import * as names from "./names.js";
import { checkJoins, checkMember, encodeMember, type Member, readMember } from "./transaction.js";

const GENESIS_DOMAIN = domain("ledgerd/genesis/1");
const BOOK_DOMAIN = domain("ledgerd/book/1");
const HOME_DOMAIN = domain("ledgerd/home/1");
const GROWN = 12;
const CHAIN_VERSION_MAX = 1n << 16n;
const QUOTAS = ["streams", "accounts", "assets", "records", "pending"];
const QUOTA_MAX = 1n << 48n;

/** A shard of the book: the shard above it, and its first members. */
export interface Shard {
  parent: number;
  members: Member[];
  directory?: Uint8Array; // of a shard that was added: the hash with which its chain begins
}

function encodeShard(each: Shard): Uint8Array {
  const members = elements(each.members.map(encodeMember));
  return concat(uvarint(each.parent), members, each.directory ?? new Uint8Array());
}

/** The beginning of a chain. A book of several shards has one for each of them. */
export class Genesis {
  registrationByOperator = false;
  operatorThreshold = 1;
  version = 1n; // of the chain
  vouchedCrossings = false;
  quotas: bigint[] = []; // streams, accounts, assets, records, pending; or none
  shards: Shard[] = []; // none in a book of one shard
  shard = 0;
  added: Shard[] = []; // while the book ran, up to this chain's

  private constructor(
    readonly chain: string,
    readonly time: bigint,
    public members: Member[], // of this chain's shard
    public operators: Uint8Array[] = [],
  ) {}

  /** Returns the canonical bytes. */
  encode(): Uint8Array {
    if (this.added.length) {
      return concat(Uint8Array.of(GROWN), this.#book(), elements(this.added.map(encodeShard)));
    }
    return this.shards.length ? concat(this.#book(), uvarint(this.shard)) : this.#book();
  }

  #book(): Uint8Array {
    const sharded = this.shards.length > 0;
    let version = sharded ? 2 : 1;
    if (this.version > 1n) version = sharded ? 10 : 9;
    else if (this.vouchedCrossings) version = 8;
    else if (this.quotas.length) version = sharded ? 6 : 5;
    else if (this.operatorThreshold > 1) version = sharded ? 4 : 3;
    const parts = [
      Uint8Array.of(version),
      string(this.chain),
      uint(this.time, 8),
      elements(sharded ? this.shards.map(encodeShard) : this.members.map(encodeMember)),
      elements(this.operators.map((key) => fixed(key, KEY_SIZE, "an operator's key"))),
      boolean(this.registrationByOperator),
    ];
    if (version >= 3) parts.push(uvarint(this.operatorThreshold));
    if (version >= 9) parts.push(uvarint(this.version), boolean(this.vouchedCrossings));
    if (version >= 8) parts.push(boolean(this.quotas.length > 0));
    return concat(...parts, ...this.quotas.map(uvarint));
  }

  /** Returns the identity of the chain, which is the hash of block 0. */
  hash(): Uint8Array {
    return sha256(GENESIS_DOMAIN, this.encode());
  }

  /** Returns the identity of the book, which transactions name as their ledger. */
  book(): Uint8Array {
    return this.shards.length ? sha256(BOOK_DOMAIN, this.#book()) : this.hash();
  }

  /** Returns how many shards the book has, as far as this genesis knows. */
  bookShards(): number {
    return this.shards.length + this.added.length || 1;
  }

  /** Returns the genesis of another shard of the book, or throws MalformedError. */
  forShard(shard: number): Genesis {
    if (!Number.isInteger(shard) || shard < 0 || shard >= this.bookShards()) {
      throw new MalformedError(`shard ${shard} of ${this.bookShards()}`);
    }
    if (!this.shards.length) return this;
    if (shard < this.shards.length) return Genesis.decode(concat(this.#book(), uvarint(shard)));
    const added = this.added.slice(0, shard - this.shards.length + 1);
    const content = elements(added.map(encodeShard));
    return Genesis.decode(concat(Uint8Array.of(GROWN), this.#book(), content));
  }

  /** Decodes a genesis, or throws MalformedError. */
  static decode(data: Uint8Array): Genesis {
    const r = new Reader(data);
    let version = r.byte();
    const grown = version === GROWN;
    if (grown) version = r.byte();
    if (version < 1 || version > 10 || version === 7 || (grown && version % 2)) {
      throw new MalformedError(`genesis version ${version}`);
    }
    const sharded = version % 2 === 0;
    const readMembers = () => r.list("members", names.MEMBERS_MAX, 3, () => readMember(r));
    const readShard = () => ({ parent: r.uvarint32(), members: readMembers() });
    const g = new Genesis(r.text("bytes of chain name", names.CHAIN_NAME_MAX), r.uint64(), []);
    g.vouchedCrossings = version === 8;
    if (sharded) g.shards = r.list("shards", names.SHARDS_MAX, 5, readShard);
    else g.members = readMembers();
    g.operators = r.list("operators", names.OPERATORS_MAX, KEY_SIZE, () => r.take(KEY_SIZE));
    g.registrationByOperator = r.boolean();
    if (version >= 3) {
      g.operatorThreshold = r.count("signatures", names.OPERATORS_MAX);
      if (g.operatorThreshold < (version < 5 ? 2 : 1)) {
        throw new MalformedError(`a threshold of ${g.operatorThreshold}`);
      }
    }
    if (version >= 9) {
      g.version = readChainVersion(r);
      g.vouchedCrossings = r.boolean();
    }
    if (version === 5 || version === 6 || (version >= 8 && r.boolean())) {
      g.quotas = readQuotas(r);
    }
    if (grown) {
      g.added = r.list("added shards", names.SHARDS_MAX, 5 + HASH_SIZE, () => ({
        ...readShard(),
        directory: r.hash(),
      }));
    } else if (sharded) g.shard = r.uvarint32();
    r.end();
    g.#settle();
    return g;
  }

  /** Checks the bounds, and finds the members of this chain's shard. */
  #settle(): void {
    names.chain(this.chain);
    if (this.shards.length) {
      if (this.shards.length < 2) throw new MalformedError("a book of shards with one shard");
      if (this.added.length) this.shard = this.shards.length + this.added.length - 1;
      const own = [...this.shards, ...this.added][this.shard];
      if (!own) throw new MalformedError(`shard ${this.shard} of ${this.shards.length}`);
      this.members = own.members;
    } else if (this.shard || this.added.length || this.vouchedCrossings) {
      throw new MalformedError("a book of one shard with what several shards have");
    }
    if (this.registrationByOperator && !this.operators.length) {
      throw new MalformedError("registration by operator without an operator");
    }
    if (this.operatorThreshold > Math.max(1, this.operators.length)) {
      throw new MalformedError(`a threshold of ${this.operatorThreshold}`);
    }
    const all = [...this.shards, ...this.added];
    for (const group of [this.members, ...all.map((each) => each.members)]) {
      if (group.length < 1 || group.length > names.MEMBERS_MAX) {
        throw new MalformedError(`${group.length} members`);
      }
      group.forEach(checkMember);
      if (new Set(group.map((each) => each.name)).size !== group.length) {
        throw new MalformedError("two members of one name");
      }
    }
    checkQuotas(this.quotas);
    if (this.shards.length) this.#checkShards();
  }

  /** Checks that the shards are a tree, and that no member serves in two of them. */
  #checkShards(): void {
    const parents = this.shards.map((each) => each.parent);
    const above = (shard: number): number => {
      const parent = parents[shard];
      if (parent === undefined) throw new MalformedError(`shard ${shard} of ${parents.length}`);
      return parent;
    };
    if (parents.filter((parent, shard) => parent === shard).length !== 1) {
      throw new MalformedError("the shards are no tree: one of them is its own parent");
    }
    for (let shard = 0; shard < parents.length; shard++) {
      const top = parents.reduce(above, shard);
      if (above(top) !== top) {
        throw new MalformedError("the shards are no tree: some are below themselves");
      }
    }
    this.added.forEach((each, i) => {
      if (each.parent >= parents.length + i) {
        throw new MalformedError(`shard ${parents.length + i} was added below ${each.parent}`);
      }
    });
    const taken = new Set<string>();
    for (const group of [...this.shards, ...this.added]) {
      for (const member of group.members) {
        if (group.directory) checkJoins(member);
        else if (this.vouchedCrossings && member.key.length !== KEY_SIZE) {
          throw new MalformedError(`member ${member.name} has no ed25519 key`);
        }
        const [name, key] = [`name ${member.name}`, `key ${hex(member.key)}`];
        const address = `address ${member.address}`;
        if (
          taken.has(name) ||
          (member.key.length && taken.has(key)) ||
          (group.directory && taken.has(address))
        ) {
          throw new MalformedError(
            `member ${member.name}: the name, key or address serves twice`,
          );
        }
        taken.add(name).add(key).add(address);
      }
    }
  }

  /**
   * Parses a genesis file (genesis.json), or throws MalformedError. Take it from a source that you
   * trust. It refuses fields that it does not know: they would be missing in the identity.
   */
  static parse(text: string): Genesis {
    let found: unknown;
    try {
      found = JSON.parse(text);
    } catch (error) {
      throw new MalformedError(`no genesis file: ${error}`);
    }
    const file = new Fields(found, "a genesis file");
    const g = new Genesis(file.text("chain"), file.whole("time"), parseMembers(file, "members"));
    g.operators = file.items("operators").map((key) => fromHex(String(key)));
    g.registrationByOperator = file.flag("registration_by_operator");
    g.operatorThreshold = Math.max(1, Number(file.whole("operator_threshold")));
    g.version = file.whole("version") || 1n;
    g.vouchedCrossings = file.flag("vouched_crossings");
    const quotas = new Fields(file.take("quotas") ?? {}, "quotas");
    const bounds = QUOTAS.map((name) => quotas.whole(name));
    quotas.end();
    g.quotas = bounds.some((each) => each) ? bounds : [];
    const [tree, shards] = [file.items("tree"), file.items("shards")];
    if (tree.length !== shards.length) throw new MalformedError("a tree of other shards");
    g.shards = shards.map((members, i) => ({
      parent: Number(tree[i]),
      members: membersOf(members),
    }));
    g.shard = Number(file.whole("shard"));
    g.added = file.items("grown").map((each) => {
      const grown = new Fields(each, "a grown shard");
      const shard = {
        parent: Number(grown.whole("parent")),
        members: parseMembers(grown, "members"),
        directory: fixed(fromHex(grown.text("directory")), HASH_SIZE, "a hash"),
      };
      grown.end();
      return shard;
    });
    file.end();
    const given = elements(g.members.map(encodeMember));
    g.#settle();
    if (!equal(given, elements(g.members.map(encodeMember)))) {
      throw new MalformedError(`the members are not those of shard ${g.shard}`);
    }
    return g;
  }
}

// The fields of an object of a file, each taken once. What is left at the end is unknown.
class Fields {
  readonly #left: Map<string, unknown>;

  constructor(
    value: unknown,
    private readonly what: string,
  ) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      throw new MalformedError(`${what} that is no object`);
    }
    this.#left = new Map(Object.entries(value));
  }

  take(name: string): unknown {
    const value = this.#left.get(name);
    this.#left.delete(name);
    return value ?? undefined;
  }

  text(name: string): string {
    const value = this.take(name);
    if (typeof value !== "string") throw new MalformedError(`${this.what}: ${name} is no text`);
    return value;
  }

  whole(name: string): bigint {
    const value = this.take(name) ?? 0;
    if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) {
      throw new MalformedError(`${this.what}: ${name} is no whole number`);
    }
    return BigInt(value);
  }

  flag(name: string): boolean {
    const value = this.take(name) ?? false;
    if (typeof value !== "boolean") throw new MalformedError(`${this.what}: ${name} is no boolean`);
    return value;
  }

  items(name: string): unknown[] {
    const value = this.take(name) ?? [];
    if (!Array.isArray(value)) throw new MalformedError(`${this.what}: ${name} is no list`);
    return value;
  }

  end(): void {
    const unknown = [...this.#left.keys()];
    if (unknown.length) {
      throw new MalformedError(`${this.what} with unknown fields: ${unknown.join(", ")}`);
    }
  }
}

function parseMembers(file: Fields, name: string): Member[] {
  return membersOf(file.items(name));
}

function membersOf(found: unknown): Member[] {
  if (!Array.isArray(found)) throw new MalformedError("members that are no list");
  return found.map((each: unknown) => {
    const member = new Fields(each, "a member");
    const [name, key] = [member.text("name"), fromBase64(member.text("key"))];
    const address = member.text("address");
    member.end();
    return { name, key, address };
  });
}

/** Takes the version of a chain that is not of the first one. */
export function readChainVersion(r: Reader): bigint {
  const version = r.uvarint();
  checkChainVersion(version);
  return version;
}

/** Throws MalformedError unless it is a version above the first one. */
export function checkChainVersion(version: bigint): void {
  if (version <= 1n || version > CHAIN_VERSION_MAX) {
    throw new MalformedError(`version ${version} of the chain`);
  }
}

/** Takes quotas, of which at least one bounds something. */
export function readQuotas(r: Reader): bigint[] {
  const quotas = QUOTAS.map(() => r.uvarint());
  checkQuotas(quotas);
  return quotas;
}

/** Throws MalformedError unless there are no quotas, or one of each kind within its bound. */
export function checkQuotas(quotas: bigint[]): void {
  if (!quotas.length) return;
  if (quotas.length !== QUOTAS.length) throw new MalformedError(`${quotas.length} quotas`);
  if (!quotas.some((each) => each)) throw new MalformedError("quotas that bound nothing");
  if (quotas.some((each) => each > QUOTA_MAX)) {
    throw new MalformedError(`a quota of more than ${QUOTA_MAX}`);
  }
}

/** Returns the home of an organisation in a book that began with so many shards. */
export function home(organisation: string, shards: number): number {
  names.organisation(organisation);
  let [best, highest] = [0, ""];
  for (let shard = 0; shard < shards; shard++) {
    const hash = sha256(HOME_DOMAIN, uint(shard, 4), utf8(organisation));
    const score = hex(hash.slice(0, 8));
    if (score > highest) [best, highest] = [shard, score];
  }
  return best;
}
