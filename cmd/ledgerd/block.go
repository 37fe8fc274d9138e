package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// blockReport is a block as --json prints it.
type blockReport struct {
	// Shard is the shard whose chain contains the block.
	Shard            uint32            `json:"shard,omitempty"`
	Height           uint64            `json:"height"`
	Hash             string            `json:"hash"`
	Previous         string            `json:"previous"`
	TimeMS           uint64            `json:"time_ms"`
	Epoch            uint64            `json:"epoch"`
	Round            uint64            `json:"round"`
	Level            string            `json:"level"`
	TransactionCount uint32            `json:"transaction_count"`
	FailedCount      uint32            `json:"failed_count"`
	SizeBytes        uint64            `json:"size_bytes"`
	TransactionsRoot string            `json:"transactions_root"`
	ResultsRoot      string            `json:"results_root"`
	StateDigest      string            `json:"state_digest"`
	Transactions     []blockItemReport `json:"transactions,omitempty"`
	// More is set if the block has more transactions than are shown.
	More bool `json:"more,omitempty"`
}

// blockItemReport is a transaction of a block as --json prints it.
type blockItemReport struct {
	statusReport
	Signer       string          `json:"signer"`
	Postings     []postingReport `json:"postings"` // the first few
	PostingCount uint32          `json:"posting_count"`
	RecordCount  uint32          `json:"record_count"`
	Note         string          `json:"note,omitempty"`
	Change       *changeReport   `json:"membership_change,omitempty"`
	Policy       bool            `json:"policy,omitempty"`  // whether it changes its signer's policy
	Charter      bool            `json:"charter,omitempty"` // or the operators, quotas or version
	Asset        string          `json:"asset,omitempty"`   // or the asset that it registers
	// These are set if the entry is the verdict of another shard.
	VerdictTransaction string `json:"verdict_transaction,omitempty"`
	VerdictShard       uint32 `json:"verdict_shard,omitempty"`
	Verdict            string `json:"verdict,omitempty"`
	// These are set if it cancels a transaction at a shard.
	Cancels   string `json:"cancels,omitempty"`
	CancelsAt uint32 `json:"cancels_at,omitempty"`
}

// levelName returns the name of a level in lower case.
func levelName(level ledgerdv1.Level) string {
	return strings.ToLower(strings.TrimPrefix(level.String(), "LEVEL_"))
}

func reportBlock(header *ledgerdv1.BlockHeader) blockReport {
	return blockReport{
		Shard: header.GetShard(), Height: header.GetHeight(), Hash: header.GetHashHex(),
		Previous: header.GetPreviousHex(), TimeMS: header.GetTimeMs(),
		Epoch: header.GetEpoch(), Round: header.GetRound(), Level: levelName(header.GetLevel()),
		TransactionCount: header.GetTransactionCount(), FailedCount: header.GetFailedCount(),
		SizeBytes:        header.GetSizeBytes(),
		TransactionsRoot: fmt.Sprintf("%x", header.GetTransactionsRoot()),
		ResultsRoot:      fmt.Sprintf("%x", header.GetResultsRoot()),
		StateDigest:      fmt.Sprintf("%x", header.GetStateDigest()),
	}
}

func reportBlockItem(item *ledgerdv1.TransactionSummary) blockItemReport {
	return blockItemReport{
		statusReport: reportStatus(item.GetStatus()), Signer: item.GetSigner(),
		Postings:     reportPostings(item.GetPostings()),
		PostingCount: item.GetPostingCount(), RecordCount: item.GetRecordCount(),
		Note: item.GetNote(), Change: reportChange(item.GetMembershipChange()),
		Policy: item.GetPolicy(), Charter: item.GetCharter(), Asset: item.GetAsset().GetAsset(),
		VerdictTransaction: item.GetVerdictTransactionHex(), VerdictShard: item.GetVerdictShard(),
		Verdict: item.GetVerdict(), Cancels: item.GetCancelsHex(), CancelsAt: item.GetCancelsAt(),
	}
}

// blockOptions are the flags of ledgerd block.
type blockOptions struct {
	remote remoteOptions
	shard  shardFlag
	follow bool
	book   bool
	begin  []string
	limit  int
	json   bool
	// silent are the shards that the command last said do not answer.
	silent []uint32
}

// newBlockCommand returns the `ledgerd block` command.
func newBlockCommand() *cobra.Command {
	var options blockOptions
	command := &cobra.Command{
		Use:   "block [HEIGHT|HASH|head]",
		Short: "Show a block, the latest blocks, or blocks as they come",
		Long: `Show a block, the latest blocks, or blocks as they come.

A block is named by its height, by its hash (64 hex digits), or as head, the
newest one. Without a name, the latest blocks are listed. Each block contains the
hash of the one before it, so that one hash stands for the whole history.

With --follow, each new block is shown on a line of its own, from the named height
on or after the newest, until you stop the command. If the node fails, the stream
goes on at the next node without a gap. With --json each line is a JSON object.

In a ledger of several shards, each shard has a chain of its own. Without --shard,
the blocks are those of the asked node's shard; only a block named by its hash is
looked up in all shards.

With --follow --book, the blocks of all shards are shown, those of one shard in
their order. To go on later where you stopped, name the next height of each shard
with --begin. A shard that does not answer is named, and its blocks come once it
answers.`,
		Example: `  ledgerd block
  ledgerd block head
  ledgerd block 17 --json | jq -r '.transactions[].id'

  # All blocks from the first on, for as long as you like
  ledgerd block 1 --follow --json

  # The newest block of shard 2, whichever node is asked
  ledgerd block head --shard 2

  # The blocks of all shards, from block 18 of shard 0 and block 40 of shard 1 on
  ledgerd block --follow --book --begin 0:18,1:40 --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: options.run,
		ValidArgsFunction: cobra.FixedCompletions([]string{"head"},
			cobra.ShellCompDirectiveNoFileComp),
	}
	options.remote.bind(command, false)
	options.shard.bind(command, &options.remote,
		"blocks of this shard's chain (default the asked node's)")
	command.Flags().BoolVar(&options.follow, "follow", false, "show blocks as they come")
	command.Flags().BoolVar(&options.book, "book", false,
		"with --follow: blocks of all shards")
	command.Flags().StringSliceVar(&options.begin, "begin", nil, "with --book: where to begin, "+
		"as SHARD:HEIGHT,... (default the named height, or after the newest block)")
	command.Flags().IntVar(&options.limit, "limit", 20,
		"show at most so many blocks, or transactions of a block; 0 means all")
	addJSONFlag(command, &options.json)
	return command
}

func (o *blockOptions) run(command *cobra.Command, arguments []string) error {
	if err := checkLimit(o.limit); err != nil {
		return err
	}
	if o.json && !command.Flags().Changed("limit") && len(arguments) > 0 {
		o.limit = 0
	}
	var request *ledgerdv1.GetBlockRequest
	if len(arguments) > 0 {
		var err error
		if request, err = parseBlockName(arguments[0]); err != nil {
			return err
		}
	}
	if o.book && !o.follow {
		return usagef("--book is for --follow: a list has the blocks of one shard")
	}
	if o.book && o.shard.number != nil {
		return usagef("--book shows all shards: leave out --shard")
	}
	if len(o.begin) > 0 && !o.book {
		return usagef("--begin is for --follow --book: name a height instead")
	}
	if o.follow {
		if request.GetHashHex() != "" {
			return usagef("--follow begins at a height or at head, not at a hash")
		}
		if !command.Flags().Changed("timeout") {
			o.remote.timeout = 0
		}
	}
	nodes, ctx, done, err := o.remote.connect(command.Context())
	if err != nil {
		return err
	}
	defer done()
	switch {
	case o.follow:
		return o.followFrom(ctx, command, nodes, request)
	case request != nil:
		return o.show(ctx, command, nodes, request)
	default:
		return o.list(ctx, command, nodes)
	}
}

// parseBlockName parses a height, a hash or "head".
func parseBlockName(text string) (*ledgerdv1.GetBlockRequest, error) {
	if text == "head" {
		return &ledgerdv1.GetBlockRequest{Block: &ledgerdv1.GetBlockRequest_Head{Head: true}}, nil
	}
	if height, err := strconv.ParseUint(text, 10, 64); err == nil && len(text) < 2*ledger.HashSize {
		return &ledgerdv1.GetBlockRequest{Block: &ledgerdv1.GetBlockRequest_Height{Height: height}},
			nil
	}
	hash, err := ledger.ParseHash(text)
	if err != nil {
		return nil, usagef("%q names no block: use a height, a hash of 64 hex digits, or head",
			text)
	}
	return &ledgerdv1.GetBlockRequest{Block: &ledgerdv1.GetBlockRequest_HashHex{
		HashHex: hash.String()}}, nil
}

func (o *blockOptions) show(ctx context.Context, command *cobra.Command, nodes *client.Client,
	request *ledgerdv1.GetBlockRequest) error {
	request.PageSize, request.Shard = 1, o.shard.number
	answer, err := nodes.Block(ctx, request)
	if err != nil {
		return err
	}
	header := answer.GetBlock().GetHeader()
	report := reportBlock(header)
	items := iter.Seq2[*ledgerdv1.TransactionSummary,
		error](func(func(*ledgerdv1.TransactionSummary, error) bool) {})
	if report.TransactionCount > 0 {
		shard := header.GetShard()
		items = nodes.BlockTransactionsOf(ctx, &shard, ledger.Height(report.Height))
	}
	transactions, more, err := take(items, o.limit)
	if err != nil {
		return err
	}
	report.More = more
	for _, transaction := range transactions {
		report.Transactions = append(report.Transactions, reportBlockItem(transaction))
	}
	known := newDecimals(nodes)
	for i := range report.Transactions {
		decimalPostings(ctx, known, report.Transactions[i].Postings)
	}
	if o.json {
		return writeJSON(command.OutOrStdout(), report)
	}
	return report.write(command)
}

func (r *blockReport) write(command *cobra.Command) error {
	out := command.OutOrStdout()
	rows := table{}
	name := fmt.Sprint(r.Height)
	if r.Shard > 0 {
		name += fmt.Sprintf(" of shard %d", r.Shard)
	}
	rows.add("block", name)
	rows.add("hash", r.Hash)
	rows.add("previous", r.Previous)
	rows.add("time", moment(r.TimeMS))
	rows.add("level", r.Level)
	rows.add("ordered in", fmt.Sprintf("epoch %d, round %d", r.Epoch, r.Round))
	rows.add("size", plural(int(r.SizeBytes), "byte"))
	rows.add("transactions", fmt.Sprintf("%d, of which %d failed", r.TransactionCount,
		r.FailedCount))
	if err := rows.write(out); err != nil || len(r.Transactions) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	items := table{header: []string{"TRANSACTION", "STATE", "SIGNER", "WHAT"},
		colour: func(column int, cell string) string {
			if column == 1 {
				return colourOfState(cell)
			}
			return ""
		}}
	for _, item := range r.Transactions {
		signer := signerName(item.Signer, item.Change)
		if item.Verdict != "" {
			signer = fmt.Sprintf("shard %d", item.VerdictShard)
		}
		items.add(item.ID, item.State, signer, item.what())
	}
	return writeList(out, &items, r.More, "")
}

// what describes a transaction in a few words.
func (r *blockItemReport) what() string {
	var parts []string
	if r.State == "failed" {
		parts = append(parts, r.ReasonCode)
	}
	if r.Verdict != "" {
		parts = append(parts, fmt.Sprintf("shard %d says %s of %s", r.VerdictShard,
			sanitize(r.Verdict, 0), r.VerdictTransaction))
	}
	if r.Cancels != "" {
		parts = append(parts, fmt.Sprintf("cancels %s at shard %d", sanitize(r.Cancels, 0),
			r.CancelsAt))
	}
	if len(r.WaitsFor) > 0 {
		parts = append(parts, "waits for "+client.ShardNames(r.WaitsFor))
	}
	shown := r.Postings
	if len(shown) == 2 && r.PostingCount == 2 && strings.HasPrefix(shown[0].Amount, "-") {
		parts = append(parts, fmt.Sprintf("%s %s from %s to %s", shown[1].shown(), shown[1].Asset,
			shown[0].Account, shown[1].Account))
	} else if r.PostingCount > 0 {
		parts = append(parts, plural(int(r.PostingCount), "posting"))
	}
	if r.Change != nil {
		parts = append(parts, r.Change.String())
	}
	if r.Policy {
		parts = append(parts, "changes its policy")
	}
	if r.Charter {
		parts = append(parts, "changes the operators, quotas or version")
	}
	if r.Asset != "" {
		parts = append(parts, "registers or changes asset "+sanitize(r.Asset, 0))
	}
	if r.RecordCount > 0 {
		parts = append(parts, plural(int(r.RecordCount), "record"))
	}
	if r.Note != "" {
		parts = append(parts, sanitize(r.Note, 40))
	}
	return strings.Join(parts, "; ")
}

func (o *blockOptions) list(ctx context.Context, command *cobra.Command,
	nodes *client.Client) error {
	blocks, more, err := take(nodes.BlocksOf(ctx, o.shard.number, 0, false), o.limit)
	if err != nil {
		return err
	}
	reports := make([]blockReport, len(blocks))
	rows := table{header: []string{"BLOCK", "TIME", "TRANSACTIONS", "FAILED", "LEVEL", "HASH"},
		right: []bool{true, false, true, true}}
	for i, header := range blocks {
		reports[i] = reportBlock(header)
		rows.add(fmt.Sprint(reports[i].Height), moment(reports[i].TimeMS),
			fmt.Sprint(reports[i].TransactionCount), fmt.Sprint(reports[i].FailedCount),
			reports[i].Level, reports[i].Hash)
	}
	if o.json {
		return writeJSON(command.OutOrStdout(), map[string]any{"blocks": reports, "more": more})
	}
	return writeList(command.OutOrStdout(), &rows, more, "no blocks yet")
}

// followFrom prints blocks until the command is stopped.
func (o *blockOptions) followFrom(ctx context.Context, command *cobra.Command, nodes *client.Client,
	request *ledgerdv1.GetBlockRequest) error {
	nodes, end, err := o.shard.nodesOf(ctx, nodes)
	if err != nil {
		return err
	}
	defer end()
	handle := func(message *ledgerdv1.SubscribeResponse) error {
		return o.print(command, message)
	}
	from := ledger.Height(request.GetHeight())
	if o.book {
		err = o.followBook(ctx, nodes, from, handle)
	} else {
		err = nodes.Subscribe(ctx, from, o.json, handle)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		client.CodeOf(err) == connect.CodeDeadlineExceeded {
		// The command was stopped, or --timeout is over. The node may notice the timeout first.
		return nil
	}
	return err
}

// followBook takes the blocks of all shards. Those that --begin does not name begin at a height.
func (o *blockOptions) followBook(ctx context.Context, nodes *client.Client, from ledger.Height,
	handle func(*ledgerdv1.SubscribeResponse) error) error {
	named, err := parseBegin(o.begin)
	if err != nil {
		return err
	}
	tree, err := nodes.Tree(ctx)
	if err != nil {
		return err
	}
	begin := make(map[ledger.ShardID]ledger.Height)
	for _, each := range tree.GetShards() {
		shard := ledger.ShardID(each.GetShard())
		height, is := named[shard]
		if begin[shard] = from; is {
			begin[shard] = height
		}
		delete(named, shard)
	}
	for shard := range named {
		return usagef("--begin: the book has no shard %d; `ledgerd shards` lists them", shard)
	}
	return nodes.SubscribeBook(ctx, begin, o.json, handle)
}

// parseBegin parses heights by shard, as in 0:18.
func parseBegin(places []string) (map[ledger.ShardID]ledger.Height, error) {
	begin := make(map[ledger.ShardID]ledger.Height, len(places))
	for _, place := range places {
		first, second, _ := strings.Cut(place, ":")
		shard, err := strconv.ParseUint(first, 10, 32)
		height, failed := strconv.ParseUint(second, 10, 64)
		if err != nil || failed != nil {
			return nil, usagef("--begin %s: name a shard and a height, as in 0:18", place)
		}
		if _, twice := begin[ledger.ShardID(shard)]; twice {
			return nil, usagef("--begin names shard %d twice", shard)
		}
		begin[ledger.ShardID(shard)] = ledger.Height(height)
	}
	return begin, nil
}

// print shows a message of a subscription on a line of its own.
func (o *blockOptions) print(command *cobra.Command, message *ledgerdv1.SubscribeResponse) error {
	if message.Block == nil {
		return o.printSilent(command, message.GetSilentShards())
	}
	out, report := command.OutOrStdout(), reportBlock(message.GetBlock().GetHeader())
	if o.json {
		for _, item := range message.GetBlock().GetTransactions() {
			report.Transactions = append(report.Transactions, reportBlockItem(item))
		}
		report.More = len(report.Transactions) < int(report.TransactionCount)
		return writeJSONLine(out, report)
	}
	shard := ""
	if o.book {
		shard = fmt.Sprintf("shard %d  ", report.Shard)
	}
	_, err := fmt.Fprintf(out, "%sblock %d  %s  %s, %d failed  %s\n", shard, report.Height,
		moment(report.TimeMS), plural(int(report.TransactionCount), "transaction"),
		report.FailedCount, report.Hash)
	return err
}

// printSilent tells which shards do not answer, if that has changed.
func (o *blockOptions) printSilent(command *cobra.Command, silent []uint32) error {
	if slices.Equal(silent, o.silent) {
		return nil
	}
	o.silent = silent
	if o.json {
		return writeJSONLine(command.OutOrStdout(), map[string]any{
			"silent_shards": append([]uint32{}, silent...)})
	}
	text := "all shards answer"
	if len(silent) > 0 {
		text = fmt.Sprintf("no answer from %s now: the blocks come later; `ledgerd shards` shows "+
			"the nodes", client.ShardNames(silent))
	}
	_, err := fmt.Fprintln(command.ErrOrStderr(), text)
	return err
}
