package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/home"
)

// assetOptions are the flags of the commands that register or change an asset.
type assetOptions struct {
	post postOptions
	with []string
	// genesis is a file from which a change checks the present terms.
	genesis string
}

// bindChange binds the flags of a change of an asset.
func (o *assetOptions) bindChange(command *cobra.Command) {
	o.bind(command)
	command.Flags().StringVar(&o.genesis, "genesis", "", "have the chain prove the present terms, "+
		"check that with this genesis `FILE`, and trust no node with them")
}

// present returns the terms of an asset, who registered it, and the number of its last change: as
// the chain proves it if a genesis is given, and else as a node says.
func (o *assetOptions) present(ctx context.Context, nodes *client.Client,
	name ledger.AssetName) (terms ledger.AssetTerms, owner ledger.OrganisationName,
	revision uint64, err error) {
	if o.genesis != "" {
		genesis, err := home.ReadGenesis(o.genesis)
		if err != nil {
			return terms, "", 0, err
		}
		asset, _, err := nodes.CertifiedAsset(ctx, name, genesis.Shard, genesis)
		if err != nil {
			return terms, "", 0, err
		}
		return asset.AssetTerms, asset.Owner, asset.Revision, nil
	}
	asset, err := nodes.Asset(ctx, name)
	if err != nil {
		return terms, "", 0, err
	}
	if terms, err = api.TermsFromProto(asset.GetTerms()); err != nil {
		err = fmt.Errorf("the node's answer: %w", err)
	}
	return terms, ledger.OrganisationName(asset.GetOwner()), asset.GetRevision(), err
}

// writeTerms shows the whole terms that are signed next, and what they were if that differs.
func writeTerms(out io.Writer, change *ledger.AssetChange, owner ledger.OrganisationName,
	present *ledger.AssetTerms) error {
	rows := table{}
	add := func(what, is, was string) {
		if is != was {
			is += " (was: " + was + ")"
		}
		rows.add(what, is)
	}
	supply := func(t *ledger.AssetTerms) string {
		if !t.Limited() {
			return t.Supply.String()
		}
		return t.Supply.String() + ", " + t.Cap.Decimal(int(t.Decimals))
	}
	issuer := func(t *ledger.AssetTerms, name ledger.OrganisationName) string {
		at, is := t.Issuer(name)
		if !is {
			return "no issuer"
		}
		text := "any amount"
		if t.Limited() {
			text = "up to " + t.Issuers[at].Allowance.Decimal(int(t.Decimals))
		}
		if t.Issuers[at].Withdrawn {
			text += ", withdrawn"
		}
		return text
	}
	rows.add("signed", fmt.Sprintf("change %d of %s, by %s", change.Number, change.Asset, owner))
	rows.add("decimals", fmt.Sprint(change.Decimals))
	add("supply", supply(&change.AssetTerms), supply(present))
	add("closed", fmt.Sprint(change.Closed), fmt.Sprint(present.Closed))
	for i := range change.Issuers {
		name := change.Issuers[i].Organisation
		add("issuer "+string(name), issuer(&change.AssetTerms, name), issuer(present, name))
	}
	return rows.write(out)
}

func (o *assetOptions) bind(command *cobra.Command) {
	o.post.bind(command)
	bindDryRun(command, &o.post.dry)
	command.Flags().StringArrayVar(&o.with, "with", nil, "file with a further key of the "+
		"organisation that signs, if its policy asks for several; repeat it")
}

// signers returns the keys of the organisation that sign: that in the keyring, and those of --with.
func (o *assetOptions) signers(organisation ledger.OrganisationName) ([]client.Key, error) {
	keys, err := o.post.load([]ledger.OrganisationName{organisation})
	if err != nil {
		return nil, err
	}
	for _, file := range o.with {
		by, err := o.post.keys.passphrases.signer(file)
		if err != nil {
			return nil, err
		}
		keys = append(keys, client.Key{Organisation: organisation, Signer: by})
	}
	return keys, nil
}

// submit signs a registration or a change and submits it.
func (o *assetOptions) submit(ctx context.Context, command *cobra.Command, nodes *client.Client,
	organisation ledger.OrganisationName, change ledger.AssetChange, others ...client.Key) error {
	level, err := parseLevel(o.post.wait)
	if err != nil {
		return err
	}
	if err := change.Validate(); err != nil {
		return usagef("%w", err)
	}
	keys, err := o.signers(organisation)
	if err != nil {
		return err
	}
	return o.post.postWith(ctx, command, nodes, append(keys, others...), ledger.Transaction{
		Signer: organisation, Asset: &change}, level)
}

// change asks a node for the present terms of an asset, changes them, and submits the change, which
// the organisation that registered the asset signs.
func (o *assetOptions) change(command *cobra.Command, text string,
	do func(terms *ledger.AssetTerms) error) error {
	name, err := parseRegistered(text)
	if err != nil {
		return err
	}
	nodes, ctx, done, err := o.post.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	present, owner, revision, err := o.present(ctx, nodes, name)
	if err != nil {
		return err
	}
	terms := present.Clone()
	if err := do(&terms); err != nil {
		return err
	}
	if !present.MayBecome(&terms) {
		return usagef("an asset never changes so: a cap is never raised, one that is fixed is " +
			"not lowered either, and an allowance is lowered only together with the cap, by as " +
			"much")
	}
	made := ledger.AssetChange{Asset: name, Number: revision + 1, AssetTerms: terms}
	if err := errors.Join(made.Validate(), owner.Validate()); err != nil {
		return fmt.Errorf("these terms cannot be signed: %w", err) // and are not shown either
	}
	if err := writeTerms(command.ErrOrStderr(), &made, owner, &present); err != nil {
		return err
	}
	return o.submit(ctx, command, nodes, owner, made)
}

// parseIssuer parses ORGANISATION or ORGANISATION=ALLOWANCE.
func parseIssuer(text string, parse func(sum string) (ledger.Amount, error)) (issuer ledger.Issuer,
	limited bool, err error) {
	name, sum, limited := strings.Cut(text, "=")
	if issuer.Organisation, err = parseOrganisation(name); err != nil || !limited {
		return issuer, limited, err
	}
	if issuer.Allowance, err = parse(sum); err == nil && issuer.Allowance.Sign() < 0 {
		err = fmt.Errorf("an allowance below zero")
	}
	if err != nil {
		return issuer, true, usagef("%q: %w: write ORGANISATION=ALLOWANCE, for example "+
			"bank=2500.00 if the asset has two decimals", text, err)
	}
	return issuer, true, nil
}

// setIssuer adds an issuer to terms, or replaces its allowance.
func setIssuer(terms *ledger.AssetTerms, issuer ledger.Issuer) {
	at, is := terms.Issuer(issuer.Organisation)
	if !is {
		terms.Issuers = slices.Insert(terms.Issuers, at, issuer)
		return
	}
	terms.Issuers[at].Allowance = issuer.Allowance
}

// newAssetRegisterCommand returns the `ledgerd asset register` command.
func newAssetRegisterCommand() *cobra.Command {
	var options assetOptions
	var organisation, most, fixed string
	var decimals uint8
	var issuers, operators []string
	command := &cobra.Command{
		Use:   "register ASSET --organisation NAME",
		Short: "Register an asset",
		Long: `Register an asset: its decimals, a promise on its supply, and its issuers. The
organisation signs, with its key in the keyring, and alone may change the asset later.

Without --cap and --fixed the supply is unlimited. --cap bounds how much is
outstanding: what is redeemed may be issued again. --fixed bounds how much is ever
issued. Both are written with the decimals of the asset. Because --decimals says how
many these are, fewer of them are read here, and only here: 2500 is 2500.00. An
issuer without an allowance gets what the others leave of the bound; without --issuer the
organisation itself is the only one. Leave some of the bound for issuers that come
later: an allowance that was given cannot be given to another one.

Decimals and the kind of supply never change. A name belongs to the first to
register it. If amounts of it exist already, they stay what they are in the smallest
unit, and are written with the decimals from then on. Accounts that issue it are
opened with ledgerd account open --issuer.

The chain may reserve registrations to its operators (ledgerd cluster operators list):
then as many of them as have to sign anything sign, too, with --operator.`,
		Example: `  ledgerd asset register EUR --organisation acme --decimals 2 --cap 1000000.00
  ledgerd asset register SHARE --organisation acme --fixed 5000
  ledgerd asset register EUR --organisation acme --decimals 2 --cap 1000000 \
                         --issuer acme=600000 --issuer bank=150000.50`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			name, err := parseRegistered(arguments[0])
			if err != nil {
				return err
			}
			if organisation == "" {
				return usagef("which organisation registers %s? Name it with --organisation", name)
			}
			owner, err := parseOrganisation(organisation)
			if err != nil {
				return err
			}
			for flag, text := range map[string]string{"cap": most, "fixed": fixed} {
				if text == "" && command.Flags().Changed(flag) {
					return usagef("--%s has no amount: the supply would be unlimited for good. "+
						"Write one, or leave the flag out", flag)
				}
			}
			if len(issuers) == 0 {
				issuers = []string{organisation}
			}
			terms, err := newTerms(decimals, most, fixed, issuers)
			if err != nil {
				return err
			}
			others, err := options.post.keys.passphrases.operators(operators)
			if err != nil {
				return err
			}
			nodes, ctx, done, err := options.post.remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			return options.submit(ctx, command, nodes, owner, ledger.AssetChange{Asset: name,
				Number: 1, AssetTerms: terms}, others...)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bind(command)
	flags := command.Flags()
	flags.StringVar(&organisation, "organisation", "", "organisation that registers the asset")
	flags.Uint8Var(&decimals, "decimals", 0, "decimals of amounts, up to 30")
	flags.StringVar(&most, "cap", "", "how much may be outstanding")
	flags.StringVar(&fixed, "fixed", "", "how much may ever be issued")
	flags.StringArrayVar(&issuers, "issuer", nil, "an issuer ORGANISATION or "+
		"ORGANISATION=ALLOWANCE; repeat it (default the organisation itself)")
	flags.StringSliceVar(&operators, "operator", nil, "file with an operator's key, if the chain "+
		"reserves registration to its operators; several with commas or repeated")
	completeFlag(command, "organisation", keyCompletion(&options.post.keys))
	return command
}

// newTerms makes the terms of a registration from flags.
func newTerms(decimals uint8, most, fixed string, issuers []string) (terms ledger.AssetTerms,
	err error) {
	if most != "" && fixed != "" {
		return terms, usagef("--cap and --fixed are two promises: leave one out")
	}
	terms.Decimals = decimals
	bound := most
	switch {
	case fixed != "":
		terms.Supply, bound = ledger.SupplyFixed, fixed
	case most != "":
		terms.Supply = ledger.SupplyCapped
	}
	parse := func(sum string) (ledger.Amount, error) {
		return ledger.ParseDecimal(sum, int(decimals)) // the same command says how many
	}
	if terms.Limited() {
		if terms.Cap, err = parse(bound); err != nil {
			return terms, asUsage(err)
		}
	}
	rest := ledger.OrganisationName("")
	for _, text := range issuers {
		issuer, limited, err := parseIssuer(text, parse)
		if err != nil {
			return terms, err
		}
		if _, again := terms.Issuer(issuer.Organisation); again {
			return terms, usagef("--issuer %s twice", issuer.Organisation)
		}
		switch {
		case limited && !terms.Limited():
			return terms, usagef("--issuer %q: the supply is unlimited, and so is what an issuer "+
				"may issue: leave the allowance out, or give --cap or --fixed", text)
		case !limited && terms.Limited() && rest != "":
			return terms, usagef("--issuer %s and %s have no allowance: only one can get what is "+
				"left", rest, issuer.Organisation)
		case !limited && terms.Limited():
			rest = issuer.Organisation
		}
		setIssuer(&terms, issuer)
	}
	if rest == "" {
		return terms, nil
	}
	given, err := terms.Allowed()
	if err != nil || given.Compare(terms.Cap) > 0 {
		return terms, usagef("the allowances add up to more than %s",
			terms.Cap.Decimal(int(decimals)))
	}
	setIssuer(&terms, ledger.Issuer{Organisation: rest, Allowance: terms.Cap.Minus(given)})
	return terms, nil
}

// newAssetIssuersCommand returns the `ledgerd asset issuers` command.
func newAssetIssuersCommand() *cobra.Command {
	var options assetOptions
	var added, withdrawn, admitted []string
	command := &cobra.Command{
		Use:   "issuers ASSET",
		Short: "Show or change who may issue an asset",
		Long: `Show who may issue an asset, and how much each issued and redeemed; or change it. The
organisation that registered the asset signs a change.

--add gives an organisation an allowance, or raises the one that it has; the
allowances add up to the cap at most. If the supply is unlimited there is none. It is
written with all decimals of the asset.
--withdraw lets an issuer issue nothing any more. What it issued stays, and may be
redeemed. Its allowance still counts, because it may have issued that much, so it
cannot be given to another one. --admit takes that back.

To lower an allowance, lower the cap as well: ledgerd asset cap.`,
		Example: `  ledgerd asset issuers EUR
  ledgerd asset issuers EUR --add bank=2500.00
  ledgerd asset issuers EUR --withdraw bank`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if len(added)+len(withdrawn)+len(admitted) == 0 {
				return showIssuers(command, &options, arguments[0])
			}
			for _, name := range withdrawn {
				if slices.Contains(admitted, name) {
					return usagef("--withdraw %s and --admit %s: leave one out", name, name)
				}
			}
			return options.change(command, arguments[0], func(terms *ledger.AssetTerms) error {
				parse := fullParser(arguments[0], terms)
				for _, text := range added {
					issuer, limited, err := parseIssuer(text, parse)
					if err != nil {
						return err
					}
					if limited != terms.Limited() {
						return usagef("--add %q: the supply is %s: write ORGANISATION=ALLOWANCE "+
							"exactly if it is capped or fixed", text, terms.Supply)
					}
					setIssuer(terms, issuer)
				}
				for i, names := range [][]string{withdrawn, admitted} {
					flag := []string{"withdraw", "admit"}[i]
					for _, text := range names {
						name, err := parseOrganisation(text)
						if err != nil {
							return err
						}
						at, is := terms.Issuer(name)
						if !is {
							return usagef("--%s %s: it is no issuer", flag, name)
						}
						terms.Issuers[at].Withdrawn = flag == "withdraw"
					}
				}
				return nil
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bindChange(command)
	flags := command.Flags()
	flags.StringArrayVar(&added, "add", nil,
		"give ORGANISATION=ALLOWANCE, or ORGANISATION if the supply is unlimited; repeat it")
	flags.StringArrayVar(&withdrawn, "withdraw", nil, "an issuer that may issue nothing any more")
	flags.StringArrayVar(&admitted, "admit", nil,
		"an issuer that was withdrawn, and may issue again")
	return command
}

// showIssuers prints who may issue an asset.
func showIssuers(command *cobra.Command, options *assetOptions, text string) error {
	name, err := parseRegistered(text)
	if err != nil {
		return err
	}
	nodes, ctx, done, err := options.post.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	asset, err := nodes.Asset(ctx, name)
	if err != nil {
		return err
	}
	report, err := reportAsset(asset)
	if err != nil {
		return err
	}
	if options.post.json {
		return writeJSON(command.OutOrStdout(), map[string]any{"asset": report.Name,
			"decimals": report.Decimals, "issuers": report.Issuers})
	}
	return report.writeIssuers(command.OutOrStdout())
}

// newAssetCapCommand returns the `ledgerd asset cap` command.
func newAssetCapCommand() *cobra.Command {
	var options assetOptions
	var lowered []string
	command := &cobra.Command{
		Use:   "cap ASSET AMOUNT",
		Short: "Lower the cap of an asset",
		Long: `Lower the cap of an asset whose supply is capped. It is never raised. The organisation
that registered the asset signs. Amounts are written with all decimals of the asset.

The allowances of the issuers have to fit below the cap: --lower names those that
get smaller. The cap falls by at least as much as they do. If the asset has one
issuer, its allowance follows. A cap may be below what is outstanding: then nothing
is issued until enough was redeemed.`,
		Example: `  ledgerd asset cap EUR 500000.00
  ledgerd asset cap EUR 500000.00 --lower acme=400000.00 \
                         --lower bank=100000.00`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			return options.change(command, arguments[0], func(terms *ledger.AssetTerms) error {
				if terms.Supply != ledger.SupplyCapped {
					return usagef("the supply is %s: only a capped one has a cap that is lowered",
						terms.Supply)
				}
				highest, parse := terms.Cap, fullParser(arguments[0], terms)
				var err error
				if terms.Cap, err = parse(arguments[1]); err != nil {
					return asUsage(err)
				}
				for _, text := range lowered {
					issuer, limited, err := parseIssuer(text, parse)
					if err != nil {
						return err
					}
					at, is := terms.Issuer(issuer.Organisation)
					if !is || !limited {
						return usagef("--lower %q: write ISSUER=ALLOWANCE", text)
					}
					highest = highest.Minus(terms.Issuers[at].Allowance.Minus(issuer.Allowance))
					setIssuer(terms, issuer)
				}
				if len(lowered) > 0 && terms.Cap.Compare(highest) > 0 {
					return usagef("an allowance is lowered only together with the cap, by "+
						"as much: with these, the cap is at most %s",
						highest.Decimal(int(terms.Decimals)))
				}
				if len(terms.Issuers) == 1 && terms.Issuers[0].Allowance.Compare(terms.Cap) > 0 {
					terms.Issuers[0].Allowance = terms.Cap
				}
				return nil
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bindChange(command)
	command.Flags().StringArrayVar(&lowered, "lower", nil,
		"an issuer and its allowance from then on, ORGANISATION=ALLOWANCE; repeat it")
	return command
}

// newAssetCloseCommand returns the `ledgerd asset close` command.
func newAssetCloseCommand() *cobra.Command {
	var options assetOptions
	var yes bool
	command := &cobra.Command{
		Use:   "close ASSET --yes",
		Short: "Close the issuance of an asset for good",
		Long: `Close the issuance of an asset: from then on nobody issues any of it, and nobody can
open it again. What there is goes on, and may be redeemed. The organisation that
registered the asset signs.`,
		Example: `  ledgerd asset close SHARE --yes`,
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if !yes {
				return usagef("this is final: nobody can issue %s after it. Give --yes to close it",
					arguments[0])
			}
			return options.change(command, arguments[0], func(terms *ledger.AssetTerms) error {
				if terms.Closed {
					return fmt.Errorf("the issuance of %s is closed already", arguments[0])
				}
				terms.Closed = true
				return nil
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bindChange(command)
	command.Flags().BoolVar(&yes, "yes", false, "close it")
	return command
}
