// Starts a cluster of four nodes with a trickle of traffic before the tests, and stops it after them.
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const readyWithinMs = 60_000;
const stopsWithinMs = 15_000;

export default async function start(): Promise<(() => Promise<void>) | undefined> {
  if (process.env["LEDGERD_URL"]) return undefined;
  const folder = mkdtempSync(join(tmpdir(), "ledgerd-explorer-"));
  let binary = process.env["LEDGERD_BINARY"] ?? "";
  if (binary === "") {
    binary = join(folder, "ledgerd");
    execFileSync("go", ["build", "-o", binary, "./cmd/ledgerd"], { cwd: "..", stdio: "inherit" });
  }
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const cluster = spawn(binary, ["demo", "--nodes", "4", "--port", String(port), "--rate", "20"], { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  const keep = (chunk: Buffer): void => {
    output = (output + chunk.toString()).slice(-8_000);
  };
  cluster.stdout.on("data", keep);
  cluster.stderr.on("data", keep);
  try {
    await ready(url, cluster);
  } catch (error) {
    cluster.kill("SIGKILL");
    throw new Error(`${String(error)}\n${output}`);
  }
  process.env["LEDGERD_URL"] = url;
  return async () => {
    await stop(cluster);
    rmSync(folder, { recursive: true, force: true });
  };
}

/** Waits until the node answers and has made blocks. */
async function ready(url: string, cluster: ChildProcess): Promise<void> {
  const deadline = Date.now() + readyWithinMs;
  while (Date.now() < deadline) {
    if (cluster.exitCode !== null) throw new Error(`ledgerd demo ended with status ${cluster.exitCode}`);
    try {
      const answer = await fetch(`${url}/ledgerd.v1.LedgerService/GetCluster`, { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
      const { cluster: state } = (await answer.json()) as { cluster?: { node?: { durableHeight?: string } } };
      if (Number(state?.node?.durableHeight ?? 0) >= 5) return;
    } catch {
      // Not listening yet.
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`ledgerd demo was not ready within ${readyWithinMs} ms`);
}

async function stop(cluster: ChildProcess): Promise<void> {
  if (cluster.exitCode !== null) return;
  const ended = new Promise<void>((resolve) => cluster.once("exit", () => resolve()));
  cluster.kill("SIGINT");
  const timer = setTimeout(() => cluster.kill("SIGKILL"), stopsWithinMs);
  await ended;
  clearTimeout(timer);
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}
