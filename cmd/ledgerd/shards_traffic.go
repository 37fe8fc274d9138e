package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/schollz/progressbar/v3"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/plan/traffic"
)

// Bounds of reading a book's traffic.
const (
	// trafficMax bounds the transactions that are read. Their ids are kept, to count a transaction
	// of several chains once.
	trafficMax = 1 << 20
	// trafficPage is the number of transactions that one call asks for: as many as nodes allow.
	trafficPage = 1000
	// trafficCalls bounds the calls at once, trafficAhead the blocks of a chain that wait for those
	// of others.
	trafficCalls = 8
	trafficAhead = 8
)

// bookTraffic is what the newest blocks of all chains have, back to one moment.
type bookTraffic struct {
	traffic.Collector
	// Begin and End are the times of the first and the last block, in Unix milliseconds.
	Begin, End uint64
	Blocks     uint64
	// Transactions are those of clients, each counted once, and Failed those of them that failed.
	// Others are entries that no organisation's move changes: registrations, verdicts and changes
	// of members, policies and operators.
	Transactions, Failed, Others uint64
	// Hidden are entries that the node did not show to the caller. Partial are transactions that
	// concern more organisations than the node names.
	Hidden, Partial uint64
	// Silent are shards of which no node answers.
	Silent []uint32
	// Ended says why there is nothing of before Begin.
	Ended string
}

// trafficReader reads the traffic of a book from the chains of all shards, newest blocks first.
type trafficReader struct {
	nodes *client.Client
	// homes has the registered organisations.
	homes map[string]uint32
	// limit bounds the transactions, and period the time from the newest block back; 0 means no
	// bound.
	limit  uint64
	period time.Duration
	// progress is called with the number of transactions so far.
	progress func(transactions uint64)
	calls    chan struct{}
}

// chainBlock is a block with its transactions, or the reason why there is none.
type chainBlock struct {
	shard        uint32
	header       *ledgerdv1.BlockHeader
	transactions []*ledgerdv1.TransactionSummary
	err          error
}

// read reads the chains of shards until a bound, the beginning of all, or the end of ctx. It
// returns an error if it read nothing.
func (r *trafficReader) read(ctx context.Context, shards []uint32) (*bookTraffic, error) {
	r.calls = make(chan struct{}, trafficCalls)
	reading, stop := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	chains := make([]<-chan chainBlock, len(shards))
	for i, shard := range shards {
		blocks := make(chan chainBlock, trafficAhead)
		chains[i] = blocks
		readers.Go(func() {
			defer close(blocks)
			r.readChain(reading, shard, blocks)
		})
	}
	found := &bookTraffic{Ended: "the chains begin there"}
	return found, r.merge(ctx, found, chains)
}

// merge takes the blocks of all chains in the order of their times, newest first. So what it has
// taken when it ends is all that the chains have since one moment.
func (r *trafficReader) merge(ctx context.Context, found *bookTraffic,
	chains []<-chan chainBlock) error {
	next := make([]*chainBlock, len(chains))
	advance := func(i int) {
		next[i] = nil
		if block, is := <-chains[i]; is {
			next[i] = &block
		} else if err := ctx.Err(); err != nil { // so it may not have come to its beginning
			next[i] = &chainBlock{err: err}
		}
	}
	for i := range chains {
		advance(i)
		if first := next[i]; first != nil && first.err != nil &&
			client.CodeOf(first.err) == connect.CodeUnavailable && ctx.Err() == nil {
			found.Silent = append(found.Silent, first.shard)
			next[i] = nil
		}
	}
	seen := make(map[string]trafficSeen)
	for {
		newest := -1
		for i, block := range next {
			switch {
			case block == nil:
			case block.err != nil:
				return r.ended(ctx, found, block)
			case newest < 0 || block.header.GetTimeMs() > next[newest].header.GetTimeMs():
				newest = i
			}
		}
		if newest < 0 {
			return nil
		}
		at := next[newest].header.GetTimeMs()
		found.End = max(found.End, at)
		switch {
		case r.period > 0 && found.End-at > uint64(r.period.Milliseconds()):
			found.Ended = "that is --period"
			return nil
		case found.Transactions >= r.limit:
			found.Ended = "that is --transactions"
			return nil
		}
		found.Begin = at
		if err := r.count(found, next[newest], seen); err != nil { // it is too large to advise on
			found.Ended = "earlier blocks do not fit: " + sentence(err)
			return nil
		}
		r.progress(found.Transactions)
		advance(newest)
	}
}

// ended ends a reading whose chain has no further block. What was read until then counts.
func (r *trafficReader) ended(ctx context.Context, found *bookTraffic, block *chainBlock) error {
	timedOut := errors.Is(ctx.Err(), context.DeadlineExceeded) ||
		client.CodeOf(block.err) == connect.CodeDeadlineExceeded
	switch {
	case found.Blocks == 0 || ctx.Err() != nil && !timedOut:
		return block.err
	case timedOut:
		found.Ended = "then --timeout was over"
	default:
		found.Ended = fmt.Sprintf("earlier blocks of shard %d are not to be had: %s", block.shard,
			sentence(block.err))
	}
	return nil
}

// trafficSeen is what a reading did with a transaction that it saw in a chain.
type trafficSeen uint8

const (
	trafficLeftOut trafficSeen = iota + 1
	trafficCounted
	trafficFailed
)

// count adds a block to the traffic.
func (r *trafficReader) count(found *bookTraffic, block *chainBlock,
	seen map[string]trafficSeen) error {
	found.Blocks++
	shown := uint64(len(block.transactions))
	found.Hidden += uint64(block.header.GetTransactionCount()) -
		min(shown, uint64(block.header.GetTransactionCount()))
	for _, each := range block.transactions {
		if each.GetSigner() == "" || each.GetVerdict() != "" || each.GetPolicy() ||
			each.GetCharter() || each.GetOrganisationCount() > 0 {
			found.Others++
			continue
		}
		id := string(each.GetStatus().GetId())
		failed := each.GetStatus().GetState() ==
			ledgerdv1.TransactionState_TRANSACTION_STATE_FAILED
		if before, known := seen[id]; known {
			// A shard through which it only passed does not say that it failed.
			if failed && before == trafficCounted {
				seen[id] = trafficFailed
				found.Failed++
			}
			continue
		}
		seen[id] = trafficLeftOut
		names := r.concerned(each)
		if len(names) == 0 {
			found.Others++ // it names no registered organisation, so it failed wherever it went
			continue
		}
		if err := found.Add(1, names...); err != nil {
			return err
		}
		found.Transactions++
		seen[id] = trafficCounted
		if failed {
			seen[id] = trafficFailed
			found.Failed++
		}
		if int(each.GetFurtherOrganisationCount()) > len(each.GetFurtherOrganisations()) {
			found.Partial++
		}
	}
	return nil
}

// concerned returns the registered organisations that a transaction concerns.
func (r *trafficReader) concerned(each *ledgerdv1.TransactionSummary) (names []string) {
	add := func(name string) {
		if _, known := r.homes[name]; known {
			names = append(names, name)
		}
	}
	add(each.GetSigner())
	for _, posting := range each.GetPostings() {
		add(string(ledger.AccountPath(posting.GetAccount()).Organisation()))
	}
	for _, name := range each.GetFurtherOrganisations() {
		add(name)
	}
	return names
}

// readChain passes on the blocks of a chain from its head to block 1, until there is an error or
// ctx ends.
func (r *trafficReader) readChain(ctx context.Context, shard uint32, blocks chan<- chainBlock) {
	request := &ledgerdv1.GetBlockRequest{Block: &ledgerdv1.GetBlockRequest_Head{Head: true}}
	for {
		block := r.readBlock(ctx, shard, request)
		if block.err == nil && block.header.GetHeight() == 0 {
			return // the genesis
		}
		select {
		case blocks <- block:
		case <-ctx.Done():
			return
		}
		if block.err != nil || block.header.GetHeight() <= 1 {
			return
		}
		request = &ledgerdv1.GetBlockRequest{Block: &ledgerdv1.GetBlockRequest_Height{
			Height: block.header.GetHeight() - 1}}
	}
}

// readBlock reads a block with all its transactions.
func (r *trafficReader) readBlock(ctx context.Context, shard uint32,
	request *ledgerdv1.GetBlockRequest) chainBlock {
	block := chainBlock{shard: shard}
	request.Shard, request.PageSize = &shard, trafficPage
	for {
		select {
		case r.calls <- struct{}{}:
		case <-ctx.Done():
			block.err = ctx.Err()
			return block
		}
		answer, err := r.nodes.Block(ctx, request)
		<-r.calls
		if err != nil {
			block.err = err
			return block
		}
		if block.header == nil {
			block.header = answer.GetBlock().GetHeader()
		}
		block.transactions = append(block.transactions, answer.GetBlock().GetTransactions()...)
		if request.PageToken = answer.GetNextPageToken(); request.PageToken == "" {
			return block
		}
	}
}

// trafficProgress returns a function that draws how many of the wanted transactions were read, if
// the reading takes longer than a moment, and one to call at the end.
func trafficProgress(to io.Writer, limit uint64) (progress func(transactions uint64), end func()) {
	if !isTerminal(to) {
		return func(uint64) {}, func() {}
	}
	const moment = time.Second
	begun := time.Now()
	var bar *progressbar.ProgressBar
	progress = func(transactions uint64) {
		if bar == nil {
			if time.Since(begun) < moment {
				return
			}
			bar = progressbar.NewOptions64(int64(limit), progressbar.OptionSetWriter(to),
				progressbar.OptionSetDescription("transactions read"),
				progressbar.OptionShowCount(), progressbar.OptionThrottle(moment/4),
				progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))
		}
		_ = bar.Set64(int64(min(transactions, limit))) // go on even if it cannot be drawn
	}
	return progress, func() {
		if bar != nil {
			_ = bar.Finish() // as above
		}
	}
}

// readableShards returns the shards of a tree, and which of them are silent.
func readableShards(tree *ledgerdv1.Tree) (readable, silent []uint32) {
	for _, shard := range tree.GetShards() {
		if shard.GetMode() == "silent" {
			silent = append(silent, shard.GetShard())
		} else {
			readable = append(readable, shard.GetShard())
		}
	}
	slices.SortFunc(readable, cmp.Compare[uint32])
	return readable, silent
}
