package multicast

import (
	"fmt"
	"slices"
	"strings"
)

// engines are the forms that the frame can run.
var engines = []Engine{
	{Name: EngineTRAM, New: newTRAMReplicas, Plants: tramPlants(),
		Story: "the paper's: a leader in each group, whose write permission orders"},
	{Name: EngineLeaderless, New: newLeaderless, Plants: leaderlessPlants,
		Story: "a log a group, without leaders, and streams down the tree"},
	{Name: EngineDARE, New: newDARE, Plants: darePlants(), OneGroup: true,
		Changes: true,
		Story:   "one group, with a leader's log in the memory of its followers"},
	{Name: EngineSequencer, New: newSequencer, Plants: sequencerPlants,
		Story: "one log for all groups: the frame's own, for its tests"},
}

// Engines lists the forms.
func Engines() []Engine { return slices.Clone(engines) }

// EngineNames lists the forms' names.
func EngineNames() []string {
	names := make([]string, len(engines))
	for i, e := range engines {
		names[i] = e.Name
	}
	return names
}

// engineOf returns the engine with a name. It checks the plant.
func engineOf(name, plant string) (Engine, error) {
	at := slices.IndexFunc(engines, func(e Engine) bool { return e.Name == name })
	if at < 0 {
		return Engine{}, fmt.Errorf("%w: %q, use one of %s", ErrEngine, name,
			strings.Join(EngineNames(), ", "))
	}
	if plant != "" && !slices.Contains(engines[at].Plants, plant) {
		return Engine{}, fmt.Errorf("%w: %s has no planted bug %q, use one of %s", ErrEngine,
			name, plant, strings.Join(engines[at].Plants, ", "))
	}
	return engines[at], nil
}
