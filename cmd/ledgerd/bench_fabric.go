package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/bench"
	"github.com/ledgerd/ledgerd/node/fabric"
)

// newBenchFabricCommand returns the `ledgerd bench fabric` command.
func newBenchFabricCommand() *cobra.Command {
	var kind fabric.Kind
	var device, gid string
	var measured time.Duration
	var asJSON bool
	command := &cobra.Command{
		Use:   "fabric",
		Short: "Measure all fabrics beside this machine's TCP and memory, in one table",
		Long: `Measure all fabrics that work on this machine beside its TCP and its memory, in one
table: lanes, which carry rounds; regions (one-sided memory), written and read one by one and in
bulk; writes to one to eight hosts, awaited one by one and together; and how long a change of
permission takes.

Everything runs in this process. Each figure is the median of five. All columns take turns of some
milliseconds, so that other load on the machine affects all of them.

Beside a fabric's figure stands its ratio to the same figure of TCP: one connection over loopback,
with pings of 64 bytes, or with bulk of the same size from as many places. Beside a figure of memory
stands its ratio to copying between as many places. Less is better for times, more for the others.
For latency and bandwidth between two machines see ledgerd fabric measure.

The keys of --json: columns, rounds, seconds, and rows. Each row has name, about, unit (us, /s or
bytes/s) and figures by column. A figure has value and, if it is compared with another column,
beside, the name of that column, and ratio, this value divided by that column's.`,
		Example: `  ledgerd bench fabric
  ledgerd bench fabric --fabric p2p-trusted --for 5s
  ledgerd bench fabric --for 1m --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			kinds := usableFabrics()
			if kind != "" {
				if _, err := fabric.Parse(string(kind)); err != nil {
					return asUsage(err)
				}
				kinds = []fabric.Kind{kind}
			}
			if measured <= 0 {
				return usagef("--for is %v: it has to be above zero", measured)
			}
			ctx, stop := signal.NotifyContext(command.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			logger := slog.New(slog.NewTextHandler(command.ErrOrStderr(),
				&slog.HandlerOptions{Level: slog.LevelWarn}))
			var fabrics []bench.FabricHosts
			defer func() {
				for _, each := range fabrics {
					err = errors.Join(err, closeHosts(each.Hosts))
				}
			}()
			for _, kind := range kinds {
				hosts, err := openHosts(kind, bench.FabricTargetsMax+1,
					fabric.Options{Device: device, GID: gid, Logger: logger})
				if err != nil {
					return fmt.Errorf("%s: %w", kind, err)
				}
				fabrics = append(fabrics, bench.FabricHosts{Kind: kind, Hosts: hosts})
			}
			result, err := bench.CompareFabrics(ctx, fabrics, measured)
			if err != nil {
				return err
			}
			if asJSON {
				return writeBenchJSON(command.OutOrStdout(), result)
			}
			return writeComparison(command.OutOrStdout(), result)
		},
	}
	addFabricFlag(command, &kind, "")
	flags := command.Flags()
	flags.Lookup("fabric").Usage = "measure this one only: memory, p2p, p2p-trusted, shm " +
		"or verbs (default: all that work here)"
	flags.StringVar(&device, "device", "",
		"RDMA device, for verbs (default: the first that is active)")
	flags.StringVar(&gid, "gid", "", "the RDMA device's address or its index, for verbs")
	flags.DurationVar(&measured, "for", 20*time.Second, "how long to measure, all figures together")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// writeComparison writes a comparison as a table.
func writeComparison(out io.Writer, c bench.FabricComparison) error {
	rows := &table{header: append([]string{"", ""}, c.Columns...), right: []bool{false, false}}
	for range c.Columns {
		rows.right = append(rows.right, true)
	}
	for _, row := range c.Rows {
		scale, unit := 1.0, "us" // of the printed figures
		switch row.Unit {
		case bench.UnitBytes:
			scale, unit = 1e9, "GB/s"
		case bench.UnitPerSecond:
			scale, unit = 1e6, "M/s"
		}
		cells := []string{row.About, unit}
		for _, column := range c.Columns {
			cell := ""
			if figure, there := row.Figures[column]; there {
				cell = threeDigits(figure.Value / scale)
				if figure.Beside != "" {
					cell += fmt.Sprintf(" (%.2f)", figure.Ratio)
				}
			}
			cells = append(cells, cell)
		}
		rows.add(cells...)
	}
	if err := rows.write(out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "medians of %d, %.1f s; in brackets the ratio to %s, for memory "+
		"to %s\n", c.Rounds, c.Seconds, bench.BesideTCP, bench.BesideMemcpy)
	return err
}
