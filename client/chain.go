package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// maxBlockBytes bounds the encoding of a block that ReadChain takes.
const maxBlockBytes = 1 << 30

// partTime bounds the reading of one part of a block, over all nodes.
const partTime = time.Minute

// Chain is a part of a shard's chain.
type Chain struct {
	Blocks  []*ledger.Block // durable, in order; none if the first one is not there yet
	Durable ledger.Height   // the last durable block, as far as the node knows
}

// ReadChain returns whole durable blocks of a shard's chain, from a height on: as many as fit into
// an answer. If the first one is not durable yet, it waits for it, for at most so long.
//
// Each block matches its own hash, has the height that was asked for, and follows the block before
// it in the answer. Whether the first one follows a block that the caller has is for the caller to
// check. The time for each part of a large block is bounded, and that for all of it is not.
func (c *Client) ReadChain(ctx context.Context, shard ledger.ShardID, from ledger.Height,
	wait time.Duration) (Chain, error) {
	number := uint32(shard)
	request := &ledgerdv1.ReadChainRequest{Shard: &number, FromHeight: uint64(from),
		WaitMs: uint32(min(max(wait, 0), 10*time.Second).Milliseconds())}
	answer, err := c.readPart(ctx, false, request)
	if err != nil {
		return Chain{}, err
	}
	encoded := answer.GetBlocks()
	if size := answer.GetBlockBytes(); size > 0 {
		whole, err := c.restOfBlock(ctx, request, answer)
		if err != nil {
			return Chain{}, err
		}
		encoded = [][]byte{whole}
	}
	chain := Chain{Durable: ledger.Height(answer.GetDurableHeight())}
	for _, each := range encoded {
		block, err := ledger.DecodeBlock(each)
		if err != nil {
			return Chain{}, fmt.Errorf("client: %s: block %d of shard %d: %w", c.Current(), from,
				shard, err)
		}
		if block.Header.Height != from {
			return Chain{}, fmt.Errorf("client: %s answered with block %d instead of %d of shard "+
				"%d: ask another node", c.Current(), block.Header.Height, from, shard)
		}
		if last := len(chain.Blocks) - 1; last >= 0 &&
			block.Header.Previous != chain.Blocks[last].Hash {
			return Chain{}, fmt.Errorf("client: %s: block %d of shard %d does not follow the "+
				"block before it: ask another node", c.Current(), from, shard)
		}
		chain.Blocks = append(chain.Blocks, block)
		from++
	}
	return chain, nil
}

// errBlockParts reports answers that do not add up to a block.
var errBlockParts = errors.New("client: the parts of the block do not add up: ask another node")

// restOfBlock returns the encoding of a block of which an answer has the first part. Any node may
// have the other parts: the encoding is the same everywhere.
func (c *Client) restOfBlock(ctx context.Context, request *ledgerdv1.ReadChainRequest,
	answer *ledgerdv1.ReadChainResponse) ([]byte, error) {
	size := answer.GetBlockBytes()
	if size > maxBlockBytes {
		return nil, fmt.Errorf("client: block %d has %d bytes, and at most %d are possible",
			request.GetFromHeight(), size, maxBlockBytes)
	}
	var whole []byte
	for {
		if len(answer.GetBlocks()) != 1 || len(answer.GetBlocks()[0]) == 0 ||
			answer.GetBlockBytes() != size {
			return nil, errBlockParts
		}
		whole = append(whole, answer.GetBlocks()[0]...)
		if uint64(len(whole)) == size {
			return whole, nil
		}
		if uint64(len(whole)) > size {
			return nil, errBlockParts
		}
		request.Offset, request.WaitMs = uint64(len(whole)), 0
		var err error
		if answer, err = c.readPart(ctx, true, request); err != nil {
			return nil, err
		}
	}
}

// readPart reads one answer.
func (c *Client) readPart(ctx context.Context, patient bool,
	request *ledgerdv1.ReadChainRequest) (*ledgerdv1.ReadChainResponse, error) {
	bounded, cancel := context.WithTimeout(ctx, partTime)
	defer cancel()
	return call(bounded, c, patient, request, service.ReadChain)
}

// TransactionIn returns a transaction of a shard's chain, with its content checked against its id.
func (c *Client) TransactionIn(ctx context.Context, shard ledger.ShardID,
	id ledger.Hash) (*ledger.Transaction, error) {
	number := uint32(shard)
	answer, err := call(ctx, c, false, &ledgerdv1.GetProofRequest{Id: id[:], Shard: &number},
		service.GetProof)
	if err != nil {
		return nil, err
	}
	proof, _, err := verify(answer.GetProof(), id, c.Current())
	if err != nil {
		return nil, err
	}
	transaction, err := ledger.DecodeBody(proof.Body)
	if err != nil {
		return nil, fmt.Errorf("client: %s: transaction %s: %w", c.Current(), id, err)
	}
	return transaction, nil
}

// Shards returns how many shards the book has, as far as the node knows.
func (c *Client) Shards(ctx context.Context) (int, error) {
	tree, err := c.Tree(ctx)
	return max(len(tree.GetShards()), 1), err
}
