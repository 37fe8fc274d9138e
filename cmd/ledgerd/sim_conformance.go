package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ledgerd/ledgerd/sim/conformance"
)

// conformanceOptions are the flags of ledgerd sim conformance.
type conformanceOptions struct {
	engine string
	seeds  int
	json   bool
}

// newSimConformanceCommand returns the `ledgerd sim conformance` command.
func newSimConformanceCommand() *cobra.Command {
	var options conformanceOptions
	engines := conformance.Engines()
	command := &cobra.Command{
		Use:   "conformance",
		Short: "Judge all engines in the same way: properties by faults by engine",
		Long: `Judge all engines in the same way: properties by faults by engine.

The simulators of "ledgerd sim check" and "ledgerd sim multicast" run every engine
in each setting that it has, such as a detector, with each kind of fault alone and
with all together. Each column has --seeds seeds of each of three sizes of group.
The table says which properties broke; none should. Their help texts say what
properties and faults are.

For each property, --json also has a bug that was planted and broke it, with the
command that shows it, and for each failure the command that replays it. The exit
status is 1 if a property broke. The documentation shows the table of 20 seeds
(design/engines).`,
		Example: `  # All engines, in less than a minute
  ledgerd sim conformance

  # One engine for longer, for a script
  ledgerd sim conformance --engine trains --seeds 5000 --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			switch {
			case options.engine != "" && !slices.Contains(engines, options.engine):
				return fmt.Errorf("--engine %q is unknown: use one of %s", options.engine,
					strings.Join(engines, ", "))
			case options.seeds < 1 || options.seeds > conformance.SeedsMax:
				return fmt.Errorf("--seeds is %d: run 1 to %d for each column", options.seeds,
					conformance.SeedsMax)
			}
			command.SilenceUsage = true
			return options.run(command.Context(), command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.engine, "engine", "",
		"judge only this engine, one of "+strings.Join(engines, ", ")+" (default all)")
	flags.IntVar(&options.seeds, "seeds", 20, "seeds of each size of group in each column")
	addJSONFlag(command, &options.json)
	completeFlag(command, "engine",
		cobra.FixedCompletions(engines, cobra.ShellCompDirectiveNoFileComp))
	return command
}

// run makes the table and prints it.
func (o conformanceOptions) run(ctx context.Context, out, progress io.Writer) error {
	terminal := false
	if file, is := progress.(*os.File); is {
		terminal = term.IsTerminal(int(file.Fd()))
	}
	const clearLine = "\r\x1b[K"
	report := func(engine, faults string) {
		if terminal {
			fmt.Fprintf(progress, "%s%s: %s", clearLine, engine, faults)
		}
	}
	made, err := conformance.Make(ctx, conformance.Options{Engine: o.engine, Seeds: o.seeds,
		Progress: report})
	if terminal {
		fmt.Fprint(progress, clearLine)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return &interruptedError{errors.New("interrupted: the table is not made; fewer --seeds " +
			"take less time")}
	case err != nil:
		return err
	}
	if o.json {
		err = writeJSON(out, made)
	} else {
		err = printConformance(out, made)
	}
	if err != nil {
		return err
	}
	if failures := made.Failures(); len(failures) > 0 {
		return fmt.Errorf("properties break: %s", failures[0].Replay)
	}
	return nil
}

// printConformance prints the table for people: a line for each kind of fault.
func printConformance(out io.Writer, made *conformance.Table) error {
	for i, part := range made.Parts {
		if i > 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintf(out, "%s, with %s\n", part.Engine, part.Setting)
		lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(lines, "  faults\truns\twith a fault\tproperties held\tbroken")
		for at, column := range part.Columns {
			held, judged := 0, 0
			var broken []string
			for _, row := range part.Rows {
				switch row.Cells[at] {
				case conformance.Held:
					held++
				case conformance.Broken:
					broken = append(broken, string(row.Property))
				}
				if row.Cells[at] != conformance.NotJudged {
					judged++
				}
			}
			if len(broken) == 0 {
				broken = []string{"none"}
			}
			fmt.Fprintf(lines, "  %s\t%d\t%d\t%d of %d\t%s\n", column.Faults, column.Runs,
				column.Struck, held, judged, strings.Join(broken, ", "))
		}
		if err := lines.Flush(); err != nil {
			return fmt.Errorf("writing the result: %w", err)
		}
		for _, column := range part.Columns {
			for _, failure := range column.Failures {
				fmt.Fprintf(out, "%s is broken:\n  %s\n  %s\n", failure.Property,
					strings.Join(failure.Evidence, "\n  "), failure.Replay)
			}
		}
	}
	return nil
}
