package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Key returns the entry that has an idempotency key of an organisation. The code of the error is
// NotFound if none has it. The node is believed.
func (c *Client) Key(ctx context.Context, of ledger.OrganisationName, key string) (
	*ledgerdv1.GetKeyResponse, error) {
	return call(ctx, c, false, &ledgerdv1.GetKeyRequest{Organisation: string(of), Key: key},
		service.GetKey)
}

// Refundable returns what is left of an entry that can be refunded, given its signer. The code of
// the error is NotFound if nothing is. The node is believed: the chain refuses a refund of more.
func (c *Client) Refundable(ctx context.Context, entry ledger.Hash, of ledger.OrganisationName) (
	*ledgerdv1.GetRefundableResponse, error) {
	return call(ctx, c, false, &ledgerdv1.GetRefundableRequest{EntryHex: entry.String(),
		Organisation: string(of)}, service.GetRefundable)
}

// Refund returns the transaction that gives these postings back of an entry, given its signer. Each
// posting has the account and the asset of one of the entry, the other sign, and no more than is
// left of it. Post it with the keys of those that give.
func Refund(entry ledger.Hash, of ledger.OrganisationName,
	postings ...ledger.Posting) ledger.Transaction {
	return ledger.Transaction{Postings: postings, Details: &ledger.Details{
		Refund: &ledger.Refund{Entry: entry, Organisation: of}}}
}

// Reverse returns the transaction that gives back all that is left of an entry, given its signer.
func Reverse(entry ledger.Hash, of ledger.OrganisationName,
	left *ledgerdv1.GetRefundableResponse) (ledger.Transaction, error) {
	reversed := Refund(entry, of)
	for _, each := range left.GetLeft() {
		amount, err := ledger.ParseAmount(each.GetAmount())
		if err == nil && amount.Sign() == 0 {
			continue
		}
		if err == nil {
			amount, err = amount.Neg()
		}
		if err != nil {
			return ledger.Transaction{}, fmt.Errorf("client: what is left of the entry: %w", err)
		}
		reversed.Postings = append(reversed.Postings, ledger.Posting{
			Account: ledger.AccountPath(each.GetAccount()),
			Asset:   ledger.AssetName(each.GetAsset()), Amount: amount})
	}
	if len(reversed.Postings) == 0 {
		return ledger.Transaction{}, errors.New("client: nothing is left of the entry")
	}
	return reversed, nil
}
