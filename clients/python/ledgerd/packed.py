"""Packed bundles: plain transfers of one signer, in a fraction of the bytes.

Nodes take them from version 3 of a chain on, in books of one shard. What the transfers have in
common is in a head, once; then come the names of the accounts, and a short record of each transfer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, List, Sequence, Set

from . import ed25519, names
from .bundle import Signature, signing_message, _bounded
from .codec import (
    AMOUNT_MAX,
    HASH_SIZE,
    UINT64_MAX,
    MalformedError,
    Reader,
    elements,
    fixed,
    string,
    uint,
    uvarint,
)
from .merkle import ProofError, leaf_hash, path_length, root_of, verify_path
from .transaction import VERSION_PACKED, Transaction, transfer

VERSION = 3
PART = 64
_ID_ROOT = HASH_SIZE - 2


def packed_id(root: bytes, place: int) -> bytes:
    """Return the id of a transfer: part of the root, and the place in the bundle."""
    return root[:_ID_ROOT] + uint(place, 2)


def _parts(count: int) -> int:
    return (count + PART - 1) // PART


@dataclass
class Transfer:
    """Moves an amount above zero from one account to another."""

    source: str
    destination: str
    amount: int
    asset: str = names.DEFAULT_ASSET


@dataclass
class Head:
    """What all transfers of a packed bundle have in common."""

    ledger: bytes
    signer: str
    stream: int
    sequence: int  # of the first transfer; each other one has the next
    last_valid: int
    assets: List[str]
    names: int
    count: int
    width: int  # of an amount in bytes

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        names.organisation(self.signer)
        if not 1 <= self.count <= names.BUNDLE_TRANSACTIONS_MAX:
            raise MalformedError(f"{self.count} transfers, 1 to "
                                 f"{names.BUNDLE_TRANSACTIONS_MAX} allowed")
        if not 2 <= self.names <= 2 * self.count:
            raise MalformedError(f"{self.names} names of {self.count} transfers")
        if not 1 <= len(self.assets) <= names.PACKED_ASSETS_MAX:
            raise MalformedError(f"{len(self.assets)} assets, 1 to {names.PACKED_ASSETS_MAX} "
                                 "allowed")
        if not 1 <= self.width <= 16:
            raise MalformedError(f"amounts of {self.width} bytes")
        if self.sequence > UINT64_MAX - self.count:
            raise MalformedError("the nonces overflow")
        for asset in self.assets:
            names.asset(asset)
        if len(set(self.assets)) != len(self.assets):
            raise MalformedError("an asset twice")

    def encode(self) -> bytes:
        """Return the canonical bytes."""
        return b"".join([
            bytes([VERSION]), fixed(self.ledger, HASH_SIZE, "a ledger"), string(self.signer),
            uvarint(self.stream), uvarint(self.sequence), uvarint(self.last_valid),
            elements([string(asset) for asset in self.assets]), uvarint(self.names),
            uvarint(self.count), bytes([self.width])])

    @classmethod
    def read(cls, r: Reader) -> "Head":
        """Take a head from a reader."""
        version = r.byte()
        if version != VERSION:
            raise MalformedError(f"packed bundle version {version}")
        head = cls(r.hash(), r.text("bytes of organisation", names.ORGANISATION_MAX), r.uvarint(),
                   r.uvarint(), r.uvarint(),
                   r.list("assets", names.PACKED_ASSETS_MAX, 2,
                          lambda: r.text("bytes of asset", names.ASSET_MAX)),
                   r.uvarint(), r.uvarint(), r.byte())
        head.check()
        return head

    @property
    def number_width(self) -> int:
        """How many bytes the number of an account has in a record."""
        return 2 if self.names > 256 else 1

    @property
    def record_size(self) -> int:
        """How many bytes a record has."""
        return 2 * self.number_width + (len(self.assets) > 1) + self.width

    @property
    def parts(self) -> int:
        """How many leaves the bundle's tree has."""
        return 1 + _parts(self.names) + _parts(self.count)

    def read_names(self, r: Reader, count: int) -> List[str]:
        """Take the names of one part. Each is checked, and as short as it can be written."""
        found: List[str] = []
        before = b""
        for _ in range(count):
            shared = r.uvarint()
            rest = r.string("bytes of account", names.PATH_MAX)
            if shared > len(before):
                raise MalformedError(f"a name shares {shared} bytes with one of {len(before)}")
            if rest and shared < len(before) and rest[0] == before[shared]:
                raise MalformedError("a name shares more with the one before it")
            before = before[:shared] + rest
            try:
                found.append(names.path(before.decode("ascii")))
            except UnicodeDecodeError:
                raise MalformedError("a malformed account") from None
        return found

    def read_record(self, r: Reader) -> "Record":
        """Take a record from a reader."""
        source, destination = r.uint(self.number_width), r.uint(self.number_width)
        asset = r.byte() if len(self.assets) > 1 else 0
        value = r.uint(self.width)
        if (max(source, destination) >= self.names or source == destination
                or asset >= len(self.assets)):
            raise MalformedError(f"a record of names {source} and {destination} of {self.names}, "
                                 f"asset {asset}")
        if not 0 < value <= AMOUNT_MAX:
            raise MalformedError(f"a transfer of {value}")
        return Record(source, destination, asset, value)


@dataclass
class Record:
    """A transfer within a packed bundle: accounts and asset by their numbers."""

    source: int
    destination: int
    asset: int
    amount: int


@dataclass
class PackedBundle:
    """A packed bundle. Use :meth:`of` to make one, and :meth:`sign` to sign it."""

    head: Head
    transfers: List[Transfer]
    parts: List[bytes]  # the leaves of the tree: the head, names, records
    signatures: List[Signature] = field(default_factory=list)

    packed = True

    @classmethod
    def of(cls, ledger: bytes, signer: str, stream: int, sequence: int,
           transfers: Sequence[Transfer], last_valid: int = 0) -> "PackedBundle":
        """Pack transfers, of which the first has this nonce, and each other one the next."""
        numbers: Dict[str, int] = {}
        assets: Dict[str, int] = {}
        records: List[Record] = []
        for each in transfers:
            if not 0 < each.amount <= AMOUNT_MAX or each.source == each.destination:
                raise MalformedError(f"no plain transfer: {each}")
            names.path(each.source)
            names.path(each.destination)
            records.append(Record(numbers.setdefault(each.source, len(numbers)),
                                  numbers.setdefault(each.destination, len(numbers)),
                                  assets.setdefault(each.asset, len(assets)), each.amount))
        largest = max((each.amount for each in transfers), default=1)
        head = Head(ledger, signer, stream, sequence, last_valid, list(assets), len(numbers),
                    len(records), (largest.bit_length() + 7) // 8)
        head.check()
        parts = [head.encode()]
        paths = list(numbers)
        for first in range(0, len(paths), PART):
            part, before = b"", ""
            for path in paths[first:first + PART]:
                shared = 0
                while shared < min(len(before), len(path)) and before[shared] == path[shared]:
                    shared += 1
                part += uvarint(shared) + string(path[shared:])
                before = path
            parts.append(part)
        for first in range(0, len(records), PART):
            parts.append(b"".join(
                uint(each.source, head.number_width) + uint(each.destination, head.number_width)
                + (bytes([each.asset]) if len(assets) > 1 else b"")
                + uint(each.amount, head.width) for each in records[first:first + PART]))
        return cls(head, list(transfers), parts)

    @classmethod
    def decode(cls, data: bytes) -> "PackedBundle":
        """Decode a packed bundle, or raise MalformedError. Signatures are not verified."""
        if len(data) > names.BUNDLE_BYTES_MAX:
            raise MalformedError(f"a bundle of {len(data)} bytes")
        r = Reader(data)
        head = Head.read(r)
        ends = [0, r.at]
        paths: List[str] = []
        for first in range(0, head.names, PART):
            paths += head.read_names(r, min(PART, head.names - first))
            ends.append(r.at)
        transfers, numbers, assets, width = [], 0, 0, 0
        for place in range(head.count):
            record = head.read_record(r)
            for number in (record.source, record.destination):
                if number > numbers:
                    raise MalformedError("names that are not in the order of their first use")
                numbers = max(numbers, number + 1)
            if record.asset > assets:
                raise MalformedError("assets that are not in the order of their first use")
            assets = max(assets, record.asset + 1)
            width = max(width, (record.amount.bit_length() + 7) // 8)
            made = Transfer(paths[record.source], paths[record.destination], record.amount,
                            head.assets[record.asset])
            if made.source == made.destination:
                raise MalformedError("a transfer from an account to itself")
            transfers.append(made)
            if (place + 1) % PART == 0 or place + 1 == head.count:
                ends.append(r.at)
        if (numbers, assets, width) != (head.names, len(head.assets), head.width):
            raise MalformedError("a name or asset of no transfer, or amounts with more bytes than "
                                 "they need")
        signatures = Signature.read_all(r)
        r.end()
        return cls(head, transfers, [data[a:b] for a, b in zip(ends, ends[1:])], signatures)

    def content(self) -> bytes:
        """Return the canonical bytes without the signatures."""
        return b"".join(self.parts)

    def encode(self) -> bytes:
        """Return the canonical bytes, signatures included. Raises MalformedError."""
        encoded = self.content() + elements([each.encode() for each in self.signatures])
        return _bounded(encoded, self.signatures)

    def root(self) -> bytes:
        """Return the root of the tree over the parts."""
        return root_of([leaf_hash(part) for part in self.parts])

    def message(self) -> bytes:
        """Return what is signed."""
        return signing_message(self.root(), packed=True)

    def sign(self, organisation: str, key: ed25519.PrivateKey) -> "PackedBundle":
        """Add a signature, and return the bundle."""
        self.signatures.append(Signature(organisation, key.public, key.sign(self.message())))
        return self

    def unsigned(self) -> Set[str]:
        """Return the organisations whose signatures are missing."""
        needed = {self.head.signer}
        needed.update(names.organisation_of(each.source) for each in self.transfers)
        return needed - {each.organisation for each in self.signatures}

    def ids(self) -> List[bytes]:
        """Return the transfers' ids."""
        root = self.root()
        return [packed_id(root, place) for place in range(len(self.transfers))]

    def body(self, place: int) -> bytes:
        """Return what shows a transfer: the parts that it is in."""
        r = Reader(self.parts[1 + _parts(self.head.names) + place // PART])
        r.take(place % PART * self.head.record_size)
        record = self.head.read_record(r)
        first, second = record.source // PART, record.destination // PART
        return b"".join([
            bytes([VERSION_PACKED]), string(self.parts[0]), uvarint(place),
            string(self.parts[1 + first]),
            string(b"" if first == second else self.parts[1 + second]),
            string(self.parts[1 + _parts(self.head.names) + place // PART])])


@dataclass
class PackedBody:
    """What shows a transfer of a packed bundle, in a proof and elsewhere."""

    head: Head
    place: int
    transfer: Transfer
    parts: List[bytes]
    places: List[int]  # of the parts among the leaves of the bundle's tree

    @classmethod
    def decode(cls, body: bytes) -> "PackedBody":
        """Decode it, or raise MalformedError."""
        r = Reader(body)
        version = r.byte()
        if version != VERSION_PACKED:
            raise MalformedError(f"transaction version {version} is no packed transfer's")

        def part() -> bytes:
            return r.string("bytes of a bundle's part", names.BODY_MAX)

        encoded_head, place = part(), r.uvarint()
        source, destination, records = part(), part(), part()
        r.end()
        head_reader = Reader(encoded_head)
        head = Head.read(head_reader)
        head_reader.end()
        if place >= head.count:
            raise MalformedError(f"transfer {place} of {head.count}")
        if len(records) != cls._in_part(place, head.count) * head.record_size:
            raise MalformedError(f"a part of {len(records)} bytes with records")
        record_reader = Reader(records)
        record_reader.take(place % PART * head.record_size)
        record = head.read_record(record_reader)
        first, second = record.source // PART, record.destination // PART
        if (first == second) != (not destination):
            raise MalformedError("the part of a name is missing, or there twice")
        parts, places = [encoded_head, source], [0, 1 + first]
        if destination:
            parts.append(destination)
            places.append(1 + second)
        parts.append(records)
        places.append(1 + _parts(head.names) + place // PART)
        shown = Transfer(cls._name(head, source, record.source),
                         cls._name(head, destination or source, record.destination),
                         record.amount, head.assets[record.asset])
        if shown.source == shown.destination:
            raise MalformedError("a transfer from an account to itself")
        return cls(head, place, shown, parts, places)

    @staticmethod
    def _in_part(item: int, count: int) -> int:
        return min(PART, count - item // PART * PART)

    @classmethod
    def _name(cls, head: Head, part: bytes, number: int) -> str:
        r = Reader(part)
        found = head.read_names(r, cls._in_part(number, head.names))
        r.end()
        return found[number % PART]

    def transaction(self) -> Transaction:
        """Return the transfer as a transaction."""
        return transfer(self.head.ledger, self.head.signer, self.head.stream,
                        self.head.sequence + self.place, self.transfer.source,
                        self.transfer.destination, self.transfer.amount, self.transfer.asset,
                        last_valid=self.head.last_valid)

    def verify(self, path: Sequence[bytes], root: bytes) -> None:
        """Raise ProofError unless the path leads from each of the parts to the bundle's root."""
        path = list(path)
        for place, part in zip(self.places, self.parts):
            length = path_length(place, self.head.parts)
            if len(path) < length:
                raise ProofError(f"a path of {length} hashes is missing")
            verify_path(leaf_hash(part), place, self.head.parts, path[:length], root)
            path = path[length:]
        if path:
            raise ProofError(f"{len(path)} hashes too many in the bundle's path")
