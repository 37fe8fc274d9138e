package store

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// All nodes that execute a round or fetch its block give it the same time, and Verify accepts it.
func TestTimeOfBlocks(t *testing.T) {
	t.Parallel()
	for name, genesis := range map[string]*ledger.Genesis{
		"one shard": ledgertest.OperatedGenesis(3), "sharded": ledgertest.ShardedGenesis(3, 0, 0)} {
		client, operator := ledgertest.NewClient(genesis, "acme"), ledgertest.NewOperator(genesis)
		registration := client.Register()
		registration.Registrations[0].Pinned = genesis.Sharded()
		next := func() *ledger.Bundle { return operator.Leave(9) }
		folder := t.TempDir()
		first, follower := openBook(t, folder, genesis, small()),
			openBook(t, t.TempDir(), genesis, small())
		second := openBook(t, t.TempDir(), genesis, small())
		apply := func(round ledger.Round, time ledger.Milliseconds, clocks []ledger.MemberClock,
			bundle *ledger.Bundle) *ledger.Block {
			t.Helper()
			batch := ledger.Batch{Header: ledger.BatchHeader{Time: genesis.Time + time},
				Bundles: [][]byte{bundle.Encode()}, Clocks: clocks}
			block, err := first.Apply(1, round, [][]byte{batch.Encode()})
			if err != nil || block == nil {
				t.Fatalf("%s, round %d: no block, %v", name, round, err)
			}
			again, err := second.Apply(1, round, [][]byte{batch.Encode()})
			if err != nil || again.Hash != block.Hash {
				t.Fatalf("%s: another block at another node, %v", name, err)
			}
			if err := follower.Append(block); err != nil {
				t.Fatal(err)
			}
			return block
		}
		const week, thirtyYears = ledger.Milliseconds(7 * 86_400_000),
			ledger.Milliseconds(30 * 365 * 86_400_000)
		two := []ledger.MemberClock{{Member: 0}, {Member: 2, Offset: 9}}
		for round, step := range []struct {
			time, want ledger.Milliseconds
			clocks     []ledger.MemberClock
			bundle     *ledger.Bundle
		}{
			{thirtyYears, 0, nil, client.Bundle(registration)},
			{week, week, two, next()},
			// After this join, two of four members are not a majority.
			{week, week, nil, operator.Join(ledgertest.Member(9))},
			{thirtyYears, week, two, next()},
			{week + 1, week + 1, nil, next()},
		} {
			block := apply(ledger.Round(round+1), step.time, step.clocks, step.bundle)
			if got := block.Header.Time - genesis.Time; got != step.want {
				t.Errorf("%s, round %d: time %d, want %d", name, round+1, got, step.want)
			}
		}
		earlier := &ledger.Block{Header: first.head.Header}
		earlier.Header.Height, earlier.Header.Previous, earlier.Header.Time = 6, first.head.Hash,
			genesis.Time
		if err := follower.Append(earlier); !errors.Is(err, ErrMismatch) ||
			errors.Is(err, ErrFailed) {
			t.Errorf("%s: a block from before its parent: %v", name, err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(t.Context(), folder, genesis, small(), nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
