// Checks the proof of a registered asset: from its entry in the state, over the tree of all assets
// and the digest of the state, to the header of a block. The block's certificate is checked beside
// it (finality.ts). Nothing that the node says of the asset is believed.
import { concatBytes, equalBytes } from "./bytes";
import { decodeHeader, headerHash } from "./finality";
import { Reader, type Decoded } from "./reader";
import { sha256 } from "./sha256";

const arity = 4;
const maxLevels = 8;
const maxEntry = 32 << 10;
const headerSize = 205;
const assetsDomain = new TextEncoder().encode("ledgerd/state/4\0");
const stateDomain = new TextEncoder().encode("ledgerd/state/2\0");

/** What an issuer issued in the chain, in the smallest unit. */
export interface ProvenIssuance {
  organisation: string;
  allowance: bigint;
  withdrawn: boolean;
  issued: bigint;
  redeemed: bigint;
  waiting: bigint;
  arrived: bigint;
}

export interface ProvenAsset {
  name: string;
  decimals: number;
  supply: string;
  cap: bigint;
  closed: boolean;
  issuers: ProvenIssuance[];
  height: bigint;
  blockHash: Uint8Array;
}

/** Reads an amount in its shortest form. */
export function amount(reader: Reader): bigint {
  const head = reader.byte();
  const digits = reader.take(Math.min(head & 0x7f, 16));
  if ((head & 0x7f) > 16 || head === 0x80 || (digits.length > 0 && digits[0] === 0))
    reader.fail("an amount is not in its shortest form");
  let value = 0n;
  for (const digit of digits) value = (value << 8n) | BigInt(digit);
  return head >= 0x80 ? -value : value;
}

function decodeEntry(data: Uint8Array): Decoded<{ number: number; asset: ProvenAsset }> {
  const reader = new Reader(data);
  if (reader.byte() !== 0x73) reader.fail("the entry is not of an asset");
  const number = reader.uint32();
  if (reader.byte() !== 0) reader.fail("the entry is not of an asset");
  const name = reader.text("asset", 32);
  reader.text("organisation", 64);
  reader.uvarint(); // revision
  reader.uvarint(); // height of the registration
  const decimals = reader.byte();
  const supply = ["unlimited", "capped", "fixed"][reader.byte()];
  if (supply === undefined) reader.fail("a supply of an unknown kind");
  const cap = amount(reader);
  const closed = reader.bool();
  const issuers = reader.list("issuers", 64, 3, () => ({
    organisation: reader.text("organisation", 64),
    allowance: amount(reader),
    withdrawn: reader.bool(),
  }));
  const all = issuers.map((issuer) => ({
    ...issuer,
    issued: amount(reader),
    redeemed: amount(reader),
    waiting: amount(reader),
    arrived: reader.uvarint(),
  }));
  return reader.end({
    number,
    asset: {
      name,
      decimals,
      supply: supply ?? "",
      cap,
      closed,
      issuers: all,
      height: 0n,
      blockHash: new Uint8Array(),
    },
  });
}

function uint(value: bigint, size: number): Uint8Array {
  const bytes = new Uint8Array(size);
  for (let i = size - 1, left = value; i >= 0; i--, left >>= 8n) bytes[i] = Number(left & 0xffn);
  return bytes;
}

/** Returns what the proof of an asset proves, or why it proves nothing. */
export async function verifyAssetProof(
  encoded: Uint8Array,
  name: string,
): Promise<Decoded<ProvenAsset>> {
  const reader = new Reader(encoded);
  if (reader.byte() !== 1) reader.fail("a proof of an unknown version");
  const entry = reader.bytes("an asset", maxEntry);
  const path = reader.list("levels", maxLevels, 1, () =>
    reader.list("hashes", arity, 32, () => reader.hash()),
  );
  const assets = reader.number("assets", 0xffffffff);
  const root = reader.hash();
  const others = reader.hash();
  const accounts = reader.uvarint();
  const accountRoot = reader.hash();
  const header = reader.take(headerSize);
  const read = reader.end(true);
  if (read.problem !== undefined) return { problem: read.problem };
  const decoded = decodeEntry(entry);
  if (decoded.problem !== undefined) return { problem: decoded.problem };
  const block = decodeHeader(header);
  if (block.problem !== undefined) return { problem: block.problem };
  const { number, asset } = decoded.value;
  if (asset.name !== name) return { problem: "it is of another asset" };

  const astray = { problem: "the path does not lead from the asset to the root" };
  let hash = await sha256(concatBytes(new Uint8Array([0]), entry));
  let place = number - 1;
  let count = assets;
  if (place < 0 || place >= count) return astray;
  for (const children of path) {
    const first = Math.floor(place / arity) * arity;
    const own = children[place - first];
    if (count <= 1 || children.length !== Math.min(arity, count - first)) return astray;
    if (own === undefined || !equalBytes(own, hash)) return astray;
    if (children.length > 1) hash = await sha256(concatBytes(new Uint8Array([1]), ...children));
    place = Math.floor(place / arity);
    count = Math.ceil(count / arity);
  }
  if (count !== 1 || !equalBytes(hash, root)) return astray;

  const rest = await sha256(concatBytes(assetsDomain, uint(BigInt(assets), 4), root, others));
  const digest = await sha256(concatBytes(stateDomain, uint(accounts, 8), accountRoot, rest));
  if (!equalBytes(digest, block.value.stateDigest))
    return { problem: "the digest of the state is not the one in the block's header" };
  return {
    value: { ...asset, height: block.value.height, blockHash: await headerHash(header) },
  };
}
