// The holds and the schedules that were open at a place in the past. Nodes keep those that are open
// now, so these follow from the transactions that placed and ended them.
import type {
  ListedTransaction,
  TransactionStatus,
  TransactionSummary,
} from "../gen/ledgerd/v1/ledgerd_pb";
import type { OpenHold } from "../gen/ledgerd/v1/holds_pb";
import type { OpenSchedule } from "../gen/ledgerd/v1/schedules_pb";
import { gatherListed } from "./look-through";
import { dueBy, occurrencesOf, timeOf } from "./occurrences";

/** A place in the past, as a look for it needs it. */
export interface Then {
  timeMs: bigint;
  /** The end of the period that has all of then, and little that came later. */
  untilMs: bigint;
  /** Whether a transaction came later. */
  isLater: (status: TransactionStatus) => boolean;
}

/** Plain values as the rows of the present have them. */
type Row<Message> = Omit<Message, "$typeName" | "$unknown">;
export type HoldRow = Row<OpenHold>;
export type ScheduleRow = Row<OpenSchedule>;

/** What the rows are, and whether the look was through all that the nodes have. */
export interface Opened<Each> {
  rows: Each[];
  complete: boolean;
}

/** A hold expires at most so long after its block. */
const longestHoldMs = 400n * 86_400_000n;

export interface HoldFilter {
  organisation: string;
  account: string;
  poster: string;
}

export async function holdsThen(
  then: Then,
  { organisation, account, poster }: HoldFilter,
  signal: AbortSignal,
): Promise<Opened<HoldRow>> {
  const fromTimeMs = then.timeMs > longestHoldMs ? then.timeMs - longestHoldMs : 0n;
  const { placed, complete } = await stillOpen(
    then,
    { kind: "hold", fromTimeMs, organisation },
    { kind: "hold_end", fromTimeMs },
    ({ holdEnd }) => holdEnd?.holdHex,
    signal,
  );
  const rows = placed.flatMap(({ status, hold }): HoldRow[] => {
    if (!status || !hold || hold.expiresMs <= then.timeMs) return [];
    if (account !== "" && hold.account !== account) return [];
    if (organisation !== "" && !hold.account.startsWith(`${organisation}:`)) return [];
    if (poster !== "" && hold.poster !== poster) return [];
    const { idHex: holdHex, shard } = status;
    return [{ holdHex, hold, endingHex: "", posted: "", shard, decimals: 0 }];
  });
  return { rows, complete };
}

export async function schedulesThen(
  then: Then,
  organisation: string,
  signal: AbortSignal,
): Promise<Opened<ScheduleRow>> {
  const { placed, complete } = await stillOpen(
    then,
    { kind: "schedule", organisation },
    { kind: "schedule_end", organisation },
    ({ scheduleEnd }) => scheduleEnd?.scheduleHex,
    signal,
  );
  const rows = placed.flatMap(({ status, schedule, signer, note }): ScheduleRow[] => {
    if (!status || !schedule || (organisation !== "" && signer !== organisation)) return [];
    const [issued, occurrences] = [dueBy(schedule, Number(then.timeMs)), occurrencesOf(schedule)];
    if (issued >= occurrences) return [];
    const nextMs = BigInt(timeOf(schedule, issued + 1));
    return [{ scheduleHex: status.idHex, signer, schedule, note, issued, occurrences, nextMs }];
  });
  return { rows, complete };
}

type Request = Parameters<typeof gatherListed>[0];

/** What was placed until then, without what was ended until then; the newest first. */
async function stillOpen(
  then: Then,
  places: Request,
  ends: Request,
  endedBy: (transaction: TransactionSummary) => string | undefined,
  signal: AbortSignal,
): Promise<{ placed: TransactionSummary[]; complete: boolean }> {
  const bounds = { status: "applied", toTimeMs: then.untilMs };
  const [placed, ended] = await Promise.all([
    gatherListed({ ...places, ...bounds }, signal),
    gatherListed({ ...ends, ...bounds }, signal),
  ]);
  const of = (listed: readonly ListedTransaction[]): TransactionSummary[] =>
    listed.flatMap(({ transaction }) =>
      transaction?.status && !then.isLater(transaction.status) ? [transaction] : [],
    );
  const gone = new Set(of(ended.listed).map(endedBy));
  return {
    placed: of(placed.listed).filter(({ status }) => !gone.has(status?.idHex)),
    complete: placed.complete && ended.complete,
  };
}
