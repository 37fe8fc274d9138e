package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/journal"
	"github.com/ledgerd/ledgerd/ledger/journal/iso20022"
	"github.com/ledgerd/ledgerd/ledger/journal/parquet"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// journalLineInterval is the time between two lines of progress if the output is no terminal.
const journalLineInterval = 5 * time.Second

// The formats that are not written line by line.
const (
	formatParquet  = "parquet"
	formatISO20022 = "iso20022"
)

// journalFormats returns the names of all formats.
func journalFormats() []string {
	return append(journal.FormatNames(), formatParquet, formatISO20022)
}

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
		strings.Join(journalFormats(), ", "))
	flags.StringVar(&f.out, "out", "", "file for the journal, or folder for parquet; an "+
		"interrupted export goes on there")
	flags.BoolVar(&f.proofs, "proofs", false, "write the proof of each entry into a jsonl journal")
	completeFlag(command, "format", cobra.FixedCompletions(journalFormats(),
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
	if !slices.Contains(journalFormats(), f.format) {
		return usagef("--format %q: a journal is one of %s", f.format,
			strings.Join(journalFormats(), ", "))
	}
	if f.format == formatParquet && f.out == "" {
		return usagef("name the folder for the Parquet files with --out")
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
	errs := command.ErrOrStderr()
	progress, end := journalProgress(errs)
	options.Progress = progress
	written, err := f.write(command, journal.FromStore(from), options)
	end()
	switch {
	case errors.Is(err, journal.ErrOther):
		return &hintedError{err, "name another one with --out, or remove this one"}
	case errors.Is(err, journal.ErrRegistered):
		return &hintedError{err, "write a new file, with all amounts in decimals: name another " +
			"one with --out, or remove this one"}
	case errors.Is(err, journal.ErrMoves):
		return &hintedError{err, "use jsonl, csv or parquet"}
	case err != nil && command.Context().Err() != nil:
		return &interruptedError{errors.New("interrupted: run the same command again to go on")}
	case err != nil || f.out == "":
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

// write writes a journal in its format.
func (f *journalFlags) write(command *cobra.Command, from journal.Source,
	options journal.Options) (journal.Written, error) {
	ctx, out := command.Context(), command.OutOrStdout()
	written := journal.Written{From: 1, To: options.To}
	switch {
	case f.format == formatParquet:
		return parquet.ExportFolder(ctx, f.out, from, options)
	case f.format == formatISO20022 && f.out != "":
		return written, iso20022.ExportFile(ctx, f.out, from, options)
	case f.format == formatISO20022:
		return written, iso20022.Export(ctx, out, from, options)
	}
	format, err := journal.FormatOf(f.format)
	if err != nil {
		return written, err
	}
	if f.out == "" {
		return written, journal.Export(ctx, out, from, format, options)
	}
	return journal.ExportFile(ctx, f.out, from, format, options)
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
