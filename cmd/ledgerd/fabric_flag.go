package main

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/node/fabric"
)

// addFabricFlag gives a command the flag --fabric. Without a standard, the configuration's stands.
func addFabricFlag(command *cobra.Command, value *fabric.Kind, standard fabric.Kind) {
	usage := "what the nodes talk over: memory (all in one process), p2p, p2p-trusted or verbs"
	if standard == "" {
		usage += " (default: as configured)"
	}
	command.Flags().StringVar((*string)(value), "fabric", string(standard), usage)
	if err := command.RegisterFlagCompletionFunc("fabric",
		cobra.FixedCompletions(fabric.Names(), cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(command.Name() + ": no such flag: fabric")
	}
}
