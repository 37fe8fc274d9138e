package segment

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Grants are the permissions of one region, kept by its owner: who may do what, and under which
// admissions. The zero value is ready: nobody may do anything. All methods may be called from
// several goroutines.
type Grants struct {
	mu     sync.Mutex
	peers  map[rdmanet.Peer]*grant
	number uint64 // admissions so far
	closed error
}

// grant is what one life of a peer may do, and the attachments that it made under it.
type grant struct {
	permission rdmanet.Permission
	admissions map[*Admission]struct{}
}

// Admission is the owner's side of one attachment: the grant that it was made under, for as long as
// it stands.
type Admission struct {
	grants     *Grants
	peer       rdmanet.Peer
	permission rdmanet.Permission
	number     uint64

	over atomic.Pointer[ending] // set once
	mu   sync.Mutex             // held by the operation under way
}

type ending struct{ err error }

// Set changes what a peer may do from now on. Where that changes anything, the admissions of the
// peer end with ErrAccess, and nothing is under way under them any more once Set has returned.
// Whoever grants a newer life of a peer knows that the older ones are over: they lose what they
// had. Set waits for operations under way and nothing else. ErrClosed.
func (g *Grants) Set(peer rdmanet.Peer, permission rdmanet.Permission) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		return rdmanet.ErrClosed
	}
	if permission != rdmanet.PermissionNone {
		for other := range g.peers {
			if other.ID == peer.ID && other.Incarnation < peer.Incarnation {
				g.end(other, fmt.Errorf("%w: a newer life of %s was granted it", rdmanet.ErrAccess,
					peer.ID))
			}
		}
	}
	now := g.peers[peer]
	if now == nil && permission == rdmanet.PermissionNone || now != nil &&
		now.permission == permission {
		return nil
	}
	g.end(peer, fmt.Errorf("%w: the owner changed the permission to %s", rdmanet.ErrAccess,
		permission))
	if permission != rdmanet.PermissionNone {
		if g.peers == nil {
			g.peers = make(map[rdmanet.Peer]*grant)
		}
		g.peers[peer] = &grant{permission: permission, admissions: make(map[*Admission]struct{})}
	}
	return nil
}

// end takes a grant back and waits for what is under way under it. The caller holds the lock.
func (g *Grants) end(peer rdmanet.Peer, err error) {
	now := g.peers[peer]
	if now == nil {
		return
	}
	delete(g.peers, peer)
	over := &ending{err}
	for a := range now.admissions {
		// so that a stream of operations does not contend for the lock
		a.over.CompareAndSwap(nil, over)
	}
	for a := range now.admissions {
		a.fence()
	}
}

// Retain ends the grants of all peers but those that keep tells.
func (g *Grants) Retain(keep func(rdmanet.PeerID) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for peer := range g.peers {
		if !keep(peer.ID) {
			g.end(peer, fmt.Errorf("%w: %s is no member any more", rdmanet.ErrAccess, peer.ID))
		}
	}
}

// Permission is what a peer may do now.
func (g *Grants) Permission(peer rdmanet.Peer) rdmanet.Permission {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.peers[peer]; now != nil {
		return now.permission
	}
	return rdmanet.PermissionNone
}

// Admit makes an admission under what the peer is granted now. ErrAccess when that is nothing; what
// Close was given once it was called.
func (g *Grants) Admit(peer rdmanet.Peer) (*Admission, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		return nil, g.closed
	}
	now := g.peers[peer]
	if now == nil {
		return nil, fmt.Errorf("%w: nothing was granted to %s", rdmanet.ErrAccess, peer)
	}
	g.number++
	a := &Admission{grants: g, peer: peer, permission: now.permission, number: g.number}
	now.admissions[a] = struct{}{}
	return a, nil
}

// Close ends everything with that error, and waits for what is under way. Closing again does
// nothing.
func (g *Grants) Close(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		return
	}
	g.closed = err
	for peer := range g.peers {
		g.end(peer, err)
	}
}

// Peer is whose attachment it is.
func (a *Admission) Peer() rdmanet.Peer { return a.peer }

// Permission is what it may do while it stands.
func (a *Admission) Permission() rdmanet.Permission { return a.permission }

// Number tells the admissions of one region apart: it is never given again, and never 0.
func (a *Admission) Number() uint64 { return a.number }

// Err is why the admission is over, nil while it stands.
func (a *Admission) Err() error {
	if over := a.over.Load(); over != nil {
		return over.err
	}
	return nil
}

// Enter begins an operation. Without an error the memory may be touched until Leave, which must
// follow soon: ending the admission waits for it, and other operations of the admission do. The
// error is why the admission is over, ErrAccess if only now because the permission does not allow
// the operation.
func (a *Admission) Enter(kind rdmanet.OperationKind) error {
	a.mu.Lock()
	if over := a.over.Load(); over != nil {
		a.mu.Unlock()
		return over.err
	}
	if a.permission.Allows(kind) {
		return nil
	}
	a.mu.Unlock()
	return a.fail(fmt.Errorf("%w: a %s with the permission to %s", rdmanet.ErrAccess, kind,
		a.permission))
}

// Leave ends the operation that Enter began: what it stored is visible to everyone who looks from
// now on.
func (a *Admission) Leave() { a.mu.Unlock() }

// End ends the admission with that error, if it still stands, and waits for what is under way.
func (a *Admission) End(err error) {
	_ = a.fail(err)
	a.fence()
}

// fail ends the admission without waiting, and gives what it ended with.
func (a *Admission) fail(err error) error {
	a.over.CompareAndSwap(nil, &ending{err})
	a.grants.mu.Lock()
	defer a.grants.mu.Unlock()
	// The peer may have a later grant, which knows nothing of this admission.
	if now := a.grants.peers[a.peer]; now != nil {
		delete(now.admissions, a)
	}
	return a.over.Load().err
}

// fence waits for the operation under way. The admission is over, so no further one begins.
func (a *Admission) fence() {
	a.mu.Lock()
	defer a.mu.Unlock()
}
