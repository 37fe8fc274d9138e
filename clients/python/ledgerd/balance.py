"""Proofs of balances: what an account has after a block, and its terms, from the state digest.

In chains of version 2 and later the state digest has a tree over all accounts, by their numbers.
docs/encoding.md has the form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

from . import names
from .certificate import FINALITY_BYTES_MAX, Auditor, CertificateError, Finality
from .codec import (
    HASH_SIZE,
    MalformedError,
    Reader,
    domain,
    elements,
    sha256,
    string,
    uint,
    utf8,
    uvarint,
)
from .genesis import Genesis
from .merkle import ProofError, leaf_hash
from .proof import HEADER_SIZE, Header
from .terms import AccountNow, Standing

_VERSION = 4
_ARITY = 4
_ENTRY_MAX = 1 << 20
_SIBLINGS_MAX = 3 * 32
_ASSETS_MAX = 64
_STATE_DOMAIN = domain("ledgerd/state/2")


@dataclass(frozen=True)
class ProvenBalance:
    """What an account has of an asset. `amount` is without what is set aside."""

    amount: int = 0
    set_aside: int = 0
    incoming: int = 0


@dataclass(frozen=True)
class ProvenAccount:
    """An account after a block."""

    account: str
    number: int  # accounts are numbered from 1, as they were opened
    issuer: bool
    alias: str
    opened: int  # the height of the block
    history: int  # how many transactions changed it
    balances: Dict[str, ProvenBalance]  # by asset
    standing: Optional[Standing]  # None if it never had terms

    def balance(self, asset: str = names.DEFAULT_ASSET) -> ProvenBalance:
        """Return the balance of an asset."""
        return self.balances.get(asset, ProvenBalance())

    def now(self) -> AccountNow:
        """Return its terms, for a signer that is about to change them."""
        if self.standing is None:
            return AccountNow(self.account, self.alias)
        return AccountNow(self.account, self.alias, self.standing.revision, self.standing.guarded,
                          self.standing.terms)

    @classmethod
    def decode(cls, account: str, entry: bytes) -> "ProvenAccount":
        """Decode an account as the tree has it, or raise MalformedError."""
        r = Reader(entry)
        number, issuer = r.uvarint(), r.boolean()
        alias = r.text("bytes of alias", names.ALIAS_MAX)
        opened, history = r.uvarint(), r.uvarint()

        def asset() -> str:
            return r.text("bytes of asset", names.ASSET_MAX)

        balances = {name: ProvenBalance(value) for name, value in
                    r.list("balances", _ASSETS_MAX, 2, lambda: (asset(), r.amount()))}
        standing = None
        if r.left:
            holds = r.list("holds", _ASSETS_MAX, 3, lambda: (asset(), r.amount(), r.amount()))
            if not holds and not r.left:
                raise MalformedError("nothing is set aside, and listed")
            for name, set_aside, incoming in holds:
                known = balances.get(name, ProvenBalance())
                balances[name] = ProvenBalance(known.amount - set_aside, set_aside, incoming)
        if r.left:
            standing = Standing.read(r)
        r.end()
        return cls(account, number, issuer, alias, opened, history, balances, standing)


@dataclass
class BalanceProof:
    """Shows what an account has after a block."""

    header: bytes
    account: str
    entry: bytes
    accounts: int  # how many there are, which gives the tree its shape
    siblings: List[bytes]  # of each node above the account, the lowest first
    others: bytes
    finality: Optional[Finality] = None

    def open(self) -> Tuple[ProvenAccount, Header]:
        """Return the account and the header of the block after which it is so, or raise ProofError.

        Whether the block is in the chain is verify's to say.
        """
        try:
            return self._open()
        except MalformedError as error:
            raise ProofError(f"the proof does not hold: {error}") from None

    def _open(self) -> Tuple[ProvenAccount, Header]:
        header = Header.decode(self.header)
        account = ProvenAccount.decode(names.path(self.account), self.entry)
        if not 1 <= account.number <= self.accounts:
            raise ProofError(f"the account is number {account.number} of {self.accounts}")
        found = leaf_hash(b"a" + utf8(self.account) + b"\0" + self.entry)
        rest, place, count = self.siblings, account.number - 1, self.accounts
        while count > 1:
            within = place % _ARITY
            others = min(_ARITY, count - (place - within)) - 1
            if len(rest) < others:
                raise ProofError("it has too few hashes")
            if others:  # a single hash that is left moves up unchanged
                found = sha256(b"\1", *rest[:within], found, *rest[within:others])
            rest, place, count = rest[others:], place // _ARITY, -(-count // _ARITY)
        if rest:
            raise ProofError("it has too many hashes")
        if sha256(_STATE_DOMAIN, uint(self.accounts, 8), found, self.others) != (
                header.state_digest):
            raise ProofError(f"the state digest of block {header.height} is another one")
        return account, header

    def verify(self, genesis: Genesis) -> Tuple[ProvenAccount, Header, int]:
        """Return the account, the header of the final block after which it is so, and the shard.

        Raises ProofError or CertificateError unless the proof holds from the genesis on, which is
        that of any shard.
        """
        account, header = self.open()
        if self.finality is None:
            raise CertificateError(f"block {header.height}: the proof has no certificate")
        for shard in range(genesis.book_shards()):
            try:
                Auditor(genesis.for_shard(shard)).verify(self.finality, header.height,
                                                         header.hash())
                return account, header, shard
            except CertificateError:
                if shard + 1 == genesis.book_shards():
                    raise
        raise CertificateError("a book without shards")

    def encode(self) -> bytes:
        """Return the canonical bytes, as `ledgerd account show --proof --out FILE` keeps them."""
        return b"".join([
            bytes([_VERSION]), string(self.finality.encode() if self.finality else b""),
            self.header, string(self.account), string(self.entry), uvarint(self.accounts),
            elements(self.siblings), self.others])

    @classmethod
    def decode(cls, data: bytes) -> "BalanceProof":
        """Decode a proof, or raise MalformedError. It does not verify it."""
        r = Reader(data)
        version = r.byte()
        if version != _VERSION:
            raise MalformedError(f"account proof version {version}")
        finality = r.string("bytes of finality", FINALITY_BYTES_MAX)
        proof = cls(r.take(HEADER_SIZE), r.text("bytes of account", names.PATH_MAX),
                    r.string("bytes of entry", _ENTRY_MAX), r.uvarint(),
                    r.list("siblings", _SIBLINGS_MAX, HASH_SIZE, r.hash), r.hash(),
                    Finality.decode(finality) if finality else None)
        r.end()
        return proof
