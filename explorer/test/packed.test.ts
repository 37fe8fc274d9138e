import { expect, test } from "vitest";
import { concatBytes } from "../src/lib/bytes";
import { decodeShown } from "../src/lib/packed";
import { list, sized, uvarint } from "./fake-certificates";

/** What shows the second of two transfers of EUR. */
interface Made {
  version: number;
  bundleVersion: number;
  signer: string;
  sequence: Uint8Array;
  assets: string[];
  names: number;
  count: number;
  width: number;
  place: number;
  /** The bytes in common and the rest of each name. */
  table: [number, string][];
  /** The other part of names; empty if it is the same. */
  other: [number, string][];
  records: number[];
  end: number[];
}

const good: Made = {
  version: 8,
  bundleVersion: 3,
  signer: "acme",
  sequence: uvarint(9),
  assets: ["EUR"],
  names: 3,
  count: 2,
  width: 1,
  place: 1,
  table: [
    [0, "acme:a"],
    [5, "b/1"],
    [0, "bob:x"],
  ],
  other: [],
  records: [0, 1, 5, 1, 2, 6],
  end: [],
};

function encode(made: Made): Uint8Array {
  const names = (table: [number, string][]): Uint8Array =>
    concatBytes(...table.map(([shared, rest]) => concatBytes(uvarint(shared), sized(rest))));
  const head = concatBytes(
    new Uint8Array([made.bundleVersion]),
    new Uint8Array(32),
    sized(made.signer),
    uvarint(7),
    made.sequence,
    uvarint(0),
    list(made.assets.map((asset) => sized(asset))),
    uvarint(made.names),
    uvarint(made.count),
    new Uint8Array([made.width]),
  );
  return concatBytes(
    new Uint8Array([made.version]),
    sized(head),
    uvarint(made.place),
    sized(names(made.table)),
    sized(names(made.other)),
    sized(new Uint8Array(made.records)),
    new Uint8Array(made.end),
  );
}

const last = new Uint8Array([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);

test("a transfer is read from its parts", () => {
  expect(decodeShown(encode(good)).value).toMatchObject({
    signer: "acme",
    place: 1,
    count: 2,
    from: "acme:b/1",
    to: "bob:x",
    asset: "EUR",
    amount: 6n,
    record: new Uint8Array([1, 2, 6]),
    parts: [
      { what: "head", index: 0 },
      { what: "names", index: 1 },
      { what: "records", index: 2 },
    ],
    size: 3,
  });
  const two = { ...good, assets: ["EUR", "unit"], records: [0, 1, 0, 5, 1, 2, 1, 6] };
  expect(decodeShown(encode(two)).value).toMatchObject({ asset: "unit", amount: 6n });
  const wide = { ...good, width: 16, records: [0, 1, ...Array<number>(16).fill(0), 1, 2, 127] };
  wide.records.push(...Array<number>(15).fill(255));
  expect(decodeShown(encode(wide)).value).toMatchObject({ amount: 2n ** 127n - 1n });
});

const bad: [string, Partial<Made>][] = [
  ["another kind of transaction", { version: 1 }],
  ["another kind of bundle", { bundleVersion: 1 }],
  ["no signer", { signer: "" }],
  ["a malformed signer", { signer: "a:b" }],
  ["nonces that overflow", { sequence: last }],
  ["no assets", { assets: [] }],
  ["an asset twice", { assets: ["EUR", "EUR"], records: [0, 1, 0, 5, 1, 2, 0, 6] }],
  ["a malformed asset", { assets: ["E R"] }],
  ["an asset that is too long", { assets: ["E".repeat(33)] }],
  ["too many assets", { assets: Array.from({ length: 17 }, (_, i) => `A${i}`) }],
  [
    "an asset that the bundle does not have",
    {
      assets: ["EUR", "unit"],
      records: [0, 1, 0, 5, 1, 2, 2, 6],
    },
  ],
  ["too few names", { names: 1 }],
  ["too many names", { names: 5 }],
  ["fewer names than the part has", { names: 2 }],
  ["more names than the part has", { names: 4 }],
  ["no transfers", { count: 0 }],
  ["more transfers than the part has", { count: 3 }],
  ["too many transfers", { count: 4097 }],
  ["amounts of no bytes", { width: 0, records: [0, 1, 1, 2] }],
  ["amounts of 17 bytes", { width: 17 }],
  ["a place outside", { place: 2 }],
  ["a transfer of nothing", { records: [0, 1, 5, 1, 2, 0] }],
  [
    "a transfer of 2^127",
    {
      width: 16,
      records: [0, 1, ...Array<number>(16).fill(1), 1, 2, 128, ...Array<number>(15).fill(0)],
    },
  ],
  ["a name that the bundle does not have", { records: [0, 1, 5, 1, 3, 6] }],
  ["a number twice", { records: [0, 1, 5, 2, 2, 6] }],
  [
    "a transfer from an account to itself",
    {
      table: [
        [0, "acme:a"],
        [5, "b/1"],
        [8, ""],
      ],
    },
  ],
  ["a short record", { records: [0, 1, 5, 1, 2] }],
  ["a record too many", { records: [0, 1, 5, 1, 2, 6, 0, 1, 7] }],
  [
    "more in common than there is",
    {
      table: [
        [0, "acme:a"],
        [7, "b/1"],
        [0, "bob:x"],
      ],
    },
  ],
  [
    "less in common than there is",
    {
      table: [
        [0, "acme:a"],
        [4, ":b/1"],
        [0, "bob:x"],
      ],
    },
  ],
  [
    "something in common with nothing",
    {
      table: [
        [1, "acme:a"],
        [5, "b/1"],
        [0, "bob:x"],
      ],
    },
  ],
  [
    "a malformed account",
    {
      table: [
        [0, "acme:a"],
        [5, "b/1"],
        [0, "bob"],
      ],
    },
  ],
  [
    "an account that begins with a mark",
    {
      table: [
        [0, "acme:a"],
        [5, "b/1"],
        [0, "\uFEFFbob:x"],
      ],
    },
  ],
  [
    "an account that is too long",
    {
      table: [
        [0, "acme:a"],
        [5, "b/1"],
        [0, `bob:${"x".repeat(125)}`],
      ],
    },
  ],
  ["the same names twice", { other: good.table }],
  ["bytes too many", { end: [0] }],
];

test.each(bad)("refused: %s", (_, spoilt) => {
  expect(decodeShown(encode({ ...good, ...spoilt })).problem).toBeTruthy();
});
