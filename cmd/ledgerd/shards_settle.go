package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	nodereport "github.com/ledgerd/ledgerd/node/report"
)

// settleReport is what a settlement with a shard would decide, as --json prints it.
type settleReport struct {
	Shard       uint32 `json:"shard"`
	Mode        string `json:"mode"`
	LastHeardMS uint64 `json:"last_heard_ms"`
	// Accounts is how many accounts the shard had when it was heard last.
	Accounts uint64 `json:"accounts_total"`
	// Waiting is how many transactions wait for the shard's verdict, in each other shard.
	Waiting []settleWaiting `json:"waiting"`
}

// settleWaiting is how many transactions of a shard wait for the lost one.
type settleWaiting struct {
	Shard uint32 `json:"shard"`
	Count uint64 `json:"count"`
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

// newShardsSettleCommand returns the `ledgerd shards settle` command.
func newShardsSettleCommand() *cobra.Command {
	var options charterOptions
	var yes bool
	command := &cobra.Command{
		Use:   "settle SHARD --operator FILE --yes",
		Short: "Settle with a shard that is lost for good",
		Long: `Settle with a shard that is lost for good: all other shards go on without it.

What waits for the shard's verdict is decided by the others. If one of them had the
shard's agreement to a transaction, it takes effect in all of them, and else it is
released. From then on, transactions that concern the shard or its organisations are
refused, and nothing that its nodes say is believed. Its accounts are gone: the
balances of the other shards add up to what they gave to it, or got from it.

This cannot be taken back. If the disks of one node of the shard are left, mend that
node instead (docs/disks.md). The shard must be silent, and no shard that is not
lost may lie below it; the root cannot be settled with.

Without --yes the command says what waits for the shard, and does nothing.

Fields with --json: shard, mode, last_heard_ms, accounts_total, waiting (shard, count).
With --yes: transaction (the change), shard, state, height, reason; with --out:
transaction, file, signed_by, missing_signatures.

The operators sign this as they sign a change of themselves, with --operator or one
after another in a file (--out): see ledgerd cluster operators set.`,
		Example: `  # What waits for shard 3
  ledgerd shards settle 3

  # Two operators settle with it
  ledgerd shards settle 3 --operator a.key --operator b.key --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			shard, err := strconv.ParseUint(arguments[0], 10, 32)
			if err != nil {
				return usagef("%q: a shard is a number, from 0 on: see `ledgerd shards`",
					arguments[0])
			}
			return options.settle(command, uint32(shard), yes)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bind(command)
	command.Flags().BoolVar(&yes, "yes", false, "do it: the shard is lost for good")
	return command
}

// settle settles with a shard, or says what waits for it.
func (o *charterOptions) settle(command *cobra.Command, shard uint32, yes bool) error {
	session, ctx, done, err := o.begin(command, yes)
	if err != nil {
		return err
	}
	defer done()
	tree, err := session.nodes.Tree(ctx)
	if err != nil {
		return err
	}
	report, err := reportSettle(tree, shard)
	if err != nil {
		return err
	}
	if !yes {
		if o.json {
			return writeJSON(command.OutOrStdout(), report)
		}
		return report.write(command.OutOrStdout())
	}
	change := ledger.BookChange{Loss: &ledger.ShardLoss{Shard: ledger.ShardID(shard)}}
	if o.out != "" {
		return session.write(ctx, command, change)
	}
	status, err := session.submit(ctx, change)
	if err != nil && len(status.GetWaitsFor()) == 0 {
		return err
	}
	submitted := reportStatus(status)
	if !o.json {
		return errors.Join(writeStatus(command.OutOrStdout(), false, submitted), err)
	}
	settled := settledReport{Transaction: submitted.ID, Shard: shard, State: submitted.State,
		Height: submitted.Height, Reason: submitted.Reason}
	return errors.Join(writeJSON(command.OutOrStdout(), settled), submitted.failure(), err)
}

// reportSettle says what waits for a shard, or why the operators cannot settle with it.
func reportSettle(tree *ledgerdv1.Tree, shard uint32) (*settleReport, error) {
	if int(shard) >= len(tree.GetShards()) {
		return nil, fmt.Errorf("there is no shard %d: see `ledgerd shards`", shard)
	}
	of := tree.GetShards()[shard] // they are by number
	report := &settleReport{Shard: shard, Mode: of.GetMode(), LastHeardMS: of.GetLastHeardMs(),
		Accounts: of.GetAccountsTotal(), Waiting: []settleWaiting{}}
	lost := nodereport.ShardLost.String()
	switch {
	case of.GetRoot():
		return nil, fmt.Errorf("shard %d is the root of the tree: the others cannot go on without "+
			"it", shard)
	case of.GetMode() == lost:
		return nil, fmt.Errorf("the operators have settled with shard %d already", shard)
	case of.GetMode() != nodereport.ShardSilent.String():
		return nil, fmt.Errorf("shard %d is %s: nodes of it answer; settle only with a shard that "+
			"is lost for good, and stop its nodes first", shard, of.GetMode())
	}
	for _, each := range tree.GetShards() {
		if each.GetParent() == shard && !each.GetRoot() && each.GetMode() != lost {
			return nil, fmt.Errorf("shard %d lies below shard %d, and cannot be reached without "+
				"it: if it is lost, too, settle with it first", each.GetShard(), shard)
		}
		for _, stream := range each.GetStreams() {
			if slices.Contains(stream.GetFormer(), shard) &&
				tree.GetShards()[stream.GetChild()].GetMode() != lost {
				return nil, fmt.Errorf("shard %d was below shard %d, and lacks entries that only "+
					"that one has: mend shard %d, or settle with shard %d first",
					stream.GetChild(), shard, shard, stream.GetChild())
			}
		}
		for _, wait := range each.GetWaitsFor() {
			if wait.GetShard() == shard {
				report.Waiting = append(report.Waiting, settleWaiting{each.GetShard(),
					wait.GetCount()})
			}
		}
	}
	return report, nil
}

func (r *settleReport) write(out io.Writer) error {
	heard := "never since the asked node started"
	if r.LastHeardMS > 0 {
		heard = time.UnixMilli(int64(r.LastHeardMS)).UTC().Format(time.RFC3339)
	}
	waiting := "nothing"
	if len(r.Waiting) > 0 {
		var parts []string
		for _, each := range r.Waiting {
			parts = append(parts, fmt.Sprintf("%d in shard %d", each.Count, each.Shard))
		}
		waiting = strings.Join(parts, ", ")
	}
	rows := table{}
	rows.add("shard", fmt.Sprintf("%d, %s", r.Shard, r.Mode))
	rows.add("last heard", heard)
	rows.add("accounts", fmt.Sprint(r.Accounts))
	rows.add("waits for it", waiting)
	if err := rows.write(out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nNothing was done. If the shard is lost for good, settle with it "+
		"with --yes and --operator.\n")
	return err
}
