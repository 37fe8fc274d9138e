// Changes of the shards of a book, which its operators make while it runs. docs/shards.md says what
// they do. They concern books of several shards.

import {
  bigint,
  concat,
  elements,
  fixed,
  HASH_SIZE,
  known,
  MalformedError,
  Reader,
  string,
  uint,
  uvarint,
} from "./codec.js";
import * as names from "./names.js";
import {
  checkJoins,
  encodeMember,
  encodeNote,
  type Member,
  readMember,
  transactionId,
  VERSION_BOOK,
} from "./transaction.js";

const [ADDITION, MOVE, LOSS, REHANG] = [1, 2, 3, 4];

/**
 * What a change of the shards does: it adds a shard, whose number is the number of shards before,
 * gives an organisation another home, settles with a shard that never comes back, or hangs a shard
 * with all that lies below it below another one.
 */
export type ShardsChange =
  | { kind: "add"; parent: number; members: Member[] }
  | { kind: "move"; organisation: string; to: number }
  | { kind: "lose"; shard: number }
  | { kind: "hang"; shard: number; parent: number };

/** What a change of the shards of a book says. */
export interface BookTerms {
  ledger: Uint8Array;
  stream?: bigint; // it takes no nonce: its number keeps it from being executed twice
  sequence?: bigint;
  number: bigint; // one above that of the change before
  change: ShardsChange;
  note?: string;
}

/**
 * Changes the shards of the book. The operators sign it, with the name OPERATOR. It is alone in its
 * bundle, and does not expire.
 */
export class BookChange {
  constructor(readonly terms: BookTerms) {}

  /** Returns the body: the canonical bytes. Throws MalformedError. */
  encode(): Uint8Array {
    const fields = ["ledger", "stream", "sequence", "number", "change", "note"];
    const t = known(this.terms, "a change of the book's shards", fields);
    const most = numberMax(t.change);
    if (bigint(t.number, "a number") < 1n || t.number > most) {
      throw new MalformedError(`change ${t.number} of the book's shards: 1 to ${most}`);
    }
    return concat(
      Uint8Array.of(VERSION_BOOK),
      fixed(t.ledger, HASH_SIZE, "a ledger"),
      uvarint(t.stream ?? 0n),
      uvarint(t.sequence ?? 0n),
      uvarint(t.number),
      encodeChange(t.change),
      encodeNote(t.note ?? ""),
    );
  }

  /** Returns the id: the hash of the body. */
  id(): Uint8Array {
    return transactionId(this.encode());
  }

  /** Decodes a body, or throws MalformedError. */
  static decode(body: Uint8Array): BookChange {
    const r = new Reader(body);
    if (r.byte() !== VERSION_BOOK) {
      throw new MalformedError("the transaction does not change the book's shards");
    }
    const change = new BookChange({
      ledger: r.hash(),
      stream: r.uvarint(),
      sequence: r.uvarint(),
      number: r.uvarint(),
      change: readChange(r),
      note: r.text("bytes of note", names.NOTE_MAX),
    });
    r.end();
    change.encode(); // which checks names and bounds
    return change;
  }
}

function numberMax(change: ShardsChange): bigint {
  if (change.kind === "move") return (1n << 32n) - 1n;
  return change.kind === "hang" ? (1n << 24n) - 1n : (1n << 64n) - 1n;
}

function encodeShardNumber(shard: number): Uint8Array {
  if (!Number.isInteger(shard) || shard < 0 || shard >= 2 ** 32) {
    throw new MalformedError(`shard ${shard}: 0 to ${2 ** 32 - 1}`);
  }
  return uvarint(shard);
}

function encodeChange(change: ShardsChange): Uint8Array {
  switch (change.kind) {
    case "add":
      checkAddition(known(change, "a shard to add", ["kind", "parent", "members"]));
      return concat(
        uint(ADDITION!, 1),
        encodeShardNumber(change.parent),
        elements(change.members.map(encodeMember)),
      );
    case "move": {
      known(change, "a move", ["kind", "organisation", "to"]);
      const organisation = string(names.organisation(change.organisation));
      return concat(uint(MOVE!, 1), organisation, encodeShardNumber(change.to));
    }
    case "lose":
      known(change, "a loss", ["kind", "shard"]);
      return concat(uint(LOSS!, 1), encodeShardNumber(change.shard));
    case "hang": {
      known(change, "a change of the tree", ["kind", "shard", "parent"]);
      const [shard, parent] = [change.shard, change.parent].map(encodeShardNumber);
      return concat(uint(REHANG!, 1), shard!, parent!);
    }
    default: {
      const { kind } = change as { kind: unknown };
      throw new MalformedError(`a change of kind ${kind}: add, move, lose or hang`);
    }
  }
}

function checkAddition({ parent, members }: { parent: number; members: Member[] }): void {
  if (parent >= names.SHARDS_MAX) {
    throw new MalformedError(
      `a parent numbered ${parent}, at most ${names.SHARDS_MAX} shards are allowed`,
    );
  }
  if (members.length < 1 || members.length > names.MEMBERS_MAX) {
    throw new MalformedError(`${members.length} members, 1 to ${names.MEMBERS_MAX} allowed`);
  }
  members.forEach(checkJoins);
  if (new Set(members.map((each) => each.name)).size !== members.length) {
    throw new MalformedError("two members of one name");
  }
}

function readChange(r: Reader): ShardsChange {
  const kind = r.byte();
  switch (kind) {
    case ADDITION: {
      const parent = r.uvarint32();
      const members = r.list("members", names.MEMBERS_MAX, 3, () => readMember(r));
      return { kind: "add", parent, members };
    }
    case MOVE: {
      const organisation = r.text("bytes of organisation", names.ORGANISATION_MAX);
      return { kind: "move", organisation, to: r.uvarint32() };
    }
    case LOSS:
      return { kind: "lose", shard: r.uvarint32() };
    case REHANG:
      return { kind: "hang", shard: r.uvarint32(), parent: r.uvarint32() };
    default:
      throw new MalformedError(`kind ${kind} of a change of the book's shards`);
  }
}
