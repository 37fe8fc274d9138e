package ledger_test

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

var write = flag.Bool("write", false,
	"write the test vectors, and the fixtures of the explorer's tests")

// explorerFixtures is the file with which the explorer's tests compare its own auditor.
const explorerFixtures = "../explorer/test/fixtures/finality.json"

// fixtures are encodings that package ledger made, in hex.
type fixtures struct {
	Genesis genesisFixture `json:"genesis"`
	// OtherGeneses have one genesis of each other version.
	OtherGeneses []genesisFixture `json:"other_geneses"`
	// Blocks have the finality of each block of a certifiedChain.
	Blocks []finalityFixture `json:"blocks"`
	// Lies are about block 3.
	Lies []finalityFixture `json:"lies"`
	// Proof is that of the transaction in block 3, Certified the same with its finality.
	Proof     string `json:"proof"`
	ID        string `json:"id"`
	Certified string `json:"certified"`
	Evidence  string `json:"evidence"`
	// ByBundle are proofs in a block by bundle.
	ByBundle []byBundleFixture `json:"by_bundle"`
}

// byBundleFixture is a proof in a block by bundle, and what a node says beside it.
type byBundleFixture struct {
	Name     string `json:"name"`
	ID       string `json:"id"`
	Encoded  string `json:"encoded"`
	Leaf     string `json:"leaf"`
	Finality string `json:"finality"`
	// From, To, Asset and Amount are the content of the transfer.
	From   ledger.AccountPath `json:"from"`
	To     ledger.AccountPath `json:"to"`
	Asset  ledger.AssetName   `json:"asset"`
	Amount string             `json:"amount"`
}

func newByBundleFixture(name string, proof *ledger.Proof,
	finality *ledger.Finality) byBundleFixture {
	transfer, err := proof.Transaction()
	if err != nil {
		panic(err)
	}
	from, to := &transfer.Postings[0], &transfer.Postings[1]
	return byBundleFixture{Name: name, ID: proof.ID.String(),
		Encoded: hex.EncodeToString(proof.Encode()), Leaf: hex.EncodeToString(proof.BundleLeaf()),
		Finality: hex.EncodeToString(finality.Encode()), From: from.Account, To: to.Account,
		Asset: to.Asset, Amount: to.Amount.String()}
}

// byBundleFixtures are proofs in a mixedBlock, and in block 3, whose certificate makes both final.
// A member joins in block 2.
func byBundleFixtures() (made []byBundleFixture) {
	genesis := ledgertest.OperatedGenesis(3)
	block := mixedBlock(genesis)
	join := ledgertest.After(block, ledgertest.NewOperator(genesis).Join(ledgertest.Member(3)))
	client := ledgertest.NewClient(genesis, "acme")
	var many []ledger.Transaction
	for i := range 200 {
		transfer := client.Transfer(client.Account(fmt.Sprintf("from-%d", i)),
			client.Account(fmt.Sprintf("to-%d", i/2)), int64(i+1))
		if i%2 == 1 {
			transfer.Postings[0].Asset, transfer.Postings[1].Asset = "EUR", "EUR"
		}
		many = append(many, transfer)
	}
	last := ledgertest.After(join, client.Packed(many...),
		client.Bundle(client.Transfer("acme:a", "acme:b", 1)))
	joined := ledgertest.Certificate(genesis, 0, join, 0, 2)
	joined.Change = join.Proof(0)
	finality := &ledger.Finality{Changes: []*ledger.Certificate{joined},
		Headers:     [][]byte{join.Header.Encode(), last.Header.Encode()},
		Certificate: ledgertest.Certificate(genesis, 1, last, 0, 1, 3)}
	for _, each := range []struct {
		name  string
		index int
	}{
		{"a packed transfer, names of two parts", 100},
		{"a packed transfer that failed", 149},
		{"a body in a bundle that was applied", 151},
		{"a packed transfer that is alone", 153},
		{"a body beside one that was dropped", 155},
	} {
		made = append(made, newByBundleFixture(each.name, block.Proof(each.index), finality))
	}
	made = append(made, newByBundleFixture("a packed transfer of many names and two assets",
		last.Proof(151), &ledger.Finality{Changes: finality.Changes,
			Certificate: finality.Certificate}))
	return made
}

// otherGeneses returns a genesis of each version but the first, of one shard or three, with a
// threshold of the operators, quotas, vouched crossings, or a version of the chain, and that of a
// shard that was added.
func otherGeneses() (made []genesisFixture) {
	for _, each := range []ledger.Genesis{{}, {OperatorThreshold: 2},
		{Quotas: ledger.DefaultQuotas()}} {
		for _, base := range []*ledger.Genesis{ledgertest.OperatedGenesis(2),
			ledgertest.ShardedGenesis(2, 0, 0, 1)} {
			base.Operators = []ledger.PublicKey{ledgertest.PublicKey("operator"),
				ledgertest.PublicKey("another")}
			base.OperatorThreshold, base.Quotas = each.OperatorThreshold, each.Quotas
			made = append(made, newGenesisFixture(base))
		}
	}
	for _, quotas := range []ledger.Quotas{{}, ledger.DefaultQuotas()} {
		vouched := ledgertest.ShardedGenesis(2, 0, 0, 1)
		vouched.VouchedCrossings, vouched.Quotas = true, quotas
		made = append(made, newGenesisFixture(vouched))
		versioned := *vouched
		versioned.Version, versioned.VouchedCrossings = 2, len(made)%2 == 0
		single := ledgertest.OperatedGenesis(2)
		single.Version, single.Quotas = 2, quotas
		made = append(made, newGenesisFixture(&versioned), newGenesisFixture(single))
	}
	grown, err := ledgertest.ShardedGenesis(2, 0, 0, 1).GrownTo([]ledger.AddedShard{
		{Parent: 1, Members: []ledger.Member{ledgertest.Member(6)}, Directory: ledger.Hash{1}},
		{Parent: 3, Members: []ledger.Member{ledgertest.Member(7), ledgertest.Member(8)},
			Directory: ledger.Hash{2}}}, 4)
	if err != nil {
		panic(err)
	}
	return append(made[1:], newGenesisFixture(grown))
}

type genesisFixture struct {
	Canonical string `json:"canonical"`
	Hash      string `json:"hash"`
}

type finalityFixture struct {
	Name     string        `json:"name,omitempty"`
	Height   ledger.Height `json:"height,omitempty"`
	Hash     string        `json:"hash,omitempty"`
	Header   string        `json:"header,omitempty"`
	Finality string        `json:"finality"`
}

func newGenesisFixture(genesis *ledger.Genesis) genesisFixture {
	return genesisFixture{hex.EncodeToString(genesis.Encode()), genesis.Hash().String()}
}

// TestExplorerFixtures keeps the fixtures of the explorer's tests as they are made here. Update
// them with:
//
//	go test ./ledger -run ExplorerFixtures -write
func TestExplorerFixtures(t *testing.T) {
	t.Parallel()
	c := newCertifiedChain()
	proof := c.blocks[3].Proof(0)
	certified := &ledger.CertifiedProof{Proof: proof, Finality: c.finality(3)}
	made := fixtures{
		Genesis: newGenesisFixture(c.genesis), OtherGeneses: otherGeneses(),
		Proof: hex.EncodeToString(proof.Encode()), ID: proof.ID.String(),
		Certified: hex.EncodeToString(certified.Encode()),
		Evidence: hex.EncodeToString(ledger.Contradiction(c.certificate(5, 2, 1, 3),
			ledgertest.Certificate(c.genesis, 2, ledgertest.After(c.blocks[4]), 3)).Encode()),
		ByBundle: byBundleFixtures(),
	}
	for height := ledger.Height(1); height <= 6; height++ {
		made.Blocks = append(made.Blocks, finalityFixture{Height: height,
			Hash:     c.blocks[height].Hash.String(),
			Header:   hex.EncodeToString(c.blocks[height].Header.Encode()),
			Finality: hex.EncodeToString(c.finality(height).Encode())})
	}
	for _, lie := range c.lies() {
		f := c.finality(3)
		lie.tell(f)
		made.Lies = append(made.Lies, finalityFixture{Name: lie.name,
			Finality: hex.EncodeToString(f.Encode())})
	}
	want, err := json.MarshalIndent(made, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *write {
		if err := os.WriteFile(explorerFixtures, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(explorerFixtures); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what this test makes (%v): run `go test ./ledger -run "+
			"ExplorerFixtures -write`", explorerFixtures, err)
	}
}
