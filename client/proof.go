package client

import (
	"bytes"
	"context"
	"errors"
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

// CertifiedProof returns a transaction's proof with that of its block's finality, for a caller that
// trusts the genesis and no node. It waits up to Options.WaitTime for the block's certificate,
// which follows the block within a second while a majority of the members works. In a book of
// several shards the genesis may be that of any shard.
//
// The errors are those of VerifiedProof. An error that matches ledger.ErrCertificate as well means
// that the node's certificates do not lead from this genesis to the block.
func (c *Client) CertifiedProof(ctx context.Context, id ledger.Hash,
	genesis *ledger.Genesis) (*ledger.CertifiedProof, error) {
	waiting, cancel := context.WithTimeout(ctx, c.options.WaitTime)
	defer cancel()
	for round := 0; ; round++ {
		answer, err := c.Proof(ctx, id)
		if err != nil {
			return nil, err
		}
		if len(answer.GetFinality()) == 0 {
			if c.pause(waiting, round) == nil {
				continue
			}
			return nil, fmt.Errorf("%w: %s has no certificate of the block of %s: a majority of "+
				"the members must have stored it and be reachable", ErrUncertified, c.Current(), id)
		}
		proof, err := certified(answer, id, genesis, c.Current())
		if err != nil {
			return nil, &wrongAnswer{err}
		}
		return proof, nil
	}
}

// ErrUncertified reports that a block has no certificate yet.
var ErrUncertified = errors.New("the block is not certified yet")

// certified checks a proof and the finality that a node gave.
func certified(answer *ledgerdv1.Proof, id ledger.Hash, genesis *ledger.Genesis,
	address string) (*ledger.CertifiedProof, error) {
	proof, _, err := verify(answer, id, address)
	if err != nil {
		return nil, err
	}
	whole := &ledger.CertifiedProof{Proof: proof}
	if whole.Finality, err = ledger.DecodeFinality(answer.GetFinality()); err == nil {
		genesis, err = GenesisOf(genesis, answer.GetShard())
	}
	if err == nil {
		err = ledger.VerifyCertifiedProof(whole, genesis)
	}
	if err != nil {
		return nil, fmt.Errorf("the certificates of %s do not lead from this genesis to the "+
			"block of %s: do not trust this node, or take the genesis of its ledger: %w", address,
			id, err)
	}
	return whole, nil
}

// GenesisOf returns the genesis of a shard's chain, from that of any shard of the book.
func GenesisOf(genesis *ledger.Genesis, shard uint32) (*ledger.Genesis, error) {
	if !genesis.Sharded() {
		if shard != 0 {
			return nil, fmt.Errorf("%w: shard %d, the book has one", ledger.ErrGenesis, shard)
		}
		return genesis, nil
	}
	return genesis.ForShard(ledger.ShardID(shard))
}

// Certificate returns the certificate of the first certified block at or above a height, or of the
// last certified block for height 0, as the node gives it. The caller verifies it (ledger.Auditor).
func (c *Client) Certificate(ctx context.Context,
	height ledger.Height) (*ledgerdv1.GetCertificateResponse, error) {
	return call(ctx, c, false, &ledgerdv1.GetCertificateRequest{Height: uint64(height)},
		service.GetCertificate)
}

// Evidence returns the evidence against members that the node keeps, as the node gives it.
func (c *Client) Evidence(ctx context.Context) (*ledgerdv1.ListEvidenceResponse, error) {
	return call(ctx, c, false, &ledgerdv1.ListEvidenceRequest{}, service.ListEvidence)
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
