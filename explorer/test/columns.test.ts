import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";

// The tests run in the explorer's folder.
const files = readdirSync(".").filter((name) => /^[a-z.]+\.(ts|js|html)$/.test(name));

test.each([...files, "public/theme.js"])("no line of %s has more than 100 columns", (file) => {
  const long = readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => line.length > 100);
  expect(long).toEqual([]);
});
