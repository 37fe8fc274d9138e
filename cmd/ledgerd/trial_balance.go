package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// trialReport is a trial balance as --json prints it.
type trialReport struct {
	Balanced bool               `json:"balanced"`
	Cut      string             `json:"cut"` // in one word, as ledgerd export shows it
	Assets   []trialAssetReport `json:"assets"`
	Accounts []trialLineReport  `json:"accounts,omitempty"`
}

// trialAssetReport is an asset of a trial balance.
type trialAssetReport struct {
	Asset    string `json:"asset"`
	Accounts int    `json:"accounts"`
	Debit    string `json:"debit"`
	Credit   string `json:"credit"`
	trialDecimals
}

// trialDecimals are the decimals of an asset, and the sides written with them. They are absent if
// it has none.
type trialDecimals struct {
	Decimals      int    `json:"decimals,omitempty"`
	DebitDecimal  string `json:"debit_decimal,omitempty"`
	CreditDecimal string `json:"credit_decimal,omitempty"`
}

func trialDecimalsOf(debit, credit string, count int) trialDecimals {
	return trialDecimals{count, decimalForm(debit, count), decimalForm(credit, count)}
}

// show writes an amount for people.
func (d *trialDecimals) show(amount string) string { return withDecimals(amount, d.Decimals) }

// trialLineReport is what an account has of an asset. One of the sides is empty.
type trialLineReport struct {
	Account string `json:"account"`
	Asset   string `json:"asset"`
	Debit   string `json:"debit,omitempty"`
	Credit  string `json:"credit,omitempty"`
	trialDecimals
}

// newTrialBalanceCommand returns the `ledgerd trial-balance` command.
func newTrialBalanceCommand() *cobra.Command {
	var remote remoteOptions
	var cut cutFlags
	var accounts, asJSON bool
	format := "table"
	command := &cobra.Command{
		Use:   "trial-balance",
		Short: "Show that the accounts of the whole book add up, for each asset",
		Long: `Show that the accounts of the whole book add up, for each asset: the balances
above zero (debit) and those below zero (credit), over all shards, at one cut. An
issuer's account is below zero by what it issued, and all others are above.

The cut is what is durable now, or that of --at or --cut (see ledgerd cut). Every
transaction before it counts with its outcome in all of its shards, so nothing is
on its way, and both sums are equal. If they are not, the exit status is 1. That
is so in a book that lost a shard, since what it had is gone.

Amounts have the decimals of their assets (ledgerd asset). With --json they are exact
integers of the smallest unit; debit_decimal and credit_decimal have the decimals.

The command believes the nodes; ledgerd verify --book executes all chains again.`,
		Example: `  ledgerd trial-balance
  ledgerd trial-balance --at 2026-12-31 --accounts --format csv
  ledgerd trial-balance --cut cut.json --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if asJSON {
				format = "json"
			}
			if format != "table" && format != "csv" && format != "json" {
				return usagef("--format %q: it is table, csv or json", format)
			}
			nodes, ctx, done, err := remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			places, err := cut.find(ctx, command, nodes)
			if err != nil {
				return err
			}
			if err := tellLeftOut(ctx, nodes, command.ErrOrStderr()); err != nil {
				return err
			}
			report := &trialReport{Cut: cutText(places), Assets: []trialAssetReport{}}
			var visit func(account *ledgerdv1.Account) error
			if accounts {
				visit = report.add
			}
			lines, err := nodes.TrialBalance(ctx, places, visit)
			if err != nil {
				return err
			}
			unequal := report.sum(lines)
			return errors.Join(report.write(command.OutOrStdout(), format), unequal)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	remote.bind(command, false)
	cut.bind(command)
	command.Flags().BoolVar(&accounts, "accounts", false, "list the accounts, too")
	command.Flags().StringVar(&format, "format", format, "what to write: table, csv or json")
	addJSONFlag(command, &asJSON)
	return command
}

// add adds an account.
func (r *trialReport) add(account *ledgerdv1.Account) error {
	for _, balance := range account.GetBalances() {
		line := trialLineReport{Account: account.GetAccount(), Asset: balance.GetAsset()}
		line.Debit, line.Credit = sides(balance.GetAmount())
		line.trialDecimals = trialDecimalsOf(line.Debit, line.Credit, int(balance.GetDecimals()))
		r.Accounts = append(r.Accounts, line)
	}
	return nil
}

// sum adds the assets, and returns an error if one does not add up.
func (r *trialReport) sum(lines []client.TrialLine) error {
	var unequal []string
	for i := range lines {
		line := &lines[i]
		debit, credit := line.Debit.String(), line.Credit.String()
		r.Assets = append(r.Assets, trialAssetReport{string(line.Asset), line.Accounts, debit,
			credit, trialDecimalsOf(debit, credit, line.Decimals)})
		if !line.Balanced() {
			unequal = append(unequal, string(line.Asset))
		}
	}
	if r.Balanced = len(unequal) == 0; r.Balanced {
		return nil
	}
	return fmt.Errorf("the accounts do not add up in %s: a shard is lost, or a node does not say "+
		"the truth; `ledgerd verify --book` finds out", strings.Join(unequal, ", "))
}

// write writes the report in a format.
func (r *trialReport) write(out io.Writer, format string) error {
	switch format {
	case "json":
		return writeJSON(out, r)
	case "csv":
		to := csv.NewWriter(out)
		err := to.Write([]string{"kind", "account", "asset", "debit", "credit"})
		for _, line := range r.Accounts {
			err = errors.Join(err, to.Write([]string{"account", line.Account, line.Asset,
				line.show(line.Debit), line.show(line.Credit)}))
		}
		for _, asset := range r.Assets {
			err = errors.Join(err, to.Write([]string{"total", "", asset.Asset,
				asset.show(asset.Debit), asset.show(asset.Credit)}))
		}
		to.Flush()
		return errors.Join(err, to.Error())
	}
	rows := table{header: []string{"ACCOUNT", "ASSET", "DEBIT", "CREDIT"},
		right: []bool{false, false, true, true}}
	for _, line := range r.Accounts {
		rows.add(line.Account, line.Asset, line.show(line.Debit), line.show(line.Credit))
	}
	for _, asset := range r.Assets {
		rows.add("total of "+plural(asset.Accounts, "account"), asset.Asset,
			asset.show(asset.Debit), asset.show(asset.Credit))
	}
	if len(r.Assets) == 0 {
		_, err := fmt.Fprintln(out, "no account has anything yet")
		return err
	}
	if _, err := fmt.Fprintln(out, "at the cut", r.Cut); err != nil {
		return err
	}
	return rows.write(out)
}
