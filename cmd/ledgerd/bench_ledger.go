package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/internal/bench"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/fabric"
)

// newBenchLedgerCommand returns the `ledgerd bench ledger` command.
func newBenchLedgerCommand() *cobra.Command {
	var p bench.LedgerParameters
	var dir string
	var asJSON bool
	command := &cobra.Command{
		Use:   "ledger",
		Short: "Measure a whole ledger: signed transactions, ordered, executed and stored",
		Long: `Measure a whole ledger: signed transactions, ordered, executed and stored. The nodes
run as under ledgerd testnet: each is a process with its own store, and they talk over 127.0.0.1.
Each client submits for an organisation of its own. It makes a bundle of --bundle transfers, signs
it once, submits it to its node, waits for the acknowledgement, and goes on with the next. With
--fabric memory the nodes live in this process, beside the clients.

The keys of --json, besides the parameters:
  requests_per_second   transactions acknowledged in one second, all clients together
  gbit_per_second       the bytes of their signed bundles in 10^9 bits
  latency_p50_us        from just before the submission of a bundle to its acknowledgement, in
  latency_p99_us        microseconds: the median and the 99th percentile
  cpu_seconds           processor time of all nodes during the measurement; with --fabric memory, of
                        the clients too
  wire_bytes_per_byte   bytes that all nodes put on lanes, for each byte of acknowledged bundles
  seconds               length of the measurement, after a warm-up
  acknowledged          transactions acknowledged since the start
  compared_height       last block up to which all nodes' chains were compared

At the end, the command compares the blocks of all nodes, and looks for every acknowledged
transaction in them. A difference or a missing transaction is an error.`,
		Example: `  ledgerd bench ledger --nodes 4 --clients 64 --for 10s
  ledgerd bench ledger --nodes 4 --clients 16 --bundle 100 --ack ordered --for 10s --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			if err := p.Validate(); err != nil {
				return asUsage(err)
			}
			process, err := nodeProcess()
			if err != nil {
				return err
			}
			homes, err := os.MkdirTemp(dir, "ledgerd-bench-")
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(homes)) }()
			logger := slog.New(slog.NewTextHandler(command.ErrOrStderr(),
				&slog.HandlerOptions{Level: slog.LevelError}))
			if p.Fabric == fabric.Memory {
				tuneMemory()
			}
			result, err := bench.RunLedger(command.Context(),
				p, bench.LedgerEnvironment{Dir: homes, Command: process,
					Start: nodeStarter(logger, store.Options{})})
			if err != nil {
				return err
			}
			if asJSON {
				return writeBenchJSON(command.OutOrStdout(), result)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(),
				`%d nodes (%s, %s), %d clients, %d transactions a bundle, %s, %.1f s
  acknowledged %14.0f transactions/s  %8.3f Gbit/s
  latency      %14.0f us median       %8.0f us 99th percentile
  processors   %14.2f s               %8.2f bytes on lanes per byte
  compared     all nodes have the same blocks up to %d
`, result.Nodes, result.Engine, result.Fabric, result.Clients, result.Bundle, result.Ack,
				result.Seconds, result.RequestsPerSecond, result.GbitPerSecond,
				result.LatencyP50, result.LatencyP99, result.CPUSeconds, result.WireBytesPerByte,
				result.ComparedHeight)
			return err
		},
	}
	flags := command.Flags()
	flags.IntVar(&p.Nodes, "nodes", 4, "number of nodes")
	flags.IntVar(&p.Clients, "clients", 64,
		"number of clients, each with an organisation of its own")
	flags.IntVar(&p.Bundle, "bundle", 1, "transactions that a client signs and submits together")
	flags.StringVar(&p.Ack, "ack", bench.AckDurable,
		"what a client waits for: ordered, stored or durable")
	addFabricFlag(command, &p.Fabric, fabric.P2P)
	flags.StringVar(&p.Engine, "engine", allconcur.EngineAllConcurPlus,
		`engine, "allconcur+" or "allconcur"`)
	flags.DurationVar(&p.For, "for", 10*time.Second,
		"how long to measure, after a warm-up of a quarter of it, at most 1s")
	flags.StringVar(&dir, "dir", "", "folder for the nodes' temporary homes; the speed of its "+
		"disk is part of the measurement (default the system's temporary folder)")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return command
}
