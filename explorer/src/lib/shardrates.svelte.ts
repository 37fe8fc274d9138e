// How many entries a second each shard's chain gets, from the totals that the tree shows.
import { untrack } from "svelte";
import type { Shard } from "../gen/ledgerd/v1/ledgerd_pb";
import { live } from "./live.svelte";

const windowMs = 10_000;

/** Create it during a component's initialisation, on a page that watches the tree. */
export class ShardRates {
  /** By shard; a shard is missing until two totals of it are known. */
  rates = $state.raw<ReadonlyMap<number, number>>(new Map());
  private samples: { ms: number; totals: ReadonlyMap<number, bigint> }[] = [];

  constructor() {
    $effect(() => {
      const tree = live.tree;
      if (tree) untrack(() => this.take(tree.shards));
    });
  }

  private take(shards: readonly Pick<Shard, "shard" | "mode" | "transactionsTotal">[]): void {
    const ms = performance.now();
    // What a silent shard does now is not known.
    const known = shards.filter(({ mode }) => mode !== "silent" && mode !== "lost");
    const totals = new Map(known.map((each) => [each.shard, each.transactionsTotal]));
    this.samples = [...this.samples.filter((sample) => ms - sample.ms <= windowMs), { ms, totals }];
    const first = this.samples[0];
    if (!first || ms - first.ms < 500) return;
    this.rates = new Map(
      [...totals].flatMap(([shard, total]) => {
        const before = first.totals.get(shard);
        return before === undefined || total < before
          ? []
          : [[shard, (Number(total - before) * 1000) / (ms - first.ms)]];
      }),
    );
  }
}
