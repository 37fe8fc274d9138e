package mempool

import (
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
