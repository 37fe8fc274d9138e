package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/bench"
	"github.com/ledgerd/ledgerd/node/fabric"
)

// newBenchMulticastCommand returns the `ledgerd bench multicast` command.
func newBenchMulticastCommand() *cobra.Command {
	var p bench.MulticastParameters
	var device, gid string
	var asJSON bool
	command := &cobra.Command{
		Use:   "multicast",
		Short: "Measure atomic multicast to some of several groups",
		Long: `Measure atomic multicast to some of several groups, connected by a tree. Each of
--clients clients keeps --outstanding messages of --size bytes under way. Each message goes to
--destinations of the --groups groups, drawn anew for each message. All replicas and clients live in
this process, over the fabric of your choice.

` + multicastStories() + `
A message enters at the lowest common ancestor of its destinations and walks down the tree. If
--destinations equals --groups, it always enters at the root. A file for --tree has a line for each
group: its number and its parent's. The root names itself as its parent.

With --failover crash, the leaders of one group after the other fail: the leader's host ends. With
--failover change, every group has to follow another leader. The others are notified at once, so a
failure detector's delay comes on top. Leaders are taken away up to 10 times within --for; with
crash, only as often as each group keeps a majority.

The keys of --json, besides the parameters:
  requests_per_second    messages delivered in all their destinations in one second
  deliveries_per_second  the same, counted once for each destination
  gbit_per_second        their payloads in 10^9 bits, each counted once
  latency_p50_us         from a message's A-multicast until some replica of each destination has
  latency_p99_us         delivered it, in microseconds: the median and the 99th percentile
  cpu_seconds            user and system time of this process during the measurement
  seconds                length of the measurement, after a warm-up
  compared_deliveries    deliveries of all live replicas, compared within their groups at the end; a
                         difference is an error, as is a message too many or too few
  failovers              with --failover only:
    count                    how often leaders were taken away
    interval_seconds         how long deliveries were watched after each failover, and for as long
                             before it
    without_delivery_p50_us  the longest time in such an interval without a delivery in a group
                             whose leader was taken away: the median of all
    without_delivery_max_us  the longest of all
    undisturbed_p50_us       the same in the intervals before
    undisturbed_max_us`,
		Example: `  ledgerd bench multicast --groups 4 --destinations 2 --for 3s
  ledgerd bench multicast --tree chain --groups 3 --destinations 3 --clients 4 \
                          --outstanding 64 --for 10s --json
  ledgerd bench multicast --groups 2 --destinations 2 --failover change --for 2s`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			if p.Shape, err = readTree(p.Tree, p.Groups); err != nil {
				return asUsage(fmt.Errorf("%w: --tree: %w", bench.ErrParameters, err))
			}
			if err := p.Validate(); err != nil {
				return asUsage(err)
			}
			ctx, stop := signal.NotifyContext(command.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			logger := slog.New(slog.NewTextHandler(command.ErrOrStderr(),
				&slog.HandlerOptions{Level: slog.LevelError}))
			hosts, err := openHosts(p.Fabric, p.Hosts(),
				fabric.Options{Device: device, GID: gid, Logger: logger})
			if err != nil {
				return fmt.Errorf("%s: %w", p.Fabric, err)
			}
			defer func() { err = errors.Join(err, closeHosts(hosts)) }()
			result, err := bench.RunMulticast(ctx, p, hosts, logger)
			if err != nil {
				return err
			}
			if asJSON {
				return writeBenchJSON(command.OutOrStdout(), result)
			}
			return writeMulticast(command.OutOrStdout(), result)
		},
	}
	flags := command.Flags()
	flags.StringVar(&p.Engine, "engine", bench.MulticastEngines()[0],
		"engine: "+strings.Join(bench.MulticastEngines(), " or "))
	flags.StringVar(&p.Tree, "tree", "breadth",
		"the tree of the groups: breadth, binary, chain or a file")
	flags.IntVar(&p.Groups, "groups", 4, "number of groups")
	flags.IntVar(&p.Replicas, "replicas", 3, "replicas of each group")
	flags.IntVar(&p.Destinations, "destinations", 2, "groups that each message goes to")
	flags.IntVar(&p.Size, "size", 64, "bytes of a message")
	flags.IntVar(&p.Clients, "clients", 1, "number of clients")
	flags.IntVar(&p.Outstanding, "outstanding", 1, "messages that each client has under way")
	flags.StringVar(&p.Failover, "failover", "",
		`take leaders away meanwhile, by "crash" or "change"; engines with leaders only`)
	flags.DurationVar(&p.For, "for", 5*time.Second,
		"how long to measure, after a warm-up of a quarter of it, at most 1s")
	addFabricFlag(command, &p.Fabric, fabric.Memory)
	flags.Lookup("fabric").Usage = "what the replicas talk over: memory, p2p, p2p-trusted, " +
		"shm or verbs"
	flags.StringVar(&device, "device", "",
		"RDMA device, for verbs (default: the first that is active)")
	flags.StringVar(&gid, "gid", "", "the RDMA device's address or its index, for verbs")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	var values []string
	for _, name := range bench.MulticastEngines() {
		values = append(values, cobra.CompletionWithDesc(name, bench.MulticastStory(name)))
	}
	completeFlag(command, "engine",
		cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	return command
}

// multicastStories lists the engines, a story each.
func multicastStories() string {
	var text strings.Builder
	for _, name := range bench.MulticastEngines() {
		line := fmt.Sprintf("  %-16s", name)
		for _, word := range strings.Fields(bench.MulticastStory(name)) {
			if len(line)+1+len(word) > storyColumns {
				text.WriteString(line + "\n")
				line = strings.Repeat(" ", 18)
			}
			line += " " + word
		}
		text.WriteString(line + "\n")
	}
	return text.String()
}

// storyColumns is the width of help texts.
const storyColumns = 100

// writeMulticast writes a result as text.
func writeMulticast(out io.Writer, r bench.MulticastResult) error {
	_, err := fmt.Fprintf(out, `%s, %s tree of %d groups of %d, %d clients with %d messages of %d bytes to %d groups, %s, %.1f s
  delivered    %14.0f messages/s  %8.3f Gbit/s
  latency      %14.0f us median   %8.0f us 99th percentile
  processors   %14.2f s
  compared     %14d deliveries, the same within each group
`, r.Engine, r.Tree, r.Groups, r.Replicas, r.Clients, r.Outstanding, r.Size, r.Destinations,
		r.Fabric, r.Seconds, r.RequestsPerSecond, r.GbitPerSecond, r.LatencyP50, r.LatencyP99,
		r.CPUSeconds, r.ComparedDeliveries)
	if err != nil || r.Failovers == nil {
		return err
	}
	f := r.Failovers
	_, err = fmt.Fprintf(out,
		`  failover     %14.0f us median   %8.0f us at most without a delivery, leaders taken away %d times (%s)
  undisturbed  %14.0f us median   %8.0f us at most
`, f.WithoutP50, f.WithoutMax, f.Count, r.Failover, f.UndisturbedP50, f.UndisturbedMax)
	return err
}
