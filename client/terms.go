package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// AccountChange returns the change of an account's terms that leaves all as it is, for the caller
// to edit, to show, and to Post as the Account of a transaction. The node is believed: a change
// replaces all terms, so a signer looks at all of them. Its number is one above that of the present
// terms, so it is refused (ledger.AccountOutdated) if another change comes between. The signer is
// the account's organisation, or its guardian for a freeze.
func (c *Client) AccountChange(ctx context.Context, path ledger.AccountPath) (
	*ledger.AccountChange, error) {
	account, err := c.Account(ctx, path)
	if err != nil {
		return nil, err
	}
	if account.GetAccount() != string(path) {
		return nil, fmt.Errorf("client: the node answers with account %.150q, and was asked for %s",
			account.GetAccount(), path)
	}
	terms, err := api.AccountTermsFromProto(account.GetTerms())
	if err != nil {
		return nil, fmt.Errorf("client: the terms of %s: %w", path, err)
	}
	return &ledger.AccountChange{Account: path, Number: account.GetRevision() + 1,
		Alias: account.GetAlias(), AccountTerms: terms}, nil
}

// withMetadatum leaves the accounts that have an indexed metadatum; all, if the key is empty. Nodes
// of older versions do not select them.
func withMetadatum(accounts []*ledgerdv1.Account, key, value string) []*ledgerdv1.Account {
	if key == "" {
		return accounts
	}
	return slices.DeleteFunc(accounts, func(a *ledgerdv1.Account) bool {
		return !slices.ContainsFunc(a.GetTerms().GetMetadata(), func(m *ledgerdv1.Metadatum) bool {
			return m.GetIndexed() && m.GetKey() == key && m.GetValue() == value
		})
	})
}
