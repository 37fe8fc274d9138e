package memory

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/rdmanet"
	"github.com/ledgerd/ledgerd/rdmanet/segment"
)

// Expose implements rdmanet.RegionHost.
func (h *Host) Expose(name string, size int) (rdmanet.Region, error) {
	region, err := segment.NewRegion(name, size, h.checkGrant, h.forgetRegion)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return nil, fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	}
	if h.regions[name] != nil {
		return nil, fmt.Errorf("region %q: %w", name, rdmanet.ErrDuplicate)
	}
	h.regions[name] = region
	return region, nil
}

func (h *Host) checkGrant(peer rdmanet.Peer) error {
	if !h.isMember(peer.ID) {
		return rdmanet.ErrNotMember
	}
	return nil
}

func (h *Host) forgetRegion(region *segment.Region) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.regions[region.Name()] == region {
		delete(h.regions, region.Name())
	}
}

func (h *Host) region(name string) *segment.Region {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.regions[name]
}

// attachment is this host's access to a peer's region; it implements rdmanet.Attachment.
type attachment struct {
	host      *Host
	peer      rdmanet.Peer
	region    *segment.Region
	admission *segment.Admission
	link      *link
	// The error of the first failed operation, or the error that ended the attachment before.
	over atomic.Pointer[error]
}

// Attach implements rdmanet.RegionHost.
func (h *Host) Attach(ctx context.Context, peer rdmanet.PeerID, name string) (rdmanet.Attachment,
	error) {
	if err := rdmanet.CheckRegion(name, rdmanet.WordSize); err != nil {
		return nil, err
	}
	if !h.isMember(peer) {
		return nil, fmt.Errorf("region %q of %s: %w", name, peer, rdmanet.ErrNotMember)
	}
	if h.isClosing() {
		return nil, fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	}
	mend := time.NewTimer(h.network.mendTimeout)
	defer mend.Stop()
	for {
		r := h.network.route(h.id, peer, "")
		if r.host != nil {
			a, err := h.attach(r.host, name)
			if !errors.Is(err, rdmanet.ErrUnreachable) {
				return a, err
			}
		}
		select {
		case <-r.changed:
		case <-mend.C:
			return nil, fmt.Errorf("region %q of %s: %w: %w", name, peer, rdmanet.ErrUnreachable,
				errNobody)
		case <-h.closed:
			return nil, fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// attach attaches to a host that is there. It returns ErrUnreachable if the host is gone.
func (h *Host) attach(owner *Host, name string) (rdmanet.Attachment, error) {
	region := owner.region(name)
	if region == nil {
		return nil, fmt.Errorf("region %q of %s: %w", name, owner.id, rdmanet.ErrNoRegion)
	}
	admission, err := region.Admit(h.peer())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", owner.id, err)
	}
	// Seen fails if a newer incarnation is known. The first operation then reports that this one is
	// over.
	_ = h.peers.Seen(owner.peer())
	a := &attachment{host: h, peer: owner.peer(), region: region, admission: admission}
	wire := h.network.wire(h.id, owner.id)
	h.mu.Lock()
	if h.dead {
		h.mu.Unlock()
		admission.End(rdmanet.ErrClosed)
		return nil, fmt.Errorf("host %s: %w", h.id, rdmanet.ErrClosed)
	}
	defer h.mu.Unlock()
	if a.link = h.links[owner.id]; a.link == nil {
		a.link = &link{host: h, peer: owner.id, cut: wire, kick: make(chan struct{}, 1)}
		h.links[owner.id] = a.link
	}
	h.attachments[a] = struct{}{}
	return a, nil
}

// Peer implements rdmanet.Attachment.
func (a *attachment) Peer() rdmanet.Peer { return a.peer }

// Name implements rdmanet.Attachment.
func (a *attachment) Name() string { return a.region.Name() }

// Size implements rdmanet.Attachment.
func (a *attachment) Size() int { return a.region.Size() }

// Permission implements rdmanet.Attachment.
func (a *attachment) Permission() rdmanet.Permission { return a.admission.Permission() }

// Err implements rdmanet.Attachment.
func (a *attachment) Err() error {
	if over := a.over.Load(); over != nil {
		return *over
	}
	if err := a.admission.Err(); err != nil {
		return a.failed(err)
	}
	return nil
}

// Close implements rdmanet.Attachment.
func (a *attachment) Close() error {
	a.end(rdmanet.ErrClosed)
	return nil
}

// end ends an attachment with err, if it still works, and waits for the operation under way.
func (a *attachment) end(err error) {
	a.admission.End(err)
	_ = a.failed(a.admission.Err())
	select {
	case a.link.kick <- struct{}{}:
	default:
	}
}

// perform performs one operation immediately.
func (a *attachment) perform(operation *rdmanet.Operation) error {
	var err error
	if operation.Kind == rdmanet.OperationWrite {
		err = a.region.Write(a.admission, operation.Offset, operation.Bytes, operation.Ring)
	} else {
		err = a.region.Read(a.admission, operation.Offset, operation.Bytes)
	}
	if err != nil {
		return a.failed(err)
	}
	return nil
}

// failed records why the attachment is over and returns the error that the first call recorded. The
// owner's admission has ended already.
func (a *attachment) failed(err error) error {
	if over := a.over.Load(); over != nil {
		return *over
	}
	if errors.Is(err, rdmanet.ErrUnreachable) {
		if now, _ := a.host.network.alive(a.peer.ID); now > a.peer.Incarnation {
			err = fmt.Errorf("%w: it restarted as incarnation %s", rdmanet.ErrReset, now)
		}
	}
	err = fmt.Errorf("region %q of %s: %w", a.region.Name(), a.peer.ID, err)
	if !a.over.CompareAndSwap(nil, &err) {
		return *a.over.Load()
	}
	a.host.mu.Lock()
	defer a.host.mu.Unlock()
	delete(a.host.attachments, a)
	return err
}
