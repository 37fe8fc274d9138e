package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Withdrawn is what a cancellation did at a shard, if its signer is one whose consent the
// transaction needs. A shard that has not executed the transaction cannot tell, and a cancellation
// by another organisation has no effect.
type Withdrawn uint8

// The ends of a cancellation.
const (
	// WithdrawnUnknown: the shard's node does not tell yet.
	WithdrawnUnknown Withdrawn = iota
	// WithdrawnInTime: the shard has not executed the transaction, and will refuse it. Or it has
	// refused it, for whatever reason. So the transaction takes effect nowhere.
	WithdrawnInTime
	// WithdrawnUndecided: the shard has agreed to the transaction before, and the others decide.
	WithdrawnUndecided
	// WithdrawnTooLate: the transaction has taken effect.
	WithdrawnTooLate
)

// Cancelled is the answer to a cancellation.
type Cancelled struct {
	Shard ledger.ShardID
	// ID is that of the cancellation, and Status its own outcome.
	ID     ledger.Hash
	Status *ledgerdv1.TransactionStatus
	// Place is where the transaction that it cancels is in the shard's chain.
	Place *ledgerdv1.ShardPlace
}

// Withdrawn says what the cancellation did.
func (c *Cancelled) Withdrawn() Withdrawn {
	switch c.Place.GetState() {
	case api.PlaceRefused:
		return WithdrawnInTime
	case api.PlaceSettled:
		return WithdrawnTooLate
	case api.PlaceWaiting:
		return WithdrawnUndecided
	case api.PlaceAbsent:
		// The shard's verdict on the transaction will be no if it took the cancellation, or if the
		// deadline is over.
		if (Answer{Status: c.Status}).Applied() ||
			c.Status.GetReasonCode() == api.ReasonCode(ledger.DeadlinePassed) {
			return WithdrawnInTime
		}
	}
	return WithdrawnUnknown
}

// Cancel cancels a transaction with a deadline at one shard (see ledger.Cancellation), signed with
// the keys, of which the first is that of an organisation that signed the transaction. It returns
// once the cancellation is durable in the chain of the shard, whether the shard takes it or not.
// The deadline must be that of the transaction, or a later one. In a book of one shard, the shard
// is 0.
//
// To keep a transaction from taking effect, its signer cancels it at each shard that it concerns,
// or at as many as can be reached. One that answers WithdrawnInTime is enough.
func (c *Client) Cancel(ctx context.Context, keys []Key, id ledger.Hash,
	deadline ledger.Milliseconds, shard ledger.ShardID) (*Cancelled, error) {
	if len(keys) == 0 {
		return nil, errors.New("client: a cancellation needs a signer's key")
	}
	genesis, err := c.Genesis(ctx)
	if err != nil {
		return nil, err
	}
	// The nonce only distinguishes it from others: no chain takes it.
	transaction := ledger.Transaction{Ledger: genesis, Signer: keys[0].Organisation,
		Nonce: ledger.Nonce{Stream: c.stream, Sequence: rand.Uint64()}, Deadline: deadline,
		Cancellation: &ledger.Cancellation{Transaction: id, Shard: shard}}
	bundle, err := Sign(ctx, keys, transaction)
	if err != nil {
		return nil, err
	}
	if _, err := c.Submit(ctx, bundle, ledgerdv1.Level_LEVEL_DURABLE); err != nil {
		return nil, fmt.Errorf("cancelling at shard %d: %w", shard, err)
	}
	shown, err := c.Wait(ctx, bundle.ID(0), ledgerdv1.Level_LEVEL_DURABLE)
	if err != nil {
		return nil, fmt.Errorf("asking for the cancellation at shard %d: %w", shard, err)
	}
	return &Cancelled{Shard: shard, ID: bundle.ID(0), Status: shown.GetStatus(),
		Place: shown.GetCancelledPlace()}, nil
}
