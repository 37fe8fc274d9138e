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

// MendTimeoutDefault is how long a lane's receiver may be away before the lane breaks.
const MendTimeoutDefault = 10 * time.Second

// Options of a network, the same for all its hosts. Zero values mean the defaults.
type Options struct {
	// WindowBytes and WindowFrames bound what a lane holds unacknowledged: 32 MiB and 65,536
	// frames.
	WindowBytes, WindowFrames int
	// FrameMax bounds a frame, in bytes: 16 MiB, or the window if that is smaller.
	FrameMax int
	// MendTimeout is how long a lane's receiver may be away before the lane breaks: 10 seconds.
	MendTimeout time.Duration
}

// Network is a set of hosts that reach each other.
type Network struct {
	limits      window.Limits
	mendTimeout time.Duration

	mu          sync.Mutex
	places      map[rdmanet.PeerID]*place
	incarnation rdmanet.Incarnation
}

// place is where a host of one name lives, or lived, or will live: what lanes to it need to know.
// Guarded by the network's lock.
type place struct {
	host    *Host               // nil when no host of that name is alive
	left    rdmanet.Incarnation // the last host that closed in order
	cut     map[rdmanet.PeerID]bool
	wires   map[rdmanet.PeerID]*atomic.Bool // the same, for those that have attached
	changed chan struct{}                   // closed and replaced when something here changes
}

func (p *place) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// NewNetwork gives a network without hosts. With several options, the last one counts; with
// impossible ones, NewNetwork panics: they are the program's own.
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

// Host starts a host of that name, as a new incarnation if there was one before. It is an error if
// one is alive.
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

// Kill ends the host of that name as a crash does: nobody is told, frames under way are lost, no
// receive call begins any more. It does not wait for receive calls that run; Close of the killed
// host does. Without such a host nothing happens.
func (n *Network) Kill(id rdmanet.PeerID) {
	n.mu.Lock()
	p := n.place(id)
	h := p.host
	n.mu.Unlock()
	if h != nil {
		h.end(false)
	}
}

// Cut breaks the link between two hosts, or all that will live under their names, until Mend.
func (n *Network) Cut(a, b rdmanet.PeerID) { n.setCut(a, b, true) }

// Mend takes Cut back.
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

// place gives the place of that name; the caller holds the lock.
func (n *Network) place(id rdmanet.PeerID) *place {
	p := n.places[id]
	if p == nil {
		p = &place{cut: make(map[rdmanet.PeerID]bool), wires: make(map[rdmanet.PeerID]*atomic.Bool),
			changed: make(chan struct{})}
		n.places[id] = p
	}
	return p
}

// wire tells, as it changes, whether the link between two names is cut.
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

// alive is the incarnation of that name that is there now, cut off or not, 0 if none is; changed is
// closed when anything about the name may have changed.
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

// route is what a lane sees of its receiver at one moment.
type route struct {
	host    *Host               // who is there, nil if nobody can be reached
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
