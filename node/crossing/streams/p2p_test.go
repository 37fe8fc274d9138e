package streams

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/fabrictest"
	"github.com/ledgerd/ledgerd/rdmanet/p2p"
)

// The same over connections: entries flow, connections break while nothing flows, and hosts
// restart.
func TestOverConnections(t *testing.T) {
	t.Parallel()
	const parents, children = 2, 2
	f := fabrictest.NewLoopback(t, fabrictest.Config{Members: parents + children},
		p2p.PeerID, func(member fabrictest.Member) (*p2p.Host, error) {
			return p2p.New(p2p.Options{PrivateKey: member.Key, Listen: member.Listen,
				Members: member.Members, MendTimeout: 5 * time.Second})
		})
	w := newWorld(t, parents, children)
	index := map[rdmanet.PeerID]int{}
	for i := range parents + children {
		index[f.ID(i)] = i
		w.present[i/parents][i%parents].Peer = f.ID(i)
	}
	w.listen = func(id rdmanet.PeerID) (rdmanet.RegionHost, error) {
		host, err := f.Start(index[id])
		if err != nil {
			return nil, err
		}
		return host.(*p2p.Host), nil
	}
	w.kill = func(id rdmanet.PeerID) { f.Kill(index[id]) }
	w.startAll()
	w.extend(300, 1000)
	w.mustArrive()
	w.attached(children)
	for i := range parents {
		for j := range children {
			_ = f.Host(i).Sever(f.ID(parents + j)) // there may be no connection at the moment
		}
	}
	w.extend(300, 1000)
	w.mustArrive()
	for _, i := range []int{0, parents} {
		w.extend(50, 100)
		w.stop(f.ID(i))
		w.extend(50, 100)
		w.start(f.ID(i), 1)
		w.mustArrive()
	}
	w.attached(children)
}
