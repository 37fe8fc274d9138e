//go:build linux

package torture

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/client"
	"github.com/ledgerd/ledgerd/internal/testnet"
	"github.com/ledgerd/ledgerd/node/api/ledgerdv1"
)

var dipFlag = flag.Bool("dip", false, "measure the throughput while nodes crash, come back, "+
	"join and leave (TestDip)")

const (
	dipBin     = 100 * time.Millisecond
	dipBefore  = 2 * time.Second // the time from which the usual rate is taken
	dipAfter   = 2 * time.Second // how long the measurement goes on after the group is restored
	dipShown   = 8 * time.Second // the time for which the bins are printed
	dipPace    = 50 * time.Millisecond
	dipWriters = 4 // at each of the nodes used
)

// meter records the times of acknowledgements.
type meter struct {
	mutex sync.Mutex
	acks  []time.Time
}

func (m *meter) add() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.acks = append(m.acks, time.Now())
}

// between returns the acknowledgements in a span of time, in order.
func (m *meter) between(from, to time.Time) (acks []time.Time) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, at := range m.acks {
		if !at.Before(from) && at.Before(to) {
			acks = append(acks, at)
		}
	}
	slices.SortFunc(acks, time.Time.Compare)
	return acks
}

// bins counts acknowledgements in steps of dipBin.
func (m *meter) bins(from, to time.Time) []int {
	bins := make([]int, to.Sub(from)/dipBin)
	for _, at := range m.between(from, from.Add(time.Duration(len(bins))*dipBin)) {
		bins[at.Sub(from)/dipBin]++
	}
	return bins
}

// dip describes the effect of an event on the throughput.
type dip struct {
	event  string
	usual  int           // acknowledgements in a bin before the event, the median
	pause  time.Duration // the longest time without any acknowledgement
	below  time.Duration // the time in bins with less than half of usual
	lowest int           // of a bin
	until  time.Duration // from the event until the group was restored
	bins   []int         // from half a second before the event
}

// measure measures the throughput around an event, until the group is restored and for a while
// after.
func (m *meter) measure(event string, do func()) dip {
	<-time.After(dipBefore)
	at := time.Now()
	do()
	d := dip{event: event, until: time.Since(at)}
	<-time.After(dipAfter)
	now := time.Now()
	before := m.bins(at.Add(-dipBefore), at)
	slices.Sort(before)
	d.usual = before[len(before)/2]
	after := m.bins(at, now)
	d.lowest = slices.Min(after)
	for _, count := range after {
		if 2*count < d.usual {
			d.below += dipBin
		}
	}
	last := at
	for _, ack := range append(m.between(at, now), now) {
		d.pause = max(d.pause, ack.Sub(last))
		last = ack
	}
	d.bins = m.bins(at.Add(-500*time.Millisecond), at.Add(min(dipShown, now.Sub(at))))
	return d
}

// paced writes records one at a time at its pace until ctx ends. It catches up on writes that a
// pause delayed.
func (p *party) paced(ctx context.Context, name string, acknowledged func()) {
	next := time.Now()
	for k := 0; ctx.Err() == nil; k++ {
		status, err := p.nodes.Post(ctx, []client.Key{p.Key}, p.put(name, fmt.Sprint(k)),
			ledgerdv1.Level_LEVEL_DURABLE)
		if err == nil && client.Reached(status, ledgerdv1.Level_LEVEL_DURABLE) &&
			status.GetReasonCode() == "" {
			acknowledged()
		}
		next = next.Add(dipPace)
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(next)):
		}
	}
}

// TestDip measures, with real processes, what figure 5.11 of the dissertation shows. One of five
// nodes crashes and comes back; a sixth joins, and leaves. The test checks only that the ledger
// goes on.
//
//	go test ./torture -run TestDip -dip -rounds 3 -v
func TestDip(t *testing.T) {
	if !*dipFlag {
		t.Skip("a measurement; ask for it with -dip")
	}
	const victim = 4
	s := newRunningShard(t, 5)
	m, stop := s.pacedWriters(victim)
	defer stop()
	var dips []dip
	measure := func(event string, do func()) { dips = append(dips, m.measure(event, do)) }
	operator, via := filepath.Join(s.dir, testnet.OperatorKeyFile), testnet.URL(s.homes[0])
	present := s.all()
	for range max(1, *roundsFlag) {
		measure("nothing", func() { <-time.After(dipAfter) })
		measure("crash (kill -9)", func() {
			s.kill(victim)
			s.ordering(without(present, victim)...)
		})
		measure("it comes back (start)", func() { s.start(victim); s.ordering(present...) })
		var joiner int
		measure("a sixth is let in (cluster join)", func() { joiner = s.join(0) })
		measure("it enters (start)", func() {
			s.start(joiner)
			s.ordering(append(slices.Clone(present), joiner)...)
		})
		measure("it leaves (cluster leave)", func() {
			succeed(t, "cluster", "leave", "--home", s.homes[joiner].Dir, "--via", via,
				"--operator", operator)
			s.ordering(present...)
		})
		<-s.processes[joiner].ended
		s.processes[joiner] = nil
		measure("a silent machine (kill -STOP)", func() {
			s.signal(syscall.SIGSTOP, victim)
			s.ordering(without(present, victim)...)
		})
		measure("it goes on (kill -CONT)", func() {
			s.signal(syscall.SIGCONT, victim)
			s.ordering(present...)
		})
	}
	t.Logf("durable transactions in %v, of 5 nodes over p2p, %d writers at each of 4 with one "+
		"every %v each\n%s", dipBin, dipWriters, dipPace, dipTable(dips))
}

// pacedWriters runs writers at the first nodes, until stop.
func (s *shard) pacedWriters(nodes int) (m *meter, stop func()) {
	acme := s.newParty("acme", []string{"cash"}, 0)
	m = new(meter)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range nodes {
		for w := range dipWriters {
			writer := acme.at(s.clientOf(i))
			running.Go(func() { writer.paced(ctx, fmt.Sprintf("writer-%d-%d", i, w), m.add) })
		}
	}
	return m, func() { cancel(); running.Wait() }
}

// TestDipOfSilence measures how long no write is acknowledged when the disk of one of five nodes
// fills to the last byte, when its process is silent, and when its machine is silent: it sends
// nothing, and answers nothing. Each home is on a volume of its own. The test checks only that the
// ledger goes on.
//
//	go test ./torture -run TestDipOfSilence -dip -rounds 5 -v
func TestDipOfSilence(t *testing.T) {
	if !*dipFlag {
		t.Skip("a measurement; ask for it with -dip")
	}
	const victim = 4
	newFarMachine(t)
	s := newShardAt(t, []string{nearHost, nearHost, nearHost, nearHost, farHost})
	s.start(s.all()...)
	s.ordering(s.all()...)
	m, stop := s.pacedWriters(victim)
	defer stop()
	var dips []dip
	big := filepath.Join(s.homes[victim].Dir, "big")
	others := s.others(victim)
	for range max(1, *roundsFlag) {
		for _, event := range []struct {
			name       string
			harm, undo func()
		}{
			{"a full disk", func() { allocate(t, big) }, func() { s.remove(big) }},
			{
				"a silent process (kill -STOP)",
				func() {
					s.signal(syscall.SIGSTOP, victim)
				}, func() { s.signal(syscall.SIGCONT, victim) },
			},
			{
				"an absent machine (cable pulled)",
				func() { s.cable(false) }, func() { s.cable(true) },
			},
		} {
			dips = append(dips, m.measure(event.name, func() {
				event.harm()
				s.ordering(others...)
			}))
			event.undo()
			s.ordering(s.all()...)
		}
	}
	t.Logf("durable transactions in %v, of 5 nodes over p2p, %d writers at each of 4 with one "+
		"every %v each\n%s",
		dipBin, dipWriters, dipPace, dipTable(dips))
}

// allocate takes all the free space of a disk at once.
func allocate(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var disk syscall.Statfs_t
	if err := syscall.Statfs(path, &disk); err != nil {
		t.Fatal(err)
	}
	err = syscall.Fallocate(int(file.Fd()), 0, 0, int64(disk.Bavail)*disk.Bsize)
	if err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

func without(all []int, one int) []int {
	return slices.DeleteFunc(slices.Clone(all), func(i int) bool { return i == one })
}

// dipTable returns a line for each event with the median of all rounds and the worst of them, and
// the counts below it.
func dipTable(dips []dip) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%-34s %7s %10s %18s %18s %8s %20s\n", "median (worst)", "rounds",
		"usual/bin", "no ack", "below half", "lowest", "done in")
	var events []string
	for _, d := range dips {
		if !slices.Contains(events, d.event) {
			events = append(events, d.event)
		}
	}
	for _, event := range events {
		var of []dip
		for _, d := range dips {
			if d.event == event {
				of = append(of, d)
			}
		}
		times := func(get func(dip) time.Duration) string {
			var all []time.Duration
			for _, d := range of {
				all = append(all, get(d))
			}
			slices.Sort(all)
			return fmt.Sprintf("%d (%d) ms", all[len(all)/2].Milliseconds(),
				all[len(all)-1].Milliseconds())
		}
		number := func(get func(dip) int) int {
			var all []int
			for _, d := range of {
				all = append(all, get(d))
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		fmt.Fprintf(&text, "%-34s %7d %10d %18s %18s %8d %20s\n", event, len(of),
			number(func(d dip) int {
				return d.usual
			}), times(func(d dip) time.Duration { return d.pause }),
			times(func(d dip) time.Duration {
				return d.below
			}), number(func(d dip) int { return d.lowest }),
			times(func(d dip) time.Duration { return d.until }))
	}
	text.WriteString("\nfrom 500 ms before each on\n")
	for _, d := range dips {
		fmt.Fprintf(&text, "%-34s %v\n", d.event, d.bins)
	}
	return text.String()
}
