package client

import (
	"bytes"
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// Proof returns a transaction's proof as the node gives it, unchecked.
func (c *Client) Proof(ctx context.Context, id ledger.Hash) (*ledgerdv1.Proof, error) {
	answer, err := call(ctx, c, false, &ledgerdv1.GetProofRequest{Id: id[:]}, service.GetProof)
	return answer.GetProof(), err
}

// VerifiedProof returns a transaction's proof for a caller that trusts no single node. One node
// gives the proof. VerifiedProof checks it with ledger.VerifyProof, and asks every node of the
// client for the block at the proof's height. A node that has yet to fetch the block gets
// Options.WaitTime for it. All nodes must have the block of the proof.
//
// The proof holds the result of the transaction, which may have failed, and the keys that signed
// it. The caller judges whether these keys are the organisations'. In a book of several shards, a
// node answers for another shard's chain by asking a node of that shard.
//
// An error that matches ledger.ErrProof means that a node's answer is wrong. Other errors mean that
// a node does not answer or does not have the transaction or its block.
func (c *Client) VerifiedProof(ctx context.Context, id ledger.Hash) (*ledger.Proof, error) {
	asked := c.view(0, len(c.urls))
	asked.current.Store(c.current.Load())
	answer, err := asked.Proof(ctx, id)
	if err != nil {
		return nil, err
	}
	proof, height, err := verify(answer, id, asked.Current())
	if err != nil {
		return nil, &wrongAnswer{err}
	}
	for at := range c.urls {
		if err := c.view(at, at+1).confirm(ctx, answer.GetShard(), height,
			proof.BlockHash); err != nil {
			return nil, err
		}
	}
	return proof, nil
}

// wrongAnswer is an error that matches ledger.ErrProof, whatever it says and wraps.
type wrongAnswer struct{ error }

func (w *wrongAnswer) Unwrap() error { return w.error }

func (*wrongAnswer) Is(target error) bool { return target == ledger.ErrProof }

// verify checks a proof that a node gave, and returns it with the height of its block.
func verify(answer *ledgerdv1.Proof, id ledger.Hash, address string) (*ledger.Proof, ledger.Height,
	error) {
	proof, err := ledger.DecodeProof(answer.GetEncoded())
	if err != nil {
		return nil, 0, fmt.Errorf("the proof of %s cannot be read, do not trust this node: %w",
			address, err)
	}
	if err := ledger.VerifyProof(proof); err != nil {
		return nil, 0, fmt.Errorf("the proof of %s does not hold, do not trust this node: %w",
			address, err)
	}
	if proof.ID != id {
		return nil, 0, fmt.Errorf("the proof of %s is for another transaction, do not trust this "+
			"node", address)
	}
	header, err := ledger.DecodeHeader(proof.Header)
	if err != nil {
		return nil, 0, fmt.Errorf("the proof's block header: %w", err)
	}
	return proof, header.Height, nil
}

// confirm asks a client's one node whether it has this block at a height of a shard's chain.
func (c *Client) confirm(ctx context.Context, shard uint32, height ledger.Height,
	hash ledger.Hash) error {
	request := &ledgerdv1.GetBlockRequest{
		Block:    &ledgerdv1.GetBlockRequest_Height{Height: uint64(height)},
		PageSize: 1, Shard: &shard,
	}
	waiting, cancel := context.WithTimeout(ctx, c.options.WaitTime)
	defer cancel()
	for round := 0; ; round++ {
		answer, err := c.Block(ctx, request)
		if CodeOf(err) == connect.CodeNotFound && c.pause(waiting, round) == nil {
			continue
		}
		if err != nil {
			return fmt.Errorf("asking %s for block %d: %w", c.Current(), height, err)
		}
		if !bytes.Equal(answer.GetBlock().GetHeader().GetHash(), hash[:]) {
			return &wrongAnswer{fmt.Errorf("%s has another block at height %d than the proof: do "+
				"not trust either of these nodes before `ledgerd verify` has checked their folders",
				c.Current(), height)}
		}
		return nil
	}
}
