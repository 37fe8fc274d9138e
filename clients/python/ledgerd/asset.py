"""Registered assets: the transaction that registers or changes one, and amounts with decimals."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import List, Set

from . import names
from .codec import (
    AMOUNT_MAX,
    AMOUNT_MIN,
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
)
from .transaction import VERSION_ASSET, transaction_id

UNLIMITED, CAPPED, FIXED = 0, 1, 2

_DECIMAL = re.compile(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?", re.ASCII)


@dataclass
class Issuer:
    """An organisation that may issue an asset, up to its allowance if the supply has a bound."""

    organisation: str
    allowance: int = 0
    withdrawn: bool = False

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return string(self.organisation) + amount(self.allowance) + boolean(self.withdrawn)

    @classmethod
    def read(cls, r: Reader) -> "Issuer":
        """Take one from a reader."""
        return cls(r.text("bytes of organisation", names.ORGANISATION_MAX), r.amount(),
                   r.boolean())


def check_terms(decimals: int, supply: int, cap: int, issuers: List[Issuer]) -> None:
    """Raise MalformedError unless an asset may have the terms."""
    if not 0 <= decimals <= names.DECIMALS_MAX:
        raise MalformedError(f"{decimals} decimals, at most {names.DECIMALS_MAX} allowed")
    if supply not in (UNLIMITED, CAPPED, FIXED):
        raise MalformedError(f"a supply of kind {supply}")
    if cap < 0 or cap and supply == UNLIMITED:
        raise MalformedError(f"a cap of {cap}")
    if len(issuers) > names.ISSUERS_MAX:
        raise MalformedError(f"{len(issuers)} issuers, at most {names.ISSUERS_MAX} "
                             "allowed")
    for each in issuers:
        names.organisation(each.organisation)
        if each.allowance < 0:
            raise MalformedError(f"an allowance of {each.allowance}")
    called = [each.organisation for each in issuers]
    if any(one >= other for one, other in zip(called, called[1:])):
        raise MalformedError("issuers out of order")
    if sum(each.allowance for each in issuers) > cap:
        raise MalformedError("the allowances add up to more than the cap")


@dataclass
class AssetChange:
    """Registers an asset (number 1), or replaces its terms (one above the number that they have).

    Amounts are integers of the smallest unit. Decimals say only how they are written.
    """

    ledger: bytes
    signer: str
    stream: int
    sequence: int
    asset: str
    number: int = 1
    decimals: int = 0
    supply: int = UNLIMITED
    cap: int = 0
    closed: bool = False
    issuers: List[Issuer] = field(default_factory=list)  # by their names
    note: str = ""

    def encode(self) -> bytes:
        """Return the body: the canonical bytes. Raises MalformedError."""
        self.check()
        return b"".join([
            bytes([VERSION_ASSET]), fixed(self.ledger, HASH_SIZE, "a ledger"),
            string(self.signer), uvarint(self.stream), uvarint(self.sequence),
            string(self.asset), uvarint(self.number), uint(self.decimals, 1),
            uint(self.supply, 1), amount(self.cap), boolean(self.closed),
            elements([each.encode() for each in self.issuers]), string(self.note)])

    def id(self) -> bytes:
        """Return the id: the hash of the body."""
        return transaction_id(self.encode())

    def consents(self) -> Set[str]:
        """Return who has to sign: the signer. A chain may ask for its operators, too."""
        return {self.signer}

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        names.organisation(self.signer)
        names.asset(self.asset)
        if self.asset == names.DEFAULT_ASSET:
            raise MalformedError(f"{self.asset} is the asset of amounts that name none, and is "
                                 "never registered")
        if self.number < 1:
            raise MalformedError("a change of an asset has a number above 0")
        check_terms(self.decimals, self.supply, self.cap, self.issuers)
        if len(utf8(self.note)) > names.NOTE_MAX:
            raise MalformedError("a note that is too long")

    @classmethod
    def decode(cls, body: bytes) -> "AssetChange":
        """Decode a body, or raise MalformedError."""
        r = Reader(body)
        if r.byte() != VERSION_ASSET:
            raise MalformedError("the transaction changes no asset")
        change = cls(r.hash(), r.text("bytes of organisation", names.ORGANISATION_MAX),
                     r.uvarint(), r.uvarint(), r.text("bytes of asset", names.ASSET_MAX),
                     r.uvarint(), r.byte(), r.byte(), r.amount(), r.boolean(),
                     r.list("issuers", names.ISSUERS_MAX, 3, lambda: Issuer.read(r)),
                     r.text("bytes of note", names.NOTE_MAX))
        r.end()
        change.check()
        return change


def decimal(value: int, decimals: int) -> str:
    """Return an amount as it is written with this many decimals: 1250 with two is 12.50."""
    digits = str(abs(value)).rjust(decimals + 1, "0")
    sign = "-" if value < 0 else ""
    if not decimals:
        return sign + digits
    return f"{sign}{digits[:-decimals]}.{digits[-decimals:]}"


def parse_decimal(text: str, decimals: int) -> int:
    """Return the amount that a text says, or raise MalformedError. Nothing is ever rounded."""
    found = _DECIMAL.fullmatch(text)
    if not found:
        raise MalformedError(f"{text[:60]!r} is no amount: digits, and a point before decimals")
    sign, whole, fraction = found[1], found[2], found[3] or ""
    if len(fraction) > decimals:
        raise MalformedError(f"{text[:60]!r} has {len(fraction)} decimals, and the asset has "
                             f"{decimals}: amounts are never rounded")
    if len(whole) + decimals > 40:
        raise MalformedError(f"{text[:60]!r} has more than 128 bits")
    value = int(sign + whole + fraction.ljust(decimals, "0"))
    if not AMOUNT_MIN <= value <= AMOUNT_MAX or sign and not value:
        raise MalformedError(f"{text[:60]!r} is no amount of 128 bits")
    return value
