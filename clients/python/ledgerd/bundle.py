"""Bundles: transactions that are signed together, once for each organisation.

A bundle holds the bodies of transactions of any kind; module packed has the other form, for plain
transfers of one signer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable, List, Protocol, Sequence, Set

from . import ed25519, names
from .book import BookChange
from .codec import SIGNATURE_SIZE, MalformedError, Reader, domain, elements, fixed, string
from .merkle import leaf_hash, root_of
from .policy import CharterChange
from .transaction import MembershipChange, decode_body, transaction_id

OPERATOR = ""

_SIGNING_DOMAIN = domain("ledgerd/bundle/1")
_PACKED_SIGNING_DOMAIN = domain("ledgerd/bundle/2")


def signing_message(root: bytes, packed: bool) -> bytes:
    """Return what the signatures of a bundle sign."""
    return (_PACKED_SIGNING_DOMAIN if packed else _SIGNING_DOMAIN) + root


@dataclass
class Signature:
    """An organisation's signature of a bundle, by one of its keys; an operator has no name."""

    organisation: str
    key: bytes
    signature: bytes

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        if self.organisation != OPERATOR:
            names.organisation(self.organisation)
        return (string(self.organisation) + fixed(self.key, ed25519.KEY_SIZE, "a key")
                + fixed(self.signature, SIGNATURE_SIZE, "a signature"))

    def verify(self, message: bytes) -> bool:
        """Report whether it signs the message. Whose key it is has to come from elsewhere."""
        return ed25519.verify(self.key, self.signature, message)

    @classmethod
    def read_all(cls, r: Reader) -> "List[Signature]":
        """Take the signatures of a bundle from a reader."""
        def one() -> Signature:
            signature = cls(r.text("bytes of organisation", names.ORGANISATION_MAX),
                            r.take(ed25519.KEY_SIZE), r.take(SIGNATURE_SIZE))
            if signature.organisation != OPERATOR:
                names.organisation(signature.organisation)
            return signature
        return r.list("signatures", names.BUNDLE_SIGNATURES_MAX, 97, one)


class Body(Protocol):
    """Anything that has a body: a Transaction, a Cancellation, a MembershipChange."""

    def encode(self) -> bytes:
        """Return the body."""


@dataclass
class Bundle:
    """Bodies of transactions, and signatures over all of them at once."""

    bodies: List[bytes]
    signatures: List[Signature] = field(default_factory=list)

    packed = False

    def __post_init__(self) -> None:
        if not 1 <= len(self.bodies) <= names.BUNDLE_TRANSACTIONS_MAX:
            raise MalformedError(f"a bundle of {len(self.bodies)} transactions, 1 to "
                                 f"{names.BUNDLE_TRANSACTIONS_MAX} allowed")

    @classmethod
    def of(cls, transactions: Iterable[Body]) -> "Bundle":
        """Make a bundle of transactions, to be signed."""
        return cls([each.encode() for each in transactions])

    def ids(self) -> List[bytes]:
        """Return the transactions' ids."""
        return [transaction_id(body) for body in self.bodies]

    def root(self) -> bytes:
        """Return the root of the tree over the ids."""
        return root_of([leaf_hash(each) for each in self.ids()])

    def message(self) -> bytes:
        """Return what is signed."""
        return signing_message(self.root(), packed=False)

    def sign(self, organisation: str, key: ed25519.PrivateKey) -> "Bundle":
        """Add a signature, and return the bundle."""
        self.signatures.append(Signature(organisation, key.public, key.sign(self.message())))
        return self

    def unsigned(self) -> Set[str]:
        """Return the organisations whose signatures of the clients' transactions are missing."""
        needed: Set[str] = set()
        for body in self.bodies:
            decoded = decode_body(body)
            # Of the operators' the node says what is missing.
            if decoded is not None and not isinstance(
                    decoded, (MembershipChange, CharterChange, BookChange)):
                needed |= decoded.consents()
        return needed - {each.organisation for each in self.signatures}

    def encode(self) -> bytes:
        """Return the canonical bytes, signatures included. Raises MalformedError."""
        encoded = (b"\1" + elements([string(body) for body in self.bodies])
                   + elements([each.encode() for each in self.signatures]))
        return _bounded(encoded, self.signatures)

    @classmethod
    def decode(cls, data: bytes) -> "Bundle":
        """Decode a bundle of bodies, or raise MalformedError. Signatures are not verified."""
        if len(data) > names.BUNDLE_BYTES_MAX:
            raise MalformedError(f"a bundle of {len(data)} bytes")
        r = Reader(data)
        version = r.byte()
        if version != 1:
            raise MalformedError(f"bundle version {version}")
        bodies = r.list("transactions", names.BUNDLE_TRANSACTIONS_MAX, 2,
                        lambda: r.string("bytes of transaction", names.BODY_MAX))
        signatures = Signature.read_all(r)
        r.end()
        for body in bodies:
            decode_body(body)
        return cls(bodies, signatures)


def _bounded(encoded: bytes, signatures: Sequence[Signature]) -> bytes:
    if len(signatures) > names.BUNDLE_SIGNATURES_MAX:
        raise MalformedError(f"{len(signatures)} signatures, at most "
                             f"{names.BUNDLE_SIGNATURES_MAX} allowed")
    if len(encoded) > names.BUNDLE_BYTES_MAX:
        raise MalformedError(f"a bundle of {len(encoded)} bytes, at most "
                             f"{names.BUNDLE_BYTES_MAX} allowed")
    return encoded


def bundles_of(transactions: Iterable[Body],
               most: int = names.BUNDLE_TRANSACTIONS_MAX) -> List[Bundle]:
    """Split transactions, in order, into as few bundles as fit, to be signed once each.

    A bundle has at most `most` transactions, and leaves room for the most signatures.
    """
    room = names.BUNDLE_BYTES_MAX - 16 - names.BUNDLE_SIGNATURES_MAX * 161
    bundles: List[Bundle] = []
    bodies: List[bytes] = []
    size = 0
    for transaction in transactions:
        body = transaction.encode()
        if bodies and (size + len(body) + 3 > room or len(bodies) == most):
            bundles.append(Bundle(bodies))
            bodies, size = [], 0
        bodies.append(body)
        size += len(body) + 3
    if bodies:
        bundles.append(Bundle(bodies))
    return bundles
