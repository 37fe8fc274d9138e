import { defineConfig } from "@playwright/test";
import { chromiumOptions } from "./e2e/chromium";

// Three projects: "cluster" tests the explorer of a real cluster of four nodes, "sharded" that of a
// book of three shards, and "made-up" that of a fake node, in states that a healthy cluster does
// not show.
//
// LEDGERD_URL names a running node to test instead of a new cluster. LEDGERD_BINARY names the
// binary to start.
export default defineConfig({
  testDir: "e2e",
  globalSetup: "./e2e/cluster-setup.ts",
  fullyParallel: false,
  workers: 2,
  timeout: 60_000,
  expect: { timeout: 20_000 },
  reporter: process.env["CI"] ? [["list"], ["html", { open: "never" }]] : "list",
  use: {
    viewport: { width: 1280, height: 900 },
    launchOptions: chromiumOptions,
    trace: "retain-on-failure",
    screenshot: "only-on-failure",
  },
  projects: [
    { name: "cluster", testMatch: /cluster\/.*\.spec\.ts/ },
    { name: "sharded", testMatch: /sharded\/.*\.spec\.ts/ },
    { name: "made-up", testMatch: /made-up\/.*\.spec\.ts/ },
  ],
});
