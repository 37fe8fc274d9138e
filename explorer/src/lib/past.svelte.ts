// The time machine: a page as of a block of the root's chain, or as of a moment. The address keeps
// it, as ?at=1234 or ?at=2026-11-28T13:00:00Z, and links keep it too. The nodes know the past of
// accounts, their terms and histories, of assets and of the chain; if a node's store began later
// and does not know terms of then, the page says so. Records, holds, schedules, policies, members
// and shards of then follow from the transactions. Of everything else the nodes know the present
// only, and the bar says so.
import { Code, ConnectError } from "@connectrpc/connect";
import type { GetCutResponse, Place } from "../gen/ledgerd/v1/cut_pb";
import type { TransactionStatus } from "../gen/ledgerd/v1/ledgerd_pb";
import { api, callTimeoutMs, explain, type Problem } from "./api";
import { isoTime } from "./format";
import { parseMoment } from "./moment";
import type { Then } from "./open-then";
import { router, type Route } from "./router.svelte";

/** What a page can show of the past: all that it has, a part, or nothing. */
export interface Reach {
  whole: boolean;
  text: string;
}

const present: Reach = {
  whole: false,
  text: "The nodes keep no past of what this page shows. Below is the present.",
};
const reaches: Readonly<Partial<Record<Route["name"], Reach>>> = {
  blocks: { whole: true, text: "" },
  block: { whole: true, text: "" },
  transaction: {
    whole: false,
    text: "A transaction stays as it is, but its status below is that of the present.",
  },
  accounts: { whole: true, text: "" },
  account: { whole: true, text: "" },
  organisation: { whole: true, text: "" },
  organisations: {
    whole: false,
    text: "Those that were registered then. Keys that ever changed are on the page of each.",
  },
  assets: { whole: true, text: "" },
  asset: { whole: true, text: "" },
  record: { whole: true, text: "" },
  records: {
    whole: false,
    text: "Records that were written since have their value of then on their own pages.",
  },
  transactions: {
    whole: false,
    text: "What was in the chains then. The status of each is that of the present.",
  },
  chart: { whole: true, text: "" },
  holds: { whole: true, text: "" },
  hold: { whole: true, text: "" },
  schedules: { whole: true, text: "" },
  schedule: { whole: true, text: "" },
  overview: { whole: true, text: "" },
  crossings: {
    whole: false,
    text: "What had crossed then. The status of each transaction is that of the present.",
  },
  nodes: {
    whole: false,
    text: "The members of then. Not kept: what their nodes did, such as rounds, rates and faults.",
  },
  shards: {
    whole: false,
    text: "Tree and figures of then. Not kept: which nodes ran, and how many accounts.",
  },
  shard: {
    whole: false,
    text: "Blocks, members and figures of then. Not kept: which nodes ran, and how many accounts.",
  },
  search: {
    whole: false,
    text: "What was there then. The status of each transaction is that of the present.",
  },
};

/** What the address says: a height, a moment in milliseconds, or neither. */
export function parseAt(text: string, nowMs: number): { height?: bigint; ms?: number } | undefined {
  if (/^[1-9]\d{0,18}$/.test(text)) return { height: BigInt(text) };
  const moment = /\D/.test(text) ? parseMoment(text, nowMs) : undefined;
  return moment && moment.endMs > 1 ? { ms: moment.endMs } : undefined;
}

/** A typed block or moment as the address has it; undefined if it is neither. */
export function atOf(typed: string, nowMs: number): string | undefined {
  const text = typed.trim().replaceAll(/(?<=\d)[,_'](?=\d)/g, "");
  const at = parseAt(text, nowMs);
  if (at?.ms !== undefined) return isoTime(at.ms - 1000).replace(".000Z", "Z");
  return at ? text : undefined;
}

/** How much later a block of then may be in a chain that does not answer. */
const slackMs = 60_000n;

class Past {
  /** What the address says; empty for the present. */
  readonly at = $derived(router.pastOf(router.route.name, router.query));
  readonly wrong = $derived(this.at !== "" && parseAt(this.at, Date.now()) === undefined);
  readonly reach = $derived(reaches[router.route.name] ?? present);
  cut = $state.raw<GetCutResponse>();
  /** After the times of all blocks of then. */
  private endMs = 0n;
  problem = $state.raw<Problem>();
  private turn = $state(0);

  /** Finds the place of then in each chain, whenever the address changes. */
  start(): void {
    $effect.root(() => {
      $effect(() => {
        void this.turn;
        const asked = parseAt(this.at, Date.now());
        this.cut = undefined;
        this.problem = undefined;
        if (!asked) return;
        const controller = new AbortController();
        const request =
          asked.height === undefined
            ? { beforeMs: BigInt(asked.ms ?? 0) }
            : { height: asked.height };
        void this.find(request, controller.signal);
        return () => controller.abort();
      });
    });
  }

  again(): void {
    this.turn++;
  }

  /** The places for a request as of then; none in the present. */
  get places(): Place[] {
    return this.cut?.places ?? [];
  }

  /** Whether a page has to wait: the address names a past that is not found yet. */
  get waits(): boolean {
    return this.at !== "" && this.cut === undefined;
  }

  placeOf(shard: number | undefined): Place | undefined {
    return this.cut?.places[shard ?? 0];
  }

  /** The last block of a chain that is in a place of then, in whole or in part. */
  lastOf(place: Place | undefined): bigint | undefined {
    return place && place.height + (place.entries > 0 ? 1n : 0n);
  }

  /** Whether a place in a chain is later than then. */
  isLater(shard: number | undefined, height: bigint, index = 0): boolean {
    if (!this.cut) return false;
    const place = this.placeOf(shard);
    if (!place) return true; // the shard was added later
    return height > place.height && !(height === place.height + 1n && index < place.entries);
  }

  /** The end of a period in the past: what came later than all of then is not asked for. */
  until(toTimeMs: bigint): bigint {
    if (!this.cut) return toTimeMs;
    return toTimeMs === 0n || toTimeMs > this.endMs ? this.endMs : toTimeMs;
  }

  /** Whether a transaction came later than then. */
  cameLater(status: TransactionStatus | undefined): boolean {
    if (!this.cut) return false;
    return this.isLater(status?.shard, status?.height ?? 0n, status?.index);
  }

  /** Then, for a look through the transactions; undefined in the present. */
  get then(): Then | undefined {
    const { cut } = this;
    if (!cut) return undefined;
    return {
      timeMs: cut.timeMs,
      untilMs: this.until(0n),
      isLater: (status) => this.cameLater(status),
    };
  }

  private async find(
    request: { height: bigint } | { beforeMs: bigint },
    signal: AbortSignal,
  ): Promise<void> {
    try {
      const cut = await api.getCut(request, { signal, timeoutMs: 2 * callTimeoutMs });
      if (signal.aborted) return;
      if ("beforeMs" in request && cut.beforeMs !== request.beforeMs)
        this.problem = { kind: "refused", message: "The node does not know moments." };
      else {
        const ends = cut.places.map((place, shard) => endOf(cut, place, shard, signal));
        const times = await Promise.all(ends);
        if (signal.aborted) return;
        this.endMs = times.reduce((most, time) => (time > most ? time : most)) + 1n;
        this.cut = cut;
      }
    } catch (error) {
      if (!signal.aborted) this.problem = explain(error);
    }
  }
}

/** The time of the last block of then in a chain, or a little more if no node answers. */
async function endOf(
  cut: GetCutResponse,
  { height, entries }: Place,
  shard: number,
  signal: AbortSignal,
): Promise<bigint> {
  if (shard === cut.root && entries === 0) return cut.timeMs;
  const last = entries === 0 ? height : height + 1n;
  if (last === 0n) return 0n;
  try {
    const options = { signal, timeoutMs: callTimeoutMs };
    const { blocks } = await api.listBlocks({ fromHeight: last, pageSize: 1, shard }, options);
    return blocks[0]?.timeMs ?? cut.timeMs + slackMs;
  } catch {
    return cut.timeMs + slackMs;
  }
}

export const past = new Past();

/**
 * Waits until the past that the address names is found, and returns its places. Pages that read it
 * call this first; it reads its dependencies at once.
 */
export function placesOfPast(signal: AbortSignal): Promise<Place[]> {
  const { waits, places, problem, wrong } = past;
  if (!waits) return Promise.resolve(places);
  if (problem || wrong)
    return Promise.reject(
      new ConnectError(problem?.message ?? "there is no such moment", Code.InvalidArgument),
    );
  // The effect of the page runs again once the cut is there, and cancels this one.
  return new Promise((_, reject) =>
    signal.addEventListener("abort", () => reject(new Error("cancelled"))),
  );
}

/**
 * Returns an answer that is as of the places that were asked for. A node of an earlier version
 * ignores them.
 */
export function atPlaces<T extends { atCut: boolean }>(
  answer: T,
  places: readonly Place[],
  what = "accounts",
): T {
  if (places.length > 0 && !answer.atCut)
    throw new ConnectError(`the node does not know the past of ${what}`, Code.Unimplemented);
  return answer;
}
