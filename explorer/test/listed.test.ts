import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import {
  ListedTransactionSchema,
  type TransactionSummary,
} from "../src/gen/ledgerd/v1/ledgerd_pb";
import { assetsListed, listedHeader, listedRow } from "../src/lib/listed";

const listed = (transaction: object) =>
  create(ListedTransactionSchema, { transaction: transaction as TransactionSummary });

test("a file has amounts with the decimals of their assets", () => {
  const payment = listed({
    postings: [
      { account: "acme:cash", asset: "EUR", amount: "-1250" },
      { account: "globex:cash", asset: "EUR", amount: "1250" },
    ],
    status: { waitsFor: [] },
  });
  const held = listed({
    postings: [],
    hold: { account: "acme:cash", asset: "MILES", amount: "7" },
    status: { waitsFor: [] },
  });
  const opens = listed({ postings: [], status: { waitsFor: [] } });
  const decimals = (asset: string): number => (asset === "EUR" ? 2 : 0);
  const shown = [payment, held, opens].map((each) => {
    const row = listedRow(each, decimals);
    return ["account", "amount", "asset"].map(
      (name) => row[listedHeader.indexOf(name as (typeof listedHeader)[number])],
    );
  });
  expect(shown).toEqual([
    ["globex:cash", "12.50", "EUR"],
    ["acme:cash", "7", "MILES"],
    ["", "", ""],
  ]);
  expect(assetsListed([payment, held, payment])).toEqual(["EUR", "MILES"]);
});
