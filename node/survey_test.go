package node_test

import (
	"errors"
	"os"
	"testing"

	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/report"
)

// The homes show what is left of a shard while no node runs.
func TestSurvey(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	survey := func(i int) *node.Holdings {
		t.Helper()
		held, err := node.Survey(s.homes[i], s.store)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	blank := survey(2)
	if blank.Blocks || blank.Promises || !blank.Disk.Original || blank.Name != s.homes[2].Name() ||
		len(blank.Membership.Members) != 3 {
		t.Errorf("a home that was never started: %+v", blank)
	}
	if _, err := os.Stat(s.homes[2].Data()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the survey made a data folder: %v", err)
	}
	s.start(0, 1)
	s.ordering(0, 1)
	if _, err := node.Survey(s.homes[0], s.store); !errors.Is(err, store.ErrLocked) {
		t.Errorf("of a node that runs: %v", err)
	}
	status := s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	s.eventually("both know the block to be durable", func() bool {
		return s.nodes[0].State().Heights.Durable >= status[0].Height &&
			s.nodes[1].State().Heights.Durable >= status[0].Height
	})
	head := s.nodes[0].State().Heights.Ordered
	id := s.nodes[0].State().DiskID
	s.stop(0)
	s.stop(1)
	for range 2 { // a survey changes nothing
		held := survey(0)
		if !held.Blocks || !held.Promises || held.Generation == 0 ||
			held.Activated != held.Generation || held.Head.Height != head ||
			held.Durable != status[0].Height || held.Perhaps != "" || held.Disk.ID != id ||
			!held.Disk.Original || held.Disk.Renewed {
			t.Fatalf("%+v, disk %+v, and the head was %d", held, held.Disk, head)
		}
	}
	if err := os.RemoveAll(s.homes[1].Data()); err != nil {
		t.Fatal(err)
	}
	if held := survey(1); held.Blocks || !held.Promises || held.Disk.Original ||
		!held.Disk.Renewed || held.Disk.Learner == "" {
		t.Errorf("without its data: %+v, disk %+v", held, held.Disk)
	}
}
