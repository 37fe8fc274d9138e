package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// ErrHoldAnswer reports an answer about a hold that no node gives.
var ErrHoldAnswer = errors.New("client: the node's answer about a hold is malformed")

// Hold returns a hold that is open, from the shard where it is. The code of the error is NotFound
// if it is not open. The node is believed. The chain refuses a posting of another account or asset
// or of more than is held, but not one of less, or to fewer accounts: what the hold says is in the
// transaction with its id (Proof).
func (c *Client) Hold(ctx context.Context, id ledger.Hash) (*ledgerdv1.OpenHold, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetHoldRequest{HoldHex: id.String()},
		service.GetHold)
	if err == nil {
		_, err = TermsOfHold(answer.GetHold())
	}
	if err == nil && answer.GetHold().GetHoldHex() != id.String() {
		err = fmt.Errorf("%w: it is of %.80q", ErrHoldAnswer, answer.GetHold().GetHoldHex())
	}
	if err != nil {
		return nil, err
	}
	return answer.GetHold(), nil
}

// Holds iterates over the holds that are open and match the query, in the order of their ids. It
// ends with an error if a shard does not answer.
func (c *Client) Holds(ctx context.Context,
	query *ledgerdv1.ListHoldsRequest) iter.Seq2[*ledgerdv1.OpenHold, error] {
	return pages(func(token string) ([]*ledgerdv1.OpenHold, string, error) {
		answer, err := call(ctx, c, true, &ledgerdv1.ListHoldsRequest{
			Organisation: query.GetOrganisation(), Account: query.GetAccount(),
			Poster: query.GetPoster(), Shard: query.Shard, PageSize: iteratorPage,
			PageToken: token}, service.ListHolds)
		if silent := answer.GetUnansweredShards(); err == nil && len(silent) > 0 {
			err = fmt.Errorf("client: no node of %s answers: its holds are missing; try again",
				ShardNames(silent))
		}
		for _, hold := range answer.GetHolds() {
			if _, failure := TermsOfHold(hold); err == nil {
				err = failure
			}
		}
		return answer.GetHolds(), answer.GetNextPageToken(), err
	})
}

// TermsOfHold returns the terms of a hold that a node names, or ErrHoldAnswer.
func TermsOfHold(open *ledgerdv1.OpenHold) (*ledger.Hold, error) {
	hold, err := api.HoldFromProto(open.GetHold())
	if err == nil && hold == nil {
		err = errors.New("it has no terms")
	}
	if err == nil {
		err = hold.Validate()
	}
	if err == nil {
		err = checkDecimals(open.GetDecimals())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHoldAnswer, err)
	}
	return hold, nil
}

// PlaceHold returns the transaction that places a hold. Post it with the key of the account's
// organisation; its id is that of the hold.
func PlaceHold(hold ledger.Hold) ledger.Transaction { return ledger.Transaction{Hold: &hold} }

// PostHold returns the transaction that posts a hold: the given amounts of its asset to the given
// accounts, which add up to no more than the hold. What is left is free again. Post it with the key
// of the hold's poster.
func PostHold(id ledger.Hash, hold *ledger.Hold, to ...ledger.Posting) (ledger.Transaction, error) {
	sum := ledger.Amount{}
	for i := range to {
		var err error
		if sum, err = sum.Add(to[i].Amount); err != nil {
			return ledger.Transaction{}, fmt.Errorf("client: the amounts posted: %w", err)
		}
	}
	if sum.Compare(hold.Amount) > 0 {
		return ledger.Transaction{}, fmt.Errorf("client: the hold is of %s of the smallest "+
			"unit of %s, and %s cannot be posted", hold.Amount, hold.Asset, sum)
	}
	taken, err := sum.Neg()
	if err != nil {
		return ledger.Transaction{}, fmt.Errorf("client: the amounts posted: %w", err)
	}
	transaction := VoidHold(id, hold)
	transaction.Postings = append([]ledger.Posting{{Account: hold.From, Asset: hold.Asset,
		Amount: taken}}, to...)
	return transaction, nil
}

// VoidHold returns the transaction that voids a hold: all of it is free again. Post it with the key
// of the hold's poster.
func VoidHold(id ledger.Hash, hold *ledger.Hold) ledger.Transaction {
	return ledger.Transaction{HoldEnd: &ledger.HoldEnd{Hold: id, From: hold.From}}
}
