// The values of which every encoding is made: integers, amounts, strings, lists.
//
// docs/encoding.md has the words. Each value has one encoding, and a Reader refuses all others: a
// longer form of an integer, bytes that are left at the end, a boolean of 2. Integers that may have
// 64 bits or more are bigints, all others are numbers.

import { sha256 as digest } from "@noble/hashes/sha2";

export const HASH_SIZE = 32;
export const KEY_SIZE = 32;
export const SIGNATURE_SIZE = 64;
export const AMOUNT_MIN = -(1n << 127n);
export const AMOUNT_MAX = (1n << 127n) - 1n;
export const UINT64_MAX = (1n << 64n) - 1n;

/** Bytes or values that are no encoding of what they should be. */
export class MalformedError extends Error {
  override name = "MalformedError";
}

export function concat(...parts: Uint8Array[]): Uint8Array {
  const joined = new Uint8Array(parts.reduce((size, each) => size + each.length, 0));
  let at = 0;
  for (const each of parts) {
    joined.set(each, at);
    at += each.length;
  }
  return joined;
}

export function sha256(...parts: Uint8Array[]): Uint8Array {
  return digest(concat(...parts));
}

export function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((each, i) => each === b[i]);
}

export function hex(value: Uint8Array): string {
  return Array.from(value, (each) => each.toString(16).padStart(2, "0")).join("");
}

/** Returns the bytes of a text in hex, of which there is no other form than pairs of digits. */
export function fromHex(text: string): Uint8Array {
  if (text.length % 2 !== 0 || !/^[0-9A-Fa-f]*$/.test(text)) {
    throw new MalformedError("text that is not hex");
  }
  return Uint8Array.from(text.match(/../g) ?? [], (each) => parseInt(each, 16));
}

export function base64(value: Uint8Array): string {
  let text = "";
  for (const each of value) text += String.fromCharCode(each);
  return btoa(text);
}

/** Returns the bytes of base64 with padding, in its only form. */
export function fromBase64(text: string): Uint8Array {
  let decoded = "";
  try {
    decoded = atob(text);
  } catch {
    throw new MalformedError("text that is not base64");
  }
  if (btoa(decoded) !== text) throw new MalformedError("text that is not base64");
  return Uint8Array.from(decoded, (each) => each.charCodeAt(0));
}

/** Returns what begins a hashed or signed message of this kind: the text and a zero byte. */
export function domain(text: string): Uint8Array {
  return utf8(text + "\0");
}

/** Encodes an unsigned integer of at most 64 bits in LEB128. */
export function uvarint(value: bigint | number): Uint8Array {
  let left = unsigned(value, 64);
  const encoded: number[] = [];
  while (left >= 0x80n) {
    encoded.push(Number(left & 0x7fn) | 0x80);
    left >>= 7n;
  }
  encoded.push(Number(left));
  return Uint8Array.from(encoded);
}

function unsigned(value: bigint | number, bits: number): bigint {
  if (typeof value === "number" && !Number.isSafeInteger(value)) {
    throw new MalformedError(`${value} is no integer`);
  }
  const found = BigInt(value);
  if (found < 0n || found >> BigInt(bits)) {
    throw new MalformedError(`${value} is no unsigned integer of ${bits} bits`);
  }
  return found;
}

/** Encodes an unsigned integer of a fixed size, the highest byte first. */
export function uint(value: bigint | number, size: number): Uint8Array {
  let left = unsigned(value, 8 * size);
  const encoded = new Uint8Array(size);
  for (let at = size - 1; at >= 0; at--) {
    encoded[at] = Number(left & 0xffn);
    left >>= 8n;
  }
  return encoded;
}

function fromBytes(digits: Uint8Array): bigint {
  return digits.length ? BigInt("0x" + hex(digits)) : 0n;
}

/** Encodes bytes, or text in UTF-8, with their length before them. */
export function string(value: Uint8Array | string): Uint8Array {
  const found = typeof value === "string" ? utf8(value) : value;
  return concat(uvarint(found.length), found);
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Returns the text in UTF-8. What textOf found that is none goes back to its bytes: a note may have
 * any bytes, and those that are no UTF-8 are the lone surrogates U+DC80 to U+DCFF in a text.
 */
export function utf8(value: string): Uint8Array {
  if (!/\p{Cs}/u.test(value)) return encoder.encode(value);
  const parts: Uint8Array[] = [];
  for (const each of value) {
    const code = each.codePointAt(0) ?? 0;
    if (code >= 0xdc80 && code <= 0xdcff) parts.push(Uint8Array.of(code - 0xdc00));
    else if (code >= 0xd800 && code <= 0xdfff) throw new MalformedError("not text: a surrogate");
    else parts.push(encoder.encode(each));
  }
  return concat(...parts);
}

/** Returns the text of UTF-8; see utf8 for bytes that are none. */
export function textOf(value: Uint8Array): string {
  try {
    return decoder.decode(value);
  } catch {
    let text = "";
    for (let at = 0; at < value.length; ) {
      let taken = 0;
      for (let size = 1; size <= 4 && !taken && at + size <= value.length; size++) {
        try {
          text += decoder.decode(value.subarray(at, at + size));
          taken = size;
        } catch {
          continue; // it may be a longer sequence
        }
      }
      if (!taken) text += String.fromCharCode(0xdc00 + (value[at] ?? 0));
      at += taken || 1;
    }
    return text;
  }
}

export function boolean(value: boolean): Uint8Array {
  if (typeof value !== "boolean") throw new MalformedError(`${value} is neither true nor false`);
  return Uint8Array.of(value ? 1 : 0);
}

/** Returns how many bytes the magnitude of an integer has. */
export function byteLength(value: bigint): number {
  return value === 0n ? 0 : Math.ceil(value.toString(16).length / 2);
}

/** Encodes an amount: a byte with its sign and length, then its magnitude. */
export function amount(value: bigint): Uint8Array {
  if (typeof value !== "bigint" || value < AMOUNT_MIN || value > AMOUNT_MAX) {
    throw new MalformedError(`${value} is no amount: a bigint of at most 128 bits`);
  }
  const magnitude = value < 0n ? -value : value;
  const size = byteLength(magnitude);
  return concat(Uint8Array.of(size | (value < 0n ? 0x80 : 0)), uint(magnitude, size));
}

/** Encodes a list of elements that are encoded already. */
export function elements(values: Uint8Array[]): Uint8Array {
  return concat(uvarint(values.length), ...values);
}

/**
 * Returns the value, or throws MalformedError if it has a field that is none of the names. A caller
 * without types could else leave out what it misspells, such as the ceiling of an account.
 */
export function known<T extends object>(value: T, what: string, fields: readonly string[]): T {
  const other = Object.keys(value).find((each) => !fields.includes(each));
  if (other !== undefined) {
    const shown = JSON.stringify(other.slice(0, 80));
    throw new MalformedError(`${what} has no ${shown}, only ${fields.join(", ")}`);
  }
  return value;
}

/** Returns the integer, or throws MalformedError if it is no bigint. */
export function bigint(value: bigint, what: string): bigint {
  if (typeof value !== "bigint") throw new MalformedError(`${what} is a bigint, not ${value}`);
  return value;
}

/** Returns the value, or throws MalformedError if it does not have the size. */
export function fixed(value: Uint8Array, size: number, what: string): Uint8Array {
  if (value.length !== size) throw new MalformedError(`${what} of ${value.length} bytes`);
  return value;
}

/** Takes values from the front of bytes, and throws MalformedError if they are not there. */
export class Reader {
  #at = 0;
  constructor(private readonly data: Uint8Array) {}

  get at(): number {
    return this.#at;
  }

  get left(): number {
    return this.data.length - this.#at;
  }

  /** Refuses bytes that are left. */
  end(): void {
    if (this.left) throw new MalformedError(`${this.left} bytes too many at the end`);
  }

  take(count: number): Uint8Array {
    if (count > this.left) throw new MalformedError("cut short");
    this.#at += count;
    return this.data.slice(this.#at - count, this.#at);
  }

  byte(): number {
    return this.take(1)[0] ?? 0;
  }

  boolean(): boolean {
    const value = this.byte();
    if (value > 1) throw new MalformedError(`a boolean of ${value}`);
    return value === 1;
  }

  uint64(): bigint {
    return fromBytes(this.take(8));
  }

  uint32(): number {
    return Number(fromBytes(this.take(4)));
  }

  /** Takes an unsigned integer of a fixed size. */
  uint(size: number): bigint {
    return fromBytes(this.take(size));
  }

  hash(): Uint8Array {
    return this.take(HASH_SIZE);
  }

  /** Takes an integer in LEB128, in its shortest form. */
  uvarint(): bigint {
    let value = 0n;
    for (let shift = 0; shift < 70; shift += 7) {
      const digit = this.byte();
      value |= BigInt(digit & 0x7f) << BigInt(shift);
      if (digit >= 0x80) continue;
      if (digit === 0 && shift > 0) {
        throw new MalformedError("an integer not in its shortest form");
      }
      if (value > UINT64_MAX) break;
      return value;
    }
    throw new MalformedError("an integer of more than 64 bits");
  }

  uvarint32(): number {
    const value = this.uvarint();
    if (value >> 32n) throw new MalformedError(`${value} has more than 32 bits`);
    return Number(value);
  }

  /** Takes the number of elements of a list. Each of them has at least `size` bytes. */
  count(what: string, most: number, size = 0): number {
    const value = this.uvarint();
    if (value > BigInt(most)) throw new MalformedError(`${value} ${what}, at most ${most} allowed`);
    if (Number(value) * size > this.left) throw new MalformedError("cut short");
    return Number(value);
  }

  /** Takes bytes with their length before them. */
  string(what: string, most: number): Uint8Array {
    return this.take(this.count(what, most, 1));
  }

  text(what: string, most: number): string {
    return textOf(this.string(what, most));
  }

  /** Takes an amount in its shortest form. */
  amount(): bigint {
    const head = this.byte();
    const size = head & 0x7f;
    const negative = head >= 0x80;
    if (size > 16) throw new MalformedError(`an amount of ${size} bytes`);
    const digits = this.take(size);
    if ((negative && !size) || (size && !digits[0])) {
      throw new MalformedError("an amount not in its shortest form");
    }
    const value = negative ? -fromBytes(digits) : fromBytes(digits);
    if (value < AMOUNT_MIN || value > AMOUNT_MAX) {
      throw new MalformedError("an amount of more than 128 bits");
    }
    return value;
  }

  /** Takes a list, with a function that takes one element. */
  list<T>(what: string, most: number, size: number, each: () => T): T[] {
    return Array.from({ length: this.count(what, most, size) }, each);
  }
}
