package p2p

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
)

// regionProtocolID identifies the region protocol and its version to libp2p.
const regionProtocolID = "/ledgerd/region/1"

var _ rdmanet.RegionHost = (*Host)(nil)

// regions is a host's one-sided memory: the regions that it exposes and the agents that serve them,
// the links to other hosts' memory, and the queues of operations. A goroutine may take the host's
// lock while it holds this lock, and not the reverse.
type regions struct {
	host       *Host
	goroutines sync.WaitGroup // agents and links

	mu      sync.Mutex
	closed  atomic.Bool // changed with the lock held
	exposed map[string]*segment.Region
	serving map[*agent]struct{}       // all agents
	agents  map[rdmanet.PeerID]*agent // the newest agent of each peer that sent a hello
	links   map[rdmanet.PeerID]*link
	queues  map[*queue]struct{}
}

func newRegions(h *Host) *regions {
	return &regions{
		host:    h,
		exposed: make(map[string]*segment.Region),
		serving: make(map[*agent]struct{}),
		agents:  make(map[rdmanet.PeerID]*agent),
		links:   make(map[rdmanet.PeerID]*link),
		queues:  make(map[*queue]struct{}),
	}
}

// errHostClosed returns the error of calls on a closed host.
func (r *regions) errHostClosed() error {
	return fmt.Errorf("host %s: %w", r.host.id, rdmanet.ErrClosed)
}

// Expose implements rdmanet.RegionHost.
func (h *Host) Expose(name string, size int) (rdmanet.Region, error) {
	if err := rdmanet.CheckRegion(name, size); err != nil {
		return nil, err
	}
	r := h.regions
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed.Load():
		return nil, r.errHostClosed()
	case r.exposed[name] != nil:
		return nil, fmt.Errorf("region %q: %w", name, rdmanet.ErrDuplicate)
	}
	region, err := segment.NewRegion(name, size, h.checkGrant, r.forget)
	if err != nil {
		return nil, err
	}
	r.exposed[name] = region
	return region, nil
}

// checkGrant returns an error unless the peer may be granted access: members and this host may.
func (h *Host) checkGrant(to rdmanet.Peer) error {
	_, err := h.member(to.ID)
	return err
}

// member returns libp2p's form of the identity of a member or of this host. It returns ErrNotMember
// for other peers.
func (h *Host) member(id rdmanet.PeerID) (peer.ID, error) {
	decoded, err := peer.Decode(string(id))
	if err != nil || id != h.id && !h.gater.isMember(decoded) {
		return "", fmt.Errorf("%q: %w", id, rdmanet.ErrNotMember)
	}
	return decoded, nil
}

func (r *regions) forget(region *segment.Region) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.exposed[region.Name()] == region {
		delete(r.exposed, region.Name())
	}
}

// find returns the region with that name, or nil if there is none.
func (r *regions) find(name string) *segment.Region {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exposed[name]
}

// link finds or makes the link to a peer.
func (r *regions) link(id peer.ID, name rdmanet.PeerID) (*link, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return nil, r.errHostClosed()
	}
	l := r.links[name]
	if l == nil {
		l = newLink(r.host, id, name)
		r.links[name] = l
		r.goroutines.Go(l.run)
	}
	return l, nil
}

// restarted ends the links to, and the agents of, older incarnations of a peer.
func (r *regions) restarted(to rdmanet.Peer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.links[to.ID]; l != nil {
		l.restarted(to.Incarnation)
	}
	if a := r.agents[to.ID]; a != nil && a.from.Incarnation < to.Incarnation {
		a.stop()
	}
}

// connected makes a link that pauses between attempts connect at once.
func (r *regions) connected(from rdmanet.PeerID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.links[from]; l != nil {
		notify(l.rush)
	}
}

// expel ends everything to and from a peer that is no longer a member, including its grants.
func (r *regions) expel(id rdmanet.PeerID) {
	if id == r.host.id {
		return // a host can always reach its own regions
	}
	r.mu.Lock()
	if l := r.links[id]; l != nil {
		delete(r.links, id)
		l.end(rdmanet.ErrNotMember)
	}
	for a := range r.serving {
		if a.from.ID == id {
			a.stop()
		}
	}
	exposed := slices.Collect(maps.Values(r.exposed))
	r.mu.Unlock()
	for _, region := range exposed {
		region.Retain(func(other rdmanet.PeerID) bool { return other != id })
	}
}

// close ends agents, links, regions and queues, and waits for the goroutines of agents and links.
func (r *regions) close() {
	r.mu.Lock()
	r.closed.Store(true)
	agents, links := slices.Collect(maps.Keys(r.serving)), slices.Collect(maps.Values(r.links))
	r.mu.Unlock()
	for _, a := range agents {
		a.stop()
	}
	for _, l := range links {
		l.end(rdmanet.ErrClosed)
	}
	r.goroutines.Wait()
	r.mu.Lock()
	exposed, queues := slices.Collect(maps.Values(r.exposed)), slices.Collect(maps.Keys(r.queues))
	clear(r.queues)
	r.mu.Unlock()
	for _, region := range exposed {
		region.End(rdmanet.ErrUnreachable)
	}
	for _, q := range queues {
		q.completions.Close()
	}
}

// outcomeOf returns the outcome to report to a peer. It returns an error that the operation did not
// cause unchanged; the error ends the stream.
func outcomeOf(err error) (outcome, error) {
	switch {
	case err == nil:
		return outcomeDone, nil
	case errors.Is(err, rdmanet.ErrAccess):
		return outcomeAccess, nil
	case errors.Is(err, rdmanet.ErrBounds):
		return outcomeBounds, nil
	default:
		return 0, err
	}
}
