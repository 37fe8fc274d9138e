import { create } from "@bufbuild/protobuf";
import { expect, test } from "vitest";
import { TransactionSummarySchema } from "../src/gen/ledgerd/v1/ledgerd_pb";
import {
  CharterSchema,
  MembershipChangeSchema,
  PolicySchema,
} from "../src/gen/ledgerd/v1/transaction_pb";
import { concatBytes, equalBytes, fromHex, toHex } from "../src/lib/bytes";
import {
  actions,
  administrator,
  charterWords,
  formatAge,
  formatAmount,
  formatBytes,
  formatMicros,
  formatNote,
  formatRate,
  formatSpan,
  formatTime,
  formatValue,
  gistOfNote,
  isoTime,
  memberChange,
  plural,
  policyWords,
  shorten,
  signOf,
} from "../src/lib/format";

test("a transaction that moves nothing says what it does, in words", () => {
  const told = (summary: Parameters<typeof create<typeof TransactionSummarySchema>>[1]): string =>
    actions(create(TransactionSummarySchema, summary));
  expect(told({ accountCount: 1 })).toBe("opens 1 account");
  expect(told({ organisationCount: 1 })).toBe("registers 1 organisation");
  expect(told({ organisationCount: 5, accountCount: 1_200, postingCount: 1, recordCount: 2 })).toBe(
    "registers 5 organisations, opens 1,200 accounts, makes 1 posting, writes 2 records",
  );
  expect(told({ recordCount: 1, note: "a manifest" })).toBe("writes 1 record");
  expect(told({ membershipChange: { change: { case: "leave", value: 3 } } })).toBe(
    "member 3 leaves",
  );
  expect(told({ policy: true })).toBe("changes its policy");
  expect(told({ cancelsHex: "ab".repeat(32), cancelsAt: 2 })).toBe("cancels abab…abab");
  expect(told({ charter: true, note: "after the audit" })).toBe(
    "changes the operators, quotas or version",
  );
  expect(told({ note: "rent" })).toBe("only a note");
  expect(told({})).toBe("nothing");
});

test("policies and charters in words", () => {
  const keys = [{ role: "all" }, { role: "post" }];
  expect(policyWords(create(PolicySchema, { threshold: 1, keys }))).toBe("1 of 2 keys sign");
  const limits = [{ asset: "EUR", above: "1000", signatures: 2 }];
  const strict = create(PolicySchema, { threshold: 1, keys, limits, refuseAssets: true });
  expect(policyWords(strict)).toBe("1 of 2 keys sign, 2 above 1,000 EUR; others may send nothing");
  const operators = [new Uint8Array(32), new Uint8Array(32)];
  expect(charterWords(create(CharterSchema, { threshold: 2, operators }))).toBe(
    "2 of 2 operators sign, any client registers organisations; quotas: none",
  );
  const quotas = { accounts: 5000n, pending: 7n };
  const closed = { threshold: 1, operators, registrationByOperators: true, quotas };
  expect(charterWords(create(CharterSchema, closed))).toBe(
    "1 of 2 operators sign, registrations, too; quotas: 5,000 accounts, 7 pending",
  );
  expect(charterWords(create(CharterSchema, { threshold: 1, operators, version: 2 }))).toBe(
    "1 of 2 operators sign, any client registers organisations; quotas: none; version 2",
  );
});

test("hexadecimal digits and back", () => {
  expect(toHex(new Uint8Array([0, 15, 255]))).toBe("000fff");
  expect(fromHex("000fFF")).toEqual(new Uint8Array([0, 15, 255]));
  expect(fromHex("0")).toBeUndefined();
  expect(fromHex("zz")).toBeUndefined();
  expect(equalBytes(new Uint8Array([1, 2]), new Uint8Array([1, 2, 3]))).toBe(false);
  expect(concatBytes(new Uint8Array([1]), new Uint8Array(), new Uint8Array([2, 3]))).toEqual(
    new Uint8Array([1, 2, 3]),
  );
});

test.each([
  ["0", "0"],
  ["-0", "0"],
  ["7", "7"],
  ["-1250", "-1,250"],
  ["999", "999"],
  ["000123456", "123,456"],
  [
    "170141183460469231731687303715884105727",
    "170,141,183,460,469,231,731,687,303,715,884,105,727",
  ],
  [
    "-170141183460469231731687303715884105728",
    "-170,141,183,460,469,231,731,687,303,715,884,105,728",
  ],
  ["twelve", "twelve"],
  ["", ""],
])("the amount %s is written %s", (amount, written) => expect(formatAmount(amount)).toBe(written));

test("a change carries its sign", () => {
  expect(formatAmount("1250", { sign: true })).toBe("+1,250");
  expect(formatAmount("-1250", { sign: true })).toBe("-1,250");
  expect(formatAmount("0", { sign: true })).toBe("0");
  expect([signOf("-3"), signOf("0"), signOf("-0"), signOf("12")]).toEqual([-1, 0, 0, 1]);
});

test("hashes are shortened in the middle", () => {
  expect(shorten("0123456789abcdef0123456789abcdef")).toBe("01234567…89abcdef");
  expect(shorten("0123456789abcdef0")).toBe("0123456789abcdef0");
});

test.each([
  [0, "0 µs"],
  [840, "840 µs"],
  [1250, "1.25 ms"],
  [37_000, "37.0 ms"],
  [370_000, "370 ms"],
  [2_100_000, "2.1 s"],
])("%i µs reads %s", (micros, written) => expect(formatMicros(micros)).toBe(written));

test("rates, sizes and counts", () => {
  expect([0, 0.02, 1.26, 19.7, 41_200].map(formatRate)).toEqual([
    "0",
    "<0.1",
    "1.3",
    "20",
    "41,200",
  ]);
  expect([0n, 999n, 1_700n, 123_456n, 5_000_000_000n].map(formatBytes)).toEqual([
    "0 B",
    "999 B",
    "1.7 kB",
    "123 kB",
    "5.0 GB",
  ]);
  expect([plural(1, "block"), plural(0, "block"), plural(1200n, "block")]).toEqual([
    "1 block",
    "0 blocks",
    "1,200 blocks",
  ]);
});

test("ages and spans", () => {
  expect([0, 12_000, 300_000, 7_200_000, 86_400_000, 400_000_000].map(formatAge)).toEqual([
    "just now",
    "12 s ago",
    "5 min ago",
    "2 h ago",
    "1 day ago",
    "4 days ago",
  ]);
  expect([42_000, 300_000, 12_000_000, 90_000_000].map(formatSpan)).toEqual([
    "42 s",
    "5 min",
    "3 h 20 min",
    "1 day 1 h",
  ]);
  expect([-9_000, -29_000, -60_000, -86_400_000].map(formatAge)).toEqual([
    "just now",
    "in 29 s",
    "in 1 min",
    "in 1 day",
  ]);
});

test("times show the date only where it is another day", () => {
  const noon = new Date(2026, 2, 9, 12, 4, 31).getTime();
  expect(formatTime(noon, noon + 1000)).toBe("12:04:31");
  expect(formatTime(noon, noon + 86_400_000)).toBe("2026-03-09 12:04:31");
  expect(isoTime(Date.UTC(2026, 2, 9, 12, 4, 31))).toBe("2026-03-09T12:04:31.000Z");
  expect(isoTime(Number.NaN)).toBe("");
});

test("a JSON note is indented and keeps every digit", () => {
  const { text, json } = formatNote('{"a":12345678901234567890123456789,"b":["x, {y}",{}],"c":[]}');
  expect(json).toBe(true);
  expect(text).toBe(
    '{\n  "a": 12345678901234567890123456789,\n  "b": [\n    "x, {y}",\n    {}\n  ],\n  "c": []\n}',
  );
  expect(formatNote("rent, March")).toEqual({ text: "rent, March", json: false });
  expect(formatNote("{broken")).toEqual({ text: "{broken", json: false });
});

test("a flat note fits on one line, any other stays as it is", () => {
  expect(gistOfNote('{"what":"rent","flat":12345678901234567890123,"paid":true}')).toBe(
    "what: rent, flat: 12345678901234567890123, paid: true",
  );
  for (const note of [
    "",
    "rent, March",
    "{}",
    '{"a":{"b":1}}',
    '{"a":[1]}',
    '["a"]',
    '{"a":"say \\"b\\""}',
  ])
    expect(gistOfNote(note)).toBe(note);
});

test("a string that ends with a brace stays a string", () => {
  expect(formatNote('["{"]').text).toBe('[\n  "{"\n]');
  expect(formatNote('{"k":"["}').text).toBe('{\n  "k": "["\n}');
});

test("a record's value is text, JSON or hexadecimal", () => {
  const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
  expect(formatValue(bytes("seat 12A"))).toEqual({ text: "seat 12A", kind: "text" });
  expect(formatValue(bytes("[1]")).kind).toBe("json");
  expect(formatValue(new Uint8Array([0xff, 0x00]))).toEqual({ text: "ff00", kind: "hex" });
  expect(formatValue(new Uint8Array([65, 0]))).toEqual({ text: "4100", kind: "hex" });
});

test("changes of the members are words", () => {
  const leave = create(MembershipChangeSchema, { change: { case: "leave", value: 2 } });
  const admit = create(MembershipChangeSchema, {
    change: { case: "admit", value: { index: 1, disk: "00112233445566778899aabbccddeeff" } },
  });
  expect([leave, admit].map(memberChange)).toEqual([
    "member 2 leaves",
    "member 1 counts with disk 0011…eeff",
  ]);
  expect([leave, admit, undefined].map(administrator)).toEqual([
    "an operator",
    "a member or operator",
    "an operator",
  ]);
});
