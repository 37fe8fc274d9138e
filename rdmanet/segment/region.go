package segment

import (
	"context"
	"fmt"
	"sync"

	"github.com/ledgerd/ledgerd/rdmanet"
)

// Region is an rdmanet.Region at whose owner a program performs the peers' operations.
type Region struct {
	name   string
	memory *Segment
	bell   Doorbell
	grants Grants
	check  func(rdmanet.Peer) error
	forget func(*Region)
	ended  sync.Once
}

var _ rdmanet.Region = (*Region)(nil)

// NewRegion makes a region. check returns the error of Grant for peers that must not be granted
// anything. forget is called once when the region ends, before its memory is freed. Both may be
// nil. NewRegion returns the errors of rdmanet.CheckRegion, or the operating system's.
func NewRegion(name string, size int, check func(rdmanet.Peer) error,
	forget func(*Region)) (*Region, error) {
	if err := rdmanet.CheckRegion(name, size); err != nil {
		return nil, err
	}
	memory, err := New(size)
	if err != nil {
		return nil, fmt.Errorf("region %q: %w", name, err)
	}
	return &Region{name: name, memory: memory, check: check, forget: forget}, nil
}

// Name implements rdmanet.Region.
func (r *Region) Name() string { return r.name }

// Size implements rdmanet.Region.
func (r *Region) Size() int { return r.memory.Size() }

// Bytes implements rdmanet.Region.
func (r *Region) Bytes() []byte { return r.memory.Bytes() }

// Load implements rdmanet.Region.
func (r *Region) Load(offset int) uint64 { return r.memory.Load(offset) }

// Store implements rdmanet.Region.
func (r *Region) Store(offset int, word uint64) { r.memory.Store(offset, word) }

// Grant implements rdmanet.Region.
func (r *Region) Grant(peer rdmanet.Peer, permission rdmanet.Permission) error {
	if permission > rdmanet.PermissionReadWrite {
		return fmt.Errorf("region %q: there is no %s", r.name, permission)
	}
	if r.check != nil && permission != rdmanet.PermissionNone {
		if err := r.check(peer); err != nil {
			return fmt.Errorf("region %q: grant to %s: %w", r.name, peer, err)
		}
	}
	if err := r.grants.Set(peer, permission); err != nil {
		return fmt.Errorf("region %q: %w", r.name, err)
	}
	return nil
}

// Revoke implements rdmanet.Region.
func (r *Region) Revoke(peer rdmanet.Peer) error { return r.Grant(peer, rdmanet.PermissionNone) }

// Retain ends the grants of all peers for which keep returns false.
func (r *Region) Retain(keep func(rdmanet.PeerID) bool) { r.grants.Retain(keep) }

// Await implements rdmanet.Region.
func (r *Region) Await(ctx context.Context, ready func() bool) error {
	return r.bell.Await(ctx, ready)
}

// Wake implements rdmanet.Region.
func (r *Region) Wake() { r.bell.Ring() }

// Parks returns how often a caller parked in Await.
func (r *Region) Parks() uint64 { return r.bell.Parks() }

// Close implements rdmanet.Region.
func (r *Region) Close() error {
	r.End(fmt.Errorf("%w: the region was closed", rdmanet.ErrAccess))
	return nil
}

// End is like Close but gives the peers another reason. The reason of the first call counts; later
// calls wait for the first.
func (r *Region) End(err error) {
	r.ended.Do(func() {
		if r.forget != nil {
			r.forget(r)
		}
		r.grants.Close(err)
		r.bell.Close()
		r.memory.Free()
	})
}

// Admit begins an attachment of a peer. It returns ErrAccess, or the error given to End once the
// region ended.
func (r *Region) Admit(peer rdmanet.Peer) (*Admission, error) {
	a, err := r.grants.Admit(peer)
	if err != nil {
		return nil, fmt.Errorf("region %q: %w", r.name, err)
	}
	return a, nil
}

// Write performs a write under an admission of this region. If it returns nil, the write has
// landed. If it returns an error, the write has not taken place, and the error is why the admission
// is over.
func (r *Region) Write(a *Admission, offset int, from []byte, ring bool) error {
	if err := r.Check(a, offset, len(from)); err != nil {
		return err
	}
	if err := a.Enter(rdmanet.OperationWrite); err != nil {
		return err
	}
	r.memory.CopyIn(offset, from)
	a.Leave()
	if ring {
		r.bell.Ring()
	}
	return nil
}

// Read performs a read under an admission of this region. Its error is why the admission is over.
func (r *Region) Read(a *Admission, offset int, into []byte) error {
	if err := r.Check(a, offset, len(into)); err != nil {
		return err
	}
	if err := a.Enter(rdmanet.OperationRead); err != nil {
		return err
	}
	r.memory.CopyOut(offset, into)
	a.Leave()
	return nil
}

// Check ends an admission with ErrBounds if the access reaches past the region. It is for a write
// performed in parts; Write and Read call it themselves.
func (r *Region) Check(a *Admission, offset, length int) error {
	if offset >= 0 && offset <= r.memory.Size()-length {
		return nil
	}
	return a.fail(fmt.Errorf("%w: %d bytes at %d of region %q, which has %d", rdmanet.ErrBounds,
		length, offset, r.name, r.memory.Size()))
}
