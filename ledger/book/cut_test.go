package book

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
)

// cut finds a cut of the book as the chains are.
func (b *shards) cut(height *ledger.Height) ([]Position, error) {
	for cut := NewCut(b.stores[0].ShardTree(), height); ; {
		questions := cut.Ask()
		if len(questions) == 0 {
			return cut.Positions(), nil
		}
		answers := make([]Position, len(questions))
		for i := range questions {
			asked := b.stores[questions[i].Shard]
			var err error
			if answers[i], err = Find(asked, &questions[i], asked.AppendedHeight()); err != nil {
				return nil, err
			}
		}
		if err := cut.Answer(answers); err != nil {
			return nil, err
		}
	}
}

// read returns the balances of a shard's accounts at a place, from the store.
func (b *shards) read(shard ledger.ShardID,
	place store.Place) (map[ledger.AccountPath]ledger.Amount, error) {
	balances := make(map[ledger.AccountPath]ledger.Amount)
	for after, more := ledger.AccountPath(""), true; more; {
		var accounts []ledger.Account
		var err error
		accounts, after, more, err = b.stores[shard].AccountsAt(place, after, 1)
		if err != nil {
			return nil, err
		}
		for _, account := range accounts {
			balances[account.Path] = ledger.Amount{}
			for _, balance := range account.Balances {
				balances[account.Path] = balance.Amount
			}
			alone, err := b.stores[shard].AccountAt(account.Path, place)
			if err != nil || !slices.Equal(alone.Balances, account.Balances) {
				b.t.Errorf("account %s alone: %+v, and not %+v: %v", account.Path, alone, account,
					err)
			}
		}
	}
	return balances, nil
}

// replay returns the balances that a chain's entries before a place give. It reads the blocks only,
// and marks the transactions of several shards in seen.
func (b *shards) replay(shard ledger.ShardID, place store.Place,
	seen map[ledger.Hash]int) map[ledger.AccountPath]ledger.Amount {
	own, balances := b.stores[shard], make(map[ledger.AccountPath]ledger.Amount)
	for height := ledger.Height(1); height <= min(place.Height+1, own.AppendedHeight()); height++ {
		block, err := own.Block(height)
		if err != nil {
			b.t.Fatal(err)
		}
		for i, entry := range block.All() {
			transaction := entry.Transaction()
			if transaction.Verdict != nil || !place.Has(height, uint32(i)) {
				continue
			}
			crossing, err := own.Crossing(entry.ID)
			if err != nil {
				b.t.Fatal(err)
			}
			if slices.Contains(crossing.Destinations, shard) && !transaction.BookWide() {
				seen[entry.ID] += 1 - len(crossing.Destinations)*b.share(shard, crossing)
			}
			if crossing.Outcome != store.TookEffect {
				continue
			}
			for _, opening := range transaction.Openings {
				balances[opening.Account] = ledger.Amount{}
			}
			for _, posting := range transaction.Postings {
				if own.HomeShard(posting.Account.Organisation()) == shard {
					sum, err := balances[posting.Account].Add(posting.Amount)
					if err != nil {
						b.t.Fatal(err)
					}
					balances[posting.Account] = sum
				}
			}
		}
	}
	return balances
}

// share is 1 for the first of a transaction's shards, and 0 for the others. So the counts of a
// transaction add up to 0 if all of its shards have it.
func (b *shards) share(shard ledger.ShardID, crossing store.Crossing) int {
	if crossing.Destinations[0] == shard {
		return 1
	}
	return 0
}

// judge returns why the balances at a cut are wrong, or nil.
func (b *shards) judge(places []store.Place) error {
	sum, seen := new(total), make(map[ledger.Hash]int)
	for i, place := range places {
		shard := ledger.ShardID(i)
		balances, err := b.read(shard, place)
		if err != nil {
			return err
		}
		if want := b.replay(shard, place, seen); fmt.Sprint(want) != fmt.Sprint(balances) {
			return fmt.Errorf("shard %d at %+v: the accounts have %v, and the chain gives %v", i,
				place, balances, want)
		}
		for path, amount := range balances {
			if amount.Sign() < 0 && !strings.HasSuffix(string(path), ":issuer") {
				return fmt.Errorf("%s has %s at %+v", path, amount, place)
			}
			sum.add(amount)
		}
	}
	for id, count := range seen {
		if count != 0 {
			return fmt.Errorf("transaction %s is in some of its shards only", id)
		}
	}
	if *sum != (total{}) {
		return fmt.Errorf("the balances add up to %s", sum)
	}
	return nil
}

func placesOf(cut []Position) (places []store.Place) {
	for i := range cut {
		places = append(places, cut[i].Place)
	}
	return places
}

// At a cut, every transaction is in all of its shards or in none, and the balances add up, whatever
// was on its way. This holds in chains of all versions, and in trees of several shapes.
func TestCutsAddUp(t *testing.T) {
	t.Parallel()
	var within, ready, late, past int
	t.Run("books", func(t *testing.T) {
		for seed, parents := range [][]ledger.ShardID{{0, 0, 1}, {0, 0, 0, 0}, {0, 0, 0, 1, 1, 2}} {
			for version := ledger.FirstVersion; version <= ledger.NewestVersion; version++ {
				b := newShardsOf(t, uint64(seed*10+version), version, parents...)
				var cuts [][]store.Place
				for range 150 {
					b.together = b.random.IntN(3) == 0
					b.trade()
					if b.random.IntN(3) == 0 {
						b.round(ledger.ShardID(b.random.IntN(len(parents))))
					}
					heads := make([]ledger.Height, len(parents))
					for shard := range parents {
						heads[shard] = b.stores[shard].AppendedHeight()
					}
					var height *ledger.Height
					if b.random.IntN(2) == 0 {
						height = new(ledger.Height)
						*height = ledger.Height(b.random.Uint64N(uint64(heads[0]) + 1))
					}
					cut, err := b.cut(height)
					if errors.Is(err, store.ErrNotYet) {
						late++
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					ready++
					for shard := range parents {
						if cut[shard].Place.Entries > 0 {
							within++
						}
						head := store.Place{Height: heads[shard]}
						if height == nil && cut[shard].Place != head {
							t.Errorf("the cut of shard %d is at %+v, and its head %+v", shard,
								cut[shard].Place, head)
						}
					}
					if height != nil {
						past++
					}
					// Some transactions may be undecided. A read says so, or it is right.
					if err := b.judge(placesOf(cut)); err != nil && !errors.Is(err,
						store.ErrNotYet) {
						t.Fatal(err)
					}
					cuts = append(cuts, placesOf(cut))
				}
				b.settle()
				for _, places := range cuts {
					if err := b.judge(places); err != nil {
						t.Fatalf("book %d, version %d: %v", seed, version, err)
					}
				}
			}
		}
	})
	t.Logf("%d cuts, %d of the past, %d of their places within a block; %d too early", ready, past,
		within, late)
	if within < 20 || ready < 200 || late < 20 || past < 100 {
		t.Error("the cuts are too much alike")
	}
}

// Heads that are no cut are found: so the judge of the other test can fail.
func TestHeadsAreNoCut(t *testing.T) {
	t.Parallel()
	b := newShards(t, 3)
	var heads []store.Place
	b.round(0, b.clients[0].Transfer("org0:issuer", "org1:a", 5))
	for _, each := range b.stores {
		heads = append(heads, store.Place{Height: each.AppendedHeight()})
	}
	if err := b.judge(heads); !errors.Is(err, store.ErrNotYet) {
		t.Errorf("while it waits: %v", err)
	}
	b.settle()
	if err := b.judge(heads); err == nil {
		t.Error("half of a transaction counts, and nobody sees it")
	}
}

// A book of one shard has a cut at each block, also with packed bundles.
func TestCutsOfOneShard(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.Genesis()
	genesis.Version = ledger.NewestVersion
	alone, err := store.Open(t.TempDir(), genesis, store.Options{ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer alone.Close()
	client := ledgertest.NewClient(genesis, "acme")
	apply := func(bundle *ledger.Bundle) {
		t.Helper()
		if _, err := alone.Apply(1, ledger.Round(alone.AppendedHeight()+1),
			[][]byte{ledgertest.Batch(genesis.Time, bundle)}); err != nil {
			t.Fatal(err)
		}
	}
	registration, opening := client.Register(), client.Next()
	opening.Openings = []ledger.Opening{{Account: "acme:mint", Issuer: true}, {Account: "acme:a"}}
	apply(client.Bundle(registration))
	apply(client.Bundle(opening))
	for range 20 {
		apply(client.Packed(client.Transfer("acme:mint", "acme:a", 1),
			client.Transfer("acme:mint", "acme:a", 1)))
	}
	for height := range alone.AppendedHeight() + 1 {
		cut := NewCut(nil, &height)
		found, err := Find(alone, &cut.Ask()[0], alone.AppendedHeight())
		if err == nil {
			err = cut.Answer([]Position{found})
		}
		if err != nil || len(cut.Ask()) != 0 {
			t.Fatal(err)
		}
		account, err := alone.AccountAt("acme:a", cut.Positions()[0].Place)
		want := int64(height)*2 - 4
		switch {
		case height < 2:
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("block %d: %+v, %v", height, account, err)
			}
		case err != nil:
			t.Error(err)
		case want == 0 && len(account.Balances) == 1 && account.Balances[0].Amount.Sign() == 0:
		case want > 0 && account.Balances[0].Amount != ledger.NewAmount(want):
			t.Errorf("block %d: %+v", height, account)
		}
	}
	if _, err := Find(alone, &Question{Height: 99}, 22); !errors.Is(err, store.ErrNotYet) {
		t.Error(err)
	}
}

// Answers that do not fit the question are refused.
func TestAnswersOfCuts(t *testing.T) {
	t.Parallel()
	tree := newShards(t, 1).stores[0].ShardTree()
	height := ledger.Height(1)
	cut := NewCut(tree, &height)
	if err := cut.Answer(nil); err == nil {
		t.Error("no answer is taken")
	}
	if err := cut.Answer([]Position{{}}); err == nil {
		t.Error("an answer without streams is taken")
	}
	if err := cut.Answer([]Position{{Streamed: []uint64{3}}}); err != nil {
		t.Fatal(err)
	}
	if err := cut.Answer([]Position{{Carried: 2, Streamed: []uint64{0}}}); err == nil {
		t.Error("another place than the question's is taken")
	}
}

// A store that began with a snapshot reads at places after the snapshot, also accounts that nothing
// touched since. Before, it says that the steps are absent.
func TestCutsAfterASnapshot(t *testing.T) {
	t.Parallel()
	b := newShards(t, 9)
	for range 30 {
		b.trade()
	}
	b.settle()
	first := b.stores[0]
	var snapshot bytes.Buffer
	taken, err := first.WriteSnapshot(t.Context(), &snapshot)
	if err != nil {
		t.Fatal(err)
	}
	genesis, err := ledgertest.ShardedGenesis(1, 0, 0, 1).ForShard(0)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	options := store.Options{ReserveBytes: -1}
	if _, err := store.Restore(t.Context(), dir, genesis, options, &snapshot,
		func(ledger.Height, ledger.Hash, bool) error { return nil }); err != nil {
		t.Fatal(err)
	}
	restored, err := store.Open(dir, genesis, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = restored.Close() })
	b.stores[0] = restored
	place := store.Place{Height: taken.Height}
	before, err := b.read(0, place)
	if err != nil {
		t.Fatal(err)
	}
	for range 40 { // of a's history, the steps around the snapshot are looked up together
		b.round(0, b.clients[0].Transfer("org0:issuer", "org0:a", 1))
	}
	after, err := b.read(0, place)
	if err != nil || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("%v, and later %v: %v", before, after, err)
	}
	if _, err := b.read(0, store.Place{Height: taken.Height / 2}); !errors.Is(err,
		store.ErrAbsent) {
		t.Errorf("before the snapshot: %v", err)
	}
}
