//go:build linux

package torture

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestSlowMember pauses one of five nodes for 80 % of each second. The others bench it, and order
// without it as long as the pauses last. Afterwards it returns by itself. The test prints the
// remaining throughput of the others, and checks only the members of the group.
func TestSlowMember(t *testing.T) {
	const slow, writers, cycle = 4, 6, time.Second
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
	stop := func() { end(); pauses.Wait() }
	defer stop()
	s.eventually("the others order without the slow node", func() error {
		state, err := s.state(0)
		if err != nil {
			return err
		}
		if members := state.GetEngine().GetMembers(); len(members) != slow {
			return fmt.Errorf("the group is %v", members)
		}
		return nil
	})
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
