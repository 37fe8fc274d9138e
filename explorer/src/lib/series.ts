// Transactions per second, computed from blocks: one bucket a second, over a bounded window.

export class RateSeries {
  private readonly buckets = new Map<number, number>();
  private firstSecond = Number.POSITIVE_INFINITY;

  /** The window grows from leastSeconds to seconds as data arrives. */
  constructor(
    readonly seconds: number,
    readonly leastSeconds = seconds,
  ) {}

  add(timeMs: number, transactions: number): void {
    const second = Math.floor(timeMs / 1000);
    this.firstSecond = Math.min(this.firstSecond, second);
    this.buckets.set(second, (this.buckets.get(second) ?? 0) + transactions);
  }

  /**
   * The window that ends with the last whole second before now. A second without a block is 0. A
   * second before the first known block is null: unknown.
   */
  window(nowMs: number): { seconds: number[]; rates: (number | null)[] } {
    const end = Math.floor(nowMs / 1000) - 1;
    const known = Math.max(this.leastSeconds, end - this.firstSecond + 1);
    const start =
      end - Math.min(this.seconds, Number.isFinite(known) ? known : this.leastSeconds) + 1;
    for (const second of this.buckets.keys()) if (second < start) this.buckets.delete(second);
    const seconds: number[] = [];
    const rates: (number | null)[] = [];
    for (let second = start; second <= end; second++) {
      seconds.push(second);
      rates.push(second < this.firstSecond ? null : (this.buckets.get(second) ?? 0));
    }
    return { seconds, rates };
  }
}
