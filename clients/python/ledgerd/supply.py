"""Proofs of supplies: what the chains of a book have of a registered asset, and how much there is.

In chains of version 8 and later the state digest has a tree over the assets, and an asset says what
each of its issuers issued and redeemed there. The supply of a book is the sum over the issuers,
each with the shard to which it came last. docs/encoding.md has the form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Tuple

from . import names
from .asset import Issuer, check_terms
from .certificate import FINALITY_BYTES_MAX, Auditor, Finality
from .codec import (
    AMOUNT_MAX,
    HASH_SIZE,
    MalformedError,
    Reader,
    domain,
    elements,
    sha256,
    string,
    uint,
    uvarint,
)
from .genesis import Genesis
from .merkle import ProofError, leaf_hash
from .proof import HEADER_SIZE, Header

_VERSION, _SUPPLY_VERSION = 1, 5
_ARITY, _LEVELS_MAX = 4, 8
_ASSETS_MAX = 1 << 16
_ENTRY_MAX = 32 << 10
_PROOF_MAX = _ENTRY_MAX + _LEVELS_MAX * (1 + _ARITY * HASH_SIZE) + 4096
_KIND_ASSET = 0x73
_ASSETS_DOMAIN = domain("ledgerd/state/4")
_STATE_DOMAIN = domain("ledgerd/state/2")


@dataclass(frozen=True)
class Issuance:
    """What an organisation issued of an asset in one chain."""

    issued: int = 0
    redeemed: int = 0
    waiting: int = 0  # what transactions that wait for other shards may still issue
    arrived: int = 0  # the number of the move with which the issuer came to the shard, or 0

    @property
    def empty(self) -> bool:
        """Whether the issuer issued nothing here."""
        return not (self.issued or self.redeemed or self.waiting)

    @classmethod
    def read(cls, r: Reader) -> "Issuance":
        """Take one from a reader."""
        each = cls(r.amount(), r.amount(), r.amount(), r.uvarint())
        if each.issued < each.redeemed or each.redeemed < 0 or each.waiting < 0:
            raise MalformedError("an issuance out of bounds")
        return each


@dataclass
class ProvenAsset:
    """A registered asset after a block of a chain."""

    number: int  # assets are numbered from 1, as they were registered
    name: str
    owner: str  # the organisation that registered it
    revision: int  # the number of the last change of its terms
    registered: int  # the height of the block; 0 if the chain began with it
    decimals: int
    supply: int
    cap: int
    closed: bool
    issuers: List[Issuer]
    issuances: List[Issuance]  # of the issuers, in their order

    @classmethod
    def decode(cls, entry: bytes) -> "ProvenAsset":
        """Decode an asset as the tree has it, or raise MalformedError."""
        r = Reader(entry)
        kind, number, end = r.byte(), r.uint(4), r.byte()
        if kind != _KIND_ASSET or end:
            raise MalformedError("an entry that is no asset's")
        asset = cls(number, r.text("bytes of asset", names.ASSET_MAX),
                    r.text("bytes of organisation", names.ORGANISATION_MAX), r.uvarint(),
                    r.uvarint(), r.byte(), r.byte(), r.amount(), r.boolean(),
                    r.list("issuers", names.ISSUERS_MAX, 3, lambda: Issuer.read(r)), [])
        asset.issuances = [Issuance.read(r) for _ in asset.issuers]
        r.end()
        names.asset(asset.name)
        names.organisation(asset.owner)
        check_terms(asset.decimals, asset.supply, asset.cap, asset.issuers)
        if not 1 <= number <= _ASSETS_MAX or not asset.revision:
            raise MalformedError(f"asset {number}, revision {asset.revision}")
        return asset

    def same_terms(self, other: "ProvenAsset") -> bool:
        """Report whether two shards say alike what the asset is."""
        return ((self.number, self.name, self.owner, self.decimals, self.supply, self.cap,
                 self.closed, self.issuers)
                == (other.number, other.name, other.owner, other.decimals, other.supply,
                    other.cap, other.closed, other.issuers))


@dataclass(frozen=True)
class Supply:
    """How much there is of an asset."""

    issued: int = 0
    redeemed: int = 0
    outstanding: int = 0
    waiting: int = 0


@dataclass
class AssetProof:
    """Shows what a chain has of a registered asset after a block."""

    entry: bytes
    path: List[List[bytes]]  # from the leaves up: all children of each node above the entry
    assets: int
    asset_root: bytes
    others: bytes
    accounts: int
    account_root: bytes
    header: bytes

    def open(self) -> Tuple[ProvenAsset, Header]:
        """Return the asset and the header of the block after which it is so, or raise ProofError.

        Whether the block is in the chain is SupplyProof's to say.
        """
        try:
            return self._open()
        except MalformedError as error:
            raise ProofError(f"the proof does not hold: {error}") from None

    def _open(self) -> Tuple[ProvenAsset, Header]:
        header = Header.decode(self.header)
        asset = ProvenAsset.decode(self.entry)
        wrong = "a path that does not lead from the entry to the root"
        found, place, count = leaf_hash(self.entry), asset.number - 1, self.assets
        if place >= count:
            raise ProofError(f"asset {asset.number} of {count}")
        for children in self.path:
            within = place % _ARITY
            wanted = min(_ARITY, count - (place - within))
            if count <= 1 or len(children) != wanted or children[within] != found:
                raise ProofError(wrong)
            if wanted > 1:  # a single hash that is left moves up unchanged
                found = sha256(b"\1", *children)
            place, count = place // _ARITY, -(-count // _ARITY)
        if count != 1 or found != self.asset_root:
            raise ProofError(wrong)
        rest = sha256(_ASSETS_DOMAIN, uint(self.assets, 4), self.asset_root, self.others)
        digest = sha256(_STATE_DOMAIN, uint(self.accounts, 8), self.account_root, rest)
        if digest != header.state_digest:
            raise ProofError(f"the state digest of block {header.height} is another one")
        return asset, header

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return b"".join([
            bytes([_VERSION]), string(self.entry),
            elements([elements(children) for children in self.path]), uvarint(self.assets),
            self.asset_root, self.others, uvarint(self.accounts), self.account_root, self.header])

    @classmethod
    def decode(cls, data: bytes) -> "AssetProof":
        """Decode a proof, or raise MalformedError. It does not verify it."""
        r = Reader(data)
        version = r.byte()
        if version != _VERSION:
            raise MalformedError(f"asset proof version {version}")
        proof = cls(r.string("bytes of an asset", _ENTRY_MAX),
                    r.list("levels", _LEVELS_MAX, 1,
                           lambda: r.list("hashes", _ARITY, HASH_SIZE, r.hash)),
                    r.uvarint32(), r.hash(), r.hash(), r.uvarint(), r.hash(),
                    r.take(HEADER_SIZE))
        r.end()
        return proof


@dataclass
class ShardProof:
    """What the chain of one shard proves of an asset, and that the block is final."""

    proof: AssetProof
    finality: Finality


@dataclass
class SupplyProof:
    """Proves the supply of an asset in a whole book: what each shard has, by their numbers."""

    shards: List[ShardProof]

    def verify(self, genesis: Genesis) -> Tuple[Supply, List[Tuple[ProvenAsset, Header]]]:
        """Return the supply, and what each shard has of the asset after which block.

        Raises ProofError or CertificateError unless the proof holds. The genesis is that of any
        shard, of the one that was added last if shards were added.
        """
        if len(self.shards) != genesis.book_shards():
            raise ProofError(f"it is of a book of {len(self.shards)} shards, and the genesis of "
                             f"one of {genesis.book_shards()}")
        found = []
        for shard, each in enumerate(self.shards):
            asset, header = each.proof.open()
            Auditor(genesis.for_shard(shard)).verify(each.finality, header.height, header.hash())
            found.append((asset, header))
        return supply_of([asset for asset, _ in found]), found

    def encode(self) -> bytes:
        """Return the canonical bytes, as `ledgerd asset show --proof --out FILE` keeps them."""
        return bytes([_SUPPLY_VERSION]) + elements(
            [string(each.proof.encode()) + string(each.finality.encode())
             for each in self.shards])

    @classmethod
    def decode(cls, data: bytes) -> "SupplyProof":
        """Decode a proof, or raise MalformedError. It does not verify it."""
        r = Reader(data)
        version = r.byte()
        if version != _SUPPLY_VERSION:
            raise MalformedError(f"supply proof version {version}")
        shards = r.list("shards", names.SHARDS_MAX, 2, lambda: ShardProof(
            AssetProof.decode(r.string("bytes of an asset's proof", _PROOF_MAX)),
            Finality.decode(r.string("bytes of finality", FINALITY_BYTES_MAX))))
        r.end()
        return cls(shards)


def supply_of(shards: List[ProvenAsset]) -> Supply:
    """Add up the issuances of an asset, given as the chains of all shards have it.

    Each issuer counts where it came to last. Raises ProofError if they are not of one asset with
    the same terms, or if an issuer issued in two shards without a move between them.
    """
    if not shards:
        return Supply()
    first = shards[0]
    if not all(each.same_terms(first) for each in shards):
        raise ProofError(f"asset {first.name} differs between shards: its terms were changing")
    counted: List[Issuance] = []
    for place, issuer in enumerate(first.issuers):
        issuances = [each.issuances[place] for each in shards]
        arrived = max(each.arrived for each in issuances)
        last = [each for each in issuances if each.arrived == arrived and not each.empty]
        if len(last) > 1:
            raise ProofError(f"{issuer.organisation} issued {first.name} in two shards at once")
        counted += last
    issued = sum(each.issued for each in counted)
    redeemed = sum(each.redeemed for each in counted)
    waiting = sum(each.waiting for each in counted)
    if issued > AMOUNT_MAX or waiting > AMOUNT_MAX:
        raise ProofError("the supply has more than 128 bits")
    return Supply(issued, redeemed, issued - redeemed, waiting)
