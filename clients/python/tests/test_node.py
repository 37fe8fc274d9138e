"""The client against a real ledger of three nodes."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest

import ledgerd
from ledgerd import keys

from conftest import ROOT

NODES = 3


def free_ports(count: int) -> int:
    """Return the first of so many free ports in a row, below those that systems give out."""
    for first in range(20000 + os.getpid() % 1000 * 10, 32000, count):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for i, each in enumerate(sockets):
                each.bind(("127.0.0.1", first + i))
            return first
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
    raise OSError("no free ports")


class Ledger:
    """A running ledger."""

    def __init__(self, binary: Path, folder: Path) -> None:
        self.binary, self.folder = binary, folder
        port = free_ports(2 * NODES)
        self.addresses = [f"http://127.0.0.1:{port + 2 * i}" for i in range(NODES)]
        self.log = open(folder / "log", "wb")
        self.process = subprocess.Popen(
            [str(binary), "testnet", "--dir", str(folder / "net"), "--nodes", str(NODES),
             "--base-port", str(port), "--run"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.genesis_file = folder / "net" / "node-0" / "genesis.json"

    def wait(self) -> None:
        """Wait until the nodes order."""
        deadline = time.monotonic() + 60
        with ledgerd.Client(self.addresses, timeout=2) as client:
            while True:
                assert self.process.poll() is None, (self.folder / "log").read_text()
                try:
                    if client.node().mode == "ordering":
                        return
                except ledgerd.LedgerdError:
                    pass
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.05)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()
            self.log.close()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    named = os.environ.get("LEDGERD_BINARY")
    if not named:
        pytest.skip("LEDGERD_BINARY names no ledgerd: scripts/test python builds one")
    made = Ledger(Path(named), tmp_path_factory.mktemp("ledger"))
    try:
        made.wait()
        yield made
    finally:
        made.stop()


def registered(ledger: Ledger, client: ledgerd.Client, name: str) -> ledgerd.Sender:
    """Register an organisation with an issuer and two accounts."""
    genesis = ledgerd.Genesis.read(ledger.genesis_file)
    key = ledgerd.PrivateKey.generate()
    sender = ledgerd.Sender(client, genesis.book(), name, key)
    made = sender.transaction(
        registrations=[ledgerd.Registration(name, [key.public])],
        openings=[ledgerd.Opening(f"{name}:mint", issuer=True),
                  ledgerd.Opening(f"{name}:till", alias="Kasse 1"),
                  ledgerd.Opening(f"{name}:safe")])
    ledgerd.require(sender.post(made), ledgerd.DURABLE)
    return sender


def move(sender: ledgerd.Sender, source: str, destination: str, value: int,
         **further: str) -> ledgerd.Transaction:
    name = sender.organisation
    return sender.transaction(postings=[ledgerd.Posting(f"{name}:{source}", -value),
                                        ledgerd.Posting(f"{name}:{destination}", value)],
                              **further)


def test_post_wait_and_read(ledger: Ledger) -> None:
    genesis = ledgerd.Genesis.read(ledger.genesis_file)
    with ledgerd.Client(ledger.addresses) as client:
        assert client.genesis() == genesis
        sender = registered(ledger, client, "reads")
        made = [move(sender, "mint", "till", value, note=f"number {value}")
                for value in range(1, 6)]
        bundle, = sender.bundles(made)
        assert len(bundle.signatures) == 1
        admitted = client.submit(bundle, ledgerd.ADMITTED)
        assert [each.id for each in admitted] == [each.id() for each in made]
        waited = client.wait_all([each.id() for each in made])
        ledgerd.require(waited, ledgerd.DURABLE)
        # The same bytes again are the same transactions.
        again = client.submit(bundle)
        assert [(each.id, each.height, each.index) for each in again] == [
            (each.id, each.height, each.index) for each in waited]
        assert client.account("reads:till").balance() == 15
        assert client.account("reads:till").alias == "Kasse 1"
        assert client.account("reads:mint").balance() == -15
        assert client.status(made[0].id()).state == "durable"
        assert [each.account for each in client.accounts("reads:", page_size=2)] == [
            "reads:mint", "reads:safe", "reads:till"]
        history = list(client.history("reads:till", ascending=True, page_size=2))
        assert [(each.transaction_id, each.changes[0].amount, each.note) for each in history] == [
            (each.id(), i, f"number {i}") for i, each in enumerate(made, 1)]
        height = waited[0].height
        block = client.block(height)
        assert made[0].id() in [each.id for each in block.transactions]
        assert ledgerd.Header.decode(block.header.canonical).hash() == block.header.hash
        headers = list(client.blocks(1, page_size=3))
        assert headers[0].previous == genesis.hash()
        assert all(a.hash == b.previous for a, b in zip(headers, headers[1:]))
        assert client.nonce("reads") == made[-1].sequence + 1


def test_failures_are_typed(ledger: Ledger) -> None:
    with ledgerd.Client(ledger.addresses) as client:
        sender = registered(ledger, client, "fails")
        with pytest.raises(ledgerd.TransactionFailed) as failed:
            ledgerd.require(sender.post(move(sender, "safe", "till", 5)), ledgerd.DURABLE)
        assert failed.value.reason_code == "insufficient_funds"
        with pytest.raises(ledgerd.NotFound):
            client.account("fails:none")
        with pytest.raises(ledgerd.NotFound):
            client.status(bytes(32))
        forged = ledgerd.Bundle.of([move(sender, "mint", "till", 1)]).sign(
            "fails", ledgerd.PrivateKey.generate())
        with pytest.raises(ledgerd.PermissionDenied):
            client.submit(forged)
        with pytest.raises(ledgerd.InvalidArgument):
            client.call("GetAccount", {"account": "no account"})


def test_packed_bundles(ledger: Ledger) -> None:
    genesis = ledgerd.Genesis.read(ledger.genesis_file)
    with ledgerd.Client(ledger.addresses) as client:
        sender = registered(ledger, client, "packs")
        bundle = sender.pack([ledgerd.Transfer("packs:mint", "packs:till", 10),
                              ledgerd.Transfer("packs:till", "packs:safe", 3)] * 50
                             + [ledgerd.Transfer("packs:safe", "packs:till", 1000)])
        statuses = client.submit(bundle)
        ledgerd.require(statuses[:-1], ledgerd.DURABLE)
        assert statuses[-1].reason_code == "insufficient_funds"
        assert client.account("packs:till").balance() == 350
        for place in (0, 70, 100):
            proof = client.certified_proof(statuses[place].id, genesis).proof
            assert proof.result.reason == statuses[place].reason_code
            assert proof.transaction().postings[1].amount == bundle.transfers[place].amount


def test_proofs_hold_offline_and_tampered_ones_do_not(ledger: Ledger, tmp_path: Path) -> None:
    genesis = ledgerd.Genesis.read(ledger.genesis_file)
    with ledgerd.Client(ledger.addresses) as client:
        sender = registered(ledger, client, "proves")
        made = move(sender, "mint", "till", 42)
        status, = sender.post(made)
        proof = client.certified_proof(made.id(), genesis)
        auditor = client.certified_block(status.height, genesis)
    assert auditor.epoch == 0 and len(auditor.members) == NODES
    encoded = proof.encode()
    kept = ledgerd.CertifiedProof.decode(encoded)
    assert kept.proof.transaction() == made and kept.proof.result.applied
    assert kept.finality is not None
    signers = kept.verify(genesis).signers(kept.finality.certificate)
    assert len(signers) >= 2
    # The product's own command agrees about the same bytes.
    file = tmp_path / "payment.proof"
    file.write_bytes(encoded)
    told = subprocess.run([str(ledger.binary), "tx", "status", "--proof", str(file), "--genesis",
                           str(ledger.genesis_file)], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0 and "holds" in told.stdout, told.stdout + told.stderr
    other = ledgerd.Genesis.read(ledger.genesis_file)
    other.time += 1
    with pytest.raises(ledgerd.CertificateError):
        kept.verify(other)
    refused = 0
    for at in range(0, len(encoded), 17):
        changed = bytearray(encoded)
        changed[at] ^= 1
        try:
            lie = ledgerd.CertifiedProof.decode(bytes(changed))
            lie.verify(genesis)
        except (ledgerd.MalformedError, ledgerd.ProofError, ledgerd.CertificateError):
            refused += 1
            continue
        # Whose key signed the bundle has to come from elsewhere: only that name may differ.
        assert lie.proof.signatures != kept.proof.signatures
        lie.proof.signatures = kept.proof.signatures
        assert lie == kept
    assert refused > len(encoded) // 20


def test_proofs_of_supplies_hold_offline(ledger: Ledger, tmp_path: Path) -> None:
    genesis = ledgerd.Genesis.read(ledger.genesis_file)
    with ledgerd.Client(ledger.addresses) as client:
        sender = registered(ledger, client, "issues")
        for name in ("EUR", "USD"):
            change = ledgerd.AssetChange(genesis.book(), "issues", 0, 0, name, decimals=2,
                                         supply=1, cap=100_000,
                                         issuers=[ledgerd.Issuer("issues", 60_000)])
            register = ledgerd.Bundle([change.encode()]).sign("issues", sender._key)
            ledgerd.require(client.submit(register), ledgerd.DURABLE)
        for value in (12_345, -345):
            posted = sender.post(sender.transaction(postings=[
                ledgerd.Posting("issues:mint", -value, "EUR"),
                ledgerd.Posting("issues:till", value, "EUR")]))
            ledgerd.require(posted, ledgerd.DURABLE)
        proof = client.proven_supply("EUR", genesis)
        with pytest.raises(ledgerd.NotFound):
            client.proven_supply("NONE", genesis)
    encoded = proof.encode()
    kept = ledgerd.SupplyProof.decode(encoded)
    supply, shards = kept.verify(genesis)
    assert supply == ledgerd.Supply(12_345, 345, 12_000)
    (asset, _), = shards
    assert (asset.name, asset.owner, asset.decimals, asset.cap) == ("EUR", "issues", 2, 100_000)
    # The product's own command agrees about the same bytes.
    file = tmp_path / "supply.proof"
    file.write_bytes(encoded)
    told = subprocess.run([str(ledger.binary), "verify", "--proof", str(file), "--genesis",
                           str(ledger.genesis_file)], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0 and "120.00" in told.stdout, told.stdout + told.stderr
    other = ledgerd.Genesis.read(ledger.genesis_file)
    other.time += 1
    with pytest.raises(ledgerd.CertificateError):
        kept.verify(other)
    for at in range(0, len(encoded), 7):
        changed = bytearray(encoded)
        changed[at] ^= 1
        with pytest.raises((ledgerd.MalformedError, ledgerd.ProofError,
                            ledgerd.CertificateError)):
            ledgerd.SupplyProof.decode(bytes(changed)).verify(genesis)
    with pytest.raises(ledgerd.ProofError):
        ledgerd.SupplyProof([]).verify(genesis)


def hours(count: int) -> int:
    return int(time.time() * 1000) + count * 3_600_000


def test_holds_are_placed_posted_and_voided(ledger: Ledger) -> None:
    with ledgerd.Client(ledger.addresses) as client:
        holder = registered(ledger, client, "holder")
        shop = registered(ledger, client, "shop")
        ledgerd.require(holder.post(move(holder, "mint", "till", 100)), ledgerd.DURABLE)
        to = ["shop:till", "shop:safe"]
        made = [holder.hold("holder:till", value, to[:1 + value // 40], hours(1), note="order")
                for value in (20, 40, 10)]
        ledgerd.require(holder.post(made), ledgerd.DURABLE)
        assert client.account("holder:till").balances[0].amount == 30
        assert client.account("holder:till").balances[0].set_aside == 70
        ids = [each.id() for each in made]
        found = client.hold(ids[1])
        assert (found.account, found.asset, found.amount, found.to, found.poster) == (
            "holder:till", "unit", 40, sorted(to), "shop")
        for chosen in ({"organisation": "holder"}, {"account": "holder:till"},
                       {"poster": "shop"}):
            listed = list(client.holds(page_size=1, **chosen))  # type: ignore[arg-type]
            assert {each.id for each in listed} == set(ids)
        assert not list(client.holds(poster="holder"))
        assert client.placed_hold(ids[0]) == made[0]
        with pytest.raises(ledgerd.ProofError):
            client.placed_hold(holder.post(move(holder, "mint", "safe", 1))[0].id)
        with pytest.raises(ValueError):
            shop.post_hold(ids[0], placed=made[1])
        with pytest.raises(ValueError):
            shop.post_hold(ids[1])
        stolen = holder.post(holder.void_hold(ids[0]))[0]
        assert stolen.reason_code == "hold_differs"
        ends = [shop.post_hold(ids[0]), shop.post_hold(ids[1], {"shop:till": 5, "shop:safe": 7}),
                shop.void_hold(ids[2], note="cancelled")]
        ledgerd.require(shop.post(ends), ledgerd.DURABLE)
        assert client.account("holder:till").balance() == 68
        assert client.account("shop:till").balance() == 25
        assert client.account("shop:safe").balance() == 7
        with pytest.raises(ledgerd.NotFound):
            client.hold(ids[0])
        again, = shop.post(shop.post_hold(ids[0]))
        assert again.reason_code == "unknown_hold"


def test_schedules_are_executed_and_ended(ledger: Ledger) -> None:
    with ledgerd.Client(ledger.addresses) as client:
        tenant, landlord = registered(ledger, client, "tenant"), registered(ledger, client, "lord")
        ledgerd.require(tenant.post(move(tenant, "mint", "till", 100)), ledgerd.DURABLE)
        rent = [ledgerd.Posting("tenant:till", -30), ledgerd.Posting("lord:till", 30)]
        soon = int(time.time() * 1000) + 5000
        once = tenant.schedule(rent, soon, note="rent")
        monthly = tenant.schedule(rent, hours(1), period=ledgerd.MONTHS, count=12)
        ledgerd.require(tenant.post([once, monthly]), ledgerd.DURABLE)
        assert {each.id for each in client.schedules("tenant")} >= {monthly.id()}
        assert client.schedule(monthly.id()).next == monthly.first
        over = time.monotonic() + 60
        while client.account("lord:till").balance() != 30:
            assert time.monotonic() < over, "the occurrence is not executed"
            time.sleep(0.1)
        executed = client.status(once.occurrence(1).id())
        assert executed.state in (ledgerd.ORDERED, ledgerd.STORED, ledgerd.DURABLE)
        assert not list(client.schedules("lord"))
        stolen = landlord.post(landlord.end_schedule(monthly.id()))[0]
        assert stolen.reason_code == "unknown_schedule"
        ledgerd.require(tenant.post(tenant.end_schedule(monthly.id())), ledgerd.DURABLE)
        with pytest.raises(ledgerd.NotFound):
            client.schedule(monthly.id())
        assert not list(client.schedules("tenant"))


def test_a_node_cannot_make_a_poster_sign_less(ledger: Ledger) -> None:
    with ledgerd.Client(ledger.addresses) as client:
        holder = registered(ledger, client, "payer")
        shop = registered(ledger, client, "payee")
        placed = holder.hold("payer:mint", 9, ["payee:till"], hours(1))
        other = holder.hold("payer:mint", 1, ["payee:till"], hours(1))
        ledgerd.require(holder.post([placed, other]), ledgerd.DURABLE)

        class Liar(ledgerd.Client):
            """Answers with the proof of another hold, or with one that is changed."""

            def call(self, name: str, request: Any, timeout: Optional[float] = None) -> Any:
                found = super().call(name, request, timeout)
                if name == "GetProof":
                    lie = ledgerd.Proof.decode(base64.b64decode(found["proof"]["encoded"]))
                    lie.body = other.encode()
                    found["proof"]["encoded"] = base64.b64encode(lie.encode()).decode()
                return found

        with Liar(ledger.addresses) as liar:
            shop.client = liar
            with pytest.raises((ledgerd.ProofError, ledgerd.MalformedAnswer)):
                shop.post_hold(placed.id())
        shop.client = client
        assert shop.post_hold(placed.id()).postings[1].amount == 9


def test_terms_of_accounts(ledger: Ledger) -> None:
    genesis = ledgerd.Genesis.read(ledger.genesis_file)
    with ledgerd.Client(ledger.addresses) as client:
        acme, bank = (registered(ledger, client, name) for name in ("terms", "guard"))

        def done(sender: ledgerd.Sender, change: ledgerd.AccountChange) -> None:
            ledgerd.require(sender.post(change), ledgerd.DURABLE)

        def refused(made: ledgerd.Transaction, why: str) -> None:
            assert acme.post(made)[0].reason_code == why

        till = client.account_now("terms:till", genesis)
        assert till == ledgerd.AccountNow("terms:till", "Kasse 1", 1)  # opened with an alias
        limit = ledgerd.AccountLimit(floor=5, ceiling=50, velocity=ledgerd.Velocity(20, 3600))
        till = till.limited(limit).labelled({"iban": "DE12", "note": "ours"}, index=["iban"],
                                            alias="front desk", guardian="guard")
        done(acme, acme.change(till))
        ledgerd.require(acme.post(move(acme, "mint", "till", 50)), ledgerd.DURABLE)
        refused(move(acme, "mint", "till", 1), "above_ceiling")
        refused(move(acme, "till", "safe", 46), "below_floor")
        refused(move(acme, "till", "safe", 21), "velocity_exceeded")
        assert acme.post(acme.change(till, "again"))[0].reason_code == "account_outdated"
        now = client.account_now("terms:till", genesis)
        assert now == client.account_now("terms:till") and now.terms == till.terms

        assert client.account_by_alias("terms", "front desk").account == "terms:till"
        with pytest.raises(ledgerd.NotFound):
            client.account_by_alias("terms", "none")
        assert [each.account for each in client.accounts(where=("iban", "DE12"))] == [
            "terms:till"]
        assert not list(client.accounts(where=("note", "ours")))  # not indexed

        # The freeze takes effect although the terms changed since.
        freeze = bank.guard(now, True)
        done(acme, acme.change(now.labelled({"note": "mine"})))
        done(bank, freeze)
        refused(move(acme, "mint", "till", 1), "account_frozen")
        now = client.account_now("terms:till", genesis)
        assert now.terms.frozen_by_guardian and now.guarded == 1
        assert acme.post(acme.change(now.unfrozen()))[0].reason_code == "account_fixed"
        done(bank, bank.guard(now, False))
        done(acme, acme.change(client.account_now("terms:till").frozen()))
        refused(move(acme, "mint", "till", 1), "account_frozen")
        done(acme, acme.change(client.account_now("terms:till").unfrozen()))

        proof = client.proven_account("terms:till", genesis)
        kept = ledgerd.BalanceProof.decode(proof.encode())
        account, header, shard = kept.verify(genesis)
        assert account.balance().amount == 50 and account.standing is not None and shard == 0
        assert (account.standing.revision, account.standing.guarded) == (7, 2)
        assert client.block(header.height).header.hash == header.hash()

        done(acme, acme.change(client.account_now("terms:safe").closed()))
        refused(move(acme, "mint", "safe", 1), "account_closed")


def test_policies(ledger: Ledger) -> None:
    with ledgerd.Client(ledger.addresses) as client:
        acme = registered(ledger, client, "policies")
        second = ledgerd.PrivateKey.generate()
        policy = ledgerd.PolicyChange(
            acme.ledger, "policies", 1,
            [ledgerd.PolicyKey(acme._key.public), ledgerd.PolicyKey(second.public)],
            limits=[ledgerd.PolicyLimit("unit", 10, 2)], refuse_assets=True, assets=["unit"])
        ledgerd.require(acme.post(policy), ledgerd.DURABLE)
        ledgerd.require(acme.post(move(acme, "mint", "till", 10)), ledgerd.DURABLE)
        more = move(acme, "mint", "till", 11)
        held = acme.hold("policies:till", 11, ["policies:safe"], hours(1))
        for made in (more, held):
            with pytest.raises(ledgerd.PermissionDenied, match="2 keys of organisation policies"):
                acme.post(made)
        with_both = ledgerd.Bundle.of([more, held])
        for key in (acme._key, second):
            with_both.sign("policies", key)
        ledgerd.require(client.submit(with_both), ledgerd.DURABLE)
        proof = client.proof(policy.id()).proof
        proof.verify()
        assert ledgerd.decode_body(proof.body) == policy


def test_charts_of_accounts(ledger: Ledger) -> None:
    with ledgerd.Client(ledger.addresses) as client:
        acme = registered(ledger, client, "chart")
        names = ["chart:till:a", "chart:till:b", "chart:till2"]
        made = acme.transaction(openings=[ledgerd.Opening(each) for each in names])
        moves = [acme.transaction(postings=[ledgerd.Posting("chart:mint", -value),
                                            ledgerd.Posting(each, value)])
                 for value, each in enumerate(["chart:till", *names], 1)]
        ledgerd.require(acme.post([made, *moves]), ledgerd.DURABLE)
        lines = client.chart("chart")
        assert [(each.path, each.depth, each.account, each.accounts, each.totals)
                for each in lines] == [
            ("chart", 1, False, 6, {"unit": 0}), ("chart:mint", 2, True, 1, {"unit": -10}),
            ("chart:safe", 2, True, 1, {}),
            ("chart:till", 2, True, 3, {"unit": 6}), ("chart:till:a", 3, True, 1, {"unit": 2}),
            ("chart:till:b", 3, True, 1, {"unit": 3}), ("chart:till2", 2, True, 1, {"unit": 4})]
        cut = client.cut()
        ledgerd.require(acme.post(acme.transaction(postings=[
            ledgerd.Posting("chart:mint", -9), ledgerd.Posting("chart:till", 9)])),
            ledgerd.DURABLE)
        assert [(each.path, each.totals["unit"]) for each in
                client.chart("chart:till", 0, cut)] == [("chart:till", 6)]
        assert all(total == 0 for total in client.chart(depth=0)[0].totals.values())


def test_supplies_add_up_where_issuers_came_to_last() -> None:
    def asset(issued: int, arrived: int, decimals: int = 2) -> ledgerd.ProvenAsset:
        return ledgerd.ProvenAsset(1, "EUR", "a", 1, 1, decimals, 0, 0, False,
                                   [ledgerd.Issuer("a")],
                                   [ledgerd.Issuance(issued, arrived=arrived)])

    assert ledgerd.supply_of([]) == ledgerd.Supply()
    assert ledgerd.supply_of([asset(5, 0), asset(0, 0)]).issued == 5
    assert ledgerd.supply_of([asset(0, 0), asset(5, 0)]).issued == 5
    assert ledgerd.supply_of([asset(5, 0), asset(7, 3)]).issued == 7  # it moved with its 5
    for wrong in ([asset(5, 0), asset(7, 0)], [asset(5, 0), asset(0, 0, 3)]):
        with pytest.raises(ledgerd.ProofError):
            ledgerd.supply_of(wrong)


def test_key_files(ledger: Ledger, tmp_path: Path) -> None:
    environment: Dict[str, str] = {**os.environ, "LEDGERD_KEYS": str(tmp_path / "keys"),
                                   "HOME": str(tmp_path)}

    def command(*arguments: str, told: str = "") -> str:
        done = subprocess.run([str(ledger.binary), *arguments], env=environment, input=told,
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    passphrase = tmp_path / "passphrase"
    passphrase.write_text("correct horse battery staple\n")
    passphrase.chmod(0o600)
    command("keys", "create", "plain", "--plain")
    command("keys", "create", "sealed", "--passphrase-file", str(passphrase))
    files: List[Path] = [each for each in tmp_path.rglob("*.key")]
    found = {keys.read(each).organisation: keys.read(each) for each in files}
    assert set(found) == {"plain", "sealed"}
    plain, sealed = found["plain"], found["sealed"]
    assert not plain.encrypted and plain.private().public == plain.public
    assert sealed.encrypted
    with pytest.raises(keys.PassphraseError):
        sealed.private()
    with pytest.raises(keys.PassphraseError):
        sealed.private("wrong")
    assert sealed.private("correct horse battery staple").public == sealed.public
    # The other way round: the product reads what this package wrote.
    key = ledgerd.PrivateKey.generate()
    keys.create(files[0].parent / "made.key", "made", key)
    assert key.public.hex() in command("keys", "list", "--json")
    with pytest.raises(FileExistsError):
        keys.create(files[0].parent / "made.key", "made", key)


def test_the_example(ledger: Ledger) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "clients/python/examples/shop.py"), str(ledger.genesis_file),
         *ledger.addresses], env={**os.environ, "PYTHONPATH": str(ROOT / "clients/python"),
                                  "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "holds 600 unit" in done.stdout and "is final" in done.stdout
