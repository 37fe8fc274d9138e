"""Certificates: they prove with the genesis alone that a block is final.

Members sign that they stored a block. The signatures of more than half of the members are its
certificate. Members of the beginning are those of the genesis; a join or a leave is in a block that
the members before it certify. So certificates lead from the genesis to the members of any block,
and an :class:`Auditor` follows them. docs/certificates.md says what a reader still has to trust.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Optional

from . import ed25519, names
from .codec import (
    SIGNATURE_SIZE,
    MalformedError,
    Reader,
    boolean,
    domain,
    elements,
    fixed,
    string,
    uint,
)
from .genesis import Genesis
from .merkle import ProofError
from .proof import HEADER_SIZE, Header, Proof
from .transaction import JOIN, LEAVE, Member, MembershipChange

_STATEMENT_DOMAIN = domain("ledgerd/stored/1")
_PROOF_BYTES_MAX = names.BODY_MAX + HEADER_SIZE + 3 * (1 + names.PATH_HASHES_MAX * 32) + 4 * 32 \
    + 64 + names.BUNDLE_SIGNATURES_MAX * (names.ORGANISATION_MAX + 100)
_CERTIFICATE_BYTES_MAX = 1 + 8 + 8 + 32 + 5 + names.MEMBERS_MAX * (4 + SIGNATURE_SIZE) + 1 + 5 \
    + _PROOF_BYTES_MAX
FINALITY_BYTES_MAX = 64 << 20


class CertificateError(ValueError):
    """A certificate that does not hold."""


@dataclass
class Seal:
    """A member's signature of a block."""

    member: int
    signature: bytes

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return uint(self.member, 4) + fixed(self.signature, SIGNATURE_SIZE, "a signature")

    @classmethod
    def read(cls, r: Reader) -> "Seal":
        """Take one from a reader."""
        seal = cls(r.uint(4), r.take(SIGNATURE_SIZE))
        if seal.member >= names.MEMBER_INDEXES_MAX:
            raise MalformedError(f"member {seal.member}")
        return seal


def statement_message(chain: bytes, epoch: int, height: int, block_hash: bytes) -> bytes:
    """Return what a member signs of a block that it stored."""
    return _STATEMENT_DOMAIN + chain + uint(epoch, 8) + uint(height, 8) + block_hash


@dataclass
class Certificate:
    """Statements of several members about one block."""

    epoch: int  # joins and leaves in the blocks before
    height: int
    hash: bytes
    seals: List[Seal]
    change: Optional[Proof] = None  # of the join or leave in the block, if it has one

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return b"".join([
            b"\1", uint(self.epoch, 8), uint(self.height, 8), self.hash,
            elements([each.encode() for each in self.seals]), boolean(self.change is not None),
            string(self.change.encode()) if self.change else b""])

    @classmethod
    def decode(cls, data: bytes) -> "Certificate":
        """Decode a certificate, or raise MalformedError. It does not verify it."""
        r = Reader(data)
        version = r.byte()
        if version != 1:
            raise MalformedError(f"certificate version {version}")
        epoch, height, block_hash = r.uint(8), r.uint(8), r.hash()
        seals = r.list("seals", names.MEMBERS_MAX, 4 + SIGNATURE_SIZE, lambda: Seal.read(r))
        if not height or not seals:
            raise MalformedError("a certificate of the genesis, or without signatures")
        if any(a.member >= b.member for a, b in zip(seals, seals[1:])):
            raise MalformedError("seals not in the order of their members")
        change = Proof.decode(r.string("bytes of proof", _PROOF_BYTES_MAX)) if r.boolean() else None
        r.end()
        return cls(epoch, height, block_hash, seals, change)

    def membership_change(self) -> MembershipChange:
        """Return the verified join or leave in the block, or raise CertificateError."""
        proof = self.change
        if proof is None or proof.block_hash != self.hash:
            raise CertificateError(f"block {self.height}: it does not prove the change of the "
                                   "members")
        try:
            proof.verify()
            change = MembershipChange.decode(proof.body)
        except (ProofError, MalformedError) as error:
            raise CertificateError(f"the change of the members in block {self.height}: "
                                   f"{error}") from None
        if proof.block().height != self.height:
            raise CertificateError(f"block {self.height}: the header of its change has another "
                                   "height")
        if change.kind not in (JOIN, LEAVE) or not proof.result.applied:
            raise CertificateError(f"block {self.height}: the transaction changed no members")
        return change


@dataclass
class Finality:
    """Leads from the genesis to a block."""

    changes: List[Certificate]  # of all joins and leaves before the certified block, in order
    headers: List[bytes]  # of the blocks after the proven one, up to the certified one
    certificate: Certificate

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return (b"\1" + elements([string(each.encode()) for each in self.changes])
                + elements(list(self.headers)) + string(self.certificate.encode()))

    @classmethod
    def decode(cls, data: bytes) -> "Finality":
        """Decode it, or raise MalformedError. It does not verify it."""
        r = Reader(data)
        version = r.byte()
        if version != 1:
            raise MalformedError(f"finality version {version}")

        def certificate() -> Certificate:
            return Certificate.decode(r.string("bytes of certificate", _CERTIFICATE_BYTES_MAX))

        finality = cls(r.list("changes", 2 * names.MEMBER_INDEXES_MAX, 128, certificate),
                       r.list("headers", names.FINALITY_HEADERS_MAX, HEADER_SIZE,
                              lambda: r.take(HEADER_SIZE)), certificate())
        r.end()
        return finality


class Auditor:
    """Follows a chain's members from the genesis, from certificate to certificate."""

    def __init__(self, genesis: Genesis) -> None:
        """Begin with the members of the genesis."""
        self.chain = genesis.hash()
        self.epoch = 0
        self.since = 0  # the height of the block that began the epoch
        self.members: Dict[int, Member] = dict(enumerate(genesis.members))
        self._next = len(self.members)

    @property
    def majority(self) -> int:
        """How many members have to sign: more than half."""
        return len(self.members) // 2 + 1

    def check(self, certificate: Certificate) -> None:
        """Raise CertificateError unless the present members certify the block."""
        if certificate.epoch != self.epoch:
            raise CertificateError(f"block {certificate.height} is certified by members of epoch "
                                   f"{certificate.epoch}, not {self.epoch}")
        if certificate.height <= self.since:
            raise CertificateError(f"block {certificate.height} is not of epoch {self.epoch}, "
                                   f"which began at block {self.since}")
        if len(certificate.seals) < self.majority:
            raise CertificateError(f"{len(certificate.seals)} of {len(self.members)} members "
                                   f"signed block {certificate.height}")
        message = statement_message(self.chain, certificate.epoch, certificate.height,
                                    certificate.hash)
        before = -1
        for seal in certificate.seals:
            member = self.members.get(seal.member)
            if seal.member <= before or member is None:
                raise CertificateError(f"of block {certificate.height}: {seal.member} is no "
                                       f"member of epoch {self.epoch}, or signed twice")
            before = seal.member
            if not ed25519.verify(member.key, seal.signature, message):
                raise CertificateError(f"the signature of member {seal.member} of block "
                                       f"{certificate.height}")

    def follow(self, certificate: Certificate) -> None:
        """Go on to the members after a join or leave. It passes over those of old epochs."""
        if certificate.epoch < self.epoch:
            return
        self.check(certificate)
        change = certificate.membership_change()
        members = dict(self.members)
        if change.kind == JOIN and change.member is not None:
            # The transaction may repeat what was so. The member would count twice.
            if any(each.key == change.member.key for each in members.values()):
                raise CertificateError(f"the member that joined at block {certificate.height} "
                                       "was one")
            members[self._next] = change.member
            self._next += 1
        elif len(members) > 1 and change.index in members:
            del members[change.index]
        else:
            raise CertificateError(f"member {change.index} left at block {certificate.height}, "
                                   "and was none or the last one")
        self.members, self.epoch, self.since = members, self.epoch + 1, certificate.height

    def verify(self, finality: Finality, height: int, block_hash: bytes) -> None:
        """Raise CertificateError unless the block is final."""
        block = height
        for encoded in finality.headers:
            try:
                header = Header.decode(encoded)
            except MalformedError as error:
                raise CertificateError(f"a header after block {block}: {error}") from None
            if header.height != height + 1 or header.previous != block_hash:
                raise CertificateError(f"a header does not follow block {height}")
            height, block_hash = header.height, header.hash()
        certificate = finality.certificate
        if certificate.height != height or certificate.hash != block_hash:
            raise CertificateError(f"it is of block {certificate.height}, not of block {height}")
        for i, change in enumerate(finality.changes):
            if change.epoch != finality.changes[0].epoch + i:
                raise CertificateError("the changes of the members are not in order")
            self.follow(change)
        self.check(certificate)

    def signers(self, certificate: Certificate) -> List[str]:
        """Return the names of the members that signed a certificate that holds."""
        return [self.members[seal.member].name for seal in certificate.seals]


@dataclass
class CertifiedProof:
    """A proof, and what shows that its block is final: the content of a .proof file."""

    proof: Proof
    finality: Optional[Finality] = field(default=None)

    def verify(self, genesis: Genesis) -> Auditor:
        """Raise ProofError or CertificateError unless it holds from the genesis on.

        Returns the auditor, which knows the members that certified the block.
        """
        self.proof.verify()
        header = self.proof.block()
        if self.finality is None:
            raise CertificateError(f"block {header.height}: the proof has no certificate")
        auditor = Auditor(genesis)
        auditor.verify(self.finality, header.height, self.proof.block_hash)
        return auditor

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        if self.finality is None:
            return self.proof.encode()
        return b"\2" + string(self.finality.encode()) + self.proof.encode()

    @classmethod
    def decode(cls, data: bytes) -> "CertifiedProof":
        """Decode it, or raise MalformedError. It does not verify it."""
        if data[:1] != b"\2":
            return cls(Proof.decode(data))
        r = Reader(data[1:])
        finality = Finality.decode(r.string("bytes of finality", FINALITY_BYTES_MAX))
        return cls(Proof.decode(r.take(r.left)), finality)
