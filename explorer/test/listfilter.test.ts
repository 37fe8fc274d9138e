import { describe, expect, test } from "vitest";
import { Chart } from "../src/lib/chart";
import { listPath } from "../src/lib/links";
import { listAddressOf, listRequestOf, readListFilter } from "../src/lib/listfilter";

const filter = (text: string) => readListFilter(new URLSearchParams(text));

describe("the filter of the list of transactions", () => {
  test("becomes a request", () => {
    const { fields, wrong } = listRequestOf(
      filter("kind=hold&status=failed&asset=EUR&min=12.5&from=2026-11-01Z&to=2026-11-30Z&shard=2"),
      2,
    );
    expect(wrong).toBe("");
    expect(fields).toMatchObject({
      kind: "hold",
      status: "failed",
      minAmount: "1250",
      maxAmount: "",
      fromTimeMs: BigInt(Date.UTC(2026, 10, 1)),
      toTimeMs: BigInt(Date.UTC(2026, 11, 1)),
      shard: 2,
    });
  });

  test.each([
    ["kind=gift", "gift"],
    ["status=lost", "lost"],
    ["from=soon", "soon"],
    ["min=1.234&asset=EUR", "decimals"],
    ["max=much", "much"],
    ["shard=x", "x"],
  ])("%s is named as wrong", (text, named) => {
    expect(listRequestOf(filter(text), 2).wrong).toContain(named);
  });

  test("has moments in UTC in the address, and nothing that is empty", () => {
    const address = listAddressOf(filter("to=2026-11-30Z&note=+rent+&kind="), 0);
    expect(address.toString()).toBe("to=2026-11-30Z&note=rent");
    expect(listPath("/holds", { poster: "", account: "a:b" })).toBe("/holds?account=a%3Ab");
    expect(listPath("/holds", { poster: "" })).toBe("/holds");
  });
});

describe("the chart of accounts", () => {
  const account = (name: string, amount: string, asset = "EUR") => ({
    account: name,
    balances: [{ asset, amount, decimals: 2 }] as never[],
  });
  const lines = (under: string, depth: number) => {
    const chart = new Chart(under, depth);
    chart.add(account("acme:a:x", "5"));
    chart.add(account("acme:a", "7"));
    chart.add(account("acme:a2", "170141183460469231731687303715884105727"));
    chart.add(account("bank:a", "-1"));
    return chart
      .sorted()
      .map(({ path, accounts, totals }) => `${path} ${accounts} ${totals.get("EUR")?.amount}`);
  };

  test("sums up each level, exactly, as in a table of contents", () => {
    expect(lines("", 9)).toEqual([
      "acme 3 170141183460469231731687303715884105739",
      "acme:a 2 12",
      "acme:a:x 1 5",
      "acme:a2 1 170141183460469231731687303715884105727",
      "bank 1 -1",
      "bank:a 1 -1",
    ]);
  });

  test("has what is under a place, and so many levels", () => {
    expect(lines("acme:a", 9)).toEqual(["acme:a 2 12", "acme:a:x 1 5"]);
    expect(lines("acme", 0)).toEqual(["acme 3 170141183460469231731687303715884105739"]);
    expect(lines("acm", 9)).toEqual([]);
  });
});
