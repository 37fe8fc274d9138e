package node_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node/report"
)

// A node whose clock jumps 30 years ahead, and that alone proposes batches, does not take the chain
// along. It reports that its clock is wrong, and its blocks have no later time than the others
// know. Back at the right time it dates blocks again.
func TestClockThirtyYearsAhead(t *testing.T) {
	t.Parallel()
	const thirtyYears = 30 * 365 * 24 * time.Hour
	s := newShard(t, 3, nil)
	offsets := make([]atomic.Int64, len(s.nodes))
	for i := range s.nodes {
		s.clocks = append(s.clocks, func() time.Time {
			return time.Now().Add(time.Duration(offsets[i].Load()))
		})
	}
	s.start(s.all()...)
	s.ordering(s.all()...)
	confirmed := func(i int) func() bool {
		return func() bool { return s.nodes[i].State().ClockWarning == "" }
	}
	for i := range s.nodes {
		s.eventually("the clocks are heard", confirmed(i))
	}
	bundle := func() ledger.Transaction {
		return s.client.Transfer(s.client.Account("a"), s.client.Account("b"), 1)
	}
	last := func(i int) ledger.Milliseconds { return s.nodes[i].Store().Head().Time }
	near := func(what string, got ledger.Milliseconds) {
		t.Helper()
		if now := ledger.Milliseconds(time.Now().UnixMilli()); got > now ||
			got < now-ledger.ClockBound {
			t.Fatalf("%s: the block's time is %d from the right one", what, got-now)
		}
	}
	// The genesis is of 1970: the first block proves its time.
	s.submit(2, report.LevelDurable, s.client.Register("a", "b"))
	near("all clocks are right", last(2))

	offsets[2].Store(int64(thirtyYears))
	before := last(2)
	for range 5 {
		s.submit(2, report.LevelDurable, bundle())
		if got := last(2); got != before {
			t.Fatalf("the block of a node whose clock is wrong is %d after its parent", got-before)
		}
	}
	state := s.nodes[2].State()
	if offset := time.Duration(state.ClockOffset) * time.Millisecond; !state.ClockKnown ||
		(offset-thirtyYears).Abs() > 5*time.Second {
		t.Errorf("offset %v, known %v", offset, state.ClockKnown)
	}
	if !strings.Contains(state.ClockWarning, "30 years ahead of") ||
		state.Reason != state.ClockWarning || state.Mode != report.ModeOrdering || state.ReadsOnly {
		t.Errorf("mode %d, reason %q, warning %q", state.Mode, state.Reason, state.ClockWarning)
	}
	if state := s.nodes[0].State(); !state.ClockKnown ||
		max(state.ClockOffset, -state.ClockOffset) > 5000 || state.ClockWarning != "" {
		t.Errorf("a right clock: %+v", state)
	}
	s.submit(0, report.LevelDurable, bundle())
	near("another node proposes", last(0))

	offsets[2].Store(0)
	s.eventually("the clock is right again", confirmed(2))
	s.submit(2, report.LevelDurable, bundle())
	near("the clock is right again", last(2))
	s.same()
	for i := range s.nodes {
		s.stop(i)
		if _, err := store.Verify(t.Context(), s.homes[i].Data(), s.homes[i].Genesis, s.store,
			nil); err != nil {
			t.Errorf("node %d: %v", i, err)
		}
	}
}

// A chain that is dated 2056 continues: its blocks keep that time, and the nodes report it.
func TestChainOfTheFuture(t *testing.T) {
	t.Parallel()
	s := newShard(t, 1, nil)
	leap := new(atomic.Int64)
	leap.Store(int64(30 * 365 * 24 * time.Hour))
	s.clocks = append(s.clocks, func() time.Time {
		return time.Now().Add(time.Duration(leap.Load()))
	})
	s.start(0)
	s.ordering(0)
	s.submit(0, report.LevelDurable, s.client.Register("a")) // alone it is a majority
	future := s.nodes[0].Store().Head().Time
	leap.Store(0)
	if state := s.nodes[0].State(); !strings.Contains(state.ClockWarning,
		"the last block is dated 30 years ahead of") || state.Reason != "" {
		t.Errorf("reason %q, warning %q", state.Reason, state.ClockWarning)
	}
	s.submit(0, report.LevelDurable, s.client.Register("b"))
	if got := s.nodes[0].Store().Head().Time; got != future {
		t.Errorf("time went on by %d", got-future)
	}
}
