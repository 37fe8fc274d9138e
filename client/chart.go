package client

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// ChartLine is a place in a chart of accounts: an account, or what begins the paths of accounts, up
// to the colon between their parts. An account may have others below it.
type ChartLine struct {
	Path string
	// Depth is the number of parts of the path. The line of the whole book has none.
	Depth int
	// Account reports whether an account has this path.
	Account bool
	// Accounts is the number of accounts with this path and below it.
	Accounts int
	// Totals are the sums over all of them, by asset.
	Totals []ChartTotal
}

// ChartTotal is the sum of the balances of accounts in one asset, of which some are below zero.
type ChartTotal struct {
	Asset  ledger.AssetName
	Amount *big.Int
	// Decimals are those with which the sum is written, as the nodes say.
	Decimals int
}

// Chart sums up the balances at a cut (Cut), over all shards, for each level of the paths of
// accounts: for acme:customers:4711 that is the account itself, acme:customers and acme. It has the
// account with the path under, if there is one, and those below it; all accounts if under is empty.
// Depth bounds how many parts the paths of lines have beyond those of under; below zero, nothing
// does. Accounts further down count in the lines above them. The lines come as in a table of
// contents.
func (c *Client) Chart(ctx context.Context, under string, depth int,
	cut []*ledgerdv1.Place) ([]ChartLine, error) {
	under = strings.TrimSuffix(under, ":")
	from := len(partsOf(under))
	lines := make(map[string]*ChartLine)
	for account, err := range c.AccountsAt(ctx, under, cut) {
		if err != nil {
			return nil, err
		}
		path := account.GetAccount()
		if !IsUnder(path, under) {
			continue
		}
		parts := partsOf(path)
		for level := from; level <= len(parts) && (depth < 0 || level <= from+depth); level++ {
			at := strings.Join(parts[:level], ":")
			line := lines[at]
			if line == nil {
				line = &ChartLine{Path: at, Depth: level}
				lines[at] = line
			}
			line.Accounts++
			line.Account = line.Account || level == len(parts)
			for _, balance := range account.GetBalances() {
				if err := line.add(balance); err != nil {
					return nil, fmt.Errorf("%w, in %s", err, path)
				}
			}
		}
	}
	sorted := make([]ChartLine, 0, len(lines))
	for _, line := range lines {
		slices.SortFunc(line.Totals, func(a, b ChartTotal) int {
			return cmp.Compare(a.Asset, b.Asset)
		})
		sorted = append(sorted, *line)
	}
	slices.SortFunc(sorted, func(a, b ChartLine) int {
		return slices.Compare(partsOf(a.Path), partsOf(b.Path))
	})
	return sorted, nil
}

// IsUnder reports whether an account has a path, or is below it: acme:customers:4711 is below
// acme:customers, and acme:customers2 is not.
func IsUnder(account, path string) bool {
	rest, has := strings.CutPrefix(account, strings.TrimSuffix(path, ":"))
	return has && (path == "" || rest == "" || rest[0] == ':')
}

func partsOf(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, ":")
}

// add adds a balance to the total of its asset.
func (l *ChartLine) add(balance *ledgerdv1.Balance) error {
	amount, err := amountOf(balance)
	if err != nil {
		return err
	}
	asset := ledger.AssetName(balance.GetAsset())
	at := slices.IndexFunc(l.Totals, func(t ChartTotal) bool { return t.Asset == asset })
	if at < 0 {
		at = len(l.Totals)
		l.Totals = append(l.Totals, ChartTotal{Asset: asset, Amount: new(big.Int)})
	}
	total := &l.Totals[at]
	total.Amount.Add(total.Amount, amount)
	total.Decimals = max(total.Decimals, int(balance.GetDecimals()))
	return nil
}
