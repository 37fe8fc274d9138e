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
	return b.find(NewCut(b.stores[0].ShardTree(), height))
}

// find finds a cut that was begun.
func (b *shards) find(cut *Cut) ([]Position, error) {
	for {
		questions := cut.Ask()
		if len(questions) == 0 {
			return cut.Positions(), nil
		}
		answers := make([]Position, len(questions))
		for i := range questions {
			asked := b.stores[questions[i].Shard]
			if asked == nil { // lost: as package node/api/route does
				answers[i] = LostPlace(b.stores[0].ShardTree(), &questions[i])
				continue
			}
			answer, err := Find(b.t.Context(), asked, &questions[i], asked.AppendedHeight())
			if err != nil {
				return nil, err
			}
			if has, err := asked.HasCarried(b.t.Context(), answer.Place, answer.Carried); err !=
				nil || !has || asked.CheckPlace(answer.Place) != nil {
				b.t.Errorf("shard %d says that it has %d entries at %+v, and does not: %v",
					questions[i].Shard, answer.Carried, answer.Place, err)
			}
			answers[i] = answer
		}
		if err := cut.Answer(answers); err != nil {
			return nil, err
		}
	}
}

// read returns the balances of a shard's accounts at a place by account and asset, from the store,
// and 0 for each account alone.
func (b *shards) read(shard ledger.ShardID,
	place store.Place) (map[string]ledger.Amount, error) {
	balances := make(map[string]ledger.Amount)
	for after, more := ledger.AccountPath(""), true; more; {
		var accounts []ledger.Account
		var err error
		accounts, after, more, err = b.stores[shard].AccountsAt(b.t.Context(), place, after, 1,
			nil)
		if err != nil {
			return nil, err
		}
		for _, account := range accounts {
			balances[string(account.Path)] = ledger.Amount{}
			for _, balance := range account.Balances {
				balances[string(account.Path)+" "+string(balance.Asset)] = balance.Amount
			}
			alone, err := b.stores[shard].AccountAt(b.t.Context(), account.Path, place, nil)
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
	seen map[ledger.Hash]int) map[string]ledger.Amount {
	own, balances := b.stores[shard], make(map[string]ledger.Amount)
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
				balances[string(opening.Account)] = ledger.Amount{}
			}
			for _, posting := range transaction.Postings {
				if own.HomeShard(posting.Account.Organisation()) == shard {
					name := string(posting.Account) + " " + string(posting.Asset)
					sum, err := balances[name].Add(posting.Amount)
					if err != nil {
						b.t.Fatal(err)
					}
					balances[name] = sum
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
	sums, seen := make(map[string]*total), make(map[ledger.Hash]int)
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
		for name, amount := range balances {
			path, asset, _ := strings.Cut(name, " ")
			if amount.Sign() < 0 && !strings.HasSuffix(path, ":issuer") {
				return fmt.Errorf("%s has %s of %s at %+v", path, amount, asset, place)
			}
			if sums[asset] == nil {
				sums[asset] = new(total)
			}
			sums[asset].add(amount)
		}
	}
	for id, count := range seen {
		if count != 0 {
			return fmt.Errorf("transaction %s is in some of its shards only", id)
		}
	}
	for asset, sum := range sums {
		if *sum != (total{}) {
			return fmt.Errorf("the balances of %s add up to %s", asset, sum)
		}
	}
	return nil
}

// copied returns how many entries of the parent's stream left nothing in a chain but their numbers,
// since their transactions were there.
func (b *shards) copied(own *store.Store) (count int) {
	for height := ledger.Height(1); height <= own.AppendedHeight(); height++ {
		block, err := own.Block(height)
		if err != nil {
			b.t.Fatal(err)
		}
		for i := range block.Bundles {
			if block.Bundles[i].Number != 0 && !slices.ContainsFunc(block.Unpacked,
				func(entry ledger.Entry) bool { return entry.Bundle == i }) {
				count++
			}
		}
	}
	return count
}

// A place within a bundle is none, and one place has one number of entries of the stream, unless an
// entry left nothing.
func TestPlacesThatAreNone(t *testing.T) {
	t.Parallel()
	b := newShards(t, 6)
	b.together = true
	ctx, own := t.Context(), b.stores[1]
	transfer := func() ledger.Transaction {
		transfer := b.clients[0].Transfer("org0:issuer", "org1:a", 5)
		transfer.Deadline = b.start + 1000
		return transfer
	}
	b.round(0, transfer(), transfer())
	b.round(0, transfer())
	before := own.Carried()
	b.round(1, b.clients[1].Transfer("org1:issuer", "org1:a", 1))
	end := own.AppendedHeight()
	block, err := own.Block(end)
	if err != nil || len(block.Bundles) != 3 || len(block.Unpacked) != 4 {
		t.Fatalf("%+v, %v", block, err)
	}
	for entries := range uint32(6) {
		place := store.Place{Height: end - 1, Entries: entries}
		split := entries > 0 && entries < 4 &&
			block.Unpacked[entries-1].Bundle == block.Unpacked[entries].Bundle
		if err := own.CheckPlace(place); errors.Is(err, store.ErrNotFound) !=
			(split || entries > 4) {
			t.Errorf("after %d entries: %v", entries, err)
		}
		if split || entries > 4 {
			continue
		}
		want := before
		for _, entry := range block.Unpacked[:entries] {
			want = max(want, block.Bundles[entry.Bundle].Number)
		}
		for number := before - 1; number <= before+3; number++ {
			if has, err := own.HasCarried(ctx, place, number); err != nil ||
				has != (number == want) {
				t.Errorf("after %d entries of the block, %d of the stream: %v, %v, want %d",
					entries, number, has, err, want)
			}
		}
	}
	for _, far := range []store.Place{{Height: end + 1}, {Height: end, Entries: 1},
		{Height: 1<<64 - 1, Entries: 1}} {
		if err := own.CheckPlace(far); !errors.Is(err, store.ErrNotYet) {
			t.Errorf("%+v: %v", far, err)
		}
	}
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
	var within, ready, late, past, copied, moments int
	t.Run("books", func(t *testing.T) {
		for seed, parents := range [][]ledger.ShardID{{0, 0, 1}, {0, 0, 0, 0}, {0, 0, 0, 1, 1, 2}} {
			for version := ledger.FirstVersion; version <= ledger.NewestVersion; version++ {
				b := newShardsOf(t, uint64(seed*10+version), version, parents...)
				var cuts [][]store.Place
				b.copies = true
				for i := range 20 {
					b.assets = append(b.assets, ledger.AssetName(fmt.Sprint("asset", i)))
				}
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
					cut, err := []Position(nil), error(nil)
					moment := b.moment(ledger.ShardID(b.random.IntN(len(parents))))
					if height != nil && b.random.IntN(2) == 0 {
						cut, err = b.find(NewCutNotAfter(b.stores[0].ShardTree(), moment))
						if err == nil {
							moments++
						}
						if err == nil && cut[0].Time > moment {
							t.Errorf("the root's place is at %d, after %d", cut[0].Time, moment)
						}
					} else {
						cut, err = b.cut(height)
					}
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
				for _, each := range b.stores {
					copied += b.copied(each)
					b.checkStatements(each)
				}
				for _, places := range cuts {
					if err := b.judge(places); err != nil {
						t.Fatalf("book %d, version %d: %v", seed, version, err)
					}
				}
			}
		}
	})
	t.Logf("%d cuts, %d of the past, %d of their places within a block; %d too early; %d entries "+
		"of streams have nothing new", ready, past, within, late, copied)
	if within < 20 || ready < 200 || late < 20 || past < 100 || copied < 20 ||
		moments < 50 {
		t.Error("the cuts are too much alike")
	}
}

// checkStatements checks that the entries of each account's history, from nothing on, make up what
// the account has, those that crossed shards among them, and that reading from the newest entry
// back gives the same balances.
func (b *shards) checkStatements(each *store.Store) {
	b.t.Helper()
	accounts, err := each.Accounts("", 100)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range accounts {
		path := accounts[i].Path
		up, err := each.Statement(b.t.Context(), path, store.StatementQuery{Limit: 1000}, nil)
		if err != nil {
			b.t.Fatal(err)
		}
		down, err := each.Statement(b.t.Context(), path, store.StatementQuery{Limit: 1000,
			NewestFirst: true}, nil)
		if err != nil {
			b.t.Fatal(err)
		}
		has := make(map[ledger.AssetName]ledger.Amount)
		for k := range accounts[i].Balances {
			if amount := accounts[i].Balances[k].Settled(); amount.Sign() != 0 {
				has[accounts[i].Balances[k].Asset] = amount
			}
		}
		if len(up.Opening) != 0 || len(down.Opening) != 0 || len(up.Closing) != len(has) ||
			!slices.Equal(up.Closing, down.Closing) || len(up.Items) != len(down.Items) {
			b.t.Fatalf("%s has %v, and its statement %v to %v", path, has, up.Opening, up.Closing)
		}
		for _, balance := range up.Closing {
			if has[balance.Asset] != balance.Amount {
				b.t.Fatalf("%s has %v, and its statement %v", path, has, up.Closing)
			}
		}
		slices.Reverse(down.Items)
		for k := range up.Items {
			if !slices.Equal(up.Items[k].Balances, down.Items[k].Balances) {
				b.t.Fatalf("%s: after entry %d %v, and reading back %v", path, k,
					up.Items[k].Balances, down.Items[k].Balances)
			}
		}
	}
}

// moment returns the time of a block of a shard.
func (b *shards) moment(shard ledger.ShardID) ledger.Milliseconds {
	head := b.stores[shard].AppendedHeight()
	header, _, err := b.stores[shard].Header(ledger.Height(b.random.Uint64N(uint64(head) + 1)))
	if err != nil {
		b.t.Fatal(err)
	}
	return header.Time
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
		found, err := Find(t.Context(), alone, &cut.Ask()[0], alone.AppendedHeight())
		if err == nil {
			err = cut.Answer([]Position{found})
		}
		if err != nil || len(cut.Ask()) != 0 {
			t.Fatal(err)
		}
		account, err := alone.AccountAt(t.Context(), "acme:a", cut.Positions()[0].Place, nil)
		want := int64(height)*2 - 4
		switch {
		case height < 2:
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("block %d: %+v, %v", height, account, err)
			}
		case err != nil:
			t.Error(err)
		case (want > 0) != (len(account.Balances) == 1) ||
			want > 0 && account.Balances[0].Amount != ledger.NewAmount(want):
			t.Errorf("block %d: %+v", height, account)
		}
	}
	if _, err := Find(t.Context(), alone, &Question{Height: 99}, 22); !errors.Is(err,
		store.ErrNotYet) {
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
	if err := cut.Answer([]Position{{Shards: 3}}); err == nil {
		t.Error("an answer without streams is taken")
	}
	if err := cut.Answer([]Position{{Shards: 3, Streamed: []uint64{3}}}); err != nil {
		t.Fatal(err)
	}
	if err := cut.Answer([]Position{{Shards: 3, Carried: 2, Streamed: []uint64{0}}}); err == nil {
		t.Error("another place than the question's is taken")
	}
}

// Positions that do not fit each other are no cut.
func TestCheckCut(t *testing.T) {
	t.Parallel()
	b := newShards(t, 8)
	for range 20 {
		b.trade()
	}
	b.settle()
	tree := b.stores[0].ShardTree()
	whole, err := b.cut(nil)
	if err == nil {
		err = CheckCut(tree, whole)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(cut []Position) []Position{
		"too few": func(cut []Position) []Position { return cut[:2] },
		"too many": func([]Position) []Position {
			return make([]Position, ledger.MaxShards+1)
		},
		"a root below":    func(cut []Position) []Position { cut[0].Carried = 1; return cut },
		"a child behind":  func(cut []Position) []Position { cut[1].Carried--; return cut },
		"a child ahead":   func(cut []Position) []Position { cut[2].Carried++; return cut },
		"a stream less":   func(cut []Position) []Position { cut[1].Streamed = nil; return cut },
		"another parent":  func(cut []Position) []Position { cut[1] = cut[2]; return cut },
		"a stream behind": func(cut []Position) []Position { cut[0].Streamed[0]--; return cut },
	} {
		var cut []Position
		for _, each := range whole {
			each.Streamed = slices.Clone(each.Streamed)
			cut = append(cut, each)
		}
		if err := CheckCut(tree, change(cut)); !errors.Is(err, ErrNoCut) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A chain finds out that its own place is another one, even if the places fit each other.
	for shard, own := range b.stores {
		head := own.AppendedHeight()
		if place, err := PlaceIn(t.Context(), own, whole, head); err != nil ||
			place != whole[shard].Place {
			t.Errorf("shard %d: %+v, %v", shard, place, err)
		}
		if _, err := PlaceIn(t.Context(), own, whole, head-1); !errors.Is(err, store.ErrNotYet) {
			t.Errorf("shard %d, not durable: %v", shard, err)
		}
		for name, change := range map[string]func(at *Position){
			"earlier":    func(at *Position) { at.Place.Height = 1 },
			"in a block": func(at *Position) { at.Place.Height, at.Place.Entries = 1, 99 },
		} {
			cut := slices.Clone(whole)
			change(&cut[shard])
			if _, err := PlaceIn(t.Context(), own, cut, head); !errors.Is(err, ErrNoCut) {
				t.Errorf("shard %d, %s: %v", shard, name, err)
			}
		}
	}
	if err := CheckCut(tree, append(slices.Clone(whole), Position{})); !errors.Is(err,
		store.ErrNotYet) {
		t.Errorf("a cut after an addition that is not known here yet: %v", err)
	}
	if err := CheckCut(nil, make([]Position, 2)); !errors.Is(err, ErrNoCut) {
		t.Error(err)
	}
	if err := CheckCut(nil, []Position{{Place: store.Place{Height: 3}}}); err != nil {
		t.Error(err)
	}
	if err := CheckCut(nil, []Position{{Carried: 3}}); !errors.Is(err, ErrNoCut) {
		t.Error(err)
	}
}

// restored returns a store that begins with a snapshot of shard 0, and the snapshot's height.
func (b *shards) restored() (*store.Store, ledger.Height) {
	b.t.Helper()
	var snapshot bytes.Buffer
	taken, err := b.stores[0].WriteSnapshot(b.t.Context(), &snapshot)
	if err != nil {
		b.t.Fatal(err)
	}
	genesis := b.stores[0].Genesis()
	dir := filepath.Join(b.t.TempDir(), "restored")
	options := store.Options{ReserveBytes: -1}
	if _, err := store.Restore(b.t.Context(), dir, genesis, options, &snapshot,
		func(ledger.Height, ledger.Hash, bool) error { return nil }); err != nil {
		b.t.Fatal(err)
	}
	opened, err := store.Open(dir, genesis, options)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = opened.Close() })
	return opened, taken.Height
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
	restored, taken := b.restored()
	b.stores[0] = restored
	place := store.Place{Height: taken}
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
	if _, err := b.read(0, store.Place{Height: taken / 2}); !errors.Is(err,
		store.ErrAbsent) {
		t.Errorf("before the snapshot: %v", err)
	}
}
