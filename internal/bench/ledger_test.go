package bench

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// How often each account of a client takes part in a transfer.
func TestDistributions(t *testing.T) {
	t.Parallel()
	const accounts, transfers = 100, 20000
	for _, test := range []struct {
		distribution string
		accounts     int
		used         int     // at least
		first        float64 // the share of the first two accounts, at least
		most         float64 // and at most
	}{
		{DistributionUniform, accounts, accounts, 0.01, 0.03},
		{DistributionZipf, accounts, accounts, 0.3, 0.6},
		{DistributionHot, accounts, 2, 1, 1},
		{DistributionUniform, 0, 2, 1, 1},
	} {
		l, err := newLoad(LedgerParameters{Clients: 1, Accounts: test.accounts,
			Distribution: test.distribution})
		if err != nil {
			t.Fatal(err)
		}
		choose, seen := l.chooser(l.clients[0]), map[ledger.AccountPath]int{}
		for range transfers {
			transfer := choose.transfer()
			if len(transfer) != 2 || transfer[0].Account == transfer[1].Account {
				t.Fatalf("%s: %v", test.distribution, transfer)
			}
			seen[transfer[0].Account]++
			seen[transfer[1].Account]++
		}
		names := l.clients[0].accounts
		first := float64(seen[names[0]]+seen[names[1]]) / (2 * transfers)
		if len(seen) < test.used || first < test.first || first > test.most {
			t.Errorf("%s: %d accounts, the first two with %v", test.distribution, len(seen), first)
		}
	}
}

// Accounts are shared out among the clients, all of them.
func TestAccountsOf(t *testing.T) {
	t.Parallel()
	l, err := newLoad(LedgerParameters{Clients: 3, Accounts: 11})
	if err != nil {
		t.Fatal(err)
	}
	var shares []int
	for _, c := range l.clients {
		shares = append(shares, len(c.accounts))
		for _, account := range c.accounts {
			if err := account.Validate(); err != nil || account.Organisation() !=
				c.key.Organisation {
				t.Errorf("account %s of %s: %v", account, c.key.Organisation, err)
			}
		}
	}
	if want := []int{4, 4, 3}; !slices.Equal(shares, want) {
		t.Errorf("shares %v, want %v", shares, want)
	}
}

// A hole takes no space on the disk, and bytes do.
func TestAllocatedBytes(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	empty, err := allocatedBytes(folder)
	if err != nil {
		t.Fatal(err)
	}
	const hole, written = 64 << 20, 1 << 20
	sparse := filepath.Join(folder, "sparse")
	if err := os.WriteFile(sparse, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, hole); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(folder, "below")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(below, "whole"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Write(touched(written)); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	full, err := allocatedBytes(folder)
	if err != nil {
		t.Fatal(err)
	}
	if grown := full - empty; grown < written || grown > 2*written {
		t.Errorf("%d bytes for 1 MiB and a hole", grown)
	}
	if missing, err := allocatedBytes(filepath.Join(folder, "missing")); missing != 0 ||
		err != nil {
		t.Errorf("a missing folder has %d bytes, %v", missing, err)
	}
}

// A load over many accounts is left out on a machine that has no memory for it. The others are not.
func TestLoadsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	p := LedgerComparisonParameters{LedgerParameters: LedgerParameters{Nodes: 3, Accounts: 10000},
		CallersClients: 3, Callers: 10, PackedClients: 2, Bundle: 5, LargeAccounts: 1 << 20,
		MoreNodes: []int{5}}
	const needed = 3 * (1 << 20) * bytesPerAccount
	for memory, leftOut := range map[int64]int{0: 0, needed: 0, needed - 1: 6, 1: 6} {
		p.Memory = memory
		count := 0
		for _, load := range p.loads() {
			if reason := p.tooLarge(load); reason != "" {
				count++
				if !strings.Contains(load.name, "_large_") || !strings.Contains(reason, "MiB") {
					t.Errorf("%s: %s", load.name, reason)
				}
			}
		}
		if count != leftOut {
			t.Errorf("%d bytes of memory: %d loads left out, want %d", memory, count, leftOut)
		}
	}
}
