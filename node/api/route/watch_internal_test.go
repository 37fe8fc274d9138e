package route

import (
	"math"
	"testing"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
)

// The goroutines of subscriptions to the book are bounded, and those that ended make room.
func TestSubscriptionsAreBounded(t *testing.T) {
	t.Parallel()
	var w watches
	var ends []func()
	for {
		end, err := w.admit(1000)
		if err != nil {
			if connect.CodeOf(err) != connect.CodeResourceExhausted {
				t.Error(err)
			}
			break
		}
		ends = append(ends, end)
	}
	if len(ends) != maxFollowers/1000 {
		t.Errorf("%d subscriptions", len(ends))
	}
	ends[0]()
	if _, err := w.admit(1000); err != nil {
		t.Error(err)
	}
	if _, err := w.admit(1000); err == nil {
		t.Error("there is room for one too many")
	}
}

// A reader finds the recent blocks, or has to ask, or waits, whatever it and the shard say.
func TestLookAtAWatch(t *testing.T) {
	t.Parallel()
	const greatest = math.MaxUint64
	for _, each := range []struct {
		head   uint64
		recent int
		next   ledger.Height
		blocks int
		behind bool
	}{
		{head: 0, next: 1},
		{head: 9, recent: 3, next: 0},
		{head: 9, recent: 3, next: 1, behind: true},
		{head: 9, recent: 3, next: 6, behind: true},
		{head: 9, recent: 3, next: 7, blocks: 3},
		{head: 9, recent: 3, next: 9, blocks: 1},
		{head: 9, recent: 3, next: 10},
		{head: 9, recent: 3, next: greatest},
		{head: 9, next: 9, behind: true},
		{head: maxHeight, recent: 32, next: 1, behind: true},
		{head: maxHeight, recent: 32, next: maxHeight, blocks: 1},
		{head: greatest, next: 1, behind: true},
		{head: 1<<63 + 100, next: 1, behind: true},
	} {
		w := watch{known: true, head: each.head, recent: make([]*watchedBlock, each.recent)}
		view := w.look(each.next)
		if len(view.blocks) != each.blocks || view.behind != each.behind {
			t.Errorf("%+v: %d blocks, behind %v", each, len(view.blocks), view.behind)
		}
	}
}
