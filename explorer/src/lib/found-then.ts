// What of the hits of a search was there at a place in the past. A node searches the present, so
// what came later is left out here.
import { Code, ConnectError } from "@connectrpc/connect";
import type { Place } from "../gen/ledgerd/v1/cut_pb";
import type { SearchHit, TransactionStatus } from "../gen/ledgerd/v1/ledgerd_pb";
import { api, callTimeoutMs } from "./api";

/** A node finds at most so many by height, id or name. */
export const mostHits = 10;

/** Then, as the hits of a search need it. */
export interface HitThen {
  places: readonly Place[];
  isLater: (shard: number | undefined, height: bigint) => boolean;
  cameLater: (status: TransactionStatus | undefined) => boolean;
  /** The shard in whose chain organisations say when they were registered. */
  own: number | undefined;
}

export interface HitsThen {
  hits: SearchHit[];
  /** How many came later. */
  later: number;
  /** How many may have been there, and no node says. */
  unknown: number;
}

export async function hitsThen(
  found: readonly SearchHit[],
  then: HitThen,
  signal: AbortSignal,
): Promise<HitsThen> {
  const there = await Promise.allSettled(found.map((hit) => wasThere(hit, then, signal)));
  signal.throwIfAborted();
  return {
    hits: found.filter((_, i) => there[i]?.status === "fulfilled" && there[i].value),
    later: there.filter((each) => each.status === "fulfilled" && !each.value).length,
    unknown: there.filter((each) => each.status === "rejected").length,
  };
}

async function wasThere(
  { kind, key, shard }: SearchHit,
  { places, isLater, cameLater, own }: HitThen,
  signal: AbortSignal,
): Promise<boolean> {
  const options = { signal, timeoutMs: callTimeoutMs };
  switch (kind) {
    case "block":
      return !isLater(shard, BigInt(key));
    case "transaction": {
      const { transaction } = await api.getTransaction({ idHex: key }, options);
      const inBlock = (transaction?.status?.height ?? 0n) > 0n;
      return inBlock && !cameLater(transaction?.status);
    }
    case "organisation": {
      const { organisation } = await api.getOrganisation({ name: key }, options);
      return organisation !== undefined && !isLater(own, organisation.registeredHeight);
    }
    case "account":
      try {
        const { atCut } = await api.getAccount({ account: key, cut: [...places] }, options);
        if (atCut) return true;
        break; // a node of an earlier version
      } catch (error) {
        if (ConnectError.from(error).code === Code.NotFound) return false;
        throw error;
      }
  }
  throw new ConnectError(`no past of a hit of the kind ${kind}`, Code.Unimplemented);
}
