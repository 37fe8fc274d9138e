package driver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
)

// narrowHost has one lane a peer, for all runs, with room only if a test made some.
type narrowHost struct {
	*quietHost
	narrow map[rdmanet.PeerID]*narrowLane
}

func (h *narrowHost) Lane(peer rdmanet.PeerID, _ string) (rdmanet.Lane, error) {
	return h.narrow[peer], nil
}

// narrowLane takes frames once it is wide, and breaks when a test breaks it.
type narrowLane struct {
	rdmanet.Lane
	wide   chan struct{}
	broken chan error

	mu    sync.Mutex
	taken []string
}

func newNarrowLane() *narrowLane {
	return &narrowLane{wide: make(chan struct{}), broken: make(chan error, 1)}
}

func (l *narrowLane) take(frames [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, frame := range frames {
		l.taken = append(l.taken, string(frame[8:]))
	}
}

func (l *narrowLane) Peer() rdmanet.PeerID { return "" }
func (l *narrowLane) Close() error         { return nil }
func (l *narrowLane) TrySend(frames ...[]byte) (bool, error) {
	if len(frames) > 2 {
		return false, rdmanet.ErrTooLarge
	}
	select {
	case <-l.wide:
		l.take(frames)
		return true, nil
	default:
		return false, nil
	}
}

func (l *narrowLane) Send(ctx context.Context, frames ...[]byte) error {
	if len(frames) > 2 {
		return rdmanet.ErrTooLarge
	}
	select {
	case <-l.wide:
		l.take(frames)
		return nil
	case err := <-l.broken:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *narrowLane) got() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.taken)
}

// farewellRig is a driver whose run with b, c and d has ended with unsent frames for d. The lane to
// d takes nothing.
func farewellRig(t *testing.T, frames int, change func(*Config)) (*rig,
	map[rdmanet.PeerID]*narrowLane) {
	t.Helper()
	lanes := map[rdmanet.PeerID]*narrowLane{"b": newNarrowLane(), "c": newNarrowLane(),
		"d": newNarrowLane()}
	close(lanes["b"].wide)
	close(lanes["c"].wide)
	ended := make(chan struct{}, 1)
	r := newRig(t, func(c *Config) {
		c.Ended = func(Group, []order.ServerID) { ended <- struct{}{} }
		if change != nil {
			change(c)
		}
	})
	r.config.Host = &narrowHost{quietHost: r.host, narrow: lanes}
	for i := range frames {
		r.engine.ready.Sends = append(r.engine.ready.Sends,
			order.Send{To: []order.ServerID{1, 3}, Frame: frameOf(1, fmt.Sprint("end ", i))})
	}
	r.engine.ready.Deliveries = []order.Delivery{{Epoch: 1, Round: 1}}
	r.engine.ended = true
	if err := r.Activate(Group{Run: 1, Members: []order.ServerID{0, 1, 2, 3}}); err != nil {
		t.Fatal(err)
	}
	get(t, ended)
	r.engine.mu.Lock()
	r.engine.ended = false
	r.engine.mu.Unlock()
	return r, lanes
}

func ends(frames int) (all []string) {
	for i := range frames {
		all = append(all, fmt.Sprint("end ", i))
	}
	return all
}

// bidding returns how many farewells the driver has under way.
func (r *rig) bidding() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(r.farewells), (*farewell).over))
}

// A member that leaves with a run gets that run's unsent frames, beside the next run or if there is
// none.
func TestWhoLeavesGetsTheEndOfItsRun(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(*rig) error{
		"beside the next run": func(r *rig) error {
			return r.Activate(Group{Run: 2, Members: []order.ServerID{0, 1, 2}})
		},
		"beside the one after the next": func(r *rig) error {
			if err := r.Activate(Group{Run: 2, Members: []order.ServerID{0, 1, 2}}); err !=
				nil {
				return err
			}
			return r.Activate(Group{Run: 3, Members: []order.ServerID{0, 1}})
		},
		"without a next run": func(r *rig) error { r.Freeze(); r.Freeze(); return nil },
		"although the next run does not begin": func(r *rig) error {
			if r.Activate(Group{Run: 2, Members: []order.ServerID{1, 2}}) == nil {
				return fmt.Errorf("a run without this server begins")
			}
			r.Freeze()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, lanes := farewellRig(t, 5, nil)
			if err := next(r); err != nil {
				t.Fatal(err)
			}
			if got := lanes["b"].got(); !slices.Equal(got, ends(5)) {
				t.Errorf("who has room got %q", got)
			}
			if got := lanes["d"].got(); len(got) > 0 || r.bidding() != 1 {
				t.Fatalf("a lane without room took %q, %d farewells", got, r.bidding())
			}
			close(lanes["d"].wide)
			waitFor(t, "the end of the run", func() bool { return len(lanes["d"].got()) == 5 })
			if got := lanes["d"].got(); !slices.Equal(got, ends(5)) {
				t.Errorf("who left got %q", got)
			}
			waitFor(t, "the farewell's end", func() bool { return r.bidding() == 0 })
		})
	}
}

// A member that enters again gets the unsent frames of its old run first.
func TestWhoEntersAgainGetsTheEndOfItsRunFirst(t *testing.T) {
	t.Parallel()
	r, lanes := farewellRig(t, 5, nil)
	if err := r.Activate(Group{Run: 2, Members: []order.ServerID{0, 1, 2}}); err != nil {
		t.Fatal(err)
	}
	r.Freeze()
	r.engine.ready.Sends = []order.Send{{To: []order.ServerID{2}, Frame: frameOf(3, "beginning")}}
	if err := r.Activate(Group{Run: 3, Members: []order.ServerID{0, 1, 3}}); err != nil {
		t.Fatal(err)
	}
	if r.bidding() != 0 {
		t.Error("a member of the run is bid farewell")
	}
	close(lanes["d"].wide)
	waitFor(t, "all of it", func() bool { return len(lanes["d"].got()) >= 6 })
	if got := lanes["d"].got(); !slices.Equal(got, append(ends(5), "beginning")) {
		t.Errorf("got %q", got)
	}
}

// A farewell ends in time, when its lane breaks, when it is too much, and with the driver.
func TestFarewellsAreBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Config)
		then   func(*rig, *narrowLane)
	}{
		"time":   {func(c *Config) { c.Farewell = 20 * time.Millisecond }, nil},
		"bytes":  {func(c *Config) { c.ParkedBytes = 1 }, nil},
		"broken": {nil, func(_ *rig, l *narrowLane) { l.broken <- rdmanet.ErrUnreachable }},
		"closed": {nil, func(r *rig, _ *narrowLane) { r.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, lanes := farewellRig(t, 5, test.change)
			if err := r.Activate(Group{Run: 2, Members: []order.ServerID{0, 1, 2}}); err !=
				nil {
				t.Fatal(err)
			}
			if test.then != nil {
				test.then(r, lanes["d"])
			}
			waitFor(t, "the farewell's end", func() bool { return r.bidding() == 0 })
			close(lanes["d"].wide)
			if err := r.Activate(Group{Run: 3,
				Members: []order.ServerID{0, 1, 2, 3}}); err != nil && name != "closed" {
				t.Fatal(err)
			}
			r.Freeze()
			if got := lanes["d"].got(); len(got) > 0 {
				t.Errorf("%q were sent after that", got)
			}
		})
	}
}
