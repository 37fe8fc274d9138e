package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// assetReport is a registered asset as --json prints it. Amounts are exact integers in the smallest
// unit, as text, with the decimal form beside them.
type assetReport struct {
	Name               string         `json:"name"`
	Number             uint32         `json:"number"`
	Organisation       string         `json:"organisation"`
	Revision           uint64         `json:"revision"`
	RegisteredHeight   uint64         `json:"registered_height"`
	Decimals           uint32         `json:"decimals"`
	Supply             string         `json:"supply"`
	Cap                string         `json:"cap,omitempty"`
	CapDecimal         string         `json:"cap_decimal,omitempty"`
	Closed             bool           `json:"closed"`
	Issued             string         `json:"issued"`
	IssuedDecimal      string         `json:"issued_decimal,omitempty"`
	Redeemed           string         `json:"redeemed"`
	RedeemedDecimal    string         `json:"redeemed_decimal,omitempty"`
	Outstanding        string         `json:"outstanding"`
	OutstandingDecimal string         `json:"outstanding_decimal,omitempty"`
	Waiting            string         `json:"waiting,omitempty"`
	Issuers            []issuerReport `json:"issuers"`
	Unanswered         []uint32       `json:"unanswered_shards,omitempty"`
	// TermsAtCut says at a cut whether all this is as of then. If not, it is as of now.
	TermsAtCut *bool `json:"terms_at_cut,omitempty"`
	// Proven are the blocks as of which the supply was proven, by shard.
	Proven []provenReport `json:"proven,omitempty"`
}

// issuerReport is an issuer of an asset as --json prints it.
type issuerReport struct {
	Organisation       string `json:"organisation"`
	Allowance          string `json:"allowance,omitempty"`
	AllowanceDecimal   string `json:"allowance_decimal,omitempty"`
	Withdrawn          bool   `json:"withdrawn"`
	Issued             string `json:"issued"`
	Redeemed           string `json:"redeemed"`
	Outstanding        string `json:"outstanding"`
	OutstandingDecimal string `json:"outstanding_decimal,omitempty"`
	Waiting            string `json:"waiting,omitempty"`
	// Shard is where the issuer lives. Proofs do not say it of an issuer that issued nothing.
	Shard *uint32 `json:"shard"`
}

// provenReport is a block that proves what a shard issued.
type provenReport struct {
	Shard  uint32 `json:"shard"`
	Height uint64 `json:"height"`
	Hash   string `json:"hash"`
	TimeMS uint64 `json:"time_ms"`
	// Certificate makes the block final.
	Certificate certificateReport `json:"certificate"`
}

// reportAsset reports what a node says of an asset, or refuses what cannot be.
func reportAsset(asset *ledgerdv1.Asset) (assetReport, error) {
	terms := asset.GetTerms()
	report := assetReport{Name: asset.GetName(), Number: asset.GetNumber(),
		Organisation: asset.GetOwner(), Revision: asset.GetRevision(),
		RegisteredHeight: asset.GetRegisteredHeight(), Decimals: terms.GetDecimals(),
		Supply: terms.GetSupply(), Cap: terms.GetCap(), Closed: terms.GetClosed(),
		Issued: asset.GetIssued(), Redeemed: asset.GetRedeemed(),
		Outstanding: asset.GetOutstanding(), Waiting: asset.GetWaiting(),
		Issuers: []issuerReport{}, Unanswered: asset.GetUnansweredShards()}
	for i, issuer := range terms.GetIssuers() {
		if i >= len(asset.GetIssuances()) {
			break // no node answers so
		}
		of := asset.GetIssuances()[i]
		outstanding, err := difference(of.GetIssued(), of.GetRedeemed())
		if err != nil {
			return report, fmt.Errorf("the node's answer on what %s issued of %s: %w",
				issuer.GetOrganisation(), asset.GetName(), err)
		}
		report.Issuers = append(report.Issuers, issuerReport{Organisation: issuer.GetOrganisation(),
			Allowance: issuer.GetAllowance(), Withdrawn: issuer.GetWithdrawn(),
			Issued: of.GetIssued(), Redeemed: of.GetRedeemed(), Outstanding: outstanding,
			Waiting: of.GetWaiting(), Shard: &of.Shard})
	}
	report.fillDecimals()
	return report, nil
}

// fillDecimals writes the decimal forms beside the exact integers.
func (r *assetReport) fillDecimals() {
	form := func(text string) string { return decimalForm(text, int(r.Decimals)) }
	r.CapDecimal, r.IssuedDecimal, r.RedeemedDecimal, r.OutstandingDecimal = form(r.Cap),
		form(r.Issued), form(r.Redeemed), form(r.Outstanding)
	for i := range r.Issuers {
		issuer := &r.Issuers[i]
		issuer.AllowanceDecimal, issuer.OutstandingDecimal = form(issuer.Allowance),
			form(issuer.Outstanding)
	}
}

// difference returns the difference of two amounts as text.
func difference(from, less string) (string, error) {
	a, err := ledger.ParseAmount(from)
	if err != nil {
		return "", err
	}
	b, err := ledger.ParseAmount(less)
	if err != nil {
		return "", err
	}
	rest, err := a.Sub(b)
	return rest.String(), err
}

// show writes an amount of the asset for people.
func (r *assetReport) show(text string) string {
	if text == "" {
		text = "0"
	}
	return withDecimals(text, int(r.Decimals))
}

// promise says in words how much there may be of the asset.
func (r *assetReport) promise() string {
	text := r.Supply
	switch r.Supply {
	case ledger.SupplyCapped.String():
		text = fmt.Sprintf("capped: at most %s outstanding", r.show(r.Cap))
	case ledger.SupplyFixed.String():
		text = fmt.Sprintf("fixed: at most %s ever issued", r.show(r.Cap))
	}
	if r.Closed {
		text += "; closed: nothing is issued any more"
	}
	return text
}

// write shows the asset to people.
func (r *assetReport) write(out io.Writer) error {
	rows := table{}
	rows.add("asset", r.Name)
	rows.add("registered", fmt.Sprintf("by %s, in block %d", r.Organisation, r.RegisteredHeight))
	rows.add("decimals", fmt.Sprint(r.Decimals))
	rows.add("supply", r.promise())
	rows.add("issued", r.show(r.Issued))
	rows.add("redeemed", r.show(r.Redeemed))
	rows.add("outstanding", r.show(r.Outstanding))
	if r.Waiting != "" {
		rows.add("waiting", r.show(r.Waiting)+" may still be issued, once other shards agree")
	}
	if isNow(r.TermsAtCut) {
		rows.add("as of", "now: a node does not know terms and sums of then")
	}
	if len(r.Unanswered) > 0 {
		rows.add("missing", "no node of "+client.ShardNames(r.Unanswered)+" answers")
	}
	for _, each := range r.Proven {
		rows.add("proven", fmt.Sprintf("for shard %d, as of block %d %s, %s; %s", each.Shard,
			each.Height, each.Hash, moment(each.TimeMS), each.Certificate.text()))
	}
	if err := rows.write(out); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return r.writeIssuers(out)
}

// writeIssuers lists the issuers for people.
func (r *assetReport) writeIssuers(out io.Writer) error {
	rows := table{header: []string{"ISSUER", "ALLOWANCE", "ISSUED", "REDEEMED", "OUTSTANDING",
		"SHARD", ""}, right: []bool{false, true, true, true, true, true, false}}
	for _, issuer := range r.Issuers {
		allowance, shard, remark := "any", "", ""
		if issuer.Shard != nil {
			shard = fmt.Sprint(*issuer.Shard)
		}
		if r.Supply != ledger.SupplyUnlimited.String() {
			allowance = r.show(issuer.Allowance)
		}
		if issuer.Withdrawn {
			remark = "withdrawn"
		}
		rows.add(issuer.Organisation, allowance, r.show(issuer.Issued), r.show(issuer.Redeemed),
			r.show(issuer.Outstanding), shard, remark)
	}
	return writeList(out, &rows, false, "no issuers: nobody may issue it")
}

// newAssetCommand returns the `ledgerd asset` command.
func newAssetCommand() *cobra.Command {
	return newGroupCommand(&cobra.Command{
		Use:   "asset",
		Short: "Register assets with decimals, a cap and issuers, and show their supply",
		Long: `Register assets with decimals, a cap and issuers, and show their supply.

Any name is an asset: amounts of one that is not registered are whole numbers, and
any issuer account may issue it. An organisation may register a name, from version
8 of the chains on (ledgerd cluster upgrade). Then

  decimals   say how amounts are written: with two of them, 12.50 EUR. The ledger
             keeps whole numbers of the smallest unit, and never rounds
  supply     is a promise: unlimited; capped, how much may be outstanding; or
             fixed, how much may ever be issued
  issuers    are the organisations whose issuer accounts may go below zero in it,
             each up to its allowance. The allowances add up to the cap at most,
             so no more than that is issued, over all shards

The organisation that registers an asset signs all later changes, too.`,
		Example: `  ledgerd asset register EUR --organisation acme --decimals 2 --cap 1000000.00
  ledgerd asset show EUR
  ledgerd asset issuers EUR --add bank=2500.00`,
	}, newAssetRegisterCommand(), newAssetShowCommand(), newAssetListCommand(),
		newAssetIssuersCommand(), newAssetCapCommand(), newAssetCloseCommand())
}

// parseRegistered parses the name of an asset that is or can be registered.
func parseRegistered(text string) (ledger.AssetName, error) {
	name, err := parseAsset(text)
	if err == nil && name == ledger.DefaultAsset {
		err = usagef("%s is the asset of amounts that name none, and is never registered", name)
	}
	return name, err
}

// newAssetShowCommand returns the `ledgerd asset show` command.
func newAssetShowCommand() *cobra.Command {
	var remote remoteOptions
	var proof assetProofOptions
	var cut cutFlags
	var asJSON bool
	command := &cobra.Command{
		Use:   "show ASSET",
		Short: "Show a registered asset, its supply and its issuers",
		Long: `Show a registered asset: its terms, how much was issued and redeemed, and by whom.

The supply is that of all shards. If a shard does not answer, the command names it,
shows what is known, and fails.

With --at or --cut it is the asset at a cut (see ledgerd cut): its terms, and what
each shard's chain had issued at the end of the last whole block before it. A node
whose store began later does not know them: then all is as of now, and the command
says so (terms_at_cut is false).

With --proof and --genesis the command trusts no node: each shard proves what it has
against a block that a majority of its members signed, and all that is shown follows
from the proofs. --out keeps them in a file, which ledgerd verify --proof checks with
the genesis alone.

With --json, amounts are exact integers in the smallest unit, as text; fields that
end in _decimal have the decimals. Fields: name, number, organisation, revision,
registered_height, decimals, supply, cap, closed, issued, redeemed, outstanding,
waiting, issuers, unanswered_shards, terms_at_cut, proven.`,
		Example: `  ledgerd asset show EUR
  ledgerd asset show EUR --at 2026-12-31
  ledgerd asset show EUR --proof --genesis genesis.json --out eur.proof
  ledgerd verify --proof eur.proof --genesis genesis.json
  ledgerd asset show EUR --json | jq -r .outstanding_decimal`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			name, err := parseRegistered(arguments[0])
			if err == nil {
				err = proof.check()
			}
			if err == nil && proof.genesis != "" && cut.chosen(command) {
				err = usagef("--proof proves the newest blocks, and goes without --at and --cut")
			}
			if err != nil {
				return err
			}
			nodes, ctx, done, err := remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			report, err := showAsset(ctx, command, nodes, name, &cut, &proof)
			if err != nil {
				return err
			}
			var missing error
			if len(report.Unanswered) > 0 {
				missing = fmt.Errorf("no node of %s answers: what was issued there is missing",
					client.ShardNames(report.Unanswered))
			}
			if asJSON {
				return errors.Join(writeJSON(command.OutOrStdout(), report), missing)
			}
			return errors.Join(report.write(command.OutOrStdout()), missing)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	remote.bind(command, false)
	cut.bindTo(command, "asset")
	proof.bind(command)
	addJSONFlag(command, &asJSON)
	return command
}

// showAsset returns an asset as the chains prove it if a genesis is given, and else as a node says.
func showAsset(ctx context.Context, command *cobra.Command, nodes *client.Client,
	name ledger.AssetName, cut *cutFlags, proof *assetProofOptions) (*assetReport, error) {
	if proof.genesis != "" {
		return proof.prove(ctx, nodes, name)
	}
	asset, err := cut.asset(ctx, command, nodes, name)
	if err != nil {
		return nil, err
	}
	report, err := reportAsset(asset)
	report.TermsAtCut = cut.atCut(command, asset.GetTermsAtCut())
	return &report, err
}

// newAssetListCommand returns the `ledgerd asset list` command.
func newAssetListCommand() *cobra.Command {
	var remote remoteOptions
	var cut cutFlags
	var limit int
	var asJSON bool
	command := &cobra.Command{
		Use:   "list",
		Short: "List the registered assets and their supply",
		Long: `List the registered assets in the order of their registrations, and their supply over
all shards. Assets that are not registered are not listed. With --at or --cut, they
are those at a cut, as ledgerd asset show has them.

With --json, assets are as ledgerd asset show prints them, and more says that the
limit left some out.`,
		Example: `  ledgerd asset list
  ledgerd asset list --at 1000
  ledgerd asset list --limit 0 --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			nodes, ctx, done, err := remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			all := nodes.Assets(ctx)
			if cut.chosen(command) {
				places, err := cut.find(ctx, command, nodes)
				if err != nil {
					return err
				}
				all = nodes.AssetsAt(ctx, places)
			}
			assets, more, err := take(all, limit)
			if err != nil {
				return err
			}
			reports := make([]assetReport, len(assets))
			rows := table{header: []string{"ASSET", "DECIMALS", "OUTSTANDING", "SUPPLY",
				"ORGANISATION"}, right: []bool{false, true, true}}
			for i, asset := range assets {
				if reports[i], err = reportAsset(asset); err != nil {
					return err
				}
				r := &reports[i]
				r.TermsAtCut = cut.atCut(command, asset.GetTermsAtCut())
				outstanding := r.show(r.Outstanding)
				if isNow(r.TermsAtCut) {
					outstanding += " now: a node does not know that of then"
				}
				if len(r.Unanswered) > 0 {
					outstanding += " and more: no node of " + client.ShardNames(r.Unanswered) +
						" answers"
				}
				rows.add(r.Name, fmt.Sprint(r.Decimals), outstanding, r.promise(), r.Organisation)
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(), map[string]any{"assets": reports,
					"more": more})
			}
			return writeList(command.OutOrStdout(), &rows, more, "no registered assets: "+
				"register one with `ledgerd asset register ASSET --organisation NAME`")
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	remote.bind(command, false)
	cut.bindTo(command, "assets")
	bindLimit(command, &limit, 100)
	addJSONFlag(command, &asJSON)
	return command
}

// reportAssetChange returns the change of an asset that a transaction makes, or nil.
func reportAssetChange(message *ledgerdv1.AssetChange) *ledger.AssetChange {
	if message == nil {
		return nil
	}
	terms, err := api.TermsFromProto(message.GetTerms())
	if err != nil {
		return nil // no node answers so
	}
	return &ledger.AssetChange{Asset: ledger.AssetName(message.GetAsset()),
		Number: message.GetNumber(), AssetTerms: terms}
}

// assetChangeWords says in words what a change of an asset says.
func assetChangeWords(change *ledger.AssetChange) string {
	text := fmt.Sprintf("change %d of %s", change.Number, change.Asset)
	if change.Number == 1 {
		text = fmt.Sprintf("registers %s", change.Asset)
	}
	text += fmt.Sprintf(": %d decimals, supply %s", change.Decimals, change.Supply)
	if change.Limited() {
		text += " at " + change.Cap.Decimal(int(change.Decimals))
	}
	if change.Closed {
		text += ", closed"
	}
	return text + ", " + plural(len(change.Issuers), "issuer")
}
