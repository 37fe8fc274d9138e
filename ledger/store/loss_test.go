package store

import (
	"bytes"
	"crypto/ed25519"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// A store testifies about a lost shard once the settlement is durable: also about a transaction
// that it settled, after it was opened again, and if it began with a snapshot.
func TestTestimonies(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.ShardedGenesis(1, 0, 0, 0)
	genesis.Version = ledger.GrowthVersion
	dir := t.TempDir()
	s := openBook(t, filepath.Join(dir, "one"), genesis, small())
	clients := make([]*ledgertest.Client, 3)
	for shard := range clients {
		clients[shard] = ledgertest.NewClient(genesis,
			ledger.OrganisationName([]string{"org0", "org1", "org2"}[shard]))
	}
	apply := func(batch *ledger.Batch) *ledger.Block {
		t.Helper()
		height := s.Head().Height + 1
		batch.Header.Time = genesis.Time + ledger.Milliseconds(height)
		block, err := s.Apply(1, ledger.Round(height), [][]byte{batch.Encode()})
		if err != nil || block == nil {
			t.Fatalf("block %d: %v", height, err)
		}
		return block
	}
	signed := func(transactions ...ledger.Transaction) *ledger.Batch {
		bundle, err := ledger.NewBundle(transactions...)
		for _, client := range clients {
			if err == nil {
				err = bundle.Sign(client.Organisation,
					ed25519.PrivateKey(ledgertest.Key(string(client.Organisation))))
			}
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
	pay := func(to ...int) ledger.Hash {
		transfer := clients[0].Transfer("org0:issuer", clients[to[0]].Account("a"), 1)
		for _, other := range to[1:] {
			transfer.Postings = append(transfer.Postings, clients[0].Transfer("org0:issuer",
				clients[other].Account("a"), 1).Postings...)
		}
		transfer.Deadline = genesis.Time + 1000
		block := apply(signed(transfer))
		if block.Entry(0).Result.Code != ledger.SetAside {
			t.Fatalf("%s", block.Entry(0).Result)
		}
		return block.Entry(0).ID
	}
	good := func(id ledger.Hash, shard ledger.ShardID) ledger.Verdict {
		return ledger.Verdict{ID: id, Shard: shard, Result: setAside}
	}
	settled, heard, unheard, alone := pay(1, 2), pay(1, 2), pay(1, 2), pay(2)
	apply(&ledger.Batch{Verdicts: []ledger.Verdict{good(settled, 1), good(settled, 2),
		good(heard, 2)}})
	asked := ledger.Testimony{About: 2, AsOf: 2}
	if _, made, err := s.Testimony(heard, asked, s.Head().Height); made || err != nil {
		t.Errorf("a testimony before the settlement: %v", err)
	}
	operator := &ledgertest.Operator{Ledger: genesis.Book()}
	block := apply(&ledger.Batch{Bundles: [][]byte{operator.Bundle("operator",
		operator.ChangeBook(ledger.BookChange{Number: 1,
			Loss: &ledger.ShardLoss{Shard: 2}})).Encode()}})
	loss := block.Header.Height
	if losses := s.Losses(); len(losses) != 1 || losses[0].Height != loss || !s.Lost(2) ||
		s.BookChanges() != 1 {
		t.Errorf("%+v", losses)
	}
	if _, made, err := s.Testimony(heard, asked, loss-1); made || err != nil {
		t.Errorf("a testimony before the settlement is durable: %v", err)
	}
	check := func(name string, s *Store) {
		t.Helper()
		for id, want := range map[ledger.Hash]bool{settled: true, heard: true, unheard: false,
			alone: false} {
			got, made, err := s.Testimony(id, asked, loss)
			if err != nil || !made || got != asked.Verdict(id, 0, want) {
				t.Errorf("%s: it says %+v of %s: %v", name, got, id, err)
			}
		}
	}
	check("at once", s)
	// What waits ends, and is found.
	apply(&ledger.Batch{Verdicts: []ledger.Verdict{asked.Verdict(unheard, 1, false),
		asked.Verdict(alone, 0, false)}})
	for _, id := range []ledger.Hash{unheard, alone} {
		crossing, err := s.Crossing(id)
		if err != nil || crossing.Outcome != Refused || crossing.Settled == nil {
			t.Errorf("%+v: %v", crossing, err)
		}
	}
	if crossing, err := s.Crossing(heard); err != nil || len(crossing.Waits) != 1 {
		t.Errorf("%+v: %v", crossing, err)
	}
	snapshot, _ := snapshotOf(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openBook(t, filepath.Join(dir, "one"), genesis, small())
	check("opened again", s)
	if err := s.verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, err := Restore(t.Context(), filepath.Join(dir, "two"), genesis, small(),
		bytes.NewReader(snapshot), believe); err != nil {
		t.Fatal(err)
	}
	check("of a snapshot", openBook(t, filepath.Join(dir, "two"), genesis, small()))
}
