package rounds

import (
	"sync"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// While the ordering waits, a reader copies one piece and allocates nothing.
func TestPiecesAreBounded(t *testing.T) {
	t.Parallel()
	r := New()
	defer r.Watch()()
	for i := range 2 * Capacity {
		r.Note(&Event{Kind: Waits, Round: order.Round(i), Servers: []order.ServerID{1, 2}})
	}
	long := make([]order.ServerID, 3000)
	for range 3 {
		r.Note(&Event{Kind: Waits, Servers: long})
	}
	first, next := r.bounds()
	copied := piece{make([]noted, 0, pieceEvents), make([]order.ServerID, 0, pieceServers)}
	if from := r.copyPiece(&copied, 1, next); from != first || len(copied.events) != pieceEvents ||
		len(copied.servers) != 2*pieceEvents || cap(copied.servers) != pieceServers {
		t.Errorf("%d events and %d servers from %d", len(copied.events), len(copied.servers), from)
	}
	if r.copyPiece(&copied, next-3, next); len(copied.events) != 1 ||
		len(copied.servers) != len(long) {
		t.Errorf("long lists: %d events, %d servers", len(copied.events), len(copied.servers))
	}
	if w := r.Last(1, Capacity); len(w.Events)+int(w.Dropped) != 2*Capacity+3 ||
		len(w.Events[len(w.Events)-1].Servers) != len(long) {
		t.Errorf("%d events, %d dropped", len(w.Events), w.Dropped)
	}
}

// A window that is read while events come has no gap, and says what it lost.
func TestWindowsHaveNoGap(t *testing.T) {
	t.Parallel()
	r := New()
	defer r.Watch()()
	for range Capacity {
		r.Note(&Event{Kind: Broadcast})
	}
	over := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				r.Note(&Event{Kind: Broadcast})
			}
		}
	})
	for range 20 {
		w := r.From(1, Capacity)
		if w.Dropped+uint64(len(w.Events)) != w.Next-1 {
			t.Errorf("%d dropped and %d events before %d", w.Dropped, len(w.Events), w.Next)
		}
		for i := range w.Events {
			if w.Events[i].Number != w.Dropped+1+uint64(i) {
				t.Fatalf("event %d at %d after %d", w.Events[i].Number, i, w.Dropped)
			}
		}
	}
	close(over)
	writer.Wait()
	// The oldest of what was asked for is replaced after the bounds were read.
	first, next := r.bounds()
	for range Capacity / 2 {
		r.Note(&Event{Kind: Broadcast})
	}
	w := r.window(first, next, 0)
	if w.Dropped != Capacity/2 || len(w.Events) != Capacity/2 ||
		w.Events[0].Number != first+Capacity/2 {
		t.Errorf("%d events, %d dropped", len(w.Events), w.Dropped)
	}
}
