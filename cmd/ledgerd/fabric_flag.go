package main

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/node/fabric"
)

// addFabricFlag adds the flag --fabric. An empty standard means that the configuration decides.
func addFabricFlag(command *cobra.Command, value *fabric.Kind, standard fabric.Kind) {
	usage := "what the nodes talk over: memory (all in one process), p2p, p2p-trusted, " +
		"shm or verbs"
	if standard == "" {
		usage += " (default: as configured)"
	}
	command.Flags().StringVar((*string)(value), "fabric", string(standard), usage)
	completeFlag(command, "fabric",
		cobra.FixedCompletions(fabric.Names(), cobra.ShellCompDirectiveNoFileComp))
}
