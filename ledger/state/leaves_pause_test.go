package state

import (
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// All that an organisation takes along is found while the rest of the state changes.
func TestLeavesWhileBlocksGoOn(t *testing.T) {
	t.Parallel()
	const moved = 3000
	s := &State{windows: map[windowKey]*window{}, records: map[ledger.RecordKey]*record{},
		moves: newMoves()}
	s.moves.add(&move{number: 1, organisation: "acme", to: 1}, 0)
	add := func(name ledger.OrganisationName, i int) {
		key := ledger.RecordKey(fmt.Sprintf("%s:%d", name, i))
		s.records[key] = &record{key: key}
		s.windows[windowKey{name, uint64(i)}] = &window{organisation: name, stream: uint64(i)}
	}
	for i := range moved {
		add("acme", i)
		add("other", i)
	}
	pauses, last := 0, time.Now()
	longest := time.Duration(0)
	entries, records := s.Leaves(1, func() {
		longest = max(longest, time.Since(last))
		for i := range 2000 {
			if pauses < 5 {
				add("other", moved+2000*pauses+i)
			} else {
				delete(s.records, ledger.RecordKey(fmt.Sprintf("other:%d", i)))
			}
		}
		pauses, last = pauses+1, time.Now()
	})
	if seen := map[ledger.RecordKey]bool{}; len(entries) != moved || len(records) != moved {
		t.Errorf("%d windows and %d records", len(entries), len(records))
	} else {
		for i := range records {
			seen[records[i].Key] = true
		}
		if len(seen) != moved {
			t.Errorf("%d records, some more than once", len(seen))
		}
	}
	if pauses < 4*moved/searchedPart {
		t.Errorf("%d pauses", pauses)
	}
	clear(s.windows)
	pauses = 5
	if s.Leaves(1, func() { pauses++ }); pauses < 5+s.Searched()/searchedPart {
		t.Errorf("%d pauses among %d records", pauses-5, len(s.records))
	}
	t.Logf("%d pauses, at most %v between two", pauses, longest)
}

// BenchmarkLeaves searches a million records.
func BenchmarkLeaves(b *testing.B) {
	s := &State{windows: map[windowKey]*window{}, records: map[ledger.RecordKey]*record{},
		moves: newMoves()}
	s.moves.add(&move{number: 1, organisation: "acme", to: 1}, 0)
	for i := range 1_000_000 {
		key := ledger.RecordKey(fmt.Sprintf("other:%d", i))
		s.records[key] = &record{key: key}
	}
	longest := time.Duration(0)
	for b.Loop() {
		last := time.Now()
		s.Leaves(1, func() {
			longest = max(longest, time.Since(last))
			last = time.Now()
		})
	}
	b.ReportMetric(float64(longest.Microseconds()), "µs-longest")
}
