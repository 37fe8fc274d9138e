package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/report"
)

// blockFacts are facts that a list shows of a block and its header does not hold.
type blockFacts struct {
	failed uint32
	bytes  uint64
}

// factsCache keeps facts by block, since computing them reads the whole block.
type factsCache struct {
	mutex sync.Mutex
	facts map[ledger.Hash]blockFacts
}

const maxFacts = 16_384

func (c *factsCache) get(hash ledger.Hash) (blockFacts, bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	facts, known := c.facts[hash]
	return facts, known
}

func (c *factsCache) of(block *ledger.Block) blockFacts {
	if facts, known := c.get(block.Hash); known {
		return facts
	}
	facts := blockFacts{bytes: uint64(len(block.Encode()))}
	for _, entry := range block.All() {
		if changedNothing(entry.Result.Code) {
			facts.failed++
		}
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.facts == nil || len(c.facts) >= maxFacts {
		c.facts = make(map[ledger.Hash]blockFacts) // rare, and costs only reading again
	}
	c.facts[block.Hash] = facts
	return facts
}

// levelOf returns the level of a block that the store has.
func (s *Service) levelOf(height ledger.Height) report.Level {
	heights, _ := s.backend.Heights()
	return max(heights.Level(height), report.LevelOrdered)
}

func (s *Service) headerToProto(header *ledger.Header, hash ledger.Hash,
	facts blockFacts) *ledgerdv1.BlockHeader {
	shown := &ledgerdv1.BlockHeader{
		Height:           uint64(header.Height),
		Hash:             hash[:],
		HashHex:          hash.String(),
		Previous:         header.Previous[:],
		PreviousHex:      header.Previous.String(),
		Epoch:            uint64(header.Epoch),
		Round:            uint64(header.Round),
		TimeMs:           uint64(header.Time),
		TransactionsRoot: header.TransactionsRoot[:],
		ResultsRoot:      header.ResultsRoot[:],
		StateDigest:      header.StateDigest[:],
		TransactionCount: header.Transactions,
		FailedCount:      facts.failed,
		SizeBytes:        facts.bytes,
		Level:            ledgerdv1.Level(s.levelOf(header.Height)),
		Shard:            uint32(s.backend.Store().Shard()),
	}
	if header.Height > 0 { // the genesis' hash is computed from the genesis, not from a header
		shown.Canonical = header.Encode()
	}
	return shown
}

// header returns a block's header in protobuf form.
func (s *Service) header(block *ledger.Block) *ledgerdv1.BlockHeader {
	return s.headerToProto(&block.Header, block.Hash, s.facts.of(block))
}

// headerAt returns the header at a height. It reads the whole block only if the block's facts are
// not cached.
func (s *Service) headerAt(height ledger.Height) (*ledgerdv1.BlockHeader, error) {
	header, hash, err := s.backend.Store().Header(height)
	if err != nil {
		return nil, err
	}
	if facts, known := s.facts.get(hash); known {
		return s.headerToProto(&header, hash, facts), nil
	}
	block, err := s.backend.Store().Block(height)
	if err != nil {
		return nil, err
	}
	return s.header(block), nil
}

// GetBlock returns a block with a page of its transactions.
func (s *Service) GetBlock(ctx context.Context,
	request *connect.Request[ledgerdv1.GetBlockRequest]) (
	*connect.Response[ledgerdv1.GetBlockResponse], error) {
	size, err := PageSize(request.Msg.GetPageSize(), 100)
	if err != nil {
		return nil, err
	}
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	var block *ledger.Block
	var begin uint64
	if token := request.Msg.GetPageToken(); token != "" {
		var height uint64 // the token names the block, since the head moves on
		if err := parseNumberToken('t', token, &height, &begin); err != nil {
			return nil, err
		}
		block, err = s.blockAt(ctx, ledger.Height(height))
	} else {
		block, err = s.blockAsked(ctx, request.Msg)
	}
	if err != nil {
		return nil, err
	}
	if begin > uint64(block.Len()) {
		return nil, badToken()
	}
	end := min(int(begin)+size, block.Len())
	answer := &ledgerdv1.GetBlockResponse{Block: s.block(block, int(begin), end)}
	if end < block.Len() {
		answer.NextPageToken = numberToken('t', uint64(block.Header.Height), uint64(end))
	}
	return connect.NewResponse(answer), nil
}

// block returns a block with some of its transactions in protobuf form.
func (s *Service) block(block *ledger.Block, begin, end int) *ledgerdv1.Block {
	shown := &ledgerdv1.Block{Header: s.header(block),
		Transactions: make([]*ledgerdv1.TransactionSummary, 0, end-begin)}
	level := report.Level(shown.Header.Level)
	for i := begin; i < end; i++ {
		entry := block.Entry(i)
		status := s.statusOfEntry(&entry, block.Header.Height, i, level)
		each := s.summaryOf(&entry, status)
		each.Status.Shard = shown.Header.Shard
		shown.Transactions = append(shown.Transactions, each)
	}
	return shown
}

func (s *Service) blockAsked(ctx context.Context,
	request *ledgerdv1.GetBlockRequest) (*ledger.Block, error) {
	switch asked := request.GetBlock().(type) {
	case *ledgerdv1.GetBlockRequest_Height:
		return s.blockAt(ctx, ledger.Height(asked.Height))
	case *ledgerdv1.GetBlockRequest_Hash:
		hash, err := HashFrom(asked.Hash, "", "block hash")
		if err != nil {
			return nil, err
		}
		return s.blockOf(ctx, hash)
	case *ledgerdv1.GetBlockRequest_HashHex:
		hash, err := HashFrom(nil, asked.HashHex, "block hash")
		if err != nil {
			return nil, err
		}
		return s.blockOf(ctx, hash)
	case *ledgerdv1.GetBlockRequest_Head:
		return s.blockAt(ctx, s.backend.Store().Head().Height)
	}
	return nil, invalid("which block? give height, hash, hash_hex or head")
}

func (s *Service) blockAt(ctx context.Context, height ledger.Height) (*ledger.Block, error) {
	block, err := s.backend.Store().Block(height)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("there is no block %d: the chain's head here is %d", height,
			s.backend.Store().Head().Height)
	}
	if err != nil {
		return nil, s.failure(ctx, "reading a block", err)
	}
	return block, nil
}

func (s *Service) blockOf(ctx context.Context, hash ledger.Hash) (*ledger.Block, error) {
	block, err := s.backend.Store().BlockByHash(hash)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("this node has no block %s", hash)
	}
	if err != nil {
		return nil, s.failure(ctx, "reading a block", err)
	}
	return block, nil
}

// ListBlocks returns headers, newest first unless the request asks otherwise. The genesis is not
// among them.
func (s *Service) ListBlocks(ctx context.Context,
	request *connect.Request[ledgerdv1.ListBlocksRequest]) (
	*connect.Response[ledgerdv1.ListBlocksResponse], error) {
	size, err := PageSize(request.Msg.GetPageSize(), 50)
	if err != nil {
		return nil, err
	}
	if err := s.answersFor(request.Msg.Shard); err != nil {
		return nil, err
	}
	if err := s.awaitHeight(ctx, request.Msg); err != nil {
		return nil, err
	}
	head := uint64(s.backend.Store().Head().Height)
	ascending := request.Msg.GetAscending()
	next := request.Msg.GetFromHeight()
	if token := request.Msg.GetPageToken(); token != "" {
		if err := parseNumberToken('b', token, &next); err != nil {
			return nil, err
		}
	} else if next == 0 {
		next = head
		if ascending {
			next = 1
		}
	}
	if !ascending {
		next = min(next, head)
	}
	answer := &ledgerdv1.ListBlocksResponse{HeadHeight: head}
	for ; len(answer.Blocks) < size && next >= 1 && next <= head; next = step(next, ascending) {
		if failed := ContextError(ctx); failed != nil {
			return nil, failed
		}
		header, err := s.headerAt(ledger.Height(next))
		if err != nil {
			return nil, s.failure(ctx, "reading a block", err)
		}
		answer.Blocks = append(answer.Blocks, header)
	}
	if next >= 1 && next <= head {
		answer.NextPageToken = numberToken('b', next)
	}
	return connect.NewResponse(answer), nil
}

// maxWaitForBlock bounds how long a ListBlocks waits, in milliseconds.
const maxWaitForBlock = 30_000

// awaitHeight waits for the first block of a list, if the request asks for that. It is no failure
// if the block does not come: the list is empty then.
func (s *Service) awaitHeight(ctx context.Context, request *ledgerdv1.ListBlocksRequest) error {
	wait := request.GetWaitMs()
	switch {
	case wait == 0:
		return nil
	case wait > maxWaitForBlock:
		return invalid("wait_ms %d: at most %d is possible", wait, maxWaitForBlock)
	case !request.GetAscending() || request.GetFromHeight() == 0 || request.GetPageToken() != "":
		return invalid("wait_ms is for ascending lists from a height on")
	}
	patient, cancel := s.Waiting(ctx)
	defer cancel()
	patient, end := context.WithTimeout(patient, time.Duration(wait)*time.Millisecond)
	defer end()
	for {
		heights, changed := s.backend.Heights()
		if uint64(heights.Ordered) >= request.GetFromHeight() {
			return nil
		}
		select {
		case <-changed:
		case <-patient.Done():
			return s.streamEnds(ctx)
		}
	}
}

func step(height uint64, ascending bool) uint64 {
	if ascending {
		return height + 1
	}
	return height - 1
}
