// The chart of accounts: the sums over accounts at each level of their paths, as
// "ledgerd account list --totals" has them.
import type { Account } from "../gen/ledgerd/v1/accounts_pb";

export interface ChartLine {
  path: string;
  /** How many parts the path has. */
  depth: number;
  /** Whether an account has this path. */
  account: boolean;
  /** How many accounts have this path or are below it. */
  accounts: number;
  /** By asset. */
  totals: Map<string, { amount: bigint; decimals: number }>;
}

/** Whether a path is that of `under`, or below it; of any if that is empty. */
export const isUnder = (path: string, under: string): boolean =>
  under === "" || path === under || path.startsWith(`${under}:`);

export class Chart {
  private readonly lines = new Map<string, ChartLine>();
  accounts = 0;

  /** under: the place whose accounts count; depth: how many levels below it have lines. */
  constructor(
    private readonly under: string,
    private readonly depth: number,
  ) {}

  add(account: Pick<Account, "account" | "balances">): void {
    if (!isUnder(account.account, this.under)) return;
    this.accounts++;
    const parts = account.account.split(":");
    const from = this.under === "" ? 0 : this.under.split(":").length;
    for (let level = Math.max(from, 1); level <= Math.min(parts.length, from + this.depth); level++)
      this.count(parts.slice(0, level).join(":"), level, account, level === parts.length);
  }

  private count(
    path: string,
    depth: number,
    account: Pick<Account, "balances">,
    itself: boolean,
  ): void {
    const line = this.lines.get(path) ?? {
      path,
      depth,
      account: false,
      accounts: 0,
      totals: new Map(),
    };
    this.lines.set(path, line);
    line.accounts++;
    line.account ||= itself;
    for (const { asset, amount, decimals } of account.balances) {
      const total = line.totals.get(asset) ?? { amount: 0n, decimals: 0 };
      total.amount += BigInt(amount || "0");
      total.decimals = Math.max(total.decimals, decimals);
      line.totals.set(asset, total);
    }
  }

  /** The lines, as in a table of contents. */
  sorted(): ChartLine[] {
    const key = (line: ChartLine): string => line.path.replaceAll(":", "\u0000");
    return [...this.lines.values()].sort((a, b) => (key(a) < key(b) ? -1 : 1));
  }
}
