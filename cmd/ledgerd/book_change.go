package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
)

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

// checkBookChange returns the present charter if the operators with these keys may sign a change of
// the shards: all that have to, or some of them if it is written to a file.
func (o *charterOptions) checkBookChange(ctx context.Context, nodes *client.Client,
	keys []client.Key) (*ledger.Charter, error) {
	charter, chain, err := presentCharter(ctx, nodes)
	if err != nil {
		return nil, err
	}
	if err := checkTakesBookChanges(&charter); err != nil {
		return nil, err
	}
	checkKeys := checkOperators
	if o.out != "" {
		checkKeys = checkAreOperators
	}
	return &charter, checkKeys(&charter, chain, keys, o.signing.files)
}

// settledReport is a settlement with a shard as --json prints it. Like every change of the shards,
// it has the id of its transaction as "transaction".
type settledReport struct {
	Transaction string `json:"transaction"`
	Shard       uint32 `json:"shard"`
	State       string `json:"state"`
	Height      uint64 `json:"height,omitempty"`
	Reason      string `json:"reason,omitempty"`
}

// signedChange is a signed change of the shards, for further operators to sign, as --json prints
// it.
type signedChange struct {
	Transaction string   `json:"transaction"`
	File        string   `json:"file"`
	SignedBy    []string `json:"signed_by"`
	Missing     []string `json:"missing_signatures"`
}

// unsentChange is a change of the shards that is written to a file, for further operators to sign.
type unsentChange struct {
	change  ledger.BookChange
	charter *ledger.Charter
	// out is the file, and signers are the files with the keys that sign it now.
	out     string
	signers []string
	json    bool
}

// write signs the change, writes it, and says who has to sign it besides.
func (u *unsentChange) write(ctx context.Context, command *cobra.Command, nodes *client.Client,
	keys []client.Key) error {
	transaction := ledger.Transaction{Book: &u.change}
	if err := completeTransaction(ctx, nodes, &transaction); err != nil {
		return err
	}
	bundle, err := client.Sign(ctx, keys, transaction)
	if err != nil {
		return err
	}
	report := signedReport{ID: bundle.ID(0).String(), File: u.out, SignedBy: u.signers,
		Missing: []string{}}
	if missing := u.charter.Threshold - len(keys); missing > 0 {
		report.Missing = append(report.Missing, plural(missing, "operator"))
	}
	if !u.json {
		return report.write(command, false, bundle)
	}
	if err := writeBundle(u.out, bundle); err != nil {
		return err
	}
	return writeJSON(command.OutOrStdout(), signedChange{report.ID, report.File, report.SignedBy,
		report.Missing})
}
