// Runs `ledgerd demo`: nodes in one process, with light traffic.
import { spawn, type ChildProcess } from "node:child_process";
import { createServer, type AddressInfo } from "node:net";

const readyWithinMs = 60_000;
const stopsWithinMs = 15_000;

export interface Demo {
  url: string;
  stop: () => Promise<void>;
}

/**
 * Starts the binary that LEDGERD_BINARY names, and waits until its first node has made blocks. The
 * homes of its nodes are in `folder`, if there is one.
 */
export async function startDemo(flags: readonly string[], folder?: string): Promise<Demo> {
  const binary = process.env["LEDGERD_BINARY"];
  if (!binary) throw new Error("LEDGERD_BINARY names no binary");
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const cluster = spawn(binary, ["demo", "--port", String(port), ...flags], {
    stdio: ["ignore", "pipe", "pipe"],
    env: folder === undefined ? process.env : { ...process.env, TMPDIR: folder },
  });
  let output = "";
  const keep = (chunk: Buffer): void => {
    output = (output + chunk.toString()).slice(-8_000);
  };
  cluster.stdout.on("data", keep);
  cluster.stderr.on("data", keep);
  try {
    await ready(url, cluster);
  } catch (error) {
    await stop(cluster); // it removes its homes
    throw new Error(`${String(error)}\n${output}`);
  }
  return { url, stop: () => stop(cluster) };
}

/** Waits until the node answers and has made blocks. */
async function ready(url: string, cluster: ChildProcess): Promise<void> {
  const deadline = Date.now() + readyWithinMs;
  while (Date.now() < deadline) {
    if (cluster.exitCode !== null)
      throw new Error(`ledgerd demo ended with status ${cluster.exitCode}`);
    try {
      const answer = await fetch(`${url}/ledgerd.v1.LedgerService/GetCluster`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: "{}",
      });
      const { cluster: state } = (await answer.json()) as {
        cluster?: { node?: { durableHeight?: string } };
      };
      if (Number(state?.node?.durableHeight ?? 0) >= 5) return;
    } catch {
      // Not listening yet.
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`ledgerd demo was not ready within ${readyWithinMs} ms`);
}

async function stop(cluster: ChildProcess): Promise<void> {
  if (cluster.exitCode !== null || cluster.signalCode !== null) return;
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
