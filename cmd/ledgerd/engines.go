package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/sim"
	"github.com/ledgerd/ledgerd/sim/search"
)

// addEngineFlag adds the flag --engine for one of the engines to a command. The default engine is
// one of them.
func addEngineFlag(command *cobra.Command, name *string, engines engine.List) {
	command.Flags().StringVar(name, "engine", engine.Default, "engine: "+engines.String())
	var values []string
	for _, e := range engines {
		values = append(values, cobra.CompletionWithDesc(e.Name, e.Story))
	}
	completeFlag(command, "engine",
		cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// simEngines lists the engines that the simulator runs.
func simEngines() engine.List { return named(sim.Engines()) }

// searchEngines lists the engines that the exhaustive search runs.
func searchEngines() engine.List { return named(search.Engines()) }

// named lists the engines with names.
func named(names []string) engine.List {
	return engine.All().With(func(e engine.Engine) bool { return slices.Contains(names, e.Name) })
}
