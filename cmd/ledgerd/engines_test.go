package main

import (
	"testing"

	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/sim"
	"github.com/ledgerd/ledgerd/sim/search"
)

// TestEnginesHaveOneName: the simulator and the search name engines as the table of engines does,
// and judge each engine that takes frames and that a node may run.
func TestEnginesHaveOneName(t *testing.T) {
	t.Parallel()
	for room, names := range map[string][]string{"sim": sim.Engines(), "search": search.Engines()} {
		for _, name := range names {
			if !engine.All().Has(name) {
				t.Errorf("%s runs %q, which the table of engines lacks", room, name)
			}
		}
		judged := named(names)
		for _, e := range engine.All().With(engine.Engine.RunsInNode) {
			if e.TakesFrames() && !judged.Has(e.Name) {
				t.Errorf("a node may run %s, and %s does not", e.Name, room)
			}
		}
	}
}

// Only a command line that asks for completions registers them: the library keeps them, and all
// commands with them, for ever.
func TestCompletionsAreNotKept(t *testing.T) {
	for _, asked := range []bool{false, true} {
		if asked {
			completing.Add(1)
			defer completing.Add(-1)
		}
		command, _, err := newRootCommand().Find([]string{"bench", "engine"})
		if err != nil {
			t.Fatal(err)
		}
		if _, kept := command.GetFlagCompletionFunc("engine"); kept != asked {
			t.Errorf("completions are kept: %v, asked for: %v", kept, asked)
		}
	}
}
