"""Proofs that a transaction is in a block, with its result, and that its bundle was signed.

A proof alone shows no more than that: whose the keys are, and whether the block is in the chain,
comes from elsewhere. Module certificate shows the second with the genesis alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional, Sequence, Tuple

from . import names
from .bundle import Signature, signing_message
from .codec import (
    MalformedError,
    Reader,
    boolean,
    domain,
    elements,
    sha256,
    string,
    uint,
)
from .merkle import ProofError, leaf_hash, path_root, verify_path
from .packed import PackedBody, packed_id
from .results import APPLIED, CODES, NO_ITEM, reason_code
from .transaction import VERSION_PACKED, Transaction, decode_body, transaction_id

HEADER_SIZE = 205

_BLOCK_DOMAIN = domain("ledgerd/block/1")
_PROOF, _PLACED_PROOF = 1, 3
_KIND_BODIES, _KIND_PACKED = 1, 2


@dataclass
class Header:
    """A block's header, whose hash is the block's."""

    by_bundle: bool
    height: int
    previous: bytes
    epoch: int
    round: int
    time: int
    transactions_root: bytes
    results_root: bytes
    bundles_root: bytes
    state_digest: bytes
    transactions: int
    total: int

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return b"".join([
            b"\2" if self.by_bundle else b"\1", uint(self.height, 8), self.previous,
            uint(self.epoch, 8), uint(self.round, 8), uint(self.time, 8), self.transactions_root,
            self.results_root, self.bundles_root, self.state_digest, uint(self.transactions, 4),
            uint(self.total, 8)])

    def hash(self) -> bytes:
        """Return the block's hash."""
        return sha256(_BLOCK_DOMAIN, self.encode())

    @classmethod
    def decode(cls, data: bytes) -> "Header":
        """Decode a header, or raise MalformedError."""
        r = Reader(data)
        version = r.byte()
        if version not in (1, 2):
            raise MalformedError(f"header version {version}")
        header = cls(version == 2, r.uint(8), r.hash(), r.uint(8), r.uint(8), r.uint(8), r.hash(),
                     r.hash(), r.hash(), r.hash(), r.uint(4), r.uint(8))
        r.end()
        return header


@dataclass(frozen=True)
class Result:
    """What became of a transaction in a block: a code, and what part it is about."""

    code: int
    item: int

    @property
    def applied(self) -> bool:
        """Whether the transaction took effect."""
        return self.code == APPLIED

    @property
    def reason(self) -> str:
        """The code as the API's word for it, "" if it was applied."""
        return reason_code(self.code)

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return bytes([self.code]) + uint(self.item, 4)

    @classmethod
    def read(cls, r: Reader) -> "Result":
        """Take one from a reader."""
        result = cls(r.byte(), r.uint(4))
        if result.code >= CODES:
            raise MalformedError(f"result {result.code}")
        return result


def _encode_path(path: Sequence[bytes]) -> bytes:
    return elements(list(path))


def _read_path(r: Reader) -> List[bytes]:
    return r.list("hashes", names.PATH_HASHES_MAX, 32, r.hash)


@dataclass
class Placing:
    """Where the transaction's bundle is in a block by bundle."""

    bundle: int
    bundles: int
    first: int
    kept: int
    transaction_path: List[bytes]
    result_path: List[bytes]
    all_applied: bool

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return b"".join([uint(self.bundle, 4), uint(self.bundles, 4), uint(self.first, 4),
                         uint(self.kept, 4), _encode_path(self.transaction_path),
                         _encode_path(self.result_path), boolean(self.all_applied)])

    @classmethod
    def read(cls, r: Reader) -> "Placing":
        """Take one from a reader."""
        return cls(r.uint(4), r.uint(4), r.uint(4), r.uint(4), _read_path(r), _read_path(r),
                   r.boolean())


@dataclass
class Proof:
    """Shows that a transaction is in a block, with its result. Call :meth:`verify`."""

    body: bytes
    id: bytes
    header: bytes
    block_hash: bytes
    index: int
    count: int
    transaction_path: List[bytes]
    result: Result
    result_path: List[bytes]
    bundle_index: int
    bundle_count: int
    bundle_path: List[bytes]
    bundle_root: bytes
    signatures: List[Signature] = field(default_factory=list)
    placing: Optional[Placing] = None

    @property
    def packed(self) -> bool:
        """Whether the transaction is a transfer of a packed bundle."""
        return self.body[:1] == bytes([VERSION_PACKED])

    def block(self) -> Header:
        """Return the header of the block."""
        return Header.decode(self.header)

    def transaction(self) -> Transaction:
        """Return the transaction, or raise MalformedError if it is not a client's."""
        if self.packed:
            return PackedBody.decode(self.body).transaction()
        return Transaction.decode(self.body)

    def verify(self) -> None:
        """Raise ProofError unless the proof holds.

        Then the transaction is in the block with the proof's result, and the keys of its
        signatures signed its bundle. Whether the block is in the chain is CertifiedProof's to say.
        """
        try:
            self._verify()
        except MalformedError as error:
            raise ProofError(f"the proof does not hold: {error}") from None

    def _verify(self) -> None:
        header = Header.decode(self.header)
        if header.hash() != self.block_hash:
            raise ProofError("the header has another hash")
        if header.transactions != self.count:
            raise ProofError(f"the block has {header.transactions} transactions")
        self._verify_bundle()
        if header.by_bundle:
            if self.placing is None:
                raise ProofError("it does not place the bundle in its block")
            self._verify_placing(header, self.placing)
            return
        if self.placing is not None or self.packed:
            raise ProofError("it is not of such a block")
        verify_path(leaf_hash(self.id), self.index, self.count, self.transaction_path,
                    header.transactions_root)
        verify_path(leaf_hash(self.id + self.result.encode()), self.index, self.count,
                    self.result_path, header.results_root)

    def _verify_bundle(self) -> None:
        if self.packed:
            body = PackedBody.decode(self.body)
            if self.id != packed_id(self.bundle_root, body.place):
                raise ProofError("the body has another id")
            if (self.bundle_index, self.bundle_count) != (body.place, body.head.count):
                raise ProofError(f"the body is transfer {body.place} of {body.head.count}")
            body.verify(self.bundle_path, self.bundle_root)
        else:
            decode_body(self.body)
            if transaction_id(self.body) != self.id:
                raise ProofError("the body has another id")
            verify_path(leaf_hash(self.id), self.bundle_index, self.bundle_count, self.bundle_path,
                        self.bundle_root)
        message = signing_message(self.bundle_root, self.packed)
        for signature in self.signatures:
            if not signature.verify(message):
                raise ProofError(f"the signature of {signature.organisation or 'an operator'}")

    def _verify_placing(self, header: Header, placed: Placing) -> None:
        within = self.index - placed.first
        if not 0 <= within < placed.kept or placed.first + placed.kept > self.count:
            raise ProofError(f"transaction {self.index} is not among the {placed.kept} of its "
                             f"bundle from {placed.first} on")
        if self.packed:
            if (self.transaction_path or placed.kept != self.bundle_count
                    or within != self.bundle_index):
                raise ProofError("a packed bundle is in a block as a whole")
            kind, root = _KIND_PACKED, self.bundle_root
        else:
            kind = _KIND_BODIES
            root = path_root(leaf_hash(self.id), within, placed.kept, self.transaction_path)
        part = bytes([kind]) + uint(placed.first, 4) + uint(placed.kept, 4) + root
        verify_path(leaf_hash(part), placed.bundle, placed.bundles, placed.transaction_path,
                    header.transactions_root)
        if placed.all_applied:
            if self.result != Result(APPLIED, NO_ITEM) or self.result_path:
                raise ProofError("all transactions of the bundle were applied")
            results = part + b"\0"
        else:
            results = part + b"\1" + path_root(leaf_hash(self.result.encode()), within,
                                                placed.kept, self.result_path)
        verify_path(leaf_hash(results), placed.bundle, placed.bundles, placed.result_path,
                    header.results_root)

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return b"".join([
            bytes([_PLACED_PROOF if self.placing else _PROOF]), string(self.body), self.id,
            string(self.header), self.block_hash, uint(self.index, 4), uint(self.count, 4),
            _encode_path(self.transaction_path), self.result.encode(),
            _encode_path(self.result_path), self.placing.encode() if self.placing else b"",
            uint(self.bundle_index, 4), uint(self.bundle_count, 4),
            _encode_path(self.bundle_path), self.bundle_root,
            elements([each.encode() for each in self.signatures])])

    @classmethod
    def decode(cls, data: bytes) -> "Proof":
        """Decode a proof, or raise MalformedError. It does not verify it."""
        r = Reader(data)
        version = r.byte()
        if version not in (_PROOF, _PLACED_PROOF):
            raise MalformedError(f"proof version {version}")
        body, identity = r.string("bytes of transaction", names.BODY_MAX), r.hash()
        header, block_hash = r.string("bytes of header", HEADER_SIZE), r.hash()
        place: Tuple[int, int] = (r.uint(4), r.uint(4))
        transaction_path, result, result_path = _read_path(r), Result.read(r), _read_path(r)
        placing = Placing.read(r) if version == _PLACED_PROOF else None
        proof = cls(body, identity, header, block_hash, *place, transaction_path, result,
                    result_path, r.uint(4), r.uint(4), _read_path(r), r.hash(),
                    Signature.read_all(r), placing)
        r.end()
        return proof
