"""What an organisation, and the operators of a book, ask of signatures: policies and the charter.

docs/keys.md says what they do. Each change replaces all of what was before, and its number is one
above that of the change before, so that it is never executed twice: it takes no nonce.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Sequence, Set, Tuple

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
from .ed25519 import KEY_SIZE
from .genesis import check_chain_version, check_quotas, read_quotas
from .transaction import (
    VERSION_CHARTER,
    VERSION_CHARTER_LAST,
    VERSION_POLICY,
    transaction_id,
)

# What a key may sign: everything; openings of accounts; what takes from accounts, and records;
# nothing, but it reads.
ROLE_ALL, ROLE_OPEN, ROLE_POST, ROLE_READ = range(4)

_CHARTER_QUOTAS = 6


def _distinct(keys: Sequence[bytes], what: str) -> None:
    for key in keys:
        fixed(key, KEY_SIZE, what)
    if len(set(keys)) != len(keys):
        raise MalformedError(f"{what} twice")


def _note(text: str) -> bytes:
    if len(utf8(text)) > names.NOTE_MAX:
        raise MalformedError(f"a note of {len(utf8(text))} bytes, at most {names.NOTE_MAX}")
    return string(text)


@dataclass(frozen=True)
class PolicyKey:
    """A key of an organisation, and what it may sign."""

    key: bytes
    role: int = ROLE_ALL


@dataclass(frozen=True)
class PolicyLimit:
    """Asks for more signatures if a transaction takes more than this of an asset."""

    asset: str
    above: int
    signatures: int


@dataclass
class PolicyChange:
    """A transaction that replaces the policy of its signer. It does not expire.

    As many keys sign it as the present policy asks for anything, each with ROLE_ALL. Assets are
    refused that `assets` does not name, if `refuse_assets` is set.
    """

    ledger: bytes
    signer: str
    number: int  # one above that of the policy that it replaces
    keys: List[PolicyKey]
    threshold: int = 1
    limits: List[PolicyLimit] = field(default_factory=list)  # by asset, then by amount
    refuse_assets: bool = False
    assets: List[str] = field(default_factory=list)  # by their names
    note: str = ""
    stream: int = 0
    sequence: int = 0

    def encode(self) -> bytes:
        """Return the body: the canonical bytes. Raises MalformedError."""
        self.check()
        return b"".join([
            bytes([VERSION_POLICY]), fixed(self.ledger, HASH_SIZE, "a ledger"),
            string(self.signer), uvarint(self.stream), uvarint(self.sequence),
            uvarint(self.number), elements([each.key + uint(each.role, 1) for each in self.keys]),
            uvarint(self.threshold),
            elements([string(each.asset) + amount(each.above) + uvarint(each.signatures)
                      for each in self.limits]),
            boolean(self.refuse_assets), elements([string(each) for each in self.assets]),
            _note(self.note)])

    def id(self) -> bytes:
        """Return the id: the hash of the body."""
        return transaction_id(self.encode())

    def consents(self) -> Set[str]:
        """Return who has to sign: the signer."""
        return {self.signer}

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        names.organisation(self.signer)
        if not 1 <= len(self.keys) <= names.KEYS_MAX:
            raise MalformedError(f"an organisation has 1 to {names.KEYS_MAX} keys")
        _distinct([each.key for each in self.keys], "a key")
        for key in self.keys:
            if key.role not in range(ROLE_ALL, ROLE_READ + 1):
                raise MalformedError(f"role {key.role}: ROLE_ALL, ROLE_OPEN, ROLE_POST or "
                                     "ROLE_READ")
        if whole(self.number) < 1:
            raise MalformedError("a change of a policy has a number above 0")
        if whole(self.threshold) < 1:
            raise MalformedError(f"a threshold of {self.threshold}: 1 signature at least")
        if len(self.limits) > names.LIMITS_MAX or len(self.assets) > names.POLICY_ASSETS_MAX:
            raise MalformedError(f"at most {names.LIMITS_MAX} limits and "
                                 f"{names.POLICY_ASSETS_MAX} assets")
        for limit in self.limits:
            names.asset(limit.asset)
            if whole(limit.above) < 0 or whole(limit.signatures) < 1:
                raise MalformedError(f"a limit above {limit.above} with {limit.signatures} "
                                     "signatures: at least 0, and 1 signature")
        places = [(each.asset, each.above) for each in self.limits]
        if any(one >= other for one, other in zip(places, places[1:])):
            raise MalformedError("limits out of order: by asset, then by amount, and each once")
        most = max([self.threshold, *(each.signatures for each in self.limits)])
        if most > sum(each.role == ROLE_ALL for each in self.keys):
            raise MalformedError(f"the policy asks for {most} signatures, and fewer keys have "
                                 "ROLE_ALL: it could never be changed again")
        if not self.refuse_assets and self.assets:
            raise MalformedError("assets that are accepted, in a policy that refuses none: set "
                                 "refuse_assets")
        for asset in self.assets:
            names.asset(asset)
        if any(one >= other for one, other in zip(self.assets, self.assets[1:])):
            raise MalformedError("assets out of order: ascending, and each once")

    @classmethod
    def decode(cls, body: bytes) -> "PolicyChange":
        """Decode a body, or raise MalformedError."""
        r = Reader(body)
        if r.byte() != VERSION_POLICY:
            raise MalformedError("the transaction changes no policy")

        def asset() -> str:
            return r.text("bytes of asset", names.ASSET_MAX)

        def signatures() -> int:
            return r.count("signatures", names.KEYS_MAX)

        ledger, signer = r.hash(), r.text("bytes of organisation", names.ORGANISATION_MAX)
        stream, sequence, number = r.uvarint(), r.uvarint(), r.uvarint()
        change = cls(
            ledger, signer, number,
            r.list("keys", names.KEYS_MAX, KEY_SIZE + 1,
                   lambda: PolicyKey(r.take(KEY_SIZE), r.byte())),
            signatures(),
            r.list("limits", names.LIMITS_MAX, 3,
                   lambda: PolicyLimit(asset(), r.amount(), signatures())),
            r.boolean(), r.list("assets", names.POLICY_ASSETS_MAX, 2, asset),
            r.text("bytes of note", names.NOTE_MAX), stream, sequence)
        r.end()
        change.encode()  # which checks names and bounds
        return change


@dataclass
class CharterChange:
    """A transaction that replaces the charter: the operators, and what they ask for.

    The operators sign it, with the name OPERATOR.
    """

    ledger: bytes
    number: int  # one above that of the charter that it replaces
    operators: List[bytes]
    threshold: int = 1
    registration_by_operators: bool = False
    version: int = 0  # of the chains; 0 leaves it
    quotas: Tuple[int, ...] = ()  # streams, accounts, assets, records, pending; or none
    note: str = ""
    stream: int = 0
    sequence: int = 0

    def encode(self) -> bytes:
        """Return the body: the canonical bytes. Raises MalformedError."""
        self.check()
        kind = _CHARTER_QUOTAS if self.quotas else VERSION_CHARTER
        versioned = b""
        if self.version > 1:
            kind = VERSION_CHARTER_LAST
            versioned = uvarint(self.version) + boolean(bool(self.quotas))
        return b"".join([
            bytes([kind]), fixed(self.ledger, HASH_SIZE, "a ledger"), uvarint(self.stream),
            uvarint(self.sequence), uvarint(self.number), elements(self.operators),
            uvarint(self.threshold), boolean(self.registration_by_operators), versioned,
            *(uvarint(each) for each in self.quotas), _note(self.note)])

    def id(self) -> bytes:
        """Return the id: the hash of the body."""
        return transaction_id(self.encode())

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        if not 1 <= len(self.operators) <= names.OPERATORS_MAX:
            raise MalformedError(f"{len(self.operators)} operators, 1 to {names.OPERATORS_MAX} "
                                 "allowed")
        _distinct(self.operators, "an operator's key")
        if not 1 <= whole(self.threshold) <= len(self.operators):
            raise MalformedError(f"a threshold of {self.threshold} of {len(self.operators)} "
                                 "operators")
        if whole(self.number) < 1:
            raise MalformedError("a change of the charter has a number above 0")
        check_quotas(self.quotas)
        if whole(self.version) not in (0, 1):
            check_chain_version(self.version)

    @classmethod
    def decode(cls, body: bytes) -> "CharterChange":
        """Decode a body, or raise MalformedError."""
        r = Reader(body)
        kind = r.byte()
        if not VERSION_CHARTER <= kind <= VERSION_CHARTER_LAST:
            raise MalformedError("the transaction changes no charter")
        ledger, stream, sequence, number = r.hash(), r.uvarint(), r.uvarint(), r.uvarint()
        change = cls(
            ledger, number,
            r.list("operators", names.OPERATORS_MAX, KEY_SIZE, lambda: r.take(KEY_SIZE)),
            r.count("signatures", names.OPERATORS_MAX), r.boolean(), stream=stream,
            sequence=sequence)
        bounded = kind == _CHARTER_QUOTAS
        if kind == VERSION_CHARTER_LAST:
            change.version = check_chain_version(r.uvarint())
            bounded = r.boolean()
        if bounded:
            change.quotas = read_quotas(r)
        change.note = r.text("bytes of note", names.NOTE_MAX)
        r.end()
        change.encode()  # which checks names and bounds
        return change
