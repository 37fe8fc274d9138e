"""Chains whose members change, and lies about them: what Go made, and made wrong.

The explorer's auditor is tested with the same file, so three programs agree about it.
"""

from __future__ import annotations

import json
from typing import Any, Dict

import pytest

import ledgerd

from conftest import ROOT

FIXTURES: Dict[str, Any] = json.loads(
    (ROOT / "explorer" / "test" / "fixtures" / "finality.json").read_text())
GENESIS = ledgerd.Genesis.decode(bytes.fromhex(FIXTURES["genesis"]["canonical"]))
PROVEN = FIXTURES["blocks"][2]  # the block that the lies are about


@pytest.mark.parametrize("fixture", [FIXTURES["genesis"], *FIXTURES["other_geneses"]],
                         ids=lambda each: each["canonical"][:2])
def test_geneses(fixture: Dict[str, str]) -> None:
    genesis = ledgerd.Genesis.decode(bytes.fromhex(fixture["canonical"]))
    assert genesis.encode().hex() == fixture["canonical"]
    assert genesis.hash().hex() == fixture["hash"]


def test_a_shard_that_was_added() -> None:
    grown = ledgerd.Genesis.decode(bytes.fromhex(FIXTURES["other_geneses"][-1]["canonical"]))
    assert (grown.shard, len(grown.shards), len(grown.added)) == (4, 3, 2)
    assert len(grown.members) == 2
    grown.added[1].members[0].name = grown.shards[0].members[0].name
    with pytest.raises(ledgerd.MalformedError):
        ledgerd.Genesis.decode(grown.encode())


@pytest.mark.parametrize("block", FIXTURES["blocks"], ids=lambda each: f"block {each['height']}")
def test_final_blocks(block: Dict[str, Any]) -> None:
    finality = ledgerd.Finality.decode(bytes.fromhex(block["finality"]))
    assert finality.encode().hex() == block["finality"]
    auditor = ledgerd.Auditor(GENESIS)
    auditor.verify(finality, block["height"], bytes.fromhex(block["hash"]))
    assert auditor.epoch == len(finality.changes)
    # It goes on from what it knows, too.
    auditor.verify(finality, block["height"], bytes.fromhex(block["hash"]))


@pytest.mark.parametrize("lie", FIXTURES["lies"], ids=lambda each: each["name"])
def test_lies(lie: Dict[str, str]) -> None:
    auditor = ledgerd.Auditor(GENESIS)
    with pytest.raises((ledgerd.CertificateError, ledgerd.MalformedError)):
        auditor.verify(ledgerd.Finality.decode(bytes.fromhex(lie["finality"])), PROVEN["height"],
                       bytes.fromhex(PROVEN["hash"]))


def test_a_proof_after_changes_of_the_members() -> None:
    proof = ledgerd.CertifiedProof.decode(bytes.fromhex(FIXTURES["certified"]))
    proof.verify(GENESIS)
    assert proof.proof.id.hex() == FIXTURES["id"]
    assert proof.proof.encode().hex() == FIXTURES["proof"]


@pytest.mark.parametrize("fixture", FIXTURES["by_bundle"], ids=lambda each: each["name"])
def test_proofs_by_bundle(fixture: Dict[str, str]) -> None:
    proof = ledgerd.CertifiedProof(
        ledgerd.Proof.decode(bytes.fromhex(fixture["encoded"])),
        ledgerd.Finality.decode(bytes.fromhex(fixture["finality"])))
    proof.verify(GENESIS)
    source, destination = proof.proof.transaction().postings
    assert (source.account, destination.account, destination.asset, destination.amount) == (
        fixture["from"], fixture["to"], fixture["asset"], int(fixture["amount"]))
    # Another result, place, or transaction of the bundle is not shown.
    for name, value in (("result", ledgerd.Result(9, 0)), ("index", proof.proof.index ^ 1),
                        ("bundle_index", proof.proof.bundle_index ^ 1), ("id", bytes(32)),
                        ("bundle_root", bytes(32)), ("placing", None)):
        lie = ledgerd.Proof.decode(bytes.fromhex(fixture["encoded"]))
        if getattr(lie, name) == value:
            continue
        setattr(lie, name, value)
        with pytest.raises(ledgerd.ProofError):
            lie.verify()
