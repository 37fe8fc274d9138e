package client

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// HoldState is how a hold stands or ended.
type HoldState string

// The states of a hold. HoldUnknown means that it is not open, and that the nodes that answered do
// not show how it ended: some of its blocks are not there, or too many to look at.
const (
	HoldPending      HoldState = "pending" // its transaction is in no block yet
	HoldFailed       HoldState = "failed"  // it was never placed
	HoldOpen         HoldState = "open"
	HoldEnding       HoldState = "ending" // a transaction that ends it waits for other shards
	HoldPosted       HoldState = "posted"
	HoldPostedInPart HoldState = "posted_in_part"
	HoldVoided       HoldState = "voided"
	HoldExpired      HoldState = "expired"
	HoldUnknown      HoldState = "unknown"
)

// HoldOutcome is how a hold stands or ended. If it is not open, Hold has its terms and the shard
// where it was placed, and no decimals.
type HoldOutcome struct {
	State HoldState
	Hold  *ledgerdv1.OpenHold
	// Posted is what was taken of it, in the smallest unit of its asset; 0 if it was not posted.
	Posted ledger.Amount
	// EndedBy is the id of the transaction that ended it, in hex; "" if there is none.
	EndedBy string
}

// endingPages bounds the pages of transactions that a look for the end of a hold covers.
const endingPages = 40

// HoldOutcome returns how a hold stands or ended. It asks for the hold, and if that is not open for
// the transactions that name it, from its block on. The nodes are believed. The code of the error
// is NotFound if no transaction has this id, or one that places no hold.
func (c *Client) HoldOutcome(ctx context.Context, id ledger.Hash) (*HoldOutcome, error) {
	open, notOpen := c.Hold(ctx, id)
	switch {
	case notOpen == nil && open.GetEndingHex() != "":
		return &HoldOutcome{State: HoldEnding, Hold: open}, nil
	case notOpen == nil:
		return &HoldOutcome{State: HoldOpen, Hold: open}, nil
	case CodeOf(notOpen) != connect.CodeNotFound:
		return nil, notOpen
	}
	placed, err := c.Transaction(ctx, id)
	if CodeOf(err) == connect.CodeNotFound || err == nil && placed.GetBody().GetHold() == nil {
		return nil, notOpen
	}
	if err != nil {
		return nil, err
	}
	outcome := &HoldOutcome{Hold: &ledgerdv1.OpenHold{HoldHex: id.String(),
		Hold: placed.GetBody().GetHold(), Shard: placed.GetStatus().GetShard()}}
	held, err := TermsOfHold(outcome.Hold)
	if err != nil {
		return nil, err
	}
	switch state := placed.GetStatus().GetState(); {
	case state == ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED ||
		state == ledgerdv1.TransactionState_TRANSACTION_STATE_EXPIRED:
		outcome.State = HoldFailed
		return outcome, nil
	case !tookEffect(state):
		outcome.State = HoldPending
		return outcome, nil
	}
	if err := c.findEnding(ctx, outcome, held, placed.GetBlockTimeMs()); err != nil {
		return nil, err
	}
	return outcome, nil
}

// findEnding looks for the transaction that ended a hold, from the time of its block on.
func (c *Client) findEnding(ctx context.Context, outcome *HoldOutcome, held *ledger.Hold,
	placedMS uint64) error {
	outcome.State = HoldUnknown
	request := &ledgerdv1.ListTransactionsRequest{HoldHex: outcome.Hold.GetHoldHex(),
		Kind: "hold_end", FromTimeMs: placedMS, Ascending: true}
	for range endingPages {
		answer, err := call(ctx, c, true, request, service.ListTransactions)
		if err != nil {
			return err
		}
		for _, listed := range answer.GetTransactions() {
			found := listed.GetTransaction()
			if found.GetHoldEnd().GetHoldHex() != request.GetHoldHex() ||
				!tookEffect(found.GetStatus().GetState()) {
				continue
			}
			outcome.EndedBy = found.GetStatus().GetIdHex()
			outcome.State, err = outcome.postedBy(found, held)
			return err
		}
		if len(answer.GetUnansweredShards()) > 0 {
			return nil
		}
		if request.PageToken = answer.GetNextPageToken(); request.PageToken == "" {
			// The node that lists may be behind the one that says that the hold is not open.
			if time.Now().UnixMilli() >= int64(held.Expires) {
				outcome.State = HoldExpired
			}
			return nil
		}
	}
	return nil
}

// postedBy sets what a transaction that ended the hold took of it, and returns how it ended it.
func (o *HoldOutcome) postedBy(ending *ledgerdv1.TransactionSummary, held *ledger.Hold) (HoldState,
	error) {
	for _, posting := range ending.GetPostings() {
		amount, err := ledger.ParseAmount(posting.GetAmount())
		if err != nil {
			return HoldUnknown, fmt.Errorf("%w: it ends with %w", ErrHoldAnswer, err)
		}
		if posting.GetAccount() == string(held.From) && amount.Sign() < 0 {
			o.Posted = o.Posted.Minus(amount)
		}
	}
	switch {
	case o.Posted.Sign() == 0:
		return HoldVoided, nil
	case o.Posted.Minus(held.Amount).Sign() < 0:
		return HoldPostedInPart, nil
	}
	return HoldPosted, nil
}
