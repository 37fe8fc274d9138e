// The paths of the pages. A key stands in its path as people write it; only what a path cannot hold is escaped.

export function escapeKey(key: string): string {
  return encodeURIComponent(key).replaceAll("%3A", ":").replaceAll("%40", "@").replaceAll("%2B", "+").replaceAll("%3D", "=").replaceAll("%24", "$");
}

/** A block of the node's own chain, or of a shard's where the book has several. */
export const blockPath = (key: bigint | string, shard?: number): string => (shard === undefined ? `/block/${key}` : `/shards/${shard}/blocks/${key}`);
export const blocksPath = (shard?: number, from?: bigint): string => `${shard === undefined ? "/blocks" : `/shards/${shard}/blocks`}${from === undefined ? "" : `?from=${from}`}`;
export const shardPath = (shard: number): string => `/shards/${shard}`;
export const transactionPath = (idHex: string): string => `/tx/${idHex}`;
export const accountPath = (account: string): string => `/account/${escapeKey(account)}`;
export const organisationPath = (name: string): string => `/organisation/${escapeKey(name)}`;
export const recordPath = (key: string): string => `/record/${escapeKey(key)}`;
export const organisationOf = (path: string): string => path.split(":", 1)[0] ?? path;

/** Where a search hit leads; shard: whose chain a block is of, where the book has several. */
export function hitPath(kind: string, key: string, shard?: number): string {
  switch (kind) {
    case "block":
      return blockPath(key, shard);
    case "transaction":
      return transactionPath(key);
    case "account":
      return accountPath(key);
    case "organisation":
      return organisationPath(key);
    case "record":
      return recordPath(key);
    default:
      return `/search?q=${encodeURIComponent(key)}`;
  }
}
