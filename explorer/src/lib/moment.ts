// What a person types for a moment or an amount, in the forms that the explorer shows them in.

/** A typed date or time: it stands for everything from its start to its end. */
export interface Moment {
  startMs: number;
  /** The first millisecond after the day, minute or second. */
  endMs: number;
  utc: boolean;
}

const day = /^(\d{4})-(\d{2})-(\d{2})/;
const clock = /^(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d{1,9})?)?/;

/**
 * Reads "2026-11-28", "2026-11-28 13:39", "2026-11-28T13:39:05Z" or, for today, "13:39". A time is
 * local unless it ends with Z or UTC. Anything else is undefined.
 */
export function parseMoment(typed: string, nowMs: number): Moment | undefined {
  const utc = /(?:Z|\s*UTC)$/i.test(typed.trim());
  let rest = typed.trim().replace(/(?:Z|\s*UTC)$/i, "");
  const today = new Date(nowMs);
  let date = utc
    ? [today.getUTCFullYear(), today.getUTCMonth() + 1, today.getUTCDate()]
    : [today.getFullYear(), today.getMonth() + 1, today.getDate()];
  const named = day.exec(rest);
  if (named) {
    date = named.slice(1, 4).map(Number);
    rest = rest.slice(named[0].length).replace(/^(?:T|\s+)(?=\d)/i, "");
  }
  const time = clock.exec(rest);
  if (rest.slice(time?.[0].length ?? 0) !== "" || (!named && !time)) return undefined;
  const [year = 0, month = 0, dayOf = 0] = date;
  const [hours, minutes, seconds] = [1, 2, 3].map((group) => Number(time?.[group] ?? 0)) as [
    number,
    number,
    number,
  ];
  if (hours > 23 || minutes > 59 || seconds > 59) return undefined;
  const at = (days: number): Date =>
    utc
      ? new Date(Date.UTC(year, month - 1, dayOf + days, hours, minutes, seconds))
      : new Date(year, month - 1, dayOf + days, hours, minutes, seconds);
  const start = at(0);
  const shown = utc
    ? [start.getUTCMonth() + 1, start.getUTCDate()]
    : [start.getMonth() + 1, start.getDate()];
  if (shown[0] !== month || shown[1] !== dayOf) return undefined; // such as 30 February
  const startMs = start.getTime();
  // A day with a change of the clocks has 23 or 25 hours.
  const endMs = time ? startMs + (time[3] === undefined ? 60_000 : 1000) : at(1).getTime();
  return { startMs, endMs, utc };
}

export interface TypedAmount {
  /** Without sign, separators and leading zeros; with the typed decimals, without the point. */
  digits: string;
  /** How many decimals were typed; 0 if there was no point. */
  decimals: number;
  asset: string | undefined;
}

const typedAmount =
  /^[+-]?(\d[\d,_']{0,60})(?:\.(\d{1,38}))?(?:\s+([A-Za-z][A-Za-z0-9._-]{0,31}))?$/;

/** Reads "1812", "1,812", "-1,812 EUR", "18.12", "0.50 EUR". Anything else is undefined. */
export function parseAmount(typed: string): TypedAmount | undefined {
  const match = typedAmount.exec(typed.trim());
  if (!match?.[1]) return undefined;
  const decimals = match[2] ?? "";
  const digits = (match[1] + decimals).replace(/\D/g, "").replace(/^0+(?=\d)/, "");
  return { digits, decimals: decimals.length, asset: match[3] };
}
