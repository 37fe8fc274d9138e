package verdicts

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
)

// The sets behave like plain slices.
func TestSetsAreAsTheirModels(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type entry struct {
			verdict  ledger.Verdict
			proposed time.Duration
		}
		const bound, wait = 5, 10 * time.Second
		var (
			set                  = newAwaitedSet()
			facts                = newTable()
			early                = earlySet{bound: bound}
			recent               = ring{bound: bound, of: settledPlace}
			now                  = 1000 * time.Second
			model                []entry
			modelEarly, modelOld []ledger.Verdict
		)
		draw := func() ledger.Verdict {
			return ledger.Verdict{ID: ledger.Hash{rapid.Byte().Draw(t, "id") % 5},
				Shard: ledger.ShardID(rapid.IntRange(1, 3).Draw(t, "shard"))}
		}
		is := func(v ledger.Verdict) func(ledger.Verdict) bool {
			return func(o ledger.Verdict) bool { return o == v }
		}
		isEntry := func(v ledger.Verdict) func(entry) bool {
			return func(e entry) bool { return e.verdict == v }
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			v := draw()
			key, awaits := KeyOf(&v), slices.ContainsFunc(model, isEntry(v))
			if len(set.byID[v.ID]) == 0 && awaits ||
				facts.get(key).early != slices.ContainsFunc(modelEarly, is(v)) ||
				(facts.get(key).settled != 0) != slices.ContainsFunc(modelOld, is(v)) {
				t.Fatalf("%+v is not where it should be", v)
			}
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1:
				if !awaits {
					set.add(v)
					model = append(model, entry{verdict: v})
				}
				if at := facts.need(key); !facts.facts[at].early {
					early.add(&facts, at, v.Result)
					modelEarly = append(modelEarly, v)
					modelEarly = modelEarly[max(0, len(modelEarly)-bound):]
				}
				if at := facts.need(key); facts.facts[at].settled == 0 {
					recent.add(&facts, at)
					modelOld = append(modelOld, v)
					modelOld = modelOld[max(0, len(modelOld)-bound):]
				}
			case 2:
				set.remove(key)
				model = slices.DeleteFunc(model, isEntry(v))
				// What was removed keeps its place in the ring until its turn comes.
				recent.remove(&facts, facts.find(key))
				if at := slices.IndexFunc(modelOld, is(v)); at >= 0 {
					modelOld[at] = ledger.Verdict{}
				}
			case 3:
				var want []ledger.Verdict
				for _, each := range modelEarly {
					if each.ID == v.ID {
						want = append(want, each)
					}
				}
				byShard := func(a, b ledger.Verdict) int { return KeyOf(&a).order(KeyOf(&b)) }
				got := early.take(&facts, v.ID, nil)
				slices.SortFunc(got, byShard)
				if slices.SortFunc(want, byShard); !slices.Equal(got, want) {
					t.Fatalf("taken %v, want %v", got, want)
				}
				modelEarly = slices.DeleteFunc(modelEarly, func(o ledger.Verdict) bool {
					return o.ID == v.ID
				})
			case 4:
				now += time.Duration(rapid.IntRange(0, 6).Draw(t, "seconds")) * time.Second
			default:
				most := rapid.IntRange(0, 4).Draw(t, "most")
				got := set.propose(most, now, wait)
				could := 0
				for i := range model {
					if model[i].proposed == 0 || now-model[i].proposed >= wait {
						could++
					}
				}
				if len(got) != min(most, could) {
					t.Fatalf("%d proposed, could be %d of %d", len(got), most, could)
				}
				for _, each := range got {
					at := slices.IndexFunc(model, isEntry(each))
					if at < 0 || model[at].proposed != 0 &&
						now-model[at].proposed < wait {
						t.Fatalf("%+v should not be proposed", each)
					}
					model[at].proposed = now
				}
			}
			held := make(map[Key]bool)
			for _, each := range append(slices.Clone(modelEarly), modelOld...) {
				if each != (ledger.Verdict{}) {
					held[KeyOf(&each)] = true
				}
			}
			if set.len() != len(model) || early.count != len(modelEarly) ||
				factsIn(t, &facts) != len(held) {
				t.Fatalf("%d, %d, %d elements; want %d, %d, %d", set.len(), early.count,
					factsIn(t, &facts), len(model), len(modelEarly), len(held))
			}
		}
		if got := set.drain(); len(got) != len(model) || set.len() != 0 || len(set.byID) != 0 {
			t.Fatalf("%d drained of %d", len(got), len(model))
		}
		if recent.clear(&facts); factsIn(t, &facts) != early.count {
			t.Fatalf("%d facts of %d early verdicts", factsIn(t, &facts), early.count)
		}
		if got := early.drain(&facts, nil); !slices.Equal(got, modelEarly) || early.count != 0 {
			t.Fatalf("%v drained, want %v", got, modelEarly)
		}
	})
}

// factsIn counts the facts in a table, and checks that all others can be used again.
func factsIn(t *rapid.T, facts *table) (count int) {
	for id, at := range facts.first {
		for ; at != 0; at = facts.facts[at].next {
			if count++; facts.facts[at].key.ID != id {
				t.Fatalf("a fact on %v among those on %v", facts.facts[at].key, id)
			}
		}
	}
	unused := 0
	for at := facts.unused; at != 0; at = facts.facts[at].next {
		unused++
	}
	if count+unused+1 != len(facts.facts) {
		t.Fatalf("%d facts and %d unused ones of %d", count, unused, len(facts.facts)-1)
	}
	return count
}

func settledPlace(f *fact) *index { return &f.settled }
