package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// dryRunReport says what a transaction would do. It is what --dry-run --json prints.
type dryRunReport struct {
	DryRun       bool            `json:"dry_run"` // true
	ID           string          `json:"id"`
	Applies      bool            `json:"applies"`
	Ordered      bool            `json:"ordered,omitempty"`
	ReasonCode   string          `json:"reason_code,omitempty"`
	Reason       string          `json:"reason,omitempty"`
	Destinations []uint32        `json:"destinations,omitempty"`
	Verdicts     []dryRunVerdict `json:"verdicts"`
	Balances     []dryRunBalance `json:"balances"`
	Unanswered   []uint32        `json:"unanswered_shards,omitempty"`
}

type dryRunVerdict struct {
	Shard      uint32 `json:"shard"`
	Height     uint64 `json:"height"`
	Agrees     bool   `json:"agrees"`
	ReasonCode string `json:"reason_code,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

type dryRunBalance struct {
	Account string `json:"account"`
	Asset   string `json:"asset"`
	Before  string `json:"before"`
	After   string `json:"after"`
	// decimals are those of the asset, for the table.
	decimals int
}

func reportDryRun(outcome *ledgerdv1.DryRunOutcome) dryRunReport {
	report := dryRunReport{DryRun: true, ID: outcome.GetIdHex(), Applies: outcome.GetApplies(),
		Ordered: outcome.GetOrdered(), ReasonCode: outcome.GetReasonCode(),
		Reason: outcome.GetReason(), Destinations: outcome.GetDestinations(),
		Verdicts: []dryRunVerdict{}, Balances: []dryRunBalance{},
		Unanswered: outcome.GetUnansweredShards()}
	for _, v := range outcome.GetVerdicts() {
		report.Verdicts = append(report.Verdicts, dryRunVerdict{v.GetShard(), v.GetHeight(),
			v.GetAgrees(), v.GetReasonCode(), v.GetReason()})
	}
	for _, b := range outcome.GetBalances() {
		report.Balances = append(report.Balances, dryRunBalance{b.GetAccount(), b.GetAsset(),
			b.GetBefore(), b.GetAfter(), int(min(b.GetDecimals(), ledger.MaxDecimals))})
	}
	return report
}

// failure returns an error unless the transaction would take effect.
func (r *dryRunReport) failure() error {
	switch {
	case r.Applies:
		return nil
	case r.Ordered:
		return fmt.Errorf("the transaction is ordered already: see `ledgerd tx status %s`", r.ID)
	case r.ReasonCode != "":
		return fmt.Errorf("the transaction would fail (%s) and change nothing: %s%s", r.ReasonCode,
			r.Reason, remedy(r.ReasonCode))
	}
	return fmt.Errorf("no node of %s answers, so the transaction may fail there: try again",
		client.ShardNames(r.Unanswered))
}

func (r *dryRunReport) write(out io.Writer) error {
	rows := table{}
	rows.add("transaction", r.ID)
	outcome := "would fail"
	switch {
	case r.Applies:
		outcome = "would take effect"
	case r.Ordered:
		outcome = "ordered already"
	case r.ReasonCode == "":
		outcome = "not known"
	}
	rows.add("dry run", outcome+"; nothing was ordered")
	for _, v := range r.Verdicts {
		says := "agrees"
		if !v.Agrees {
			says = "refuses: " + v.Reason
		}
		if len(r.Destinations) > 1 {
			rows.add(fmt.Sprintf("shard %d", v.Shard),
				fmt.Sprintf("%s, after block %d", says, v.Height))
		} else {
			rows.add("tried", fmt.Sprintf("after block %d", v.Height))
		}
	}
	if len(r.Unanswered) > 0 {
		rows.add("silent", client.ShardNames(r.Unanswered))
	}
	if err := rows.write(out); err != nil || len(r.Balances) == 0 {
		return err
	}
	balances := table{header: []string{"ACCOUNT", "ASSET", "BEFORE", "AFTER"}}
	for _, b := range r.Balances {
		balances.add(b.Account, b.Asset, withDecimals(b.Before, b.decimals),
			withDecimals(b.After, b.decimals))
	}
	if _, err := io.WriteString(out, "\n"); err != nil {
		return err
	}
	return balances.write(out)
}

// bindDryRun adds the flag --dry-run to a command that submits one transaction.
func bindDryRun(command *cobra.Command, to *bool) {
	command.Flags().BoolVar(to, "dry-run", false, "sign the transaction, say what it would do, "+
		"and order nothing")
	command.Long = strings.TrimRight(command.Long, "\n") + `

With --dry-run nothing is ordered: the nodes of the shards that decide say whether the
transaction would take effect if it came next, and what would become of the balances.
The exit status is 0 if it would.`
}

// dryRun asks what a transaction would do, and prints it.
func (o *postOptions) dryRun(ctx context.Context, command *cobra.Command, nodes *client.Client,
	keys []client.Key, transaction ledger.Transaction) error {
	outcome, err := nodes.PostDry(ctx, keys, transaction)
	if err != nil {
		return withWriters(err)
	}
	return writeDryRuns(command.OutOrStdout(), o.json, []*ledgerdv1.DryRunOutcome{outcome})
}

// writeDryRuns prints what transactions would do: one, or those of a bundle. It fails if one would
// fail.
func writeDryRuns(out io.Writer, asJSON bool, outcomes []*ledgerdv1.DryRunOutcome) error {
	var failure, written error
	reports := make([]dryRunReport, len(outcomes))
	for i, outcome := range outcomes {
		reports[i] = reportDryRun(outcome)
		if failure == nil {
			failure = reports[i].failure()
		}
	}
	switch {
	case asJSON && len(reports) == 1:
		written = writeJSON(out, reports[0])
	case asJSON:
		written = writeJSON(out, map[string]any{"dry_run": true, "transactions": reports})
	default:
		for i := range reports {
			written = errors.Join(written, reports[i].write(out))
		}
	}
	return errors.Join(written, failure)
}
