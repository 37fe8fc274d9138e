package state_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// cancelling is a book with cancellations.
func cancelling(t *testing.T, parents ...ledger.ShardID) *airlines {
	genesis := ledgertest.ShardedGenesis(1, parents...)
	genesis.Version = ledger.CancelVersion
	return newAirlinesOf(t, genesis)
}

const (
	taken     = int(ledger.Applied)
	cancelled = int(ledger.Cancelled)
	tooLate   = int(ledger.CancelledTooLate)
)

// cancel has an organisation cancel a transaction at a shard, which makes a block of it.
func (a *airlines) cancel(by int, id ledger.Hash, deadline ledger.Milliseconds, shard int) int {
	a.t.Helper()
	bundle := a.clients[by].Bundle(a.clients[by].Cancel(id, deadline, ledger.ShardID(shard)))
	if entry := a.shards[0].state.BundleEntry(bundle); int(entry) != shard {
		a.t.Fatalf("a cancellation for shard %d enters at shard %d", shard, entry)
	}
	a.round(ledger.ShardID(shard), &ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
	return a.result(shard, bundle.ID(0))
}

// TestCancelledInTime: a cancellation reaches shard 2 before the transaction does, and shard 1
// after it. Shard 1 has agreed, refuses the cancellation and keeps its part until it has the
// verdict of shard 2.
func TestCancelledInTime(t *testing.T) {
	t.Parallel()
	a := cancelling(t, 0, 0, 0)
	transaction := by(a.time+10_000, a.transfer(1, 2, 30))
	bundle := a.signed(transaction)
	id := bundle.ID(0)
	a.round(0, &ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
	a.round(1, &ledger.Batch{Carried: a.stream(1)})
	if got := a.cancel(1, id, transaction.Deadline, 1); got != tooLate {
		t.Errorf("shard 1 says %d", got)
	}
	if got := a.cancel(1, id, transaction.Deadline, 2); got != taken {
		t.Errorf("shard 2 says %d", got)
	}
	a.has(1, 70, 30, 0)
	a.check()
	a.round(2, &ledger.Batch{Carried: a.stream(2)})
	a.expect(id, relayed, setAside, cancelled)
	a.has(1, 70, 30, 0)
	if got := a.cancel(1, id, transaction.Deadline, 1); got != tooLate {
		t.Errorf("shard 1 says %d while it waits", got)
	}
	a.flush()
	a.has(1, 100, 0, 0)
	a.has(2, 100, 0, 0)
	a.checkEnd()
}

// TestOnlyThoseWhoseConsentIsNeededCancel: the id of a transaction may be known to all, and a
// shard that has not seen the transaction takes every cancellation. That of a stranger, or of an
// organisation that only receives, has no effect. That of any organisation that pays has.
func TestOnlyThoseWhoseConsentIsNeededCancel(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by   int
		want int
	}{"a stranger": {3, setAside}, "who receives": {2, setAside}, "the signer": {0, cancelled},
		"who pays": {1, cancelled}} {
		a := cancelling(t, 0, 0, 0, 0)
		transaction := by(a.time+10_000, a.transfer(1, 2, 30))
		transaction.Signer, transaction.Nonce = "org0", a.clients[0].Next().Nonce
		bundle := a.signed(transaction)
		if got := a.cancel(c.by, bundle.ID(0), transaction.Deadline, 2); got != taken {
			t.Errorf("%s: %d", name, got)
		}
		a.submit(0, bundle)
		a.flush()
		a.expect(bundle.ID(0), setAside, setAside, c.want, none)
		a.checkEnd()
	}
}

// TestCancellationsAreForgotten: a shard remembers a cancellation until the deadline, also after a
// restart, and then no more. It says why it does not take one.
func TestCancellationsAreForgotten(t *testing.T) {
	t.Parallel()
	a := cancelling(t, 0, 0)
	id, deadline := ledger.Hash{1}, a.time+100
	remembered := func(count int) {
		t.Helper()
		for _, c := range []*state.State{a.shards[1].state,
			restoredFrom(t, a.shards[1].genesis, a.shards[1].state)} {
			until, has := c.Cancelled(id, "org0")
			if c.CancelledCount() != count || has != (count > 0) || has && until != deadline ||
				c.CheckUses() != nil {
				t.Errorf("%d cancellations, one until %d; want %d until %d: %v",
					c.CancelledCount(), until, count, deadline, c.CheckUses())
			}
		}
	}
	if got := a.cancel(0, id, deadline, 1); got != taken {
		t.Fatalf("%d", got)
	}
	remembered(1)
	digest := a.shards[1].state.Digest()
	for _, again := range []ledger.Milliseconds{deadline, deadline - 10} {
		if got := a.cancel(0, id, again, 1); got != taken || a.shards[1].state.Digest() != digest {
			t.Errorf("again: %d", got)
		}
	}
	if got := a.cancel(1, ledger.Hash{3}, deadline+30, 1); got != taken {
		t.Errorf("another one: %d", got)
	}
	deadline += 50 // so the other one is forgotten first
	if got := a.cancel(0, id, deadline, 1); got != taken {
		t.Errorf("for longer: %d", got)
	}
	remembered(2)
	for name, c := range map[string]struct {
		deadline ledger.Milliseconds
		want     ledger.Code
	}{"over": {a.time, ledger.DeadlinePassed},
		"too far": {a.time + 2*ledger.MaxDeadline, ledger.DeadlineTooFar}} {
		if got := a.cancel(0, ledger.Hash{2}, c.deadline, 1); got != int(c.want) {
			t.Errorf("%s: %d", name, got)
		}
	}
	a.time = deadline - 2
	block := func() {
		bundle := a.signed(a.clients[1].Transfer("org1:a", "org1:b", 1))
		a.round(1, &ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
	}
	block()
	remembered(1)
	block()
	remembered(0)
	a.checkEnd()
}

// TestCancellationsAreBounded: no organisation fills the memory of a shard, nor the room of others.
func TestCancellationsAreBounded(t *testing.T) {
	t.Parallel()
	a := cancelling(t, 0, 0)
	a.shards[1].state.LimitCancelled(0, 2, 3)
	deadline := a.time + 1000
	for i, c := range []struct {
		by   int
		want ledger.Code
	}{{0, 0}, {0, 0}, {0, ledger.TooManyCancelled}, {1, 0}, {1, ledger.TooManyCancelled}} {
		if got := a.cancel(c.by, ledger.Hash{byte(i)}, deadline, 1); got != int(c.want) {
			t.Errorf("cancellation %d: %d, want %d", i, got, c.want)
		}
	}
	if got := a.cancel(0, ledger.Hash{0}, deadline+1, 1); got != taken {
		t.Errorf("one that is remembered: %d", got)
	}
	a.time = deadline + 1
	if got := a.cancel(0, ledger.Hash{7}, deadline+1000, 1); got != int(ledger.TooManyCancelled) {
		t.Errorf("in the block that forgets: %d", got)
	}
	if got := a.cancel(0, ledger.Hash{8}, deadline+1000, 1); got != taken ||
		a.shards[1].state.CancelledCount() != 1 {
		t.Errorf("after it: %d, %d are remembered", got, a.shards[1].state.CancelledCount())
	}
}

// TestEachMayCancelSome: however many organisations cancel much, each may cancel some transactions.
func TestEachMayCancelSome(t *testing.T) {
	t.Parallel()
	a := cancelling(t, 0, 0)
	a.shards[1].state.LimitCancelled(1, 3, 1)
	deadline := a.time + 1000
	for i, c := range []struct {
		by   int
		want ledger.Code
	}{{0, 0}, {0, 0}, {0, ledger.TooManyCancelled}, {1, 0}, {1, ledger.TooManyCancelled}} {
		if got := a.cancel(c.by, ledger.Hash{byte(i)}, deadline, 1); got != int(c.want) {
			t.Errorf("cancellation %d: %d, want %d", i, got, c.want)
		}
	}
	a.time = deadline + 1
	a.cancel(0, ledger.Hash{7}, deadline+1000, 1) // its block forgets those
	for i := range 2 {
		if got := a.cancel(1, ledger.Hash{8, byte(i)}, deadline+1000, 1); got != taken {
			t.Errorf("after they are forgotten: %d", got)
		}
	}
}

// TestManyAreForgottenInTurn: a block forgets only so many cancellations, those with the earliest
// deadlines first. Those that are left have no effect, and count until they are forgotten.
func TestManyAreForgottenInTurn(t *testing.T) {
	t.Parallel()
	a := cancelling(t, 0, 0)
	const many = 1500
	deadline := a.time + 500
	var transactions []ledger.Transaction
	for i := range many {
		transactions = append(transactions, a.clients[0].Cancel(ledger.Hash{byte(i), byte(i >> 8)},
			deadline+ledger.Milliseconds(i%7), 1))
	}
	a.round(1, &ledger.Batch{Bundles: [][]byte{a.clients[0].Bundle(transactions...).Encode()}})
	a.time = deadline + 100
	left := []int{}
	for range 3 {
		left = append(left, a.shards[1].state.CancelledCount())
		bundle := a.signed(a.clients[1].Transfer("org1:a", "org1:b", 1))
		a.round(1, &ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
	}
	if !slices.Equal(left, []int{many, many - 1024, 0}) {
		t.Errorf("%v are left", left)
	}
	a.checkEnd()
}

// TestWhoMayCancel: a cancellation needs the signatures of the organisation's policy, from keys
// that may post. It stands for the shard that it names only.
func TestWhoMayCancel(t *testing.T) {
	t.Parallel()
	a := cancelling(t, 0, 0)
	policy := ledgertest.Policy(1, "org0", "second", "opens")
	policy.Threshold, policy.Keys[2].Role = 2, ledger.RoleOpen
	change := a.clients[0].Next()
	change.Policy = &ledger.PolicyChange{Policy: policy}
	a.enter(change)
	a.flush()
	signed := func(keys ...string) int {
		bundle := ledgertest.Signed("org0", keys,
			a.clients[0].Cancel(ledger.Hash{1}, a.time+1000, 1))
		a.round(1, &ledger.Batch{Bundles: [][]byte{bundle.Encode()}})
		return a.result(1, bundle.ID(0))
	}
	if got := signed("org0"); got != int(ledger.TooFewSignatures) {
		t.Errorf("one key: %d", got)
	}
	if got := signed("org0", "opens"); got != int(ledger.TooFewSignatures) {
		t.Errorf("a key that may not post: %d", got)
	}
	if got := signed("org0", "second"); got != taken {
		t.Errorf("two keys: %d", got)
	}
	bundle := a.clients[1].Bundle(a.clients[1].Cancel(ledger.Hash{2}, a.time+1000, 7))
	a.submit(1, bundle)
	a.flush()
	a.expect(bundle.ID(0), none, int(ledger.UnknownShard))
	if got := a.cancel(1, ledger.Hash{4}, a.time+1+ledger.MaxDeadline, 1); got != taken {
		t.Errorf("the furthest deadline: %d", got)
	}
	if got := a.cancel(1, ledger.Hash{5}, a.time+2+ledger.MaxDeadline, 1); got !=
		int(ledger.DeadlineTooFar) {
		t.Errorf("one that is further: %d", got)
	}
	// One that comes down the tree counts where it arrives.
	bundle = a.clients[1].Bundle(a.clients[1].Cancel(ledger.Hash{3}, a.time+1000, 1))
	a.submit(0, bundle)
	a.flush()
	a.expect(bundle.ID(0), relayed, taken)
	a.checkEnd()
}

// TestCancelledWithinAShard: a transaction that concerns one shard may be cancelled, too, if it has
// a deadline. Neither needs several shards. A cancellation cannot be cancelled.
func TestCancelledWithinAShard(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.CancelVersion
	chain, acme := newChain(t, genesis), ledgertest.NewClient(genesis, "acme")
	chain.block(acme.Bundle(acme.Register("issuer", "a")))
	deadline := chain.parent.Header.Time + 1000
	expect := func(want ledger.Code, transaction ledger.Transaction) {
		t.Helper()
		if got := chain.result(acme.Bundle(transaction)); got.Code != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	first := by(deadline, acme.Transfer("acme:issuer", "acme:a", 1))
	second := by(deadline, acme.Transfer("acme:issuer", "acme:a", 2))
	expect(ledger.Applied, second)
	expect(ledger.Applied, acme.Cancel(acme.Bundle(first).ID(0), deadline, 0))
	expect(ledger.Applied, acme.Cancel(acme.Bundle(second).ID(0), deadline, 0)) // no effect
	expect(ledger.UnknownShard, acme.Cancel(ledger.Hash{1}, deadline, 1))
	timeless := acme.Transfer("acme:issuer", "acme:a", 3)
	expect(ledger.Applied, acme.Cancel(acme.Bundle(timeless).ID(0), deadline, 0))
	expect(ledger.Applied, timeless) // without a deadline it could only be delayed
	expect(ledger.Cancelled, first)
	late := acme.Cancel(ledger.Hash{1}, deadline, 0)
	expect(ledger.Applied, acme.Cancel(acme.Bundle(late).ID(0), deadline, 0))
	expect(ledger.Applied, late)
	first.Deadline = 0 // another transaction, with the nonce that the refused one did not take
	expect(ledger.Applied, first)
	restoredFrom(t, genesis, chain.state)
}

// TestCancellationBeforeItsVersion: a program that does not know cancellations cannot decode a
// bundle with one. So a chain that does not take them yet leaves the bundle out.
func TestCancellationBeforeItsVersion(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.CancelVersion - 1
	client := ledgertest.NewClient(genesis, "acme")
	bundle := client.Bundle(client.Cancel(ledger.Hash{1}, 1<<62, 0))
	parent := state.Parent{Header: genesis.Block().Header, Hash: genesis.Hash(),
		Version: genesis.Version}
	never := func(ledger.Hash, *ledger.Transaction) bool { return false }
	batches := ledger.VerifyBatches([][]byte{ledgertest.Batch(5, bundle)})
	if draft := state.Seal(parent, 1, 1, batches, never); draft != nil {
		t.Errorf("%+v", draft)
	}
	parent.Version++
	draft := state.Seal(parent, 1, 1, batches, never)
	if block, _ := state.New(genesis).Execute(draft); block.Entry(0).Result.Code !=
		ledger.OutOfPlace {
		t.Errorf("%s", block.Entry(0).Result)
	}
}

// TestRestoredCancellation: an entry is taken only as it is made.
func TestRestoredCancellation(t *testing.T) {
	t.Parallel()
	id := ledger.Hash{1}
	key := func(name string) []byte {
		return slices.Concat([]byte{'x'}, id[:], []byte(name), []byte{0})
	}
	for name, c := range map[string]struct {
		key, value []byte
		fits       bool
	}{"good": {key("acme"), []byte{5}, true}, "no name": {key(""), []byte{5}, false},
		"a bad name":  {key("Acme!"), []byte{5}, false},
		"short":       {[]byte("xacme\x00"), []byte{5}, false},
		"no deadline": {key("acme"), []byte{0}, false}, "more": {key("acme"), []byte{5, 5}, false},
		"nothing": {key("acme"), nil, false}} {
		s := state.New(ledgertest.Genesis())
		err := s.Restore(c.key, c.value)
		if c.fits != (err == nil) || !c.fits && !errors.Is(err, state.ErrEntry) {
			t.Errorf("%s: %v", name, err)
		}
		if c.fits && !errors.Is(s.Restore(c.key, c.value), state.ErrEntry) {
			t.Errorf("%s: taken twice", name)
		}
	}
}

// TestReceiverCancels: an organisation that has to sign for what it receives may cancel it.
func TestReceiverCancels(t *testing.T) {
	t.Parallel()
	for _, refuses := range []bool{false, true} {
		a := cancelling(t, 0, 0, 0)
		policy := ledgertest.Policy(1, "org2")
		policy.RefuseAssets = refuses
		change := a.clients[2].Next()
		change.Policy = &ledger.PolicyChange{Policy: policy}
		a.enter(change)
		a.flush()
		transaction := by(a.time+10_000, a.transfer(1, 2, 30))
		bundle := a.clients[1].Bundle(transaction)
		bundle.Sign("org2", ledgertest.Key("org2"))
		if got := a.cancel(2, bundle.ID(0), transaction.Deadline, 2); got != taken {
			t.Errorf("the cancellation: %d", got)
		}
		a.submit(0, bundle)
		a.flush()
		want := int(ledger.SetAside)
		if refuses {
			want = cancelled
		}
		if got := a.result(2, bundle.ID(0)); got != want {
			t.Errorf("refuses: %v, result %d, want %d", refuses, got, want)
		}
	}
}
