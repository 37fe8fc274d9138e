package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Withdrawn is what a cancellation did at a shard. A shard that has not executed the transaction
// knows nothing of it, so what it promises holds on three conditions. The transaction concerns this
// shard. Its signer or another organisation whose consent it needs (ledger.Transaction.Consenting)
// made the cancellation. It has a deadline, and that is not after the cancellation's. Otherwise the
// transaction may take effect all the same.
type Withdrawn uint8

// The ends of a cancellation.
const (
	// WithdrawnUnknown: the shard's node does not tell yet, or the shard did not take the
	// cancellation.
	WithdrawnUnknown Withdrawn = iota
	// WithdrawnInTime: the shard has not executed the transaction, and will refuse it on the
	// conditions above. Or it has refused it, for whatever reason. A transaction that a shard
	// refuses that it concerns takes effect nowhere.
	WithdrawnInTime
	// WithdrawnUndecided: the shard has agreed to the transaction before, and the others decide.
	WithdrawnUndecided
	// WithdrawnTooLate: the transaction has taken effect.
	WithdrawnTooLate
	// WithdrawnExpired: the shard has not executed the transaction, and the deadline of the
	// cancellation was over. It remembers nothing, but on the conditions above it refuses the
	// transaction, whose deadline is over as well.
	WithdrawnExpired
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
		if (Answer{Status: c.Status}).Applied() {
			return WithdrawnInTime
		}
		if c.Status.GetReasonCode() == api.ReasonCode(ledger.DeadlinePassed) {
			return WithdrawnExpired
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
// or at as many as can be reached. One that answers WithdrawnInTime is enough, on the conditions
// that Withdrawn names: no shard can check them before it has the transaction.
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
	for {
		shown, err := c.Wait(ctx, bundle.ID(0), ledgerdv1.Level_LEVEL_DURABLE)
		if err != nil {
			return nil, fmt.Errorf("asking for the cancellation at shard %d: %w", shard, err)
		}
		if settledForGood(shown, shard) {
			return &Cancelled{Shard: shard, ID: bundle.ID(0), Status: shown.GetStatus(),
				Place: shown.GetCancelledPlace()}, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("asking for the cancellation at shard %d: %w", shard, ctx.Err())
		case <-time.After(untilDurable):
		}
	}
}

// untilDurable is the time between questions whether a block is durable.
const untilDurable = 50 * time.Millisecond

// settledForGood reports whether a cancellation and what its shard knows of the other transaction
// are durable. Wait returns one that failed before that.
func settledForGood(shown *ledgerdv1.Transaction, shard ledger.ShardID) bool {
	for _, place := range shown.GetPlaces() {
		if place.GetShard() == uint32(shard) && place.GetHeight() > 0 &&
			place.GetLevel() < ledgerdv1.Level_LEVEL_DURABLE {
			return false
		}
	}
	place := shown.GetCancelledPlace()
	return place.GetHeight() == 0 || place.GetLevel() >= ledgerdv1.Level_LEVEL_DURABLE
}
