import { describe, expect, test } from "vitest";
import {
  addressOf,
  isEmpty,
  isPeriod,
  readFilter,
  requestOf,
  smallestUnit,
} from "../src/lib/historyfilter";

const filter = (text: string) => readFilter(new URLSearchParams(text));

describe("the filter of a history", () => {
  test("comes from the address", () => {
    expect(isEmpty(filter("page=3"))).toBe(true);
    expect(isEmpty(filter("note=x"))).toBe(false);
    expect(isPeriod(filter("from=2026-11-01&asset=EUR"))).toBe(true);
    expect(isPeriod(filter("asset=EUR"))).toBe(false);
    expect(isPeriod(filter("from=2026-11-01&note=x"))).toBe(false);
  });

  test("has moments in UTC in the address, whatever was typed", () => {
    const at = (typed: string) => addressOf(filter(typed), 0).toString();
    expect(at("from=2026-11-01Z")).toBe("from=2026-11-01Z");
    expect(at("to=2026-11-30Z")).toBe("to=2026-11-30Z");
    expect(at("from=2026-11-01 12:30Z")).toBe("from=2026-11-01T12%3A30%3A00Z");
    expect(at("to=2026-11-01 12:30Z")).toBe("to=2026-11-01T12%3A30%3A59Z");
    expect(at("from=soon&note=+a+")).toBe("from=soon&note=a");
    for (const typed of ["from=2026-11-01&to=2026-11-30", "to=2026-11-30 12:30"]) {
      const again = addressOf(filter(typed), 0);
      expect(requestOf(readFilter(again), 0)).toEqual(requestOf(filter(typed), 0));
      expect(addressOf(readFilter(again), 0).toString()).toBe(again.toString());
    }
  });

  test("becomes a request", () => {
    expect(
      requestOf(
        filter(
          "from=2026-11-01Z&to=2026-11-30Z&asset=EUR&min=12.5&max=1,000&with=globex&note=n" +
            "&metadata=a=1,+b",
        ),
        2,
      ),
    ).toEqual({
      fields: {
        fromTimeMs: 1793491200000n,
        toTimeMs: 1796083200000n,
        asset: "EUR",
        minAmount: "1250",
        maxAmount: "100000",
        counterparty: "globex",
        note: "n",
        metadata: ["a=1", "b"],
      },
      wrong: "",
    });
    expect(requestOf(filter("from=yesterday"), 0).wrong).toContain("yesterday");
    expect(requestOf(filter("min=1.5"), 0).wrong).toContain("name the asset");
    expect(requestOf(filter("min=1.555&asset=EUR"), 2).wrong).toContain("EUR");
    expect(requestOf(filter("max=-3"), 0).wrong).toContain("no amount");
  });

  test("has amounts in the smallest unit", () => {
    expect(smallestUnit("0.05", 2)).toBe("5");
    expect(smallestUnit("007", 0)).toBe("7");
    expect(smallestUnit("1", 30)).toBe("1" + "0".repeat(30));
    expect(smallestUnit("1.", 2)).toBeUndefined();
    expect(smallestUnit("", 2)).toBeUndefined();
  });
});
