// Starts a cluster of four nodes with light traffic before the tests, and stops it after them.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startDemo, type Demo } from "./demo";

export default async function start(): Promise<(() => Promise<void>) | undefined> {
  if (process.env["LEDGERD_URL"]) return undefined;
  const folder = mkdtempSync(join(tmpdir(), "ledgerd-explorer-"));
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  try {
    const demo = await startIn(folder);
    return async () => {
      await demo.stop();
      remove();
    };
  } catch (error) {
    remove();
    throw error;
  }
}

async function startIn(folder: string): Promise<Demo> {
  if (!process.env["LEDGERD_BINARY"]) {
    const binary = join(folder, "ledgerd");
    execFileSync("go", ["build", "-o", binary, "./cmd/ledgerd"], { cwd: "..", stdio: "inherit" });
    process.env["LEDGERD_BINARY"] = binary;
  }
  const demo = await startDemo(["--nodes", "4", "--rate", "20"], folder);
  process.env["LEDGERD_URL"] = demo.url;
  const homes = readdirSync(folder).find((name) => name.startsWith("ledgerd-demo-")) ?? "";
  process.env["LEDGERD_GENESIS"] = join(folder, homes, "node-1", "genesis.json");
  return demo;
}
