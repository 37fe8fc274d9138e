package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/allconcur/interleave"
	"github.com/ledgerd/ledgerd/internal/bench"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/trains"
)

// benchServerName is the hidden subcommand that runs one server of a measurement over a fabric
// between processes.
const benchServerName = "engine-server"

// newBenchEngineCommand returns the `ledgerd bench engine` command.
func newBenchEngineCommand() *cobra.Command {
	var p bench.Parameters
	var asJSON, compare, inTurns bool
	var failovers int
	command := &cobra.Command{
		Use:   "engine",
		Short: "Measure an atomic broadcast engine with what drives it in production",
		Long: `Measure an atomic broadcast engine with what drives it in production: the round driver,
or for dare the poller. In every round, every server A-broadcasts a batch of --batch requests of
--size bytes, as fast as rounds go.

With --fabric memory, all servers live in this process. With any other fabric, each server is a
process of its own, and they talk over 127.0.0.1: p2p is authenticated and encrypted, p2p-trusted
is not encrypted, shm uses shared memory in place of TCP, and verbs goes through an RDMA device
(ledgerd fabric).

A message is delivered in one piece, unless --each is given: then a server packs its requests one
after the other, each behind its length, and every server takes the delivered messages apart and
hands over each request by itself.

On Linux one goroutine of a server reads all its lanes and takes the engine's turns: the poller of
p2p, p2p-trusted and shm. With --no-poller, a goroutine of its own reads each lane, as on
other systems.

With --engine trains, the servers form a ring that --trains T trains go round: a round is what one
train carries in one rotation. With --layout, wagons carry requests as the paper on TRAINS has it,
each behind a header of 5 bytes, and each is delivered by itself. pote_percent then is what the
paper calls POTE: 66.0, 94.3, 98.6 and 99.9 % with 5 servers, requests of 10, 100, 1,000 and 10,000
bytes, and wagons of 1 KB. --layout paper has frames in the paper's form, byte by byte. They are for
measurements only: they do not say to which run of a group they belong. --layout house has frames as
they are without --layout.

With --engine dare, a leader writes its log into the memory of the others. With --failovers N,
nothing else is measured: N groups in this process lose their leader, one after the other. With
--json:
  failover_p50_us       microseconds from the crash until all others have delivered a message under
  failover_max_us       another leader: the median and the longest, and all of them as failovers_us
  timeout_us            after which a leader that is silent is suspected, at first

With --in-flight K, a server has K rounds in flight: K engines side by side, whose rounds are
delivered in turns, and begin at even distances. A server of dare has up to K messages under way.
With --delay, every frame comes late by that time, as between distant places. With --rate, that many
requests arrive at each server in a second, and go in messages of up to --batch; the latency is then
that of a request, from its arrival.

With --compare, the command measures several loads one after the other, each with the poller and
without it, and before each load a TCP connection over loopback:
  ENGINE_N_alone      one request of 64 bytes a message, N = 4, 8 and 16 servers, p2p-trusted, with
                      each engine; dare with 4 and 8
  allconcur+_N_alone_shm  the same with AllConcur+, N = 4 and 8, over shm
  large_N             AllConcur+, messages of 64 KiB in one piece, N = 4 and 8, p2p-trusted
  large_N_encrypted   the same over p2p
  each_5_of_S_bytes   AllConcur+, five servers, p2p-trusted, messages of up to 128 KiB with requests
                      of S = 10, 100, 1,000 and 10,000 bytes, as with --each
This takes six minutes, or two with --for 2s. With --json, "loads" has for each load:
  load                the name of the load
  loopback            gbit_per_second, of a stream with writes of 64 KiB, and round_trip_us_p50, 64
                      bytes there and back
  poller, no_poller   the keys below, and latency_p50_round_trips, the median latency in round trips
                      over loopback, and loopback_share: gbit_per_second as a share of loopback's
                      stream, divided by the number of servers but one, as each byte has to reach
                      that many

With --compare-engines, the command measures the same load with all engines that can have it, in
turns: each engine three times, for a third of --for each time. It shows medians, and their ratio to
those of the first engine. The documentation says which engine to choose (choosing-an-engine). With
--json, "loopback" is as above, and "engines" has for each engine:
  engine              its name
  not_measured        why the engine cannot have the load; nothing else is measured then
  requests_per_second, gbit_per_second, latency_p50_us, latency_p99_us, wire_bytes_per_byte,
  latency_p50_round_trips, loopback_share
                      medians of the turns, as above and below
  throughput_ratio, latency_ratio
                      requests_per_second and latency_p50_us divided by those of the first engine
  turns               the results of the turns, with the keys below

The keys of --json, besides the parameters:
  requests_per_second   the agreed throughput: requests of all servers that server 0 A-delivers in
                        one second
  gbit_per_second       the same in 10^9 payload bits
  latency_p50_us        from a batch's A-broadcast to its A-delivery at the same server, in
  latency_p99_us        microseconds, over all servers: the median and the 99th percentile
  cpu_seconds           user and system time of all server processes during the measurement
  wire_bytes_per_byte   bytes that all servers put on lanes, for each payload byte agreed. With
                        dare: what they wrote into each other's memory and read there
  pote_percent          the servers but one, divided by that, in hundredths: which share of the
                        bytes that come to a server are payload, if each comes once; null with one
                        server
  cpu_us_per_frame      cpu_seconds for each frame that a server put on a lane for another, in
                        microseconds; null if there are none. With dare: for each access to memory
  syscalls_per_message  system calls of all threads of a server, for each message that it A-delivers
                        (what one server A-broadcasts in a round): the mean of all servers. Linux
                        counts them by a tracepoint, which root may use. Counting slows calls down,
                        so it has a part of the run of its own after the measurement, a quarter as
                        long and at most 1s. null where they cannot be counted
  syscalls_uncounted    why they were not counted
  reads_and_writes_per_message  system calls among them that read or write, also those that moved
                        nothing, during the measurement; null if the kernel does not count them
                        (/proc/PID/io)
  switches_per_message  context switches of all threads, voluntary or not, for each message, during
                        the measurement (getrusage)
  hashed                what servers hash of their deliveries, to compare them: "sample" is rounds,
                        origins, lengths, the first 64 bytes of each message, and each message of
                        every 64th round as a whole
  seconds               length of the measurement, after a warm-up

At the end, the command compares the deliveries of all servers; a difference is an error.`,
		Example: `  ledgerd bench engine --servers 5 --batch 1 --size 64 --for 3s
  ledgerd bench engine --engine allconcur --servers 8 --batch 1024 --size 64 --for 10s \
                       --fabric p2p --json
  ledgerd bench engine --fabric p2p-trusted --size 100 --batch 1024 --each
  ledgerd bench engine --engine trains --layout paper --batch 10 --size 100 --fabric p2p-trusted
  ledgerd bench engine --compare --for 2s
  ledgerd bench engine --engine dare --failovers 20
  ledgerd bench engine --compare-engines --servers 5 --size 100 --batch 64 --fabric p2p-trusted`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(command.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if p.InFlight == 0 {
				return fmt.Errorf("%w: --in-flight is 0: have 1 to %d rounds in flight",
					bench.ErrParameters, interleave.InFlightMax)
			}
			server, err := benchServerProcess()
			if err != nil {
				return err
			}
			logger := slog.New(slog.NewTextHandler(command.ErrOrStderr(),
				&slog.HandlerOptions{Level: slog.LevelWarn}))
			if compare {
				if err := onlyCompared(command.Flags()); err != nil {
					return err
				}
				result, err := bench.CompareEngines(ctx, benchEngineLoads(p.For), server, logger,
					func(load string) {
						if !asJSON {
							_, _ = fmt.Fprintln(command.ErrOrStderr(), "measuring", load)
						}
					})
				if err != nil {
					return err
				}
				if asJSON {
					return writeBenchJSON(command.OutOrStdout(), result)
				}
				return writeEngineComparison(command.OutOrStdout(), result)
			}
			if inTurns {
				for _, flag := range []string{"engine", "layout"} {
					if command.Flags().Changed(flag) {
						return usagef("--%s is not for --compare-engines, which measures the "+
							"same with all engines: leave one of the two out", flag)
					}
				}
				told := command.ErrOrStderr()
				if asJSON {
					told = io.Discard
				}
				result, err := bench.CompareInTurns(ctx, p, server, logger,
					func(name string, turn, turns int) {
						fmt.Fprintf(told, "measuring %s, turn %d of %d\n", name, turn, turns)
					})
				if err != nil {
					return err
				}
				if asJSON {
					return writeBenchJSON(command.OutOrStdout(), result)
				}
				return writeEnginesInTurns(command.OutOrStdout(), result)
			}
			if command.Flags().Changed("failovers") {
				result, err := bench.RunFailover(ctx, p, failovers, logger)
				if err != nil {
					return err
				}
				if asJSON {
					return writeBenchJSON(command.OutOrStdout(), result)
				}
				return writeFailover(command.OutOrStdout(), result)
			}
			result, err := bench.Run(ctx, p, server, logger)
			if err != nil {
				return err
			}
			if asJSON {
				return writeBenchJSON(command.OutOrStdout(), result)
			}
			return writeEngine(command.OutOrStdout(), result)
		},
	}
	flags := command.Flags()
	addEngineFlag(command, &p.Engine, bench.Engines())
	flags.IntVar(&p.Trains, "trains", 0, fmt.Sprintf("trains of --engine trains, up to %d "+
		"(default %d)", trains.TrainsMax, trains.TrainsDefault))
	flags.StringVar(&p.Layout, "layout", "", fmt.Sprintf("have wagons of --engine trains as in "+
		"its paper, in frames of the layout %v or %v (default %v, without the paper's wagons)",
		trains.LayoutPaper, trains.LayoutHouse, trains.LayoutHouse))
	flags.IntVar(&p.Servers, "servers", 5, "number of servers")
	flags.IntVar(&p.Batch, "batch", 1, "requests that a server packs into a message")
	flags.IntVar(&p.Size, "size", 64, "bytes of a request")
	flags.BoolVar(&p.Each, "each", false, "deliver each request by itself")
	flags.BoolVar(&p.NoPoller, "no-poller", false,
		"read each lane with a goroutine of its own")
	flags.IntVar(&p.InFlight, "in-flight", 1,
		fmt.Sprintf("rounds in flight, up to %d", interleave.InFlightMax))
	flags.IntVar(&p.Rate, "rate", 0, fmt.Sprintf("requests that arrive at each server in a "+
		"second, up to %d (default as many as fit)", bench.RateMax))
	flags.DurationVar(&p.Delay, "delay", 0, fmt.Sprintf("how late every frame comes, up to %v; "+
		"a goroutine then reads each lane", bench.DelayMax))
	flags.BoolVar(&compare, "compare", false,
		"measure several loads beside loopback, with and without the poller")
	flags.BoolVar(&inTurns, "compare-engines", false,
		"measure the same load with all engines, in turns")
	flags.IntVar(&failovers, "failovers", 0, fmt.Sprintf("crash the leader so many times, up to "+
		"%d, each in a new group, and measure how long nothing is delivered", bench.CrashesMax))
	flags.DurationVar(&p.For, "for", 5*time.Second,
		"how long to measure, after a warm-up of a quarter of it, at most 1s")
	addFabricFlag(command, &p.Fabric, fabric.Memory)
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	command.MarkFlagsMutuallyExclusive("compare", "compare-engines", "failovers")
	command.MarkFlagsMutuallyExclusive("for", "failovers")
	return command
}

// benchEngineLoads returns the loads of --compare. It is a variable because tests measure fewer.
var benchEngineLoads = bench.EngineLoads

// onlyCompared returns an error if a flag of one load is set beside --compare.
func onlyCompared(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(flag *pflag.Flag) {
		switch flag.Name {
		case "compare", "for", "json":
		default:
			err = usagef("--%s is not for --compare, which has loads of its own: leave one of "+
				"the two out", flag.Name)
		}
	})
	return err
}

// writeEngine writes a result as text.
func writeEngine(out io.Writer, r bench.Result) error {
	how := string(r.Fabric)
	if r.NoPoller {
		how += " without the poller"
	}
	if r.Each {
		how = "each delivered by itself, " + how
	}
	if r.Layout != "" {
		how = "the paper's wagons, layout " + r.Layout + ", " + how
	}
	if r.InFlight > 1 {
		how += fmt.Sprintf(", %d rounds in flight", r.InFlight)
	}
	if r.Rate > 0 {
		how += fmt.Sprintf(", %d requests/s at each server", r.Rate)
	}
	if r.Delay > 0 {
		how += fmt.Sprintf(", frames %v late", r.Delay)
	}
	_, err := fmt.Fprintf(out,
		`%s, %d servers, %d x %d bytes a message, %s, %.1f s
  agreed       %14.0f requests/s  %8.3f Gbit/s  %8.0f rounds/s
  latency      %14.0f us median   %8.0f us 99th percentile
  processors   %14.2f s           %8s us a frame
  lanes        %14.2f bytes per payload byte, POTE %s %%
  a message    %14s system calls  %8s reads and writes  %8s context switches
`, r.Engine, r.Servers, r.Batch, r.Size, how, r.Seconds, r.RequestsPerSecond, r.GbitPerSecond,
		r.RoundsPerSecond, r.LatencyP50, r.LatencyP99, r.CPUSeconds, orUnknown(r.CPUPerFrame),
		r.WireBytesPerByte, orUnknown(r.POTE), orUnknown(r.SystemCallsPerMessage),
		orUnknown(r.ReadsAndWritesPerMessage), threeDigits(r.SwitchesPerMessage))
	if err == nil && r.SystemCallsUncounted != "" {
		_, err = fmt.Fprintf(out, "               system calls are not counted: %s\n",
			r.SystemCallsUncounted)
	}
	if err == nil {
		_, err = fmt.Fprintf(out, "  compared     all servers delivered the same up to round %d "+
			"(payloads by sampling)\n", r.ComparedRound)
	}
	return err
}

// writeFailover writes how long a group orders nothing once its leader has crashed.
func writeFailover(out io.Writer, f bench.Failover) error {
	_, err := fmt.Fprintf(out, `%s, %d servers, %d x %d bytes a message, %s, %d leaders crashed
  delivers again after %8.1f ms median  %8.1f ms at most
                       a silent leader is suspected after %.1f ms at first
  in the paper         %8d ms, on InfiniBand
`, f.Engine, f.Servers, f.Batch, f.Size, f.Fabric, f.Crashes, f.Median/1e3, f.Worst/1e3,
		f.Timeout/1e3, paperFailover.Milliseconds())
	return err
}

// paperFailover is the time without a leader that DARE's authors measured [Poke19, section 4.6].
const paperFailover = 30 * time.Millisecond

// orUnknown formats a figure, which may be missing.
func orUnknown(figure *float64) string {
	if figure == nil {
		return "-"
	}
	return threeDigits(*figure)
}

// writeEngineComparison writes the results of --compare as text.
func writeEngineComparison(out io.Writer, c bench.EngineComparison) error {
	rows := table{header: []string{"LOAD", "POLLER", "MEDIAN US", "TRIPS", "GBIT/S", "SHARE",
		"REQUESTS/S", "US A FRAME", "CALLS", "SWITCHES", "LOOPBACK"},
		right: []bool{false, false, true, true, true, true, true, true, true, true, false}}
	uncounted := ""
	for _, load := range c.Loads {
		for _, turn := range []struct {
			poller string
			bench.ComparedResult
		}{{"on", load.Poller}, {"off", load.NoPoller}} {
			name, loopback := load.Load, fmt.Sprintf("%s us, %s Gbit/s",
				threeDigits(load.Loopback.RoundTripP50), threeDigits(load.Loopback.GbitPerSecond))
			if turn.NoPoller {
				name, loopback = "", ""
			}
			rows.add(name, turn.poller, fmt.Sprintf("%.0f", turn.LatencyP50),
				threeDigits(turn.RoundTrips), threeDigits(turn.GbitPerSecond),
				fmt.Sprintf("%.2f", turn.LoopbackShare),
				fmt.Sprintf("%.0f", turn.RequestsPerSecond), orUnknown(turn.CPUPerFrame),
				orUnknown(turn.SystemCallsPerMessage), threeDigits(turn.SwitchesPerMessage),
				loopback)
			uncounted = turn.SystemCallsUncounted
		}
	}
	if err := rows.write(out); err != nil {
		return err
	}
	if uncounted != "" {
		if _, err := fmt.Fprintf(out, "system calls are not counted: %s\n", uncounted); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(out, `
LOOPBACK is one TCP connection just before the load: 64 bytes there and back, and a stream. TRIPS is
the median in round trips. SHARE is GBIT/S as a share of the stream divided by the servers but one.
US A FRAME is processor time of all servers. CALLS and SWITCHES are system calls and context
switches of a server for each message that it delivers. Servers hash payloads by sampling.
`)
	return err
}

// writeEnginesInTurns writes the results of --compare-engines as text.
func writeEnginesInTurns(out io.Writer, c bench.EnginesInTurns) error {
	rows := table{header: []string{"ENGINE", "REQUESTS/S", "RATIO", "MEDIAN US", "RATIO", "99 % US",
		"TRIPS", "GBIT/S", "SHARE", "BYTES A BYTE"},
		right: []bool{false, true, true, true, true, true, true, true, true, true}}
	var missing []string
	for _, e := range c.Engines {
		if e.NotMeasured != "" {
			missing = append(missing, fmt.Sprintf("%s is not measured: %s\n", e.Engine,
				e.NotMeasured))
			continue
		}
		rows.add(e.Engine, fmt.Sprintf("%.0f", e.RequestsPerSecond),
			threeDigits(e.ThroughputRatio), fmt.Sprintf("%.0f", e.LatencyP50),
			threeDigits(e.LatencyRatio), fmt.Sprintf("%.0f", e.LatencyP99),
			threeDigits(e.RoundTrips), threeDigits(e.GbitPerSecond),
			fmt.Sprintf("%.2f", e.LoopbackShare), threeDigits(e.WireBytesPerByte))
	}
	if err := rows.write(out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, `%s
Medians of turns. RATIO is to the first engine. Loopback: %s us there and back, %s Gbit/s. TRIPS is
the median latency in such round trips. SHARE is GBIT/S as a share of the stream divided by the
servers but one. BYTES A BYTE is what all servers put on lanes for each payload byte.
`, strings.Join(missing, ""), threeDigits(c.Loopback.RoundTripP50),
		threeDigits(c.Loopback.GbitPerSecond))
	return err
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
