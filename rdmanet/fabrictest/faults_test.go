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

// TestPlantedFaults proves that the suite can fail. Each fault is planted between the suite and the
// memory provider, which is sound, and the named case must find it.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name  string
		found string // the case that must find it
		plant func(rdmanet.Host, rdmanet.Lane, rdmanet.PeerID) rdmanet.Lane
		close func(context.Context, rdmanet.Host) error
	}{
		{name: "drops a frame", found: "fifo", plant: func(_ rdmanet.Host, l rdmanet.Lane,
			_ rdmanet.PeerID) rdmanet.Lane {
			return &faultyLane{Lane: l, send: func(ctx context.Context, f *faultyLane,
				frames [][]byte) error {
				if f.calls.Add(1) == 700 {
					return nil
				}
				return l.Send(ctx, frames...)
			}}
		}},
		{name: "repeats a frame", found: "fifo", plant: func(_ rdmanet.Host, l rdmanet.Lane,
			_ rdmanet.PeerID) rdmanet.Lane {
			return &faultyLane{Lane: l, send: func(ctx context.Context, f *faultyLane,
				frames [][]byte) error {
				if f.calls.Add(1) == 700 {
					frames = append(frames, frames...)
				}
				return l.Send(ctx, frames...)
			}}
		}},
		{name: "repeats the last frame", found: "fifo",
			plant: func(_ rdmanet.Host, l rdmanet.Lane, _ rdmanet.PeerID) rdmanet.Lane {
				return &faultyLane{Lane: l, send: func(ctx context.Context, f *faultyLane,
					frames [][]byte) error {
					if f.calls.Add(1) == 20_000 {
						frames = append(frames, frames...)
					}
					return l.Send(ctx, frames...)
				}}
			}},
		{name: "swaps two frames", found: "fifo", plant: func(_ rdmanet.Host, l rdmanet.Lane,
			_ rdmanet.PeerID) rdmanet.Lane {
			return &faultyLane{Lane: l, send: func(ctx context.Context, f *faultyLane,
				frames [][]byte) error {
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
		{name: "hangs on a dead peer", found: "killed peer",
			plant: func(_ rdmanet.Host, l rdmanet.Lane, _ rdmanet.PeerID) rdmanet.Lane {
				return &faultyLane{Lane: l, send: func(ctx context.Context, _ *faultyLane,
					frames [][]byte) error {
					err := l.Send(ctx, frames...)
					if errors.Is(err, rdmanet.ErrUnreachable) {
						<-ctx.Done()
						return ctx.Err()
					}
					return err
				}}
			}},
		{name: "has no window", found: "window of frames",
			plant: func(_ rdmanet.Host, l rdmanet.Lane, _ rdmanet.PeerID) rdmanet.Lane {
				return &faultyLane{Lane: l, try: func(frames [][]byte) (bool, error) {
					return true, nil
				}}
			}},
		{name: "opens a broken lane again in secret", found: "receiver restarts",
			plant: func(h rdmanet.Host, l rdmanet.Lane, peer rdmanet.PeerID) rdmanet.Lane {
				return &faultyLane{Lane: l, send: func(ctx context.Context, f *faultyLane,
					frames [][]byte) error {
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
		{name: "says goodbye before it has acknowledged what it got", found: "close acknowledges",
			close: func(_ context.Context, h rdmanet.Host) error {
				ended, cancel := context.WithCancel(context.Background())
				cancel()
				_ = h.Close(ended) // as if there were no time for it
				return nil
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
				err := c.Check(ctx, &faultyFabric{t, newNetwork(c.Config), fault.plant,
					fault.close})
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

// faultyFabric is a memory network whose hosts return faulty lanes.
type faultyFabric struct {
	t       testing.TB
	network *memory.Network
	plant   func(rdmanet.Host, rdmanet.Lane, rdmanet.PeerID) rdmanet.Lane
	close   func(context.Context, rdmanet.Host) error
}

func newFaultyFabric(t testing.TB, c fabrictest.Config,
	plant func(rdmanet.Host, rdmanet.Lane, rdmanet.PeerID) rdmanet.Lane) fabrictest.Fabric {
	return &faultyFabric{t, newNetwork(c), plant, nil}
}

func newNetwork(c fabrictest.Config) *memory.Network {
	return memory.NewNetwork(memory.Options{WindowBytes: c.WindowBytes,
		WindowFrames: c.WindowFrames, FrameMax: c.FrameMax, MendTimeout: c.MendTimeout})
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
		_ = h.Close(ctx) // faulty lanes leave frames that no peer takes
	})
	return &faultyHost{Host: h, plant: f.plant, close: f.close,
		lanes: make(map[rdmanet.Lane]rdmanet.Lane)}, nil
}

func (f *faultyFabric) Kill(i int)                      { f.network.Kill(f.ID(i)) }
func (f *faultyFabric) Sever(i, j int)                  { f.Cut(i, j); f.Mend(i, j) }
func (f *faultyFabric) Cut(i, j int)                    { f.network.Cut(f.ID(i), f.ID(j)) }
func (f *faultyFabric) Mend(i, j int)                   { f.network.Mend(f.ID(i), f.ID(j)) }
func (f *faultyFabric) Stranger() (rdmanet.Host, error) { return nil, nil }

type faultyHost struct {
	rdmanet.Host
	plant func(rdmanet.Host, rdmanet.Lane, rdmanet.PeerID) rdmanet.Lane
	close func(context.Context, rdmanet.Host) error

	mu    sync.Mutex
	lanes map[rdmanet.Lane]rdmanet.Lane // maps a sound lane to its faulty one
}

func (h *faultyHost) Close(ctx context.Context) error {
	if h.close == nil {
		return h.Host.Close(ctx)
	}
	return h.close(ctx, h.Host)
}

func (h *faultyHost) Lane(peer rdmanet.PeerID, name string) (rdmanet.Lane, error) {
	l, err := h.Host.Lane(peer, name)
	if err != nil || h.plant == nil {
		return l, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lanes[l] == nil {
		h.lanes[l] = h.plant(h.Host, l, peer)
	}
	return h.lanes[l], nil
}

// faultyLane is a sound lane with send and try replaced if they are set.
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
