// When the occurrences of a schedule are, and their ids, which follow from the schedule.
import type { Schedule } from "../gen/ledgerd/v1/transaction_pb";
import { concatBytes, fromHex, toHex } from "./bytes";
import { Reader } from "./reader";
import { sha256 } from "./sha256";

/** Bounds the occurrences of a schedule. */
export const maxOccurrences = 4096;

/** Says how often a schedule has an occurrence: once, "every month", "every 2 weeks". */
export function periodWords(every: number, period: string): string {
  if (every === 0) return "once";
  return every === 1 ? `every ${period.replace(/s$/, "")}` : `every ${every} ${period}`;
}

type Times = Pick<Schedule, "firstMs" | "period" | "every" | "count" | "untilMs">;

const minuteMs = 60_000;
const steps: Readonly<Record<string, number>> = {
  minutes: minuteMs,
  days: 1440 * minuteMs,
  weeks: 7 * 1440 * minuteMs,
};

/** The time of an occurrence, by its number, in milliseconds. */
export function timeOf({ firstMs, period, every }: Times, number: number): number {
  const first = Number(firstMs);
  const later = (number - 1) * every;
  if (period !== "months") return first + later * (steps[period] ?? 0);
  const at = new Date(first);
  const [year, month] = [at.getUTCFullYear(), at.getUTCMonth() + later];
  const lastDay = new Date(Date.UTC(year, month + 1, 0)).getUTCDate();
  return (
    Date.UTC(year, month, Math.min(at.getUTCDate(), lastDay)) + (first % (1440 * minuteMs))
  );
}

/** How many occurrences a schedule has, if it is not ended before. */
export function occurrencesOf(times: Times): number {
  const { every, count, untilMs } = times;
  const most = every === 0 ? 1 : count > 0 ? Math.min(count, maxOccurrences) : maxOccurrences;
  if (untilMs === 0n) return most;
  return lastThat(most, (number) => timeOf(times, number) <= Number(untilMs));
}

/** How many of a schedule's occurrences are due at a moment. */
export function dueBy(times: Times, ms: number): number {
  return lastThat(occurrencesOf(times), (number) => timeOf(times, number) <= ms);
}

/** The greatest number up to most that is so, where all up to it are so and none after it; or 0. */
function lastThat(most: number, isSo: (number: number) => boolean): number {
  let least = 0;
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    if (isSo(middle)) least = middle;
    else most = middle - 1;
  }
  return least;
}

const placesSchedule = 18;
const isOccurrence = 20;
const idDomain = new TextEncoder().encode("ledgerd/transaction/1\0");

/**
 * Returns the id of an occurrence, which follows from the canonical bytes of the transaction that
 * placed the schedule. Undefined if these place none.
 */
export async function occurrenceId(
  canonical: Uint8Array,
  scheduleHex: string,
  number: number,
): Promise<string | undefined> {
  const body = occurrenceBody(canonical, scheduleHex, number);
  return body && toHex(await sha256(concatBytes(idDomain, body)));
}

/**
 * The canonical bytes of an occurrence: ledger, signer, schedule, number, time, and the postings
 * and the note as they are in the schedule.
 */
export function occurrenceBody(
  canonical: Uint8Array,
  scheduleHex: string,
  number: number,
): Uint8Array<ArrayBuffer> | undefined {
  const reader = new Reader(canonical);
  if (reader.byte() !== placesSchedule) return undefined;
  const ledger = reader.hash();
  const signer = reader.bytes("organisation", 64);
  for (const _ of ["stream", "sequence", "last valid", "deadline", "shard"]) reader.uvarint();
  const firstMs = reader.uvarint();
  const period = periods[reader.byte()] ?? "";
  const every = Number(reader.uvarint());
  const [count, untilMs] = [Number(reader.uvarint()), reader.uvarint()];
  const postingsAndNote = reader.rest();
  const schedule = fromHex(scheduleHex);
  if (reader.problem !== "" || !schedule) return undefined;
  return concatBytes(
    new Uint8Array([isOccurrence]),
    ledger,
    uvarint(signer.length),
    signer,
    schedule,
    uvarint(number),
    uvarint(timeOf({ firstMs, period, every, count, untilMs }, number)),
    postingsAndNote,
  );
}

const periods = ["once", "minutes", "days", "weeks", "months"];

function uvarint(value: number): Uint8Array {
  const digits = [];
  for (; value >= 0x80; value = Math.floor(value / 0x80)) digits.push((value % 0x80) | 0x80);
  return new Uint8Array([...digits, value]);
}
