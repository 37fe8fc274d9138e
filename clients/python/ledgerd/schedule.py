"""Schedules: entries that the ledger executes by itself at agreed times, and how they end.

docs/schedules.md says what a schedule is. The id of a schedule is that of the transaction that
placed it. What always holds is the same as in every other language: `times` are those at which the
occurrences are executed, or later, and `Occurrence.id` is the id that a block has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Set

from . import names
from .codec import (
    HASH_SIZE,
    MalformedError,
    Reader,
    elements,
    fixed,
    string,
    uvarint,
    whole,
)
from .transaction import (
    VERSION_OCCURRENCE,
    VERSION_SCHEDULE,
    VERSION_SCHEDULE_END,
    Posting,
    encode_head,
    encode_note,
    transaction_id,
)

ONCE, MINUTES, DAYS, WEEKS, MONTHS = range(5)
# The words of the periods, in the order of their numbers. The answers of nodes have them.
PERIODS = ("once", "minutes", "days", "weeks", "months")

_DAY = 24 * 60 * 60 * 1000  # in milliseconds
_SPAN_MAX = 50 * 366 * _DAY
_AMOUNT_LIMIT = 1 << 127


def _days_of(year: int, month: int, day: int) -> int:
    """Return the days from 1970 to a date of the Gregorian calendar.

    Times reach beyond the year 9999, where datetime ends. The year begins in March here, so that
    the day that some years have more is the last one.
    """
    if month <= 2:
        year, month = year - 1, month + 12
    return (year * 365 + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5
            + day - 1 - 719468)


def _date(days: int) -> tuple[int, int, int]:
    """Return the year, month and day of so many days from 1970: the inverse of _days_of."""
    days += 719468
    cycle, days = divmod(days, 146097)  # 400 years
    year = (days - days // 1460 + days // 36524 - days // 146096) // 365
    days -= 365 * year + year // 4 - year // 100
    month = (5 * days + 2) // 153
    day, year, month = days - (153 * month + 2) // 5 + 1, year + 400 * cycle, month + 3
    return (year, month, day) if month <= 12 else (year + 1, month - 12, day)


def _months_later(first: int, months: int) -> int:
    """Return the time so many months later: on the same day of the month, or on its last day."""
    days, rest = divmod(first, _DAY)
    year, month, day = _date(days)
    after, month = divmod(month - 1 + months, 12)
    year, month = year + after, month + 1
    last = _days_of(year + month // 12, month % 12 + 1, 1) - _days_of(year, month, 1)
    return _days_of(year, month, min(day, last)) * _DAY + rest


def _head(version: int, t: "Schedule | ScheduleEnd") -> bytes:
    """Encode what both begin with: a head without a last valid height, and the shard."""
    if not 0 <= whole(t.shard) < 1 << 32:
        raise MalformedError(f"shard {t.shard}: shards are numbered from 0 on")
    return encode_head(version, t) + uvarint(t.shard)


def _note(note: str) -> bytes:
    return encode_note(note, names.SCHEDULE_NOTE_MAX)


def _check_postings(signer: str, postings: List[Posting]) -> None:
    """Raise MalformedError unless an occurrence may have these postings."""
    if not 2 <= len(postings) <= names.SCHEDULE_POSTINGS_MAX:
        raise MalformedError(f"a schedule of {len(postings)} postings, 2 to "
                             f"{names.SCHEDULE_POSTINGS_MAX} allowed")
    sums: Dict[str, int] = {}
    for each in postings:
        each.check()
        if whole(each.amount) < 0 and names.organisation_of(each.account) != signer:
            raise MalformedError(f"a schedule of {signer} that takes from {each.account}: its "
                                 "organisation has to place it")
        total = sums.get(each.asset, 0) + each.amount
        if not -_AMOUNT_LIMIT <= total < _AMOUNT_LIMIT:
            raise MalformedError(f"the sum of {each.asset} is no amount")
        sums[each.asset] = total
    for asset, total in sorted(sums.items()):
        if total:
            raise MalformedError(f"the postings of {asset} add up to {total}, not to 0")


def _head_of(r: Reader) -> tuple[bytes, str, int, int, int, int]:
    """Take what _head encodes from a reader."""
    ledger, signer = r.hash(), r.text("bytes of organisation", names.ORGANISATION_MAX)
    stream, sequence, last_valid, deadline = (r.uvarint() for _ in range(4))
    if last_valid:
        raise MalformedError("a schedule has no last valid height")
    return ledger, signer, stream, sequence, deadline, r.uvarint()


@dataclass
class Schedule:
    """A transaction that places a schedule. Its note is that of each occurrence.

    `shard` is the root of the book's tree. The `first` occurrence is at a time in milliseconds
    since 1970, and there is another one `every` so many periods: at most `count` of them unless
    that is 0, and none after `until` unless that is 0.
    """

    ledger: bytes
    signer: str
    stream: int
    sequence: int
    postings: List[Posting]
    first: int
    period: int = ONCE
    every: int = 0
    count: int = 1
    until: int = 0
    shard: int = 0
    deadline: int = 0
    note: str = ""

    def encode(self) -> bytes:
        """Return the body: the canonical bytes. Raises MalformedError."""
        self.check()
        return b"".join([
            _head(VERSION_SCHEDULE, self), uvarint(self.first), bytes([self.period]),
            uvarint(self.every), uvarint(self.count), uvarint(self.until),
            elements([each.encode() for each in self.postings]), _note(self.note)])

    def id(self) -> bytes:
        """Return the id: the hash of the body."""
        return transaction_id(self.encode())

    def consents(self) -> Set[str]:
        """Return who has to sign: the signer."""
        return {self.signer}

    def check(self) -> None:
        """Raise MalformedError unless a node would decode it."""
        if not 0 < whole(self.first) <= 1 << 48 or not 0 <= whole(self.until) <= 1 << 49:
            raise MalformedError(f"a schedule from {self.first} until {self.until}: milliseconds "
                                 "since 1970")
        period, every, count = whole(self.period), whole(self.every), whole(self.count)
        if period == ONCE:
            wrong = every != 0 or count != 1 or self.until != 0
        else:
            wrong = not (ONCE < period < len(PERIODS) and 1 <= every <= names.SCHEDULE_STEP_MAX)
        if wrong or not 0 <= count <= names.OCCURRENCES_MAX:
            raise MalformedError(
                f"a schedule of period {period}, every {every}, {count} times: once has every 0, "
                "count 1 and until 0; another period has every 1 to "
                f"{names.SCHEDULE_STEP_MAX} and count up to {names.OCCURRENCES_MAX}")
        occurrences = self.occurrences()
        if not 1 <= occurrences <= names.OCCURRENCES_MAX or (
                self.time_of(occurrences) - self.first > _SPAN_MAX):
            raise MalformedError(f"a schedule has 1 to {names.OCCURRENCES_MAX} occurrences within "
                                 "50 years: say how many with count, or until when")
        _check_postings(self.signer, self.postings)

    def time_of(self, number: int) -> int:
        """Return the time of an occurrence, by its number from 1 on."""
        steps = (number - 1) * self.every
        if self.period == MONTHS:
            return _months_later(self.first, steps)
        return self.first + steps * {ONCE: 0, MINUTES: 60 * 1000, DAYS: _DAY,
                                     WEEKS: 7 * _DAY}[self.period]

    def occurrences(self) -> int:
        """Return how many occurrences there are, or one more than a schedule may have."""
        least, most = 0, names.OCCURRENCES_MAX + 1
        if self.period == ONCE:
            most = 1
        if self.count:
            most = min(most, self.count)
        while self.until and least < most:  # all up to least are in time, and none after most
            middle = (least + most + 1) // 2
            if self.time_of(middle) <= self.until:
                least = middle
            else:
                most = middle - 1
        return most

    def times(self) -> Iterator[int]:
        """Yield the times of all occurrences."""
        return (self.time_of(number) for number in range(1, self.occurrences() + 1))

    def occurrence(self, number: int) -> "Occurrence":
        """Return an occurrence, by its number from 1 on. Its id is the one that a block has."""
        if not 1 <= whole(number) <= self.occurrences():
            raise ValueError(f"occurrence {number} of {self.occurrences()}")
        return Occurrence(self.ledger, self.signer, self.id(), number, self.time_of(number),
                          list(self.postings), self.note)

    @classmethod
    def decode(cls, body: bytes) -> "Schedule":
        """Decode a body, or raise MalformedError."""
        r = Reader(body)
        if r.byte() != VERSION_SCHEDULE:
            raise MalformedError("the transaction places no schedule")
        ledger, signer, stream, sequence, deadline, shard = _head_of(r)
        first, period, every, count, until = (r.uvarint(), r.byte(), r.uvarint(), r.uvarint(),
                                              r.uvarint())
        schedule = cls(ledger, signer, stream, sequence, _read_postings(r), first, period, every,
                       count, until, shard, deadline,
                       r.text("bytes of note", names.SCHEDULE_NOTE_MAX))
        r.end()
        schedule.encode()  # which checks names and bounds
        return schedule


@dataclass
class ScheduleEnd:
    """A transaction that ends a schedule of its signer. There are no occurrences after it."""

    ledger: bytes
    signer: str
    stream: int
    sequence: int
    schedule: bytes  # its id
    shard: int = 0  # that of the schedule
    deadline: int = 0
    note: str = ""

    def encode(self) -> bytes:
        """Return the body: the canonical bytes. Raises MalformedError."""
        return b"".join([_head(VERSION_SCHEDULE_END, self),
                         fixed(self.schedule, HASH_SIZE, "an id"), _note(self.note)])

    def id(self) -> bytes:
        """Return the id: the hash of the body."""
        return transaction_id(self.encode())

    def consents(self) -> Set[str]:
        """Return who has to sign: the signer."""
        return {self.signer}

    @classmethod
    def decode(cls, body: bytes) -> "ScheduleEnd":
        """Decode a body, or raise MalformedError."""
        r = Reader(body)
        if r.byte() != VERSION_SCHEDULE_END:
            raise MalformedError("the transaction ends no schedule")
        ledger, signer, stream, sequence, deadline, shard = _head_of(r)
        end = cls(ledger, signer, stream, sequence, r.hash(), shard, deadline,
                  r.text("bytes of note", names.SCHEDULE_NOTE_MAX))
        r.end()
        end.encode()  # which checks names and bounds
        return end


@dataclass
class Occurrence:
    """An occurrence of a schedule. Blocks have it without a signature; clients cannot submit it."""

    ledger: bytes
    signer: str
    schedule: bytes  # the id of its schedule
    number: int  # from 1
    time: int  # for which it was scheduled; the block may have a later one
    postings: List[Posting] = field(default_factory=list)
    note: str = ""

    def encode(self) -> bytes:
        """Return the body: the canonical bytes. Raises MalformedError."""
        names.organisation(self.signer)
        if not 1 <= whole(self.number) <= names.OCCURRENCES_MAX:
            raise MalformedError(f"occurrence {self.number}: 1 to {names.OCCURRENCES_MAX}")
        if not 0 < whole(self.time) <= 1 << 48:
            raise MalformedError(f"a time of {self.time}: milliseconds since 1970")
        _check_postings(self.signer, self.postings)
        return b"".join([
            bytes([VERSION_OCCURRENCE]), fixed(self.ledger, HASH_SIZE, "a ledger"),
            string(self.signer), fixed(self.schedule, HASH_SIZE, "an id"), uvarint(self.number),
            uvarint(self.time), elements([each.encode() for each in self.postings]),
            _note(self.note)])

    def id(self) -> bytes:
        """Return the id: the hash of the body."""
        return transaction_id(self.encode())

    def consents(self) -> Set[str]:
        """Return who signed the schedule, and so this: its signer."""
        return {self.signer}

    @classmethod
    def decode(cls, body: bytes) -> "Occurrence":
        """Decode a body, or raise MalformedError."""
        r = Reader(body)
        if r.byte() != VERSION_OCCURRENCE:
            raise MalformedError("the transaction is no occurrence of a schedule")
        occurrence = cls(r.hash(), r.text("bytes of organisation", names.ORGANISATION_MAX),
                         r.hash(), r.uvarint(), r.uvarint(), _read_postings(r),
                         r.text("bytes of note", names.SCHEDULE_NOTE_MAX))
        r.end()
        occurrence.encode()  # which checks names and bounds
        return occurrence


def _read_postings(r: Reader) -> List[Posting]:
    return r.list("postings", names.SCHEDULE_POSTINGS_MAX, 3, lambda: Posting.read(r))
