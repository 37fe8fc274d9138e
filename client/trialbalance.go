package client

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TrialLine is an asset in a trial balance: the sums of the balances above zero and of those below,
// which is shown without its sign, over all accounts of all shards.
type TrialLine struct {
	Asset         ledger.AssetName
	Accounts      int // that have some of it
	Debit, Credit *big.Int
	// Decimals are those with which the sums are written, as the nodes say.
	Decimals int
}

// Balanced reports whether both sums are equal, as they are in every book that has lost no shard.
func (l *TrialLine) Balanced() bool { return l.Debit.Cmp(l.Credit) == 0 }

// TrialBalance sums up the balances of all accounts of all shards at a cut, given by the place in
// the chain of each shard (Cut). It calls visit with each account, unless that is nil.
func (c *Client) TrialBalance(ctx context.Context, cut []*ledgerdv1.Place,
	visit func(account *ledgerdv1.Account) error) ([]TrialLine, error) {
	lines := make(map[string]*TrialLine)
	for account, err := range c.AccountsAt(ctx, "", cut) {
		if err != nil {
			return nil, err
		}
		for _, balance := range account.GetBalances() {
			amount, err := amountOf(balance)
			if err != nil {
				return nil, fmt.Errorf("%w, in %s", err, account.GetAccount())
			}
			line := lines[balance.GetAsset()]
			if line == nil {
				line = &TrialLine{Asset: ledger.AssetName(balance.GetAsset()), Debit: new(big.Int),
					Credit: new(big.Int)}
				lines[balance.GetAsset()] = line
			}
			line.Decimals = max(line.Decimals, int(balance.GetDecimals()))
			switch line.Accounts++; amount.Sign() {
			case 1:
				line.Debit.Add(line.Debit, amount)
			case -1:
				line.Credit.Sub(line.Credit, amount)
			}
		}
		if visit != nil {
			if err := visit(account); err != nil {
				return nil, err
			}
		}
	}
	sorted := make([]TrialLine, 0, len(lines))
	for _, line := range lines {
		sorted = append(sorted, *line)
	}
	slices.SortFunc(sorted, func(a, b TrialLine) int { return cmp.Compare(a.Asset, b.Asset) })
	return sorted, nil
}
