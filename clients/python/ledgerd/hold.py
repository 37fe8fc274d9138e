"""Holds: an amount of an account that is set aside for others, and how it ends.

docs/holds.md says what a hold is. The id of a hold is that of the transaction that placed it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Mapping, Set

from . import names
from .codec import (
    HASH_SIZE,
    MalformedError,
    Reader,
    amount,
    elements,
    fixed,
    string,
    uvarint,
    whole,
)
from .transaction import (
    VERSION_HOLD,
    VERSION_HOLD_END,
    Posting,
    encode_head,
    encode_note,
    transaction_id,
)


@dataclass
class Hold:
    """A transaction that sets an amount of an account of its signer aside, until the hold ends.

    `to` are the accounts that it may be posted to, `poster` the organisation that may post or void
    it, and `expires` when it ends by itself, in milliseconds since 1970.
    """

    ledger: bytes
    signer: str
    stream: int
    sequence: int
    account: str
    amount: int
    to: List[str]
    poster: str
    expires: int
    asset: str = names.DEFAULT_ASSET
    last_valid: int = 0
    deadline: int = 0
    note: str = ""

    def encode(self) -> bytes:
        """Return the body: the canonical bytes. Raises MalformedError."""
        self.check()
        return b"".join([
            encode_head(VERSION_HOLD, self, self.last_valid), string(self.account),
            string(self.asset), amount(self.amount), elements([string(each) for each in self.to]),
            string(self.poster), uvarint(self.expires), encode_note(self.note)])

    def id(self) -> bytes:
        """Return the id: the hash of the body."""
        return transaction_id(self.encode())

    def consents(self) -> Set[str]:
        """Return who has to sign: the signer."""
        return {self.signer}

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        names.path(self.account)
        names.asset(self.asset)
        names.organisation(self.poster)
        if names.organisation_of(self.account) != self.signer:
            raise MalformedError(f"a hold on {self.account} by {self.signer}: the organisation of "
                                 "the account signs")
        if whole(self.amount) <= 0:
            raise MalformedError(f"a hold of {self.amount}: an amount above 0")
        if not 1 <= len(self.to) <= names.HOLD_ACCOUNTS_MAX:
            raise MalformedError(f"a hold for {len(self.to)} accounts, 1 to "
                                 f"{names.HOLD_ACCOUNTS_MAX} allowed")
        for each in self.to:
            names.path(each)
        if self.account in self.to:
            raise MalformedError("a hold for its own account: name others")
        if any(one >= other for one, other in zip(self.to, self.to[1:])):
            raise MalformedError("the accounts of a hold out of order: ascending, and each once")
        if not 0 < whole(self.expires) < 1 << 63:
            raise MalformedError(f"a hold that expires at {self.expires}: name a time in "
                                 "milliseconds since 1970")

    @classmethod
    def decode(cls, body: bytes) -> "Hold":
        """Decode a body, or raise MalformedError."""
        r = Reader(body)
        if r.byte() != VERSION_HOLD:
            raise MalformedError("the transaction places no hold")
        ledger, signer = r.hash(), r.text("bytes of organisation", names.ORGANISATION_MAX)
        stream, sequence, last_valid, deadline = (r.uvarint() for _ in range(4))
        account = r.text("bytes of account", names.PATH_MAX)
        asset, value = r.text("bytes of asset", names.ASSET_MAX), r.amount()
        to = r.list("accounts", names.HOLD_ACCOUNTS_MAX, 1,
                    lambda: r.text("bytes of account", names.PATH_MAX))
        poster = r.text("bytes of organisation", names.ORGANISATION_MAX)
        expires, note = r.uvarint(), r.text("bytes of note", names.NOTE_MAX)
        r.end()
        hold = cls(ledger, signer, stream, sequence, account, value, to, poster, expires, asset,
                   last_valid, deadline, note)
        hold.encode()  # which checks names and bounds
        return hold


@dataclass
class HoldEnd:
    """A transaction with which the poster of a hold posts or voids it.

    The first posting takes from the account of the hold, and the others give to accounts that the
    hold names. Without postings the hold is voided.
    """

    ledger: bytes
    signer: str
    stream: int
    sequence: int
    hold: bytes  # its id
    account: str  # its account
    postings: List[Posting] = field(default_factory=list)
    last_valid: int = 0
    deadline: int = 0
    note: str = ""

    def encode(self) -> bytes:
        """Return the body: the canonical bytes. Raises MalformedError."""
        self.check()
        return b"".join([
            encode_head(VERSION_HOLD_END, self, self.last_valid),
            fixed(self.hold, HASH_SIZE, "an id"), string(self.account),
            elements([each.encode() for each in self.postings]),
            encode_note(self.note)])

    def id(self) -> bytes:
        """Return the id: the hash of the body."""
        return transaction_id(self.encode())

    def consents(self) -> Set[str]:
        """Return who has to sign: the signer. The holder consented with the hold."""
        return {self.signer}

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        names.path(self.account)
        if not self.postings:
            return
        first = self.postings[0]
        if not 2 <= len(self.postings) <= names.HOLD_ACCOUNTS_MAX + 1 or (
                first.account != self.account):
            raise MalformedError(f"a hold is posted from its account {self.account} to 1 to "
                                 f"{names.HOLD_ACCOUNTS_MAX} others")
        for at, each in enumerate(self.postings):
            each.check()
            whole(each.amount)
            if (each.asset != first.asset or (each.amount < 0) != (at == 0) or not each.amount
                    or at > 0 and each.account == self.account):
                raise MalformedError(f"posting {at + 1} of a hold's end: the first one takes from "
                                     "the hold's account, and the others give to other accounts, "
                                     "all in one asset")

    @classmethod
    def decode(cls, body: bytes) -> "HoldEnd":
        """Decode a body, or raise MalformedError."""
        r = Reader(body)
        if r.byte() != VERSION_HOLD_END:
            raise MalformedError("the transaction ends no hold")
        ledger, signer = r.hash(), r.text("bytes of organisation", names.ORGANISATION_MAX)
        stream, sequence, last_valid, deadline = (r.uvarint() for _ in range(4))
        end = cls(ledger, signer, stream, sequence, r.hash(),
                  r.text("bytes of account", names.PATH_MAX),
                  r.list("postings", names.HOLD_ACCOUNTS_MAX + 1, 3, lambda: Posting.read(r)),
                  last_valid, deadline, r.text("bytes of note", names.NOTE_MAX))
        r.end()
        end.encode()  # which checks names and bounds
        return end


def shares_of(hold: Hold, shares: int | Mapping[str, int] | None) -> List[Posting]:
    """Return the postings that give what a hold is posted for.

    All of it if no shares are named; or an amount, if the hold names one account; or what each of
    its accounts gets. Raises ValueError for what the hold does not allow.
    """
    if not isinstance(shares, Mapping):
        if len(hold.to) > 1:
            raise ValueError(f"say how much each of {', '.join(hold.to)} gets, as a mapping of "
                             "accounts to amounts")
        shares = {hold.to[0]: hold.amount if shares is None else shares}
    if not shares:
        raise ValueError("void_hold is for a hold that nothing is posted of")
    for account, value in shares.items():
        if account not in hold.to:
            raise ValueError(f"the hold cannot be posted to {account}, only to "
                             f"{', '.join(hold.to)}")
        if whole(value) <= 0:
            raise ValueError(f"an amount of {value} for {account}: above 0, or leave it out")
    total = sum(shares.values())
    if total > hold.amount:
        raise ValueError(f"the hold is of {hold.amount}, and {total} cannot be posted")
    return [Posting(hold.account, -total, hold.asset),
            *(Posting(account, value, hold.asset) for account, value in shares.items())]
