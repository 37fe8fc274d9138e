package calls

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/node/wire"
	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/memory"
)

// hostPairs are the fabrics to measure.
var hostPairs = []struct {
	name string
	pair func(testing.TB) (a, b rdmanet.Host)
}{
	{"memory", func(t testing.TB) (a, b rdmanet.Host) {
		network := memory.NewNetwork()
		return memoryHost(t, network, asker), memoryHost(t, network, "member-1")
	}},
	{"p2p", func(t testing.TB) (a, b rdmanet.Host) {
		hosts := overP2P(t, 2)
		return hosts[0], hosts[1]
	}},
}

// BenchmarkRoundTrip measures calls with bodies of 200 bytes, one after the other.
func BenchmarkRoundTrip(b *testing.B) {
	for _, fabric := range hostPairs {
		b.Run(fabric.name, func(b *testing.B) {
			from, to := fabric.pair(b)
			known := func(c *Config) {
				c.Find = func(rdmanet.PeerID) (ledger.ShardID, bool) { return 1, true }
				c.Candidates = candidates(to.ID())
			}
			asking := start(b, from, named("asker"), known)
			start(b, to, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
			}), known)
			body := strings.Repeat("x", 200)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := post(context.Background(), asking, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkControlMessage is the baseline for a call: a control message of 200 bytes and one back.
func BenchmarkControlMessage(b *testing.B) {
	for _, fabric := range hostPairs {
		b.Run(fabric.name, func(b *testing.B) {
			from, to := fabric.pair(b)
			back := make(chan struct{}, 1)
			ends := make([]*wire.Datagrams, 2)
			for i, host := range []rdmanet.Host{from, to} {
				var err error
				if ends[i], err = wire.NewDatagrams(host, nil); err != nil {
					b.Fatal(err)
				}
			}
			const kind = wire.Kind(200)
			_ = ends[0].Register(kind, func(rdmanet.Peer, []byte) { back <- struct{}{} })
			_ = ends[1].Register(kind, func(peer rdmanet.Peer, payload []byte) {
				_ = ends[1].Send(peer.ID, kind, payload)
			})
			payload := make([]byte, 200)
			b.ReportAllocs()
			for b.Loop() {
				if err := ends[0].Send(to.ID(), kind, payload); err != nil {
					b.Fatal(err)
				}
				<-back
			}
		})
	}
}
