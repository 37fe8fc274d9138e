package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// accountReport is an account as --json prints it.
type accountReport struct {
	Account      string          `json:"account"`
	Organisation string          `json:"organisation"`
	Issuer       bool            `json:"issuer"`
	Alias        string          `json:"alias,omitempty"`
	OpenedHeight uint64          `json:"opened_height"`
	Balances     []balanceReport `json:"balances"`
	Height       uint64          `json:"height"`
	Shard        uint32          `json:"shard,omitempty"` // the shard that holds the account
	// Revision and Terms are absent if the account never had terms.
	Revision uint64               `json:"revision,omitempty"`
	Terms    *ledger.AccountTerms `json:"terms,omitempty"`
	// TermsAtCut says at a cut whether the alias and the terms are those of then. If not, they are
	// those of now.
	TermsAtCut *bool `json:"terms_at_cut,omitempty"`
	// limited has the decimals of the assets that the terms limit, as far as they are known.
	limited map[ledger.AssetName]int
}

// balanceReport is a balance of one asset. Amounts are exact, hence text.
type balanceReport struct {
	Asset  string `json:"asset"`
	Amount string `json:"amount"`
	// SetAside and Incoming are held by transactions that wait for other shards. Amount no longer
	// includes what is set aside, and does not yet include what is incoming.
	SetAside string `json:"set_aside,omitempty"`
	Incoming string `json:"incoming,omitempty"`
	// Decimals are those of the asset, and Decimal is the amount written with them. They are absent
	// if the asset has none.
	Decimals int    `json:"decimals,omitempty"`
	Decimal  string `json:"amount_decimal,omitempty"`
}

// shown returns the amount as people read it.
func (r *balanceReport) shown() string { return withDecimals(r.Amount, r.Decimals) }

func reportBalances(balances []*ledgerdv1.Balance) []balanceReport {
	reports := []balanceReport{}
	for _, balance := range balances {
		count := int(balance.GetDecimals())
		reports = append(reports, balanceReport{balance.GetAsset(), balance.GetAmount(),
			balance.GetSetAside(), balance.GetIncoming(), count,
			decimalForm(balance.GetAmount(), count)})
	}
	return reports
}

func reportAccount(account *ledgerdv1.Account) accountReport {
	return accountReport{
		Account: account.GetAccount(), Organisation: account.GetOrganisation(),
		Issuer: account.GetIssuer(), Alias: account.GetAlias(),
		OpenedHeight: account.GetOpenedHeight(), Balances: reportBalances(account.GetBalances()),
		Height: account.GetHeight(), Shard: account.GetShard(),
		Revision: account.GetRevision(), Terms: termsReport(account.GetTerms()),
	}
}

// held describes the amounts of a balance that waiting transactions hold.
func (r *balanceReport) held() string {
	var parts []string
	if r.SetAside != "" {
		parts = append(parts, withDecimals(r.SetAside, r.Decimals)+" set aside")
	}
	if r.Incoming != "" {
		parts = append(parts, withDecimals(r.Incoming, r.Decimals)+" incoming")
	}
	return strings.Join(parts, ", ")
}

// newAccountCommand returns the `ledgerd account` command.
func newAccountCommand() *cobra.Command {
	return newGroupCommand(&cobra.Command{
		Use:   "account",
		Short: "Open accounts, and show what they hold",
		Long: `Open accounts, and show what they hold.

An account is written ORGANISATION:NAME, with more parts after it if you like:
acme:cash, acme:customers:4711. It holds a balance of each asset. A balance
cannot fall below zero, except in an issuer account: that is where money comes
from.`,
		Example: `  ledgerd account open acme:mint --issuer
  ledgerd account open acme:cash
  ledgerd account show acme:cash
  ledgerd account history acme:cash
  ledgerd account statement acme:cash --from 2026-11-01 --to 2026-11-30`,
	}, newAccountOpenCommand(), newAccountShowCommand(), newAccountListCommand(),
		newAccountHistoryCommand(), newAccountStatementCommand(), newAccountLimitCommand(),
		newAccountFreezeCommand(false), newAccountFreezeCommand(true), newAccountCloseCommand(),
		newAccountLabelCommand())
}

// newAccountOpenCommand returns the `ledgerd account open` command.
func newAccountOpenCommand() *cobra.Command {
	var options postOptions
	var issuer bool
	var alias string
	command := &cobra.Command{
		Use:   "open ORGANISATION:NAME...",
		Short: "Open accounts",
		Long: `Open accounts, all or none. Their organisations sign, with the keys in the
keyring.

The command first asks a node which of the accounts are open. It leaves out those
that are open already with the same --issuer and --alias. If none is left, it
submits nothing and succeeds; no block is written, and --wait does not apply. It
fails if an account is open with another --issuer or --alias.

With --json, already_open lists the accounts that it left out. If none is left,
state is "unchanged" and id is empty.`,
		Example: `  ledgerd account open acme:cash acme:vault
  ledgerd account open acme:mint --issuer`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if alias != "" && len(arguments) > 1 {
				return usagef("--alias names one account: open them one by one")
			}
			var transaction ledger.Transaction
			for _, text := range arguments {
				path, err := parseAccount(text)
				if err != nil {
					return err
				}
				transaction.Openings = append(transaction.Openings,
					ledger.Opening{Account: path, Issuer: issuer, Alias: alias})
			}
			return options.open(command, transaction)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bind(command)
	bindDryRun(command, &options.dry)
	command.Flags().BoolVar(&issuer, "issuer", false, "let the balances go below zero")
	command.Flags().StringVar(&alias, "alias", "", "another name, which exports show")
	return command
}

// openReport is what ledgerd account open --json prints.
type openReport struct {
	statusReport
	AlreadyOpen []openedReport `json:"already_open"`
}

// openedReport is an account that was open before the command ran.
type openedReport struct {
	Account      string `json:"account"`
	OpenedHeight uint64 `json:"opened_height"`
	Shard        uint32 `json:"shard,omitempty"` // the shard that holds the account
}

// stateUnchanged is the state in an openReport if there was nothing to submit.
const stateUnchanged = "unchanged"

// open submits the transaction, without the accounts that are open already, and prints the outcome.
func (o *postOptions) open(command *cobra.Command, transaction ledger.Transaction) error {
	level, err := parseLevel(o.wait)
	if err != nil {
		return err
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	report := openReport{}
	transaction.Openings, report.AlreadyOpen, err = splitOpenings(ctx, nodes, transaction.Openings)
	if err != nil {
		return err
	}
	if len(transaction.Openings) == 0 {
		report.State = stateUnchanged
		return report.write(command.OutOrStdout(), o.json)
	}
	keys, err := o.load(signersOf(&transaction))
	if err != nil {
		return err
	}
	if o.dry {
		return o.dryRun(ctx, command, nodes, keys, transaction)
	}
	status, err := nodes.Post(ctx, keys, transaction, level)
	if err != nil && len(status.GetWaitsFor()) == 0 {
		return withWriters(err)
	}
	report.statusReport = reportStatus(status)
	return errors.Join(report.write(command.OutOrStdout(), o.json), err)
}

// splitOpenings separates the openings that have to be submitted from the accounts that are open
// already. An account that is open in another way is an error. The rule is the one by which the
// ledger executes an opening.
func splitOpenings(ctx context.Context, nodes *client.Client,
	openings []ledger.Opening) (wanted []ledger.Opening, opened []openedReport, err error) {
	opened = []openedReport{}
	for _, opening := range openings {
		account, err := nodes.Account(ctx, opening.Account)
		if client.CodeOf(err) == connect.CodeNotFound {
			wanted = append(wanted, opening)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		found := openedReport{account.GetAccount(), account.GetOpenedHeight(), account.GetShard()}
		if account.GetTerms().GetClosed() {
			return nil, nil, &hintedError{
				fmt.Errorf("%s was closed, and no account of its name is opened again",
					account.GetAccount()), "open an account of another name"}
		}
		if advice := opensOtherwise(opening, account); advice != "" {
			return nil, nil, &hintedError{
				fmt.Errorf("%s, in another way", found.text()),
				advice + ", or open an account of another name",
			}
		}
		opened = append(opened, found)
	}
	return wanted, opened, nil
}

// opensOtherwise returns how to match an account that is open in another way than the opening
// requests. It returns "" if the account matches.
func opensOtherwise(opening ledger.Opening, account *ledgerdv1.Account) string {
	var advice []string
	switch {
	case account.GetIssuer() && !opening.Issuer:
		advice = append(advice, "it is an issuer: give --issuer")
	case !account.GetIssuer() && opening.Issuer:
		advice = append(advice, "it is no issuer: leave --issuer out")
	}
	switch {
	case account.GetAlias() == opening.Alias:
	case account.GetAlias() == "":
		advice = append(advice, "it has no alias: leave --alias out")
	default:
		advice = append(advice, fmt.Sprintf("its alias is %[1]q: give --alias %[1]q",
			account.GetAlias()))
	}
	return strings.Join(advice, "; ")
}

// text states since when the account is open.
func (r *openedReport) text() string {
	text := fmt.Sprintf("%s is open already, since block %d", r.Account, r.OpenedHeight)
	if r.Shard > 0 {
		text += fmt.Sprintf(" of shard %d", r.Shard)
	}
	return text
}

// write prints the report and returns the failure of the transaction.
func (r *openReport) write(out io.Writer, asJSON bool) error {
	if asJSON {
		return errors.Join(writeJSON(out, r), r.failure())
	}
	for _, account := range r.AlreadyOpen {
		if _, err := fmt.Fprintln(out, account.text()); err != nil {
			return err
		}
	}
	if r.State == stateUnchanged {
		return nil
	}
	return writeStatus(out, false, r.statusReport)
}

// newAccountShowCommand returns the `ledgerd account show` command.
func newAccountShowCommand() *cobra.Command {
	var remote remoteOptions
	var cut cutFlags
	var proof accountProofOptions
	var asJSON bool
	var alias string
	command := &cobra.Command{
		Use:   "show ORGANISATION:NAME | show ORGANISATION --alias TEXT",
		Short: "Show an account and its balances",
		Long: `Show an account and its balances, as they are after the last block that the node
has executed. Amounts have the decimals of their assets (ledgerd asset). With
--json, amounts are exact integers in the smallest unit, as text: they may have
more digits than a JSON number keeps. amount_decimal has the decimals.

In a ledger of several shards, the command asks a node of the shard that holds
the account. Beside a balance it shows the amounts held by transactions that wait
for other shards: an amount set aside cannot be spent, and an incoming amount has
not arrived yet.

With --alias it is the account of the organisation that has the alias
(ledgerd account label). Aliases that were given before version 10 of the chain, and
not since, are not found.

With --at or --cut the balances are those at a cut (see ledgerd cut): every
transaction before it counts with its outcome, so nothing is on its way. The alias
and the terms are those of then, too. A node whose store began later does not know
them: then they are those of now, and the command says so (terms_at_cut is false).

With --proof the node has to prove the balances as of its newest block, and the
command checks the proof from --genesis on: the account is in the tree over all
accounts that the block's state digest stands for, and a majority of the members
certified the block. --out keeps the proof; ledgerd verify --proof FILE checks it
offline. A running node proves its newest block only. For an earlier one, --proof
--at N --home DIR executes the chain in the folder of a stopped node again.`,
		Example: `  ledgerd account show acme:cash
  ledgerd account show acme --alias "front desk"
  ledgerd account show acme:cash --at 1000
  ledgerd account show acme:cash --proof --genesis genesis.json --out cash.proof
  ledgerd account show acme:cash --proof --at 1000 --home net/node-0
  ledgerd account show acme:cash --json | jq -r '.balances[] | "\(.amount) \(.asset)"'`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			var path ledger.AccountPath
			err := ledger.OrganisationName(arguments[0]).Validate()
			if alias == "" {
				path, err = parseAccount(arguments[0])
			}
			if err != nil {
				return asUsage(err)
			}
			if err := proof.check(command); err != nil {
				return err
			}
			if alias != "" && proof.proof {
				return usagef("--proof proves an account by its path: find that with --alias first")
			}
			if proof.proof {
				return proof.prove(command, &remote, &cut, path, asJSON)
			}
			nodes, ctx, done, err := remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			if alias != "" {
				found, err := nodes.AccountByAlias(ctx,
					ledger.OrganisationName(arguments[0]), alias)
				if err != nil {
					return err
				}
				path = ledger.AccountPath(found.GetAccount())
			}
			account, err := cut.account(ctx, command, nodes, path)
			if err != nil {
				return err
			}
			report := reportAccount(account)
			report.TermsAtCut = cut.atCut(command, account.GetTermsAtCut())
			if asJSON {
				return writeJSON(command.OutOrStdout(), report)
			}
			report.learnDecimals(ctx, newDecimals(nodes))
			return report.write(command.OutOrStdout())
		},
		ValidArgsFunction: accountCompletion(&remote, 1),
	}
	remote.bind(command, false)
	cut.bindTo(command, "balances and terms")
	proof.bind(command)
	command.Flags().StringVar(&alias, "alias", "", "the organisation's account with this alias")
	addJSONFlag(command, &asJSON)
	return command
}

// learnDecimals asks for the decimals of the assets that the account has limits of.
func (r *accountReport) learnDecimals(ctx context.Context, known *decimals) {
	if r.Terms == nil {
		return
	}
	r.limited = make(map[ledger.AssetName]int)
	for i := range r.Terms.Limits {
		name := r.Terms.Limits[i].Asset
		if count, err := known.of(ctx, name); err == nil {
			r.limited[name] = count
		}
	}
}

// amount writes an amount with the decimals of its asset, as far as they are known.
func (r *accountReport) amount(amount ledger.Amount, asset ledger.AssetName) string {
	for i := range r.Balances {
		if r.Balances[i].Asset == string(asset) {
			return amount.Decimal(r.Balances[i].Decimals)
		}
	}
	return amount.Decimal(r.limited[asset])
}

// write prints an account.
func (r *accountReport) write(out io.Writer) error {
	rows := table{}
	rows.add("account", r.Account)
	if r.Issuer {
		rows.add("issuer", "yes: its balances may go below zero")
	}
	if r.Alias != "" {
		rows.add("alias", sanitize(r.Alias, 0))
	}
	rows.add("opened", fmt.Sprintf("in block %d", r.OpenedHeight))
	asOf := fmt.Sprintf("block %d", r.Height)
	if isNow(r.TermsAtCut) {
		asOf += "; the node does not know alias and terms of then, so they are those of now"
	}
	rows.add("as of", asOf)
	if r.Shard > 0 {
		rows.add("shard", fmt.Sprint(r.Shard))
	}
	if r.Terms != nil {
		accountTermsRows(&rows, r.Terms, r.amount)
	}
	if err := rows.write(out); err != nil {
		return err
	}
	balances := table{right: []bool{true, false}}
	for _, balance := range r.Balances {
		balances.add("  "+balance.shown(), balance.Asset, balance.held())
	}
	if len(r.Balances) == 0 {
		balances.add("  none") // not 0 of an asset that it never had
	}
	if _, err := fmt.Fprintln(out, "balances"); err != nil {
		return err
	}
	return balances.write(out)
}

// row adds an account to a table, with one line for each asset.
func (r *accountReport) row(rows *table) {
	kind := ""
	if r.Issuer {
		kind = "issuer"
	}
	if len(r.Balances) == 0 {
		rows.add(r.Account, "0", string(ledger.DefaultAsset), kind)
	}
	name := r.Account
	for _, balance := range r.Balances {
		remark := strings.TrimPrefix(kind+", "+balance.held(), ", ")
		rows.add(name, balance.shown(), balance.Asset, strings.TrimSuffix(remark, ", "))
		name, kind = "", ""
	}
}
