// What shows a transfer of a packed bundle: the parts of the bundle that it is in. They are the
// head, the names of its accounts, and its record (docs/encoding.md, "Packed").
//
// Nothing here believes the node or throws, whatever bytes it sent.
import { concatBytes, toHex } from "./bytes";
import { isWord } from "./genesis";
import { siblingSides } from "./merkle";
import { Reader, type Decoded } from "./reader";

/** A part of a packed bundle, and its index among the leaves of the bundle's tree. */
export interface Part {
  what: "head" | "names" | "records";
  index: number;
  bytes: Uint8Array;
}

export interface Shown {
  signer: string;
  /** The transfer's place among the count transfers of the bundle. */
  place: number;
  count: number;
  from: string;
  to: string;
  asset: string;
  amount: bigint;
  /** The bytes of the transfer's record. */
  record: Uint8Array;
  parts: readonly Part[];
  /** How many parts the bundle has. */
  size: number;
}

interface Head {
  signer: string;
  assets: readonly string[];
  names: number;
  count: number;
  width: number;
}

/** The first byte of what shows a transfer. No other transaction's bytes begin with it. */
export const shownVersion = 8;

const maxPart = 256 << 10;
const maxTransfers = 4096;
const maxAssets = 16;
const maxName = 64;
const maxAsset = 32;
const maxAccount = 128;
const inPart = 64;
const idRoot = 30;
const most = 2n ** 64n - 1n;

export function isShown(body: Uint8Array): boolean {
  return body[0] === shownVersion;
}

/** Returns the id of a transfer: the first bytes of the bundle's root, and the place. */
export function packedId(root: Uint8Array, place: number): Uint8Array {
  return concatBytes(root.subarray(0, idRoot), new Uint8Array([place >> 8, place & 0xff]));
}

/** Returns how many hashes the path of each part has. */
export function pathLengths(shown: Shown): number[] {
  return shown.parts.map(
    ({ index }) => siblingSides(BigInt(index), BigInt(shown.size))?.length ?? 0,
  );
}

export function decodeShown(body: Uint8Array): Decoded<Shown> {
  const reader = new Reader(body);
  if (reader.byte() !== shownVersion) reader.fail("it is no transfer of a packed bundle");
  const encoded = reader.bytes("head", maxPart);
  const place = reader.number("place", maxTransfers - 1);
  const [first, second, records] = [
    reader.bytes("names", maxPart),
    reader.bytes("names", maxPart),
    reader.bytes("records", maxPart),
  ];
  const whole = reader.end(undefined);
  if (whole.problem !== undefined) return { problem: whole.problem };
  const head = decodeHead(encoded);
  if (head.problem !== undefined) return { problem: `its head: ${head.problem}` };
  const { signer, assets, names, count, width } = head.value;
  if (place >= count) return { problem: `transfer ${place} of ${count}` };
  const numbers = names > 256 ? 2 : 1;
  const size = 2 * numbers + (assets.length > 1 ? 1 : 0) + width;
  if (records.length !== partLength(place, count) * size)
    return { problem: `a part of ${records.length} bytes with records` };
  const record = records.subarray((place % inPart) * size).subarray(0, size);
  const from = unsigned(record.subarray(0, numbers));
  const to = unsigned(record.subarray(numbers, 2 * numbers));
  const asset = assets[assets.length > 1 ? (record[2 * numbers] ?? 0) : 0];
  const amount = BigInt(`0x${toHex(record.subarray(size - width))}`);
  if (from >= names || to >= names || from === to || asset === undefined)
    return { problem: "a record of names or an asset that the bundle does not have" };
  if (amount === 0n || amount >= 2n ** 127n) return { problem: `a transfer of ${amount}` };

  const [low, high] = [Math.floor(from / inPart), Math.floor(to / inPart)];
  if ((second.length === 0) !== (low === high)) return { problem: "other names than those used" };
  const giver = nameOf(first, from, names);
  const receiver = nameOf(low === high ? first : second, to, names);
  if (giver.problem !== undefined) return { problem: `its names: ${giver.problem}` };
  if (receiver.problem !== undefined) return { problem: `its names: ${receiver.problem}` };
  if (giver.value === receiver.value) return { problem: "a transfer from an account to itself" };

  const parts: Part[] = [
    { what: "head", index: 0, bytes: encoded },
    { what: "names", index: 1 + low, bytes: first },
  ];
  if (low !== high) parts.push({ what: "names", index: 1 + high, bytes: second });
  const before = 1 + partsOf(names);
  parts.push({ what: "records", index: before + Math.floor(place / inPart), bytes: records });
  return {
    value: {
      signer,
      place,
      count,
      from: giver.value,
      to: receiver.value,
      asset,
      amount,
      record,
      parts,
      size: before + partsOf(count),
    },
  };
}

function decodeHead(data: Uint8Array): Decoded<Head> {
  const reader = new Reader(data);
  const version = reader.byte();
  if (version !== 3) reader.fail(`packed bundle version ${version}`);
  reader.hash(); // the ledger
  const signer = ascii(reader.bytes("signer", maxName));
  if (!isWord(signer)) reader.fail("a signer without a proper name");
  reader.uvarint(); // the stream
  const sequence = reader.uvarint();
  reader.uvarint(); // the last valid block
  const assets = reader.list("assets", maxAssets, 2, () => ascii(reader.bytes("asset", maxAsset)));
  if (assets.length === 0 || !assets.every(isWord)) reader.fail("an asset without a proper name");
  if (new Set(assets).size !== assets.length) reader.fail("two assets of one name");
  const names = reader.number("names", 2 * maxTransfers);
  const count = reader.number("transfers", maxTransfers);
  const width = reader.byte();
  if (count === 0 || names < 2 || names > 2 * count)
    reader.fail(`${names} names of ${count} transfers`);
  if (width === 0 || width > 16) reader.fail(`amounts of ${width} bytes`);
  if (sequence > most - BigInt(count)) reader.fail("nonces that overflow");
  return reader.end({ signer, assets, names, count, width });
}

/** Returns a name from the part that has it. */
function nameOf(part: Uint8Array, number: number, names: number): Decoded<string> {
  const reader = new Reader(part);
  let before: Uint8Array = new Uint8Array();
  const all: string[] = [];
  for (let left = partLength(number, names); left > 0 && reader.problem === ""; left--) {
    const shared = reader.number("bytes in common", before.length);
    const rest = reader.bytes("name", maxAccount);
    if (rest.length > 0 && shared < before.length && rest[0] === before[shared])
      reader.fail("a name has more in common with the one before it");
    before = concatBytes(before.subarray(0, shared), rest);
    const name = ascii(before);
    if (!isAccount(name)) reader.fail("an account without a proper name");
    all.push(name);
  }
  return reader.end(all[number % inPart] ?? "");
}

/** Returns a text that has one character for each byte. */
function ascii(bytes: Uint8Array): string {
  return new TextDecoder("latin1").decode(bytes);
}

function isAccount(name: string): boolean {
  return (
    name.length <= maxAccount &&
    /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(:[A-Za-z0-9\-_.~@+=$!*/]+)+$/.test(name)
  );
}

function partsOf(count: number): number {
  return Math.ceil(count / inPart);
}

/** Returns how many of count items are in the part with one of them. */
function partLength(item: number, count: number): number {
  return Math.min(inPart, count - Math.floor(item / inPart) * inPart);
}

function unsigned(bytes: Uint8Array): number {
  return bytes.reduce((value, byte) => (value << 8) | byte, 0);
}
