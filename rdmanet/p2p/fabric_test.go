package p2p_test

import (
	"crypto/ed25519"
	"net"
	"testing"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

func TestFabric(t *testing.T) { fabrictest.Run(t, newFabric) }

func TestTrustedFabric(t *testing.T) { fabrictest.Run(t, newTrustedFabric) }

func TestLocalFabric(t *testing.T) { fabrictest.Run(t, newLocalFabric) }

func BenchmarkFabric(b *testing.B) { fabrictest.Benchmark(b, newFabric) }

func BenchmarkTrustedFabric(b *testing.B) { fabrictest.Benchmark(b, newTrustedFabric) }

// newTrustedFabric is newFabric on a trusted network.
func newTrustedFabric(t testing.TB, config fabrictest.Config) fabrictest.Fabric {
	f := newFabric(t, config).(*fabric)
	f.trusted = true
	return f
}

// newLocalFabric is newTrustedFabric within one machine.
func newLocalFabric(t testing.TB, config fabrictest.Config) fabrictest.Fabric {
	f := newTrustedFabric(t, config).(*fabric)
	f.local = true
	return f
}

// identity returns the key and the identity of member i, always the same.
func identity(t testing.TB, i int) (ed25519.PrivateKey, rdmanet.PeerID) {
	t.Helper()
	key := fabrictest.Key(i)
	id, err := p2p.PeerID(key.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	return key, id
}

// fabric is a set of p2p hosts on loopback, as the suite needs it.
type fabric struct {
	*fabrictest.Loopback[*p2p.Host]
	// These apply to hosts that are started from now on.
	trusted, local, noPoller bool
}

func newFabric(t testing.TB, config fabrictest.Config) fabrictest.Fabric {
	f := &fabric{}
	f.Loopback = fabrictest.NewLoopback(t, config,
		p2p.PeerID, func(member fabrictest.Member) (*p2p.Host, error) {
			return p2p.New(p2p.Options{
				PrivateKey:   member.Key,
				Listen:       member.Listen,
				Members:      member.Members,
				WindowBytes:  config.WindowBytes,
				WindowFrames: config.WindowFrames,
				FrameMax:     config.FrameMax,
				MendTimeout:  config.MendTimeout,
				Trusted:      f.trusted,
				Local:        f.local,
				NoPoller:     f.noPoller,
				Poison:       true,
			})
		})
	return f
}

// Sever implements fabrictest.Fabric.
func (f *fabric) Sever(i, j int) {
	_ = f.Host(i).Sever(f.ID(j)) // there may be no connection at the moment
}

func splitAddress(t *testing.T, address string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

// occupied returns an address on which a listener listens until the test ends.
func occupied(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().String()
}
