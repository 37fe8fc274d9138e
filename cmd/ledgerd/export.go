package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	nodereport "github.com/ledgerd/ledgerd/node/report"
)

// balanceLine is a balance in an export.
type balanceLine struct {
	Account string           `json:"account"`
	Asset   ledger.AssetName `json:"asset"`
	Amount  ledger.Amount    `json:"amount"` // as text
	// Decimal is the amount with the decimals of the asset, if it has any.
	Decimal string `json:"amount_decimal,omitempty"`
}

// blockLine is a block in an export.
type blockLine struct {
	store.BlockLine
	// Entries are the outcomes of the transactions, in their order.
	Entries []entryLine `json:"entries"`
}

// entryLine is the outcome of an entry of a block, as far as the exported chain knows.
type entryLine struct {
	ID ledger.Hash `json:"id"`
	// Outcome is applied, failed, waiting (for other shards), passed (the entry is for other
	// shards) or verdict (another shard's verdict about an entry).
	Outcome string `json:"outcome"`
	// Reason is the code of the reason for a failure.
	Reason string `json:"reason,omitempty"`
	// Crossed is set if the entry concerns several shards.
	Crossed bool `json:"crossed"`
}

// exporter reads the lines of an export, from a folder or from a node.
type exporter interface {
	ExportBlocks(ctx context.Context, visit func(blockLine) error) error
	ExportBalances(ctx context.Context, visit func(store.BalanceLine) error) error
	// decimals returns those of a registered asset, and 0 for others.
	decimals(ctx context.Context, asset ledger.AssetName) (int, error)
}

// newExportCommand returns the `ledgerd export` command.
func newExportCommand() *cobra.Command {
	var dir, url string
	var blocks, balances bool
	var cut cutFlags
	var whole journalFlags
	var access credentials
	command := &cobra.Command{
		Use: "export (--home DIR | --node URL) (--blocks | --balances [--at HEIGHT | " +
			"--cut FILE] | --journal)",
		Short: "Write all blocks, all balances or a journal of everything",
		Long: `Write all blocks or all balances as JSON lines to standard output, or a journal of
everything, in an order that is the same on every node: two nodes with one chain
write the same bytes.

  --blocks    from block 1 to the head: height, hash, previous, transactions
              (the ids in their order) and entries: the outcome of each, which
              is applied, failed (with the reason's code), waiting (for other
              shards), passed (it is only for other shards) or verdict (another
              shard's verdict about an entry), and whether it crossed shards
  --balances  by account and asset: account, asset, amount. An account that was
              imported is named as in the file; the amount is text with the digits
              of an integer, of the smallest unit. Of a registered asset with
              decimals, amount_decimal is the same amount with all of them.
  --journal   from block 1 to the head, or to --at: every transaction with its
              postings, records, note, signatures and outcome

A journal is of one chain, the node's shard, and comes from the node's folder with
--home. --format says how it is written:

  jsonl      all of it, with the blocks' encodings, roots and certificates, so that
             ledgerd verify --journal checks it with nothing but the genesis;
             --proofs writes the proof of each entry beside it. ledgerd tx import
             takes it into another ledger
  csv        a table: a row for each block, entry, signature, posting and so on
  beancount  for Beancount: what changes balances, with notes, ids and heights
  hledger    the same for hledger
  parquet    the table of csv as Parquet files in the folder --out
  iso20022   statements of all accounts, as banks send them (camt.053.001.08);
             amounts of up to 18 digits

With --out FILE, an export that was interrupted goes on: run the same command again.
It keeps the blocks in the file before the last one, and of parquet the files that
are full, and writes the others. So it also brings a journal up to date. The file is
the same as without interruptions. iso20022 begins anew, since it is sorted by
account. Progress is shown on standard error.

In a book of several shards, the blocks are those of the node's shard. With --home
so are the balances; with --node they are those of all shards.

With --home the blocks come from the node's folder, and the node must not be
running. With --node they come from a running node. The balances of a running node
are those at one cut over all shards, also while it takes transactions: each
transaction counts in all of its shards or in none, so the balances of an asset add
up to zero. The cut is what is durable now, that at a block of the root's chain
with --at, or with --cut one that ledgerd cut --json wrote. It is shown on standard
error, in one word: SHARD:HEIGHT for each shard, and +ENTRIES of the next block.

With --home the balances are those that the folder has; with --cut those of its
shard at that cut, and in a book of one shard with --at those at a block.`,
		Example: `  ledgerd export --home net/node-0 --blocks > blocks.jsonl
  ledgerd export --node http://127.0.0.1:26600 --balances | sort > balances.jsonl

  # Everything, to verify it elsewhere with nothing but the genesis
  ledgerd export --home net/node-0 --journal --out book.jsonl
  ledgerd verify --journal book.jsonl --genesis net/node-0/genesis.json

  # The balances at block 1000 of the chain of the root
  ledgerd export --node http://127.0.0.1:26600 --balances --at 1000

  # The balances at one cut, as two nodes have them
  ledgerd cut --json > cut.json
  ledgerd export --balances --cut cut.json --node http://127.0.0.1:26600
  ledgerd export --balances --cut cut.json --node http://127.0.0.1:26601`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) (err error) {
			if err := whole.check(command); err != nil {
				return err
			}
			var from exporter
			if blocks && (command.Flags().Changed("at") || command.Flags().Changed("cut")) {
				return usagef("--at and --cut are for --balances")
			}
			if url != "" {
				options, err := access.options()
				if err != nil {
					return err
				}
				node, err := client.New([]string{url}, options)
				if err != nil {
					return asUsage(err)
				}
				defer node.Close()
				from = nodeExporter{node, &cut, command, newDecimals(node)}
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
				if whole.journal {
					until, err := cut.at.until(opened)
					if err != nil {
						return err
					}
					return whole.export(command, opened, until)
				}
				place, err := cut.placeIn(command, opened)
				if err != nil {
					return err
				}
				from = storeExporter{opened, place}
			}
			return export(command.Context(), command.OutOrStdout(), from, blocks)
		},
	}
	flags := command.Flags()
	flags.StringVar(&dir, "home", "", "home folder of a node that is not running")
	flags.StringVar(&url, "node", "", "address of a running node")
	access.bind(flags)
	flags.BoolVar(&blocks, "blocks", false, "write the blocks")
	flags.BoolVar(&balances, "balances", false, "write the balances")
	cut.bind(command)
	whole.bind(command)
	flags.Bool("json", true, "print JSON, the only format")
	if err := flags.MarkHidden("json"); err != nil {
		panic("export: no such flag: json")
	}
	command.MarkFlagsMutuallyExclusive("home", "node")
	command.MarkFlagsOneRequired("home", "node")
	command.MarkFlagsMutuallyExclusive("blocks", "balances", "journal")
	command.MarkFlagsOneRequired("blocks", "balances", "journal")
	return command
}

// export writes the lines of all blocks or all balances.
func export(ctx context.Context, out io.Writer, from exporter, blocks bool) error {
	buffered := bufio.NewWriterSize(out, 1<<16)
	encoder := json.NewEncoder(buffered)
	encoder.SetEscapeHTML(false)
	var err error
	if blocks {
		err = from.ExportBlocks(ctx, func(line blockLine) error { return encoder.Encode(line) })
	} else {
		err = from.ExportBalances(ctx, func(line store.BalanceLine) error {
			count, err := from.decimals(ctx, line.Asset)
			if err != nil {
				return err
			}
			return encoder.Encode(balanceLine{Account: line.Account, Asset: line.Asset,
				Amount: line.Amount, Decimal: decimalForm(line.Amount.String(), count)})
		})
	}
	return errors.Join(err, buffered.Flush())
}

// storeExporter reads the lines from a node's folder.
type storeExporter struct {
	*store.Store
	place *store.Place // for balances; nil for those of now
}

func (e storeExporter) decimals(_ context.Context, name ledger.AssetName) (int, error) {
	asset, _ := e.Asset(name)
	return int(asset.Decimals), nil
}

// ExportBlocks calls visit with every block from 1 to the head, until it fails or ctx ends.
func (e storeExporter) ExportBlocks(ctx context.Context, visit func(blockLine) error) error {
	head := e.Head().Height
	for height := ledger.Height(1); height <= head; height++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		block, err := e.Block(height)
		if err != nil {
			return err
		}
		line := blockLine{BlockLine: store.NewBlockLine(block),
			Entries: make([]entryLine, block.Len())}
		for i, entry := range block.All() {
			if line.Entries[i], err = e.entry(entry); err != nil {
				return err
			}
		}
		if err := visit(line); err != nil {
			return err
		}
	}
	return nil
}

// entry returns the line of an entry, with its outcome.
func (e storeExporter) entry(entry *ledger.Entry) (entryLine, error) {
	line := entryLine{ID: entry.ID, Outcome: "applied"}
	switch {
	case entry.Transaction().Verdict != nil:
		line.Outcome = "verdict"
		return line, nil
	case e.ShardTree() == nil:
		if !entry.Result.OK() {
			line.Outcome, line.Reason = "failed", api.ReasonCode(entry.Result.Code)
		}
		return line, nil
	}
	crossing, err := e.Crossing(entry.ID)
	if err != nil {
		return line, err
	}
	line.Crossed = len(crossing.Destinations) > 1
	switch crossing.Outcome {
	case store.Waiting:
		line.Outcome = "waiting"
	case store.PassedThrough:
		line.Outcome = "passed"
	case store.Refused:
		result := entry.Result
		if crossing.Settled != nil {
			result = crossing.Settled.Entry.Transaction().Verdict.Result
		}
		line.Outcome, line.Reason = "failed", api.ReasonCode(result.Code)
	}
	return line, nil
}

// ExportBalances writes the lines of the store's method, or those at the place.
func (e storeExporter) ExportBalances(ctx context.Context,
	visit func(store.BalanceLine) error) error {
	if e.place == nil {
		return e.Store.ExportBalances(ctx, visit)
	}
	const page = 1024
	for after, more := ledger.AccountPath(""), true; more; {
		var accounts []ledger.Account
		var err error
		accounts, after, more, err = e.AccountsAt(ctx, *e.place, after, page, nil)
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for i := range accounts {
			if _, err := e.TermsAt(&accounts[i], *e.place); err != nil { // lines have the alias
				return err
			}
			for _, line := range store.NewBalanceLines(&accounts[i]) {
				if err := visit(line); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// nodeExporter reads the lines from a running node, page by page.
type nodeExporter struct {
	node    *client.Client
	cut     *cutFlags
	command *cobra.Command // its standard error gets the cut
	assets  *decimals
}

func (e nodeExporter) decimals(ctx context.Context, asset ledger.AssetName) (int, error) {
	return e.assets.of(ctx, asset)
}

// ExportBlocks calls visit with every block from 1 to the node's head at the time of the call.
func (e nodeExporter) ExportBlocks(ctx context.Context, visit func(blockLine) error) error {
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
		count := header.GetTransactionCount()
		line := blockLine{
			BlockLine: store.BlockLine{Height: ledger.Height(header.GetHeight()),
				Transactions: make([]ledger.Hash, 0, count)}, Entries: make([]entryLine, 0, count),
		}
		if err := errors.Join(setHash(&line.Hash, header.GetHash()),
			setHash(&line.Previous, header.GetPrevious())); err != nil {
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
			line.Transactions, line.Entries = append(line.Transactions, id),
				append(line.Entries, shownEntry(id, transaction))
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

// shownEntry returns the line of an entry as a node's API shows it.
func shownEntry(id ledger.Hash, shown *ledgerdv1.TransactionSummary) entryLine {
	status := shown.GetStatus()
	line := entryLine{ID: id, Outcome: "applied", Crossed: len(status.GetDestinations()) > 1}
	switch {
	case shown.GetVerdict() != "":
		line.Outcome = "verdict"
	case status.GetState() == ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED:
		line.Outcome, line.Reason = "failed", status.GetReasonCode()
	case status.GetReasonCode() == api.ReasonCode(ledger.SetAside):
		line.Outcome = "waiting"
	case status.GetReasonCode() == api.ReasonCode(ledger.Relayed):
		line.Outcome = "passed"
	}
	return line
}

// ExportBalances writes the same lines as store.Store's method, for the accounts of all shards at
// one cut.
func (e nodeExporter) ExportBalances(ctx context.Context,
	visit func(store.BalanceLine) error) error {
	places, err := e.cut.find(ctx, e.command, e.node)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(e.command.ErrOrStderr(), "balances at the cut",
		cutText(places)); err != nil {
		return err
	}
	if err := tellLeftOut(ctx, e.node, e.command.ErrOrStderr()); err != nil {
		return err
	}
	for shown, err := range e.node.AccountsAt(ctx, "", places) {
		if err != nil {
			return err
		}
		account := ledger.Account{Path: ledger.AccountPath(shown.GetAccount()),
			Alias: shown.GetAlias()}
		for _, balance := range shown.GetBalances() {
			amount, err := ledger.ParseAmount(balance.GetAmount())
			if err != nil {
				return fmt.Errorf("the node's answer: %s: %w", account.Path, err)
			}
			account.Balances = append(account.Balances,
				ledger.Balance{Asset: ledger.AssetName(balance.GetAsset()), Amount: amount})
		}
		for _, line := range store.NewBalanceLines(&account) {
			if err := visit(line); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellLeftOut says which shards are lost, and so left out of the balances.
func tellLeftOut(ctx context.Context, node *client.Client, out io.Writer) error {
	tree, err := node.Tree(ctx)
	if err != nil {
		return err
	}
	for _, shard := range tree.GetShards() {
		if shard.GetMode() != nodereport.ShardLost.String() {
			continue
		}
		if _, err := fmt.Fprintf(out, "shard %d is lost and left out: the balances do not add up "+
			"to zero by what it had\n", shard.GetShard()); err != nil {
			return err
		}
	}
	return nil
}

// setHash copies a hash from an answer. It fails if the length is wrong.
func setHash(hash *ledger.Hash, from []byte) error {
	if len(from) != len(hash) {
		return fmt.Errorf("the node's answer has a hash of %d bytes", len(from))
	}
	copy(hash[:], from)
	return nil
}
