"""A client of a node's API: JSON over HTTP, in the form of the Connect protocol.

It uses the HTTP client of the standard library. A call is one POST with one answer, so a library of
its own would add nothing but a dependency; there are no streams here.
"""

from __future__ import annotations

import base64
import http.client
import json
import random
import ssl
import threading
import time
import urllib.parse
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple, TypeVar

from . import answers
from .answers import (
    DURABLE,
    LEVELS,
    Account,
    Block,
    BlockHeader,
    ChartLine,
    HistoryEntry,
    Json,
    Node,
    OpenHold,
    OpenSchedule,
    Place,
    Status,
)
from .balance import BalanceProof
from .bundle import Bundle
from .codec import MalformedError
from .certificate import Auditor, CertifiedProof, Finality
from .errors import (
    ApiError,
    ConnectionFailed,
    FailedPrecondition,
    MalformedAnswer,
    NotFound,
    Unavailable,
    api_error,
)
from .genesis import Genesis
from .hold import Hold
from .merkle import ProofError
from .packed import PackedBundle
from .proof import Proof
from .results import FORESEEABLE
from .supply import AssetProof, ShardProof, SupplyProof
from .terms import AccountNow

_SERVICE = "/ledgerd.v1.LedgerService/"
_ANSWER_BYTES_MAX = 128 << 20
_WAIT_IDS_MAX = 16384

T = TypeVar("T")


class Client:
    """Calls one or more nodes of a ledger. It may be used by several threads.

    A call that fails for a passing reason is made again, at the next address, with growing pauses:
    at most `attempts` times, and not after `timeout` seconds. That holds for submissions as well,
    since the same bytes have the same ids and are executed once.
    """

    def __init__(self, addresses: str | Sequence[str], *, timeout: float = 10.0,
                 attempts: int = 5, token: str = "",
                 tls: Optional[ssl.SSLContext] = None) -> None:
        """Addresses are like http://127.0.0.1:26600. `tls` may have a client's certificate."""
        chosen = [addresses] if isinstance(addresses, str) else list(addresses)
        if not chosen or timeout <= 0 or attempts < 1:
            raise ValueError("a client needs an address, time, and an attempt")
        self._targets = [_target(address) for address in chosen]
        self._timeout = timeout
        self._attempts = attempts
        self._token = token
        self._tls = tls
        self._lock = threading.Lock()
        self._first = 0  # the address that answered last
        self._idle: Dict[int, List[http.client.HTTPConnection]] = {}

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close idle connections."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()

    # --- calls ------------------------------------------------------------------------------------

    def call(self, name: str, request: Json, timeout: Optional[float] = None) -> Json:
        """Make a call of docs/reference/api.md, with names of fields as JSON has them.

        Raises ApiError if a node refuses, and ConnectionFailed if none answers.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        body = json.dumps(request).encode("utf-8")
        failure: Exception = ConnectionFailed(f"{name}: no time")
        unsure = False
        for attempt in range(self._attempts):
            if attempt:
                pause = min(0.05 * 2 ** attempt, 1.0) * random.uniform(0.5, 1.0)
                if time.monotonic() + pause >= deadline:
                    break
                time.sleep(pause)
            with self._lock:
                target = (self._first + attempt) % len(self._targets)
            left = deadline - time.monotonic()
            if left <= 0:
                break
            try:
                found = self._exchange(target, name, body, left)
            except (OSError, http.client.HTTPException) as error:
                failure = ConnectionFailed(f"{name}: {self._targets[target].netloc}: "
                                           f"{error or type(error).__name__}")
                unsure = True
                continue
            except ApiError as error:
                failure = error
                unsure = unsure or error.unsure
                if not error.retry:
                    break
                continue
            with self._lock:
                self._first = target
            return found
        if isinstance(failure, ApiError):
            failure.unsure = unsure
        raise failure

    def _exchange(self, target: int, name: str, body: bytes, left: float) -> Json:
        headers = {"Content-Type": "application/json", "Connect-Protocol-Version": "1",
                   # A little less, so that the node's answer is here in time.
                   "Connect-Timeout-Ms": str(max(1, int(left * 950)))}
        if self._token:
            headers["Authorization"] = "Bearer " + self._token
        with self._lock:
            idle = self._idle.get(target)
            connection = idle.pop() if idle else None
        if connection is None:
            connection = self._connect(self._targets[target], left)
        try:
            connection.timeout = left
            if connection.sock is not None:
                connection.sock.settimeout(left)
            path = self._targets[target].path.rstrip("/") + _SERVICE + name
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            content = response.read(_ANSWER_BYTES_MAX + 1)
        except BaseException:
            connection.close()
            raise
        if len(content) > _ANSWER_BYTES_MAX or response.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.setdefault(target, []).append(connection)
        return _answer(name, response, content)

    def _connect(self, target: urllib.parse.SplitResult,
                 timeout: float) -> http.client.HTTPConnection:
        host = target.hostname or ""
        if target.scheme == "https":
            return http.client.HTTPSConnection(host, target.port, timeout=timeout,
                                               context=self._tls)
        return http.client.HTTPConnection(host, target.port, timeout=timeout)

    # --- writing ----------------------------------------------------------------------------------

    def submit(self, bundle: Bundle | PackedBundle, wait: str = DURABLE, *, queue: bool = False,
               timeout: Optional[float] = None) -> List[Status]:
        """Submit a signed bundle and wait for the level. Returns the transactions' statuses.

        Those that failed are among them: errors.require raises for these. If all are certain to
        fail, the node orders none of them; they have failed, in no block: the height is 0. With
        `queue`, transactions may wait for shards that are down.
        """
        request: Json = {"bundle": _bundle(bundle), "wait": _level(wait)}
        if queue:
            request["queue"] = True
        try:
            found = self.call("Submit", request, timeout)
        except FailedPrecondition as refusal:
            if refusal.reason not in FORESEEABLE:
                raise
            return [Status(each, "failed", 0, 0, refusal.reason, refusal.message, 0, [], [], False)
                    for each in bundle.ids()]
        statuses = _read("Submit", lambda: [Status.of(each) for each in
                                            answers.items(found, "transactions")])
        if [each.id for each in statuses] != bundle.ids():
            raise MalformedAnswer("Submit: the statuses are of other transactions")
        return statuses

    def wait(self, identity: bytes, level: str = DURABLE,
             timeout: Optional[float] = None) -> Status:
        """Wait until a transaction reaches the level, fails or expires."""
        return self.wait_all([identity], level, timeout)[0]

    def wait_all(self, ids: Sequence[bytes], level: str = DURABLE,
                 timeout: Optional[float] = None) -> List[Status]:
        """Wait for many transactions. One that is still unknown then has no state."""
        if len(ids) > _WAIT_IDS_MAX:
            raise ValueError(f"{len(ids)} ids, at most {_WAIT_IDS_MAX} allowed")
        found = self.call("WaitTransactions", {"ids": [_base64(each) for each in ids],
                                               "wait": _level(level)}, timeout)
        statuses = _read("WaitTransactions", lambda: [
            Status.of(each) for each in answers.items(found, "transactions")])
        if [each.id for each in statuses] != list(ids):
            raise MalformedAnswer("WaitTransactions: the statuses are of other transactions")
        return statuses

    def nonce(self, organisation: str, stream: int = 0) -> int:
        """Return the next unused sequence number of an organisation's nonce stream."""
        found = self.call("GetNonce", {"organisation": organisation, "stream": str(stream)})
        return _read("GetNonce", lambda: answers.integer(found, "nextSequence"))

    # --- reading ----------------------------------------------------------------------------------

    def node(self, shard: Optional[int] = None) -> Node:
        """Return the state of the asked node, or of a node of a shard."""
        found = self.call("GetNode", _of_shard({}, shard))
        return _read("GetNode", lambda: Node.of(answers.part(found, "node")))

    def status(self, identity: bytes) -> Status:
        """Return how far a transaction is. Raises NotFound."""
        found = self.call("GetTransaction", {"idHex": identity.hex()})
        return _read("GetTransaction", lambda: Status.of(
            answers.part(answers.part(found, "transaction"), "status")))

    def account(self, name: str) -> Account:
        """Return an account and its balances. Raises NotFound."""
        found = self.call("GetAccount", {"account": name})
        return _read("GetAccount", lambda: Account.of(answers.part(found, "account")))

    def account_by_alias(self, organisation: str, alias: str) -> Account:
        """Return the account of an organisation with an alias. Raises NotFound."""
        answer = self.call("GetAccount", {"organisation": organisation, "alias": alias})
        found = _read("GetAccount", lambda: Account.of(answers.part(answer, "account")))
        if (found.organisation, found.alias) != (organisation, alias):
            raise MalformedAnswer(f"GetAccount: {found.account} has another alias")
        return found

    def accounts(self, prefix: str = "", page_size: int = 100, *,
                 where: Optional[Tuple[str, str]] = None) -> Iterator[Account]:
        """Yield all accounts with the prefix; with `where`, those with the indexed metadatum.

        Raises Unavailable if accounts are missing, because no node of a shard answers or an
        organisation is on its way to another one.
        """
        request: Json = {"prefix": prefix, "pageSize": page_size}
        if where:
            request.update(whereKey=where[0], whereValue=where[1])
        for each in self._pages("ListAccounts", request, "accounts", Account.of):
            # A node of an older version does not select.
            if where is None or each.has(*where):
                yield each

    def cut(self, height: Optional[int] = None) -> List[Place]:
        """Return a place in the chain of each shard, at which balances add up to zero.

        The place is that of all that is durable, or of a block of the root's chain.
        """
        found = self.call("GetCut", {} if height is None else {"height": str(height)})
        return _read("GetCut", lambda: [Place.of(each) for each in answers.items(found, "places")])

    def chart(self, under: str = "", depth: int = -1,
              cut: Optional[Sequence[Place]] = None) -> List[ChartLine]:
        """Sum up balances at a cut for each level of the paths of accounts, over all shards.

        It has the account with the path `under`, and those below it. `depth` bounds how many parts
        the paths of lines have beyond that; accounts further down count in the lines above them.
        """
        under = under.removesuffix(":")
        first = len(under.split(":")) if under else 0
        places = [each.request() for each in (self.cut() if cut is None else cut)]
        lines: Dict[Tuple[str, ...], ChartLine] = {}
        for each in self._pages("ListAccounts", {"prefix": under, "pageSize": 1000,
                                                 "cut": places}, "accounts", Account.of):
            parts = each.account.split(":")
            if under and ":".join(parts[:first]) != under:
                continue  # acme:customers2 is not below acme:customers
            most = len(parts) if depth < 0 else min(len(parts), first + depth)
            for level in range(first, most + 1):
                at = tuple(parts[:level])
                line = lines.setdefault(at, ChartLine(":".join(at), level, False, 0, {}))
                line.accounts += 1
                line.account = line.account or level == len(parts)
                for balance in each.balances:
                    line.totals[balance.asset] = (line.totals.get(balance.asset, 0)
                                                  + balance.amount)
        return [lines[at] for at in sorted(lines)]

    def hold(self, identity: bytes) -> OpenHold:
        """Return a hold that is open, as a node says. Raises NotFound if it is not open."""
        answer = self.call("GetHold", {"holdHex": identity.hex()})
        found = _read("GetHold", lambda: OpenHold.of(answers.part(answer, "hold")))
        if found.id != identity:
            raise MalformedAnswer("GetHold: another hold")
        return found

    def holds(self, *, organisation: str = "", account: str = "", poster: str = "",
              page_size: int = 100) -> Iterator[OpenHold]:
        """Yield the holds that are open and match all that is named, of all shards.

        Raises Unavailable if no node of a shard answers.
        """
        return self._pages("ListHolds", {"organisation": organisation, "account": account,
                                         "poster": poster, "pageSize": page_size}, "holds",
                           OpenHold.of)

    def schedule(self, identity: bytes) -> OpenSchedule:
        """Return a schedule with occurrences to come, as a node says. Raises NotFound."""
        answer = self.call("GetSchedule", {"scheduleHex": identity.hex()})
        found = _read("GetSchedule", lambda: OpenSchedule.of(answers.part(answer, "schedule")))
        if found.id != identity:
            raise MalformedAnswer("GetSchedule: another schedule")
        return found

    def schedules(self, organisation: str = "", page_size: int = 100) -> Iterator[OpenSchedule]:
        """Yield the schedules with occurrences to come that an organisation placed, or all."""
        return self._pages("ListSchedules", {"organisation": organisation, "pageSize": page_size},
                           "schedules", OpenSchedule.of)

    def root(self) -> int:
        """Return the shard at the root of the book's tree, which keeps the schedules."""
        tree = answers.part(self.call("GetTree", {}), "tree")
        roots = _read("GetTree", lambda: [
            answers.integer(each, "shard") for each in answers.items(tree, "shards")
            if answers.boolean(each, "root")])
        return roots[0] if roots else 0  # a book of one shard has no tree

    def history(self, account: str, ascending: bool = False,
                page_size: int = 50) -> Iterator[HistoryEntry]:
        """Yield the transactions that changed an account, the newest first."""
        return self._pages("ListHistory", {"account": account, "ascending": ascending,
                                           "pageSize": page_size}, "entries", HistoryEntry.of)

    def block(self, height: Optional[int] = None, shard: Optional[int] = None) -> Block:
        """Return a block by its height, or the last one, with up to 1,000 of its transactions."""
        request: Json = {"pageSize": 1000}
        if height is None:
            request["head"] = True
        else:
            request["height"] = str(height)
        found = self.call("GetBlock", _of_shard(request, shard))
        return _read("GetBlock", lambda: Block.of(answers.part(found, "block")))

    def blocks(self, from_height: int = 1, shard: Optional[int] = None,
               page_size: int = 50) -> Iterator[BlockHeader]:
        """Yield the headers of blocks from a height on, ascending, up to the last one."""
        return self._pages("ListBlocks", _of_shard(
            {"fromHeight": str(from_height), "ascending": True, "pageSize": page_size}, shard),
            "blocks", BlockHeader.of)

    def record(self, key: str) -> bytes:
        """Return the value of a record. Raises NotFound."""
        found = self.call("GetRecord", {"key": key})
        return _read("GetRecord", lambda: answers.data(answers.part(found, "record"), "value"))

    def _pages(self, name: str, request: Json, field: str,
               make: Callable[[Json], T]) -> Iterator[T]:
        token = ""
        while True:
            found = self.call(name, {**request, "pageToken": token} if token else request)
            missing = (found.get("unansweredShards"), found.get("movingOrganisations"))
            if any(missing):
                raise Unavailable("unavailable", f"{name}: shards that do not answer or "
                                  f"organisations that move are missing: {missing}", retry=True)
            if request.get("cut") and not found.get("atCut"):
                raise MalformedAnswer(f"{name}: the node does not know cuts")
            yield from _read(name, lambda: [make(each) for each in answers.items(found, field)])
            following = _read(name, lambda: answers.text(found, "nextPageToken"))
            if not following:
                return
            if following == token:
                raise MalformedAnswer(f"{name}: the same page again")
            token = following

    # --- proving ----------------------------------------------------------------------------------

    def genesis(self, shard: Optional[int] = None) -> Genesis:
        """Return the genesis that the node has. Compare its hash with one that you trust."""
        found = self.call("GetGenesis", _of_shard({}, shard))
        genesis = _read("GetGenesis", lambda: Genesis.decode(answers.data(found, "canonical")))
        if genesis.hash() != _read("GetGenesis", lambda: answers.data(found, "hash")):
            raise MalformedAnswer("GetGenesis: the genesis has another hash")
        return genesis

    def proof(self, identity: bytes, shard: Optional[int] = None) -> CertifiedProof:
        """Return the proof of a transaction, not verified, with its finality if there is one."""
        request = _of_shard({"idHex": identity.hex()}, shard)
        answer = self.call("GetProof", request)

        def read() -> CertifiedProof:
            found = answers.part(answer, "proof")
            finality = answers.data(found, "finality")
            return CertifiedProof(Proof.decode(answers.data(found, "encoded")),
                                  Finality.decode(finality) if finality else None)

        proof = _read("GetProof", read)
        if proof.proof.id != identity:
            raise MalformedAnswer("GetProof: a proof of another transaction")
        return proof

    def certified_proof(self, identity: bytes, genesis: Genesis,
                        timeout: Optional[float] = None) -> CertifiedProof:
        """Return a proof that holds from the genesis on.

        Waits until the block is certified, which takes a moment. Raises ProofError and
        CertificateError if what the node says does not hold, ConnectionFailed if the time is over.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        while True:
            proof = self.proof(identity, genesis.shard if genesis.shards else None)
            if proof.finality is not None:
                proof.verify(genesis)
                return proof
            proof.proof.verify()
            if time.monotonic() >= deadline:
                raise ConnectionFailed("GetProof: the block has no certificate yet")
            time.sleep(0.05)

    def placed_hold(self, identity: bytes) -> Hold:
        """Return the transaction that placed a hold, whose hash is the hold's id.

        So no node can say that less is held or leave out accounts. Raises ProofError if the
        transaction placed none, and NotFound if no node has it any more.
        """
        proof = self.proof(identity).proof
        proof.verify()
        try:
            return Hold.decode(proof.body)
        except MalformedError as error:
            raise ProofError(f"{identity.hex()}: {error}") from None

    def account_now(self, account: str, genesis: Optional[Genesis] = None) -> AccountNow:
        """Return the terms of an account, for a signer that is about to change them.

        With a genesis they are proven, and else a node is believed: a change replaces all terms.
        """
        if genesis is None:
            found = self.account(account)
            if found.account != account:
                raise MalformedAnswer(f"GetAccount: {found.account}, not {account}")
            return found.now()
        return self.proven_account(account, genesis).open()[0].now()

    def proven_account(self, account: str, genesis: Genesis,
                       timeout: Optional[float] = None) -> BalanceProof:
        """Return the proof of an account after the newest block, verified from the genesis on.

        The genesis is that of any shard. Waits and raises as certified_proof does.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        found = self.call("GetAccountProof", {"account": account})
        proof = _read("GetAccountProof",
                      lambda: BalanceProof.decode(answers.data(found, "encoded")))
        shard = _read("GetAccountProof", lambda: answers.integer(found, "shard"))
        if proof.account != account:
            raise ProofError("a proof of another account")
        _, header = proof.open()
        proof.finality = self._certificate_of(header.height, shard, deadline)
        proof.verify(genesis)
        return proof

    def proven_supply(self, asset: str, genesis: Genesis,
                      timeout: Optional[float] = None) -> SupplyProof:
        """Return the proof of an asset's supply in the whole book, verified from the genesis on.

        The genesis is that of any shard. Waits until the blocks are certified, and raises as
        certified_proof does.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        shards = []
        for shard in range(genesis.book_shards()):
            found = self.call("GetAsset", {"name": asset, "shard": shard, "prove": True})
            proof = _read("GetAsset", lambda: AssetProof.decode(answers.data(found, "proof")))
            opened, header = proof.open()
            if opened.name != asset:
                raise ProofError("a proof of another asset")
            shards.append(ShardProof(proof, self._certificate_of(header.height, shard, deadline)))
        made = SupplyProof(shards)
        made.verify(genesis)
        return made

    def _certificate_of(self, height: int, shard: int, deadline: float) -> Finality:
        """Wait for the certificate of a block that may be a moment old."""
        while True:
            try:
                found = self.call("GetCertificate", {"height": str(height), "shard": shard})
                return _read("GetCertificate",
                             lambda: Finality.decode(answers.data(found, "finality")))
            except (NotFound, FailedPrecondition):
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.05)

    def certified_block(self, height: int, genesis: Genesis) -> Auditor:
        """Verify from the genesis on that the node's block of this height is final.

        Raises CertificateError if it is not. Returns the auditor, with the members of then.
        """
        shard = genesis.shard if genesis.shards else None
        found = self.call("GetCertificate", _of_shard({"height": str(height)}, shard))
        finality = _read("GetCertificate",
                         lambda: Finality.decode(answers.data(found, "finality")))
        header = self.block(height, shard).header
        auditor = Auditor(genesis)
        auditor.verify(finality, height, header.hash)
        return auditor


def _target(address: str) -> urllib.parse.SplitResult:
    target = urllib.parse.urlsplit(address)
    if target.scheme not in ("http", "https") or not target.hostname or target.query:
        raise ValueError(f"{address!r} is no address such as http://127.0.0.1:26600")
    return target


def _level(level: str) -> str:
    if level not in LEVELS:
        raise ValueError(f"{level!r} is no level: choose from {', '.join(LEVELS)}")
    return "LEVEL_" + level.upper()


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _of_shard(request: Json, shard: Optional[int]) -> Json:
    return request if shard is None else {**request, "shard": shard}


def _bundle(bundle: Bundle | PackedBundle) -> Json:
    bundle.encode()  # raises for what a node would not decode
    found: Json = {"signatures": [
        {"organisation": each.organisation, "publicKey": _base64(each.key),
         "signature": _base64(each.signature)} for each in bundle.signatures]}
    if isinstance(bundle, PackedBundle):
        found["packed"] = _base64(bundle.content())
    else:
        found["transactions"] = [_base64(body) for body in bundle.bodies]
    return found


def _answer(name: str, response: http.client.HTTPResponse, content: bytes) -> Json:
    if len(content) > _ANSWER_BYTES_MAX:
        raise MalformedAnswer(f"{name}: an answer of more than {_ANSWER_BYTES_MAX} bytes")
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if response.status == 200 and isinstance(found, dict):
        return found
    if response.status == 200:
        raise MalformedAnswer(f"{name}: an answer that is no JSON")
    described = found if isinstance(found, dict) else {}
    code, message = described.get("code"), described.get("message", "")
    if not isinstance(code, str) or not isinstance(message, str):
        # From something between the node and here.
        passing = response.status in (429, 502, 503, 504)
        raise api_error("unavailable" if passing else "unknown",
                        f"{name}: HTTP {response.status} {response.reason}", retry=passing,
                        unsure=passing)
    writers = response.headers.get("Ledgerd-Writers", "")
    raise api_error(code, message, retry=response.headers.get("Ledgerd-Retry") == "true",
                    unsure=response.headers.get("Ledgerd-Unsure") == "true",
                    reason=response.headers.get("Ledgerd-Reason", ""),
                    writers=writers.split(",") if writers else ())


def _read(name: str, read: Callable[[], T]) -> T:
    """Read an answer; what is wrong with it is MalformedAnswer."""
    try:
        return read()
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise MalformedAnswer(f"{name}: {error}") from None

