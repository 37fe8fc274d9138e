package verdicts

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// The ordered set behaves like a sorted slice, also while it grows and shrinks over many chunks.
func TestOrderedSetIsAsItsModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			set, model := &orderedSet{}, []ledger.Verdict(nil)
			place := func(key Key) (int, bool) {
				return slices.BinarySearchFunc(model, key,
					func(v ledger.Verdict, key Key) int { return KeyOf(&v).order(key) })
			}
			steps := 10_000
			for step := range steps {
				// Most verdicts are added first and removed last.
				verdict := ledger.Verdict{ID: name(random.IntN(1000)),
					Shard: ledger.ShardID(random.IntN(4)), Result: good}
				key := KeyOf(&verdict)
				at, known := place(key)
				if _, _, has := set.find(key); has != known {
					t.Fatalf("step %d: has %v, want %v", step, has, known)
				}
				switch adds := random.IntN(steps) > step; {
				case adds && !known:
					set.add(verdict)
					model = slices.Insert(model, at, verdict)
				case adds:
				default:
					set.remove(key)
					if known {
						model = slices.Delete(model, at, at+1)
					}
				}
				if set.len() != len(model) {
					t.Fatalf("step %d: %d elements, want %d", step, set.len(), len(model))
				}
				if step%199 == 0 {
					checkOrdered(t, set, model, random.IntN(len(model)+2))
				}
			}
			if got := set.drain(); !slices.Equal(got, model) || set.len() != 0 ||
				set.propose(1, time.Second, 0) != nil {
				t.Errorf("%d drained of %d", len(got), len(model))
			}
		})
	}
}

// checkOrdered compares a set with its model, and checks the sizes of its chunks.
func checkOrdered(t *testing.T, set *orderedSet, model []ledger.Verdict, most int) {
	t.Helper()
	want := model[:min(most, len(model))]
	if got := set.propose(most, time.Second, 0); !slices.Equal(got, want) {
		t.Fatalf("%d proposed of %d, want the first %d", len(got), len(model), most)
	}
	if set.pending(time.Second, 0) != (len(model) > 0) {
		t.Fatal("pending is wrong")
	}
	var got []ledger.Verdict
	set.each(func(verdict *ledger.Verdict) { got = append(got, *verdict) })
	if !slices.Equal(got, model) {
		t.Fatalf("%d verdicts, want %d", len(got), len(model))
	}
	from, every := cursor{}, most%7+1
	for i := 0; i < len(model); i += every {
		if found := from.seek(set, KeyOf(&model[i])); found == nil || *found != model[i] {
			t.Fatalf("verdict %d of %d is not found side by side", i, len(model))
		}
		absent, beyond := KeyOf(&model[i]), from
		if absent.Shard += 4; beyond.seek(set, absent) != nil {
			t.Fatalf("a verdict after %d of %d is found that is not there", i, len(model))
		}
	}
	for i := range set.chunks {
		if size := len(set.chunks[i]); size == 0 || size >= chunkMax ||
			i > 0 && size+len(set.chunks[i-1]) <= chunkMax/2 {
			t.Fatalf("chunk %d of %d has %d verdicts", i, len(set.chunks), size)
		}
	}
}

// A full set keeps the verdicts that come first.
func TestOrderedSetMakesRoomForEarlierVerdicts(t *testing.T) {
	t.Parallel()
	set := &orderedSet{}
	for i := range 10 {
		set.add(ledger.Verdict{ID: name(2 * i)})
	}
	if _, did := set.displace(&ledger.Verdict{ID: name(19)}); did || set.len() != 10 {
		t.Error("room was made for a later verdict")
	}
	removed, did := set.displace(&ledger.Verdict{ID: name(17)})
	if !did || removed != (Key{ID: name(18)}) || set.len() != 9 {
		t.Errorf("%v was dropped: %v, want the last verdict", removed, did)
	}
	if _, _, has := set.find(Key{ID: name(16)}); !has {
		t.Error("more than the last verdict was dropped")
	}
}

// The pool is woken when the patience after the last proposal is over, and not for an empty set.
func TestOrderedSetWakesAfterItsPatience(t *testing.T) {
	t.Parallel()
	set, now := &orderedSet{}, time.Hour
	if again, waits := set.again(time.Second); waits {
		t.Errorf("an empty set wakes the pool at %s", again)
	}
	set.add(ledger.Verdict{ID: name(1)})
	if got := set.propose(1, now, time.Second); len(got) != 1 {
		t.Fatalf("%d proposed", len(got))
	}
	if got := set.propose(0, now+time.Minute, time.Second); got != nil {
		t.Errorf("%d proposed without room", len(got))
	}
	if again, waits := set.again(time.Second); !waits || again != now+time.Second {
		t.Errorf("the pool is woken %s after the proposal: %v", again-now, waits)
	}
}
