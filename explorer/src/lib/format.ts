import type { TransactionSummary } from "../gen/ledgerd/v1/ledgerd_pb";
import type {
  AssetTerms,
  Charter,
  MembershipChange,
  Policy,
  Quotas,
} from "../gen/ledgerd/v1/transaction_pb";

// Formats values for people. Amounts are exact integers of up to 128 bits and never pass through a
// Number.

/**
 * Groups a decimal integer by thousands: "-1250000" becomes "-1,250,000", or "-12,500.00" with two
 * decimals. A text that is not an integer is returned unchanged.
 */
export function formatAmount(
  amount: string,
  options: { sign?: boolean; decimals?: number } = {},
): string {
  const match = /^([+-]?)0*(\d+)$/.exec(amount);
  if (!match) return amount;
  const [, sign, digits = "0"] = match;
  const [whole = "0", fraction] = placePoint(digits, options.decimals ?? 0).split(".");
  const grouped =
    whole.replace(/\B(?=(\d{3})+$)/g, ",") + (fraction === undefined ? "" : `.${fraction}`);
  if (sign === "-" && digits !== "0") return `-${grouped}`;
  return options.sign && digits !== "0" ? `+${grouped}` : grouped;
}

/**
 * Writes an integer of the smallest unit with decimals, as files have it: "1250" with two of them
 * is "12.50". A text that is not an integer is returned unchanged.
 */
export function placePoint(amount: string, decimals: number): string {
  const match = /^(-?)(\d+)$/.exec(amount);
  if (!match || decimals <= 0) return amount;
  const digits = (match[2] ?? "").padStart(decimals + 1, "0");
  return `${match[1]}${digits.slice(0, -decimals)}.${digits.slice(-decimals)}`;
}

/** The sign of an amount: -1, 0 or 1. */
export function signOf(amount: string): number {
  if (!/[1-9]/.test(amount)) return 0;
  return amount.startsWith("-") ? -1 : 1;
}

export function formatCount(count: bigint | number): string {
  return formatAmount(typeof count === "number" ? Math.round(count).toString() : count.toString());
}

/** "1 block", "1,200 blocks". */
export function plural(count: bigint | number, one: string, many = `${one}s`): string {
  return `${formatCount(count)} ${count == 1 ? one : many}`;
}

/** Describes a membership change: "node-4 joins", "member 2 leaves". */
export function memberChange(message: MembershipChange): string {
  switch (message.change.case) {
    case "join":
      return `${message.change.value.name} joins`;
    case "leave":
      return `member ${message.change.value} leaves`;
    case "admit": {
      const { index, disk } = message.change.value;
      return `member ${index} counts with disk ${shorten(disk, 4)}`;
    }
    case "engine":
      return `the members order by engine ${message.change.value}`;
    default:
      return "no change";
  }
}

/** Describes a policy: "2 of 3 keys sign, 3 above 1,000 EUR; others may send only EUR". */
export function policyWords(policy: Policy): string {
  const list = [`${policy.threshold} of ${plural(policy.keys.length, "key")} sign`];
  for (const limit of policy.limits)
    list.push(`${limit.signatures} above ${formatAmount(limit.above)} ${limit.asset || "unit"}`);
  const assets = policy.assets.length > 0 ? `only ${policy.assets.join(", ")}` : "nothing";
  return list.join(", ") + (policy.refuseAssets ? `; others may send ${assets}` : "");
}

/** Describes an asset: "2 decimals, capped: at most 1,000.00 outstanding, 3 issuers". */
export function termsWords(terms: AssetTerms): string {
  const closed = terms.closed ? ", closed" : "";
  const issuers = plural(terms.issuers.length, "issuer");
  return `${plural(terms.decimals, "decimal")}, ${promise(terms)}${closed}, ${issuers}`;
}

/** What is promised of the supply of an asset: "capped: at most 1,000.00 outstanding". */
export function promise(terms: AssetTerms | undefined): string {
  const cap = formatAmount(terms?.cap || "0", { decimals: terms?.decimals ?? 0 });
  switch (terms?.supply) {
    case "capped":
      return `capped: at most ${cap} outstanding`;
    case "fixed":
      return `fixed: at most ${cap} ever issued`;
    default:
      return "unlimited supply";
  }
}

/** Describes a charter: "2 of 3 operators sign, registrations, too". */
export function charterWords(charter: Charter): string {
  const registrations = charter.registrationByOperators
    ? "registrations, too"
    : "any client registers organisations";
  const all = plural(charter.operators.length, "operator");
  const quotas = quotaWords(charter.quotas);
  const version = charter.version > 1 ? `; version ${charter.version}` : "";
  return `${charter.threshold} of ${all} sign, ${registrations}; quotas: ${quotas}${version}`;
}

const quotaNames = ["streams", "accounts", "assets", "records", "pending"] as const;

/** Describes quotas: "1,000 accounts, 5,000 records". */
export function quotaWords(quotas: Quotas | undefined): string {
  const list = quotaNames
    .filter((name) => quotas && quotas[name] > 0n)
    .map((name) => `${formatCount(quotas?.[name] ?? 0n)} ${name}`);
  return list.join(", ") || "none";
}

/**
 * What a transaction does, if it credits no account: "registers 2 organisations, opens 1 account".
 */
export function actions(transaction: TransactionSummary): string {
  const { membershipChange, organisationCount, accountCount, postingCount, recordCount, note } =
    transaction;
  const list: string[] = [];
  if (membershipChange) list.push(memberChange(membershipChange));
  if (transaction.policy) list.push("changes its policy");
  if (transaction.asset)
    list.push(
      `${transaction.asset.number === 1n ? "registers" : "changes"} ${transaction.asset.asset}`,
    );
  if (transaction.hold) list.push("places a hold");
  if (transaction.schedule) list.push("places a schedule");
  if (transaction.scheduleEnd) list.push("ends a schedule");
  if (transaction.occurrence)
    list.push(`occurrence ${transaction.occurrence.number} of a schedule`);
  if (transaction.holdEnd) list.push(postingCount > 0 ? "posts a hold" : "voids a hold");
  if (transaction.accountChange)
    list.push(`changes the terms of ${transaction.accountChange.account}`);
  if (transaction.charter) list.push("changes the operators, quotas or version");
  if (transaction.cancelsHex !== "") list.push(`cancels ${shorten(transaction.cancelsHex, 4)}`);
  if (organisationCount > 0) list.push(`registers ${plural(organisationCount, "organisation")}`);
  if (accountCount > 0) list.push(`opens ${plural(accountCount, "account")}`);
  if (postingCount > 0) list.push(`makes ${plural(postingCount, "posting")}`);
  if (recordCount > 0) list.push(`writes ${plural(recordCount, "record")}`);
  return list.join(", ") || (note === "" ? "nothing" : "only a note");
}

/**
 * The signer of a transaction without an organisation. A member may sign for another member's disk.
 */
export function administrator(message: MembershipChange | undefined): string {
  return message?.change.case === "admit" ? "a member or operator" : "an operator";
}

/** Keeps both ends of a hash: "3f2a91c0…d77e04b1". */
export function shorten(text: string, keep = 8): string {
  return text.length <= 2 * keep + 1 ? text : `${text.slice(0, keep)}…${text.slice(-keep)}`;
}

export function formatBytes(bytes: bigint | number): string {
  let value = Number(bytes);
  for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
    if (value < 1000 || unit === "TB")
      return `${unit === "B" || value >= 100 ? Math.round(value) : value.toFixed(1)} ${unit}`;
    value /= 1000;
  }
  return "";
}

/** Per second: two significant digits below ten, whole numbers above. */
export function formatRate(rate: number): string {
  if (!Number.isFinite(rate) || rate <= 0) return "0";
  if (rate < 0.1) return "<0.1";
  return rate < 10 ? rate.toFixed(1) : formatCount(rate);
}

/** Microseconds as the unit that reads best: "840 µs", "1.25 ms", "37 ms", "2.1 s". */
export function formatMicros(micros: number): string {
  if (micros < 1000) return `${Math.round(micros)} µs`;
  if (micros < 10_000) return `${(micros / 1000).toFixed(2)} ms`;
  if (micros < 100_000) return `${(micros / 1000).toFixed(1)} ms`;
  if (micros < 1_000_000) return `${Math.round(micros / 1000)} ms`;
  return `${(micros / 1_000_000).toFixed(1)} s`;
}

/** "just now", "12 s ago", "5 min ago", "3 h ago", "4 days ago"; "in 3 h" for a time to come. */
export function formatAge(ms: number): string {
  // Clocks differ a little: what is about now is no time to come.
  if (ms <= -10_000) return `in ${formatSpan(-ms)}`;
  const seconds = Math.floor(ms / 1000);
  if (seconds < 1) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${plural(Math.floor(seconds / 86_400), "day")} ago`;
}

/** A duration: "42 s", "5 min", "3 h 20 min", "4 days 2 h". */
export function formatSpan(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return hours % 24 ? `${plural(days, "day")} ${hours % 24} h` : plural(days, "day");
}

/** The local time of day, or that of UTC, with the date if it is not today. */
export function formatTime(ms: number, now: number, utc = false): string {
  const date = new Date(ms);
  if (utc && isoTime(ms) !== "") {
    const [day = "", time = ""] = isoTime(ms).split("T");
    return isoTime(now).startsWith(day) ? `${time.slice(0, 8)}Z` : `${day} ${time.slice(0, 8)}Z`;
  }
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  if (date.toDateString() === new Date(now).toDateString()) return time;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${time}`;
}

/** The day that a moment begins in UTC, as 2026-01-31, or "" if it begins none. */
export function dayOfUtc(ms: number): string {
  const [day = "", time] = isoTime(ms).split("T");
  return time === "00:00:00.000Z" ? day : "";
}

export function isoTime(ms: number): string {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? "" : date.toISOString();
}

function two(value: number): string {
  return value.toString().padStart(2, "0");
}

/**
 * Lays out a note for reading. JSON is indented, with numbers as they were written. Other text
 * stays unchanged.
 */
export function formatNote(note: string): { text: string; json: boolean } {
  const trimmed = note.trim();
  if (!/^[[{]/.test(trimmed)) return { text: note, json: false };
  try {
    JSON.parse(trimmed);
  } catch {
    return { text: note, json: false };
  }
  return { text: indentJson(trimmed), json: true };
}

/**
 * A note on one line. A flat JSON object loses its braces and quotes: "what: rent, flat: 4". Other
 * text stays unchanged.
 */
export function gistOfNote(note: string): string {
  const { text, json } = formatNote(note);
  const members = json ? text.split("\n").slice(1, -1) : [];
  const parts = members.map((line) =>
    /^ {2}"((?:[^"\\])*)": (?:"((?:[^"\\])*)"|([^"{[\\]+?)),?$/.exec(line),
  );
  if (parts.length === 0 || parts.includes(null)) return note;
  return parts.map((part) => `${part?.[1]}: ${part?.[2] ?? part?.[3]}`).join(", ");
}

/** Indents valid JSON without reading its values, so no digit of a large number is lost. */
function indentJson(json: string): string {
  let text = "";
  let depth = 0;
  const line = (): string => `\n${"  ".repeat(depth)}`;
  for (const [token] of json.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    if (token === "{" || token === "[") {
      depth++;
      text += token + line();
    } else if (token === "}" || token === "]") {
      depth--;
      text = /[[{]\s*$/.test(text) ? text.trimEnd() + token : text + line() + token;
    } else if (token === ",") text += token + line();
    else if (token === ":") text += ": ";
    else text += token;
  }
  return text;
}

/** A record's value: as text if it is text, otherwise in hexadecimal. */
export function formatValue(value: Uint8Array): { text: string; kind: "text" | "json" | "hex" } {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(value);
    if (!/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/.test(text)) {
      const note = formatNote(text);
      return { text: note.text, kind: note.json ? "json" : "text" };
    }
  } catch {
    // Not text.
  }
  return {
    text: Array.from(value, (byte) => byte.toString(16).padStart(2, "0")).join(""),
    kind: "hex",
  };
}
