"""What several tests use: the published vectors, and the keys of their seeds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, List

import pytest
from hypothesis import settings

import ledgerd

ROOT = Path(__file__).resolve().parents[3]

# The same examples each time, and none kept in files.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")


def vectors(name: str) -> Dict[str, Any]:
    """Return the content of a file of test vectors."""
    path = ROOT / "ledger" / "testdata" / "vectors" / f"{name}.json"
    found: Dict[str, Any] = json.loads(path.read_text())
    return found


def encodings(vector: List[Dict[str, Any]]) -> List[Any]:
    """Return vectors as the parameters of a test, named."""
    return [pytest.param(each, id=each["name"]) for each in vector]


BASICS = vectors("basics")
TRANSACTIONS = vectors("transactions")
DETAILS = vectors("details")
SCHEDULES = vectors("schedules")
MEMBERS = vectors("members")
BLOCKS = vectors("blocks")
ACCOUNTS = vectors("accounts")
PACKED = vectors("packed")
BY_BUNDLE = vectors("bybundle")

KEYS = {each["name"]: ledgerd.PrivateKey(bytes.fromhex(each["seed"])) for each in BASICS["keys"]}
GENESIS = ledgerd.Genesis.decode(bytes.fromhex(BASICS["geneses"][0]["encoded"]))


@pytest.fixture
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the ledgerd binary that LEDGERD_BINARY names."""
    named = os.environ.get("LEDGERD_BINARY")
    if not named:
        pytest.skip("LEDGERD_BINARY names no ledgerd: scripts/test python builds one")
    return Path(named)
