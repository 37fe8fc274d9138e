package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/bench"
)

// newBenchLoopbackCommand returns the `ledgerd bench loopback` command.
func newBenchLoopbackCommand() *cobra.Command {
	var measured time.Duration
	var asJSON bool
	command := &cobra.Command{
		Use:   "loopback",
		Short: "Measure the raw TCP ceiling of this machine",
		Long: `Measure the raw TCP ceiling of this machine: one plain connection on 127.0.0.1, with
both ends in this process. It streams one way with writes of 64 KiB and of 1 MiB, and sends 64 bytes
there and back.

The keys of --json: stream_gbit_64k and stream_gbit_1m (10^9 bits a second),
stream_64k_bytes_per_second and stream_1m_bytes_per_second, round_trip_us_p50 and round_trip_us_p99;
and the keys that all benchmarks share: requests_per_second (round trips), gbit_per_second (with
1 MiB writes), latency_p50_us and latency_p99_us (a round trip), cpu_seconds,
wire_bytes_per_byte (1).`,
		Example: "  ledgerd bench loopback --json",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(command.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			result, err := bench.Loopback(ctx, measured)
			if err != nil {
				return err
			}
			if asJSON {
				return writeBenchJSON(command.OutOrStdout(), result)
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), `loopback TCP, %.1f s
  stream, 64 KiB writes   %7.2f Gbit/s  %6.2f GB/s
  stream, 1 MiB writes    %7.2f Gbit/s  %6.2f GB/s
  64 bytes and back       %7.1f us median, %.1f us 99th percentile
`, result.Seconds, result.StreamGbit64K, result.StreamBytes64K/1e9, result.StreamGbit1M,
				result.StreamBytes1M/1e9, result.RoundTripP50,
				result.RoundTripP99)
			return err
		},
	}
	command.Flags().DurationVar(&measured, "for", 3*time.Second, "how long to measure")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}
