// A made-up tree of shards with moving streams and heights, and transactions that cross it, in
// every state.
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import {
  ShardPlaceSchema,
  ShardSchema,
  TransactionState,
  TransactionSummarySchema,
  TreeSchema,
  type Transaction,
  type TransactionSummary,
  type Tree,
} from "../src/gen/ledgerd/v1/ledgerd_pb";
import { Level } from "../src/gen/ledgerd/v1/proofs_pb";
import type { PlaceSchema } from "../src/gen/ledgerd/v1/cut_pb";
import type { CrossingsSchema } from "../src/gen/ledgerd/v1/figures_pb";
import type { ShardChangeSchema } from "../src/gen/ledgerd/v1/shards_pb";
import type { FakeGenesis } from "./fake-certificates";
import { FakeChain } from "./fake-chain";

export interface ShardOptions {
  /** Each shard's parent. The root is its own parent. */
  parents: readonly number[];
  own?: number;
  halted?: readonly number[];
  silent?: readonly number[];
  /** The shard that entries of others have waited for for too long. */
  awaited?: number;
  /** Use the largest possible numbers. */
  wide?: boolean;
  /** The genesis of a shard's chain; by default that of FakeChain. */
  genesisOf?: (shard: number) => FakeGenesis;
}

export class FakeShards {
  readonly chains: readonly FakeChain[];
  private readonly streamed: bigint[];
  private readonly carried: bigint[];
  readonly own: number;
  /** Changes of the shards that the tree shows. */
  changes: MessageInitShape<typeof ShardChangeSchema>[] = [];
  /** The blocks of the root from which on there are shards that were added later. */
  readonly addedAt = new Map<number, bigint>();
  private verdicts: TransactionSummary[] = [];

  constructor(private readonly options: ShardOptions) {
    this.own = options.own ?? 0;
    this.chains = options.parents.map((_, shard) => {
      const base = options.wide ? 987_654_321_000n : BigInt(shard * 1_000);
      return new FakeChain(base, shard, options.genesisOf?.(shard));
    });
    this.streamed = options.parents.map((_, shard) =>
      options.wide ? 987_654_321_012n : BigInt(40 + shard * 3),
    );
    this.carried = options.parents.map((_, shard) =>
      options.wide ? 123_456_789n : (this.streamed[shard] ?? 0n) - BigInt(shard % 3),
    );
  }

  chain(shard: number | undefined): FakeChain | undefined {
    return this.chains[shard ?? this.own];
  }

  /**
   * Advances the streams: `entries` enter at the root, and each shard that orders carries its part.
   */
  step(entries = 2): void {
    for (const shard of this.options.parents.keys()) {
      this.streamed[shard] = (this.streamed[shard] ?? 0n) + BigInt(entries);
      if (this.mode(shard) === "ordering" && !this.options.wide)
        this.carried[shard] = (this.streamed[shard] ?? 0n) - BigInt(shard % 2);
    }
  }

  /** What crossed between a shard and each other one; the same at both. */
  crossingsOf(shard: number): MessageInitShape<typeof CrossingsSchema>[] {
    const { parents, wide } = this.options;
    return parents.flatMap((_, other) => {
      const [low, high] = [Math.min(shard, other), Math.max(shard, other)];
      if (low === high || (low === 0 && high === 3)) return []; // these two have none
      const transactions = wide ? 987_654_321_000n + BigInt(low + high) : BigInt(400 * low + high);
      return [{ shard: other, transactions, verdicts: transactions - 1n }];
    });
  }

  /** The places of a cut at a block of the node's own chain, which is that of the root. */
  places(height: bigint, timeMs: bigint): MessageInitShape<typeof PlaceSchema>[] {
    const { parents } = this.options;
    const there = this.chains.filter(({ shard }) => (this.addedAt.get(shard) ?? 0n) <= height);
    return there.map((chain) => ({
      height:
        chain.shard === this.own
          ? height
          : (chain.blocks.findLast((block) => block.header.timeMs <= timeMs)?.header.height ??
            chain.base),
      carried: chain.shard === this.own ? 0n : 2n * height - BigInt(chain.shard % 2),
      streamed: there.flatMap(({ shard }) =>
        shard !== this.own && parents[shard] === chain.shard ? [2n * height] : [],
      ),
    }));
  }

  mode(shard: number): string {
    return this.options.halted?.includes(shard)
      ? "halted"
      : this.options.silent?.includes(shard)
        ? "silent"
        : "ordering";
  }

  tree(): Tree {
    const { parents, wide } = this.options;
    const now = Date.now();
    return create(TreeSchema, {
      own: this.own,
      changes: this.changes,
      refuses: (this.options.silent ?? []).map((shard) => ({
        shard,
        reason: "shard_down",
        sinceMs: BigInt(now - 90_000),
      })),
      shape:
        parents.length > 1
          ? this.shape(parents.findIndex((parent, shard) => parent === shard))
          : "0",
      shards: parents.map((parent, shard) => ({
        shard,
        parent: parent === shard ? 0 : parent,
        root: parent === shard,
        mode: this.mode(shard),
        members: Array.from({ length: 3 }, (_, index) => {
          const down =
            this.mode(shard) === "silent" ||
            (this.mode(shard) === "halted" && index > 0) ||
            (shard === 2 && index === 1);
          return {
            index,
            name: wide ? `${"node-".repeat(12)}${shard * 3 + index}` : `node-${shard * 3 + index}`,
            apiAddress: wide
              ? `${"a-node-of-the-".repeat(4)}cluster.example:8080`
              : `127.0.0.1:${8080 + 2 * (shard * 3 + index)}`,
            mode: down ? "silent" : this.mode(shard),
            orderedHeight: this.chains[shard]?.head ?? 0n,
            lastHeardMs: down && index === 1 ? 0n : BigInt(now - (down ? 90_000 : 400)),
            self: shard === this.own && index === 0,
          };
        }),
        height: this.chains[shard]?.head ?? 0n,
        durableHeight: (this.chains[shard]?.head ?? 1n) - 1n,
        transactionsTotal: wide
          ? 18_446_744_073_709_551_615n
          : BigInt(this.chains[shard]?.byId.size ?? 0),
        accountsTotal: wide ? 987_654_321_012n : 5n,
        pending: wide ? 987_654_321n : BigInt(shard % 3 === 1 ? shard : 0),
        carried: parent === shard ? 0n : (this.carried[shard] ?? 0n),
        streams: parents.flatMap((other, child) =>
          other === shard && child !== shard
            ? [{ child, streamed: this.streamed[child] ?? 0n, carried: this.carried[child] ?? 0n }]
            : [],
        ),
        ...this.waits(shard, now),
        self: shard === this.own,
        lastHeardMs: this.mode(shard) === "silent" ? BigInt(now - 95_000) : BigInt(now - 300),
      })),
    });
  }

  /** What entries of a shard's chain wait for. */
  private waits(shard: number, now: number): MessageInitShape<typeof ShardSchema> {
    const { awaited, parents, wide } = this.options;
    if (awaited === undefined || shard === awaited) return {};
    const sinceMs = BigInt(now - 200_000 - 10_000 * shard);
    const count = wide ? 987_654_321n : BigInt(shard);
    const behind = (this.streamed[awaited] ?? 0n) - (this.carried[awaited] ?? 0n);
    return {
      overdue: count,
      oldestWaitingMs: count > 0n ? sinceMs : 0n,
      pending: count,
      waitsFor: count > 0n ? [{ shard: awaited, count, overdue: count, sinceMs }] : [],
      untakenBy:
        parents[awaited] === shard && behind > 0n
          ? [{ shard: awaited, count: behind, overdue: behind, sinceMs }]
          : [],
    };
  }

  private shape(shard: number): string {
    const children = this.options.parents.flatMap((parent, child) =>
      parent === shard && child !== shard ? [this.shape(child)] : [],
    );
    return children.length === 0 ? String(shard) : `${shard}(${children.join(",")})`;
  }

  /**
   * Turns a transaction of the node's own chain into one that entered at the root and crosses to
   * the destinations, in the given state.
   */
  cross(
    transaction: Transaction,
    destinations: readonly number[],
    state: "settled" | "waiting" | "refused",
    blocking = destinations.at(-1) ?? 0,
  ): void {
    const { status } = transaction;
    if (!status) return;
    const through = new Set<number>();
    for (const destination of destinations) {
      for (let at = destination; ; at = this.options.parents[at] ?? at) {
        through.add(at);
        if (this.options.parents[at] === at) break;
      }
    }
    const waits = state === "waiting" ? [blocking] : [];
    status.destinations = [...destinations];
    status.waitsFor = waits;
    status.settledHeight = state === "waiting" ? 0n : status.height + 2n;
    status.state =
      state === "waiting"
        ? TransactionState.PENDING
        : state === "refused"
          ? TransactionState.FAILED
          : TransactionState.DURABLE;
    if (state === "refused")
      Object.assign(status, {
        reasonCode: "insufficient_funds",
        reason: "The account would fall below zero.",
      });
    transaction.places = [...through]
      .sort((a, b) => a - b)
      .map((shard) => {
        const height = shard === this.own ? status.height : (this.chains[shard]?.head ?? 3n) - 2n;
        const base: MessageInitShape<typeof ShardPlaceSchema> = {
          shard,
          height,
          index: shard === this.own ? status.index : 1,
          blockHashHex: "ab".repeat(32),
          timeMs: transaction.blockTimeMs + BigInt(40 * shard),
          entry: this.options.parents[shard] === shard,
          home: shard === status.shard,
          streamNumber: this.options.parents[shard] === shard ? 0n : (this.carried[shard] ?? 0n),
          level: Level.DURABLE,
        };
        if (!destinations.includes(shard))
          return create(ShardPlaceSchema, { ...base, state: "passed" });
        if (state === "waiting" && shard === blocking)
          return create(ShardPlaceSchema, { shard, state: "absent" });
        if (state === "waiting")
          return create(ShardPlaceSchema, {
            ...base,
            state: "waiting",
            verdict: "good",
            waitsFor: waits,
            overdue: blocking === this.options.awaited,
          });
        const settledHeight = shard === blocking && state === "refused" ? 0n : height + 2n;
        return create(ShardPlaceSchema, {
          ...base,
          state: state === "refused" ? "refused" : "settled",
          verdict: state === "refused" && shard === blocking ? "insufficient_funds" : "good",
          settledHeight,
          settledIndex: settledHeight > 0n ? 3 : 0,
        });
      });
    this.verdicts = [
      ...this.verdicts.filter((verdict) => verdict.verdictTransactionHex !== status.idHex),
      ...destinations.map((shard) =>
        create(TransactionSummarySchema, {
          status: {
            idHex: `${shard.toString(16).padStart(2, "0")}${status.idHex.slice(2)}`,
            state: TransactionState.DURABLE,
            height: status.height,
            index: 90 + shard,
          },
          verdictTransactionHex: status.idHex,
          verdictShard: shard,
          verdict: state === "refused" && shard === blocking ? "insufficient_funds" : "good",
        }),
      ),
    ];
  }

  /** Returns the verdicts of other shards, as any block of a shard shows them. */
  verdictsIn(shard: number): TransactionSummary[] {
    return this.verdicts.filter((summary) => summary.verdictShard !== shard);
  }
}
