package node

import (
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/pipeline"
	"github.com/ledgerd/ledgerd/order"
)

// TestLaterTelling: members that are not told now are told once, of the last height, and those of
// another run not at all.
func TestLaterTelling(t *testing.T) {
	t.Parallel()
	var later laterTelling
	due := make(chan struct{}, 10)
	add := func(run uint64, height ledger.Height, now ...order.ServerID) {
		later.add(pipeline.Stored{Run: run, Members: []order.ServerID{0, 1, 2, 4},
			Height: height}, now, func() { due <- struct{}{} })
	}
	expect := func(run uint64, height ledger.Height, members ...order.ServerID) {
		t.Helper()
		select {
		case <-due:
		case <-time.After(10 * time.Second):
			t.Fatal("nobody is told")
		}
		gotRun, got, gotHeight := later.take()
		slices.Sort(got)
		if gotRun != run || gotHeight != height || !slices.Equal(got, members) {
			t.Errorf("run %d, members %v, height %d; want run %d, members %v, height %d", gotRun,
				got, gotHeight, run, members, height)
		}
	}
	add(1, 5, 0, 1)
	add(1, 6, 0, 1)
	expect(1, 6, 2, 4)
	add(1, 7, 0, 1)
	add(1, 8, 0, 2) // which tells 2 of all
	expect(1, 8, 1, 4)
	add(1, 9, 0, 1)
	add(2, 9, 0, 1, 2)
	expect(2, 9, 4)
	add(2, 8, 0, 1, 2) // by a goroutine that was held up
	expect(2, 9, 4)
	add(2, 10, 0, 1, 2)
	add(1, 30, 0)
	expect(2, 10, 4)
	add(2, 10, 0, 1, 2, 4)
	if _, members, _ := later.take(); len(members) > 0 {
		t.Errorf("%v are to be told again", members)
	}
	add(2, 11)
	later.stop()
	if _, members, _ := later.take(); len(members) != 4 {
		t.Errorf("%v are left to be told at the end", members)
	}
	if later.add(pipeline.Stored{Run: 2, Members: []order.ServerID{0}, Height: 12}, nil, nil) {
		t.Error("a member is to be told after the end")
	}
}
