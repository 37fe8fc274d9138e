//go:build linux

package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

const (
	aYear       = 365 * 24 * time.Hour
	thirtyYears = 30 * aYear
)

// moveClock sets a node's clock to the given offset from the machine's, whether the node runs or
// not.
func (s *shard) moveClock(i int, offset time.Duration) {
	s.t.Helper()
	path := filepath.Join(s.homes[i].Dir, "clock-offset")
	if err := os.WriteFile(path+".new", []byte(offset.String()), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.t.Fatal(err)
	}
}

// clockReport is a node's clock in the output of `ledgerd status --json`.
type clockReport struct {
	Name          string `json:"name"`
	ClockOffsetMS *int64 `json:"clock_offset_ms"`
	ClockWarning  string `json:"clock_warning"`
}

// clockStatus returns a node's report about its own clock.
func (s *shard) clockStatus(i int) (clockReport, error) {
	s.t.Helper()
	var report struct {
		Nodes []clockReport `json:"nodes"`
	}
	// The exit status is 1 while the node takes no transactions. The report is complete anyway.
	o := ledgerd(s.t, "status", "--json", "--node", testnet.URL(s.homes[i]))
	if err := json.Unmarshal([]byte(o.out), &report); err != nil {
		s.t.Fatalf("%v: exit status %d\n%s%s", err, o.status, o.out, o.errs)
	}
	for _, node := range report.Nodes {
		if node.Name == testnet.Name(i) {
			return node, nil
		}
	}
	return clockReport{}, errors.New("it does not report itself")
}

// warned waits until a node reports that its clock is off by about the given offset.
func (s *shard) warned(i int, offset time.Duration) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("node %d says that its clock is %v off", i, offset), func() error {
		status, err := s.clockStatus(i)
		if err != nil {
			return err
		}
		if status.ClockWarning == "" || status.ClockOffsetMS == nil {
			return fmt.Errorf("offset %v, warning %q", status.ClockOffsetMS, status.ClockWarning)
		}
		if said := time.Duration(*status.ClockOffsetMS) * time.Millisecond; (said - offset).Abs() >
			8*time.Second {
			return fmt.Errorf("it says %v", said)
		}
		return nil
	})
}

// confirmed waits until nodes warn of no clock.
func (s *shard) confirmed(which ...int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("the clocks of nodes %v are confirmed", which), func() error {
		for _, i := range which {
			state, err := s.state(i)
			if err != nil {
				return err
			}
			if state.GetClockWarning() != "" {
				return fmt.Errorf("node %d: %s", i, state.GetClockWarning())
			}
		}
		return nil
	})
}

// dated writes through a node, and returns the time of the block that contains the write. No block
// may be ahead of the machine's clock by more than members confirm.
func (s *shard) dated(acme *party, i int, what string) time.Time {
	s.t.Helper()
	status := acme.at(s.clientOf(i)).post(s.t, acme.put("time", what),
		ledgerdv1.Level_LEVEL_ORDERED)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	transaction, err := s.nodes[i].Transaction(ctx, ledger.Hash(status.GetId()))
	if err != nil {
		s.t.Fatal(err)
	}
	at := time.UnixMilli(int64(transaction.GetBlockTimeMs()))
	if ahead := time.Until(at); ahead > clockBound {
		s.t.Fatalf("%s: a block is dated %v ahead", what, ahead)
	}
	return at
}

const clockBound = time.Duration(ledger.ClockBound) * time.Millisecond

// builtWithMovedClock builds the program with another clock, once, beside the program under test.
var builtWithMovedClock = sync.OnceValues(func() (string, error) {
	return buildProgram(filepath.Dir(program), "ledgerd-movedclock", "-tags", "movedclock")
})

// programWithMovedClock returns a program whose time of day is that of shard.moveClock.
func programWithMovedClock(t *testing.T) string {
	t.Helper()
	if os.Getenv(programVariable) != "" {
		t.Skip("it takes a program that is built with another clock")
	}
	moved, err := builtWithMovedClock()
	if err != nil {
		t.Fatal(err)
	}
	return moved
}

// TestClocks moves one clock of three and of five nodes, under writes at all nodes.
func TestClocks(t *testing.T) {
	t.Parallel()
	moved := programWithMovedClock(t)
	for _, nodes := range []int{3, 5} {
		t.Run(fmt.Sprint(nodes), func(t *testing.T) {
			t.Parallel()
			wrongClock(t, moved, nodes)
		})
	}
}

// wrongClock tests a shard whose last node has a wrong clock.
func wrongClock(t *testing.T, moved string, nodes int) {
	s := newShard(t, nodes)
	s.program = moved
	s.start(s.all()...)
	s.ordering(s.all()...)
	wrong := nodes - 1
	right, down := s.others(wrong), s.others(0, wrong)[:(nodes-1)/2]
	acme := s.newParty("acme", []string{"cash"}, 0)
	s.confirmed(s.all()...)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	kept := make([][]promise, nodes)
	for i := range nodes {
		writer := acme.at(s.clientOf(i))
		running.Go(func() { kept[i] = writer.writer(ctx, fmt.Sprintf("writer-%d", i)) })
	}
	near := func(what string, i int) {
		t.Helper()
		before := time.Now()
		if at := s.dated(acme, i, what); at.Before(before.Add(-2 * clockBound)) {
			t.Errorf("%s: the block of node %d is dated %v before it was written", what,
				i, before.Sub(at))
		}
	}
	near("all clocks are right", wrong)

	s.moveClock(wrong, thirtyYears)
	s.warned(wrong, thirtyYears)
	s.confirmed(right...)
	near("one clock is wrong", 0)
	s.kill(down...)
	for k := range 20 {
		s.dated(acme, wrong, fmt.Sprintf("others are down, %d", k))
	}
	s.start(down...)
	s.ordering(s.all()...)
	s.confirmed(right...)
	near("the others are back", 0)

	for k, offset := range []time.Duration{-thirtyYears, 9 * time.Second, 60 * aYear, -time.Minute,
		thirtyYears} {
		s.moveClock(wrong, offset)
		for range 5 {
			s.dated(acme, wrong, fmt.Sprintf("jump %d to %v", k, offset))
		}
		near(fmt.Sprintf("after jump %d to %v", k, offset), 0)
	}

	s.kill(wrong)
	s.moveClock(wrong, -20*aYear)
	s.start(wrong)
	s.ordering(s.all()...)
	s.warned(wrong, -20*aYear)
	near("the clock was moved while its node was down", 0)
	s.moveClock(wrong, 0)
	s.confirmed(s.all()...)
	near("all clocks are right again", wrong)

	cancel()
	running.Wait()
	s.same(s.all()...)
	blocks, writes := s.neverBack(0), 0
	for i := range kept {
		if writes += len(kept[i]); len(kept[i]) == 0 {
			t.Errorf("node %d took no writes", i)
		}
		s.kept(acme, kept[i])
	}
	s.exports(s.all()...)
	s.stop(s.all()...)
	s.verified(s.all()...)
	t.Logf("%d nodes: %d blocks, %d writes", nodes, blocks, writes)
}

// neverBack checks that no block of a node is dated before the one before it. It returns the number
// of blocks.
func (s *shard) neverBack(i int) (blocks int) {
	s.t.Helper()
	last := uint64(0)
	for header, err := range s.nodes[i].Blocks(context.Background(), 1, true) {
		if err != nil {
			s.t.Fatal(err)
		}
		if blocks++; header.GetTimeMs() < last {
			s.t.Fatalf("block %d is dated %d ms before the one before it", header.GetHeight(),
				last-header.GetTimeMs())
		}
		last = header.GetTimeMs()
	}
	return blocks
}
