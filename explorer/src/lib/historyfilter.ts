// The filters of an account's history, as the address of its page has them. Their names are those
// of the flags of "ledgerd account history".
import { isoTime } from "./format";
import { parseMoment, type Moment } from "./moment";

export const filterNames = [
  "from",
  "to",
  "asset",
  "min",
  "max",
  "with",
  "note",
  "metadata",
] as const;
export type FilterName = (typeof filterNames)[number];
export type HistoryFilter = Readonly<Record<FilterName, string>>;

export function readFilter(query: URLSearchParams): HistoryFilter {
  return Object.fromEntries(
    filterNames.map((name) => [name, query.get(name) ?? ""]),
  ) as HistoryFilter;
}

export const isEmpty = (filter: HistoryFilter): boolean =>
  filterNames.every((name) => filter[name] === "");

/** Whether the filter is a period, perhaps of one asset: what a statement is about. */
export const isPeriod = (filter: HistoryFilter): boolean =>
  filter.from + filter.to !== "" &&
  filterNames.every((name) => ["from", "to", "asset"].includes(name) || filter[name] === "");

/**
 * The typed filter as the address has it. Moments are in UTC there, so that a link means the same
 * everywhere. What cannot be read stays as it is; requestOf says what is wrong with it.
 */
export function addressOf(typed: HistoryFilter, nowMs: number): URLSearchParams {
  const query = new URLSearchParams();
  for (const name of filterNames) {
    let text = typed[name].trim();
    const moment = name === "from" || name === "to" ? parseMoment(text, nowMs) : undefined;
    if (moment) text = inUtc(moment, name === "from");
    if (text !== "") query.set(name, text);
  }
  return query;
}

const dayMs = 86_400_000;

/** A moment's first or last second in UTC, or the day if it is one of UTC. */
export function inUtc({ startMs, endMs }: Moment, first: boolean): string {
  const text = isoTime(first ? startMs : endMs - 1000).replace(".000Z", "Z");
  return startMs % dayMs === 0 && endMs - startMs === dayMs ? `${text.slice(0, 10)}Z` : text;
}

/** An amount in the smallest unit: "12.5" with two decimals is "1250". Undefined if it is none. */
export function smallestUnit(typed: string, decimals: number): string | undefined {
  const match = /^(\d[\d,_']{0,60})(?:\.(\d{1,30}))?$/.exec(typed.trim());
  const fraction = match?.[2] ?? "";
  if (!match?.[1] || fraction.length > decimals) return undefined;
  const digits = match[1].replace(/\D/g, "") + fraction.padEnd(decimals, "0");
  return digits.replace(/^0+(?=\d)/, "");
}

/** The fields of a request, or what is wrong with the filter. */
export interface Wanted {
  fields: {
    fromTimeMs: bigint;
    toTimeMs: bigint;
    asset: string;
    minAmount: string;
    maxAmount: string;
    counterparty: string;
    note: string;
    metadata: string[];
  };
  wrong: string;
}

/** What the filters of a history and of the list of transactions have in common. */
interface Common {
  from: string;
  to: string;
  asset: string;
  min: string;
  max: string;
  note: string;
}

/** The fields of a period, an asset with amounts, and a note. decimals are the asset's, or 0. */
export function commonFields(
  filter: Common,
  decimals: number,
): { fields: Omit<Wanted["fields"], "counterparty" | "metadata">; wrong: string } {
  let wrong = "";
  const bound = (name: "from" | "to"): bigint => {
    if (filter[name] === "") return 0n;
    const moment = parseMoment(filter[name], Date.now());
    if (!moment || moment.startMs < 0) {
      wrong ||= `"${filter[name]}" is no date and no time, such as 2026-01-31 or 2026-01-31 12:00.`;
      return 0n;
    }
    return BigInt(name === "from" ? moment.startMs : moment.endMs);
  };
  const amount = (name: "min" | "max"): string => {
    if (filter[name] === "") return "";
    const unit = smallestUnit(filter[name], decimals);
    const of = filter.asset || "amounts of no named asset: name the asset";
    if (unit === undefined)
      wrong ||= filter[name].includes(".")
        ? `"${filter[name]}" has more decimals than ${of}.`
        : `"${filter[name]}" is no amount.`;
    return unit ?? "";
  };
  const fields = {
    fromTimeMs: bound("from"),
    toTimeMs: bound("to"),
    asset: filter.asset,
    minAmount: amount("min"),
    maxAmount: amount("max"),
    note: filter.note,
  };
  return { fields, wrong };
}

/** decimals are those of the filter's asset, or 0. */
export function requestOf(filter: HistoryFilter, decimals: number): Wanted {
  const { fields, wrong } = commonFields(filter, decimals);
  const metadata = filter.metadata
    .split(",")
    .map((text) => text.trim())
    .filter((text) => text !== "");
  return { fields: { ...fields, counterparty: filter.with, metadata }, wrong };
}
