package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
)

// timedGenesis is shardGenesis with deadlines.
func timedGenesis() *ledger.Genesis {
	book := ledgertest.ShardedGenesis(1, 0, 0, 1)
	book.Version = ledger.DeadlineVersion
	genesis, err := book.ForShard(1)
	if err != nil {
		panic(err)
	}
	return genesis
}

// copies sends transactions to shard 1 again and again, before and after their deadlines, as
// clients' bundles and in the stream of its parent, which here hands on all that it gets.
type copies struct {
	*shardBook
	random *rand.Rand
	time   ledger.Milliseconds
	pace   int      // how many of the steps there are
	sent   [][]byte // bundles
	// known are the ids that are in a block, failed what memory must have of them.
	known  map[ledger.Hash]bool
	failed failedIDs
}

func newCopies(seed uint64) *copies {
	genesis := timedGenesis()
	c := &copies{shardBook: newShardBookOf(genesis, 1), random: rand.New(rand.NewPCG(seed, 15)),
		time: genesis.Time, pace: len(steps) - int(seed%4), known: make(map[ledger.Hash]bool),
		failed: newFailedIDs()}
	c.grow(1)
	c.failed.now = periodOf(genesis.Time)
	return c
}

// steps are the times between two blocks.
var steps = []time.Duration{time.Millisecond, time.Minute, time.Hour, 5 * time.Hour, 6 * time.Hour,
	26 * time.Hour, 7 * 24 * time.Hour}

// deadline returns a deadline that is near, far, too far or over, or none.
func (c *copies) deadline() ledger.Milliseconds {
	switch c.random.IntN(8) {
	case 0:
		return 0
	case 1:
		return c.time - ledger.Milliseconds(c.random.Int64N(30_000_000))
	case 2:
		return c.time + ledger.MaxDeadline + ledger.Milliseconds(c.random.Int64N(90_000_000))
	}
	return c.time + ledger.Milliseconds(c.random.Int64N(int64(ledger.MaxDeadline)/
		[]int64{1, 10, 100}[c.random.IntN(3)]))
}

// bundle returns a bundle with new transactions, or one that was sent before. Each goes two ways.
func (c *copies) bundle() []byte {
	if len(c.sent) > 0 && c.random.IntN(2) == 0 {
		return c.sent[c.random.IntN(len(c.sent))]
	}
	var transactions []ledger.Transaction
	for range 1 + c.random.IntN(3) {
		from, to := c.random.IntN(3), c.random.IntN(3)
		transfer := c.clients[from].Transfer(c.clients[from].Account("issuer"),
			c.clients[to].Account([]string{"a", "nobody"}[c.random.IntN(2)]), 5)
		transfer.Deadline = c.deadline()
		transactions = append(transactions, transfer)
	}
	bundle := c.signed(transactions...)
	c.sent = append(c.sent, bundle)
	return bundle
}

// next makes the next block of the store.
func (c *copies) next(s *Store) error {
	c.time += ledger.Milliseconds(steps[c.random.IntN(c.pace)] / time.Millisecond)
	clocks := []ledger.MemberClock{{Member: 0}}
	c.round++
	above := &ledger.Batch{Header: ledger.BatchHeader{Time: c.time}, Clocks: clocks}
	for range 1 + c.random.IntN(3) {
		above.Bundles = append(above.Bundles, c.bundle())
	}
	c.order(above)
	batch := &ledger.Batch{Header: ledger.BatchHeader{Time: c.time}, Clocks: clocks,
		Carried: c.stream[s.Carried():]}
	if s.AccountCount() == 0 && s.Head().Height > 0 {
		opening := c.clients[1].Next()
		opening.Openings = []ledger.Opening{{Account: "org1:issuer", Issuer: true},
			{Account: "org1:a"}}
		batch.Bundles = append(batch.Bundles, c.signed(opening))
	}
	for range c.random.IntN(3) {
		batch.Bundles = append(batch.Bundles, c.bundle())
	}
	for _, waits := range s.Pending() {
		if c.random.IntN(3) == 0 {
			batch.Verdicts = append(batch.Verdicts, ledger.Verdict{ID: waits.ID,
				Shard: waits.Waits[0], Result: ledger.Result{Code: []ledger.Code{ledger.SetAside,
					ledger.DeadlinePassed}[c.random.IntN(2)], Item: ledger.NoItem}})
		}
	}
	block, err := s.Apply(1, ledger.Round(c.round), [][]byte{batch.Encode()})
	if err != nil || block == nil {
		return err
	}
	if block.Header.Time != c.time {
		return fmt.Errorf("the time is %d, want %d", block.Header.Time, c.time)
	}
	for _, entry := range block.All() {
		if entry.Transaction().Verdict != nil {
			continue
		}
		if c.known[entry.ID] {
			return fmt.Errorf("block %d, %d ms: %s is there twice, with the deadline %d: %s",
				block.Header.Height, c.time, entry.ID, entry.Transaction().Deadline, entry.Result)
		}
		c.known[entry.ID] = true
	}
	c.failed.addBlock(block)
	return nil
}

// check compares the store's memory with what follows from the blocks, and does what checkKnown
// does.
func (c *copies) check(s *Store) error {
	if !reflect.DeepEqual(s.failed.always, c.failed.always) ||
		!reflect.DeepEqual(s.failed.until, c.failed.until) ||
		len(s.failed.within) > 0 || s.failed.now != c.failed.now {
		return fmt.Errorf("memory has %v from %d on, want %v from %d on", s.failed.until,
			s.failed.now, c.failed.until, c.failed.now)
	}
	return c.checkKnown(s)
}

// checkKnown compares what the store knows of bundles that are to be admitted with what is in the
// blocks.
func (c *copies) checkKnown(s *Store) error {
	for _, encoded := range c.sent {
		bundle, err := ledger.DecodeBundle(encoded)
		if err != nil {
			return err
		}
		known, err := s.KnownIn(bundle)
		if err != nil {
			return err
		}
		for i, id := range bundle.IDs() {
			if got := known != nil && known[i]; got != c.known[id] {
				return fmt.Errorf("transaction %s is known: %v, want %v", id, got, c.known[id])
			}
		}
	}
	return nil
}

// run makes blocks and sometimes opens the store again. At the end it verifies the store. It calls
// spoil before each block.
func (c *copies) run(t *testing.T, blocks int, spoil func(s *Store)) (failure error) {
	dir, options := t.TempDir(), small()
	s := openBook(t, dir, timedGenesis(), options)
	defer func() {
		closeStore(t, s)
		_, err := Verify(t.Context(), dir, timedGenesis(), small(), nil)
		failure = errors.Join(failure, err)
	}()
	for range blocks {
		spoil(s)
		if err := errors.Join(c.next(s), s.Sync()); err != nil {
			return err
		}
		if c.random.IntN(4) > 0 {
			continue
		}
		if c.random.IntN(4) > 0 { // everything is in runs, which are merged
			if err := s.awaitWritten(s.AppendedHeight()); err != nil {
				return err
			}
		}
		if c.random.IntN(2) == 0 {
			closeStore(t, s)
			if c.random.IntN(3) == 0 {
				loseGuides(t, dir)
			}
			options.CheckAll = c.random.IntN(2) == 0
			s = openBook(t, dir, timedGenesis(), options)
			mustCheck(t, s)
		}
		if err := c.check(s); err != nil {
			return err
		}
	}
	return c.check(s)
}

// loseGuides takes the guides of runs from a closed store, as one of an older version has none.
func loseGuides(t *testing.T, dir string) {
	edit(t, dir, func(batch *badger.WriteBatch, key, _ []byte) error {
		if key[0] != rowGuide {
			return nil
		}
		return batch.Delete(key)
	})
}

// TestCopiesChangeNothing: a copy of a transaction is never executed, whatever the times of the
// blocks are and however long ago its deadline was over, though memory forgets the ids.
func TestCopiesChangeNothing(t *testing.T) {
	t.Parallel()
	forgot := 0
	for seed := range uint64(4) {
		c := newCopies(seed)
		if err := c.run(t, 50, func(*Store) {}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		kept := len(c.failed.always)
		for _, some := range c.failed.until {
			kept += len(some)
		}
		forgot += len(c.known) - kept
		if len(c.failed.until) > int(farthest)+1 || len(c.failed.begins) > int(farthest)+1 {
			t.Errorf("seed %d: %d periods, which begin %v", seed, len(c.failed.until),
				c.failed.begins)
		}
	}
	if forgot == 0 {
		t.Error("nothing was forgotten")
	}
}

// TestCopiesAfterASnapshot: a store that began with a snapshot drops copies of what is in the
// blocks before it, whatever their deadlines are, also when those blocks have come.
func TestCopiesAfterASnapshot(t *testing.T) {
	t.Parallel()
	within := 0
	for seed := range uint64(3) {
		c, dir := newCopies(seed), t.TempDir()
		whole := openBook(t, t.TempDir(), timedGenesis(), small())
		grow := func(s *Store, blocks int) {
			for range blocks {
				if err := errors.Join(c.next(s), s.Sync()); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if err := c.checkKnown(s); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		grow(whole, 25)
		dir = filepath.Join(dir, "restored")
		s := restoredFrom(t, whole, dir)
		mustCheck(t, s)
		within += len(s.failed.within)
		grow(s, 15)
		if err := fillFrom(s, whole, 1000); err != nil {
			t.Fatal(err)
		}
		if err := s.Index(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		s = openBook(t, dir, timedGenesis(), small())
		mustCheck(t, s)
		grow(s, 15)
		c.time += 2 * ledger.MaxDeadline
		grow(s, 1)
		if len(s.failed.within) > 0 {
			t.Errorf("seed %d: %v are not forgotten", seed, s.failed.within)
		}
		closeStore(t, s)
		closeStore(t, whole)
	}
	if within == 0 {
		t.Error("nothing was set aside before the snapshots")
	}
}

// TestForgettingTooEarlyIsFound: the test above finds a store that forgets ids too early.
func TestForgettingTooEarlyIsFound(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Store){
		"before the deadline":  func(s *Store) { clear(s.failed.until) },
		"in the period before": func(s *Store) { delete(s.failed.until, s.failed.now+1) },
		"without a deadline":   func(s *Store) { clear(s.failed.always) },
	} {
		found := false
		for seed := uint64(0); seed < 10 && !found; seed++ {
			c := newCopies(seed)
			found = c.run(t, 40, spoil) != nil
		}
		if !found {
			t.Errorf("%s: not found", name)
		}
	}
}

// TestLapses: a record keeps the period of a deadline, which is found again from the block's
// height. No deadline that is still to come counts as over.
func TestLapses(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f, pace := newFailedIDs(), rapid.IntRange(4, len(steps)).Draw(t, "pace")
		type failure struct {
			height   ledger.Height
			deadline ledger.Milliseconds
			left     lapse
		}
		var all []failure
		time := ledger.Milliseconds(rapid.Int64Range(0, 1<<41).Draw(t, "begin"))
		for height := range ledger.Height(rapid.IntRange(1, 100).Draw(t, "blocks")) {
			step := rapid.SampledFrom(steps[:pace]).Draw(t, "step")
			time += ledger.Milliseconds(step.Milliseconds())
			f.advance(&ledger.Header{Height: height + 1, Time: time})
			deadline := max(1, time+ledger.MaxDeadline-ledger.Milliseconds(rapid.Int64Range(0,
				int64(ledger.MaxDeadline+periodLength)).Draw(t, "before the furthest")))
			left := lapseOf(time, deadline)
			if left == 0 {
				t.Fatalf("a deadline %d ms ahead has no lapse", deadline-time)
			}
			all = append(all, failure{height + 1, deadline, left})
			for _, each := range all {
				if each.deadline <= time {
					continue
				}
				if of, over := f.spans.until(each.height, each.left); over ||
					of != periodOf(each.deadline) {
					t.Fatalf("at %d, deadline %d of block %d is in period %d, over: %v", time,
						each.deadline, each.height, of, over)
				}
			}
		}
	})
	for ahead, want := range map[ledger.Milliseconds]lapse{0: 1, 1: 1, -9: 1, periodLength: 2,
		ledger.MaxDeadline: lapse(farthest) + 1, ledger.MaxDeadline + periodLength: 0} {
		if got := lapseOf(4*periodLength, 4*periodLength+ahead); got != want {
			t.Errorf("%d ms ahead: %d, want %d", ahead, got, want)
		}
	}
	if lapseOf(4*periodLength, 0) != 0 {
		t.Error("no deadline has a lapse")
	}
}

// BenchmarkMemoryOfFailedIDs tells the memory for the ids of a million transactions: without
// deadlines, with deadlines that are a day ahead, and once these are over.
func BenchmarkMemoryOfFailedIDs(b *testing.B) {
	const ids, begin = 1_000_000, 1_700_000_000_000
	for name, of := range map[string]struct{ ahead, after ledger.Milliseconds }{
		"without": {0, 0}, "open": {24 * 3600 * 1000, 0},
		"over": {24 * 3600 * 1000, 54 * 3600 * 1000}} {
		b.Run(name, func(b *testing.B) {
			var bytes uint64
			for b.Loop() {
				before := heapBytes()
				f := newFailedIDs()
				f.now = periodOf(begin)
				random := rand.New(rand.NewPCG(1, 2))
				for i := range ledger.Milliseconds(ids) {
					switch short := random.Uint64(); of.ahead {
					case 0:
						f.add(short)
					default: // over a day
						f.addUntil(short, periodOf(begin+of.ahead*(ids+i)/ids))
					}
				}
				f.advance(&ledger.Header{Height: 1, Time: begin + of.after})
				bytes = heapBytes() - before
				runtime.KeepAlive(f)
			}
			b.ReportMetric(float64(bytes)/(ids/1000), "B/1,000-ids")
		})
	}
}

// heapBytes returns how many bytes of the heap are in use.
func heapBytes() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
