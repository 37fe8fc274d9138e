//go:build verbs

package verbs

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFabric(t *testing.T) { fabrictest.Run(t, newFabric) }

// TestPromptFabric has the poller hand over the frames. All cases with one receiver a lane pass the
// same code, so some of them suffice on an emulated machine.
func TestPromptFabric(t *testing.T) {
	fabrictest.RunPrompt(t, newFabric, "fifo", "window of bytes", "window of frames",
		"frame sizes", "severed while it receives", "sender restarts", "close acknowledges")
}

func BenchmarkFabric(b *testing.B) { fabrictest.Benchmark(b, newFabric) }

func BenchmarkRegions(b *testing.B) { fabrictest.BenchmarkRegions(b, newFabric) }

func TestRegions(t *testing.T) { fabrictest.RunRegions(t, newFabric) }

// needDevice skips the test if there is no usable device.
func needDevice(t testing.TB) {
	t.Helper()
	if _, _, _, err := choose(Options{}.withDefaults().Device,
		Options{}.withDefaults().GID); err != nil {
		t.Skipf("needs an RDMA device (Soft-RoCE will do; scripts/verbs-test boots a guest that "+
			"has one): %v", err)
	}
}

// fabric is a set of hosts on one device, as the suite needs it. A cut affects the control planes.
// It also destroys the queue pairs between two hosts without notice, since a link that drops
// everything would make them give up.
type fabric struct {
	*fabrictest.Loopback[*host]
	config fabrictest.Config
	// permissions is the method of withdrawing permissions. If it is empty, the trial decides.
	permissions Permissions
	severed     atomic.Int64
	met         []bool // members that were started before; cases start them one after the other
}

var _ interface {
	fabrictest.ProgramStopper
	fabrictest.Slow
} = (*fabric)(nil)

func newFabric(t testing.TB, config fabrictest.Config) fabrictest.Fabric {
	needDevice(t)
	if config.MendTimeout < 2*time.Second && slow() {
		config.MendTimeout *= 2 // by then hosts must have met
	}
	f := &fabric{config: config, met: make([]bool, config.Members)}
	f.Loopback = fabrictest.NewLoopback(t, config,
		p2p.PeerID, func(member fabrictest.Member) (*host, error) {
			options := Options{RingBytes: 256 << 10, Permissions: f.permissions,
				Control: p2p.Options{
					PrivateKey:   member.Key,
					Listen:       member.Listen,
					Members:      member.Members,
					WindowBytes:  config.WindowBytes,
					WindowFrames: config.WindowFrames,
					FrameMax:     config.FrameMax,
					MendTimeout:  config.MendTimeout,
				}}
			prove := (*engine).prove
			if f.permissions != "" {
				// The methods work; whether they hold does not matter here.
				prove = func(*engine, Permissions) error { return nil }
			}
			started, err := start(options, prove)
			if err != nil {
				return nil, err
			}
			return started.(*host), nil
		})
	return f
}

// slow reports whether the device is Soft-RoCE, a device in software. On an emulated machine it
// runs another ten times slower.
func slow() bool {
	device, _, _, err := choose(Options{}.withDefaults().Device, Options{}.withDefaults().GID)
	return err == nil && strings.HasPrefix(device, "rxe")
}

// Less implements fabrictest.Slow.
func (f *fabric) Less() int {
	if slow() {
		return 8
	}
	return 1
}

// Patience implements fabrictest.Slow.
func (f *fabric) Patience() int {
	if slow() {
		return 3
	}
	return 1
}

// Start implements fabrictest.Fabric.
func (f *fabric) Start(i int) (rdmanet.Host, error) {
	h, err := f.Loopback.Start(i)
	if err == nil && !f.met[i] && f.config.MendTimeout > 0 && f.config.MendTimeout < 4*time.Second {
		f.introduce(f.Host(i))
	}
	f.met[i] = true
	return h, err
}

// introduce makes a host meet the running ones. On an emulated machine this may take longer than
// the mend timeout.
func (f *fabric) introduce(h *host) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for j := range f.config.Members {
		for other := f.Host(j); other != nil && other != h && ctx.Err() == nil; {
			if _, _, err := h.control.ask(ctx, f.ID(j),
				message{kind: messageAsk, name: "none"}); err == nil {
				break
			}
		}
	}
}

// Sever implements fabrictest.Fabric.
func (f *fabric) Sever(i, j int) {
	if f.severed.Add(1)%4 != 1 {
		f.Host(i).lanes.Sever(f.ID(j))
		return
	}
	_ = f.Host(i).Sever(f.ID(j)) // there may be no connection at the moment
}

// Cut implements fabrictest.Fabric.
func (f *fabric) Cut(i, j int) {
	f.Loopback.Cut(i, j)
	f.Host(i).silence(f.ID(j))
	f.Host(j).silence(f.ID(i))
}

// silence destroys the queue pairs that serve a peer, without notice.
func (h *host) silence(peer rdmanet.PeerID) {
	h.mu.Lock()
	for s := range h.streams {
		if s.from.ID == peer {
			s.end.link.destroy()
		}
	}
	h.mu.Unlock()
	for _, r := range h.openRegions() {
		r.mu.Lock()
		for other, g := range r.grants {
			if other.ID != peer {
				continue
			}
			for _, s := range g.served {
				s.link.destroy()
			}
		}
		r.mu.Unlock()
	}
}

// Hang implements fabrictest.ProgramStopper. Goroutines that need the device's completions wait, as
// all of a stopped process would. The device keeps working by itself.
func (f *fabric) Hang(i int) {
	f.Host(i).engine.polling.Lock()
}

// Resume implements fabrictest.ProgramStopper.
func (f *fabric) Resume(i int) {
	f.Host(i).engine.polling.Unlock()
}

// severable returns a lane between two hosts, and a function that ends its receiver's end. The
// context ends before the sender's device would detect that.
func severable(t *testing.T) (ctx context.Context, lane rdmanet.Lane, sever func()) {
	t.Helper()
	const mend = 60 * time.Second // of which the device may take three quarters
	f := newFabric(t, fabrictest.Config{Members: 2, MendTimeout: mend})
	ctx, cancel := context.WithTimeout(context.Background(), mend/2)
	t.Cleanup(cancel)
	from, err := f.Start(0)
	if err != nil {
		t.Fatal(err)
	}
	to, err := f.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Receive("test", func(rdmanet.Peer, [][]byte) {}); err != nil {
		t.Fatal(err)
	}
	lane, err = from.Lane(f.ID(1), "test")
	if err != nil {
		t.Fatal(err)
	}
	return ctx, lane, func() { to.(*host).lanes.Sever(f.ID(0)) }
}

// TestReceiversEndIsOver checks that a lane's sender is told when the receiver's end of the queue
// pair is over. It does not wait until its device detects it.
func TestReceiversEndIsOver(t *testing.T) {
	ctx, lane, sever := severable(t)
	for round := range 3 {
		if err := lane.Send(ctx, []byte("frame")); err != nil {
			t.Fatal(err)
		}
		if err := lane.Flushed(ctx); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		sever()
	}
}

// A receiver's end may be over before its sender has read the reply to its request: the notice that
// says so comes first then. The sender has to heed it, or it waits for its device to give up.
func TestReceiversEndIsOverAtOnce(t *testing.T) {
	ctx, lane, sever := severable(t)
	// Sever cuts a connection the sooner after it was opened, the shorter the pause.
	severed := make(chan struct{})
	go func() {
		defer close(severed)
		for i := range 400 {
			sever()
			time.Sleep(time.Duration(i%20) * 500 * time.Microsecond)
		}
	}()
	for done := false; !done; {
		select {
		case <-severed:
			done = true
		default:
		}
		if err := lane.Send(ctx, []byte("frame")); err != nil {
			t.Error(err)
			break
		}
		if err := lane.Flushed(ctx); err != nil {
			t.Errorf("the lane did not recover: %v", err)
			break
		}
	}
	<-severed
}
