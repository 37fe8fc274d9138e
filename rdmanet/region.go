package rdmanet

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Bounds of regions, the same on every provider.
const (
	// RegionNameMax bounds a region's name, in bytes.
	RegionNameMax = 64
	// RegionSizeMax bounds a region, in bytes.
	RegionSizeMax = 1 << 30
	// WordSize is what is never torn, in bytes, at offsets that it divides.
	WordSize = 8
	// InlineMax is how many bytes of a write Post copies, so that the caller may change them at
	// once. What is longer is read until the operation's completion.
	InlineMax = 128
	// QueueDepthMax bounds how many operations of one queue are outstanding.
	QueueDepthMax = 1 << 14
)

// Errors of regions, beside those of lanes.
var (
	// ErrAccess: the owner granted this peer no such access, or changed its permission since the
	// attachment was made.
	ErrAccess = errors.New("access denied")
	// ErrBounds: the operation reaches past the region's end.
	ErrBounds = errors.New("out of the region's bounds")
	// ErrQueueFull: the queue has no room for the operations; none was posted. Take completions
	// first.
	ErrQueueFull = errors.New("completion queue full")
	// ErrRegionName: the region's name is empty or longer than RegionNameMax.
	ErrRegionName = errors.New("bad region name")
	// ErrNoRegion: the peer exposes no region of that name.
	ErrNoRegion = errors.New("no such region")
)

// CheckRegion gives ErrRegionName or ErrTooLarge, with the reason, for a name or a size that no
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

// Permission is what a peer may do with a region.
type Permission uint8

// The permissions, each allowing what the one before allows.
const (
	PermissionNone Permission = iota
	PermissionRead
	PermissionReadWrite
)

// Allows tells whether an operation of that kind is within the permission.
func (p Permission) Allows(kind OperationKind) bool {
	return p == PermissionReadWrite || p == PermissionRead && kind == OperationRead
}

// String gives the permission in words.
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

// RegionHost is a Host with one-sided memory; the package comment states the memory contract. All
// methods may be called from several goroutines.
type RegionHost interface {
	Host
	// Expose makes a region of that many bytes, all zero, a multiple of WordSize. Nobody but its
	// owner has access until Grant. ErrDuplicate while a region of that name is open here,
	// ErrRegionName, ErrTooLarge, ErrClosed, or the machine's refusal of the memory.
	Expose(name string, size int) (Region, error)
	// Attach connects to a peer's region with the permission that its owner grants this host now.
	// It may be called again at any time, also beside an attachment that works. It waits for a peer
	// that is not there and for nothing else. Errors: ctx's own, ErrAccess (none granted: ask the
	// owner, by a message of the program's own), ErrNoRegion, ErrNotMember, ErrUnreachable (as
	// lanes: the peer was not there for the mend timeout), ErrClosed.
	Attach(ctx context.Context, peer PeerID, name string) (Attachment, error)
	// Queue makes a completion queue for up to depth operations outstanding, 1 to QueueDepthMax.
	// ErrTooLarge, ErrClosed.
	Queue(depth int) (Queue, error)
}

// Region is memory of this host that peers may access. It lies outside of Go's heap, aligned to a
// page, and is neither moved nor freed while a peer can reach it.
type Region interface {
	Name() string
	// Size is in bytes.
	Size() int
	// Bytes is the memory itself, for a part of it that the caller knows nobody else to write:
	// because it is the owner's own, or because Load found the mark that its writer leaves behind
	// the last byte. It must not be touched any more once Close was called.
	Bytes() []byte
	// Load reads the word at an offset that WordSize divides: all that its writer wrote before that
	// word is visible to what follows. It panics outside of the region, as a slice does.
	Load(offset int) uint64
	// Store writes the word at an offset that WordSize divides: who loads it, or reads it from
	// another host, sees all that this host wrote before. It panics outside of the region.
	Store(offset int, word uint64)
	// Grant sets what a peer's attachments to this region may do from now on. Where that changes
	// anything, the peer's attachments to the region are over: once Grant has returned, no byte of
	// theirs lands any more, and their pending and later operations complete with ErrAccess. The
	// peer attaches again to use what it was granted anew. It needs nothing of the peer, and takes
	// a bounded time. ErrNotMember, ErrClosed.
	Grant(peer Peer, permission Permission) error
	// Revoke is Grant with PermissionNone.
	Revoke(peer Peer) error
	// Await waits until ready says so, or gives ctx's error or ErrClosed. It calls ready now, some
	// times while it spins shortly, and then each time that a write with Ring landed or Wake was
	// called here: a waiting program uses no processor. What only writes without Ring changed, it
	// may not see until the next one.
	Await(ctx context.Context, ready func() bool) error
	// Wake has everyone look again who waits in Await.
	Wake()
	// Close revokes all access, waits for the last byte under way, and gives the memory back.
	// Closing again does nothing; closing the host closes its regions.
	Close() error
}

// Attachment is this host's access to a peer's region, under the permission that was granted as it
// was made. It works until its first operation that completes with an error: all that was posted
// behind that operation completes with the same error, so that no later write hides the gap that a
// lost one left.
type Attachment interface {
	// Peer is the life of the owner to which this leads.
	Peer() Peer
	Name() string
	// Size of the region, in bytes.
	Size() int
	Permission() Permission
	// Err is the error that ended the attachment, nil while it works as far as this host knows.
	Err() error
	// Close ends the attachment: what is outstanding completes, with ErrClosed where it did not
	// take place. Closing again does nothing.
	Close() error
}

// OperationKind says what an operation does.
type OperationKind uint8

// The kinds of operations.
const (
	OperationWrite OperationKind = iota + 1
	OperationRead
)

// String gives the kind in words.
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
	// Bytes are what is written, or where what is read is put. They belong to the fabric until the
	// completion, but for writes of up to InlineMax bytes. They are memory of the program's own: a
	// region's goes with its host, which may be before the operation is done with it.
	Bytes []byte
	// Ring wakes those who wait at the owner (Region.Await) once the write landed. Writes only.
	Ring bool
	// Tag comes back in the completion.
	Tag uint64
}

// Completion is the end of an operation. Without an error a write has landed: its owner, and
// everyone who reads the region from now on, sees it; and a read has all its bytes. With one, what
// a read has put is undefined, and of a write this is known: ErrAccess, nothing of it lands any
// more, but a beginning of it may have before the permission changed; otherwise (ErrUnreachable,
// ErrReset, ErrClosed) it may have landed, in part or in whole, and may do so until the owner
// changes this host's permission. What was posted behind a failed operation took place at most
// where that did.
type Completion struct {
	Tag  uint64
	Peer PeerID
	Err  error
}

// Queue takes operations to any number of peers and gives their completions: in the order of
// posting for each peer, in no order between peers. All methods may be called from several
// goroutines; operations of one call stay together.
type Queue interface {
	// Post starts the operations in order, all or none, and returns at once. Each completes exactly
	// once, whatever becomes of the peer: in its turn while the peer answers, with ErrUnreachable
	// once that has answered nothing for the mend timeout, which starts anew with each answer.
	// Errors, with nothing posted: ErrQueueFull, ErrBounds (an operation outside of its region),
	// ErrClosed (the queue or the host).
	Post(operations ...Operation) error
	// Poll gives completions that are there, up to len(into), without waiting.
	Poll(into []Completion) int
	// Wait is Poll that waits until there is at least one: it spins shortly and then parks. It
	// gives ctx's error, or ErrClosed once the queue is closed and empty; with nothing outstanding
	// it waits for what others post.
	Wait(ctx context.Context, into []Completion) (int, error)
	// Outstanding is the number of operations that were posted and whose completions were not
	// taken.
	Outstanding() int
	// Close ends the queue. What is outstanding goes on without it, and Bytes belong to the fabric
	// until the host is closed; take the completions first to know better. Closing again does
	// nothing.
	Close() error
}
