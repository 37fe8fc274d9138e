// The pages that are loaded when a reader opens them, so that the first page comes sooner. A while
// after that the others are loaded too: then they open at once, and open while the node is away.
export const lazyPages = {
  account: () => import("../pages/Account.svelte"),
  accounts: () => import("../pages/Accounts.svelte"),
  agreement: () => import("../pages/Agreement.svelte"),
  asset: () => import("../pages/Asset.svelte"),
  assets: () => import("../pages/Assets.svelte"),
  block: () => import("../pages/Block.svelte"),
  blocks: () => import("../pages/Blocks.svelte"),
  bookthen: () => import("../pages/BookThen.svelte"),
  bookblocks: () => import("../pages/BookBlocks.svelte"),
  chart: () => import("../pages/Chart.svelte"),
  crossings: () => import("../pages/Crossings.svelte"),
  crossingsthen: () => import("../pages/CrossingsThen.svelte"),
  hold: () => import("../pages/Hold.svelte"),
  holds: () => import("../pages/Holds.svelte"),
  nodes: () => import("../pages/Nodes.svelte"),
  nodesthen: () => import("../pages/NodesThen.svelte"),
  organisation: () => import("../pages/Organisation.svelte"),
  organisations: () => import("../pages/Organisations.svelte"),
  record: () => import("../pages/Record.svelte"),
  records: () => import("../pages/Records.svelte"),
  rounds: () => import("../pages/Rounds.svelte"),
  schedule: () => import("../pages/Schedule.svelte"),
  schedules: () => import("../pages/Schedules.svelte"),
  search: () => import("../pages/SearchResults.svelte"),
  shard: () => import("../pages/Shard.svelte"),
  shards: () => import("../pages/Shards.svelte"),
  shardsthen: () => import("../pages/ShardsThen.svelte"),
  shardthen: () => import("../pages/ShardThen.svelte"),
  transaction: () => import("../pages/Transaction.svelte"),
  transactions: () => import("../pages/Transactions.svelte"),
} as const;

const afterMs = 3_000;

/** Begins to load a page's code, so that it comes while the application starts. */
export function loadPage(name: string): void {
  // The page itself says if it cannot be loaded.
  if (Object.hasOwn(lazyPages, name)) lazyPages[name as keyof typeof lazyPages]().catch(() => {});
}

/** Loads all pages, one after the other, once the browser has had time for the first one. */
export function loadPagesLater(): void {
  setTimeout(() => {
    void (async () => {
      for (const load of Object.values<() => Promise<unknown>>(lazyPages))
        try {
          await load();
        } catch {
          return; // the node is away; each page is loaded again when a reader opens it
        }
    })();
  }, afterMs);
}
