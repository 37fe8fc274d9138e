"""Posts an organisation's transactions: nonces, bundles, signatures, submission."""

from __future__ import annotations

import secrets
import threading
from dataclasses import replace
from typing import Iterable, List, Mapping, Optional, Sequence, TypeVar

from . import names
from .answers import DURABLE, Status
from .bundle import Body, Bundle, bundles_of
from .client import Client
from .codec import HASH_SIZE, fixed
from .ed25519 import PrivateKey
from .hold import Hold, HoldEnd, shares_of
from .packed import PackedBundle, Transfer
from .schedule import ONCE, Schedule, ScheduleEnd
from .terms import FREEZES, AccountChange, AccountNow, guarding
from .transaction import Opening, Posting, Record, Registration, Transaction

Renewed = TypeVar("Renewed", Transaction, Hold, HoldEnd)


class Sender:
    """Signs for one organisation, with the nonces of one stream, and submits.

    Let each process have a stream of its own, and keep to it: two senders of one stream take each
    other's nonces, and the later one's transactions fail with stale_nonce. Several threads may use
    it. Post transactions in the order in which they were made.
    """

    def __init__(self, client: Client, ledger: bytes, organisation: str, key: PrivateKey,
                 stream: int = 0) -> None:
        """`ledger` is the book, as Genesis.book returns it."""
        self.client = client
        self.ledger = ledger
        self.organisation = names.organisation(organisation)
        self._key = key
        self._stream = stream
        self._next: Optional[int] = None
        self._lock = threading.Lock()

    def _take(self, count: int) -> int:
        """Return the first of so many sequence numbers that nothing else uses."""
        if self._next is None:
            self._next = self.client.nonce(self.organisation, self._stream)
        first = self._next
        self._next += count
        return first

    def transaction(self, *, postings: Iterable[Posting] = (), openings: Iterable[Opening] = (),
                    registrations: Iterable[Registration] = (), records: Iterable[Record] = (),
                    note: str = "", last_valid: int = 0, deadline: int = 0) -> Transaction:
        """Make a transaction with the next nonce. Nothing is submitted."""
        with self._lock:
            return Transaction(self.ledger, self.organisation, self._stream, self._take(1),
                               last_valid, deadline, list(registrations), list(openings),
                               list(postings), list(records), note)

    def hold(self, account: str, amount: int, to: Sequence[str], expires: int, *,
             asset: str = names.DEFAULT_ASSET, poster: str = "", note: str = "") -> Hold:
        """Make a transaction that holds an amount of an account for others. Its id is the hold's.

        It ends by itself when it `expires`, in milliseconds since 1970. Unless another organisation
        is named as the poster, that of the first account may post or void it.
        """
        if isinstance(to, str) or not to:
            raise ValueError("a hold is for a list of 1 or more accounts")
        accounts = sorted(set(to))
        poster = poster or names.organisation_of(accounts[0])
        with self._lock:
            return Hold(self.ledger, self.organisation, self._stream, self._take(1), account,
                        amount, accounts, poster, expires, asset, note=note)

    def post_hold(self, identity: bytes, shares: int | Mapping[str, int] | None = None, *,
                  placed: Optional[Hold] = None, deadline: int = 0, note: str = "") -> HoldEnd:
        """Make a transaction that posts a hold: all of it, an amount, or what each account gets.

        What the hold says is taken from the transaction that placed it, which its id is the hash
        of: no node is believed. Give `placed` if no node has that transaction any more. Across
        shards it needs a deadline.
        """
        placed = self._placed(identity, placed)
        postings = shares_of(placed, shares)
        with self._lock:
            return HoldEnd(self.ledger, self.organisation, self._stream, self._take(1), identity,
                           placed.account, postings, deadline=deadline, note=note)

    def void_hold(self, identity: bytes, *, placed: Optional[Hold] = None, deadline: int = 0,
                  note: str = "") -> HoldEnd:
        """Make a transaction that gives a hold up, as post_hold."""
        placed = self._placed(identity, placed)
        with self._lock:
            return HoldEnd(self.ledger, self.organisation, self._stream, self._take(1), identity,
                           placed.account, deadline=deadline, note=note)

    def _placed(self, identity: bytes, placed: Optional[Hold]) -> Hold:
        fixed(identity, HASH_SIZE, "the id of a hold")
        found = placed or self.client.placed_hold(identity)
        if found.id() != identity:
            raise ValueError(f"`placed` is hold {found.id().hex()}, not {identity.hex()}")
        return found

    def schedule(self, postings: Iterable[Posting], first: int, *, period: int = ONCE,
                 every: int = 0, count: int = 0, until: int = 0, root: Optional[int] = None,
                 note: str = "") -> Schedule:
        """Make a transaction that has postings executed at agreed times. Its id is the schedule's.

        The first time is in milliseconds since 1970. With a period, `every` is how many of them are
        between two times, 1 if it is not named; name `count` or `until`, too. The schedule is kept
        by the root of the book's tree: `root`, or the one that a node names. It takes no nonce.
        """
        if period == ONCE:
            count = count or 1
        elif every == 0:
            every = 1
        return Schedule(self.ledger, self.organisation, self._stream, secrets.randbits(63),
                        list(postings), first, period, every, count, until,
                        self.client.root() if root is None else root, note=note)

    def end_schedule(self, identity: bytes, *, root: Optional[int] = None,
                     note: str = "") -> ScheduleEnd:
        """Make a transaction that ends a schedule of the organisation, as schedule."""
        fixed(identity, HASH_SIZE, "the id of a schedule")
        return ScheduleEnd(self.ledger, self.organisation, self._stream, secrets.randbits(63),
                           identity, self.client.root() if root is None else root, note=note)

    def change(self, now: AccountNow, note: str = "") -> AccountChange:
        """Make a transaction that gives an account of the organisation these terms, and its alias.

        Begin with Client.account_now: `acme.change(client.account_now(account).frozen())`. It is
        refused if another change comes between. Raises ValueError for an account of others.
        """
        if names.organisation_of(now.account) != self.organisation:
            raise ValueError(f"{now.account} is no account of {self.organisation}: its "
                             "organisation changes its terms, and its guardian calls guard")
        return AccountChange(self.ledger, self.organisation, self._stream, 0, now.account,
                             now.revision + 1, now.terms, now.alias, note)

    def guard(self, now: AccountNow, freeze: bool, note: str = "") -> AccountChange:
        """Make a transaction with which the organisation, as guardian, freezes an account.

        Or it lifts that freeze. No change by the account's organisation outdates it. Raises
        ValueError if the organisation is not the guardian, or there is nothing to change.
        """
        if now.terms.guardian != self.organisation:
            raise ValueError(f"{self.organisation} is not the guardian of {now.account}, but "
                             f"{now.terms.guardian or 'nobody'}")
        if now.terms.frozen_by_guardian == freeze:
            raise ValueError(f"nothing to change: the freeze of {now.account} is "
                             f"{FREEZES[now.terms.freeze]}")
        return AccountChange(self.ledger, self.organisation, self._stream, 0, now.account,
                             now.guarded + 1, guarding(self.organisation, freeze), note=note)

    def bundles(self, transactions: Sequence[Body]) -> List[Bundle]:
        """Bundle transactions, in order, and sign each bundle once."""
        return [bundle.sign(self.organisation, self._key) for bundle in bundles_of(transactions)]

    def post(self, transactions: Body | Sequence[Body], wait: str = DURABLE, *,
             timeout: Optional[float] = None) -> List[Status]:
        """Bundle, sign and submit transactions, and wait for the level.

        Returns a status for each; errors.require raises for those that failed. If it raises with
        `unsure`, or ConnectionFailed, post the same transactions again: they are executed once.
        """
        if not isinstance(transactions, Sequence):
            transactions = [transactions]
        statuses: List[Status] = []
        for bundle in self.bundles(transactions):
            statuses += self.client.submit(bundle, wait, timeout=timeout)
        return statuses

    def pack(self, transfers: Sequence[Transfer], last_valid: int = 0) -> PackedBundle:
        """Pack plain transfers and sign them. In a book of one shard, from version 3 on."""
        with self._lock:
            first = self._take(len(transfers))
        bundle = PackedBundle.of(self.ledger, self.organisation, self._stream, first, transfers,
                                 last_valid)
        return bundle.sign(self.organisation, self._key)

    def renew(self, transaction: Renewed) -> Renewed:
        """Return a transaction again with a new nonce: it is another one, and may apply as well.

        Do so only for one that failed or expired.
        """
        with self._lock:
            return replace(transaction, sequence=self._take(1))
