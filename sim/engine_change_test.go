package sim

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/order"
)

// TestLivesThatChangeTheEngine is TestShardsLiveOn with an operator that changes the engine, from
// each engine to each other, under all kinds of fault.
func TestLivesThatChangeTheEngine(t *testing.T) {
	t.Parallel()
	for name, g := range map[string]Group{
		"plain": {}, "records": {Records: true}, "prompt": {Prompt: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g.EngineChanges = true
			liveOnWith(t, g)
		})
	}
}

// TestPlantedBugsOfEngineChangesAreCaught plants each bug of changes of the engine.
func TestPlantedBugsOfEngineChangesAreCaught(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		plant  Plant
		limit  int
		breaks []order.Property
	}{
		{PlantEngineOfSetting, 20, []order.Property{SameEngine}},
		{PlantEngineEarly, 100, nil},
		{PlantEngineLate, 100, []order.Property{SameEngine}},
	} {
		for _, engine := range Engines() {
			for _, faults := range []Faults{0, FaultsAll} {
				t.Run(fmt.Sprintf("%v in %s with %v", c.plant, engine, faults), func(t *testing.T) {
					t.Parallel()
					mustBreak(t, Group{Engine: engine, Servers: 3, Faults: faults, Plant: c.plant},
						c.limit, c.breaks)
				})
			}
		}
	}
}
