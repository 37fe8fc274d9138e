package pipeline

import (
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
)

// Several callers may wait for the same transactions, and a caller twice for one. A block wakes all
// of them, and each learns exactly what it waits for.
func TestBlockTellsAllWaiters(t *testing.T) {
	t.Parallel()
	id := func(number byte) ledger.Hash { return ledger.Hash{number} }
	p := newProgress(report.Heights{})
	idsA := []ledger.Hash{id(1), id(2), id(3), id(2)}
	idsB := []ledger.Hash{id(2), id(3), id(4)}
	a, b := p.watch(idsA), p.watch(idsB)
	other := p.watch([]ledger.Hash{id(9)})
	for height, block := range []struct {
		numbers            []byte
		unknownA, unknownB int
		awakeA, awakeB     bool
	}{
		{[]byte{7, 8}, 3, 3, false, false},
		{[]byte{1, 7}, 2, 3, true, false},
		{[]byte{2, 7, 4, 2}, 1, 1, true, true},
		{[]byte{7, 3, 1}, 0, 0, true, true},
	} {
		var entries []ledger.Entry
		for _, number := range block.numbers {
			entries = append(entries, ledger.Entry{ID: id(number)})
		}
		p.settleBlock(&ledger.Block{Header: ledger.Header{Height: ledger.Height(height + 1)},
			Entries: entries})
		awakeA, awakeB := len(a.more) > 0, len(b.more) > 0
		if a.unknown() != block.unknownA || b.unknown() != block.unknownB ||
			awakeA != block.awakeA || awakeB != block.awakeB {
			t.Errorf("block %d: %d and %d are unknown, awake %v and %v; want %+v", height+1,
				a.unknown(), b.unknown(), awakeA, awakeB, block)
		}
		for _, w := range []*waiter{a, b} {
			select {
			case <-w.more:
			default:
			}
		}
	}
	if status := b.found[id(4)]; status.Height != 3 || status.Index != 2 || status.ID != id(4) {
		t.Errorf("transaction 4: %+v", status)
	}
	if _, has := b.found[id(1)]; has || len(other.more) > 0 || other.unknown() != 1 {
		t.Error("a caller learnt what it does not wait for")
	}
	a.forget()
	if a.unknown() != 3 {
		t.Errorf("%d are unknown after another chain replaced this one", a.unknown())
	}
	p.unwatch(a, idsA)
	p.unwatch(b, idsB)
	p.unwatch(other, []ledger.Hash{id(9)})
	if p.anyone() {
		t.Errorf("%d transactions are still watched", len(p.waiters))
	}
}

// BenchmarkWaiters tells the waiters of a block of 16 bundles of 400.
func BenchmarkWaiters(b *testing.B) {
	const bundles, perBundle = 16, 400
	block := &ledger.Block{Entries: make([]ledger.Entry, bundles*perBundle)}
	ids := make([]ledger.Hash, len(block.Entries))
	for i := range ids {
		ids[i] = ledger.TransactionID([]byte{byte(i), byte(i >> 8)})
		block.Entries[i].ID = ids[i]
	}
	p := newProgress(report.Heights{})
	b.ReportAllocs()
	for b.Loop() {
		var waiters [bundles]*waiter
		for i := range waiters {
			waiters[i] = p.watch(ids[i*perBundle:][:perBundle])
		}
		p.settleBlock(block)
		for i, w := range waiters {
			if w.unknown() != 0 {
				b.Fatal(w.unknown())
			}
			p.unwatch(w, ids[i*perBundle:][:perBundle])
		}
	}
}
