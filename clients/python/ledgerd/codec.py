"""The values of which every encoding is made: integers, amounts, strings, lists.

docs/encoding.md has the words. Each value has one encoding, and a :class:`Reader` refuses all
others: a longer form of an integer, bytes that are left at the end, a boolean of 2.
"""

from __future__ import annotations

import hashlib
from typing import Callable, List, TypeVar

HASH_SIZE = 32
SIGNATURE_SIZE = 64

AMOUNT_MIN = -(1 << 127)
AMOUNT_MAX = (1 << 127) - 1
UINT64_MAX = (1 << 64) - 1

T = TypeVar("T")


class MalformedError(ValueError):
    """Bytes or values that are no encoding of what they should be."""


def sha256(*parts: bytes) -> bytes:
    """Hash the concatenation of the parts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def domain(text: str) -> bytes:
    """Return what begins a hashed or signed message of this kind: the text and a zero byte."""
    return text.encode("ascii") + b"\0"


def whole(value: int) -> int:
    """Return the integer, or raise MalformedError for what a caller without types may give."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedError(f"{value!r} is no integer: amounts, nonces and times are whole "
                             "numbers, amounts in the smallest unit of the asset")
    return value


def uvarint(value: int) -> bytes:
    """Encode an unsigned integer of at most 64 bits in LEB128."""
    if not 0 <= whole(value) <= UINT64_MAX:
        raise MalformedError(f"{value} is no unsigned integer of 64 bits")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def uint(value: int, size: int) -> bytes:
    """Encode an unsigned integer of a fixed size, the highest byte first."""
    try:
        return value.to_bytes(size, "big")
    except OverflowError:
        raise MalformedError(f"{value} is no unsigned integer of {8 * size} bits") from None


def string(value: bytes | str) -> bytes:
    """Encode bytes, or text in UTF-8, with their length before them."""
    if isinstance(value, str):
        value = utf8(value)
    return uvarint(len(value)) + value


def utf8(value: str) -> bytes:
    """Return the text in UTF-8. What Reader.text found that is none goes back to its bytes."""
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise MalformedError(f"not text: {error}") from None


def boolean(value: bool) -> bytes:
    """Encode a boolean."""
    if not isinstance(value, bool):
        raise MalformedError(f"{value!r} is neither True nor False")
    return b"\1" if value else b"\0"


def amount(value: int) -> bytes:
    """Encode an amount: a byte with its sign and length, then its magnitude."""
    if not AMOUNT_MIN <= whole(value) <= AMOUNT_MAX:
        raise MalformedError(f"{value} is no amount: it has more than 128 bits")
    magnitude = abs(value)
    size = (magnitude.bit_length() + 7) // 8
    return bytes([size | (0x80 if value < 0 else 0)]) + magnitude.to_bytes(size, "big")


def elements(values: List[bytes]) -> bytes:
    """Encode a list of elements that are encoded already."""
    return uvarint(len(values)) + b"".join(values)


def fixed(value: bytes, size: int, what: str) -> bytes:
    """Return the value, or raise MalformedError if it does not have the size."""
    if len(value) != size:
        raise MalformedError(f"{what} of {len(value)} bytes, not {size}")
    return value


class Reader:
    """Takes values from the front of bytes, and raises MalformedError if they are not there."""

    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)
        self._at = 0

    @property
    def at(self) -> int:
        """How many bytes were taken so far."""
        return self._at

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self._at

    def end(self) -> None:
        """Refuse bytes that are left."""
        if self.left:
            raise MalformedError(f"{self.left} bytes too many at the end")

    def take(self, count: int) -> bytes:
        """Take so many bytes."""
        if count > self.left:
            raise MalformedError("cut short")
        self._at += count
        return self._data[self._at - count:self._at]

    def byte(self) -> int:
        """Take a byte."""
        return self.take(1)[0]

    def boolean(self) -> bool:
        """Take a boolean: 0 or 1."""
        value = self.byte()
        if value > 1:
            raise MalformedError(f"a boolean of {value}")
        return value == 1

    def uint(self, size: int) -> int:
        """Take an unsigned integer of a fixed size."""
        return int.from_bytes(self.take(size), "big")

    def hash(self) -> bytes:
        """Take a hash."""
        return self.take(HASH_SIZE)

    def uvarint(self) -> int:
        """Take an integer in LEB128, in its shortest form."""
        value = 0
        for shift in range(0, 70, 7):
            digit = self.byte()
            value |= (digit & 0x7F) << shift
            if digit < 0x80:
                if digit == 0 and shift > 0:
                    raise MalformedError("an integer not in its shortest form")
                if value > UINT64_MAX:
                    raise MalformedError("an integer of more than 64 bits")
                return value
        raise MalformedError("an integer of more than 64 bits")

    def uvarint32(self) -> int:
        """Take an integer of at most 32 bits in LEB128."""
        value = self.uvarint()
        if value >> 32:
            raise MalformedError(f"{value} has more than 32 bits")
        return value

    def count(self, what: str, most: int, size: int = 0) -> int:
        """Take the number of elements of a list. Each of them has at least `size` bytes."""
        value = self.uvarint()
        if value > most:
            raise MalformedError(f"{value} {what}, at most {most} allowed")
        if value * size > self.left:
            raise MalformedError("cut short")
        return value

    def string(self, what: str, most: int) -> bytes:
        """Take bytes with their length before them."""
        return self.take(self.count(what, most, 1))

    def text(self, what: str, most: int) -> str:
        """Take text with its length before it.

        A note may have any bytes. Those that are no UTF-8 become surrogates, as in PEP 383.
        """
        return self.string(what, most).decode("utf-8", "surrogateescape")

    def amount(self) -> int:
        """Take an amount in its shortest form."""
        head = self.byte()
        size, negative = head & 0x7F, head >= 0x80
        if size > 16:
            raise MalformedError(f"an amount of {size} bytes")
        digits = self.take(size)
        if negative and not size or size and not digits[0]:
            raise MalformedError("an amount not in its shortest form")
        value = int.from_bytes(digits, "big")
        if negative:
            value = -value
        if not AMOUNT_MIN <= value <= AMOUNT_MAX:
            raise MalformedError("an amount of more than 128 bits")
        return value

    def list(self, what: str, most: int, size: int, each: Callable[[], T]) -> List[T]:
        """Take a list, with a function that takes one element."""
        return [each() for _ in range(self.count(what, most, size))]
