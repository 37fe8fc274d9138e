package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/figure"
)

// figureOptions are the flags of ledgerd sim figure.
type figureOptions struct {
	quick bool
	json  bool
	out   string
}

// newSimFigureCommand returns the `ledgerd sim figure` command.
func newSimFigureCommand() *cobra.Command {
	var options figureOptions
	var list strings.Builder
	for _, number := range figure.Numbers() {
		fmt.Fprintf(&list, "  %-10s %s\n", number, figure.About(number))
	}
	command := &cobra.Command{
		Use:   "figure NUMBER",
		Short: "Make a figure of a paper again, with the production engines",
		Long: `Make a figure of a paper again, with the production engines.

AllConcur, AllConcur+ and DARE come from a dissertation (M. Poke, Algorithms for
High-Performance State-Machine Replication). This command runs the experiments
behind its figures in virtual time: the engines that nodes run, beside
AllGather, LCR, Paxos and MPI's unreliable exchange, over a model of the network
on which the figure was measured. Bandwidth is finite and shared, messages queue
at links and at the ports of switches, and TCP's window holds senders back.

` + list.String() + `
The models: LogP with the parameters of figure 5.10, for InfiniBand and for TCP
(figures 5.x); one datacentre, a fat-tree of Gigabit switches, and five
datacentres across Europe with fibres between them (figures 6.x). The latter
include no processor time, as in the dissertation. Figures 4.x run nothing: they
draw the dissertation's models of remote memory and of how often its parts fail.

The figures trains-... are the tables and the figure of the paper on TRAINS (M.
Simatic et al., TRAINS: A Throughput-Efficient Uniform Total Order Broadcast
Algorithm): what the paper published, its formulas, and what runs of the engine
and of LCR give, over a switch of 100 Mbit/s or in rounds of one hop.

The output is a table; with --json one JSON object for each point, on a line of
its own; with --out the files figure-NUMBER.txt, .json and .svg in a directory.
The notes below the table give the ratios beside the dissertation's, or what the
paper says. The same command gives the same figure on every machine. Whole
figures take up to ten minutes on two processors and 3 GB of memory; --quick
makes a smaller one in less than a minute.`,
		Example: `  # AllConcur+ beside five other algorithms, small groups
  ledgerd sim figure 6.6 --quick

  # Throughput while servers crash, as a plot
  ledgerd sim figure 6.7 --out figures

  # Which share of the bytes that TRAINS sends are messages, beside LCR
  ledgerd sim figure trains-II --quick

  # All points, for a script
  ledgerd sim figure 5.10 --json`,
		Args: func(_ *cobra.Command, arguments []string) error {
			switch {
			case len(arguments) == 0:
				return fmt.Errorf("say which figure: %s", strings.Join(figure.Numbers(), ", "))
			case len(arguments) > 1:
				return fmt.Errorf("one figure at a time, not %d", len(arguments))
			case figure.About(arguments[0]) == "":
				return fmt.Errorf("there is no figure %q: use %s", arguments[0],
					strings.Join(figure.Numbers(), ", "))
			}
			return nil
		},
		ValidArgs: figure.Numbers(),
		RunE: func(command *cobra.Command, arguments []string) error {
			command.SilenceUsage = true
			return options.run(command.Context(), arguments[0], command.OutOrStdout(),
				command.ErrOrStderr())
		},
	}
	flags := command.Flags()
	flags.BoolVar(&options.quick, "quick", false, "fewer and smaller groups, in less than a minute")
	flags.StringVar(&options.out, "out", "",
		"write the table, the points and the plot to files in this directory")
	addJSONFlag(command, &options.json)
	if err := command.MarkFlagDirname("out"); err != nil {
		panic("sim figure: no such flag: out")
	}
	return command
}

// run makes the figure and prints it.
func (o figureOptions) run(ctx context.Context, number string, out, progress io.Writer) error {
	report, finish := newFigureProgress(progress, number)
	made, err := figure.Make(ctx, number, figure.Options{Quick: o.quick, Progress: report})
	finish()
	switch {
	case errors.Is(err, context.Canceled):
		return &interruptedError{fmt.Errorf("interrupted: figure %s is not made", number)}
	case err != nil:
		return err
	}
	if o.out != "" {
		told := out
		if o.json {
			told = progress
		}
		if err := o.write(made, told); err != nil {
			return err
		}
	}
	switch {
	case o.json:
		return made.WriteJSON(out)
	case o.out == "":
		return made.WriteTable(out)
	}
	return nil
}

// write writes the figure's three files and reports their names.
func (o figureOptions) write(made *figure.Figure, told io.Writer) error {
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return fmt.Errorf("make the directory for the figure: %w", err)
	}
	for _, file := range []struct {
		extension string
		write     func(io.Writer) error
	}{{".txt", made.WriteTable}, {".json", made.WriteJSON}, {".svg", made.WriteSVG}} {
		var content bytes.Buffer
		if err := file.write(&content); err != nil {
			return err
		}
		name := filepath.Join(o.out, "figure-"+made.Number+file.extension)
		if err := os.WriteFile(name, content.Bytes(), 0o644); err != nil {
			return fmt.Errorf("write the figure: %w", err)
		}
		if _, err := fmt.Fprintf(told, "wrote %s\n", name); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
	}
	return nil
}

// newFigureProgress returns a function to call after each run, and a function to call at the end.
// They draw a bar if progress is a terminal, and print a line every half minute otherwise.
func newFigureProgress(progress io.Writer, number string) (report func(done, total float64),
	finish func()) {
	started := time.Now()
	if !isTerminal(progress) {
		const patience = 30 * time.Second
		told := started
		return func(done, total float64) {
			if now := time.Now(); now.Sub(told) >= patience {
				told = now
				// Go on even if the line cannot be written.
				_, _ = fmt.Fprintf(progress, "figure %s: %.0f %% after %v\n", number,
					100*done/total, now.Sub(started).Round(time.Second))
			}
		}, func() {}
	}
	const parts = 1000
	bar := progressbar.NewOptions(parts, progressbar.OptionSetWriter(progress),
		progressbar.OptionSetDescription("figure "+number),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))
	return func(done, total float64) {
		_ = bar.Set(int(parts * done / total))
	}, func() { _ = bar.Finish() }
}
