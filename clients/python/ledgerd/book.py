"""Changes of the shards of a book, which its operators make while it runs.

docs/shards.md says what they do. They concern books of several shards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List

from . import names
from .codec import (
    HASH_SIZE,
    MalformedError,
    Reader,
    elements,
    fixed,
    string,
    uint,
    utf8,
    uvarint,
    whole,
)
from .transaction import VERSION_BOOK, Member, transaction_id

_ADDITION, _MOVE, _LOSS, _REHANG = 1, 2, 3, 4
_MOVE_NUMBER_MAX = (1 << 32) - 1
_REHANG_NUMBER_MAX = (1 << 24) - 1


def _shard(number: int) -> bytes:
    if not 0 <= whole(number) < 1 << 32:
        raise MalformedError(f"shard {number}: 0 to {(1 << 32) - 1}")
    return uvarint(number)


@dataclass(frozen=True)
class ShardAddition:
    """Adds a shard below another one. Its number is the number of shards before."""

    parent: int
    members: List[Member]  # the first ones

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        if not 0 <= whole(self.parent) < names.SHARDS_MAX:
            raise MalformedError(f"a parent numbered {self.parent}, at most {names.SHARDS_MAX} "
                                 "shards are allowed")
        if not 1 <= len(self.members) <= names.MEMBERS_MAX:
            raise MalformedError(f"{len(self.members)} members, 1 to {names.MEMBERS_MAX} allowed")
        for each in self.members:
            each.check_joins()
        if len({each.name for each in self.members}) != len(self.members):
            raise MalformedError("two members of one name")
        return (uint(_ADDITION, 1) + uvarint(self.parent)
                + elements([each.encode() for each in self.members]))


@dataclass(frozen=True)
class OrganisationMove:
    """Gives an organisation another home."""

    organisation: str
    to: int  # the shard

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return (uint(_MOVE, 1) + string(names.organisation(self.organisation))
                + _shard(self.to))


@dataclass(frozen=True)
class ShardLoss:
    """Settles with a shard that never comes back: the others decide without it."""

    shard: int

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return uint(_LOSS, 1) + _shard(self.shard)


@dataclass(frozen=True)
class ShardRehang:
    """Hangs a shard, with all that lies below it, below another one."""

    shard: int
    parent: int

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return uint(_REHANG, 1) + _shard(self.shard) + _shard(self.parent)


@dataclass
class BookChange:
    """A transaction that changes the shards of the book. It is alone in its bundle.

    The operators sign it, with the name OPERATOR. It takes no nonce and does not expire: its number
    is one above that of the change before, so it takes effect once.
    """

    ledger: bytes
    number: int
    change: ShardAddition | OrganisationMove | ShardLoss | ShardRehang
    note: str = ""
    stream: int = 0
    sequence: int = 0

    def encode(self) -> bytes:
        """Return the body: the canonical bytes. Raises MalformedError."""
        self.check()
        return b"".join([
            bytes([VERSION_BOOK]), fixed(self.ledger, HASH_SIZE, "a ledger"),
            uvarint(self.stream), uvarint(self.sequence), uvarint(self.number),
            self.change.encode(), string(self.note)])

    def id(self) -> bytes:
        """Return the id: the hash of the body."""
        return transaction_id(self.encode())

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        most = (1 << 64) - 1
        if isinstance(self.change, OrganisationMove):
            most = _MOVE_NUMBER_MAX
        elif isinstance(self.change, ShardRehang):
            most = _REHANG_NUMBER_MAX
        if not 1 <= whole(self.number) <= most:
            raise MalformedError(f"change {self.number} of the book's shards: 1 to {most}")
        if len(utf8(self.note)) > names.NOTE_MAX:
            raise MalformedError(f"a note of {len(utf8(self.note))} bytes, at most "
                                 f"{names.NOTE_MAX}")

    @classmethod
    def decode(cls, body: bytes) -> "BookChange":
        """Decode a body, or raise MalformedError."""
        r = Reader(body)
        if r.byte() != VERSION_BOOK:
            raise MalformedError("the transaction does not change the book's shards")
        ledger, stream, sequence, number = r.hash(), r.uvarint(), r.uvarint(), r.uvarint()
        kind = r.byte()
        change: ShardAddition | OrganisationMove | ShardLoss | ShardRehang
        if kind == _ADDITION:
            change = ShardAddition(r.uvarint32(), r.list("members", names.MEMBERS_MAX, 3,
                                                         lambda: Member.read(r)))
        elif kind == _MOVE:
            change = OrganisationMove(r.text("bytes of organisation", names.ORGANISATION_MAX),
                                      r.uvarint32())
        elif kind == _LOSS:
            change = ShardLoss(r.uvarint32())
        elif kind == _REHANG:
            change = ShardRehang(r.uvarint32(), r.uvarint32())
        else:
            raise MalformedError(f"kind {kind} of a change of the book's shards")
        made = cls(ledger, number, change, r.text("bytes of note", names.NOTE_MAX), stream,
                   sequence)
        r.end()
        made.encode()  # which checks names and bounds
        return made
