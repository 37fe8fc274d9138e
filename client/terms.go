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
// to edit, to show, and to Post as the Account of a transaction of the account's organisation. The
// node is believed (CertifiedAccountChange believes none): a change replaces all terms, so a signer
// looks at all of them. Its number is one above that of the present terms, so it is refused
// (ledger.AccountOutdated) if another change comes between.
func (c *Client) AccountChange(ctx context.Context, path ledger.AccountPath) (
	*ledger.AccountChange, error) {
	account, err := c.accountNamed(ctx, path)
	if err != nil {
		return nil, err
	}
	terms, err := api.AccountTermsFromProto(account.GetTerms())
	if err != nil {
		return nil, fmt.Errorf("client: the terms of %s: %w", path, err)
	}
	return &ledger.AccountChange{Account: path, Number: account.GetRevision() + 1,
		Alias: account.GetAlias(), AccountTerms: terms}, nil
}

// CertifiedAccountChange is AccountChange for a caller that trusts the genesis and no node: the
// chain proves the present terms. An older block's terms have an older number, so a change of them
// is refused. The errors are those of ProvenAccount.
func (c *Client) CertifiedAccountChange(ctx context.Context, path ledger.AccountPath,
	genesis *ledger.Genesis) (*ledger.AccountChange, error) {
	proven, err := c.ProvenAccount(ctx, path, genesis)
	if err != nil {
		return nil, err
	}
	change := &ledger.AccountChange{Account: path, Number: 1, Alias: proven.Alias}
	if standing := proven.Standing; standing != nil {
		change.Number = standing.Revision + 1
		change.AccountTerms = standing.AccountTerms.Clone()
	}
	return change, nil
}

// Guard returns the change with which the guardian of an account freezes it, or lifts its own
// freeze, to Post as the Account of a transaction of the guardian. Only the number comes from the
// node: a false one is refused.
func (c *Client) Guard(ctx context.Context, path ledger.AccountPath,
	guardian ledger.OrganisationName, freeze bool) (*ledger.AccountChange, error) {
	account, err := c.accountNamed(ctx, path)
	if err != nil {
		return nil, err
	}
	if account.GetTerms().GetGuardian() != string(guardian) {
		return nil, fmt.Errorf("client: %s is not the guardian of %s", guardian, path)
	}
	var present ledger.Freeze
	if text := account.GetTerms().GetFreeze(); text != "" {
		if err := present.UnmarshalText([]byte(text)); err != nil {
			return nil, fmt.Errorf("client: the freeze of %s: %w", path, err)
		}
	}
	if present.ByGuardian() == freeze {
		return nil, fmt.Errorf("client: nothing to change: the freeze of %s is %s", path, present)
	}
	return &ledger.AccountChange{Account: path, Number: account.GetGuarded() + 1,
		AccountTerms: ledger.AccountTerms{Guardian: guardian,
			Freeze: ledger.FreezeNone.WithGuardian(freeze)}}, nil
}

// accountNamed is Account, for an answer about this very account.
func (c *Client) accountNamed(ctx context.Context, path ledger.AccountPath) (*ledgerdv1.Account,
	error) {
	account, err := c.Account(ctx, path)
	if err != nil {
		return nil, err
	}
	if account.GetAccount() != string(path) {
		return nil, fmt.Errorf("client: the node answers with account %.150q, and was asked for %s",
			account.GetAccount(), path)
	}
	return account, nil
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
