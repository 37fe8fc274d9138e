package book

import (
	"context"
	"testing"

	"github.com/ledgerd/ledgerd/sim/sweep"
)

// TestMembersAreReplaced: books rest although members are replaced, and many are.
func TestMembersAreReplaced(t *testing.T) {
	t.Parallel()
	replaced, count := 0, share(60)
	if err := sweep.Seeds(context.Background(), 3000, count, Options{Faults: FaultsAll}.RunSeed,
		func(r Result) bool {
			replaced += r.Replaced
			if len(r.Violations) > 0 {
				t.Errorf("seed %d, %s:\n%v", r.Seed, r.Plan, r.Violations[0])
			}
			return len(r.Violations) == 0
		}); err != nil {
		t.Fatal(err)
	}
	if !raceEnabled && replaced < count/2 {
		t.Errorf("only %d members were replaced", replaced)
	}
	t.Logf("%d members were replaced in %d books", replaced, count)
}

// TestOtherBooksStay: a book without replacements is the same with and without their kind of fault.
func TestOtherBooksStay(t *testing.T) {
	t.Parallel()
	same := 0
	for seed := range uint64(8) {
		all := Options{Seed: seed, Faults: FaultsAll}
		if replaces(&all) != nil {
			continue
		}
		first, err := Run(all)
		if err != nil {
			t.Fatal(err)
		}
		all.Faults &^= FaultMembers
		if again, err := Run(all); err != nil || again.Hash != first.Hash {
			t.Errorf("seed %d: %x, then %x: %v", seed, first.Hash, again.Hash, err)
		}
		same++
	}
	if same == 0 {
		t.Error("each book replaces members")
	}
}
