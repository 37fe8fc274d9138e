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

// ErrOutcomeUnknown means that a node may or may not have taken a submission.
var ErrOutcomeUnknown = errors.New("client: the outcome is not known")

// Reached reports whether there is nothing more to wait for at a level. A failed transaction counts
// as soon as it is in a block, or once a node has refused it because it is certain to fail.
func Reached(status *ledgerdv1.TransactionStatus, level ledgerdv1.Level) bool {
	if level == ledgerdv1.Level_LEVEL_UNSPECIFIED {
		level = ledgerdv1.Level_LEVEL_DURABLE
	}
	switch state := status.GetState(); state {
	case ledgerdv1.TransactionState_TRANSACTION_STATE_UNSPECIFIED:
		return false
	case ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED,
		ledgerdv1.TransactionState_TRANSACTION_STATE_EXPIRED:
		return true
	default:
		if level == ledgerdv1.Level_LEVEL_DURABLE_EVERYWHERE {
			return state == ledgerdv1.TransactionState_TRANSACTION_STATE_DURABLE &&
				(status.GetEverywhere() || len(status.GetDestinations()) < 2)
		}
		return int32(state) >= int32(level) // the states up to durable have the levels' numbers
	}
}

// Submit submits a bundle to one node or another until all its transactions have reached the
// level, failed or expired. Then it returns their statuses in the bundle's order. If all
// transactions are certain to fail, a node orders none of them; they have failed, in no block.
// Submit sends the same bytes as often as needed. With ErrOutcomeUnknown it also returns the last
// reported statuses, if there are any. The caller then asks for the ids later, or submits the same
// bundle again. After any other error no node has taken the bundle from this call.
//
// Larger bundles go over a stream to each node, as those of a Sender do. Close ends it.
func (c *Client) Submit(ctx context.Context, bundle *ledger.Bundle,
	level ledgerdv1.Level) ([]*ledgerdv1.TransactionStatus, error) {
	own := *bundle // it keeps its encoding, and other goroutines may read the bundle

	var statuses []*ledgerdv1.TransactionStatus // the last reported
	taken := false                              // a node answered that it has the bundle
	for {
		answer, err := callAt(ctx, c, c.options.WaitTime, true,
			func(ctx context.Context, at uint32) ([]*ledgerdv1.TransactionStatus, error) {
				return c.nodes[at].submitFromAny(ctx, &own, level)
			})
		if err == nil {
			taken = true
			err = matches(answer, bundle)
		}
		switch unsure := (*unsureError)(nil); {
		case err != nil && (taken || errors.As(err, &unsure)):
			return statuses, unknownOutcome(bundle, waitingFor(statuses, err))
		case err != nil:
			return nil, err
		}
		statuses = answer
		reached := true
		for _, status := range statuses {
			reached = reached && Reached(status, level)
		}
		if reached {
			return statuses, nil
		}
		if err := ctx.Err(); err != nil {
			return statuses, unknownOutcome(bundle, waitingFor(statuses, err))
		}
	}
}

// waitingFor adds to a wait's error the shards that it waited for, if any.
func waitingFor(statuses []*ledgerdv1.TransactionStatus, err error) error {
	for _, status := range statuses {
		if shards := status.GetWaitsFor(); len(shards) > 0 {
			return fmt.Errorf("waiting for %s: %w", ShardNames(shards), err)
		}
	}
	return err
}

// unknownOutcome adds to an error that the transactions may be on their way.
func unknownOutcome(bundle *ledger.Bundle, err error) error {
	return fmt.Errorf("%w: %w: ask with `ledgerd tx status %s`; submitting the same again is safe",
		ErrOutcomeUnknown, err, bundle.ID(0))
}

// SubmitInOrder submits bundles that build on each other to one node, and returns when each is in
// its pool or refused. No bundle is admitted if one before it was not, nor if the node does not
// know the transaction after, unless that is zero. If a node does not answer, the next one is
// asked. With ErrOutcomeUnknown a node may have admitted some of them: the same may be submitted
// again.
func (c *Client) SubmitInOrder(ctx context.Context, bundles []*ledger.Bundle,
	after ledger.Hash) ([]*ledgerdv1.BundleOutcome, error) {
	request := &ledgerdv1.SubmitManyRequest{Wait: ledgerdv1.Level_LEVEL_ADMITTED, InOrder: true,
		Queue: c.options.Queue}
	if !after.IsZero() {
		request.After = after[:]
	}
	for _, bundle := range bundles {
		request.Bundles = append(request.Bundles, api.BundleToProto(bundle))
	}
	answer, err := call(ctx, c, true, request, service.SubmitMany)
	if unsure := (*unsureError)(nil); errors.As(err, &unsure) && len(bundles) > 0 {
		return nil, unknownOutcome(bundles[0], err)
	}
	if err != nil {
		return nil, err
	}
	if len(answer.GetOutcomes()) != len(bundles) {
		return nil, fmt.Errorf("client: the node answered %d outcomes for %d bundles",
			len(answer.GetOutcomes()), len(bundles))
	}
	return answer.GetOutcomes(), nil
}

// Sign makes a bundle of transactions, signed with all keys. The context bounds the time that
// external signers take. Any chain takes it; Client.Sign makes smaller ones of plain transfers.
func Sign(ctx context.Context, keys []Key, transactions ...ledger.Transaction) (*ledger.Bundle,
	error) {
	bundle, err := ledger.NewBundle(transactions...)
	if err != nil {
		return nil, err
	}
	return signed(ctx, keys, bundle)
}

// Sign makes a bundle of transactions for the nodes' chain, signed with all keys: a packed one if
// the chain takes it and the transactions can be packed (see ledger.PackBundle), and else the same
// as the function Sign. A node that is behind the change from which on the chain takes packed
// bundles refuses one; a Sender then sends the transactions as they are.
func (c *Client) Sign(ctx context.Context, keys []Key,
	transactions ...ledger.Transaction) (*ledger.Bundle, error) {
	bundle, err := ledger.PackBundle(transactions...)
	if err != nil { // which may be an error that NewBundle returns, too
		return Sign(ctx, keys, transactions...)
	}
	packs, err := c.Packs(ctx)
	if err != nil {
		return nil, err
	}
	if !packs {
		return Sign(ctx, keys, transactions...)
	}
	return signed(ctx, keys, bundle)
}

// signed adds the keys' signatures to a bundle.
func signed(ctx context.Context, keys []Key, bundle *ledger.Bundle) (*ledger.Bundle, error) {
	for _, key := range keys {
		if err := key.SignBundle(ctx, bundle); err != nil {
			return nil, err
		}
	}
	return bundle, nil
}

// Two people who do the same at the same moment, such as paying 5 from a to b, mean two
// transactions. With equal nonces both would have the same id, and one would be taken for a copy.
// Each client therefore draws its stream, and its start in the stream, at random. The number of
// streams is bounded, since a ledger remembers each for ever.
const (
	nonceStreams = 1 << 16
	nonceJump    = ledger.WindowSize / 2 // a skipped number stays valid for a client that drew it
)

// maxStale bounds how often a transaction is signed anew for a stale nonce.
const maxStale = 16

// Post completes a transaction (ledger, signer and nonce; the nonce's stream is the client's own
// unless the caller names one), signs it with the keys, of which the first is the signer's, and
// submits it. If the ledger reports that the nonce was stale, nothing has changed, and Post draws
// another nonce and signs again. The range that it draws from doubles each time, since a competing
// client may be faster again. A transaction that failed for another reason is no error here: see
// its status. With ErrOutcomeUnknown the status is the last reported one, or nil if there is none.
// Post gives a transaction the deadline that SetDeadline would.
//
// Post never packs. If there were two forms of a transaction with one nonce, because some nodes
// refuse packed bundles, a stale nonce would not show that nothing has changed.
func (c *Client) Post(ctx context.Context, keys []Key, transaction ledger.Transaction,
	level ledgerdv1.Level) (*ledgerdv1.TransactionStatus, error) {
	if err := c.complete(ctx, keys, &transaction); err != nil {
		return nil, err
	}
	for stale := range maxStale {
		var err error
		if transaction.Nonce.Sequence, err = c.takeNonce(ctx, transaction.Signer,
			transaction.Nonce.Stream, min(uint64(1)<<stale, nonceJump)); err != nil {
			return nil, err
		}
		bundle, err := Sign(ctx, keys, transaction)
		if err != nil {
			return nil, err
		}
		statuses, err := c.Submit(ctx, bundle, level)
		switch {
		case err != nil && len(statuses) > 0:
			return statuses[0], err
		case err != nil && (errors.Is(err, ErrOutcomeUnknown) || !refuses(err) ||
			!c.nowNeedsDeadline(ctx, &transaction)):
			return nil, err
		case err != nil || staleNonce(statuses[0]):
			continue
		case !lacksDeadline(statuses[0]) || !c.nowNeedsDeadline(ctx, &transaction):
			return statuses[0], nil
		}
	}
	return nil, fmt.Errorf("client: %d nonces in a row were stale: another client uses nonce "+
		"stream %d of %s; choose another stream", maxStale, transaction.Nonce.Stream,
		transaction.Signer)
}

// complete sets what Post sets of a transaction, except for the sequence number.
func (c *Client) complete(ctx context.Context, keys []Key, transaction *ledger.Transaction) error {
	if len(keys) == 0 {
		return errors.New("client: a transaction needs a signer's key")
	}
	named := c.Genesis
	if transaction.Change != nil {
		named = c.chain
	}
	genesis, err := named(ctx)
	if err != nil {
		return err
	}
	transaction.Ledger, transaction.Signer = genesis, keys[0].Organisation
	if transaction.Nonce.Stream == 0 {
		transaction.Nonce.Stream = c.stream
	}
	if err := transaction.Validate(); err != nil {
		return err
	}
	return c.SetDeadline(ctx, transaction)
}

// takeNonce takes a sequence number that, as far as is known, neither the ledger nor this client
// has used. It draws it from the next `among` numbers.
func (c *Client) takeNonce(ctx context.Context, organisation ledger.OrganisationName, stream,
	among uint64) (uint64, error) {
	next, err := c.NextSequence(ctx, organisation, stream)
	if err != nil {
		return 0, err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	key := nonceStream{organisation, stream}
	if used, begun := c.nonces[key]; begun {
		next = max(next, used)
	} else {
		next += rand.Uint64N(nonceJump)
	}
	next += rand.Uint64N(among)
	c.nonces[key] = next + 1
	return next, nil
}
