package node

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ledgerd/ledgerd/node/engine"
	"github.com/ledgerd/ledgerd/node/mempool"
	"github.com/ledgerd/ledgerd/node/verification"
	"github.com/ledgerd/ledgerd/order"
)

// arrivals returns a function that has the signatures of messages verified while the messages'
// rounds complete. each calls a function for the messages in a frame of the engine.
func (n *Node) arrivals(each func(frame []byte, yield func(engine.Message))) func(
	from order.ServerID, frame []byte) {
	return func(from order.ServerID, frame []byte) {
		each(frame, func(m engine.Message) {
			batch, _, err := mempool.SplitPayload(m.Payload)
			if err != nil {
				return // every node drops it
			}
			n.verification.Arrived(uint64(from), verification.Message{Run: m.Run,
				Epoch: uint64(m.Epoch), Round: uint64(m.Round), Origin: uint64(m.Origin)}, batch)
		})
	}
}

// penanceMax bounds for how long this node verifies nothing that a member which forged delivers,
// before a round needs it. The first time takes two seconds, and each further round with a forged
// bundle twice as long: the member may be repaired by now.
const penanceMax = 10 * time.Minute

// forgeries counts the bundles that members forged since this process began. It has such members
// suspected for the rest of the run, and distrusted for a while after it.
type forgeries struct {
	node    *Node
	bundles *prometheus.CounterVec

	mu    sync.Mutex
	count map[order.ServerID]uint64
	kept  map[order.ServerID]penance
}

// penance is how often a member forged, and until when it is distrusted.
type penance struct {
	times int
	until time.Time
}

func newForgeries(n *Node) *forgeries {
	return &forgeries{node: n, count: make(map[order.ServerID]uint64),
		kept: make(map[order.ServerID]penance),
		bundles: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "ledgerd",
			Name: "forged_bundles_total",
			Help: "Bundles with a wrong signature that a member proposed. No node executes them."},
			[]string{"member"})}
}

// punish counts what a member forged in a round, and returns until when it is distrusted.
func (f *forgeries) punish(member order.ServerID, bundles int) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count[member] += uint64(bundles)
	kept := f.kept[member]
	kept.times++
	kept.until = time.Now().Add(min(time.Second<<min(kept.times, 30), penanceMax))
	f.kept[member] = kept
	return kept.until
}

// found is the pipeline's hook.
func (f *forgeries) found(run uint64, member order.ServerID, bundles int, err error) {
	until := f.punish(member, bundles)
	f.bundles.WithLabelValues(f.node.peers.name(member)).Add(float64(bundles))
	if member != f.node.home.Self {
		f.node.verification.Distrust(uint64(member), until)
		f.node.life.detector.Lost(run, member, fmt.Errorf("it proposed a forged bundle: %w", err))
	}
}

// of returns the number of bundles that a member forged.
func (f *forgeries) of(member order.ServerID) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[member]
}
