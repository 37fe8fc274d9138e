// The figures of a shard as of a place in the past. Nodes count by hours, days and months, so those
// that were over are whole, and what came in the hour of then is counted here from a list.
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { Place } from "../gen/ledgerd/v1/cut_pb";
import {
  CrossingsSchema,
  FiguresSchema,
  type Crossings,
  type Figures,
  type GetFiguresResponse,
} from "../gen/ledgerd/v1/figures_pb";
import {
  TransactionState,
  type ListedTransaction,
  type TransactionStatus,
} from "../gen/ledgerd/v1/ledgerd_pb";
import { api, callTimeoutMs } from "./api";
import { sleep } from "./backoff";
import { startsOf, type ShardFigures } from "./figures";
import { lookThrough } from "./look-through";
import type { Then } from "./open-then";
import { inShard } from "./shards";

/** What nodes keep and answer with at most. */
const kept = { hours: 744, days: 3660, months: 1200 } as const;
/** At most so many transactions of the hour of then are counted, of each shard. */
export const mostListed = 10_000;
/** A node counts some blocks with each question. */
const mostQuestions = 100;
const betweenQuestionsMs = 50;

export interface FiguresThen extends ShardFigures {
  /** Whether the hour of then had more than is counted here. */
  clipped: boolean;
  /** All entries of the chain before the place. */
  entries: bigint | undefined;
}

type Answer = Pick<GetFiguresResponse, "total" | "fromHeight" | "countedHeight"> &
  Record<keyof typeof kept, Figures[]>;

/** Asks for the figures of a shard, and counts what of them came until then. */
export async function figuresThen(
  shard: number,
  chain: number | undefined,
  place: Place,
  then: Then,
  crossings: boolean,
  signal: AbortSignal,
): Promise<FiguresThen> {
  try {
    const [answer, { entries, timeMs }] = await Promise.all([
      countedUpTo(place.height, chain, crossings, signal),
      endOf(place, chain, signal),
    ]);
    // Blocks never become younger, so all before the hour of the last one came before it.
    const { fromMs } = partsOf(answer, timeMs);
    const tail = await countTail(chain, shard, fromMs, then, crossings, signal);
    const figures = figuresUntil(answer, timeMs, tail.figures);
    // The entries that are no transactions of users are those between shards.
    if (figures.total && answer.fromHeight <= 1n && !tail.clipped)
      figures.total.between =
        entries > figures.total.transactions ? entries - figures.total.transactions : 0n;
    const countedHeight =
      answer.countedHeight < place.height ? answer.countedHeight : place.height;
    return {
      shard,
      answer: {
        ...figures,
        fromHeight: answer.fromHeight,
        countedHeight,
        headHeight: place.height,
      },
      clipped: tail.clipped,
      entries,
    };
  } catch (error) {
    if (signal.aborted) throw error;
    return { shard, answer: undefined, clipped: false, entries: undefined };
  }
}

async function countedUpTo(
  height: bigint,
  shard: number | undefined,
  crossings: boolean,
  signal: AbortSignal,
): Promise<GetFiguresResponse> {
  for (let question = 1; ; question++) {
    const options = { signal, timeoutMs: callTimeoutMs };
    const answer = await api.getFigures({ ...inShard(shard), ...kept, crossings }, options);
    if (answer.countedHeight >= height || question >= mostQuestions) return answer;
    await sleep(betweenQuestionsMs, signal);
  }
}

/** The periods that were over then and are kept, and from when on there is none. */
function partsOf(answer: Answer, thenMs: number): { whole: Figures[]; fromMs: number } {
  const startOf = (kind: keyof typeof kept): number => startsOf(kind, 1, thenMs)[0] ?? 0;
  const whole: Figures[] = [];
  let fromMs = 0;
  for (const kind of ["months", "days", "hours"] as const) {
    const all = answer[kind];
    // The oldest may be forgotten: those of the longer period are not all here then.
    const oldest = all.length >= kept[kind] ? Number(all[0]?.startMs ?? 0n) : 0;
    if (kind !== "months" && oldest > fromMs) break;
    const end = startOf(kind);
    whole.push(
      ...all.filter(({ startMs }) => Number(startMs) >= fromMs && Number(startMs) < end),
    );
    fromMs = end;
  }
  return { whole, fromMs };
}

/** Figures as of then: the periods that were over, and what there was of those that were not. */
export function figuresUntil(
  answer: Answer,
  thenMs: number,
  tail: Figures,
): Pick<GetFiguresResponse, "total" | "hours" | "days" | "months"> {
  const { whole, fromMs } = partsOf(answer, thenMs);
  const cut = (kind: keyof typeof kept): Figures[] => {
    const start = startsOf(kind, 1, thenMs)[0] ?? 0;
    const before = answer[kind].filter(({ startMs }) => Number(startMs) < start);
    if (start < fromMs) {
      const since = whole.filter(({ startMs }) => Number(startMs) >= start);
      return [...before, sum([...since, tail], start)];
    }
    return start === fromMs ? [...before, sum([tail], start)] : before;
  };
  const startMs = Number(answer.total?.startMs ?? 0n);
  return {
    total: sum([...whole, tail], startMs),
    hours: cut("hours"),
    days: cut("days"),
    months: cut("months"),
  };
}

function sum(all: readonly Figures[], startMs: number): Figures {
  const added = create(FiguresSchema, { startMs: BigInt(startMs) });
  const crossings = new Between();
  for (const each of all) {
    added.transactions += each.transactions;
    added.first += each.first;
    added.failed += each.failed;
    added.between += each.between;
    added.crossingsForgotten ||= each.crossingsForgotten;
    for (const { shard, transactions, verdicts } of each.crossings) {
      crossings.of(shard).transactions += transactions;
      crossings.of(shard).verdicts += verdicts;
    }
  }
  added.crossings = crossings.all();
  return added;
}

/** Counts by the other shard. */
class Between {
  private readonly counts = new Map<number, Crossings>();

  of(shard: number): Crossings {
    const counts = this.counts.get(shard) ?? create(CrossingsSchema, { shard });
    this.counts.set(shard, counts);
    return counts;
  }

  all(): Crossings[] {
    return [...this.counts.values()].sort((a, b) => a.shard - b.shard);
  }
}

/** Counts what a chain got from a moment on until then. */
async function countTail(
  chain: number | undefined,
  shard: number,
  fromMs: number,
  then: Then,
  crossings: boolean,
  signal: AbortSignal,
): Promise<{ figures: Figures; clipped: boolean }> {
  const bounds = {
    fromTimeMs: BigInt(fromMs),
    toTimeMs: then.untilMs,
    pageSize: 1000,
    shard,
  };
  const list = async (
    kind: string,
  ): Promise<{ listed: ListedTransaction[]; clipped: boolean }> => {
    const listed: ListedTransaction[] = [];
    let full = false;
    const complete = await lookThrough({ ...bounds, kind }, signal, (page) => {
      listed.push(
        ...page.filter(
          ({ transaction }) => transaction?.status && !then.isLater(transaction.status),
        ),
      );
      return (full = listed.length >= mostListed);
    });
    return { listed, clipped: full || !complete };
  };
  const inTree = chain !== undefined;
  const [transactions, verdicts] = await Promise.all([
    list(""),
    inTree && crossings ? list("verdict") : undefined,
  ]);
  const figures = create(FiguresSchema, { startMs: BigInt(fromMs) });
  const between = new Between();
  for (const { transaction } of transactions.listed) {
    const { status } = transaction ?? {};
    const destinations = status?.destinations ?? [];
    figures.transactions++;
    if (destinations.every((each) => each >= shard)) figures.first++;
    if (status && hadFailed(status, then)) figures.failed++;
    if (crossings)
      for (const other of destinations) if (other !== shard) between.of(other).transactions++;
  }
  for (const { transaction } of verdicts?.listed ?? [])
    between.of(transaction?.verdictShard ?? 0).verdicts++;
  figures.crossings = between.all();
  return { figures, clipped: transactions.clipped || (verdicts?.clipped ?? false) };
}

/** Whether a transaction had failed by then: one that waited, in the block that ended its wait. */
function hadFailed(status: TransactionStatus, then: Then): boolean {
  const { state, settledHeight } = status;
  if (state !== TransactionState.FAILED) return false;
  return settledHeight === 0n || !then.isLater({ ...status, height: settledHeight, index: 0 });
}

/** The time of the last whole block before a place, and how many entries the chain had there. */
async function endOf(
  { height, entries }: Place,
  shard: number | undefined,
  signal: AbortSignal,
): Promise<{ timeMs: number; entries: bigint }> {
  if (height === 0n) return { timeMs: 0, entries: BigInt(entries) };
  const request = { fromHeight: height, pageSize: 1, ...inShard(shard) };
  const { blocks } = await api.listBlocks(request, { signal, timeoutMs: callTimeoutMs });
  const { canonical, timeMs } = blocks[0] ?? {};
  if (!canonical || canonical.length < 8)
    throw new ConnectError("a block without its header", Code.DataLoss);
  // A header ends with the number of entries in all blocks up to it.
  const { buffer, byteOffset, length } = canonical;
  const all = new DataView(buffer, byteOffset + length - 8).getBigUint64(0);
  return { timeMs: Number(timeMs), entries: all + BigInt(entries) };
}
