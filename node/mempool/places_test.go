package mempool

import (
	"crypto/sha256"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// A table of places is a map by id, also for ids that begin alike.
func TestPlaces(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table, model := newPlaces(), map[ledger.Hash]*item{}
		for range rapid.IntRange(1, 1_000).Draw(t, "steps") {
			number := rapid.IntRange(0, 1_000).Draw(t, "id")
			id := ledger.Hash{0: byte(number >> 2), 31: byte(number)}
			if got := table.find(&id); got != model[id] {
				t.Fatalf("%v: found %p, want %p", id, got, model[id])
			}
			switch {
			case model[id] == nil:
				model[id] = new(item)
				table.add(&place{id: &id, item: model[id]})
			case rapid.Bool().Draw(t, "remove"):
				if got := table.remove(&id); got != model[id] {
					t.Fatalf("%v: removed %p, want %p", id, got, model[id])
				}
				delete(model, id)
			}
			if table.count != len(model) {
				t.Fatalf("%d places, want %d", table.count, len(model))
			}
		}
		for id, want := range model {
			if got := table.remove(&id); got != want {
				t.Fatalf("%v: removed %p at the end, want %p", id, got, want)
			}
			if got := table.remove(&id); got != nil {
				t.Fatalf("%v: removed twice", id)
			}
		}
	})
}

// However many places there are, their lists are short. Clients cannot know which ids share one.
func TestPlacesAreSpread(t *testing.T) {
	t.Parallel()
	const all = 10_000
	first, second := newPlaces(), newPlaces()
	if first.secret == second.secret {
		t.Error("two tables have the same secret")
	}
	for i := range all {
		id := ledger.Hash(sha256.Sum256([]byte{byte(i >> 8), byte(i)}))
		first.add(&place{id: &id, item: new(item)})
	}
	if len(first.lists) < all {
		t.Errorf("%d lists for %d places", len(first.lists), all)
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
		t.Errorf("a list has %d of %d places", longest, all)
	}
}
