package fabrictest_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPlantedFaults proves that the suite can fail: each fault is planted between it and the memory provider, which is sound,
// and the case named must find it.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name  string
		found string // the case that must find it
		plant func(rdmanet.Host, rdmanet.Lane, rdmanet.PeerID) rdmanet.Lane
	}{
		{"drops a frame", "fifo", func(_ rdmanet.Host, l rdmanet.Lane, _ rdmanet.PeerID) rdmanet.Lane {
			return &faultyLane{Lane: l, send: func(ctx context.Context, f *faultyLane, frames [][]byte) error {
				if f.calls.Add(1) == 700 {
					return nil
				}
				return l.Send(ctx, frames...)
			}}
		}},
		{"repeats a frame", "fifo", func(_ rdmanet.Host, l rdmanet.Lane, _ rdmanet.PeerID) rdmanet.Lane {
			return &faultyLane{Lane: l, send: func(ctx context.Context, f *faultyLane, frames [][]byte) error {
				if f.calls.Add(1) == 700 {
					frames = append(frames, frames...)
				}
				return l.Send(ctx, frames...)
			}}
		}},
		{"repeats the last frame", "fifo", func(_ rdmanet.Host, l rdmanet.Lane, _ rdmanet.PeerID) rdmanet.Lane {
			return &faultyLane{Lane: l, send: func(ctx context.Context, f *faultyLane, frames [][]byte) error {
				if f.calls.Add(1) == 20_000 {
					frames = append(frames, frames...)
				}
				return l.Send(ctx, frames...)
			}}
		}},
		{"swaps two frames", "fifo", func(_ rdmanet.Host, l rdmanet.Lane, _ rdmanet.PeerID) rdmanet.Lane {
			return &faultyLane{Lane: l, send: func(ctx context.Context, f *faultyLane, frames [][]byte) error {
				switch f.calls.Add(1) {
				case 700:
					f.kept = frames[0]
					return nil
				case 701:
					frames = [][]byte{frames[0], f.kept}
				}
				return l.Send(ctx, frames...)
			}}
		}},
		{"hangs on a dead peer", "killed peer", func(_ rdmanet.Host, l rdmanet.Lane, _ rdmanet.PeerID) rdmanet.Lane {
			return &faultyLane{Lane: l, send: func(ctx context.Context, _ *faultyLane, frames [][]byte) error {
				err := l.Send(ctx, frames...)
				if errors.Is(err, rdmanet.ErrUnreachable) {
					<-ctx.Done()
					return ctx.Err()
				}
				return err
			}}
		}},
		{"has no window", "window of frames", func(_ rdmanet.Host, l rdmanet.Lane, _ rdmanet.PeerID) rdmanet.Lane {
			return &faultyLane{Lane: l, try: func(frames [][]byte) (bool, error) { return true, nil }}
		}},
		{"opens a broken lane again in secret", "receiver restarts", func(h rdmanet.Host, l rdmanet.Lane, peer rdmanet.PeerID) rdmanet.Lane {
			return &faultyLane{Lane: l, send: func(ctx context.Context, f *faultyLane, frames [][]byte) error {
				f.mu.Lock()
				defer f.mu.Unlock()
				err := f.Lane.Send(ctx, frames...)
				if errors.Is(err, rdmanet.ErrReset) {
					if f.Lane, err = h.Lane(peer, "test"); err == nil {
						err = f.Lane.Send(ctx, frames...)
					}
				}
				return err
			}}
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range fabrictest.Cases() {
				if c.Name != fault.found {
					continue
				}
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				err := c.Check(ctx, newFaultyFabric(t, c.Config, fault.plant))
				if err == nil {
					t.Fatalf("case %q does not find the fault", c.Name)
				}
				t.Logf("case %q says: %v", c.Name, err)
				return
			}
			t.Fatalf("there is no case %q", fault.found)
		})
	}
}

// faultyFabric is a memory network whose hosts hand out faulty lanes.
type faultyFabric struct {
	t       testing.TB
	network *memory.Network
	plant   func(rdmanet.Host, rdmanet.Lane, rdmanet.PeerID) rdmanet.Lane
}

func newFaultyFabric(t testing.TB, c fabrictest.Config, plant func(rdmanet.Host, rdmanet.Lane, rdmanet.PeerID) rdmanet.Lane) fabrictest.Fabric {
	return &faultyFabric{t, memory.NewNetwork(memory.Options{
		WindowBytes: c.WindowBytes, WindowFrames: c.WindowFrames, FrameMax: c.FrameMax, MendTimeout: c.MendTimeout,
	}), plant}
}

func (f *faultyFabric) ID(i int) rdmanet.PeerID { return rdmanet.PeerID("host-" + strconv.Itoa(i)) }

func (f *faultyFabric) Start(i int) (rdmanet.Host, error) {
	h, err := f.network.Host(f.ID(i))
	if err != nil {
		return nil, err
	}
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = h.Close(ctx) // faulty lanes leave frames that nobody takes
	})
	return &faultyHost{Host: h, plant: f.plant, lanes: make(map[rdmanet.Lane]rdmanet.Lane)}, nil
}

func (f *faultyFabric) Kill(i int)                      { f.network.Kill(f.ID(i)) }
func (f *faultyFabric) Sever(i, j int)                  { f.Cut(i, j); f.Mend(i, j) }
func (f *faultyFabric) Cut(i, j int)                    { f.network.Cut(f.ID(i), f.ID(j)) }
func (f *faultyFabric) Mend(i, j int)                   { f.network.Mend(f.ID(i), f.ID(j)) }
func (f *faultyFabric) Stranger() (rdmanet.Host, error) { return nil, nil }

type faultyHost struct {
	rdmanet.Host
	plant func(rdmanet.Host, rdmanet.Lane, rdmanet.PeerID) rdmanet.Lane

	mu    sync.Mutex
	lanes map[rdmanet.Lane]rdmanet.Lane // sound to faulty
}

func (h *faultyHost) Lane(peer rdmanet.PeerID, name string) (rdmanet.Lane, error) {
	l, err := h.Host.Lane(peer, name)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lanes[l] == nil {
		h.lanes[l] = h.plant(h.Host, l, peer)
	}
	return h.lanes[l], nil
}

// faultyLane is a sound lane but for send and try, where they are given.
type faultyLane struct {
	rdmanet.Lane
	send func(context.Context, *faultyLane, [][]byte) error
	try  func([][]byte) (bool, error)

	calls atomic.Int64
	mu    sync.Mutex
	kept  []byte
}

func (l *faultyLane) Send(ctx context.Context, frames ...[]byte) error {
	if l.send == nil {
		return l.Lane.Send(ctx, frames...)
	}
	return l.send(ctx, l, frames)
}

func (l *faultyLane) TrySend(frames ...[]byte) (bool, error) {
	if l.try == nil {
		return l.Lane.TrySend(frames...)
	}
	return l.try(frames)
}
