package node

import (
	"context"
	"errors"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/home"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/shard"
)

// TestNoWorkerBeginsOnceTheNodeStops makes the driver report the end of a run while the node stops.
// A worker that began then would use a WaitGroup that is already waited for, which panics, and a
// closed store.
func TestNoWorkerBeginsOnceTheNodeStops(t *testing.T) {
	t.Parallel()
	l := &life{}
	l.context, l.cancel = context.WithCancel(t.Context())
	began := 0
	l.work(func() { began++ })
	l.stop()
	l.work(func() { began++ })
	l.workers.Wait()
	if began != 1 {
		t.Fatalf("%d workers began; want the one before the stop", began)
	}
}

func TestLastSame(t *testing.T) {
	t.Parallel()
	failure := errors.New("unreachable")
	for name, c := range map[string]struct {
		head, parts, common ledger.Height // parts: the first block that differs
		forked              bool
		err                 error
	}{
		"at the head":                  {head: 9, parts: 9, common: 8, forked: true},
		"in the middle":                {head: 9, parts: 4, common: 3, forked: true},
		"at the first block":           {head: 9, parts: 1, common: 0, forked: true},
		"the peer took this chain":     {head: 9, parts: 10, common: 9},
		"one block, which is the same": {head: 1, parts: 2, common: 1},
		"the peer does not answer":     {head: 9, parts: 4, err: failure},
	} {
		common, forked, err := lastSame(c.head, func(height ledger.Height) (bool, error) {
			return height >= c.parts, c.err
		})
		if !errors.Is(err, c.err) || err == nil && (common != c.common || forked != c.forked) {
			t.Errorf("%s: common %d, forked %v, %v", name, common, forked, err)
		}
	}
}

// TestNothingIsHeardBeforeTheMachineIsThere queries the life as another shard does before start.
func TestNothingIsHeardBeforeTheMachineIsThere(t *testing.T) {
	t.Parallel()
	l := &life{}
	if h := l.heard(1); h.linked || !h.at.IsZero() || l.view().Group != nil {
		t.Fatalf("%+v", h)
	}
}

// A member that floods fills its own share of the messages that wait, and no other's.
func TestMessagesOfOneMember(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"many": 1, "large": messageBytesMax / 4} {
		l := newLife(&Node{home: &home.Home{Dir: t.TempDir()}})
		flood := func(from order.ServerID) int {
			before := len(l.inputs)
			for range 2 * messagesMax {
				l.enqueueMessage(from, size, shard.WishReceived{From: from})
			}
			return len(l.inputs) - before
		}
		want := min(messagesMax, messageBytesMax/size)
		for _, from := range []order.ServerID{1, 2} {
			if taken := flood(from); taken != want {
				t.Errorf("%s: member %d fills %d places, want %d", name, from, taken, want)
			}
		}
		l.enqueue(shard.Tick{})
		if len(l.inputs) != 2*want+1 {
			t.Errorf("%s: a tick finds no room", name)
		}
	}
}
