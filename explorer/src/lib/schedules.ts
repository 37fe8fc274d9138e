// Schedules: entries that the ledger executes by itself at agreed times.

/** Says how often a schedule has an occurrence: once, "every month", "every 2 weeks". */
export function periodWords(every: number, period: string): string {
  if (every === 0) return "once";
  return every === 1 ? `every ${period.replace(/s$/, "")}` : `every ${every} ${period}`;
}
