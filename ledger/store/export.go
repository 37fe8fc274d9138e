package store

import (
	"cmp"
	"context"

	"github.com/ledgerd/ledgerd/ledger"
)

// BlockLine is a block in an export.
type BlockLine struct {
	Height   ledger.Height `json:"height"`
	Hash     ledger.Hash   `json:"hash"`
	Previous ledger.Hash   `json:"previous"`
	// Transactions are the ids, in order.
	Transactions []ledger.Hash `json:"transactions"`
}

// BalanceLine is a balance in an export.
type BalanceLine struct {
	// Account is the account's alias, which is its name in the file that it was imported from.
	// Without an alias it is the account's path.
	Account string           `json:"account"`
	Asset   ledger.AssetName `json:"asset"`
	// Amount is the whole balance, including amounts that are set aside for other shards.
	Amount ledger.Amount `json:"amount"`
}

// NewBlockLine returns the export of a block.
func NewBlockLine(block *ledger.Block) BlockLine {
	line := BlockLine{Height: block.Header.Height, Hash: block.Hash,
		Previous: block.Header.Previous, Transactions: make([]ledger.Hash, block.Len())}
	for i, entry := range block.All() {
		line.Transactions[i] = entry.ID
	}
	return line
}

// NewBalanceLines returns the export of an account's balances, by asset.
func NewBalanceLines(account *ledger.Account) []BalanceLine {
	lines := make([]BalanceLine, len(account.Balances))
	name := account.Alias
	if name == "" {
		name = string(account.Path)
	}
	for i, balance := range account.Balances {
		lines[i] = BalanceLine{Account: name, Asset: balance.Asset, Amount: balance.Settled()}
	}
	return lines
}

// ExportBlocks calls visit with every block from 1 to the head at the time of the call, until visit
// fails or ctx ends.
func (s *Store) ExportBlocks(ctx context.Context, visit func(BlockLine) error) error {
	head := s.AppendedHeight()
	for height := ledger.Height(1); height <= head; height++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		block, err := s.Block(height)
		if err != nil {
			return err
		}
		if err := visit(NewBlockLine(block)); err != nil {
			return err
		}
	}
	return nil
}

// ExportBalances calls visit with every balance, ordered by account path and asset, until visit
// fails or ctx ends.
func (s *Store) ExportBalances(ctx context.Context, visit func(BalanceLine) error) error {
	for account, err := range s.AllAccounts() {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		if !s.LivesHere(account.Path.Organisation()) {
			continue // it has moved to another shard, or has not arrived
		}
		for _, line := range NewBalanceLines(&account) {
			if err := visit(line); err != nil {
				return err
			}
		}
	}
	return nil
}
