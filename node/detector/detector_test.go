package detector

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/digraph"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/order"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watchers is a group of detectors over the memory fabric, in the virtual time of synctest.
type watchers struct {
	t         *testing.T
	network   *memory.Network
	peers     []rdmanet.PeerID
	hosts     []*memory.Host
	controls  []*wire.Datagrams
	detectors []*Detector
	suspected chan string // "0 suspects 3: why"
	attached  chan string
	quiet     atomic.Bool // of all
}

func newWatchers(t *testing.T, g *digraph.Digraph) *watchers {
	t.Helper()
	w := &watchers{t: t, network: memory.NewNetwork(), suspected: make(chan string, 100),
		attached: make(chan string, 10_000)}
	members := make([]order.ServerID, g.Order())
	for i := range members {
		members[i] = order.ServerID(i)
		w.peers = append(w.peers, rdmanet.PeerID(fmt.Sprintf("server-%d", i)))
	}
	for i, peer := range w.peers {
		host, err := w.network.Host(peer)
		if err != nil {
			t.Fatal(err)
		}
		c, err := wire.NewDatagrams(host, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		d, err := New(Config{
			Host: host, Control: c, Self: order.ServerID(i), Peers: w.peers,
			Suspect: func(generation uint64, server order.ServerID, cause error) {
				w.suspected <- fmt.Sprintf("in %d, %d suspects %d: %v", generation, i, server,
					cause)
			},
			Trust: func(generation uint64, server order.ServerID) {
				w.suspected <- fmt.Sprintf("in %d, %d trusts %d", generation, i, server)
			},
			Quiet:  w.quiet.Load,
			Attach: func() []byte { return []byte(fmt.Sprintf("height %d", i)) },
			Attached: func(server order.ServerID, payload []byte) {
				w.attached <- fmt.Sprintf("%d hears %s", i, payload)
			},
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		w.hosts, w.controls, w.detectors = append(w.hosts, host), append(w.controls, c),
			append(w.detectors, d)
	}
	for _, d := range w.detectors {
		if err := d.Activate(Group{Generation: 3, Members: members, Reliable: g}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *watchers) close() {
	for i := range w.detectors {
		w.detectors[i].Close()
	}
	for _, host := range w.hosts {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if err := host.Close(ctx); err != nil {
			w.t.Error(err)
		}
		cancel()
	}
}

// after lets virtual time pass and returns the suspicions, sorted.
func (w *watchers) after(d time.Duration) []string {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
	var suspected []string
	for {
		select {
		case s := <-w.suspected:
			suspected = append(suspected, s)
		default:
			slices.Sort(suspected)
			return suspected
		}
	}
}

func ringOf(t *testing.T, n int) *digraph.Digraph {
	t.Helper()
	g, err := digraph.Ring(n)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestHealthyGroupSuspectsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchers(t, ringOf(t, 4))
		defer w.close()
		if suspected := w.after(10 * time.Minute); len(suspected) > 0 {
			t.Errorf("%v", suspected)
		}
		if beats := len(w.attached); beats < 4*1199 || beats > 4*1202 {
			t.Errorf("%d heartbeats in ten minutes", beats)
		}
		if got := <-w.attached; !slices.Contains([]string{"1 hears height 0", "2 hears height 1",
			"3 hears height 2", "0 hears height 3"}, got) {
			t.Error(got)
		}
	})
}

// Heartbeats are few while nothing is under way, and frequent as soon as that ends.
func TestQuietGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchers(t, ringOf(t, 4))
		defer w.close()
		beats := func(d time.Duration) (count int) {
			if suspected := w.after(d); len(suspected) > 0 {
				t.Errorf("%v", suspected)
			}
			for ; len(w.attached) > 0; <-w.attached {
				count++
			}
			return count
		}
		w.quiet.Store(true)
		beats(10 * time.Second)
		if count := beats(10 * time.Minute); count < 4*239 || count > 4*241 {
			t.Errorf("%d heartbeats in ten quiet minutes", count)
		}
		w.after(time.Millisecond) // one was sent just now
		w.quiet.Store(false)
		for _, d := range w.detectors {
			d.Hurry()
		}
		if count := beats(DefaultHeartbeat); count != 4 {
			t.Errorf("%d heartbeats right after something began", count)
		}
		if count := beats(time.Minute); count < 4*119 || count > 4*121 {
			t.Errorf("%d heartbeats in a minute", count)
		}
	})
}

func TestKilledServerIsSuspectedByItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchers(t, ringOf(t, 4))
		defer w.close()
		w.after(10 * time.Second)
		w.network.Kill(w.peers[2])
		w.detectors[2].Deactivate() // it is dead, and sees all others as dead
		want := []string{"in 3, 3 suspects 2: its connection is down for 1s"}
		if got := w.after(999 * time.Millisecond); len(got) > 0 {
			t.Errorf("too early: %v", got)
		}
		if got := w.after(2 * time.Millisecond); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestHungServerIsSuspectedAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchers(t, ringOf(t, 4))
		defer w.close()
		w.after(10*time.Second + time.Millisecond)
		w.detectors[2].Deactivate() // it is alive and silent
		if got := w.after(4400 * time.Millisecond); len(got) > 0 {
			t.Errorf("too early: %v", got)
		}
		want := []string{"in 3, 3 suspects 2: no heartbeat for 5s"}
		if got := w.after(700 * time.Millisecond); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestRestartIsNoticedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchers(t, ringOf(t, 4))
		defer w.close()
		w.after(10 * time.Second)
		w.network.Kill(w.peers[2])
		host, err := w.network.Host(w.peers[2])
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := host.Close(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		again, err := wire.NewDatagrams(host, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Send(w.peers[3], wire.KindStatus, nil); err != nil {
			t.Fatal(err)
		}
		got := w.after(time.Millisecond)
		if want := []string{fmt.Sprintf("in 3, 3 suspects 2: it restarted as incarnation %v",
			host.Incarnation())}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// On an edge that only the unreliable digraph has, the server that loses its lane watches no one.
// It tells the servers that watch the other end.
func TestAccusation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchers(t, ringOf(t, 5))
		defer w.close()
		w.after(10 * time.Second)
		w.detectors[0].Lost(2, 2, rdmanet.ErrReset) // of another generation
		w.detectors[0].Lost(3, 2, rdmanet.ErrReset)
		w.detectors[0].Lost(3, 2, rdmanet.ErrReset)
		want := []string{"in 3, 3 suspects 2: another server cannot reach it: server 0 says so"}
		if got := w.after(time.Second); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		w.detectors[0].Lost(3, 4, rdmanet.ErrReset) // its predecessor
		want = []string{fmt.Sprintf("in 3, 0 suspects 4: %v", rdmanet.ErrReset)}
		if got := w.after(time.Second); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A removed server is not watched, its messages are ignored, and it gets no heartbeats. If it is
// alive after all, it finds itself alone.
func TestRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchers(t, ringOf(t, 5))
		defer w.close()
		w.after(10 * time.Second)
		for i, d := range w.detectors {
			if i != 2 {
				d.Removed(2, []order.ServerID{0, 1, 3, 4}) // of another generation
				d.Removed(3, []order.ServerID{2})
			}
		}
		w.detectors[2].Lost(3, 4, rdmanet.ErrReset) // an accusation
		want := []string{"in 3, 2 suspects 1: no heartbeat for 5s"}
		if got := w.after(time.Minute); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestMalformedMessagesAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchers(t, ringOf(t, 3))
		defer w.close()
		for _, payload := range [][]byte{nil, {1}, make([]byte, 7), make([]byte, 13)} {
			for _, kind := range []wire.Kind{wire.KindHeartbeat, wire.KindAccusation} {
				if err := w.controls[0].Send(w.peers[1], kind, payload); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := w.after(time.Minute); len(got) > 0 {
			t.Errorf("%v", got)
		}
	})
}

func TestWrongGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchers(t, ringOf(t, 3))
		defer w.close()
		for _, group := range []Group{
			{Generation: 4},
			{Generation: 4, Members: []order.ServerID{1, 2}, Reliable: ringOf(t, 2)},
			{Generation: 4, Members: []order.ServerID{0, 1}, Reliable: ringOf(t, 3)},
			{Generation: 4, Members: []order.ServerID{0, 1}},
			{Generation: 4, Members: []order.ServerID{0, 9}, Reliable: ringOf(t, 2)},
		} {
			if err := w.detectors[0].Activate(group); err == nil {
				t.Errorf("%+v is taken", group)
			}
		}
	})
}

// A link that is cut and comes back is forgiven at both ends, unless the group's frames on it were
// lost.
func TestCutLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchers(t, ringOf(t, 4))
		defer w.close()
		w.after(10 * time.Second)
		w.network.Cut(w.peers[1], w.peers[2])
		want := []string{"in 3, 2 suspects 1: its connection is down for 1s"}
		if got := w.after(4 * time.Second); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		w.network.Mend(w.peers[1], w.peers[2])
		want = []string{"in 3, 2 trusts 1"}
		if got := w.after(time.Second); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := w.after(time.Minute); len(got) > 0 {
			t.Errorf("later: %q", got)
		}
		w.detectors[1].Lost(3, 2, rdmanet.ErrUnreachable)
		// Server 2 is told by the server that lost the lane, and so is server 3, which watches
		// server 2.
		want = []string{"in 3, 2 suspects 1: another server cannot reach it: it lost its lane " +
			"to this server",
			"in 3, 3 suspects 2: another server cannot reach it: server 1 says so"}
		if got := w.after(time.Minute); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// Heartbeats of a server in the next eon count before that eon begins here. Heartbeats of a server
// in an earlier eon count, too.
func TestEons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatchers(t, ringOf(t, 4))
		defer w.close()
		for _, d := range w.detectors {
			d.Deactivate()
		}
		eon := func(number uint64, members ...order.ServerID) Group {
			return Group{Generation: 7<<16 | number, Members: members,
				Reliable: ringOf(t, len(members))}
		}
		for _, d := range w.detectors[:3] {
			if err := d.Activate(eon(0, 0, 1, 2)); err != nil {
				t.Fatal(err)
			}
		}
		w.after(10 * time.Second)
		if err := w.detectors[3].Prepare(eon(1, 0, 1, 2, 3)); err != nil {
			t.Fatal(err)
		}
		for _, d := range w.detectors[:2] {
			if err := d.Activate(eon(1, 0, 1, 2, 3)); err != nil {
				t.Fatal(err)
			}
		}
		// Servers 2 and 3 are slow: one ends the eon before, the other fetches blocks.
		if got := w.after(time.Minute); len(got) > 0 {
			t.Errorf("%q", got)
		}
		w.detectors[3].Deactivate()
		want := []string{"in 458753, 0 suspects 3: no heartbeat for 5s"}
		if got := w.after(time.Minute); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := w.detectors[3].Activate(eon(1, 0, 1, 2, 3)); err != nil {
			t.Fatal(err)
		}
		want = []string{"in 458753, 0 trusts 3"}
		if got := w.after(time.Second); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := w.detectors[3].Activate(Group{Generation: 8 << 16,
			Members: []order.ServerID{0, 1, 2, 3}, Reliable: ringOf(t, 4)}); err != nil {
			t.Fatal(err) // of another generation
		}
		got := w.after(time.Minute)
		if !slices.ContainsFunc(got, func(s string) bool {
			return strings.HasPrefix(s, "in 458753, 0 suspects 3: no heartbeat")
		}) {
			t.Errorf("got %q", got)
		}
	})
}
