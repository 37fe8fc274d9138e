"""The published vectors, in the form in which every language reads them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Tuple, cast

import pytest

import ledgerd
from ledgerd import asset, codec, results
from ledgerd.hold import shares_of
from ledgerd.merkle import leaf_hash, path_of, root_of, verify_path
from ledgerd.transaction import decode_body as decode_transaction

from conftest import (
    ACCOUNTS,
    BASICS,
    BLOCKS,
    BY_BUNDLE,
    DETAILS,
    GENESIS,
    KEYS,
    MEMBERS,
    PACKED,
    ROOT,
    SCHEDULES,
    TRANSACTIONS,
    encodings,
    vectors,
)

Vector = Dict[str, Any]


@pytest.mark.parametrize("vector", BASICS["keys"], ids=lambda each: each["name"])
def test_keys(vector: Vector) -> None:
    assert KEYS[vector["name"]].public.hex() == vector["public"]


@pytest.mark.parametrize("vector", BASICS["values"], ids=lambda each: each["encoded"][:40])
def test_values(vector: Vector) -> None:
    encoded = bytes.fromhex(vector["encoded"])
    r = codec.Reader(encoded)
    if vector["value"].startswith("refused: "):
        read = {"string": lambda: r.text("bytes", 1 << 20), "uvarint": r.uvarint,
                "amount": r.amount}[vector["kind"]]
        with pytest.raises(ledgerd.MalformedError):
            read()
        return
    if vector["kind"] == "string":
        assert codec.string(vector["value"]) == encoded
        assert r.text("bytes", 1 << 20) == vector["value"]
    elif vector["kind"] == "uvarint":
        assert codec.uvarint(int(vector["value"])) == encoded
        assert r.uvarint() == int(vector["value"])
    else:
        assert vector["kind"] == "amount"
        assert codec.amount(int(vector["value"])) == encoded
        assert r.amount() == int(vector["value"])
    r.end()


@pytest.mark.parametrize("vector", encodings(BASICS["geneses"]))
def test_geneses(vector: Vector) -> None:
    genesis = ledgerd.Genesis.decode(bytes.fromhex(vector["encoded"]))
    assert genesis.encode().hex() == vector["encoded"]
    assert genesis.hash().hex() == vector["hash"]
    assert genesis.book().hex() == vector["book"]


def test_homes() -> None:
    for shards, homes in BASICS["homes"].items():
        for each in homes:
            assert ledgerd.home(each["organisation"], int(shards.split()[0])) == each["shard"]


@pytest.mark.parametrize("vector", encodings(
    TRANSACTIONS["transactions"] + DETAILS["transactions"] + SCHEDULES["transactions"]
    + MEMBERS["transactions"]))
def test_transactions(vector: Vector) -> None:
    body = bytes.fromhex(vector["encoded"])
    assert ledgerd.transaction_id(body).hex() == vector["hash"]
    decode_transaction(body)  # bundles and proofs take every kind that nodes take
    if body[0] in (1, 9, 17):
        transaction = ledgerd.Transaction.decode(body)
        assert transaction.encode() == body
        assert transaction.id().hex() == vector["hash"]
    elif body[0] in (2, 4, 5, 6, 7, 11, 13, 14, 15, 16):
        again = decode_transaction(body)
        assert again is not None and again.encode() == body
        assert again.id().hex() == vector["hash"]
    elif body[0] == 10:
        # The parts, by their names, make the same bytes.
        parts = dict(vector["parts"])
        made = ledgerd.Cancellation(
            bytes.fromhex(parts["ledger"]), bytes.fromhex(parts["signer"]).decode(),
            *(codec.Reader(bytes.fromhex(parts[name])).uvarint()
              for name in ("nonce, stream", "nonce, sequence", "deadline")),
            transaction=bytes.fromhex(parts["id of the other transaction"]),
            shard=codec.Reader(bytes.fromhex(parts["shard"])).uvarint(),
            note=bytes.fromhex(parts.get("note", "")).decode())
        assert made.encode() == body
        assert ledgerd.Cancellation.decode(body) == made
        for wrong in (body[:-1], body + b"\0", b"\1" + body[1:]):
            with pytest.raises(ledgerd.MalformedError):
                ledgerd.Cancellation.decode(wrong)


def test_a_transfer_is_made_from_its_words() -> None:
    made = ledgerd.transfer(GENESIS.book(), "alice", 7, 1, "alice:cash", "bob:cash", 5)
    assert made.encode().hex() == TRANSACTIONS["transactions"][0]["encoded"]
    assert made.consents() == {"alice"}


@pytest.mark.parametrize("vector", encodings(TRANSACTIONS["bundles"]))
def test_bundles(vector: Vector) -> None:
    encoded = bytes.fromhex(vector["encoded"])
    bundle = ledgerd.Bundle.decode(encoded)
    assert bundle.encode() == encoded
    assert [each.hex() for each in bundle.ids()] == vector["ids"]
    _check_signed(bundle, vector)


@pytest.mark.parametrize("vector", encodings(PACKED["bundles"]))
def test_packed_bundles(vector: Vector) -> None:
    encoded = bytes.fromhex(vector["encoded"])
    bundle = ledgerd.PackedBundle.decode(encoded)
    assert bundle.encode() == encoded
    assert [each.hex() for each in bundle.ids()] == vector["ids"]
    assert [part.hex() for part in bundle.parts] == [part for _, part in vector["tree_parts"]]
    _check_signed(bundle, vector)
    head = bundle.head
    again = ledgerd.PackedBundle.of(head.ledger, head.signer, head.stream, head.sequence,
                                    bundle.transfers, head.last_valid)
    assert again.content() == bundle.content()


def _check_signed(bundle: "ledgerd.Bundle | ledgerd.PackedBundle", vector: Vector) -> None:
    assert bundle.root().hex() == vector["root"]
    assert bundle.message().hex() == vector["signed"]
    signatures, bundle.signatures = bundle.signatures, []
    for each in signatures:
        assert each.verify(bundle.message())
        name = each.organisation or "operator"
        bundle.sign(each.organisation, KEYS[name])
    assert bundle.encode().hex() == vector["encoded"]
    assert bundle.unsigned() <= {""}


@pytest.mark.parametrize("vector", encodings(PACKED["shown"]))
def test_shown(vector: Vector) -> None:
    body = bytes.fromhex(vector["encoded"])
    shown = ledgerd.PackedBody.decode(body)
    bundles = [ledgerd.PackedBundle.decode(bytes.fromhex(each["encoded"]))
               for each in PACKED["bundles"]]
    bundle = next(each for each in bundles if each.head == shown.head)
    assert bundle.body(shown.place) == body
    assert bundle.ids()[shown.place].hex() == vector["hash"]
    assert bundle.transfers[shown.place] == shown.transfer
    leaves = [leaf_hash(part) for part in bundle.parts]
    path = [each for place in shown.places for each in path_of(leaves, place)]
    shown.verify(path, bundle.root())
    path[-1] = bytes(32)
    with pytest.raises(ledgerd.ProofError):
        shown.verify(path, bundle.root())


@pytest.mark.parametrize("vector", encodings(BLOCKS["blocks"] + BY_BUNDLE["blocks"]))
def test_blocks(vector: Vector) -> None:
    header = ledgerd.Header.decode(bytes.fromhex(vector["header"]))
    assert header.encode().hex() == vector["header"]
    assert header.hash().hex() == vector["hash"]
    for leaves, root in (("transaction_leaves", header.transactions_root),
                         ("result_leaves", header.results_root),
                         ("bundle_leaves", header.bundles_root)):
        hashes = [bytes.fromhex(each) for each in vector[leaves]]
        assert root_of(hashes) == root
        for index, leaf in enumerate(hashes):
            verify_path(leaf, index, len(hashes), path_of(hashes, index), root)


@pytest.mark.parametrize("vector", encodings(BLOCKS["proofs"] + BY_BUNDLE["proofs"]))
def test_proofs(vector: Vector) -> None:
    proof = ledgerd.Proof.decode(bytes.fromhex(vector["encoded"]))
    assert proof.encode().hex() == vector["encoded"]
    proof.verify()
    assert proof.transaction().signer == "alice"


@pytest.mark.parametrize("vector", encodings(BLOCKS["certificates"]))
def test_certificates(vector: Vector) -> None:
    certificate = ledgerd.Certificate.decode(bytes.fromhex(vector["encoded"]))
    assert certificate.encode().hex() == vector["encoded"]


@pytest.mark.parametrize("vector", encodings(BLOCKS["certified_proofs"]))
def test_certified_proofs(vector: Vector) -> None:
    proof = ledgerd.CertifiedProof.decode(bytes.fromhex(vector["encoded"]))
    assert proof.encode().hex() == vector["encoded"]
    auditor = proof.verify(GENESIS)
    assert proof.finality is not None
    assert len(auditor.signers(proof.finality.certificate)) >= auditor.majority
    # By another genesis it does not hold.
    other = ledgerd.Genesis.decode(bytes.fromhex(BASICS["geneses"][2]["encoded"]))
    with pytest.raises(ledgerd.CertificateError):
        proof.verify(other)


@pytest.mark.parametrize("vector", encodings(ACCOUNTS["proofs"]))
def test_proofs_of_balances(vector: Vector) -> None:
    encoded = bytes.fromhex(vector["encoded"])
    proof = ledgerd.BalanceProof.decode(encoded)
    assert proof.encode() == encoded
    account, _ = proof.open()
    expected, = (each for each in ACCOUNTS["accounts"] if each["name"] == vector["name"])
    assert proof.entry.hex() == expected["encoded"]
    leaf = b"a" + account.account.encode() + b"\0" + proof.entry
    assert leaf_hash(leaf).hex() == expected["hash"]
    with pytest.raises(ledgerd.CertificateError):
        proof.verify(GENESIS)
    for at in range(len(proof.entry)):
        with pytest.raises(ledgerd.ProofError):
            replace(proof, entry=flipped(proof.entry, at)).open()
    if "velocity" in vector["name"]:
        velocity = ledgerd.Spent(78_703, (300, 0, 256, 1, 44))
        assert account.standing == ledgerd.Standing(5, 2, TERMS, (ledgerd.Spent(), velocity))
        assert account.now() == ledgerd.AccountNow("alice:3", "front desk", 5, 2, TERMS)
    if "set aside" in vector["name"]:
        assert account.balance() == ledgerd.ProvenBalance(35, 7, 1)
        assert account.balance("EUR") == ledgerd.ProvenBalance(500)
    if "closed" in vector["name"]:
        assert account.standing is not None and account.standing.terms.closed


@pytest.mark.parametrize("vector", encodings(ACCOUNTS["accounts"]))
def test_accounts_have_one_encoding(vector: Vector) -> None:
    entry = bytes.fromhex(vector["encoded"])
    whole = ledgerd.ProvenAccount.decode("alice:1", entry)
    for size in range(len(entry)):
        try:  # the parts at the end are there only if there is something to say
            assert ledgerd.ProvenAccount.decode("alice:1", entry[:size]) != whole
        except ledgerd.MalformedError:
            pass
    for more in (b"\0", b"\0\0"):
        with pytest.raises(ledgerd.MalformedError):
            ledgerd.ProvenAccount.decode("alice:1", entry + more)


def test_members_that_joined_certify() -> None:
    proof = ledgerd.CertifiedProof.decode(
        bytes.fromhex(BLOCKS["certified_proofs"][1]["encoded"]))
    assert proof.finality is not None and len(proof.finality.changes) == 1
    auditor = proof.verify(GENESIS)
    assert auditor.epoch == 1 and auditor.members[3].name == "node-3"
    # Without the change, the new members are not believed.
    proof.finality.changes = []
    with pytest.raises(ledgerd.CertificateError, match="epoch 1, not 0"):
        proof.verify(GENESIS)


def test_a_minority_certifies_nothing() -> None:
    proof = ledgerd.CertifiedProof.decode(
        bytes.fromhex(BLOCKS["certified_proofs"][0]["encoded"]))
    assert proof.finality is not None
    del proof.finality.certificate.seals[1:]
    with pytest.raises(ledgerd.CertificateError, match="1 of 3 members"):
        proof.verify(GENESIS)


def test_signatures_at_the_edge() -> None:
    text = (ROOT / "ledger" / "testdata" / "ed25519-edge-cases.txt").read_text()
    cases = [line.split() for line in text.splitlines() if line and line[0] != "#"]
    assert len(cases) >= 10
    for message, key, signature, good in cases:
        assert ledgerd.verify(bytes.fromhex(key), bytes.fromhex(signature),
                              bytes.fromhex(message)) == (good == "true")


def test_a_registration_of_an_asset_is_made_from_its_words() -> None:
    made = ledgerd.AssetChange(
        GENESIS.book(), "alice", 7, 5, "EUR", decimals=2, supply=asset.CAPPED, cap=1_000_000,
        issuers=[ledgerd.Issuer("alice", 700_000), ledgerd.Issuer("bob", 300_000, withdrawn=True)])
    expected, = (each for each in TRANSACTIONS["transactions"]
                 if each["name"] == "a registration of an asset")
    assert made.encode().hex() == expected["encoded"]
    assert made.id().hex() == expected["hash"]
    assert made.consents() == {"alice"}


def made_as(name: str) -> Any:
    expected, = (each for each in TRANSACTIONS["transactions"] if each["name"] == name)
    return expected["encoded"]


HELD = ledgerd.Hold(GENESIS.book(), "alice", 7, 6, "alice:cash", 5000, ["bob:cash", "carol:fees"],
                    "bob", 1_700_600_000_000, "EUR", deadline=1_700_000_060_000)
TERMS = ledgerd.AccountTerms(
    no_credits=True, freeze=ledgerd.BY_GUARDIAN, guardian="bob",
    limits=(ledgerd.AccountLimit("EUR", 50, 9000),
            ledgerd.AccountLimit("unit", velocity=ledgerd.Velocity(1000, 86400))),
    metadata=(ledgerd.Metadatum("iban", "DE12", True), ledgerd.Metadatum("note", "ours")))


def test_holds_are_made_from_their_words() -> None:
    assert HELD.encode().hex() == made_as("a hold")
    end = ledgerd.HoldEnd(GENESIS.book(), "alice", 7, 7, b"\1\2\3" + bytes(29), "carol:cash", [
        ledgerd.Posting("carol:cash", -4200, "EUR"), ledgerd.Posting("alice:cash", 4200, "EUR")],
        last_valid=12)
    assert end.encode().hex() == made_as("the end of a hold")
    end.postings, end.last_valid, end.sequence = [], 0, 8
    assert end.encode().hex() == made_as("a voided hold")
    assert HELD.consents() == end.consents() == {"alice"}
    bundle = ledgerd.Bundle.of([HELD, end])
    assert bundle.unsigned() == {"alice"}


SCHEDULE = ledgerd.Schedule(
    GENESIS.book(), "alice", 7, 10, [ledgerd.Posting("alice:cash", -90000, "EUR"),
                                     ledgerd.Posting("bob:rents", 90000, "EUR")],
    1_769_846_400_000, ledgerd.MONTHS, 1, 0, 1_798_732_800_000, 2, 1_700_000_100_000)


def test_schedules_are_made_from_their_words() -> None:
    def made(name: str) -> str:
        return next(str(each["encoded"]) for each in SCHEDULES["transactions"]
                    if each["name"] == name)
    placed = ledgerd.Schedule.decode(bytes.fromhex(made("a schedule")))
    assert replace(SCHEDULE, first=placed.first, until=placed.until,
                   deadline=placed.deadline) == placed
    end = ledgerd.ScheduleEnd(GENESIS.book(), "alice", 7, 11, b"\1\2\3" + bytes(29), 2)
    assert end.encode().hex() == made("the end of a schedule")
    occurrence = ledgerd.Occurrence.decode(bytes.fromhex(made("an occurrence of a schedule")))
    assert occurrence.postings == placed.postings
    assert occurrence.time == placed.time_of(2)
    assert replace(placed.occurrence(2), schedule=occurrence.schedule) == occurrence
    assert placed.consents() == end.consents() == {"alice"}


def test_months_have_their_last_day() -> None:
    january = int(datetime(2027, 1, 31, 8, tzinfo=timezone.utc).timestamp()) * 1000
    schedule = replace(SCHEDULE, first=january, count=26, until=0)
    times = [datetime.fromtimestamp(each / 1000, timezone.utc) for each in schedule.times()]
    assert [f"{each:%m-%d}" for each in times[:4]] == ["01-31", "02-28", "03-31", "04-30"]
    assert f"{times[13]:%Y-%m-%d %H}" == "2028-02-29 08"
    for count, until, many in ((5, 0, 5), (0, times[7].timestamp() * 1000, 8),
                               (5, times[7].timestamp() * 1000, 5)):
        assert replace(schedule, count=count, until=int(until)).occurrences() == many
    late = replace(schedule, first=253_402_214_400_000, count=12)  # the last day of the year 9999
    assert list(late.times())[1] == 253_402_214_400_000 + 31 * 86_400_000


@pytest.mark.parametrize("change", [
    {"first": 0}, {"first": 2**48 + 1}, {"period": 5}, {"period": -1}, {"every": 0},
    {"every": 367}, {"count": 4097}, {"count": 0, "until": 0}, {"until": 1}, {"until": -1},
    {"period": ledgerd.ONCE}, {"note": "x" * 257}, {"deadline": -1}, {"shard": -1},
    {"every": 366, "count": 4096, "until": 0}, {"first": 1.5}, {"count": True}, {"signer": "bob"},
    {"postings": []}, {"postings": [ledgerd.Posting("alice:cash", 0)]},
    {"postings": [ledgerd.Posting("alice:cash", -1), ledgerd.Posting("bob:rents", 2)]},
    {"postings": [ledgerd.Posting("bob:cash", -1), ledgerd.Posting("alice:cash", 1)]},
    {"postings": [ledgerd.Posting("alice:cash", -2**127),
                  ledgerd.Posting("bob:rents", 2**127)]}], ids=str)
def test_schedules_that_no_node_takes_have_no_encoding(change: Dict[str, Any]) -> None:
    with pytest.raises(ledgerd.MalformedError):
        replace(SCHEDULE, **change).encode()


def test_terms_are_made_from_their_words() -> None:
    change = ledgerd.AccountChange(GENESIS.book(), "alice", 7, 9, "alice:till", 2, TERMS,
                                   "front desk")
    assert change.encode().hex() == made_as("a change of the terms of an account")
    frozen = ledgerd.AccountChange(GENESIS.book(), "alice", 7, 10, "bob:till", 3,
                                   ledgerd.guarding("alice", True))
    assert frozen.encode().hex() == made_as("a freeze by a guardian")
    assert change.consents() == frozen.consents() == {"alice"}


@pytest.mark.parametrize("change", [
    {"account": "bob:cash"}, {"account": "alice"}, {"amount": 0}, {"amount": -1},
    {"amount": 2**127}, {"to": []}, {"to": ["b:b", "a:a"]}, {"to": ["b:b", "b:b"]},
    {"to": ["alice:cash"]}, {"to": ["b"]}, {"to": [f"a:{at:02}" for at in range(17)]},
    {"poster": ""}, {"expires": 0}, {"expires": 2**63}, {"asset": ""}, {"deadline": -1},
    {"note": "x" * 16385}, {"amount": 5.0}, {"amount": "5"}, {"amount": True}, {"expires": "soon"},
    {"stream": 1.5}, {"account": ""}, {"signer": ""}, {"ledger": b""}], ids=str)
def test_holds_that_no_node_takes_have_no_encoding(change: Dict[str, Any]) -> None:
    with pytest.raises(ledgerd.MalformedError):
        replace(HELD, **change).encode()


@pytest.mark.parametrize("postings", [
    [("a:a", -5)], [("a:b", -5), ("b:b", 5)], [("a:a", -5), ("a:a", 5)], [("a:a", 5), ("b:b", 5)],
    [("a:a", -5), ("b:b", -5)], [("a:a", -5), ("b:b", 0)],
    [("a:a", -5), ("b:b", 5, "EUR")],
    [("a:a", -17), *((f"b:{at}", 1) for at in range(17))]], ids=str)
def test_ends_of_holds_that_no_node_takes_have_no_encoding(postings: Any) -> None:
    with pytest.raises(ledgerd.MalformedError):
        ledgerd.HoldEnd(bytes(32), "b", 0, 1, bytes(32), "a:a",
                        [ledgerd.Posting(*each) for each in postings]).encode()


def test_shares_of_a_hold() -> None:
    one = replace(HELD, to=["bob:cash"])
    assert shares_of(one, None) == [ledgerd.Posting("alice:cash", -5000, "EUR"),
                                    ledgerd.Posting("bob:cash", 5000, "EUR")]
    assert shares_of(one, 20)[0].amount == -20
    both = shares_of(HELD, {"carol:fees": 1, "bob:cash": 4999})
    assert [each.amount for each in both] == [-5000, 1, 4999]
    for hold, shares in ((HELD, None), (HELD, 5), (one, 5001), (one, 0), (one, -1), (HELD, {}),
                         (HELD, {"bob:till": 1}), (HELD, {"bob:cash": 5000, "carol:fees": 1}),
                         (one, 5.5), (one, "5"), (one, True)):  # type: ignore[list-item]
        with pytest.raises(ValueError):
            shares_of(hold, shares)


@pytest.mark.parametrize("change", [
    {"no_debits": 2}, {"closed": "no"}, {"metadata": (ledgerd.Metadatum("a", "x", "no"),)},
    {"freeze": 4}, {"guardian": "a b"}, {"guardian": ""}, {"guardian": "alice"},
    {"limits": (ledgerd.AccountLimit("EUR"),)},
    {"limits": (ledgerd.AccountLimit("", 1),)},
    {"limits": (ledgerd.AccountLimit("EUR", 2, 1),)},
    {"limits": (ledgerd.AccountLimit(velocity=ledgerd.Velocity(1, 0)),)},
    {"limits": (ledgerd.AccountLimit(velocity=ledgerd.Velocity(-1, 1)),)},
    {"limits": (ledgerd.AccountLimit(velocity=ledgerd.Velocity(1, 31622401)),)},
    {"limits": (ledgerd.AccountLimit(floor=1.5),)}, {"limits": (ledgerd.AccountLimit(floor="5"),)},
    {"limits": (ledgerd.AccountLimit(ceiling=2**127),)}, {"freeze": "owner"},
    {"limits": (ledgerd.AccountLimit("b", 1), ledgerd.AccountLimit("a", 1))},
    {"limits": tuple(ledgerd.AccountLimit(f"a{at:02}", 1) for at in range(17))},
    {"metadata": (ledgerd.Metadatum("", "x"),)}, {"metadata": (ledgerd.Metadatum("a", "\n"),)},
    {"metadata": (ledgerd.Metadatum("a" * 33, "x"),)},
    {"metadata": (ledgerd.Metadatum("a", "x" * 129),)},
    {"metadata": (ledgerd.Metadatum("a", "x"),) * 2}], ids=str)
def test_account_terms_that_no_node_takes_have_no_encoding(change: Dict[str, Any]) -> None:
    with pytest.raises(ledgerd.MalformedError):
        ledgerd.AccountChange(bytes(32), "alice", 0, 0, "alice:till", 1,
                              replace(TERMS, **change)).encode()


@pytest.mark.parametrize("change", [
    {"number": 0}, {"alias": "x"}, {"terms": ledgerd.guarding("carol", True)},
    {"terms": ledgerd.AccountTerms(freeze=ledgerd.BY_BOTH, guardian="bob")},
    {"terms": ledgerd.AccountTerms()},
    {"terms": replace(TERMS, freeze=0)}], ids=str)
def test_changes_that_no_guardian_makes_have_no_encoding(change: Dict[str, Any]) -> None:
    good = ledgerd.AccountChange(bytes(32), "bob", 0, 0, "alice:till", 1,
                                 ledgerd.guarding("bob", False))
    good.encode()
    with pytest.raises(ledgerd.MalformedError):
        replace(good, **change).encode()


def test_terms_are_edited_part_by_part() -> None:
    now = ledgerd.AccountNow("alice:till", "desk", 4, 2, replace(TERMS, freeze=0))
    assert now.limited(ledgerd.AccountLimit("EUR")).terms.limits == TERMS.limits[1:]
    more = now.limited(ledgerd.AccountLimit("CHF", 1)).terms
    assert [each.asset for each in more.limits] == ["CHF", "EUR", "unit"]
    assert more.limit("CHF").floor == 1 and more.limit("none").empty
    labelled = now.labelled({"note": "", "iban": "DE13", "b": "c"}, index=["b"], alias="",
                            guardian="")
    assert labelled.terms.metadata == (ledgerd.Metadatum("b", "c", True),
                                       ledgerd.Metadatum("iban", "DE13", True))
    assert (labelled.alias, labelled.terms.guardian) == ("", "")
    assert now.frozen().terms.freeze == ledgerd.BY_OWNER
    assert now.frozen().unfrozen() == now
    assert now.closed().terms.closed and now.terms == replace(TERMS, freeze=0)
    with pytest.raises(ValueError, match="no metadatum 'none'"):
        now.labelled(index=["none"])
    with pytest.raises(TypeError):
        now.with_terms(ceiling=5)


@pytest.mark.parametrize("name", ["a hold", "the end of a hold", "a voided hold",
                                  "a freeze by a guardian", "a change of the terms of an account"])
def test_bodies_that_are_cut_short_or_go_on_are_refused(name: str) -> None:
    body = bytes.fromhex(made_as(name))
    for wrong in [body[:size] for size in range(len(body))] + [body + b"\0", body + body]:
        with pytest.raises(ledgerd.MalformedError):
            decode_transaction(wrong)


@pytest.mark.parametrize("change", [
    {"asset": "unit"}, {"number": 0}, {"decimals": 31}, {"supply": 3}, {"cap": 7}, {"cap": -1},
    {"supply": 1, "cap": 5, "issuers": [ledgerd.Issuer("a", 3), ledgerd.Issuer("b", 3)]},
    {"supply": 1, "cap": 5, "issuers": [ledgerd.Issuer("a", -3)]},
    {"issuers": [ledgerd.Issuer("b"), ledgerd.Issuer("a")]},
    {"issuers": [ledgerd.Issuer("a"), ledgerd.Issuer("a")]},
    {"issuers": [ledgerd.Issuer(f"a{at:02}") for at in range(65)]}], ids=str)
def test_terms_that_no_node_takes_have_no_encoding(change: Dict[str, Any]) -> None:
    words: Dict[str, Any] = {"asset": "EUR", **change}
    with pytest.raises(ledgerd.MalformedError):
        ledgerd.AssetChange(GENESIS.book(), "alice", 7, 5, **words).encode()


@pytest.mark.parametrize("text, decimals, value, shown", [
    ("12.5", 2, 1250, "12.50"), ("12", 2, 1200, "12.00"), ("-0.05", 2, -5, "-0.05"),
    ("0", 2, 0, "0.00"), ("7", 0, 7, "7"), ("1.234567890123456789", 18, 1234567890123456789,
                                             "1.234567890123456789")])
def test_amounts_with_decimals(text: str, decimals: int, value: int, shown: str) -> None:
    assert ledgerd.parse_decimal(text, decimals) == value
    assert ledgerd.decimal(value, decimals) == shown
    assert ledgerd.parse_decimal(shown, decimals) == value


@pytest.mark.parametrize("text, decimals", [
    ("12.505", 2), ("12.500", 2), ("1.0", 0), ("1.", 2), (".5", 2), ("+1", 2), ("01", 2),
    ("1e2", 2), ("-0", 2), ("-0.00", 2), ("", 2), (" 1", 2), ("1_0", 2), ("9" * 39, 0),
    ("9" * 5000, 2),
    ("\u0661", 0)])
def test_amounts_are_never_rounded_nor_guessed(text: str, decimals: int) -> None:
    with pytest.raises(ledgerd.MalformedError):
        ledgerd.parse_decimal(text, decimals)


FIRST, SECOND = KEYS["alice"].public, KEYS["bob"].public
POLICY = ledgerd.PolicyChange(
    GENESIS.book(), "alice", 2,
    [ledgerd.PolicyKey(FIRST), ledgerd.PolicyKey(SECOND, ledgerd.ROLE_POST)],
    limits=[ledgerd.PolicyLimit("EUR", 5, 1)], refuse_assets=True, assets=["CHF", "EUR"])


def test_a_policy_is_made_from_its_words() -> None:
    made = ledgerd.PolicyChange(
        GENESIS.book(), "alice", 1,
        [ledgerd.PolicyKey(FIRST), ledgerd.PolicyKey(KEYS["another"].public),
         ledgerd.PolicyKey(SECOND, ledgerd.ROLE_POST)],
        limits=[ledgerd.PolicyLimit("unit", 1000, 2)], refuse_assets=True, assets=["EUR", "unit"],
        stream=7, sequence=4)
    assert made.encode().hex() == made_as("a change of a policy")
    assert made.consents() == ledgerd.Bundle.of([made]).unsigned() == {"alice"}


@pytest.mark.parametrize("change", [
    {"signer": ""}, {"number": 0}, {"keys": []}, {"keys": [POLICY.keys[0]] * 2},
    {"keys": [ledgerd.PolicyKey(FIRST, ledgerd.ROLE_POST)]},
    {"keys": [ledgerd.PolicyKey(FIRST, 4)]}, {"keys": [ledgerd.PolicyKey(b"")]},
    {"threshold": 0}, {"threshold": 2},  # one key alone may change the policy
    {"limits": [ledgerd.PolicyLimit("EUR", 5, 2)]}, {"limits": [ledgerd.PolicyLimit("EUR", -1, 1)]},
    {"limits": [ledgerd.PolicyLimit("EUR", 5, 0)]}, {"limits": POLICY.limits * 2},
    {"limits": [ledgerd.PolicyLimit("", 5, 1)]}, {"refuse_assets": False},
    {"assets": ["EUR", "CHF"]}, {"assets": ["EUR", "EUR"]}, {"assets": [""]},
    {"note": "x" * 16385}], ids=str)
def test_policies_that_no_node_takes_have_no_encoding(change: Dict[str, Any]) -> None:
    assert decode_transaction(POLICY.encode()) == POLICY
    with pytest.raises(ledgerd.MalformedError):
        replace(POLICY, **change).encode()


def test_a_charter_is_made_from_its_words() -> None:
    operators = [KEYS["operator"].public, KEYS["another"].public]
    made = ledgerd.CharterChange(GENESIS.book(), 1, operators, 2, sequence=1)
    assert made.encode().hex() == made_as("a change of the charter")
    made = replace(made, quotas=(0, 1 << 20, 0, 0, 0), sequence=2)
    assert made.encode().hex() == made_as("a change of the charter with quotas")
    made = replace(made, version=2, number=3, sequence=4)
    assert made.encode().hex() == made_as("a change of the charter with a version and quotas")
    made = ledgerd.CharterChange(GENESIS.book(), 2, operators[:1], version=2, sequence=3)
    assert made.encode().hex() == made_as("a change of the charter with a version")
    assert not ledgerd.Bundle.of([made]).unsigned()  # the node says which operators are missing


@pytest.mark.parametrize("change", [
    {"number": 0}, {"operators": []}, {"operators": [FIRST, FIRST]}, {"operators": [b"x"]},
    {"threshold": 0}, {"threshold": 3}, {"quotas": (1,)}, {"quotas": (0,) * 5},
    {"quotas": (2**48 + 1, 0, 0, 0, 0)}, {"quotas": (-1, 0, 0, 0, 0)}, {"version": 1 << 17},
    {"version": -1}, {"note": "x" * 16385}], ids=str)
def test_charters_that_no_node_takes_have_no_encoding(change: Dict[str, Any]) -> None:
    good = ledgerd.CharterChange(GENESIS.book(), 2, [FIRST, SECOND], 2, True)
    good.encode()
    with pytest.raises(ledgerd.MalformedError):
        replace(good, **change).encode()


SHARDED = ledgerd.Genesis.decode(bytes.fromhex(BASICS["geneses"][1]["encoded"]))
MEMBER = ledgerd.Member("node-9", FIRST, "127.0.0.1:9")


def test_changes_of_the_shards_are_made_from_their_words() -> None:
    made = ledgerd.BookChange(SHARDED.book(), 1, ledgerd.ShardLoss(1), sequence=5)
    assert made.encode().hex() == made_as("two shards: a settlement with a lost shard")
    made = ledgerd.BookChange(SHARDED.book(), 2, ledgerd.ShardRehang(3, 1), sequence=6)
    assert made.encode().hex() == made_as("two shards: a change of the tree")
    assert not ledgerd.Bundle.of([made]).unsigned()
    for change in (ledgerd.ShardAddition(1, [MEMBER]), ledgerd.OrganisationMove("alice", 1)):
        body = replace(made, change=change).encode()
        assert decode_transaction(body) == replace(made, change=change)


@pytest.mark.parametrize("number, change", [
    (0, ledgerd.ShardLoss(1)), (1, ledgerd.ShardLoss(-1)), (1, ledgerd.ShardLoss(1 << 32)),
    (1 << 24, ledgerd.ShardRehang(1, 0)), (1 << 32, ledgerd.OrganisationMove("alice", 1)),
    (1, ledgerd.OrganisationMove("", 1)), (1, ledgerd.ShardAddition(0, [])),
    (1, ledgerd.ShardAddition(1024, [MEMBER])), (1, ledgerd.ShardAddition(0, [MEMBER] * 2)),
    (1, ledgerd.ShardAddition(0, [replace(MEMBER, key=b"")])),
    (1, ledgerd.ShardAddition(0, [replace(MEMBER, address="")]))], ids=str)
def test_changes_of_the_shards_that_no_node_takes_have_no_encoding(number: int,
                                                                   change: Any) -> None:
    with pytest.raises(ledgerd.MalformedError):
        ledgerd.BookChange(bytes(32), number, change).encode()


def test_reasons() -> None:
    reasons = json.loads((ROOT / "node" / "api" / "testdata" / "reasons.json").read_text())
    assert [results.reason_code(code) for code in range(results.CODES)] == reasons


def test_bounds_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "encoding.md").read_text()
    bounds = {what: int(most) for what, most in re.findall(r"^\| ([^|]+) \| (\d+) \|$", page, re.M)}
    from ledgerd import names
    for what, most in {
            "bytes of an organisation's or a member's name": names.ORGANISATION_MAX,
            "bytes of a chain's name": names.CHAIN_NAME_MAX,
            "bytes of an asset's name": names.ASSET_MAX,
            "bytes of an account or of a record's key": names.PATH_MAX,
            "bytes of an alias": names.ALIAS_MAX,
            "bytes of a note": names.NOTE_MAX,
            "bytes of a record's value": names.RECORD_VALUE_MAX,
            "bytes of a body": names.BODY_MAX,
            "registrations of a transaction": names.REGISTRATIONS_MAX,
            "openings of a transaction": names.OPENINGS_MAX,
            "postings of a transaction": names.POSTINGS_MAX,
            "records of a transaction": names.RECORDS_MAX,
            "keys of an organisation": names.KEYS_MAX,
            "limits of a policy": names.LIMITS_MAX,
            "assets of a policy": names.POLICY_ASSETS_MAX,
            "operators": names.OPERATORS_MAX,
            "members of a shard": names.MEMBERS_MAX,
            "bytes of a member's key": names.MEMBER_KEY_MAX,
            "bytes of a member's address": names.ADDRESS_MAX,
            "shards": names.SHARDS_MAX,
            "indexes that members ever had": names.MEMBER_INDEXES_MAX,
            "transactions of a bundle": names.BUNDLE_TRANSACTIONS_MAX,
            "signatures of a bundle": names.BUNDLE_SIGNATURES_MAX,
            "decimals of an asset": names.DECIMALS_MAX,
            "issuers of an asset": names.ISSUERS_MAX,
            "accounts of a hold": names.HOLD_ACCOUNTS_MAX,
            "limits of an account": names.ACCOUNT_LIMITS_MAX,
            "metadata of an account": names.METADATA_MAX,
            "bytes of a key of metadata": names.METADATA_KEY_MAX,
            "bytes of a value of metadata": names.METADATA_VALUE_MAX,
            "seconds of a velocity": names.VELOCITY_SECONDS_MAX,
            "assets of a packed bundle": names.PACKED_ASSETS_MAX,
            "bytes of a bundle": names.BUNDLE_BYTES_MAX,
            "hashes of a path": names.PATH_HASHES_MAX,
            "headers of a finality": names.FINALITY_HEADERS_MAX}.items():
        assert bounds[what] == most, what


def decode_bundle(data: bytes) -> Any:
    packed = data[:1] == b"\3"
    return ledgerd.PackedBundle.decode(data) if packed else ledgerd.Bundle.decode(data)


def decode_body(data: bytes) -> Any:
    return ledgerd.PackedBody.decode(data) if data[:1] == b"\x08" else decode_transaction(data)


DECODERS: Dict[Tuple[str, str], Callable[[bytes], Any]] = {
    ("basics.json", "geneses"): ledgerd.Genesis.decode,
    ("transactions.json", "transactions"): decode_body,
    ("details.json", "transactions"): decode_body,
    ("schedules.json", "transactions"): decode_body,
    ("members.json", "transactions"): decode_body,
    ("transactions.json", "bundles"): decode_bundle,
    ("packed.json", "bundles"): decode_bundle,
    ("packed.json", "shown"): decode_body,
    ("blocks.json", "proofs"): ledgerd.Proof.decode,
    ("bybundle.json", "proofs"): ledgerd.Proof.decode,
    ("blocks.json", "certificates"): ledgerd.Certificate.decode,
    ("blocks.json", "certified_proofs"): ledgerd.CertifiedProof.decode,
    ("accounts.json", "proofs"): ledgerd.BalanceProof.decode,
}
FILES = {"basics.json": BASICS, "transactions.json": TRANSACTIONS, "details.json": DETAILS,
         "schedules.json": SCHEDULES, "members.json": MEMBERS, "blocks.json": BLOCKS,
         "accounts.json": ACCOUNTS, "packed.json": PACKED, "bybundle.json": BY_BUNDLE}


def encoded_of(vector: Vector) -> bytes:
    group = FILES[vector["file"]][vector["list"]]
    return next(bytes.fromhex(each["encoded"]) for each in group if each["name"] == vector["name"])


def decoded_here(vector: Vector) -> bool:
    """Report whether this package decodes transactions of this kind."""
    return vector["list"] != "transactions" or encoded_of(vector)[0] not in (3, 12)


@pytest.mark.parametrize("vector", [
    pytest.param(each, id=f"{each['list']}: {each['name']}")
    for each in cast(Any, vectors("flipped")) if decoded_here(each)])
def test_decoders_take_and_refuse_what_nodes_do(vector: Vector) -> None:
    good = encoded_of(vector)
    decode = DECODERS[vector["file"], vector["list"]]
    bodies = vector["list"] == "transactions"
    # The version of the first body of a bundle, after the bundle's own version and two lengths.
    body_at = 3 + (good[2] >= 0x80)
    wrong = []
    for flip, expected in ((1, vector["flip_01"]), (0x80, vector["flip_80"])):
        assert len(expected) == len(good)
        for at in range(len(good)):
            if bodies and at == 0:
                continue  # another kind
            changed = bytearray(good)
            changed[at] ^= flip
            if vector["list"] == "bundles" and good[0] == 1 and at == body_at:
                continue
            try:
                decode(bytes(changed))
                taken = "1"
            except ledgerd.MalformedError:
                taken = "0"
            if taken != expected[at]:
                wrong.append(f"byte {at} ^ {flip:02x}: taken {taken}, by nodes {expected[at]}")
    assert not wrong


def flipped(value: bytes, at: int = 0) -> bytes:
    return value[:at] + bytes([value[at] ^ 1]) + value[at + 1:]


@pytest.mark.parametrize("vector", encodings(BLOCKS["proofs"] + BY_BUNDLE["proofs"]))
def test_no_field_of_a_proof_can_be_changed(vector: Vector) -> None:
    good = ledgerd.Proof.decode(bytes.fromhex(vector["encoded"]))
    # The state digest is nothing that the paths lead to.
    lies = {"header": flipped(good.header, 170), "block_hash": flipped(good.block_hash),
            "count": good.count + 1, "id": flipped(good.id), "bundle_root": bytes(32),
            "body": BLOCKS["proofs"][0]["encoded"].encode(), "index": good.index + 1,
            "result": ledgerd.Result(9, 1), "bundle_index": good.bundle_index + 1,
            "bundle_count": good.bundle_count + 2 ** 12,
            "transaction_path": [*good.transaction_path, bytes(32)],
            "result_path": [*good.result_path, bytes(32)],
            "bundle_path": [*good.bundle_path, bytes(32)]}
    for name, value in lies.items():
        lie = ledgerd.Proof.decode(good.encode())
        setattr(lie, name, value)
        with pytest.raises(ledgerd.ProofError):
            lie.verify()
    other = ledgerd.transfer(GENESIS.book(), "alice", 7, 1, "alice:cash", "bob:cash", 6)
    lie = ledgerd.Proof.decode(good.encode())
    lie.body = other.encode()
    with pytest.raises(ledgerd.ProofError):
        lie.verify()
    for place in range(len(good.signatures)):
        lie = ledgerd.Proof.decode(good.encode())
        lie.signatures[place].signature = flipped(lie.signatures[place].signature)
        with pytest.raises(ledgerd.ProofError, match="signature"):
            lie.verify()


def test_a_change_that_failed_or_is_not_proven_changes_no_members() -> None:
    encoded = bytes.fromhex(BLOCKS["certificates"][1]["encoded"])
    good = ledgerd.Certificate.decode(encoded)
    assert good.change is not None and good.membership_change().member is not None
    good.change.signatures[0].signature = flipped(good.change.signatures[0].signature)
    with pytest.raises(ledgerd.CertificateError, match="signature"):
        good.membership_change()
    # A block in which the change failed, whose roots are right.
    failed = ledgerd.Certificate.decode(encoded)
    proof = failed.change
    assert proof is not None and proof.count == 1 and proof.placing is None
    proof.result = ledgerd.Result(13, results.NO_ITEM)
    header = proof.block()
    header.results_root = leaf_hash(proof.id + proof.result.encode())
    proof.header, proof.block_hash, failed.hash = header.encode(), header.hash(), header.hash()
    proof.verify()
    with pytest.raises(ledgerd.CertificateError, match="changed no members"):
        failed.membership_change()
