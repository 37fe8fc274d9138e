"""Key files, as `ledgerd keys create` writes them.

A plain file is the key as openssl reads it (PKCS #8), after a line with the organisation's name. A
file with a passphrase has the public key, and after it a plain file that age encrypted with scrypt.
Age's format (age-encryption.org/v1) is read here, with the primitives of `cryptography`: the age
libraries for Python are not part of the systems that this package is meant to run on. A hostile
file costs at most one scrypt with N = 2^18.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from dataclasses import dataclass
from typing import Dict, List, Tuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
)

from . import names
from .bundle import OPERATOR
from .codec import MalformedError
from .ed25519 import PrivateKey

_FILE_BYTES_MAX = 16 << 10
_WORK_MAX = 18
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\n(.*?)-----END \1-----\s*", re.DOTALL)
_HEADERS = ("Organisation", "Signer-Command", "Signer-Socket")
# The encoding of an ed25519 key in PKCS #8 (RFC 8410), before the seed.
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
_CHUNK = 64 << 10


class KeyFileError(ValueError):
    """A file that is damaged, is no key file, or has its key elsewhere."""


class PassphraseError(ValueError):
    """A passphrase that is wrong, or missing."""


@dataclass
class KeyFile:
    """The content of a key file."""

    organisation: str  # "" for an operator
    public: bytes
    _private: PrivateKey | None
    _encrypted: bytes

    @property
    def encrypted(self) -> bool:
        """Whether the file has a passphrase."""
        return bool(self._encrypted)

    def private(self, passphrase: str | bytes = b"") -> PrivateKey:
        """Return the private key. Raises PassphraseError and KeyFileError."""
        if self._private is not None:
            return self._private
        if not self._encrypted:
            raise KeyFileError("the key is not in the file, but with an external signer")
        if not passphrase:
            raise PassphraseError("the key file has a passphrase, and none was given")
        if isinstance(passphrase, str):
            passphrase = passphrase.encode("utf-8")
        inside = parse(_decrypt(self._encrypted, passphrase))
        if (inside._private is None or inside.public != self.public
                or inside.organisation != self.organisation):
            raise KeyFileError("the key within is not that of the public key before it")
        return inside._private


def read(path: str | os.PathLike[str]) -> KeyFile:
    """Read a key file."""
    with open(path, "rb") as file:
        return parse(file.read(_FILE_BYTES_MAX + 1))


def parse(text: bytes) -> KeyFile:
    """Parse a key file, or raise KeyFileError. It does not decrypt."""
    try:
        return _parse(text)
    except (MalformedError, UnicodeDecodeError, binascii.Error) as error:
        raise KeyFileError(f"damaged key file: {error}") from None


def _parse(text: bytes) -> KeyFile:
    if len(text) > _FILE_BYTES_MAX:
        raise KeyFileError(f"a key file of more than {_FILE_BYTES_MAX} bytes")
    decoded = text.decode("utf-8").replace("\r\n", "\n")
    blocks = list(_BLOCK.finditer(decoded))
    if not blocks:
        raise KeyFileError("it holds no key in PEM")
    first = blocks[0]
    headers, body = _split(first.group(2))
    for name, value in _lines(decoded[:first.start()]):
        if name in headers:
            raise KeyFileError(f"it has the header {name} twice")
        headers[name] = value
    organisation = headers.get("Organisation", OPERATOR)
    if organisation != OPERATOR:
        names.organisation(organisation)
    der = base64.b64decode("".join(body.split()), validate=True)
    if first.group(1) == "PRIVATE KEY":
        if len(der) != len(_PKCS8) + 32 or not der.startswith(_PKCS8):
            raise KeyFileError("it holds no ed25519 key")
        private = PrivateKey(der[len(_PKCS8):])
        return KeyFile(organisation, private.public, private, b"")
    if first.group(1) != "PUBLIC KEY":
        raise KeyFileError(f"it holds no private key in PEM, but a block {first.group(1)!r}")
    try:
        key = load_der_public_key(der)
    except Exception as error:  # the library names no base of what it raises
        raise KeyFileError(f"damaged public key: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise KeyFileError("it holds no ed25519 key")
    public = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    if "Signer-Command" in headers or "Signer-Socket" in headers:
        return KeyFile(organisation, public, None, b"")
    if len(blocks) != 2 or blocks[1].group(1) != "AGE ENCRYPTED FILE":
        raise KeyFileError("it holds a public key only")
    return KeyFile(organisation, public, None,
                   base64.b64decode("".join(blocks[1].group(2).split()), validate=True))


def _lines(text: str) -> List[Tuple[str, str]]:
    found = []
    for line in text.split("\n"):
        name, colon, value = line.partition(":")
        if colon and name.strip() in _HEADERS:
            found.append((name.strip(), value.strip()))
    return found


def _split(block: str) -> Tuple[Dict[str, str], str]:
    """Split the content of a block: files of earlier versions have the headers within it."""
    head, empty, body = block.partition("\n\n")
    return (dict(_lines(head)), body) if empty else ({}, block)


def create(path: str | os.PathLike[str], organisation: str, key: PrivateKey) -> None:
    """Write a new plain key file, readable by its owner only. It replaces no file."""
    text = "" if organisation == OPERATOR else f"Organisation: {names.organisation(organisation)}\n"
    text += ("-----BEGIN PRIVATE KEY-----\n" + base64.b64encode(_PKCS8 + key.seed()).decode()
             + "\n-----END PRIVATE KEY-----\n")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _unpadded(text: str) -> bytes:
    """Decode base64 without padding, in its only form."""
    decoded = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    if base64.b64encode(decoded).decode().rstrip("=") != text:
        raise KeyFileError("damaged age file: base64")
    return decoded


def _hkdf(key: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=salt or None, info=info).derive(key)


def _decrypt(data: bytes, passphrase: bytes) -> bytes:
    """Decrypt an age file with one scrypt stanza."""
    pattern = re.compile(
        rb"age-encryption\.org/v1\n-> scrypt ([A-Za-z0-9+/]{22}) ([1-9][0-9]?)\n"
        rb"([A-Za-z0-9+/]{43})\n--- ([A-Za-z0-9+/]{43})\n")
    found = pattern.match(data)
    if found is None:
        raise KeyFileError("it is not encrypted with a passphrase alone, as age does it")
    salt, wrapped, mac = (_unpadded(found.group(i).decode()) for i in (1, 3, 4))
    work = int(found.group(2))
    if work > _WORK_MAX:
        raise KeyFileError(f"its passphrase asks for scrypt with N = 2^{work}, at most "
                           f"2^{_WORK_MAX} allowed")
    wrapping = Scrypt(salt=b"age-encryption.org/v1/scrypt" + salt, length=32, n=1 << work, r=8,
                      p=1).derive(passphrase)
    try:
        file_key = ChaCha20Poly1305(wrapping).decrypt(bytes(12), wrapped, None)
    except InvalidTag:
        raise PassphraseError("wrong passphrase") from None
    header = data[:found.start(4) - 1]
    mac_key = _hkdf(file_key, b"", b"header")
    if not hmac.compare_digest(hmac.new(mac_key, header, "sha256").digest(), mac):
        raise KeyFileError("damaged age file: its header")
    payload = data[found.end():]
    nonce, payload = payload[:16], payload[16:]
    if not 16 <= len(payload) <= _CHUNK + 16:
        raise KeyFileError("damaged age file: it is cut short, or is no key")
    try:  # one chunk, which is the last one
        return ChaCha20Poly1305(_hkdf(file_key, nonce, b"payload")).decrypt(
            bytes(11) + b"\1", payload, None)
    except InvalidTag:
        raise KeyFileError("damaged age file: its content") from None
