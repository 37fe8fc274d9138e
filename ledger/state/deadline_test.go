package state_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// timed is a book with deadlines.
func timed(t *testing.T, parents ...ledger.ShardID) *airlines {
	genesis := ledgertest.ShardedGenesis(1, parents...)
	genesis.Version = ledger.DeadlineVersion
	return newAirlinesOf(t, genesis)
}

// by is the transaction with a deadline.
func by(deadline ledger.Milliseconds, transaction ledger.Transaction) ledger.Transaction {
	transaction.Deadline = deadline
	return transaction
}

// TestEachShardComparesItsOwnTime: of two transactions with one deadline, the second shard executes
// one in time and one too late. The first shard has set both aside in time, and waits for the other
// one's verdicts even after the deadline: one takes effect then, and one is released.
func TestEachShardComparesItsOwnTime(t *testing.T) {
	t.Parallel()
	a := timed(t, 0, 0, 0)
	deadline := a.time + 1000
	early := a.enter(by(deadline, a.transfer(1, 2, 10)))
	a.shards[2].stopped = true
	a.flush()
	a.round(2, &ledger.Batch{Carried: a.stream(2)})
	late := a.signed(by(deadline, a.transfer(1, 2, 20)))
	a.round(0, &ledger.Batch{Bundles: [][]byte{late.Encode()}})
	a.round(1, &ledger.Batch{Carried: a.stream(1)})
	a.has(1, 70, 30, 0)
	a.time = deadline - 1 // the next round is at the deadline
	a.round(2, &ledger.Batch{Carried: a.stream(2)})
	a.expect(early, relayed, setAside, setAside)
	a.expect(late.ID(0), relayed, setAside, int(ledger.DeadlinePassed))
	a.time += 1000
	within := a.signed(a.clients[1].Transfer("org1:a", "org1:b", 1))
	a.round(1, &ledger.Batch{Bundles: [][]byte{within.Encode()}})
	a.has(1, 69, 30, 0)
	a.check()
	a.shards[2].stopped = false
	a.flush()
	a.has(1, 89, 0, 0)
	a.has(2, 110, 0, 0)
	a.checkEnd()
}

// TestDeadlinesOfCrossings: the last millisecond before the deadline is in time, and so is the
// furthest deadline. The shards agree on a transaction without one.
func TestDeadlinesOfCrossings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ahead ledger.Milliseconds // of the block's time
		want  ledger.Code
	}{
		"in time":      {1, ledger.SetAside},
		"at":           {0, ledger.DeadlinePassed},
		"long over":    {-1_000_000, ledger.DeadlinePassed},
		"the furthest": {ledger.MaxDeadline, ledger.SetAside},
		"too far":      {ledger.MaxDeadline + 1, ledger.DeadlineTooFar},
	} {
		a := timed(t, 0, 0)
		bundle := a.signed(by(a.time+1+c.ahead, a.transfer(0, 1, 5)))
		a.round(0, &ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
		if got := a.result(0, bundle.ID(0)); got != int(c.want) {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		a.inbox[0] = nil
		a.submit(0, bundle)
		a.flush()
		a.checkEnd()
	}
	a := timed(t, 0, 0)
	id := a.enter(a.transfer(0, 1, 5))
	a.flush()
	a.expect(id, int(ledger.DeadlineMissing), int(ledger.DeadlineMissing))
	again := a.transfer(0, 1, 5)
	again.Nonce = a.transactions[id].Nonce // a refused transaction takes no nonce
	id = a.enter(by(a.time+100, again))
	a.flush()
	a.expect(id, setAside, setAside)
	a.checkEnd()
}

// TestDeadlineWithinAShard: a transaction of one shard may have a deadline, however far, and a
// registration may not.
func TestDeadlineWithinAShard(t *testing.T) {
	t.Parallel()
	a := timed(t, 0, 0)
	free := a.enter(a.clients[1].Transfer("org1:a", "org1:b", 1))
	far := a.enter(by(1<<62, a.clients[1].Transfer("org1:a", "org1:b", 1)))
	over := a.enter(by(a.time, a.clients[1].Transfer("org1:a", "org1:b", 1)))
	client := ledgertest.NewClient(a.shards[0].genesis, "late")
	registration := client.Bundle(by(1<<62, client.Register()))
	a.submit(0, registration)
	a.flush()
	a.expect(free, none, int(ledger.Applied))
	a.expect(far, none, int(ledger.Applied))
	a.expect(over, none, int(ledger.DeadlinePassed))
	a.expect(registration.ID(0), int(ledger.RegistrationNotAlone),
		int(ledger.RegistrationNotAlone))
	a.checkEnd()

	genesis := ledgertest.Genesis()
	genesis.Version = ledger.DeadlineVersion
	chain, acme := newChain(t, genesis), ledgertest.NewClient(genesis, "acme")
	chain.block(acme.Bundle(acme.Register("issuer", "a")))
	time := chain.parent.Header.Time
	for i, want := range []ledger.Code{ledger.DeadlinePassed, ledger.Applied} {
		bundle := acme.Bundle(by(time+ledger.Milliseconds(i),
			acme.Transfer("acme:issuer", "acme:a", 1)))
		if got := chain.result(bundle); got.Code != want {
			t.Errorf("%d ms before the deadline: %s", i, got)
		}
	}
}

// TestDeadlineBeforeItsVersion: a program that does not know deadlines cannot decode a bundle with
// one. So a chain that does not take them yet leaves the bundle out.
func TestDeadlineBeforeItsVersion(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.DeadlineVersion - 1
	client := ledgertest.NewClient(genesis, "acme")
	bundle := client.Bundle(by(1<<62, client.Register("a")))
	draft := state.Seal(state.Parent{Header: genesis.Block().Header, Hash: genesis.Hash()}, 1, 1,
		ledger.VerifyBatches([][]byte{ledgertest.Batch(5, bundle, client.Bundle(client.Next()))}),
		func(ledger.Hash, *ledger.Transaction) bool { return false })
	if draft == nil || draft.Malformed != 1 || draft.Len() != 1 {
		t.Errorf("%+v", draft)
	}
}

// TestDeadlinesBegin: a shard gets the change of the version and the first transactions with
// deadlines together. It takes the change first, and then the others. What was set aside without a
// deadline goes on.
func TestDeadlinesBegin(t *testing.T) {
	t.Parallel()
	a := newAirlines(t, 0, 0, 1)
	a.upgrades = true
	a.shards[2].stopped = true
	old := a.enter(a.transfer(0, 2, 10))
	a.flush()
	charter := a.shards[0].genesis.Charter()
	charter.Number, charter.Version = 1, ledger.DeadlineVersion
	a.submit(0, ledgertest.Signed(ledger.Operator, []string{"operator"}, ledger.Transaction{
		Ledger: a.shards[0].genesis.Book(), Charter: &ledger.CharterChange{Charter: charter}}))
	a.round(0, &ledger.Batch{Bundles: [][]byte{a.inbox[0][0].Encode()}})
	a.inbox[0] = nil
	timed, without := a.enter(by(a.time+1000, a.transfer(0, 2, 20))), a.enter(a.transfer(0, 2, 1))
	a.round(0, &ledger.Batch{Bundles: [][]byte{a.inbox[0][0].Encode(), a.inbox[0][1].Encode()}})
	a.inbox[0] = nil
	if block := a.round(1, &ledger.Batch{Carried: a.stream(1)}); a.shards[1].state.Version() !=
		ledger.DeadlineVersion || block.Len() == 0 || a.result(1, timed) != none {
		t.Error("a shard took a deadline before it took the version")
	}
	a.shards[2].stopped = false
	a.flush()
	a.expect(old, setAside, relayed, setAside)
	a.expect(timed, setAside, relayed, setAside)
	a.expect(without, int(ledger.DeadlineMissing), relayed, int(ledger.DeadlineMissing))
	a.has(0, 70, 0, 0)
	a.has(2, 130, 0, 0)
	a.checkEnd()
}
