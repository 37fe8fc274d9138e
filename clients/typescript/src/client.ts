// A client of a node's API: JSON over HTTP, in the form of the Connect protocol. It uses fetch,
// which browsers and Node have.

import {
  type Account,
  accountOf,
  type BlockHeader,
  blockHeaderOf,
  type ChartLine,
  type HistoryEntry,
  historyEntryOf,
  type Json,
  type Level,
  list,
  type OpenHold,
  openHoldOf,
  type OpenSchedule,
  openScheduleOf,
  part,
  type Place,
  placeOf,
  reached,
  type Status,
  statusOf,
  text,
  whole,
  word,
} from "./answers.js";
import { accountNowOf, BalanceProof } from "./balance.js";
import type { Bundle } from "./bundle.js";
import { base64, concat, equal, fromBase64, hex, known, MalformedError } from "./codec.js";
import { type Auditor, certified, CertifiedProof, Finality } from "./certificate.js";
import { Genesis } from "./genesis.js";
import { Hold } from "./hold.js";
import { ProofError } from "./merkle.js";
import { organisationOf } from "./names.js";
import { PackedBundle } from "./packed.js";
import { Proof } from "./proof.js";
import { FORESEEABLE } from "./results.js";
import { AssetProof, type ShardProof, SupplyProof } from "./supply.js";
import { AccountNow } from "./terms.js";

const SERVICE = "/ledgerd.v1.LedgerService/";
const ANSWER_MAX = 128 << 20; // bytes of an answer; a finality has at most 64 MiB before base64

/** No node answered in time. A submission may have reached one: submit the same bundle again. */
export class ConnectionFailed extends Error {
  override name = "ConnectionFailed";
}

/** A node's answer is not what the API promises. */
export class MalformedAnswer extends Error {
  override name = "MalformedAnswer";
}

/**
 * A node answered with an error. `code` is the word of the Connect protocol. With `retry` the same
 * call may be made again. With `unsure` a submission may have been admitted: submit the same bytes
 * again, and no other transaction in its place.
 */
export class ApiError extends Error {
  override name = "ApiError";
  constructor(
    readonly code: string,
    message: string,
    readonly retry: boolean,
    public unsure: boolean,
    readonly reason = "",
  ) {
    super(`${code}: ${message}`);
  }
}

/** A transaction failed or expired, or has not come so far. */
export class NotDone extends Error {
  override name = "NotDone";
  constructor(readonly status: Status) {
    super(`${hex(status.id)}: ${status.state}: ${status.reason || status.reasonCode}`);
  }
}

/** Returns the status of a transaction of a bundle that a node refused as certain to fail. */
function failed(id: Uint8Array, refusal: ApiError): Status {
  return {
    id,
    state: "failed",
    height: 0n,
    index: 0,
    reasonCode: refusal.reason,
    reason: refusal.message,
    shard: 0,
    destinations: [],
    everywhere: false,
  };
}

/** Throws NotDone unless all transactions have reached the level and none has failed. */
export function require(statuses: Status[], level: Level): void {
  const wrong =
    statuses.find((each) => each.state === "failed" || each.state === "expired") ??
    statuses.find((each) => !reached(each, level));
  if (wrong) throw new NotDone(wrong);
}

/** Options of a client. A call ends within `timeout` milliseconds. */
export interface ClientOptions {
  timeout?: number;
  attempts?: number;
  token?: string;
}

/**
 * Calls one or more nodes of a ledger. A call that fails for a passing reason is made again, at the
 * next address, with growing pauses: at most `attempts` times, and not after `timeout`. That holds
 * for submissions as well, since the same bytes have the same ids and are executed once.
 */
export class Client {
  readonly #addresses: string[];
  readonly #options: Required<ClientOptions>;
  #first = 0; // the address that answered last

  /** Addresses are like http://127.0.0.1:26600. */
  constructor(addresses: string | string[], options: ClientOptions = {}) {
    this.#addresses = [addresses].flat().map((each) => {
      const { protocol, search } = new URL(each);
      if (!/^https?:$/.test(protocol) || search) throw new TypeError(`${each} is no address`);
      return each.replace(/\/+$/, "");
    });
    this.#options = { timeout: 10_000, attempts: 5, token: "", ...options };
    if (!this.#addresses.length || this.#options.timeout <= 0 || this.#options.attempts < 1) {
      throw new TypeError("a client needs an address, time, and an attempt");
    }
  }

  /**
   * Makes a call of docs/reference/api.md, with names of fields as JSON has them. Rejects with
   * ApiError if a node refuses, and with ConnectionFailed if none answers.
   */
  async call(name: string, request: Json, timeout = this.#options.timeout): Promise<Json> {
    const deadline = Date.now() + timeout;
    let failure: Error = new ConnectionFailed(`${name}: no time`);
    let unsure = false;
    for (let attempt = 0; attempt < this.#options.attempts; attempt++) {
      if (attempt) {
        const pause = Math.min(50 * 2 ** attempt, 1000) * (0.5 + Math.random() / 2);
        if (Date.now() + pause >= deadline) break;
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
      const left = deadline - Date.now();
      if (left <= 0) break;
      const target = (this.#first + attempt) % this.#addresses.length;
      try {
        const found = await this.#exchange(this.#addresses[target] ?? "", name, request, left);
        this.#first = target;
        return found;
      } catch (error) {
        failure = error instanceof Error ? error : new ConnectionFailed(`${name}: ${error}`);
        if (failure instanceof MalformedAnswer) break;
        unsure ||= !(failure instanceof ApiError) || failure.unsure;
        if (failure instanceof ApiError && !failure.retry) break;
      }
    }
    if (failure instanceof ApiError) failure.unsure = unsure;
    throw failure;
  }

  async #exchange(address: string, name: string, request: Json, left: number): Promise<Json> {
    const headers: Record<string, string> = {
      "Content-Type": "application/json",
      "Connect-Protocol-Version": "1",
      // A little less, so that the node's answer is here in time.
      "Connect-Timeout-Ms": String(Math.max(1, Math.floor(left * 0.95))),
    };
    if (this.#options.token) headers["Authorization"] = `Bearer ${this.#options.token}`;
    let [response, text]: [Response | undefined, string] = [undefined, ""];
    try {
      response = await fetch(address + SERVICE + name, {
        method: "POST",
        headers,
        body: JSON.stringify(request),
        signal: AbortSignal.timeout(left),
      });
      text = await bounded(name, response);
    } catch (error) {
      if (error instanceof MalformedAnswer) throw error;
      throw new ConnectionFailed(`${name}: ${address}: ${error}`);
    }
    return answerOf(name, response, text);
  }

  // --- writing ----------------------------------------------------------------------------------

  /**
   * Submits a signed bundle and waits for the level. Resolves to the transactions' statuses, those
   * that failed among them: require throws for these. If all are certain to fail, the node orders
   * none of them; they have failed, in no block: the height is 0. With `queue`, transactions may
   * wait for shards that are down.
   */
  async submit(
    bundle: Bundle | PackedBundle,
    wait: Level = "durable",
    options: { queue?: boolean; timeout?: number } = {},
  ): Promise<Status[]> {
    bundle.encode(); // throws for what a node would not decode
    const signatures = bundle.signatures.map((each) => ({
      organisation: each.organisation,
      publicKey: base64(each.key),
      signature: base64(each.signature),
    }));
    const content =
      bundle instanceof PackedBundle
        ? { packed: base64(bundle.content()) }
        : { transactions: bundle.bodies.map(base64) };
    const request: Json = { bundle: { ...content, signatures }, wait: levelOf(wait) };
    if (options.queue) request["queue"] = true;
    try {
      const found = await this.call("Submit", request, options.timeout);
      return statusesOf("Submit", found, bundle.ids());
    } catch (refusal) {
      if (!(refusal instanceof ApiError) || !FORESEEABLE.has(refusal.reason)) throw refusal;
      return bundle.ids().map((id) => failed(id, refusal));
    }
  }

  /** Waits until transactions reach the level, fail or expire. */
  async wait(ids: Uint8Array[], level: Level = "durable", timeout?: number): Promise<Status[]> {
    const request = { ids: ids.map(base64), wait: levelOf(level) };
    const found = await this.call("WaitTransactions", request, timeout);
    return statusesOf("WaitTransactions", found, ids);
  }

  /** Resolves to the next unused sequence number of an organisation's nonce stream. */
  async nonce(organisation: string, stream = 0n): Promise<bigint> {
    const found = await this.call("GetNonce", { organisation, stream: String(stream) });
    return read("GetNonce", () => whole(found["nextSequence"]));
  }

  // --- reading ----------------------------------------------------------------------------------

  /** Resolves to the mode of the asked node, such as "ordering". */
  async mode(): Promise<string> {
    const found = await this.call("GetNode", {});
    return read("GetNode", () => word(part(found["node"])["mode"], "NODE_MODE_"));
  }

  /** Resolves to how far a transaction is. */
  async status(id: Uint8Array): Promise<Status> {
    const found = await this.call("GetTransaction", { idHex: hex(id) });
    return read("GetTransaction", () => statusOf(part(part(found["transaction"])["status"])));
  }

  /** Resolves to an account and its balances. */
  async account(name: string): Promise<Account> {
    const answer = await this.call("GetAccount", { account: name });
    return read("GetAccount", () => accountOf(part(answer["account"])));
  }

  /** Resolves to the account of an organisation with an alias. */
  async accountByAlias(organisation: string, alias: string): Promise<Account> {
    const answer = await this.call("GetAccount", { organisation, alias });
    return read("GetAccount", () => {
      const found = accountOf(part(answer["account"]));
      if (found.alias !== alias || organisationOf(found.account) !== organisation) {
        throw new TypeError(`${found.account} has another alias`);
      }
      return found;
    });
  }

  /**
   * Yields all accounts whose names begin with the prefix. Rejects with ApiError if accounts are
   * missing, because no node of a shard answers or an organisation is on its way to another one.
   */
  accounts(prefix = "", pageSize = 100): AsyncGenerator<Account, void> {
    return this.#pages("ListAccounts", { prefix, pageSize }, "accounts", accountOf);
  }

  /** Yields the accounts whose terms have an indexed metadatum, of those with the prefix. */
  async *accountsWhere(
    key: string,
    value: string,
    prefix = "",
    pageSize = 100,
  ): AsyncGenerator<Account, void> {
    const request = { prefix, pageSize, whereKey: key, whereValue: value };
    for await (const each of this.#pages("ListAccounts", request, "accounts", accountOf)) {
      // A node of an older version does not select.
      const is = each.terms.metadata.some(
        (datum) => datum.indexed && datum.key === key && datum.value === value,
      );
      if (is) yield each;
    }
  }

  /**
   * Resolves to a place in the chain of each shard, at which balances add up to zero: that of all
   * that is durable, or of a block of the root's chain.
   */
  async cut(height?: bigint): Promise<Place[]> {
    const answer = await this.call("GetCut", height === undefined ? {} : { height: `${height}` });
    return read("GetCut", () => list(answer["places"]).map(placeOf));
  }

  /**
   * Sums up balances at a cut for each level of the paths of accounts, over all shards: of the
   * account with the path `under`, and of those below it. `depth` bounds how many parts the paths
   * of lines have beyond that; accounts further down count in the lines above them.
   */
  async chart(
    options: { under?: string; depth?: number; cut?: Place[] } = {},
  ): Promise<ChartLine[]> {
    known(options, "a chart", ["under", "depth", "cut"]);
    const under = (options.under ?? "").replace(/:$/, "");
    const first = under ? under.split(":").length : 0;
    const most = first + (options.depth ?? Infinity);
    const cut = (options.cut ?? (await this.cut())).map((each) => ({
      ...each,
      height: `${each.height}`,
      carried: `${each.carried}`,
      streamed: each.streamed.map(String),
    }));
    const lines = new Map<string, ChartLine>();
    const request = { prefix: under, pageSize: 1000, cut };
    for await (const each of this.#pages("ListAccounts", request, "accounts", accountOf)) {
      const parts = each.account.split(":");
      // acme:customers2 is not below acme:customers.
      if (under && parts.slice(0, first).join(":") !== under) continue;
      for (let depth = first; depth <= Math.min(parts.length, most); depth++) {
        const path = parts.slice(0, depth).join(":");
        const empty = { path, depth, account: false, accounts: 0, totals: new Map() };
        const line = lines.get(path) ?? empty;
        lines.set(path, line);
        line.accounts++;
        line.account ||= depth === parts.length;
        for (const { asset, amount } of each.balances) {
          line.totals.set(asset, (line.totals.get(asset) ?? 0n) + amount);
        }
      }
    }
    return [...lines.values()].sort((a, b) => comparePaths(a.path, b.path));
  }

  /** Resolves to a hold that is open, as a node says. */
  async hold(id: Uint8Array): Promise<OpenHold> {
    const answer = await this.call("GetHold", { holdHex: hex(id) });
    return read("GetHold", () => {
      const found = openHoldOf(part(answer["hold"]));
      if (!equal(found.id, id)) throw new TypeError("another hold");
      return found;
    });
  }

  /** Yields the holds that are open and match all that is named, of all shards. */
  holds(
    of: { organisation?: string; account?: string; poster?: string } = {},
    pageSize = 100,
  ): AsyncGenerator<OpenHold, void> {
    return this.#pages("ListHolds", { ...of, pageSize }, "holds", openHoldOf);
  }

  /** Resolves to a schedule with occurrences to come, as a node says. */
  async schedule(id: Uint8Array): Promise<OpenSchedule> {
    const answer = await this.call("GetSchedule", { scheduleHex: hex(id) });
    return read("GetSchedule", () => {
      const found = openScheduleOf(part(answer["schedule"]));
      if (!equal(found.id, id)) throw new TypeError("another schedule");
      return found;
    });
  }

  /** Yields the schedules with occurrences to come that an organisation placed, or all. */
  schedules(organisation = "", pageSize = 100): AsyncGenerator<OpenSchedule, void> {
    return this.#pages("ListSchedules", { organisation, pageSize }, "schedules", openScheduleOf);
  }

  /** Resolves to the shard at the root of the book's tree, which keeps the schedules. */
  async root(): Promise<number> {
    const answer = await this.call("GetTree", {});
    return read("GetTree", () => {
      const shards = list(part(answer["tree"])["shards"]).map(part);
      const root = shards.find((each) => each["root"] === true);
      return Number(whole(root?.["shard"])); // a book of one shard has no tree
    });
  }

  /** Yields the transactions that changed an account, the newest first unless `ascending`. */
  history(
    account: string,
    ascending = false,
    pageSize = 50,
  ): AsyncGenerator<HistoryEntry, void> {
    const request = { account, ascending, pageSize };
    return this.#pages("ListHistory", request, "entries", historyEntryOf);
  }

  /** Resolves to the header of a block, or of the last one, as the node says. */
  async block(height?: bigint, shard?: number): Promise<BlockHeader> {
    const chosen = height === undefined ? { head: true } : { height: String(height) };
    const answer = await this.call("GetBlock", ofShard({ ...chosen, pageSize: 1 }, shard));
    return read("GetBlock", () => {
      const found = blockHeaderOf(part(part(answer["block"])["header"]));
      if (height !== undefined && found.height !== height) throw new TypeError("another block");
      return found;
    });
  }

  /** Yields the headers of blocks from a height on, ascending, up to the last one. */
  blocks(from = 1n, shard?: number, pageSize = 50): AsyncGenerator<BlockHeader, void> {
    const request = { fromHeight: String(from), ascending: true, pageSize };
    return this.#pages("ListBlocks", ofShard(request, shard), "blocks", blockHeaderOf);
  }

  async *#pages<T>(
    name: string,
    request: Json,
    field: string,
    make: (found: Json) => T,
  ): AsyncGenerator<T, void> {
    for (let pageToken = ""; ; ) {
      const answer = await this.call(name, pageToken ? { ...request, pageToken } : request);
      const missing = [answer["unansweredShards"], answer["movingOrganisations"]].flat();
      if (missing.some((each) => each !== undefined)) {
        const what = `${name}: shards that do not answer or organisations that move are missing`;
        throw new ApiError("unavailable", `${what}: ${missing.join(" ")}`, true, false);
      }
      if (request["cut"] && answer["atCut"] !== true) {
        throw new MalformedAnswer(`${name}: the node does not know cuts`);
      }
      const [page, next] = read(name, () => [
        list(answer[field]).map((each) => make(part(each))),
        text(answer["nextPageToken"]),
      ]);
      yield* page;
      if (!next) return;
      // It would go on for ever.
      if (next === pageToken) throw new MalformedAnswer(`${name}: the same page again`);
      pageToken = next;
    }
  }

  /** Resolves to the value of a record. */
  async record(key: string): Promise<Uint8Array> {
    const found = await this.call("GetRecord", { key });
    return read("GetRecord", () => fromBase64(text(part(found["record"])["value"])));
  }

  // --- proving ----------------------------------------------------------------------------------

  /** Resolves to the genesis of the node. Compare its hash with one that you trust. */
  async genesis(shard?: number): Promise<Genesis> {
    const found = await this.call("GetGenesis", ofShard({}, shard));
    return read("GetGenesis", () => {
      const genesis = Genesis.decode(fromBase64(text(found["canonical"])));
      if (!equal(genesis.hash(), fromBase64(text(found["hash"])))) {
        throw new TypeError("the genesis has another hash");
      }
      return genesis;
    });
  }

  /** Resolves to the proof of a transaction, not verified, with its finality if there is one. */
  async proof(id: Uint8Array, shard?: number): Promise<CertifiedProof> {
    const answer = await this.call("GetProof", ofShard({ idHex: hex(id) }, shard));
    return read("GetProof", () => {
      const found = part(answer["proof"]);
      const finality = fromBase64(text(found["finality"]));
      const proof = Proof.decode(fromBase64(text(found["encoded"])));
      if (!equal(proof.id, id)) throw new TypeError("a proof of another transaction");
      return new CertifiedProof(proof, finality.length ? Finality.decode(finality) : undefined);
    });
  }

  /**
   * Resolves to a proof that holds from the genesis on. Waits until the block is certified, which
   * takes a moment. Rejects with ProofError or CertificateError if what the node says does not
   * hold.
   */
  async certifiedProof(
    id: Uint8Array,
    genesis: Genesis,
    timeout = this.#options.timeout,
  ): Promise<{ proof: CertifiedProof; auditor: Auditor }> {
    const deadline = Date.now() + timeout;
    for (;;) {
      const proof = await this.proof(id, shardOf(genesis));
      if (proof.finality) return { proof, auditor: proof.verify(genesis) };
      proof.proof.verify();
      if (Date.now() >= deadline) {
        throw new ConnectionFailed("GetProof: the block has no certificate yet");
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /**
   * Resolves to the transaction that placed a hold, whose hash is the hold's id. So no node can say
   * that less is held or leave out accounts. Rejects with ProofError if the transaction placed
   * none.
   */
  async placedHold(id: Uint8Array): Promise<Hold> {
    const { proof } = await this.proof(id);
    proof.verify();
    try {
      return Hold.decode(proof.parts.body);
    } catch (error) {
      if (!(error instanceof MalformedError)) throw error;
      throw new ProofError(`${hex(id)}: ${error.message}`);
    }
  }

  /**
   * Resolves to the terms of an account, for a signer that is about to change them. With a genesis
   * they are proven, and else a node is believed: a change replaces all terms.
   */
  async accountNow(account: string, genesis?: Genesis): Promise<AccountNow> {
    if (genesis) {
      const proof = await this.provenAccount(account, genesis);
      return accountNowOf(proof.open().account);
    }
    const found = await this.account(account);
    if (found.account !== account) {
      throw new MalformedAnswer(`GetAccount: ${found.account}, not ${account}`);
    }
    return new AccountNow(found);
  }

  /**
   * Resolves to the proof of what an account has after the newest block of its shard. The genesis
   * is that of any shard. Waits until the block is certified, and rejects as certifiedProof does.
   */
  async provenAccount(
    account: string,
    genesis: Genesis,
    timeout = this.#options.timeout,
  ): Promise<BalanceProof> {
    const deadline = Date.now() + timeout;
    const answer = await this.call("GetAccountProof", { account }, timeout);
    const { parts } = read("GetAccountProof", () => {
      const proof = BalanceProof.decode(fromBase64(text(answer["encoded"])));
      if (proof.parts.account !== account) throw new TypeError("a proof of another account");
      return proof;
    });
    const { header } = new BalanceProof(parts).open();
    const chain = genesis.forShard(read("GetAccountProof", () => Number(whole(answer["shard"]))));
    const finality = await this.#certificateOf(header.height, chain, deadline);
    const proof = new BalanceProof({ ...parts, finality });
    proof.verify(chain);
    return proof;
  }

  /**
   * Resolves to the proof of an asset's supply in the whole book, verified from the genesis on, and
   * to what it proves. The genesis is that of any shard. Waits until the blocks are certified, and
   * rejects as certifiedProof does.
   */
  async provenSupply(
    asset: string,
    genesis: Genesis,
    timeout = this.#options.timeout,
  ): Promise<{ proof: SupplyProof } & ReturnType<SupplyProof["verify"]>> {
    const deadline = Date.now() + timeout;
    const shards: ShardProof[] = [];
    for (let shard = 0; shard < genesis.bookShards(); shard++) {
      const request = { name: asset, shard, prove: true };
      const answer = await this.call("GetAsset", request, Math.max(1, deadline - Date.now()));
      const proof = read("GetAsset", () => AssetProof.decode(fromBase64(text(answer["proof"]))));
      const opened = proof.open();
      if (opened.asset.name !== asset) throw new ProofError("a proof of another asset");
      const chain = genesis.forShard(shard);
      const finality = await this.#certificateOf(opened.header.height, chain, deadline);
      shards.push({ proof, finality });
    }
    const proof = new SupplyProof(shards);
    return { proof, ...proof.verify(genesis) };
  }

  /**
   * Verifies from the genesis on that the node's block of this height is final, or rejects with
   * CertificateError. Resolves to its header, and to the auditor with the members of then.
   */
  async certifiedBlock(
    height: bigint,
    genesis: Genesis,
  ): Promise<{ block: BlockHeader; auditor: Auditor }> {
    const finality = await this.#finality(height, genesis);
    const block = await this.block(height, shardOf(genesis));
    return { block, auditor: certified(genesis, finality, height, block.hash) };
  }

  // Waits for the certificate of a block that may be a moment old.
  async #certificateOf(height: bigint, genesis: Genesis, deadline: number): Promise<Finality> {
    for (;;) {
      try {
        return await this.#finality(height, genesis);
      } catch (error) {
        const early =
          error instanceof ApiError && ["not_found", "failed_precondition"].includes(error.code);
        if (!early || Date.now() >= deadline) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  async #finality(height: bigint, genesis: Genesis): Promise<Finality> {
    const request = ofShard({ height: String(height) }, shardOf(genesis));
    const found = await this.call("GetCertificate", request);
    return read("GetCertificate", () => Finality.decode(fromBase64(text(found["finality"]))));
  }
}

// Reads an answer of a bounded size, so that a node cannot fill the memory.
async function bounded(name: string, response: Response): Promise<string> {
  const reader = response.body?.getReader();
  if (!reader) return "";
  const parts: Uint8Array[] = [];
  for (let size = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return new TextDecoder().decode(concat(...parts));
    size += value.length;
    if (size > ANSWER_MAX) {
      await reader.cancel();
      throw new MalformedAnswer(`${name}: an answer of more than ${ANSWER_MAX} bytes`);
    }
    parts.push(value);
  }
}

function answerOf(name: string, response: Response, content: string): Json {
  let found: Json = {};
  let parsed = false;
  try {
    found = part(JSON.parse(content));
    parsed = true;
  } catch {
    parsed = false; // from something between the node and here
  }
  if (response.status === 200) {
    if (parsed) return found;
    throw new MalformedAnswer(`${name}: an answer that is no JSON`);
  }
  const { code, message = "" } = found;
  if (typeof code !== "string" || typeof message !== "string") {
    const passing = [429, 502, 503, 504].includes(response.status);
    const what = `${name}: HTTP ${response.status}`;
    throw new ApiError(passing ? "unavailable" : "unknown", what, passing, passing);
  }
  const header = (field: string) => response.headers.get(`Ledgerd-${field}`) ?? "";
  const [retry, unsure] = [header("Retry") === "true", header("Unsure") === "true"];
  throw new ApiError(code, message, retry, unsure, header("Reason"));
}

// Reads an answer; what is wrong with it is MalformedAnswer.
function read<T>(name: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof TypeError || error instanceof MalformedError)) throw error;
    throw new MalformedAnswer(`${name}: ${error.message}`);
  }
}

function levelOf(level: Level): string {
  return `LEVEL_${level.toUpperCase()}`;
}

function ofShard(request: Json, shard: number | undefined): Json {
  return shard === undefined ? request : { ...request, shard };
}

function shardOf(genesis: Genesis): number | undefined {
  return genesis.shards.length ? genesis.shard : undefined;
}

// Orders paths part by part, as in a table of contents.
function comparePaths(a: string, b: string): number {
  const [left, right] = [a.split(":"), b.split(":")];
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    if (left[i] !== right[i]) return left[i]! < right[i]! ? -1 : 1;
  }
  return a.length - b.length;
}

function statusesOf(name: string, found: Json, ids: Uint8Array[]): Status[] {
  return read(name, () => {
    const statuses = list(found["transactions"]).map((each) => statusOf(part(each)));
    const same = ids.every((id, i) => equal(statuses[i]?.id ?? new Uint8Array(), id));
    if (statuses.length !== ids.length || !same) {
      throw new TypeError("the statuses are of other transactions");
    }
    return statuses;
  });
}
