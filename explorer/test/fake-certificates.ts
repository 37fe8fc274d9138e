// Makes geneses, certificates and evidence with real signatures, as package ledger encodes them.
import { createPrivateKey, createPublicKey, sign } from "node:crypto";
import { concatBytes } from "../src/lib/bytes";
import { hash } from "./fake-chain";

const encoder = new TextEncoder();
const pkcs8 = Uint8Array.from(Buffer.from("302e020100300506032b657004220420", "hex"));

export interface FakeGenesis {
  canonical: Uint8Array;
  hash: Uint8Array;
  /** The names of the members of the chain. */
  members: readonly string[];
}

/** A block that members sign. */
export interface Signed {
  height: bigint;
  hash: Uint8Array;
}

const bytesOf = (text: string): Uint8Array => encoder.encode(text);

export function uint32(value: number): Uint8Array {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint32(0, value);
  return new Uint8Array(view.buffer);
}

export function uint64(value: bigint): Uint8Array {
  const view = new DataView(new ArrayBuffer(8));
  view.setBigUint64(0, value);
  return new Uint8Array(view.buffer);
}

export function uvarint(value: number): Uint8Array {
  const digits: number[] = [];
  for (; value >= 0x80; value = Math.floor(value / 0x80)) digits.push((value % 0x80) | 0x80);
  return new Uint8Array([...digits, value]);
}

export function sized(value: Uint8Array | string): Uint8Array {
  const bytes = typeof value === "string" ? bytesOf(value) : value;
  return concatBytes(uvarint(bytes.length), bytes);
}

export function list(elements: readonly Uint8Array[]): Uint8Array {
  return concatBytes(uvarint(elements.length), ...elements);
}

interface Key {
  publicKey: Uint8Array;
  sign: (message: Uint8Array) => Uint8Array;
}
const keys = new Map<string, Key>();

/** The key of a member or organisation, by its name. */
export function keyOf(name: string): Key {
  const known = keys.get(name);
  if (known) return known;
  const der = Buffer.from(concatBytes(pkcs8, hash(bytesOf(`key of ${name}`))));
  const key = createPrivateKey({ key: der, format: "der", type: "pkcs8" });
  const spki = createPublicKey(key).export({ type: "spki", format: "der" });
  const made = {
    publicKey: new Uint8Array(spki.subarray(-32)),
    sign: (message: Uint8Array): Uint8Array => new Uint8Array(sign(null, message, key)),
  };
  keys.set(name, made);
  return made;
}

/** A member as a change of the members has it. */
export const joining = (name: string) => ({
  name,
  key: keyOf(name).publicKey,
  address: "127.0.0.1:7000",
});

export function member(name: string): Uint8Array {
  return concatBytes(sized(name), sized(keyOf(name).publicKey), sized("127.0.0.1:7000"));
}

/** Makes the genesis of a shard's chain. `shards` has the names of the members of each shard. */
export function fakeGenesis(
  chain: string,
  foundedMs: number,
  shards: readonly (readonly string[])[],
  parents: readonly number[] = [0],
  shard = 0,
): FakeGenesis {
  const sharded = shards.length > 1;
  const groups = shards.map((names) => list(names.map(member)));
  const canonical = concatBytes(
    new Uint8Array([sharded ? 2 : 1]),
    sized(chain),
    uint64(BigInt(foundedMs)),
    sharded
      ? list(groups.map((group, i) => concatBytes(uvarint(parents[i] ?? 0), group)))
      : (groups[0] ?? list([])),
    list([keyOf("operator").publicKey]),
    new Uint8Array([0]),
    sharded ? uvarint(shard) : new Uint8Array(),
  );
  const genesisHash = hash(bytesOf("ledgerd/genesis/1\0"), canonical);
  return { canonical, hash: genesisHash, members: shards[shard] ?? [] };
}

/** Makes a certificate. `names` has the names of all members by index, `change` a proof. */
export function certificate(
  genesis: FakeGenesis,
  epoch: number,
  block: Signed,
  names: readonly string[],
  signers: readonly number[],
  change?: Uint8Array,
): Uint8Array {
  const head = concatBytes(uint64(BigInt(epoch)), uint64(block.height), block.hash);
  const message = concatBytes(bytesOf("ledgerd/stored/1\0"), genesis.hash, head);
  return concatBytes(
    new Uint8Array([1]),
    head,
    list(
      signers.map((index) => concatBytes(uint32(index), keyOf(names[index] ?? "").sign(message))),
    ),
    change ? concatBytes(new Uint8Array([1]), sized(change)) : new Uint8Array([0]),
  );
}

export function finality(
  changes: readonly Uint8Array[],
  headers: readonly Uint8Array[],
  last: Uint8Array,
): Uint8Array {
  return concatBytes(new Uint8Array([1]), list(changes.map(sized)), list(headers), sized(last));
}

export function evidence(first: Uint8Array, second: Uint8Array): Uint8Array {
  return concatBytes(new Uint8Array([1]), sized(first), sized(second));
}
