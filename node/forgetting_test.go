package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/report"
)

// A durable block survives the loss of any minority's disks, whichever parts of a home were lost,
// and however the member that lost them had entered the group. The members with a new disk do not
// continue without the members that remember. Once these are back, the new disk is admitted.
func TestDurableSurvivesLostDisks(t *testing.T) {
	t.Parallel()
	whole := func(s *shard, i int) []string {
		return []string{s.homes[i].Data(), s.homes[i].Generation(), s.homes[i].Rounds()}
	}
	for _, c := range []struct {
		name    string
		entrant bool // the member that loses its disk entered by an eon
		lost    func(s *shard, i int) []string
	}{
		{"data", false, func(s *shard, i int) []string { return []string{s.homes[i].Data()} }},
		{"promises", false, func(s *shard, i int) []string {
			return []string{s.homes[i].Generation()}
		}},
		{"everything", false, whole},
		{"everything of an entrant", true, whole},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newShard(t, 3, nil)
			if c.entrant {
				s.start(0, 1)
				s.ordering(0, 1)
				s.start(2)
			} else {
				s.start(0, 1, 2)
			}
			s.ordering(0, 1, 2)
			s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
			s.same()
			s.part(true, []int{0}, []int{1, 2})
			s.ordering(1, 2)
			kept := s.submit(1, report.LevelDurable, s.transfer())[0]
			s.outside(0)
			s.kill(1)
			s.kill(2)
			for _, path := range c.lost(s, 2) {
				if err := os.RemoveAll(path); err != nil {
					t.Fatal(err)
				}
			}
			s.part(false, []int{0}, []int{1, 2})
			s.start(2)
			s.waiting(5*time.Second, 0, 2)
			s.start(1)
			s.ordering(0, 1, 2)
			s.keeps(kept.ID)
			// The new disk counts now: the shard continues with it and without another member.
			s.kill(0)
			s.ordering(1, 2)
			s.submit(2, report.LevelDurable, s.transfer())
		})
	}
}

// An older copy of a home is a disk that forgot.
func TestDurableSurvivesAnOlderCopy(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	s.start(0, 1, 2)
	s.ordering(0, 1, 2)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	s.same()
	s.stop(0)
	older := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(s.homes[0].Dir)); err != nil {
		t.Fatal(err)
	}
	s.start(0)
	s.ordering(0, 1, 2)
	s.kill(2)
	s.ordering(0, 1)
	kept := s.submit(0, report.LevelDurable, s.transfer())[0]
	s.kill(0)
	s.kill(1)
	if err := os.RemoveAll(s.homes[0].Dir); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(s.homes[0].Dir, os.DirFS(older)); err != nil {
		t.Fatal(err)
	}
	s.start(0, 2)
	s.waiting(5*time.Second, 0, 2)
	s.start(1)
	s.ordering(0, 1, 2)
	s.keeps(kept.ID)
}

// waiting checks that nodes do not order for a while, and say what they wait for.
func (s *shard) waiting(while time.Duration, which ...int) {
	s.t.Helper()
	for end := time.Now().Add(while); time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		for _, i := range which {
			if state := s.nodes[i].State(); state.Mode == report.ModeOrdering {
				s.t.Fatalf("node %d orders though too few disks remember: %+v", i, state.Engine)
			} else if state.Reason == "" {
				s.t.Fatalf("node %d waits and does not say why", i)
			}
		}
	}
}

// keeps checks that every node holds a transaction, and that none set its chain aside.
func (s *shard) keeps(id ledger.Hash) {
	s.t.Helper()
	s.same()
	for _, i := range s.all() {
		if _, err := s.nodes[i].Store().Transaction(id); err != nil {
			s.t.Fatalf("node %d: a durable transaction: %v", i, err)
		}
		aside, err := filepath.Glob(s.homes[i].Data() + ".rolled-back-*")
		if err != nil || len(aside) > 0 {
			s.t.Fatalf("node %d set a chain aside that was durable: %v, %v", i, aside, err)
		}
	}
}

// A node whose promises are gone says so, and is admitted again without an operator's help.
func TestNodeWithoutItsPromisesIsAdmittedAgain(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	s.start(0, 1, 2)
	s.ordering(0, 1, 2)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	s.same()
	s.kill(2)
	if err := os.Remove(s.homes[2].Generation()); err != nil {
		t.Fatal(err)
	}
	s.submit(0, report.LevelDurable, s.transfer())
	s.start(2)
	s.ordering(0, 1, 2)
	s.submit(2, report.LevelDurable, s.transfer())
	s.same()
	membership := s.nodes[0].Store().Membership()
	member, _ := membership.Find(2)
	if text := fmt.Sprint(member.Disk); strings.Trim(text, "0") == "" {
		t.Fatal("the chain names no disk for the member that forgot")
	}
}
