package bench

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/fabric"
	"github.com/ledgerd/ledgerd/node/home"
)

// bookParameters are those of a run over a book.
func bookParameters() LedgerParameters {
	return LedgerParameters{Nodes: 3, Clients: 3, Bundle: 1, Accounts: 10,
		Distribution: DistributionUniform, Ack: AckDurable, Fabric: fabric.P2P,
		Engine: allconcur.EngineAllConcurPlus, For: 1, BookTransactions: 30_001,
		BookAccounts: 10_000}
}

func bookHomes(tb testing.TB, nodes int) []*home.Home {
	homes, err := testnet.Make(testnet.Layout{Dir: tb.TempDir(), Nodes: nodes})
	if err != nil {
		tb.Fatal(err)
	}
	return homes
}

// All homes have the book, durable, with its accounts and nonces, and each a disk of its own that
// remembers.
func TestBook(t *testing.T) {
	t.Parallel()
	p, homes := bookParameters(), bookHomes(t, 3)
	l, err := newLoad(p)
	if err != nil {
		t.Fatal(err)
	}
	total, err := l.makeBook(context.Background(), homes, p, LedgerEnvironment{})
	if err != nil {
		t.Fatal(err)
	}
	const openings = 14 + 14 + 14 // transactions of up to 256 accounts each
	if want := uint64(p.Clients + openings + p.BookTransactions); total != want {
		t.Errorf("%d transactions, want %d", total, want)
	}
	disks := map[home.DiskID]bool{}
	for _, each := range homes {
		disk, err := each.OpenDisk()
		if err != nil || !disk.Original {
			t.Fatalf("%s: %+v, %v", each.Name(), disk, err)
		}
		disks[disk.ID] = true
		opened, err := store.Open(each.Data(), each.Genesis, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		head := opened.Head()
		if head.Total != total || opened.KnownDurable() != head.Height {
			t.Errorf("%s: %d transactions, %d of %d blocks known as durable", each.Name(),
				head.Total, opened.KnownDurable(), head.Height)
		}
		sum := 0
		for i, c := range l.clients {
			last := shareOf(i, p.BookAccounts, p.Clients) - 1
			if _, err := opened.Account(accountName(c.key.Organisation, last)); err != nil {
				t.Errorf("account %d of %s: %v", last, c.key.Organisation, err)
			}
			if _, err := opened.Account(accountName(c.key.Organisation, last+1)); !errors.Is(err,
				store.ErrNotFound) {
				t.Errorf("account %d of %s: %v", last+1, c.key.Organisation, err)
			}
			if next := opened.NextSequence(c.key.Organisation, 1); next != c.sequence+1 {
				t.Errorf("the next nonce of %s is %d, want %d", c.key.Organisation, next,
					c.sequence+1)
			}
			sum += last + 1
		}
		if sum != p.BookAccounts {
			t.Errorf("%d accounts", sum)
		}
		if err := errors.Join(opened.Close(), disk.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if len(disks) != len(homes) {
		t.Errorf("%d disks for %d homes", len(disks), len(homes))
	}
}

// An interrupted book ends, and so does one that the disk has no room for.
func TestBookEnds(t *testing.T) {
	t.Parallel()
	p := bookParameters()
	l, err := newLoad(p)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(os.ErrDeadlineExceeded)
	if _, err := l.makeBook(ctx, bookHomes(t, 1), p, LedgerEnvironment{}); !errors.Is(err,
		os.ErrDeadlineExceeded) {
		t.Errorf("interrupted: %v", err)
	}
	full := LedgerEnvironment{Store: store.Options{FreeSpace: func(string) (uint64, error) {
		return 1 << 20, nil
	}}}
	if _, err := l.makeBook(context.Background(), bookHomes(t, 1), p, full); !errors.Is(err,
		store.ErrDiskFull) {
		t.Errorf("full disk: %v", err)
	}
}

func TestBookIsRefused(t *testing.T) {
	t.Parallel()
	if err := bookParameters().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(p *LedgerParameters){
		"transactions below 0": func(p *LedgerParameters) { p.BookTransactions = -1 },
		"too many": func(p *LedgerParameters) {
			p.BookTransactions = BookTransactionsMax + 1
		},
		"too many accounts":    func(p *LedgerParameters) { p.BookAccounts = BookAccountsMax + 1 },
		"fewer than the load":  func(p *LedgerParameters) { p.BookAccounts = p.Accounts - 1 },
		"no accounts":          func(p *LedgerParameters) { p.Accounts = 0 },
		"nodes in the process": func(p *LedgerParameters) { p.Fabric = fabric.Memory },
		"memory below 0":       func(p *LedgerParameters) { p.MemoryLimit = -1 },
		"warm-up below 0":      func(p *LedgerParameters) { p.WarmUp = -1 },
	} {
		p := bookParameters()
		change(&p)
		if err := p.Validate(); !errors.Is(err, ErrParameters) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// BenchmarkBook makes a book of a million transfers.
func BenchmarkBook(b *testing.B) {
	for b.Loop() {
		p := LedgerParameters{Nodes: 1, Clients: 16, Bundle: 1, Accounts: 10000,
			Distribution: DistributionUniform, Ack: AckDurable, Fabric: fabric.P2P,
			Engine: allconcur.EngineAllConcurPlus, BookTransactions: 1 << 20, BookAccounts: 1 << 17}
		homes := bookHomes(b, 1)
		l, err := newLoad(p)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := l.makeBook(context.Background(), homes, p, LedgerEnvironment{}); err != nil {
			b.Fatal(err)
		}
	}
}
