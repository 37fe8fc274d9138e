package verdicts

import (
	"cmp"
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// latePayment returns a signed payment as streams carry it.
func latePayment(t *testing.T, transactions int) []byte {
	t.Helper()
	genesis := ledgertest.Genesis()
	acme := ledgertest.NewClient(genesis, "acme")
	var all []ledger.Transaction
	block := ledger.Block{}
	kept := make([]bool, transactions)
	for i := range transactions {
		all, kept[i] = append(all, acme.Transfer(acme.Account("a"), acme.Account("b"), 1)), true
	}
	bundle, err := ledger.NewBundle(all...)
	if err == nil {
		err = bundle.Sign("acme", ledgertest.Key("acme"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range transactions {
		block.Unpacked = append(block.Unpacked, bundle.Entry(i, 0))
	}
	block.Bundles = append(block.Bundles, bundle.Seal(kept))
	return block.CarriedBundle(0)
}

// A member proposes a copy only if it is of one transaction, whose clients signed it, and that the
// chain takes.
func TestLateCopiesAreVerified(t *testing.T) {
	t.Parallel()
	late := NewLateCopies(DefaultLateBounds(), FaultNone)
	read := func(encoded []byte) error {
		_, err := late.Read(1, encoded, 1000, takesAll)
		return err
	}
	good := latePayment(t, 1)
	if err := read(good); err != nil {
		t.Errorf("a good one: %v", err)
	}
	if err := read(latePayment(t, 2)); !errors.Is(err, ledger.ErrMalformed) {
		t.Errorf("two transactions: %v", err)
	}
	if err := read(good[:len(good)-1]); !errors.Is(err, ledger.ErrMalformed) {
		t.Errorf("a part: %v", err)
	}
	if err := read(make([]byte, ledger.MaxBundleBytes+1)); !errors.Is(err, ledger.ErrBundleSize) {
		t.Errorf("too large: %v", err)
	}
	why := errors.New("the store says so")
	for _, err := range []error{nil, why} {
		if _, got := late.Read(1, good, 1000, func(ledger.Hash, *ledger.Transaction) (bool, error) {
			return false, err
		}); !errors.Is(got, cmp.Or(err, ErrNotTaken)) {
			t.Errorf("not taken, %v: %v", err, got)
		}
	}
	good[len(good)-1] ^= 1
	if err := read(good); !errors.Is(err, ledger.ErrSignature) {
		t.Errorf("a wrong signature: %v", err)
	}
}

func takesAll(ledger.Hash, *ledger.Transaction) (bool, error) { return true, nil }

// Copies have bounded room, of which no shard can take all, and make room after a while.
func TestLateCopiesAreBounded(t *testing.T) {
	t.Parallel()
	bounds := DefaultLateBounds()
	late := NewLateCopies(bounds, FaultNone)
	takes := func(id ledger.Hash, _ *ledger.Transaction) (bool, error) {
		return id != ledger.Hash{4}, nil
	}
	const now ledger.Milliseconds = 1000
	add := func(from ledger.ShardID, id ledger.Hash, now ledger.Milliseconds) bool {
		return late.Add(LateCopy{from: from, ID: id, encoded: make([]byte, 100),
			until: now + lateLasts}, now)
	}
	propose := func(now ledger.Milliseconds) []ledger.Carried {
		return Taken(late.Waiting(now), takes)
	}
	for i := range bounds.OfShard {
		if !add(1, ledger.Hash{1, byte(i)}, now) {
			t.Fatalf("no room for copy %d", i)
		}
	}
	if add(1, ledger.Hash{2}, now) {
		t.Error("one shard takes more than its room")
	}
	if !add(1, ledger.Hash{1, 0}, now) || !add(2, ledger.Hash{3}, now) ||
		!add(2, ledger.Hash{4}, now) {
		t.Error("no room for a copy that is here, or for another shard")
	}
	if got := Within(propose(now), 2*ledger.CarriedSize(100)); len(got) != 2 ||
		got[0].Number != 0 {
		t.Errorf("%d copies in the room for two", len(got))
	}
	block := &ledger.Block{Unpacked: []ledger.Entry{{ID: ledger.Hash{3}}}}
	late.Forget(block)
	if got := propose(now); len(got) != bounds.OfShard {
		t.Errorf("%d copies are proposed, not those that the chain takes", len(got))
	}
	if got := late.OfShard(1); got != bounds.OfShard {
		t.Errorf("%d copies of a shard, want %d", got, bounds.OfShard)
	}
	const after = now + lateLasts + 1
	if got := propose(after); len(got) != 0 {
		t.Errorf("%d copies are proposed for too long", len(got))
	}
	if !add(1, ledger.Hash{2}, after) {
		t.Error("old copies make no room")
	}
}

// What copies have in memory is bounded in bytes, too, for each shard and for all.
func TestLateCopiesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	late := NewLateCopies(DefaultLateBounds(), FaultNone)
	const now ledger.Milliseconds = 1000
	add := func(from ledger.ShardID, number byte, size int) bool {
		return late.Add(LateCopy{from: from, ID: ledger.Hash{byte(from), number},
			encoded: make([]byte, size), until: now + lateLasts}, now)
	}
	const half = ledger.MaxBundleBytes / 2
	for shard := range ledger.ShardID(4) {
		if !add(shard, 1, half) || !add(shard, 2, half) {
			t.Fatalf("no room for two copies of shard %d", shard)
		}
		if add(shard, 3, half) {
			t.Errorf("shard %d takes more than its room", shard)
		}
	}
	if !add(0, 1, half) {
		t.Error("a copy that is here is not known")
	}
	if add(4, 1, half) {
		t.Error("all shards together take more than the room")
	}
	late.Forget(&ledger.Block{Unpacked: []ledger.Entry{{ID: ledger.Hash{3, 1}},
		{ID: ledger.Hash{3, 2}}}})
	if !add(4, 1, ledger.MaxBundleBytes) {
		t.Error("no room for the largest copy")
	}
}
