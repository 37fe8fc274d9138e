// The paths of the pages. A path contains its key as people write it. Only characters that a path
// cannot hold are escaped.

export function escapeKey(key: string): string {
  return encodeURIComponent(key)
    .replaceAll("%3A", ":")
    .replaceAll("%40", "@")
    .replaceAll("%2B", "+")
    .replaceAll("%3D", "=")
    .replaceAll("%24", "$");
}

/** The path of a block of the node's own chain or, in a book of several shards, of a shard's. */
export const blockPath = (key: bigint | string, shard?: number): string =>
  shard === undefined ? `/block/${key}` : `/shards/${shard}/blocks/${key}`;
export const blocksPath = (shard?: number, from?: bigint): string =>
  (shard === undefined ? "/blocks" : `/shards/${shard}/blocks`) +
  (from === undefined ? "" : `?from=${from}`);
/** The page with the blocks of all shards. */
export const bookBlocksPath = "/shards/blocks";
export const shardPath = (shard: number): string => `/shards/${shard}`;
export const transactionPath = (idHex: string): string => `/tx/${idHex}`;
export const accountPath = (account: string): string => `/account/${escapeKey(account)}`;
export const organisationPath = (name: string): string => `/organisation/${escapeKey(name)}`;
export const assetPath = (name: string): string => `/asset/${escapeKey(name)}`;
export const recordPath = (key: string): string => `/record/${escapeKey(key)}`;
export const holdPath = (idHex: string): string => `/hold/${idHex}`;
export const schedulePath = (idHex: string): string => `/schedule/${idHex}`;
/** A list with filters in its address; those that are empty are left out. */
export function listPath(path: string, filters: Readonly<Record<string, string>>): string {
  const query = new URLSearchParams(Object.entries(filters).filter(([, value]) => value !== ""));
  return query.size === 0 ? path : `${path}?${query}`;
}
/** The page that shows a member: of the node's own chain or of a shard's. */
export const memberPath = (index: number, shard?: number): string =>
  shard === undefined ? `/nodes?member=${index}` : shardPath(shard);
export const organisationOf = (path: string): string => path.split(":", 1)[0] ?? path;

/**
 * The page of a search hit. shard is the shard of a block, in a book of several shards.
 */
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
    case "asset":
      return assetPath(key);
    case "record":
      return recordPath(key);
    default:
      return `/search?q=${encodeURIComponent(key)}`;
  }
}
