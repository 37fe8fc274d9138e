package client

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// checkDecimals refuses more decimals than an asset has in the answer of a node. To write an
// amount with that many would fill the memory with zeros.
func checkDecimals(count uint32) error {
	if count > ledger.MaxDecimals {
		return fmt.Errorf("client: the node says that an asset has %d decimals: at most %d", count,
			ledger.MaxDecimals)
	}
	return nil
}

// checkBalances is checkDecimals for the balances of accounts.
func checkBalances(accounts ...*ledgerdv1.Account) error {
	for _, account := range accounts {
		for _, balance := range account.GetBalances() {
			if err := checkDecimals(balance.GetDecimals()); err != nil {
				return fmt.Errorf("account %s: %w", account.GetAccount(), err)
			}
		}
	}
	return nil
}

// CertifiedAsset returns what a shard's chain has of a registered asset, its supply there included,
// for a caller that trusts the genesis and no node, and the header of the block as of which that is
// proven. It waits up to Options.WaitTime for the block's certificate. In a book of several shards
// the genesis may be that of any shard, and the supply of the book is that of all shards together
// (ProvenSupply).
//
// An error that matches ledger.ErrProof or ledger.ErrCertificate means that the node's answer is
// not the chain's.
func (c *Client) CertifiedAsset(ctx context.Context, name ledger.AssetName, shard ledger.ShardID,
	genesis *ledger.Genesis) (*ledger.Asset, ledger.Header, error) {
	asset, header, _, err := c.provenAsset(ctx, name, shard, genesis)
	return asset, header, err
}

func (c *Client) provenAsset(ctx context.Context, name ledger.AssetName, shard ledger.ShardID,
	genesis *ledger.Genesis) (*ledger.Asset, ledger.Header, ledger.FinalAssetProof, error) {
	fail := func(err error) (*ledger.Asset, ledger.Header, ledger.FinalAssetProof, error) {
		return nil, ledger.Header{}, ledger.FinalAssetProof{}, err
	}
	asked := uint32(shard)
	answer, err := call(ctx, c, false, &ledgerdv1.GetAssetRequest{Name: string(name),
		Shard: &asked, Prove: true}, service.GetAsset)
	if err != nil {
		return fail(err)
	}
	wrong := func(err error) (*ledger.Asset, ledger.Header, ledger.FinalAssetProof, error) {
		return fail(fmt.Errorf("the answer of %s on asset %s does not follow "+
			"from this genesis: do not trust this node, or take the genesis of its ledger: %w",
			c.Current(), name, err))
	}
	proof, err := ledger.DecodeAssetProof(answer.GetProof())
	if err != nil {
		return wrong(fmt.Errorf("%w: %w", ledger.ErrProof, err))
	}
	asset, header, _, err := ledger.VerifyAssetProof(proof)
	if err != nil {
		return wrong(err)
	}
	if asset.Name != name {
		return wrong(fmt.Errorf("%w: of asset %s", ledger.ErrProof, asset.Name))
	}
	chain, err := GenesisOf(genesis, asked)
	if err != nil {
		return fail(err)
	}
	final := ledger.FinalAssetProof{Proof: proof}
	if final.Finality, err = c.finality(ctx, asked, header.Height); err != nil {
		return fail(err)
	}
	if _, _, err := ledger.VerifyFinalAssetProof(&final, chain); err != nil {
		return wrong(err)
	}
	return asset, header, final, nil
}

// ProvenSupply returns the proof of an asset's supply in all shards of a book, for a caller that
// trusts the genesis and no node. Its errors are those of CertifiedAsset.
func (c *Client) ProvenSupply(ctx context.Context, name ledger.AssetName,
	genesis *ledger.Genesis) (*ledger.SupplyProof, error) {
	proof := &ledger.SupplyProof{}
	for shard := range ledger.ShardID(genesis.BookShards()) {
		_, _, final, err := c.provenAsset(ctx, name, shard, genesis)
		if err != nil {
			return nil, fmt.Errorf("shard %d: %w", shard, err)
		}
		proof.Shards = append(proof.Shards, final)
	}
	return proof, nil
}

// ShardSupply is what the chain of a shard has of an asset after a block.
type ShardSupply struct {
	Asset  *ledger.Asset
	Header ledger.Header
}

// VerifySupplyProof checks the proof of an asset's supply with the genesis alone, offline, and
// returns what each shard has. ledger.SupplyOf adds up. The genesis may be that of any shard. A
// shard that was added later than the genesis says is not in the sum.
func VerifySupplyProof(proof *ledger.SupplyProof, genesis *ledger.Genesis) ([]ShardSupply, error) {
	if len(proof.Shards) != genesis.BookShards() {
		return nil, fmt.Errorf("%w: it is of a book of %d shards, and the genesis of one of %d",
			ledger.ErrProof, len(proof.Shards), genesis.BookShards())
	}
	var all []ShardSupply
	for shard := range proof.Shards {
		chain, err := GenesisOf(genesis, uint32(shard))
		if err != nil {
			return nil, err
		}
		asset, header, err := ledger.VerifyFinalAssetProof(&proof.Shards[shard], chain)
		if err == nil && shard > 0 && asset.Name != all[0].Asset.Name {
			err = fmt.Errorf("%w: of asset %s, and not of %s", ledger.ErrProof, asset.Name,
				all[0].Asset.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("shard %d: %w", shard, err)
		}
		all = append(all, ShardSupply{asset, header})
	}
	return all, nil
}
