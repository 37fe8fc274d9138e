// A fake node. It serves the built explorer and answers the API from a made-up chain. It shows
// states that a healthy cluster does not: a proof that does not verify, members that are suspected
// or unreachable, a large digraph, a node that goes away.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import {
  createServer,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import {
  BlockSchema,
  ClusterStateSchema,
  LedgerService,
  MemberStanding,
  NodeMode,
  TransactionState,
  type ClusterState,
} from "../src/gen/ledgerd/v1/ledgerd_pb";
import { type EvidenceSchema } from "../src/gen/ledgerd/v1/proofs_pb";
import { AccountSchema, type Account } from "../src/gen/ledgerd/v1/accounts_pb";
import type { AssetSchema } from "../src/gen/ledgerd/v1/assets_pb";
import type { Recording } from "../src/gen/ledgerd/v1/rounds_pb";
import type { TransactionBodySchema } from "../src/gen/ledgerd/v1/transaction_pb";
import { concatBytes, fromHex, toHex } from "../src/lib/bytes";
import { FakeAccounts } from "./fake-accounts";
import { changedHeight, fakeAsset, firstTerms, registered, registeredHeight } from "./fake-assets";
import { certificate, evidence, fakeGenesis, joining } from "./fake-certificates";
import { FakeChain, hash, summary, type FakeBlock } from "./fake-chain";
import { addHolds, fakeLists, fakeTerms, policyOf } from "./fake-lists";
import { allowOrigin, serveFile } from "./fake-pages";
import { fakeRecording } from "./fake-rounds";
import { addDetails } from "./fake-details";
import { addSchedules } from "./fake-schedules";
import { FakeShards } from "./fake-shards";

export interface FakeOptions {
  servers?: number;
  degree?: number;
  /** The number of blocks at the start. */
  blocks?: number;
  /** Time between new blocks; 0 for none. */
  everyMs?: number;
  /** Flip one bit of each proof. */
  damagedProofs?: boolean;
  suspected?: number[];
  unreachable?: number[];
  away?: number[];
  /** Members that answer and follow outside of the group, and members that the rounds wait for. */
  following?: number[];
  /** Members' modes; 0 is the node itself. Other members order. */
  modes?: Readonly<Record<number, NodeMode>>;
  slow?: number[];
  /** The node's clock is 30 years ahead, and its disk is new. */
  wrongClock?: boolean;
  newDisk?: boolean;
  /** Names, amounts, counts and ages as long as a chain can have them, beside short ones. */
  wide?: boolean;
  /** The age of the newest block at the start. */
  ageMs?: number;
  /** A book of several shards: each shard's parent. The root is its own parent. */
  parents?: number[];
  halted?: number[];
  silent?: number[];
  /** EUR and the longest name of an asset are registered, with decimals and issuers. */
  assets?: boolean;
  /** The node does not know the terms of accounts, and assets, of before this block. */
  termsFrom?: number;
  /** The clearing account has terms, and holds were placed on it. */
  holds?: boolean;
  /** The clearing account has schedules, with occurrences. */
  schedules?: boolean;
  /** The clearing account has an entry with details, and a refund of it. */
  details?: boolean;
  /** The shard that entries of others have waited for for too long. */
  awaited?: number;
  /** Nothing has a certificate yet. */
  uncertified?: boolean;
  /** Fewer members than a majority sign. */
  tooFewSign?: boolean;
  /** The last member joins in block 2. */
  joins?: boolean;
  /** When the chain was founded: another time makes another genesis. */
  foundedMs?: number;
  /** The node lets nobody watch its rounds, or has none to show. */
  rounds?: "refused" | "idle";
  /** Pages of every origin may call it. */
  open?: boolean;
  /** Evidence that the node keeps; forged evidence has a wrong signature. */
  evidence?: "true" | "forged";
  port?: number;
}

const usual = ["northbank", "southbank", "aurora-air", "meridian-air", "clearing"];
// The longest names that a ledger accepts: 64 characters for an organisation, 128 for an account
// with its organisation, 32 for an asset.
const longest = [
  "northbank",
  "W".repeat(64),
  "aurora-air",
  "international-clearing-house-of-".repeat(2),
  "clearing",
];
const wideAssets = ["EUR", "SKYL", "W".repeat(32), "USD"];
const wideAmounts = [
  137_917n,
  285_489_231_269n,
  1_234_567_890_123_456_789n,
  170141183460469231731687303715884105727n,
  7n,
];

export class FakeNode {
  readonly chain: FakeChain;
  readonly shards: FakeShards;
  private readonly organisations: readonly string[];
  /** The names of the members of the node's own chain, by index. */
  private readonly names: readonly string[];
  url = "";
  uncertified: boolean;
  private readonly accounts: readonly FakeAccounts[]; // after the newest block of each chain
  private readonly sums = new Map<string, Map<string, bigint>>();
  /** The ids of the holds: the first one was posted in part, the others are open. */
  holds: readonly string[] = [];
  /** The ids of the schedules: one is open, one has ended, and one has had its only occurrence. */
  schedules: readonly string[] = [];
  /** The ids of the entry that can be refunded, and of a refund of it. */
  details: readonly string[] = [];
  /** The organisation that is on its way to its home. */
  moving = "";
  private readonly life = new AbortController();
  private readonly server: Server;

  private constructor(private readonly options: FakeOptions) {
    const parents = options.parents ?? [0];
    const name = (index: number): string =>
      options.wide && (index % 2 === 0 || parents.length > 1)
        ? `${"node-".repeat(12)}${index}`
        : `node-${index}`;
    this.names = Array.from({ length: options.servers ?? 8 }, (_, index) => name(index));
    const members =
      parents.length > 1
        ? parents.map((_, shard) => [0, 1, 2].map((index) => name(shard * 3 + index)))
        : [options.joins ? this.names.slice(0, -1) : this.names];
    this.shards = new FakeShards({
      parents,
      genesisOf: (shard) =>
        fakeGenesis(
          options.wide ? "w".repeat(64) : "demo",
          options.foundedMs ?? 1,
          members,
          parents,
          shard,
        ),
      halted: options.halted ?? [],
      silent: options.silent ?? [],
      ...(options.awaited === undefined ? {} : { awaited: options.awaited }),
      wide: options.wide ?? false,
    });
    this.chain = this.shards.chain(undefined) as FakeChain;
    for (const chain of this.shards.chains) chain.tooFewSign = options.tooFewSign ?? false;
    this.uncertified = options.uncertified ?? false;
    this.organisations = options.wide ? longest : usual;
    this.accounts = this.shards.chains.map(() => new FakeAccounts());
    for (const [i, chain] of this.shards.chains.entries())
      chain.digestOf = () => {
        const all = this.organisations.map((name) => this.account(this.settlement(name)));
        return (this.accounts[i] as FakeAccounts).take(all.flatMap((each) => each ?? []));
      };
    const serve = connectNodeAdapter({
      routes: (router) => this.routes(router),
      shutdownSignal: this.life.signal,
      fallback: (request, response) => serveFile(request.url ?? "/", response as ServerResponse),
    });
    this.server = createServer((request, response) => {
      if (options.open && allowOrigin(request, response)) return;
      serve(request, response);
    });
  }

  static async start(options: FakeOptions = {}): Promise<FakeNode> {
    const made = new FakeNode(options);
    await new Promise<void>((resolve, reject) =>
      made.server.once("error", reject).listen(options.port ?? 0, "127.0.0.1", resolve),
    );
    made.url = `http://127.0.0.1:${(made.server.address() as AddressInfo).port}`;
    const blocks = options.blocks ?? 130;
    const now = Date.now() - (options.ageMs ?? 0);
    // On a wide chain the ages grow from seconds to years.
    const timeOf = (i: number): number =>
      now - (options.wide ? (blocks - i) ** 5 * 100 : (blocks - i) * 700);
    const { organisations } = made;
    for (const chain of made.shards.chains)
      chain.add(
        [
          {
            signer: "clearing",
            organisations: organisations.map((name) => ({
              name,
              publicKeys: [hash(new TextEncoder().encode(name))],
              shard: 0,
            })),
            accounts: organisations.map((name) => ({ account: made.settlement(name) })),
          },
        ],
        timeOf(0),
      );
    for (let i = 1; i < blocks; i++) {
      const name = made.names.at(-1) ?? "";
      const change = { case: "join" as const, value: joining(name) };
      if (i === 1 && options.joins) made.chain.add([{ membershipChange: { change } }], timeOf(i));
      else made.grow(timeOf(i));
    }
    if (options.holds)
      made.holds = addHolds(made.chain, made.settlement("clearing"), timeOf(blocks));
    if (options.schedules)
      made.schedules = addSchedules(
        made.chain,
        made.settlement("clearing"),
        made.settlement(organisations[1] ?? ""),
        timeOf(blocks),
      );
    if (options.details)
      made.details = addDetails(
        made.chain,
        made.settlement("clearing"),
        made.settlement(organisations[1] ?? ""),
        timeOf(blocks),
      );
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

  /** Returns a registered asset, now or after a block of the past. */
  asset(name: string, height?: bigint): MessageInitShape<typeof AssetSchema> {
    return fakeAsset(name, {
      organisations: this.organisations,
      homeOf: (organisation) => this.homeOf(organisation),
      silent: this.options.silent ?? [],
      head: this.head,
      height,
      knownFrom: BigInt(this.options.termsFrom ?? 0),
    });
  }

  /** Returns an organisation's account. On a wide chain its path has the greatest length. */
  settlement(organisation: string): string {
    return organisation.length === 64
      ? `${organisation}:${"settlement".padEnd(63, "w")}`
      : `${organisation}:settlement`;
  }

  /**
   * Adds a block of made-up transactions to the chain of each shard that orders. Returns the block
   * of the node's own chain.
   */
  grow(timeMs: number): FakeBlock {
    this.shards.step();
    for (const chain of this.shards.chains)
      if (chain !== this.chain && this.shards.mode(chain.shard) === "ordering")
        this.growChain(chain, timeMs);
    return this.growChain(this.chain, timeMs);
  }

  /** Returns the chain of a shard, or the node's own. */
  private chainOf(shard: number | undefined): FakeChain {
    const chain = this.shards.chain(shard);
    if (!chain) throw new ConnectError(`there is no shard ${shard}`, Code.InvalidArgument);
    if (shard !== undefined && this.shards.mode(shard) === "silent")
      throw new ConnectError(`no node of shard ${shard} answers`, Code.Unavailable);
    return chain;
  }

  private growChain(chain: FakeChain, timeMs: number): FakeBlock {
    const { wide } = this.options;
    const { organisations } = this;
    const height = chain.blocks.length + 1;
    const bodies = Array.from(
      { length: 3 + ((height * 7) % 23) },
      (_, i): MessageInitShape<typeof TransactionBodySchema> => {
        const from = organisations[(height + i) % organisations.length] ?? "";
        const to = organisations[(height + i + 1 + (i % 3)) % organisations.length] ?? "";
        const amount =
          (wide && wideAmounts[(height + i) % wideAmounts.length]) ||
          BigInt((height * 7919 + i * 104_729) % 900_000) + 1n;
        const asset = (wide && wideAssets[i % wideAssets.length]) || (i % 3 === 0 ? "EUR" : "USD");
        return {
          signer: from,
          nonce: { stream: 0n, sequence: BigInt(height * 100 + i) },
          lastValid: BigInt(height + 100),
          postings: [
            { account: this.settlement(from), amount: (-amount).toString(), asset },
            { account: this.settlement(to), amount: amount.toString(), asset },
          ],
          records:
            i === 2
              ? [
                  {
                    key: `${from}:manifest:flight-${height}`,
                    value: new TextEncoder().encode(`{"flight":"AA${height}","seats":[${i},12]}`),
                  },
                ]
              : [],
          note:
            i === 1 && height % 9 === 0
              ? "fails"
              : `{"reference":"INV-${height}-${i}","kind":"settlement","exact":${"9".repeat(25)}}`,
        };
      },
    );
    if (chain === this.chain)
      for (const { account, asset, amount } of bodies.flatMap(({ postings }) => postings ?? [])) {
        const of = this.sums.get(account ?? "") ?? new Map<string, bigint>();
        of.set(asset ?? "", (of.get(asset ?? "") ?? 0n) + BigInt(amount ?? "0"));
        this.sums.set(account ?? "", of);
      }
    const block = chain.add(bodies, timeMs);
    if (wide && height % 2 === 0)
      Object.assign(block.header, {
        transactionCount: 1_234_567,
        failedCount: 123_456,
        epoch: 987_654_321n,
        round: 987_654_321_012n,
        sizeBytes: 999_000_000n,
      });
    return block;
  }

  private get head(): bigint {
    return this.chain.head;
  }

  cluster(): ClusterState {
    const count = this.options.servers ?? 8;
    const degree = this.options.degree ?? 3;
    const unreachable = this.options.unreachable ?? [];
    const { wide } = this.options;
    const host = wide ? `${"a-node-of-the-".repeat(4)}cluster.example` : "127.0.0.1";
    return create(ClusterStateSchema, {
      chain: wide ? "w".repeat(64) : "demo",
      genesisHash: this.chain.genesis.hash,
      digraph: `GS(${count},${degree})`,
      degree,
      toleratedFailures: Math.min(degree - 1, Math.floor((count - 1) / 2)),
      edges: Array.from({ length: count * degree }, (_, i) => ({
        from: Math.floor(i / degree),
        to: (Math.floor(i / degree) * degree + (i % degree) + 1) % count,
      })).filter((edge) => edge.from !== edge.to),
      members: Array.from({ length: count }, (_, index) => ({
        index,
        name: this.names[index] ?? "",
        peerId: `12D3KooW${index}`,
        apiAddress: `${host}:${8080 + 2 * index}`,
        connected:
          index !== 0 && !unreachable.includes(index) && !(this.options.away ?? []).includes(index),
        member: !unreachable.includes(index) && !(this.options.following ?? []).includes(index),
        standing: (this.options.following ?? []).includes(index)
          ? MemberStanding.FOLLOWING
          : unreachable.includes(index)
            ? MemberStanding.UNREACHABLE
            : MemberStanding.ORDERING,
        mode:
          this.options.modes?.[index] ??
          ((this.options.following ?? []).includes(index) ? NodeMode.FOLLOWING : NodeMode.ORDERING),
        heldUpMs: (this.options.slow ?? []).includes(index) ? 940 : 0,
        suspected: (this.options.suspected ?? []).includes(index),
        orderedHeight: this.head - BigInt(index % 2),
        storedHeight: this.head - BigInt(index % 2),
        lastHeardMs: BigInt(Date.now() - 40 * index),
        self: index === 0,
      })),
      node: {
        index: 0,
        name: this.names[0] ?? "",
        peerId: "12D3KooWQfakeQfakeQfakeQfakeQfakeQfakeQfake00",
        apiAddress: `${host}:8080`,
        fabricAddress: `${host}:8081`,
        mode: this.options.modes?.[0] ?? (wide ? NodeMode.FOLLOWING : NodeMode.ORDERING),
        reason: wide
          ? "This node catches up with the group: it has 987,654,321 blocks to fetch, from " + host
          : "",
        engine: {
          engine: "allconcur+",
          epoch: 3n,
          round: this.head + 42n,
          members: [],
          awaited: [2],
          generation: 1n,
        },
        orderedHeight: this.head,
        storedHeight: this.head,
        durableHeight: this.head > 1n ? this.head - 1n : 0n,
        certifiedHeight: this.uncertified ? 0n : this.head,
        evidence: this.options.evidence ? 2 : 0,
        startedMs: BigInt(Date.now() - 8_000_000),
        poolTransactions: wide ? 987_654_321n : 14n,
        poolBytes: 3_200n,
        transactionsPerSecond: wide ? 9_876_543.2 : 19.7,
        orderLatencyUs: wide ? 987_654_321 : 1_840,
        durableLatencyUs: wide ? 1_987_654_321 : 4_210,
        version: "0.1.0",
        diskFreeBytes: 48_000_000_000n,
        diskLearner: wide || this.options.newDisk ? "its data are missing" : "",
        clockOffsetMs: wide || this.options.wrongClock ? 946_080_000_000n : 12n,
        clockWarning:
          wide || this.options.wrongClock
            ? "its clock is 30 years ahead of the members' median: it proposes no time for " +
              "blocks; set it, and check its time service"
            : "",
      },
      timeMs: BigInt(Date.now()),
      transactionsTotal: wide ? 18_446_744_073_709_551_615n : BigInt(this.chain.byId.size),
      accountsTotal: wide ? 987_654_321_012n : BigInt(this.organisations.length),
    });
  }

  /** An account, now or after a block of the past. */
  account(name: string, height?: bigint): Account | undefined {
    if (!this.organisations.some((organisation) => name === this.settlement(organisation)))
      return undefined;
    const sums = new Map(height === undefined ? this.sums.get(name) : []);
    for (const transaction of height === undefined ? [] : this.chain.byId.values()) {
      if ((transaction.status?.height ?? 0n) > (height ?? 0n)) continue;
      for (const posting of transaction.body?.postings ?? [])
        if (posting.account === name)
          sums.set(posting.asset, (sums.get(posting.asset) ?? 0n) + BigInt(posting.amount));
    }
    const knownFrom = BigInt(this.options.termsFrom ?? 0);
    const early = height !== undefined && height >= knownFrom && height < changedHeight;
    if (name.startsWith("clearing")) sums.set("WIDE", 170141183460469231731687303715884105727n);
    return create(AccountSchema, {
      account: name,
      organisation: name.split(":")[0] ?? "",
      issuer: name.startsWith("clearing"),
      openedHeight: 1n,
      alias: name.startsWith("clearing") ? (early ? "till" : "coinbase") : "",
      balances: [...sums].map(([asset, amount], i) => ({
        asset,
        amount: amount.toString(),
        ...(this.sharded
          ? { setAside: i === 0 ? "1250" : "", incoming: i === 1 ? "77000" : "" }
          : {}),
      })),
      height: height ?? this.head,
      shard: this.homeOf(name.split(":")[0] ?? ""),
      ...(this.options.holds && name.startsWith("clearing")
        ? { terms: early ? firstTerms : fakeTerms("northbank"), revision: early ? 1n : 3n }
        : {}),
      termsAtCut: height !== undefined && height >= knownFrom,
    });
  }

  /** An account as the chain of its home has it after its newest block. */
  private standing(name: string): Account {
    const home = this.homeOf(name.split(":")[0] ?? "");
    const account = find(this.accounts[home]?.account(name), name);
    return create(AccountSchema, { ...account, height: this.shards.chains[home]?.head ?? 0n });
  }

  /** Two pieces of evidence: a member that signed two blocks, and members that disagree. */
  private evidence(): MessageInitShape<typeof EvidenceSchema>[] {
    const { genesis } = this.chain;
    const names = genesis.members;
    const accuse = (
      height: bigint,
      signers: readonly [number[], number[]],
    ): MessageInitShape<typeof EvidenceSchema> => {
      const block = find(this.chain.at(height), "block").header.hash;
      const hashes = [block, hash(block)].sort((a, b) => (toHex(a) < toHex(b) ? -1 : 1));
      const sides = hashes.map((each, side) => ({
        height,
        hash: each,
        hashHex: toHex(each),
        seals: (signers[side] ?? []).map((index) => ({ member: index, name: names[index] ?? "" })),
      }));
      const [first, second] = hashes.map((each, side) =>
        certificate(genesis, 0, { height, hash: each }, names, signers[side] ?? []),
      ) as [Uint8Array, Uint8Array];
      if (this.options.evidence === "forged")
        second[second.length - 2] = (second.at(-2) ?? 0) ^ 1; // before the byte for no change
      const both = signers[0].filter((index) => signers[1].includes(index));
      return {
        height,
        first: sides[0] ?? {},
        second: sides[1] ?? {},
        members: both,
        names: both.map((index) => names[index] ?? ""),
        encoded: evidence(first, second),
      };
    };
    const first = this.chain.base + 1n;
    return [accuse(first, [[0, 1, 2], [2]]), accuse(first + 2n, [[0, 1], [2]])];
  }

  private get sharded(): boolean {
    return this.shards.chains.length > 1;
  }

  /** Returns an organisation's shard, by its place in the list. */
  private homeOf(organisation: string): number {
    return Math.max(0, this.organisations.indexOf(organisation)) % this.shards.chains.length;
  }

  private routes(router: ConnectRouter): ConnectRouter {
    const { chain, organisations, shards } = this;
    const clusterNow = (): ClusterState => this.cluster();
    const { options } = this;
    const recorded = (): Recording => fakeRecording((index) => this.names[index] ?? "");
    const page = <T>(
      rows: readonly T[],
      size: number,
      token: string,
    ): { rows: T[]; nextPageToken: string } => {
      const start = Number(token || "0");
      return {
        rows: rows.slice(start, start + size),
        nextPageToken: start + size < rows.length ? String(start + size) : "",
      };
    };
    const accounts = (height?: bigint): Account[] =>
      organisations
        .map((name) => find(this.account(this.settlement(name), height), name))
        .sort((a, b) => (a.account < b.account ? -1 : 1));
    const assetsAt = (height?: bigint): string[] =>
      this.options.assets && (height ?? registeredHeight) >= registeredHeight ? registered : [];
    return router.service(LedgerService, {
      ...fakeLists(this.shards.chains, this.options.silent ?? []),
      getCluster: () => ({ cluster: this.cluster() }),
      getNode: () => ({ node: this.cluster().node ?? {} }),
      getRounds: () => ({ recording: recorded() }),
      watchRounds: async function* (_request, context) {
        if (options.rounds === "refused")
          throw new ConnectError(
            "the role organisation does not make the call WatchRounds",
            Code.PermissionDenied,
          );
        const { events, ...whole } = recorded();
        yield { recording: { ...whole, events: [] } };
        for (let i = 0; i < events.length && options.rounds !== "idle"; i += 10) {
          await pause(60, context.signal);
          if (context.signal.aborted) return;
          yield { recording: { format: 1, events: events.slice(i, i + 10) } };
        }
        await pause(120_000, context.signal);
      },
      watchCluster: async function* (_request, context) {
        while (!context.signal.aborted) {
          yield { cluster: clusterNow() };
          await pause(500, context.signal);
        }
      },
      subscribe: async function* (request, context) {
        if (request.book) {
          const next = shards.chains.map(({ shard, head }) => ({
            shard,
            height: request.begin.find((place) => place.shard === shard)?.height ?? head + 1n,
          }));
          const silent = next.filter(({ shard }) => shards.mode(shard) === "silent");
          yield { silentShards: silent.map(({ shard }) => shard), begin: next };
          while (!context.signal.aborted) {
            for (const place of next) {
              const chain = shards.chain(place.shard);
              if (!chain || silent.includes(place)) continue;
              for (let block = chain.at(place.height); block; block = chain.at(place.height)) {
                const shown = shownBlock(block, request.withTransactions);
                yield { block: shown, headHeight: chain.head };
                place.height++;
              }
            }
            await pause(50, context.signal);
          }
          return;
        }
        for (let height = request.fromHeight; !context.signal.aborted;) {
          const block = chain.at(height);
          if (block) {
            const shown = shownBlock(block, request.withTransactions);
            yield { block: shown, headHeight: chain.head };
            height++;
          } else await pause(50, context.signal);
        }
      },
      getFigures: ({ shard, crossings: wanted }) => {
        const chain = this.chainOf(shard);
        const between = BigInt(this.shards.verdictsIn(chain.shard).length);
        const rows = chain.blocks.flatMap((block) => block.transactions);
        const failed = rows.filter(({ status }) => status?.state === TransactionState.FAILED);
        const count = BigInt(rows.length);
        const of = (startMs: bigint): object => ({
          startMs,
          transactions: count,
          first: count,
          failed: BigInt(failed.length),
          between,
          crossings: wanted ? this.shards.crossingsOf(chain.shard) : [],
        });
        const time = chain.blocks.at(-1)?.header.timeMs ?? 0n;
        return {
          total: of(chain.blocks[0]?.header.timeMs ?? 0n),
          fromHeight: 1n,
          countedHeight: chain.head,
          headHeight: chain.head,
          hours: [of(time - (time % 3_600_000n))],
          days: [of(time - (time % 86_400_000n))],
          months: [of(BigInt(Date.parse(new Date(Number(time)).toISOString().slice(0, 7))))],
        };
      },
      getTree: () => ({ tree: this.shards.tree() }),
      watchTree: async function* (_request, context) {
        while (!context.signal.aborted) {
          yield { tree: shards.tree() };
          await pause(300, context.signal);
        }
      },
      listBlocks: (request) => {
        const chain = this.chainOf(request.shard);
        const from =
          request.pageToken !== ""
            ? BigInt(request.pageToken)
            : request.fromHeight > 0n && request.fromHeight < chain.head
              ? request.fromHeight
              : chain.head;
        const size = BigInt(request.pageSize || 50);
        const first = chain.base + 1n;
        const low = from - size >= first ? from - size + 1n : first;
        const blocks = [];
        for (let height = from; height >= low; height--)
          blocks.push(find(chain.at(height), "block").header);
        return { blocks, nextPageToken: low > first ? String(low - 1n) : "" };
      },
      getBlock: ({ block: wanted, pageSize, pageToken, shard }) => {
        const chain = this.chainOf(shard);
        const block = find(
          wanted.case === "height"
            ? chain.at(wanted.value)
            : wanted.case === "hashHex"
              ? chain.blocks.find((candidate) => candidate.header.hashHex === wanted.value)
              : chain.blocks.at(-1),
          "block",
        );
        const { rows, nextPageToken } = page(block.transactions, pageSize || 100, pageToken);
        const verdicts = this.shards.verdictsIn(chain.shard);
        const header = {
          ...block.header,
          transactionCount: block.header.transactionCount + verdicts.length,
        };
        return {
          block: {
            header,
            transactions: [...rows.map(summary), ...(nextPageToken === "" ? verdicts : [])],
          },
          nextPageToken,
        };
      },
      getTransaction: ({ idHex }) => {
        const places = [chain, ...shards.chains].map(({ byId }) => byId.get(idHex));
        return { transaction: find(places.find(Boolean), "transaction") };
      },
      getProof: ({ idHex }) => {
        const proof = find(chain.proof(idHex), "proof");
        if (this.uncertified) proof.finality = new Uint8Array();
        if (this.options.damagedProofs)
          proof.canonicalTransaction = concatBytes(
            proof.canonicalTransaction.slice(0, -1),
            new Uint8Array([1]),
          );
        return { proof };
      },
      getGenesis: ({ shard }) => {
        const { genesis } = this.chainOf(shard);
        return { canonical: genesis.canonical, hash: genesis.hash };
      },
      getCertificate: ({ height, shard }) => {
        const chain = this.chainOf(shard);
        const found = this.uncertified ? undefined : chain.certificate(height || chain.head);
        if (!found) throw new ConnectError("ask again later", Code.FailedPrecondition);
        const { encoded, finality, header, signers, names } = found;
        return {
          certificate: {
            height: header.height,
            hash: header.hash,
            hashHex: header.hashHex,
            seals: signers.map((index) => ({ member: index, name: names[index] ?? "" })),
            encoded,
          },
          finality,
          members: names.length,
        };
      },
      listEvidence: () => ({ evidence: this.evidence(), certifiedHeight: this.head }),
      getCut: ({ height, beforeMs }) => {
        const last =
          height ??
          chain.blocks.findLast((block) => beforeMs === 0n || block.header.timeMs < beforeMs)
            ?.header.height ??
          chain.base;
        if (last > chain.head)
          throw new ConnectError(`the chain ends with block ${chain.head}`, Code.OutOfRange);
        const timeMs = chain.at(last)?.header.timeMs ?? 0n;
        const places = shards.places(last, timeMs);
        return { places, root: 0, timeMs, beforeMs };
      },
      getAccountProof: ({ account }) => {
        const home = this.homeOf(account.split(":")[0] ?? "");
        const { header } = find(this.chainOf(home).blocks.at(-1), "block");
        const encoded = find(this.accounts[home]?.proof(account, header.canonical), account);
        return { encoded, height: header.height, blockHash: header.hash, shard: home };
      },
      listAccounts: ({ prefix, pageSize, pageToken, cut }) => {
        const { rows, nextPageToken } = page(
          accounts(cut[0]?.height).filter((account) => account.account.startsWith(prefix)),
          pageSize || 100,
          pageToken,
        );
        return {
          accounts: rows.filter((account) => this.shards.mode(account.shard) !== "silent"),
          nextPageToken,
          unansweredShards: this.options.silent ?? [],
          atCut: cut.length > 0,
        };
      },
      getAccount: ({ account, cut }) => ({
        account: cut[0]
          ? find(this.account(account, cut[0].height), account)
          : this.standing(account),
        atCut: cut.length > 0,
      }),
      listHistory: ({ account, pageSize, pageToken, toHeight }) => {
        const touching = [...chain.byId.values()].filter(
          (transaction) =>
            (toHeight === 0n || (transaction.status?.height ?? 0n) <= toHeight) &&
            transaction.body?.postings.some((posting) => posting.account === account),
        );
        const sums = new Map<string, bigint>();
        const after = new Map(
          touching.map((transaction) => [
            transaction,
            (transaction.body?.postings ?? [])
              .filter((posting) => posting.account === account)
              .map(({ asset, amount }) => {
                const sum = (sums.get(asset) ?? 0n) + BigInt(amount);
                sums.set(asset, sum);
                return { asset, amount: String(sum) };
              }),
          ]),
        );
        touching.reverse();
        // The token counts from the oldest entry, so new entries do not move it.
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
          changes: (transaction.body?.postings ?? [])
            .filter((posting) => posting.account === account)
            .map(({ asset, amount }) => ({ asset, amount })),
          balancesAfter: after.get(transaction) ?? [],
          note: transaction.body?.note ?? "",
        }));
        const closingBalances = [...sums].map(([asset, sum]) => ({ asset, amount: String(sum) }));
        return { entries, nextPageToken, hasBalances: true, closingBalances };
      },
      listAssets: ({ cut }) => ({
        assets: assetsAt(cut[0]?.height).map((name) => this.asset(name, cut[0]?.height)),
        atCut: cut.length > 0,
      }),
      getAsset: ({ name, prove, cut }) => ({
        asset: this.asset(
          find(assetsAt(cut[0]?.height).find((each) => each === name), name),
          cut[0]?.height,
        ),
        atCut: cut.length > 0,
        proof: new Uint8Array(prove ? [1] : []), // no proof that holds
      }),
      listOrganisations: () => ({
        organisations: organisations.map((name) => ({
          name,
          shard: this.homeOf(name),
          publicKeys: [hash(new TextEncoder().encode(name))],
          registeredHeight: 1n,
          policy: policyOf(chain, name),
        })),
      }),
      getOrganisation: ({ name }) => ({
        organisation: {
          name: find(
            organisations.find((other) => other === name),
            name,
          ),
          shard: this.homeOf(name),
          publicKeys: [hash(new TextEncoder().encode(name))],
          registeredHeight: 1n,
          policy: policyOf(chain, name),
          moving: this.moving === name,
          earlierHomes: this.moving === name ? [{ shard: 2, change: 1n }] : [],
        },
      }),
      getRecord: ({ key }) => {
        for (const transaction of [...chain.byId.values()].reverse()) {
          const record = transaction.body?.records.find((candidate) => candidate.key === key);
          if (record) return { record, height: transaction.status?.height ?? 0n };
        }
        throw new ConnectError(`${key} is not here`, Code.NotFound);
      },
      search: ({ query }) => {
        const hits = [];
        if (/^\d+$/.test(query))
          for (const { shard, ...other } of this.shards.chains.map((each) => ({
            shard: each.shard,
            block: each.at(BigInt(query)),
          })))
            if (other.block)
              hits.push({ kind: "block", key: query, label: `block ${query}`, shard });
        if (fromHex(query)?.length === 32) {
          const block = chain.blocks.find((candidate) => candidate.header.hashHex === query);
          if (block) hits.push({ kind: "block", key: String(block.header.height), label: query });
          if (chain.byId.has(query))
            hits.push({ kind: "transaction", key: query, label: "transaction" });
        }
        for (const name of organisations) {
          if (name.startsWith(query)) hits.push({ kind: "organisation", key: name, label: name });
          if (this.settlement(name).startsWith(query))
            hits.push({ kind: "account", key: this.settlement(name), label: "" });
        }
        return { hits: hits.slice(0, 10), unansweredShards: this.options.silent ?? [] };
      },
    });
  }
}

/** A block as a subscription shows it. */
function shownBlock(
  block: FakeBlock,
  withTransactions: boolean,
): MessageInitShape<typeof BlockSchema> {
  return {
    header: block.header,
    transactions: withTransactions ? block.transactions.map(summary) : [],
  };
}

function find<T>(value: T | undefined, what: string): T {
  if (value === undefined) throw new ConnectError(`${what} is not here`, Code.NotFound);
  return value;
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
