// Live data: the chain's newest blocks and the cluster's state, kept current over streams while the
// page is visible.
//
// One link to the node carries all of it. It begins with a greeting. Then it has the stream of
// blocks from the height after the last block seen, a heartbeat, and, while some page shows them,
// the streams of the cluster's state, of the tree of shards, and of the blocks of all shards. When
// any of them ends, the link ends and is made again after a growing wait. A hidden page holds no
// connection: browsers allow six to an origin, and a few forgotten tabs would block a new one.
//
// Bounds: blockCapacity headers, twice as many of all shards, rateSeconds buckets and as many
// latency samples, however long the session. Blocks that arrive while the view is paused are
// counted and kept, within the same bounds.
import { Code, ConnectError } from "@connectrpc/connect";
import type { ClusterState, Tree } from "../gen/ledgerd/v1/ledgerd_pb";
import type { BlockHeader } from "../gen/ledgerd/v1/proofs_pb";
import { Level } from "../gen/ledgerd/v1/proofs_pb";
import { api, explain, type Problem } from "./api";
import { backoffMs, sleep } from "./backoff";
import { BookBlocks } from "./bookblocks";
import { equalBytes } from "./bytes";
import { RateSeries } from "./series";

export const blockCapacity = 500;
/** The newest blocks, which every page begins with, and those before them, a moment later. */
const blocksAtFirst = 50;
const blocksEarlier = 250;
const earlierAfterMs = 1_000;
export const rateSeconds = 180;
/** The charts begin with this many seconds, and grow to rateSeconds. */
const rateSecondsAtFirst = 60;
/** A page further behind than this reads the newest blocks instead of all blocks that it missed. */
const catchUpBlocks = 2_000n;
/** How many blocks of each shard a list of all shards begins with. */
const bookPageSize = 50;
const publishEveryMs = 500;
const heartbeatEveryMs = 5_000;
const heartbeatTimeoutMs = 5_000;
const hiddenGraceMs = 10_000;
const latencyCarrySeconds = 5;

/** A part of the node's state that is streamed while it has a watcher. */
class Watched {
  private watchers = 0;
  private changed: () => void = () => undefined;

  watch(): () => void {
    this.watchers++;
    this.changed();
    return () => {
      this.watchers--;
      this.changed();
    };
  }

  /**
   * Runs a stream whenever there is a watcher. It returns only when the stream ends by itself or
   * the link is aborted, and throws when the stream breaks.
   */
  async follow(link: AbortSignal, stream: (signal: AbortSignal) => Promise<void>): Promise<void> {
    while (!link.aborted) {
      const change = new AbortController();
      const watching = this.watchers > 0;
      this.changed = () => {
        if (this.watchers > 0 !== watching) change.abort();
      };
      const either = AbortSignal.any([link, change.signal]);
      if (!watching) {
        await new Promise<void>((resolve) => either.addEventListener("abort", () => resolve()));
        continue;
      }
      try {
        await stream(either);
        return;
      } catch (error) {
        if (!change.signal.aborted) throw error;
      }
    }
  }
}

export type Connection = "connecting" | "live" | "reconnecting";

export interface LatencySample {
  second: number;
  orderedMs: number | null;
  durableMs: number | null;
}

class Live {
  connection = $state<Connection>("connecting");
  problem = $state.raw<Problem>();
  /** The time of the next attempt, by this browser's clock. */
  retryAtMs = $state(0);
  /** Counts the links that were made. A page whose load failed retries on the next link. */
  links = $state(0);

  paused = $state(false);
  missedBlocks = $state(0);
  missedTransactions = $state(0);

  /** The newest blocks, newest first, as shown. */
  blocks = $state.raw<readonly BlockHeader[]>([]);
  /** The cluster as this node reports it, as shown. */
  cluster = $state.raw<ClusterState>();
  /** The tree of shards as this node reports it, as shown; undefined in a book of one shard. */
  tree = $state.raw<Tree>();
  /** The newest blocks of all shards, newest first, as shown; undefined until they are here. */
  book = $state.raw<readonly BlockHeader[]>();
  /** The shards whose blocks do not come now, because they do not answer. */
  silent = $state.raw<readonly number[]>([]);
  rate = $state.raw<{ seconds: number[]; rates: (number | null)[] }>({ seconds: [], rates: [] });
  latency = $state.raw<readonly LatencySample[]>([]);
  /** False until the first blocks arrive. It distinguishes an empty chain from an unknown one. */
  seeded = $state(false);
  /** The node's time, in Unix milliseconds, to the second. */
  nowMs = $state(Date.now());

  private ring: BlockHeader[] = [];
  private lastSeen = 0n;
  private series = new RateSeries(rateSeconds, rateSecondsAtFirst);
  private samples: LatencySample[] = [];
  private newestCluster: ClusterState | undefined;
  private newestTree: Tree | undefined;
  private skewMs = 0;
  private readonly clusterWatch = new Watched();
  private readonly treeWatch = new Watched();
  private readonly bookWatch = new Watched();
  private bookBlocks: BookBlocks | undefined;
  private publishTimer: ReturnType<typeof setTimeout> | undefined;
  private session: AbortController | undefined;
  private wake = new AbortController();

  /**
   * The heights up to which all blocks are stored and durable: as the node reported, or from a
   * later block's own level.
   */
  readonly storedHeight = $derived(this.reached(Level.STORED, this.cluster?.node?.storedHeight));
  readonly durableHeight = $derived(this.reached(Level.DURABLE, this.cluster?.node?.durableHeight));

  start(): void {
    let hideTimer: ReturnType<typeof setTimeout> | undefined;
    const look = (): void => {
      clearTimeout(hideTimer);
      if (document.visibilityState === "hidden")
        hideTimer = setTimeout(() => this.close(), hiddenGraceMs);
      else this.open();
    };
    document.addEventListener("visibilitychange", look);
    window.addEventListener("online", () => this.retryNow());
    setInterval(() => this.tick(), 1000);
    look();
  }

  /** Requests the stream of the cluster's state until the returned function is called. */
  watch(): () => void {
    return this.clusterWatch.watch();
  }

  /** Requests the stream of the tree of shards until the returned function is called. */
  watchTree(): () => void {
    return this.treeWatch.watch();
  }

  /** Requests the stream of all shards' blocks until the returned function is called. */
  watchBook(): () => void {
    return this.bookWatch.watch();
  }

  /** The node's own shard; undefined in a book of one shard. */
  readonly own = $derived(this.tree?.own);

  /**
   * The shard of a chain: the given one, or else the node's own; undefined in a book of one shard.
   */
  chain(shard?: number): number | undefined {
    return this.tree === undefined ? undefined : (shard ?? this.tree.own);
  }

  /** Whether a shard is not the node's own. */
  elsewhere(shard: number | undefined): boolean {
    return this.tree !== undefined && shard !== undefined && shard !== this.tree.own;
  }

  retryNow(): void {
    this.wake.abort();
  }

  setPaused(paused: boolean): void {
    this.paused = paused;
    this.missedBlocks = 0;
    this.missedTransactions = 0;
    if (!paused) this.publish();
  }

  /** The highest known block of a shard's chain, or of the node's own. */
  headOf(shard: number | undefined): bigint {
    if (this.elsewhere(shard))
      return this.tree?.shards.find((each) => each.shard === shard)?.height ?? 0n;
    return this.blocks[0]?.height ?? this.cluster?.node?.orderedHeight ?? 0n;
  }

  /** The level of a block, from everything that the node has reported so far. */
  levelOf(header: { height: bigint; level: Level; shard?: number }): Level {
    if (this.elsewhere(header.shard)) {
      const durable =
        this.tree?.shards.find((shard) => shard.shard === header.shard)?.durableHeight ?? 0n;
      return header.height <= durable ? Level.DURABLE : header.level || Level.ORDERED;
    }
    if (
      header.level >= Level.DURABLE ||
      (header.height <= this.durableHeight && this.durableHeight > 0n)
    )
      return Level.DURABLE;
    if (
      header.level >= Level.STORED ||
      (header.height <= this.storedHeight && this.storedHeight > 0n)
    )
      return Level.STORED;
    return header.level || Level.ORDERED;
  }

  private reached(level: Level, told = 0n): bigint {
    const height = this.blocks.find((block) => block.level >= level)?.height ?? 0n;
    return height > told ? height : told;
  }

  private open(): void {
    if (this.session) return;
    this.session = new AbortController();
    void this.run(this.session.signal);
  }

  private close(): void {
    this.session?.abort();
    this.session = undefined;
  }

  private async run(signal: AbortSignal): Promise<void> {
    for (let attempt = 0; !signal.aborted;) {
      const link = new AbortController();
      const cut = (): void => link.abort();
      signal.addEventListener("abort", cut);
      try {
        await this.greet(link.signal);
        this.connection = "live";
        this.problem = undefined;
        this.links++;
        attempt = 0;
        await Promise.race([
          this.followBlocks(link.signal),
          this.followCluster(link.signal),
          this.followTree(link.signal),
          this.followBook(link.signal),
          this.beat(link.signal),
        ]);
      } catch (error) {
        if (signal.aborted) return;
        // A link that just ended is first made again silently. Only a failed attempt is shown.
        if (attempt > 0) {
          this.problem = explain(error);
          this.connection = "reconnecting";
        }
      } finally {
        signal.removeEventListener("abort", cut);
        link.abort();
      }
      if (signal.aborted) return;
      const wait = attempt === 0 ? 100 : backoffMs(attempt);
      attempt++;
      this.retryAtMs = Date.now() + wait;
      this.wake = new AbortController();
      await sleep(wait, AbortSignal.any([signal, this.wake.signal]));
    }
  }

  /**
   * Asks for the node's state. It fetches the newest blocks if there are none yet, too many were
   * missed, or the chain is another one.
   */
  private async greet(signal: AbortSignal): Promise<void> {
    const [{ cluster }, tree] = await Promise.all([
      api.getCluster({}, { signal, timeoutMs: heartbeatTimeoutMs }),
      this.askTree(signal),
    ]);
    this.takeTree(tree);
    if (cluster) {
      const head = cluster.node?.orderedHeight ?? 0n;
      const known = this.newestCluster;
      const otherChain = known !== undefined && !equalBytes(known.genesisHash, cluster.genesisHash);
      if (otherChain || head < this.lastSeen || head - this.lastSeen > catchUpBlocks) this.forget();
      this.takeCluster(cluster);
    }
    if (this.lastSeen > 0n) return;
    const { blocks, nextPageToken } = await api.listBlocks(
      { pageSize: blocksAtFirst },
      { signal, timeoutMs: heartbeatTimeoutMs },
    );
    for (const header of blocks.reverse()) this.takeBlock(header);
    this.seeded = true;
    this.publish();
    if (nextPageToken !== "") void this.seedEarlier(nextPageToken, signal);
  }

  /** Fetches the blocks before the newest ones a moment later: only the charts need them. */
  private async seedEarlier(pageToken: string, signal: AbortSignal): Promise<void> {
    await sleep(earlierAfterMs, signal);
    if (signal.aborted) return;
    try {
      const { blocks } = await api.listBlocks(
        { pageSize: blocksEarlier, pageToken },
        { signal, timeoutMs: heartbeatTimeoutMs },
      );
      for (const header of blocks) {
        if (this.ring.at(-1)?.height !== header.height + 1n || this.ring.length >= blockCapacity)
          return; // another chain, or newer blocks took the room
        this.ring.push(header);
        this.series.add(Number(header.timeMs), header.transactionCount);
      }
      this.schedulePublish();
    } catch {
      // The charts begin later.
    }
  }

  private forget(): void {
    this.ring = [];
    this.bookBlocks = undefined;
    this.lastSeen = 0n;
    this.series = new RateSeries(rateSeconds, rateSecondsAtFirst);
    this.samples = [];
  }

  private async followBlocks(signal: AbortSignal): Promise<void> {
    for await (const { block } of api.subscribe({ fromHeight: this.lastSeen + 1n }, { signal })) {
      const header = block?.header;
      if (!header || header.height <= this.lastSeen) continue;
      const last = this.ring[0];
      if (last && header.height === last.height + 1n && !equalBytes(header.previous, last.hash)) {
        this.forget();
        throw new Error("the chain changed under the last block");
      }
      this.takeBlock(header);
      this.missedBlocks += this.paused ? 1 : 0;
      this.missedTransactions += this.paused ? header.transactionCount : 0;
      this.schedulePublish();
    }
  }

  private async followCluster(signal: AbortSignal): Promise<void> {
    await this.clusterWatch.follow(signal, async (either) => {
      for await (const { cluster } of api.watchCluster({}, { signal: either })) {
        if (cluster) this.takeCluster(cluster);
        this.schedulePublish();
      }
    });
  }

  private async followTree(signal: AbortSignal): Promise<void> {
    await this.treeWatch.follow(signal, async (either) => {
      for await (const { tree } of api.watchTree({}, { signal: either })) {
        this.takeTree(tree);
        this.schedulePublish();
      }
    });
  }

  private async followBook(signal: AbortSignal): Promise<void> {
    await this.bookWatch.follow(signal, async (either) => {
      const blocks = await this.newestOfBook(either);
      this.schedulePublish();
      const request = { book: true, begin: blocks.begin() };
      blocks.silent = []; // this stream says anew which shards are silent
      for await (const message of api.subscribe(request, { signal: either })) {
        if (message.block?.header) blocks.take(message.block.header);
        else blocks.hear(message.silentShards, message.begin);
        this.schedulePublish();
      }
    });
  }

  /**
   * Fetches the newest blocks of the shards of which there are none yet or too many were missed. A
   * shard that does not answer comes in later.
   */
  private async newestOfBook(signal: AbortSignal): Promise<BookBlocks> {
    const blocks = (this.bookBlocks ??= new BookBlocks(blockCapacity));
    const behind = (this.newestTree?.shards ?? [{ shard: 0, height: 0n }]).filter(
      ({ shard, height }) =>
        blocks.head(shard) === 0n || height - blocks.head(shard) > catchUpBlocks,
    );
    await Promise.allSettled(
      behind.map(async ({ shard }) => {
        const answer = await api.listBlocks(
          { pageSize: bookPageSize, shard },
          { signal, timeoutMs: heartbeatTimeoutMs },
        );
        blocks.forget(shard);
        for (const header of answer.blocks.reverse()) blocks.take(header);
      }),
    );
    return blocks;
  }

  /** The tree of shards; undefined from a node whose API has none. */
  private async askTree(signal: AbortSignal): Promise<Tree | undefined> {
    try {
      return (await api.getTree({}, { signal, timeoutMs: heartbeatTimeoutMs })).tree;
    } catch (error) {
      if (ConnectError.from(error).code === Code.Unimplemented) return undefined;
      throw error;
    }
  }

  /**
   * Detects a connection that broke silently. It also refreshes the cluster's state and the tree
   * while no page streams them.
   */
  private async beat(signal: AbortSignal): Promise<void> {
    for (;;) {
      await sleep(heartbeatEveryMs, signal);
      if (signal.aborted) return;
      const [{ cluster }, tree] = await Promise.all([
        api.getCluster({}, { signal, timeoutMs: heartbeatTimeoutMs }),
        this.newestTree && this.askTree(signal),
      ]);
      if (cluster) this.takeCluster(cluster);
      this.takeTree(tree);
      this.schedulePublish();
    }
  }

  private takeBlock(header: BlockHeader): void {
    this.lastSeen = header.height;
    this.ring.unshift(header);
    if (this.ring.length > blockCapacity) this.ring.length = blockCapacity;
    this.series.add(Number(header.timeMs), header.transactionCount);
  }

  private takeTree(tree: Tree | undefined): void {
    if (tree) this.newestTree = tree.shards.length > 1 ? tree : undefined;
  }

  private takeCluster(cluster: ClusterState): void {
    this.newestCluster = cluster;
    if (cluster.timeMs > 0n) this.skewMs = Number(cluster.timeMs) - Date.now();
  }

  private tick(): void {
    this.nowMs = Date.now() + this.skewMs;
    const node = this.newestCluster?.node;
    if (!node) return;
    if (this.connection === "live") {
      const ms = (micros: number): number | null => (micros > 0 ? micros / 1000 : null);
      // A late timer sometimes skips a second. The medians are over ten seconds, so they also hold
      // for the skipped second.
      const second = Math.floor(this.nowMs / 1000);
      const last = this.samples.at(-1)?.second ?? second - 1;
      for (let at = Math.max(last + 1, second - latencyCarrySeconds); at <= second; at++) {
        this.samples.push({
          second: at,
          orderedMs: ms(node.orderLatencyUs),
          durableMs: ms(node.durableLatencyUs),
        });
      }
      if (this.samples.length > rateSeconds)
        this.samples.splice(0, this.samples.length - rateSeconds);
    }
    if (!this.paused) {
      this.rate = this.series.window(this.nowMs);
      this.latency = [...this.samples];
    }
  }

  private schedulePublish(): void {
    if (this.paused || this.publishTimer !== undefined) return;
    this.publishTimer = setTimeout(() => this.publish(), publishEveryMs);
  }

  private publish(): void {
    clearTimeout(this.publishTimer);
    this.publishTimer = undefined;
    if (this.paused) return;
    this.blocks = this.ring.slice();
    this.cluster = this.newestCluster;
    this.tree = this.newestTree;
    this.book = this.bookBlocks?.blocks();
    this.silent = this.bookBlocks?.silent ?? [];
    this.nowMs = Date.now() + this.skewMs;
    this.rate = this.series.window(this.nowMs);
    this.latency = [...this.samples];
  }
}

export const live = new Live();
