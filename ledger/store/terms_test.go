package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/state"
)

// replayedTerms executes the blocks of a chain on a state of its own, and notes what each block
// leaves.
type replayedTerms struct {
	blocks []*ledger.Block
	// then has what there was after each block, from the genesis on.
	then []map[string]string
}

var termsPaths = []ledger.AccountPath{"acme:mint", "acme:a", "acme:b", "acme:c", "bank:mint"}

var termsAssets = []ledger.AssetName{"EUR", "USD"}

// shownTerms shows the alias and the terms of an account without what was spent, by which past
// terms are compared.
func shownTerms(account *ledger.Account) string {
	text := account.Alias + " "
	if account.Standing != nil {
		unspent := *account.Standing
		unspent.Spent = nil
		text += unspent.String()
	}
	return text
}

func shownAsset(t rapid.TB, asset *ledger.Asset) string {
	text, err := json.Marshal(asset)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// to makes the replay that of a store's chain.
func (p *replayedTerms) to(t rapid.TB, s *Store) {
	t.Helper()
	p.blocks = p.blocks[:min(len(p.blocks), int(s.AppendedHeight()))]
	for height := len(p.blocks) + 1; height <= int(s.AppendedHeight()); height++ {
		block, err := s.Block(ledger.Height(height))
		if err != nil {
			t.Fatal(err)
		}
		p.blocks = append(p.blocks, block)
	}
	replayed := state.New(s.genesis)
	p.then = p.then[:0]
	for height := 0; height <= len(p.blocks); height++ {
		if height > 0 {
			replayed.Execute(state.Redraft(p.blocks[height-1]))
		}
		then := make(map[string]string)
		for _, path := range termsPaths {
			if account, open := replayed.Account(path); open {
				then[string(path)] = shownTerms(&account)
			}
		}
		for _, name := range termsAssets {
			if asset, known := replayed.Asset(name); known {
				then[string(name)] = shownAsset(t, asset)
			}
		}
		p.then = append(p.then, then)
	}
}

// compare compares what a store knows of the past with the replay.
func (p *replayedTerms) compare(t rapid.TB, s *Store) {
	t.Helper()
	p.to(t, s)
	from := s.TermsFrom()
	for height := ledger.Height(0); height <= s.AppendedHeight(); height++ {
		place, then := Place{Height: height}, p.then[height]
		for _, path := range termsPaths {
			want, open := then[string(path)]
			account, err := s.Account(path)
			if !open || errors.Is(err, ErrNotFound) {
				continue
			}
			known := false
			if err == nil {
				known, err = s.TermsAt(&account, place)
			}
			if err != nil {
				t.Fatalf("%s after block %d: %v", path, height, err)
			}
			if known != (height >= from) && (!known || account.Standing != nil) {
				t.Fatalf("%s after block %d: known %v; terms are known from block %d on", path,
					height, known, from)
			}
			if got := shownTerms(&account); known && got != want {
				t.Fatalf("%s after block %d: %s, want %s", path, height, got, want)
			}
		}
		p.compareAssets(t, s, place)
	}
}

func (p *replayedTerms) compareAssets(t rapid.TB, s *Store, place Place) {
	t.Helper()
	then, registered := p.then[place.Height], 0
	for _, name := range termsAssets {
		want, known := then[string(name)]
		asset, err := s.AssetAt(context.Background(), name, place)
		if known != (err == nil) || err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatalf("asset %s after block %d: %v", name, place.Height, err)
		}
		if !known {
			continue
		}
		registered++
		if asset.Known != (place.Height >= s.TermsFrom()) {
			t.Fatalf("asset %s after block %d: known %v; assets are known from block %d on", name,
				place.Height, asset.Known, s.TermsFrom())
		}
		if got := shownAsset(t, &asset.Asset); asset.Known && got != want {
			t.Fatalf("asset %s after block %d: %s, want %s", name, place.Height, got, want)
		}
	}
	for after, found := uint32(0), 0; ; found++ {
		page, err := s.AssetsAt(context.Background(), after, 1, place)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			if found != registered {
				t.Fatalf("%d assets after block %d, want %d", found, place.Height, registered)
			}
			return
		}
		after = page[0].Number
	}
}

// termsTraffic makes rounds that change terms. It follows from the state of the store what they
// may change.
type termsTraffic struct {
	clients [2]*ledgertest.Client
	genesis *ledger.Genesis
	round   ledger.Round
}

func newTermsTraffic(genesis *ledger.Genesis) *termsTraffic {
	return &termsTraffic{genesis: genesis, clients: [2]*ledgertest.Client{
		ledgertest.NewClient(genesis, "acme"), ledgertest.NewClient(genesis, "bank")}}
}

func (l *termsTraffic) next(s *Store, random *rand.Rand) []byte {
	l.round++
	acme, bank := l.clients[0], l.clients[1]
	var bundles []*ledger.Bundle
	if s.AccountCount() == 0 {
		bundles = append(bundles, acme.Bundle(acme.Register("mint", "a")),
			bank.Bundle(bank.Register("mint")))
	}
	for range random.IntN(5) {
		path := termsPaths[random.IntN(4)]
		var changed ledger.AccountStanding
		if found, err := s.Account(path); err == nil && found.Standing != nil {
			changed = *found.Standing
		}
		name := termsAssets[random.IntN(len(termsAssets))]
		asset, _ := s.Asset(name)
		switch random.IntN(5) {
		case 0:
			opening := acme.Next()
			opening.Openings = []ledger.Opening{{Account: path, Issuer: path == "acme:mint",
				Alias: []string{"", "old " + string(path)}[random.IntN(2)]}}
			bundles = append(bundles, acme.Bundle(opening))
		case 1:
			bundles = append(bundles, bank.Bundle(bank.Guard(path, changed.Guarded+1,
				[]ledger.Freeze{ledger.FreezeGuardian, ledger.FreezeNone}[random.IntN(2)])))
		case 2:
			terms := ledgertest.Capped(1000, "acme", "bank")
			terms.Closed = random.IntN(6) == 0
			bundles = append(bundles, bank.Bundle(bank.ChangeAsset(name, asset.Revision+1, terms)))
		case 3:
			transfer := acme.Transfer("acme:mint", "acme:a", 1+int64(random.IntN(3)))
			for i := range transfer.Postings {
				transfer.Postings[i].Asset = name
			}
			bundles = append(bundles, acme.Bundle(transfer))
		default:
			terms := ledgertest.Limited(0, 100, 50, 60)
			terms.Guardian = []ledger.OrganisationName{"", "bank"}[random.IntN(2)]
			terms.NoCredits = random.IntN(8) == 0
			alias := []string{"", fmt.Sprintf("%s %d", path, random.IntN(3))}[random.IntN(2)]
			bundles = append(bundles, acme.Bundle(acme.ChangeAccount(path, changed.Revision+1,
				alias, terms)))
		}
	}
	return ledgertest.Batch(l.genesis.Time+ledger.Milliseconds(l.round), bundles...)
}

// copyAtWrite copies the store's folder before a later step of writing, as kill -9 would leave it.
type copyAtWrite struct {
	mutex  sync.Mutex
	dir    string
	steps  int
	copied folder
}

func (c *copyAtWrite) step(t testing.TB) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.steps > 0 {
		if c.steps--; c.steps == 0 {
			c.copied = readFolder(t, c.dir)
		}
	}
}

// begin makes the copy before so many steps.
func (c *copyAtWrite) begin(dir string, steps int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.dir, c.steps, c.copied = dir, steps, nil
}

// end returns the copy; nil if there were fewer steps.
func (c *copyAtWrite) end() folder {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.steps = 0
	return c.copied
}

// TestTermsOfThePast: what the store knows of the past is what a replay of all blocks finds there,
// wherever the rows are, over restarts, kills between writes, snapshots that are filled in, and
// blocks of earlier versions. Of what it may not know, it says so.
func TestTermsOfThePast(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 3))
		genesis := testGenesis()
		options := small()
		options.checkpointBlocks = rapid.IntRange(1, 9).Draw(r, "blocks")
		options.AccountsInMemory = rapid.IntRange(1, 6).Draw(r, "accounts")
		folders := t.TempDir()
		dir := filepath.Join(folders, "0")
		var kill copyAtWrite
		options.onWrite = func(string) { kill.step(t) }
		s := openBook(t, dir, genesis, options)
		traffic, replayed := newTermsTraffic(genesis), &replayedTerms{}
		for i := range rapid.IntRange(1, 15).Draw(r, "rounds") {
			payloads := [][]byte{traffic.next(s, random)}
			if _, err := s.Apply(1, traffic.round, payloads); err != nil {
				r.Fatal(err)
			}
			from := s.TermsFrom()
			switch random.IntN(12) {
			case 0:
				if err := s.awaitWritten(s.AppendedHeight()); err != nil {
					r.Fatal(err)
				}
			case 1:
				closeStore(t, s)
				s = openBook(t, dir, genesis, options)
				if s.TermsFrom() != from {
					r.Fatalf("a restart knows terms from block %d on, and not %d", s.TermsFrom(),
						from)
				}
			case 2: // an earlier version went on with the store
				if err := s.awaitWritten(s.AppendedHeight()); err != nil {
					r.Fatal(err)
				}
				replayed.to(r, s)
				forgetTerms(r, s)
				head := s.AppendedHeight()
				closeStore(t, s)
				if s = openBook(t, dir, genesis, options); s.TermsFrom() != head {
					r.Fatalf("terms are known from block %d on, and not %d", s.TermsFrom(), head)
				}
			case 3:
				if err := s.Sync(); err != nil {
					r.Fatal(err)
				}
				replayed.to(r, s)
				dir = filepath.Join(folders, fmt.Sprint(i+1))
				restored := restoredFrom(t, s, dir)
				closeStore(t, s)
				if s = restored; s.TermsFrom() != s.AppendedHeight() {
					r.Fatalf("after a snapshot, terms are known from block %d on", s.TermsFrom())
				}
			case 4:
				fillTerms(r, s, replayed)
			case 5:
				if s.Unindexed() == 0 {
					indexTerms(r, s)
				}
			case 6, 7: // kill -9
				if s.Unindexed() > 0 {
					continue // the copy could lack blocks that the replay does not have
				}
				kill.begin(dir, 1+random.IntN(40))
				if err := s.awaitWritten(s.AppendedHeight()); err != nil {
					r.Fatal(err)
				}
				indexTerms(r, s)
				copied := kill.end()
				if copied == nil {
					continue
				}
				closeStore(t, s)
				dir = filepath.Join(folders, fmt.Sprint(i+1))
				copied.write(t, dir)
				if s = openBook(t, dir, genesis, options); s.TermsFrom() != from &&
					s.TermsFrom() != 0 {
					r.Fatalf("after kill -9, terms are known from block %d on, and not %d",
						s.TermsFrom(), from)
				}
				traffic.round += 1000 // the blocks that are lost do not come again
				for _, client := range traffic.clients {
					client.Stream++
				}
			}
			replayed.compare(r, s)
		}
		fillTerms(r, s, replayed)
		indexTerms(r, s)
		replayed.compare(r, s)
		closeStore(t, s)
	})
}

// indexTerms executes the blocks for which the store lacks what they replaced.
func indexTerms(t rapid.TB, s *Store) {
	t.Helper()
	if err := s.IndexTerms(context.Background(), nil); err != nil || s.TermsFrom() != 0 {
		t.Fatalf("terms are known from block %d on: %v", s.TermsFrom(), err)
	}
}

// forgetTerms removes the rows that an earlier version does not write. Removing them by their
// prefixes would stop the merging of runs.
func forgetTerms(t rapid.TB, s *Store) {
	t.Helper()
	batch := s.db.NewWriteBatch()
	defer batch.Cancel()
	err := s.db.View(func(transaction *badger.Txn) error {
		settings := badger.DefaultIteratorOptions
		settings.PrefetchValues = false
		rows := transaction.NewIterator(settings)
		defer rows.Close()
		for rows.Rewind(); rows.Valid(); rows.Next() {
			key := rows.Item().KeyCopy(nil)
			if !slices.Contains([]byte{rowTermsTo, rowTerms, rowAsset}, key[0]) {
				continue
			}
			if err := batch.Delete(key); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, batch.Flush()); err != nil {
		t.Fatal(err)
	}
}

// fillTerms fills a store in that began with a snapshot.
func fillTerms(t rapid.TB, s *Store, replayed *replayedTerms) {
	t.Helper()
	if s.Unindexed() == 0 {
		return
	}
	before, unindexed := s.TermsFrom(), s.Unindexed()
	if s.Absent() > 0 {
		err := s.Fill(1, func(add func(*ledger.Block) (int, error)) error {
			for _, block := range replayed.blocks[:s.Absent()] {
				if _, err := add(block); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Index(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	want := ledger.Height(0)
	if before > unindexed { // an earlier version went on with it
		want = before
	}
	if s.TermsFrom() != want {
		t.Fatalf("filled in, the store knows terms from block %d on, and not %d", s.TermsFrom(),
			want)
	}
	replayed.compare(t, s)
}

// TestTermsOfAnUndoneLayer: a row that a layer left which a crash undid is not used.
func TestTermsOfAnUndoneLayer(t *testing.T) {
	t.Parallel()
	genesis := testGenesis()
	s := openBook(t, t.TempDir(), genesis, small())
	random := rand.New(rand.NewPCG(1, 1))
	traffic, replayed := newTermsTraffic(genesis), &replayedTerms{}
	for range 30 {
		payloads := [][]byte{traffic.next(s, random)}
		if _, err := s.Apply(1, traffic.round, payloads); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.awaitWritten(s.AppendedHeight()); err != nil {
		t.Fatal(err)
	}
	err := s.db.Update(func(transaction *badger.Txn) error {
		for height := ledger.Height(1); height <= s.AppendedHeight()+3; height++ {
			for number := range uint64(4) {
				for _, of := range []state.ReplacedKey{{Number: number + 1},
					{Asset: true, Number: number + 1}} {
					key := termsKey(of, height)
					if _, err := get(transaction, key); err == nil {
						continue
					}
					undone := seal(key, slices.Concat(make([]byte, ledger.HashSize), []byte{7}))
					if err := transaction.Set(key, undone); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	replayed.compare(t, s)
}

// TestTermsWithinABlock: at a place within a block, the changes of terms before it count, and those
// after it do not.
func TestTermsWithinABlock(t *testing.T) {
	t.Parallel()
	genesis, err := ledgertest.ShardedGenesis(1, 0, 0).ForShard(0)
	if err != nil {
		t.Fatal(err)
	}
	genesis.Version = ledger.NewestVersion
	s := openBook(t, t.TempDir(), genesis, small())
	client := ledgertest.NewClient(genesis, "acme")
	registration, opening := client.Register(), client.Next()
	registration.Registrations[0].Pinned = true // to shard 0
	opening.Openings = []ledger.Opening{{Account: "acme:a"}}
	round := ledger.Round(0)
	apply := func(transactions ...ledger.Transaction) {
		t.Helper()
		var bundles []*ledger.Bundle
		for _, each := range transactions {
			bundles = append(bundles, client.Bundle(each))
		}
		round++
		block, err := s.Apply(1, round, [][]byte{ledgertest.Batch(genesis.Time+1, bundles...)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range block.Len() {
			if result := block.Entry(i).Result; !result.OK() {
				t.Fatalf("entry %d of block %d: %s", i, block.Header.Height, result)
			}
		}
	}
	frozen := ledger.AccountTerms{Freeze: ledger.FreezeOwner}
	apply(registration)
	apply(opening)
	apply(client.ChangeAsset("EUR", 1, ledgertest.Capped(10, "acme")),
		client.ChangeAccount("acme:a", 1, "x", ledger.AccountTerms{NoDebits: true}),
		client.ChangeAccount("acme:a", 2, "y", frozen),
		client.ChangeAsset("EUR", 2, ledgertest.Capped(9, "acme")))
	apply(client.ChangeAccount("acme:a", 3, "", ledger.AccountTerms{}))
	for range 2 {
		for entries, want := range []struct {
			alias    string
			revision uint64
			asset    uint64
		}{{"", 0, 0}, {"", 0, 1}, {"x", 1, 1}, {"y", 2, 1}, {"y", 2, 2}} {
			place := Place{Height: 2, Entries: uint32(entries)}
			account, err := s.Account("acme:a")
			if err != nil {
				t.Fatal(err)
			}
			known, err := s.TermsAt(&account, place)
			if err != nil || !known || account.Alias != want.alias ||
				(account.Standing == nil) != (want.revision == 0) ||
				account.Standing != nil && account.Standing.Revision != want.revision {
				t.Errorf("after %d entries: known %v: %q %s: %v", entries, known, account.Alias,
					account.Standing, err)
			}
			asset, err := s.AssetAt(t.Context(), "EUR", place)
			if (want.asset == 0) != errors.Is(err, ErrNotFound) || asset.Revision != want.asset {
				t.Errorf("asset after %d entries: %+v: %v", entries, asset, err)
			}
		}
		if err := s.awaitWritten(4); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTermsAreFoundOnTheirWay: terms are found from the moment when the block is in memory that
// replaced them, also if the database gets their row and the block leaves memory during the search.
func TestTermsAreFoundOnTheirWay(t *testing.T) {
	t.Parallel()
	genesis := testGenesis()
	options := small()
	var s *Store
	var searched atomic.Bool // the database, and memory not yet or already
	searched.Store(true)
	options.onLook = func() {
		if searched.CompareAndSwap(false, true) {
			if err := s.awaitWritten(s.AppendedHeight()); err != nil {
				t.Error(err)
			}
		}
	}
	s = openBook(t, t.TempDir(), genesis, options)
	defer closeStore(t, s)
	client := ledgertest.NewClient(genesis, "acme")
	for round := range ledger.Round(6) {
		transaction := client.Register("mint")
		if round > 0 {
			transaction = client.ChangeAccount("acme:mint", uint64(round), "",
				ledger.AccountTerms{NoDebits: true})
		}
		if _, err := s.Apply(1, round+1, [][]byte{ledgertest.Batch(genesis.Time+1,
			client.Bundle(transaction))}); err != nil {
			t.Fatal(err)
		}
		for _, onItsWay := range []bool{true, false} {
			account, err := s.Account("acme:mint")
			if err != nil {
				t.Fatal(err)
			}
			searched.Store(!onItsWay)
			revision := uint64(0)
			known, err := s.TermsAt(&account, Place{Height: ledger.Height(max(round, 1))})
			if account.Standing != nil {
				revision = account.Standing.Revision
			}
			if want := uint64(max(round, 1) - 1); err != nil || !known || revision != want ||
				!searched.Load() {
				t.Errorf("on its way: %v: known %v, revision %d, want %d: %v", onItsWay, known,
					revision, want, err)
			}
		}
	}
}
