package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/journal"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// journalLineInterval is the time between two lines of progress if the output is no terminal.
const journalLineInterval = 5 * time.Second

// journalFlags are the flags of ledgerd export --journal.
type journalFlags struct {
	journal bool
	format  string
	out     string
	proofs  bool
}

func (f *journalFlags) bind(command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVar(&f.journal, "journal", false, "write everything, as a journal")
	flags.StringVar(&f.format, "format", "jsonl", "of a journal: "+
		strings.Join(journal.FormatNames(), ", "))
	flags.StringVar(&f.out, "out", "", "file for the journal; an interrupted export goes on there")
	flags.BoolVar(&f.proofs, "proofs", false, "write the proof of each entry into a jsonl journal")
	completeFlag(command, "format", cobra.FixedCompletions(journal.FormatNames(),
		cobra.ShellCompDirectiveNoFileComp))
}

// check refuses flags of journals without --journal, and others with it.
func (f *journalFlags) check(command *cobra.Command) error {
	if !f.journal {
		for _, name := range []string{"format", "out", "proofs"} {
			if command.Flags().Changed(name) {
				return usagef("--%s is for --journal", name)
			}
		}
		return nil
	}
	if command.Flags().Changed("cut") {
		return usagef("--cut is for --balances; a journal ends at a block with --at")
	}
	if command.Flags().Changed("node") {
		return usagef("a journal comes from a node's folder: stop the node, and name its folder " +
			"with --home")
	}
	if _, err := journal.FormatOf(f.format); err != nil {
		return usagef("--format %q: a journal is one of %s", f.format,
			strings.Join(journal.FormatNames(), ", "))
	}
	if f.proofs && f.format != "jsonl" {
		return usagef("--proofs is for --format jsonl")
	}
	return nil
}

// export writes the journal of a store up to a height, or up to its head.
func (f *journalFlags) export(command *cobra.Command, from *store.Store, at *uint64) error {
	options := journal.Options{To: from.Head().Height, Proofs: f.proofs}
	if at != nil {
		if ledger.Height(*at) > options.To {
			return fmt.Errorf("the chain is not so far: it has %d blocks", options.To)
		}
		options.To = ledger.Height(*at)
	}
	format, err := journal.FormatOf(f.format)
	if err != nil {
		return err
	}
	errs := command.ErrOrStderr()
	progress, end := journalProgress(errs)
	options.Progress = progress
	source := journal.FromStore(from)
	if f.out == "" {
		err = journal.Export(command.Context(), command.OutOrStdout(), source, format, options)
		end()
		return err
	}
	written, err := journal.ExportFile(command.Context(), f.out, source, format, options)
	end()
	switch {
	case errors.Is(err, journal.ErrOther):
		return &hintedError{err, "name another file with --out, or remove this one"}
	case err != nil && command.Context().Err() != nil:
		return &interruptedError{errors.New("interrupted: run the same command again to go on")}
	case err != nil:
		return err
	}
	went := ""
	if written.From > 1 {
		went = fmt.Sprintf("; it went on at block %d", written.From)
	}
	_, err = fmt.Fprintf(errs, "%s has the journal of shard %d up to block %d%s\n", f.out,
		from.Shard(), written.To, went)
	return err
}

// journalProgress returns functions that show the progress of an export, and end that: a bar on a
// terminal, a line now and then elsewhere.
func journalProgress(to io.Writer) (progress func(height, head ledger.Height), end func()) {
	if progress, end = verifyProgress(to); progress != nil {
		return progress, end
	}
	shown := time.Now()
	return func(height, head ledger.Height) {
		if time.Since(shown) < journalLineInterval {
			return
		}
		shown = time.Now()
		// Go on even if it cannot be shown.
		_, _ = fmt.Fprintf(to, "%3d%%  block %d of %d\n", 100*height/head, height, head)
	}, func() {}
}
