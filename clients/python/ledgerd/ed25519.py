"""Ed25519 signatures by the ledger's exact rules.

Libraries differ in what odd signatures they accept, and all nodes of a ledger have to agree. The
ledger's rules: the verification equation with the cofactor; S below the group's order; R and the
key canonical encodings of points; a key of small order is refused. A signature that a usual library
makes is always good, and OpenSSL recognises it in a moment. What OpenSSL refuses is then checked
here by the exact rules, which takes some milliseconds: without that, this program would call false
what every node accepted.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from typing import Optional, Tuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from .codec import SIGNATURE_SIZE

KEY_SIZE = 32

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT_OF_MINUS_ONE = pow(2, (_P - 1) // 4, _P)

# A point in extended coordinates: x = X/Z, y = Y/Z, xy = T/Z.
_Point = Tuple[int, int, int, int]
_NEUTRAL: _Point = (0, 1, 1, 0)


def _add(a: _Point, b: _Point) -> _Point:
    left = (a[1] - a[0]) * (b[1] - b[0]) % _P
    right = (a[1] + a[0]) * (b[1] + b[0]) % _P
    c = 2 * a[3] * b[3] * _D % _P
    d = 2 * a[2] * b[2] % _P
    e, f, g, h = right - left, d - c, d + c, right + left
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _multiply(scalar: int, point: _Point) -> _Point:
    product = _NEUTRAL
    while scalar:
        if scalar & 1:
            product = _add(product, point)
        point, scalar = _add(point, point), scalar >> 1
    return product


def _same(a: _Point, b: _Point) -> bool:
    return (a[0] * b[2] - b[0] * a[2]) % _P == 0 and (a[1] * b[2] - b[1] * a[2]) % _P == 0


def _negative(a: _Point) -> _Point:
    return -a[0] % _P, a[1], a[2], -a[3] % _P


def _decode(encoded: bytes) -> Optional[_Point]:
    """Return the point, or None if this is no canonical encoding of one."""
    y = int.from_bytes(encoded, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT_OF_MINUS_ONE % _P
    if (x * x - square) % _P or not x and sign:
        return None
    if x & 1 != sign:
        x = _P - x
    return x, y, 1, x * y % _P


def _base_point() -> _Point:
    y = 4 * pow(5, _P - 2, _P) % _P
    point = _decode(y.to_bytes(32, "little"))
    assert point is not None
    return point


_BASE = _base_point()


@functools.lru_cache(maxsize=1024)
def _large_order(key: bytes) -> Optional[_Point]:
    """Return the point of a key, or None if it is not canonical or of small order."""
    point = _decode(key)
    if point is None or _same(_multiply(8, point), _NEUTRAL):
        return None
    return point


def _verify_exactly(key: bytes, signature: bytes, message: bytes) -> bool:
    point, r = _large_order(key), _decode(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if point is None or r is None or s >= _ORDER:
        return False
    digest = hashlib.sha512(signature[:32] + key + message).digest()
    k = int.from_bytes(digest, "little") % _ORDER
    difference = _add(_multiply(s, _BASE), _negative(_add(r, _multiply(k, point))))
    return _same(_multiply(8, difference), _NEUTRAL)


def verify(key: bytes, signature: bytes, message: bytes) -> bool:
    """Report whether the key signed the message."""
    if len(key) != KEY_SIZE or len(signature) != SIGNATURE_SIZE:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return _verify_exactly(key, signature, message)
    return _large_order(key) is not None


class PrivateKey:
    """A private key of ed25519."""

    def __init__(self, seed: bytes) -> None:
        """Make the key of a seed of 32 bytes."""
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    @classmethod
    def generate(cls) -> PrivateKey:
        """Make a new random key."""
        return cls(secrets.token_bytes(KEY_SIZE))

    def sign(self, message: bytes) -> bytes:
        """Sign a message."""
        return self._key.sign(message)

    def seed(self) -> bytes:
        """Return the 32 bytes that the key is made of. Keep them secret."""
        return self._key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())

    def __repr__(self) -> str:
        return f"PrivateKey(public={self.public.hex()})"
