package pipeline

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/node/api/intake"
	"github.com/ledgerd/ledgerd/node/report"
)

// unknown returns how many outcomes a waiter does not know yet.
func (w *waiter) unknown() int {
	return w.left
}

// awake reports whether a waiter was woken, and takes the token.
func (w *waiter) awake() bool {
	select {
	case <-w.more:
		return true
	default:
		return false
	}
}

// Several callers may wait for the same transactions, and a caller twice for one. Each learns
// exactly what it waits for, and wakes with the block that tells it the last of it.
func TestBlockTellsAllWaiters(t *testing.T) {
	t.Parallel()
	id := func(number byte) ledger.Hash { return ledger.Hash{number} }
	p := newProgress(report.Heights{})
	idsA := []ledger.Hash{id(1), id(2), id(3), id(2)}
	idsB := []ledger.Hash{id(2), id(3), id(4)}
	a, b := p.watch(idsA, report.LevelOrdered), p.watch(idsB, report.LevelOrdered)
	other := p.watch([]ledger.Hash{id(9)}, report.LevelOrdered)
	for height, block := range []struct {
		numbers            []byte
		unknownA, unknownB int
		awakeA, awakeB     bool
	}{
		{[]byte{7, 8}, 4, 3, false, false},
		{[]byte{1, 7}, 3, 3, false, false},
		{[]byte{2, 7, 4, 2}, 1, 1, false, false},
		{[]byte{7, 3, 1}, 0, 0, true, true},
	} {
		var entries []ledger.Entry
		for _, number := range block.numbers {
			entries = append(entries, ledger.Entry{ID: id(number)})
		}
		p.update(func(h *report.Heights) { h.Ordered = ledger.Height(height + 1) })
		p.settleBlock(&ledger.Block{Header: ledger.Header{Height: ledger.Height(height + 1)},
			Unpacked: entries, Bundles: make([]ledger.BundleSeal, 1)})
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
	if status := b.found[2]; status.Height != 3 || status.Index != 2 || status.ID != id(4) {
		t.Errorf("transaction 4: %+v", status)
	}
	if len(other.more) > 0 || other.unknown() != 1 {
		t.Error("a caller learnt what it does not wait for")
	}
	if a.found[1].Height != 3 || !reflect.DeepEqual(a.found[1], a.found[3]) {
		t.Errorf("transaction 2, awaited twice: %+v, and %+v", a.found[1], a.found[3])
	}
	p.unwatch(a)
	p.unwatch(b)
	p.unwatch(other)
	if p.anyone() {
		t.Errorf("%d transactions are still watched", p.waits.count)
	}
}

// Transactions whose ids begin alike have their own waiters, in whatever order these leave.
func TestWaitersOfIDsThatBeginAlike(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newProgress(report.Heights{})
		// Few ids that differ in their first or in their last byte.
		idOf := func(number int) (id ledger.Hash) {
			id[0], id[31] = byte(number&1), byte(number>>1)
			return id
		}
		number := rapid.Map(rapid.IntRange(0, 7), idOf)
		var watching []*waiter
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				watching = append(watching, p.watch(rapid.SliceOfN(number, 1, 5).Draw(t, "ids"),
					report.LevelOrdered))
			case 1:
				if len(watching) > 0 {
					i := rapid.IntRange(0, len(watching)-1).Draw(t, "leaves")
					p.unwatch(watching[i])
					watching = slices.Delete(watching, i, i+1)
				}
			case 2:
				id := number.Draw(t, "applied")
				p.settleBlock(&ledger.Block{Header: ledger.Header{Height: 1},
					Unpacked: []ledger.Entry{{ID: id}}, Bundles: make([]ledger.BundleSeal, 1)})
				for _, w := range watching {
					for i := range w.ids {
						if w.ids[i] == id && w.found[i].ID != id {
							t.Fatalf("a waiter for %v was not told", id)
						}
					}
				}
			}
			left := 0
			for _, w := range watching {
				for i := range w.ids {
					if w.found[i].Outcome == report.OutcomeUnknown {
						left++
					} else if w.found[i].ID != w.ids[i] {
						t.Fatalf("a waiter for %v got %v", w.ids[i], w.found[i].ID)
					}
				}
				left -= w.left
			}
			if left != 0 {
				t.Fatalf("%d outcomes are counted wrong", left)
			}
		}
		for _, w := range watching {
			p.unwatch(w)
		}
		if p.anyone() {
			t.Fatalf("%d transactions are still watched", p.waits.count)
		}
	})
}

// Callers that wait for transfers of packed bundles, in any order and number, learn the outcomes of
// those transfers and of no others.
func TestWaitersOfPackedTransfers(t *testing.T) {
	t.Parallel()
	client := ledgertest.NewClient(ledgertest.Genesis(), "acme")
	var bundles []*ledger.Bundle
	var ids []ledger.Hash // of all transfers, and some of none
	for _, count := range []int{1, 2, 6} {
		var transfers []ledger.Transaction
		for range count {
			transfers = append(transfers, client.Transfer("acme:a", "acme:b", 1))
		}
		packed := client.Packed(transfers...)
		beyond := packed.ID(count - 1)
		beyond[31]++
		bundles, ids = append(bundles, packed), append(append(ids, packed.IDs()...), beyond)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := newProgress(report.Heights{Ordered: 1})
		var watching []*waiter
		for range rapid.IntRange(1, 12).Draw(t, "waiters") {
			from := rapid.IntRange(0, len(ids)-1).Draw(t, "from")
			awaited := slices.Clone(ids[from:rapid.IntRange(from+1, len(ids)).Draw(t, "to")])
			more := rapid.SliceOfN(rapid.SampledFrom(ids), 0, 4).Draw(t, "more")
			watching = append(watching, p.watch(append(awaited, more...), report.LevelOrdered))
		}
		block := ledgertest.Block(ledgertest.Genesis(), rapid.SliceOfDistinct(
			rapid.SampledFrom(bundles), rapid.ID).Draw(t, "bundles")...)
		places := make(map[ledger.Hash]int)
		for i := range block.Len() {
			places[block.Entry(i).ID] = i
		}
		p.settleBlock(block)
		for _, w := range watching {
			left := 0
			for i, id := range w.ids {
				place, here := places[id]
				if status := w.found[i]; here != (status.Outcome == report.OutcomeExecuted) ||
					here && (status.ID != id || status.Index != uint32(place)) {
					t.Fatalf("%s: %+v, in the block: %v", id, status, here)
				}
				if !here {
					left++
				}
			}
			if w.left != left || w.awake() != (left == 0) {
				t.Fatalf("%d outcomes are missing, and not %d", w.left, left)
			}
			p.unwatch(w)
		}
		if p.anyone() {
			t.Fatalf("%d transactions are still watched", p.waits.count)
		}
	})
}

// A caller that waits for a level wakes once, when its last transaction has that level, whether the
// outcome or the level comes last. A caller that gave up leaves nothing behind.
func TestWaitersWakeAtTheirLevel(t *testing.T) {
	t.Parallel()
	ids := []ledger.Hash{{1}, {2}}
	p := newProgress(report.Heights{})
	apply := func(height ledger.Height, id ledger.Hash) {
		p.update(func(h *report.Heights) { h.Ordered = height })
		p.settleBlock(&ledger.Block{Header: ledger.Header{Height: height},
			Unpacked: []ledger.Entry{{ID: id}}, Bundles: make([]ledger.BundleSeal, 1)})
	}
	stored := func(height ledger.Height) {
		p.update(func(h *report.Heights) { h.Stored = height })
	}
	durable := func(height ledger.Height) {
		p.update(func(h *report.Heights) { h.Durable = height })
	}
	waiters := map[report.Level]*waiter{}
	for _, level := range []report.Level{report.LevelOrdered, report.LevelStored,
		report.LevelDurable} {
		waiters[level] = p.watch(ids, level)
	}
	gone := p.watch(ids, report.LevelDurable)
	for i, step := range []struct {
		do   func()
		wake report.Level // whose waiter wakes, if any
	}{
		{func() { apply(1, ids[0]) }, 0},
		{func() { stored(1) }, 0},
		{func() { durable(1) }, 0},
		{func() { apply(2, ids[1]) }, report.LevelOrdered},
		{func() { p.unwatch(gone) }, 0},
		{func() { apply(3, ledger.Hash{3}) }, 0},
		{func() { stored(2) }, report.LevelStored},
		{func() { stored(3) }, 0},
		{func() { durable(3) }, report.LevelDurable},
	} {
		step.do()
		for level, w := range waiters {
			if awake := w.awake(); awake != (level == step.wake) {
				t.Errorf("step %d: the caller that waits for level %v is awake: %v", i, level,
					awake)
			}
			if done := p.done(w); done != (level <= step.wake) && step.wake != 0 {
				t.Errorf("step %d: the caller that waits for level %v is done: %v", i, level, done)
			}
		}
	}
	if gone.awake() || len(p.gates) > 0 {
		t.Errorf("a caller that gave up is woken, or one of %d gates holds it", len(p.gates))
	}
	late := p.watch([]ledger.Hash{{4}}, report.LevelDurable)
	apply(4, ledger.Hash{4})
	p.renew()
	if !late.awake() || len(p.gates) > 0 {
		t.Error("another chain does not wake a caller that waits for a level")
	}
}

// The waiters of many transactions are found, while there are more and more.
func TestManyWaiters(t *testing.T) {
	t.Parallel()
	p := newProgress(report.Heights{})
	block := &ledger.Block{Header: ledger.Header{Height: 1},
		Unpacked: make([]ledger.Entry, 10*fewestLists), Bundles: make([]ledger.BundleSeal, 1)}
	var watching []*waiter
	for i := range block.Unpacked {
		id := ledger.TransactionID([]byte{byte(i), byte(i >> 8)})
		block.Unpacked[i].ID = id
		watching = append(watching, p.watch([]ledger.Hash{id}, report.LevelOrdered))
	}
	p.update(func(h *report.Heights) { h.Ordered = 1 })
	p.settleBlock(block)
	for i, w := range watching {
		if !w.awake() || w.found[0].ID != block.Entry(i).ID || w.found[0].Index != uint32(i) {
			t.Errorf("transaction %d: %+v", i, w.found[0])
		}
		p.unwatch(w)
	}
	if p.anyone() {
		t.Errorf("%d transactions are still watched", p.waits.count)
	}
}

// BenchmarkWaiters tells the waiters of a block of 16 bundles of 400.
func BenchmarkWaiters(b *testing.B) {
	const bundles, perBundle = 16, 400
	block := &ledger.Block{Unpacked: make([]ledger.Entry, bundles*perBundle),
		Bundles: make([]ledger.BundleSeal, 1)}
	ids := make([]ledger.Hash, block.Len())
	for i := range ids {
		ids[i] = ledger.TransactionID([]byte{byte(i), byte(i >> 8)})
		block.Unpacked[i].ID = ids[i]
	}
	p := newProgress(report.Heights{})
	b.ReportAllocs()
	for b.Loop() {
		var waiters [bundles]*waiter
		for i := range waiters {
			waiters[i] = p.watch(ids[i*perBundle:][:perBundle], report.LevelOrdered)
		}
		p.settleBlock(block)
		for _, w := range waiters {
			if w.unknown() != 0 {
				b.Fatal(w.unknown())
			}
			p.unwatch(w)
		}
	}
}

// BenchmarkWaitersOfOne has two callers that wait for one transaction very often.
func BenchmarkWaitersOfOne(b *testing.B) {
	ids := make([]ledger.Hash, intake.MaxWaited)
	p := newProgress(report.Heights{})
	for b.Loop() {
		first, second := p.watch(ids, report.LevelOrdered), p.watch(ids, report.LevelOrdered)
		p.unwatch(first)
		p.unwatch(second)
	}
}
