package route

import (
	"context"
	"errors"
	"math"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
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

// A watch keeps the transactions of recent blocks only, the newest ones that fit in its bound.
func TestKeptBlocksAreBounded(t *testing.T) {
	t.Parallel()
	whole := &ledgerdv1.Block{Header: &ledgerdv1.BlockHeader{Canonical: make([]byte, 1000)}}
	size := proto.Size(whole)
	w := watch{limit: 3*size + size/2}
	for range 8 {
		w.recent = append(w.recent, &watchedBlock{})
	}
	paged := &watchedBlock{} // of a page that one reader asked for
	w.keep(paged, whole)
	for _, b := range w.recent[:6] {
		w.keep(b, whole)
	}
	for i, b := range w.recent {
		if kept := b.whole != nil; kept != (i >= 3 && i < 6) {
			t.Errorf("recent block %d is kept: %v", i, kept)
		}
	}
	if w.kept != 3*size || paged.whole != nil {
		t.Errorf("%d bytes are kept, want %d", w.kept, 3*size)
	}
	w.limit = size - 1
	if w.keep(w.recent[7], whole); w.kept != 0 || w.recent[7].whole != nil {
		t.Errorf("%d bytes are kept where no block fits", w.kept)
	}
}

// A reader that waits for another one's call ends with its context, has the call's outcome, and
// asks itself if the other one ended.
func TestReadersShareACall(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	w, b := new(watch), &watchedBlock{header: &ledgerdv1.BlockHeader{Height: 7}}
	call := &asking{done: make(chan struct{})}
	b.asking = call
	ended := make(chan error)
	read := func(ctx context.Context) {
		_, err := w.message(ctx, nil, 2, b, true)
		ended <- err
	}
	go read(ctx)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the reader that ended: %v", err)
	}
	go read(context.Background())
	call.err = errors.New("busy")
	close(call.done)
	if err := <-ended; !errors.Is(err, call.err) {
		t.Errorf("the reader that waited: %v", err)
	}
	// The first caller ended. Meanwhile a second one has the block.
	b.asking = &asking{done: make(chan struct{}), abandoned: true}
	first := b.asking
	go read(context.Background())
	w.mutex.Lock()
	b.asking, b.whole = nil, &ledgerdv1.Block{Header: b.header}
	w.mutex.Unlock()
	close(first.done)
	if err := <-ended; err != nil {
		t.Errorf("the reader after an abandoned call: %v", err)
	}
}
