"""Transactions: their canonical bytes (the body) and their ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, List, Optional, Protocol, Sequence, Set

from . import names
from .codec import (
    HASH_SIZE,
    MalformedError,
    Reader,
    amount,
    boolean,
    domain,
    elements,
    fixed,
    sha256,
    string,
    uint,
    utf8,
    uvarint,
    whole,
)
from .ed25519 import KEY_SIZE

if TYPE_CHECKING:
    from .book import BookChange
    from .policy import CharterChange
    from .schedule import Occurrence

VERSION = 1
VERSION_MEMBERSHIP = 2
VERSION_POLICY = 4
VERSION_CHARTER = 5
VERSION_CHARTER_LAST = 7
VERSION_PACKED = 8
VERSION_DEADLINE = 9
VERSION_CANCELLATION = 10
VERSION_BOOK = 11
VERSION_ASSET = 13
VERSION_HOLD = 14
VERSION_HOLD_END = 15
VERSION_ACCOUNT = 16
VERSION_DETAILS = 17
VERSION_SCHEDULE = 18
VERSION_SCHEDULE_END = 19
VERSION_OCCURRENCE = 20
VERSION_LAST = 20

_ID_DOMAIN = domain("ledgerd/transaction/1")


class ClientBody(Protocol):
    """A transaction of a client, of any kind: an organisation is its signer."""

    signer: str

    def encode(self) -> bytes:
        """Return the body."""

    def id(self) -> bytes:
        """Return the id: the hash of the body."""

    def consents(self) -> Set[str]:
        """Return the organisations that have to sign."""


def transaction_id(body: bytes) -> bytes:
    """Return the id of a transaction, by its body."""
    return sha256(_ID_DOMAIN, body)


class Headed(Protocol):
    """What transactions of clients begin with that are no plain entries."""

    ledger: bytes
    signer: str
    stream: int
    sequence: int
    deadline: int


def encode_head(version: int, t: Headed, last_valid: int = 0) -> bytes:
    """Encode what a transaction begins with, with a deadline that may be 0."""
    names.organisation(t.signer)
    if not 0 <= whole(t.deadline) < 1 << 63:
        raise MalformedError(f"a deadline of {t.deadline}: milliseconds since 1970")
    return b"".join([
        bytes([version]), fixed(t.ledger, HASH_SIZE, "a ledger"), string(t.signer),
        uvarint(t.stream), uvarint(t.sequence), uvarint(last_valid), uvarint(t.deadline)])


def encode_note(note: str, most: int = names.NOTE_MAX) -> bytes:
    """Encode a note, or raise MalformedError if it has more than so many bytes."""
    size = len(utf8(note))
    if size > most:
        raise MalformedError(f"a note of {size} bytes, at most {most}")
    return string(note)


@dataclass
class Registration:
    """Registers an organisation with its keys, and perhaps pins it to a shard."""

    organisation: str
    keys: List[bytes]
    pinned: bool = False
    shard: int = 0

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        self.check()
        keys = [fixed(key, KEY_SIZE, "a key") for key in self.keys]
        return (string(self.organisation) + elements(keys) + boolean(self.pinned)
                + uvarint(self.shard))

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        names.organisation(self.organisation)
        if not 1 <= len(self.keys) <= names.KEYS_MAX:
            raise MalformedError(f"an organisation has 1 to {names.KEYS_MAX} keys")
        if len(set(self.keys)) != len(self.keys):
            raise MalformedError("a key twice")
        if self.shard and not self.pinned or self.shard >> 32:
            raise MalformedError("a shard that is not pinned, or none")

    @classmethod
    def read(cls, r: Reader) -> "Registration":
        """Take one from a reader."""
        return cls(r.text("bytes of organisation", names.ORGANISATION_MAX),
                   r.list("keys", names.KEYS_MAX, KEY_SIZE, lambda: r.take(KEY_SIZE)),
                   r.boolean(), r.uvarint32())


@dataclass
class Opening:
    """Opens an account. The balances of an issuer may go below zero."""

    account: str
    issuer: bool = False
    alias: str = ""

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        self.check()
        return string(self.account) + boolean(self.issuer) + string(self.alias)

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        names.path(self.account)
        names.alias(self.alias)

    @classmethod
    def read(cls, r: Reader) -> "Opening":
        """Take one from a reader."""
        return cls(r.text("bytes of account", names.PATH_MAX), r.boolean(),
                   r.text("bytes of alias", names.ALIAS_MAX))


@dataclass
class Posting:
    """Adds an amount, which may be below zero, to an account."""

    account: str
    amount: int
    asset: str = names.DEFAULT_ASSET

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        self.check()
        return string(self.account) + string(self.asset) + amount(self.amount)

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        names.path(self.account)
        names.asset(self.asset)

    @classmethod
    def read(cls, r: Reader) -> "Posting":
        """Take one from a reader."""
        account = r.text("bytes of account", names.PATH_MAX)
        asset = r.text("bytes of asset", names.ASSET_MAX)
        return cls(account, r.amount(), asset)


@dataclass
class Record:
    """Writes a value under a key of an organisation."""

    key: str
    value: bytes

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        self.check()
        return string(self.key) + string(self.value)

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        names.path(self.key)
        if len(self.value) > names.RECORD_VALUE_MAX:
            raise MalformedError(f"a record's value of {len(self.value)} bytes, at most "
                                 f"{names.RECORD_VALUE_MAX} allowed")

    @classmethod
    def read(cls, r: Reader) -> "Record":
        """Take one from a reader."""
        return cls(r.text("bytes of key", names.PATH_MAX),
                   r.string("bytes of value", names.RECORD_VALUE_MAX))


def _check_all(group: Sequence[Registration | Opening | Posting | Record]) -> None:
    for each in group:
        each.check()


@dataclass
class Details:
    """What an entry says of itself beyond its postings. Times are milliseconds since 1970.

    Of the signer's entries with one key at most one takes effect within seven days. An entry that
    is refundable until some time can be refunded by others, which name it in `refund_entry`, and
    its signer in `refund_organisation`.
    """

    effective: int = 0
    key: str = ""
    refundable: int = 0
    refund_entry: bytes = b""
    refund_organisation: str = ""

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        refund = self.is_refund()
        return b"".join([
            uvarint(self.effective), string(self.key), uvarint(self.refundable), boolean(refund),
            fixed(self.refund_entry, HASH_SIZE, "an entry") if refund else b"",
            string(self.refund_organisation) if refund else b""])

    def is_refund(self) -> bool:
        """Report whether the entry refunds another one."""
        return bool(self.refund_entry or self.refund_organisation)

    def check(self, postings: Sequence[Posting]) -> None:
        """Raise MalformedError unless a node would decode it, with these postings."""
        if not 0 <= self.effective <= names.EFFECTIVE_MAX or not 0 <= self.refundable < 1 << 63:
            raise MalformedError(f"an entry of {self.effective}, refundable until "
                                 f"{self.refundable}")
        if len(self.key) > names.IDEMPOTENCY_KEY_MAX or any(not " " <= c <= "~" for c in self.key):
            raise MalformedError(f"an idempotency key {self.key!r}")
        if not (self.effective or self.key or self.refundable or self.is_refund()):
            raise MalformedError("details that are none")
        if self.is_refund():
            names.organisation(self.refund_organisation)
            if self.refundable:
                raise MalformedError("a refund that can be refunded")
        elif not self.refundable:
            return
        pairs = {(each.account, each.asset) for each in postings}
        if (not 2 <= len(postings) <= names.REFUND_POSTINGS_MAX or len(pairs) < len(postings)
                or any(each.amount == 0 for each in postings)):
            raise MalformedError("the postings of a refund, or of an entry that can be refunded")

    @classmethod
    def read(cls, r: Reader) -> "Details":
        """Take one from a reader."""
        d = cls(r.uvarint(), r.text("bytes of key", names.IDEMPOTENCY_KEY_MAX), r.uvarint())
        if r.boolean():
            d.refund_entry = r.hash()
            d.refund_organisation = r.text("bytes of organisation", names.ORGANISATION_MAX)
            names.organisation(d.refund_organisation)
        return d


@dataclass
class Transaction:
    """A client's transaction. `ledger` is the book: see Genesis.book.

    The node refuses a transaction whose nonce is not above those before in its stream, and executes
    one once however often it is submitted. With a deadline (milliseconds since 1970) no block of
    that time or later applies it; a transaction that concerns several shards needs one.
    """

    ledger: bytes
    signer: str
    stream: int
    sequence: int
    last_valid: int = 0
    deadline: int = 0
    registrations: List[Registration] = field(default_factory=list)
    openings: List[Opening] = field(default_factory=list)
    postings: List[Posting] = field(default_factory=list)
    records: List[Record] = field(default_factory=list)
    note: str = ""
    details: Optional[Details] = None

    def encode(self) -> bytes:
        """Return the body: the canonical bytes. Raises MalformedError."""
        self.check()
        version = VERSION_DEADLINE if self.deadline else VERSION
        if self.details:
            version = VERSION_DETAILS
        body = b"".join([
            bytes([version]),
            fixed(self.ledger, HASH_SIZE, "a ledger"),
            string(self.signer),
            uvarint(self.stream),
            uvarint(self.sequence),
            uvarint(self.last_valid),
            uvarint(self.deadline) if version != VERSION else b"",
            self.details.encode() if self.details else
            elements([each.encode() for each in self.registrations]),
            elements([each.encode() for each in self.openings]),
            elements([each.encode() for each in self.postings]),
            elements([each.encode() for each in self.records]),
            string(self.note),
        ])
        if len(body) > names.BODY_MAX:
            raise MalformedError(f"a body of {len(body)} bytes, at most {names.BODY_MAX} allowed")
        return body

    def id(self) -> bytes:
        """Return the id: the hash of the body."""
        return transaction_id(self.encode())

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        names.organisation(self.signer)
        if not 0 <= self.deadline < 1 << 63:
            raise MalformedError(f"a deadline of {self.deadline}")
        for what, found, most in (
                ("registrations", len(self.registrations), names.REGISTRATIONS_MAX),
                ("openings", len(self.openings), names.OPENINGS_MAX),
                ("postings", len(self.postings), names.POSTINGS_MAX),
                ("records", len(self.records), names.RECORDS_MAX),
                ("bytes of note", len(utf8(self.note)), names.NOTE_MAX)):
            if found > most:
                raise MalformedError(f"{found} {what}, at most {most} allowed")
        if self.details:
            self.details.check(self.postings)
            if self.registrations:
                raise MalformedError("a registration with details")
        _check_all(self.registrations)
        _check_all(self.openings)
        _check_all(self.postings)
        _check_all(self.records)

    def consents(self) -> Set[str]:
        """Return the organisations that have to sign.

        They are the signer, those whose accounts are opened or have something taken, and those
        whose records are written. What a posting takes is below zero.
        """
        needed = {self.signer}
        needed.update(names.organisation_of(each.account) for each in self.openings)
        needed.update(names.organisation_of(each.account) for each in self.postings
                      if each.amount < 0)
        needed.update(names.organisation_of(each.key) for each in self.records)
        return needed

    @classmethod
    def decode(cls, body: bytes) -> "Transaction":
        """Decode a body, or raise MalformedError."""
        if len(body) > names.BODY_MAX:
            raise MalformedError(f"a body of {len(body)} bytes")
        r = Reader(body)
        version = r.byte()
        if version not in (VERSION, VERSION_DEADLINE, VERSION_DETAILS):
            raise MalformedError(f"transaction version {version} is not a client's")
        t = cls(r.hash(), r.text("bytes of organisation", names.ORGANISATION_MAX), r.uvarint(),
                r.uvarint(), r.uvarint())
        if version == VERSION_DEADLINE:
            t.deadline = r.uvarint()
            if not t.deadline:
                raise MalformedError("a deadline of 0")
        if version == VERSION_DETAILS:
            t.deadline = r.uvarint()
            t.details = Details.read(r)
        else:
            t.registrations = r.list("registrations", names.REGISTRATIONS_MAX, 4,
                                     lambda: Registration.read(r))
        t.openings = r.list("openings", names.OPENINGS_MAX, 3, lambda: Opening.read(r))
        t.postings = r.list("postings", names.POSTINGS_MAX, 3, lambda: Posting.read(r))
        t.records = r.list("records", names.RECORDS_MAX, 2, lambda: Record.read(r))
        t.note = r.text("bytes of note", names.NOTE_MAX)
        r.end()
        t.check()
        return t


def transfer(ledger: bytes, signer: str, stream: int, sequence: int, source: str,
             destination: str, value: int, asset: str = names.DEFAULT_ASSET,
             **further: object) -> Transaction:
    """Make a transaction that moves a value from one account to another."""
    return Transaction(ledger, signer, stream, sequence, postings=[
        Posting(source, -value, asset), Posting(destination, value, asset)],
        **further)  # type: ignore[arg-type]


@dataclass
class Cancellation:
    """Withdraws its signer's consent to another transaction, at one shard."""

    ledger: bytes
    signer: str
    stream: int
    sequence: int
    deadline: int
    transaction: bytes
    shard: int = 0
    note: str = ""

    def encode(self) -> bytes:
        """Return the body: the canonical bytes. Raises MalformedError."""
        names.organisation(self.signer)
        if not 0 < self.deadline < 1 << 63 or self.shard >> 32:
            raise MalformedError("a cancellation names a deadline and a shard")
        if len(utf8(self.note)) > names.NOTE_MAX:
            raise MalformedError("a note that is too long")
        return b"".join([
            bytes([VERSION_CANCELLATION]), fixed(self.ledger, HASH_SIZE, "a ledger"),
            string(self.signer), uvarint(self.stream), uvarint(self.sequence),
            uvarint(self.deadline), fixed(self.transaction, HASH_SIZE, "an id"),
            uvarint(self.shard), string(self.note)])

    def id(self) -> bytes:
        """Return the id: the hash of the body."""
        return transaction_id(self.encode())

    def consents(self) -> Set[str]:
        """Return who has to sign: the signer."""
        return {self.signer}

    @classmethod
    def decode(cls, body: bytes) -> "Cancellation":
        """Decode a body, or raise MalformedError."""
        r = Reader(body)
        if r.byte() != VERSION_CANCELLATION:
            raise MalformedError("the transaction cancels nothing")
        made = cls(r.hash(), r.text("bytes of organisation", names.ORGANISATION_MAX), r.uvarint(),
                   r.uvarint(), r.uvarint(), r.hash(), r.uvarint32(),
                   r.text("bytes of note", names.NOTE_MAX))
        r.end()
        made.encode()  # which checks names and bounds
        return made


@dataclass
class Member:
    """A node of the group that keeps a chain."""

    name: str
    key: bytes
    address: str

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        self.check()
        return string(self.name) + string(self.key) + string(self.address)

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        names.organisation(self.name)
        if len(self.key) > names.MEMBER_KEY_MAX or len(utf8(self.address)) > names.ADDRESS_MAX:
            raise MalformedError(f"member {self.name}: key or address too long")

    def check_joins(self) -> None:
        """Raise MalformedError unless it may join a running chain: a genesis is laxer."""
        self.check()
        fixed(self.key, KEY_SIZE, "a node's key")
        if not self.address or not names.printable(self.address):
            raise MalformedError("a member's address is printable text")

    @classmethod
    def read(cls, r: Reader) -> "Member":
        """Take one from a reader."""
        member = cls(r.text("bytes of member", names.ORGANISATION_MAX),
                     r.string("bytes of key", names.MEMBER_KEY_MAX),
                     r.text("bytes of address", names.ADDRESS_MAX))
        member.check()
        return member


JOIN, LEAVE, ADMIT, ENGINE = 1, 2, 3, 4
ADMIT_STREAM = (1 << 64) - 1


@dataclass
class MembershipChange:
    """A change of a chain's members: one joins or leaves, a disk counts, or all get an engine.

    It names the chain as its ledger, which is the genesis' hash. An operator signs it.
    """

    chain: bytes
    stream: int
    sequence: int
    last_valid: int
    kind: int
    member: Optional[Member] = None  # of a join
    index: int = 0  # of a member that leaves, or whose disk is admitted
    disk: bytes = b""
    note: str = ""
    engine: str = ""  # by which the members will order

    def encode(self) -> bytes:
        """Return the body: the canonical bytes. Raises MalformedError."""
        self.check()
        if self.kind == JOIN and self.member:
            change = self.member.encode()
        elif self.kind == ENGINE:
            change = string(self.engine)
        elif self.kind == LEAVE:
            change = uvarint(self.index)
        else:
            change = uvarint(self.index) + fixed(self.disk, 16, "a disk")
        return b"".join([
            bytes([VERSION_MEMBERSHIP]), fixed(self.chain, HASH_SIZE, "a chain"),
            uvarint(self.stream), uvarint(self.sequence), uvarint(self.last_valid),
            uint(self.kind, 1), change, string(self.note)])

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        if self.kind == JOIN and self.member:
            self.member.check_joins()
        elif self.kind == ENGINE:
            names.engine(self.engine)
        elif self.kind not in (LEAVE, ADMIT):
            raise MalformedError(f"a change of kind {self.kind}")
        if not 0 <= self.index < names.MEMBER_INDEXES_MAX:
            raise MalformedError(f"member {self.index}")
        if self.kind == ADMIT:
            if self.stream != ADMIT_STREAM or not self.sequence:
                raise MalformedError(f"the nonce of an admission is in stream {ADMIT_STREAM}, and "
                                     "is the number of the membership that it makes")
            if not any(fixed(self.disk, 16, "a disk")):
                raise MalformedError("an admission of no disk")
        if len(utf8(self.note)) > names.NOTE_MAX:
            raise MalformedError("a note that is too long")

    def id(self) -> bytes:
        """Return the id: the hash of the body."""
        return transaction_id(self.encode())

    @classmethod
    def decode(cls, body: bytes) -> "MembershipChange":
        """Decode a body, or raise MalformedError."""
        r = Reader(body)
        if r.byte() != VERSION_MEMBERSHIP:
            raise MalformedError("the transaction changes no members")
        change = cls(r.hash(), r.uvarint(), r.uvarint(), r.uvarint(), r.byte())
        if change.kind == JOIN:
            change.member = Member.read(r)
        elif change.kind == ENGINE:
            change.engine = r.text("bytes of an engine's name", names.ENGINE_MAX)
        elif change.kind in (LEAVE, ADMIT):
            change.index = r.uvarint()
            if change.kind == ADMIT:
                change.disk = r.take(16)
        else:
            raise MalformedError(f"a change of kind {change.kind}")
        change.note = r.text("bytes of note", names.NOTE_MAX)
        r.end()
        change.check()
        return change


def decode_body(
        body: bytes
) -> "ClientBody | MembershipChange | CharterChange | BookChange | Occurrence | None":
    """Decode a body of any kind, or raise MalformedError if it is malformed.

    Of the kinds that no client makes (verdicts and arrivals, which chains make) only the version is
    checked, and None returned. Their ids are hashes of their bytes, so a proof of one holds as any
    other.
    """
    # These modules need this one.
    from .asset import AssetChange
    from .book import BookChange
    from .hold import Hold, HoldEnd
    from .policy import CharterChange, PolicyChange
    from .schedule import Occurrence, Schedule, ScheduleEnd
    from .terms import AccountChange
    version = body[0] if body else 0
    if version in (VERSION, VERSION_DEADLINE, VERSION_DETAILS):
        return Transaction.decode(body)
    if version == VERSION_MEMBERSHIP:
        return MembershipChange.decode(body)
    if version == VERSION_POLICY:
        return PolicyChange.decode(body)
    if VERSION_CHARTER <= version <= VERSION_CHARTER_LAST:
        return CharterChange.decode(body)
    if version == VERSION_BOOK:
        return BookChange.decode(body)
    if version == VERSION_CANCELLATION:
        return Cancellation.decode(body)
    if version == VERSION_ASSET:
        return AssetChange.decode(body)
    if version == VERSION_HOLD:
        return Hold.decode(body)
    if version == VERSION_HOLD_END:
        return HoldEnd.decode(body)
    if version == VERSION_ACCOUNT:
        return AccountChange.decode(body)
    if version == VERSION_SCHEDULE:
        return Schedule.decode(body)
    if version == VERSION_SCHEDULE_END:
        return ScheduleEnd.decode(body)
    if version == VERSION_OCCURRENCE:
        return Occurrence.decode(body)
    if version == 0 or version == VERSION_PACKED or version > VERSION_LAST:
        raise MalformedError(f"transaction version {version}")
    return None
