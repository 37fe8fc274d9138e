package node_test

import (
	"os"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/node/report"
)

// TestFigures measures how long durable acknowledgements pause when a member of five is killed,
// enters again, or is stopped on purpose, and how soon a shard continues after links were down. It
// runs only if LEDGERD_FIGURES is set, and not in parallel with other tests.
func TestFigures(t *testing.T) {
	if os.Getenv("LEDGERD_FIGURES") == "" {
		t.Skip("set LEDGERD_FIGURES=1 to measure")
	}
	s := newShard(t, 5, nil)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	// longest returns the longest pause between acknowledgements at node 0 while happens runs, and
	// for a moment afterwards.
	longest := func(happens func()) time.Duration {
		done := make(chan struct{})
		go func() {
			defer close(done)
			happens()
			<-time.After(200 * time.Millisecond)
		}()
		worst, last := time.Duration(0), time.Now()
		for {
			s.submit(0, report.LevelDurable, s.client.Transfer(s.client.Account("a"),
				s.client.Account("b"), 1))
			worst, last = max(worst, time.Since(last)), time.Now()
			select {
			case <-done:
				return worst
			default:
			}
		}
	}
	members := func(count int) func() {
		return func() {
			s.eventually("the group has its size", func() bool {
				state := s.nodes[0].State()
				return state.Mode == report.ModeOrdering && len(state.Engine.Members) == count
			})
		}
	}
	t.Logf("undisturbed: %v", longest(func() {}))
	for range 4 {
		t.Logf("killed: %v", longest(func() { s.kill(3); members(4)() }))
		t.Logf("enters: %v", longest(func() { s.start(3); members(5)() }))
		t.Logf("stopped: %v", longest(func() { s.stop(3); members(4)() }))
		t.Logf("enters: %v", longest(func() { s.start(3); members(5)() }))
	}
	// Longer and shorter than lanes last.
	for _, cut := range []time.Duration{13 * time.Second, 7 * time.Second} {
		s.part(true, []int{3}, s.all())
		t.Logf("one is cut off for %v: %v", cut, longest(func() { <-time.After(cut) }))
		begun := time.Now()
		s.part(false, []int{3}, s.all())
		t.Logf("it can be reached again: %v", longest(func() { s.ordering(s.all()...) }))
		t.Logf("it orders again after %v", time.Since(begun))
		s.part(true, s.all(), s.all())
		<-time.After(cut)
		begun = time.Now()
		s.part(false, s.all(), s.all())
		s.submit(0, report.LevelDurable, s.client.Transfer(s.client.Account("a"),
			s.client.Account("b"), 1))
		t.Logf("all links were cut for %v: it goes on after %v", cut, time.Since(begun))
		s.ordering(s.all()...)
		t.Logf("all order after %v", time.Since(begun))
	}
}
