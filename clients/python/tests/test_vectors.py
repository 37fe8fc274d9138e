"""The published vectors, in the form in which every language reads them."""

from __future__ import annotations

import json
import re
from typing import Any, Callable, Dict, Tuple, cast

import pytest

import ledgerd
from ledgerd import asset, codec, results
from ledgerd.merkle import leaf_hash, path_of, root_of, verify_path
from ledgerd.transaction import check_body

from conftest import (
    BASICS,
    BLOCKS,
    BY_BUNDLE,
    DETAILS,
    GENESIS,
    KEYS,
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
    TRANSACTIONS["transactions"] + DETAILS["transactions"] + SCHEDULES["transactions"]))
def test_transactions(vector: Vector) -> None:
    body = bytes.fromhex(vector["encoded"])
    assert ledgerd.transaction_id(body).hex() == vector["hash"]
    check_body(body)  # bundles and proofs take every kind that nodes take
    if body[0] in (1, 9, 17):
        transaction = ledgerd.Transaction.decode(body)
        assert transaction.encode() == body
        assert transaction.id().hex() == vector["hash"]
    elif body[0] == 2:
        assert ledgerd.MembershipChange.decode(body).encode() == body
    elif body[0] == 13:
        assert ledgerd.AssetChange.decode(body).encode() == body
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
            "assets of a packed bundle": names.PACKED_ASSETS_MAX,
            "bytes of a bundle": names.BUNDLE_BYTES_MAX,
            "hashes of a path": names.PATH_HASHES_MAX,
            "headers of a finality": names.FINALITY_HEADERS_MAX}.items():
        assert bounds[what] == most, what


def decode_bundle(data: bytes) -> Any:
    packed = data[:1] == b"\3"
    return ledgerd.PackedBundle.decode(data) if packed else ledgerd.Bundle.decode(data)


def decode_body(data: bytes) -> Any:
    return ledgerd.PackedBody.decode(data) if data[:1] == b"\x08" else check_body(data)


DECODERS: Dict[Tuple[str, str], Callable[[bytes], Any]] = {
    ("basics.json", "geneses"): ledgerd.Genesis.decode,
    ("transactions.json", "transactions"): decode_body,
    ("details.json", "transactions"): decode_body,
    ("schedules.json", "transactions"): decode_body,
    ("transactions.json", "bundles"): decode_bundle,
    ("packed.json", "bundles"): decode_bundle,
    ("packed.json", "shown"): decode_body,
    ("blocks.json", "proofs"): ledgerd.Proof.decode,
    ("bybundle.json", "proofs"): ledgerd.Proof.decode,
    ("blocks.json", "certificates"): ledgerd.Certificate.decode,
    ("blocks.json", "certified_proofs"): ledgerd.CertifiedProof.decode,
}
FILES = {"basics.json": BASICS, "transactions.json": TRANSACTIONS, "details.json": DETAILS,
         "schedules.json": SCHEDULES, "blocks.json": BLOCKS,
         "packed.json": PACKED, "bybundle.json": BY_BUNDLE}


def encoded_of(vector: Vector) -> bytes:
    group = FILES[vector["file"]][vector["list"]]
    return next(bytes.fromhex(each["encoded"]) for each in group if each["name"] == vector["name"])


def decoded_here(vector: Vector) -> bool:
    """Report whether this package decodes transactions of this kind."""
    return vector["list"] != "transactions" or encoded_of(vector)[0] in (1, 2, 9, 13, 17)


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
