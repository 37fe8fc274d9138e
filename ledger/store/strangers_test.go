package store

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// A store gives its shard's agreement to the shards that a transaction concerned, and to no other
// one: that has a copy from after a move, which this chain may lack. So does a store that began
// with a snapshot, as far as its chain shows whom the transaction concerned.
func TestStrangersGetNoAgreement(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	genesis.Version = ledger.GrowthVersion
	dir := t.TempDir()
	whole := openBook(t, filepath.Join(dir, "whole"), genesis, small())
	clients := make([]*ledgertest.Client, 3)
	for shard := range clients {
		clients[shard] = ledgertest.NewClient(genesis,
			ledger.OrganisationName([]string{"org0", "org1", "org2"}[shard]))
	}
	apply := func(batch *ledger.Batch) *ledger.Block {
		t.Helper()
		height := whole.Head().Height + 1
		batch.Header.Time = genesis.Time + ledger.Milliseconds(height)
		block, err := whole.Apply(1, ledger.Round(height), [][]byte{batch.Encode()})
		if err != nil || block == nil {
			t.Fatalf("block %d: %v", height, err)
		}
		return block
	}
	signed := func(transaction ledger.Transaction) *ledger.Batch {
		bundle, err := ledger.NewBundle(transaction)
		if err == nil {
			err = bundle.Sign(transaction.Signer,
				ed25519.PrivateKey(ledgertest.Key(string(transaction.Signer))))
		}
		if err != nil {
			t.Fatal(err)
		}
		return &ledger.Batch{Bundles: [][]byte{bundle.Encode()}}
	}
	for shard, client := range clients {
		registration := client.Register()
		registration.Registrations[0].Pinned = true
		registration.Registrations[0].Shard = ledger.ShardID(shard)
		apply(signed(registration))
	}
	opening := clients[0].Next()
	opening.Openings = []ledger.Opening{{Account: "org0:issuer", Issuer: true}}
	apply(signed(opening))
	pay := func() ledger.Hash {
		transfer := clients[0].Transfer("org0:issuer", clients[1].Account("a"), 1)
		transfer.Deadline = genesis.Time + 1000
		return apply(signed(transfer)).Entry(0).ID
	}
	waits, applied, refused := pay(), pay(), pay()
	bad := ledger.Result{Code: ledger.UnknownAccount, Item: 1}
	apply(&ledger.Batch{Verdicts: []ledger.Verdict{{ID: applied, Shard: 1, Result: setAside},
		{ID: refused, Shard: 1, Result: bad}}})
	snapshot, _ := snapshotOf(t, whole)
	if _, err := Restore(t.Context(), filepath.Join(dir, "began"), genesis, small(),
		bytes.NewReader(snapshot), believe); err != nil {
		t.Fatal(err)
	}
	began := openBook(t, filepath.Join(dir, "began"), genesis, small())
	if began.HasMoves() || began.Absent() == 0 {
		t.Fatal("the chain has a move, or all blocks")
	}
	durable := whole.AppendedHeight()
	for name, s := range map[string]*Store{"whole": whole, "began": began} {
		for id, of := range map[ledger.Hash]string{waits: "waits", applied: "took effect",
			refused: "was refused elsewhere"} {
			for asks, want := range map[ledger.ShardID]ledger.Code{1: ledger.SetAside,
				2: ledger.StaleNonce} {
				verdict, made, err := s.Verdict(id, asks, durable)
				if id == refused && s == began {
					if made || !errors.Is(err, ErrAbsent) {
						t.Errorf("%s: shard %d gets %v on what %s: %v", name, asks,
							verdict.Result.Code, of, err)
					}
					continue
				}
				if err != nil || !made || verdict.ID != id || verdict.Result.Code != want {
					t.Errorf("%s: shard %d gets %v, %v on what %s: %v", name, asks,
						verdict.Result.Code, made, of, err)
				}
			}
		}
	}
}
