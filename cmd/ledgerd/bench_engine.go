package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/internal/bench"
	"github.com/ledgerd/ledgerd/node/fabric"
)

// benchServerName is the hidden subcommand that runs one server of a measurement over a fabric
// between processes.
const benchServerName = "engine-server"

// newBenchEngineCommand returns the `ledgerd bench engine` command.
func newBenchEngineCommand() *cobra.Command {
	var p bench.Parameters
	var asJSON bool
	command := &cobra.Command{
		Use:   "engine",
		Short: "Measure an atomic broadcast engine with the production round driver",
		Long: `Measure an atomic broadcast engine with the production round driver. In every round,
every server A-broadcasts a batch of --batch requests of --size bytes, as fast as rounds go.

With --fabric memory, all servers live in this process. With any other fabric, each server is a
process of its own, and they talk over 127.0.0.1: p2p is authenticated and encrypted, p2p-trusted
is not encrypted, and verbs goes through an RDMA device (ledgerd fabric).

The keys of --json, besides the parameters:
  requests_per_second   the agreed throughput: requests of all servers that server 0 A-delivers in
                        one second
  gbit_per_second       the same in 10^9 payload bits
  latency_p50_us        from a batch's A-broadcast to its A-delivery at the same server, in
  latency_p99_us        microseconds, over all servers: the median and the 99th percentile
  cpu_seconds           user and system time of all server processes during the measurement
  wire_bytes_per_byte   bytes that all servers put on lanes, for each payload byte agreed
  seconds               length of the measurement, after a warm-up

At the end, the command compares the deliveries of all servers; a difference is an error.`,
		Example: `  ledgerd bench engine --servers 5 --batch 1 --size 64 --for 3s
  ledgerd bench engine --engine allconcur --servers 8 --batch 1024 --size 64 --for 10s \
                       --fabric p2p --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(command.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			server, err := benchServerProcess()
			if err != nil {
				return err
			}
			logger := slog.New(slog.NewTextHandler(command.ErrOrStderr(),
				&slog.HandlerOptions{Level: slog.LevelWarn}))
			result, err := bench.Run(ctx, p, server, logger)
			if err != nil {
				return err
			}
			if asJSON {
				return writeBenchJSON(command.OutOrStdout(), result)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(),
				`%s, %d servers, %d x %d bytes a message, %s, %.1f s
  agreed       %14.0f requests/s  %8.3f Gbit/s  %8.0f rounds/s
  latency      %14.0f us median   %8.0f us 99th percentile
  processors   %14.2f s           %8.2f bytes on lanes per payload byte
  compared     all servers delivered the same up to round %d
`, result.Engine, result.Servers, result.Batch, result.Size, result.Fabric, result.Seconds,
				result.RequestsPerSecond, result.GbitPerSecond,
				result.RoundsPerSecond, result.LatencyP50, result.LatencyP99, result.CPUSeconds,
				result.WireBytesPerByte, result.ComparedRound)
			return err
		},
	}
	flags := command.Flags()
	flags.StringVar(&p.Engine, "engine", allconcur.EngineAllConcurPlus,
		`engine, "allconcur+" or "allconcur"`)
	flags.IntVar(&p.Servers, "servers", 5, "number of servers")
	flags.IntVar(&p.Batch, "batch", 1, "requests that a server packs into a message")
	flags.IntVar(&p.Size, "size", 64, "bytes of a request")
	flags.DurationVar(&p.For, "for", 5*time.Second,
		"how long to measure, after a warm-up of a quarter of it, at most 1s")
	addFabricFlag(command, &p.Fabric, fabric.Memory)
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// benchServerProcess returns the command line of a server process. It is a variable because the
// program of a test is not ledgerd.
var benchServerProcess = func() ([]string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to run servers as processes: %w", err)
	}
	return []string{program, "bench", benchServerName}, nil
}

// newBenchServerCommand returns the hidden command that `bench engine` starts for each server, when
// the fabric connects processes.
func newBenchServerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    benchServerName,
		Short:  "One server of bench engine, which talks to it over its standard input and output",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(command *cobra.Command, _ []string) error {
			// An interrupt at the terminal reaches this process too. Ignore it: this process ends
			// when its input does, which is when the measuring process ends.
			signal.Ignore(os.Interrupt)
			tuneMemory(0) // as a node does
			logger := slog.New(slog.NewTextHandler(command.ErrOrStderr(),
				&slog.HandlerOptions{Level: slog.LevelWarn}))
			return bench.Serve(command.Context(), command.InOrStdin(), command.OutOrStdout(),
				logger)
		},
	}
}
