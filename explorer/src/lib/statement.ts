// A statement: what an account had at the beginning of a period, what came and went, and what it
// had at the end.
import type { Table } from "./csv";
import { isoTime, placePoint } from "./format";
import type { HistoryEntry, ListHistoryResponse } from "../gen/ledgerd/v1/history_pb";

export interface StatementRow {
  asset: string;
  decimals: number;
  opening: bigint;
  received: bigint;
  spent: bigint;
  closing: bigint;
}

export interface Statement {
  rows: StatementRow[];
  entries: number;
  /** That of the chain when the last page was read. */
  height: bigint;
  /** Why there is none. */
  missing: "" | "too many entries" | "too far back" | "an old node";
}

export const maxStatementPages = 10;
export const statementPage = 1000;

type PageOf = Pick<
  ListHistoryResponse,
  | "entries"
  | "nextPageToken"
  | "openingBalances"
  | "closingBalances"
  | "hasBalances"
  | "balancesTooFar"
  | "height"
>;

/** Reads a period's pages, the oldest first. An asset limits the statement to it. */
export async function stateOf(
  fetchPage: (token: string) => Promise<PageOf>,
  asset: string,
): Promise<Statement> {
  const rows = new Map<string, StatementRow>();
  const rowOf = (name: string, decimals: number): StatementRow => {
    let row = rows.get(name);
    if (!row) {
      row = { asset: name, decimals, opening: 0n, received: 0n, spent: 0n, closing: 0n };
      rows.set(name, row);
    }
    return row;
  };
  const wanted = (name: string): boolean => asset === "" || name === asset;
  let entries = 0;
  let height = 0n;
  let token = "";
  const without = (missing: Statement["missing"]): Statement => ({
    rows: [],
    entries,
    height,
    missing,
  });
  for (let page = 0; ; page++) {
    if (page === maxStatementPages) return without("too many entries");
    const answer = await fetchPage(token);
    if (!answer.hasBalances) return without("an old node");
    if (answer.balancesTooFar) return without("too far back");
    if (page === 0)
      for (const { asset: name, amount, decimals } of answer.openingBalances)
        if (wanted(name)) rowOf(name, decimals).opening = BigInt(amount);
    entries += answer.entries.length;
    height = answer.height;
    for (const entry of answer.entries) add(entry);
    token = answer.nextPageToken;
    if (token !== "") continue;
    for (const { asset: name, amount, decimals } of answer.closingBalances)
      if (wanted(name)) rowOf(name, decimals).closing = BigInt(amount);
    const sorted = [...rows.values()].sort((a, b) => (a.asset < b.asset ? -1 : 1));
    return { rows: sorted, entries, height, missing: "" };
  }

  function add(entry: HistoryEntry): void {
    for (const { asset: name, amount, decimals } of entry.changes) {
      if (!wanted(name)) continue;
      const row = rowOf(name, decimals);
      const change = BigInt(amount);
      if (change < 0n) row.spent -= change;
      else row.received += change;
    }
  }
}

/** Whether what came and went leads from the opening to the closing balance. */
export const addsUp = (row: StatementRow): boolean =>
  row.opening + row.received - row.spent === row.closing;

/** The file of a statement: a row for each asset, with the period, which ends before `before`. */
export function statementTable(
  account: string,
  { fromTimeMs, toTimeMs }: { fromTimeMs: bigint; toTimeMs: bigint },
  rows: readonly StatementRow[],
): Table {
  const time = (ms: bigint): string => (ms === 0n ? "" : isoTime(Number(ms)));
  return {
    header: ["account", "from", "before", "asset", "opening", "in", "out", "closing"],
    rows: rows.map(({ asset, decimals, opening, received, spent, closing }) => [
      account,
      time(fromTimeMs),
      time(toTimeMs),
      asset || "unit",
      ...[opening, received, spent, closing].map((sum) => placePoint(sum.toString(), decimals)),
    ]),
  };
}
