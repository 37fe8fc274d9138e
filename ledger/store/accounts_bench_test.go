package store

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

var (
	benchAccounts = flag.Int("bench-accounts", 100_000, "accounts of BenchmarkAccounts")
	benchBook     = flag.String("bench-book", "", "folder where BenchmarkAccounts keeps its book")
)

// benchAccount returns the path of an account of the book of BenchmarkAccounts.
func benchAccount(number int) ledger.AccountPath {
	return ledger.AccountPath(fmt.Sprintf("acme:account-%08d", number))
}

// openAccounts opens accounts in a new store, each with a balance.
func openAccounts(b *testing.B, dir string, count int) {
	openAccountsOf(b, testGenesis(), dir, count)
}

func openAccountsOf(b *testing.B, genesis *ledger.Genesis, dir string, count int) {
	s := openBook(b, dir, genesis, Options{ReserveBytes: 1})
	client := ledgertest.NewClient(genesis, "acme")
	round := ledger.Round(0)
	apply := func(bundles ...*ledger.Bundle) {
		round++
		if _, err := s.Apply(1, round, [][]byte{ledgertest.Batch(1, bundles...)}); err != nil {
			b.Fatal(err)
		}
	}
	issuer := client.Account("issuer")
	apply(client.Bundle(client.Register("issuer")))
	order := rand.New(rand.NewPCG(1, 1)).Perm(count)
	for len(order) > 0 {
		var some []ledger.Transaction
		for range 16 {
			opening, part := client.Next(), min(len(order), ledger.MaxOpenings)
			if part == 0 {
				break
			}
			for _, number := range order[:part] {
				opening.Openings = append(opening.Openings,
					ledger.Opening{Account: benchAccount(number)})
				opening.Postings = append(opening.Postings, ledger.Posting{
					Account: benchAccount(number), Asset: ledger.DefaultAsset,
					Amount: ledger.NewAmount(1000)})
			}
			opening.Postings = append(opening.Postings, ledger.Posting{Account: issuer,
				Asset: ledger.DefaultAsset, Amount: ledger.NewAmount(-1000 * int64(part))})
			some, order = append(some, opening), order[part:]
		}
		apply(client.Bundle(some...))
	}
	closeStore(b, s)
}

// BenchmarkAccounts measures a store of many accounts after it was opened again: opening it, the
// memory that it takes, look-ups of accounts, reading them into memory as behind a start, and
// blocks of 1000 transfers between accounts of which all, half or none are in memory.
func BenchmarkAccounts(b *testing.B) {
	dir := filepath.Join(*benchBook, fmt.Sprint(*benchAccounts))
	if *benchBook == "" {
		dir = b.TempDir()
	}
	if _, err := os.Stat(dir); err != nil || *benchBook == "" {
		began := time.Now()
		openAccounts(b, dir, *benchAccounts)
		b.Logf("made in %v", time.Since(began))
	}
	began, before := time.Now(), processorTime(b)
	s := open(b, dir, Options{keepCold: true})
	opened, worked := time.Since(began), processorTime(b)-before
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	b.Logf("%d accounts, opened in %v, %v of processor time, %d MiB in use, %d in memory",
		s.AccountCount(), opened, worked, memory.HeapAlloc>>20, s.AccountsInMemory())
	b.Cleanup(func() { closeStore(b, s) })
	random := rand.New(rand.NewPCG(2, uint64(time.Now().UnixNano())))
	account := func(within int) ledger.AccountPath { return benchAccount(random.IntN(within)) }
	const warm = 20_000
	client := ledgertest.NewClient(testGenesis(), "acme")
	client.Sequence = s.NextSequence("acme", 0) - 1
	blocks := func(name string, path func(i int) ledger.AccountPath) {
		b.Run(name, func(b *testing.B) {
			const transfers = 1000
			b.ReportAllocs()
			b.StopTimer()
			for range b.N {
				var some []ledger.Transaction
				for i := range transfers {
					some = append(some, client.Transfer(path(2*i), path(2*i+1), 0))
				}
				batches := ledger.VerifyBatches([][]byte{ledgertest.Batch(1,
					client.Bundle(some...))})
				if err := s.Sync(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				s.applying.Lock()
				draft, err := s.seal(1, s.head.Header.Round+1, batches)
				if err == nil {
					err = s.admit(s.head.Header.Height+1, draft)
				}
				if err != nil {
					b.Fatal(err)
				}
				s.mutex.Lock()
				block, changes := s.state.Execute(draft)
				s.publish(block, changes)
				s.mutex.Unlock()
				s.applying.Unlock()
				b.StopTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/transfers, "ns/transfer")
		})
	}
	b.Run("cold look-up", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Account(account(*benchAccounts)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("absent look-up", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Account("acme:account-nobody"); err == nil {
				b.Fatal("it is there")
			}
		}
	})
	b.Run("page of 100", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Accounts(account(*benchAccounts), 100); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("warming", func(b *testing.B) {
		most, warmed := s.options.AccountsInMemory, 0
		defer func() { s.options.AccountsInMemory = most }()
		s.options.AccountsInMemory = min(most, 500_000)
		for range b.N {
			b.StopTimer()
			for s.AccountsInMemory() > 0 {
				s.state.Evict(s.written, 0)
			}
			w := warmer{store: s, pace: &pace{store: s, began: time.Now().Add(time.Hour)}}
			b.StartTimer()
			for _, r := range slices.Backward(of(rowEntries, s.runs.list())) {
				if _, err := w.run(r.number); err != nil || w.enough {
					break
				}
			}
			warmed += s.AccountsInMemory()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(max(warmed, 1)), "ns/account")
	})
	blocks("cold blocks", func(int) ledger.AccountPath { return account(*benchAccounts) })
	for first := 0; first < warm; first += 1000 { // makes the first accounts resident
		some := client.Next()
		for i := range 1000 {
			some.Postings = append(some.Postings, ledger.Posting{Account: benchAccount(first + i),
				Asset: ledger.DefaultAsset})
		}
		if _, err := s.Apply(1, s.head.Header.Round+1, [][]byte{ledgertest.Batch(1,
			client.Bundle(some))}); err != nil {
			b.Fatal(err)
		}
	}
	blocks("warm blocks", func(int) ledger.AccountPath { return account(warm) })
	blocks("half cold blocks", func(i int) ledger.AccountPath {
		if i%2 == 0 {
			return account(*benchAccounts)
		}
		return account(warm)
	})
	b.Run("warm look-up", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Account(account(warm)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkAccountsWhere searches a book of many accounts for the one that has a metadatum: by the
// rows of labels, and by looking at the accounts one by one.
func BenchmarkAccountsWhere(b *testing.B) {
	genesis := testGenesis()
	genesis.Version = ledger.NewestVersion
	dir := b.TempDir()
	openAccountsOf(b, genesis, dir, *benchAccounts)
	s := openBook(b, dir, genesis, Options{ReserveBytes: 1})
	defer closeStore(b, s)
	client := ledgertest.NewClient(genesis, "acme")
	client.Sequence = s.NextSequence("acme", 0) - 1
	last := benchAccount(*benchAccounts - 1)
	change := client.ChangeAccount(last, 1, "", ledger.AccountTerms{
		Metadata: []ledger.Metadatum{{Key: "iban", Value: "DE12", Indexed: true}}})
	if _, err := s.Apply(1, s.Head().Round+1, [][]byte{ledgertest.Batch(genesis.Time+1,
		client.Bundle(change))}); err != nil {
		b.Fatal(err)
	}
	if err := s.awaitWritten(s.AppendedHeight()); err != nil {
		b.Fatal(err)
	}
	for _, labelled := range []bool{true, false} {
		b.Run(map[bool]string{true: "rows", false: "one by one"}[labelled], func(b *testing.B) {
			s.labelled.Store(labelled)
			for b.Loop() {
				found := 0
				for after, more := ledger.AccountPath(""), true; more; {
					var page []ledger.Account
					var err error
					page, after, more, err = s.AccountsWhere("iban", "DE12", "", after, 100)
					if err != nil {
						b.Fatal(err)
					}
					found += len(page)
				}
				if found != 1 {
					b.Fatalf("%d accounts", found)
				}
			}
		})
	}
}
