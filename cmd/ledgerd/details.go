package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
)

// detailOptions are the flags of what an entry says of itself beyond its postings.
type detailOptions struct{ effective, key, refundable string }

func (o *detailOptions) bind(command *cobra.Command) {
	o.bindDate(command)
	command.Flags().StringVar(&o.refundable, "refundable", "", "until when the entry can be "+
		"refunded: a time such as 2026-01-31T12:00:00Z, or how long from now, such as 720h")
}

// bindDate binds the flags without the one for refunds, which cannot be refunded.
func (o *detailOptions) bindDate(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&o.effective, "effective-date", "",
		"the date that the entry counts for, such as 2026-01-31 or 2026-01-31T12:00:00Z")
	flags.StringVar(&o.key, "idempotency-key", "", "a text of yours: of the signer's entries with "+
		"it at most one takes effect within 7 days")
}

// over returns the flags, and what a file says where there is no flag.
func (o detailOptions) over(file detailOptions) detailOptions {
	return detailOptions{cmp.Or(o.effective, file.effective), cmp.Or(o.key, file.key),
		cmp.Or(o.refundable, file.refundable)}
}

// nameKeyHolder adds to the outcome of an entry whose idempotency key is taken which entry has it.
// No answer is no failure: the outcome is known without it.
func (r *statusReport) nameKeyHolder(ctx context.Context, nodes *client.Client,
	of ledger.OrganisationName, key string) {
	if r.ReasonCode != api.ReasonCode(ledger.KeyTaken) || of == "" || key == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keyHolderPatience)
	defer cancel()
	if has, err := nodes.Key(ctx, of, key); err == nil && has.GetEntryHex() != r.ID {
		r.KeyHolder, r.KeyWaits = has.GetEntryHex(), has.GetWaits()
	}
}

// keyHolderPatience is how long a command waits for the answer to which entry has a key.
const keyHolderPatience = 5 * time.Second

// details adds what the flags say to a transaction.
func (o *detailOptions) details(t *ledger.Transaction, now time.Time) error {
	if *o == (detailOptions{}) {
		return nil
	}
	if t.Details == nil {
		t.Details = &ledger.Details{}
	}
	if o.effective != "" {
		date, err := time.Parse(time.DateOnly, o.effective)
		if err != nil {
			date, err = time.Parse(time.RFC3339, o.effective)
		}
		effective := ledger.Milliseconds(date.UnixMilli())
		if err != nil || effective <= 0 || effective > ledger.MaxEffective {
			return usagef("effective date %q: write one after 1970, such as 2026-01-31 or "+
				"2026-01-31T12:00:00Z", o.effective)
		}
		t.Details.Effective = effective
	}
	if o.key != "" && !ledger.ValidIdempotencyKey(o.key) {
		return usagef("idempotency key %q: 1 to %d characters of printable ASCII", o.key,
			ledger.MaxIdempotencyKey)
	}
	t.Details.Key = o.key
	var err error
	if t.Details.Refundable, err = parseDeadline(o.refundable, now); err != nil {
		return usagef("refundable %q: name a time to come, such as 2026-01-31T12:00:00Z, or how "+
			"long from now, such as 720h", o.refundable)
	}
	return nil
}

// refundOptions are the flags of ledgerd tx refund and ledgerd tx reverse.
type refundOptions struct {
	postOptions
	detailOptions
	note, deadline string
}

func (o *refundOptions) bind(command *cobra.Command) {
	command.Flags().StringVar(&o.note, "note", "", "a note, kept in the transaction")
	bindDeadline(command, &o.deadline)
	o.detailOptions.bindDate(command)
	o.postOptions.bind(command)
	o.remote.bindQueue(command)
}

// refund asks for an entry, and posts the transaction that refunds it.
func (o *refundOptions) refund(command *cobra.Command, text string,
	make func(ctx context.Context, nodes *client.Client, entry ledger.Hash,
		posted *ledger.Transaction) (ledger.Transaction, error)) error {
	entry, err := ledger.ParseHash(text)
	if err != nil {
		return usagef("entry %.80q: %w: name the id of a transaction", text, err)
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
	posted, err := entryOf(ctx, nodes, entry)
	if err != nil {
		return err
	}
	refund, err := make(ctx, nodes, entry, posted)
	if err != nil {
		return err
	}
	refund.Note = []byte(o.note)
	if refund.Deadline, err = parseDeadline(o.deadline, time.Now()); err != nil {
		return err
	}
	if err := o.details(&refund, time.Now()); err != nil {
		return err
	}
	keys, err := o.load(signersOf(&refund))
	if err != nil {
		return fmt.Errorf("those that give something back sign: %w", err)
	}
	return o.postWith(ctx, command, nodes, keys, refund, level)
}

// entryOf returns an entry that can be refunded. What a node says of it has to be what its id is
// the hash of.
func entryOf(ctx context.Context, nodes *client.Client, id ledger.Hash) (*ledger.Transaction,
	error) {
	answer, err := nodes.Transaction(ctx, id)
	if err != nil {
		return nil, err
	}
	posted, err := ledger.DecodeBody(answer.GetCanonical())
	if err != nil || ledger.TransactionID(answer.GetCanonical()) != id {
		return nil, fmt.Errorf("the node does not show transaction %s: ask another one", id)
	}
	if posted.Details == nil || posted.Details.Refundable == 0 {
		return nil, fmt.Errorf("transaction %s cannot be refunded: it was not posted with "+
			"--refundable; post another one that gives the amounts back", id)
	}
	return posted, nil
}

// newTxRefundCommand returns the `ledgerd tx refund` command.
func newTxRefundCommand() *cobra.Command {
	var options refundOptions
	command := &cobra.Command{
		Use:   "refund ENTRY AMOUNT",
		Short: "Give back a part of an entry",
		Long: `Give back a part of an entry that was posted with --refundable.

The entry is one with two postings, such as a transfer; of others, reverse all or
use ledgerd tx post. Those that received the amount sign. All refunds of an entry
together never exceed it, whichever shards its accounts are in.`,
		Example: `  ledgerd tx transfer acme:cash shop:till 120.00 EUR --refundable 720h
  ledgerd tx refund 5d0c6a… 20.00`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, arguments []string) error {
			return options.refund(command, arguments[0], func(ctx context.Context,
				nodes *client.Client, entry ledger.Hash, posted *ledger.Transaction) (
				ledger.Transaction, error) {
				if len(posted.Postings) != 2 {
					return ledger.Transaction{}, fmt.Errorf("the entry has %d postings: reverse "+
						"all of it with `ledgerd tx reverse`", len(posted.Postings))
				}
				back := slices.Clone(posted.Postings)
				slices.SortFunc(back, func(a, b ledger.Posting) int {
					return b.Amount.Compare(a.Amount) // the receiver first
				})
				refund := client.Refund(entry, posted.Signer, back...)
				sum, err := newDecimals(nodes).parse(ctx, arguments[1], back[0].Asset)
				if err == nil {
					err = setAmount(&refund, sum, arguments[1])
				}
				return refund, err
			})
		},
	}
	options.bind(command)
	return command
}

// newTxReverseCommand returns the `ledgerd tx reverse` command.
func newTxReverseCommand() *cobra.Command {
	var options refundOptions
	command := &cobra.Command{
		Use:   "reverse ENTRY",
		Short: "Give back all that is left of an entry",
		Long: `Give back all that is left of an entry that was posted with --refundable.

Those that received something sign. What was refunded before is not given back
again.`,
		Example: `  ledgerd tx reverse 5d0c6a…`,
		Args:    cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return options.refund(command, arguments[0], func(ctx context.Context,
				nodes *client.Client, entry ledger.Hash, posted *ledger.Transaction) (
				ledger.Transaction, error) {
				left, err := nodes.Refundable(ctx, entry, posted.Signer)
				if err != nil {
					return ledger.Transaction{}, err
				}
				return client.Reverse(entry, posted.Signer, left)
			})
		},
	}
	options.bind(command)
	return command
}
