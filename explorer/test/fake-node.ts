// A node that is none: it serves the built explorer and answers the API from a made-up chain. It shows the states that a healthy cluster
// does not: a proof that does not verify, members that are suspected or removed, a large digraph, a node that goes away.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { readFileSync } from "node:fs";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join, normalize } from "node:path";
import { AccountSchema, ClusterStateSchema, LedgerService, NodeMode, type Account, type ClusterState, type TransactionBodySchema } from "../src/gen/ledgerd/v1/ledgerd_pb";
import { concatBytes, fromHex } from "../src/lib/bytes";
import { FakeChain, hash, summary, type FakeBlock } from "./fake-chain";

export interface FakeOptions {
  servers?: number;
  degree?: number;
  /** Blocks that are there at the start. */
  blocks?: number;
  /** Time between new blocks; 0 for none. */
  everyMs?: number;
  /** Proofs with one flipped bit. */
  damagedProofs?: boolean;
  suspected?: number[];
  removed?: number[];
  away?: number[];
  port?: number;
}

const types: Readonly<{ [extension: string]: string }> = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const organisations = ["northbank", "southbank", "aurora-air", "meridian-air", "clearing"];

export class FakeNode {
  readonly chain = new FakeChain();
  url = "";
  private readonly life = new AbortController();
  private readonly server: Server;

  private constructor(private readonly options: FakeOptions) {
    this.server = createServer(connectNodeAdapter({ routes: (router) => this.routes(router), shutdownSignal: this.life.signal, fallback: (request, response) => serveFile(request.url ?? "/", response as ServerResponse) }));
  }

  static async start(options: FakeOptions = {}): Promise<FakeNode> {
    const made = new FakeNode(options);
    await new Promise<void>((resolve, reject) => made.server.once("error", reject).listen(options.port ?? 0, "127.0.0.1", resolve));
    made.url = `http://127.0.0.1:${(made.server.address() as AddressInfo).port}`;
    const blocks = options.blocks ?? 130;
    const start = Date.now() - blocks * 700;
    made.chain.add([{ signer: "clearing", organisations: organisations.map((name) => ({ name, publicKeys: [hash(new TextEncoder().encode(name))], shard: 0 })), accounts: organisations.map((name) => ({ account: `${name}:settlement` })) }], start);
    for (let i = 1; i < blocks; i++) made.grow(start + i * 700);
    const every = options.everyMs ?? 0;
    if (every > 0) {
      const timer = setInterval(() => made.grow(Date.now()), every);
      made.life.signal.addEventListener("abort", () => clearInterval(timer));
    }
    return made;
  }

  async stop(): Promise<void> {
    this.life.abort();
    this.server.closeAllConnections();
    await new Promise<void>((resolve) => this.server.close(() => resolve()));
  }

  /** Adds a block of made-up transactions. */
  grow(timeMs: number): FakeBlock {
    const height = this.chain.blocks.length + 1;
    const bodies = Array.from({ length: 3 + ((height * 7) % 23) }, (_, i): MessageInitShape<typeof TransactionBodySchema> => {
      const from = organisations[(height + i) % organisations.length] ?? "";
      const to = organisations[(height + i + 1 + (i % 3)) % organisations.length] ?? "";
      const amount = BigInt((height * 7919 + i * 104_729) % 900_000) + 1n;
      return {
        signer: from,
        nonce: { stream: 0n, sequence: BigInt(height * 100 + i) },
        lastValid: BigInt(height + 100),
        postings: [
          { account: `${from}:settlement`, amount: (-amount).toString(), asset: i % 3 === 0 ? "EUR" : "USD" },
          { account: `${to}:settlement`, amount: amount.toString(), asset: i % 3 === 0 ? "EUR" : "USD" },
        ],
        records: i === 2 ? [{ key: `${from}:manifest:flight-${height}`, value: new TextEncoder().encode(`{"flight":"AA${height}","seats":[${i},12]}`) }] : [],
        note: i === 1 && height % 9 === 0 ? "fails" : `{"reference":"INV-${height}-${i}","kind":"settlement","exact":${"9".repeat(25)}}`,
      };
    });
    return this.chain.add(bodies, timeMs);
  }

  private get head(): bigint {
    return BigInt(this.chain.blocks.length);
  }

  cluster(): ClusterState {
    const count = this.options.servers ?? 8;
    const degree = this.options.degree ?? 3;
    const removed = this.options.removed ?? [];
    return create(ClusterStateSchema, {
      chain: "demo",
      genesisHash: this.chain.genesis,
      digraph: `GS(${count},${degree})`,
      degree,
      toleratedFailures: Math.min(degree - 1, Math.floor((count - 1) / 2)),
      edges: Array.from({ length: count * degree }, (_, i) => ({ from: Math.floor(i / degree), to: (Math.floor(i / degree) * degree + (i % degree) + 1) % count })).filter((edge) => edge.from !== edge.to),
      members: Array.from({ length: count }, (_, index) => ({
        index,
        name: `node-${index}`,
        peerId: `12D3KooW${index}`,
        apiAddress: `127.0.0.1:${8080 + 2 * index}`,
        connected: index !== 0 && !removed.includes(index) && !(this.options.away ?? []).includes(index),
        member: !removed.includes(index),
        suspected: (this.options.suspected ?? []).includes(index),
        orderedHeight: this.head - BigInt(index % 2),
        storedHeight: this.head - BigInt(index % 2),
        lastHeardMs: BigInt(Date.now() - 40 * index),
        self: index === 0,
      })),
      node: {
        index: 0,
        name: "node-0",
        peerId: "12D3KooWQfakeQfakeQfakeQfakeQfakeQfakeQfake00",
        apiAddress: "127.0.0.1:8080",
        fabricAddress: "127.0.0.1:8081",
        mode: NodeMode.ORDERING,
        engine: { engine: "allconcur+", epoch: 3n, round: this.head + 42n, members: [], awaited: [2], generation: 1n },
        orderedHeight: this.head,
        storedHeight: this.head,
        durableHeight: this.head > 1n ? this.head - 1n : 0n,
        startedMs: BigInt(Date.now() - 8_000_000),
        poolTransactions: 14n,
        poolBytes: 3_200n,
        transactionsPerSecond: 19.7,
        orderLatencyUs: 1_840,
        durableLatencyUs: 4_210,
        version: "0.1.0",
        diskFreeBytes: 48_000_000_000n,
      },
      timeMs: BigInt(Date.now()),
      transactionsTotal: BigInt(this.chain.byId.size),
      accountsTotal: BigInt(organisations.length),
    });
  }

  account(name: string): Account | undefined {
    if (!organisations.some((organisation) => name === `${organisation}:settlement`)) return undefined;
    const sums = new Map<string, bigint>();
    for (const transaction of this.chain.byId.values()) {
      for (const posting of transaction.body?.postings ?? []) if (posting.account === name) sums.set(posting.asset, (sums.get(posting.asset) ?? 0n) + BigInt(posting.amount));
    }
    if (name.startsWith("clearing")) sums.set("WIDE", 170141183460469231731687303715884105727n);
    return create(AccountSchema, {
      account: name,
      organisation: name.split(":")[0] ?? "",
      issuer: name.startsWith("clearing"),
      openedHeight: 1n,
      balances: [...sums].map(([asset, amount]) => ({ asset, amount: amount.toString() })),
      height: this.head,
    });
  }

  private routes(router: ConnectRouter): ConnectRouter {
    const { chain } = this;
    const clusterNow = (): ClusterState => this.cluster();
    const find = <T>(value: T | undefined, what: string): T => {
      if (value === undefined) throw new ConnectError(`${what} is not here`, Code.NotFound);
      return value;
    };
    const page = <T>(rows: readonly T[], size: number, token: string): { rows: T[]; nextPageToken: string } => {
      const start = Number(token || "0");
      return { rows: rows.slice(start, start + size), nextPageToken: start + size < rows.length ? String(start + size) : "" };
    };
    const accounts = (): Account[] => organisations.map((name) => find(this.account(`${name}:settlement`), name)).sort((a, b) => (a.account < b.account ? -1 : 1));
    return router.service(LedgerService, {
      getCluster: () => ({ cluster: this.cluster() }),
      getNode: () => ({ node: this.cluster().node ?? {} }),
      watchCluster: async function* (_request, context) {
        while (!context.signal.aborted) {
          yield { cluster: clusterNow() };
          await pause(500, context.signal);
        }
      },
      subscribe: async function* (request, context) {
        for (let height = request.fromHeight; !context.signal.aborted; ) {
          const block = chain.at(height);
          if (block) {
            yield { block: { header: block.header }, headHeight: BigInt(chain.blocks.length) };
            height++;
          } else await pause(50, context.signal);
        }
      },
      listBlocks: (request) => {
        const from = request.pageToken !== "" ? BigInt(request.pageToken) : request.fromHeight > 0n && request.fromHeight < this.head ? request.fromHeight : this.head;
        const size = BigInt(request.pageSize || 50);
        const low = from > size ? from - size + 1n : 1n;
        const blocks = [];
        for (let height = from; height >= low; height--) blocks.push(find(chain.at(height), "block").header);
        return { blocks, nextPageToken: low > 1n ? String(low - 1n) : "" };
      },
      getBlock: ({ block: wanted, pageSize, pageToken }) => {
        const block = find(
          wanted.case === "height" ? chain.at(wanted.value) : wanted.case === "hashHex" ? chain.blocks.find((candidate) => candidate.header.hashHex === wanted.value) : chain.blocks.at(-1),
          "block",
        );
        const { rows, nextPageToken } = page(block.transactions, pageSize || 100, pageToken);
        return { block: { header: block.header, transactions: rows.map(summary) }, nextPageToken };
      },
      getTransaction: ({ idHex }) => ({ transaction: find(chain.byId.get(idHex), "transaction") }),
      getProof: ({ idHex }) => {
        const proof = find(chain.proof(idHex), "proof");
        if (this.options.damagedProofs) proof.canonicalTransaction = concatBytes(proof.canonicalTransaction.slice(0, -1), new Uint8Array([1]));
        return { proof };
      },
      listAccounts: ({ prefix, pageSize, pageToken }) => {
        const { rows, nextPageToken } = page(
          accounts().filter((account) => account.account.startsWith(prefix)),
          pageSize || 100,
          pageToken,
        );
        return { accounts: rows, nextPageToken };
      },
      getAccount: ({ account }) => ({ account: find(this.account(account), account) }),
      listHistory: ({ account, pageSize, pageToken }) => {
        const touching = [...chain.byId.values()].reverse().filter((transaction) => transaction.body?.postings.some((posting) => posting.account === account));
        // The token counts from the oldest entry, so that new ones do not move it.
        const start = pageToken === "" ? 0 : touching.length - Number(pageToken);
        const rows = touching.slice(start, start + (pageSize || 50));
        const left = touching.length - start - rows.length;
        const nextPageToken = left > 0 ? String(left) : "";
        const entries = rows.map((transaction) => ({
          transactionId: transaction.status?.id ?? new Uint8Array(),
          transactionIdHex: transaction.status?.idHex ?? "",
          height: transaction.status?.height ?? 0n,
          index: transaction.status?.index ?? 0,
          timeMs: transaction.blockTimeMs,
          changes: (transaction.body?.postings ?? []).filter((posting) => posting.account === account).map(({ asset, amount }) => ({ asset, amount })),
          note: transaction.body?.note ?? "",
        }));
        return { entries, nextPageToken };
      },
      listOrganisations: () => ({ organisations: organisations.map((name) => ({ name, publicKeys: [hash(new TextEncoder().encode(name))], registeredHeight: 1n })) }),
      getOrganisation: ({ name }) => ({ organisation: { name: find(organisations.find((other) => other === name), name), publicKeys: [hash(new TextEncoder().encode(name))], registeredHeight: 1n } }),
      getRecord: ({ key }) => {
        for (const transaction of [...chain.byId.values()].reverse()) {
          const record = transaction.body?.records.find((candidate) => candidate.key === key);
          if (record) return { record, height: transaction.status?.height ?? 0n };
        }
        throw new ConnectError(`${key} is not here`, Code.NotFound);
      },
      search: ({ query }) => {
        const hits = [];
        if (/^\d+$/.test(query) && chain.at(BigInt(query))) hits.push({ kind: "block", key: query, label: `block ${query}` });
        if (fromHex(query)?.length === 32) {
          const block = chain.blocks.find((candidate) => candidate.header.hashHex === query);
          if (block) hits.push({ kind: "block", key: String(block.header.height), label: query });
          if (chain.byId.has(query)) hits.push({ kind: "transaction", key: query, label: "transaction" });
        }
        for (const name of organisations) {
          if (name.startsWith(query)) hits.push({ kind: "organisation", key: name, label: name });
          if (`${name}:settlement`.startsWith(query)) hits.push({ kind: "account", key: `${name}:settlement`, label: "" });
        }
        return { hits: hits.slice(0, 10) };
      },
    });
  }
}

function serveFile(url: string, response: ServerResponse): void {
  const { pathname } = new URL(url, "http://localhost");
  const name = extname(pathname) in types ? normalize(pathname) : "/index.html";
  try {
    response.writeHead(200, { "content-type": types[extname(name)] ?? "text/plain" }).end(readFileSync(join("dist", name)));
  } catch {
    response.writeHead(404).end();
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done);
  });
}
