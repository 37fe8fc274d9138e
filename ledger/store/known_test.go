package store

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// bundlesOf decodes all bundles of a payload that clients signed.
func bundlesOf(t testing.TB, payload []byte) []*ledger.Bundle {
	t.Helper()
	batch, err := ledger.DecodeBatch(payload)
	if err != nil {
		t.Fatal(err)
	}
	var bundles []*ledger.Bundle
	for _, encoded := range batch.Bundles {
		bundle, err := ledger.DecodeBundle(encoded)
		if err != nil {
			t.Fatal(err)
		}
		bundles = append(bundles, bundle)
	}
	return bundles
}

// checkKnownIn compares KnownIn with what Known says of each transaction, and returns the number of
// known ones.
func checkKnownIn(t testing.TB, s *Store, bundle *ledger.Bundle) (count int) {
	t.Helper()
	together, err := s.KnownIn(bundle)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range bundle.IDs() {
		alone, err := s.Known(id)
		if err != nil {
			t.Fatal(err)
		}
		if alone {
			count++
		}
		if alone != (together != nil && together[i]) {
			t.Errorf("transaction %d, %+v: Known says %v, KnownIn %v", i, bundle.Transaction(i),
				alone, together)
		}
	}
	return count
}

// KnownIn says the same as Known of everything that was ever proposed, and of what is new: of
// transactions that were applied, that failed, that passed through and that wait for other shards;
// in blocks that are not written yet, in written ones, and after the store was reopened.
func TestKnownInAgreesWithKnown(t *testing.T) {
	t.Parallel()
	for _, genesis := range []*ledger.Genesis{testGenesis(), shardGenesis()} {
		t.Run(fmt.Sprintf("sharded=%v", genesis.Sharded()), func(t *testing.T) {
			t.Parallel()
			dir, random := t.TempDir(), rand.New(rand.NewPCG(13, 3))
			s := openBook(t, dir, genesis, small())
			traffic, shard := newBook(5), newShardBook(1)
			next := func() []byte {
				if genesis.Sharded() {
					return shard.batch(s, 1+random.IntN(8), random).Encode()
				}
				return traffic.next(1 + random.IntN(20))
			}
			var all []*ledger.Bundle
			known := 0
			for range 30 {
				payload := next()
				fresh := bundlesOf(t, payload)
				for _, bundle := range fresh {
					if count := checkKnownIn(t, s, bundle); count > 0 {
						t.Errorf("%d transactions of a new bundle are known", count)
					}
				}
				if _, err := s.Apply(1, ledger.Round(s.Head().Height+1),
					[][]byte{payload}); err != nil {
					t.Fatal(err)
				}
				all = append(all, fresh...)
				for _, bundle := range all {
					known += checkKnownIn(t, s, bundle)
				}
			}
			for _, reopen := range []bool{false, true} {
				if reopen {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = openBook(t, dir, genesis, small())
				} else if err := s.Sync(); err != nil {
					t.Fatal(err)
				}
				for _, bundle := range all {
					known += checkKnownIn(t, s, bundle)
				}
			}
			if known == 0 {
				t.Error("no transaction was known")
			}
		})
	}
}

// A bundle with fresh nonces is new without a look-up on the disk, at admission and in the round.
func TestFreshNonceCostsNoLookUp(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), small())
	traffic := newBook(5)
	for range 10 {
		traffic.apply(t, s, 10)
	}
	if err := s.awaitWritten(10); err != nil { // nothing else uses the database after that
		t.Fatal(err)
	}
	client := traffic.client
	fresh := client.Bundle(client.Transfer(client.Account("issuer"), traffic.account(1), 1),
		client.Transfer(client.Account("issuer"), traffic.account(2), 1))
	database := s.db
	s.db = nil // whatever reads the disk now fails
	defer func() { s.db = database }()
	if _, err := s.Known(fresh.ID(0)); err == nil {
		t.Fatal("Known did not read the disk")
	}
	if known, err := s.KnownIn(fresh); err != nil || known != nil {
		t.Errorf("at admission: %v, %v", known, err)
	}
	for i, id := range fresh.IDs() {
		if known, err := s.executed(id, fresh.Transaction(i)); err != nil || known {
			t.Errorf("in the round, transaction %d: %v, %v", i, known, err)
		}
	}
}

// BenchmarkKnownIn asks for new bundles of 400 transactions in a store of 200,000, as an admitting
// node does. The other form asks for each id alone.
func BenchmarkKnownIn(b *testing.B) {
	const perBundle, accounts = 400, 10
	s := open(b, b.TempDir(), Options{})
	traffic := newBook(accounts)
	traffic.apply(b, s, 0)
	for range 20 {
		traffic.apply(b, s, 10_000)
	}
	if err := s.Sync(); err != nil {
		b.Fatal(err)
	}
	transactions := make([]ledger.Transaction, perBundle)
	for i := range transactions {
		transactions[i] = traffic.client.Transfer("acme:issuer", traffic.account(i%accounts), 1)
	}
	bundle := traffic.client.Bundle(transactions...)
	b.Run("bundle", func(b *testing.B) {
		for b.Loop() {
			if known, err := s.KnownIn(bundle); err != nil || known != nil {
				b.Fatal(known, err)
			}
		}
	})
	b.Run("ids", func(b *testing.B) {
		for b.Loop() {
			for _, id := range bundle.IDs() {
				if known, err := s.Known(id); err != nil || known {
					b.Fatal(known, err)
				}
			}
		}
	})
}
