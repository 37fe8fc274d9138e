//go:build verbs

package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
	"github.com/ledgerd/ledgerd/rdmanet/verbs/ibverbs"
)

const (
	// receiveDepth is how many writes with Ring an owner's queue pair accepts before the poller
	// must replace the used receives.
	receiveDepth = 256
	// servedMax bounds the attachments of one peer to one region. One more ends the oldest.
	servedMax = 64
	// retiredMax bounds the queue pairs of ended attachments that a region keeps to refuse late
	// operations.
	retiredMax = 64
)

// address returns the address of memory outside Go's heap.
func address(bytes []byte) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(bytes))))
}

// region is memory of this host that peers write and read; it implements rdmanet.Region.
type region struct {
	host   *host
	name   string
	memory *segment.Segment
	bell   segment.Doorbell
	domain *ibverbs.Domain // of this region alone
	remote *ibverbs.Memory // the memory in domain, for peers
	local  *ibverbs.Memory // the memory in the engine's domain, for this host's own operations

	mu      sync.Mutex
	closed  bool
	done    chan struct{} // closed when Close has finished
	grants  map[rdmanet.Peer]*grant
	retired []*served // oldest first
	ending  []*served // in no other list any more, while their queue pairs are destroyed
}

// grant is the permission of one incarnation of a peer, and the attachments made under it, oldest
// first.
type grant struct {
	permission rdmanet.Permission
	served     []*served
}

// served is the owner's side of an attachment.
type served struct {
	guard
	region *region
	peer   rdmanet.Peer
	number uint64 // chosen by the attaching host
}

func (s *served) progressed(uint64) { s.heard(nil) }
func (s *served) rung()             { s.region.bell.Ring() }

// broke: the attaching host did something that it may not, or the device failed. Later operations
// fail too. A goroutine that holds the region's lock may wait for the poller, so the poller must
// not wait for the lock.
func (s *served) broke(err error) {
	s.heard(err)
	s.region.host.spawn(func() { s.region.forget(s) })
}

// Expose implements rdmanet.RegionHost.
func (h *host) Expose(name string, size int) (rdmanet.Region, error) {
	if err := rdmanet.CheckRegion(name, size); err != nil {
		return nil, err
	}
	h.mu.Lock()
	switch {
	case h.closing:
		h.mu.Unlock()
		return nil, fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	case h.regions[name] != nil || h.exposing[name]:
		h.mu.Unlock()
		return nil, fmt.Errorf("region %q: %w", name, rdmanet.ErrDuplicate)
	}
	h.exposing[name] = true
	h.mu.Unlock()
	r, err := h.newRegion(name, size)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.exposing, name)
	if err == nil && h.closing {
		err = errors.Join(rdmanet.ErrClosed, r.release())
	}
	if err != nil {
		return nil, fmt.Errorf("region %q: %w", name, err)
	}
	h.regions[name] = r
	h.sourcesLocked()
	return r, nil
}

func (h *host) newRegion(name string, size int) (*region, error) {
	memory, err := segment.New(size)
	if err != nil {
		return nil, err
	}
	r := &region{host: h, name: name, memory: memory, done: make(chan struct{}),
		grants: make(map[rdmanet.Peer]*grant)}
	err = h.engine.use(func() error {
		r.domain, err = h.engine.context.NewDomain()
		return err
	})
	if err != nil {
		return nil, err
	}
	access := ibverbs.AccessLocalWrite | ibverbs.AccessRemoteWrite | ibverbs.AccessRemoteRead
	if h.engine.method == PermissionsMemoryWindow {
		// Peers can reach the region only through a window.
		access = ibverbs.AccessLocalWrite | ibverbs.AccessWindows
	}
	r.remote, err = h.engine.register(r.domain, memory.Bytes(), access)
	if err == nil {
		r.local, err = h.engine.register(h.engine.client, memory.Bytes(), ibverbs.AccessLocalWrite)
	}
	if err != nil {
		return nil, errors.Join(err, r.release())
	}
	return r, nil
}

// release frees the device's part of the region. No queue pair may be left in its domain.
func (r *region) release() error {
	err := r.host.engine.use(func() (err error) {
		if r.local != nil {
			err = r.local.Close()
		}
		if r.remote != nil {
			err = errors.Join(err, r.remote.Close())
		}
		return errors.Join(err, r.domain.Close())
	})
	if errors.Is(err, rdmanet.ErrClosed) {
		return nil // it was freed with the device
	}
	return err
}

// Name implements rdmanet.Region.
func (r *region) Name() string { return r.name }

// Size implements rdmanet.Region.
func (r *region) Size() int { return r.memory.Size() }

// Bytes implements rdmanet.Region.
func (r *region) Bytes() []byte { return r.memory.Bytes() }

// Load implements rdmanet.Region.
func (r *region) Load(offset int) uint64 { return r.memory.Load(offset) }

// Store implements rdmanet.Region.
func (r *region) Store(offset int, word uint64) { r.memory.Store(offset, word) }

// Await implements rdmanet.Region.
func (r *region) Await(ctx context.Context, ready func() bool) error {
	return r.bell.Await(ctx, ready)
}

// Wake implements rdmanet.Region.
func (r *region) Wake() { r.bell.Ring() }

// Revoke implements rdmanet.Region.
func (r *region) Revoke(peer rdmanet.Peer) error { return r.Grant(peer, rdmanet.PermissionNone) }

// Grant implements rdmanet.Region.
func (r *region) Grant(peer rdmanet.Peer, permission rdmanet.Permission) error {
	switch {
	case permission > rdmanet.PermissionReadWrite:
		return fmt.Errorf("region %q: there is no %s", r.name, permission)
	case permission != rdmanet.PermissionNone && !r.host.isMember(peer.ID):
		return fmt.Errorf("region %q: grant to %s: %w", r.name, peer, rdmanet.ErrNotMember)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("region %q: %w", r.name, rdmanet.ErrClosed)
	}
	if permission != rdmanet.PermissionNone {
		for other := range r.grants {
			if other.ID == peer.ID && other.Incarnation < peer.Incarnation {
				r.endGrant(other)
			}
		}
	}
	now := r.grants[peer]
	if now == nil && permission == rdmanet.PermissionNone || now != nil &&
		now.permission == permission {
		return nil
	}
	r.endGrant(peer)
	if permission != rdmanet.PermissionNone {
		r.grants[peer] = &grant{permission: permission}
	}
	return nil
}

// endGrant withdraws a grant. Once it has returned, nothing of its attachments lands any more. The
// caller holds the lock.
func (r *region) endGrant(peer rdmanet.Peer) {
	now := r.grants[peer]
	if now == nil {
		return
	}
	delete(r.grants, peer)
	for _, s := range now.served {
		s.fence(r.host.engine.method)
	}
	for _, s := range now.served {
		r.retire(s)
	}
}

// retire notifies the attaching host of an attachment that was fenced. If the fence left the queue
// pair, the pair is kept for a while to refuse late operations. The caller holds the lock.
func (r *region) retire(s *served) {
	r.host.control.tell(s.peer.ID, message{kind: messageRevoked, attachment: s.number})
	if s.link.over.Load() {
		return
	}
	r.retired = append(r.retired, s)
	if len(r.retired) > retiredMax {
		oldest := r.retired[0]
		r.retired = append(r.retired[:0], r.retired[1:]...)
		r.ending = append(r.ending, oldest)
		r.host.spawn(func() { r.end(oldest) })
	}
}

// retain ends the grants of all peers for which keep returns false.
func (r *region) retain(keep func(rdmanet.Peer) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for peer := range r.grants {
		if !keep(peer) {
			r.endGrant(peer)
		}
	}
}

// serve answers a peer's request to attach.
func (r *region) serve(from rdmanet.Peer, request message) message {
	refusal := func(s status) message {
		return message{kind: messageReply, call: request.call, status: s}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.grants[from]
	switch {
	case r.closed:
		return refusal(statusNoRegion)
	case now == nil:
		return refusal(statusAccess)
	}
	access := ibverbs.AccessRemoteRead
	if now.permission == rdmanet.PermissionReadWrite {
		access |= ibverbs.AccessRemoteWrite
	}
	s := &served{region: r, peer: from, number: request.attachment}
	var err error
	if s.guard, err = r.host.engine.newGuard(r.domain, s, r.host.engine.method, receiveDepth,
		access); err == nil {
		if err = s.open(request.endpoint, r.remote, access); err != nil {
			s.link.destroy()
		}
	}
	if err != nil {
		r.host.log.Warn("attachment refused", "region", r.name, "peer", from.String(), "error", err)
		return refusal(statusFailed)
	}
	if len(now.served) == servedMax {
		now.served[0].fence(r.host.engine.method)
		r.retire(now.served[0])
		now.served = append(now.served[:0], now.served[1:]...)
	}
	now.served = append(now.served, s)
	return message{kind: messageReply, call: request.call, status: statusWelcome,
		permission: now.permission, endpoint: s.link.endpoint(),
		memory: remoteMemory{base: address(r.memory.Bytes()), key: s.key,
			size: uint64(r.memory.Size())}}
}

// stands reports whether the grant of an attachment is still valid.
func (r *region) stands(peer rdmanet.Peer, number uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.grants[peer]; now != nil {
		for _, s := range now.served {
			if s.number == number {
				return true
			}
		}
	}
	return false
}

// detach ends an attachment that the attaching host has ended.
func (r *region) detach(peer rdmanet.Peer, number uint64) {
	r.mu.Lock()
	var over *served
	drop := func(list []*served) []*served {
		for i, s := range list {
			if s.peer == peer && s.number == number {
				over = s
				return append(list[:i], list[i+1:]...)
			}
		}
		return list
	}
	if now := r.grants[peer]; now != nil {
		now.served = drop(now.served)
	}
	r.retired = drop(r.retired)
	if over != nil {
		r.ending = append(r.ending, over)
	}
	r.mu.Unlock()
	if over != nil {
		r.end(over)
	}
}

// end destroys the queue pair of an attachment in ending. Close waits for that, since the domain
// cannot be freed before.
func (r *region) end(s *served) {
	s.link.destroy()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ending = slices.DeleteFunc(r.ending, func(other *served) bool { return other == s })
}

// forget drops a queue pair that failed. The attachment remains valid or ended, as before, until
// the attaching host asks or detaches.
func (r *region) forget(s *served) {
	s.link.destroy() // now, since Close could miss it later
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, other := range r.retired {
		if other == s {
			r.retired = append(r.retired[:i], r.retired[i+1:]...)
			return
		}
	}
}

// Close implements rdmanet.Region.
func (r *region) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		<-r.done
		return nil
	}
	r.closed = true
	var left []*served
	for peer, now := range r.grants {
		for _, s := range now.served {
			left = append(left, s)
			r.host.control.tell(peer.ID, message{kind: messageRevoked, attachment: s.number})
		}
	}
	left = append(append(left, r.retired...), r.ending...)
	r.grants, r.retired, r.ending = nil, nil, nil
	r.mu.Unlock()
	defer close(r.done)
	r.host.mu.Lock()
	if r.host.regions[r.name] == r {
		delete(r.host.regions, r.name)
	}
	r.host.sourcesLocked()
	r.host.mu.Unlock()
	for _, s := range left {
		s.link.destroy()
	}
	r.bell.Close()
	err := r.release()
	if err == nil {
		r.memory.Free()
	}
	return err
}
