// Client-side routing over real paths. Plain links and reloads work, and Back restores the place.

export interface Route {
  name:
    | "overview"
    | "blocks"
    | "bookblocks"
    | "block"
    | "transaction"
    | "accounts"
    | "account"
    | "organisations"
    | "organisation"
    | "assets"
    | "asset"
    | "record"
    | "nodes"
    | "rounds"
    | "shards"
    | "shard"
    | "crossings"
    | "search"
    | "agreement"
    | "transactions"
    | "holds"
    | "hold"
    | "schedules"
    | "schedule"
    | "records"
    | "chart"
    | "nowhere";
  /** The key at the end of the path, unescaped; empty if there is none. */
  key: string;
  /** The shard that the path names; undefined stands for the node's own. */
  shard?: number;
}

const plain: Readonly<{ [path: string]: Route["name"] }> = {
  "/": "overview",
  "/index.html": "overview",
  "/blocks": "blocks",
  "/accounts": "accounts",
  "/organisations": "organisations",
  "/assets": "assets",
  "/nodes": "nodes",
  "/rounds": "rounds",
  "/shards": "shards",
  "/shards/blocks": "bookblocks",
  "/shards/crossings": "crossings",
  "/search": "search",
  "/agreement": "agreement",
  "/transactions": "transactions",
  "/holds": "holds",
  "/schedules": "schedules",
  "/records": "records",
  "/chart": "chart",
};

const keyed: Readonly<{ [segment: string]: Route["name"] }> = {
  block: "block",
  tx: "transaction",
  account: "account",
  organisation: "organisation",
  asset: "asset",
  record: "record",
  hold: "hold",
  schedule: "schedule",
};

export function parseRoute(pathname: string): Route {
  const path = pathname.length > 1 ? pathname.replace(/\/+$/, "") || "/" : pathname;
  const name = plain[path];
  if (name) return { name, key: "" };
  const inShard = /^\/shards\/(\d{1,9})(?:\/blocks(?:\/([0-9a-zA-Z]+))?)?$/.exec(path);
  if (inShard) {
    const key = inShard[2] ?? "";
    return {
      name: key !== "" ? "block" : path.endsWith("/blocks") ? "blocks" : "shard",
      key,
      shard: Number(inShard[1]),
    };
  }
  const match = /^\/([a-z]+)\/(.+)$/.exec(path);
  const keyedName = match?.[1] ? keyed[match[1]] : undefined;
  if (!match?.[2] || !keyedName) return { name: "nowhere", key: "" };
  try {
    return { name: keyedName, key: decodeURIComponent(match[2]) };
  } catch {
    return { name: "nowhere", key: "" };
  }
}

class Router {
  path = $state(location.pathname);
  query = $state(new URLSearchParams(location.search));
  route = $derived(parseRoute(this.path));
  /** Counts navigations, so a page knows when to take the focus. */
  moves = $state(0);

  /** Whether the heading of the page is to take the focus, once the page is there. */
  headingIsDue = false;

  focusHeading(): void {
    const heading = document.querySelector<HTMLElement>("main h1");
    if (!this.headingIsDue || !heading) return;
    this.headingIsDue = false;
    heading.focus({ preventScroll: true });
  }

  start(): void {
    history.scrollRestoration = "auto";
    window.addEventListener("popstate", () => this.read());
    document.addEventListener("click", (event) => this.follow(event));
    // A link that the browser itself opens keeps the past, too.
    for (const kind of ["click", "auxclick", "contextmenu"])
      document.addEventListener(kind, (event) => this.lend(event), { capture: true });
  }

  /** The past that an address names (past.svelte.ts). Rounds have an `at` of their own. */
  pastOf(name: Route["name"], query: URLSearchParams): string {
    return name === "rounds" ? "" : (query.get("at") ?? "").slice(0, 40);
  }

  /** Adds the past of this page to the address of another one that names none. */
  private inPast(href: string): string {
    const at = this.pastOf(this.route.name, this.query);
    const url = new URL(href, location.origin);
    if (at === "" || url.searchParams.has("at") || parseRoute(url.pathname).name === "rounds")
      return href;
    url.searchParams.set("at", at);
    return url.pathname + url.search + url.hash;
  }

  /** Looks at the present page as of a block or a moment; empty is the present. */
  lookAt(at: string): void {
    const query = new URLSearchParams(this.query);
    if (at === "") query.delete("at");
    else query.set("at", at);
    const text = query.toString();
    history.pushState(null, "", this.path + (text === "" ? "" : `?${text}`));
    this.read();
  }

  leavePast(): void {
    this.lookAt("");
  }

  /** Opens an address as it is: with the past that it names, or with the present. */
  open(href: string): void {
    history.pushState(null, "", href);
    this.read();
    window.scrollTo(0, 0);
  }

  go(to: string, replace = false): void {
    const href = this.inPast(to);
    if (replace) history.replaceState(null, "", href);
    else history.pushState(null, "", href);
    const before = this.path;
    this.read();
    if (!replace && before !== this.path) window.scrollTo(0, 0);
  }

  private read(): void {
    if (location.pathname !== this.path) this.moves++;
    this.path = location.pathname;
    this.query = new URLSearchParams(location.search);
  }

  /** Puts the past into a link's address while the browser reads it. */
  private lend(event: Event): void {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    const own = link?.getAttribute("href");
    if (!link || !own?.startsWith("/") || link.target || link.hasAttribute("download")) return;
    const lent = this.inPast(own);
    if (lent === own) return;
    link.setAttribute("href", lent);
    setTimeout(() => {
      if (link.getAttribute("href") === lent) link.setAttribute("href", own);
    });
  }

  /**
   * Follows a click on a link of this application without a reload. The browser handles all others.
   */
  private follow(event: MouseEvent): void {
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey ||
      event.altKey
    )
      return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin)
      return;
    if (link.hash !== "" && link.pathname === location.pathname) return;
    event.preventDefault();
    this.go(link.pathname + link.search);
  }
}

export const router = new Router();
