package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	nodereport "github.com/ledgerd/ledgerd/node/report"
)

// movedReport is a move as --json prints it.
type movedReport struct {
	Transaction  string `json:"transaction"`
	Organisation string `json:"organisation"`
	From         uint32 `json:"from"`
	To           uint32 `json:"to"`
	// Milliseconds is how long the organisation was on its way, as seen here.
	Milliseconds int64 `json:"milliseconds"`
}

// movePoll is how often the home is asked whether the organisation has arrived.
const movePoll = 50 * time.Millisecond

// newShardsMoveCommand returns the `ledgerd shards move` command.
func newShardsMoveCommand() *cobra.Command {
	var options charterOptions
	var to uint32
	command := &cobra.Command{
		Use:   "move ORG --to SHARD --operator FILE",
		Short: "Move an organisation to another shard",
		Long: `Move an organisation to another shard, with its accounts and balances, nonces, records
and cancellations.

All shards know the new home from one place of their common order on. The old home
sends what the organisation has there as soon as no transaction from before waits
for other shards. Until it has arrived, its transactions wait, usually for less than
a second. Those that another shard ordered meanwhile fail (organisation_moving): sign
them again. Histories up to the move stay at the old home.

An organisation does not return to a shard where it lived before, and at most
1,000,000 accounts, records and nonce streams move. The shard that it moves to must
order. The command waits until the organisation has arrived.

Fields with --json: transaction (the change), organisation, from, to, milliseconds;
with --out: transaction, file, signed_by, missing_signatures.

As many operators sign this as sign a change of themselves: ledgerd cluster operators.`,
		Example: `  ledgerd shards advise
  ledgerd shards move acme --to 2 --operator net/operator.key`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			name, err := parseOrganisation(arguments[0])
			if err != nil {
				return err
			}
			if !command.Flags().Changed("to") {
				return usagef("--to is missing: name the shard, see `ledgerd shards`")
			}
			return options.move(command, name, ledger.ShardID(to))
		},
		ValidArgsFunction: organisationCompletion(&options.remote),
	}
	options.bind(command)
	command.Flags().Uint32Var(&to, "to", 0, "shard that the organisation moves to (required)")
	return command
}

// move moves an organisation and waits until it has arrived, or writes the signed change to a file.
func (o *charterOptions) move(command *cobra.Command, name ledger.OrganisationName,
	to ledger.ShardID) error {
	session, ctx, done, err := o.begin(command, true)
	if err != nil {
		return err
	}
	defer done()
	if o.out != "" {
		if _, err := checkMove(ctx, session.nodes, name, to); err != nil {
			return err
		}
		return session.write(ctx, command, moveTo(name, to))
	}
	report, err := session.moveOne(ctx, name, to)
	if err != nil {
		return err
	}
	return report.write(command, o.json)
}

// moveTo returns the change that moves an organisation.
func moveTo(name ledger.OrganisationName, to ledger.ShardID) ledger.BookChange {
	return ledger.BookChange{Move: &ledger.OrganisationMove{Organisation: name, To: to}}
}

// moveOne moves an organisation and waits until it has arrived.
func (s *bookSession) moveOne(ctx context.Context, name ledger.OrganisationName,
	to ledger.ShardID) (*movedReport, error) {
	before, err := checkMove(ctx, s.nodes, name, to)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	status, err := s.submit(ctx, moveTo(name, to))
	if err != nil {
		return nil, err
	}
	if status.GetReasonCode() != "" {
		return nil, fmt.Errorf("%s does not move: %s", name, status.GetReason())
	}
	if err := awaitHome(ctx, s.nodes, status, name, to); err != nil {
		return nil, err
	}
	return &movedReport{Transaction: status.GetIdHex(), Organisation: string(name),
		From: before.GetShard(), To: uint32(to),
		Milliseconds: time.Since(began).Milliseconds()}, nil
}

func (r *movedReport) write(command *cobra.Command, asJSON bool) error {
	if asJSON {
		return writeJSON(command.OutOrStdout(), r)
	}
	_, err := fmt.Fprintln(command.OutOrStdout(), r)
	return err
}

// String says in one line what moved.
func (r *movedReport) String() string {
	return fmt.Sprintf("%s moved from shard %d to shard %d in %d ms", r.Organisation, r.From, r.To,
		r.Milliseconds)
}

// checkMove returns the organisation, or why it cannot move to a shard.
func checkMove(ctx context.Context, nodes *client.Client, name ledger.OrganisationName,
	to ledger.ShardID) (*ledgerdv1.Organisation, error) {
	found, err := nodes.Organisation(ctx, name)
	if err != nil {
		return nil, err
	}
	if found.GetMoving() {
		return nil, fmt.Errorf("%s is on its way to shard %d already", name, found.GetShard())
	}
	if found.GetShard() == uint32(to) {
		return nil, fmt.Errorf("%s lives in shard %d already", name, to)
	}
	for _, home := range found.GetEarlierHomes() {
		if home.GetShard() == uint32(to) {
			return nil, fmt.Errorf("%s lived in shard %d before, and does not return there", name,
				to)
		}
	}
	use, _, err := nodes.Use(ctx, name)
	if err != nil {
		return nil, err
	}
	if has := use.Accounts + use.Records + use.Streams; has > store.MaxMoved {
		return nil, fmt.Errorf("%s has %d accounts, records and nonce streams, and at most %d move",
			name, has, store.MaxMoved)
	}
	return found, checkTarget(ctx, nodes, name, to)
}

// checkTarget returns why an organisation cannot move to a shard now: it would be on its way, and
// take part in nothing, until the shard is back.
func checkTarget(ctx context.Context, nodes *client.Client, name ledger.OrganisationName,
	to ledger.ShardID) error {
	tree, err := nodes.Tree(ctx)
	if err != nil {
		return err
	}
	if int(to) >= len(tree.GetShards()) {
		return fmt.Errorf("there is no shard %d: see `ledgerd shards`", to)
	}
	if mode := tree.GetShards()[to].GetMode(); mode != nodereport.ShardOrdering.String() {
		return fmt.Errorf("shard %d is %s: %s could not arrive there; see `ledgerd shards`", to,
			mode, name)
	}
	return nil
}

// awaitHome waits until an organisation lives in a shard, given the move as it was submitted. It
// returns an error once the move has failed, which it may do after its admission.
func awaitHome(ctx context.Context, nodes *client.Client, moved *ledgerdv1.TransactionStatus,
	name ledger.OrganisationName, shard ledger.ShardID) error {
	for {
		found, err := nodes.Organisation(ctx, name)
		if err == nil && found.GetShard() == uint32(shard) && !found.GetMoving() &&
			!found.GetArrivalUnknown() {
			return nil
		}
		if err == nil && found.GetShard() != uint32(shard) {
			var shown *ledgerdv1.Transaction
			shown, err = nodes.Transaction(ctx, ledger.Hash(moved.GetId()))
			if code := shown.GetStatus().GetReasonCode(); code != "" {
				return fmt.Errorf("%s does not move: %s", name, shown.GetStatus().GetReason())
			}
			if client.CodeOf(err) == connect.CodeNotFound { // it is not there yet
				err = nil
			}
		}
		switch client.CodeOf(err) {
		case 0, connect.CodeUnavailable, connect.CodeResourceExhausted,
			connect.CodeDeadlineExceeded: // another moment may bring it
		default:
			return fmt.Errorf("whether %s has arrived in shard %d is not known: %w", name, shard,
				err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is on its way to shard %d, and has not arrived yet: see ledgerd "+
				"org show %s: %w", name, shard, name, errors.Join(ctx.Err(), err))
		case <-time.After(movePoll):
		}
	}
}
