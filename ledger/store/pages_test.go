package store

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

const pagedAccounts = 60

// readPage returns an error unless a page of all accounts is one of a single block: then its
// balances add up to zero.
func readPage(s *Store) error {
	page, err := s.Accounts("", 2*pagedAccounts)
	if err != nil || len(page) != pagedAccounts+1 {
		return fmt.Errorf("a page has %d accounts: %v", len(page), err)
	}
	sum := ledger.Amount{}
	for i := range page {
		for _, balance := range page[i].Balances {
			sum, _ = sum.Add(balance.Amount)
		}
	}
	if sum.Sign() != 0 {
		return fmt.Errorf("the balances of a page add up to %s", sum)
	}
	return nil
}

// TestPagesOfAccountsAreOfOneBlock: while blocks are appended, layers written, runs merged and
// accounts dropped from memory, each page of all accounts is one of a single block. Each account is
// found, and its history never gets shorter.
func TestPagesOfAccountsAreOfOneBlock(t *testing.T) {
	t.Parallel()
	options := small()
	options.checkpointBlocks = 2
	s, b := open(t, t.TempDir(), options), newBook(pagedAccounts)
	b.apply(t, s, 0)
	var histories [pagedAccounts]uint64
	readers := []func(*rand.Rand) error{
		func(*rand.Rand) error { return readPage(s) },
		func(random *rand.Rand) error {
			i := random.IntN(pagedAccounts)
			found, err := s.Account(b.account(i))
			if err == nil && found.History < histories[i] {
				err = fmt.Errorf("%d steps in account %+v", histories[i], found)
			}
			histories[i] = found.History
			return err
		},
	}
	var ended atomic.Bool
	var reading sync.WaitGroup
	for number, read := range readers {
		reading.Go(func() {
			for random := rand.New(rand.NewPCG(uint64(number), 2)); !ended.Load(); {
				if err := read(random); err != nil {
					t.Errorf("reader %d: %v", number, err)
					return
				}
			}
		})
	}
	defer func() {
		ended.Store(true)
		reading.Wait()
	}()
	random := rand.New(rand.NewPCG(1, 1))
	for round := ledger.Round(2); round < 150 && !t.Failed(); round++ {
		var transfers []ledger.Transaction
		for range 1 + random.IntN(8) {
			from, to := random.IntN(pagedAccounts), random.IntN(pagedAccounts-1)
			giver, taker := b.account(from), b.account((from+1+to)%pagedAccounts)
			if random.IntN(2) == 0 {
				giver = b.client.Account("issuer")
			}
			transfers = append(transfers, b.client.Transfer(giver, taker, int64(1+random.IntN(5))))
		}
		batch := ledgertest.Batch(1, b.client.Packed(transfers...))
		if _, err := s.Apply(1, round, [][]byte{batch}); err != nil {
			t.Error(err)
		}
	}
}
