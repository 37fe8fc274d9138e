import { expect, test } from "vitest";
import { parseAmount, parseMoment } from "../src/lib/moment";

const now = new Date(2026, 10, 28, 15, 4, 5).getTime();
const local = (...parts: [number, number, number, number?, number?, number?]): number =>
  new Date(parts[0], parts[1] - 1, ...(parts.slice(2) as [number])).getTime();

test.each([
  ["2026-11-28", local(2026, 11, 28), local(2026, 11, 29)],
  ["2026-11-28 13:39", local(2026, 11, 28, 13, 39), local(2026, 11, 28, 13, 40)],
  ["2026-11-28T13:39:05", local(2026, 11, 28, 13, 39, 5), local(2026, 11, 28, 13, 39, 6)],
  ["9:07", local(2026, 11, 28, 9, 7), local(2026, 11, 28, 9, 8)],
  [
    "2026-11-28T13:39:05.123Z",
    Date.UTC(2026, 10, 28, 13, 39, 5),
    Date.UTC(2026, 10, 28, 13, 39, 6),
  ],
  ["2026-11-28 UTC", Date.UTC(2026, 10, 28), Date.UTC(2026, 10, 29)],
])("%s is a moment", (typed, startMs, endMs) => {
  expect(parseMoment(typed, now)).toMatchObject({ startMs, endMs });
});

const others = ["", "rent", "2026", "2026-13-01", "2026-02-30", "25:00", "12:60", "1812", "Z"];
test.each([...others, "12:00x"])("“%s” is no moment", (typed) => {
  expect(parseMoment(typed, now)).toBeUndefined();
});

test.each([
  ["1812", "1812", 0, undefined],
  ["-1,812 EUR", "1812", 0, "EUR"],
  ["007", "7", 0, undefined],
  ["0", "0", 0, undefined],
  ["170'141'183 unit", "170141183", 0, "unit"],
  ["1,234.50 EUR", "123450", 2, "EUR"],
  ["0.05", "5", 2, undefined],
  ["0.00", "0", 2, undefined],
])("%s is an amount", (typed, digits, decimals, asset) => {
  expect(parseAmount(typed)).toEqual({ digits, decimals, asset });
});

const noAmounts = ["", "rent", "1812x", "12 34", "EUR 12", "1.", ".5", "1.2.3"];
test.each(noAmounts)("“%s” is no amount", (typed) => {
  expect(parseAmount(typed)).toBeUndefined();
});
