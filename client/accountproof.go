package client

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// ProvenAccount is an account with the proof of what it has.
type ProvenAccount struct {
	ledger.Account
	Header ledger.Header // of the block after which the account is so
	Shard  uint32        // whose chain has the block
	Proof  *ledger.AccountProof
}

// ProvenAccount returns an account as of the newest block, with the proof of what it has, for a
// caller that trusts the genesis and no node. It waits up to Options.WaitTime for the block's
// certificate, which follows the block within a second while a majority of the members works. In a
// book of several shards the genesis may be that of any shard. The chain may have later blocks.
//
// The errors are those of CertifiedProof.
func (c *Client) ProvenAccount(ctx context.Context, path ledger.AccountPath,
	genesis *ledger.Genesis) (*ProvenAccount, error) {
	answer, err := call(ctx, c, true, &ledgerdv1.GetAccountProofRequest{Account: string(path)},
		service.GetAccountProof)
	if CodeOf(err) == connect.CodeUnimplemented {
		err = fmt.Errorf("client: this node or one that it asked is of a version that does not "+
			"prove balances: update it, or ask another node: %w", err)
	}
	if err != nil {
		return nil, err
	}
	proof, err := ledger.DecodeAccountProof(answer.GetEncoded())
	if err == nil && proof.Account != path {
		err = errors.New("it is of another account")
	}
	header := ledger.Header{}
	if err == nil {
		_, header, err = ledger.VerifyAccountProof(proof)
	}
	if err != nil {
		return nil, &wrongAnswer{fmt.Errorf("the proof of %s from %s does not hold, do not trust "+
			"this node: %w", path, c.Current(), err)}
	}
	if proof.Finality, err = c.finality(ctx, answer.GetShard(), header.Height); err != nil {
		return nil, err
	}
	account, shard, err := VerifyAccountProof(proof, genesis)
	if err == nil && shard != answer.GetShard() {
		err = fmt.Errorf("it is of shard %d, and not of %d", shard, answer.GetShard())
	}
	if err != nil {
		return nil, &wrongAnswer{fmt.Errorf("the certificates of %s do not lead from this genesis "+
			"to block %d: do not trust this node, or take the genesis of its ledger: %w",
			c.Current(), header.Height, err)}
	}
	return &ProvenAccount{Account: account, Header: header, Shard: shard, Proof: proof}, nil
}

// finality returns the certificates of a block, once the node has them.
func (c *Client) finality(ctx context.Context, shard uint32,
	height ledger.Height) (*ledger.Finality, error) {
	waiting, cancel := context.WithTimeout(ctx, c.options.WaitTime)
	defer cancel()
	for round := 0; ; round++ {
		answer, err := call(ctx, c, false, &ledgerdv1.GetCertificateRequest{
			Height: uint64(height), Shard: &shard}, service.GetCertificate)
		switch code := CodeOf(err); {
		case err == nil:
			finality, err := ledger.DecodeFinality(answer.GetFinality())
			if err != nil {
				return nil, &wrongAnswer{fmt.Errorf("the certificates of %s cannot be read, do "+
					"not trust this node: %w", c.Current(), err)}
			}
			return finality, nil
		case code != connect.CodeFailedPrecondition && code != connect.CodeNotFound:
			return nil, err
		case c.pause(waiting, round) != nil:
			return nil, fmt.Errorf("%w: %s has no certificate of block %d: a majority of the "+
				"members must have stored it and be reachable", ErrUncertified, c.Current(),
				height)
		}
	}
}

// VerifyAccountProof checks the proof of an account from the genesis on, offline. The genesis may
// be that of any shard: the proof holds in one, which it returns.
func VerifyAccountProof(proof *ledger.AccountProof, genesis *ledger.Genesis) (ledger.Account,
	uint32, error) {
	for shard := uint32(0); ; shard++ {
		chain, err := GenesisOf(genesis, shard)
		if err != nil {
			return ledger.Account{}, 0, err
		}
		account, _, err := ledger.VerifyFinalAccountProof(proof, chain)
		if err == nil || !errors.Is(err, ledger.ErrCertificate) ||
			int(shard)+1 >= genesis.BookShards() {
			return account, shard, err
		}
	}
}
