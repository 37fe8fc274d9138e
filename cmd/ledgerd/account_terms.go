package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
)

// accountOptions are the flags of the commands that change the terms of an account.
type accountOptions struct{ assetOptions }

// submit makes a change of the terms of an account with make, and submits it. The account's
// organisation signs, unless the change is by another one.
func (o *accountOptions) submit(command *cobra.Command, text string, by ledger.OrganisationName,
	make func(ctx context.Context, nodes *client.Client, path ledger.AccountPath) (
		*ledger.AccountChange, error)) error {
	path, err := parseAccount(text)
	if err != nil {
		return err
	}
	level, err := parseLevel(o.post.wait)
	if err != nil {
		return err
	}
	if by == "" {
		by = path.Organisation()
	}
	nodes, ctx, done, err := o.post.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	keys, err := o.signers(by)
	if err != nil {
		return err
	}
	change, err := make(ctx, nodes, path)
	if err != nil {
		return err
	}
	return o.post.postWith(ctx, command, nodes, keys, ledger.Transaction{Signer: by,
		Account: change}, level)
}

// present returns the change that leaves the terms of an account as they are: as the chain proves
// them if a genesis is given, and else as a node says. With it come the decimals of assets, from
// the same source.
func (o *accountOptions) present(ctx context.Context, nodes *client.Client,
	path ledger.AccountPath) (*ledger.AccountChange, *decimals, error) {
	known := newDecimals(nodes)
	if o.genesis == "" {
		change, err := nodes.AccountChange(ctx, path)
		return change, known, err
	}
	genesis, err := home.ReadGenesis(o.genesis)
	if err != nil {
		return nil, nil, err
	}
	known.genesis = genesis
	change, err := nodes.CertifiedAccountChange(ctx, path, genesis)
	return change, known, err
}

// change asks for the present terms of an account, changes them, shows them, and submits the
// change. The account's organisation signs.
func (o *accountOptions) change(command *cobra.Command, text string,
	do func(ctx context.Context, known *decimals, change *ledger.AccountChange) error) error {
	return o.submit(command, text, "", func(ctx context.Context, nodes *client.Client,
		path ledger.AccountPath) (*ledger.AccountChange, error) {
		change, known, err := o.present(ctx, nodes, path)
		if err != nil {
			return nil, err
		}
		terms, alias := change.Clone(), change.Alias
		if err := do(ctx, known, change); err != nil {
			return nil, err
		}
		if err := change.Validate(); err != nil {
			return nil, usagef("%w", err)
		}
		if !terms.MayBecome(&change.AccountTerms) {
			return nil, usagef("the terms of %s may not change so: what is closed stays closed, "+
				"and what the guardian froze only the guardian lifts", path)
		}
		return change, writeAccountChange(command.ErrOrStderr(), change, &terms, alias,
			func(amount ledger.Amount, asset ledger.AssetName) string {
				return known.show(ctx, amount.String(), string(asset))
			})
	})
}

// guard submits the change with which a guardian freezes an account, or lifts its own freeze.
func (o *accountOptions) guard(command *cobra.Command, text string, by ledger.OrganisationName,
	lift bool) error {
	return o.submit(command, text, by, func(ctx context.Context, nodes *client.Client,
		path ledger.AccountPath) (*ledger.AccountChange, error) {
		return nodes.Guard(ctx, path, by, !lift)
	})
}

// writeAccountChange shows the whole terms that are signed next, and what goes. They come from a
// node, which may have said what is not so.
func writeAccountChange(out io.Writer, change *ledger.AccountChange, present *ledger.AccountTerms,
	alias string, shown func(amount ledger.Amount, asset ledger.AssetName) string) error {
	rows, before := table{}, table{}
	rows.add("signed", fmt.Sprintf("change %d of the terms of %s, by %s", change.Number,
		change.Account, change.Account.Organisation()))
	list := func(to *table, alias string, terms *ledger.AccountTerms) {
		if alias != "" {
			to.add("alias", sanitize(alias, 0))
		}
		accountTermsRows(to, terms, shown)
	}
	list(&rows, change.Alias, &change.AccountTerms)
	list(&before, alias, present)
	for _, row := range before.rows {
		same := func(is []string) bool { return slices.Equal(is, row) }
		if !slices.ContainsFunc(rows.rows, same) {
			rows.add("no longer", strings.Join(row, ": "))
		}
	}
	return rows.write(out)
}

// newAccountLimitCommand returns the `ledgerd account limit` command.
func newAccountLimitCommand() *cobra.Command {
	var options accountOptions
	var asset, floor, ceiling, velocity string
	var noDebits, noCredits bool
	command := &cobra.Command{
		Use:   "limit ORGANISATION:NAME",
		Short: "Limit what may be taken from an account, and given to it",
		Long: `Limit what may be taken from an account, and given to it. The account's organisation
signs. What is not named stays as it is; none takes a limit away.

The floor is the least that a debit may leave, and the ceiling the most that a credit
may make of the balance. A velocity is the most that may be taken within a time, by
the time of the blocks: wherever the time begins, no more leaves the account. What
transactions that wait for other shards may take counts as gone for the floor and
the velocity, and what they may bring counts as there for the ceiling.`,
		Example: `  ledgerd account limit acme:cash --floor 100 --ceiling 50000 --asset EUR
  ledgerd account limit acme:cash --velocity 1000/24h --asset EUR
  ledgerd account limit acme:cash --velocity none --asset EUR
  ledgerd account limit acme:deposits --no-debits`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			set := command.Flags().Changed
			if !set("floor") && !set("ceiling") && !set("velocity") && !set("no-debits") &&
				!set("no-credits") {
				return usagef("name a limit: --floor, --ceiling, --velocity, --no-debits or " +
					"--no-credits")
			}
			return options.change(command, arguments[0], func(ctx context.Context,
				known *decimals, change *ledger.AccountChange) error {
				if set("no-debits") {
					change.NoDebits = noDebits
				}
				if set("no-credits") {
					change.NoCredits = noCredits
				}
				name := ledger.AssetName(asset)
				if err := name.Validate(); err != nil {
					return asUsage(err)
				}
				at, has := change.Limit(name)
				limit := ledger.AccountLimit{Asset: name}
				if has {
					limit = change.Limits[at]
					change.Limits = slices.Delete(change.Limits, at, at+1)
				}
				amount := func(flag, text string, to **ledger.Amount) error {
					if !set(flag) {
						return nil
					}
					if *to = nil; text == "none" {
						return nil
					}
					parsed, err := known.parse(ctx, text, name)
					*to = &parsed
					return err
				}
				if err := amount("floor", floor, &limit.Floor); err != nil {
					return err
				}
				if err := amount("ceiling", ceiling, &limit.Ceiling); err != nil {
					return err
				}
				if set("velocity") {
					parsed, err := parseVelocity(ctx, known, velocity, name)
					if err != nil {
						return err
					}
					limit.Velocity = parsed
				}
				if limit.Floor != nil || limit.Ceiling != nil || limit.Velocity != nil {
					change.Limits = slices.Insert(change.Limits, at, limit)
				}
				return nil
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bindChange(command)
	flags := command.Flags()
	flags.StringVar(&asset, "asset", string(ledger.DefaultAsset), "the asset that is limited")
	flags.StringVar(&floor, "floor", "", "the least that a debit may leave, or none")
	flags.StringVar(&ceiling, "ceiling", "", "the most that a credit may make of it, or none")
	flags.StringVar(&velocity, "velocity", "", "AMOUNT/TIME, such as 1000/24h, or none")
	flags.BoolVar(&noDebits, "no-debits", false, "nothing may be taken; =false to allow it again")
	flags.BoolVar(&noCredits, "no-credits", false, "nothing may be given; =false to allow it again")
	return command
}

// parseVelocity parses AMOUNT/TIME; none is nil.
func parseVelocity(ctx context.Context, known *decimals, text string,
	asset ledger.AssetName) (*ledger.Velocity, error) {
	if text == "none" {
		return nil, nil
	}
	sum, within, has := strings.Cut(text, "/")
	length, err := time.ParseDuration(within)
	if !has || err != nil || length%time.Second != 0 || length <= 0 ||
		length > ledger.MaxVelocitySeconds*time.Second {
		return nil, usagef("--velocity %q: write AMOUNT/TIME in whole seconds, at most 366 days, "+
			"for example 1000/24h", text)
	}
	amount, err := known.parse(ctx, sum, asset)
	if err != nil {
		return nil, err
	}
	return &ledger.Velocity{Amount: amount, Seconds: uint32(length / time.Second)}, nil
}

// newAccountFreezeCommand returns the `ledgerd account freeze` and `unfreeze` commands.
func newAccountFreezeCommand(lift bool) *cobra.Command {
	var options accountOptions
	var as string
	command := &cobra.Command{
		Use:   "freeze ORGANISATION:NAME",
		Short: "Freeze an account: it takes no postings until the freeze is lifted",
		Long: `Freeze an account: it takes no postings until the freeze is lifted. What waits for
other shards already still takes effect. The account's organisation signs; or, with
--as, the guardian that the organisation named (ledgerd account label --guardian).
What a guardian froze only the guardian lifts. Nobody else can freeze an account, the
operators of the ledger included.`,
		Example: `  ledgerd account freeze acme:cash
  ledgerd account freeze acme:cash --as regulator`,
		Args: cobra.ExactArgs(1),
	}
	if lift {
		command.Use, command.Short = "unfreeze ORGANISATION:NAME", "Lift the freeze of an account"
		command.Long = `Lift the freeze of an account. The side that froze it signs: the organisation or,
with --as, the guardian. If both froze it, each lifts its own, the guardian first.`
		command.Example = `  ledgerd account unfreeze acme:cash
  ledgerd account unfreeze acme:cash --as regulator`
	}
	command.RunE = func(command *cobra.Command, arguments []string) error {
		var by ledger.OrganisationName
		if as != "" {
			var err error
			if by, err = parseOrganisation(as); err != nil {
				return err
			}
		}
		path, err := parseAccount(arguments[0])
		if err != nil {
			return err
		}
		if by != "" && by != path.Organisation() {
			return options.guard(command, arguments[0], by, lift)
		}
		return options.change(command, arguments[0], func(_ context.Context, _ *decimals,
			change *ledger.AccountChange) error {
			freeze := ledger.FreezeOwner
			if lift {
				freeze = ledger.FreezeNone
			}
			switch {
			case change.Freeze != freeze:
			case lift:
				return fmt.Errorf("nothing to change: %s is not frozen", change.Account)
			default:
				return fmt.Errorf("nothing to change: %s is frozen by its organisation already",
					change.Account)
			}
			change.Freeze = freeze
			return nil
		})
	}
	command.ValidArgsFunction = cobra.NoFileCompletions
	options.bindChange(command)
	command.Flags().StringVar(&as, "as", "", "the guardian that signs")
	return command
}

// newAccountCloseCommand returns the `ledgerd account close` command.
func newAccountCloseCommand() *cobra.Command {
	var options accountOptions
	var yes bool
	command := &cobra.Command{
		Use:   "close ORGANISATION:NAME --yes",
		Short: "Close an account for good",
		Long: `Close an account for good: it takes no postings any more, and no account of its name is
opened again. It must have no amounts, and wait for none. It keeps its alias, unless
ledgerd account label --alias= took it away before. Its organisation signs.`,
		Example: `  ledgerd account close acme:old --yes`,
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if !yes {
				return usagef("this is final: give --yes to close %s", arguments[0])
			}
			return options.change(command, arguments[0], func(_ context.Context,
				_ *decimals, change *ledger.AccountChange) error {
				change.Closed = true
				return nil
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bindChange(command)
	command.Flags().BoolVar(&yes, "yes", false, "close it")
	return command
}

// newAccountLabelCommand returns the `ledgerd account label` command.
func newAccountLabelCommand() *cobra.Command {
	var options accountOptions
	var alias, guardian string
	var index []string
	command := &cobra.Command{
		Use:   "label ORGANISATION:NAME [KEY=VALUE...]",
		Short: "Set metadata, the alias or the guardian of an account",
		Long: `Set metadata, the alias or the guardian of an account. KEY=VALUE sets a value, and
KEY= takes it away. ledgerd account list --where finds an account by the keys that
--index names, as long as the account has them. No two accounts of an organisation have
the same alias. A guardian is an organisation that may freeze the account, and lift its
own freeze. The account's organisation signs.`,
		Example: `  ledgerd account label acme:cash iban=DE02120300000000202051 --index iban
  ledgerd account label acme:cash --alias "petty cash"
  ledgerd account label acme:cash --guardian regulator`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			set := command.Flags().Changed
			if len(arguments) == 1 && !set("alias") && !set("guardian") && len(index) == 0 {
				return usagef("nothing to set: name a KEY=VALUE, --alias, --guardian or --index")
			}
			return options.change(command, arguments[0], func(_ context.Context,
				_ *decimals, change *ledger.AccountChange) error {
				if set("alias") {
					change.Alias = alias
				}
				if set("guardian") {
					change.Guardian = ledger.OrganisationName(guardian)
				}
				for _, text := range arguments[1:] {
					key, value, is := strings.Cut(text, "=")
					if !is {
						return usagef("%q: write KEY=VALUE, or KEY= to take it away", text)
					}
					at, has := slices.BinarySearchFunc(change.Metadata, key,
						func(m ledger.Metadatum, key string) int {
							return strings.Compare(m.Key, key)
						})
					indexed := false
					if has {
						indexed = change.Metadata[at].Indexed
						change.Metadata = slices.Delete(change.Metadata, at, at+1)
					}
					if value != "" {
						change.Metadata = slices.Insert(change.Metadata, at,
							ledger.Metadatum{Key: key, Value: value, Indexed: indexed})
					}
				}
				for _, key := range index {
					at := slices.IndexFunc(change.Metadata, func(m ledger.Metadatum) bool {
						return m.Key == key
					})
					if at < 0 {
						return usagef("--index %q: the account has no such key", key)
					}
					change.Metadata[at].Indexed = true
				}
				return nil
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bindChange(command)
	command.Flags().StringVar(&alias, "alias", "", "another name, or empty for none")
	command.Flags().StringVar(&guardian, "guardian", "",
		"an organisation that may freeze the account, or empty for none")
	command.Flags().StringSliceVar(&index, "index", nil, "find the account by these keys")
	return command
}

// termsReport returns the terms of an account for --json, or nil.
func termsReport(message *ledgerdv1.AccountTerms) *ledger.AccountTerms {
	if message == nil {
		return nil
	}
	terms, err := api.AccountTermsFromProto(message)
	if err != nil {
		return nil // no node answers so
	}
	return &terms
}

func reportAccountChange(message *ledgerdv1.AccountChange) *ledger.AccountChange {
	terms := termsReport(message.GetTerms())
	if terms == nil {
		return nil
	}
	return &ledger.AccountChange{Account: ledger.AccountPath(message.GetAccount()),
		Number: message.GetNumber(), Alias: message.GetAlias(), AccountTerms: *terms}
}

// accountTermsRows adds the terms of an account to what is printed of it. shown writes an amount.
func accountTermsRows(rows *table, terms *ledger.AccountTerms,
	shown func(amount ledger.Amount, asset ledger.AssetName) string) {
	for _, each := range []struct {
		is   bool
		text string
	}{{terms.Closed, "closed: it takes no postings any more"},
		{terms.Freeze.ByOwner(), "frozen by its organisation"},
		{terms.Freeze.ByGuardian(), "frozen by its guardian"},
		{terms.NoDebits, "nothing may be taken"}, {terms.NoCredits, "nothing may be given"}} {
		if each.is {
			rows.add("terms", each.text)
		}
	}
	if terms.Guardian != "" {
		rows.add("guardian", string(terms.Guardian))
	}
	for i := range terms.Limits {
		limit := &terms.Limits[i]
		var parts []string
		if limit.Floor != nil {
			parts = append(parts, "at least "+shown(*limit.Floor, limit.Asset))
		}
		if limit.Ceiling != nil {
			parts = append(parts, "at most "+shown(*limit.Ceiling, limit.Asset))
		}
		if v := limit.Velocity; v != nil {
			parts = append(parts, fmt.Sprintf("at most %s taken within %s",
				shown(v.Amount, limit.Asset), time.Duration(v.Seconds)*time.Second))
		}
		rows.add("limit", fmt.Sprintf("%s: %s", limit.Asset, strings.Join(parts, ", ")))
	}
	for i := range terms.Metadata {
		m := &terms.Metadata[i]
		rows.add("label", sanitize(m.Key+"="+m.Value, 0))
	}
}
