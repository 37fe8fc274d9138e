"""The answers of a node, with types.

A field that is not here is ignored, as usual in protobuf: a node of a later version may say more.
A field that is missing has its default. A field of another type is MalformedAnswer's.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from . import names
from .codec import HASH_SIZE, fixed
from .hold import Hold
from .schedule import PERIODS, Schedule
from .terms import (
    FREEZES,
    AccountLimit,
    AccountNow,
    AccountTerms,
    Metadatum,
    Velocity,
)
from .transaction import Posting

ADMITTED = "admitted"
ORDERED = "ordered"
STORED = "stored"
DURABLE = "durable"
DURABLE_EVERYWHERE = "durable_everywhere"

LEVELS = (ADMITTED, ORDERED, STORED, DURABLE, DURABLE_EVERYWHERE)

Json = Dict[str, Any]


def integer(found: Json, name: str) -> int:
    """Return an integer, which JSON has as text if it may have 64 bits."""
    value = found.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(f"{name} is no integer")
    return int(value)


def text(found: Json, name: str) -> str:
    """Return a text."""
    value = found.get(name, "")
    if not isinstance(value, str):
        raise TypeError(f"{name} is no text")
    return value


def boolean(found: Json, name: str) -> bool:
    """Return a boolean."""
    value = found.get(name, False)
    if not isinstance(value, bool):
        raise TypeError(f"{name} is no boolean")
    return value


def data(found: Json, name: str) -> bytes:
    """Return bytes, which JSON has in base64."""
    return base64.b64decode(text(found, name), validate=True)


def items(found: Json, name: str) -> List[Any]:
    """Return a list."""
    value = found.get(name, [])
    if not isinstance(value, list):
        raise TypeError(f"{name} is no list")
    return value


def part(found: Json, name: str) -> Json:
    """Return a message."""
    value = found.get(name, {})
    if not isinstance(value, dict):
        raise TypeError(f"{name} is no message")
    return value


def word(found: Json, name: str, prefix: str) -> str:
    """Return the word of an enumeration, in lower case and without its prefix."""
    return text(found, name).replace(prefix, "", 1).lower()


@dataclass(frozen=True)
class Status:
    """How far a transaction is.

    `state` is "" if the node does not know it, or pending, ordered, stored, durable, failed or
    expired; `reason_code` is a stable word for why it failed, such as insufficient_funds.
    """

    id: bytes
    state: str
    height: int
    index: int
    reason_code: str
    reason: str
    shard: int
    destinations: List[int]
    waits_for: List[int]
    everywhere: bool

    def reached(self, level: str) -> bool:
        """Report whether it has reached the level."""
        if level == DURABLE_EVERYWHERE:
            return self.state == DURABLE and (self.everywhere or len(self.destinations) < 2)
        order = ("pending", ORDERED, STORED, DURABLE)
        wanted = 0 if level == ADMITTED else order.index(level)
        return self.state in order and order.index(self.state) >= wanted

    @classmethod
    def of(cls, found: Json) -> "Status":
        """Make it of an answer."""
        return cls(bytes.fromhex(text(found, "idHex")) or data(found, "id"),
                   word(found, "state", "TRANSACTION_STATE_").replace("unspecified", ""),
                   integer(found, "height"), integer(found, "index"), text(found, "reasonCode"),
                   text(found, "reason"), integer(found, "shard"),
                   [int(each) for each in items(found, "destinations")],
                   [int(each) for each in items(found, "waitsFor")],
                   boolean(found, "everywhere"))


@dataclass(frozen=True)
class Balance:
    """An amount of an asset, and what waits for other shards."""

    asset: str
    amount: int
    set_aside: int
    incoming: int

    @classmethod
    def of(cls, found: Json) -> "Balance":
        """Make it of an answer."""
        return cls(text(found, "asset"), int(text(found, "amount") or "0"),
                   int(text(found, "setAside") or "0"), int(text(found, "incoming") or "0"))


def _limit(found: Json) -> AccountLimit:
    def amount(name: str) -> Optional[int]:
        word = text(found, name)
        return int(word) if word else None

    most = amount("velocity")
    return AccountLimit(text(found, "asset"), amount("floor"), amount("ceiling"),
                        None if most is None else Velocity(most, integer(found,
                                                                         "velocitySeconds")))


def terms_of(found: Json) -> AccountTerms:
    """Make the terms of an account of an answer."""
    terms = AccountTerms(
        boolean(found, "noDebits"), boolean(found, "noCredits"),
        FREEZES.index(text(found, "freeze") or FREEZES[0]), boolean(found, "closed"),
        text(found, "guardian"), tuple(_limit(each) for each in items(found, "limits")),
        tuple(Metadatum(text(each, "key"), text(each, "value"), boolean(each, "indexed"))
              for each in items(found, "metadata")))
    terms.encode()  # which checks names and bounds
    return terms


@dataclass(frozen=True)
class Account:
    """An account, its balances and its terms after a block."""

    account: str
    organisation: str
    issuer: bool
    alias: str
    opened_height: int
    balances: List[Balance]
    height: int
    shard: int
    revision: int = 0  # how often its terms were changed; 0 without terms
    guarded: int = 0  # how often guardians did
    terms: AccountTerms = AccountTerms()

    def now(self) -> AccountNow:
        """Return its terms, for a signer that is about to change them and believes the node."""
        return AccountNow(self.account, self.alias, self.revision, self.guarded, self.terms)

    def has(self, key: str, value: str) -> bool:
        """Report whether its terms have an indexed metadatum."""
        return Metadatum(key, value, True) in self.terms.metadata

    def balance(self, asset: str = "unit") -> int:
        """Return the balance of an asset."""
        return next((each.amount for each in self.balances if each.asset == asset), 0)

    @classmethod
    def of(cls, found: Json) -> "Account":
        """Make it of an answer."""
        return cls(text(found, "account"), text(found, "organisation"), boolean(found, "issuer"),
                   text(found, "alias"), integer(found, "openedHeight"),
                   [Balance.of(each) for each in items(found, "balances")],
                   integer(found, "height"), integer(found, "shard"), integer(found, "revision"),
                   integer(found, "guarded"), terms_of(part(found, "terms")))


@dataclass(frozen=True)
class OpenHold:
    """A hold that is open, as a node says: it was not posted or voided, and has not expired."""

    id: bytes
    account: str
    asset: str
    amount: int
    to: List[str]
    poster: str
    expires: int  # in milliseconds since 1970
    ending: bytes  # the transaction that waits for other shards and is about to end it, or b""
    posted: int  # what that one posts
    shard: int
    decimals: int  # of its asset

    @classmethod
    def of(cls, found: Json) -> "OpenHold":
        """Make it of an answer."""
        said = part(found, "hold")
        account = text(said, "account")
        hold = Hold(bytes(HASH_SIZE), names.organisation_of(account), 0, 0, account,
                    int(text(said, "amount")), [str(each) for each in items(said, "to")],
                    text(said, "poster"), integer(said, "expiresMs"),
                    text(said, "asset") or names.DEFAULT_ASSET)
        hold.encode()  # which checks names and bounds
        identity = fixed(bytes.fromhex(text(found, "holdHex")), HASH_SIZE, "the id of a hold")
        decimals = integer(found, "decimals")
        if not 0 <= decimals <= names.DECIMALS_MAX:
            raise ValueError(f"{decimals} decimals")
        return cls(identity, account, hold.asset, hold.amount, hold.to, hold.poster, hold.expires,
                   bytes.fromhex(text(found, "endingHex")), int(text(found, "posted") or "0"),
                   integer(found, "shard"), decimals)


@dataclass
class OpenSchedule:
    """A schedule with occurrences to come, as a node says."""

    id: bytes
    schedule: Schedule  # what it says; its nonce and deadline are not known, so its id is another
    issued: int  # occurrences that blocks have
    next: int  # the time of the next one, in milliseconds since 1970

    @classmethod
    def of(cls, found: Json) -> "OpenSchedule":
        """Make it of an answer."""
        said = part(found, "schedule")
        period = text(said, "period") or PERIODS[0]
        if period not in PERIODS:
            raise ValueError(f"period {period}")
        postings = [Posting(text(each, "account"), int(text(each, "amount") or "0"),
                            text(each, "asset") or names.DEFAULT_ASSET)
                    for each in items(said, "postings")]
        schedule = Schedule(bytes(HASH_SIZE), text(found, "signer"), 0, 0, postings,
                            integer(said, "firstMs"), PERIODS.index(period),
                            integer(said, "every"), integer(said, "count"),
                            integer(said, "untilMs"), integer(said, "shard"),
                            note=text(found, "note"))
        schedule.encode()  # which checks names and bounds
        identity = fixed(bytes.fromhex(text(found, "scheduleHex")), HASH_SIZE,
                         "the id of a schedule")
        issued = integer(found, "issued")
        if not 0 <= issued < schedule.occurrences():
            raise ValueError(f"{issued} occurrences of {schedule.occurrences()} were issued")
        return cls(identity, schedule, issued, schedule.time_of(issued + 1))


@dataclass(frozen=True)
class Place:
    """A place in a shard's chain. A cut has one for each shard."""

    height: int
    entries: int
    carried: int
    streamed: Tuple[int, ...]

    def request(self) -> Json:
        """Return it as a request has it."""
        return {"height": str(self.height), "entries": self.entries, "carried": str(self.carried),
                "streamed": [str(each) for each in self.streamed]}

    @classmethod
    def of(cls, found: Json) -> "Place":
        """Make it of an answer."""
        return cls(integer(found, "height"), integer(found, "entries"), integer(found, "carried"),
                   tuple(int(each) for each in items(found, "streamed")))


@dataclass
class ChartLine:
    """A place in a chart of accounts: an account, or what begins the paths of accounts."""

    path: str
    depth: int  # the number of parts of the path
    account: bool  # whether an account has this path
    accounts: int  # how many there are with this path and below it
    totals: Dict[str, int]  # the sums over all of them, by asset


@dataclass(frozen=True)
class HistoryEntry:
    """A transaction that changed an account."""

    transaction_id: bytes
    height: int
    index: int
    time_ms: int
    changes: List[Balance]
    note: str

    @classmethod
    def of(cls, found: Json) -> "HistoryEntry":
        """Make it of an answer."""
        return cls(bytes.fromhex(text(found, "transactionIdHex")), integer(found, "height"),
                   integer(found, "index"), integer(found, "timeMs"),
                   [Balance.of(each) for each in items(found, "changes")], text(found, "note"))


@dataclass(frozen=True)
class BlockHeader:
    """A block without its transactions. `canonical` has the bytes that Header.decode takes."""

    height: int
    hash: bytes
    previous: bytes
    time_ms: int
    transaction_count: int
    failed_count: int
    level: str
    shard: int
    canonical: bytes

    @classmethod
    def of(cls, found: Json) -> "BlockHeader":
        """Make it of an answer."""
        return cls(integer(found, "height"), data(found, "hash"), data(found, "previous"),
                   integer(found, "timeMs"), integer(found, "transactionCount"),
                   integer(found, "failedCount"), word(found, "level", "LEVEL_"),
                   integer(found, "shard"), data(found, "canonical"))


@dataclass(frozen=True)
class Block:
    """A block: its header, and the statuses of a page of its transactions."""

    header: BlockHeader
    transactions: List[Status]

    @classmethod
    def of(cls, found: Json) -> "Block":
        """Make it of an answer."""
        return cls(BlockHeader.of(part(found, "header")),
                   [Status.of(part(each, "status")) for each in items(found, "transactions")])


@dataclass(frozen=True)
class Node:
    """The state of a node."""

    name: str
    mode: str
    reason: str
    ordered_height: int
    stored_height: int
    durable_height: int
    certified_height: int
    version: str
    shard: int
    reads_only: bool

    @classmethod
    def of(cls, found: Json) -> "Node":
        """Make it of an answer."""
        return cls(text(found, "name"), word(found, "mode", "NODE_MODE_"), text(found, "reason"),
                   integer(found, "orderedHeight"), integer(found, "storedHeight"),
                   integer(found, "durableHeight"), integer(found, "certifiedHeight"),
                   text(found, "version"), integer(found, "shard"), boolean(found, "readsOnly"))
