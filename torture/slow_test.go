//go:build linux

package torture

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/dare"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

// TestSlowMember pauses one of five nodes for 80 % of each second. The others bench it, and order
// without it as long as the pauses last. Afterwards it returns by itself. The test prints the
// remaining throughput of the others, and checks only the members of the group.
func TestSlowMember(t *testing.T) {
	const slow, writers = 4, 6
	s := newRunningShard(t, 5)
	acme := s.newParty("acme", []string{"cash"}, 0)
	m := new(meter)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	for i := range slow {
		for w := range writers {
			writer := acme.at(s.clientOf(i))
			running.Go(func() { writer.paced(ctx, fmt.Sprintf("writer-%d-%d", i, w), m.add) })
		}
	}
	usual := func(from, to time.Time) float64 {
		return float64(len(m.between(from, to))) / to.Sub(from).Seconds()
	}
	begun := time.Now()
	<-time.After(3 * time.Second)
	before := usual(begun.Add(time.Second), time.Now())

	stop := s.pausing(slow)
	defer stop()
	s.eventually("the others order without the slow node", func() error { return s.without(slow) })
	paused := time.Now()
	<-time.After(12 * time.Second)
	during, late := usual(paused, time.Now()), usual(time.Now().Add(-6*time.Second), time.Now())
	stop()
	s.ordering(s.all()...)
	cancel()
	running.Wait()
	t.Logf("durable transactions a second: %.0f before, %.0f (%.2f of that) while one of five "+
		"is paused for 80 %% of each second, %.0f (%.2f) in the last half of that",
		before, during, during/before, late, late/before)
	s.same(s.all()...)
	s.stop(s.all()...)
}

// TestSlowMemberOfABook pauses one of three nodes of a shard for 80 % of each second, in a book of
// two shards whose rounds have a leader, and a message of each member. The others bench the slow
// one, transactions go on crossing to the other shard, and afterwards it returns.
func TestSlowMemberOfABook(t *testing.T) {
	t.Parallel()
	const slow, crossings = 2, 10
	s := newHomes(t, 2*bookNodes, nil, withEngine(dare.EngineName, "--shards", "2", "--nodes",
		strconv.Itoa(bookNodes))...)
	s.start(s.all()...)
	here, there := membersOf(0), membersOf(1)
	s.ordering(here...)
	s.ordering(there...)
	from := s.newParty(homeIn(0), []string{"cash"}, 0, 1)
	to := s.newParty(homeIn(1), []string{"cash"}, there...)
	crossing := from.transfer("cash", "cash", 1)
	crossing.Postings[1].Account = to.account("cash")
	stop := s.pausing(slow)
	defer stop()
	cross := func() { from.post(t, crossing, ledgerdv1.Level_LEVEL_DURABLE) }
	s.eventually("the others order without the slow node", func() error {
		cross() // nobody is slow as long as there is nothing to do
		return s.without(slow)
	})
	for range crossings {
		cross()
	}
	stop()
	s.ordering(here...)
	s.same(here...)
	s.same(there...)
	s.stop(s.all()...)
}

// homeIn returns the name of an organisation whose home is this one of two shards.
func homeIn(shard ledger.ShardID) string {
	name := "a"
	for ledger.Rendezvous(ledger.OrganisationName(name), 2) != shard {
		name += "a"
	}
	return name
}

// pausing pauses a node for 80 % of each second until the returned function is called, which may be
// called again.
func (s *shard) pausing(slow int) (stop func()) {
	const cycle = time.Second
	pausing, end := context.WithCancel(context.Background())
	var pauses sync.WaitGroup
	pauses.Go(func() {
		for pausing.Err() == nil {
			s.signal(syscall.SIGSTOP, slow)
			<-time.After(cycle * 8 / 10)
			s.signal(syscall.SIGCONT, slow)
			<-time.After(cycle * 2 / 10)
		}
	})
	return func() { end(); pauses.Wait() }
}

// without reports why node 0 does not order without one that has the number slow, the last of its
// shard.
func (s *shard) without(slow int) error {
	state, err := s.state(0)
	if err != nil {
		return err
	}
	if members := state.GetEngine().GetMembers(); len(members) != slow {
		return fmt.Errorf("the group is %v", members)
	}
	return nil
}
