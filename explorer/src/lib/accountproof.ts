// Checks the proof of what an account has after a block: from the account's entry over the tree of
// all accounts and the digest of the state to the header of the block, as
// ledger.VerifyAccountProof does. Nothing that the node says of the account is believed. The
// block's certificate is checked beside it (finality.ts).
import { amount } from "./assetproof";
import { concatBytes, equalBytes } from "./bytes";
import { decodeHeader, headerHash } from "./finality";
import { Reader, type Decoded } from "./reader";
import { sha256 } from "./sha256";

const version = 4;
const arity = 4n;
const headerSize = 205;
const maxFinality = 64 << 20;
const maxAccountPath = 128;
const maxEntry = 1 << 20;
const maxAssets = 64;
const maxAlias = 128;
const maxAsset = 32;
const maxSiblings = 3 * 32;
const stateDomain = new TextEncoder().encode("ledgerd/state/2\0");

/** What an account has of an asset, in its smallest unit. */
export interface ProvenBalance {
  asset: string;
  /** What is set aside is no longer in it. */
  amount: bigint;
  setAside: bigint;
  incoming: bigint;
}

export interface ProvenAccount {
  account: string;
  /** In the order of their names. */
  balances: ProvenBalance[];
  /** The account's entry of the state. The account is the same if it is. */
  entry: Uint8Array;
  height: bigint;
  timeMs: bigint;
  blockHash: Uint8Array;
}

function decodeEntry(data: Uint8Array): Decoded<{ number: bigint; balances: ProvenBalance[] }> {
  const reader = new Reader(data);
  const number = reader.uvarint();
  reader.bool(); // whether it is an issuer
  reader.text("alias", maxAlias);
  reader.uvarint(); // height of the block that opened it
  reader.uvarint(); // number of transactions in its history
  const balances = reader.list("balances", maxAssets, 2, () => ({
    asset: reader.text("asset", maxAsset),
    amount: amount(reader),
    setAside: 0n,
    incoming: 0n,
  }));
  if (reader.problem === "" && reader.left > 0) {
    const held = reader.list("holds", maxAssets, 3, () => ({
      asset: reader.text("asset", maxAsset),
      setAside: amount(reader),
      incoming: amount(reader),
    }));
    for (const { asset, setAside, incoming } of held) {
      let own = balances.find((balance) => balance.asset === asset);
      if (!own) balances.push((own = { asset, amount: 0n, setAside: 0n, incoming: 0n }));
      own.amount -= setAside;
      own.setAside = setAside;
      own.incoming = incoming;
    }
    reader.rest(); // its terms: the hash covers them, and nothing here shows them
  }
  balances.sort((a, b) => (a.asset < b.asset ? -1 : 1));
  return reader.end({ number, balances });
}

/** The agreed time of a block, from its header. */
export function headerTime(header: Uint8Array): bigint {
  const reader = new Reader(header.subarray(1 + 8 + 32 + 8 + 8));
  return reader.uint64();
}

/** Returns what the proof of an account proves, or why it proves nothing. */
export async function verifyAccountProof(
  encoded: Uint8Array,
  account: string,
): Promise<Decoded<ProvenAccount>> {
  const reader = new Reader(encoded);
  if (reader.byte() !== version) reader.fail("a proof of an unknown version");
  reader.bytes("finality", maxFinality); // the caller asks for the block's certificate itself
  const header = reader.take(headerSize);
  const name = reader.text("account", maxAccountPath);
  const entry = reader.bytes("entry", maxEntry);
  const accounts = reader.uvarint();
  const siblings = reader.list("hashes", maxSiblings, 32, () => reader.hash());
  const others = reader.hash();
  const read = reader.end(true);
  if (read.problem !== undefined) return { problem: read.problem };
  if (name !== account) return { problem: "it is of another account" };
  const block = decodeHeader(header);
  if (block.problem !== undefined) return { problem: block.problem };
  const decoded = decodeEntry(entry);
  if (decoded.problem !== undefined) return { problem: `the account: ${decoded.problem}` };
  const { number, balances } = decoded.value;

  const astray = { problem: "the path does not lead from the account to the root" };
  if (number < 1n || number > accounts) return astray;
  const named = new TextEncoder().encode(`a${name}\0`);
  let hash = await sha256(concatBytes(new Uint8Array([0]), named, entry));
  let used = 0;
  for (let place = number - 1n, count = accounts; count > 1n; ) {
    const first = (place / arity) * arity;
    const size = Number(count - first < arity ? count - first : arity);
    if (size > 1) {
      const beside = siblings.slice(used, used + size - 1);
      if (beside.length < size - 1) return astray;
      used += size - 1;
      beside.splice(Number(place - first), 0, hash);
      hash = await sha256(concatBytes(new Uint8Array([1]), ...beside));
    }
    place /= arity;
    count = (count + arity - 1n) / arity;
  }
  if (used !== siblings.length) return astray;
  const head = new Uint8Array(8);
  new DataView(head.buffer).setBigUint64(0, accounts);
  const digest = await sha256(concatBytes(stateDomain, head, hash, others));
  if (!equalBytes(digest, block.value.stateDigest))
    return { problem: "the digest of the state is not the one in the block's header" };
  return {
    value: {
      account: name,
      balances,
      entry,
      height: block.value.height,
      timeMs: headerTime(header),
      blockHash: await headerHash(header),
    },
  };
}

/** Balances as a text that is the same for the same balances, without those of 0. */
export function balancesText(
  balances: readonly { asset: string; amount: bigint | string; setAside: bigint | string }[],
): string {
  return balances
    .map(({ asset, amount: of, setAside }) => ({
      asset,
      amount: BigInt(of),
      setAside: BigInt(setAside || "0"),
    }))
    .filter((each) => each.amount !== 0n || each.setAside !== 0n)
    .map((each) => `${each.asset} ${each.amount} ${each.setAside}`)
    .sort()
    .join("\n");
}
