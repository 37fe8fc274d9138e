package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Bounds of regions, the same for every provider.
const (
	// RegionNameMax bounds a region's name, in bytes.
	RegionNameMax = 64
	// RegionSizeMax bounds a region, in bytes.
	RegionSizeMax = 1 << 30
	// WordSize is the size of a word, in bytes. A word at an offset that WordSize divides is never
	// torn.
	WordSize = 8
	// InlineMax is the largest write, in bytes, that Post copies. The caller may change the bytes
	// of such a write at once. The bytes of a longer write are read until the operation completes.
	InlineMax = 128
	// QueueDepthMax bounds the outstanding operations of one queue.
	QueueDepthMax = 1 << 14
)

// Errors of regions, in addition to those of lanes.
var (
	// ErrAccess: the owner did not grant this peer such access, or changed its permission after the
	// attachment was made.
	ErrAccess = errors.New("access denied")
	// ErrBounds: the operation reaches past the region's end.
	ErrBounds = errors.New("out of the region's bounds")
	// ErrQueueFull: the queue has no room for the operations, and none was posted. Take completions
	// first.
	ErrQueueFull = errors.New("completion queue full")
	// ErrRegionName: the region's name is empty or longer than RegionNameMax.
	ErrRegionName = errors.New("bad region name")
	// ErrNoRegion: the peer exposes no region with that name.
	ErrNoRegion = errors.New("no such region")
)

// CheckRegion returns ErrRegionName or ErrTooLarge, with the reason, for a name or a size that no
// region can have.
func CheckRegion(name string, size int) error {
	if name == "" || len(name) > RegionNameMax {
		return fmt.Errorf("%w: %d bytes, want 1 to %d", ErrRegionName, len(name), RegionNameMax)
	}
	if size <= 0 || size > RegionSizeMax || size%WordSize != 0 {
		return fmt.Errorf("%w: a region of %d bytes, want a multiple of %d up to %d", ErrTooLarge,
			size, WordSize, RegionSizeMax)
	}
	return nil
}

// Permission is the access that a peer has to a region.
type Permission uint8

// The permissions. Each includes the previous one.
const (
	PermissionNone Permission = iota
	PermissionRead
	PermissionReadWrite
)

// Allows reports whether the permission covers an operation of that kind.
func (p Permission) Allows(kind OperationKind) bool {
	return p == PermissionReadWrite || p == PermissionRead && kind == OperationRead
}

// String returns the permission in words.
func (p Permission) String() string {
	switch p {
	case PermissionNone:
		return "none"
	case PermissionRead:
		return "read"
	case PermissionReadWrite:
		return "read-write"
	default:
		return "permission " + strconv.Itoa(int(p))
	}
}

// RegionHost is a Host with one-sided memory. The package comment states the memory contract. All
// methods may be called from several goroutines.
type RegionHost interface {
	Host
	// Expose makes a region of size bytes, all zero. size must be a multiple of WordSize. No peer
	// has access until Grant. It returns ErrDuplicate while a region with that name is open here,
	// ErrRegionName, ErrTooLarge, ErrClosed, or the operating system's error if it refuses the
	// memory.
	Expose(name string, size int) (Region, error)
	// Attach connects to a peer's region with the permission that the region's owner grants this
	// host now. It may be called again at any time, even while another attachment works. It waits
	// only for a peer that is not there. It returns ctx's error, ErrAccess (the owner granted no
	// access; ask it with a message of your own), ErrNoRegion, ErrNotMember, ErrUnreachable (as for
	// lanes: the peer was not there for the mend timeout) or ErrClosed.
	Attach(ctx context.Context, peer PeerID, name string) (Attachment, error)
	// Queue makes a completion queue for up to depth outstanding operations, 1 to QueueDepthMax. It
	// returns ErrTooLarge or ErrClosed.
	Queue(depth int) (Queue, error)
}

// Region is memory of this host that peers may access. It lies outside Go's heap and is aligned to
// a page. It is neither moved nor freed while a peer can reach it.
type Region interface {
	Name() string
	// Size returns the size in bytes.
	Size() int
	// Bytes returns the memory itself. Use it only for parts that nothing else is writing: parts
	// that only this owner writes, or parts whose writer leaves a mark after the last byte that
	// Load has found. It must not be used after Close.
	Bytes() []byte
	// Load reads the word at an offset that WordSize divides. Everything that the writer wrote
	// before that word is visible to later accesses. It panics if the offset is outside the region,
	// as a slice does.
	Load(offset int) uint64
	// Store writes the word at an offset that WordSize divides. A reader that loads the word, or
	// reads it from another host, sees everything that this host wrote before. It panics if the
	// offset is outside the region.
	Store(offset int, word uint64)
	// Grant sets the access that a peer's attachments to this region have from now on. If this
	// changes the permission, the peer's existing attachments to the region end. Once Grant has
	// returned, none of their bytes land any more, and their pending and later operations complete
	// with ErrAccess. The peer must attach again to use the new permission. Grant does not depend
	// on the peer and takes a bounded time. It returns ErrNotMember or ErrClosed.
	Grant(peer Peer, permission Permission) error
	// Revoke is Grant with PermissionNone.
	Revoke(peer Peer) error
	// Await waits until ready returns true, or returns ctx's error or ErrClosed. It calls ready
	// immediately, a few times during a short spin, and then after each write with Ring that lands
	// here and each call of Wake. A waiting program uses no processor time. A change made by a
	// write without Ring may go unseen until the next such event.
	Await(ctx context.Context, ready func() bool) error
	// Wake makes every caller waiting in Await check again.
	Wake()
	// Close revokes all access, waits until no write is under way, and frees the memory. A second
	// call does nothing. Closing the host closes its regions.
	Close() error
}

// Attachment is this host's access to a peer's region, under the permission that was granted when
// it was made. It works until its first operation that completes with an error. All operations
// posted behind that one complete with the same error, so no later write can hide the gap that a
// lost write left.
type Attachment interface {
	// Peer returns the incarnation of the owner that the attachment leads to.
	Peer() Peer
	Name() string
	// Size returns the size of the region in bytes.
	Size() int
	Permission() Permission
	// Err returns the error that ended the attachment, or nil while it works as far as this host
	// knows.
	Err() error
	// Close ends the attachment. Outstanding operations complete, with ErrClosed if they did not
	// take place. A second call does nothing.
	Close() error
}

// OperationKind is the kind of an operation.
type OperationKind uint8

// The kinds of operations.
const (
	OperationWrite OperationKind = iota + 1
	OperationRead
)

// String returns the kind in words.
func (k OperationKind) String() string {
	switch k {
	case OperationWrite:
		return "write"
	case OperationRead:
		return "read"
	default:
		return "operation kind " + strconv.Itoa(int(k))
	}
}

// Operation is one access to a peer's region.
type Operation struct {
	To     Attachment
	Kind   OperationKind
	Offset int
	// Bytes holds the data of a write, or receives the data of a read. It belongs to the fabric
	// until the completion, except for writes of up to InlineMax bytes. It must be the program's
	// own memory. A region's memory goes away with its host, possibly before the operation has
	// finished with it.
	Bytes []byte
	// Ring wakes the callers of Region.Await at the owner once the write has landed. Writes only.
	Ring bool
	// Tag is returned in the completion.
	Tag uint64
}

// Completion is the end of an operation.
//
// If Err is nil, a write has landed: its owner, and every peer that reads the region from now on,
// sees it. A read has all its bytes.
//
// If Err is not nil, the bytes of a read are undefined. For a write the guarantee depends on the
// error. With ErrAccess no more of it lands, but its beginning may have landed before the
// permission changed. With ErrUnreachable, ErrReset or ErrClosed it may have landed in part or in
// whole, and may still land until the owner changes this host's permission. An operation posted
// behind a failed one took place only if the failed one did.
type Completion struct {
	Tag  uint64
	Peer PeerID
	Err  error
}

// Queue takes operations to any number of peers and returns their completions. Completions of one
// peer come in the order of posting. There is no order between peers. All methods may be called
// from several goroutines. The operations of one call stay together.
type Queue interface {
	// Post starts the operations in order, all or none, and returns at once. Each completes exactly
	// once, whatever happens to the peer: in its turn while the peer answers, with ErrUnreachable
	// once the peer has answered nothing for the mend timeout. Each answer restarts that timeout.
	// With one of these errors nothing was posted: ErrQueueFull, ErrBounds (an operation outside
	// its region), ErrClosed (the queue or the host).
	Post(operations ...Operation) error
	// Poll takes up to len(into) available completions, without waiting.
	Poll(into []Completion) int
	// Wait is like Poll but waits for at least one completion: it spins briefly and then parks. It
	// returns ctx's error, or ErrClosed once the queue is closed and empty. With nothing
	// outstanding it waits for operations that other goroutines post.
	Wait(ctx context.Context, into []Completion) (int, error)
	// Outstanding returns the number of posted operations whose completions have not been taken.
	Outstanding() int
	// Close ends the queue. Outstanding operations continue without it, and their Bytes belong to
	// the fabric until the host is closed. Take the completions first if you need to know when they
	// end. A second call does nothing.
	Close() error
}
