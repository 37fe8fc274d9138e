"""The client against a server that misbehaves as nodes and networks do."""

from __future__ import annotations

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Dict, Iterator, List, Tuple

import pytest

import ledgerd
from ledgerd import answers

from conftest import GENESIS, KEYS

Answer = Tuple[int, Dict[str, str], Any]


class Server:
    """Answers calls with what it was told, in order, and repeats the last one."""

    def __init__(self) -> None:
        self.answers: List[Answer] = []
        self.seen: List[Tuple[str, Dict[str, str], Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.seen.append((self.path, dict(self.headers), body))
                status, headers, content = outer.answers[0]
                if len(outer.answers) > 1:
                    outer.answers.pop(0)
                if status == 0:  # the connection breaks
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                text = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever,
                                       kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def refusal(code: str, **headers: str) -> Answer:
    names = {"retry": "Ledgerd-Retry", "unsure": "Ledgerd-Unsure", "reason": "Ledgerd-Reason",
             "writers": "Ledgerd-Writers"}
    return 503, {names[name]: value for name, value in headers.items()}, {
        "code": code, "message": "no"}


def bundle() -> ledgerd.Bundle:
    made = ledgerd.transfer(GENESIS.book(), "alice", 0, 1, "alice:a", "bob:b", 5)
    return ledgerd.Bundle.of([made]).sign("alice", KEYS["alice"])


def durable(made: ledgerd.Bundle) -> Answer:
    return 200, {}, {"transactions": [
        {"idHex": each.hex(), "state": "TRANSACTION_STATE_DURABLE", "height": "7",
         "laterField": {"of": "another version"}} for each in made.ids()]}


def test_a_submission_is_repeated_with_the_same_bytes(server: Server) -> None:
    made = bundle()
    server.answers = [(0, {}, b""), refusal("unavailable", retry="true"), durable(made)]
    with ledgerd.Client(server.address, token="secret") as client:
        statuses = client.submit(made)
    assert [(each.state, each.height) for each in statuses] == [("durable", 7)]
    assert len(server.seen) == 3
    assert server.seen[0][2] == server.seen[1][2] == server.seen[2][2]
    path, headers, _ = server.seen[0]
    assert path == "/ledgerd.v1.LedgerService/Submit"
    assert headers["Authorization"] == "Bearer secret"
    assert 0 < int(headers["Connect-Timeout-Ms"]) <= 10000


def test_the_next_address_answers(server: Server) -> None:
    with socket.socket() as free:  # bound, and not listening
        free.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{free.getsockname()[1]}"
        server.answers = [(200, {}, {"nextSequence": "5"})]
        with ledgerd.Client([dead, server.address]) as client:
            assert client.nonce("alice") == 5
            assert client.nonce("alice") == 5  # at the address that answered, at once
        with ledgerd.Client(dead, attempts=2) as client, pytest.raises(ledgerd.ConnectionFailed):
            client.nonce("alice")


def test_retries_are_bounded_in_number_and_time(server: Server) -> None:
    server.answers = [refusal("unavailable", retry="true", writers="a:1,b:2")]
    with ledgerd.Client(server.address, attempts=3) as client:
        with pytest.raises(ledgerd.Unavailable) as raised:
            client.nonce("alice")
    assert len(server.seen) == 3 and raised.value.writers == ["a:1", "b:2"]
    begun = time.monotonic()
    with ledgerd.Client(server.address, attempts=1000, timeout=0.3) as client:
        with pytest.raises(ledgerd.Unavailable):
            client.nonce("alice")
    assert time.monotonic() - begun < 5


def test_what_is_not_to_be_repeated_is_not(server: Server) -> None:
    server.answers = [refusal("invalid_argument")]
    with ledgerd.Client(server.address) as client, pytest.raises(ledgerd.InvalidArgument):
        client.submit(bundle())
    assert len(server.seen) == 1


def test_reasons_and_doubts_are_told(server: Server) -> None:
    server.answers = [refusal("unavailable", reason="shard_down"), ]
    with ledgerd.Client(server.address) as client:
        with pytest.raises(ledgerd.Unavailable) as raised:
            client.submit(bundle())
        assert raised.value.reason == "shard_down" and not raised.value.unsure
        # One attempt may have got through, whatever the next one is told.
        server.answers = [(0, {}, b""), refusal("invalid_argument")]
        with pytest.raises(ledgerd.InvalidArgument) as refused:
            client.submit(bundle())
        assert refused.value.unsure


def test_what_must_fail_has_failed(server: Server) -> None:
    made = bundle()
    with ledgerd.Client(server.address) as client:
        # Also if an attempt before may have got through: no block can apply it any more.
        server.answers = [(0, {}, b""), refusal("failed_precondition", reason="stale_nonce")]
        statuses = client.submit(made)
        assert [(each.id, each.state, each.height, each.reason_code) for each in statuses] == [
            (made.ids()[0], "failed", 0, "stale_nonce")]
        server.answers = [refusal("failed_precondition", reason="shard_lost")]
        with pytest.raises(ledgerd.FailedPrecondition):
            client.submit(made)


def test_silence_ends_with_the_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        begun = time.monotonic()
        with ledgerd.Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.3) as client:
            with pytest.raises(ledgerd.ConnectionFailed):
                client.nonce("alice")
        assert time.monotonic() - begun < 5


@pytest.mark.parametrize("content", [
    b"no JSON", [], {"transactions": [{"idHex": "00" * 32}]}, {"transactions": "x"},
    {"transactions": [{"idHex": 5}]}, {"transactions": []}], ids=str)
def test_answers_that_are_not_the_apis(server: Server, content: Any) -> None:
    server.answers = [(200, {}, content)]
    with ledgerd.Client(server.address) as client, pytest.raises(ledgerd.MalformedAnswer):
        client.submit(bundle())


OPEN: Dict[str, Any] = {
    "holdHex": "07" * 32, "shard": 1, "decimals": 2,
    "hold": {"account": "a:till", "asset": "EUR", "amount": "5", "to": ["b:till"], "poster": "b",
             "expiresMs": "1700000000000"}}


def test_open_holds_are_read_and_checked(server: Server) -> None:
    server.answers = [(200, {}, {"hold": {**OPEN, "later": 1}})]
    with ledgerd.Client(server.address) as client:
        found = client.hold(bytes([7]) * 32)
        assert (found.account, found.amount, found.to, found.decimals) == (
            "a:till", 5, ["b:till"], 2)
        with pytest.raises(ledgerd.MalformedAnswer):  # another hold
            client.hold(bytes(32))
        lies: List[Any] = [{**OPEN, "holdHex": "07"}, {**OPEN, "holdHex": "x"},
                           {**OPEN, "decimals": 31}, {**OPEN, "hold": {}}, {**OPEN, "hold": []}, 5]
        for name, value in (("amount", "0"), ("amount", ""), ("amount", str(2**127)),
                            ("amount", 5), ("account", "a"), ("to", []), ("to", "b:till"),
                            ("to", [5]), ("poster", ""), ("expiresMs", "0")):
            lies.append({**OPEN, "hold": {**OPEN["hold"], name: value}})
        for lie in lies:
            server.answers = [(200, {}, {"holds": [lie]})]
            with pytest.raises(ledgerd.MalformedAnswer):
                list(client.holds(poster="b"))
        # Holds of shards that are silent are not left out in silence.
        server.answers = [(200, {}, {"holds": [OPEN], "unansweredShards": [2]})]
        with pytest.raises(ledgerd.Unavailable):
            list(client.holds())


SCHEDULED: Dict[str, Any] = {
    "scheduleHex": "07" * 32, "signer": "a", "issued": 1, "occurrences": 12,
    "nextMs": "1772524800000", "schedule": {
        "postings": [{"account": "a:till", "asset": "EUR", "amount": "-5"},
                     {"account": "b:till", "asset": "EUR", "amount": "5"}],
        "firstMs": "1769846400000", "period": "months", "every": 1, "count": 12}}


def test_schedules_are_read_and_checked(server: Server) -> None:
    server.answers = [(200, {}, {"schedule": {**SCHEDULED, "later": 1}})]
    with ledgerd.Client(server.address) as client:
        found = client.schedule(bytes([7]) * 32)
        assert (found.schedule.signer, found.schedule.period, found.issued) == (
            "a", ledgerd.MONTHS, 1)
        assert found.next == 1772265600000  # the last day of February, whatever the node says
        with pytest.raises(ledgerd.MalformedAnswer):  # another schedule
            client.schedule(bytes(32))
        lies: List[Any] = [{**SCHEDULED, "scheduleHex": "07"}, {**SCHEDULED, "issued": 12},
                           {**SCHEDULED, "signer": "b"}, {**SCHEDULED, "schedule": {}}, 5]
        for name, value in (("period", "years"), ("every", 0), ("count", 4097), ("firstMs", "0"),
                            ("postings", []), ("postings", [5]), ("untilMs", "x")):
            lies.append({**SCHEDULED, "schedule": {**SCHEDULED["schedule"], name: value}})
        for lie in lies:
            server.answers = [(200, {}, {"schedules": [lie]})]
            with pytest.raises(ledgerd.MalformedAnswer):
                list(client.schedules("a"))


def test_the_root_keeps_schedules(server: Server) -> None:
    shards: Any = [{"shard": 0, "parent": 2}, {"shard": 2, "root": True}]
    with ledgerd.Client(server.address) as client:
        acme = ledgerd.Sender(client, bytes(32), "acme", ledgerd.PrivateKey(bytes(32)))
        postings = [ledgerd.Posting("acme:till", -5), ledgerd.Posting("b:till", 5)]
        for tree, root in (({"shards": shards}, 2), ({}, 0)):
            server.answers = [(200, {}, {"tree": tree})]
            assert acme.schedule(postings, 1769846400000).shard == root
            assert acme.end_schedule(bytes(32)).shard == root
        monthly = acme.schedule(postings, 1769846400000, period=ledgerd.MONTHS, count=12, root=1)
        assert (monthly.every, monthly.count, monthly.shard) == (1, 12, 1)
        again = acme.schedule(postings, 1769846400000, period=ledgerd.MONTHS, count=12, root=1)
        assert again.id() != monthly.id()
        with pytest.raises(ledgerd.MalformedError):  # neither how many nor until when
            acme.schedule(postings, 1769846400000, period=ledgerd.WEEKS, root=0).encode()


@pytest.mark.parametrize("terms", [
    {"freeze": "ice"}, {"freeze": 1}, {"closed": "true"}, {"noDebits": 1}, {"guardian": "a b"},
    {"limits": [{"asset": "EUR"}]}, {"limits": [{"asset": "EUR", "floor": "5.5"}]},
    {"limits": [{"asset": "EUR", "velocity": "5"}]}, {"metadata": [{"key": ""}]},
    {"metadata": {}}], ids=str)
def test_terms_that_no_account_has_are_no_answer(server: Server, terms: Any) -> None:
    server.answers = [(200, {}, {"account": {"account": "a:till", "terms": terms}})]
    with ledgerd.Client(server.address) as client, pytest.raises(ledgerd.MalformedAnswer):
        client.account("a:till")


def test_another_account_is_no_answer(server: Server) -> None:
    server.answers = [(200, {}, {"account": {"account": "a:safe", "alias": "safe"}})]
    with ledgerd.Client(server.address) as client:
        with pytest.raises(ledgerd.MalformedAnswer):
            client.account_now("a:till")
        with pytest.raises(ledgerd.MalformedAnswer):
            client.account_by_alias("a", "till")


def test_a_sender_says_what_is_wrong(server: Server) -> None:
    with ledgerd.Client(server.address) as client:
        sender = ledgerd.Sender(client, GENESIS.book(), "alice", KEYS["alice"])
        for to in ([], "bob:till"):
            with pytest.raises(ValueError, match="a list of 1 or more accounts"):
                sender.hold("alice:till", 5, to, 1)
        now = ledgerd.AccountNow("bob:till")
        with pytest.raises(ValueError, match="its guardian calls guard"):
            sender.change(now)
        with pytest.raises(ValueError, match="not the guardian of bob:till, but nobody"):
            sender.guard(now, True)
        with pytest.raises(ValueError, match="the freeze of bob:till is none"):
            sender.guard(now.with_terms(guardian="alice"), False)
        with pytest.raises(ledgerd.MalformedError, match="the id of a hold of 2 bytes"):
            sender.post_hold(b"ab")
    assert not server.seen  # and no nonce was taken


def test_failures_name_their_reason() -> None:
    status = answers.Status.of({"idHex": "00" * 32, "state": "TRANSACTION_STATE_FAILED",
                                "reasonCode": "insufficient_funds", "reason": "too little"})
    with pytest.raises(ledgerd.TransactionFailed) as raised:
        ledgerd.require([status], ledgerd.DURABLE)
    assert raised.value.reason_code == "insufficient_funds"
    pending = answers.Status.of({"idHex": "00" * 32, "state": "TRANSACTION_STATE_ORDERED"})
    ledgerd.require([pending], ledgerd.ORDERED)
    with pytest.raises(ledgerd.TransactionPending):
        ledgerd.require([pending], ledgerd.DURABLE)
    expired = answers.Status.of({"idHex": "00" * 32, "state": "TRANSACTION_STATE_EXPIRED"})
    with pytest.raises(ledgerd.TransactionExpired):
        ledgerd.require([expired], ledgerd.ADMITTED)


@pytest.mark.parametrize("address", ["", "127.0.0.1:1", "ftp://a", "http://"])
def test_addresses(address: str) -> None:
    with pytest.raises(ValueError):
        ledgerd.Client(address)
