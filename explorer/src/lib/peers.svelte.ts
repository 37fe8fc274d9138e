// The nodes to compare, as the pages show them.
import { live } from "./live.svelte";
import { isCallable, keepPeers, maxPeers, originOf, readPeers } from "./peers";

class Peers {
  /** The origins that the reader named, without that of the page. */
  named = $state.raw<readonly string[]>(readPeers().filter((each) => each !== location.origin));

  /** All that are asked: the node that serves the page comes first. */
  get all(): readonly string[] {
    return [location.origin, ...this.named];
  }

  get full(): boolean {
    return this.named.length >= maxPeers;
  }

  /** Adds a node by its typed address. Returns what is wrong with it, or "". */
  add(typed: string): string {
    const origin = originOf(typed, location.protocol);
    if (origin === undefined) return "This is no address, such as node-2.example:8443.";
    if (location.protocol === "https:" && origin.startsWith("http:"))
      return "A page from https cannot call a node over plain http.";
    if (this.all.includes(origin)) return "This node is asked already.";
    if (this.full) return `At most ${maxPeers} nodes.`;
    this.set([...this.named, origin]);
    return "";
  }

  remove(origin: string): void {
    this.set(this.named.filter((each) => each !== origin));
  }

  /**
   * The nodes that the serving node lists and that are not asked yet: the other members of a shard,
   * or of its own.
   */
  offered(shard: number): string[] {
    const own = live.cluster;
    const members =
      live.tree?.shards.find((each) => each.shard === shard)?.members ??
      own?.members.map(({ apiAddress, self }) => ({ apiAddress, self })) ??
      [];
    const origins = members
      .filter(({ apiAddress, self }) => !self && isCallable(apiAddress))
      .flatMap(({ apiAddress }) => originOf(apiAddress, location.protocol) ?? []);
    return [...new Set(origins)].filter((origin) => !this.all.includes(origin)).slice(0, maxPeers);
  }

  private set(origins: readonly string[]): void {
    this.named = origins;
    keepPeers(origins);
  }
}

export const peers = new Peers();

/** An origin as people write it: without the scheme if it is the page's. */
export function originText(origin: string): string {
  const scheme = `${location.protocol}//`;
  return origin.startsWith(scheme) ? origin.slice(scheme.length) : origin;
}
