// Comma-separated values after RFC 4180, safe to open in a spreadsheet.

export type Cell = string | number | bigint;

/** Quotes a cell where needed. A text that a spreadsheet would run as a formula gets an apostrophe in front; numbers stay numbers. */
export function csvCell(cell: Cell): string {
  let text = String(cell);
  if (typeof cell === "string" && /^[=+\-@\t\r]/.test(text) && !/^[+-]?\d+$/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csvLine(cells: readonly Cell[]): string {
  return `${cells.map(csvCell).join(",")}\r\n`;
}

/** Rows that a download holds at most; longer lists are for `ledgerd export`. */
export const maxCsvRows = 100_000;

export interface Page {
  rows: readonly (readonly Cell[])[];
  next: string;
}

/** Gathers all pages of a list as CSV, in parts; progress hears the rows so far. It ends early at maxCsvRows and says so. */
export async function gatherCsv(
  header: readonly string[],
  fetchPage: (token: string, signal: AbortSignal) => Promise<Page>,
  signal: AbortSignal,
  progress: (rows: number) => void,
): Promise<{ parts: string[]; rows: number; complete: boolean }> {
  const parts = [csvLine(header)];
  let rows = 0;
  let token = "";
  do {
    const page = await fetchPage(token, signal);
    signal.throwIfAborted();
    const taken = page.rows.slice(0, maxCsvRows - rows);
    parts.push(taken.map(csvLine).join(""));
    rows += taken.length;
    progress(rows);
    if (taken.length < page.rows.length) return { parts, rows, complete: false };
    token = page.next;
  } while (token !== "" && rows < maxCsvRows);
  return { parts, rows, complete: token === "" };
}

export function saveFile(name: string, parts: string[]): void {
  const url = URL.createObjectURL(new Blob(parts, { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser reads the blob after the click; a minute is ample.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
