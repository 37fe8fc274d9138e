package tram

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/order"
)

// ErrState: bytes are not a Relay's state, or not one of this group in this tree.
var ErrState = errors.New("bad relay state")

// Item is an entry of a group's log, as the relay wants it.
type Item struct {
	// Number is 0 for a message that entered here, from a client; else its number in the parent's
	// stream, the first being 1.
	Number uint64
	// Message is what is ordered. The relay keeps none of its slices.
	Message order.Multicast
}

// Skip says why an item does nothing.
type Skip uint8

const (
	// SkipNone: it does something.
	SkipNone Skip = iota
	// SkipDuplicate: the item of this number was taken before.
	SkipDuplicate
	// SkipGap: an item with a smaller number was not taken yet. The item has to be put into the log
	// again, behind that.
	SkipGap
	// SkipUncovered: the message is not this group's business: it entered here and has a
	// destination out of reach, it came down and has none within reach, or it came down to the
	// root, which has no parent. The number of what came down is used up all the same.
	SkipUncovered
)

// String names the reason.
func (s Skip) String() string {
	switch s {
	case SkipNone:
		return "taken"
	case SkipDuplicate:
		return "duplicate"
	case SkipGap:
		return "gap"
	case SkipUncovered:
		return "not covered"
	default:
		return fmt.Sprintf("skip(%d)", uint8(s))
	}
}

// Forward is a message's place in a child's stream.
type Forward struct {
	Child order.GroupID
	// Number counts the child's stream from 1, without gaps.
	Number uint64
}

// Outcome is what the order of an item means for its group.
type Outcome struct {
	// Delivered: the group is a destination; its replicas A-deliver the message now [TRAM,
	// Algorithm 2, step 2.4].
	Delivered bool
	// Forwards are the message's places in the children's streams, by ascending child [TRAM,
	// Algorithm 2, step 2.5]. The slice is the relay's and valid until the next call of Order.
	Forwards []Forward
	// Skipped says why nothing happens; both other fields are empty unless it is SkipNone.
	Skipped Skip
}

// Relay is one group's part of TRAM over any log of the group: fed with what the log orders, item
// by item, it says what the group A-delivers and what goes into the numbered stream of each child.
// It is a pure state machine, so all replicas of a group that feed the same log into it hold the
// same streams. It is not for several goroutines at once.
type Relay struct {
	tree     *Tree
	self     order.GroupID
	position uint64
	// issued is the last number of each child's stream, in the order of Tree.Children.
	issued   []uint64
	route    []order.GroupID
	forwards []Forward
}

// NewRelay makes the relay of a group, with nothing ordered yet. It panics for a group that the
// tree does not have.
func NewRelay(tree *Tree, self order.GroupID) *Relay {
	if !tree.Has(self) {
		panic(fmt.Sprintf("tram: group %d is not one of the tree's %d", self, tree.Groups()))
	}
	return &Relay{tree: tree, self: self, issued: make([]uint64, len(tree.Children(self)))}
}

// Order takes the log's next item. It allocates nothing once every number of children was seen.
func (r *Relay) Order(item Item) Outcome {
	to := item.Message.To
	if item.Number == 0 {
		if !r.tree.Covers(r.self, to) {
			return Outcome{Skipped: SkipUncovered}
		}
	} else {
		if r.self == r.tree.root {
			return Outcome{Skipped: SkipUncovered}
		}
		if item.Number <= r.position {
			return Outcome{Skipped: SkipDuplicate}
		}
		if item.Number > r.position+1 {
			return Outcome{Skipped: SkipGap}
		}
		// Whatever it holds, the number is used up: otherwise the stream would wait for ever.
		r.position = item.Number
	}
	delivered := slices.Contains(to, r.self)
	r.route = r.tree.AppendRoute(r.route[:0], r.self, to)
	if !delivered && len(r.route) == 0 {
		return Outcome{Skipped: SkipUncovered}
	}
	r.forwards = r.forwards[:0]
	for _, child := range r.route {
		at := r.place(child)
		r.issued[at]++
		r.forwards = append(r.forwards, Forward{Child: child, Number: r.issued[at]})
	}
	return Outcome{Delivered: delivered, Forwards: r.forwards}
}

// place is a child's place among the children.
func (r *Relay) place(child order.GroupID) int {
	at, exact := slices.BinarySearch(r.tree.children[r.self], child)
	if !exact {
		panic(fmt.Sprintf("tram: a route of group %d leads to group %d, which is no child of it",
			r.self, child))
	}
	return at
}

// Self is the relay's group.
func (r *Relay) Self() order.GroupID { return r.self }

// Position is the number of the last item taken from the parent's stream, 0 for none: the next to
// take is one more.
func (r *Relay) Position() uint64 { return r.position }

// Issued is the last number of a child's stream, 0 for none, also for a group that is no child.
func (r *Relay) Issued(child order.GroupID) uint64 {
	at, exact := slices.BinarySearch(r.tree.children[r.self], child)
	if !exact {
		return 0
	}
	return r.issued[at]
}

// Clone gives an independent relay in the same state. The tree is shared.
func (r *Relay) Clone() *Relay {
	return &Relay{tree: r.tree, self: r.self, position: r.position, issued: slices.Clone(r.issued)}
}

// AppendState appends all that the relay's further behaviour depends on, for a snapshot or to
// compare: the group, the number of children, the position, and each child's last number, as 4, 4,
// 8 and 8 bytes, big-endian.
func (r *Relay) AppendState(state []byte) []byte {
	state = binary.BigEndian.AppendUint32(state, uint32(r.self))
	state = binary.BigEndian.AppendUint32(state, uint32(len(r.issued)))
	state = binary.BigEndian.AppendUint64(state, r.position)
	for _, number := range r.issued {
		state = binary.BigEndian.AppendUint64(state, number)
	}
	return state
}

// RestoreRelay makes the relay of a group with a state that AppendState gave. ErrState with the
// reason.
func RestoreRelay(tree *Tree, self order.GroupID, state []byte) (*Relay, error) {
	const fixed = 16
	if !tree.Has(self) {
		return nil, fmt.Errorf("%w: group %d is not one of the tree's %d", ErrState,
			self, tree.Groups())
	}
	r := NewRelay(tree, self)
	if want := fixed + 8*len(r.issued); len(state) != want {
		return nil, fmt.Errorf("%w: %d bytes, want %d for group %d", ErrState, len(state), want,
			self)
	}
	group, children := binary.BigEndian.Uint32(state), binary.BigEndian.Uint32(state[4:])
	if group != uint32(self) || children != uint32(len(r.issued)) {
		return nil, fmt.Errorf("%w: it is of group %d with %d children, want group %d with %d",
			ErrState, group, children, self, len(r.issued))
	}
	r.position = binary.BigEndian.Uint64(state[8:])
	if self == tree.root && r.position != 0 {
		return nil, fmt.Errorf("%w: the root took %d items from a parent", ErrState, r.position)
	}
	for i := range r.issued {
		r.issued[i] = binary.BigEndian.Uint64(state[fixed+8*i:])
	}
	return r, nil
}
