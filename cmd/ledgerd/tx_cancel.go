package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Outcomes of ledgerd tx cancel, for a transaction and for a shard.
const (
	outcomeCancelled = "cancelled"
	outcomeTooLate   = "too late"
	outcomeUndecided = "undecided"
	outcomeUnknown   = "unknown"
)

// lastAnswer bounds a question after the time of a command is over.
const lastAnswer = 2 * time.Second

// cancelReport is what ledgerd tx cancel --json prints.
type cancelReport struct {
	ID      string              `json:"id"`
	Outcome string              `json:"outcome"` // cancelled, too late or undecided
	Shards  []shardCancelReport `json:"shards"`
	// WaitsFor are the shards that decide, if the outcome is undecided.
	WaitsFor []uint32 `json:"waits_for,omitempty"`
}

// shardCancelReport is what came of it in one shard.
type shardCancelReport struct {
	Shard uint32 `json:"shard"`
	// Outcome has the same words: undecided means that the shard has agreed. It is unknown if the
	// shard gave no answer, or if that of another shard was enough.
	Outcome      string `json:"outcome"`
	Cancellation string `json:"cancellation,omitempty"`
	Height       uint64 `json:"height,omitempty"` // the block with the cancellation
	Reason       string `json:"reason,omitempty"`
}

// txCancelOptions are the flags of ledgerd tx cancel.
type txCancelOptions struct {
	remote   remoteOptions
	keys     keyringOptions
	deadline string
	signer   string
	shards   []uint
	json     bool
}

// newTxCancelCommand returns the `ledgerd tx cancel` command.
func newTxCancelCommand() *cobra.Command {
	var options txCancelOptions
	command := &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a transaction that a shard has not executed yet",
		Long: `Cancel a transaction that a shard has not executed yet.

An organisation that has to sign a transaction may cancel it, if it has a deadline
and the chain has version 5. The command cancels it at each shard that it
concerns, with the organisation's key in the keyring. A shard that has not executed
the transaction remembers this until the deadline, and will refuse it. One such
shard is enough. A shard that has agreed to the transaction cannot go back: the
others decide. The command says one of:

  cancelled   the transaction takes effect nowhere
  too late    it took effect
  undecided   the shards that answer have agreed, and the others decide. Run the
              command again once they answer

The exit status is 0 only if it is cancelled.

If no shard has the transaction yet, its content is not known: name the deadline
(or a later one), the shards that it concerns and the organisation. To do the same
with several keys of an organisation, make the cancellation with ledgerd tx post
--out, and sign it with ledgerd tx submit --sign.`,
		Example: `  ledgerd tx cancel 6a0c9f…
  ledgerd tx cancel 6a0c9f… --deadline 24h --shard 1,2 --signer acme`,
		Args:              cobra.ExactArgs(1),
		RunE:              options.run,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	options.remote.bind(command, false)
	options.keys.bind(command)
	flags := command.Flags()
	flags.StringVar(&options.deadline, "deadline", "", "the transaction's deadline, or a later "+
		"time: such as 2026-01-31T12:00:00Z, or how long from now, such as 24h (default as the "+
		"nodes know it)")
	flags.UintSliceVar(&options.shards, "shard", nil, "shards to cancel it at (default those that "+
		"it concerns, as the nodes know them)")
	flags.StringVar(&options.signer, "signer", "",
		"organisation that cancels (default the one that submitted it)")
	addJSONFlag(command, &options.json)
	completeFlag(command, "signer", keyCompletion(&options.keys))
	return command
}

func (o *txCancelOptions) run(command *cobra.Command, arguments []string) error {
	id, err := ledger.ParseHash(arguments[0])
	if err != nil {
		return usagef("transaction id %q: %w", arguments[0], err)
	}
	deadline, err := parseDeadline(o.deadline, time.Now())
	if err != nil {
		return err
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	known, err := nodes.Transaction(ctx, id)
	if err != nil && client.CodeOf(err) != connect.CodeNotFound {
		return err
	}
	cancelling := cancelling{nodes: nodes, id: id, deadline: deadline,
		signer: ledger.OrganisationName(o.signer)}
	for _, shard := range o.shards {
		cancelling.shards = append(cancelling.shards, ledger.ShardID(shard))
	}
	if err := cancelling.complete(ctx, known); err != nil {
		return err
	}
	ring, err := o.keys.open()
	if err != nil {
		return err
	}
	if cancelling.key, err = ring.Load(cancelling.signer); err != nil {
		return err
	}
	report := cancelling.run(ctx)
	if o.json {
		return errors.Join(writeJSON(command.OutOrStdout(), report), report.failure())
	}
	return errors.Join(report.write(command), report.failure())
}

// cancelling is the cancellation of one transaction at several shards.
type cancelling struct {
	nodes    *client.Client
	id       ledger.Hash
	deadline ledger.Milliseconds
	signer   ledger.OrganisationName
	key      client.Key
	shards   []ledger.ShardID
}

// complete fills in what the flags leave out from what the nodes know of the transaction, which may
// be nothing.
func (c *cancelling) complete(ctx context.Context, known *ledgerdv1.Transaction) error {
	body := known.GetBody()
	if body != nil && body.GetDeadline() == 0 {
		return fmt.Errorf("transaction %s has no deadline, and only those that have one can be "+
			"cancelled", c.id)
	}
	if c.deadline == 0 {
		c.deadline = ledger.Milliseconds(body.GetDeadline())
	}
	if c.signer == "" {
		c.signer = ledger.OrganisationName(body.GetSigner())
	}
	if len(c.shards) == 0 && body != nil {
		for _, shard := range known.GetStatus().GetDestinations() {
			c.shards = append(c.shards, ledger.ShardID(shard))
		}
		if len(c.shards) == 0 {
			c.shards = []ledger.ShardID{ledger.ShardID(known.GetStatus().GetShard())}
		}
	}
	if len(c.shards) == 0 {
		cluster, err := c.nodes.Cluster(ctx)
		if err != nil {
			return err
		}
		if len(cluster.GetBook()) == 0 {
			c.shards = []ledger.ShardID{0}
		}
	}
	if c.deadline == 0 || c.signer == "" || len(c.shards) == 0 {
		return usagef("no chain has transaction %s yet: name its --deadline, the --signer, and "+
			"each --shard that it concerns", c.id)
	}
	return nil
}

// run cancels the transaction at all shards at once. It waits until one says that the transaction
// is cancelled or took effect, or until all have answered and the transaction is decided.
func (c *cancelling) run(ctx context.Context) *cancelReport {
	report := &cancelReport{ID: c.id.String(), Outcome: outcomeUndecided,
		Shards: make([]shardCancelReport, len(c.shards))}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		place     int
		cancelled *client.Cancelled
		err       error
	}
	answers := make(chan answer, len(c.shards))
	for i, shard := range c.shards {
		report.Shards[i] = shardCancelReport{Shard: uint32(shard), Outcome: outcomeUnknown}
		go func() {
			cancelled, err := c.nodes.Cancel(ctx, []client.Key{c.key}, c.id, c.deadline, shard)
			answers <- answer{i, cancelled, err}
		}()
	}
	for range c.shards {
		got := <-answers
		at := &report.Shards[got.place]
		if got.err != nil {
			if report.Outcome == outcomeUndecided {
				at.Reason = strings.ReplaceAll(got.err.Error(), "\n", "; ")
			}
			continue
		}
		at.fill(got.cancelled)
		if at.Outcome == outcomeCancelled || at.Outcome == outcomeTooLate {
			report.Outcome = at.Outcome
			cancel() // the others can add nothing
		}
	}
	if report.Outcome == outcomeUndecided {
		c.await(ctx, report)
	}
	return report
}

// fill records the answer of a shard.
func (r *shardCancelReport) fill(cancelled *client.Cancelled) {
	r.Cancellation, r.Height = cancelled.ID.String(), cancelled.Status.GetHeight()
	switch cancelled.Withdrawn() {
	case client.WithdrawnInTime:
		r.Outcome = outcomeCancelled
	case client.WithdrawnTooLate:
		r.Outcome = outcomeTooLate
	case client.WithdrawnUndecided:
		r.Outcome = outcomeUndecided
	case client.WithdrawnUnknown:
		r.Reason = cancelled.Status.GetReason()
	}
}

// await waits for the decision on a transaction that some shards have agreed to.
func (c *cancelling) await(ctx context.Context, report *cancelReport) {
	if !slices.ContainsFunc(report.Shards, func(s shardCancelReport) bool {
		return s.Outcome == outcomeUndecided
	}) {
		return // no shard that answers has it
	}
	known, err := c.nodes.Wait(ctx, c.id, ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil { // the time is over: say at least what is waited for
		last, done := context.WithTimeout(context.WithoutCancel(ctx), lastAnswer)
		defer done()
		known, err = c.nodes.Transaction(last, c.id)
	}
	status := known.GetStatus()
	switch state := status.GetState(); {
	case state == ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED:
		report.Outcome = outcomeCancelled
	case err == nil && client.Reached(status, ledgerdv1.Level_LEVEL_DURABLE):
		report.Outcome = outcomeTooLate
	default:
		report.WaitsFor = status.GetWaitsFor()
	}
}

// failure returns an error unless the transaction is cancelled.
func (r *cancelReport) failure() error {
	switch r.Outcome {
	case outcomeCancelled:
		return nil
	case outcomeTooLate:
		return errors.New("too late: it took effect")
	}
	var agreed []uint32
	for i := range r.Shards {
		if r.Shards[i].Outcome == outcomeUndecided {
			agreed = append(agreed, r.Shards[i].Shard)
		}
	}
	if len(agreed) == 0 {
		return fmt.Errorf("not cancelled: no shard took the cancellation (%s)", r.Shards[0].Reason)
	}
	if len(r.WaitsFor) == 0 {
		return fmt.Errorf("too late at %s, which has agreed; it awaits the others' verdicts",
			client.ShardNames(agreed))
	}
	return fmt.Errorf("too late at %s, which has agreed; it awaits the verdict of %s",
		client.ShardNames(agreed), client.ShardNames(r.WaitsFor))
}

func (r *cancelReport) write(command *cobra.Command) error {
	rows := table{}
	rows.add("transaction", r.ID)
	rows.add("outcome", map[string]string{
		outcomeCancelled: "cancelled: it takes effect nowhere",
		outcomeTooLate:   "too late: it took effect",
		outcomeUndecided: "undecided",
	}[r.Outcome])
	out := command.OutOrStdout()
	if err := rows.write(out); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	shards := table{header: []string{"SHARD", "OUTCOME", "CANCELLATION", ""},
		right: []bool{true, false, false}}
	for i := range r.Shards {
		each := &r.Shards[i]
		words := each.Outcome
		switch {
		case words == outcomeUndecided:
			words = "too late: agreed"
		case words == outcomeUnknown && each.Reason == "": // another shard's answer was enough
			words = "-"
		}
		cancellation := each.Cancellation
		if cancellation == "" {
			cancellation = "-"
		}
		shards.add(fmt.Sprint(each.Shard), words, cancellation, sanitize(each.Reason, 0))
	}
	return shards.write(out)
}
