package state_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// TestOneShardBytes checks that the bytes of a book with one shard are those of the first release:
// its genesis, JSON, round messages, blocks and state. No extension of the ledger may change them.
func TestOneShardBytes(t *testing.T) {
	t.Parallel()
	text := func(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }
	toJSON := func(value any) []byte {
		encoded, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	genesis := ledgertest.OperatedGenesis(3)
	got := map[string]string{
		"genesis":        genesis.Hash().String(),
		"genesis bytes":  text(genesis.Encode()),
		"genesis JSON":   text(toJSON(genesis)),
		"member of many": ledgertest.Genesis().Hash().String(),
	}
	chain := newChain(t, genesis)
	client, operator := ledgertest.NewClient(genesis, "acme"), ledgertest.NewOperator(genesis)
	chain.block(client.Bundle(client.Register("issuer", "a", "b")),
		operator.Join(ledgertest.Member(3)))
	noted := client.Transfer("acme:issuer", "acme:a", 1<<40)
	noted.Records, noted.Note, noted.LastValid = []ledger.Record{{Key: "acme:r",
		Value: []byte("value")}}, []byte("note"), 9
	failing := client.Transfer("acme:b", "acme:a", 7)
	first := client.Bundle(noted, failing)
	block := chain.block(first, first, client.Bundle(client.Transfer("acme:a", "acme:b", 3)))
	got["batch"] = text(ledgertest.Batch(5, first))
	got["block"] = text(block.Encode())
	got["block hash"] = block.Hash.String()
	got["block JSON"] = text(toJSON(block.Header))
	got["proof"] = text(block.Proof(1).Encode())
	got["transaction JSON"] = text(toJSON(first.Transaction(0)))
	account, _ := chain.state.Account("acme:a")
	got["account JSON"] = text(toJSON(account))
	organisation, _ := chain.state.Organisation("acme")
	got["organisation JSON"] = text(toJSON(organisation))
	want := map[string]string{
		"account JSON":      "c2962055464a05b70c15651d9ac8f401ad1fb58e6014c82024d1502f92c4e5f9",
		"batch":             "170c4ae18cac0c4534ef5a9b298f0bfb56786af64a6e17e88fd91d68a94eaaa7",
		"block JSON":        "6d7a9f12cf9f34a0f668ad800d7f96888e4e7b936bb8694bab681b0e8c11f3e9",
		"block hash":        "2376bcc1ba53e5cfb657ccb811a707753e1954e41c8c90281c64b18be2563c8d",
		"block":             "da370369f3a85292370581f2867556a8a8147d4e6739d5a53fec4ea36682e5dd",
		"genesis JSON":      "5a3b1dce54c3dbf6d55e7c6c15408fc91a67e04195c95c7353c1f2232e3a3809",
		"genesis bytes":     "d6773902a54e5f416bf7b08a96740df07f2a6526b22b25dec58f288cd04e1bd7",
		"genesis":           "6753ab0a226448c31a693f63f43a8091927a34d92ba2d2d6894c0a4e07350dff",
		"member of many":    "52af5aad88a529a3b16cb0be92c53403fc4be925618ae30a9f7a3e06d91f8438",
		"organisation JSON": "c13018079a507bb11be02808ba9766304eeb005e66761d0195ea2b2102455184",
		"proof":             "e8f5d4bda3d684417ad1d3bf527146f11d82aa075f73e22385c40456b1d6facd",
		"transaction JSON":  "36caece1ee410c7d4fcf39c7e7c8ba9192001364444e5489cac5601f63fa2a48",
	}
	if len(got) != len(want) {
		t.Errorf("%d kinds, want %d", len(got), len(want))
	}
	for what, hash := range got {
		if hash != want[what] {
			t.Errorf("%q: %q,", what, hash)
		}
	}
}
