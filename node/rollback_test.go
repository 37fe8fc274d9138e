package node_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledgerd/ledger/store"
	"github.com/ledgerd/ledgerd/node"
	"github.com/ledgerd/ledgerd/node/report"
	life "github.com/ledgerd/ledgerd/shard"
)

// A node comes back with blocks that the majority never had. Whether the group holds as many other
// blocks, more or fewer, the node gives its own up and keeps the common ones. The group's blocks
// stay.
func TestNodeWithOtherBlocksGivesThemUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ own, group int }{{1, 1}, {3, 1}, {1, 3}, {2, 0}} {
		for _, odd := range []int{0, 2} {
			t.Run(fmt.Sprintf("%d against %d at node %d", c.own, c.group, odd), func(t *testing.T) {
				t.Parallel()
				s := newShard(t, 3, nil)
				s.start(s.all()...)
				s.ordering(s.all()...)
				s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
				transfer := func() ledger.Transaction {
					return s.client.Transfer(s.client.Account("a"), s.client.Account("b"), 1)
				}
				for range 3 {
					s.submit(0, report.LevelDurable, transfer())
				}
				common := s.same()
				for i := range s.nodes {
					s.stop(i)
				}
				s.alone(odd, c.own, false)
				majority := []int{(odd + 1) % 3, (odd + 2) % 3}
				s.start(majority...)
				s.ordering(majority...)
				var durable []ledger.Hash
				for range c.group {
					durable = append(durable, s.submit(majority[0], report.LevelDurable,
						transfer())[0].ID)
				}
				s.start(odd)
				s.ordering(s.all()...)
				s.submit(odd, report.LevelDurable, transfer())
				s.same()
				for i, n := range s.nodes {
					for _, id := range durable {
						if _, err := n.Store().Transaction(id); err != nil {
							t.Fatalf("node %d: a durable transaction: %v", i, err)
						}
					}
				}
				aside, err := filepath.Glob(s.homes[odd].Data() + ".rolled-back-*")
				if err != nil || len(aside) != 1 {
					t.Fatalf("set aside: %v, %v", aside, err)
				}
				if want := fmt.Sprintf("%s.rolled-back-%d-1", s.homes[odd].Data(),
					int(common)+c.own); aside[0] != want {
					t.Fatalf("set aside as %s, want %s", aside[0], want)
				}
			})
		}
	}
}

// A node comes back with blocks that the majority does not know, and knows that they were durable.
// It sets nothing aside, and stops with a reason. The others continue.
func TestNodeKeepsDurableBlocksOfAnotherChain(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for i := range s.nodes {
		s.stop(i)
	}
	const odd = 2
	s.alone(odd, 3, true)
	s.start(0, 1)
	s.ordering(0, 1)
	s.submit(0, report.LevelDurable, s.client.Transfer(s.client.Account("a"), s.client.Account("b"),
		1))
	s.start(odd)
	select {
	case <-s.nodes[odd].Done():
	case <-time.After(30 * time.Second):
		t.Fatalf("node %d goes on: %+v", odd, s.nodes[odd].State())
	}
	err := s.nodes[odd].Err()
	if !errors.Is(err, life.ErrFork) || !strings.Contains(err.Error(), "Nothing is set aside") {
		t.Errorf("node %d ended with %v", odd, err)
	}
	aside, globbing := filepath.Glob(s.homes[odd].Data() + ".*")
	if globbing != nil || len(aside) != 0 {
		t.Errorf("beside the data folder: %v, %v", aside, globbing)
	}
	s.submit(1, report.LevelDurable, s.client.Transfer(s.client.Account("a"), s.client.Account("b"),
		1))
}

// A disk that sets blocks aside stays the same disk, and keeps its knowledge of durable blocks.
func TestDiskStaysWhenBlocksAreSetAside(t *testing.T) {
	t.Parallel()
	s := newShard(t, 3, nil)
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for i := range s.nodes {
		s.stop(i)
	}
	const odd = 1
	before, err := s.homes[odd].Disk()
	if err != nil {
		t.Fatal(err)
	}
	s.alone(odd, 2, false)
	s.start(0, 2)
	s.ordering(0, 2)
	s.start(odd)
	s.ordering(s.all()...)
	s.submit(odd, report.LevelDurable,
		s.client.Transfer(s.client.Account("a"), s.client.Account("b"), 1))
	for range 2 {
		s.stop(odd)
		after, err := s.homes[odd].Disk()
		if err != nil || after.ID != before.ID || !after.Original {
			t.Fatalf("the disk was %+v and is %+v, %v", before, after, err)
		}
		s.start(odd)
		s.ordering(s.all()...)
	}
	if aside, err := filepath.Glob(s.homes[odd].Data() + ".rolled-back-*"); err != nil ||
		len(aside) != 1 {
		t.Fatalf("set aside: %v, %v", aside, err)
	}
}

// A node must set blocks aside and has no room for it, before or after it has copied the rest. It
// says so, changes nothing, and continues once there is room.
func TestBlocksAreSetAsideOnceThereIsRoom(t *testing.T) {
	t.Parallel()
	const odd, blocks = 1, 2
	for name, folder := range map[string]string{
		"for the copy": "data.new", "for opening the copy": "node-1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShard(t, 3, nil)
			var full atomic.Bool
			s.store.FreeSpace = func(dir string) (uint64, error) {
				if full.Load() && filepath.Base(dir) == folder {
					return 0, nil
				}
				return 1 << 40, nil
			}
			s.start(s.all()...)
			s.ordering(s.all()...)
			s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
			common := s.same()
			for i := range s.nodes {
				s.stop(i)
			}
			s.alone(odd, blocks, false)
			s.start(0, 2)
			s.ordering(0, 2)
			s.submit(0, report.LevelDurable, s.client.Transfer(s.client.Account("a"),
				s.client.Account("b"), 1))
			full.Store(true)
			s.start(odd)
			s.eventually("the node says that its disk is full", func() bool {
				state := s.nodes[odd].State()
				return state.Mode == report.ModeHalted &&
					strings.Contains(state.Reason, "the disk is full (mounted at /")
			})
			if head := s.nodes[odd].Store().Head().Height; head != common+blocks {
				t.Errorf("it is at block %d, and was at %d", head, common+blocks)
			}
			if aside, err := filepath.Glob(s.homes[odd].Data() + ".rolled-back-*"); err != nil ||
				len(aside) != 0 {
				t.Errorf("set aside: %v, %v", aside, err)
			}
			full.Store(false)
			s.ordering(s.all()...)
			s.submit(odd, report.LevelDurable, s.client.Transfer(s.client.Account("a"),
				s.client.Account("b"), 1))
			s.same()
		})
	}
}

// A node sets blocks aside. The record of rounds that its disk has stays, if it follows a block
// that stays.
func TestRecordStaysWhenBlocksAreSetAside(t *testing.T) {
	t.Parallel()
	const odd = 1
	for name, before := range map[string]bool{"before them": true, "behind them": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStopped(t, 3, logging(odd))
			if before {
				s.record(odd)
			}
			s.alone(odd, 2, false)
			if !before {
				s.record(odd)
			}
			s.start(0, 2)
			s.ordering(0, 2)
			s.submit(0, report.LevelDurable, s.transfer())
			s.start(odd)
			s.ordering(s.all()...)
			if stays := s.nodes[odd].Store().LastRecord() != nil; stays != before {
				t.Errorf("the record is there: %v", stays)
			}
			aside, err := filepath.Glob(s.homes[odd].Data() + ".rolled-back-*")
			if err != nil || len(aside) != 1 {
				t.Errorf("set aside: %v, %v", aside, err)
			}
		})
	}
}

// While a node sets blocks aside, it learns that they are durable. It sets nothing aside, and
// judges anew: here the others go on without the blocks, so it stops.
func TestBlocksThatBecomeDurableAreNotSetAside(t *testing.T) {
	t.Parallel()
	const odd, blocks = 1, 2
	s := newShard(t, 3, nil)
	var copying, known atomic.Bool
	started := make(chan *node.Node, 1)
	s.store.FreeSpace = func(dir string) (uint64, error) {
		if copying.Load() && filepath.Base(dir) == "data.new" && !known.Swap(true) {
			n := <-started
			n.KnowDurable(n.Store().Head().Height)
		}
		return 1 << 40, nil
	}
	s.start(s.all()...)
	s.ordering(s.all()...)
	s.submit(0, report.LevelDurable, s.client.Register("a", "b"))
	for i := range s.nodes {
		s.stop(i)
	}
	s.alone(odd, blocks, false)
	s.start(0, 2)
	s.ordering(0, 2)
	s.submit(0, report.LevelDurable, s.transfer())
	copying.Store(true)
	s.start(odd)
	started <- s.nodes[odd]
	select {
	case <-s.nodes[odd].Done():
	case <-time.After(30 * time.Second):
		t.Fatalf("node %d goes on: %+v", odd, s.nodes[odd].State())
	}
	err := s.nodes[odd].Err()
	if !known.Load() || !errors.Is(err, life.ErrFork) ||
		!strings.Contains(err.Error(), "Nothing is set aside") {
		t.Errorf("node %d ended with %v", odd, err)
	}
	// What the others certified may have ended the node before it noticed.
	s.eventually("nothing is beside the data folder", func() bool {
		beside, err := filepath.Glob(s.homes[odd].Data() + ".*")
		return err == nil && len(beside) == 0
	})
	s.submit(2, report.LevelDurable, s.transfer())
}

// alone appends blocks to a stopped node's chain that no other node has, known durable or not.
func (s *shard) alone(i, blocks int, durable bool) {
	s.t.Helper()
	opened, err := store.Open(s.homes[i].Data(), s.homes[i].Genesis, s.store)
	if err != nil {
		s.t.Fatal(err)
	}
	client := ledgertest.NewClient(s.homes[i].Genesis,
		ledger.OrganisationName(fmt.Sprintf("lonely-%d", i)))
	for range blocks {
		header, _, err := opened.Header(opened.Head().Height)
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := opened.Apply(header.Epoch, header.Round+1,
			[][]byte{ledgertest.Batch(1, client.Bundle(client.Next()))}); err != nil {
			s.t.Fatal(err)
		}
	}
	if durable {
		opened.RecordDurable(opened.Head().Height)
	}
	if err := opened.Close(); err != nil {
		s.t.Fatal(err)
	}
}
