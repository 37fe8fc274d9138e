// The filters of the list of transactions, as its address has them.
import { commonFields, inUtc } from "./historyfilter";
import { parseMoment } from "./moment";

export const listFilterNames = [
  "kind",
  "status",
  "organisation",
  "asset",
  "from",
  "to",
  "min",
  "max",
  "note",
  "shard",
  "with",
] as const;
export type ListFilterName = (typeof listFilterNames)[number];
export type ListFilter = Readonly<Record<ListFilterName, string>>;

/** The kinds of transactions that a node lists, and their names for people. */
export const kinds: Readonly<Record<string, string>> = {
  payment: "payments",
  records: "records",
  opening: "openings of accounts",
  registration: "registrations",
  hold: "holds placed",
  hold_end: "holds posted or voided",
  schedule: "schedules placed",
  schedule_end: "schedules ended",
  occurrence: "occurrences of schedules",
  asset: "terms of assets",
  account_terms: "terms of accounts",
  policy: "policies",
  operators: "operators",
  members: "members",
  book: "shards of the book",
  cancellation: "cancellations",
  verdict: "verdicts of shards",
  arrival: "arrivals in a shard",
  crossing: "crossings between shards",
};
export const statuses: Readonly<Record<string, string>> = {
  applied: "applied",
  failed: "failed",
  waiting: "waiting for other shards",
};

export function readListFilter(query: URLSearchParams): ListFilter {
  return Object.fromEntries(
    listFilterNames.map((name) => [name, query.get(name) ?? ""]),
  ) as ListFilter;
}

/** The typed filter as the address has it, with moments in UTC. */
export function listAddressOf(typed: ListFilter, nowMs: number): URLSearchParams {
  const query = new URLSearchParams();
  for (const name of listFilterNames) {
    let text = typed[name].trim();
    const moment = name === "from" || name === "to" ? parseMoment(text, nowMs) : undefined;
    if (moment) text = inUtc(moment, name === "from");
    if (text !== "") query.set(name, text);
  }
  return query;
}

export interface ListWanted {
  fields: {
    kind: string;
    status: string;
    organisation: string;
    asset: string;
    fromTimeMs: bigint;
    toTimeMs: bigint;
    minAmount: string;
    maxAmount: string;
    note: string;
    shard?: number;
    withShard?: number;
  };
  wrong: string;
}

/** The fields of a request, or what is wrong with the filter. decimals are those of its asset. */
export function listRequestOf(filter: ListFilter, decimals: number): ListWanted {
  const common = commonFields(filter, decimals);
  let { wrong } = common;
  const fields: ListWanted["fields"] = {
    ...common.fields,
    kind: filter.kind,
    status: filter.status,
    organisation: filter.organisation,
  };
  if (filter.kind !== "" && !(filter.kind in kinds)) wrong ||= `There is no kind "${filter.kind}".`;
  if (filter.status !== "" && !(filter.status in statuses))
    wrong ||= `There is no status "${filter.status}".`;
  for (const [name, field] of [
    ["shard", "shard"],
    ["with", "withShard"],
  ] as const) {
    if (filter[name] === "") continue;
    if (/^\d{1,4}$/.test(filter[name])) fields[field] = Number(filter[name]);
    else wrong ||= `"${filter[name]}" is no shard.`;
  }
  return { fields, wrong };
}
