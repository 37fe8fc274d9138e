// The nodes that the reader compares: the one that serves the page, and those that the reader
// named. The browser keeps their addresses.
import { createClient, type Client } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { LedgerService } from "../gen/ledgerd/v1/ledgerd_pb";

export type NodeClient = Client<typeof LedgerService>;

const storageKey = "ledgerd.nodes";
export const maxPeers = 16;

/**
 * The origin of a node whose address was typed: "host:port" with the scheme of the page, or
 * "https://host". Undefined if it is no address.
 */
export function originOf(typed: string, protocol: string): string | undefined {
  const text = typed.trim().replace(/\/+$/, "");
  if (text === "" || text.length > 300 || /\s/.test(text)) return undefined;
  try {
    const url = new URL(/^[a-z]+:\/\//i.test(text) ? text : `${protocol}//${text}`);
    const bare = url.pathname === "/" && url.search === "" && url.hash === "";
    if (!/^https?:$/.test(url.protocol) || !bare || url.username + url.password !== "")
      return undefined;
    return url.origin;
  } catch {
    return undefined;
  }
}

/** Whether an address that a node lists is one that others can call. */
export function isCallable(address: string): boolean {
  return /.:[1-9]\d{0,4}$/.test(address) && !/^(0\.0\.0\.0|\[::\]|\*|):/.test(address);
}

export function readPeers(): string[] {
  try {
    const stored: unknown = JSON.parse(localStorage.getItem(storageKey) ?? "[]");
    if (!Array.isArray(stored)) return [];
    const origins = stored.flatMap((each) =>
      typeof each === "string" ? (originOf(each, "http:") ?? []) : [],
    );
    return [...new Set(origins)].slice(0, maxPeers);
  } catch {
    return []; // Storage is forbidden, or another program wrote there.
  }
}

export function keepPeers(origins: readonly string[]): void {
  try {
    localStorage.setItem(storageKey, JSON.stringify(origins.slice(0, maxPeers)));
  } catch {
    // Storage is forbidden or full: they hold for this page.
  }
}

const clients = new Map<string, NodeClient>();

export function clientOf(origin: string): NodeClient {
  let client = clients.get(origin);
  if (!client) {
    client = createClient(
      LedgerService,
      createConnectTransport({ baseUrl: origin, useBinaryFormat: true }),
    );
    clients.set(origin, client);
  }
  return client;
}
