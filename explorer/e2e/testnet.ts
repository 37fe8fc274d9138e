// Runs `ledgerd testnet`: nodes in processes of their own, whose shards can be stopped and started.
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const stopsWithinMs = 30_000;
const commandWithinMs = 60_000;

export interface Testnet {
  /** The API of the first node. */
  url: string;
  folder: string;
  /** Runs a command of ledgerd, with the network's folder as its working directory. */
  command: (...words: string[]) => Promise<string>;
  stop: () => Promise<void>;
}

/** Makes and runs a network of shards of one node each, and returns once its commands work. */
export async function startTestnet(shards: number): Promise<Testnet> {
  const binary = process.env["LEDGERD_BINARY"];
  if (!binary) throw new Error("LEDGERD_BINARY names no binary");
  const folder = mkdtempSync(join(tmpdir(), "ledgerd-testnet-"));
  const port = await freePorts(2 * shards);
  const flags = ["--shards", String(shards), "--nodes", "1", "--base-port", String(port)];
  const network = spawn(binary, ["testnet", "--dir", "net", ...flags, "--run"], {
    cwd: folder,
    stdio: "ignore",
  });
  const stop = async (): Promise<void> => {
    await end(network);
    rmSync(folder, { recursive: true, force: true });
  };
  const command = async (...words: string[]): Promise<string> => {
    const { stdout } = await run(binary, words, { cwd: folder, timeout: commandWithinMs });
    return stdout;
  };
  const testnet = { url: `http://127.0.0.1:${port}`, folder, command, stop };
  try {
    for (let tries = 0; ; tries++)
      try {
        const shown = await command("shards", "--node", testnet.url, "--json");
        const { shards: all } = JSON.parse(shown) as { shards: { mode: string }[] };
        if (all.every(({ mode }) => mode === "ordering")) return testnet;
        throw new Error(shown);
      } catch (error) {
        if (tries === 60 || network.exitCode !== null) throw error;
        await new Promise((resolve) => setTimeout(resolve, 500));
      }
  } catch (error) {
    await stop();
    throw error;
  }
}

async function end(network: ChildProcess): Promise<void> {
  if (network.exitCode !== null || network.signalCode !== null) return;
  const ended = new Promise<void>((resolve) => network.once("exit", () => resolve()));
  network.kill("SIGINT");
  const timer = setTimeout(() => network.kill("SIGKILL"), stopsWithinMs);
  await ended;
  clearTimeout(timer);
}

/** The first of so many ports in a row that nobody listens on. */
async function freePorts(count: number): Promise<number> {
  for (let tries = 0; tries < 50; tries++) {
    const first = 20_000 + Math.floor(Math.random() * 10_000);
    const free = await Promise.all(Array.from({ length: count }, (_, i) => isFree(first + i)));
    if (free.every(Boolean)) return first;
  }
  throw new Error(`there are no ${count} free ports in a row`);
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
