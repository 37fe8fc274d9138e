package memory

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/internal/peers"
	"github.com/ledgerd/ledgerd/rdmanet/internal/window"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
)

// MendTimeoutDefault is the default of Options.MendTimeout.
const MendTimeoutDefault = 10 * time.Second

// Options configure a network, and apply to all its hosts. Zero values mean the defaults.
type Options struct {
	// WindowBytes and WindowFrames bound the unacknowledged frames of a lane. The defaults are 32
	// MiB and 65,536 frames.
	WindowBytes, WindowFrames int
	// FrameMax bounds a frame, in bytes. The default is 16 MiB, or the window if that is smaller.
	FrameMax int
	// MendTimeout is how long a lane's receiver may be away before the lane breaks. The default is
	// 10 seconds.
	MendTimeout time.Duration
}

// Network is a set of hosts that can reach each other.
type Network struct {
	limits      window.Limits
	mendTimeout time.Duration

	mu          sync.Mutex
	places      map[rdmanet.PeerID]*place
	incarnation rdmanet.Incarnation
}

// place is the state of one host name, whether a host is alive under it or not, as lanes to it need
// it. It is guarded by the network's lock.
type place struct {
	host    *Host               // nil when no host of that name is alive
	left    rdmanet.Incarnation // the last host that said goodbye
	cut     map[rdmanet.PeerID]bool
	wires   map[rdmanet.PeerID]*atomic.Bool // the same as cut, for peers that have attached
	changed chan struct{}                   // closed and replaced when something here changes
}

func (p *place) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// NewNetwork returns a network without hosts. If several options are given, the last one counts.
// Invalid options are a programming error: NewNetwork panics.
func NewNetwork(options ...Options) *Network {
	var o Options
	if len(options) > 0 {
		o = options[len(options)-1]
	}
	limits := window.Limits{Bytes: o.WindowBytes, Frames: o.WindowFrames,
		FrameBytes: o.FrameMax}.WithDefaults()
	if err := limits.Check(); err != nil {
		panic("memory: network options: " + err.Error())
	}
	if o.MendTimeout <= 0 {
		o.MendTimeout = MendTimeoutDefault
	}
	return &Network{limits: limits, mendTimeout: o.MendTimeout,
		places: make(map[rdmanet.PeerID]*place)}
}

// Host starts a host with that name, as a new incarnation if there was one before. It returns an
// error if one is alive.
func (n *Network) Host(id rdmanet.PeerID) (*Host, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.place(id)
	if p.host != nil {
		return nil, fmt.Errorf("host %s is alive already", id)
	}
	n.incarnation = max(n.incarnation+1, rdmanet.Incarnation(time.Now().UnixNano()))
	h := &Host{
		network:     n,
		id:          id,
		incarnation: n.incarnation,
		receivers:   make(map[string]rdmanet.ReceiveFunc),
		lanes:       make(map[laneKey]*lane),
		lost:        make(map[laneKey]lostFrames),
		regions:     make(map[string]*segment.Region),
		attachments: make(map[*attachment]struct{}),
		queues:      make(map[*queue]struct{}),
		links:       make(map[rdmanet.PeerID]*link),
		closed:      make(chan struct{}),
		calls:       newCalls(),
	}
	h.peers = peers.New(h.restarted)
	p.host = h
	p.change()
	return h, nil
}

// Kill ends the host with that name as a crash would: no peer is told, frames under way are lost,
// no further receive call begins. It does not wait for running receive calls; Close of the killed
// host does. Without such a host it does nothing.
func (n *Network) Kill(id rdmanet.PeerID) {
	n.mu.Lock()
	p := n.place(id)
	h := p.host
	n.mu.Unlock()
	if h != nil {
		h.end(false)
	}
}

// Cut breaks the link between two names, for their current and future hosts, until Mend.
func (n *Network) Cut(a, b rdmanet.PeerID) { n.setCut(a, b, true) }

// Mend undoes Cut.
func (n *Network) Mend(a, b rdmanet.PeerID) { n.setCut(a, b, false) }

func (n *Network) setCut(a, b rdmanet.PeerID, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ends := range [][2]rdmanet.PeerID{{a, b}, {b, a}} {
		p := n.place(ends[0])
		p.cut[ends[1]] = cut
		if wire := p.wires[ends[1]]; wire != nil {
			wire.Store(cut)
		}
		p.change()
	}
}

// place returns the place of that name. The caller holds the lock.
func (n *Network) place(id rdmanet.PeerID) *place {
	p := n.places[id]
	if p == nil {
		p = &place{cut: make(map[rdmanet.PeerID]bool), wires: make(map[rdmanet.PeerID]*atomic.Bool),
			changed: make(chan struct{})}
		n.places[id] = p
	}
	return p
}

// wire returns a flag that is true while the link between two names is cut.
func (n *Network) wire(from, to rdmanet.PeerID) *atomic.Bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.place(to)
	if p.wires[from] == nil {
		p.wires[from] = new(atomic.Bool)
		p.wires[from].Store(p.cut[from])
	}
	return p.wires[from]
}

// alive returns the incarnation alive under that name, cut off or not, or 0 if there is none.
// changed is closed when anything about the name may have changed.
func (n *Network) alive(id rdmanet.PeerID) (incarnation rdmanet.Incarnation,
	changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.place(id)
	if p.host != nil {
		incarnation = p.host.incarnation
	}
	return incarnation, p.changed
}

// route is a lane's view of its receiver at one moment.
type route struct {
	host    *Host               // the host that is there, nil if it cannot be reached
	receive rdmanet.ReceiveFunc // nil if the lane's name is not registered
	left    rdmanet.Incarnation // the last incarnation that said goodbye
	changed <-chan struct{}     // closed when any of this may have changed
}

func (n *Network) route(from, to rdmanet.PeerID, name string) route {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.place(to)
	r := route{left: p.left, changed: p.changed}
	if p.host != nil && !p.cut[from] && (p.host.members == nil || p.host.members[from]) {
		r.host = p.host
		r.receive = p.host.receivers[name]
	}
	return r
}
