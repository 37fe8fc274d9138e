// The registered assets of a fake node, and how they and the terms of accounts were in the past.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { AssetSchema } from "../src/gen/ledgerd/v1/assets_pb";
import { AccountTermsSchema } from "../src/gen/ledgerd/v1/terms_pb";

/** The assets that are registered on a chain with assets. */
export const registered = ["EUR", "SKYL", "W".repeat(32)];
export const registeredHeight = 2n;

/** The block that changes the terms of the accounts and assets that have any. */
export const changedHeight = 10n;

/** The terms of an account before that. */
export const firstTerms = create(AccountTermsSchema, { noDebits: true });

interface Book {
  organisations: readonly string[];
  homeOf: (organisation: string) => number;
  silent: number[];
  head: bigint;
  /** Undefined for the present. */
  height: bigint | undefined;
  /** The height from which on the node knows the past. */
  knownFrom: bigint;
}

/** Returns an asset with three issuers, of which one is withdrawn by now. */
export function fakeAsset(name: string, book: Book): MessageInitShape<typeof AssetSchema> {
  const { height = book.head } = book;
  const known = book.height !== undefined && height >= book.knownFrom;
  const early = known && height < changedHeight;
  const capped = name !== "SKYL";
  const cap = name === "EUR" ? 1_000_000_00n : 170141183460469231731687303715884105727n;
  const issued = early ? cap / 8n : cap / 4n;
  const issuers = [...book.organisations].sort().slice(0, 3);
  return {
    name,
    number: registered.indexOf(name) + 1,
    owner: book.organisations[0] ?? "",
    revision: early ? 1n : 2n,
    registeredHeight,
    terms: {
      decimals: name === "EUR" ? 2 : capped ? 18 : 0,
      supply: capped ? "capped" : "unlimited",
      cap: capped ? String(cap) : "",
      closed: name === "SKYL" && !early,
      issuers: issuers.map((organisation, i) => ({
        organisation,
        allowance: capped ? String(cap / 3n) : "",
        withdrawn: i === 2 && !early,
      })),
    },
    issuances: issuers.map((organisation, i) => ({
      organisation,
      issued: String(issued),
      redeemed: i === 1 ? "5" : "0",
      shard: book.homeOf(organisation),
    })),
    issued: String(issued * 3n),
    redeemed: "5",
    outstanding: String(issued * 3n - 5n),
    waiting: name === "EUR" ? "1250" : "",
    unansweredShards: book.silent,
    height,
    termsAtCut: known,
  };
}
