package store

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/ledgerd/ledgerd/ledger"
)

var raceBlocks = flag.Int("race-blocks", 120, "how many blocks TestReadersRaceTheWriter appends")

// readAny reads something at random that the store has.
func readAny(s *Store, random *rand.Rand) error {
	head := s.AppendedHeight()
	if head == 0 {
		return nil
	}
	height := 1 + ledger.Height(random.Uint64N(uint64(head)))
	if random.IntN(2) == 0 { // what moves to the database now
		height = head - min(head-1, ledger.Height(random.IntN(12)))
	}
	block, err := s.Block(height)
	if err != nil {
		return fmt.Errorf("block %d: %w", height, err)
	}
	if random.IntN(3) == 0 {
		if _, hash, err := s.Header(height); err != nil || hash != block.Hash {
			return fmt.Errorf("header %d: %w", height, err)
		}
		if again, err := s.BlockByHash(block.Hash); err != nil ||
			again.Header.Height != height {
			return fmt.Errorf("block %d by its hash: %w", height, err)
		}
	}
	if block.Len() == 0 {
		return nil
	}
	index := random.IntN(block.Len())
	entry := block.Entry(index)
	switch random.IntN(4) {
	case 0:
		found, err := s.Transaction(entry.ID)
		if err != nil || found.Height != height || found.Index != index {
			return fmt.Errorf("transaction %d of block %d: %+v: %w", index, height, found, err)
		}
	case 1:
		if known, err := s.Known(entry.ID); err != nil || !known {
			return fmt.Errorf("transaction %d of block %d is known: %v: %w", index, height, known,
				err)
		}
		other := entry.ID
		other[9]++
		if known, err := s.Known(other); err != nil || known {
			return fmt.Errorf("an unknown id: %v: %w", known, err)
		}
	case 2:
		if s.Genesis().Sharded() {
			if _, err := s.Crossing(entry.ID); err != nil {
				return fmt.Errorf("crossing %d of block %d: %w", index, height, err)
			}
			if _, _, err := s.Verdict(entry.ID, 0, head); err != nil {
				return fmt.Errorf("verdict %d of block %d: %w", index, height, err)
			}
			for _, child := range s.ShardTree().Children(s.Shard()) {
				last := s.Streamed(child)
				if last == 0 {
					continue
				}
				from := 1 + random.Uint64N(last)
				if page, err := s.Stream(child, from, 5, s.AppendedHeight()); err != nil ||
					len(page) == 0 {
					return fmt.Errorf("stream from %d: %d entries: %w", from, len(page), err)
				}
			}
			return nil
		}
		if _, err := s.Proof(entry.ID); err != nil {
			return fmt.Errorf("proof: %w", err)
		}
	default:
		accounts, err := s.Accounts("", 30)
		if err != nil || len(accounts) == 0 {
			return err
		}
		account := accounts[random.IntN(len(accounts))]
		if alone, err := s.Account(account.Path); err != nil || alone.Number != account.Number ||
			alone.History < account.History {
			return fmt.Errorf("account %+v, before %+v: %w", alone, account, err)
		}
		newest := random.IntN(2) == 0
		cursor := uint64(0)
		if account.History > 0 {
			cursor = random.Uint64N(account.History)
		}
		page, err := s.History(account.Path, cursor, 3, newest)
		if err != nil || account.History > 0 && len(page.Items) == 0 {
			return fmt.Errorf("history of %s from %d: %d items: %w", account.Path, cursor,
				len(page.Items), err)
		}
	}
	return nil
}

// Readers find everything while layers go to the database and runs are merged and removed.
func TestReadersRaceTheWriter(t *testing.T) {
	t.Parallel()
	for _, sharded := range []bool{false, true} {
		t.Run(fmt.Sprintf("sharded %v", sharded), func(t *testing.T) {
			t.Parallel()
			options := small()
			options.checkpointBlocks, options.fanOut = 2, 2
			genesis := testGenesis()
			if sharded {
				genesis = shardGenesis()
			}
			s := openBook(t, t.TempDir(), genesis, options)
			random := rand.New(rand.NewPCG(8, 8))
			var apply func()
			if sharded {
				b := newShardBook(1)
				apply = func() { b.apply(t, s, 1+random.IntN(12), random) }
			} else {
				b := newBook(20)
				apply = func() { b.apply(t, s, 1+random.IntN(30)) }
			}
			var ended atomic.Bool
			var reads atomic.Int64
			var readers sync.WaitGroup
			for seed := range uint64(6) {
				random := rand.New(rand.NewPCG(seed, 7))
				readers.Go(func() {
					for !ended.Load() && !t.Failed() {
						if err := readAny(s, random); err != nil {
							t.Error(err)
							return
						}
						reads.Add(1)
					}
				})
			}
			readers.Go(func() {
				for !ended.Load() && !t.Failed() {
					if _, err := s.WriteSnapshot(t.Context(), io.Discard); err != nil &&
						!errors.Is(err, ErrNotFound) {
						t.Errorf("snapshot: %v", err)
						return
					}
				}
			})
			readers.Go(func() {
				for !ended.Load() {
					if err := s.Sync(); err != nil {
						t.Errorf("sync: %v", err)
						return
					}
				}
			})
			for range *raceBlocks {
				apply()
			}
			ended.Store(true)
			readers.Wait()
			t.Logf("%d reads, %d runs", reads.Load(), len(s.runs.list()))
			if err := s.verify(t.Context(), nil); err != nil {
				t.Error(err)
			}
			var snapshot bytes.Buffer
			if _, err := s.WriteSnapshot(t.Context(), &snapshot); err != nil {
				t.Error(err)
			}
		})
	}
}

// What a reader gets while the store is being closed is the answer or ErrClosed.
func TestReadersRaceClose(t *testing.T) {
	t.Parallel()
	for round := range 8 {
		options := small()
		options.checkpointBlocks, options.fanOut = 2, 2
		s := open(t, t.TempDir(), options)
		b := newBook(20)
		for range 20 {
			b.apply(t, s, 10)
		}
		var readers sync.WaitGroup
		for seed := range uint64(4) {
			random := rand.New(rand.NewPCG(seed, uint64(round)))
			readers.Go(func() {
				for {
					err := readAny(s, random)
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		closeStore(t, s)
		readers.Wait()
	}
}

// A read of the database may begin while its goroutine holds the mutex, as that of a shard's
// sealing does, and another one waits to change the store.
func TestReadWithTheMutexHeld(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), small())
	s.mutex.RLock()
	changed, read := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(changed)
		s.mutex.Lock()
		defer s.mutex.Unlock()
	}()
	for s.mutex.TryRLock() { // until the other goroutine waits
		s.mutex.RUnlock()
		runtime.Gosched()
	}
	go func() { read <- s.view(func(*badger.Txn) error { return nil }) }()
	select {
	case err := <-read:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the read waits for the change, which waits for the mutex")
	}
	s.mutex.RUnlock()
	<-changed
}
