package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// newBenchCommand returns the `ledgerd bench` command, with one subcommand for each benchmark.
func newBenchCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "bench",
		Short: "Measure this machine, the engines and the ledger",
		Long: `Measure this machine, the engines and the ledger. Run the benchmarks one after the
other, so that the figures of one machine stand side by side: what its TCP can do, what the
ordering engines make of that, and what is left with signatures, execution and disks.`,
		Example: `  ledgerd bench loopback
  ledgerd bench fabric
  ledgerd bench engine --engine allconcur+ --servers 5 --batch 1024 --size 64 --for 5s --fabric p2p
  ledgerd bench multicast --groups 4 --destinations 2 --for 5s
  ledgerd bench ledger --nodes 4 --clients 64 --for 10s`,
	}
	return newGroupCommand(command,
		newBenchEngineCommand(),
		newBenchMulticastCommand(),
		newBenchFabricCommand(),
		newBenchServerCommand(),
		newBenchLedgerCommand(),
		newBenchLoopbackCommand(),
	)
}

// writeBenchJSON writes a result as indented JSON.
func writeBenchJSON(w io.Writer, result any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(result); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}
