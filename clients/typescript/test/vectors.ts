// The published vectors, and what tests make of them.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as ledgerd from "../src/index.js";

const ROOT = new URL("../../../../", import.meta.url);
export const file = (path: string): string => readFileSync(new URL(path, ROOT), "utf8");
export type Vector = any;
export const vectors = (name: string): Vector =>
  JSON.parse(file(`ledger/testdata/vectors/${name}.json`));

export const BASICS = vectors("basics");
export const TRANSACTIONS = vectors("transactions");
export const DETAILS = vectors("details");
export const SCHEDULES = vectors("schedules");
export const MEMBERS = vectors("members");
export const BLOCKS = vectors("blocks");
export const ACCOUNTS = vectors("accounts");
export const PACKED = vectors("packed");
export const BY_BUNDLE = vectors("bybundle");
export const FILES: Vector = {
  "basics.json": BASICS,
  "transactions.json": TRANSACTIONS,
  "details.json": DETAILS,
  "schedules.json": SCHEDULES,
  "members.json": MEMBERS,
  "blocks.json": BLOCKS,
  "accounts.json": ACCOUNTS,
  "packed.json": PACKED,
  "bybundle.json": BY_BUNDLE,
};
export const bytes = ledgerd.fromHex;
export const GENESIS = ledgerd.Genesis.decode(bytes(BASICS.geneses[0].encoded));
export const KEYS = new Map<string, ledgerd.PrivateKey>(
  BASICS.keys.map((each: Vector) => [each.name, new ledgerd.PrivateKey(bytes(each.seed))]),
);

export function each(list: Vector[], what: string, check: (vector: Vector) => void): void {
  assert.ok(list.length > 0);
  for (const vector of list) test(`${what}: ${vector.name ?? vector.encoded}`, () => check(vector));
}

/** Returns the bytes of a transaction of the vectors in hex, by its name. */
export const vectorOf = (name: string) =>
  TRANSACTIONS.transactions.find((each: Vector) => each.name === name).encoded;
export const nonce = (sequence: bigint) => ({
  ledger: GENESIS.book(),
  signer: "alice",
  stream: 7n,
  sequence,
});

export const TERMS: ledgerd.AccountTerms = {
  ...ledgerd.NO_TERMS,
  noCredits: true,
  freeze: "guardian",
  guardian: "bob",
  limits: [
    { asset: "EUR", floor: 50n, ceiling: 9000n },
    { asset: "unit", velocity: { amount: 1000n, seconds: 86400 } },
  ],
  metadata: [
    { key: "iban", value: "DE12", indexed: true },
    { key: "note", value: "ours", indexed: false },
  ],
};
