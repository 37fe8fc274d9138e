"""Names and bounds, which decoders of every language keep alike."""

from __future__ import annotations

import re
import unicodedata

from .codec import MalformedError, utf8

ORGANISATION_MAX = 64
CHAIN_NAME_MAX = 64
ASSET_MAX = 32
PATH_MAX = 128
ALIAS_MAX = 128
NOTE_MAX = 16384
RECORD_VALUE_MAX = 65536
BODY_MAX = 262144
REGISTRATIONS_MAX = 16
OPENINGS_MAX = 256
POSTINGS_MAX = 1024
RECORDS_MAX = 64
IDEMPOTENCY_KEY_MAX = 64
REFUND_POSTINGS_MAX = 16
EFFECTIVE_MAX = 253_402_300_799_999  # the end of the year 9999
KEYS_MAX = 16
OPERATORS_MAX = 64
MEMBERS_MAX = 1024
MEMBER_KEY_MAX = 128
ADDRESS_MAX = 256
SHARDS_MAX = 1024
MEMBER_INDEXES_MAX = 65536
ENGINE_MAX = 32
BUNDLE_TRANSACTIONS_MAX = 4096
BUNDLE_SIGNATURES_MAX = 64
BUNDLE_BYTES_MAX = 1048576
PACKED_ASSETS_MAX = 16
DECIMALS_MAX = 30
ISSUERS_MAX = 64
HOLD_ACCOUNTS_MAX = 16
SCHEDULE_POSTINGS_MAX = 16
SCHEDULE_NOTE_MAX = 256
SCHEDULE_STEP_MAX = 366
OCCURRENCES_MAX = 4096
ACCOUNT_LIMITS_MAX = 16
METADATA_MAX = 16
METADATA_KEY_MAX = 32
METADATA_VALUE_MAX = 128
VELOCITY_SECONDS_MAX = 366 * 24 * 60 * 60
LIMITS_MAX = 64
POLICY_ASSETS_MAX = 256
PATH_HASHES_MAX = 33
FINALITY_HEADERS_MAX = 4096

DEFAULT_ASSET = "unit"

_UNPRINTABLE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_ENGINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*", re.ASCII)
_SEGMENTS = re.compile(r"(?::[A-Za-z0-9_.~@+=$!*/-]+)+", re.ASCII)


def _word(text: str, most: int, what: str) -> str:
    if len(text) > most or not _WORD.fullmatch(text):
        raise MalformedError(f"{text[:80]!r} is no {what} name (1 to {most} letters, digits, "
                             "'-', '_', '.')")
    return text


def organisation(text: str) -> str:
    """Return the name of an organisation or member, or raise MalformedError."""
    return _word(text, ORGANISATION_MAX, "organisation")


def engine(text: str) -> str:
    """Return the name of an engine, or raise MalformedError."""
    if len(text) > ENGINE_MAX or not _ENGINE.fullmatch(text):
        raise MalformedError(f"{text[:80]!r} is no engine's name (1 to {ENGINE_MAX} letters, "
                             "digits, '-', '_', '.', '+')")
    return text


def asset(text: str) -> str:
    """Return the name of an asset, or raise MalformedError."""
    return _word(text, ASSET_MAX, "asset")


def metadata_key(text: str) -> str:
    """Return a key of metadata, or raise MalformedError."""
    return _word(text, METADATA_KEY_MAX, "metadata")


def chain(text: str) -> str:
    """Return the name of a chain, or raise MalformedError."""
    return _word(text, CHAIN_NAME_MAX, "chain")


def path(text: str) -> str:
    """Return an account or a record's key, or raise MalformedError."""
    first, colon, _ = text.partition(":")
    if (len(text) > PATH_MAX or not colon or len(first) > ORGANISATION_MAX
            or not _WORD.fullmatch(first) or not _SEGMENTS.fullmatch(text, len(first))):
        raise MalformedError(f"{text[:150]!r} is no account (organisation:name, at most "
                             f"{PATH_MAX} characters, letters, digits and -_.~@+=$!*/)")
    return text


def organisation_of(account: str) -> str:
    """Return the organisation to which an account or record belongs."""
    return account.partition(":")[0]


def alias(text: str) -> str:
    """Return an alias of an account, or raise MalformedError: printable text."""
    if len(utf8(text)) > ALIAS_MAX or not printable(text):
        raise MalformedError(f"an alias is at most {ALIAS_MAX} bytes of printable text")
    return text


def printable(text: str) -> bool:
    """Report whether all characters can be shown.

    A character that this Python does not know yet passes: the node may know it.
    """
    return all(each == " " or unicodedata.category(each) not in _UNPRINTABLE for each in text)
