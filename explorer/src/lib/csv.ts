// Lists as files: comma-separated values as in RFC 4180, safe to open in a spreadsheet, and JSON.

export type Cell = string | number | bigint;

/** A table as a file: the names of its columns, and its rows. */
export interface Table {
  header: readonly string[];
  rows: readonly (readonly Cell[])[];
}

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

/** A row as a JSON object. Integers beyond a Number are texts, as in the API's own JSON. */
export function jsonLine(header: readonly string[], cells: readonly Cell[]): string {
  const values = header.map((name, i) => {
    const cell = cells[i] ?? "";
    return [name, typeof cell === "bigint" ? cell.toString() : cell];
  });
  return JSON.stringify(Object.fromEntries(values));
}

/** The most rows in a download. For longer lists there is `ledgerd export`. */
export const maxCsvRows = 100_000;

export interface Page {
  rows: readonly (readonly Cell[])[];
  next: string;
}

export type Format = "csv" | "json";

/**
 * Gathers all pages of a list as CSV or JSON, in parts. It calls progress with the number of rows
 * so far. At maxCsvRows it ends early, with complete false.
 */
export async function gather(
  format: Format,
  header: readonly string[],
  fetchPage: (token: string, signal: AbortSignal) => Promise<Page>,
  signal: AbortSignal,
  progress: (rows: number) => void,
): Promise<{ parts: string[]; rows: number; complete: boolean }> {
  const parts = [format === "csv" ? csvLine(header) : "["];
  let rows = 0;
  let token = "";
  let complete = true;
  do {
    const page = await fetchPage(token, signal);
    signal.throwIfAborted();
    const taken = page.rows.slice(0, maxCsvRows - rows);
    if (format === "csv") parts.push(taken.map(csvLine).join(""));
    else
      parts.push(
        taken.map((row, i) => (rows + i === 0 ? "\n" : ",\n") + jsonLine(header, row)).join(""),
      );
    rows += taken.length;
    progress(rows);
    token = page.next;
    complete = taken.length === page.rows.length && token === "";
  } while (token !== "" && rows < maxCsvRows);
  if (format === "json") parts.push("\n]\n");
  return { parts, rows, complete };
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
