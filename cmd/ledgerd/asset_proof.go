package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/home"
)

// maxSupplyProofFile bounds a file with the proof of a supply, which has certificates of each
// shard.
const maxSupplyProofFile = 256 << 20

// assetProofOptions are the flags of ledgerd asset show that concern proofs.
type assetProofOptions struct {
	proof        bool
	genesis, out string
}

func (o *assetProofOptions) bind(command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVar(&o.proof, "proof", false, "have each shard prove what it issued, and check the "+
		"proofs; goes with --genesis, which implies it")
	flags.StringVar(&o.genesis, "genesis", "", "check the proofs of all shards with this genesis "+
		"`FILE`, and trust no node")
	flags.StringVar(&o.out, "out", "", "keep the proofs in this `FILE`, which ledgerd verify "+
		"--proof checks")
}

// check returns an error if the flags do not go together.
func (o *assetProofOptions) check() error {
	switch {
	case o.genesis != "":
		return nil
	case o.proof:
		return usagef("--proof checks from the genesis on: name it with --genesis FILE. It is %s "+
			"in the home of each node, and must come from a source that you trust",
			home.GenesisFile)
	case o.out != "":
		return usagef("--out keeps proofs: they need --genesis FILE")
	}
	return nil
}

// prove returns an asset as the chains of all shards prove it, and keeps the proof if asked to.
func (o *assetProofOptions) prove(ctx context.Context, nodes *client.Client,
	name ledger.AssetName) (*assetReport, error) {
	genesis, err := home.ReadGenesis(o.genesis)
	if err != nil {
		return nil, err
	}
	shards := genesis.BookShards()
	tree, err := nodes.Tree(ctx)
	if err != nil {
		return nil, err
	}
	if len(tree.GetShards()) > shards {
		return nil, fmt.Errorf("%s knows %d shards, and the ledger has %d by now: name the "+
			"genesis of the shard that was added last", o.genesis, shards, len(tree.GetShards()))
	}
	proof, err := nodes.ProvenSupply(ctx, name, genesis)
	if err != nil {
		return nil, err
	}
	report, err := reportSupplyProof(proof, genesis)
	if err != nil || o.out == "" {
		return report, err
	}
	return report, home.WriteFile(o.out, proof.Encode(), 0o644)
}

// reportSupplyProof checks a proof from the genesis on, and says what it proves.
func reportSupplyProof(proof *ledger.SupplyProof, genesis *ledger.Genesis) (*assetReport, error) {
	proven, err := client.VerifySupplyProof(proof, genesis)
	if err != nil {
		return nil, err
	}
	var all []*ledger.Asset
	var blocks []provenReport
	for shard, each := range proven {
		chain, err := client.GenesisOf(genesis, uint32(shard))
		if err != nil {
			return nil, err
		}
		certificate, err := reportFinality(proof.Shards[shard].Finality, chain)
		if err != nil {
			return nil, err
		}
		all = append(all, each.Asset)
		blocks = append(blocks, provenReport{uint32(shard), uint64(each.Header.Height),
			each.Header.Hash().String(), uint64(each.Header.Time), *certificate})
	}
	supply, err := ledger.SupplyOf(all...)
	if err != nil {
		return nil, fmt.Errorf("%w: its terms were changing, ask again", err)
	}
	asset := all[0]
	report := &assetReport{Name: string(asset.Name), Number: asset.Number,
		Organisation: string(asset.Owner), Revision: asset.Revision,
		RegisteredHeight: uint64(asset.Registered), Decimals: uint32(asset.Decimals),
		Supply: asset.Supply.String(), Cap: heldText(asset.Cap), Closed: asset.Closed,
		Issued: supply.Issued.String(), Redeemed: supply.Redeemed.String(),
		Outstanding: supply.Outstanding.String(), Waiting: heldText(supply.Waiting),
		Issuers: []issuerReport{}, Proven: blocks}
	for i := range asset.Issuers {
		issuer := &asset.Issuers[i]
		of, last := ledger.IssuanceOf(i, all...)
		shard := uint32(last)
		report.Issuers = append(report.Issuers, issuerReport{
			Organisation: string(issuer.Organisation), Allowance: heldText(issuer.Allowance),
			Withdrawn: issuer.Withdrawn, Issued: of.Issued.String(),
			Redeemed: of.Redeemed.String(), Outstanding: of.Outstanding().String(),
			Waiting: heldText(of.Waiting)})
		if len(all) == 1 || of != (ledger.Issuance{}) {
			report.Issuers[i].Shard = &shard
		}
	}
	report.fillDecimals()
	return report, nil
}

// verifySupplyProof checks the proof of a supply in a file with nothing but the genesis.
func verifySupplyProof(command *cobra.Command, file, genesisFile string, asJSON bool) error {
	genesis, err := home.ReadGenesis(genesisFile)
	if err != nil {
		return err
	}
	data, err := readBounded(file, maxSupplyProofFile)
	if err != nil {
		return err
	}
	proof, err := ledger.DecodeSupplyProof(data)
	if err != nil {
		return fmt.Errorf("%s is no proof that `ledgerd asset show --proof --out FILE` wrote: %w",
			file, err)
	}
	report, err := reportSupplyProof(proof, genesis)
	if err != nil {
		return fmt.Errorf("%s proves nothing: %w", file, err)
	}
	if asJSON {
		return writeJSON(command.OutOrStdout(), report)
	}
	return report.write(command.OutOrStdout())
}
