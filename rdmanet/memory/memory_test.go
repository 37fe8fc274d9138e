package memory_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFabric(t *testing.T) {
	t.Parallel()
	fabrictest.Run(t, newFabric)
}

func TestRegions(t *testing.T) {
	t.Parallel()
	fabrictest.RunRegions(t, newFabric)
}

// fabric adapts a memory network to the suite.
type fabric struct {
	t       testing.TB
	network *memory.Network
	members map[rdmanet.PeerID]string
}

func newFabric(t testing.TB, config fabrictest.Config) fabrictest.Fabric {
	f := &fabric{t, memory.NewNetwork(memory.Options{
		WindowBytes:  config.WindowBytes,
		WindowFrames: config.WindowFrames,
		FrameMax:     config.FrameMax,
		MendTimeout:  config.MendTimeout,
	}), make(map[rdmanet.PeerID]string)}
	for i := range config.Members {
		f.members[f.ID(i)] = ""
	}
	return f
}

func (f *fabric) ID(i int) rdmanet.PeerID { return rdmanet.PeerID("host-" + strconv.Itoa(i)) }

func (f *fabric) Start(i int) (rdmanet.Host, error) {
	h, err := f.start(f.ID(i))
	if err != nil {
		return nil, err
	}
	return h, h.SetMembers(f.members)
}

func (f *fabric) start(id rdmanet.PeerID) (*memory.Host, error) {
	h, err := f.network.Host(id)
	if err != nil {
		return nil, err
	}
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = h.Close(ctx) // some cases leave frames that no peer takes
	})
	return h, nil
}

func (f *fabric) Kill(i int) { f.network.Kill(f.ID(i)) }

func (f *fabric) Sever(i, j int) {
	f.Cut(i, j)
	f.Mend(i, j)
}

func (f *fabric) Cut(i, j int) { f.network.Cut(f.ID(i), f.ID(j)) }

func (f *fabric) Mend(i, j int) { f.network.Mend(f.ID(i), f.ID(j)) }

func (f *fabric) Stranger() (rdmanet.Host, error) { return f.start("stranger") }

func BenchmarkRegions(b *testing.B) { fabrictest.BenchmarkRegions(b, newFabric) }

func BenchmarkFabric(b *testing.B) { fabrictest.Benchmark(b, newFabric) }

// TestMembers checks that a removed member can neither send nor receive. When it is added again,
// new lanes work, and the loss is reported.
func TestMembers(t *testing.T) {
	t.Parallel()
	network := memory.NewNetwork()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	received := make(chan string, 10)
	var hosts []*memory.Host
	for i := range 2 {
		host, err := network.Host(rdmanet.PeerID("host-" + strconv.Itoa(i)))
		if err != nil {
			t.Fatal(err)
		}
		if err := host.Receive("x", func(from rdmanet.Peer, frames [][]byte) {
			for _, frame := range frames {
				received <- string(from.ID) + " says " + string(frame)
			}
		}); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, host)
	}
	defer func() {
		for _, host := range hosts {
			if err := host.Close(ctx); err != nil {
				t.Error(err)
			}
		}
	}()
	send := func(text string) rdmanet.Lane {
		t.Helper()
		lane, err := hosts[0].Lane("host-1", "x")
		if err != nil {
			t.Fatal(err)
		}
		if err := lane.Send(ctx, []byte(text)); err != nil {
			t.Fatal(err)
		}
		return lane
	}
	expect := func(text string) {
		t.Helper()
		select {
		case got := <-received:
			if got != text {
				t.Errorf("%q, want %q", got, text)
			}
		case <-ctx.Done():
			t.Fatal("nothing came")
		}
	}
	set := func(host *memory.Host, members map[rdmanet.PeerID]string) {
		t.Helper()
		if err := host.SetMembers(members); err != nil {
			t.Fatal(err)
		}
	}
	lane := send("one")
	expect("host-0 says one")
	set(hosts[0], map[rdmanet.PeerID]string{"host-0": ""})
	if _, err := lane.TrySend([]byte("two")); !errors.Is(err, rdmanet.ErrNotMember) {
		t.Errorf("a lane to who is no member: %v", err)
	}
	if _, err := hosts[0].Lane("host-1", "x"); !errors.Is(err, rdmanet.ErrNotMember) {
		t.Errorf("a lane to who is no member: %v", err)
	}
	set(hosts[0], nil)
	set(hosts[1], map[rdmanet.PeerID]string{"host-1": ""})
	lane = send("three")
	if pending := lane.Pending(); pending != 1 {
		t.Errorf("%d pending", pending)
	}
	set(hosts[1], map[rdmanet.PeerID]string{"host-0": "", "host-1": ""})
	expect("host-0 says three")
}
