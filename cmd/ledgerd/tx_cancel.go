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
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Outcomes of ledgerd tx cancel, for a transaction and for a shard.
const (
	outcomeCancelled = "cancelled"
	outcomeTooLate   = "too late"
	outcomeUndecided = "undecided"
	// outcomeRemembered: the cancellation is remembered, but nobody has shown that it concerns the
	// transaction.
	outcomeRemembered = "remembered"
	outcomeUnknown    = "unknown"
)

// lookUpShare is the part of a command's time that the first look-up may take if all flags are
// given.
const lookUpShare = 4

// untilDurable is the time between questions whether a block is durable.
const untilDurable = 50 * time.Millisecond

// lastAnswer bounds a question after the time of a command is over.
const lastAnswer = 2 * time.Second

// cancelReport is what ledgerd tx cancel --json prints.
type cancelReport struct {
	ID string `json:"id"`
	// Outcome is cancelled, too late, undecided, remembered or unknown.
	Outcome string              `json:"outcome"`
	Shards  []shardCancelReport `json:"shards"`
	// WaitsFor are the shards that decide, if the outcome is undecided.
	WaitsFor []uint32 `json:"waits_for,omitempty"`
	// Condition says when shards will refuse it, if the outcome is remembered.
	Condition string `json:"condition,omitempty"`
}

// shardCancelReport is what came of it in one shard.
type shardCancelReport struct {
	Shard uint32 `json:"shard"`
	// Outcome has the same words: undecided means that the shard has agreed. It is unknown if the
	// shard gave no answer or did not take the cancellation, or if the answer of another shard was
	// enough.
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
	file     string
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
  remembered  the shards will refuse it, but only on conditions, which the command
              names: no chain has the transaction, so its content is not known
  unknown     no shard is known to refuse it

The exit status is 0 only if it is cancelled.

If no chain has the transaction yet, give the command the signed file (--file), as
ledgerd tx post --out writes it. Without it, name the deadline (or a later one), the
shards that it concerns and the organisation: the best outcome is then "remembered".
A transaction that has no deadline, that the organisation need not sign or that does
not concern the shard takes effect all the same. To cancel with several keys of an
organisation, make the cancellation with ledgerd tx post --out, and sign it with
ledgerd tx submit --sign.`,
		Example: `  ledgerd tx cancel 6a0c9f…
  ledgerd tx cancel 6a0c9f… --file payment.tx
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
	flags.StringVar(&options.file, "file", "", "file with the signed transaction, which ledgerd "+
		"tx post --out wrote (- is the standard input)")
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
	signed, err := o.signed(command, id)
	if err != nil {
		return err
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	cancelling := cancelling{nodes: nodes, id: id, deadline: deadline,
		signer: ledger.OrganisationName(o.signer)}
	for _, shard := range o.shards {
		cancelling.shards = append(cancelling.shards, ledger.ShardID(shard))
	}
	slices.Sort(cancelling.shards)
	cancelling.shards = slices.Compact(cancelling.shards)
	if err := cancelling.lookUp(ctx, signed); err != nil {
		return err
	}
	if err := cancelling.complete(ctx); err != nil {
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

// signed returns the transaction with an id from the file that --file names, or nil without it.
func (o *txCancelOptions) signed(command *cobra.Command, id ledger.Hash) (*ledger.Transaction,
	error) {
	if o.file == "" {
		return nil, nil
	}
	content, err := readFile(command, o.file)
	if err != nil {
		return nil, err
	}
	bundle, err := parseBundle(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.file, err)
	}
	for i := range bundle.Len() {
		if bundle.ID(i) == id {
			return bundle.Transaction(i), nil
		}
	}
	return nil, usagef("--file %s does not have transaction %s", o.file, id)
}

// cancelling is the cancellation of one transaction at several shards.
type cancelling struct {
	nodes    *client.Client
	id       ledger.Hash
	deadline ledger.Milliseconds
	signer   ledger.OrganisationName
	key      client.Key
	shards   []ledger.ShardID
	// body is the transaction to cancel, as far as it takes to tell who consents to it and until
	// when, and concerned are shards that it concerns for certain. Body is nil if it is not known.
	body      *ledger.Transaction
	concerned []ledger.ShardID
}

// lookUp finds the transaction's content: in a chain, or else in the signed file, if there is one.
func (c *cancelling) lookUp(ctx context.Context, signed *ledger.Transaction) error {
	complete := c.deadline != 0 && c.signer != "" && len(c.shards) > 0
	asking := ctx
	if end, bounded := ctx.Deadline(); bounded && (complete || signed != nil) {
		var done context.CancelFunc
		asking, done = context.WithTimeout(ctx, time.Until(end)/lookUpShare)
		defer done()
	}
	known, err := c.nodes.Transaction(asking, c.id)
	if err == nil {
		c.learn(known)
	} else if client.CodeOf(err) != connect.CodeNotFound && !complete && signed == nil {
		return err
	}
	if c.body != nil || signed == nil {
		return nil
	}
	cluster, err := c.nodes.Cluster(ctx)
	if err != nil {
		return err
	}
	c.body = signed
	if len(cluster.GetBook()) == 0 {
		c.concerned = []ledger.ShardID{0}
		return nil
	}
	// An organisation that is not registered yet may get any home, so it tells no shard.
	var failure error
	homes := make(map[ledger.ShardID]bool)
	shards := signed.AppendDestinations(nil, int(cluster.GetShardCount()),
		func(name ledger.OrganisationName) ledger.ShardID {
			organisation, err := c.nodes.Organisation(ctx, name)
			if err != nil && client.CodeOf(err) != connect.CodeNotFound {
				failure = err
			}
			home := ledger.ShardID(organisation.GetShard())
			homes[home] = homes[home] || err == nil
			return home
		})
	for _, shard := range shards {
		if homes[shard] || signed.BookWide() {
			c.concerned = append(c.concerned, shard)
		}
	}
	return failure
}

// learn takes the content of the transaction from an answer of the nodes, if it has that.
func (c *cancelling) learn(known *ledgerdv1.Transaction) {
	if known.GetBody() == nil {
		return
	}
	read, err := api.BodyFromProto(known.GetBody(), ledger.Hash{})
	if err != nil {
		return // as if it were not known
	}
	c.body, c.concerned = &read, nil
	for _, shard := range known.GetStatus().GetDestinations() {
		c.concerned = append(c.concerned, ledger.ShardID(shard))
	}
	if len(c.concerned) > 0 {
		return
	}
	// It concerns one shard. The status may be that of a shard that only passed it on.
	for _, place := range known.GetPlaces() {
		if place.GetState() != api.PlacePassed {
			c.concerned = append(c.concerned, ledger.ShardID(place.GetShard()))
		}
	}
	if len(known.GetPlaces()) == 0 {
		c.concerned = []ledger.ShardID{ledger.ShardID(known.GetStatus().GetShard())}
	}
}

// complete fills in what the flags leave out from what is known of the transaction, which may be
// nothing. It refuses flags that cannot cancel it.
func (c *cancelling) complete(ctx context.Context) error {
	if c.body != nil {
		if c.deadline == 0 {
			c.deadline = c.body.Deadline
		}
		if c.signer == "" {
			c.signer = c.body.Signer
		}
		if len(c.shards) == 0 {
			c.shards = c.concerned
		}
		if err := c.objection(); err != nil {
			return err
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
			"each --shard that it concerns, or give the signed transaction with --file", c.id)
	}
	return nil
}

// objection returns why the cancellation does not concern the transaction, whose body is known.
func (c *cancelling) objection() error {
	if c.body.Cancellation != nil {
		return fmt.Errorf("transaction %s is a cancellation, which cannot be cancelled", c.id)
	}
	if c.body.Deadline == 0 {
		return fmt.Errorf("transaction %s has no deadline, and only those that have one can be "+
			"cancelled", c.id)
	}
	if c.deadline < c.body.Deadline {
		return usagef("the deadline of transaction %s is %s: shards forget a cancellation with an "+
			"earlier --deadline too soon", c.id, moment(uint64(c.body.Deadline)))
	}
	if !c.consents() {
		return usagef("%s cannot cancel transaction %s: only organisations that have to sign it "+
			"can", c.signer, c.id)
	}
	for _, shard := range c.shards {
		if !slices.Contains(c.concerned, shard) {
			return usagef("transaction %s does not concern shard %d, but %s", c.id, shard,
				shardsText(c.concerned))
		}
	}
	return nil
}

// consents reports whether the transaction needs the consent of the organisation that cancels it.
func (c *cancelling) consents() bool {
	for name := range c.body.Consenting() {
		if name == c.signer {
			return true
		}
	}
	return false
}

// certain reports whether the transaction is known to need a shard's consent, and that the shard
// refuses it if it takes the cancellation.
func (c *cancelling) certain(shard ledger.ShardID) bool {
	return c.body != nil && c.body.Cancellation == nil && c.body.Deadline != 0 &&
		c.deadline >= c.body.Deadline && slices.Contains(c.concerned, shard) && c.consents()
}

// shardsText names shards.
func shardsText(shards []ledger.ShardID) string {
	numbers := make([]uint32, len(shards))
	for i, shard := range shards {
		numbers[i] = uint32(shard)
	}
	return client.ShardNames(numbers)
}

// run cancels the transaction at all shards at once. It waits until one says that the transaction
// is cancelled for certain or took effect, or until all have answered and the transaction is
// decided.
func (c *cancelling) run(ctx context.Context) *cancelReport {
	report := &cancelReport{ID: c.id.String(), Shards: make([]shardCancelReport, len(c.shards))}
	asking, enough := context.WithCancel(ctx)
	defer enough()
	type answer struct {
		place     int
		cancelled *client.Cancelled
		err       error
	}
	answers := make(chan answer, len(c.shards))
	for i, shard := range c.shards {
		report.Shards[i] = shardCancelReport{Shard: uint32(shard), Outcome: outcomeUnknown}
		go func() {
			cancelled, err := c.nodes.Cancel(asking, []client.Key{c.key}, c.id, c.deadline, shard)
			answers <- answer{i, cancelled, err}
		}()
	}
	given := make([]*client.Cancelled, len(c.shards))
	for range c.shards {
		got := <-answers
		at := &report.Shards[got.place]
		if got.err != nil {
			if asking.Err() == nil || ctx.Err() != nil {
				at.Reason = strings.ReplaceAll(got.err.Error(), "\n", "; ")
			}
			continue
		}
		given[got.place] = got.cancelled
		at.fill(got.cancelled, c.certain(c.shards[got.place]))
		if at.Outcome == outcomeCancelled || at.Outcome == outcomeTooLate {
			enough() // the others can add nothing
		}
	}
	if report.has(outcomeTooLate) {
		report.Outcome = outcomeTooLate
		return report
	}
	// The transaction's own outcome overrides what the shards promise. A chain may also have got it
	// meanwhile, so that its content is known now.
	if known := c.last(ctx); known != nil {
		c.learn(known)
		for i, cancelled := range given {
			if cancelled != nil {
				report.Shards[i].fill(cancelled, c.certain(c.shards[i]))
			}
		}
		if report.Outcome = outcomeOf(known); report.Outcome != "" {
			return report
		}
	}
	switch {
	case report.has(outcomeCancelled):
		report.Outcome = outcomeCancelled
	case report.has(outcomeUndecided):
		report.Outcome = outcomeUndecided
		c.await(ctx, report)
	case report.has(outcomeRemembered):
		report.Outcome, report.Condition = outcomeRemembered, c.condition(report)
	default:
		report.Outcome = outcomeUnknown
	}
	return report
}

// last asks for the transaction once more, even if the time is over. It returns nil if no node
// knows it.
func (c *cancelling) last(ctx context.Context) *ledgerdv1.Transaction {
	asking, done := context.WithTimeout(context.WithoutCancel(ctx), lastAnswer)
	defer done()
	known, err := c.nodes.Transaction(asking, c.id)
	if err != nil {
		return nil
	}
	return known
}

// outcomeOf returns the outcome that a transaction's own state shows, or "" if it is not decided.
func outcomeOf(known *ledgerdv1.Transaction) string {
	status := known.GetStatus()
	switch {
	case slices.ContainsFunc(known.GetPlaces(), func(place *ledgerdv1.ShardPlace) bool {
		return place.GetState() == api.PlaceSettled
	}), (client.Answer{Status: status}).Applied():
		return outcomeTooLate
	case status.GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED &&
		(len(known.GetPlaces()) == 0 || slices.ContainsFunc(known.GetPlaces(), refusedForGood)):
		return outcomeCancelled
	}
	return ""
}

// refusedForGood reports whether a shard has refused a transaction, in a block that is durable.
func refusedForGood(place *ledgerdv1.ShardPlace) bool {
	return place.GetState() == api.PlaceRefused && place.GetLevel() >= ledgerdv1.Level_LEVEL_DURABLE
}

// condition says when the shards that remember the cancellation will refuse the transaction.
func (c *cancelling) condition(report *cancelReport) string {
	shards := report.with(outcomeRemembered)
	it := client.ShardNames(shards)
	if len(shards) > 1 {
		it = "that shard"
	}
	return fmt.Sprintf("%s will refuse it if it has a deadline, which is %s or before, if %s has "+
		"to sign it, and if it concerns %s", client.ShardNames(shards), moment(uint64(c.deadline)),
		c.signer, it)
}

// has reports whether a shard has an outcome.
func (r *cancelReport) has(outcome string) bool { return len(r.with(outcome)) > 0 }

// with returns the shards that have an outcome.
func (r *cancelReport) with(outcome string) []uint32 {
	var shards []uint32
	for i := range r.Shards {
		if r.Shards[i].Outcome == outcome {
			shards = append(shards, r.Shards[i].Shard)
		}
	}
	return shards
}

// fill records the answer of a shard. Certain says that the cancellation concerns the transaction.
func (r *shardCancelReport) fill(cancelled *client.Cancelled, certain bool) {
	r.Cancellation, r.Height = cancelled.ID.String(), cancelled.Status.GetHeight()
	r.Reason = ""
	switch withdrawn := cancelled.Withdrawn(); {
	case certain && (withdrawn == client.WithdrawnInTime || withdrawn == client.WithdrawnExpired):
		r.Outcome = outcomeCancelled
	case withdrawn == client.WithdrawnInTime && cancelled.Place.GetState() == api.PlaceRefused:
		r.Outcome, r.Reason = outcomeUnknown, "it refused the transaction"
	case withdrawn == client.WithdrawnInTime:
		r.Outcome = outcomeRemembered
	case withdrawn == client.WithdrawnTooLate:
		r.Outcome = outcomeTooLate
	case withdrawn == client.WithdrawnUndecided:
		r.Outcome = outcomeUndecided
	case cancelled.Status.GetReasonCode() == api.ReasonCode(ledger.DeadlineTooFar):
		r.Outcome, r.Reason = outcomeUnknown, "the deadline is too far off: name an earlier one, "+
			"but none before the transaction's"
	default:
		r.Outcome, r.Reason = outcomeUnknown, cancelled.Status.GetReason()
	}
}

// await waits for the decision on a transaction that some shards have agreed to.
func (c *cancelling) await(ctx context.Context, report *cancelReport) {
	var known *ledgerdv1.Transaction
	for again := true; again; {
		var err error
		known, err = c.nodes.Wait(ctx, c.id, ledgerdv1.Level_LEVEL_DURABLE)
		if err != nil { // the time is over: say at least what is waited for
			known = c.last(ctx)
		}
		if outcome := outcomeOf(known); outcome != "" {
			report.Outcome = outcome
			return
		}
		// It failed in a block that is not durable yet, unless the time is over.
		again = err == nil && sleep(ctx, untilDurable) == nil
	}
	report.WaitsFor = known.GetStatus().GetWaitsFor()
}

// failure returns an error unless the transaction is cancelled.
func (r *cancelReport) failure() error {
	switch r.Outcome {
	case outcomeCancelled:
		return nil
	case outcomeTooLate:
		return errors.New("too late: it took effect")
	}
	if r.Outcome == outcomeRemembered {
		return fmt.Errorf("not cancelled for certain: %s", r.Condition)
	}
	agreed := r.with(outcomeUndecided)
	if len(agreed) == 0 {
		var reasons []string
		for i := range r.Shards {
			if reason := r.Shards[i].Reason; reason != "" {
				reasons = append(reasons, fmt.Sprintf("shard %d: %s", r.Shards[i].Shard, reason))
			}
		}
		text := "not cancelled for certain: no shard is known to refuse it"
		if len(reasons) > 0 {
			text += " (" + strings.Join(reasons, "; ") + ")"
		}
		return errors.New(text)
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
		outcomeCancelled:  "cancelled: it takes effect nowhere",
		outcomeTooLate:    "too late: it took effect",
		outcomeUndecided:  "undecided",
		outcomeRemembered: "remembered: it is refused on conditions",
		outcomeUnknown:    "unknown: no shard is known to refuse it",
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
