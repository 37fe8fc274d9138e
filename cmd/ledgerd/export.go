package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/client"
)

// balanceLine is a balance in an export. The amount is a JSON integer, as it may be in an import.
type balanceLine struct {
	Account string           `json:"account"`
	Asset   ledger.AssetName `json:"asset"`
	Amount  json.Number      `json:"amount"`
}

// exporter reads the lines of an export, from a folder or from a node.
type exporter interface {
	ExportBlocks(ctx context.Context, visit func(store.BlockLine) error) error
	ExportBalances(ctx context.Context, visit func(store.BalanceLine) error) error
}

// newExportCommand is ledgerd export.
func newExportCommand() *cobra.Command {
	var dir, url string
	var blocks, balances bool
	command := &cobra.Command{
		Use:   "export (--home DIR | --node URL) (--blocks | --balances)",
		Short: "Write all blocks or all balances as JSON lines",
		Long: `Write all blocks or all balances as JSON lines to standard output, in an order
that is the same on every node: two nodes with one chain give the same bytes.

  --blocks    from block 1 to the head: height, hash, previous, transactions
              (the ids in their order)
  --balances  by account and asset: account, asset, amount. An account that was
              imported is named as in the file; the amount is an integer of up
              to 39 digits.

With --home the blocks come from the node's folder, and the node must not be
running. With --node they come from a running node; balances of a node that
is taking transactions are not all of one moment.`,
		Example: `  ledgerd export --home net/node-0 --blocks > blocks.jsonl
  ledgerd export --node http://127.0.0.1:26600 --balances | sort > balances.jsonl`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			var from exporter
			if url != "" {
				node, err := client.New([]string{url}, client.Options{})
				if err != nil {
					return asUsage(err)
				}
				defer node.Close()
				from = nodeExporter{node}
			} else {
				h, err := loadHome(dir)
				if err != nil {
					return err
				}
				if err := hasData(h); err != nil {
					return err
				}
				opened, err := store.Open(h.Data(), h.Genesis, storeOptions(h))
				if err != nil {
					return explainStore(h, err)
				}
				defer func() { err = errors.Join(err, opened.Close()) }()
				from = opened
			}
			return export(command.Context(), command.OutOrStdout(), from, blocks)
		},
	}
	flags := command.Flags()
	flags.StringVar(&dir, "home", "", "home folder of a node that is not running")
	flags.StringVar(&url, "node", "", "address of a running node")
	flags.BoolVar(&blocks, "blocks", false, "write the blocks")
	flags.BoolVar(&balances, "balances", false, "write the balances")
	flags.Bool("json", true, "print JSON, which is all that there is")
	if err := flags.MarkHidden("json"); err != nil {
		panic("export: no such flag: json")
	}
	command.MarkFlagsMutuallyExclusive("home", "node")
	command.MarkFlagsOneRequired("home", "node")
	command.MarkFlagsMutuallyExclusive("blocks", "balances")
	command.MarkFlagsOneRequired("blocks", "balances")
	return command
}

// export writes the lines.
func export(ctx context.Context, out io.Writer, from exporter, blocks bool) error {
	buffered := bufio.NewWriterSize(out, 1<<16)
	encoder := json.NewEncoder(buffered)
	encoder.SetEscapeHTML(false)
	var err error
	if blocks {
		err = from.ExportBlocks(ctx, func(line store.BlockLine) error { return encoder.Encode(line) })
	} else {
		err = from.ExportBalances(ctx, func(line store.BalanceLine) error {
			return encoder.Encode(balanceLine{Account: line.Account, Asset: line.Asset, Amount: json.Number(line.Amount.String())})
		})
	}
	return errors.Join(err, buffered.Flush())
}

// nodeExporter reads the lines from a running node, page by page.
type nodeExporter struct{ node *client.Client }

// ExportBlocks is store.Store's. It ends with the block that was the head when it began.
func (e nodeExporter) ExportBlocks(ctx context.Context, visit func(store.BlockLine) error) error {
	state, err := e.node.Node(ctx)
	if err != nil {
		return err
	}
	head := ledger.Height(state.GetOrderedHeight())
	if head == 0 {
		return nil
	}
	for header, err := range e.node.Blocks(ctx, 1, true) {
		if err != nil {
			return err
		}
		line := store.BlockLine{Height: ledger.Height(header.GetHeight()), Transactions: make([]ledger.Hash, 0, header.GetTransactionCount())}
		if err := errors.Join(setHash(&line.Hash, header.GetHash()), setHash(&line.Previous, header.GetPrevious())); err != nil {
			return err
		}
		for transaction, err := range e.node.BlockTransactions(ctx, line.Height) {
			if err != nil {
				return err
			}
			var id ledger.Hash
			if err := setHash(&id, transaction.GetStatus().GetId()); err != nil {
				return err
			}
			line.Transactions = append(line.Transactions, id)
		}
		if err := visit(line); err != nil {
			return err
		}
		if line.Height >= head {
			return nil
		}
	}
	return fmt.Errorf("the node's list of blocks ends before block %d", head)
}

// ExportBalances is store.Store's.
func (e nodeExporter) ExportBalances(ctx context.Context, visit func(store.BalanceLine) error) error {
	for shown, err := range e.node.Accounts(ctx, "") {
		if err != nil {
			return err
		}
		account := ledger.Account{Path: ledger.AccountPath(shown.GetAccount()), Alias: shown.GetAlias()}
		for _, balance := range shown.GetBalances() {
			amount, err := ledger.ParseAmount(balance.GetAmount())
			if err != nil {
				return fmt.Errorf("the node's answer: %s: %w", account.Path, err)
			}
			account.Balances = append(account.Balances, ledger.Balance{Asset: ledger.AssetName(balance.GetAsset()), Amount: amount})
		}
		for _, line := range store.NewBalanceLines(&account) {
			if err := visit(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// setHash takes a hash from an answer.
func setHash(hash *ledger.Hash, from []byte) error {
	if len(from) != len(hash) {
		return fmt.Errorf("the node's answer has a hash of %d bytes", len(from))
	}
	copy(hash[:], from)
	return nil
}
