// The time machine: a page as of a block of the root's chain, or as of a moment. The address keeps
// it, as ?at=1234 or ?at=2026-11-28T13:00:00Z, and links keep it too. The nodes know the past of
// accounts, their histories and the chain; of everything else they know the present only, and the
// bar says so.
import { Code, ConnectError } from "@connectrpc/connect";
import type { GetCutResponse, Place } from "../gen/ledgerd/v1/cut_pb";
import { api, callTimeoutMs, explain, type Problem } from "./api";
import { isoTime } from "./format";
import { parseMoment } from "./moment";
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
  account: {
    whole: false,
    text: "Balances and history are those of then. Terms and alias are those of the present.",
  },
  organisation: {
    whole: false,
    text: "The accounts are those of then. Keys, policy and home are those of the present.",
  },
  organisations: {
    whole: false,
    text: "Those that were registered then. Their keys and homes are those of the present.",
  },
  assets: {
    whole: false,
    text: "Those that were registered then. Their terms and sums of then are not known.",
  },
  record: {
    whole: false,
    text: "The value is shown if it was not written since. The nodes keep no earlier values.",
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

class Past {
  /** What the address says; empty for the present. */
  readonly at = $derived(router.pastOf(router.route.name, router.query));
  readonly wrong = $derived(this.at !== "" && parseAt(this.at, Date.now()) === undefined);
  readonly reach = $derived(reaches[router.route.name] ?? present);
  cut = $state.raw<GetCutResponse>();
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

  /** Whether a place in a chain is later than then. */
  isLater(shard: number | undefined, height: bigint, index = 0): boolean {
    if (!this.cut) return false;
    const place = this.placeOf(shard);
    if (!place) return true; // the shard was added later
    return height > place.height && !(height === place.height + 1n && index < place.entries);
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
      else this.cut = cut;
    } catch (error) {
      if (!signal.aborted) this.problem = explain(error);
    }
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
export function atPlaces<T extends { atCut: boolean }>(answer: T, places: readonly Place[]): T {
  if (places.length > 0 && !answer.atCut)
    throw new ConnectError("the node does not know the past of accounts", Code.Unimplemented);
  return answer;
}
