// The accounts of a made-up chain as they are in the state after its newest block, with their
// proofs, as package ledger encodes them.
import { create } from "@bufbuild/protobuf";
import { AccountSchema, type Account } from "../src/gen/ledgerd/v1/accounts_pb";
import { concatBytes } from "../src/lib/bytes";
import { list, sized, uint64, uvarint } from "./fake-certificates";
import { hash } from "./fake-chain";

const arity = 4;
const encoder = new TextEncoder();
const others = hash(encoder.encode("others"));

function amount(value: bigint): Uint8Array {
  const digits: number[] = [];
  for (let left = value < 0n ? -value : value; left > 0n; left >>= 8n)
    digits.unshift(Number(left & 0xffn));
  return new Uint8Array([digits.length | (value < 0n ? 0x80 : 0), ...digits]);
}

/** The account's entry of the state. Its number is its place from 1 on. */
function entryOf(account: Account, number: number): Uint8Array {
  const sorted = [...account.balances].sort((a, b) => (a.asset < b.asset ? -1 : 1));
  const held = sorted.filter(({ setAside, incoming }) => setAside + incoming !== "");
  return concatBytes(
    uvarint(number),
    new Uint8Array([account.issuer ? 1 : 0]),
    sized(account.alias),
    uvarint(Number(account.openedHeight)),
    uvarint(0),
    list(
      sorted.map((balance) =>
        concatBytes(
          sized(balance.asset),
          amount(BigInt(balance.amount) + BigInt(balance.setAside || "0")),
        ),
      ),
    ),
    held.length === 0
      ? new Uint8Array()
      : list(
          held.map((balance) =>
            concatBytes(
              sized(balance.asset),
              amount(BigInt(balance.setAside || "0")),
              amount(BigInt(balance.incoming || "0")),
            ),
          ),
        ),
  );
}

export class FakeAccounts {
  private accounts: readonly Account[] = [];
  private entries: readonly Uint8Array[] = [];

  /** Takes the accounts after a block, and returns the digest of the state. */
  take(accounts: readonly Account[]): Uint8Array {
    this.accounts = accounts.map((account) => create(AccountSchema, account));
    this.entries = accounts.map((account, i) => entryOf(account, i + 1));
    const root = this.levels().at(-1)?.[0] ?? new Uint8Array(32);
    return hash(
      encoder.encode("ledgerd/state/2\0"),
      uint64(BigInt(accounts.length)),
      root,
      others,
    );
  }

  /** The account after the newest block. */
  account(name: string): Account | undefined {
    return this.accounts.find((account) => account.account === name);
  }

  /** The proof of an account by the header of the newest block. */
  proof(name: string, header: Uint8Array): Uint8Array | undefined {
    let place = this.accounts.findIndex((account) => account.account === name);
    const entry = this.entries[place];
    if (!entry) return undefined;
    const siblings: Uint8Array[] = [];
    for (const level of this.levels().slice(0, -1)) {
      const first = place - (place % arity);
      for (let child = first; child < Math.min(first + arity, level.length); child++)
        if (child !== place) siblings.push(level[child] as Uint8Array);
      place = Math.floor(place / arity);
    }
    return concatBytes(
      new Uint8Array([4, 0]),
      header,
      sized(name),
      sized(entry),
      uvarint(this.accounts.length),
      list(siblings),
      others,
    );
  }

  /** The hashes of each level of the tree, the leaves first. */
  private levels(): Uint8Array[][] {
    const leaf = new Uint8Array([0]);
    let level = this.accounts.map(({ account }, i) =>
      hash(leaf, encoder.encode(`a${account}\0`), this.entries[i] ?? new Uint8Array()),
    );
    const levels = [level];
    while (level.length > 1) {
      const above: Uint8Array[] = [];
      for (let i = 0; i < level.length; i += arity) {
        const children = level.slice(i, i + arity);
        above.push(
          children.length === 1
            ? (children[0] as Uint8Array)
            : hash(new Uint8Array([1]), ...children),
        );
      }
      levels.push((level = above));
    }
    return levels;
  }
}
