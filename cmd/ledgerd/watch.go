package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
)

// watchOptions are the flags of a command that shows a condition, once or repeatedly.
type watchOptions struct {
	remote remoteOptions
	watch  bool
	every  time.Duration
	json   bool
}

// report is what such a command prints: as text with write, or as JSON by its fields.
type report interface {
	write(out io.Writer) error
}

func (o *watchOptions) bind(command *cobra.Command) {
	o.remote.bind(command, false)
	command.Flags().BoolVar(&o.watch, "watch", false,
		"show it again and again, until you stop it; with --json a line each time")
	command.Flags().DurationVar(&o.every, "every", time.Second, "with --watch, how often")
	addJSONFlag(command, &o.json)
}

// run prints the report that ask returns, once or repeatedly.
func (o *watchOptions) run(command *cobra.Command,
	ask func(context.Context, *client.Client) (report, error)) error {
	if o.every < 100*time.Millisecond {
		return usagef("--every is %s: it has to be at least 100ms", o.every)
	}
	if o.watch && !command.Flags().Changed("timeout") {
		o.remote.timeout = 0
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	out := command.OutOrStdout()
	if !o.watch {
		shown, err := ask(ctx, nodes)
		if err != nil {
			return err
		}
		write := shown.write
		if o.json {
			write = func(out io.Writer) error { return writeJSON(out, shown) }
		}
		if err := write(out); err != nil {
			return err
		}
		if judged, can := shown.(interface{ failure() error }); can {
			return judged.failure()
		}
		return nil
	}
	ticker := time.NewTicker(o.every)
	defer ticker.Stop()
	for {
		shown, err := ask(ctx, nodes)
		if ctx.Err() != nil {
			return nil
		}
		if err := o.showAgain(out, shown, err); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// showAgain prints a report, or the reason why there is none. A node that does not answer for a
// while does not end the watch.
func (o *watchOptions) showAgain(out io.Writer, shown report, failed error) error {
	if o.json {
		if failed != nil {
			return writeJSONLine(out, map[string]string{"error": sentence(failed)})
		}
		return writeJSONLine(out, shown)
	}
	before := "\n"
	if isTerminal(out) {
		before = "\x1b[H\x1b[2J"
	}
	if _, err := fmt.Fprint(out, before); err != nil {
		return err
	}
	if failed != nil {
		_, err := fmt.Fprintln(out, sentence(failed))
		return err
	}
	return shown.write(out)
}
