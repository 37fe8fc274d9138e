package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// holdReport is a hold, as --json prints it. Amounts are exact integers in the smallest unit, as
// text, with the decimal form beside them.
type holdReport struct {
	ID            string   `json:"id"`
	State         string   `json:"state"`
	Account       string   `json:"account"`
	Asset         string   `json:"asset"`
	Amount        string   `json:"amount"`
	AmountDecimal string   `json:"amount_decimal,omitempty"`
	To            []string `json:"to"`
	Poster        string   `json:"poster"`
	ExpiresMS     uint64   `json:"expires_ms"`
	// Ending is the transaction that is about to end it and waits for other shards.
	Ending        string `json:"ending,omitempty"`
	Posted        string `json:"posted,omitempty"`
	PostedDecimal string `json:"posted_decimal,omitempty"`
	// EndedBy is the transaction that ended it.
	EndedBy string `json:"ended_by,omitempty"`
	Shard   uint32 `json:"shard"`

	decimals int
}

func reportHold(open *ledgerdv1.OpenHold) holdReport {
	hold, count := open.GetHold(), int(open.GetDecimals())
	asset := hold.GetAsset()
	if asset == "" {
		asset = string(ledger.DefaultAsset)
	}
	state := client.HoldOpen
	if open.GetEndingHex() != "" {
		state = client.HoldEnding
	}
	return holdReport{ID: open.GetHoldHex(), State: string(state), Account: hold.GetAccount(),
		Asset: asset, Amount: hold.GetAmount(), AmountDecimal: decimalForm(hold.GetAmount(), count),
		To: hold.GetTo(), Poster: hold.GetPoster(), ExpiresMS: hold.GetExpiresMs(),
		Ending: open.GetEndingHex(), Posted: open.GetPosted(),
		PostedDecimal: decimalForm(open.GetPosted(), count), Shard: open.GetShard(),
		decimals: count}
}

// reportOutcome says how a hold stands or ended.
func reportOutcome(ctx context.Context, nodes *client.Client,
	outcome *client.HoldOutcome) (holdReport, error) {
	report := reportHold(outcome.Hold)
	report.State, report.EndedBy = string(outcome.State), outcome.EndedBy
	if outcome.State == client.HoldOpen || outcome.State == client.HoldEnding {
		return report, nil
	}
	var err error
	report.decimals, err = newDecimals(nodes).of(ctx, ledger.AssetName(report.Asset))
	if err != nil {
		return report, err
	}
	report.AmountDecimal = decimalForm(report.Amount, report.decimals)
	if outcome.Posted.Sign() > 0 {
		report.Posted = outcome.Posted.String()
		report.PostedDecimal = decimalForm(report.Posted, report.decimals)
	}
	return report, nil
}

// state says how the hold stands or ended, in words.
func (r *holdReport) state() string {
	switch client.HoldState(r.State) {
	case client.HoldPending:
		return "pending: its transaction is in no block yet"
	case client.HoldFailed:
		return "failed: it was never placed; ledgerd tx status " + r.ID + " says why"
	case client.HoldPostedInPart:
		return "posted in part: what was left is free again"
	case client.HoldVoided:
		return "voided: the poster gave it up, and the amount is free again"
	case client.HoldExpired:
		return "expired: nobody posted it in time, and the amount is free again"
	case client.HoldUnknown:
		return "not open; how it ended was not found: ledgerd account history " + r.Account +
			" tells"
	}
	return r.State
}

// write shows the hold to people.
func (r *holdReport) write(out io.Writer) error {
	rows := table{}
	rows.add("hold", r.ID)
	rows.add("state", r.state())
	rows.add("account", r.Account)
	rows.add("amount", withDecimals(r.Amount, r.decimals)+" "+r.Asset)
	rows.add("to", strings.Join(r.To, ", "))
	rows.add("poster", r.Poster)
	rows.add("expires", moment(r.ExpiresMS))
	if r.EndedBy != "" {
		if r.Posted != "" {
			rows.add("posted", withDecimals(r.Posted, r.decimals)+" "+r.Asset)
		}
		rows.add("ended by", r.EndedBy)
	}
	if r.Ending != "" {
		what := "voids it"
		if r.Posted != "" {
			what = "posts " + withDecimals(r.Posted, r.decimals)
		}
		rows.add("ending", fmt.Sprintf("transaction %s %s, and waits for other shards", r.Ending,
			what))
	}
	return rows.write(out)
}

// newHoldCommand returns the `ledgerd hold` command.
func newHoldCommand() *cobra.Command {
	return newGroupCommand(&cobra.Command{
		Use:   "hold",
		Short: "Set amounts aside, and post, void or list them",
		Long: `Set amounts aside, and post, void or list them.

A hold promises an amount of an account to others: a hotel's deposit, a card that is
authorised, the price of an order that is not shipped yet. The amount stays in the
account and cannot be spent. A hold ends exactly once:

  posted   the poster moves all of it, or a part, to accounts that the hold names.
           What is left is free again
  voided   the poster gives it up
  expired  its time is over; the next block sets it free

The poster is one organisation, by default that of the account it is for. The holder
cannot take a hold back before it expires: that is what the other side relies on. The
id of a hold is that of the transaction that placed it. All of this works across
shards, from version 9 of the chains on (ledgerd cluster upgrade).`,
		Example: `  ledgerd hold place acme:cash 120.00 EUR --to hotel:deposits --expires 72h
  ledgerd hold list --poster hotel
  ledgerd hold post 5d0c6a… 80.00
  ledgerd hold void 5d0c6a…`,
	}, newHoldPlaceCommand(), newHoldPostCommand(), newHoldVoidCommand(), newHoldShowCommand(),
		newHoldListCommand())
}

// newHoldPlaceCommand returns the `ledgerd hold place` command.
func newHoldPlaceCommand() *cobra.Command {
	var options postOptions
	var to []string
	var poster, expires, note string
	command := &cobra.Command{
		Use:   "place ACCOUNT AMOUNT [ASSET]",
		Short: "Hold an amount of an account for others",
		Long: `Hold an amount of an account for others. The account's organisation signs.

--to names the accounts that the hold may be posted to, at most 16. They may be of other
organisations and in other shards. Unless --poster names another organisation, the one
of these accounts may post or void it.

The hold ends by itself when it expires, at most 400 days ahead. The amount is written
with all decimals of the asset, as in ledgerd tx transfer.

The command prints the id of the transaction: it is that of the hold.`,
		Example: `  ledgerd hold place acme:cash 120.00 EUR --to hotel:deposits --expires 72h
  ledgerd hold place acme:cash 50 --to shop:a,shop:b --poster escrow \
                     --expires 2026-12-31T12:00:00Z --note "order 7"`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(command *cobra.Command, arguments []string) error {
			hold, err := parseHold(arguments, to, poster, expires, time.Now())
			if err != nil {
				return err
			}
			if hold.Amount, err = options.parse(command, arguments[1], hold.Asset); err != nil {
				return err
			}
			if err := hold.Validate(); err != nil {
				return asUsage(err)
			}
			transaction := client.PlaceHold(hold)
			transaction.Note = []byte(note)
			return options.post(command, []ledger.OrganisationName{hold.From.Organisation()},
				transaction)
		},
		ValidArgsFunction: accountCompletion(&options.remote, 1),
	}
	flags := command.Flags()
	flags.StringSliceVar(&to, "to", nil, "accounts that it may be posted to (may be given again)")
	flags.StringVar(&poster, "poster", "", "the organisation that may post or void it (default "+
		"that of the accounts of --to)")
	flags.StringVar(&expires, "expires", "168h", "when it ends by itself: a time such as "+
		"2026-01-31T12:00:00Z, or how long from now, such as 72h")
	flags.StringVar(&note, "note", "", "a note, kept in the transaction")
	options.bind(command)
	bindDryRun(command, &options.dry)
	completeFlag(command, "to", accountCompletion(&options.remote, 1))
	return command
}

// parseHold parses the arguments and flags of ledgerd hold place, but for the amount.
func parseHold(arguments, to []string, poster, expires string, now time.Time) (hold ledger.Hold,
	err error) {
	if hold.From, err = parseAccount(arguments[0]); err != nil {
		return hold, err
	}
	asset := ""
	if len(arguments) > 2 {
		asset = arguments[2]
	}
	if hold.Asset, err = parseAsset(asset); err != nil {
		return hold, err
	}
	if len(to) == 0 {
		return hold, usagef("--to is missing: name the accounts that the hold may be posted to")
	}
	for _, text := range to {
		path, err := parseAccount(text)
		if err != nil {
			return hold, err
		}
		hold.To = append(hold.To, path)
	}
	slices.Sort(hold.To)
	hold.To = slices.Compact(hold.To)
	hold.Poster = hold.To[0].Organisation()
	switch {
	case poster != "":
		if hold.Poster, err = parseOrganisation(poster); err != nil {
			return hold, err
		}
	case slices.ContainsFunc(hold.To, func(path ledger.AccountPath) bool {
		return path.Organisation() != hold.Poster
	}):
		return hold, usagef("the accounts of --to are of several organisations: name the one " +
			"that may post the hold with --poster")
	}
	if hold.Expires, err = parseDeadline(expires, now); err != nil || hold.Expires == 0 {
		return hold, usagef("--expires %q: name a time to come, such as 2026-01-31T12:00:00Z, or "+
			"how long from now, such as 72h", expires)
	}
	return hold, nil
}

// endOptions are the flags of the commands that end a hold.
type endOptions struct {
	postOptions
	note, deadline string
}

func (o *endOptions) bind(command *cobra.Command) {
	command.Flags().StringVar(&o.note, "note", "", "a note, kept in the transaction")
	bindDeadline(command, &o.deadline)
	o.postOptions.bind(command)
	bindDryRun(command, &o.dry)
	o.remote.bindQueue(command)
}

// end asks for the hold, and posts the transaction that ends it, with the poster's key. If the
// transaction believes what a node said of the hold, that has to be what its id is the hash of.
func (o *endOptions) end(command *cobra.Command, text string,
	transaction func(id ledger.Hash, open *ledgerdv1.OpenHold,
		hold *ledger.Hold) (ledger.Transaction, error), believes bool) error {
	id, err := parseHoldID(text)
	if err != nil {
		return err
	}
	deadline, err := parseDeadline(o.deadline, time.Now())
	if err != nil {
		return err
	}
	level, err := parseLevel(o.wait)
	if err != nil {
		return err
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	open, hold, err := findHold(ctx, nodes, id)
	if err != nil {
		return err
	}
	ends, err := transaction(id, open, hold)
	if err != nil {
		return err
	}
	if believes {
		if err := placedSo(ctx, nodes, id, hold); err != nil {
			return err
		}
	}
	ends.Note, ends.Deadline = []byte(o.note), deadline
	keys, err := o.load([]ledger.OrganisationName{hold.Poster})
	if err != nil {
		return fmt.Errorf("the poster of the hold, %s, signs: %w", hold.Poster, err)
	}
	return o.postWith(ctx, command, nodes, keys, ends, level)
}

// parseHoldID parses the id of a hold.
func parseHoldID(text string) (ledger.Hash, error) {
	id, err := ledger.ParseHash(text)
	if err != nil {
		return id, usagef("hold %.80q: %w: the id of a hold is that of the transaction that "+
			"placed it (ledgerd hold list)", text, err)
	}
	return id, nil
}

// findHold returns a hold that is open.
func findHold(ctx context.Context, nodes *client.Client, id ledger.Hash) (*ledgerdv1.OpenHold,
	*ledger.Hold, error) {
	open, err := nodes.Hold(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	hold, err := client.TermsOfHold(open)
	return open, hold, err
}

// placedSo returns an error unless the transaction with the id of a hold placed it with these
// terms. A node that lies could say that less is held, or leave out accounts that it may be posted
// to, and the chain would take such a posting.
func placedSo(ctx context.Context, nodes *client.Client, id ledger.Hash, hold *ledger.Hold) error {
	const instead = "name AMOUNT and --to ACCOUNT to post it nevertheless"
	answer, err := nodes.Proof(ctx, id)
	if err != nil {
		return fmt.Errorf("proving what the hold says: %w: %s", err, instead)
	}
	proof, err := ledger.DecodeProof(answer.GetEncoded())
	if err == nil {
		err = ledger.VerifyProof(proof)
	}
	if err != nil || proof.ID != id {
		return fmt.Errorf("the node proves nothing about the hold: %s", errors.Join(err,
			errors.New(instead)))
	}
	placed, err := ledger.DecodeBody(proof.Body)
	if err != nil || placed.Hold == nil || !reflect.DeepEqual(placed.Hold, hold) {
		return fmt.Errorf("the node does not tell the truth about hold %s: ask another one", id)
	}
	return nil
}

// newHoldPostCommand returns the `ledgerd hold post` command.
func newHoldPostCommand() *cobra.Command {
	var options endOptions
	var to []string
	command := &cobra.Command{
		Use:   "post HOLD [AMOUNT]",
		Short: "Move what is held, or a part of it, and end the hold",
		Long: `Move what is held, or a part of it, to the accounts that the hold is for, and end it.
The hold's poster signs. Without an amount all of it moves. What does not move is free
again in the account of the hold.

If the hold names several accounts, --to says which of them gets it. Given as
ACCOUNT=AMOUNT, and more than once, it divides the amount.

Where the hold and the accounts are in several shards, all of it happens or nothing, and
the hold goes on if one of the shards refuses.`,
		Example: `  ledgerd hold post 5d0c6a…
  ledgerd hold post 5d0c6a… 80.00
  ledgerd hold post 5d0c6a… --to shop:sales=70.00 --to shop:fees=1.50`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(command *cobra.Command, arguments []string) error {
			return options.end(command, arguments[0], func(id ledger.Hash,
				open *ledgerdv1.OpenHold, hold *ledger.Hold) (ledger.Transaction, error) {
				amount := ""
				if len(arguments) > 1 {
					amount = arguments[1]
				}
				postings, err := shares(hold, int(open.GetDecimals()), amount, to)
				if err != nil {
					return ledger.Transaction{}, err
				}
				ends, err := client.PostHold(id, hold, postings...)
				if err != nil {
					return ends, usagef("%w", err)
				}
				return ends, nil
			}, len(to) == 0 || len(arguments) == 1 && !strings.Contains(to[0], "="))
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	command.Flags().StringArrayVar(&to, "to", nil, "the account that gets it, or ACCOUNT=AMOUNT "+
		"(may be given again)")
	options.bind(command)
	completeFlag(command, "to", accountCompletion(&options.remote, 1))
	return command
}

// shares returns the postings that give what a hold is posted for.
func shares(hold *ledger.Hold, count int, amount string, to []string) ([]ledger.Posting, error) {
	parse := func(text string) (ledger.Amount, error) {
		sum, err := parseFull(text, count, string(hold.Asset))
		if err != nil {
			return sum, usagef("amount %q: %w", text, err)
		}
		if sum.Sign() <= 0 {
			return sum, usagef("amount %s: it has to be above zero; ledgerd hold void gives the "+
				"hold up", text)
		}
		return sum, nil
	}
	whole := hold.Amount
	if amount != "" {
		var err error
		if whole, err = parse(amount); err != nil {
			return nil, err
		}
	}
	if len(to) == 0 && len(hold.To) == 1 {
		return []ledger.Posting{{Account: hold.To[0], Asset: hold.Asset, Amount: whole}}, nil
	}
	if len(to) == 0 {
		return nil, usagef("the hold may be posted to %d accounts: choose with --to one of %v",
			len(hold.To), hold.To)
	}
	var postings []ledger.Posting
	for _, text := range to {
		name, share, divided := strings.Cut(text, "=")
		path, err := parseAccount(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(hold.To, path) {
			return nil, usagef("the hold cannot be posted to %s, only to %v", path, hold.To)
		}
		posting := ledger.Posting{Account: path, Asset: hold.Asset, Amount: whole}
		switch {
		case divided && amount != "":
			return nil, usagef("--to %s: give the amounts with --to or after the hold, not both",
				text)
		case !divided && len(to) > 1:
			return nil, usagef("--to %s: say how much it gets: --to %s=AMOUNT", text, name)
		case divided:
			if posting.Amount, err = parse(share); err != nil {
				return nil, err
			}
		}
		postings = append(postings, posting)
	}
	return postings, nil
}

// newHoldVoidCommand returns the `ledgerd hold void` command.
func newHoldVoidCommand() *cobra.Command {
	var options endOptions
	command := &cobra.Command{
		Use:   "void HOLD",
		Short: "Give a hold up, so that its amount is free again",
		Long: `Give a hold up, so that its amount is free again. The hold's poster signs: the holder
cannot take it back, and waits until it expires.`,
		Example: `  ledgerd hold void 5d0c6a… --note "order cancelled"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return options.end(command, arguments[0], func(id ledger.Hash, _ *ledgerdv1.OpenHold,
				hold *ledger.Hold) (ledger.Transaction, error) {
				return client.VoidHold(id, hold), nil
			}, false)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.bind(command)
	return command
}

// newHoldShowCommand returns the `ledgerd hold show` command.
func newHoldShowCommand() *cobra.Command {
	var remote remoteOptions
	var asJSON bool
	command := &cobra.Command{
		Use:   "show HOLD",
		Short: "Show a hold, or how it ended",
		Long: `Show a hold: what it holds, for whom, and until when, or how it ended.

Of a hold that ended, the command looks for the transaction that did it, from the block
of the hold on. If the nodes do not have these blocks any more, or if there are too many
to look at, the state is unknown; then ledgerd account history shows what was posted.

With --json, amounts are exact integers in the smallest unit, as text. Fields: id, state
(open, ending, posted, posted_in_part, voided, expired, failed, pending or unknown),
account, asset, amount, amount_decimal, to, poster, expires_ms, ending, posted,
posted_decimal, ended_by, and shard: where it is, or was placed.`,
		Example: `  ledgerd hold show 5d0c6a…
  ledgerd hold show 5d0c6a… --json | jq -r .amount`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			id, err := parseHoldID(arguments[0])
			if err != nil {
				return err
			}
			nodes, ctx, done, err := remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			outcome, err := nodes.HoldOutcome(ctx, id)
			if err != nil {
				return err
			}
			report, err := reportOutcome(ctx, nodes, outcome)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(), report)
			}
			return report.write(command.OutOrStdout())
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	remote.bind(command, false)
	addJSONFlag(command, &asJSON)
	return command
}

// newHoldListCommand returns the `ledgerd hold list` command.
func newHoldListCommand() *cobra.Command {
	var remote remoteOptions
	var organisation, account, poster string
	var limit int
	var asJSON bool
	command := &cobra.Command{
		Use:   "list",
		Short: "List the holds that are open",
		Long: `List the holds that are open, of all shards, in the order of their ids.

With --json, holds are as ledgerd hold show prints them, and more says that the limit
left some out.`,
		Example: `  ledgerd hold list --organisation acme
  ledgerd hold list --account acme:cash
  ledgerd hold list --poster hotel --limit 0 --json`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			for _, each := range []string{organisation, poster} {
				if _, err := parseOrganisation(each); each != "" && err != nil {
					return err
				}
			}
			if _, err := parseAccount(account); account != "" && err != nil {
				return err
			}
			nodes, ctx, done, err := remote.connect(command.Context())
			if err != nil {
				return err
			}
			defer done()
			holds, more, err := take(nodes.Holds(ctx, &ledgerdv1.ListHoldsRequest{
				Organisation: organisation, Account: account, Poster: poster}), limit)
			if err != nil {
				return err
			}
			reports := make([]holdReport, len(holds))
			rows := table{header: []string{"HOLD", "ACCOUNT", "AMOUNT", "ASSET", "POSTER",
				"EXPIRES", ""}, right: []bool{false, false, true}}
			for i, open := range holds {
				reports[i] = reportHold(open)
				r, remark := &reports[i], ""
				if r.Ending != "" {
					remark = "ending"
				}
				rows.add(r.ID, r.Account, withDecimals(r.Amount, r.decimals), r.Asset, r.Poster,
					moment(r.ExpiresMS), remark)
			}
			if asJSON {
				return writeJSON(command.OutOrStdout(), map[string]any{"holds": reports,
					"more": more})
			}
			return writeList(command.OutOrStdout(), &rows, more, "no such holds are open")
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := command.Flags()
	flags.StringVar(&organisation, "organisation", "", "those on accounts of this organisation")
	flags.StringVar(&account, "account", "", "those on this account")
	flags.StringVar(&poster, "poster", "", "those that this organisation may post")
	remote.bind(command, false)
	bindLimit(command, &limit, 100)
	addJSONFlag(command, &asJSON)
	completeFlag(command, "account", accountCompletion(&remote, 1))
	return command
}
