package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
	"github.com/ledgerd/ledgerd/node/home"
)

// accountProofOptions are the flags of ledgerd account show that concern proofs.
type accountProofOptions struct {
	proof        bool
	genesis, out string
	home         string
}

// accountProofReport is what was proven of an account, as --json prints it.
type accountProofReport struct {
	accountReport
	BlockHash   string            `json:"block_hash"`
	BlockTimeMS uint64            `json:"block_time_ms"`
	Certificate certificateReport `json:"certificate"`
}

// bind adds the flags to a command.
func (o *accountProofOptions) bind(command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVar(&o.proof, "proof", false, "have the node prove the balances as of its newest "+
		"block, and check the proof; goes with --genesis")
	flags.StringVar(&o.genesis, "genesis", "", "check the proof from this genesis `FILE`")
	flags.StringVar(&o.out, "out", "", "keep the proof in this `FILE`")
	flags.StringVar(&o.home, "home", "", "home folder of a node that is not running, which proves "+
		"the balances after any block")
}

// check returns an error if the flags do not go together.
func (o *accountProofOptions) check(command *cobra.Command) error {
	changed := command.Flags().Changed
	switch {
	case !o.proof && (o.genesis != "" || o.out != "" || o.home != ""):
		return usagef("--genesis, --out and --home are for --proof")
	case !o.proof:
		return nil
	case changed("cut"):
		return usagef("--proof is of a block, not of a cut: leave --cut out")
	case o.home == "" && changed("at"):
		return usagef("a running node proves balances as of its newest block only, because it " +
			"has the tree of accounts of that block and of no other: leave --at out, or give the " +
			"folder of a stopped node with --home, which executes its chain again up to the block")
	case o.home == "" && o.genesis == "":
		return usagef("--proof checks from the genesis on: name it with --genesis FILE. It is %s "+
			"in the home of each node, and must come from a source that you trust",
			home.GenesisFile)
	}
	return nil
}

// prove proves an account and prints it.
func (o *accountProofOptions) prove(command *cobra.Command, remote *remoteOptions, cut *cutFlags,
	path ledger.AccountPath, asJSON bool) error {
	var proof *ledger.AccountProof
	var genesis *ledger.Genesis
	var known map[ledger.AssetName]int
	var err error
	if o.home != "" {
		proof, genesis, known, err = o.fromHome(command, cut, path)
	} else {
		proof, genesis, known, err = o.fromNode(command, remote, path)
	}
	if err != nil {
		return err
	}
	report, err := reportAccountProof(proof, genesis)
	if err != nil {
		return err
	}
	report.fillDecimals(known)
	if o.out != "" {
		if err := home.WriteFile(o.out, proof.Encode(), 0o644); err != nil {
			return err
		}
	}
	return report.write(command.OutOrStdout(), asJSON)
}

func (o *accountProofOptions) fromNode(command *cobra.Command, remote *remoteOptions,
	path ledger.AccountPath) (*ledger.AccountProof, *ledger.Genesis, map[ledger.AssetName]int,
	error) {
	genesis, err := home.ReadGenesis(o.genesis)
	if err != nil {
		return nil, nil, nil, err
	}
	nodes, ctx, done, err := remote.connect(command.Context())
	if err != nil {
		return nil, nil, nil, err
	}
	defer done()
	proven, err := nodes.ProvenAccount(ctx, path, genesis)
	if err != nil {
		return nil, nil, nil, err
	}
	known, err := provenDecimals(ctx, nodes, &proven.Account, ledger.ShardID(proven.Shard), genesis)
	return proven.Proof, genesis, known, err
}

// provenDecimals returns the decimals of an account's assets that the shard's chain proves: a node
// cannot place the point elsewhere. Of the others, amounts stay in the smallest unit.
func provenDecimals(ctx context.Context, nodes *client.Client, account *ledger.Account,
	shard ledger.ShardID, genesis *ledger.Genesis) (map[ledger.AssetName]int, error) {
	known := make(map[ledger.AssetName]int)
	names := make([]ledger.AssetName, 0, len(account.Balances))
	for i := range account.Balances {
		names = append(names, account.Balances[i].Asset)
	}
	if account.Standing != nil {
		for i := range account.Standing.Limits {
			names = append(names, account.Standing.Limits[i].Asset)
		}
	}
	for _, name := range names {
		if _, has := known[name]; has || name == ledger.DefaultAsset {
			continue
		}
		asset, _, err := nodes.CertifiedAsset(ctx, name, shard, genesis)
		switch code := client.CodeOf(err); {
		case err == nil:
			known[name] = int(asset.Decimals)
		case code != connect.CodeNotFound && code != connect.CodeUnimplemented &&
			code != connect.CodeFailedPrecondition:
			return nil, err
		}
	}
	return known, nil
}

func (o *accountProofOptions) fromHome(command *cobra.Command, cut *cutFlags,
	path ledger.AccountPath) (proof *ledger.AccountProof, genesis *ledger.Genesis,
	known map[ledger.AssetName]int, err error) {
	h, err := loadHome(o.home)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := hasData(h); err != nil {
		return nil, nil, nil, err
	}
	opened, err := store.Open(h.Data(), h.Genesis, storeOptions(h))
	if err != nil {
		return nil, nil, nil, explainStore(h, err)
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	height := opened.CertifiedHeight()
	if command.Flags().Changed("at") {
		if height, err = cut.at.inStore(opened); err != nil {
			return nil, nil, nil, err
		}
	}
	genesis = h.Genesis
	if o.genesis != "" {
		if genesis, err = home.ReadGenesis(o.genesis); err != nil {
			return nil, nil, nil, err
		}
	}
	known = make(map[ledger.AssetName]int)
	for _, asset := range opened.Assets(0, ledger.MaxRegisteredAssets) {
		known[asset.Name] = int(asset.Decimals)
	}
	proof, err = opened.ProveAccountAfter(command.Context(), path, height)
	return proof, genesis, known, explainStore(h, err)
}

// fillDecimals gives the balances and limits the decimals that are known of their assets.
func (r *accountProofReport) fillDecimals(known map[ledger.AssetName]int) {
	r.limited = known
	for i := range r.Balances {
		each := &r.Balances[i]
		each.Decimals = known[ledger.AssetName(each.Asset)]
		each.Decimal = decimalForm(each.Amount, each.Decimals)
	}
}

// reportAccountProof checks a proof from the genesis on.
func reportAccountProof(proof *ledger.AccountProof, genesis *ledger.Genesis) (*accountProofReport,
	error) {
	account, shard, err := client.VerifyAccountProof(proof, genesis)
	if err != nil {
		return nil, err
	}
	header, err := ledger.DecodeHeader(proof.Header)
	if err != nil {
		return nil, err
	}
	chain, err := client.GenesisOf(genesis, shard)
	if err != nil {
		return nil, err
	}
	certificate, err := reportFinality(proof.Finality, chain)
	if err != nil {
		return nil, err
	}
	shown := &ledgerdv1.Account{Account: string(account.Path),
		Organisation: string(account.Path.Organisation()), Issuer: account.Issuer,
		Alias: account.Alias, OpenedHeight: uint64(account.Opened), Height: uint64(header.Height),
		Shard: shard}
	for i := range account.Balances {
		balance := &account.Balances[i]
		shown.Balances = append(shown.Balances, &ledgerdv1.Balance{Asset: string(balance.Asset),
			Amount: balance.Amount.String(), SetAside: heldText(balance.SetAside),
			Incoming: heldText(balance.Incoming)})
	}
	report := reportAccount(shown)
	if account.Standing != nil {
		report.Revision, report.Terms = account.Standing.Revision, &account.Standing.AccountTerms
	}
	return &accountProofReport{report, header.Hash().String(), uint64(header.Time), *certificate},
		nil
}

// heldText returns an amount as text, or "" if it is zero.
func heldText(amount ledger.Amount) string {
	if amount.Sign() == 0 {
		return ""
	}
	return amount.String()
}

// write prints the report.
func (r *accountProofReport) write(out io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(out, r)
	}
	if err := r.accountReport.write(out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "proven by block %d, %s, of %s\n%s\n", r.Height, r.BlockHash,
		moment(r.BlockTimeMS), r.Certificate.text())
	return err
}

// verifyProofFile checks the proof of a balance, of a supply or of a transaction in a file, with
// nothing but the genesis.
func verifyProofFile(command *cobra.Command, file, genesisFile string, asJSON bool) error {
	opened, err := os.Open(file)
	if err != nil {
		return asUsage(err)
	}
	first := make([]byte, 1)
	_, err = io.ReadFull(opened, first)
	if err = errors.Join(err, opened.Close()); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if ledger.IsSupplyProof(first) {
		return verifySupplyProof(command, file, genesisFile, asJSON)
	}
	if !ledger.IsAccountProof(first) {
		return (&txStatusOptions{genesis: genesisFile, json: asJSON}).checkFile(command, file)
	}
	genesis, err := home.ReadGenesis(genesisFile)
	if err != nil {
		return err
	}
	data, err := readBounded(file, maxProofFile)
	if err != nil {
		return err
	}
	proof, err := ledger.DecodeAccountProof(data)
	if err != nil {
		return fmt.Errorf("%s is no proof that `ledgerd account show --proof --out FILE` wrote: %w",
			file, err)
	}
	report, err := reportAccountProof(proof, genesis)
	if err != nil {
		return fmt.Errorf("%s proves nothing: %w", file, err)
	}
	return report.write(command.OutOrStdout(), asJSON)
}

// readBounded reads a file of a bounded size.
func readBounded(file string, most int64) ([]byte, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(opened, most+1))
	if err = errors.Join(err, opened.Close()); err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s has more than %d MiB: it is no proof", file, most>>20)
	}
	return data, nil
}
