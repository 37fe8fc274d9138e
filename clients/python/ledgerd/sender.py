"""Posts an organisation's transactions: nonces, bundles, signatures, submission."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Iterable, List, Optional, Sequence

from . import names
from .answers import DURABLE, Status
from .bundle import Bundle, bundles_of
from .client import Client
from .ed25519 import PrivateKey
from .packed import PackedBundle, Transfer
from .transaction import Opening, Posting, Record, Registration, Transaction


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

    def bundles(self, transactions: Sequence[Transaction]) -> List[Bundle]:
        """Bundle transactions, in order, and sign each bundle once."""
        return [bundle.sign(self.organisation, self._key) for bundle in bundles_of(transactions)]

    def post(self, transactions: Transaction | Sequence[Transaction], wait: str = DURABLE, *,
             timeout: Optional[float] = None) -> List[Status]:
        """Bundle, sign and submit transactions, and wait for the level.

        Returns a status for each; errors.require raises for those that failed. If it raises with
        `unsure`, or ConnectionFailed, post the same transactions again: they are executed once.
        """
        if isinstance(transactions, Transaction):
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

    def renew(self, transaction: Transaction) -> Transaction:
        """Return a transaction again with a new nonce: it is another one, and may apply as well.

        Do so only for one that failed or expired.
        """
        with self._lock:
            return replace(transaction, sequence=self._take(1))
