package store

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// naiveWaiting counts what Waiting counts, from all transactions that wait.
func naiveWaiting(t *testing.T, s *Store, time ledger.Milliseconds) (map[ledger.ShardID]Wait,
	uint64) {
	t.Helper()
	by, old := map[ledger.ShardID]Wait{}, uint64(0)
	for _, each := range s.Pending() {
		header, _, err := s.Header(each.Height)
		if err != nil {
			t.Fatal(err)
		}
		if header.Time <= time {
			old++
		}
		for _, shard := range each.Waits {
			waiting, seen := by[shard]
			if !seen {
				waiting = Wait{Shard: shard, Since: header.Time}
			}
			waiting.Count++
			if header.Time <= time {
				waiting.Old++
			}
			by[shard] = waiting
		}
	}
	return by, old
}

// Waiting and Untaken count transactions and entries by the times of their blocks. A store that
// began with a snapshot counts the same transactions, and says so if it lacks an entry's block.
func TestWaitingByTheTimeOfBlocks(t *testing.T) {
	t.Parallel()
	genesis, random := shardGenesis(), rand.New(rand.NewPCG(5, 5))
	dir := t.TempDir()
	s := openBook(t, filepath.Join(dir, "one"), genesis, small())
	start := s.Head().Time
	check := func(s *Store) {
		t.Helper()
		for time := start - 1; time <= s.Head().Time+1; time++ {
			want, wantOld := naiveWaiting(t, s, time)
			by, old, err := s.Waiting(time)
			if err != nil || old != wantOld || len(by) != len(want) {
				t.Fatalf("at %d: %+v, %d old, not %+v, %d old: %v", time, by, old, want, wantOld,
					err)
			}
			for _, each := range by {
				if each != want[each.Shard] {
					t.Fatalf("at %d: %+v, not %+v", time, each, want[each.Shard])
				}
			}
		}
	}
	check(s)
	b := newShardBook(1)
	var times []ledger.Milliseconds // of the entries for shard 2
	for i := range ledger.Milliseconds(12) {
		batch := b.batch(s, 6, random)
		batch.Header.Time = start + i/2*3 // some blocks have the same time
		block, err := s.Apply(1, ledger.Round(s.Head().Height+1), [][]byte{batch.Encode()})
		if err != nil {
			t.Fatal(err)
		}
		for uint64(len(times)) < s.Streamed(2) {
			times = append(times, block.Header.Time)
		}
		check(s)
	}
	if _, old, err := s.Waiting(s.Head().Time); err != nil || old == 0 || len(times) < 10 {
		t.Fatalf("%d transactions wait, and the stream has %d entries: %v", old, len(times), err)
	}
	for taken := range times {
		for time := start - 1; time <= s.Head().Time; time++ {
			want := Wait{Shard: 2, Count: uint64(len(times) - taken), Since: times[taken]}
			for _, each := range times[taken:] {
				if each <= time {
					want.Old++
				}
			}
			if got, err := s.Untaken(2, uint64(taken), time); err != nil || got != want {
				t.Fatalf("at %d with %d taken: %+v, not %+v: %v", time, taken, got, want, err)
			}
		}
	}
	if got, err := s.Untaken(2, uint64(len(times)), s.Head().Time); err != nil ||
		got != (Wait{}) {
		t.Errorf("all is taken, and %+v waits: %v", got, err)
	}

	snapshot, _ := snapshotOf(t, s)
	if _, err := Restore(t.Context(), filepath.Join(dir, "two"), genesis, small(),
		bytes.NewReader(snapshot), believe); err != nil {
		t.Fatal(err)
	}
	began := openBook(t, filepath.Join(dir, "two"), genesis, small())
	check(began)
	if _, err := began.Untaken(2, 0, start); !errors.Is(err, ErrAbsent) {
		t.Errorf("an entry in a block from before the snapshot: %v", err)
	}
}
