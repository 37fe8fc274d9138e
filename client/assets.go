package client

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// CertifiedAsset returns what a shard's chain has of a registered asset, its supply there included,
// for a caller that trusts the genesis and no node, and the header of the block as of which that is
// proven. It waits up to Options.WaitTime for the block's certificate. In a book of several shards
// the genesis may be that of any shard, and the supply of the book is that of all shards together
// (ledger.SupplyOf).
//
// An error that matches ledger.ErrProof or ledger.ErrCertificate means that the node's answer is
// not the chain's.
func (c *Client) CertifiedAsset(ctx context.Context, name ledger.AssetName, shard ledger.ShardID,
	genesis *ledger.Genesis) (*ledger.Asset, ledger.Header, error) {
	waiting, cancel := context.WithTimeout(ctx, c.options.WaitTime)
	defer cancel()
	asked := uint32(shard)
	answer, err := call(ctx, c, false, &ledgerdv1.GetAssetRequest{Name: string(name),
		Shard: &asked, Prove: true}, service.GetAsset)
	if err != nil {
		return nil, ledger.Header{}, err
	}
	wrong := func(err error) (*ledger.Asset, ledger.Header, error) {
		return nil, ledger.Header{}, fmt.Errorf("the answer of %s on asset %s does not follow "+
			"from this genesis: do not trust this node, or take the genesis of its ledger: %w",
			c.Current(), name, err)
	}
	proof, err := ledger.DecodeAssetProof(answer.GetProof())
	if err != nil {
		return wrong(fmt.Errorf("%w: %w", ledger.ErrProof, err))
	}
	asset, header, hash, err := ledger.VerifyAssetProof(proof)
	if err != nil {
		return wrong(err)
	}
	if asset.Name != name {
		return wrong(fmt.Errorf("%w: of asset %s", ledger.ErrProof, asset.Name))
	}
	chain, err := GenesisOf(genesis, asked)
	if err != nil {
		return nil, ledger.Header{}, err
	}
	for round := 0; ; round++ {
		certified, err := call(ctx, c, false, &ledgerdv1.GetCertificateRequest{
			Height: uint64(header.Height), Shard: &asked}, service.GetCertificate)
		if err == nil {
			finality, err := ledger.DecodeFinality(certified.GetFinality())
			if err == nil {
				err = ledger.NewAuditor(chain).Verify(finality, header.Height, hash)
			}
			if err != nil {
				return wrong(err)
			}
			return asset, header, nil
		}
		if c.pause(waiting, round) != nil {
			return nil, ledger.Header{}, fmt.Errorf("%w: %s has no certificate of block %d: a "+
				"majority of the members must have stored it and be reachable: %w", ErrUncertified,
				c.Current(), header.Height, err)
		}
	}
}
