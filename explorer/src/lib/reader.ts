// Reads the ledger's canonical encoding: integers of a fixed size, big-endian; uvarints in their
// shortest form; byte strings after their length; lists after their count.
//
// The first failure sticks: later calls return zero values, so the caller asks end() once. Nothing
// here throws, whatever the bytes are.

export type Decoded<T> = { value: T; problem?: undefined } | { value?: undefined; problem: string };

export class Reader {
  problem = "";

  constructor(private data: Uint8Array) {}

  fail(problem: string): void {
    if (this.problem === "") this.problem = problem;
    this.data = new Uint8Array();
  }

  /** How many bytes are left. */
  get left(): number {
    return this.data.length;
  }

  /** Returns the next bytes, or as many zeros if there are not enough. */
  take(count: number): Uint8Array {
    if (this.data.length < count) {
      this.fail("cut short");
      // A fixed size is small. The size of a byte string was compared with the data before.
      return new Uint8Array(count);
    }
    const taken = this.data.subarray(0, count);
    this.data = this.data.subarray(count);
    return taken;
  }

  byte(): number {
    return this.take(1)[0] ?? 0;
  }

  bool(): boolean {
    const value = this.byte();
    if (value > 1) this.fail(`a boolean of ${value}`);
    return value === 1;
  }

  uint32(): number {
    return Number(this.integer(4));
  }

  uint64(): bigint {
    return this.integer(8);
  }

  hash(): Uint8Array {
    return this.take(32);
  }

  uvarint(): bigint {
    let value = 0n;
    for (let i = 0; i < 10; i++) {
      const digit = this.byte();
      if (this.problem !== "") return 0n;
      if (i === 9 && digit > 1) break;
      value |= BigInt(digit & 0x7f) << BigInt(7 * i);
      if (digit >= 0x80) continue;
      if (digit > 0 || i === 0) return value;
      this.fail("an integer is not in its shortest form");
      return 0n;
    }
    this.fail("an integer is too long");
    return 0n;
  }

  /** Reads a uvarint that must be at most `most`. */
  number(what: string, most: number): number {
    const value = this.uvarint();
    if (value <= BigInt(most)) return Number(value);
    this.fail(`${what} ${value}, at most ${most} allowed`);
    return 0;
  }

  /** Reads the count of a list of elements that take at least `size` bytes each. */
  count(what: string, most: number, size: number): number {
    const value = this.number(`count of ${what}`, most);
    if (value * size <= this.data.length) return value;
    this.fail("cut short");
    return 0;
  }

  /** Reads a list after its count, and stops at the first failure. */
  list<T>(what: string, most: number, size: number, element: () => T): T[] {
    const list: T[] = [];
    for (let left = this.count(what, most, size); left > 0 && this.problem === ""; left--)
      list.push(element());
    return list;
  }

  bytes(what: string, most: number): Uint8Array {
    return this.take(this.count(`bytes of ${what}`, most, 1));
  }

  text(what: string, most: number): string {
    return new TextDecoder().decode(this.bytes(what, most));
  }

  /** Reads a value after its length, with a reader of its own. */
  enclosed<T>(what: string, most: number, read: (reader: Reader) => T): T {
    const reader = new Reader(this.bytes(what, most));
    if (this.problem !== "") reader.fail(this.problem);
    const value = reader.end(read(reader));
    if (value.problem !== undefined) this.fail(value.problem);
    return value.value as T;
  }

  /** Returns all bytes that are left. */
  rest(): Uint8Array {
    return this.take(this.data.length);
  }

  /** Returns the value, or the first failure. Bytes that are left are one. */
  end<T>(value: T): Decoded<T> {
    if (this.problem === "" && this.data.length > 0)
      this.fail(`${this.data.length} bytes too many`);
    return this.problem === "" ? { value } : { problem: this.problem };
  }

  private integer(size: number): bigint {
    let value = 0n;
    for (const byte of this.take(size)) value = (value << 8n) | BigInt(byte);
    return value;
  }
}
