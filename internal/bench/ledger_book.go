package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/home"
)

// Bounds of a book that is there before the load.
const (
	BookTransactionsMax = 1 << 34
	BookAccountsMax     = 1 << 28
)

// The sizes of what a book is made of.
const (
	bookBundle    = ledger.MaxBundleTransactions
	bookBundles   = 16 // in a block, a share of what a batch may have
	bookEpoch     = ledger.Epoch(1)
	bookStep      = ledger.Milliseconds(1) // between two blocks
	bookTold      = 5 * time.Second        // between two messages of progress
	openingBundle = openingsInBundle * ledger.MaxOpenings
)

var _ [ledger.MaxBatchPacked - bookBundles*bookBundle]struct{}

// hasBook reports whether the nodes begin with a book.
func (p LedgerParameters) hasBook() bool { return p.BookTransactions > 0 || p.BookAccounts > 0 }

// checkBook validates the book of a run.
func (p LedgerParameters) checkBook() error {
	switch {
	case p.BookTransactions < 0 || p.BookTransactions > BookTransactionsMax:
		return fmt.Errorf("%w: a book of %d transactions, want 0 to %d", ErrParameters,
			p.BookTransactions, int64(BookTransactionsMax))
	case p.BookAccounts != 0 && (p.BookAccounts < p.Accounts || p.BookAccounts > BookAccountsMax):
		return fmt.Errorf("%w: a book of %d accounts, want at least the %d of the load, and at "+
			"most %d", ErrParameters, p.BookAccounts, p.Accounts, BookAccountsMax)
	case p.hasBook() && p.Accounts == 0:
		return fmt.Errorf("%w: a load over a book needs a number of accounts", ErrParameters)
	}
	return nil
}

// withBook sets the number of accounts of a book that names none: those of the load.
func (p LedgerParameters) withBook() LedgerParameters {
	if p.hasBook() && p.BookAccounts == 0 {
		p.BookAccounts = p.Accounts
	}
	return p
}

// book makes the chain with which the nodes of a run begin.
type book struct {
	load         *load
	transactions int
	shares       []int    // the accounts of each client
	begun        []uint64 // the sequence of the last nonce before a client's transfers
	store        *store.Store
	time         ledger.Milliseconds
	round        ledger.Round
	total        uint64
	told         time.Time
	tell         func(text string)
}

// makeBook makes a chain with the organisations and accounts of a load and a number of transfers
// between them, in the store of one home, and copies it to the others. The homes must not have run
// yet. So each of them still gets a disk identity of its own when its node first starts. Nothing of
// it goes over the network. It returns the number of transactions.
func (l *load) makeBook(ctx context.Context, homes []*home.Home, p LedgerParameters,
	environment LedgerEnvironment) (transactions uint64, err error) {
	first := homes[0]
	b := &book{load: l, transactions: p.BookTransactions, time: first.Genesis.Time,
		begun: make([]uint64, len(l.clients)), told: time.Now(), tell: environment.tell}
	for i := range l.clients {
		b.shares = append(b.shares, shareOf(i, p.BookAccounts, p.Clients))
	}
	l.genesis = first.Genesis.Book()
	// The book is to be as settled as one that grew over days.
	options := environment.Store
	options.Eager = true
	if b.store, err = store.Open(first.Data(), first.Genesis, options); err != nil {
		return 0, fmt.Errorf("bench: the book: %w", err)
	}
	err = b.write(ctx)
	if err == nil {
		b.store.RecordDurable(b.store.Head().Height) // which all nodes will have
	}
	if err = errors.Join(err, b.store.Close()); err != nil {
		return 0, fmt.Errorf("bench: the book: %w", err)
	}
	b.store = nil
	debug.FreeOSMemory() // the nodes need it now
	for i, each := range homes[1:] {
		b.tell(fmt.Sprintf("book: copying it for node %d of %d", i+2, len(homes)))
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		err := os.CopyFS(each.Data(), os.DirFS(first.Data()))
		if err == nil {
			err = syncFolder(each.Data()) // or the disk would write it while the load runs
		}
		if err != nil {
			return 0, fmt.Errorf("bench: the book: %w", err)
		}
	}
	return b.total, nil
}

// syncFolder writes all files below a folder to the disk.
func syncFolder(folder string) error {
	return filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		return errors.Join(file.Sync(), file.Close())
	})
}

// tell reports progress, if anyone listens.
func (e LedgerEnvironment) tell(text string) {
	if e.Progress != nil {
		e.Progress(text)
	}
}

// write executes all blocks of the book.
func (b *book) write(ctx context.Context) error {
	clients := len(b.load.clients)
	if err := b.blocks(ctx, "organisations", clients, func(i int) (int, *loadClient,
		[]ledger.Transaction) {
		c := b.load.clients[i]
		return 1, c, []ledger.Transaction{b.transaction(c, 1)}
	}); err != nil {
		return err
	}
	var openings []bookOpenings
	accounts := 0
	for i, share := range b.shares {
		accounts += share
		for begin := 0; begin < share; begin += openingBundle {
			openings = append(openings, bookOpenings{i, begin, min(share, begin+openingBundle)})
		}
		b.begun[i] = 1 + uint64((share+ledger.MaxOpenings-1)/ledger.MaxOpenings)
	}
	if err := b.blocks(ctx, "accounts", len(openings), func(i int) (int, *loadClient,
		[]ledger.Transaction) {
		its := openings[i]
		c := b.load.clients[its.client]
		return its.end - its.begin, c, b.openings(c, its)
	}); err != nil {
		return err
	}
	bundles := (b.transactions + bookBundle - 1) / bookBundle
	if err := b.blocks(ctx, "transactions", bundles, func(i int) (int, *loadClient,
		[]ledger.Transaction) {
		at := i % clients
		count := min(bookBundle, b.transactions-i*bookBundle)
		return count, b.load.clients[at], b.transfers(at, i/clients, count)
	}); err != nil {
		return err
	}
	for i, c := range b.load.clients {
		c.sequence = b.begun[i]
		for bundle := i; bundle < bundles; bundle += clients {
			c.sequence += uint64(min(bookBundle, b.transactions-bundle*bookBundle))
		}
	}
	return nil
}

// bookOpenings are the accounts of a client that one bundle opens.
type bookOpenings struct{ client, begin, end int }

// transaction returns a transaction of a client. Without anything else, it registers the
// organisation.
func (b *book) transaction(c *loadClient, sequence uint64) ledger.Transaction {
	made := ledger.Transaction{Ledger: b.load.genesis, Signer: c.key.Organisation,
		Nonce: ledger.Nonce{Stream: 1, Sequence: sequence}}
	if sequence == 1 {
		made.Registrations = []ledger.Registration{{Name: c.key.Organisation,
			Keys: []ledger.PublicKey{c.key.Public()}}}
	}
	return made
}

// openings returns the transactions that open accounts. All of these may go below zero.
func (b *book) openings(c *loadClient, its bookOpenings) (made []ledger.Transaction) {
	for begin := its.begin; begin < its.end; begin += ledger.MaxOpenings {
		transaction := b.transaction(c, uint64(2+begin/ledger.MaxOpenings))
		for i := begin; i < min(its.end, begin+ledger.MaxOpenings); i++ {
			transaction.Openings = append(transaction.Openings,
				ledger.Opening{Account: accountName(c.key.Organisation, i), Issuer: true})
		}
		made = append(made, transaction)
	}
	return made
}

// transfers returns the transfers of a client's bundle, between any two of its accounts.
func (b *book) transfers(client, bundle, count int) []ledger.Transaction {
	c, share := b.load.clients[client], b.shares[client]
	random := mathrand.New(mathrand.NewPCG(uint64(client), uint64(bundle)))
	made := make([]ledger.Transaction, count)
	for i := range made {
		from, to := random.IntN(share), random.IntN(share)
		if from == to {
			to = (to + 1) % share
		}
		made[i] = b.transaction(c, b.begun[client]+uint64(bundle*bookBundle+i+1))
		made[i].Postings = postings(accountName(c.key.Organisation, from),
			accountName(c.key.Organisation, to))
	}
	return made
}

// blocks executes bundles, several in a block. of returns how much a bundle counts for the progress
// of what, and its transactions with their signer. The next block's bundles are made meanwhile, on
// all processors.
func (b *book) blocks(ctx context.Context, what string, bundles int,
	of func(i int) (count int, signer *loadClient, contents []ledger.Transaction)) error {
	type made struct {
		batch []byte
		count int
		err   error
	}
	ready, stop := make(chan made, 1), make(chan struct{})
	var making sync.WaitGroup
	defer making.Wait()
	defer close(stop)
	making.Go(func() {
		defer close(ready)
		for begin := 0; begin < bundles; begin += bookBundles {
			encoded := make([][]byte, min(bookBundles, bundles-begin))
			counts, failures := make([]int, len(encoded)), make([]error, len(encoded))
			slots := make(chan struct{}, runtime.GOMAXPROCS(0))
			var signing sync.WaitGroup
			for i := range encoded {
				slots <- struct{}{}
				signing.Go(func() {
					count, signer, contents := of(begin + i)
					counts[i] = count
					encoded[i], failures[i] = signedBundle(ctx, signer, contents)
					<-slots
				})
			}
			signing.Wait()
			b.time += bookStep
			block := made{err: errors.Join(failures...),
				batch: ledger.EncodeBatch(ledger.BatchHeader{Time: b.time}, encoded)}
			for _, count := range counts {
				block.count += count
			}
			select {
			case ready <- block:
			case <-stop:
				return
			}
		}
	})
	done := 0
	for block := range ready {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if block.err != nil {
			return block.err
		}
		if err := b.append(block.batch); err != nil {
			return err
		}
		done += block.count
		if time.Since(b.told) >= bookTold {
			b.told = time.Now()
			b.tell(fmt.Sprintf("book: %d %s", done, what))
		}
	}
	return nil
}

// signedBundle returns the encoding of a signed bundle, a packed one if that is possible.
func signedBundle(ctx context.Context, signer *loadClient,
	contents []ledger.Transaction) ([]byte, error) {
	bundle, err := ledger.PackBundle(contents...)
	if err != nil {
		if bundle, err = ledger.NewBundle(contents...); err != nil {
			return nil, err
		}
	}
	if err := signer.key.SignBundle(ctx, bundle); err != nil {
		return nil, err
	}
	return bundle.Encode(), nil
}

// append executes a block. All its transactions must take effect.
func (b *book) append(batch []byte) error {
	b.round++
	block, err := b.store.Apply(bookEpoch, b.round, [][]byte{batch})
	if err != nil {
		return err
	}
	if block == nil {
		return fmt.Errorf("%w: a block of the book has no transactions", ErrServer)
	}
	for i, entry := range block.All() {
		if result := entry.Result; !result.OK() {
			return fmt.Errorf("%w: transaction %d of block %d of the book: %v", ErrServer, i,
				block.Header.Height, result.Code)
		}
	}
	b.total += uint64(block.Len())
	// The database takes what the journal has, so this also bounds what waits in memory.
	return b.store.Sync()
}

// accountName returns the name of one of an organisation's accounts.
func accountName(organisation ledger.OrganisationName, number int) ledger.AccountPath {
	return ledger.AccountPath(string(organisation) + ":a" + strconv.Itoa(number))
}
