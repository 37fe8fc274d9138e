package state_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

var write = flag.Bool("write", false, "write the fixtures of the explorer's tests")

// explorerFixtures is the file with which the explorer's tests compare its own checks of assets.
const explorerFixtures = "../../explorer/test/fixtures/assets.json"

type assetFixture struct {
	Name      string        `json:"name"`
	Proof     string        `json:"proof"`
	Height    ledger.Height `json:"height"`
	BlockHash ledger.Hash   `json:"block_hash"`
	Decimals  uint8         `json:"decimals"`
	Cap       ledger.Amount `json:"cap"`
	Issued    ledger.Amount `json:"issued"`
	Redeemed  ledger.Amount `json:"redeemed"`
}

// TestExplorerFixtures: the explorer's tests have proofs of assets as this chain makes them, of
// places at both ends of the tree and inside.
func TestExplorerFixtures(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.AssetsVersion
	chain := newChain(t, genesis)
	acme := ledgertest.NewClient(genesis, "acme")
	register := acme.Register("mint", "cash")
	register.Openings[0].Issuer = true
	bank := ledgertest.NewClient(genesis, "bank")
	chain.block(acme.Bundle(register), bank.Bundle(bank.Register("cash")))
	name := func(i int) ledger.AssetName { return ledger.AssetName(fmt.Sprintf("asset-%d", i)) }
	var made []assetFixture
	add := func(i int) {
		proof, known := chain.state.ProveAsset(name(i))
		if !known {
			t.Fatalf("%s is not registered", name(i))
		}
		proof.Header = chain.parent.Header.Encode()
		asset, header, hash, err := ledger.VerifyAssetProof(proof)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, assetFixture{string(asset.Name), hex.EncodeToString(proof.Encode()),
			header.Height, hash, asset.Decimals, asset.Cap, asset.Issuances[0].Issued,
			asset.Issuances[0].Redeemed})
	}
	for i := range 18 {
		chain.block(acme.Bundle(acme.ChangeAsset(name(i), 1, ledgertest.Capped(1_000_000, "acme",
			"bank"))))
		if i == 0 {
			add(0) // the only one
		}
	}
	chain.block(acme.Bundle(issue(acme, "acme:mint", "acme:cash", name(17), 1_250)))
	chain.block(acme.Bundle(issue(acme, "acme:cash", "acme:mint", name(17), 25)))
	for _, i := range []int{0, 3, 15, 16, 17} {
		add(i)
	}
	text, err := json.MarshalIndent(made, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *write {
		if err := os.WriteFile(explorerFixtures, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if kept, err := os.ReadFile(explorerFixtures); err != nil || !bytes.Equal(kept, text) {
		t.Errorf("the fixtures are not what this makes (go test ./ledger/state -run "+
			"TestExplorerFixtures -write): %v", err)
	}
}
