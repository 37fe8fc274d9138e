package state_test

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// A program from before version 4 cannot decode a batch with a verdict of a newer code, so it seals
// the round without the batch (nil). In a chain of an older version, this program does the same,
// even if a lying member made the batch. Otherwise members that run different programs would fork.
func TestSealLeavesOutWhatOlderProgramsCannotDecode(t *testing.T) {
	for _, test := range []struct {
		version int
		code    ledger.Code
		takes   bool
	}{
		{ledger.PackedVersion, ledger.DeadlinePassed, false},
		{ledger.PackedVersion, ledger.DeadlineTooFar, false},
		{ledger.PackedVersion, ledger.PendingQuota, true},
		{ledger.DeadlineVersion, ledger.DeadlinePassed, true},
		{ledger.DeadlineVersion, ledger.Cancelled, false},
		{ledger.CancelVersion, ledger.Cancelled, true},
	} {
		book := ledgertest.ShardedGenesis(1, 0, 0)
		book.Version = test.version
		genesis, err := book.ForShard(0)
		if err != nil {
			t.Fatal(err)
		}
		s := state.New(genesis)
		client := ledgertest.NewClient(genesis, "acme")
		batch := &ledger.Batch{Header: ledger.BatchHeader{Time: genesis.Time + 7},
			Bundles: [][]byte{client.Bundle(client.Register()).Encode()},
			Verdicts: []ledger.Verdict{{ID: ledger.Hash{1}, Shard: 1,
				Result: ledger.Result{Code: test.code, Item: ledger.NoItem}}}}
		parent := state.Parent{Header: genesis.Block().Header, Hash: genesis.Hash()}
		draft := s.Seal(parent, 1, 1, ledger.VerifyBatches([][]byte{batch.Encode()}),
			func(ledger.Hash, *ledger.Transaction) bool { return false })
		if takes := draft != nil; takes != test.takes {
			t.Errorf("version %d, %v: the batch is taken: %v", test.version, test.code, takes)
		}
	}
}

// Nor can it decode a batch with a copy of a transaction that is too late.
func TestSealLeavesOutLateCopiesBeforeGrowth(t *testing.T) {
	t.Parallel()
	for version := ledger.DeadlineVersion; version <= ledger.GrowthVersion; version++ {
		book := ledgertest.ShardedGenesis(1, 0, 0)
		book.Version = version
		genesis, err := book.ForShard(0)
		if err != nil {
			t.Fatal(err)
		}
		client := ledgertest.NewClient(genesis, "acme")
		bundle := client.Bundle(client.Register())
		batch := &ledger.Batch{Header: ledger.BatchHeader{Time: genesis.Time + 7},
			Bundles: [][]byte{bundle.Encode()},
			Carried: []ledger.Carried{{Bundle: copyOf(bundle)}}}
		draft := state.New(genesis).Seal(state.Parent{Header: genesis.Block().Header,
			Hash: genesis.Hash()}, 1, 1, ledger.VerifyBatches([][]byte{batch.Encode()}),
			func(ledger.Hash, *ledger.Transaction) bool { return false })
		if takes := draft != nil; takes != (version >= ledger.GrowthVersion) {
			t.Errorf("version %d: the batch is taken: %v", version, takes)
		}
	}
}
