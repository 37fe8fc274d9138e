package pipeline

import (
	"crypto/sha256"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// TestWaits compares a table of waits with a list of them, as waits for ids that begin alike are
// added and removed in any order.
func TestWaits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table := newWaits()
		var model []*wait
		check := func(id ledger.Hash) {
			var want []*wait
			for _, each := range model {
				if *each.id() == id {
					want = append(want, each)
				}
			}
			if table.anyOf(&id) != (len(want) > 0) {
				t.Fatalf("%v: awaited is %v", id, table.anyOf(&id))
			}
			for each := *table.list(&id); each != nil; each = each.next {
				if _, holds := each.holds(&id); !holds {
					continue
				}
				place := slices.Index(want, each)
				if place < 0 {
					t.Fatalf("%v: found a wait that was removed, or twice", id)
				}
				want = slices.Delete(want, place, place+1)
			}
			if len(want) != 0 {
				t.Fatalf("%v: %d waits were not found", id, len(want))
			}
		}
		waiters := rapid.IntRange(1, 20).Draw(t, "waiters")
		for range waiters {
			w := &waiter{ids: make([]ledger.Hash, rapid.IntRange(0, 40).Draw(t, "ids"))}
			w.waits = make([]wait, len(w.ids))
			for i := range w.ids {
				number := rapid.IntRange(0, 200).Draw(t, "id")
				w.ids[i] = ledger.Hash{0: byte(number >> 2), 31: byte(number)}
				w.waits[i] = wait{waiter: w, place: i, count: 1}
				table.add(&w.waits[i])
				model = append(model, &w.waits[i])
			}
			for range rapid.IntRange(0, len(model)).Draw(t, "removed") {
				place := rapid.IntRange(0, len(model)-1).Draw(t, "place")
				gone := model[place]
				model = slices.Delete(model, place, place+1)
				table.remove(gone)
				check(*gone.id())
				if rapid.Bool().Draw(t, "again") { // with what its links were
					table.add(gone)
					model = append(model, gone)
				}
			}
			if table.count != len(model) {
				t.Fatalf("%d waits, want %d", table.count, len(model))
			}
		}
		for number := range 201 {
			check(ledger.Hash{0: byte(number >> 2), 31: byte(number)})
		}
	})
}

// However many waits there are, their lists are short. Clients cannot know which ids share one.
func TestWaitsAreSpread(t *testing.T) {
	t.Parallel()
	const waits = 10_000
	w := &waiter{ids: make([]ledger.Hash, waits), waits: make([]wait, waits)}
	first, second := newWaits(), newWaits()
	if first.secret == second.secret {
		t.Error("two tables have the same secret")
	}
	for i := range w.ids {
		w.ids[i] = sha256.Sum256([]byte{byte(i >> 8), byte(i)})
		w.waits[i] = wait{waiter: w, place: i, count: 1}
		first.add(&w.waits[i])
	}
	if len(first.lists) < waits {
		t.Errorf("%d lists for %d waits", len(first.lists), waits)
	}
	longest := 0
	for _, each := range first.lists {
		length := 0
		for ; each != nil; each = each.next {
			length++
		}
		longest = max(longest, length)
	}
	if longest > 20 {
		t.Errorf("a list has %d of %d waits", longest, waits)
	}
}
