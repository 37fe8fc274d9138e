"""Shows the Python client of a running ledger.

It registers an organisation, opens two accounts, issues money from one to the other, waits until
that is durable, reads the balance and the history, and verifies with the genesis alone that the
transfer is final. Start a ledger, then run it:

    go run ./cmd/ledgerd testnet --dir net --nodes 4 --run
    PYTHONPATH=clients/python python3 clients/python/examples/shop.py net/node-0/genesis.json
"""

from __future__ import annotations

import sys
from typing import List

import ledgerd


def run(genesis_file: str, addresses: List[str]) -> None:
    """Do what the module says, and print it."""
    # Take the genesis from a source that you trust. Nothing else is believed unverified.
    genesis = ledgerd.Genesis.read(genesis_file)
    # Each run is a new organisation. Keep real keys in a file: see ledgerd.keys.
    key = ledgerd.PrivateKey.generate()
    name = f"shop-{key.public[:4].hex()}"
    mint, till = f"{name}:mint", f"{name}:till"
    with ledgerd.Client(addresses) as client:
        sender = ledgerd.Sender(client, genesis.book(), name, key)
        registration = sender.transaction(
            registrations=[ledgerd.Registration(name, [key.public])],
            # An issuer may go below zero: its debt is the money that it issued.
            openings=[ledgerd.Opening(mint, issuer=True), ledgerd.Opening(till)])
        ledgerd.require(sender.post(registration), ledgerd.DURABLE)
        print(f"{name} is registered, with the accounts {mint} and {till}")

        # A transfer is a set of postings that add up to zero. The three are signed once.
        transfers = [sender.transaction(
            postings=[ledgerd.Posting(mint, -value), ledgerd.Posting(till, value)],
            note=f"the first {value}") for value in (100, 200, 300)]
        statuses = sender.post(transfers)
        ledgerd.require(statuses, ledgerd.DURABLE)
        print(f"three transfers are durable, the last one in block {statuses[-1].height}")

        print(f"{till} holds {client.account(till).balance()} unit")
        for entry in client.history(till):
            print(f"  block {entry.height}: {entry.changes[0].amount} ({entry.note})")

        proof = client.certified_proof(transfers[0].id(), genesis)
        assert proof.finality is not None
        auditor = proof.verify(genesis)
        signers = auditor.signers(proof.finality.certificate)
        print(f"{proof.proof.transaction().note!r} is final: {len(signers)} of "
              f"{len(auditor.members)} members certified it")


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:] or ["http://127.0.0.1:26600", "http://127.0.0.1:26602"])
