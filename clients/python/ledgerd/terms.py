"""Terms of accounts: limits, freezes, closing, guardians, metadata and aliases.

docs/account-terms.md says what they do. A change by the account's organisation replaces all terms,
so begin with the present ones: Client.account_now.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Iterable, List, Mapping, Optional, Set, Tuple

from . import names
from .codec import (
    HASH_SIZE,
    MalformedError,
    Reader,
    amount,
    boolean,
    elements,
    fixed,
    string,
    uint,
    utf8,
    uvarint,
    whole,
)
from .transaction import VERSION_ACCOUNT, transaction_id

# Who froze an account. With BOTH, each side lifts its own freeze, the guardian first.
NOT_FROZEN, BY_OWNER, BY_GUARDIAN, BY_BOTH = range(4)
FREEZES = ("none", "owner", "guardian", "both")

_NO_DEBITS, _NO_CREDITS, _CLOSED = 1, 2, 4
_FLOOR, _CEILING, _VELOCITY = 1, 2, 4
_SLOTS = 5  # of what counts against a velocity


@dataclass(frozen=True)
class Velocity:
    """The most that may be taken within a time, by the time of the blocks."""

    amount: int
    seconds: int


@dataclass(frozen=True)
class AccountLimit:
    """What the terms of an account say of one asset. A part that is None does not count.

    The floor is the least that a debit may leave, the ceiling the most that a credit may make.
    """

    asset: str = names.DEFAULT_ASSET
    floor: Optional[int] = None
    ceiling: Optional[int] = None
    velocity: Optional[Velocity] = None

    @property
    def empty(self) -> bool:
        """Whether it limits nothing."""
        return self.floor is None and self.ceiling is None and self.velocity is None

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        self.check()
        parts = 0
        encoded = b""
        if self.floor is not None:
            parts, encoded = parts | _FLOOR, encoded + amount(self.floor)
        if self.ceiling is not None:
            parts, encoded = parts | _CEILING, encoded + amount(self.ceiling)
        if self.velocity is not None:
            parts |= _VELOCITY
            encoded += amount(self.velocity.amount) + uvarint(self.velocity.seconds)
        return string(self.asset) + uint(parts, 1) + encoded

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        names.asset(self.asset)
        within = self.velocity
        if self.empty:
            raise MalformedError(f"a limit of {self.asset} that limits nothing: name a floor, a "
                                 "ceiling or a velocity, or leave it out")
        for value in (self.floor, self.ceiling, within.amount if within else None):
            if value is not None:
                amount(value)
        if self.floor is not None and self.ceiling is not None and self.floor > self.ceiling:
            raise MalformedError(f"a floor of {self.floor} above the ceiling of {self.ceiling}")
        if within is not None and (
                within.amount < 0 or not 1 <= whole(within.seconds) <= names.VELOCITY_SECONDS_MAX):
            raise MalformedError(f"a velocity of {within.amount} in {within.seconds} seconds: at "
                                 f"least 0, in 1 to {names.VELOCITY_SECONDS_MAX} seconds")

    @classmethod
    def read(cls, r: Reader) -> "AccountLimit":
        """Take one from a reader."""
        asset, parts = r.text("bytes of asset", names.ASSET_MAX), r.byte()
        if parts > _FLOOR | _CEILING | _VELOCITY:
            raise MalformedError(f"parts {parts} of a limit")
        return cls(asset, r.amount() if parts & _FLOOR else None,
                   r.amount() if parts & _CEILING else None,
                   Velocity(r.amount(), r.uvarint32()) if parts & _VELOCITY else None)


@dataclass(frozen=True)
class Metadatum:
    """A remark on an account. Accounts are found by those that are indexed."""

    key: str
    value: str
    indexed: bool = False

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        names.metadata_key(self.key)
        if len(utf8(self.value)) > names.METADATA_VALUE_MAX or not names.printable(self.value):
            raise MalformedError(f"metadata {self.key}: at most {names.METADATA_VALUE_MAX} bytes "
                                 "of printable text")
        return string(self.key) + string(self.value) + boolean(self.indexed)

    @classmethod
    def read(cls, r: Reader) -> "Metadatum":
        """Take one from a reader."""
        return cls(r.text("bytes of key", names.METADATA_KEY_MAX),
                   r.text("bytes of value", names.METADATA_VALUE_MAX), r.boolean())


@dataclass(frozen=True)
class AccountTerms:
    """What an organisation says of one of its accounts."""

    no_debits: bool = False
    no_credits: bool = False
    freeze: int = NOT_FROZEN
    closed: bool = False
    guardian: str = ""  # an organisation that may freeze the account
    limits: Tuple[AccountLimit, ...] = ()  # in ascending order of their assets
    metadata: Tuple[Metadatum, ...] = ()  # in ascending order of their keys

    @property
    def frozen_by_guardian(self) -> bool:
        """Whether the guardian froze the account."""
        return self.freeze in (BY_GUARDIAN, BY_BOTH)

    def limit(self, asset: str = names.DEFAULT_ASSET) -> AccountLimit:
        """Return the limit of an asset, which may be empty."""
        return next((each for each in self.limits if each.asset == asset), AccountLimit(asset))

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        self.check()
        flags = sum(flag for flag, is_set in (
            (_NO_DEBITS, self.no_debits), (_NO_CREDITS, self.no_credits), (_CLOSED, self.closed))
            if boolean(is_set) == b"\1")
        return b"".join([
            uint(flags, 1), uint(self.freeze, 1), string(self.guardian),
            elements([each.encode() for each in self.limits]),
            elements([each.encode() for each in self.metadata])])

    def check(self) -> None:
        """Raise MalformedError unless a node would decode them."""
        if self.freeze not in range(NOT_FROZEN, BY_BOTH + 1):
            raise MalformedError(f"a freeze of kind {self.freeze}: NOT_FROZEN, BY_OWNER, "
                                 "BY_GUARDIAN or BY_BOTH")
        if self.guardian:
            names.organisation(self.guardian)
        elif self.frozen_by_guardian:
            raise MalformedError("an account without guardian that its guardian froze: name the "
                                 "guardian")
        if len(self.limits) > names.ACCOUNT_LIMITS_MAX or (
                len(self.metadata) > names.METADATA_MAX):
            raise MalformedError(f"at most {names.ACCOUNT_LIMITS_MAX} limits and "
                                 f"{names.METADATA_MAX} metadata of an account")
        for what, keys in (("limits", [each.asset for each in self.limits]),
                           ("metadata", [each.key for each in self.metadata])):
            if any(one >= other for one, other in zip(keys, keys[1:])):
                raise MalformedError(f"{what} out of order: ascending, and each once")

    @classmethod
    def read(cls, r: Reader) -> "AccountTerms":
        """Take them from a reader."""
        flags = r.byte()
        if flags > _NO_DEBITS | _NO_CREDITS | _CLOSED:
            raise MalformedError(f"flags {flags} of an account")
        terms = cls(bool(flags & _NO_DEBITS), bool(flags & _NO_CREDITS), r.byte(),
                    bool(flags & _CLOSED), r.text("bytes of organisation", names.ORGANISATION_MAX),
                    tuple(r.list("limits", names.ACCOUNT_LIMITS_MAX, 4,
                                 lambda: AccountLimit.read(r))),
                    tuple(r.list("metadata", names.METADATA_MAX, 3, lambda: Metadatum.read(r))))
        terms.encode()  # which checks names and bounds
        return terms


@dataclass
class AccountChange:
    """A transaction that changes the terms of an account.

    If the account's organisation signs, the terms and the alias replace those before. If its
    guardian signs, the change makes or lifts the guardian's freeze and leaves all else: see guard.
    It takes no nonce: the number keeps it from taking effect twice.
    """

    ledger: bytes
    signer: str
    stream: int
    sequence: int
    account: str
    number: int
    terms: AccountTerms = field(default_factory=AccountTerms)
    alias: str = ""
    note: str = ""

    def encode(self) -> bytes:
        """Return the body: the canonical bytes. Raises MalformedError."""
        self.check()
        return b"".join([
            bytes([VERSION_ACCOUNT]), fixed(self.ledger, HASH_SIZE, "a ledger"),
            string(self.signer), uvarint(self.stream), uvarint(self.sequence),
            string(self.account), uvarint(self.number), string(self.alias),
            self.terms.encode(), string(self.note)])

    def id(self) -> bytes:
        """Return the id: the hash of the body."""
        return transaction_id(self.encode())

    def consents(self) -> Set[str]:
        """Return who has to sign: the signer."""
        return {self.signer}

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        names.organisation(self.signer)
        names.path(self.account)
        names.alias(self.alias)
        owner = names.organisation_of(self.account)
        if whole(self.number) < 1:
            raise MalformedError("a change of an account has a number above 0: one above that of "
                                 "the change before")
        if self.terms.guardian == owner:
            raise MalformedError("an organisation is no guardian of its own account")
        if len(utf8(self.note)) > names.NOTE_MAX:
            raise MalformedError("a note that is too long")
        frozen = self.terms.freeze == BY_GUARDIAN
        if self.signer != owner and (
                self.alias or self.terms != guarding(self.signer, frozen)):
            raise MalformedError("a guardian names itself, and changes its own freeze only: "
                                 "guardian or none")

    @classmethod
    def decode(cls, body: bytes) -> "AccountChange":
        """Decode a body, or raise MalformedError."""
        r = Reader(body)
        if r.byte() != VERSION_ACCOUNT:
            raise MalformedError("the transaction changes no account")
        ledger, signer = r.hash(), r.text("bytes of organisation", names.ORGANISATION_MAX)
        stream, sequence = r.uvarint(), r.uvarint()
        account, number = r.text("bytes of account", names.PATH_MAX), r.uvarint()
        alias = r.text("bytes of alias", names.ALIAS_MAX)
        change = cls(ledger, signer, stream, sequence, account, number, AccountTerms.read(r),
                     alias, r.text("bytes of note", names.NOTE_MAX))
        r.end()
        change.encode()  # which checks names and bounds
        return change


def guarding(guardian: str, freeze: bool) -> AccountTerms:
    """Return the terms of a guardian's change, which freezes an account or lifts its freeze."""
    return AccountTerms(freeze=BY_GUARDIAN if freeze else NOT_FROZEN, guardian=guardian)


@dataclass(frozen=True)
class AccountNow:
    """The terms of an account, for a signer that is about to change them.

    Each method returns the terms as they will be: `now.limited(...).labelled(...)`. Sender.change
    makes the transaction.
    """

    account: str
    alias: str = ""
    revision: int = 0  # how often the terms were changed
    guarded: int = 0  # how often guardians did
    terms: AccountTerms = field(default_factory=AccountTerms)

    def limited(self, limit: AccountLimit) -> "AccountNow":
        """Replace the limit of an asset. An empty one takes it away."""
        limits = [each for each in self.terms.limits if each.asset != limit.asset]
        if not limit.empty:
            limits.append(limit)
        limits.sort(key=lambda each: each.asset)
        return self.with_terms(limits=tuple(limits))

    def with_terms(self, **changed: Any) -> "AccountNow":
        """Replace parts of the terms, by their names in AccountTerms."""
        return replace(self, terms=replace(self.terms, **changed))

    def frozen(self) -> "AccountNow":
        """Freeze the account, as its organisation."""
        return self.with_terms(freeze=BY_OWNER)

    def unfrozen(self) -> "AccountNow":
        """Lift the freeze of the account's organisation."""
        return self.with_terms(freeze=NOT_FROZEN)

    def closed(self) -> "AccountNow":
        """Close the account for good. It must have no amounts."""
        return self.with_terms(closed=True)

    def labelled(self, metadata: Mapping[str, str] = {}, *, index: Iterable[str] = (),
                 alias: Optional[str] = None, guardian: Optional[str] = None) -> "AccountNow":
        """Set metadata, the alias and the guardian. An empty value takes a key away.

        Accounts are found by the keys that `index` names, as long as they have them.
        """
        found = {each.key: each for each in self.terms.metadata}
        for key, value in metadata.items():
            indexed = key in found and found.pop(key).indexed
            if value:
                found[key] = Metadatum(key, value, indexed)
        for key in index:
            if key not in found:
                raise ValueError(f"{self.account} has no metadatum {key!r} to be found by: give it "
                                 "a value first")
            found[key] = replace(found[key], indexed=True)
        changed = self if alias is None else replace(self, alias=alias)
        return changed.with_terms(
            metadata=tuple(found[key] for key in sorted(found)),
            guardian=self.terms.guardian if guardian is None else guardian)


@dataclass(frozen=True)
class Spent:
    """What counts against the velocity of a limit: the newest quarter of its time, and amounts."""

    slot: int = 0
    amounts: Tuple[int, ...] = (0,) * _SLOTS


@dataclass(frozen=True)
class Standing:
    """What a chain keeps of the terms of an account, as a proof of a balance has it."""

    revision: int  # how often the terms were changed
    guarded: int  # how often guardians did
    terms: AccountTerms
    spent: Tuple[Spent, ...] = ()  # of each limit

    @classmethod
    def read(cls, r: Reader) -> "Standing":
        """Take it from a reader."""
        revision, terms = r.uvarint(), AccountTerms.read(r)
        spent: List[Spent] = []
        for limit in terms.limits:
            if limit.velocity is None:
                spent.append(Spent())
            else:
                slot = r.uvarint()
                spent.append(Spent(slot, tuple(r.amount() for _ in range(_SLOTS))))
        guarded = 0
        if r.left:  # the count is there only if there were any
            guarded = r.uvarint()
            if not guarded:
                raise MalformedError("no changes by guardians, and counted")
        if not revision or guarded > revision:
            raise MalformedError(f"{revision} changes of terms, {guarded} of them by guardians")
        return cls(revision, guarded, terms, tuple(spent))
