package store

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// awaitResident waits until so many accounts are in memory.
func awaitResident(t testing.TB, s *Store, count int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); s.AccountsInMemory() != count; {
		if time.Now().After(deadline) {
			t.Fatalf("%d accounts are in memory, want %d", s.AccountsInMemory(), count)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestAccountsBecomeWarm: behind a start, accounts become resident, as many as may be.
func TestAccountsBecomeWarm(t *testing.T) {
	t.Parallel()
	const accounts = 41
	for _, most := range []int{1, 20, accounts - 1, accounts, 1000} {
		dir, options := t.TempDir(), small()
		options.AccountsInMemory, options.residentAtStart = most, 3
		b := leavesBook(t, dir, options)
		s := open(t, dir, options)
		awaitResident(t, s, min(most, accounts))
		checkPages(t, s)
		block, err := s.Apply(1, b.round+1, [][]byte{b.next(7)})
		if err != nil {
			t.Fatal(err)
		}
		mustCheck(t, s)
		closeStore(t, s)
		options.keepCold = true
		s = open(t, dir, options)
		if s.Head().Hash != block.Hash || s.AccountsInMemory() != 0 {
			t.Errorf("opened again with %d accounts in memory, at block %s, want %s",
				s.AccountsInMemory(), s.Head().Hash, block.Hash)
		}
		closeStore(t, s)
	}
}

// TestWarmAmidBlocks: blocks that are executed while accounts become resident, and runs that are
// merged meanwhile, change no result.
func TestWarmAmidBlocks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 1))
		few := small()
		few.AccountsInMemory, few.residentAtStart = rapid.IntRange(5, 60).Draw(r, "accounts"), 3
		few.checkpointBlocks = rapid.IntRange(1, 3).Draw(r, "blocks")
		few.fanOut = 2
		few.chunkBytes = rapid.IntRange(60, 300).Draw(r, "bytes of a chunk")
		dir := t.TempDir()
		little, whole := open(t, dir, few), open(t, t.TempDir(), Options{ReserveBytes: 1})
		traffic := &wanderer{client: ledgertest.NewClient(testGenesis(), "acme")}
		for round := range rapid.IntRange(1, 30).Draw(r, "rounds") {
			payload := traffic.next(random)
			want, err := whole.Apply(1, traffic.round, [][]byte{payload})
			if err != nil {
				r.Fatal(err)
			}
			got, err := little.Apply(1, traffic.round, [][]byte{payload})
			if err != nil || got.Hash != want.Hash {
				r.Fatalf("block %d is another one: %v", want.Header.Height, err)
			}
			if round%7 == 3 {
				closeStore(t, little)
				little = open(t, dir, few)
			}
		}
		sameAccounts(r, little, whole, random)
		closeStore(t, little)
		closeStore(t, whole)
		if _, err := Verify(t.Context(), dir, testGenesis(), few, nil); err != nil {
			r.Fatal(err)
		}
	})
}
