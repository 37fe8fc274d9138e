package shard

import (
	"testing"

	"github.com/ledgerd/ledgerd/allconcur/generation"
)

// TestEngineOfTheBase: whether a run goes on from the one before or a process enters it, its engine
// is the one that the chain names at its base, and not at a later or earlier block.
func TestEngineOfTheBase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		engines map[uint64]string
		fault   Fault
		want    string
	}{
		"none":             {nil, FaultNone, ""},
		"long ago":         {map[uint64]string{2: "a"}, FaultNone, "a"},
		"changed before":   {map[uint64]string{2: "a", 7: "b"}, FaultNone, "b"},
		"in the last one":  {map[uint64]string{2: "a", 9: "b"}, FaultNone, "b"},
		"planted: too old": {map[uint64]string{2: "a", 9: "b"}, FaultEngineLate, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			starts := map[string]func(*Member){
				"the next eon": func(m *Member) {
					m.work(3, generation.NewRun(1, 0))
					m.Step(EonEnded{Run: generation.NewRun(1, 0), Members: serversTo(3)})
				},
				"entered": func(m *Member) { m.begin(groupOf(3, generation.NewRun(1, 3))) },
			}
			for how, start := range starts {
				m, chain := newTestMember(t, 3)
				chain.engines, m.config.Fault = c.engines, c.fault
				start(m)
				m.Ready()
				m.Step(Saved{})
				started := effectsOf[Start](m)
				if len(started) != 1 || started[0].Group.Engine != c.want {
					t.Errorf("%s: %+v, want engine %q", how, started, c.want)
				}
			}
		})
	}
}
