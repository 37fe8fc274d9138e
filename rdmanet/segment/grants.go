package segment

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Grants holds the permissions of one region, at its owner: the access of each peer, and its
// admissions. The zero value grants nothing and is ready to use. All methods may be called from
// several goroutines.
type Grants struct {
	mu     sync.Mutex
	peers  map[rdmanet.Peer]*grant
	number uint64 // admissions so far
	closed error
}

// grant is the permission of one incarnation of a peer, and the admissions made under it.
type grant struct {
	permission rdmanet.Permission
	admissions map[*Admission]struct{}
}

// Admission is the owner's side of one attachment. It lasts as long as the grant under which it was
// made.
type Admission struct {
	grants     *Grants
	peer       rdmanet.Peer
	permission rdmanet.Permission
	number     uint64

	over atomic.Pointer[ending] // set at most once
	mu   sync.Mutex             // held by the operation under way
}

type ending struct{ err error }

// Set changes a peer's permission from now on. If this is a change, the peer's admissions end with
// ErrAccess, and no operation of theirs is under way once Set has returned. Granting access to a
// newer incarnation of a peer also ends the grants of its older ones. Set waits only for operations
// under way. It returns ErrClosed.
func (g *Grants) Set(peer rdmanet.Peer, permission rdmanet.Permission) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		return rdmanet.ErrClosed
	}
	if permission != rdmanet.PermissionNone {
		for other := range g.peers {
			if other.ID == peer.ID && other.Incarnation < peer.Incarnation {
				g.end(other, fmt.Errorf("%w: a newer incarnation of %s was granted access",
					rdmanet.ErrAccess,
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

// end withdraws a grant and waits for its operations under way. The caller holds the lock.
func (g *Grants) end(peer rdmanet.Peer, err error) {
	now := g.peers[peer]
	if now == nil {
		return
	}
	delete(g.peers, peer)
	over := &ending{err}
	for a := range now.admissions {
		// Mark all admissions first, so that a stream of operations does not contend for the lock.
		a.over.CompareAndSwap(nil, over)
	}
	for a := range now.admissions {
		a.fence()
	}
}

// Retain ends the grants of all peers for which keep returns false.
func (g *Grants) Retain(keep func(rdmanet.PeerID) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for peer := range g.peers {
		if !keep(peer.ID) {
			g.end(peer, fmt.Errorf("%w: %s is no longer a member", rdmanet.ErrAccess, peer.ID))
		}
	}
}

// Permission returns the current permission of a peer.
func (g *Grants) Permission(peer rdmanet.Peer) rdmanet.Permission {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.peers[peer]; now != nil {
		return now.permission
	}
	return rdmanet.PermissionNone
}

// Admit makes an admission under the peer's current grant. It returns ErrAccess if there is none,
// and the error given to Close once that was called.
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

// Close ends all grants with err and waits for operations under way. A second call does nothing.
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

// Peer returns the peer that made the attachment.
func (a *Admission) Peer() rdmanet.Peer { return a.peer }

// Permission returns the permission of the admission while it lasts.
func (a *Admission) Permission() rdmanet.Permission { return a.permission }

// Number identifies the admission within its region. Numbers are never reused and never 0.
func (a *Admission) Number() uint64 { return a.number }

// Err returns why the admission is over, or nil while it lasts.
func (a *Admission) Err() error {
	if over := a.over.Load(); over != nil {
		return over.err
	}
	return nil
}

// Enter begins an operation. If it returns nil, the caller may access the memory until Leave, which
// must follow soon: other operations of the admission wait for it, and so does ending the
// admission. Otherwise it returns the error that ended the admission. An operation that the
// permission does not cover ends the admission with ErrAccess.
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

// Leave ends the operation that Enter began. Everything that it stored is visible to all later
// readers.
func (a *Admission) Leave() { a.mu.Unlock() }

// End ends the admission with err, if it still lasts, and waits for its operation under way.
func (a *Admission) End(err error) {
	_ = a.fail(err)
	a.fence()
}

// fail ends the admission without waiting. It returns the error that ended it.
func (a *Admission) fail(err error) error {
	a.over.CompareAndSwap(nil, &ending{err})
	a.grants.mu.Lock()
	defer a.grants.mu.Unlock()
	// A later grant of the peer does not contain this admission.
	if now := a.grants.peers[a.peer]; now != nil {
		delete(now.admissions, a)
	}
	return a.over.Load().err
}

// fence waits for the operation under way. The admission is over, so no further operation begins.
func (a *Admission) fence() {
	a.mu.Lock()
	defer a.mu.Unlock()
}
