import { describe, expect, test } from "vitest";
import { addsUp, maxStatementPages, stateOf, statementTable } from "../src/lib/statement";

type Page = Awaited<ReturnType<Parameters<typeof stateOf>[0]>>;
const balance = (asset: string, amount: string) => ({ asset, amount, decimals: 2 });
const page = (of: object): Page =>
  ({
    entries: [],
    nextPageToken: "",
    openingBalances: [],
    closingBalances: [],
    hasBalances: true,
    balancesTooFar: false,
    height: 9n,
    ...of,
  }) as unknown as Page;
const entry = (...changes: object[]) => ({ changes });

describe("a statement", () => {
  const pages: Record<string, Page> = {
    "": page({
      nextPageToken: "2",
      openingBalances: [balance("EUR", "100")],
      closingBalances: [balance("EUR", "70")],
      entries: [entry(balance("EUR", "-30"))],
    }),
    "2": page({
      openingBalances: [balance("EUR", "70")],
      closingBalances: [balance("EUR", "75"), balance("USD", "7")],
      entries: [entry(balance("EUR", "5"), balance("USD", "7"))],
    }),
  };
  const read = (token: string): Promise<Page> => Promise.resolve(pages[token] ?? page({}));

  test("has the opening balances of its first page, and the closing ones of its last", async () => {
    const statement = await stateOf(read, "");
    expect(statement).toMatchObject({ entries: 2, height: 9n, missing: "" });
    expect(statement.rows).toEqual([
      { asset: "EUR", decimals: 2, opening: 100n, received: 5n, spent: 30n, closing: 75n },
      { asset: "USD", decimals: 2, opening: 0n, received: 7n, spent: 0n, closing: 7n },
    ]);
    expect(statement.rows.every(addsUp)).toBe(true);
    const period = { fromTimeMs: 0n, toTimeMs: BigInt(Date.UTC(2026, 11, 1)) };
    const { header, rows } = statementTable("acme:cash", period, statement.rows);
    expect(header.slice(3)).toEqual(["asset", "opening", "in", "out", "closing"]);
    expect(rows[0]).toEqual([
      "acme:cash", "", "2026-12-01T00:00:00.000Z", "EUR", "1.00", "0.05", "0.30", "0.75",
    ]);
    expect((await stateOf(read, "USD")).rows.map(({ asset }) => asset)).toEqual(["USD"]);
  });

  test("does not add up if an entry is missing", async () => {
    const { rows } = await stateOf(
      () => Promise.resolve(page({ closingBalances: [balance("EUR", "5")] })),
      "",
    );
    expect(rows.map(addsUp)).toEqual([false]);
  });

  test("is not shown in part", async () => {
    let asked = 0;
    const endless = await stateOf(() => {
      asked++;
      return Promise.resolve(page({ nextPageToken: "more" }));
    }, "");
    expect([endless.missing, asked]).toEqual(["too many entries", maxStatementPages]);
    for (const [of, missing] of [
      [{ hasBalances: false }, "an old node"],
      [{ balancesTooFar: true }, "too far back"],
    ] as const)
      expect((await stateOf(() => Promise.resolve(page(of)), "")).missing).toBe(missing);
  });
});
