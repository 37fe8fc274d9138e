// What transactions of clients begin with that are no plain entries.

import {
  bigint,
  concat,
  fixed,
  HASH_SIZE,
  MalformedError,
  type Reader,
  string,
  uvarint,
} from "./codec.js";
import * as names from "./names.js";
import { TIME_LIMIT } from "./transaction.js";

/** What transactions of clients begin with; what is not given is empty. */
export interface TransactionHead {
  ledger: Uint8Array; // the book: see Genesis.book
  signer: string;
  stream: bigint;
  sequence: bigint;
  lastValid?: bigint;
  deadline?: bigint; // in milliseconds since 1970
}

/** The names of the fields of a head. */
export const HEAD = ["ledger", "signer", "stream", "sequence", "lastValid", "deadline"];

/** Encodes a head after the version. Throws MalformedError. */
export function encodeHead(version: number, head: TransactionHead): Uint8Array {
  const deadline = bigint(head.deadline ?? 0n, "a deadline");
  if (deadline < 0n || deadline >= TIME_LIMIT) {
    throw new MalformedError(`a deadline of ${deadline}: milliseconds since 1970`);
  }
  return concat(
    Uint8Array.of(version),
    fixed(head.ledger, HASH_SIZE, "a ledger"),
    string(names.organisation(head.signer)),
    uvarint(head.stream),
    uvarint(head.sequence),
    uvarint(head.lastValid ?? 0n),
    uvarint(deadline),
  );
}

/** Takes a head from a reader, after the version. */
export function readHead(r: Reader): Required<TransactionHead> {
  const [ledger, signer] = [r.hash(), r.text("bytes of organisation", names.ORGANISATION_MAX)];
  const [stream, sequence] = [r.uvarint(), r.uvarint()];
  return { ledger, signer, stream, sequence, lastValid: r.uvarint(), deadline: r.uvarint() };
}
