import { expect, test } from "vitest";
import { maxViews, merge, parseViews, viewsFile } from "../src/lib/views";

test("a file of views is read back, and what is none is left out", () => {
  const views = [
    { name: "Accounts of acme", path: "/accounts?prefix=acme%3A" },
    { name: "then", path: "/accounts?at=12" },
  ];
  expect(parseViews(viewsFile(views))).toEqual({ views, dropped: 0 });
  for (const wrong of ["", "{", "7", "null", '{"views":7}'])
    expect(parseViews(wrong), wrong).toBeUndefined();
  const bad = [
    { name: "", path: "/" },
    { name: "elsewhere", path: "https://example.org" },
    { name: "elsewhere", path: "//example.org" },
    { name: "elsewhere", path: "/\\example.org" },
    { name: "script", path: "javascript:alert(1)" },
    { name: "x".repeat(81), path: "/" },
    { name: "long", path: `/${"x".repeat(2000)}` },
    7,
    null,
  ];
  expect(parseViews(JSON.stringify(bad))).toEqual({ views: [], dropped: bad.length });
});

test("a view of the same name is replaced, and there is a most of them", () => {
  expect(merge([{ name: "a", path: "/" }], [{ name: "a", path: "/nodes" }])).toEqual([
    { name: "a", path: "/nodes" },
  ]);
  const many = Array.from({ length: maxViews + 5 }, (_, i) => ({ name: `v${i}`, path: "/" }));
  expect(merge([], many)).toHaveLength(maxViews);
});
