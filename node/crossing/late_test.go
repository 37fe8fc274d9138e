package crossing

import (
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// latePayment returns a signed payment as streams carry it.
func latePayment(t *testing.T, transactions int) []byte {
	t.Helper()
	genesis := vouchedGenesis(t, 1)
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

// A member proposes a copy only if it is of one transaction, whose clients signed it.
func TestLateCopiesAreVerified(t *testing.T) {
	t.Parallel()
	good := latePayment(t, 1)
	if bundle, _, _, err := decodeLate(good); err != nil || verifyLate(bundle) != nil {
		t.Errorf("a good one: %v", err)
	}
	if _, _, _, err := decodeLate(latePayment(t, 2)); !errors.Is(err, ledger.ErrMalformed) {
		t.Errorf("two transactions: %v", err)
	}
	if _, _, _, err := decodeLate(good[:len(good)-1]); !errors.Is(err, ledger.ErrMalformed) {
		t.Errorf("a part: %v", err)
	}
	good[len(good)-1] ^= 1
	bundle, _, _, err := decodeLate(good)
	if err == nil {
		err = verifyLate(bundle)
	}
	if !errors.Is(err, ledger.ErrSignature) {
		t.Errorf("a wrong signature: %v", err)
	}
}

// Copies have bounded room, of which no shard can take all, and make room after a while.
func TestLateCopiesAreBounded(t *testing.T) {
	t.Parallel()
	var late lateCopies
	takes := func(id ledger.Hash, _ *ledger.Transaction) bool { return id != ledger.Hash{4} }
	now := time.Unix(1000, 0)
	encoded := make([]byte, 100)
	add := func(from ledger.ShardID, id ledger.Hash, now time.Time) bool {
		return late.add(lateCopy{from: from, id: id, encoded: encoded,
			until: now.Add(lateLasts)}, now)
	}
	for i := range lateOfShard {
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
	if got := within(late.propose(now, takes), 2*ledger.CarriedSize(100)); len(got) != 2 ||
		got[0].Number != 0 {
		t.Errorf("%d copies in the room for two", len(got))
	}
	block := &ledger.Block{Unpacked: []ledger.Entry{{ID: ledger.Hash{3}}}}
	late.forget(block)
	if got := late.propose(now, takes); len(got) != lateOfShard {
		t.Errorf("%d copies are proposed, not those that the chain takes", len(got))
	}
	after := now.Add(lateLasts + 1)
	if got := late.propose(after, takes); len(got) != 0 {
		t.Errorf("%d copies are proposed for too long", len(got))
	}
	if !add(1, ledger.Hash{2}, after) {
		t.Error("old copies make no room")
	}
}

// What copies have in memory is bounded in bytes, too, for each shard and for all.
func TestLateCopiesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	var late lateCopies
	now := time.Unix(1000, 0)
	add := func(from ledger.ShardID, number byte, size int) bool {
		return late.add(lateCopy{from: from, id: ledger.Hash{byte(from), number},
			encoded: make([]byte, size), until: now.Add(lateLasts)}, now)
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
	late.forget(&ledger.Block{Unpacked: []ledger.Entry{{ID: ledger.Hash{3, 1}},
		{ID: ledger.Hash{3, 2}}}})
	if !add(4, 1, ledger.MaxBundleBytes) {
		t.Error("no room for the largest copy")
	}
}
