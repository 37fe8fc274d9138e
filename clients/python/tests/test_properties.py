"""Properties of all encodings: what is made decodes to itself, and nothing else decodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, List, Tuple

import pytest
from hypothesis import given, strategies as st

import ledgerd
from ledgerd import codec
from ledgerd.hold import shares_of
from ledgerd.codec import MalformedError
from ledgerd.merkle import leaf_hash, path_of, root_of, verify_path

from conftest import BASICS, BLOCKS, BY_BUNDLE, GENESIS, KEYS, PACKED, TRANSACTIONS

WORD = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
PATH = st.builds(lambda first, rest: first + ":" + ":".join(rest), WORD,
                 st.lists(st.from_regex(r"[A-Za-z0-9_.~@+=$!*/-]{1,12}", fullmatch=True),
                          min_size=1, max_size=3))
UINT64 = st.integers(0, 2**64 - 1)
AMOUNT = st.integers(-2**127, 2**127 - 1)
HASH = st.binary(min_size=32, max_size=32)
NOTE = st.one_of(st.text(max_size=50),
                 st.binary(max_size=50).map(lambda raw: raw.decode("utf-8", "surrogateescape")))
ALIAS = st.text(st.characters(whitelist_categories=("L", "N", "P", "S")), max_size=20)

TRANSACTION = st.builds(
    ledgerd.Transaction, HASH, WORD, UINT64, UINT64, UINT64, st.integers(0, 2**63 - 1),
    st.lists(st.builds(ledgerd.Registration, WORD,
                       st.lists(HASH, min_size=1, max_size=3, unique=True), st.just(True),
                       st.integers(0, 2**32 - 1)), max_size=2),
    st.lists(st.builds(ledgerd.Opening, PATH, st.booleans(), ALIAS), max_size=3),
    st.lists(st.builds(ledgerd.Posting, PATH, AMOUNT, WORD), max_size=5),
    st.lists(st.builds(ledgerd.Record, PATH, st.binary(max_size=50)), max_size=3), NOTE)

LIMIT = st.builds(
    lambda asset, floor, more, velocity: ledgerd.AccountLimit(
        asset, floor, None if more is None else min(2**127 - 1, (floor or 0) + more), velocity),
    WORD, AMOUNT, st.none() | st.integers(0, 2**127 - 1),
    st.none() | st.builds(ledgerd.Velocity, st.integers(0, 2**127 - 1),
                          st.integers(1, 31622400)))
TERMS = st.builds(
    lambda limits, metadata, **further: ledgerd.AccountTerms(
        limits=tuple(sorted(limits, key=lambda each: each.asset)),
        metadata=tuple(sorted(metadata, key=lambda each: each.key)), **further),
    st.lists(LIMIT, max_size=3, unique_by=lambda each: each.asset),
    st.lists(st.builds(ledgerd.Metadatum, WORD, ALIAS, st.booleans()), max_size=3,
             unique_by=lambda each: each.key),
    no_debits=st.booleans(), no_credits=st.booleans(), closed=st.booleans(),
    freeze=st.integers(0, 3), guardian=st.just("guardian"))
CHANGE = st.builds(ledgerd.AccountChange, HASH, st.just("acme"), UINT64, UINT64,
                   st.just("acme:till"), st.integers(1, 2**64 - 1), TERMS, ALIAS, NOTE)
HOLD = st.builds(
    lambda ledger, to, **further: ledgerd.Hold(ledger, "acme", account="acme:till",
                                               to=sorted(to), **further),
    HASH, st.sets(PATH.map(lambda path: "b" + path).filter(lambda path: len(path) < 128),
                  min_size=1, max_size=4),
    stream=UINT64, sequence=UINT64, amount=st.integers(1, 2**127 - 1), poster=WORD, asset=WORD,
    expires=st.integers(1, 2**63 - 1), last_valid=UINT64, deadline=st.integers(0, 2**63 - 1),
    note=NOTE)

SCHEDULE = st.builds(
    lambda ledger, amounts, times, **further: ledgerd.Schedule(
        ledger, "acme", 1, 2, [ledgerd.Posting("acme:till", -sum(amounts)),
                               *(ledgerd.Posting(f"b:{at}", each)
                                 for at, each in enumerate(amounts))], **times, **further),
    HASH, st.lists(st.integers(0, 2**100), min_size=1, max_size=15),
    st.just({}) | st.fixed_dictionaries({"period": st.integers(1, 4), "every": st.integers(1, 5),
                                         "count": st.integers(1, 100)}),
    first=st.integers(1, 2**47), shard=st.integers(0, 2**32 - 1))

TRANSFER = st.builds(lambda a, b, *rest: ledgerd.Transfer(f"a:{a}", f"b:{b}", *rest),
                     st.integers(0, 300), st.integers(0, 300), st.integers(1, 2**127 - 1),
                     st.sampled_from(["unit", "EUR", "USD"]))


@given(UINT64)
def test_integers(value: int) -> None:
    r = codec.Reader(codec.uvarint(value))
    assert r.uvarint() == value
    r.end()


@given(AMOUNT)
def test_amounts(value: int) -> None:
    r = codec.Reader(codec.amount(value))
    assert r.amount() == value
    r.end()


@given(st.binary(max_size=20))
def test_integers_and_amounts_have_one_encoding(data: bytes) -> None:
    for read, write in ((codec.Reader.uvarint, codec.uvarint), (codec.Reader.amount, codec.amount)):
        r = codec.Reader(data)
        try:
            value = read(r)
        except MalformedError:
            continue
        assert write(value) == data[:r.at]


@given(TRANSACTION)
def test_transactions(transaction: ledgerd.Transaction) -> None:
    body = transaction.encode()
    assert ledgerd.Transaction.decode(body) == transaction
    bundle = ledgerd.Bundle.of([transaction]).sign("alice", KEYS["alice"])
    decoded = ledgerd.Bundle.decode(bundle.encode())
    assert decoded == bundle and decoded.signatures[0].verify(decoded.message())


@given(HOLD, st.data())
def test_holds(hold: ledgerd.Hold, data: st.DataObject) -> None:
    assert ledgerd.decode_body(hold.encode()) == hold
    part = data.draw(st.integers(1, hold.amount))
    end = ledgerd.HoldEnd(hold.ledger, hold.poster, 0, 0, hold.id(), hold.account,
                          shares_of(hold, {hold.to[0]: part}))
    assert ledgerd.decode_body(end.encode()) == end


@given(SCHEDULE)
def test_schedules(schedule: ledgerd.Schedule) -> None:
    assert ledgerd.decode_body(schedule.encode()) == schedule
    times = list(schedule.times())
    assert times[0] == schedule.first and len(times) == schedule.count
    assert all(one < other for one, other in zip(times, times[1:]))
    last = schedule.occurrence(schedule.count)
    assert ledgerd.decode_body(last.encode()) == last
    end = ledgerd.ScheduleEnd(schedule.ledger, "acme", 0, 0, schedule.id(), schedule.shard)
    assert ledgerd.decode_body(end.encode()) == end


@given(CHANGE)
def test_changes_of_accounts(change: ledgerd.AccountChange) -> None:
    assert ledgerd.decode_body(change.encode()) == change


@given(TERMS, UINT64, st.integers(0, 4), st.integers(1, 9), st.integers(1, 70), st.data())
def test_proofs_of_balances(terms: ledgerd.AccountTerms, slot: int, guarded: int, number: int,
                            count: int, data: st.DataObject) -> None:
    spent = b"".join(codec.uvarint(slot) + codec.amount(7) * 5 for each in terms.limits
                     if each.velocity)
    entry = b"".join([
        codec.uvarint(number), b"\0", codec.string("Kasse"), codec.uvarint(3), codec.uvarint(9),
        codec.uvarint(1), codec.string("unit"), codec.amount(42),
        codec.uvarint(1), codec.string("unit"), codec.amount(7), codec.amount(1),
        codec.uvarint(4), terms.encode(), spent, codec.uvarint(guarded) if guarded else b""])
    count = max(count, number)
    leaves = [leaf_hash(bytes([at])) for at in range(count)]
    leaves[number - 1] = leaf_hash(b"aacme:till\0" + entry)
    siblings: List[bytes] = []
    place = number - 1
    while len(leaves) > 1:
        first = place - place % 4
        siblings += [leaf for at, leaf in enumerate(leaves[first:first + 4]) if first + at != place]
        leaves = [codec.sha256(b"\1", *leaves[at:at + 4]) if len(leaves) - at > 1 else leaves[at]
                  for at in range(0, len(leaves), 4)]
        place //= 4
    header = ledgerd.Header.decode(bytes.fromhex(BLOCKS["blocks"][0]["header"]))
    others = bytes(range(32))
    header.state_digest = codec.sha256(b"ledgerd/state/2\0", codec.uint(count, 8), leaves[0],
                                       others)
    proof = ledgerd.BalanceProof(header.encode(), "acme:till", entry, count, siblings, others)
    account, _ = ledgerd.BalanceProof.decode(proof.encode()).open()
    assert account.balance() == ledgerd.ProvenBalance(35, 7, 1)
    assert account.now() == ledgerd.AccountNow("acme:till", "Kasse", 4, guarded, terms)
    with pytest.raises(ledgerd.CertificateError):
        proof.verify(GENESIS)
    at = data.draw(st.integers(0, len(entry) - 1))
    changed = entry[:at] + bytes([entry[at] ^ data.draw(st.integers(1, 255))]) + entry[at + 1:]
    for lie in ({"entry": changed}, {"account": "acme:safe"}, {"others": bytes(32)},
                {"siblings": [*siblings, others]}, {"accounts": count * 5},
                {"accounts": number - 1}):
        with pytest.raises(ledgerd.ProofError):
            replace(proof, **lie).open()  # type: ignore[arg-type]


@given(st.lists(TRANSFER, min_size=1, max_size=150), UINT64, st.integers(0, 2**63))
def test_packed_bundles(transfers: List[ledgerd.Transfer], stream: int, sequence: int) -> None:
    bundle = ledgerd.PackedBundle.of(GENESIS.book(), "a", stream, sequence, transfers)
    bundle.sign("a", KEYS["alice"])
    decoded = ledgerd.PackedBundle.decode(bundle.encode())
    assert decoded == bundle and decoded.signatures[0].verify(decoded.message())
    leaves = [leaf_hash(part) for part in bundle.parts]
    for place in {0, len(transfers) // 2, len(transfers) - 1}:
        shown = ledgerd.PackedBody.decode(bundle.body(place))
        assert shown.transfer == transfers[place]
        assert shown.transaction().sequence == sequence + place
        shown.verify([each for part in shown.places for each in path_of(leaves, part)],
                     bundle.root())


@given(st.lists(HASH, min_size=1, max_size=70), st.data())
def test_paths(leaves: List[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    path, root = path_of(leaves, index), root_of(leaves)
    verify_path(leaves[index], index, len(leaves), path, root)
    for wrong in (path + [root], path[:-1]):
        if wrong != path:
            with pytest.raises(ledgerd.ProofError):
                verify_path(leaves[index], index, len(leaves), wrong, root)
    with pytest.raises(ledgerd.ProofError):
        verify_path(leaves[index], len(leaves), len(leaves), path, root)


Decoder = Callable[[bytes], Any]
ENCODED: List[Tuple[Decoder, bytes]] = [
    (decode, bytes.fromhex(each["encoded"])) for decode, group in (
        (ledgerd.Genesis.decode, BASICS["geneses"]),
        (ledgerd.Transaction.decode, [each for each in TRANSACTIONS["transactions"]
                                      if each["encoded"][:2] in ("01", "09")]),
        (ledgerd.MembershipChange.decode, [each for each in TRANSACTIONS["transactions"]
                                           if each["encoded"][:2] == "02"]),
        (ledgerd.decode_body, [each for each in TRANSACTIONS["transactions"]
                               if each["encoded"][:2] in ("0a", "0d", "0e", "0f", "10")]),
        (ledgerd.Bundle.decode, TRANSACTIONS["bundles"]),
        (ledgerd.PackedBundle.decode, PACKED["bundles"]),
        (ledgerd.Proof.decode, BLOCKS["proofs"] + BY_BUNDLE["proofs"]),
        (ledgerd.Certificate.decode, BLOCKS["certificates"]),
        (ledgerd.CertifiedProof.decode, BLOCKS["certified_proofs"]),
    ) for each in group]


@given(st.sampled_from(ENCODED), st.data())
def test_changed_bytes_are_refused_or_another_encoding(encoded: Tuple[Decoder, bytes],
                                                       data: st.DataObject) -> None:
    decode, good = encoded
    at = data.draw(st.integers(0, len(good) - 1))
    changed = data.draw(st.one_of(
        st.just(good[:at]),
        st.binary(min_size=1, max_size=3).map(lambda more: good + more),
        st.integers(1, 255).map(
            lambda flip: good[:at] + bytes([good[at] ^ flip]) + good[at + 1:]),
        st.binary(min_size=1, max_size=3).map(lambda more: good[:at] + more + good[at:])))
    try:
        decoded = decode(changed)
    except MalformedError:
        return
    if decoded is None:
        return  # a kind of body that is not decoded here
    assert decoded.encode() == changed


@given(st.sampled_from(BLOCKS["certified_proofs"]), st.data())
def test_no_changed_proof_shows_another_outcome(vector: Any, data: st.DataObject) -> None:
    good = bytes.fromhex(vector["encoded"])
    at = data.draw(st.integers(0, len(good) - 1))
    flip = data.draw(st.integers(1, 255))
    before = ledgerd.CertifiedProof.decode(good).proof
    try:
        changed = ledgerd.CertifiedProof.decode(good[:at] + bytes([good[at] ^ flip])
                                                + good[at + 1:])
        changed.verify(GENESIS)
    except (MalformedError, ledgerd.ProofError, ledgerd.CertificateError):
        return
    # Whose the keys of a bundle's signatures are has to come from elsewhere, so a proof may name
    # another organisation there. What became of which transaction is proven.
    after = changed.proof
    assert (after.body, after.id, after.result, after.block_hash, after.index) == (
        before.body, before.id, before.result, before.block_hash, before.index)


def test_bundles_are_split_where_they_must() -> None:
    made = [ledgerd.Transaction(bytes(32), "a", 0, i, records=[
        ledgerd.Record("a:r", bytes(60000))]) for i in range(40)]
    bundles = ledgerd.bundles_of(made)
    assert [id_ for each in bundles for id_ in each.ids()] == [each.id() for each in made]
    for each in bundles:
        for i in range(64):
            each.sign("a" * 64, KEYS["alice"])
        each.encode()
    assert len(bundles) == 3
    assert [len(each.bodies) for each in ledgerd.bundles_of(made[:5], most=2)] == [2, 2, 1]


@pytest.mark.parametrize("change", [
    {"signer": ""}, {"signer": "a:b"}, {"signer": "x" * 65}, {"ledger": b""}, {"stream": -1},
    {"sequence": 2**64}, {"note": "x" * 16385}, {"deadline": -1},
    {"postings": [ledgerd.Posting("a", 1)]}, {"postings": [ledgerd.Posting("a:b", 2**127)]},
    {"postings": [ledgerd.Posting("a:b", 1, "")]}, {"postings": [ledgerd.Posting("a::b", 1)]},
    {"openings": [ledgerd.Opening("a:b", alias="\n")]},
    {"registrations": [ledgerd.Registration("b", [])]},
    {"registrations": [ledgerd.Registration("b", [bytes(32), bytes(32)])]},
    {"records": [ledgerd.Record("a:b", bytes(65537))]},
], ids=str)
def test_what_a_node_would_refuse_has_no_encoding(change: Any) -> None:
    fields = {"ledger": bytes(32), "signer": "a", "stream": 0, "sequence": 0, **change}
    with pytest.raises(MalformedError):
        ledgerd.Transaction(**fields).encode()
