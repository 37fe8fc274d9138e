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
			early                = newEarlySet(bound)
			recent               = newRecentSet(bound)
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
			if set.has(KeyOf(&v)) != slices.ContainsFunc(model, isEntry(v)) ||
				early.has(KeyOf(&v)) != slices.ContainsFunc(modelEarly, is(v)) ||
				recent.has(KeyOf(&v)) != slices.ContainsFunc(modelOld, is(v)) {
				t.Fatalf("%+v is not where it should be", v)
			}
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1:
				if !set.has(KeyOf(&v)) {
					set.add(v)
					model = append(model, entry{verdict: v})
				}
				if !early.has(KeyOf(&v)) {
					early.add(v)
					modelEarly = append(modelEarly, v)
					modelEarly = modelEarly[max(0, len(modelEarly)-bound):]
				}
				recent.add(KeyOf(&v))
				if !slices.ContainsFunc(modelOld, is(v)) {
					modelOld = append(modelOld, v)
					modelOld = modelOld[max(0, len(modelOld)-bound):]
				}
			case 2:
				set.remove(KeyOf(&v))
				model = slices.DeleteFunc(model, isEntry(v))
			case 3:
				set.removeAll(v.ID)
				model = slices.DeleteFunc(model, func(e entry) bool { return e.verdict.ID == v.ID })
				var want []ledger.Verdict
				for _, each := range modelEarly {
					if each.ID == v.ID {
						want = append(want, each)
					}
				}
				if got := early.take(v.ID); !slices.Equal(got, want) {
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
			if set.len() != len(model) || early.len() != len(modelEarly) ||
				len(recent.known) != len(modelOld) {
				t.Fatalf("%d, %d, %d elements; want %d, %d, %d", set.len(), early.len(),
					len(recent.known), len(model), len(modelEarly), len(modelOld))
			}
		}
		if got := set.drain(); len(got) != len(model) || set.len() != 0 || set.has(Key{}) {
			t.Fatalf("%d drained of %d", len(got), len(model))
		}
		if got := early.drain(); !slices.Equal(got, modelEarly) || early.len() != 0 {
			t.Fatalf("%v drained, want %v", got, modelEarly)
		}
	})
}
