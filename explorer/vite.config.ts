import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// The build is deterministic. A file's name contains a hash of its content, and no file contains a
// time or a path of the machine that built it.
export default defineConfig({
  plugins: [svelte()],
  build: {
    outDir: "dist",
    emptyOutDir: true,
    sourcemap: false,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 500,
    // Lists the packages in the bundle, with their licences. The bill of materials of a release
    // takes them from there (scripts/sbom).
    license: { fileName: "licences.json" },
  },
  server: {
    // `npm run dev` calls the node that LEDGERD_URL names, or the one that `ledgerd demo` starts.
    proxy: { "/ledgerd.v1.LedgerService": process.env["LEDGERD_URL"] ?? "http://127.0.0.1:8080" },
  },
  test: { include: ["test/**/*.test.ts"], testTimeout: 30_000 },
});
