// The genesis of a chain: certificates are verified from it. Its hash is computed here.
import { concatBytes } from "./bytes";
import { Reader, type Decoded } from "./reader";
import { sha256 } from "./sha256";

export interface Member {
  name: string;
  key: Uint8Array;
  address: string;
}

export interface Genesis {
  chain: string;
  /** The shard of the chain; 0 in a book of one shard. */
  shard: number;
  members: readonly Member[];
  /**
   * The parent of each shard with which the book began, or that was added up to this one. The root
   * is its own parent.
   */
  parents: readonly number[];
  hash: Uint8Array;
  /**
   * The hash of the book, which the chains of all its first shards share: it covers their members.
   * In a book of one shard it is the hash of the genesis.
   */
  book: Uint8Array;
  /** Whether the shard was added later. Then the book's hash does not cover its members. */
  grown: boolean;
}

export const maxMembers = 1024;
const maxShards = 1024;
const maxOperators = 64;
const quotas = 5;
const maxName = 64;
const maxKey = 128;
const maxAddress = 256;
const grownVersion = 12;
/** The hash of the directory with which the chain of an added shard begins. */
const directoryBytes = 32;
const smallestShard = 5 + directoryBytes;
const domain = new TextEncoder().encode("ledgerd/genesis/1\0");
const bookDomain = new TextEncoder().encode("ledgerd/book/1\0");

export function isWord(text: string): boolean {
  return /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(text);
}

/** Reads a member: its name, key and address. */
export function readMember(reader: Reader): Member {
  const member = {
    name: reader.text("name", maxName),
    key: reader.bytes("key", maxKey),
    address: reader.text("address", maxAddress),
  };
  if (!isWord(member.name)) reader.fail("a member without a proper name");
  return member;
}

function readMembers(reader: Reader): Member[] {
  const members = reader.list("members", maxMembers, 3, () => readMember(reader));
  if (new Set(members.map((member) => member.name)).size !== members.length)
    reader.fail("two members of one name");
  if (members.length === 0) reader.fail("no members");
  return members;
}

/** Decodes the canonical encoding of a genesis, and computes its hash. */
export async function decodeGenesis(canonical: Uint8Array): Promise<Decoded<Genesis>> {
  const reader = new Reader(canonical);
  // A shard that was added to the book has the book's genesis, and the additions up to its own.
  const first = reader.byte();
  const grown = first === grownVersion;
  const version = grown ? reader.byte() : first;
  const sharded = version % 2 === 0;
  if (version < 1 || version === 7 || version > 10 || (grown && !sharded))
    reader.fail(`genesis version ${version}`);
  const chain = reader.text("chain name", maxName);
  if (!isWord(chain)) reader.fail("a chain without a proper name");
  reader.uint64(); // time
  const parents: number[] = sharded ? [] : [0];
  const shards =
    sharded
      ? reader.list("shards", maxShards, 5, () => {
          parents.push(reader.number("parent", maxShards));
          return readMembers(reader);
        })
      : [readMembers(reader)];
  reader.list("operators", maxOperators, 32, () => reader.take(32));
  reader.bool(); // whether operators register organisations
  if (version >= 3) reader.number("threshold", maxOperators);
  if (version >= 9) {
    reader.uvarint(); // the chain's version
    reader.bool(); // vouched crossings
  }
  const bounded = version >= 8 ? reader.bool() : version >= 5;
  if (bounded) for (let i = 0; i < quotas; i++) reader.uvarint();
  const bookEnd = canonical.length - reader.left;
  if (grown) {
    const added = reader.list("added shards", maxShards, smallestShard, () => {
      parents.push(reader.number("parent", maxShards));
      const members = readMembers(reader);
      reader.take(directoryBytes);
      return members;
    });
    if (added.length === 0) reader.fail("no added shards");
    shards.push(...added);
  }
  const shard = grown
    ? shards.length - 1
    : sharded
      ? reader.number("shard", shards.length - 1)
      : 0;
  const members = shards[shard] ?? [];
  const hash = await sha256(concatBytes(domain, canonical));
  const book = sharded
    ? await sha256(concatBytes(bookDomain, canonical.subarray(grown ? 1 : 0, bookEnd)))
    : hash;
  return reader.end({ chain, shard, members, parents, hash, book, grown });
}
