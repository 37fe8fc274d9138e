package node

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ledgerd/ledgerd/allconcur"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/verification"
	"github.com/ledgerd/ledgerd/order"
)

// arrived has the signatures of a message verified while the message's round completes.
func (n *Node) arrived(frame []byte) {
	id, payload, is := allconcur.FrameMessage(frame)
	if !is {
		return
	}
	batch, _, err := mempool.SplitPayload(payload)
	if err != nil {
		return // every node drops it
	}
	n.verification.Arrived(verification.Message{Run: id.Generation, Epoch: uint64(id.Epoch),
		Round: uint64(id.Round), Origin: uint64(id.Origin)}, batch)
}

// forgeries counts the bundles that members forged since this process began, and has such members
// suspected for the rest of the run.
type forgeries struct {
	node    *Node
	bundles *prometheus.CounterVec

	mu    sync.Mutex
	count map[order.ServerID]uint64
}

func newForgeries(n *Node) *forgeries {
	return &forgeries{node: n, count: make(map[order.ServerID]uint64),
		bundles: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "ledgerd",
			Name: "forged_bundles_total",
			Help: "Bundles with a wrong signature that a member proposed. No node executes them."},
			[]string{"member"})}
}

// found is the pipeline's hook.
func (f *forgeries) found(run uint64, member order.ServerID, bundles int, err error) {
	f.mu.Lock()
	f.count[member] += uint64(bundles)
	f.mu.Unlock()
	f.bundles.WithLabelValues(f.node.peers.name(member)).Add(float64(bundles))
	if member != f.node.home.Self {
		f.node.life.detector.Lost(run, member, fmt.Errorf("it proposed a forged bundle: %w", err))
	}
}

// of returns the number of bundles that a member forged.
func (f *forgeries) of(member order.ServerID) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[member]
}
