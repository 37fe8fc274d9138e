package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
)

// newAccountListCommand returns the `ledgerd account list` command.
func newAccountListCommand() *cobra.Command {
	var remote remoteOptions
	var shard shardFlag
	var asJSON bool
	var limit int
	var where string
	var chart chartOptions
	command := &cobra.Command{
		Use:   "list [PREFIX]",
		Short: "List accounts and their balances",
		Long: `List accounts and their balances, by path; with a PREFIX only those whose path
begins with it. In a ledger of several shards, the accounts of all shards are
listed. If no node of a shard answers, that shard's accounts are missing, and so are
those of an organisation that is on its way to another shard: the command says so
and fails.`,
		Example: `  ledgerd account list
  ledgerd account list --shard 1
  ledgerd account list acme:customers: --limit 20
  ledgerd account list acme: --where iban=DE12
  ledgerd account list --under acme:customers --totals
  ledgerd account list --totals --depth 1 --at 2026-12-31
  ledgerd account list acme: --limit 0 --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			key, value, has := strings.Cut(where, "=")
			if where != "" && (!has || key == "") {
				return usagef("--where %q: write KEY=VALUE", where)
			}
			if err := chart.check(command, len(arguments)); err != nil {
				return err
			}
			if chart.totals {
				return chart.run(command, &remote, asJSON)
			}
			nodes, ctx, done, err := remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			var silent []uint32
			var moving []string
			accounts, more, err := take(nodes.AccountsWhere(ctx, shard.number,
				strings.Join(arguments, ""), key, value, func(shards []uint32, names []string) {
					silent, moving = shards, names
				}), limit)
			if err != nil {
				return err
			}
			var missing error
			if len(silent) > 0 {
				missing = fmt.Errorf("no node of %s answers: its accounts are missing",
					client.ShardNames(silent))
			}
			if len(moving) > 0 {
				missing = errors.Join(missing, fmt.Errorf("on the way to another shard, so that "+
					"the accounts are missing: %s", strings.Join(moving, ", ")))
			}
			reports := make([]accountReport, len(accounts))
			rows := table{header: []string{"ACCOUNT", "BALANCE", "ASSET", ""},
				right: []bool{false, true, false}}
			for i, account := range accounts {
				reports[i] = reportAccount(account)
				reports[i].row(&rows)
			}
			if asJSON {
				listed := map[string]any{"accounts": reports, "more": more}
				if len(silent) > 0 {
					listed["unanswered_shards"] = silent
				}
				if len(moving) > 0 {
					listed["moving_organisations"] = moving
				}
				return errors.Join(writeJSON(command.OutOrStdout(), listed), missing)
			}
			none := "no such accounts: open one with `ledgerd account open ORGANISATION:NAME`"
			if where != "" {
				none = "no accounts have this metadatum under a key that is indexed " +
					"(ledgerd account label --index)"
			}
			return errors.Join(writeList(command.OutOrStdout(), &rows, more, none), missing)
		},
		ValidArgsFunction: accountCompletion(&remote, 1),
	}
	remote.bind(command, false)
	shard.bind(command, &remote, "the accounts of this shard only")
	bindLimit(command, &limit, 100)
	command.Flags().StringVar(&where, "where", "", "accounts with this metadatum: KEY=VALUE")
	chart.bind(command)
	addJSONFlag(command, &asJSON)
	return command
}

// chartOptions are the flags of a chart of accounts.
type chartOptions struct {
	totals bool
	under  string
	depth  int
	cut    cutFlags
}

func (o *chartOptions) bind(command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVar(&o.totals, "totals", false, "show the sums over accounts at each level of paths")
	flags.StringVar(&o.under, "under", "", "with --totals: this account, and those below it")
	flags.IntVar(&o.depth, "depth", -1, "with --totals: show so many levels below; -1 means all")
	o.cut.bind(command)
}

// check checks that the flags go together. There are so many arguments.
func (o *chartOptions) check(command *cobra.Command, arguments int) error {
	set := command.Flags().Changed
	others := []string{"under", "depth", "at", "cut"} // flags that want --totals
	if o.totals {
		others = []string{"where", "shard", "limit"}
	}
	for _, name := range others {
		if set(name) && o.totals {
			return usagef("--%s does not go with --totals", name)
		} else if set(name) {
			return usagef("--%s goes with --totals only", name)
		}
	}
	if !o.totals {
		return nil
	}
	if arguments > 0 {
		return usagef("--totals takes no PREFIX: name a path with --under")
	}
	if len(o.under) > ledger.MaxAccountPath {
		return usagef("--under: at most %d characters", ledger.MaxAccountPath)
	}
	if o.depth < -1 {
		return usagef("--depth is %d: it has to be 0 or more, or -1 for all", o.depth)
	}
	return nil
}

// chartReport is a chart of accounts as --json prints it.
type chartReport struct {
	Cut   string            `json:"cut"` // in one word, as ledgerd export shows it
	Under string            `json:"under"`
	Lines []chartLineReport `json:"lines"`
}

// chartLineReport is an account, or what begins the paths of some. The path of the line of all
// accounts is empty.
type chartLineReport struct {
	Path     string          `json:"path"`
	Account  bool            `json:"account"` // an account has this path
	Accounts int             `json:"accounts"`
	Totals   []balanceReport `json:"totals"`
}

// run shows the chart.
func (o *chartOptions) run(command *cobra.Command, remote *remoteOptions, asJSON bool) error {
	nodes, ctx, done, err := remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	places, err := o.cut.find(ctx, command, nodes)
	if err != nil {
		return err
	}
	if err := tellLeftOut(ctx, nodes, command.ErrOrStderr()); err != nil {
		return err
	}
	lines, err := nodes.Chart(ctx, o.under, o.depth, places)
	if err != nil {
		return err
	}
	report := chartReport{Cut: cutText(places), Under: o.under, Lines: []chartLineReport{}}
	for i := range lines {
		report.Lines = append(report.Lines, reportChartLine(&lines[i]))
	}
	if asJSON {
		return writeJSON(command.OutOrStdout(), report)
	}
	return report.write(command.OutOrStdout(), lines)
}

func reportChartLine(line *client.ChartLine) chartLineReport {
	report := chartLineReport{Path: line.Path, Account: line.Account, Accounts: line.Accounts,
		Totals: []balanceReport{}}
	for i := range line.Totals {
		total := &line.Totals[i]
		amount := total.Amount.String()
		report.Totals = append(report.Totals, balanceReport{Asset: string(total.Asset),
			Amount: amount, Decimals: total.Decimals,
			Decimal: decimalForm(amount, total.Decimals)})
	}
	return report
}

// write prints the chart, with the levels indented.
func (r *chartReport) write(out io.Writer, lines []client.ChartLine) error {
	if len(r.Lines) == 0 {
		_, err := fmt.Fprintln(out, "no such accounts at the cut")
		return err
	}
	rows := table{header: []string{"ACCOUNT", "TOTAL", "ASSET", "ACCOUNTS"},
		right: []bool{false, true, false, true}}
	for i := range r.Lines {
		line := &r.Lines[i]
		name := strings.Repeat("  ", lines[i].Depth-lines[0].Depth) + line.Path
		if line.Path == "" {
			name = "all"
		}
		count := fmt.Sprint(line.Accounts)
		if len(line.Totals) == 0 {
			rows.add(name, "0", string(ledger.DefaultAsset), count)
		}
		for j := range line.Totals {
			rows.add(name, line.Totals[j].shown(), line.Totals[j].Asset, count)
			name, count = "", ""
		}
	}
	if _, err := fmt.Fprintln(out, "at the cut", r.Cut); err != nil {
		return err
	}
	return rows.write(out)
}
