"""The genesis: the beginning of a chain, its identity, and its first members."""

from __future__ import annotations

import base64
import binascii
import json
import os
from dataclasses import dataclass, field
from typing import Any, Dict, List, Sequence, Set, Tuple

from . import names
from .codec import (
    HASH_SIZE,
    MalformedError,
    Reader,
    boolean,
    domain,
    elements,
    fixed,
    sha256,
    string,
    uint,
    uvarint,
)
from .ed25519 import KEY_SIZE
from .transaction import Member

_GENESIS_DOMAIN = domain("ledgerd/genesis/1")
_BOOK_DOMAIN = domain("ledgerd/book/1")
_HOME_DOMAIN = domain("ledgerd/home/1")

_GROWN = 12
_CHAIN_VERSION_MAX = 1 << 16
_QUOTAS = ("streams", "accounts", "assets", "records", "pending")
_FILE_BYTES_MAX = 64 << 20
_QUOTA_MAX = 1 << 48


def check_chain_version(version: int) -> int:
    """Return the version, or raise MalformedError unless it is above the first one."""
    if not 1 < version <= _CHAIN_VERSION_MAX:
        raise MalformedError(f"version {version} of the chain: 2 to {_CHAIN_VERSION_MAX}")
    return version


def check_quotas(quotas: Sequence[int]) -> None:
    """Raise MalformedError unless there are no quotas, or one of each kind within its bound."""
    if not quotas:
        return
    if len(quotas) != len(_QUOTAS):
        raise MalformedError(f"{len(quotas)} quotas: one each of {', '.join(_QUOTAS)}")
    if not any(quotas):
        raise MalformedError("quotas that bound nothing")
    if any(not 0 <= bound <= _QUOTA_MAX for bound in quotas):
        raise MalformedError(f"a quota that is not 0 to {_QUOTA_MAX}")


def read_quotas(r: Reader) -> Tuple[int, ...]:
    """Take quotas from a reader."""
    quotas = tuple(r.uvarint() for _ in _QUOTAS)
    check_quotas(quotas)
    return quotas


@dataclass
class Shard:
    """A shard of the book: the shard above it, and its first members."""

    parent: int
    members: List[Member]
    directory: bytes = b""  # of a shard that was added: the hash with which its chain begins

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return (uvarint(self.parent) + elements([each.encode() for each in self.members])
                + self.directory)


@dataclass
class Genesis:
    """The beginning of a chain. A book of several shards has one for each of them."""

    chain: str
    time: int
    members: List[Member]  # of this chain's shard
    operators: List[bytes] = field(default_factory=list)
    registration_by_operator: bool = False
    operator_threshold: int = 1
    version: int = 1  # of the chain
    vouched_crossings: bool = False
    quotas: Tuple[int, ...] = ()  # streams, accounts, assets, records, pending; or none
    shards: List[Shard] = field(default_factory=list)  # none in a book of one shard
    shard: int = 0
    added: List[Shard] = field(default_factory=list)  # while the book ran, up to this chain's

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        if self.added:
            return bytes([_GROWN]) + self._book_bytes() + elements(
                [each.encode() for each in self.added])
        return self._book_bytes() + (uvarint(self.shard) if self.shards else b"")

    def _book_bytes(self) -> bytes:
        sharded = bool(self.shards)
        if self.version > 1:
            version = 10 if sharded else 9
        elif self.vouched_crossings:
            version = 8
        elif self.quotas:
            version = 6 if sharded else 5
        elif self.operator_threshold > 1:
            version = 4 if sharded else 3
        else:
            version = 2 if sharded else 1
        encoded = bytes([version]) + string(self.chain) + uint(self.time, 8)
        encoded += elements([each.encode() for each in self.shards] if sharded
                            else [each.encode() for each in self.members])
        encoded += elements([fixed(key, KEY_SIZE, "an operator's key") for key in self.operators])
        encoded += boolean(self.registration_by_operator)
        if version >= 3:
            encoded += uvarint(self.operator_threshold)
        if version >= 9:
            encoded += uvarint(self.version) + boolean(self.vouched_crossings)
        if version >= 8:
            encoded += boolean(bool(self.quotas))
        if self.quotas:
            encoded += b"".join(uvarint(each) for each in self.quotas)
        return encoded

    def hash(self) -> bytes:
        """Return the identity of the chain, which is the hash of block 0."""
        return sha256(_GENESIS_DOMAIN, self.encode())

    def book(self) -> bytes:
        """Return the identity of the book, which transactions name as their ledger."""
        return sha256(_BOOK_DOMAIN, self._book_bytes()) if self.shards else self.hash()

    def book_shards(self) -> int:
        """Return how many shards the book has, as far as this genesis knows."""
        return len(self.shards) + len(self.added) or 1

    def for_shard(self, shard: int) -> "Genesis":
        """Return the genesis of another shard of the book, or raise MalformedError."""
        if not 0 <= shard < self.book_shards():
            raise MalformedError(f"shard {shard} of {self.book_shards()}")
        if not self.shards:
            return self
        if shard < len(self.shards):
            return Genesis.decode(self._book_bytes() + uvarint(shard))
        added = self.added[:shard - len(self.shards) + 1]
        return Genesis.decode(bytes([_GROWN]) + self._book_bytes() + elements(
            [each.encode() for each in added]))

    def home(self, organisation: str) -> int:
        """Return the shard of an organisation that is neither pinned nor has moved."""
        return home(organisation, len(self.shards) or 1)

    @classmethod
    def decode(cls, data: bytes) -> "Genesis":
        """Decode a genesis, or raise MalformedError."""
        r = Reader(data)
        version = r.byte()
        grown = version == _GROWN
        if grown:
            version = r.byte()
        if not 1 <= version <= 10 or version == 7 or grown and version % 2:
            raise MalformedError(f"genesis version {version}")
        sharded = version % 2 == 0
        g = cls(r.text("bytes of chain name", names.CHAIN_NAME_MAX), r.uint(8), [])
        g.vouched_crossings = version == 8
        if sharded:
            g.shards = r.list("shards", names.SHARDS_MAX, 5,
                              lambda: Shard(r.uvarint32(), _members(r)))
        else:
            g.members = _members(r)
        g.operators = r.list("operators", names.OPERATORS_MAX, KEY_SIZE, lambda: r.take(KEY_SIZE))
        g.registration_by_operator = r.boolean()
        if version >= 3:
            g.operator_threshold = r.count("signatures", names.OPERATORS_MAX)
            if g.operator_threshold < (2 if version < 5 else 1):
                raise MalformedError(f"a threshold of {g.operator_threshold}")
        if version >= 9:
            g.version = check_chain_version(r.uvarint())
            g.vouched_crossings = r.boolean()
        if version in (5, 6) or version >= 8 and r.boolean():
            g.quotas = read_quotas(r)
        if grown:
            g.added = r.list("added shards", names.SHARDS_MAX, 5 + HASH_SIZE,
                             lambda: Shard(r.uvarint32(), _members(r), r.hash()))
        elif sharded:
            g.shard = r.uvarint32()
        r.end()
        g._settle()
        return g

    def _settle(self) -> None:
        """Check the bounds, and find the members of this chain's shard."""
        names.chain(self.chain)
        if self.shards:
            if len(self.shards) < 2:
                raise MalformedError("a book of several shards with one shard")
            if self.added:
                self.shard = len(self.shards) + len(self.added) - 1
                self.members = self.added[-1].members
            elif self.shard >= len(self.shards):
                raise MalformedError(f"shard {self.shard} of {len(self.shards)}")
            else:
                self.members = self.shards[self.shard].members
        elif self.shard or self.added or self.vouched_crossings:
            raise MalformedError("a book of one shard with what several shards have")
        if self.registration_by_operator and not self.operators:
            raise MalformedError("registration by operator without an operator")
        if self.operator_threshold > max(1, len(self.operators)):
            raise MalformedError(f"a threshold of {self.operator_threshold}")
        for group in [self.members, *(each.members for each in self.shards + self.added)]:
            if not 1 <= len(group) <= names.MEMBERS_MAX:
                raise MalformedError(f"{len(group)} members")
            for member in group:
                member.check()
            if len({member.name for member in group}) != len(group):
                raise MalformedError("two members of one name")
        check_quotas(self.quotas)
        if self.shards:
            self._check_shards()

    def _check_shards(self) -> None:
        """Check that the shards are a tree, and that no member serves in two of them."""
        parents = [each.parent for each in self.shards]
        if (max(parents) >= len(parents)
                or sum(parent == shard for shard, parent in enumerate(parents)) != 1):
            raise MalformedError("the shards are no tree: one of them is its own parent")
        for shard in range(len(parents)):
            for _ in parents:
                shard = parents[shard]
            if parents[shard] != shard:
                raise MalformedError("the shards are no tree: some are below themselves")
        for i, added in enumerate(self.added, len(parents)):
            if added.parent >= i:
                raise MalformedError(f"shard {i} was added below shard {added.parent}")
        taken: Set[str | bytes] = set()
        addresses: Set[str] = set()
        for group in self.shards + self.added:
            for member in group.members:
                if group.directory:
                    member.check_joins()
                elif self.vouched_crossings and len(member.key) != KEY_SIZE:
                    raise MalformedError(f"member {member.name} has no ed25519 key")
                if (member.name in taken or member.key and member.key in taken
                        or group.directory and member.address in addresses):
                    raise MalformedError(f"member {member.name}: the name, key or address serves "
                                         "twice")
                taken.update((member.name, member.key))
                addresses.add(member.address)

    @classmethod
    def parse(cls, text: str | bytes) -> "Genesis":
        """Parse a genesis file (genesis.json), or raise MalformedError.

        It refuses fields that it does not know: they would be missing in the identity.
        """
        try:
            return cls._parse(json.loads(text))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, MalformedError):
                raise
            raise MalformedError(f"no genesis file: {error}") from None

    @classmethod
    def _parse(cls, found: Dict[str, Any]) -> "Genesis":
        found = dict(found)
        g = cls(found.pop("chain"), found.pop("time"), _parse_members(found.pop("members")))
        g.operators = [bytes.fromhex(key) for key in found.pop("operators", None) or []]
        g.registration_by_operator = found.pop("registration_by_operator", False)
        g.operator_threshold = max(1, found.pop("operator_threshold", 1))
        g.version = max(1, found.pop("version", 1))
        g.vouched_crossings = found.pop("vouched_crossings", False)
        quotas = dict(found.pop("quotas", {}))
        bounds = tuple(quotas.pop(name, 0) for name in _QUOTAS)
        g.quotas = bounds if any(bounds) else ()
        tree, shards = found.pop("tree", None) or [], found.pop("shards", None) or []
        if len(tree) != len(shards):
            raise MalformedError("a tree of other shards")
        g.shards = [Shard(parent, _parse_members(members))
                    for parent, members in zip(tree, shards)]
        g.shard = found.pop("shard", 0)
        g.added = [Shard(each["parent"], _parse_members(each["members"]),
                         fixed(bytes.fromhex(each["directory"]), HASH_SIZE, "a hash"))
                   for each in found.pop("grown", None) or []]
        unknown = [*found, *quotas]
        if unknown:
            raise MalformedError(f"a genesis file with unknown fields: {', '.join(unknown)}")
        given = g.members
        g._settle()
        if given != g.members:
            raise MalformedError(f"the members are not those of shard {g.shard}")
        return g

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Genesis":
        """Read a genesis file. Take it from a source that you trust."""
        with open(path, "rb") as file:
            return cls.parse(file.read(_FILE_BYTES_MAX))


def _members(r: Reader) -> List[Member]:
    return r.list("members", names.MEMBERS_MAX, 3, lambda: Member.read(r))


def _parse_members(found: Sequence[Dict[str, Any]]) -> List[Member]:
    members = []
    for each in found:
        if set(each) - {"name", "key", "address"}:
            raise MalformedError("a member with unknown fields")
        try:
            key = base64.b64decode(each["key"], validate=True)
        except binascii.Error as error:
            raise MalformedError(f"the key of a member: {error}") from None
        members.append(Member(each["name"], key, each["address"]))
    return members


def home(organisation: str, shards: int) -> int:
    """Return the home of an organisation in a book that began with so many shards."""
    names.organisation(organisation)

    def score(shard: int) -> bytes:
        return sha256(_HOME_DOMAIN, uint(shard, 4), organisation.encode())[:8]

    return max(range(shards), key=lambda shard: (score(shard), -shard))
