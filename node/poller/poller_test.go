package poller

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/protected"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// patience bounds each wait of these tests. What they wait for takes far less.
const patience = 20 * time.Second

// fake is a machine that checks how it is called.
type fake struct {
	t       *testing.T
	inside  atomic.Bool
	last    time.Duration
	regions []rdmanet.Region
	wants   []protected.Want
	wait    bool // it has operations under way

	polls   atomic.Int64
	answers chan answer
}

type answer struct {
	number uint64
	peer   rdmanet.Peer
	err    error
}

// alone fails the test if two methods are called at the same time.
func (f *fake) alone() (leave func()) {
	if f.inside.Swap(true) {
		f.t.Error("two methods at the same time")
	}
	return func() { f.inside.Store(false) }
}

func (f *fake) Poll(now time.Duration) bool {
	defer f.alone()()
	if now < f.last {
		f.t.Errorf("the time runs back from %v to %v", f.last, now)
	}
	f.last = now
	f.polls.Add(1)
	return false
}

func (f *fake) Complete(time.Duration) bool { return false }

func (f *fake) Wanted() []protected.Want {
	defer f.alone()()
	wants := f.wants
	f.wants = nil
	return wants
}

func (f *fake) Attached(number uint64, attachment rdmanet.Attachment, err error) {
	defer f.alone()()
	a := answer{number: number, err: err}
	if attachment != nil {
		a.peer = attachment.Peer()
		if err := attachment.Close(); err != nil {
			f.t.Error(err)
		}
	}
	f.answers <- a
}

func (f *fake) Regions() []rdmanet.Region { return f.regions }

func (f *fake) Outstanding() int {
	defer f.alone()()
	if f.wait {
		return 1
	}
	return 0
}

func (f *fake) String() string { return "fake" }

func (f *fake) Close() error { return nil }

// hosts returns two hosts in memory. The second one has a region that the first may read.
func hosts(t *testing.T) (own, other *memory.Host) {
	t.Helper()
	network := memory.NewNetwork()
	for name, host := range map[rdmanet.PeerID]**memory.Host{"own": &own, "other": &other} {
		made, err := network.Host(name)
		if err != nil {
			t.Fatal(err)
		}
		*host = made
		t.Cleanup(func() {
			if err := made.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	region, err := other.Expose("shared", rdmanet.WordSize)
	if err != nil {
		t.Fatal(err)
	}
	peer := rdmanet.Peer{ID: own.ID(), Incarnation: own.Incarnation()}
	if err := region.Grant(peer, rdmanet.PermissionRead); err != nil {
		t.Fatal(err)
	}
	return own, other
}

func within[T any](t *testing.T, what string, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
	return got
}

// Inputs, polls and answers never meet, and each want is answered once.
func TestTurns(t *testing.T) {
	t.Parallel()
	own, other := hosts(t)
	machine := &fake{t: t, wait: true, answers: make(chan answer, 8), wants: []protected.Want{
		{Number: 1, Peer: other.ID(), Region: "shared"},
		{Number: 2, Peer: other.ID(), Region: "nowhere"}}}
	fed, drained := atomic.Int64{}, atomic.Int64{}
	p := New(Config{Host: own, Machine: machine,
		Feed: func() bool {
			defer machine.alone()()
			if fed.Load() != drained.Load() {
				t.Error("fed twice before a poll was drained")
			}
			return fed.Add(1) < 10
		},
		Drain: func() bool {
			defer machine.alone()()
			return drained.Add(1) < 10
		}})
	p.Start()
	const inputs = 4000
	did := make(chan int, inputs)
	go func() {
		for i := range inputs {
			p.Do(func() {
				defer machine.alone()()
				did <- i
			})
		}
	}()
	for i := range inputs {
		if got := within(t, "an input", did); got != i {
			t.Fatalf("input %d in the place of %d", got, i)
		}
	}
	for range 2 {
		switch a := within(t, "an answer", machine.answers); a.number {
		case 1:
			if a.err != nil || a.peer.ID != other.ID() {
				t.Errorf("%+v", a)
			}
		case 2:
			if !errors.Is(a.err, rdmanet.ErrNoRegion) {
				t.Errorf("%+v", a)
			}
		}
	}
	p.Stop()
	p.Stop()
	polls := machine.polls.Load()
	if p.Do(func() { t.Error("an input after Stop") }) {
		// There was room, so it waits for a turn that never comes.
		t.Log("the input was taken")
	}
	if drained.Load() != polls || fed.Load() != polls || machine.polls.Load() != polls {
		t.Errorf("%d polls, fed %d times and drained %d times", polls, fed.Load(), drained.Load())
	}
	select {
	case a := <-machine.answers:
		t.Errorf("a third answer: %+v", a)
	default:
	}
}

// A poller that has nothing to do parks. It takes turns again when it is rung, when a write with
// Ring lands, when an input comes, and when a span is over.
func TestParks(t *testing.T) {
	t.Parallel()
	own, other := hosts(t)
	region, err := own.Expose("own", rdmanet.WordSize)
	if err != nil {
		t.Fatal(err)
	}
	peer := rdmanet.Peer{ID: other.ID(), Incarnation: other.Incarnation()}
	if err := region.Grant(peer, rdmanet.PermissionReadWrite); err != nil {
		t.Fatal(err)
	}
	machine := &fake{t: t, answers: make(chan answer, 1), regions: []rdmanet.Region{region}}
	p := New(Config{Host: own, Machine: machine, Yields: 1})
	p.idle = time.Hour
	p.Start()
	defer p.Stop()
	moves := func(what string, ring func()) {
		t.Helper()
		from := machine.polls.Load()
		deadline := time.Now().Add(patience)
		for ring(); machine.polls.Load() < from+2; ring() {
			if time.Now().After(deadline) {
				t.Fatalf("no turn: %s", what)
			}
			<-time.After(10 * time.Microsecond)
		}
	}
	moves("by Ring", p.Ring)
	moves("by an input", func() { p.Do(func() {}) })
	p.Do(func() { p.idle = time.Millisecond })
	moves("by itself", func() {})
	p.Do(func() { p.idle = time.Hour })
	attachment, err := other.Attach(t.Context(), own.ID(), "own")
	if err != nil {
		t.Fatal(err)
	}
	queue, err := other.Queue(8)
	if err != nil {
		t.Fatal(err)
	}
	moves("by a write", func() {
		if queue.Outstanding() < 4 {
			if err := queue.Post(rdmanet.Operation{To: attachment, Kind: rdmanet.OperationWrite,
				Bytes: make([]byte, rdmanet.WordSize), Ring: true}); err != nil {
				t.Fatal(err)
			}
		}
		queue.Poll(make([]rdmanet.Completion, 8))
	})
}

// Stop waits for no peer: an attachment under way ends with it.
func TestStopEndsAttachments(t *testing.T) {
	t.Parallel()
	own, _ := hosts(t)
	machine := &fake{t: t, answers: make(chan answer, 1),
		wants: []protected.Want{{Number: 1, Peer: "nobody", Region: "shared"}}}
	p := New(Config{Host: own, Machine: machine})
	p.Start()
	asked := make(chan struct{})
	p.Do(func() { close(asked) })
	within(t, "a turn", asked)
	stopped := make(chan struct{})
	go func() {
		p.Stop()
		close(stopped)
	}()
	within(t, "the end", stopped)
}
