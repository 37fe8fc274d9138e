package fabric

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
)

// Region is a region of a host's memory.
type Region struct {
	*segment.Segment // Load, Store, Bytes, Size
	host             *Host
	name             string

	// The network's lock guards the rest.
	closed bool
	grants map[rdmanet.PeerID]grant
	number uint64 // of the last change of a permission
	rings  uint64
}

// grant is a peer's permission. An attachment holds the number under which it was made.
type grant struct {
	incarnation rdmanet.Incarnation
	permission  rdmanet.Permission
	number      uint64
}

// Name returns the region's name.
func (r *Region) Name() string { return r.name }

// Grant sets a peer's permission. Pieces land one by one under the lock, so nothing of an earlier
// permission lands after Grant returns.
func (r *Region) Grant(peer rdmanet.Peer, permission rdmanet.Permission) error {
	if err := r.host.admits(peer.ID); err != nil {
		return err
	}
	n := r.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.closed {
		return rdmanet.ErrClosed
	}
	was := r.grants[peer.ID]
	if was.incarnation == peer.Incarnation && was.permission == permission {
		return nil
	}
	if was.incarnation > peer.Incarnation {
		return nil // an earlier incarnation, which has no access anyway
	}
	r.number++
	r.grants[peer.ID] = grant{peer.Incarnation, permission, r.number}
	return nil
}

// Revoke revokes a peer's permission.
func (r *Region) Revoke(peer rdmanet.Peer) error { return r.Grant(peer, rdmanet.PermissionNone) }

// Await waits until ready returns true.
func (r *Region) Await(ctx context.Context, ready func() bool) error {
	n := r.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		rings := r.rings
		n.mu.Unlock()
		done := ready()
		n.mu.Lock()
		if done {
			return nil
		}
		for r.rings == rings {
			if err := ctx.Err(); err != nil {
				return err
			}
			if r.closed {
				return rdmanet.ErrClosed
			}
			if err := n.wait(ctx.Done()); err != nil {
				return err
			}
		}
	}
}

// Wake makes the callers of Await check again.
func (r *Region) Wake() {
	r.host.network.mu.Lock()
	defer r.host.network.mu.Unlock()
	r.ring()
}

func (r *Region) ring() {
	r.rings++
	r.host.network.wake()
}

// Close revokes all access and frees the memory.
func (r *Region) Close() error {
	n := r.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	r.end()
	delete(r.host.regions, r.name)
	return nil
}

func (r *Region) end() {
	if !r.closed {
		r.closed = true
		r.ring()
		r.Free()
	}
}

// judge returns an error unless an operation of an attachment may proceed at this instant.
func (r *Region) judge(a *Attachment) error {
	switch owner := r.host; {
	case a.refused != nil:
		return a.refused
	case owner.ended && owner.network.hosts[owner.id] != nil:
		return fmt.Errorf("%w: %s has restarted", rdmanet.ErrReset, owner.id)
	case r.closed || r.grants[a.host.id].number != a.number &&
		r.host.network.options.Fault != FaultLandsAfterRevoke:
		return fmt.Errorf("%w: region %q of %s", rdmanet.ErrAccess, r.name, owner.id)
	}
	return nil
}
