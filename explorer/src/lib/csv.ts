// Comma-separated values as in RFC 4180, safe to open in a spreadsheet.

export type Cell = string | number | bigint;

/**
 * Quotes a cell if needed. A text that a spreadsheet would run as a formula gets a leading
 * apostrophe. Numbers stay numbers.
 */
export function csvCell(cell: Cell): string {
  let text = String(cell);
  if (typeof cell === "string" && /^[=+\-@\t\r]/.test(text) && !/^[+-]?\d+$/.test(text))
    text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function csvLine(cells: readonly Cell[]): string {
  return `${cells.map(csvCell).join(",")}\r\n`;
}

/** The most rows in a download. For longer lists there is `ledgerd export`. */
export const maxCsvRows = 100_000;

export interface Page {
  rows: readonly (readonly Cell[])[];
  next: string;
}

/**
 * Gathers all pages of a list as CSV, in parts. It calls progress with the number of rows so far.
 * At maxCsvRows it ends early, with complete false.
 */
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

export function saveFile(
  name: string,
  parts: BlobPart[],
  type = "text/csv;charset=utf-8",
): void {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser reads the blob after the click. A minute is ample.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
