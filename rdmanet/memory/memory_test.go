package memory_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFabric(t *testing.T) { fabrictest.Run(t, newFabric) }

// fabric is a memory network as the suite wants it.
type fabric struct {
	t       testing.TB
	network *memory.Network
}

func newFabric(t testing.TB, config fabrictest.Config) fabrictest.Fabric {
	return &fabric{t, memory.NewNetwork(memory.Options{
		WindowBytes:  config.WindowBytes,
		WindowFrames: config.WindowFrames,
		FrameMax:     config.FrameMax,
		MendTimeout:  config.MendTimeout,
	})}
}

func (f *fabric) ID(i int) rdmanet.PeerID { return rdmanet.PeerID("host-" + strconv.Itoa(i)) }

func (f *fabric) Start(i int) (rdmanet.Host, error) {
	h, err := f.network.Host(f.ID(i))
	if err != nil {
		return nil, err
	}
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = h.Close(ctx) // some cases leave frames that nobody takes
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

func (f *fabric) Stranger() (rdmanet.Host, error) { return nil, nil }

func BenchmarkFabric(b *testing.B) { fabrictest.Benchmark(b, newFabric) }
