// Runs a TypeScript file: node test/run.mjs FILE ARGUMENTS...
import { runnerImport } from "vite";

const [file] = process.argv.splice(2, 1);
await runnerImport(`./${file}`, { configFile: false, logLevel: "error" });
