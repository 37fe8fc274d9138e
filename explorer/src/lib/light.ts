// A light client: it asks several nodes for the newest certified block of a chain, and for what an
// account has, and believes none of them. Everything is checked from one genesis: the signatures of
// the members, the headers, and the paths from an account to a header. So a node can be away,
// behind or silent, but it cannot say something else without being seen.
import { Code, ConnectError } from "@connectrpc/connect";
import { balancesText, headerTime, verifyAccountProof, type ProvenAccount } from "./accountproof";
import { sleep } from "./backoff";
import { equalBytes, toHex } from "./bytes";
import type { Ed25519 } from "./ed25519";
import { decodeFinality, decodeHeader, headerHash, verifyFinality, type Signer } from "./finality";
import { decodeGenesis, type Genesis } from "./genesis";
import type { NodeClient } from "./peers";
import { explain } from "./problem";

const callMs = 8_000;
/** A node whose newest certified block is so much older than that of another one lags. */
export const lagMs = 10_000n;
/** How often an account is asked for until what a node shows and what it proves can be compared. */
const attempts = 3;
const certificateWaitMs = [300, 700, 1500, 3000, 6000];

/**
 * What a node is: agrees, or lags (all that it proves holds, but it is old), or differs (it says
 * what it does not prove, or of another ledger), or silent (it gave no answer to check).
 */
export type Stand = "agrees" | "lags" | "differs" | "silent";

/** A block that the members certified, as this browser checked it. */
export interface CertifiedBlock {
  height: bigint;
  hash: Uint8Array;
  timeMs: bigint;
  signers: readonly Signer[];
  of: number;
}

export interface NodeReport {
  origin: string;
  /** The name that the node gives itself. */
  name: string;
  genesisHex: string;
  /** Its newest certified block; undefined if there is none, or it does not hold. */
  newest?: CertifiedBlock;
  /** The hash that it proves at the height where all nodes are compared. */
  common?: Uint8Array;
  stand: Stand;
  /** What is wrong, as the end of a sentence. */
  problem: string;
  /** Whether no signature could be checked in this browser. */
  unsigned: boolean;
}

type Failure = Pick<NodeReport, "stand" | "problem">;

/** What went wrong with a call, as a stand. */
function failure(error: unknown): Failure {
  const { code, rawMessage } = ConnectError.from(error);
  if (code === Code.FailedPrecondition) return { stand: "silent", problem: rawMessage };
  const problem = explain(error);
  return {
    stand: "silent",
    problem:
      problem.kind === "unreachable"
        ? "it does not answer, or does not allow this page's origin"
        : problem.message.replace(/\.$/, "").replace(/^./, (letter) => letter.toLowerCase()),
  };
}

const differs = (problem: string): Failure => ({ stand: "differs", problem });

/** Asks a node for its genesis and its newest certified block, and checks them. */
export async function examine(
  origin: string,
  node: NodeClient,
  shard: number,
  genesis: Genesis,
  ed25519: Ed25519,
  signal: AbortSignal,
): Promise<NodeReport> {
  const options = { signal, timeoutMs: callMs };
  const report: NodeReport = {
    origin,
    name: "",
    genesisHex: "",
    stand: "agrees",
    problem: "",
    unsigned: ed25519.missing !== undefined,
  };
  const end = (failed: Failure): NodeReport => ({ ...report, ...failed });
  try {
    const [given, named] = await Promise.all([
      node.getGenesis({ shard }, options),
      // The name is a label, and nothing depends on it.
      node.getNode({}, options).catch(() => undefined),
    ]);
    report.name = (named?.node?.name ?? "").slice(0, 80);
    const own = await decodeGenesis(given.canonical);
    if (own.problem !== undefined) return end(differs(`its genesis: ${own.problem}`));
    report.genesisHex = toHex(own.value.hash);
    if (!equalBytes(own.value.hash, genesis.hash))
      return end(differs("it has another genesis: it is of another ledger"));

    const { finality } = await node.getCertificate({ height: 0n, shard }, options);
    const decoded = decodeFinality(finality);
    if (decoded.problem !== undefined)
      return end(differs(`its certificate cannot be read: ${decoded.problem}`));
    const { height, hash } = decoded.value.certificate;
    const verdict = await verifyFinality(finality, genesis, height, hash, ed25519);
    if (verdict.state === "wrong")
      return end(differs(`its certificate does not hold: ${verdict.problem}`));
    const header = await headerOf(node, shard, height, options);
    if (!header || !equalBytes(header.hash, hash))
      return end(differs(`its block ${height} is not the one that the members certified`));
    report.newest = {
      height,
      hash,
      timeMs: header.timeMs,
      signers: verdict.certified.signers,
      of: verdict.certified.of,
    };
    return report;
  } catch (error) {
    signal.throwIfAborted();
    return end(failure(error));
  }
}

interface Asked {
  signal: AbortSignal;
  timeoutMs: number;
}

/** The hash and time of a node's header at a height; undefined if it is not of that height. */
async function headerOf(
  node: NodeClient,
  shard: number,
  height: bigint,
  options: Asked,
): Promise<{ hash: Uint8Array; timeMs: bigint } | undefined> {
  const { block } = await node.getBlock(
    { block: { case: "height", value: height }, pageSize: 1, shard },
    options,
  );
  const canonical = block?.header?.canonical ?? new Uint8Array();
  const decoded = decodeHeader(canonical);
  if (decoded.problem !== undefined || decoded.value.height !== height) return undefined;
  return { hash: await headerHash(canonical), timeMs: headerTime(canonical) };
}

/**
 * Compares nodes at the highest block that all of them should have, and says which lag. Two blocks
 * of one height that are both certified are a fork: then every node differs.
 */
export async function compare(
  reports: readonly NodeReport[],
  clients: (origin: string) => NodeClient,
  shard: number,
  genesis: Genesis,
  ed25519: Ed25519,
  signal: AbortSignal,
): Promise<{ reports: NodeReport[]; commonHeight: bigint; fork: boolean }> {
  const sound = reports.filter((report) => report.newest !== undefined);
  const heights = sound.map((report) => report.newest?.height ?? 0n);
  const commonHeight = heights.reduce((low, each) => (each < low ? each : low), heights[0] ?? 0n);
  const newestMs = sound.reduce(
    (high, { newest }) => (newest && newest.timeMs > high ? newest.timeMs : high),
    0n,
  );
  const compared = await Promise.all(
    reports.map(async (report): Promise<NodeReport> => {
      const { newest } = report;
      if (!newest) return report;
      const lags = newest.timeMs + lagMs < newestMs;
      const stand: Failure = lags
        ? { stand: "lags", problem: "" }
        : { stand: report.stand, problem: report.problem };
      if (newest.height === commonHeight) return { ...report, ...stand, common: newest.hash };
      try {
        const node = clients(report.origin);
        const options = { signal, timeoutMs: callMs };
        const [header, { finality }] = await Promise.all([
          headerOf(node, shard, commonHeight, options),
          node.getCertificate({ height: commonHeight, shard }, options),
        ]);
        if (!header)
          return { ...report, ...differs(`its block ${commonHeight} is not of that height`) };
        const verdict = await verifyFinality(
          finality,
          genesis,
          commonHeight,
          header.hash,
          ed25519,
        );
        if (verdict.state === "wrong")
          return {
            ...report,
            ...differs(`its block ${commonHeight} is not certified: ${verdict.problem}`),
          };
        return { ...report, ...stand, common: header.hash };
      } catch (error) {
        signal.throwIfAborted();
        // It may have begun after that block. What it proves holds all the same.
        const { problem } = failure(error);
        const missing = `not compared at block ${commonHeight}: ${problem}`;
        return { ...report, ...stand, problem: missing };
      }
    }),
  );
  const hashes = new Set(compared.flatMap(({ common }) => (common ? [toHex(common)] : [])));
  const fork = hashes.size > 1;
  return {
    commonHeight,
    fork,
    reports: fork
      ? compared.map((report) =>
          report.common
            ? { ...report, ...differs(`the members certified two blocks ${commonHeight}`) }
            : report,
        )
      : compared,
  };
}

/** What a node proves of an account. */
export interface AccountReport {
  origin: string;
  stand: "proves" | "differs" | "silent";
  problem: string;
  proven?: ProvenAccount;
  unsigned: boolean;
}

/**
 * Asks a node for what an account has, and for the proof of it before and after. If the account did
 * not change in between, what the node shows has to be what it proves.
 */
export async function examineAccount(
  origin: string,
  node: NodeClient,
  shard: number,
  account: string,
  genesis: Genesis,
  ed25519: Ed25519,
  signal: AbortSignal,
): Promise<AccountReport> {
  const options = { signal, timeoutMs: callMs };
  const unsigned = ed25519.missing !== undefined;
  const bad = (problem: string): AccountReport => ({
    origin,
    stand: "differs",
    problem,
    unsigned,
  });
  const prove = async (): Promise<Awaited<ReturnType<typeof verifyAccountProof>>> =>
    await verifyAccountProof((await node.getAccountProof({ account }, options)).encoded, account);
  try {
    const given = await decodeGenesis((await node.getGenesis({ shard }, options)).canonical);
    if (given.problem !== undefined) return bad(`its genesis: ${given.problem}`);
    if (!equalBytes(given.value.hash, genesis.hash))
      return bad("it has another genesis: it is of another ledger");
    let proven: ProvenAccount | undefined;
    for (let attempt = 0; attempt < attempts; attempt++) {
      const before = await prove();
      const shown = (await node.getAccount({ account }, options)).account;
      const after = await prove();
      if (before.problem !== undefined) return bad(`its proof does not hold: ${before.problem}`);
      if (after.problem !== undefined) return bad(`its proof does not hold: ${after.problem}`);
      proven = after.value;
      const says = balancesText(shown?.balances ?? []);
      const still = equalBytes(before.value.entry, after.value.entry);
      if (says === balancesText(proven.balances)) break;
      if (still) return { ...bad("it shows another balance than it proves"), proven };
    }
    if (!proven) return bad("it proves nothing");
    const finality = await certificateOf(node, shard, proven.height, options);
    const verdict = await verifyFinality(
      finality,
      genesis,
      proven.height,
      proven.blockHash,
      ed25519,
    );
    if (verdict.state === "wrong")
      return bad(`its block ${proven.height} is not certified: ${verdict.problem}`);
    return { origin, stand: "proves", problem: "", proven, unsigned };
  } catch (error) {
    signal.throwIfAborted();
    return { origin, stand: "silent", problem: failure(error).problem, unsigned };
  }
}

/**
 * The certificate of a new block follows within a second or two. So ask for the last certified
 * block until it is late enough: to ask for one that has no certificate yet is refused.
 */
async function certificateOf(
  node: NodeClient,
  shard: number,
  height: bigint,
  options: Asked,
): Promise<Uint8Array> {
  for (const wait of certificateWaitMs) {
    const last = await node.getCertificate({ height: 0n, shard }, options);
    if ((last.certificate?.height ?? 0n) >= height) break;
    await sleep(wait, options.signal);
  }
  return (await node.getCertificate({ height, shard }, options)).finality;
}
