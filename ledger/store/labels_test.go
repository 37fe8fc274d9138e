package store

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// labeller makes rounds that change the metadata of accounts, and move money between them.
type labeller struct {
	client  *ledgertest.Client
	genesis *ledger.Genesis
	round   ledger.Round
	numbers map[ledger.AccountPath]uint64
	open    map[ledger.AccountPath]bool
}

// Values that begin alike, contain what separates the parts of a path, or are empty, so that a row
// of one of them might be taken for one of another.
var labelValues = []string{"", "a", "a:", "ab", "a:b", strings.Repeat("x", ledger.MaxMetadataValue)}

func (l *labeller) path(random *rand.Rand) ledger.AccountPath {
	return l.client.Account([]string{"a", "a:b", "a:bc", "ab", "b", "b:a"}[random.IntN(6)])
}

func (l *labeller) next(random *rand.Rand) []byte {
	l.round++
	var transactions []ledger.Transaction
	if l.round == 1 {
		transactions = append(transactions, l.client.Register("issuer"))
	}
	for range 1 + random.IntN(4) {
		path := l.path(random)
		switch {
		case !l.open[path]:
			opening := l.client.Next()
			opening.Openings = []ledger.Opening{{Account: path}}
			transactions, l.open[path] = append(transactions, opening), true
		case random.IntN(2) == 0:
			transactions = append(transactions,
				l.client.Transfer(l.client.Account("issuer"), path, 1))
		default:
			var terms ledger.AccountTerms
			for _, key := range []string{"iban", "iban2"} {
				if random.IntN(3) > 0 {
					value := labelValues[random.IntN(len(labelValues))]
					terms.Metadata = append(terms.Metadata, ledger.Metadatum{Key: key,
						Value: value, Indexed: random.IntN(4) > 0})
				}
			}
			l.numbers[path]++
			transactions = append(transactions,
				l.client.ChangeAccount(path, l.numbers[path], "", terms))
		}
	}
	return ledgertest.Batch(l.genesis.Time+ledger.Milliseconds(l.round),
		l.client.Bundle(transactions...))
}

// labelsFindAll compares a search by metadata, in pages of some size, with a look at all accounts.
func labelsFindAll(t rapid.TB, s *Store, random *rand.Rand) {
	t.Helper()
	for _, key := range []string{"iban", "iban2"} {
		for _, value := range labelValues {
			prefix := []string{"", "acme", "acme:a", "acme:a:b", "acme:b"}[random.IntN(5)]
			wanted := ledger.Metadatum{Key: key, Value: value, Indexed: true}
			var want, got []ledger.AccountPath
			for account, err := range s.AllAccounts() {
				if err != nil {
					t.Fatal(err)
				}
				if account.Has(&wanted) && strings.HasPrefix(string(account.Path), prefix) {
					want = append(want, account.Path)
				}
			}
			size, turns := 1+random.IntN(3), 0
			for after, more := ledger.AccountPath(""), true; more; turns++ {
				var page []ledger.Account
				var err error
				page, after, more, err = s.AccountsWhere(key, value, prefix, after, size)
				if err != nil || len(page) > size || turns > 20 {
					t.Fatalf("%d accounts in page %d of %d: %v", len(page), turns, size, err)
				}
				for i := range page {
					got = append(got, page[i].Path)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%s=%q below %q: %v, want %v (labelled: %v)", key, value, prefix, got,
					want, s.labelled.Load())
			}
		}
	}
}

// awaitLabels waits until the labels of a store have rows.
func awaitLabels(t rapid.TB, s *Store) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !s.labelled.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("labels have no rows yet")
		}
	}
}

// forgetLabels removes all rows of some kinds.
func forgetLabels(t rapid.TB, s *Store, kinds ...byte) {
	t.Helper()
	for _, kind := range kinds {
		if err := s.db.DropPrefix([]byte{kind}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLabelsFindAccounts: a search by metadata finds the accounts that a look at all of them finds,
// wherever their blocks are, over restarts, snapshots and stores of earlier versions.
func TestLabelsFindAccounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 2))
		genesis := ledgertest.OperatedGenesis(1)
		genesis.Version = ledger.NewestVersion
		options := small()
		options.checkpointBlocks = rapid.IntRange(1, 9).Draw(r, "blocks")
		options.AccountsInMemory = rapid.IntRange(1, 6).Draw(r, "accounts")
		folders := t.TempDir()
		dir := filepath.Join(folders, "0")
		s := openBook(t, dir, genesis, options)
		traffic := &labeller{client: ledgertest.NewClient(genesis, "acme"), genesis: genesis,
			numbers: make(map[ledger.AccountPath]uint64), open: make(map[ledger.AccountPath]bool)}
		for i := range rapid.IntRange(1, 12).Draw(r, "rounds") {
			if _, err := s.Apply(1, traffic.round, [][]byte{traffic.next(random)}); err != nil {
				r.Fatal(err)
			}
			switch random.IntN(12) {
			case 0:
				if err := s.awaitWritten(s.AppendedHeight()); err != nil {
					r.Fatal(err)
				}
			case 1:
				closeStore(t, s)
				s = openBook(t, dir, genesis, options)
				if !s.labelled.Load() && i > 0 {
					awaitLabels(r, s)
				}
			case 2: // as if an earlier version had written all
				if err := s.awaitWritten(s.AppendedHeight()); err != nil {
					r.Fatal(err)
				}
				awaitLabels(r, s)
				forgetLabels(r, s, []byte{rowLabels, rowLabel}[:1+random.IntN(2)]...)
				closeStore(t, s)
				s = openBook(t, dir, genesis, options)
				labelsFindAll(r, s, random)
				if random.IntN(2) == 0 {
					awaitLabels(r, s)
				}
			case 3:
				if err := s.Sync(); err != nil {
					r.Fatal(err)
				}
				dir = filepath.Join(folders, fmt.Sprint(i+1))
				restored := restoredFrom(t, s, dir)
				closeStore(t, s)
				if s = restored; random.IntN(2) == 0 {
					awaitLabels(r, s)
				}
			}
			labelsFindAll(r, s, random)
		}
		awaitLabels(r, s)
		labelsFindAll(r, s, random)
		whole := s.Absent() == 0
		closeStore(t, s)
		if !whole {
			return
		}
		if _, err := Verify(t.Context(), dir, genesis, options, nil); err != nil {
			r.Fatal(err)
		}
	})
}

// TestLabelsOfAnEarlierVersionAreWrittenAgain: a row of labels that names a block before the head
// is that of a store which an earlier version went on with.
func TestLabelsOfAnEarlierVersionAreWrittenAgain(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.NewestVersion
	dir := t.TempDir()
	s := openBook(t, dir, genesis, small())
	client := ledgertest.NewClient(genesis, "acme")
	terms := ledger.AccountTerms{Metadata: []ledger.Metadatum{{Key: "iban", Value: "DE12",
		Indexed: true}}}
	openings := []ledger.Transaction{client.Register("mint", "a")}
	for i := range accountsAtOnce { // the one with the label is among those that are read last
		if i%ledger.MaxOpenings == 0 {
			openings = append(openings, client.Next())
		}
		last := &openings[len(openings)-1]
		last.Openings = append(last.Openings,
			ledger.Opening{Account: client.Account(fmt.Sprintf("%04d", i))})
	}
	for i, bundle := range []*ledger.Bundle{client.Bundle(openings...),
		client.Bundle(client.ChangeAccount("acme:a", 1, "", terms))} {
		if _, err := s.Apply(1, ledger.Round(i+1), [][]byte{ledgertest.Batch(genesis.Time+1,
			bundle)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.awaitWritten(2); err != nil {
		t.Fatal(err)
	}
	forgetLabels(t, s, rowLabel)
	err := s.db.Update(func(transaction *badger.Txn) error {
		return labelsRow(1, s.putTo(transaction.Set))
	})
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	for range 2 { // with the row that the goroutine wrote, too
		s = openBook(t, dir, genesis, small())
		awaitLabels(t, s)
		page, _, _, err := s.AccountsWhere("iban", "DE12", "", "", 10)
		if err != nil || len(page) != 1 || page[0].Path != "acme:a" {
			t.Fatalf("%+v: %v", page, err)
		}
		closeStore(t, s)
	}
}

// TestLabelsAreFoundOnTheirWay: an account is found from the moment when the block is in memory
// that labels it, also if the database gets its row and the block leaves memory during the search.
func TestLabelsAreFoundOnTheirWay(t *testing.T) {
	t.Parallel()
	genesis := ledgertest.OperatedGenesis(1)
	genesis.Version = ledger.NewestVersion
	options := small()
	var s *Store
	var searched atomic.Bool // the database, and memory not yet or already
	options.onLook = func() {
		if searched.CompareAndSwap(false, true) {
			if err := s.awaitWritten(s.AppendedHeight()); err != nil {
				t.Error(err)
			}
		}
	}
	searched.Store(true)
	s = openBook(t, t.TempDir(), genesis, options)
	defer closeStore(t, s)
	client := ledgertest.NewClient(genesis, "acme")
	round := ledger.Round(0)
	apply := func(transactions ...ledger.Transaction) {
		round++
		if _, err := s.Apply(1, round, [][]byte{ledgertest.Batch(genesis.Time+1,
			client.Bundle(transactions...))}); err != nil {
			t.Fatal(err)
		}
	}
	apply(client.Register("mint"))
	for i := range 5 {
		value := fmt.Sprint(i)
		apply(client.ChangeAccount("acme:mint", uint64(i+1), "", ledger.AccountTerms{
			Metadata: []ledger.Metadatum{{Key: "number", Value: value, Indexed: true}}}))
		for _, onItsWay := range []bool{true, false} {
			searched.Store(!onItsWay)
			page, _, _, err := s.AccountsWhere("number", value, "", "", 1)
			if err != nil || len(page) != 1 || !searched.Load() {
				t.Fatalf("label %d, on its way: %v: %+v: %v", i, onItsWay, page, err)
			}
		}
	}
	if page, _, _, err := s.AccountsWhere("number", "0", "", "", 1); err != nil || len(page) > 0 {
		t.Errorf("the account is found by a label that it has no more: %+v: %v", page, err)
	}
}
