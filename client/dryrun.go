package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// ErrDryRunAnswer reports an answer about a dry run that no node gives.
var ErrDryRunAnswer = errors.New("client: the node's answer about a dry run is malformed")

// DryRun says what the transactions of a signed bundle would do, each alone, and orders nothing.
// The node is believed. What other clients submit meanwhile can change it.
func (c *Client) DryRun(ctx context.Context, bundle *ledger.Bundle) ([]*ledgerdv1.DryRunOutcome,
	error) {
	answer, err := call(ctx, c, true, &ledgerdv1.DryRunRequest{Bundle: api.BundleToProto(bundle)},
		service.DryRun)
	if err != nil {
		return nil, err
	}
	outcomes := answer.GetTransactions()
	if len(outcomes) != bundle.Len() {
		return nil, fmt.Errorf("%w: %d outcomes of %d transactions", ErrDryRunAnswer, len(outcomes),
			bundle.Len())
	}
	for i, outcome := range outcomes {
		if id := bundle.ID(i); outcome.GetIdHex() != id.String() {
			return nil, fmt.Errorf("%w: transaction %d is %s, and the outcome of %.80q",
				ErrDryRunAnswer, i+1, id, outcome.GetIdHex())
		}
	}
	return outcomes, nil
}

// PostDry is Post for a transaction that is not ordered: it signs it, and asks what it would do.
func (c *Client) PostDry(ctx context.Context, keys []Key,
	transaction ledger.Transaction) (*ledgerdv1.DryRunOutcome, error) {
	if err := c.complete(ctx, keys, &transaction); err != nil {
		return nil, err
	}
	next, err := c.NextSequence(ctx, transaction.Signer, transaction.Nonce.Stream)
	if err != nil {
		return nil, err
	}
	transaction.Nonce.Sequence = next
	bundle, err := Sign(ctx, keys, transaction)
	if err != nil {
		return nil, err
	}
	outcomes, err := c.DryRun(ctx, bundle)
	if err != nil {
		return nil, err
	}
	return outcomes[0], nil
}
