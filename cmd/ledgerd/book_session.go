package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// bookSession is a command that changes the shards of a book, connected to a node. It checks that
// the ledger takes the change and that operators with these keys may sign it, gives the change its
// number, and submits it or writes it to a file.
type bookSession struct {
	nodes *client.Client
	// keys sign, and files are those that have them.
	keys  []client.Key
	files []string
	// level is what submit waits for.
	level ledgerdv1.Level
	// out is the file for a change that further operators have to sign, or "". json prints it for
	// programs.
	out  string
	json bool
}

// begin connects a command that signs a change, or only says what it would do.
func (o *charterOptions) begin(command *cobra.Command, signs bool) (s *bookSession,
	ctx context.Context, done func(), err error) {
	s = &bookSession{files: o.signing.files, out: o.out, json: o.json}
	if s.level, err = parseLevel(o.wait); err != nil {
		return nil, nil, nil, err
	}
	if signs {
		if s.keys, err = o.signing.load(); err != nil {
			return nil, nil, nil, err
		}
	}
	s.nodes, ctx, done, err = o.remote.connect(command.Context())
	return s, ctx, done, err
}

// checkTakesBookChanges returns an error if the operators cannot change the shards of a ledger yet.
func checkTakesBookChanges(charter *ledger.Charter) error {
	version := max(ledger.FirstVersion, charter.Version)
	if ledger.TakesBookChanges(version) {
		return nil
	}
	return fmt.Errorf("the ledger has version %d, and its shards can change from version %d on: "+
		"install this program on all nodes, and raise the version with ledgerd cluster upgrade",
		version, ledger.GrowthVersion)
}

// check returns the present charter, and the number of the next change, if operators with the keys
// may sign it: all that have to, or some of them if it is written to a file.
func (s *bookSession) check(ctx context.Context) (*ledger.Charter, uint64, error) {
	cluster, err := s.nodes.Cluster(ctx)
	if err != nil {
		return nil, 0, err
	}
	charter, err := api.CharterFromProto(cluster.GetCharter())
	if err != nil {
		return nil, 0, fmt.Errorf("the node's answer: %w", err)
	}
	if err := checkTakesBookChanges(&charter); err != nil {
		return nil, 0, err
	}
	checkKeys := checkOperators
	if s.out != "" {
		checkKeys = checkAreOperators
	}
	return &charter, cluster.GetBookChanges() + 1, checkKeys(&charter, cluster.GetChain(), s.keys,
		s.files)
}

// submit signs a change and submits it. It sets the number. A change that was refused has a reason
// in its status. If there is an error, the status may still say what the change waits for.
func (s *bookSession) submit(ctx context.Context, change ledger.BookChange) (
	status *ledgerdv1.TransactionStatus, err error) {
	if _, change.Number, err = s.check(ctx); err != nil {
		return nil, err
	}
	status, err = s.nodes.Post(ctx, s.keys, ledger.Transaction{Book: &change}, s.level)
	if err != nil {
		return status, withWriters(err)
	}
	return status, nil
}

// signedChange is a signed change of the shards, for further operators to sign, as --json prints
// it.
type signedChange struct {
	Transaction string   `json:"transaction"`
	File        string   `json:"file"`
	SignedBy    []string `json:"signed_by"`
	Missing     []string `json:"missing_signatures"`
}

// write signs a change, writes it to the file, and lists the missing signatures. It sets the
// number.
func (s *bookSession) write(ctx context.Context, command *cobra.Command,
	change ledger.BookChange) error {
	charter, number, err := s.check(ctx)
	if err != nil {
		return err
	}
	change.Number = number
	transaction := ledger.Transaction{Book: &change}
	if err := completeTransaction(ctx, s.nodes, &transaction); err != nil {
		return err
	}
	bundle, err := client.Sign(ctx, s.keys, transaction)
	if err != nil {
		return err
	}
	report := signedReport{ID: bundle.ID(0).String(), File: s.out, SignedBy: s.files,
		Missing: []string{}}
	if missing := charter.Threshold - len(s.keys); missing > 0 {
		report.Missing = append(report.Missing, plural(missing, "operator"))
	}
	if !s.json {
		return report.write(command, false, bundle)
	}
	if err := writeBundle(s.out, bundle); err != nil {
		return err
	}
	return writeJSON(command.OutOrStdout(), signedChange{report.ID, report.File, report.SignedBy,
		report.Missing})
}
