package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/journal"
	"github.com/ledgerd/ledgerd/node/home"
)

// verifyJournalReport is what ledgerd verify --journal --json prints.
type verifyJournalReport struct {
	OK              bool              `json:"ok"`
	Chain           ledger.Hash       `json:"chain"`
	Shard           ledger.ShardID    `json:"shard"`
	Lines           int               `json:"lines"`
	Height          ledger.Height     `json:"height"`
	Hash            ledger.Hash       `json:"hash"`
	Transactions    uint64            `json:"transactions"`
	Certificates    int               `json:"certificates"`
	CertifiedHeight ledger.Height     `json:"certified_height"`
	Problems        []journal.Problem `json:"problems"`
}

// verifyJournal checks a journal in JSON lines with nothing but the genesis.
func verifyJournal(command *cobra.Command, path, genesisPath string, asJSON bool) (err error) {
	if genesisPath == "" {
		return usagef("to check a journal, name the ledger's genesis with --genesis FILE: each " +
			"node has it in its home folder")
	}
	genesis, err := home.ReadGenesis(genesisPath)
	if err != nil {
		return err
	}
	in := command.InOrStdin()
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		in = file
	}
	begun, shown := time.Now(), time.Now()
	found, err := journal.Verify(command.Context(), in, genesis, func(height ledger.Height) {
		if time.Since(shown) >= journalLineInterval {
			shown = time.Now()
			// Go on even if it cannot be shown.
			_, _ = fmt.Fprintf(command.ErrOrStderr(), "block %d is right\n", height)
		}
	})
	if err != nil && !errors.Is(err, journal.ErrWrong) {
		return err
	}
	wrong := err
	out := bufio.NewWriter(command.OutOrStdout())
	if err := tellJournal(out, path, &found, asJSON, time.Since(begun)); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	if wrong == nil && !vouched(&found) {
		wrong = errUnvouched
	}
	if wrong != nil {
		return &reportedError{wrong}
	}
	return nil
}

// errUnvouched reports a journal that holds, and that no member vouches for.
var errUnvouched = errors.New("no block of the journal is certified")

// vouched reports whether members vouch for some block of a journal that has any.
func vouched(found *journal.Verified) bool { return found.Height == 0 || found.Certified > 0 }

// tellJournal prints what was found.
func tellJournal(out io.Writer, path string, found *journal.Verified, asJSON bool,
	took time.Duration) error {
	if asJSON {
		report := verifyJournalReport{OK: len(found.Problems) == 0 && vouched(found),
			Chain: found.Chain, Shard: found.Shard, Lines: found.Lines, Height: found.Height,
			Hash: found.Hash, Transactions: found.Transactions, Certificates: found.Certificates,
			CertifiedHeight: found.Certified, Problems: found.Problems}
		if report.Problems == nil {
			report.Problems = []journal.Problem{}
		}
		return writeJSONLine(out, report)
	}
	for _, problem := range found.Problems {
		if _, err := fmt.Fprintf(out, "%s:%d: %s\n", path, problem.Line,
			sanitize(problem.Reason, 400)); err != nil {
			return err
		}
	}
	if len(found.Problems) > 0 {
		_, err := fmt.Fprintf(out, "the journal does not hold: blocks up to %d are right, and "+
			"certified up to block %d\n", found.Height, found.Certified)
		return err
	}
	if !vouched(found) {
		_, err := fmt.Fprintf(out, "no block is certified, so no member vouches for the journal, "+
			"and it may be made up: export it from a node that has certificates\n")
		return err
	}
	certified := fmt.Sprintf("all certified, by %s", plural(found.Certificates, "certificate"))
	if found.Certified < found.Height {
		certified = fmt.Sprintf("certified up to block %d, by %s; nobody vouches for the blocks "+
			"after it", found.Certified, plural(found.Certificates, "certificate"))
	}
	_, err := fmt.Fprintf(out, "all is well: shard %d, %d blocks, %d transactions, head %s, %s; "+
		"checked %s in %.1f s\n", found.Shard, found.Height, found.Transactions, found.Hash,
		certified, plural(found.Lines, "line"), took.Seconds())
	return err
}
