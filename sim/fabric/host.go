package fabric

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
)

// Host is one process on the network. It implements rdmanet.RegionHost, except for lanes.
type Host struct {
	network     *Network
	id          rdmanet.PeerID
	incarnation rdmanet.Incarnation

	// The network's lock guards the rest.
	ended   bool
	regions map[string]*Region
	queues  []*Queue
	occupied
}

var _ rdmanet.RegionHost = (*Host)(nil)

// ID returns the host's identity.
func (h *Host) ID() rdmanet.PeerID { return h.id }

// Incarnation returns the number of the host's incarnation, from 1.
func (h *Host) Incarnation() rdmanet.Incarnation { return h.incarnation }

// Peer returns the host as its peers know it.
func (h *Host) Peer() rdmanet.Peer { return rdmanet.Peer{ID: h.id, Incarnation: h.incarnation} }

// Receive returns ErrNoLanes.
func (h *Host) Receive(string, rdmanet.ReceiveFunc) error { return ErrNoLanes }

// Lane returns ErrNoLanes.
func (h *Host) Lane(rdmanet.PeerID, string) (rdmanet.Lane, error) { return nil, ErrNoLanes }

// Watch does nothing: without lanes there are no events.
func (h *Host) Watch(func(rdmanet.PeerEvent)) {}

// Close ends the host with its regions and queues, as Crash does.
func (h *Host) Close(context.Context) error {
	h.network.mu.Lock()
	defer h.network.mu.Unlock()
	h.end()
	return nil
}

// end ends the host. The caller holds the lock.
func (h *Host) end() {
	n := h.network
	if h.ended {
		return
	}
	h.ended = true
	delete(n.hosts, h.id)
	for _, q := range h.queues {
		for _, peer := range slices.Sorted(maps.Keys(q.posted)) {
			for _, o := range q.posted[peer] {
				o.attachment.err = cmp.Or(o.attachment.err, rdmanet.ErrClosed)
				q.finish(o, rdmanet.ErrClosed)
			}
		}
		q.end()
	}
	// Free the regions last: operations in a queue may write from them.
	for _, r := range h.regions {
		r.end()
	}
	n.wake()
}

func (h *Host) admits(peer rdmanet.PeerID) error {
	members := h.network.options.Members
	if members != nil && (!slices.Contains(members, peer) || !slices.Contains(members, h.id)) {
		return fmt.Errorf("%w: %s", rdmanet.ErrNotMember, peer)
	}
	return nil
}

// Expose creates a region.
func (h *Host) Expose(name string, size int) (rdmanet.Region, error) {
	if err := rdmanet.CheckRegion(name, size); err != nil {
		return nil, err
	}
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.ended {
		return nil, rdmanet.ErrClosed
	}
	if h.regions[name] != nil {
		return nil, fmt.Errorf("%w: region %q", rdmanet.ErrDuplicate, name)
	}
	memory, err := segment.New(size)
	if err != nil {
		return nil, err
	}
	r := &Region{host: h, name: name, Segment: memory, grants: map[rdmanet.PeerID]grant{}}
	h.regions[name] = r
	n.wake()
	return r, nil
}

// Attach gives access to a peer's region under the permission that its owner grants now. Unless the
// network is paced, it does not wait for an absent peer.
func (h *Host) Attach(ctx context.Context, peer rdmanet.PeerID, name string) (rdmanet.Attachment,
	error) {
	if err := rdmanet.CheckRegion(name, rdmanet.WordSize); err != nil {
		return nil, err
	}
	if err := h.admits(peer); err != nil {
		return nil, err
	}
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	late := false
	n.schedule(n.options.OperationTimeout, func() { late = true })
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if h.ended {
			return nil, rdmanet.ErrClosed
		}
		owner := n.hosts[peer]
		if owner != nil && !n.cuts[wire(h.id, peer)] {
			return h.attach(owner, name)
		}
		if late || !n.options.Paced {
			return nil, fmt.Errorf("%w: %s", rdmanet.ErrUnreachable, peer)
		}
		if err := n.wait(ctx.Done()); err != nil {
			return nil, err
		}
	}
}

func (h *Host) attach(owner *Host, name string) (rdmanet.Attachment, error) {
	r := owner.regions[name]
	if r == nil {
		return nil, fmt.Errorf("%w: %q of %s", rdmanet.ErrNoRegion, name, owner.id)
	}
	g := r.grants[h.id]
	if g.incarnation != h.incarnation || g.permission == rdmanet.PermissionNone {
		return nil, fmt.Errorf("%w: region %q of %s", rdmanet.ErrAccess, name, owner.id)
	}
	return &Attachment{host: h, region: r, number: g.number, permission: g.permission}, nil
}

// Queue creates a completion queue.
func (h *Host) Queue(depth int) (rdmanet.Queue, error) {
	if depth < 1 || depth > rdmanet.QueueDepthMax {
		return nil, fmt.Errorf("%w: a queue of %d operations, want 1 to %d", rdmanet.ErrTooLarge,
			depth, rdmanet.QueueDepthMax)
	}
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.ended {
		return nil, rdmanet.ErrClosed
	}
	q := &Queue{host: h, depth: depth, posted: map[rdmanet.PeerID][]*operation{}}
	h.queues = append(h.queues, q)
	return q, nil
}
